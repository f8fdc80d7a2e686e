/* fsdpck_memory.h: tensors in memory of the caller, of the host or of a GPU, as a checkpoint: to write them to files, or
 * to compare them with a checkpoint. The other direction is fsdpck_load.h.
 *
 *     const uint64_t shape[] = {16384, 1024}, offsets[] = {4096, 0}, sizes[] = {4096, 1024};
 *     fsdpck_memory_tensor t[2] = {FSDPCK_INIT(fsdpck_memory_tensor), FSDPCK_INIT(fsdpck_memory_tensor)};
 *     t[0].name = "model.norm.weight";
 *     t[0].dtype = "float32";
 *     t[0].ndim = 1;
 *     t[0].shape = &shape[1];                                     // 1024: all of it
 *     t[0].memory = norm;
 *     t[0].memory_nbytes = 1024 * 4;
 *     t[1].name = "model.embed_tokens.weight";
 *     t[1].dtype = "bfloat16";
 *     t[1].ndim = 2;
 *     t[1].shape = shape;
 *     t[1].offsets = offsets;                                     // rows 4096 to 8191; other entries
 *     t[1].sizes = sizes;                                         // of this name have the other rows
 *     ...
 *     st = fsdpck_open_memory(ctx, t, 2, NULL, &ckpt, &err);      // reads no element
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_consolidate(ctx, ckpt, "model.safetensors", NULL, NULL, &err);
 *     fsdpck_close(ckpt);                                         // before the memory is freed
 *
 * fsdpck_diff_new of this checkpoint and one of files compares them, bit by bit or with a tolerance.
 */
#ifndef FSDPCK_MEMORY_H
#define FSDPCK_MEMORY_H

#include "fsdpck.h"
#include "fsdpck_load.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor, or a box of it, and the memory that holds it. The memory is borrowed until fsdpck_close, everything else for
 * the call. */
typedef struct fsdpck_memory_tensor {
    size_t struct_nbytes;
    /* As the model names it: "model.layers.0.mlp.up_proj.weight". State of an optimizer has the names that DCP gives it:
     * "optim.state.NAME.exp_avg". Ends with a zero byte. */
    const char *name;
    /* torch's name, "bfloat16", of the elements in memory. Native (little-endian). */
    const char *dtype;
    /* The whole tensor: `ndim` sizes, in elements. NULL only for a tensor without dims. */
    size_t ndim;
    const uint64_t *shape;
    /* The box in memory: `ndim` offsets and sizes. `sizes` NULL: the whole tensor, `offsets` NULL: zeros. Entries of one
     * name are boxes of one tensor, with the same dtype and shape. */
    const uint64_t *offsets;
    const uint64_t *sizes;
    /* Of the box in memory, in elements, as torch's Tensor.stride(), also 0; NULL: row-major without gaps. */
    const uint64_t *strides;
    /* Address of the box's first element, and the number of bytes from there that may be read. NULL only
     * for a box without elements. */
    const void *memory;
    uint64_t memory_nbytes;
} fsdpck_memory_tensor;

/* Options of fsdpck_open_memory. Zeros are the defaults. */
typedef struct fsdpck_memory_options {
    size_t struct_nbytes;
    fsdpck_memory memory; /* of all tensors of the call */
    unsigned device;      /* of FSDPCK_MEMORY_GPU: CUDA's number, after CUDA_VISIBLE_DEVICES */
} fsdpck_memory_options;

/* Opens `count` entries as a checkpoint. Every call that takes an open checkpoint takes it, such as fsdpck_consolidate,
 * fsdpck_reshard, fsdpck_digests_new, fsdpck_diff_new, fsdpck_average and fsdpck_load. fsdpck_verify_new takes a path, so
 * it does not apply; the writing calls check that boxes cover each tensor (CHUNK-GAP, CHUNK-OVERLAP). Equal boxes are
 * copies, and are compared as fsdpck_select_options.replicas requests. fsdpck_info.path is "(memory)", and its format
 * "memory".
 *
 * The call checks all entries, but reads no element. Calls that read must not run while the memory changes: nothing
 * detects that. With fsdpck_output_options.resume a run begins again.
 *
 * Memory of a GPU is read through pinned buffers of the host, at most 64 MiB, which the checkpoint holds. The copies do
 * not wait for streams of the caller: synchronize the device before each call that reads.
 *
 * Not collective: the checkpoint is that of one process. Calls that read fail with USAGE while `ctx` belongs to a
 * group.
 * Errors: USAGE (no name, an unknown dtype, a box outside of the tensor, too little memory, entries of one name that
 * contradict each other, a group), BADINPUT (a shape beyond 63 bits), DEVICE, LIMIT. err->tensor is the name. */
FSDPCK_API fsdpck_status fsdpck_open_memory(fsdpck_context *ctx,
                                            const fsdpck_memory_tensor *tensors, size_t count,
                                            const fsdpck_memory_options *options,
                                            fsdpck_checkpoint **out,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
