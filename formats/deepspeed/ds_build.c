/* ds_build.c: adds parameters, buffers and frozen parameters to the catalogue. */
#include <inttypes.h>
#include <stdlib.h>

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

static bool is_plain(const ds_piece *p)
{
    return (p->flags & DS_PIECE_ROWS) &&
           !(p->flags &
             (DS_PIECE_SWAP | DS_PIECE_CONJ | DS_PIECE_NEG | DS_PIECE_STREAM | DS_PIECE_UNCHECKED));
}

static cat_chunk chunk_of(const ds_piece *p, uint32_t piece, uint64_t skip_nbytes, uint64_t nbytes)
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
    const ds_piece *p = VEC_AT(&s->reader->pieces, const ds_piece, piece);
    const cat_chunk chunk = chunk_of(p, piece, 0, catalogue_tensor_nbytes(s->cat, tensor));
    cat_tensor *t = catalogue_tensor(s->cat, tensor);
    t->python = p->python;
    if (p->requires_grad)
        t->flags |= CAT_TENSOR_REQUIRES_GRAD;
    return catalogue_add_chunk(s->cat, tensor, zeros, ds_piece_sizes(s->reader, p), &chunk, err);
}

/* The box of each chunk is consecutive in the piece. */
fsdpck_status ds_add_interval(const ds_state *s, uint32_t tensor, uint64_t begin, uint64_t end,
                              uint32_t piece, uint64_t at, uint32_t rank, fsdpck_error *err)
{
    const ds_piece *p = VEC_AT(&s->reader->pieces, const ds_piece, piece);
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

/* --- the model --- */

static const ds_key model_key = {.text = "model", .nbytes = 5};

static const uint64_t *shape_of(const ds_state *s, const ds_param *p)
{
    static const uint64_t none[1];
    return p->ndim > 0 ? VEC_AT(&s->shapes, const uint64_t, p->shape_at) : none;
}

static fsdpck_status build_param(ds_state *s, const ds_param *p, uint32_t name, fsdpck_error *err)
{
    const ds_key keys[] = {model_key, ds_key_of(&s->names, name)};
    const dtype d = ds_flat_dtype(s, 0, p);
    uint32_t tensor;
    if (d == DTYPE_NONE)
        return FAIL_WITH(err, BADINPUT, RANK_SHAPE, ("no partition contains the parameter"),
                         (tensor, keys[1].text));
    RETURN_IF(ds_add_tensor(s, keys, 2, d, p->ndim, shape_of(s, p), &tensor, err));
    catalogue_tensor(s->cat, tensor)->flags |= CAT_TENSOR_REQUIRES_GRAD;
    return ds_flat_add(s, 0, p, tensor, err);
}

static fsdpck_status build_whole(ds_state *s, uint32_t piece, uint32_t name, fsdpck_error *err)
{
    const ds_piece *p = VEC_AT(&s->reader->pieces, const ds_piece, piece);
    const ds_key keys[] = {model_key, ds_key_of(&s->names, name)};
    uint32_t tensor;
    RETURN_IF(ds_add_tensor(s, keys, 2, (dtype)p->dtype, p->ndim, ds_piece_sizes(s->reader, p),
                            &tensor, err));
    return ds_add_piece(s, tensor, piece, err);
}

static fsdpck_status fail_fragment(const ds_state *s, const ds_param *p, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, RANK_SHAPE,
                     ("fragments of a frozen parameter do not have its shape"),
                     (tensor, strtab_text(&s->names, p->name)),
                     (expected, "%" PRIu64 " elements of %" PRIu64 " ranks", p->nelems, s->world),
                     (next, "take all files from one save"));
}

static int by_name(const void *a, const void *b)
{
    const ds_whole *x = a, *y = b;
    ORDER_BY(x->name, y->name);
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

void ds_sort_frozen(ds_state *s)
{
    if (s->frozen.count > 1)
        qsort(s->frozen.items, s->frozen.count, sizeof(ds_whole), by_name);
}

static size_t first_frozen(const ds_state *s, uint32_t name)
{
    size_t low = 0, high = s->frozen.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&s->frozen, const ds_whole, middle)->name < name)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ZeRO 3: a part of p elements on each rank; otherwise the whole tensor of rank 0. */
static fsdpck_status build_frozen(ds_state *s, const ds_param *p, uint32_t name, fsdpck_error *err)
{
    const ds_key keys[] = {model_key, ds_key_of(&s->names, name)};
    const uint64_t part = p->nelems / s->world + (p->nelems % s->world != 0);
    uint32_t tensor = CAT_NONE;
    uint64_t found = 0;
    for (size_t i = first_frozen(s, p->name); i < s->frozen.count; i++) {
        const ds_whole *w = VEC_AT(&s->frozen, const ds_whole, i);
        if (w->name != p->name)
            break;
        const ds_piece *q = VEC_AT(&s->reader->pieces, const ds_piece, w->piece);
        if (s->stage < 3)
            return shape_equal(shape_of(s, p), p->ndim, ds_piece_sizes(s->reader, q), q->ndim)
                       ? build_whole(s, w->piece, name, err)
                       : fail_fragment(s, p, err);
        if (q->ndim != 1 || ds_piece_nelems(s->reader, q) != part || w->rank != found++)
            return fail_fragment(s, p, err);
        if (tensor == CAT_NONE)
            RETURN_IF(
                ds_add_tensor(s, keys, 2, (dtype)q->dtype, p->ndim, shape_of(s, p), &tensor, err));
        const uint64_t begin = w->rank * part;
        const uint64_t end = begin + part < p->nelems ? begin + part : p->nelems;
        if (begin < end)
            RETURN_IF(ds_add_interval(s, tensor, begin, end, w->piece, 0, w->rank, err));
    }
    return found == (s->stage < 3 ? 0 : s->world) && tensor != CAT_NONE ? FSDPCK_OK
                                                                        : fail_fragment(s, p, err);
}

/* Whether a parameter's shape is that of the module's tensor of another name; ZeRO 3 has an empty
 * placeholder there. */
static bool fits_module(const ds_state *s, const ds_param *p, uint32_t piece)
{
    if (piece == CAT_NONE || s->stage == 3)
        return true;
    const ds_piece *q = VEC_AT(&s->reader->pieces, const ds_piece, piece);
    return shape_equal(shape_of(s, p), p->ndim, ds_piece_sizes(s->reader, q), q->ndim);
}

fsdpck_status ds_build_name(ds_state *s, uint32_t name, fsdpck_error *err)
{
    ds_name *own = VEC_AT(&s->by_name, ds_name, name);
    const bool is_alias = own->param == CAT_NONE && own->frozen == CAT_NONE && !own->is_buffer &&
                          own->shared != CAT_NONE;
    const ds_name *of = is_alias ? VEC_AT(&s->by_name, ds_name, own->shared) : own;
    own->is_built = true;
    if (of->param != CAT_NONE) {
        const ds_param *p = VEC_AT(&s->params, const ds_param, of->param);
        if (fits_module(s, p, own->piece))
            return build_param(s, p, name, err);
    } else if (of->frozen != CAT_NONE) {
        const ds_param *p = VEC_AT(&s->frozen_shapes, const ds_param, of->frozen);
        if (s->stage == 3 || own->piece == CAT_NONE)
            return build_frozen(s, p, name, err);
    }
    if (own->piece == CAT_NONE)
        return FSDPCK_OK;
    const ds_piece *p = VEC_AT(&s->reader->pieces, const ds_piece, own->piece);
    if (s->stage < 3 || own->is_buffer || ds_piece_nelems(s->reader, p) > 0)
        return build_whole(s, own->piece, name, err);
    ds_leave_out(s, strtab_text(&s->names, name), strtab_nbytes(&s->names, name));
    return FSDPCK_OK;
}

fsdpck_status ds_build_rest(ds_state *s, fsdpck_error *err)
{
    for (uint32_t name = 0; name < s->by_name.count; name++) {
        const ds_name *own = VEC_AT(&s->by_name, const ds_name, name);
        const bool exists =
            own->param != CAT_NONE || own->frozen != CAT_NONE || own->shared != CAT_NONE;
        if (exists && !own->is_built)
            RETURN_IF(ds_build_name(s, name, err));
    }
    return FSDPCK_OK;
}
