/* fake_nccl.h: a library that replaces NCCL, loaded by tests, with faults on request: by
 * fake_nccl_control in the test's own process, or by variables in others.
 *
 *     FAKE_NCCL_FAULT=join:1:2      rank 1 gets result 2 from joining; -1: it never ends
 *     FAKE_NCCL_FAULT=exchange:0:6:3    rank 0 in its third group of sends and receives; -1: it never ends
 *     FAKE_NCCL_FAULT=stop:1:0:2    rank 1 stops (SIGSTOP) before its second group
 *     FAKE_NCCL_FAULT=flip:0:0:3    one bit of rank 0's data is flipped in its third group
 *     FAKE_NCCL_VERSION=1:22005     rank 1 has this version
 *     FAKE_NCCL_LOG=FILE            gets a line for each communicator that is left: "rank sends receives how"
 *
 * Ranks are processes or threads of one machine: sent data is a file until it is received, and a send ends
 * only then. The first group of two ranks begins when both have come to it. On the stream of a fake_gpu
 * all is done in the stream's order; without a stream at once. As NCCL requires, calls come from the
 * thread that joined, with its device current, and none while another is in progress or after the end.
 * Ranks that share a device, and those of several versions, do not join.
 */
#ifndef FSDPCK_TESTS_FAKE_NCCL_H
#define FSDPCK_TESTS_FAKE_NCCL_H

#include <stdatomic.h>

enum {
    FAKE_NCCL_SUCCESS = 0,
    FAKE_NCCL_SYSTEM_ERROR = 2,
    FAKE_NCCL_INVALID_ARGUMENT = 4,
    FAKE_NCCL_INVALID_USAGE = 5,
    FAKE_NCCL_REMOTE_ERROR = 6,
    FAKE_NCCL_IN_PROGRESS = 7
};

/* Settings of the test, and counters for it. */
typedef struct fake_nccl {
    int version; /* 0: 22809 */
    /* waiting: how often it still reports "in progress", -1: for ever; async: its result
     * afterwards. */
    int init_result, init_waiting, init_async;
    int send_result, end_result, end_waiting, end_async;
    int finalize_result;
    atomic_int inits, aborts, destroys, finalizes, sends, receives;
    atomic_int bad_config;
} fake_nccl;

#define FAKE_NCCL_CONTROL "fake_nccl_control"
typedef fake_nccl *(*fake_nccl_control_fn)(void);

#endif
