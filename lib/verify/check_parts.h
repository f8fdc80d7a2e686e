/* check_parts.h: what check.c (coverage), check_bytes.c (checksum, numeric) and check_numbers.c share. */
#ifndef FSDPCK_VERIFY_CHECK_PARTS_H
#define FSDPCK_VERIFY_CHECK_PARTS_H

#include "verify/check.h"
#include "verify/scan.h"

/* A range of a file that one or more chunks lie in. */
typedef struct extent {
    uint64_t offset_bytes; /* of a stream: where the chunk's blob begins */
    uint64_t nbytes;       /* of a stream: decoded, of the chunk alone */
    uint64_t chunk;        /* one of those that lie in it */
    uint64_t skip_nbytes;  /* of a stream: decoded bytes before the chunk's */
    uint32_t file;
    uint32_t crc32;
    bool has_crc;
    bool stream;
    bool swap;
    bool mixed; /* tensors of several dtypes: their elements cannot be scanned as one */
} extent;

typedef struct check {
    const check_request *r;
    findings *found;
    check_result *result;
    vec extents; /* extent; by file and offset once they are merged */
    pthread_mutex_t lock;
    unsigned char *unread; /* by tensor: whether it is among result->unread_tensors */
    scan_sums *sums;       /* by tensor, at level numeric */
} check;

/* After extents are merged. */
fsdpck_status check_bytes(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After c->sums are there. */
void check_numbers(check *c);

/* KEY-CONFUSABLE: names that look the same. */
fsdpck_status check_names(check *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds the tensor and the file of a chunk to an error. */
void check_context(const check *c, uint64_t chunk, fsdpck_error *err);
/* Whether a failure is the input's, and so a finding. */
bool check_is_finding(fsdpck_status st);

#endif
