/* ds_build.c: adds parameters, buffers and frozen parameters to the catalogue. */
#include <inttypes.h>
#include <stdlib.h>

#include "formats/deepspeed/ds_internal.h"

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
    const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    const ds_key keys[] = {model_key, ds_key_of(&s->names, name)};
    uint32_t tensor;
    RETURN_IF(ds_add_tensor(s, keys, 2, (dtype)p->dtype, p->ndim, torch_shard_sizes(s->reader, p),
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
        const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, w->piece);
        if (s->stage < 3)
            return shape_equal(shape_of(s, p), p->ndim, torch_shard_sizes(s->reader, q), q->ndim)
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
    const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    return shape_equal(shape_of(s, p), p->ndim, torch_shard_sizes(s->reader, q), q->ndim);
}

static const char *print_sizes(text_buf *text, const uint64_t *sizes, unsigned ndim)
{
    text_puts(text, "[");
    for (unsigned i = 0; i < ndim; i++)
        text_printf(text, "%s%" PRIu64, i > 0 ? ", " : "", sizes[i]);
    text_puts(text, "]");
    return text->text == NULL ? "" : text->text;
}

static fsdpck_status fail_shape(const ds_state *s, const ds_param *p, uint32_t piece,
                                fsdpck_error *err)
{
    const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, piece);
    text_buf own = {.limit_bytes = 4096}, recorded = {.limit_bytes = 4096};
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, RANK_SHAPE,
                  ("shape of a parameter in 'param_shapes' is not that of the module's tensor"),
                  (tensor, strtab_text(&s->names, p->name)),
                  (expected, "%s", print_sizes(&own, torch_shard_sizes(s->reader, q), q->ndim)),
                  (found, "%s", print_sizes(&recorded, shape_of(s, p), p->ndim)),
                  (next, "copy the file again, or take all files from one save"));
    text_release(&own);
    text_release(&recorded);
    return st;
}

/* A weight that the folder has only in the dtype of the training, although it is not frozen. Before
 * stage 2, and in old releases, the frozen ones are not recorded. */
static void note_no_master(ds_state *s, const ds_name *own, uint32_t name)
{
    const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, own->piece);
    const bool is_weight = dtype_get((dtype)p->dtype)->kind == DTYPE_IS_FLOAT;
    char text[200];
    if (!s->knows_frozen || own->is_buffer || own->frozen != CAT_NONE || !is_weight ||
        ds_piece_nelems(s->reader, p) == 0)
        return;
    if (++s->unmastered <= 3)
        text_printf(&s->unmastered_names, "%s'%s'", s->unmastered > 1 ? ", " : "",
                    escape_text(text, sizeof text, strtab_text(&s->names, name),
                                strtab_nbytes(&s->names, name)));
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
        if (!is_alias)
            return fail_shape(s, p, own->piece, err);
    } else if (of->frozen != CAT_NONE) {
        const ds_param *p = VEC_AT(&s->frozen_shapes, const ds_param, of->frozen);
        if (s->stage == 3 || own->piece == CAT_NONE)
            return build_frozen(s, p, name, err);
    }
    if (own->piece == CAT_NONE)
        return FSDPCK_OK;
    const torch_shard *p = VEC_AT(&s->reader->pieces, const torch_shard, own->piece);
    if (of->frozen == CAT_NONE)
        note_no_master(s, own, name);
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
