/* CRC-32 and digests (CRC-64) of target chunks, and CRC-64 of target files, combined part by part
 * by the thread that has the bytes.
 *
 * The CRC of a whole is the XOR of the CRCs of its parts, each shifted by the bytes that follow it.
 * So parts may come in any order from any thread, and none is stored.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "exec/box_crc.h"
#include "exec/exec_internal.h"

static fsdpck_status zero_sums(void **sums, uint64_t count, size_t size, fsdpck_error *err)
{
    if (*sums == NULL)
        *sums = calloc(count > 0 ? count : 1, size);
    else
        memset(*sums, 0, count * size);
    return *sums != NULL ? FSDPCK_OK : error_set_nomem(err, count * size);
}

bool exec_checksums_wanted(const struct exec *x)
{
    const target *t = x->r.target;
    return t->want_crc || t->want_digest || t->want_file_crc;
}

fsdpck_status exec_checksums_begin(struct exec *x, fsdpck_error *err)
{
    target *t = x->r.target;
    const uint64_t nchunks = catalogue_chunk_count(&t->cat);
    const size_t nfiles = catalogue_file_count(&t->cat);
    void *crcs = t->chunk_crc, *digests = t->chunk_digest, *files = t->file_crc;
    fsdpck_status st = FSDPCK_OK;
    if (t->want_crc)
        st = zero_sums(&crcs, nchunks, sizeof *t->chunk_crc, err);
    if (st == FSDPCK_OK && t->want_digest)
        st = zero_sums(&digests, nchunks, sizeof *t->chunk_digest, err);
    if (st == FSDPCK_OK && t->want_file_crc)
        st = zero_sums(&files, nfiles, sizeof *t->file_crc, err);
    t->chunk_crc = crcs;
    t->chunk_digest = digests;
    t->file_crc = files;
    return st;
}

static void add_to(uint64_t *sum, uint64_t crc)
{
    (void)__atomic_fetch_xor(sum, crc, __ATOMIC_RELAXED);
}

/* Adds a part to its tensor's checksum, and to its file's if wanted: in one pass if the part is one
 * run of both. *raw: its raw CRC, if `has_raw`. Returns whether *raw has it now. */
static bool put_crc64(struct exec *x, const range_part *part, const uint8_t *bytes, bool with_file,
                      uint64_t *raw, bool has_raw)
{
    const target *t = x->r.target;
    const cat_chunk *k = catalogue_chunk(&t->cat, part->chunk);
    const cat_tensor *ct = catalogue_tensor(&t->cat, k->tensor);
    const uint64_t nbytes = part->end - part->begin;
    const uint64_t at = part->begin - part->chunk_begin;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    const box_bytes box = {ct->ndim, catalogue_shape(&t->cat, k->tensor),
                           dtype_get((dtype)ct->dtype)->itemsize_bytes, offsets, sizes};
    uint64_t after_nbytes;
    bool run = false;
    if (t->want_digest) {
        catalogue_chunk_box(&t->cat, part->chunk, offsets, sizes);
        run = box_is_run(&box, at, at + nbytes, &after_nbytes);
    }
    if ((run || with_file) && !has_raw) {
        *raw = crc64_raw(0, bytes, nbytes);
        has_raw = true;
    }
    if (with_file)
        add_to(&t->file_crc[k->file],
               crc64_shift(*raw, catalogue_file(&t->cat, k->file)->nbytes - part->end));
    if (t->want_digest)
        add_to(&t->chunk_digest[part->chunk],
               run ? crc64_shift(*raw, after_nbytes) : box_crc(&box, at, at + nbytes, bytes));
    return has_raw;
}

static bool put_part(struct exec *x, const range_part *part, const uint8_t *bytes, bool with_file,
                     uint64_t *raw, bool has_raw)
{
    const target *t = x->r.target;
    if (t->want_crc) {
        const uint64_t chunk_end =
            part->chunk_begin + catalogue_chunk(&t->cat, part->chunk)->nbytes;
        const uint32_t crc =
            crc32_join(crc32_update(0, bytes, part->end - part->begin), 0, chunk_end - part->end);
        (void)__atomic_fetch_xor(&t->chunk_crc[part->chunk], crc, __ATOMIC_RELAXED);
    }
    return t->want_digest || with_file ? put_crc64(x, part, bytes, with_file, raw, has_raw) : has_raw;
}

bool exec_checksums_add(struct exec *x, const range_part *part, const uint8_t *bytes, uint64_t *raw)
{
    return put_part(x, part, bytes, x->r.target->want_file_crc, raw, false);
}

void exec_checksums_add_sparse(struct exec *x, const range_part *part, const uint8_t *bytes)
{
    uint64_t raw;
    (void)put_crc64(x, part, bytes, false, &raw, false);
}

/* Minimum length of a part that is checksummed separately from its neighbors in the file. */
static bool is_checksummed_alone(const range_part *part)
{
    return part->kind == RANGE_PART_CHUNK && part->end - part->begin >= CHECKSUM_ALONE_NBYTES;
}

void exec_checksums_add_chunks(struct exec *x, tile_parts *parts, const output_range *range,
                               const uint8_t *bytes)
{
    tile_walk walk;
    const range_part *part;
    const bool from_fill = parts->crc_count > 0;
    unsigned crcs = 0;
    tile_parts_begin(&walk, parts);
    while ((part = tile_parts_next(&walk)) != NULL) {
        const uint8_t *at = bytes + (part->begin - range->begin);
        const bool is_alone = is_checksummed_alone(part);
        bool known = from_fill && is_alone && crcs < parts->crc_count &&
                     parts->crcs[crcs].begin == part->begin;
        uint64_t raw = known ? parts->crcs[crcs++].raw : 0;
        if (part->kind != RANGE_PART_CHUNK)
            continue;
        if (!exec_chunk_is_streamed(x, part->chunk)) {
            known = put_part(x, part, at, x->r.target->want_file_crc && is_alone, &raw, known);
            if (known && is_alone && !from_fill && parts->crc_count < TILE_CRCS)
                parts->crcs[parts->crc_count++] = (tile_crc){part->begin, raw};
        } else if (x->out == NULL) {
            exec_checksums_add_sparse(x, part, at);
        }
    }
}

void exec_checksums_add_other(struct exec *x, const tile_parts *parts, const output_range *range,
                              const uint8_t *bytes)
{
    const target *t = x->r.target;
    tile_walk walk;
    const range_part *part;
    uint64_t begin = range->begin; /* of the bytes not yet checksummed */
    if (!t->want_file_crc)
        return;
    tile_parts_begin(&walk, parts);
    while ((part = tile_parts_next(&walk)) != NULL) {
        if (part->kind != RANGE_PART_CHUNK ||
            (!is_checksummed_alone(part) && !exec_chunk_is_streamed(x, part->chunk)))
            continue;
        target_add_file_crc(t, range->file, begin, bytes + (begin - range->begin),
                            part->begin - begin);
        begin = part->end;
    }
    target_add_file_crc(t, range->file, begin, bytes + (begin - range->begin), range->end - begin);
}

/* Chunks at the same location have the same bytes, which were put once. */
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

void exec_checksums_finish(struct exec *x)
{
    if (!exec_checksums_wanted(x))
        return;
    copy_to_aliases(x);
}
