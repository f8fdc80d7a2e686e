/* A build without GPU support. */
#include "base/status.h"
#include "kernels/gpu.h"

fsdpck_status gpu_open(unsigned local_rank, gpu **out, fsdpck_error *err)
{
    (void)local_rank;
    *out = NULL;
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "built without CUDA");
    error_next(err, "omit --engine: threads are as fast as the storage");
    return FSDPCK_DEVICE;
}

const char *gpu_built_name(void)
{
    return NULL;
}

const char *gpu_built_description(void)
{
    return NULL;
}
