/* ds_archive.c: opens one file; compares pieces. */
#include <stdio.h>

#include "formats/deepspeed/ds_internal.h"

fsdpck_status ds_open_file(ds_state *s, const ds_file *f, ds_open *o, fsdpck_error *err)
{
    *o = (ds_open){.s = s, .file = f};
    catalogue_init(&o->scratch, s->req->metadata);
    RETURN_IF(cancel_check(s->req->cancel, err));
    /* Records of unknown classes, such as the loss scaler, are kept and not used. */
    RETURN_IF(torch_folder_read(s->reader, f->index, &o->scratch.pool, TORCH_CALLS_KEEP,
                                &o->archive, err));
    if (s->form[0] == '\0')
        snprintf(s->form, sizeof s->form, "%s", torch_archive_torch_version(&o->archive));
    if (o->archive.duplicate_keys > 0)
        log_warn(&s->req->log, FSDPCK_FINDING_PKL_DUPKEY, "",
                 "dict keys set twice in '%s'; the last value of each is used", f->name);
    return FSDPCK_OK;
}

void ds_close_file(ds_open *o, bool keep)
{
    torch_folder_end_read(o->s->reader, o->file->index, &o->archive, keep);
    catalogue_release(&o->scratch);
}

fsdpck_status ds_piece_of(ds_open *o, uint64_t tensor, uint32_t *piece, fsdpck_error *err)
{
    return torch_folder_shard_of(o->s->reader, o->file->index, &o->archive, tensor, piece, err);
}

uint64_t ds_piece_nelems(const torch_folder *r, const torch_shard *p)
{
    return box_nelems(torch_shard_sizes(r, p), p->ndim);
}

ds_compared ds_pieces_compare(const torch_folder *r, const torch_shard *a, const torch_shard *b)
{
    if (a->dtype != b->dtype ||
        !shape_equal(torch_shard_sizes(r, a), a->ndim, torch_shard_sizes(r, b), b->ndim))
        return DS_DIFFERENT;
    const uint64_t a_at = a->offset_bytes - a->record_offset_bytes;
    const uint64_t b_at = b->offset_bytes - b->record_offset_bytes;
    if (!(a->flags & TORCH_SHARD_CRC) || !(b->flags & TORCH_SHARD_CRC) || a_at != b_at ||
        a->record_nbytes != b->record_nbytes)
        return DS_UNKNOWN;
    return a->crc32 == b->crc32 ? DS_EQUAL : DS_DIFFERENT;
}
