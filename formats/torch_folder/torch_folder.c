#include "formats/torch_folder/torch_folder.h"

#include <stdlib.h>
#include <string.h>

#include "formats/common/zip_stream.h"

/* --- open --- */

void torch_folder_close(void *self)
{
    torch_folder *r = self;

    if (r == NULL)
        return;
    for (size_t i = 0; i < r->inputs.count; i++) {
        zip_release(&VEC_AT(&r->inputs, torch_folder_file, i)->zip);
        free(VEC_AT(&r->inputs, torch_folder_file, i)->saved_as);
    }
    VEC_RELEASE_ALL(&r->inputs, &r->pieces, &r->dims);
    file_set_release(&r->files);
    folder_close(&r->dir);
    free(r);
}

fsdpck_status torch_folder_open(const open_request *req, torch_folder **out, fsdpck_error *err)
{
    torch_folder *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set_nomem(err, sizeof *r);
    r->dir = FOLDER_CLOSED;
    r->owner = req->metadata;
    r->inputs = VEC_OF(torch_folder_file, req->metadata);
    r->pieces = VEC_OF(torch_shard, req->metadata);
    r->dims = VEC_OF(uint64_t, req->metadata);
    fsdpck_status st = open_request_folder(req, &r->dir, err);
    if (st == FSDPCK_OK)
        st = file_set_init(&r->files, &r->dir, 0, req->no_follow ? FILE_NO_FOLLOW : 0, err);
    if (st != FSDPCK_OK)
        torch_folder_close(r);
    else
        *out = r;
    return st;
}

fsdpck_status torch_folder_add(torch_folder *r, catalogue *cat, const char *name, uint32_t rank,
                               uint32_t *index, fsdpck_error *err)
{
    uint32_t in_catalogue;
    uint64_t nbytes;
    RETURN_IF(file_set_add(&r->files, name, index, err));
    const torch_folder_file made = {
        .owner = r, .file = *index, .rank = (uint16_t)rank, .pieces = VEC_OF(uint32_t, r->owner)};
    fsdpck_status st = vec_add(&r->inputs, &made, err);
    if (st == FSDPCK_OK)
        st = file_set_nbytes(&r->files, *index, &nbytes, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_file(cat, name, strlen(name), nbytes, rank, &in_catalogue, err);
    if (st == FSDPCK_OK)
        catalogue_file(cat, in_catalogue)->identity = file_set_identity(&r->files, *index);
    if (st == FSDPCK_OK && in_catalogue != *index)
        st = FAIL(err, INTERNAL, NONE, "files were added in two different orders");
    if (st != FSDPCK_OK)
        error_path_in(err, r->dir.path, name);
    return st;
}

/* --- one file --- */

static fsdpck_status read_input(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                fsdpck_error *err)
{
    const torch_folder_file *in = ctx;
    return file_set_read_at(&in->owner->files, in->file, offset_bytes, dst, nbytes, err);
}

fsdpck_status torch_folder_read(torch_folder *r, uint32_t index, value_pool *pool,
                                torch_calls calls, torch_archive *a, fsdpck_error *err)
{
    torch_folder_file *input = VEC_AT(&r->inputs, torch_folder_file, index);
    uint64_t nbytes;

    memset(a, 0, sizeof *a);
    RETURN_IF(file_set_nbytes(&r->files, index, &nbytes, err));
    const zip_input in = {.read = read_input, .ctx = input, .nbytes = nbytes};
    RETURN_IF(torch_archive_open(&in, r->owner, pool, calls, a, err));
    torch_file_note_root(r, index, a->zip.prefix);
    return FSDPCK_OK;
}

static void keep_zip(torch_folder *r, torch_folder_file *input, zip_archive *zip)
{
    bool needed = zip->any_deflated;
    r->any_deflated = r->any_deflated || needed;
    for (size_t i = 0; !needed && i < zip->entries.count; i++)
        needed = !VEC_AT(&zip->entries, const zip_entry, i)->checked;
    if (!needed)
        return;
    input->zip = *zip;
    memset(zip, 0, sizeof *zip);
}

void torch_folder_end_read(torch_folder *r, uint32_t index, torch_archive *a, bool keep)
{
    torch_folder_file *input = VEC_AT(&r->inputs, torch_folder_file, index);
    if (keep)
        keep_zip(r, input, &a->zip);
    vec_release(&input->pieces);
    torch_archive_release(a);
}

/* --- shards --- */

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

static fsdpck_status keep_dims(torch_folder *r, const torch_archive *a, const torch_tensor *t,
                               const place *where, uint64_t *at, fsdpck_error *err)
{
    *at = r->dims.count;
    uint64_t *dims = vec_push_n(&r->dims, 2u * t->ndim, err);
    if (dims == NULL && t->ndim > 0)
        return FSDPCK_LIMIT;
    for (unsigned i = 0; i < t->ndim; i++) {
        dims[i] = torch_tensor_sizes(a, t)[i];
        dims[t->ndim + i] = where->strides[i];
    }
    return FSDPCK_OK;
}

/* The slot of an archive tensor. Their number grows while an archive is flattened. */
static uint32_t *slot_of(torch_folder *r, uint32_t index, const torch_archive *a, uint64_t tensor,
                         fsdpck_error *err)
{
    vec *pieces = &VEC_AT(&r->inputs, torch_folder_file, index)->pieces;
    if (tensor >= pieces->count) {
        const size_t n = a->tensors.count - pieces->count;
        uint32_t *added = vec_push_n(pieces, n, err);
        if (added == NULL)
            return NULL;
        memset(added, 0xFF, n * sizeof *added); /* CAT_NONE */
    }
    return VEC_AT(pieces, uint32_t, tensor);
}

fsdpck_status torch_folder_shard_of(torch_folder *r, uint32_t index, const torch_archive *a,
                                    uint64_t tensor, uint32_t *piece, fsdpck_error *err)
{
    const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, tensor);
    torch_shard made = {.file = index,
                        .rank = VEC_AT(&r->inputs, const torch_folder_file, index)->rank,
                        .dtype = t->dtype,
                        .ndim = t->ndim,
                        .python = t->python,
                        .tensor = CAT_NONE};
    place where;
    bool checked;

    uint32_t *slot = slot_of(r, index, a, tensor, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    if (*slot != CAT_NONE) {
        *piece = *slot;
        return FSDPCK_OK;
    }
    if (t->meta)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "tensor on the meta device has no data");
    RETURN_IF(place_of(a, t, &where, &checked, err));
    RETURN_IF(keep_dims(r, a, t, &where, &made.dims_at, err));
    made.entry = VEC_AT(&a->storages, const torch_storage, t->storage)->entry;
    made.offset_bytes = where.offset_bytes;
    made.record_offset_bytes = where.record_offset_bytes;
    made.record_nbytes = where.record_nbytes;
    made.crc32 = where.crc32;
    made.flags =
        (uint16_t)((where.rows ? TORCH_SHARD_ROWS : 0) | (where.swap ? TORCH_SHARD_SWAP : 0) |
                   (where.conj ? TORCH_SHARD_CONJ : 0) | (where.neg ? TORCH_SHARD_NEG : 0) |
                   (where.has_crc ? TORCH_SHARD_CRC : 0) | (where.stream ? TORCH_SHARD_STREAM : 0) |
                   (checked ? 0 : TORCH_SHARD_UNCHECKED) |
                   (t->requires_grad ? TORCH_SHARD_GRAD : 0));
    if (r->pieces.count >= CAT_NONE)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many tensors in the files of all ranks");
    RETURN_IF(vec_add(&r->pieces, &made, err));
    *piece = *slot = (uint32_t)(r->pieces.count - 1);
    return FSDPCK_OK;
}

const uint64_t *torch_shard_sizes(const torch_folder *r, const torch_shard *q)
{
    static const uint64_t none[1];
    return q->ndim > 0 ? VEC_AT(&r->dims, const uint64_t, q->dims_at) : none;
}

/* --- the source --- */

void torch_folder_finish(torch_folder *r, const open_request *req, catalogue *cat)
{
    if (r->any_deflated)
        format_note(
            req->found, req->found_ctx, FSDPCK_FINDING_ZIP_DEFLATED, req->path, NULL,
            "records are deflated: torch.load(mmap=True) uses the compressed bytes as data");
    torch_file_names_check(r, req);
    vec_trim(&r->pieces);
    vec_trim(&r->dims);
    r->cat = cat;
}

fsdpck_status torch_folder_locate(const torch_folder *r, const torch_shard *q, place *where,
                                  fsdpck_error *err)
{
    if (q->flags & TORCH_SHARD_UNCHECKED) {
        const zip_archive *z = &VEC_AT(&r->inputs, const torch_folder_file, q->file)->zip;
        RETURN_IF(zip_entry_check(z, VEC_AT(&z->entries, const zip_entry, q->entry), err));
    }
    *where = (place){.file = q->file,
                     .stream = (q->flags & TORCH_SHARD_STREAM) != 0,
                     .swap = (q->flags & TORCH_SHARD_SWAP) != 0,
                     .conj = (q->flags & TORCH_SHARD_CONJ) != 0,
                     .neg = (q->flags & TORCH_SHARD_NEG) != 0,
                     .rows = (q->flags & TORCH_SHARD_ROWS) != 0,
                     .has_crc = (q->flags & TORCH_SHARD_CRC) != 0,
                     .crc32 = q->crc32,
                     .offset_bytes = q->offset_bytes,
                     .record_offset_bytes = q->record_offset_bytes,
                     .record_nbytes = q->record_nbytes};
    if (q->ndim > 0)
        memcpy(where->strides, VEC_AT(&r->dims, const uint64_t, q->dims_at + q->ndim),
               q->ndim * sizeof *where->strides);
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t index, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    torch_folder *r = ctx;
    return file_set_read_at(&r->files, index, offset_bytes, dst, nbytes, err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err)
{
    const torch_folder *r = ctx;
    const torch_shard *q =
        VEC_AT(&r->pieces, const torch_shard, catalogue_chunk(r->cat, chunk)->aux);
    const zip_archive *z = &VEC_AT(&r->inputs, const torch_folder_file, q->file)->zip;

    *s = NULL;
    if (!(q->flags & TORCH_SHARD_STREAM))
        return FAIL(err, INTERNAL, NONE, "record is not compressed");
    return zip_stream_open(&z->in, VEC_AT(&z->entries, const zip_entry, q->entry), !z->no_crc, s,
                           err);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    torch_folder *r = ctx;
    return file_set_check_unchanged(&r->files, err);
}

void torch_folder_source(void *self, catalogue *cat, source *src)
{
    ((torch_folder *)self)->cat = cat;
    *src = (source){.ctx = self,
                    .cat = cat,
                    .read_at = read_at,
                    .stream_open = stream_open,
                    .stream_read = zip_stream_read,
                    .stream_finish = zip_stream_finish,
                    .stream_close = zip_stream_close,
                    .check_unchanged = check_unchanged};
}
