#include "run/local_output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/manifest.h"
#include "run/manifest_run.h"
#include "run/output_replaced.h"
#include "run/run.h"

/* Bytes per copy step. */
#define COPY_NBYTES ((uint64_t)8 << 20)
/* Copies at a time: enough for any network. */
#define COPY_THREADS 8u

static bool is_host_leader(const run *r)
{
    return hosts_is_leader(&r->local.hosts, group_rank(r->ctx->group));
}

/* ---- beginning ---- */

static fsdpck_status add_files(run *r, fsdpck_error *err)
{
    size_t index;
    for (size_t i = 0; i < r->local.file_count; i++) {
        if (r->local.here[i])
            RETURN_IF(run_add_file(r, i, err));
        else
            RETURN_IF(output_add_none(&r->out, &index, err));
    }
    return FSDPCK_OK;
}

/* Temporary names of the ranks that begin an output. */
typedef struct partial_names {
    char **of_rank;
} partial_names;

static fsdpck_status receive_name(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                  fsdpck_error *err)
{
    partial_names *names = ctx;
    names->of_rank[rank] = strndup((const char *)bytes, nbytes);
    return names->of_rank[rank] != NULL ? FSDPCK_OK : error_set_nomem(err, nbytes);
}

/* Two hosts on one file system could not both use the final name. */
static fsdpck_status check_not_shared(const run *r, const partial_names *names, fsdpck_error *err)
{
    const group *g = r->ctx->group;
    for (unsigned h = 0; h < r->local.hosts.count; h++) {
        const unsigned leader = r->local.hosts.leaders[h];
        if (h == r->local.hosts.mine || names->of_rank[leader] == NULL ||
            faccessat(r->out.parent.fd, names->of_rank[leader], F_OK, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        return FAIL_WITH(err, USAGE, GROUP_SHARED,
                         ("--output-local is given, but two hosts share the output folder"),
                         (path, r->dst), (expected, "a separate file system on each host"),
                         (found, "files written on %s are also on %s", group_host(g, leader),
                          group_host(g, group_rank(g))));
    }
    return FSDPCK_OK;
}

static fsdpck_status join(run *r, const partial_names *names, fsdpck_error *err)
{
    const unsigned leader = r->local.hosts.leaders[r->local.hosts.mine];
    const unsigned flags = r->opt.output.no_sync ? OUTPUT_NO_SYNC : 0u;
    if (names->of_rank[leader] == NULL)
        return FAIL(err, INTERNAL, NONE, "output of this host has no name");
    RETURN_IF(output_join(&r->out, r->dst, run_output_kind(r), flags, names->of_rank[leader], err));
    r->out.log = r->ctx->log;
    return add_files(r, err);
}

static fsdpck_status begin_with(run *r, fsdpck_status st, partial_names *names, fsdpck_error *err)
{
    group *g = r->ctx->group;
    if (is_host_leader(r) && st == FSDPCK_OK)
        st = output_begin(&r->out, r->dst, run_output_kind(r), run_output_flags(r), err);
    if (is_host_leader(r) && st == FSDPCK_OK) {
        r->out.log = r->ctx->log;
        st = output_guard_replaced(r, err);
        if (st == FSDPCK_OK)
            st = add_files(r, err);
    }
    const char *mine = is_host_leader(r) && st == FSDPCK_OK ? r->out.partial_name : "";
    st = group_all_gather_part(g, st, GROUP_STOPS, mine, strlen(mine), receive_name, names, err);
    if (st == FSDPCK_OK)
        st = is_host_leader(r) ? check_not_shared(r, names, err) : join(r, names, err);
    return st;
}

fsdpck_status local_output_begin(run *r, fsdpck_status st, fsdpck_error *err)
{
    group *g = r->ctx->group;
    const unsigned ranks = group_size(g);
    partial_names names = {calloc(ranks, sizeof *names.of_rank)};
    if (st == FSDPCK_OK && names.of_rank == NULL)
        st = error_set_nomem(err, ranks * sizeof *names.of_rank);
    st = begin_with(r, st, &names, err);
    for (unsigned i = 0; names.of_rank != NULL && i < ranks; i++)
        free(names.of_rank[i]);
    free((void *)names.of_rank);
    return st;
}

/* ---- bytes on other hosts ---- */

static fsdpck_status serve(void *ctx, const link_range *what, void *dst, fsdpck_error *err)
{
    const local_output *l = ctx;
    if (what->file >= l->out->files.count)
        return FAIL(err, INTERNAL, NONE, "request for an output file without a number");
    return output_read_at(l->out, what->file, what->offset, dst, what->nbytes, err);
}

typedef struct copy_block {
    size_t index;
    uint64_t offset_bytes, nbytes;
} copy_block;

typedef struct copy_work {
    run *r;
    vec pieces; /* copy_block */
    uint8_t *buffers;
} copy_work;

static fsdpck_status copy_one(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const copy_work *w = ctx;
    const copy_block *p = VEC_AT(&w->pieces, const copy_block, job);
    uint8_t *buffer = w->buffers + worker * COPY_NBYTES;
    RETURN_IF(local_output_read(w->r, p->index, p->offset_bytes, buffer, p->nbytes, err));
    RETURN_IF(output_write_at(&w->r->out, p->index, p->offset_bytes, buffer, p->nbytes, err));
    progress_add(&w->r->ctx->progress, p->nbytes);
    return FSDPCK_OK;
}

static fsdpck_status add_copy_blocks(copy_work *w, size_t index, uint64_t nbytes, fsdpck_error *err)
{
    for (uint64_t at = 0; at < nbytes; at += COPY_NBYTES) {
        RETURN_IF(vec_add(
            &w->pieces,
            &(copy_block){index, at, nbytes - at < COPY_NBYTES ? nbytes - at : COPY_NBYTES}, err));
    }
    return FSDPCK_OK;
}

/* Files for this host that other hosts wrote. */
static fsdpck_status list_copy_blocks(copy_work *w, uint64_t *nbytes, fsdpck_error *err)
{
    const run *r = w->r;
    const local_output *l = &r->local;
    *nbytes = 0;
    for (size_t i = 0; i < r->out.files.count; i++) {
        const bool here = i >= l->file_count || l->here[i];
        if (!here || local_output_writer_host(l, i) == l->hosts.mine)
            continue;
        const uint64_t size = output_file_nbytes(&r->out, i);
        RETURN_IF(add_copy_blocks(w, i, size, err));
        *nbytes += size;
    }
    return FSDPCK_OK;
}

static fsdpck_status copy_all(run *r, fsdpck_error *err)
{
    unsigned threads = thread_count(r->opt.work.threads);
    const uint64_t fit = run_memory_nbytes(r) / COPY_NBYTES;
    copy_work w = {.r = r, .pieces = VEC_OF(copy_block, NULL)};
    uint64_t nbytes;
    threads = threads < COPY_THREADS ? threads : COPY_THREADS;
    threads = threads < fit ? threads : (unsigned)fit;
    fsdpck_status st = list_copy_blocks(&w, &nbytes, err);
    if (st == FSDPCK_OK && w.pieces.count > 0) {
        w.buffers = malloc(threads * COPY_NBYTES);
        if (w.buffers == NULL)
            st = error_set_nomem(err, threads * COPY_NBYTES);
        progress_phase(&r->ctx->progress, "copying to other hosts", nbytes);
    }
    if (st == FSDPCK_OK)
        st = pool_run(threads, w.pieces.count, copy_one, &w, &r->ctx->cancel, err);
    r->local.copied_nbytes = nbytes;
    free(w.buffers);
    vec_release(&w.pieces);
    return st;
}

/* ---- files made by rank 0 ---- */

/* Names and sizes of the files after those of the target. */
static fsdpck_status pack_extra_totals(run *r, text_buf *text, fsdpck_error *err)
{
    for (size_t i = r->local.file_count; i < r->out.files.count; i++) {
        const uint64_t nbytes = output_file_nbytes(&r->out, i);
        const char *name = output_file_name(&r->out, i);
        text_append(text, (const char *)&nbytes, sizeof nbytes);
        text_append(text, name, strlen(name) + 1);
    }
    return text_check(text, err);
}

static fsdpck_status receive_extra_totals(void *ctx, unsigned rank, const uint8_t *bytes,
                                          uint64_t nbytes, fsdpck_error *err)
{
    run *r = ctx;
    (void)rank;
    for (uint64_t at = 0; at < nbytes;) {
        uint64_t size;
        size_t index;
        memcpy(&size, bytes + at, sizeof size);
        const char *name = (const char *)bytes + at + sizeof size;
        for (unsigned h = 0; h < r->local.hosts.count; h++) {
            r->local.totals[h].files++;
            r->local.totals[h].nbytes += size;
        }
        if (is_host_leader(r) && group_rank(r->ctx->group) != 0)
            RETURN_IF(output_add(&r->out, name, size, false, &index, err));
        at += sizeof size + strlen(name) + 1;
    }
    return FSDPCK_OK;
}

/* The ranks agree on st, and on the result next. */
static fsdpck_status add_extra_totals(run *r, fsdpck_status st, fsdpck_error *err)
{
    text_buf text = {.limit_bytes = (uint64_t)1 << 30};
    if (st == FSDPCK_OK && group_rank(r->ctx->group) == 0)
        st = pack_extra_totals(r, &text, err);
    st = group_all_gather_part(r->ctx->group, st, GROUP_STOPS, text.text, text.nbytes,
                               receive_extra_totals, r, err);
    text_release(&text);
    return st;
}

static fsdpck_status write_deferred(void *ctx, const deferred_bytes *late, fsdpck_error *err)
{
    run *r = ctx;
    target_add_file_crc(&r->to, late->file, late->offset_bytes, late->bytes, late->nbytes);
    return r->local.own[late->file] ? output_write_at(&r->out, late->file, late->offset_bytes,
                                                      late->bytes, late->nbytes, err)
                                    : FSDPCK_OK;
}

static fsdpck_status seal(run *r, fsdpck_error *err)
{
    return r->writer->seal != NULL && is_host_leader(r)
               ? r->writer->seal(&r->to, write_deferred, r, err)
               : FSDPCK_OK;
}

static fsdpck_status write_extra_files(run *r, text_buf *manifest_text, fsdpck_error *err)
{
    if (group_rank(r->ctx->group) != 0)
        return FSDPCK_OK;
    RETURN_IF(sidecars_add(&r->side, &r->out, err));
    RETURN_IF(sidecars_copy(&r->side, &r->out, &r->ctx->cancel, err));
    RETURN_IF(manifest_run_make(r, manifest_text, err));
    return manifest_run_write(r, manifest_text, err);
}

/* ---- the end ---- */

static fsdpck_status finish(run *r, const text_buf *manifest_text, output *beside,
                            fsdpck_error *err)
{
    if (!is_host_leader(r))
        return FSDPCK_OK;
    RETURN_IF(cancel_check(&r->ctx->cancel, err));
    RETURN_IF(request_check_still_empty(r, err));
    if (r->opt.output.manifest_path != NULL && group_rank(r->ctx->group) == 0) {
        RETURN_IF(run_stage_manifest(r, manifest_text, beside, err));
        RETURN_IF(output_finish(beside, err));
    }
    progress_phase(&r->ctx->progress, "making durable", 0);
    return output_finish(&r->out, err);
}

static fsdpck_status publish(run *r, output *beside, fsdpck_error *err)
{
    if (!is_host_leader(r))
        return FSDPCK_OK;
    return beside->created ? output_publish_both(&r->out, beside, err)
                           : output_publish(&r->out, err);
}

static fsdpck_status agree_on_commit(run *r, output *beside, fsdpck_error *err)
{
    if (!is_host_leader(r))
        return FSDPCK_OK;
    return beside->created ? output_remove_replaced_both(&r->out, beside, err)
                           : output_remove_replaced(&r->out, err);
}

static fsdpck_status commit(run *r, const text_buf *manifest_text, fsdpck_error *err)
{
    group *g = r->ctx->group;
    output beside = {0};
    fsdpck_status st = group_agree(g, finish(r, manifest_text, &beside, err), err);
    if (st == FSDPCK_OK) {
        st = group_agree(g, publish(r, &beside, err), err);
        if (st != FSDPCK_OK && is_host_leader(r)) {
            output_rollback(&r->out);
            if (beside.created)
                output_rollback(&beside);
        }
    }
    if (st == FSDPCK_OK)
        st = group_agree(g, agree_on_commit(r, &beside, err), err);
    output_release(&beside);
    return st;
}

/* Reading goes on until all have copied what they need. */
static fsdpck_status copy_between(run *r, text_buf *manifest_text, fsdpck_error *err)
{
    group *g = r->ctx->group;
    r->local.out = &r->out;
    r->local.view = group_serve(g, serve, &r->local);
    fsdpck_status st = seal(r, err);
    if (st == FSDPCK_OK)
        st = write_extra_files(r, manifest_text, err);
    st = add_extra_totals(r, st, err);
    if (st == FSDPCK_OK && is_host_leader(r))
        st = copy_all(r, err);
    RETURN_IF(group_sum(g, st, GROUP_STOPS, &r->local.copied_nbytes, 1, err));
    group_stop_serving(g, &r->local);
    r->local.out = NULL;
    return FSDPCK_OK;
}

fsdpck_status local_output_complete(run *r, fsdpck_error *err)
{
    group *g = r->ctx->group;
    text_buf text = {0};
    fsdpck_status st = copy_between(r, &text, err);
    if (st == FSDPCK_OK && r->opt.output.read_back)
        st = group_agree(g, is_host_leader(r) ? run_read_back(r, err) : FSDPCK_OK, err);
    if (st == FSDPCK_OK)
        st = commit(r, &text, err);
    text_release(&text);
    return st;
}
