/* A worker's memory, pinned for the device, and its gpu_worker. */
#include <stdlib.h>

#include "exec/gpu/fill_gpu.h"

static void free_memory(worker *w)
{
    struct engine_worker *own = w->of_engine;
    gpu_worker_free(own->gpu_worker);
    own->gpu_worker = NULL;
    if (own->pinned_by == NULL) {
        engine_threads.worker_close(w);
        return;
    }
    own->pinned_by->calls->host_free(own->pinned_by, w->memory, w->memory_nbytes);
    own->pinned_by = NULL;
    w->memory = NULL;
}

void worker_drop_gpu(worker *w, const fsdpck_error *why)
{
    gpu_worker_free(w->of_engine->gpu_worker);
    w->of_engine->gpu_worker = NULL;
    if (__atomic_exchange_n(&w->x->of_engine->given_up, 1, __ATOMIC_RELAXED) == 0)
        log_warn(w->x->r.log, FSDPCK_FINDING_SYS_DEVICE, "check the log of the GPU's driver",
                 "continuing with threads, without the GPU: %s", why->message);
}

static fsdpck_status allocate_pinned_memory(worker *w, uint64_t tile_span, fsdpck_error *err)
{
    struct exec *x = w->x;
    gpu *g = x->r.gpu;
    void *memory;
    RETURN_IF(g->calls->host_new(g, w->memory_nbytes, &memory, err));
    w->memory = memory;
    w->of_engine->pinned_by = g;
    /* A kind that one worker finds wrong fails the run, with what others have filled; else threads go on,
     * and each worker compares. */
    return gpu_worker_new(g, tile_span, x->staging_nbytes, w->memory + tile_span,
                          x->r.gpu_required ? x->of_engine->kinds : w->of_engine->kinds,
                          &w->of_engine->gpu_worker, err);
}

/* w->memory may be NULL then. */
fsdpck_status worker_open_gpu(worker *w, uint64_t tile_span, fsdpck_error *err)
{
    fsdpck_error local = FSDPCK_ERROR_INIT;
    w->of_engine = calloc(1, sizeof *w->of_engine);
    if (w->of_engine == NULL)
        return error_set_nomem(err, sizeof *w->of_engine);
    const fsdpck_status st = allocate_pinned_memory(w, tile_span, &local);
    if (st == FSDPCK_OK)
        return FSDPCK_OK;
    if (st != FSDPCK_DEVICE || w->x->r.gpu_required) {
        if (err != NULL)
            *err = local;
        return st;
    }
    free_memory(w);
    worker_drop_gpu(w, &local);
    return engine_threads.worker_open(w, tile_span, err);
}

void worker_close_gpu(worker *w)
{
    if (w->of_engine == NULL)
        return;
    free_memory(w);
    free(w->of_engine);
    w->of_engine = NULL;
}
