/* ranks_state.c: what a file adds to the state that all files share: shards and members. */
#include <inttypes.h>

#include "formats/pt/ranks_internal.h"

static fsdpck_status keep_dims(ranks_reader *r, const torch_archive *a, const torch_tensor *t,
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

fsdpck_status ranks_shard_of(ranks_parse *p, uint64_t tensor, uint32_t *piece, fsdpck_error *err)
{
    ranks_reader *r = p->s->reader;
    const torch_tensor *t = VEC_AT(&p->archive.tensors, const torch_tensor, tensor);
    ranks_shard made = {.file = p->file->index,
                        .rank = (uint16_t)p->file->rank,
                        .dtype = t->dtype,
                        .ndim = t->ndim,
                        .python = t->python,
                        .tensor = CAT_NONE};
    place where;
    bool checked;

    if (p->pieces[tensor] != CAT_NONE) {
        *piece = p->pieces[tensor];
        return FSDPCK_OK;
    }
    if (t->meta)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND, "tensor on the meta device has no data");
    RETURN_IF(place_of(&p->archive, t, &where, &checked, err));
    RETURN_IF(keep_dims(r, &p->archive, t, &where, &made.dims_at, err));
    made.entry = VEC_AT(&p->archive.storages, const torch_storage, t->storage)->entry;
    made.offset_bytes = where.offset_bytes;
    made.record_offset_bytes = where.record_offset_bytes;
    made.record_nbytes = where.record_nbytes;
    made.crc32 = where.crc32;
    made.flags =
        (uint16_t)((where.rows ? RANKS_SHARD_ROWS : 0) | (where.swap ? RANKS_SHARD_SWAP : 0) |
                   (where.conj ? RANKS_SHARD_CONJ : 0) | (where.neg ? RANKS_SHARD_NEG : 0) |
                   (where.has_crc ? RANKS_SHARD_CRC : 0) | (where.stream ? RANKS_SHARD_STREAM : 0) |
                   (checked ? 0 : RANKS_SHARD_UNCHECKED) |
                   (t->requires_grad ? RANKS_SHARD_GRAD : 0));
    if (r->pieces.count >= CAT_NONE)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many tensors in the files of all ranks");
    RETURN_IF(vec_add(&r->pieces, &made, err));
    *piece = p->pieces[tensor] = (uint32_t)(r->pieces.count - 1);
    return FSDPCK_OK;
}

fsdpck_status ranks_note_member(ranks_state *s, uint64_t rank, fsdpck_error *err)
{
    if (rank >= MESH_RANKS_MAX)
        return FAIL(err, BADINPUT, RANK_DTENSOR, "rank %" PRIu64 " in a mesh is too large", rank);
    if (s->members.count <= rank &&
        vec_push_n(&s->members, (size_t)rank + 1 - s->members.count, err) == NULL)
        return FSDPCK_LIMIT;
    *VEC_AT(&s->members, uint8_t, rank) = 1;
    return FSDPCK_OK;
}

bool ranks_is_joined(const ranks_state *s, const ranks_tensor *t)
{
    const ranks_file *f = VEC_AT(&s->list->files, const ranks_file, t->first_file);
    return t->first_file > 0 && f[-1].family == f->family;
}

const char *ranks_path(const ranks_state *s, uint32_t index)
{
    return file_set_path(&s->reader->files, index);
}
