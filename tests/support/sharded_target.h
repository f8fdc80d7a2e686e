/* sharded_target.h: handmade targets sharded over ranks, in the form that select makes.
 *
 *     target t;
 *     target_init(&t, &budget);
 *     RETURN_IF(sharded_target_begin(&t, "ddp=2,fsdp=2", err));
 *     sharded_target_add(&t, "w", DTYPE_FLOAT32, 2, shape, "R0", every_rank, err);
 *     RETURN_IF(catalogue_seal(&t.cat, err));
 *
 * The placements have one letter per mesh dim: R for Replicate(), a digit d for Shard(d), a letter
 * 'a' + d for _StridedShard(d, product of the mesh dims to the right that shard d), '-' for a dim
 * that the tensor's own mesh, a slice, lacks; "" is an unsharded tensor (CAT_NONE). every_rank: one
 * chunk per rank, in order; else each box once, of its lowest rank.
 */
#ifndef FSDPCK_TESTS_SHARDED_TARGET_H
#define FSDPCK_TESTS_SHARDED_TARGET_H

#include "state/target.h"

fsdpck_status sharded_target_begin(target *t, const char *mesh_text,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Returns the tensor through *index, which may be NULL. */
fsdpck_status sharded_target_add(target *t, const char *name, dtype d, unsigned ndim,
                                 const uint64_t *shape, const char *cut, bool every_rank,
                                 uint32_t *index, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
