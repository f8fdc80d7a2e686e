/* A program linked with this has a GPU that is none (fake_gpu.h), to be run under mpirun. Variables, in
 * which a local rank is what gpu_open is called with:
 *
 *     FAKE_GPU_NONE=1          that local rank has no device
 *     FAKE_GPU_COUNT=2         devices of the host
 *     FAKE_GPU_FAIL=1:30       that local rank's 30th call fails
 *     FAKE_GPU_FLIP=0:5:1      of that one's copies the 5th changes a bit, and the next 0
 *     FAKE_GPU_WRONG=1         that one's launches give wrong bytes
 *     FAKE_GPU_LATE=1:40       that one's 40th operation fails, which a wait finds
 *     FAKE_GPU_ROOM=1:N:M      that one has N bytes of memory, and M bytes can be pinned
 *     FAKE_GPU_PAUSE=1:500:9   that one's first 9 operations begin after 500 us
 *     FAKE_GPU_MODE=1          of all: work is done at once; 2: by threads
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "tests/support/fake_gpu.h"

static bool reads(const char *name, unsigned local_rank, uint64_t *first, uint64_t *second)
{
    unsigned rank;
    const char *text = getenv(name);
    return text != NULL && sscanf(text, "%u:%" SCNu64 ":%" SCNu64, &rank, first, second) >= 1 &&
           rank == local_rank;
}

static void close_fake(fake_gpu *f)
{
    fake_gpu_release(f);
    free(f);
}

fsdpck_status gpu_open(unsigned local_rank, gpu **out, fsdpck_error *err)
{
    uint64_t first = 0, second = 0;
    const char *count = getenv("FAKE_GPU_COUNT");
    *out = NULL;
    if (reads("FAKE_GPU_NONE", local_rank, &first, &second))
        return error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
                         "no usable GPU: the fake driver reports none");
    fake_gpu *f = calloc(1, sizeof *f);
    if (f == NULL)
        abort();
    fake_gpu_init(f);
    f->base.count = count != NULL ? (unsigned)atoi(count) : 8;
    f->base.index = local_rank % f->base.count;
    f->base.uuid[0] = (uint8_t)(f->base.index + 1);
    f->bodies = local_rank % 2 == 0;
    if (reads("FAKE_GPU_FAIL", local_rank, &first, &second))
        f->fail_at = first;
    if (reads("FAKE_GPU_FLIP", local_rank, &first, &second)) {
        f->flip_at = first;
        f->flips = second;
    }
    if (reads("FAKE_GPU_LATE", local_rank, &first, &second))
        f->late_fail_at = first;
    if (reads("FAKE_GPU_ROOM", local_rank, &first, &second)) {
        f->device_most = first;
        f->pinned_most = second;
    }
    if (reads("FAKE_GPU_PAUSE", local_rank, &first, &second))
        f->pause_us = (unsigned)first, f->pauses = second;
    f->wrong = reads("FAKE_GPU_WRONG", local_rank, &first, &second);
    f->on_close = close_fake;
    *out = &f->base;
    return FSDPCK_OK;
}

const char *gpu_built_name(void)
{
    return "cuda";
}

const char *gpu_built_description(void)
{
    return "a fake";
}
