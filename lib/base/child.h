/* child.h: a function that runs in a process of its own, where a fault of it harms nobody.
 *
 *     child c;
 *     RETURN_IF(child_start(&c, &limits, look_at, ctx, f.fd, err));   // forks
 *     while (more)
 *         RETURN_IF(child_read(&c, dst, nbytes, &got, err));  // what look_at writes to its `out_fd`
 *     fate = child_end(&c);                                   // killed if it still runs
 *
 * look_at has two descriptors: `in_fd`, a file that was open here, and `out_fd`, a pipe. All others
 * are closed, and it can open none. It cannot write files, leaves no core, and dies with who made it,
 * or once it has used its share of processor or memory; on Linux a filter of system calls keeps it
 * from all but the two files that it has, memory and its end. It is a copy of one thread: of what
 * other threads work on it may touch nothing, and it takes no lock but malloc's.
 */
#ifndef FSDPCK_BASE_CHILD_H
#define FSDPCK_BASE_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"

typedef struct child_limits {
    uint64_t memory_nbytes;  /* address space beyond what there is at the fork (Linux) */
    unsigned cpu_seconds;    /* of processor time */
    unsigned silent_seconds; /* between two words from it */
} child_limits;

typedef enum child_fate {
    CHILD_DONE,       /* it returned true */
    CHILD_FAILED,     /* it returned false */
    CHILD_CRASHED,    /* a signal, or an exit that is not the function's */
    CHILD_OUT_OF_TIME /* its processor time is used up */
} child_fate;

typedef struct child {
    long pid; /* 0: none */
    int fd;
    bool ended; /* child_read met the end of what it wrote */
    unsigned silent_seconds;
    const cancel_token *cancel;
    unsigned held_at, held_nbytes;
    uint8_t held[8192]; /* what was read, but not yet asked for: its words may be short */
} child;

/* In the new process; what it returns is told by child_end. */
typedef bool (*child_fn)(void *ctx, int in_fd, int out_fd);

/* `in_fd` stays the caller's. `cancel` may be NULL. */
fsdpck_status child_start(child *c, const child_limits *limits, child_fn fn, void *ctx, int in_fd,
                          const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* *got is less than nbytes only at the end. LIMIT where it says nothing for too long. */
fsdpck_status child_read(child *c, void *dst, uint64_t nbytes, uint64_t *got,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Ends it, at any time. A child that was ended may be ended again: CHILD_DONE. Of one that has not
 * `ended` the fate tells nothing: it was stopped amid its work. */
child_fate child_end(child *c);

/* For the child: all of it, or false. */
bool child_write(int out_fd, const void *bytes, uint64_t nbytes);

#endif
