/* fill_gpu.h: fills a worker's tile by its GPU worker; the memory that both share. */
#ifndef FSDPCK_EXEC_GPU_FILL_GPU_H
#define FSDPCK_EXEC_GPU_FILL_GPU_H

#include "exec/gpu/gpu_internal.h"

/* Fills by the worker's GPU part, which must exist; DEVICE if it fails. */
fsdpck_status fill_by_gpu(worker *w, const engine_fill *f, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a GPU worker can fill a range; it cannot fill data of streams. */
bool fill_can_use_gpu(const struct exec *x, const output_range *range);

/* *done: it is filled; else threads must fill it: no GPU, or its failure does not fail the run. */
fsdpck_status fill_try_gpu(worker *w, const engine_fill *f, bool *done,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same of a tile. */
fsdpck_status fill_tile_by_gpu(worker *w, const output_range *range, bool *done,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* gpu_worker_memory.c */
fsdpck_status worker_open_gpu(worker *w, uint64_t tile_span, fsdpck_error *err) FSDPCK_MUST_CHECK;
void worker_close_gpu(worker *w);
/* Continues without the GPU after this failure, with one warning for all workers. */
void worker_drop_gpu(worker *w, const fsdpck_error *why);

#endif
