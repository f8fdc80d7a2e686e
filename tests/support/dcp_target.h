/* dcp_target.h: a handmade target for the DCP writer, and its files written without planner or
 * engine.
 *
 *     dcp_target d;
 *     dcp_target_begin(&d, &(mesh){.ndim = 1, .sizes = {4}});
 *     tensor = dcp_target_add(&d, "w", DTYPE_FLOAT32, 2, shape, &(placement){PLACEMENT_SHARD});
 *     object = dcp_target_add_object(&d, "lr", value);
 *     st = dcp_target_lay_out(&d, &(writer_options){0});
 *     dcp_target_save(&d, dir);
 *     dcp_target_end(&d);
 *
 * Elements are memory_element's (tests/support/memory_source.h); a bool is 0 or 1. Saving checks
 * that constants, chunks, deferred bytes and seal() provide every byte of every file exactly once.
 * Aborts on failure, except that of layout().
 */
#ifndef FSDPCK_TESTS_DCP_TARGET_H
#define FSDPCK_TESTS_DCP_TARGET_H

#include "formats/dcp/dcp.h"

typedef struct dcp_target {
    budget owner;
    target to;
    uint32_t mesh_index;
    fsdpck_error err; /* of lay_out */
} dcp_target;

void dcp_target_begin(dcp_target *d, const mesh *m);
/* placements: one per mesh dim; NULL: not sharded, whole in one chunk. */
uint32_t dcp_target_add(dcp_target *d, const char *name, dtype type, unsigned ndim,
                        const uint64_t *shape, const placement *placements);
/* A tensor inside an object. */
uint32_t dcp_target_add_inner(dcp_target *d, const char *name, dtype type, unsigned ndim,
                              const uint64_t *shape);
uint32_t dcp_target_add_object(dcp_target *d, const char *name, value content);
/* A path of `count` elements, which are values of to.cat.pool. */
value dcp_target_path(dcp_target *d, const value *elements, size_t count);
value dcp_target_str(dcp_target *d, const char *text);
value dcp_target_int(dcp_target *d, int64_t i);

/* Seals the catalogue first. */
fsdpck_status dcp_target_lay_out(dcp_target *d, const writer_options *opt);
/* The expected element `flat` of a tensor. */
void dcp_target_element(const dcp_target *d, uint32_t tensor, uint64_t flat, uint8_t *bytes);
void dcp_target_save(dcp_target *d, const char *dir);
void dcp_target_end(dcp_target *d);

#endif
