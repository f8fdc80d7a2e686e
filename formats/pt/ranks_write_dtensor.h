/* ranks_write_dtensor.h: the opcodes of torch.save for a DTensor and its mesh, for one rank.
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
 * The mesh is that of init_device_mesh over all ranks, or a slice of it by names: the dims not in
 * cat_spec.absent_dims, at the rank's coordinates along the absent ones. Up to torch 2.9 a slice is
 * a separate mesh; 2.10 and newer keep the root mesh and the map of all ranks in it. Process groups
 * are pickled by name, a count of the groups that a process has created; this assumes that the mesh
 * is its first. A mesh of one dim uses the default group, which every process has. Hashes are None:
 * torch computes them.
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
     * if the file has none yet. */
    fsdpck_status (*mesh_key)(void *ctx, char key[16], fsdpck_error *err);
    /* Called at the start and end of a mesh: the part between differs from all other ranks'
     * pickles. */
    fsdpck_status (*mesh_boundary)(void *ctx, fsdpck_error *err);
    void *ctx;
} dtensor_writer;

/* Checks the options and the meshes. USAGE: an invalid device type; UNSUPPORTED: a release whose
 * form cannot be written; INTERNAL: a mesh with a different number of ranks, Partial. */
fsdpck_status dtensor_writer_init(dtensor_writer *d, const target *t, const writer_options *opt,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A tensor of d->cat that has a spec; its local tensor has local_sizes and the record `key`. */
fsdpck_status dtensor_put(const dtensor_writer *d, pickle_writer *w, size_t tensor,
                          const uint64_t *local_sizes, const char *key,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ranks_write_mesh.c; the mesh of a spec, or its slice, written once per pickle. */
fsdpck_status dtensor_put_mesh(const dtensor_writer *d, pickle_writer *w, const cat_spec *spec,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Numbers for pickle_put_from_memo. */
enum {
    DTENSOR_LAYOUT = 1,
    DTENSOR_DEVICE,
    DTENSOR_MESH_RANKS,   /* the tensor of ranks, if meshes share it */
    DTENSOR_MESHES = 256, /* and up: 256 a mesh, one for each set of absent dims */
};
#define DTENSOR_SPECS (UINT64_C(1) << 48) /* and up: placements of each spec */

#endif
