/* ds_archive.c: opens one file, and keeps the location of those of its tensors that are used. */
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

static fsdpck_status read_input(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                fsdpck_error *err)
{
    const ds_input *in = ctx;
    return file_set_read_at(&in->owner->files, in->file, offset_bytes, dst, nbytes, err);
}

static void note_release(ds_state *s, const torch_archive *a)
{
    if (s->form[0] == '\0')
        snprintf(s->form, sizeof s->form, "%s",
                 a->is_legacy              ? "before 1.6, or with its old format"
                 : a->has_format_version   ? "2.7 or newer"
                 : a->has_serialization_id ? "2.1 to 2.6"
                                           : "1.6 to 2.0");
}

static fsdpck_status allocate_pieces(ds_open *o, fsdpck_error *err)
{
    o->piece_count = o->archive.tensors.count;
    o->pieces = budget_alloc(o->s->req->metadata, o->piece_count * sizeof *o->pieces, err);
    if (o->pieces == NULL)
        return FSDPCK_LIMIT;
    memset(o->pieces, 0xFF, o->piece_count * sizeof *o->pieces); /* CAT_NONE */
    return FSDPCK_OK;
}

fsdpck_status ds_open_file(ds_state *s, const ds_file *f, ds_open *o, fsdpck_error *err)
{
    budget *owner = s->req->metadata;
    ds_input *input = &s->reader->inputs[f->index];
    uint64_t nbytes = 0;

    *o = (ds_open){.s = s, .file = f};
    *input = (ds_input){.owner = s->reader, .file = f->index};
    catalogue_init(&o->scratch, owner);
    fsdpck_status st = cancel_check(s->req->cancel, err);
    if (st == FSDPCK_OK)
        st = file_set_nbytes(&s->reader->files, f->index, &nbytes, err);
    const zip_input in = {.read = read_input, .ctx = input, .nbytes = nbytes};
    /* Records of unknown classes, such as the loss scaler, are kept and not used. */
    if (st == FSDPCK_OK)
        st = torch_archive_open(&in, owner, &o->scratch.pool, TORCH_CALLS_KEEP, &o->archive, err);
    if (st == FSDPCK_OK) {
        note_release(s, &o->archive);
        if (o->archive.duplicate_keys > 0)
            log_warn(&s->req->log, FSDPCK_FINDING_PKL_DUPKEY, "",
                     "dict keys set twice in '%s'; the last value of each is used", f->name);
        st = allocate_pieces(o, err);
    }
    return st;
}

static void keep_zip(ds_open *o)
{
    zip_archive *zip = &o->archive.zip;
    bool needed = zip->any_deflated;
    o->s->any_deflated = o->s->any_deflated || needed;
    for (size_t i = 0; !needed && i < zip->entries.count; i++)
        needed = !VEC_AT(&zip->entries, const zip_entry, i)->checked;
    if (!needed)
        return;
    o->s->reader->inputs[o->file->index].zip = *zip;
    memset(zip, 0, sizeof *zip);
}

void ds_close_file(ds_open *o)
{
    keep_zip(o);
    if (o->pieces != NULL)
        budget_free(o->s->req->metadata, o->pieces, o->piece_count * sizeof *o->pieces);
    torch_archive_release(&o->archive);
    catalogue_release(&o->scratch);
}

/* torch_tensor_locate without its I/O: the record of a large zip is checked when it is used. */
static fsdpck_status place_of(const torch_archive *a, const torch_tensor *t, place *where,
                              bool *checked, fsdpck_error *err)
{
    const torch_storage *s = VEC_AT(&a->storages, const torch_storage, t->storage);
    *checked = true;
    if (s->entry != UINT32_MAX) {
        zip_entry *e = VEC_AT(&a->zip.entries, zip_entry, s->entry);
        if (!e->checked) {
            *checked = false;
            e->checked = true;
            const fsdpck_status st = torch_tensor_locate(a, t, where, err);
            e->checked = false;
            return st;
        }
    }
    return torch_tensor_locate(a, t, where, err);
}

static fsdpck_status keep_dims(ds_open *o, const torch_tensor *t, const place *where, uint64_t *at,
                               fsdpck_error *err)
{
    ds_reader *r = o->s->reader;
    *at = r->dims.count;
    uint64_t *dims = vec_push_n(&r->dims, 2u * t->ndim, err);
    if (dims == NULL && t->ndim > 0)
        return FSDPCK_LIMIT;
    for (unsigned i = 0; i < t->ndim; i++) {
        dims[i] = torch_tensor_sizes(&o->archive, t)[i];
        dims[t->ndim + i] = where->strides[i];
    }
    return FSDPCK_OK;
}

fsdpck_status ds_piece_of(ds_open *o, uint64_t tensor, uint32_t *piece, fsdpck_error *err)
{
    ds_reader *r = o->s->reader;
    const torch_archive *a = &o->archive;
    const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, tensor);
    ds_piece made = {.file = o->file->index,
                     .dtype = t->dtype,
                     .ndim = t->ndim,
                     .python = t->python,
                     .requires_grad = t->requires_grad};
    place where;
    bool checked;

    if (tensor < o->piece_count && o->pieces[tensor] != CAT_NONE) {
        *piece = o->pieces[tensor];
        return FSDPCK_OK;
    }
    if (t->meta)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "tensor on the meta device has no data");
    RETURN_IF(place_of(a, t, &where, &checked, err));
    RETURN_IF(keep_dims(o, t, &where, &made.dims_at, err));
    made.entry = VEC_AT(&a->storages, const torch_storage, t->storage)->entry;
    made.offset_bytes = where.offset_bytes;
    made.record_offset_bytes = where.record_offset_bytes;
    made.record_nbytes = where.record_nbytes;
    made.crc32 = where.crc32;
    made.flags =
        (uint8_t)((where.rows ? DS_PIECE_ROWS : 0) | (where.swap ? DS_PIECE_SWAP : 0) |
                  (where.conj ? DS_PIECE_CONJ : 0) | (where.neg ? DS_PIECE_NEG : 0) |
                  (where.has_crc ? DS_PIECE_CRC : 0) | (where.stream ? DS_PIECE_STREAM : 0) |
                  (checked ? 0 : DS_PIECE_UNCHECKED));
    if (r->pieces.count >= CAT_NONE)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many tensors in the files of all ranks");
    RETURN_IF(vec_add(&r->pieces, &made, err));
    *piece = (uint32_t)(r->pieces.count - 1);
    if (tensor < o->piece_count)
        o->pieces[tensor] = *piece;
    return FSDPCK_OK;
}

const uint64_t *ds_piece_sizes(const ds_reader *r, const ds_piece *p)
{
    static const uint64_t none[1];
    return p->ndim > 0 ? VEC_AT(&r->dims, const uint64_t, p->dims_at) : none;
}

uint64_t ds_piece_nelems(const ds_reader *r, const ds_piece *p)
{
    return box_nelems(ds_piece_sizes(r, p), p->ndim);
}

ds_compared ds_pieces_compare(const ds_reader *r, const ds_piece *a, const ds_piece *b)
{
    if (a->dtype != b->dtype ||
        !shape_equal(ds_piece_sizes(r, a), a->ndim, ds_piece_sizes(r, b), b->ndim))
        return DS_DIFFERENT;
    const uint64_t a_at = a->offset_bytes - a->record_offset_bytes;
    const uint64_t b_at = b->offset_bytes - b->record_offset_bytes;
    if (!(a->flags & DS_PIECE_CRC) || !(b->flags & DS_PIECE_CRC) || a_at != b_at ||
        a->record_nbytes != b->record_nbytes)
        return DS_UNKNOWN;
    return a->crc32 == b->crc32 ? DS_EQUAL : DS_DIFFERENT;
}
