#include "base/sha256.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>

struct sha256 {
    EVP_MD_CTX *ctx;
    bool failed;
};

fsdpck_status sha256_new(sha256 **out, fsdpck_error *err)
{
    sha256 *h = calloc(1, sizeof *h);
    *out = NULL;
    if (h == NULL)
        return error_set_nomem(err, sizeof *h);
    h->ctx = EVP_MD_CTX_new();
    if (h->ctx == NULL) {
        free(h);
        return error_set_nomem(err, 256);
    }
    *out = h;
    return FSDPCK_OK;
}

void sha256_begin(sha256 *h)
{
    h->failed = EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1;
}

void sha256_add(sha256 *h, const void *bytes, uint64_t nbytes)
{
    h->failed = h->failed || EVP_DigestUpdate(h->ctx, bytes, nbytes) != 1;
}

fsdpck_status sha256_end(sha256 *h, uint8_t digest[SHA256_NBYTES], fsdpck_error *err)
{
    unsigned nbytes = 0;
    if (h->failed || EVP_DigestFinal_ex(h->ctx, digest, &nbytes) != 1 || nbytes != SHA256_NBYTES)
        return FAIL(err, INTERNAL, NONE, "libcrypto has no SHA-256");
    return FSDPCK_OK;
}

void sha256_free(sha256 *h)
{
    if (h == NULL)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}
