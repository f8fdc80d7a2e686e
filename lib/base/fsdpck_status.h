/* fsdpck_status.h: how every fsdpck call says whether it worked, and why not.
 *
 * Calling sequence:
 *
 *     fsdpck_error err;
 *     fsdpck_error_init(&err);
 *     fsdpck_status st = fsdpck_open(..., &err);
 *     if (st != FSDPCK_OK)
 *         show(err.message, err.path, err.expected, err.found, err.next);
 *
 * A status says what kind of thing went wrong and is also the exit code of the program. The error
 * value says the rest. It is plain data of fixed size: no pointer, nothing to free; it may be
 * copied, kept, handed to another thread or sent to another process.
 *
 * Every error parameter may be NULL. On success the error is left untouched. The place that knows
 * the cause fills it; callers on the way up add what they alone know (the path, the tensor) and
 * never replace what is there.
 */
#ifndef FSDPCK_STATUS_H
#define FSDPCK_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_findings.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FSDPCK_API        __attribute__((visibility("default")))
#define FSDPCK_MUST_CHECK __attribute__((warn_unused_result))
#else
#define FSDPCK_API
#define FSDPCK_MUST_CHECK
#endif

/* A struct with its size in struct_nbytes, its first member, and zeros. Required before every call that
 * takes or fills such a struct, so that program and library may have different versions:
 *
 *     fsdpck_info info = FSDPCK_INIT(fsdpck_info);
 *     fsdpck_get_info(src, &info);
 */
#if defined(__cplusplus)
#define FSDPCK_INIT(type)                    \
    ([] {                                    \
        type sized_ = type();                \
        sized_.struct_nbytes = sizeof(type); \
        return sized_;                       \
    }())
#else
#define FSDPCK_INIT(type)             \
    {                                 \
        .struct_nbytes = sizeof(type) \
    }
#endif

/* 0 and 1 are verdicts; 2 and more mean that there is none, and no output either. */
typedef enum fsdpck_status {
    FSDPCK_OK = 0,
    FSDPCK_FINDING = 1,     /* verify, diff, digest -c, latest: a check failed, or they differ */
    FSDPCK_USAGE = 2,       /* contradictory or impossible request */
    FSDPCK_BADINPUT = 3,    /* input malformed, ambiguous, hostile or incomplete */
    FSDPCK_UNSUPPORTED = 4, /* legal, but fsdpck does not read or the target cannot hold it */
    FSDPCK_IO = 5,          /* a read or a write failed; sys_errno tells */
    FSDPCK_NOSPACE = 6,     /* ENOSPC, EDQUOT, EFBIG */
    FSDPCK_LIMIT = 7,       /* a safety limit, a memory budget or malloc; `next` names an option */
    FSDPCK_CHANGED = 8,     /* the input changed while it was read */
    FSDPCK_EXISTS = 10,     /* the output exists */
    FSDPCK_PEER = 12,       /* another rank failed and its own cause is unknown */
    FSDPCK_DEVICE = 13,     /* GPU or NCCL failure with no fallback allowed */
    FSDPCK_INTERNAL = 14,   /* a broken invariant of fsdpck itself: please report */
    FSDPCK_CANCELLED = 15   /* the caller's cancel token was set; never an exit code */
} fsdpck_status;

typedef struct fsdpck_error {
    fsdpck_status status;
    int sys_errno;             /* 0 where no system call failed */
    int rank;                  /* -1 where no rank is to blame */
    int has_offset;            /* whether offset_bytes means something */
    uint64_t offset_bytes;     /* from the start of the file `path` */
    fsdpck_finding_id finding; /* the kind of finding; FSDPCK_FINDING_NONE where there is none */
    char message[512];         /* what failed: lower case, no full stop, no newline */
    char path[1024];           /* the file, escaped for a terminal; "" where there is none */
    char tensor[512];          /* FQN, escaped; "" where there is none */
    char expected[256];
    char found[256];
    char next[512]; /* the next step for the user */
} fsdpck_error;

/* Zeroed, with rank -1. A zeroed error is a valid one too. */
FSDPCK_API void fsdpck_error_init(fsdpck_error *err);

/* The id that users see, such as "ZIP-CRC"; "" for FSDPCK_FINDING_NONE and unknown numbers. Never
 * NULL. */
FSDPCK_API const char *fsdpck_finding_name(fsdpck_finding_id id);

/* Short lower-case name such as "bad input". Never NULL. */
FSDPCK_API const char *fsdpck_status_name(fsdpck_status status);

#ifdef __cplusplus
}
#endif
#endif
