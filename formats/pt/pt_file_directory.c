/* The directories of torch.save zips, and the CRCs that are known only after the data is written. */
#include <string.h>

#include "base/crc.h"
#include "formats/common/torch_zip_write.h"
#include "formats/common/zip.h"
#include "formats/pt/pt_file_internal.h"

#define DESCRIPTOR_NBYTES_MAX 24

uint64_t pt_files_end_of_parts(const pt_files *s, uint64_t join)
{
    return join + 1 < s->joins.count ? VEC_AT(&s->joins, const pt_join, join + 1)->first_part
                                     : s->parts.count;
}

static uint32_t join_crc(const target *t, uint64_t index)
{
    const pt_files *s = t->writer_state;
    uint32_t crc = 0;
    for (uint64_t i = VEC_AT(&s->joins, const pt_join, index)->first_part;
         i < pt_files_end_of_parts(s, index); i++) {
        const pt_record *p = VEC_AT(&s->parts, const pt_record, i);
        crc = p->chunk == PT_NO_CHUNK ? crc32_update(crc, t->text.text + p->text_at, p->nbytes)
                                      : crc32_join(crc, t->chunk_crc[p->chunk], p->nbytes);
    }
    return crc;
}

static uint32_t record_crc(const target *t, const pt_record *r)
{
    const pt_files *s = t->writer_state;
    if (r->chunk == PT_IN_PARTS)
        return VEC_AT(&s->joins, const pt_join, r->text_at)->crc;
    if (r->chunk == PT_NO_CHUNK)
        return r->crc;
    return r->nbytes > 0 && t->chunk_crc != NULL ? t->chunk_crc[r->chunk] : 0;
}

fsdpck_status pt_file_make_directory(const target *t, const pt_file *f, uint64_t end, text_buf *out,
                                     uint64_t *directory_at, fsdpck_error *err)
{
    const pt_files *s = t->writer_state;
    uint64_t at = torch_zip_put_central_head(out, f->pickle_nbytes, f->pickle_crc);

    for (uint64_t i = f->first_record; i < end; i++) {
        const pt_record *r = VEC_AT(&s->records, const pt_record, i);
        at = torch_zip_put_central_storage(out, at, i - f->first_record, r->nbytes,
                                           record_crc(t, r));
    }
    *directory_at = torch_zip_put_central_end(out, 0, at, end - f->first_record);
    return text_check(out, err);
}

/* CRCs and descriptors of the composite records in one file. */
static fsdpck_status seal_joins(const target *t, const pt_file *f, uint64_t end, deferred_fn put,
                                void *ctx, fsdpck_error *err)
{
    const pt_files *s = t->writer_state;
    for (uint64_t i = f->first_record; i < end; i++) {
        const pt_record *r = VEC_AT(&s->records, const pt_record, i);
        if (r->chunk != PT_IN_PARTS)
            continue;
        pt_join *join = VEC_AT(&s->joins, pt_join, r->text_at);
        uint8_t bytes[DESCRIPTOR_NBYTES_MAX];
        const unsigned nbytes = zip_descriptor_nbytes(join->header_at, r->nbytes);
        if (nbytes == 0)
            continue;
        join->crc = join_crc(t, r->text_at);
        zip_make_descriptor(bytes, nbytes, join->crc, r->nbytes);
        const deferred_bytes late = {
            .file = f->file, .offset_bytes = join->descriptor_at, .nbytes = nbytes, .bytes = bytes};
        RETURN_IF(put(ctx, &late, err));
    }
    return FSDPCK_OK;
}

fsdpck_status pt_files_seal(const target *t, deferred_fn put, void *ctx, fsdpck_error *err)
{
    const pt_files *s = t->writer_state;
    text_buf out = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = FSDPCK_OK;
    uint64_t at;

    for (size_t i = 0; st == FSDPCK_OK && i < s->files.count; i++) {
        const pt_file *f = VEC_AT(&s->files, const pt_file, i);
        const uint64_t end =
            i + 1 < s->files.count ? f[1].first_record : (uint64_t)s->records.count;
        out.nbytes = 0;
        if (s->joins.count > 0)
            st = seal_joins(t, f, end, put, ctx, err);
        if (st == FSDPCK_OK)
            st = pt_file_make_directory(t, f, end, &out, &at, err);
        const deferred_bytes late = {.file = f->file,
                                     .offset_bytes = at,
                                     .nbytes = out.nbytes,
                                     .bytes = (const uint8_t *)out.text};
        if (st == FSDPCK_OK)
            st = put(ctx, &late, err);
    }
    text_release(&out);
    return st;
}
