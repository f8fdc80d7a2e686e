/* dtype.h: torch's element types in one table: names, sizes, storage classes, safetensors codes.
 *
 * Source: torch 2.15 (c10/core/ScalarType.h, torch/storage.py) and safetensors 0.8 (Dtype).
 */
#ifndef FSDPCK_STATE_DTYPE_H
#define FSDPCK_STATE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dtype {
    DTYPE_NONE = 0,
    DTYPE_BOOL,
    DTYPE_UINT8,
    DTYPE_INT8,
    DTYPE_UINT16,
    DTYPE_INT16,
    DTYPE_UINT32,
    DTYPE_INT32,
    DTYPE_UINT64,
    DTYPE_INT64,
    DTYPE_FLOAT16,
    DTYPE_BFLOAT16,
    DTYPE_FLOAT32,
    DTYPE_FLOAT64,
    DTYPE_COMPLEX32,
    DTYPE_COMPLEX64,
    DTYPE_COMPLEX128,
    DTYPE_BCOMPLEX32,
    DTYPE_FLOAT8_E4M3FN,
    DTYPE_FLOAT8_E5M2,
    DTYPE_FLOAT8_E4M3FNUZ,
    DTYPE_FLOAT8_E5M2FNUZ,
    DTYPE_FLOAT8_E8M0FNU,
    DTYPE_FLOAT4_E2M1FN_X2, /* one byte holds two values; shapes count bytes, as in torch */
    DTYPE_BITS8,
    DTYPE_BITS16,
    DTYPE_BITS1X8,
    DTYPE_BITS2X4,
    DTYPE_BITS4X2,
    DTYPE_COUNT
} dtype;

typedef enum dtype_class {
    DTYPE_IS_BOOL,
    DTYPE_IS_INT,
    DTYPE_IS_FLOAT,
    DTYPE_IS_COMPLEX,
    DTYPE_IS_BITS
} dtype_class;

typedef struct dtype_info {
    const char *name;          /* torch's canonical name without "torch.": "float32" */
    uint8_t itemsize_bytes;    /* one element of torch's shape */
    uint8_t swap_nbytes;       /* size of the unit that a change of byte order reverses; 1: none */
    uint8_t kind;              /* dtype_class */
    const char *storage_class; /* "FloatStorage", or NULL: UntypedStorage with _rebuild_tensor_v3 */
    const char *safetensors;   /* "F32", or NULL if safetensors has none */
    uint8_t safetensors_rank;  /* position in the official sort order of safetensors 0.8,
                                * ascending */
    uint8_t packing;           /* floats in one element; safetensors counts them in the last dim */
} dtype_info;

/* Never NULL; DTYPE_NONE has the name "none" and size 0. */
const dtype_info *dtype_get(dtype d);
/* By torch name (also the aliases float, double, half, long, int, short), storage class or
 * safetensors code; DTYPE_NONE where unknown. */
dtype dtype_from_name(const char *name, size_t nbytes);
dtype dtype_from_storage_class(const char *name, size_t nbytes);
dtype dtype_from_safetensors(const char *code, size_t nbytes);

/* Whether torch adds a constant to elements of this dtype with floating arithmetic: float64, float32,
 * float16, bfloat16. */
bool dtype_can_add(dtype d);

#endif
