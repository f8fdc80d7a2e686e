/* CRC-32 of target chunks, added up part by part by whoever has the bytes.
 *
 * The CRC of a whole is the sum, without carries, of the CRCs of its parts, each moved up by what
 * follows it: so parts may come in any order and from any thread, and none is kept.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "exec/exec_state.h"

fsdpck_status crc_parts_begin(struct exec *x, fsdpck_error *err)
{
    target *t = x->r.target;
    const uint64_t nchunks = catalogue_chunk_count(&t->cat);
    if (!t->want_crc)
        return FSDPCK_OK;
    if (t->chunk_crc == NULL)
        t->chunk_crc = calloc(nchunks > 0 ? nchunks : 1, sizeof *t->chunk_crc);
    else
        memset(t->chunk_crc, 0, nchunks * sizeof *t->chunk_crc);
    return t->chunk_crc != NULL ? FSDPCK_OK
                                : error_set_nomem(err, nchunks * sizeof *t->chunk_crc);
}

void crc_parts_put(struct exec *x, const range_part *part, const uint8_t *bytes)
{
    const target *t = x->r.target;
    const uint64_t chunk_end = part->chunk_begin + catalogue_chunk(&t->cat, part->chunk)->nbytes;
    const uint32_t crc = crc32_update(0, bytes, part->end - part->begin);
    (void)__atomic_fetch_xor(&t->chunk_crc[part->chunk], crc32_join(crc, 0, chunk_end - part->end),
                             __ATOMIC_RELAXED);
}

void crc_parts_finish(struct exec *x)
{
    const catalogue *to = &x->r.target->cat;
    uint64_t last = 0;
    if (!x->r.target->want_crc)
        return;
    for (uint64_t i = 0; i < plan_order_count(x->r.plan); i++) {
        const uint64_t chunk = plan_ordered_chunk(x->r.plan, i);
        const cat_chunk *k = catalogue_chunk(to, chunk);
        const cat_chunk *l = catalogue_chunk(to, last);
        if (i > 0 && l->file == k->file && l->offset_bytes == k->offset_bytes &&
            l->nbytes == k->nbytes)
            x->r.target->chunk_crc[chunk] = x->r.target->chunk_crc[last];
        last = chunk;
    }
}
