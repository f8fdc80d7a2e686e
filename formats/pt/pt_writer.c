#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"
#include "formats/pt/pt.h"
#include "formats/pt/pt_file.h"

/* One zip (pt_file.h) with the nested state. A tensor that views a storage (target.views) is
 * LOCATION_EMPTY and has no bytes: the CAT_TENSOR_STORAGE tensor that it views has them. */

typedef struct layout_state {
    target *t;
    uint32_t *of_tensor; /* record of each tensor, or CAT_NONE while it has none */
    size_t count;        /* of tensors */
} layout_state;

/* NULL if the tensor has its own bytes. */
static const target_alias *view_of(const target *t, uint64_t tensor)
{
    const uint32_t view = catalogue_tensor(&t->cat, tensor)->alias;
    return view == CAT_NONE ? NULL : VEC_AT(&t->views, const target_alias, view);
}

static fsdpck_status whole_chunk(const catalogue *cat, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    uint64_t sizes[NDIM_MAX];

    if (t->nchunks == 1) {
        catalogue_chunk_box(cat, t->first_chunk, NULL, sizes);
        if (t->ndim == 0 ||
            memcmp(sizes, catalogue_shape(cat, tensor), t->ndim * sizeof(uint64_t)) == 0)
            return FSDPCK_OK;
    }
    return FAIL_WITH(err, INTERNAL, NONE, (".pt file can hold only whole tensors"),
                     (tensor, catalogue_name(cat, t->name)));
}

/* Assigns a tensor its storage: that of the viewed tensor, or its own; creates it if necessary. */
static fsdpck_status storage_of(layout_state *s, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const target_alias *view = view_of(s->t, tensor);
    const uint32_t owner = view == NULL ? tensor : view->storage;

    if (s->of_tensor[owner] == CAT_NONE) {
        RETURN_IF(whole_chunk(cat, owner, err));
        RETURN_IF(pt_file_add_chunk(s->t, catalogue_tensor(cat, owner)->first_chunk,
                                    &s->of_tensor[owner], err));
    }
    s->of_tensor[tensor] = s->of_tensor[owner];
    return FSDPCK_OK;
}

static fsdpck_status put_tensor(void *ctx, pickle_writer *w, uint64_t index, fsdpck_error *err)
{
    layout_state *s = ctx;
    const target *to = s->t;
    const catalogue *cat = &to->cat;
    uint64_t rows[NDIM_MAX];
    char key[16];

    if (index >= s->count)
        return FAIL(err, INTERNAL, NONE, "nested state refers to a tensor that does not exist");
    if (s->of_tensor[index] == CAT_NONE)
        RETURN_IF(storage_of(s, (uint32_t)index, err));
    const cat_tensor *t = catalogue_tensor(cat, index);
    const target_alias *view = view_of(to, index);
    const uint64_t *shape = catalogue_shape(cat, index);
    snprintf(key, sizeof(key), "%" PRIu32, s->of_tensor[index]);
    if (view != NULL) {
        const uint64_t *strides = VEC_AT(&to->strides, const uint64_t, view->strides_at);
        torch_put_tensor_of(w, key, t, shape, strides, view->offset_nelems,
                            catalogue_tensor_nelems(cat, view->storage));
        return FSDPCK_OK;
    }
    box_row_major_strides(shape, t->ndim, rows);
    torch_put_tensor_of(w, key, t, shape, rows, 0, box_nelems(shape, t->ndim));
    return FSDPCK_OK;
}

static fsdpck_status state_init(layout_state *s, target *t, fsdpck_error *err)
{
    *s = (layout_state){.t = t, .count = catalogue_tensor_count(&t->cat)};
    s->of_tensor = budget_alloc(t->cat.owner, s->count * sizeof(uint32_t), err);
    if (s->of_tensor == NULL)
        return FSDPCK_LIMIT;
    memset(s->of_tensor, 0xFF, s->count * sizeof(uint32_t));
    return FSDPCK_OK;
}

static void state_release(layout_state *s)
{
    if (s->of_tensor != NULL)
        budget_free(s->t->cat.owner, s->of_tensor, s->count * sizeof(uint32_t));
}

static fsdpck_status write_pickle(layout_state *s, text_buf *pickle, fsdpck_error *err)
{
    target *t = s->t;
    value root = t->root;

    if (value_is_none(root))
        RETURN_IF(pt_flat_root(&t->cat, CAT_NONE, &root, err));
    RETURN_IF(pickle_write(&t->cat.pool, root, put_tensor, s, pickle, err));
    for (size_t i = 0; i < s->count; i++) {
        if (s->of_tensor[i] != CAT_NONE)
            continue;
        return FAIL_WITH(err, INTERNAL, NONE, ("nested state has no location for a tensor"),
                         (tensor, catalogue_name(&t->cat, catalogue_tensor(&t->cat, i)->name)));
    }
    return text_check(pickle, err);
}

static void place_views(const layout_state *s)
{
    const catalogue *cat = &s->t->cat;

    for (size_t i = 0; i < s->count; i++) {
        const target_alias *view = view_of(s->t, i);
        if (view == NULL)
            continue;
        cat_chunk *chunk = catalogue_chunk(cat, catalogue_tensor(cat, i)->first_chunk);
        const cat_chunk *owner =
            catalogue_chunk(cat, catalogue_tensor(cat, view->storage)->first_chunk);
        chunk->file = owner->file;
        chunk->aux = owner->aux;
        chunk->offset_bytes = owner->offset_bytes;
        chunk->nbytes = owner->nbytes;
        chunk->place = LOCATION_EMPTY;
    }
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    text_buf pickle = {.limit_bytes = SIZE_MAX / 2};
    layout_state s;

    (void)opt;
    t->is_folder = false;
    RETURN_IF(pt_files_begin(t, err));
    fsdpck_status st = state_init(&s, t, err);
    if (st == FSDPCK_OK)
        st = write_pickle(&s, &pickle, err);
    if (st == FSDPCK_OK)
        st = pt_file_end(t, "", CAT_NONE, &pickle, err);
    if (st == FSDPCK_OK)
        place_views(&s);
    state_release(&s);
    text_release(&pickle);
    return st;
}

const format_writer pt_writer = {
    .name = "pt",
    .description = "one torch.save file",
    .suffixes = " .pt .pth .bin .ckpt ",
    .takes = STATE_NESTED,
    .holds = pt_file_holds,
    .layout = layout,
    .seal = pt_files_seal,
    .id = FSDPCK_FORMAT_PT,
};
