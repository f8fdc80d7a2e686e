/* fsdpck_status.h: status and error of every fsdpck call, and sizes of public structs.
 *
 * Calling sequence:
 *
 *     fsdpck_error err;
 *     fsdpck_error_init(&err);
 *     fsdpck_status st = fsdpck_open(..., &err);
 *     if (st != FSDPCK_OK)
 *         show(err.message, err.path, err.expected, err.found, err.next);
 *
 * A status is the class of a failure, and the exit code of the program. The error value contains the
 * details. It is plain data of fixed size: no pointers, nothing to free. It may be copied, kept, passed
 * to another thread or sent to another process.
 *
 * Every error parameter may be NULL. A call that succeeds does not change the error.
 */
#ifndef FSDPCK_STATUS_H
#define FSDPCK_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck_findings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks exported functions, and functions whose status must not be ignored. */
#if defined(__GNUC__)
#define FSDPCK_API        __attribute__((visibility("default")))
#define FSDPCK_MUST_CHECK __attribute__((warn_unused_result))
#else /* compilers without these attributes */
#define FSDPCK_API
#define FSDPCK_MUST_CHECK
#endif

/* Initializer of a struct that begins with struct_nbytes: its size, and zeros for all other members. Use
 * it before every call that takes or fills such a struct:
 *
 *     fsdpck_info info = FSDPCK_INIT(fsdpck_info);
 *     fsdpck_get_info(src, &info);
 *
 * Program and library may then be of different versions within a major one. The library copies the
 * smaller of both sizes. Options that an older program lacks have their defaults. Members that an older
 * library lacks are set to zero.
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
/* An error as fsdpck_error_init sets it. Only in C: `fsdpck_error err = FSDPCK_ERROR_INIT;` */
#define FSDPCK_ERROR_INIT ((fsdpck_error){.rank = -1})
#endif

/* 0 and 1 are verdicts. From 2 on there is no verdict and no output. Later versions may add a number, so
 * treat one that you do not know as a failure.
 */
typedef enum fsdpck_status {
    FSDPCK_OK = 0,
    FSDPCK_FINDING = 1,     /* program only: verify, diff, digest -c or latest found something */
    FSDPCK_USAGE = 2,       /* contradictory or impossible request */
    FSDPCK_BADINPUT = 3,    /* input malformed, ambiguous, hostile or incomplete */
    FSDPCK_UNSUPPORTED = 4, /* legal, but not supported, or the target cannot hold it */
    FSDPCK_IO = 5,          /* a read or write failed, see sys_errno */
    FSDPCK_NOSPACE = 6,     /* ENOSPC, EDQUOT, EFBIG */
    FSDPCK_LIMIT = 7,       /* a safety limit or memory; `next` names an option */
    FSDPCK_CHANGED = 8,     /* the input changed while being read */
    FSDPCK_EXISTS = 10,     /* the output exists */
    FSDPCK_PEER = 12,       /* another rank failed for an unknown reason */
    FSDPCK_DEVICE = 13,     /* GPU or NCCL failure with no fallback allowed */
    FSDPCK_INTERNAL = 14,   /* a bug in fsdpck: please report it */
    FSDPCK_CANCELLED = 15   /* by fsdpck_context_cancel; never an exit code */
} fsdpck_status;

/* Details of a failure: a finding and texts for the user, for a program that shows them on its own. Its
 * size is fixed: no member is ever added. Texts are always terminated, and truncated where needed.
 */
typedef struct fsdpck_error {
    fsdpck_status status;
    int sys_errno;             /* of a failed system call, else 0 */
    int rank;                  /* rank that caused it, -1: none */
    int has_offset;            /* offset_bytes is valid */
    uint64_t offset_bytes;     /* from the start of the file `path` */
    fsdpck_finding_id finding; /* its kind; FSDPCK_FINDING_NONE: none */
    char message[512];         /* lower case, no full stop, no newline */
    char path[1024];           /* the file, not escaped for a terminal, or "" */
    char tensor[512];          /* its name, escaped, or "" */
    char expected[256];        /* value that a rule requires, or "" */
    char found[256];           /* value in the file, or "" */
    char next[512];            /* the next step for the user, or "" */
} fsdpck_error;

/* Sets all members to zero and rank to -1. An error of zeros is valid too. */
FSDPCK_API void fsdpck_error_init(fsdpck_error *err);

/* Id as in fsdpck-findings(7), such as "ZIP-CRC"; "" for FSDPCK_FINDING_NONE and unknown numbers. A
 * constant, never NULL. */
FSDPCK_API const char *fsdpck_finding_name(fsdpck_finding_id id);

/* Lower-case name such as "bad input". A constant, never NULL. */
FSDPCK_API const char *fsdpck_status_name(fsdpck_status status);

#ifdef __cplusplus
}
#endif
#endif
