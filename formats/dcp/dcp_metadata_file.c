/* Reads one `.metadata` of a folder. */
#include <inttypes.h>

#include "formats/dcp/dcp_internal.h"

#define METADATA_LIMIT (UINT64_C(8) << 30)

/* Reading a large `.metadata` costs as much as allocating its memory: use all threads. */
#define READ_NBYTES ((uint64_t)16 << 20)

typedef struct metadata_bytes {
    file_set *files;
    uint32_t index;
    uint64_t nbytes;
    uint8_t *bytes;
    const cancel_token *cancel;
} metadata_bytes;

static fsdpck_status read_some(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const metadata_bytes *m = ctx;
    const uint64_t at = job * READ_NBYTES;
    const uint64_t n = m->nbytes - at < READ_NBYTES ? m->nbytes - at : READ_NBYTES;
    (void)worker;
    return file_set_read_at(m->files, m->index, at, m->bytes + at, n, err);
}

static fsdpck_status read_part(void *ctx, uint64_t at, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    const metadata_bytes *m = ctx;
    RETURN_IF(cancel_check(m->cancel, err));
    return file_set_read_at(m->files, m->index, at, dst, nbytes, err);
}

fsdpck_status dcp_metadata_read_file(dcp_folder *d, const open_request *req, const char *name,
                                     dcp_names *names, value_pool *pool, dcp_metadata *m,
                                     fsdpck_error *err)
{
    uint32_t index;
    uint64_t nbytes;

    RETURN_IF(file_set_add(&d->metadatas, name, &index, err));
    RETURN_IF(file_set_nbytes(&d->metadatas, index, &nbytes, err));
    if (nbytes > METADATA_LIMIT)
        return FAIL_WITH(err, LIMIT, PKL_LIMIT, ("metadata file is too large"),
                         (expected, "at most %" PRIu64 " bytes", METADATA_LIMIT),
                         (found, "%" PRIu64 " bytes", nbytes));
    metadata_bytes read = {&d->metadatas, index, nbytes, NULL, req->cancel};
    const dcp_bytes from = {.ctx = &read,
                            .nbytes = nbytes,
                            .read = read_part,
                            .nthreads = req->nthreads,
                            .cancel = req->cancel};
    if (dcp_metadata_read_condensed(&from, names, pool, req->opaque_calls, m))
        return FSDPCK_OK;
    uint8_t *bytes = budget_alloc(d->owner, nbytes, err);
    if (bytes == NULL)
        return FSDPCK_LIMIT;
    read.bytes = bytes;
    fsdpck_status st =
        pool_run(req->nthreads > 0 ? req->nthreads : 1, (nbytes + READ_NBYTES - 1) / READ_NBYTES,
                 read_some, &read, req->cancel, err);
    if (st == FSDPCK_OK) {
        const pickle_input in = {.bytes = bytes, .nbytes = (size_t)nbytes};
        st = dcp_metadata_read(&in, names, pool, req->opaque_calls, m, err);
    }
    budget_free(d->owner, bytes, nbytes);
    return st;
}
