#include "run/run_resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "io/output_remains.h"
#include "run/resume_report.h"
#include "run/run.h"

/* ---- whether a run can have a journal ---- */

/* Values that depend on more than the bytes of the source and the plan. */
static bool is_computed(const run *r)
{
    for (const fsdpck_checkpoint *c = r->src; c != NULL; c = c->base)
        if (c->average != NULL || c->merger != NULL || c->dequantizer != NULL)
            return true;
    return exec_is_computed(r->exec);
}

static bool is_identified(const catalogue *from)
{
    bool is = true;
    for (size_t i = 0; i < catalogue_file_count(from); i++)
        is = is && catalogue_file(from, i)->identity != 0;
    return is;
}

const char *resume_obstacle(const run *r)
{
    if (run_is_compressed(r))
        return "the sizes of a compressed output are not known before it is written";
    if (r->gpu != NULL)
        return "the engine is a GPU";
    if (is_computed(r))
        return "values of the output are computed";
    if (r->src->remote_files != NULL)
        return "files of the source are on other hosts";
    if (!is_identified(&r->src->cat))
        return "the identity of a file of the source is unknown";
    return NULL;
}

/* ---- the header of the journal ---- */

/* Hashes of the header, in the order in which a difference is reported. */
enum { HASH_NAME, HASH_FORMAT, HASH_PLAN, HASH_CHUNKS = HASH_PLAN + PLAN_ASPECTS, HASHES };

static const char *const differs[HASHES] = {
    [HASH_NAME] = "the name of the output differs",
    [HASH_FORMAT] = "the format of the output differs (--format)",
    [HASH_PLAN + PLAN_SOURCE] =
        "SRC is read in another way (such as --map, --model, --source-format)",
    [HASH_PLAN + PLAN_TENSORS] =
        "other tensors, names or shapes are selected (such as --part, --keys, --exclude, --rename)",
    [HASH_PLAN + PLAN_DTYPES] = "dtypes differ (--dtype)",
    [HASH_PLAN + PLAN_BOXES] =
        "the shards differ (such as --world-size, --mesh, --shard, --replicate)",
    [HASH_PLAN + PLAN_FILES] =
        "output files differ in names, sizes or order (such as --max-shard-size, --align)",
    [HASH_PLAN + PLAN_CONSTANTS] = "metadata of the output differs (such as --objects, --torch)",
    [HASH_PLAN + PLAN_READING] = "replicas are compared in another way (--replicas)",
    [HASH_CHUNKS] = "tensors of SRC are located elsewhere in its files",
};

static fsdpck_status add_hashes(const run *r, vec *to, fsdpck_error *err)
{
    uint64_t h[HASHES];
    size_t end = strlen(r->dst);
    while (end > 1 && r->dst[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && r->dst[begin - 1] != '/')
        begin--;
    h[HASH_NAME] = crc64_update(0, r->dst + begin, end - begin);
    h[HASH_FORMAT] =
        crc64_update((uint64_t)run_output_kind(r), r->writer->name, strlen(r->writer->name));
    plan_hashes(r->plan, h + HASH_PLAN);
    h[HASH_CHUNKS] = exec_hash(r->exec);
    return vec_add_n(to, h, HASHES, err);
}

/* As the files were opened: another file may have their names by now. */
static fsdpck_status add_source(journal_header *h, const cat_file *f, fsdpck_error *err)
{
    const journal_source s = {.nbytes = f->nbytes, .identity = f->identity};
    return vec_add(&h->sources, &s, err);
}

static fsdpck_status make_header(run *r, fsdpck_error *err)
{
    journal_header *h = &r->resume.header;
    const catalogue *from = &r->src->cat, *to = &r->to.cat;
    h->rank = group_rank(r->ctx->group);
    h->ranks = group_size(r->ctx->group);
    h->program = crc64_update(0, FSDPCK_VERSION, sizeof FSDPCK_VERSION);
    RETURN_IF(add_hashes(r, &h->plan, err));
    for (size_t i = 0; i < catalogue_file_count(from); i++)
        RETURN_IF(add_source(h, catalogue_file(from, i), err));
    for (size_t i = 0; i < catalogue_file_count(to); i++)
        RETURN_IF(vec_add(&h->outputs, &catalogue_file(to, i)->nbytes, err));
    return FSDPCK_OK;
}

/* ---- the partial of an earlier run ---- */

/* The text of a difference. */
static const char *describe(const run *r, journal_difference difference, size_t at, char *text,
                            size_t capacity)
{
    const catalogue *from = &r->src->cat;
    const journal_header *before = &r->resume.finished.header, *now = &r->resume.header;
    switch (difference) {
    case JOURNAL_PROGRAM:
        return "another version of fsdpck wrote it";
    case JOURNAL_RANKS:
        snprintf(text, capacity, "its run had %" PRIu32 " ranks, this one has %" PRIu32,
                 before->ranks, now->ranks);
        return text;
    case JOURNAL_SOURCE_COUNT:
        snprintf(text, capacity, "SRC had %zu files, now %zu", before->sources.count,
                 now->sources.count);
        return text;
    case JOURNAL_SOURCE:
        snprintf(text, capacity, "source file '%s' changed (size, mtime, ctime or inode)",
                 r->src->src.root_is_file ? r->src->src.root
                                          : catalogue_name(from, catalogue_file(from, at)->path));
        return text;
    case JOURNAL_PARTIAL:
        return "its journal belongs to another file";
    default:
        return at < HASHES ? differs[at] : "the options differ";
    }
}

/* Whether the adopted output can be continued; else it is to be removed, and *why is set. */
static bool can_continue(run *r, char *text, size_t capacity, const char **why)
{
    run_resume *p = &r->resume;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    size_t at;
    if (p->writer == NULL) {
        *why = "its journal cannot be opened";
        return false;
    }
    if (journal_read(&p->finished, &r->out.parent, r->out.journal_name, &r->src->metadata, &err) !=
        FSDPCK_OK) {
        snprintf(text, capacity, "%s", err.message);
        *why = text;
        return false;
    }
    p->header.partial_ino = r->out.new_ino;
    const journal_difference d = journal_compare(&p->finished.header, &p->header, &at);
    if (d != JOURNAL_SAME)
        *why = describe(r, d, at, text, capacity);
    return d == JOURNAL_SAME;
}

static const char in_use[] = "another run has it, or the file system has no locks";
static const char next_in_use[] =
    "if another run writes this output, let only one of them go on; otherwise remove the file: "
    "fsdpck inspect --partials lists it";

/* Why an object with the name of a partial cannot be adopted. */
static const char *describe_foreign(const run *r, output_adopted adopted)
{
    if (adopted == OUTPUT_ADOPT_OTHER_USER)
        return "it belongs to another user";
    if (adopted == OUTPUT_ADOPT_LINKED)
        return "it has a second name (hard link)";
    return run_output_kind(r) == OUTPUT_FOLDER ? "it is not a folder, as this output is (--format)"
                                               : "it is not a file, as this output is (--format)";
}

/* Locks the journal of an adopted output; false: another run may have it. */
static bool lock_journal(run *r)
{
    run_resume *p = &r->resume;
    journal_lock lock = JOURNAL_NO_LOCK;
    if (journal_open(&p->writer, &r->out.parent, r->out.journal_name, &lock, NULL) != FSDPCK_OK)
        return r->out.lock_fd >= 0; /* it cannot be read either: see can_continue */
    return lock == JOURNAL_LOCKED || (lock == JOURNAL_NO_LOCK && r->out.lock_fd >= 0);
}

static fsdpck_status forget(run *r, bool keeps)
{
    run_resume *p = &r->resume;
    journal_close(p->writer);
    p->writer = NULL;
    journal_release(&p->finished);
    r->out.keeps = keeps;
    output_release(&r->out);
    return FSDPCK_OK;
}

static fsdpck_status try_partial(run *r, const char *partial, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    char text[1024];
    const char *why = NULL;
    output_adopted adopted;
    RETURN_IF(output_adopt(&r->out, r->dst, run_output_kind(r), run_output_flags(r), partial,
                           &adopted, err));
    r->out.log = r->ctx->log;
    if (adopted == OUTPUT_ADOPT_BUSY)
        resume_warn_fresh(r, partial, "was not used", in_use, next_in_use);
    else if (adopted != OUTPUT_ADOPTED && adopted != OUTPUT_ADOPT_ABSENT)
        resume_warn_fresh(r, partial, "was not used", describe_foreign(r, adopted),
                          resume_next_not_needed);
    if (adopted != OUTPUT_ADOPTED)
        return FSDPCK_OK;
    if (!lock_journal(r)) {
        resume_warn_fresh(r, partial, "was not used", in_use, next_in_use);
        return forget(r, true);
    }
    p->continues = can_continue(r, text, sizeof text, &why);
    if (p->continues)
        return FSDPCK_OK;
    resume_warn_fresh(r, partial, "was removed", why, "");
    return forget(r, false);
}

/* Rank 0 looks for a partial. */
static fsdpck_status find(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    output_remains found;
    journal_header_init(&p->header, &r->src->metadata);
    RETURN_IF(make_header(r, err));
    if (group_rank(r->ctx->group) != 0)
        return FSDPCK_OK;
    fsdpck_status st = output_remains_find(&found, r->dst, &p->header, err);
    for (size_t i = 0; st == FSDPCK_OK && !p->continues && i < found.list.count; i++) {
        const output_remain *o = output_remain_at(&found, i);
        if (o->has_partial && o->has_journal)
            st = try_partial(r, o->partial, err);
    }
    if (st == FSDPCK_OK) {
        resume_report_continued(r);
        resume_report_remains(r, &found);
    }
    output_remains_release(&found);
    return st;
}

fsdpck_status resume_find(run *r, fsdpck_status st, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    group *g = r->ctx->group;
    if (!r->opt.output.resume || r->opt.dry_run.mode)
        return st;
    RETURN_IF(group_agree(g, st, err));
    const char *why = resume_obstacle(r);
    uint64_t refused = why != NULL;
    if (g != NULL)
        RETURN_IF(group_or(g, &refused, 1, err));
    if (refused != 0)
        return group_agree(g, resume_report_refused(r, why, err), err);
    p->on = true;
    st = find(r, err);
    uint8_t continues = p->continues;
    RETURN_IF(group_agree_broadcast(g, st, GROUP_STOPS, 0, &continues, sizeof continues, err));
    p->continues = continues != 0;
    return FSDPCK_OK;
}

/* ---- the journal of this run ---- */

static fsdpck_status create_journal(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    journal_lock lock;
    p->header.partial_ino = r->out.new_ino;
    RETURN_IF(
        journal_create(&p->writer, &r->out.parent, r->out.journal_name, &p->header, &lock, err));
    exec_use_journal(r->exec, NULL, p->writer);
    if (r->out.joined || r->out.lock_fd >= 0 || lock == JOURNAL_LOCKED)
        return FSDPCK_OK;
    log_write(&r->ctx->log, LOG_NOTE,
              "the file system of '%s' has no locks: a later run with --resume cannot use this one",
              r->dst);
    return FSDPCK_OK;
}

fsdpck_status resume_begin(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    if (!p->continues)
        RETURN_IF(output_begin(&r->out, r->dst, run_output_kind(r), run_output_flags(r), err));
    r->out.log = r->ctx->log;
    if (!p->on)
        return FSDPCK_OK;
    if (p->continues) {
        exec_use_journal(r->exec, &p->finished, p->writer);
        return journal_continue(p->writer, &p->finished, err);
    }
    RETURN_IF(output_name_journal(&r->out, 0, err));
    return create_journal(r, err);
}

/* What became of the journal of another rank. */
enum { RANK_KEPT, RANK_LOST, RANK_DAMAGED, RANK_BUSY, RANK_DIFFERS, RANK_STATES };

/* Rank 0 has the lock of the run. A journal that does not fit belongs to no other one. */
static uint8_t read_joined(run *r)
{
    run_resume *p = &r->resume;
    journal_lock lock;
    size_t at;
    path_kind kind = PATH_ABSENT;
    if (path_probe(&r->out.parent, r->out.journal_name, &kind, NULL, NULL) == FSDPCK_OK &&
        kind == PATH_ABSENT)
        return RANK_LOST;
    if (journal_open(&p->writer, &r->out.parent, r->out.journal_name, &lock, NULL) != FSDPCK_OK)
        return RANK_DAMAGED;
    if (lock == JOURNAL_BUSY)
        return RANK_BUSY;
    if (journal_read(&p->finished, &r->out.parent, r->out.journal_name, &r->src->metadata, NULL) !=
        FSDPCK_OK)
        return RANK_DAMAGED;
    return journal_compare(&p->finished.header, &p->header, &at) == JOURNAL_SAME ? RANK_KEPT
                                                                                 : RANK_DIFFERS;
}

fsdpck_status resume_join(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    if (!p->on)
        return FSDPCK_OK;
    RETURN_IF(output_name_journal(&r->out, group_rank(r->ctx->group), err));
    p->header.partial_ino = r->out.new_ino;
    if (p->continues) {
        p->joined = read_joined(r);
        if (p->joined == RANK_KEPT) {
            exec_use_journal(r->exec, &p->finished, p->writer);
            return journal_continue(p->writer, &p->finished, err);
        }
    }
    journal_close(p->writer);
    p->writer = NULL;
    journal_release(&p->finished);
    output_remove_name(&r->out, r->out.journal_name);
    return create_journal(r, err);
}

typedef struct joined_counts {
    unsigned count, first; /* ranks, and the first of them */
    unsigned state;        /* of the first */
} joined_counts;

static fsdpck_status count_joined(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                  fsdpck_error *err)
{
    joined_counts *n = ctx;
    (void)err;
    if (nbytes == 1 && bytes[0] != RANK_KEPT && n->count++ == 0) {
        n->first = rank;
        n->state = bytes[0];
    }
    return FSDPCK_OK;
}

fsdpck_status resume_report_joined(run *r, fsdpck_status st, fsdpck_error *err)
{
    static const char *const states[RANK_STATES] = {
        [RANK_LOST] = "is missing",
        [RANK_DAMAGED] = "is damaged",
        [RANK_BUSY] = "is in use by another process",
        [RANK_DIFFERS] = "belongs to another run",
    };
    const run_resume *p = &r->resume;
    joined_counts n = {0};
    char others[64] = "";
    if (!p->continues || group_size(r->ctx->group) == 1)
        return st;
    RETURN_IF(
        group_all_gather(r->ctx->group, st, GROUP_STOPS, &p->joined, 1, count_joined, &n, err));
    if (n.count == 0 || group_rank(r->ctx->group) != 0)
        return FSDPCK_OK;
    if (n.count > 1)
        snprintf(others, sizeof others, ", and %u more cannot be used", n.count - 1);
    log_warn(&r->ctx->log, FSDPCK_FINDING_RESUME_FRESH,
             "keep the journals of all ranks beside the unfinished output",
             "'%s' next to '%s': the journal of rank %u %s%s: %s ranges are written again",
             r->out.partial_name, r->dst, n.first, n.state < RANK_STATES ? states[n.state] : "",
             others, n.count == 1 ? "its" : "their");
    return FSDPCK_OK;
}

/* After a failed fsync, bytes that are only in the page cache may be lost: output_finish then removes the partial. */
bool resume_keeps(const run *r, fsdpck_status st)
{
    const run_resume *p = &r->resume;
    const bool has_ranges =
        p->continues || r->out.joined || (p->writer != NULL && journal_added(p->writer) > 0);
    return p->on && has_ranges && !r->out.committed &&
           (st == FSDPCK_CANCELLED || st == FSDPCK_IO || st == FSDPCK_NOSPACE || st == FSDPCK_PEER);
}

void resume_end(run *r, fsdpck_status st)
{
    run_resume *p = &r->resume;
    if (!p->on)
        return;
    if (p->writer != NULL) {
        journal_flush(p->writer);
        if (journal_errno(p->writer) != 0)
            log_write(&r->ctx->log, LOG_NOTE, "the journal of '%s' is incomplete: %s", r->dst,
                      strerror(journal_errno(p->writer)));
    }
    if (!r->out.created || !resume_keeps(r, st))
        return;
    r->out.keeps = true;
    log_write(&r->ctx->log, LOG_NOTE,
              "'%s' next to '%s' was kept: run the same command again to continue",
              r->out.partial_name, r->dst);
}

void resume_release(run_resume *p)
{
    journal_close(p->writer);
    p->writer = NULL;
    journal_header_release(&p->header);
    journal_release(&p->finished);
}
