/* dcp_world.h: a large DCP folder that is not there: the catalogue that its reader would leave, made in
 * memory, and a source that invents where its blobs lie; then, step by step, what a run does before it
 * writes. Each parameter is there with its two Adam moments, fp32, all cut by rows over the ranks, as
 * FSDP2 does.
 *
 *     dcp_world w;
 *     dcp_world_init(&w, &model, ranks_in, limit_bytes);
 *     dcp_world_explain(&w);
 *     dcp_world_aim(&w, ranks_out);
 *     dcp_world_place(&w);
 *     dcp_world_plan(&w);
 *     dcp_world_locate(&w);
 *     ... w.plan, w.exec ...
 *     dcp_world_release(&w);
 *
 * A failure ends the program with status 1.
 */
#ifndef FSDPCK_TESTS_DCP_WORLD_H
#define FSDPCK_TESTS_DCP_WORLD_H

#include "exec/exec.h"
#include "select/select.h"

/* Its parameters, by number. */
typedef struct dcp_world_model {
    uint64_t parameters;
    void (*name)(uint64_t parameter, char *fqn, size_t capacity);
    unsigned (*shape)(uint64_t parameter, uint64_t *sizes); /* of 1 or 2 dims; returns how many */
} dcp_world_model;

typedef struct dcp_world {
    dcp_world_model model;
    uint32_t ranks_in;
    uint64_t tensors;
    budget metadata;
    catalogue from;
    source src;
    aim_parts parts;
    layout cut;
    target to;
    plan *plan;
    struct exec *exec;
} dcp_world;

void dcp_world_init(dcp_world *w, const dcp_world_model *model, uint32_t ranks_in,
                    uint64_t limit_bytes);
void dcp_world_explain(dcp_world *w);
void dcp_world_aim(dcp_world *w, uint32_t ranks_out);
void dcp_world_place(dcp_world *w);
void dcp_world_plan(dcp_world *w);
void dcp_world_locate(dcp_world *w);
/* Also looks whether all metadata memory was given back. */
void dcp_world_release(dcp_world *w);

void dcp_world_must(bool ok, const char *what);
/* Bytes of memory that the process has had at most. */
uint64_t dcp_world_peak_nbytes(void);

#endif
