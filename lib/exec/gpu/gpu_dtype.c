#include "exec/gpu/gpu_dtype.h"

gpu_dtype gpu_dtype_of(dtype d)
{
    static const uint8_t numbers[DTYPE_COUNT] = {
        [DTYPE_FLOAT16] = GPU_FLOAT16,
        [DTYPE_BFLOAT16] = GPU_BFLOAT16,
        [DTYPE_FLOAT32] = GPU_FLOAT32,
        [DTYPE_FLOAT64] = GPU_FLOAT64,
        [DTYPE_FLOAT8_E4M3FN] = GPU_FLOAT8_E4M3FN,
        [DTYPE_FLOAT8_E5M2] = GPU_FLOAT8_E5M2,
        [DTYPE_FLOAT8_E4M3FNUZ] = GPU_FLOAT8_E4M3FNUZ,
        [DTYPE_FLOAT8_E5M2FNUZ] = GPU_FLOAT8_E5M2FNUZ,
        [DTYPE_FLOAT8_E8M0FNU] = GPU_FLOAT8_E8M0FNU,
    };
    return (gpu_dtype)numbers[d];
}
