/* device_copy.h: copies between memory of the host, of any kind, and memory of a GPU, by several threads.
 *
 *     device_copy *d;
 *     RETURN_IF(device_copy_new(g, nthreads, &d, err));
 *     device_slot *s = device_copy_take(d);               // waits until one is free
 *     st = device_slot_put(s, address, bytes, nbytes, err);    // ... as often as needed
 *     st = device_slot_get(s, bytes, address, nbytes, err);
 *     st = device_copy_give(d, s, st, err);               // everything put is there now
 *     device_copy_free(d);
 *
 * Each slot has a stream and pinned memory, through which all bytes go.
 */
#ifndef FSDPCK_EXEC_DEVICE_COPY_H
#define FSDPCK_EXEC_DEVICE_COPY_H

#include "kernels/gpu.h"

typedef struct device_copy device_copy;
typedef struct device_slot device_slot;

/* Borrows g. On failure *out is NULL. */
fsdpck_status device_copy_new(gpu *g, unsigned nslots, device_copy **out,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
void device_copy_free(device_copy *d); /* accepts NULL */

device_slot *device_copy_take(device_copy *d);
/* `bytes` may change afterwards. */
fsdpck_status device_slot_put(device_slot *s, gpu_address to, const void *bytes, uint64_t nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Sees what this slot has put before. */
fsdpck_status device_slot_get(device_slot *s, void *bytes, gpu_address from, uint64_t nbytes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* st: of the calls above. Waits for them, and returns st or the failure of the wait. */
fsdpck_status device_copy_give(device_copy *d, device_slot *s, fsdpck_status st,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
