/* Devices as the program sees them. */
#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "kernels/nccl_exchange.h"

fsdpck_status exec_open_gpu(const group *g, gpu **out, fsdpck_error *err)
{
    const unsigned rank = group_rank(g);
    unsigned local = 0;
    for (unsigned i = 0; g != NULL && i < rank; i++)
        local += strcmp(group_host(g, i), group_host(g, rank)) == 0;
    return gpu_open(local, out, err);
}

fsdpck_status exec_open_gpu_at(unsigned index, gpu **out, fsdpck_error *err)
{
    RETURN_IF(gpu_open(index, out, err));
    if ((*out)->index == index)
        return FSDPCK_OK;
    FAIL_WITH(err, DEVICE, SYS_DEVICE, ("no GPU has the number %u", index),
              (found, "%u GPUs", (*out)->count));
    exec_close_gpu(*out);
    *out = NULL;
    return FSDPCK_DEVICE;
}

void exec_close_gpu(gpu *g)
{
    if (g != NULL)
        g->calls->close(g);
}

const char *exec_gpu_name(void)
{
    return gpu_built_name();
}

const char *exec_gpu_description(void)
{
    return gpu_built_description();
}

void exec_gpu_describe_state(char *text, size_t capacity)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    char device[128];
    gpu *g;
    nccl *n;
    if (gpu_open(0, &g, &err) == FSDPCK_OK) {
        (void)snprintf(device, sizeof device, "%u of %s", g->count, g->name);
        exec_close_gpu(g);
    } else {
        (void)snprintf(device, sizeof device, "%.127s", err.message);
    }
    if (nccl_load(NULL, &n, NULL) == FSDPCK_OK) {
        const unsigned v = nccl_version(n);
        (void)snprintf(text, capacity, "%s; NCCL %u.%u.%u", device, v / 10000, v / 100 % 100,
                       v % 100);
        nccl_unload(n);
    } else {
        (void)snprintf(text, capacity, "%s; no NCCL", device);
    }
}
