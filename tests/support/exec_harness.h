/* exec_harness.h: a source in memory, a target, and the expected contents of its files: to test
 * plan and exec.
 *
 *     exec_harness *w = exec_harness_new(nfiles_in, nfiles_out);
 *     memory_source_add_tensor(&w->source, ...);  memory_source_add_chunk(&w->source, ...);
 *     memory_source_seal(&w->source);
 *     exec_harness_add_target(w, ...);  exec_harness_add_chunk(w, ...);
 *     catalogue_seal(&w->to.cat, &err);
 *     exec_harness_place(w, gap_nbytes);
 *     exec_harness_expect(w);                                     // computes every expected byte
 *     st = exec_harness_run(w, &(exec_harness_options){.tile_nbytes = 4096}, &err);   // compares
 *     exec_harness_free(w);
 *
 * Casts are expected only from bfloat16 to float32. Aborts if an output is wrong.
 */
#ifndef FSDPCK_TESTS_SUPPORT_EXEC_HARNESS_H
#define FSDPCK_TESTS_SUPPORT_EXEC_HARNESS_H

#include "exec/exec.h"
#include "tests/support/memory_source.h"

#define HARNESS_FILES_MAX 4

typedef struct exec_harness {
    budget metadata;
    memory_source source;
    target to;
    uint32_t nfiles;
    uint8_t *image[HARNESS_FILES_MAX];
    uint64_t seed;          /* for messages */
    struct exec_stats sums; /* of the last run */
    bool direct;            /* the last run's files could be written with O_DIRECT */
} exec_harness;

typedef struct exec_harness_options {
    uint64_t tile_nbytes;
    uint64_t memory_nbytes; /* 0: the minimum */
    unsigned nthreads;
    int direct;
    plan_replicas replicas;
    const cancel_token *cancel;
    group *group; /* only for exec_harness_digest */
    struct remote_folder *source_folder;
    gpu *gpu;
    bool gpu_required;
    const logger *log;
} exec_harness_options;

exec_harness *exec_harness_new(uint32_t nfiles_in, uint32_t nfiles_out);
uint32_t exec_harness_add_target(exec_harness *w, uint32_t source_tensor, const char *name,
                                 dtype type);
/* Its offset is set later: by exec_harness_place, or by hand before sealing. */
void exec_harness_add_chunk(exec_harness *w, uint32_t tensor, uint32_t file_index,
                            const uint64_t *offsets, const uint64_t *sizes);
/* One chunk for the whole tensor. */
void exec_harness_add_whole(exec_harness *w, uint32_t source_tensor, uint32_t file_index,
                            dtype type);
/* After catalogue_seal(&w->to.cat): places chunks one after another, `gap_nbytes` before each. */
void exec_harness_place(exec_harness *w, uint64_t gap_nbytes);
void exec_harness_expect(exec_harness *w);
/* Deferred bytes that depend on a chunk of the target; in ascending order, after sealing. */
void exec_harness_add_deferred(exec_harness *w, uint32_t file_index, uint64_t offset_bytes,
                               uint32_t nbytes, uint64_t target_chunk);

/* Plans, writes to a temporary folder, compares with the expected bytes, removes it. Failures of
 * plan and exec are returned; then nothing of the output may remain. */
fsdpck_status exec_harness_run(exec_harness *w, const exec_harness_options *options,
                               fsdpck_error *err);

/* Writes nothing: compares digests of the chunks. Called by all ranks of a group. */
fsdpck_status exec_harness_digest(exec_harness *w, const exec_harness_options *options,
                                  fsdpck_error *err);

void exec_harness_free(exec_harness *w);

#endif
