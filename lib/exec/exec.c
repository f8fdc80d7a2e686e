#include "exec/exec.h"

#include <inttypes.h>
#include <stdlib.h>

#include "exec/band.h"
#include "exec/bundle.h"
#include "exec/compress.h"
#include "exec/exec_state.h"

static fsdpck_status check_request(const exec_request *r, fsdpck_error *err)
{
    if (r->memory_nbytes < EXEC_MEMORY_NBYTES_MIN) {
        error_set(err, FSDPCK_USAGE, FSDPCK_FINDING_NONE, "too little memory to work with");
        error_expected(err, "at least %" PRIu64 " bytes", EXEC_MEMORY_NBYTES_MIN);
        error_found(err, "%" PRIu64 " bytes", r->memory_nbytes);
        error_next(err, "raise --memory");
        return FSDPCK_USAGE;
    }
    if (r->target != plan_to(r->plan) || r->source->cat != plan_from(r->plan))
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE,
                         "plan was made for other catalogues");
    return FSDPCK_OK;
}

/* Memory for all that is located; a failure leaves it to exec_free. */
static fsdpck_status begin(struct exec *x, fsdpck_error *err)
{
    const catalogue *from = plan_from(x->r.plan);
    x->spot_count = catalogue_chunk_count(from);
    x->tensor_count = catalogue_tensor_count(from);
    x->spots = budget_alloc(x->r.metadata, x->spot_count * sizeof *x->spots, err);
    if (x->spots == NULL)
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
    x->bundles = VEC_OF(cut_bundle, r->metadata);
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
    x->staged_nbytes = band_staged_nbytes(x);
    if (x->staged_nbytes == 0)
        return FSDPCK_OK;
    exec_stop_workers(x);
    x->sums.buffer_nbytes = 0;
    return exec_start_workers(x, err);
}

static fsdpck_status finish(struct exec *x, fsdpck_error *err)
{
    plan_sums sums;
    RETURN_IF(make_room(x, err));
    RETURN_IF(bundle_all(x, err));
    plan_get_sums(x->r.plan, &sums);
    x->sums.read_amplification = sums.read_amplification;
    if (sums.source_bytes > 0)
        x->sums.read_amplification += (double)x->reread_nbytes / (double)sums.source_bytes;
    return FSDPCK_OK;
}

fsdpck_status exec_locate(const exec_request *r, struct exec **out, fsdpck_error *err)
{
    struct exec *x = NULL;
    *out = NULL;
    fsdpck_status st = new_exec(r, &x, err);
    st = exec_locate_all(x, r->group, st, err);
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

/* This rank's share of all but streams. */
static fsdpck_status run_share(struct exec *x, fsdpck_error *err)
{
    RETURN_IF(crc_parts_begin(x, err));
    RETURN_IF(late_begin(x, err));
    RETURN_IF(replica_compare_rest(x, err));
    progress_phase(x->r.progress, x->out == NULL ? "reading" : "writing",
                   output_nbytes(&x->r.target->cat));
    return x->r.target->pack.place != NULL && x->out != NULL ? pack_run(x, err)
                                                             : engine_threads_run(x, err);
}

/* Streams read and change what tiles wrote, so they are one rank's, once all have written theirs; where
 * each host has its own files, one's of each. */
static fsdpck_status run_streams(struct exec *x, fsdpck_error *err)
{
    return exec_leads(x) ? scatter_run(x, err) : FSDPCK_OK;
}

static fsdpck_status run_rest(struct exec *x, fsdpck_error *err)
{
    const source *src = x->r.source;
    crc_parts_finish(x);
    if (exec_leads(x))
        RETURN_IF(late_finish(x, err));
    return src->check_unchanged == NULL ? FSDPCK_OK : src->check_unchanged(src->ctx, err);
}

fsdpck_status exec_run(struct exec *x, output *out, fsdpck_error *err)
{
    x->out = out;
    RETURN_IF(x->engine->begin(x, err));
    const fsdpck_status st = group_agree(x->r.group, run_share(x, err), err);
    x->engine->end(x, st == FSDPCK_OK);
    RETURN_IF(st);
    if (x->streams.count > 0)
        RETURN_IF(group_agree(x->r.group, run_streams(x, err), err));
    RETURN_IF(share_sums(x, err));
    return group_agree(x->r.group, run_rest(x, err), err);
}

bool exec_is_streamed(const struct exec *x, uint32_t target_tensor)
{
    return (x->tensor_flags[plan_source_tensor(x->r.plan, target_tensor)] & TENSOR_STREAMED) != 0;
}

fsdpck_status exec_check_replicas(struct exec *x, fsdpck_error *err)
{
    return replica_compare_rest(x, err);
}

void exec_free(struct exec *x)
{
    if (x == NULL)
        return;
    x->engine->end(x, false);
    exec_stop_workers(x);
    x->engine->close(x);
    budget_free(x->r.metadata, x->spots, x->spot_count * sizeof *x->spots);
    budget_free(x->r.metadata, x->tensor_flags, x->tensor_count);
    budget_free(x->r.metadata, x->late_done, x->late_count);
    budget_free(x->r.metadata, x->bundled, x->bundled_nbytes);
    vec_release(&x->strides);
    vec_release(&x->compare);
    vec_release(&x->streams);
    vec_release(&x->bundles);
    vec_release(&x->members);
    vec_release(&x->own_items);
    vec_release(&x->owners);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
