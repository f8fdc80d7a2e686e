/* exec_world.h: a source in memory, a target, and what its files must hold: to test plan and exec.
 *
 *     exec_world *w = exec_world_new(nfiles_in, nfiles_out);
 *     memory_source_add_tensor(&w->source, ...);  memory_source_add_chunk(&w->source, ...);
 *     memory_source_seal(&w->source);
 *     exec_world_add_target(w, ...);  exec_world_add_chunk(w, ...);
 *     catalogue_seal(&w->to.cat, &err);
 *     exec_world_place(w, gap_nbytes);
 *     exec_world_expect(w);                                     // every byte that must come out
 *     st = exec_world_run(w, &(exec_world_options){.tile_nbytes = 4096}, &err);   // compares it
 *     exec_world_free(w);
 *
 * Casts are expected only from bfloat16 to float32. Aborts where an output is wrong.
 */
#ifndef FSDPCK_TESTS_EXEC_WORLD_H
#define FSDPCK_TESTS_EXEC_WORLD_H

#include "exec/exec.h"
#include "tests/support/memory_source.h"

#define WORLD_FILES_MAX 4

typedef struct exec_world {
    budget metadata;
    memory_source source;
    target to;
    uint32_t nfiles;
    uint8_t *image[WORLD_FILES_MAX];
    uint64_t seed;         /* for messages */
    struct exec_sums sums; /* of the last run */
    bool direct;           /* the last run's files could be written past the page cache */
} exec_world;

typedef struct exec_world_options {
    uint64_t tile_nbytes;
    uint64_t memory_nbytes; /* 0: the least */
    unsigned nthreads;
    int direct;
    plan_replicas replicas;
    const cancel_token *cancel;
    group *group; /* exec_world_digest alone */
    const struct group_view *near;
    gpu *gpu;
    bool gpu_required;
    const logger *log;
} exec_world_options;

exec_world *exec_world_new(uint32_t nfiles_in, uint32_t nfiles_out);
uint32_t exec_world_add_target(exec_world *w, uint32_t source_tensor, const char *name, dtype type);
/* Its place is given later: exec_world_place, or set by hand before sealing. */
void exec_world_add_chunk(exec_world *w, uint32_t tensor, uint32_t file_index,
                          const uint64_t *offsets, const uint64_t *sizes);
/* One chunk for the whole tensor. */
void exec_world_add_whole(exec_world *w, uint32_t source_tensor, uint32_t file_index, dtype type);
/* After catalogue_seal(&w->to.cat): places chunks one after the other, `gap_nbytes` before each. */
void exec_world_place(exec_world *w, uint64_t gap_nbytes);
void exec_world_expect(exec_world *w);
/* Late bytes that depend on a chunk of the target; in ascending order, after sealing. */
void exec_world_add_late(exec_world *w, uint32_t file_index, uint64_t offset_bytes, uint32_t nbytes,
                         uint64_t target_chunk);

/* Plans, writes to a temporary folder, compares with what is expected, removes it. Failures of plan
 * and exec are returned; then nothing may be left of the output. */
fsdpck_status exec_world_run(exec_world *w, const exec_world_options *options, fsdpck_error *err);

/* Writes nothing: digests of the chunks are compared. By all ranks of a group. */
fsdpck_status exec_world_digest(exec_world *w, const exec_world_options *options,
                                fsdpck_error *err);

void exec_world_free(exec_world *w);

#endif
