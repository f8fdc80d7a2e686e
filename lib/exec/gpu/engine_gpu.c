/* The engine that fills tiles on a GPU. */
#include <inttypes.h>
#include <stdlib.h>

#include "exec/gpu/exchange.h"
#include "exec/gpu/fill_gpu.h"

/* Starting a copy to a GPU takes some 10 us, as long as copying half a MiB. */
#define GPU_STAGING_NBYTES_MAX ((uint64_t)8 << 20)
/* A few streams keep a device busy if their copies are long: more of them would take the same lock for
 * smaller ones. */
#define LANES_ENOUGH 8u
/* The driver's code, and that of tools in it, runs on them. */
#define STACK_NBYTES ((uint64_t)2 << 20)

static bool suits(const exec_request *r)
{
    return r->gpu != NULL;
}

static fsdpck_status open_state(struct exec *x, fsdpck_error *err)
{
    x->of_engine = calloc(1, sizeof *x->of_engine);
    return x->of_engine == NULL ? error_set_nomem(err, sizeof *x->of_engine) : FSDPCK_OK;
}

static void close_state(struct exec *x)
{
    if (x->of_engine != NULL && x->of_engine->exchange_memory != 0)
        x->r.gpu->calls->device_free(x->r.gpu, x->of_engine->exchange_memory);
    free(x->of_engine);
    x->of_engine = NULL;
}

/* Memory of a GPU including exchange buffers, if larger than the host's. */
static uint64_t device_nbytes(const struct exec *x, uint64_t tile_span, uint64_t staging_nbytes)
{
    if (x->r.group == NULL || x->r.source_folder == NULL)
        return 0;
    return gpu_worker_host_nbytes(staging_nbytes) + tile_span + exchange_worker_nbytes(tile_span);
}

static fsdpck_status run_items(struct exec *x, bool *done, fsdpck_error *err)
{
    *done = x->of_engine->exchange != NULL;
    return *done ? exchange_run(x->of_engine->exchange, err) : FSDPCK_OK;
}

static void note_exchanged(const struct exec *x, uint64_t nbytes)
{
    log_write(x->r.log, LOG_DETAIL, "NCCL transferred %" PRIu64 " bytes, in %" PRIu64 " rounds",
              nbytes, x->exchange_rounds);
}

const engine engine_gpu = {
    .suits = suits,
    .staging_nbytes_max = GPU_STAGING_NBYTES_MAX,
    .workers_enough = LANES_ENOUGH,
    .stack_nbytes = STACK_NBYTES,
    .slow_open = true,
    .whole_tiles = true,
    .wants_owners = true,
    .open = open_state,
    .close = close_state,
    .staging_span = gpu_worker_host_nbytes,
    .device_nbytes = device_nbytes,
    .worker_open = worker_open_gpu,
    .worker_close = worker_close_gpu,
    .begin = exchange_open,
    .end = exchange_close,
    .run_items = run_items,
    .fill_tile = fill_tile_by_gpu,
    .fill = fill_try_gpu,
    .note_exchanged = note_exchanged,
};
