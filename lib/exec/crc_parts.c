/* CRC-32 and digests (CRC-64) of target chunks, added up part by part by whoever has the bytes.
 *
 * The CRC of a whole is the sum, without carries, of the CRCs of its parts, each moved up by what
 * follows it: so parts may come in any order and from any thread, and none is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "exec/exec_state.h"

static fsdpck_status zero_sums(void **sums, uint64_t count, size_t size, fsdpck_error *err)
{
    if (*sums == NULL)
        *sums = calloc(count > 0 ? count : 1, size);
    else
        memset(*sums, 0, count * size);
    return *sums != NULL ? FSDPCK_OK : error_set_nomem(err, count * size);
}

bool crc_parts_wanted(const struct exec *x)
{
    return x->r.target->want_crc || x->r.target->want_digest;
}

fsdpck_status crc_parts_begin(struct exec *x, fsdpck_error *err)
{
    target *t = x->r.target;
    const uint64_t nchunks = catalogue_chunk_count(&t->cat);
    void *crcs = t->chunk_crc, *digests = t->chunk_digest;
    fsdpck_status st = FSDPCK_OK;
    if (t->want_crc)
        st = zero_sums(&crcs, nchunks, sizeof *t->chunk_crc, err);
    if (st == FSDPCK_OK && t->want_digest)
        st = zero_sums(&digests, nchunks, sizeof *t->chunk_digest, err);
    t->chunk_crc = crcs;
    t->chunk_digest = digests;
    return st;
}

void crc_parts_put(struct exec *x, const range_part *part, const uint8_t *bytes)
{
    const target *t = x->r.target;
    const uint64_t chunk_end = part->chunk_begin + catalogue_chunk(&t->cat, part->chunk)->nbytes;
    const uint64_t nbytes = part->end - part->begin;
    const uint64_t behind = chunk_end - part->end;
    if (t->want_crc) {
        const uint32_t crc = crc32_join(crc32_update(0, bytes, nbytes), 0, behind);
        (void)__atomic_fetch_xor(&t->chunk_crc[part->chunk], crc, __ATOMIC_RELAXED);
    }
    if (t->want_digest) {
        const uint64_t crc = crc64_join(crc64_update(0, bytes, nbytes), 0, behind);
        (void)__atomic_fetch_xor(&t->chunk_digest[part->chunk], crc, __ATOMIC_RELAXED);
    }
}

void crc_parts_put_sparse(struct exec *x, const range_part *part, const uint8_t *bytes)
{
    const target *t = x->r.target;
    const uint64_t chunk_end = part->chunk_begin + catalogue_chunk(&t->cat, part->chunk)->nbytes;
    const uint64_t nbytes = part->end - part->begin;
    const uint64_t crc =
        crc64_join(crc64_update(0, bytes, nbytes) ^ crc64_zeros(nbytes), 0, chunk_end - part->end);
    (void)__atomic_fetch_xor(&t->chunk_digest[part->chunk], crc, __ATOMIC_RELAXED);
}

/* Chunks at the same place are the same bytes, which were put once. */
static void copy_to_aliases(struct exec *x)
{
    const target *t = x->r.target;
    uint64_t last = 0;
    for (uint64_t i = 0; i < plan_order_count(x->r.plan); i++) {
        const uint64_t chunk = plan_ordered_chunk(x->r.plan, i);
        const cat_chunk *k = catalogue_chunk(&t->cat, chunk);
        const cat_chunk *l = catalogue_chunk(&t->cat, last);
        if (i > 0 && l->file == k->file && l->offset_bytes == k->offset_bytes &&
            l->nbytes == k->nbytes) {
            if (t->want_crc)
                t->chunk_crc[chunk] = t->chunk_crc[last];
            if (t->want_digest)
                t->chunk_digest[chunk] = t->chunk_digest[last];
        }
        last = chunk;
    }
}

void crc_parts_finish(struct exec *x)
{
    const target *t = x->r.target;
    if (!crc_parts_wanted(x))
        return;
    for (uint64_t i = 0; x->out == NULL && i < catalogue_chunk_count(&t->cat); i++) {
        const cat_chunk *k = catalogue_chunk(&t->cat, i);
        if (k->place != PLACE_EMPTY && exec_chunk_is_streamed(x, i))
            t->chunk_digest[i] ^= crc64_zeros(k->nbytes);
    }
    copy_to_aliases(x);
}
