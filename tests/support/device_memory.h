/* device_memory.h: memory of the host or of a (simulated) GPU, with given content.
 *
 *     void *memory = device_memory_new(g, bytes, nbytes);       // g NULL: exactly nbytes of the host
 *     ...
 *     device_memory_take(g, memory, bytes, nbytes);             // its content, and frees it
 *
 * Each function ends the program on failure. */
#ifndef FSDPCK_TESTS_SUPPORT_DEVICE_MEMORY_H
#define FSDPCK_TESTS_SUPPORT_DEVICE_MEMORY_H

#include "kernels/gpu.h"

void *device_memory_new(gpu *g, const void *bytes, uint64_t nbytes);
void device_memory_take(gpu *g, void *memory, void *bytes, uint64_t nbytes);
void device_memory_free(gpu *g, void *memory);

#endif
