/* fake_cudart.h: replaces the CUDA runtime under kernels/gpu_cuda.c, with several devices that are none.
 *
 * A thread has a current device, and a device a context once it was chosen or used. Whatever belongs to
 * one device is refused while another is current. A failure remains the thread's last error until it is
 * read; one that comes late, of submitted work, is returned by every later call.
 */
#ifndef FSDPCK_TESTS_SUPPORT_FAKE_CUDART_H
#define FSDPCK_TESTS_SUPPORT_FAKE_CUDART_H

#include <stdbool.h>

enum { FAKE_CUDART_DEVICES = 4 };

typedef struct fake_cudart {
    bool has_context[FAKE_CUDART_DEVICES];
    char connections[8]; /* CUDA_DEVICE_MAX_CONNECTIONS at the first call */
    int calls;
    int priority;  /* of the last new stream */
    int live;      /* memory, streams, events */
    bool is_late;  /* submitted work has failed: a wait finds it */
    bool is_lost;  /* a wait has found it */
    bool no_room;  /* for more memory */
    bool not_done; /* events are not reached */
} fake_cudart;

extern fake_cudart fake_cuda;

#endif
