/* ranks_write_dtensor.h: the opcodes of torch.save for a DTensor, and for the mesh that it names,
 * as one rank has them.
 *
 *     dtensor_writer d;
 *     RETURN_IF(dtensor_writer_init(&d, cat, world_size, options, err));
 *     d.rank = 3; d.mesh_key = ...; d.mesh_boundary = ...;     // for each pickle
 *     dtensor_put(&d, w, tensor, local_sizes, key, err);     // from pickle_write's callback
 *
 * Forms (torch reads only what its own generation wrote; see fsdpck-formats(5)):
 *
 *     torch 2.5 to 2.7    DTORCH_2_6    DeviceMesh with `mesh` and `_dim_group_infos`
 *     torch 2.8, 2.9      DTORCH_2_8    `_dim_group_names` in their place
 *     torch 2.10          DTORCH_2_10   `_layout` of one shape, `_rank_map`; the spec has
 *                                       `shard_order`
 *     torch 2.11, 2.12    DTORCH_2_11   and `_rank`, `use_strided_shard_as_shard_order`
 *     torch 2.13 to 2.15  DTORCH_2_15   `_layout` of axes
 *
 * The mesh is one that init_device_mesh makes of all ranks, or a slice of it by names: what
 * cat_spec.absent_dims leaves, at the rank's own coordinates along the others. To torch 2.9 a slice
 * is a mesh of its own; 2.10 and newer keep in it the root mesh and the map of all ranks. Process
 * groups are pickled by their names, which count the groups that a process has made: here, those of
 * a process whose first mesh it is. A mesh of one dim is the default group, which every process has.
 * Hashes are left to torch: None.
 */
#ifndef FSDPCK_RANKS_WRITE_DTENSOR_H
#define FSDPCK_RANKS_WRITE_DTENSOR_H

#include "formats/common/pickle.h"
#include "formats/format.h"

typedef enum dtensor_form {
    DTORCH_2_6,
    DTORCH_2_8,
    DTORCH_2_10,
    DTORCH_2_11,
    DTORCH_2_15
} dtensor_form;

typedef struct dtensor_writer {
    const catalogue *cat;
    uint64_t world_size;
    const char *device_type;
    dtensor_form form;
    uint64_t rank; /* whose file it is */
    /* The key of the record that holds the ranks 0..world_size-1 as int32; it must be the next one
     * where the file has none yet. */
    fsdpck_status (*mesh_key)(void *ctx, char key[16], fsdpck_error *err);
    /* A mesh begins or has ended: what is in no other rank's pickle lies between. */
    fsdpck_status (*mesh_boundary)(void *ctx, fsdpck_error *err);
    void *ctx;
} dtensor_writer;

/* Checks the options and the meshes. USAGE: a device type that is no word; UNSUPPORTED: a release
 * whose form is not written; INTERNAL: a mesh of another number of ranks, Partial. */
fsdpck_status dtensor_writer_init(dtensor_writer *d, const target *t, const writer_options *opt,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A tensor of d->cat that has a spec; its local tensor has local_sizes and the record `key`. */
fsdpck_status dtensor_put(const dtensor_writer *d, pickle_writer *w, size_t tensor,
                          const uint64_t *local_sizes, const char *key,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_write_mesh.c; the mesh of a spec, or the slice of it, put once a pickle. */
fsdpck_status dtensor_put_mesh(const dtensor_writer *d, pickle_writer *w, const cat_spec *spec,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Numbers for pickle_put_from_memo. */
enum {
    DTENSOR_LAYOUT = 1,
    DTENSOR_DEVICE,
    DTENSOR_MESH_RANKS,   /* the tensor of ranks, where meshes share it */
    DTENSOR_MESHES = 256, /* and up: 256 a mesh, one for each set of absent dims */
};
#define DTENSOR_SPECS (UINT64_C(1) << 48) /* and up: placements of each spec */

#endif
