#include "exec/exec.h"

#include <inttypes.h>
#include <stdlib.h>

#include "exec/column_group.h"
#include "exec/compress.h"
#include "exec/exec_internal.h"
#include "exec/row_block.h"
#include "group/remote_folder.h"

static fsdpck_status check_request(const exec_request *r, fsdpck_error *err)
{
    if (r->memory_nbytes < EXEC_MEMORY_NBYTES_MIN)
        return FAIL_WITH(err, USAGE, NONE, ("memory limit is too small"),
                         (expected, "at least %" PRIu64 " bytes", EXEC_MEMORY_NBYTES_MIN),
                         (found, "%" PRIu64 " bytes", r->memory_nbytes), (next, "raise --memory"));
    if (r->target != plan_target(r->plan) || r->source->cat != plan_source(r->plan))
        return FAIL(err, INTERNAL, NONE, "plan belongs to other catalogues");
    return FSDPCK_OK;
}

/* Allocates memory for all extents; exec_free releases it also after a failure. */
static fsdpck_status begin(struct exec *x, fsdpck_error *err)
{
    const catalogue *from = plan_source(x->r.plan);
    x->chunk_extent_count = catalogue_chunk_count(from);
    x->tensor_count = catalogue_tensor_count(from);
    x->chunk_extents =
        budget_alloc(x->r.metadata, x->chunk_extent_count * sizeof *x->chunk_extents, err);
    if (x->chunk_extents == NULL)
        return FSDPCK_LIMIT;
    x->tensor_flags = budget_alloc(x->r.metadata, x->tensor_count, err);
    return x->tensor_flags == NULL ? FSDPCK_LIMIT : exec_start_workers(x, err);
}

static fsdpck_status new_exec(const exec_request *r, struct exec **out, fsdpck_error *err)
{
    RETURN_IF(check_request(r, err));
    struct exec *x = calloc(1, sizeof *x);
    if (x == NULL)
        return error_set_nomem(err, sizeof *x);
    *out = x;
    x->r = *r;
    x->engine = engine_choose(r);
    x->strides = VEC_OF(uint64_t, r->metadata);
    x->compare = VEC_OF(replica_pair, r->metadata);
    x->streams = VEC_OF(uint64_t, r->metadata);
    x->column_groups = VEC_OF(column_group_info, r->metadata);
    x->members = VEC_OF(uint32_t, r->metadata);
    x->own_items = VEC_OF(uint64_t, r->metadata);
    x->owners = VEC_OF(uint32_t, r->metadata);
    pthread_mutex_init(&x->lock, NULL);
    RETURN_IF(x->engine->open(x, err));
    return begin(x, err);
}

/* Once it is known which streams are decoded into memory, buffers leave them room. */
static fsdpck_status make_room(struct exec *x, fsdpck_error *err)
{
    x->staged_nbytes = row_block_staged_nbytes(x);
    if (x->staged_nbytes == 0)
        return FSDPCK_OK;
    exec_stop_workers(x);
    x->stats.buffer_nbytes = 0;
    return exec_start_workers(x, err);
}

static fsdpck_status finish(struct exec *x, fsdpck_error *err)
{
    plan_totals stats;
    RETURN_IF(make_room(x, err));
    RETURN_IF(column_groups_find(x, err));
    plan_get_totals(x->r.plan, &stats);
    x->stats.read_amplification = stats.read_amplification;
    if (stats.source_bytes > 0)
        x->stats.read_amplification += (double)x->reread_nbytes / (double)stats.source_bytes;
    return FSDPCK_OK;
}

fsdpck_status exec_resolve(const exec_request *r, struct exec **out, fsdpck_error *err)
{
    struct exec *x = NULL;
    *out = NULL;
    fsdpck_status st = new_exec(r, &x, err);
    st = exec_resolve_all(x, r->group, st, err);
    if (st == FSDPCK_OK)
        st = finish(x, err);
    if (st != FSDPCK_OK) {
        exec_free(x);
        return st;
    }
    *out = x;
    return FSDPCK_OK;
}

static uint64_t output_nbytes(const catalogue *to)
{
    uint64_t n = 0;
    for (size_t i = 0; i < catalogue_file_count(to); i++)
        n += catalogue_file(to, i)->nbytes;
    return n;
}

/* This rank's part of everything except streams. */
static fsdpck_status run_own_items(struct exec *x, fsdpck_error *err)
{
    RETURN_IF(exec_checksums_begin(x, err));
    RETURN_IF(exec_deferred_begin(x, err));
    RETURN_IF(replica_compare_remaining(x, err));
    progress_phase(x->r.progress, x->out == NULL ? "reading" : "writing",
                   output_nbytes(&x->r.target->cat));
    if (x->r.target->pack.place != NULL && x->out != NULL)
        return compress_run(x, err);
    RETURN_IF(engine_threads_run(x, err));
    RETURN_IF(joint_tile_run_items(x, err));
    if (x->journal != NULL)
        journal_flush(x->journal);
    return FSDPCK_OK;
}

/* Streams modify bytes that tiles wrote. One rank handles them after all ranks have written their
 * tiles; with separate outputs, one rank of each host. */
static fsdpck_status run_streams(struct exec *x, fsdpck_error *err)
{
    return exec_is_leader(x) ? scatter_run(x, err) : FSDPCK_OK;
}

static fsdpck_status run_remaining(struct exec *x, fsdpck_error *err)
{
    const source *src = x->r.source;
    exec_checksums_finish(x);
    if (exec_is_leader(x))
        RETURN_IF(exec_deferred_finish(x, err));
    if (x->out != NULL && x->out->joined)
        RETURN_IF(output_flush(x->out, err));
    RETURN_IF(remote_folder_check_unchanged(x->r.source_folder, err));
    return src->check_unchanged == NULL ? FSDPCK_OK : src->check_unchanged(src->ctx, err);
}

fsdpck_status exec_run(struct exec *x, output *out, fsdpck_error *err)
{
    x->out = out;
    RETURN_IF(x->engine->begin(x, err));
    const fsdpck_status st = group_agree(x->r.group, run_own_items(x, err), err);
    x->engine->end(x, st == FSDPCK_OK);
    RETURN_IF(st);
    if (x->streams.count > 0)
        RETURN_IF(group_agree(x->r.group, run_streams(x, err), err));
    RETURN_IF(all_reduce_crcs(x, err));
    return exec_all_reduce_stats(x, run_remaining(x, err), err);
}

bool exec_is_streamed(const struct exec *x, uint32_t target_tensor)
{
    return (x->tensor_flags[plan_source_tensor(x->r.plan, target_tensor)] & TENSOR_STREAMED) != 0;
}

fsdpck_status exec_check_replicas(struct exec *x, fsdpck_error *err)
{
    return replica_compare_remaining(x, err);
}

void exec_free(struct exec *x)
{
    if (x == NULL)
        return;
    x->engine->end(x, false);
    exec_stop_workers(x);
    x->engine->close(x);
    budget_free(x->r.metadata, x->chunk_extents, x->chunk_extent_count * sizeof *x->chunk_extents);
    budget_free(x->r.metadata, x->tensor_flags, x->tensor_count);
    budget_free(x->r.metadata, x->deferred_done, x->deferred_count);
    budget_free(x->r.metadata, x->grouped, x->grouped_nbytes);
    VEC_RELEASE_ALL(&x->strides, &x->compare, &x->streams, &x->column_groups, &x->members,
                    &x->own_items, &x->owners);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
