/* child.h: a function in a separate process, where a crash does no harm.
 *
 *     child c;
 *     RETURN_IF(child_start(&c, &limits, parse, ctx, f.fd, err));   // forks
 *     while (more)
 *         RETURN_IF(child_read(&c, dst, nbytes, &got, err));  // what parse writes to `out_fd`
 *     fate = child_end(&c);                                   // kills it if it still runs
 *
 * The function has two descriptors: `in_fd`, a file that was open here, and `out_fd`, a pipe. All
 * others are closed, and it can open none. It cannot write files and leaves no core. It ends with
 * its parent, or when it exceeds its limit of CPU time or memory. On Linux a filter allows only the
 * system calls for its two descriptors, memory and exit. It is a copy of one thread: it must not
 * touch data that other threads change, and takes no lock except malloc's.
 */
#ifndef FSDPCK_BASE_CHILD_H
#define FSDPCK_BASE_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"

typedef struct child_limits {
    uint64_t memory_nbytes;  /* address space in addition to that in use at the fork (Linux) */
    unsigned cpu_seconds;    /* of CPU time */
    unsigned silent_seconds; /* between two reads from it */
} child_limits;

typedef enum child_fate {
    CHILD_DONE,       /* the function returned true */
    CHILD_FAILED,     /* the function returned false */
    CHILD_CRASHED,    /* a signal, or an exit outside the function */
    CHILD_OUT_OF_TIME /* its CPU time is used up */
} child_fate;

typedef struct child {
    long pid; /* 0: none */
    int fd;
    bool ended; /* child_read reached the end of its output */
    unsigned silent_seconds;
    const cancel_token *cancel;
    unsigned held_at, held_nbytes;
    uint8_t held[8192]; /* read, but not yet requested: it may write in small units */
} child;

/* Runs in the new process; child_end reports its result. */
typedef bool (*child_fn)(void *ctx, int in_fd, int out_fd);

/* The caller keeps `in_fd`. `cancel` may be NULL. */
fsdpck_status child_start(child *c, const child_limits *limits, child_fn fn, void *ctx, int in_fd,
                          const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* *got is less than nbytes only at the end. LIMIT if it writes nothing for too long. */
fsdpck_status child_read(child *c, void *dst, uint64_t nbytes, uint64_t *got,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Ends the child, at any time. Ending it twice is allowed: CHILD_DONE. Before `ended` the result is
 * meaningless: the child was stopped during its work. */
child_fate child_end(child *c);

/* For the child: writes everything, or returns false. */
bool child_write(int out_fd, const void *bytes, uint64_t nbytes);

#endif
