/* fsdpck_load.h: tensors of a checkpoint, whatever its format and sharding, straight into memory of the caller:
 * of the host, or of a GPU.
 *
 *     float *weight = malloc(4096 * 1024 * sizeof *weight);       // or cudaMalloc, with FSDPCK_MEMORY_GPU
 *     const uint64_t offsets[] = {8192, 0}, sizes[] = {4096, 1024};
 *     fsdpck_load_tensor t = FSDPCK_INIT(fsdpck_load_tensor);
 *     t.name = "layers.0.mlp.up.weight";
 *     t.dtype = "float32";
 *     t.ndim = 2;
 *     t.offsets = offsets;
 *     t.sizes = sizes;                                            // rows 8192 to 12287
 *     t.memory = weight;
 *     t.memory_nbytes = 4096 * 1024 * sizeof *weight;
 *     st = fsdpck_open(ctx, "step-1000", NULL, &src, &err);
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_load(ctx, src, &t, 1, NULL, &err);
 *     fsdpck_close(src);
 *
 * Load all tensors of a model in one call: small ones are then read together, and large ones in parallel.
 * The other direction is fsdpck_memory.h.
 */
#ifndef FSDPCK_LOAD_H
#define FSDPCK_LOAD_H

#include "fsdpck.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor, or a box of it, and the memory that it goes to. Everything is borrowed for the call. */
typedef struct fsdpck_load_tensor {
    size_t struct_nbytes;
    /* As fsdpck_consolidate names it in a safetensors file with the same fsdpck_select_options: of the
     * model part, without outer key and wrapper prefixes. Ends with a zero byte. */
    const char *name;
    /* torch's name, "bfloat16", of the elements in memory; NULL: as stored. Floating types are cast as
     * --dtype casts them, others must be equal. All entries with one name have one dtype. */
    const char *dtype;
    /* The box: `ndim` offsets and sizes, in elements. ndim must be the tensor's. `sizes` NULL: the whole
     * tensor, `offsets` NULL: zeros. */
    size_t ndim;
    const uint64_t *offsets;
    const uint64_t *sizes;
    /* Of the box in memory, in elements, as torch's Tensor.stride(); NULL: row-major without gaps. Elements
     * must not overlap. */
    const uint64_t *strides;
    /* Address of the box's first element, and the number of bytes from there that may be written. NULL only
     * for a box without elements. */
    void *memory;
    uint64_t memory_nbytes;
} fsdpck_load_tensor;

/* Where the memory is. */
typedef enum fsdpck_memory {
    FSDPCK_MEMORY_HOST, /* addresses of this process */
    FSDPCK_MEMORY_GPU   /* addresses of a CUDA device, such as those of cudaMalloc */
} fsdpck_memory;

/* Options of fsdpck_load. Zeros are the defaults. */
typedef struct fsdpck_load_options {
    size_t struct_nbytes;
    /* Its part (-1: the model), names and replicas; its dtypes apply to entries without one. NULL: the
     * defaults. */
    const fsdpck_select_options *select;
    /* Threads, and bytes of buffers; the engine that casts. NULL: the defaults. */
    const fsdpck_work_options *work;
    fsdpck_memory memory; /* of all tensors of the call */
    unsigned device;      /* of FSDPCK_MEMORY_GPU: CUDA's number, after CUDA_VISIBLE_DEVICES */
} fsdpck_load_options;

/* Reads `count` entries into their memory, which holds native (little-endian) elements afterwards; byte order,
 * conjugation and negation of the files are resolved. Entries may be boxes of the same tensor, also overlapping
 * ones; their memory must not overlap. Before it reads, the call checks all entries, that the files cover each
 * box (CHUNK-GAP), and the headers of the data. Copies of a chunk are compared as
 * fsdpck_select_options.replicas requests. After a failure the contents of the memory are undefined. Bytes
 * between the elements of a strided box stay as they are.
 *
 * For memory of a GPU the data goes through pinned buffers of the host; casts are made before the copy. The
 * caller's streams must not use the memory during the call; afterwards all copies have ended.
 *
 * Not collective: each process loads what it needs, with a context that has joined no group, or is detached from it.
 * Errors: USAGE (an unknown name, a box outside of the tensor, too little memory, a group), BADINPUT, UNSUPPORTED (a
 * dtype that cannot be cast), DEVICE, LIMIT, IO, CHANGED, CANCELLED. err->tensor is the name. */
FSDPCK_API fsdpck_status fsdpck_load(fsdpck_context *ctx, fsdpck_checkpoint *ckpt,
                                     const fsdpck_load_tensor *tensors, size_t count,
                                     const fsdpck_load_options *options,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
