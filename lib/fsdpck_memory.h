/* fsdpck_memory.h: tensors in memory of the caller, of the host or of a GPU, as a checkpoint: to write them to files, or
 * to compare them with a checkpoint. The other direction is fsdpck_load.h.
 *
 *     const uint64_t shape[] = {16384, 1024}, sizes[] = {8192, 1024};
 *     const uint64_t offsets[2][2] = {{0, 0}, {8192, 0}};
 *     fsdpck_memory_tensor t[2];                                  // a tensor in two shards
 *     for (i = 0; i < 2; i++) {
 *         t[i] = (fsdpck_memory_tensor)FSDPCK_INIT(fsdpck_memory_tensor);
 *         t[i].name = "model.embed_tokens.weight";
 *         t[i].dtype = "bfloat16";
 *         t[i].ndim = 2;
 *         t[i].shape = shape;
 *         t[i].offsets = offsets[i];                              // without these two: the whole tensor
 *         t[i].sizes = sizes;
 *         t[i].memory = shards[i];
 *         t[i].memory_nbytes = 8192 * 1024 * 2;
 *     }
 *     st = fsdpck_open_memory(ctx, t, 2, NULL, &ckpt, &err);      // reads no element
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_consolidate(ctx, ckpt, "model.safetensors", NULL, NULL, &err);
 *     fsdpck_close(ckpt);                                         // then the memory may be freed
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
 * fsdpck_reshard, fsdpck_digests_new, fsdpck_diff_new, fsdpck_average and fsdpck_load. fsdpck_verify_new takes a path, and
 * fsdpck_files_new requires files, so they do not apply; the writing calls check that boxes cover each tensor (CHUNK-GAP,
 * CHUNK-OVERLAP). Equal boxes are copies, and are compared as fsdpck_select_options.replicas requests. fsdpck_info.path is
 * "(memory)", and its format "memory".
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
