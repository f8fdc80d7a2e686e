/* fill_gpu.h: a worker's tile filled by its GPU worker, and the memory that both share. */
#ifndef FSDPCK_EXEC_GPU_FILL_GPU_H
#define FSDPCK_EXEC_GPU_FILL_GPU_H

#include "exec/gpu/gpu_internal.h"

/* By the worker's GPU part, which it has; DEVICE where that fails. */
fsdpck_status fill_by_gpu(worker *w, const engine_fill *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a GPU worker can fill a range: streams write into what is zeros yet. */
bool fill_can_use_gpu(const struct exec *x, const output_range *range);

/* *done: it is filled; else, without a GPU or where its failure is none of the run, threads have to. */
fsdpck_status fill_try_gpu(worker *w, const engine_fill *f, bool *done,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a tile. */
fsdpck_status fill_tile_by_gpu(worker *w, const output_range *range, bool *done,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* worker_gpu.c */
fsdpck_status worker_open_gpu(worker *w, uint64_t tile_span, fsdpck_error *err) FSDPCK_MUST_CHECK;
void worker_close_gpu(worker *w);
/* Goes on without the GPU after this failure, with one warning for all workers. */
void worker_drop_gpu(worker *w, const fsdpck_error *why);

#endif
