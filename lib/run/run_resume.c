#include "run/run_resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
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

/* NULL: it can. */
static const char *why_not(const run *r)
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

static uint64_t hash_plan(const run *r)
{
    uint64_t h = crc64_add_u64(plan_hash(r->plan), exec_hash(r->exec));
    size_t end = strlen(r->dst);
    while (end > 1 && r->dst[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && r->dst[begin - 1] != '/')
        begin--;
    h = crc64_add_u64(h, (uint64_t)run_output_kind(r));
    return crc64_update(h, r->dst + begin, end - begin);
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
    h->plan = hash_plan(r);
    for (size_t i = 0; i < catalogue_file_count(from); i++)
        RETURN_IF(add_source(h, catalogue_file(from, i), err));
    for (size_t i = 0; i < catalogue_file_count(to); i++)
        RETURN_IF(vec_add(&h->outputs, &catalogue_file(to, i)->nbytes, err));
    return FSDPCK_OK;
}

/* ---- the partial of an earlier run ---- */

/* `next` "": as the kind of finding has it. */
static void warn_fresh(const run *r, const char *partial, const char *what, const char *why,
                       const char *next)
{
    log_warn(&r->ctx->log, FSDPCK_FINDING_RESUME_FRESH, next,
             "'%s' next to '%s' %s, and the run begins from the start: %s", partial, r->dst, what,
             why);
}

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
        snprintf(text, capacity, "source file '%s' changed",
                 r->src->src.root_is_file ? r->src->src.root
                                          : catalogue_name(from, catalogue_file(from, at)->path));
        return text;
    case JOURNAL_PARTIAL:
        return "its journal belongs to another file";
    default:
        return "the options, or the files of the output, changed";
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
    if (p->continues) /* a second one of the same output */
        return FSDPCK_OK;
    RETURN_IF(output_adopt(&r->out, r->dst, run_output_kind(r), run_output_flags(r), partial,
                           &adopted, err));
    r->out.log = r->ctx->log;
    if (adopted == OUTPUT_ADOPT_BUSY)
        warn_fresh(r, partial, "was not used", in_use, next_in_use);
    else if (adopted == OUTPUT_ADOPT_FOREIGN)
        warn_fresh(r, partial, "was not used", "it is of another user or kind",
                   "remove it if no run needs it");
    if (adopted != OUTPUT_ADOPTED)
        return FSDPCK_OK;
    if (!lock_journal(r)) {
        warn_fresh(r, partial, "was not used", in_use, next_in_use);
        return forget(r, true);
    }
    p->continues = can_continue(r, text, sizeof text, &why);
    if (p->continues)
        return FSDPCK_OK;
    warn_fresh(r, partial, "was removed", why, "");
    return forget(r, false);
}

/* Rank 0 looks for a partial. */
static fsdpck_status find(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    strtab names;
    journal_header_init(&p->header, &r->src->metadata);
    RETURN_IF(make_header(r, err));
    if (group_rank(r->ctx->group) != 0)
        return FSDPCK_OK;
    strtab_init(&names, NULL);
    fsdpck_status st = output_find_journals(r->dst, &names, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&names); i++)
        st = try_partial(r, strtab_text(&names, i), err);
    strtab_release(&names);
    if (st == FSDPCK_OK && p->continues)
        log_write(&r->ctx->log, LOG_NOTE,
                  "continuing '%s': %zu finished ranges, %" PRIu64 " bytes%s", r->out.partial_name,
                  p->finished.ranges.count, p->finished.nbytes,
                  group_size(r->ctx->group) > 1 ? " of rank 0" : "");
    if (st == FSDPCK_OK && p->finished.torn_nbytes > 0)
        log_write(&r->ctx->log, LOG_DETAIL, "the last %" PRIu64 " bytes of its journal are cut",
                  p->finished.torn_nbytes);
    return st;
}

fsdpck_status resume_find(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    group *g = r->ctx->group;
    if (!r->opt.output.resume || r->opt.dry_run.mode)
        return FSDPCK_OK;
    const char *why = why_not(r);
    uint64_t refused = why != NULL;
    if (g != NULL)
        RETURN_IF(group_or(g, &refused, 1, err));
    if (refused != 0) {
        if (why != NULL)
            log_write(&r->ctx->log, LOG_NOTE, "--resume does not apply to this run: %s", why);
        return FSDPCK_OK;
    }
    p->on = true;
    RETURN_IF(group_agree(g, find(r, err), err));
    uint8_t continues = p->continues;
    if (g != NULL)
        RETURN_IF(group_broadcast(g, 0, &continues, sizeof continues, err));
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

fsdpck_status resume_join(run *r, fsdpck_error *err)
{
    run_resume *p = &r->resume;
    journal_lock lock = JOURNAL_NO_LOCK;
    size_t at;
    if (!p->on)
        return FSDPCK_OK;
    RETURN_IF(output_name_journal(&r->out, group_rank(r->ctx->group), err));
    p->header.partial_ino = r->out.new_ino;
    /* Rank 0 has the lock of the run. A journal that does not fit belongs to no other one. */
    if (p->continues &&
        journal_open(&p->writer, &r->out.parent, r->out.journal_name, &lock, NULL) == FSDPCK_OK &&
        lock != JOURNAL_BUSY &&
        journal_read(&p->finished, &r->out.parent, r->out.journal_name, &r->src->metadata, NULL) ==
            FSDPCK_OK &&
        journal_compare(&p->finished.header, &p->header, &at) == JOURNAL_SAME) {
        exec_use_journal(r->exec, &p->finished, p->writer);
        return journal_continue(p->writer, &p->finished, err);
    }
    journal_close(p->writer);
    p->writer = NULL;
    journal_release(&p->finished);
    output_remove_name(&r->out, r->out.journal_name);
    return create_journal(r, err);
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
