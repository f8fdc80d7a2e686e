/* sha256.h: SHA-256, by OpenSSL's libcrypto.
 *
 *     sha256 *h;
 *     RETURN_IF(sha256_new(&h, err));
 *     sha256_begin(h);                    // again for each text
 *     sha256_add(h, bytes, nbytes);
 *     st = sha256_end(h, digest, err);
 *     sha256_free(h);
 */
#ifndef FSDPCK_BASE_SHA256_H
#define FSDPCK_BASE_SHA256_H

#include <stdint.h>

#include "base/status.h"

#define SHA256_NBYTES 32u

typedef struct sha256 sha256;

fsdpck_status sha256_new(sha256 **h, fsdpck_error *err) FSDPCK_MUST_CHECK;
void sha256_begin(sha256 *h);
void sha256_add(sha256 *h, const void *bytes, uint64_t nbytes);
/* INTERNAL if libcrypto failed since begin. */
fsdpck_status sha256_end(sha256 *h, uint8_t digest[SHA256_NBYTES],
                         fsdpck_error *err) FSDPCK_MUST_CHECK;
void sha256_free(sha256 *h);

#endif
