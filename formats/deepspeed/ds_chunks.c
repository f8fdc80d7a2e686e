/* ds_chunks.c: adds tensors, objects and chunks to the catalogue. */
#include <inttypes.h>

#include "formats/deepspeed/ds_internal.h"

/* --- names and paths --- */

ds_key ds_key_of(const strtab *t, uint32_t id)
{
    return (ds_key){.text = strtab_text(t, id), .nbytes = strtab_nbytes(t, id)};
}

static fsdpck_status make_path(ds_state *s, const ds_key *keys, size_t count, value *path,
                               fsdpck_error *err)
{
    value_pool *pool = &s->cat->pool;
    vec items = VEC_OF(value, s->req->metadata);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        value v = VALUE_OF_NONE;
        st = keys[i].text == NULL ? value_new_int(pool, (int64_t)keys[i].index, &v, err)
                                  : value_new_str(pool, keys[i].text, keys[i].nbytes, &v, err);
        if (st == FSDPCK_OK)
            st = vec_add(&items, &v, err);
    }
    if (st == FSDPCK_OK)
        st = value_new_from(pool, VALUE_TUPLE, items.items, items.count, path, err);
    vec_release(&items);
    return st;
}

static fsdpck_status make_name(const ds_key *keys, size_t count, text_buf *name, fsdpck_error *err)
{
    name->limit_bytes = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        text_puts(name, i == 0 ? "" : ".");
        if (keys[i].text == NULL)
            text_printf(name, "%" PRIu64, keys[i].index);
        else
            text_append(name, keys[i].text, keys[i].nbytes);
    }
    return text_check(name, err);
}

fsdpck_status ds_add_tensor(ds_state *s, const ds_key *keys, size_t count, dtype d, unsigned ndim,
                            const uint64_t *shape, uint32_t *tensor, fsdpck_error *err)
{
    text_buf name = {0};
    value path = VALUE_OF_NONE;
    fsdpck_status st = make_name(keys, count, &name, err);
    if (st == FSDPCK_OK)
        st = make_path(s, keys, count, &path, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_tensor(s->cat, name.text, name.nbytes, d, ndim, shape, tensor, err);
    if (st == FSDPCK_OK)
        catalogue_tensor(s->cat, *tensor)->path = path;
    else
        error_tensor(err, name.text == NULL ? "" : name.text);
    text_release(&name);
    return st;
}

fsdpck_status ds_add_object(ds_state *s, const ds_key *keys, size_t count, value content,
                            fsdpck_error *err)
{
    text_buf name = {0};
    value path = VALUE_OF_NONE;
    uint32_t object;
    fsdpck_status st = make_name(keys, count, &name, err);
    if (st == FSDPCK_OK)
        st = make_path(s, keys, count, &path, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_object(s->cat, name.text, name.nbytes, &object, err);
    text_release(&name);
    RETURN_IF(st);
    cat_object *o = catalogue_object(s->cat, object);
    o->path = path;
    o->content = content;
    o->loaded = 1;
    return FSDPCK_OK;
}

/* --- chunks --- */

static bool is_plain(const torch_shard *p)
{
    return (p->flags & TORCH_SHARD_ROWS) &&
           !(p->flags & (TORCH_SHARD_SWAP | TORCH_SHARD_CONJ | TORCH_SHARD_NEG |
                         TORCH_SHARD_STREAM | TORCH_SHARD_UNCHECKED));
}

static cat_chunk chunk_of(const torch_shard *p, uint32_t piece, uint64_t skip_nbytes,
                          uint64_t nbytes)
{
    return (cat_chunk){.file = p->file,
                       .aux = piece,
                       .rank = UINT16_MAX,
                       .place = is_plain(p) ? LOCATION_ROWS : LOCATION_STRIDED,
                       .offset_bytes = p->offset_bytes + skip_nbytes,
                       .nbytes = nbytes};
}

fsdpck_status ds_add_piece(const ds_state *s, uint32_t tensor, uint32_t piece, fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    const cat_chunk chunk = chunk_of(p, piece, 0, catalogue_tensor_nbytes(s->cat, tensor));
    cat_tensor *t = catalogue_tensor(s->cat, tensor);
    t->python = p->python;
    if (p->flags & TORCH_SHARD_GRAD)
        t->flags |= CAT_TENSOR_REQUIRES_GRAD;
    return catalogue_add_chunk(s->cat, tensor, zeros, torch_shard_sizes(s->reader, p), &chunk, err);
}

/* The box of each chunk is consecutive in the piece. */
fsdpck_status ds_add_interval(const ds_state *s, uint32_t tensor, uint64_t begin, uint64_t end,
                              uint32_t piece, uint64_t at, uint32_t rank, fsdpck_error *err)
{
    const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    const cat_tensor *t = catalogue_tensor(s->cat, tensor);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    const uint64_t *stride = VEC_AT(&s->reader->dims, const uint64_t, p->dims_at + 1);
    if (p->dtype != t->dtype) {
        const fsdpck_status st =
            FAIL_WITH(err, BADINPUT, RANK_DISAGREE, ("partitions of two ranks differ in dtype"),
                      (expected, "%s", dtype_get((dtype)t->dtype)->name),
                      (found, "%s", dtype_get((dtype)p->dtype)->name));
        error_path_in(err, s->req->path, file_set_path(&s->reader->files, p->file));
        return st;
    }
    box_cut cut = {
        .sizes = catalogue_shape(s->cat, tensor), .ndim = t->ndim, .begin = begin, .end = end};
    while (box_cut_next(&cut)) {
        const uint64_t skip = (at + (cut.flat_out - begin)) * *stride * itemsize;
        cat_chunk chunk = chunk_of(p, piece, skip, box_nelems(cut.sizes_out, t->ndim) * itemsize);
        chunk.rank = (uint16_t)rank;
        cut.sizes = catalogue_shape(s->cat, tensor);
        RETURN_IF(catalogue_add_chunk(s->cat, tensor, cut.offsets_out, cut.sizes_out, &chunk, err));
    }
    return FSDPCK_OK;
}
