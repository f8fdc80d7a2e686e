#include <string.h>

#include "formats/dcp/dcp_write_pickle.h"
#include "state/saved_order.h"

/* .metadata in the form that every torch from 2.1 to 2.15 loads: TensorProperties and its enum
 * named by the modules of torch 2.2 and older (later ones keep them), with a state of 5 items (2.15
 * writes 6, which older ones refuse); no storage_meta, no version. Protocol 2.
 *
 * It may hold millions of entries, so the opcodes are written straight into target.text: no tree,
 * memo entries only for values that are fetched again (names, classes, attribute names, torch.Size
 * objects up to a limit). The same target gives the same bytes. */

/* --- parts --- */

static void put_layout(meta_writer *m)
{
    if (meta_fetch(m, m->layout))
        return;
    meta_put_word(m, W_GET_LAYOUT);
    meta_put_text(m, "torch.strided", strlen("torch.strided"));
    meta_put_op(m, OP_TUPLE1);
    meta_put_op(m, OP_REDUCE);
    meta_remember(m, &m->layout);
}

/* MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, in the form that every Python reads. */
static void put_encoding(meta_writer *m)
{
    if (meta_fetch(m, m->encoding))
        return;
    meta_put_word(m, W_ENCODING);
    meta_put_int(m, 0);
    meta_put_op(m, OP_TUPLE1);
    meta_put_op(m, OP_REDUCE);
    meta_remember(m, &m->encoding);
}

static void put_properties(meta_writer *m, const cat_tensor *t)
{
    const bool grad = (t->flags & CAT_TENSOR_REQUIRES_GRAD) != 0;
    const char *name = dtype_get((dtype)t->dtype)->name;
    uint32_t *memo = &m->properties[t->dtype][grad];
    if (meta_fetch(m, *memo))
        return;
    meta_put_word(m, W_PROPERTIES);
    meta_put_op(m, OP_EMPTY_TUPLE);
    meta_put_op(m, OP_NEWOBJ);
    meta_put_op(m, OP_MARK);
    meta_put_bytes(m, "ctorch\n", strlen("ctorch\n"));
    meta_put_bytes(m, name, strlen(name));
    meta_put_op(m, '\n');
    put_layout(m);
    meta_put_op(m, grad ? OP_NEWTRUE : OP_NEWFALSE);
    put_encoding(m);
    meta_put_op(m, OP_NEWFALSE);
    meta_put_op(m, OP_TUPLE);
    meta_put_op(m, OP_BUILD);
    meta_remember(m, memo);
}

static void put_tensor(meta_writer *m, size_t index)
{
    const catalogue *cat = &m->t->cat;
    const cat_tensor *t = catalogue_tensor(cat, index);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], count = 0;
    meta_begin_object(m, W_TENSOR);
    meta_put_word(m, W_PROPERTIES_KEY);
    put_properties(m, t);
    meta_put_word(m, W_SIZE_KEY);
    meta_put_size(m, catalogue_shape(cat, index), t->ndim);
    meta_put_word(m, W_CHUNKS_KEY);
    meta_put_op(m, OP_EMPTY_LIST);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        catalogue_chunk_box(cat, k, offsets, sizes);
        meta_next_in_batch(m, &count, OP_APPENDS);
        meta_begin_object(m, W_CHUNK);
        meta_put_word(m, W_OFFSETS_KEY);
        meta_put_size(m, offsets, t->ndim);
        meta_put_word(m, W_SIZES_KEY);
        meta_put_size(m, sizes, t->ndim);
        meta_end_object(m);
    }
    meta_end_batch(m, count, OP_APPENDS);
    meta_end_object(m);
}

static void put_path(meta_writer *m, value path, uint32_t name)
{
    const value_pool *pool = &m->t->cat.pool;
    const size_t count = value_is_none(path) ? 0 : value_count(pool, path);
    meta_put_op(m, OP_MARK);
    if (count == 0)
        meta_put_name(m, name);
    for (size_t i = 0; i < count && m->st == FSDPCK_OK; i++) {
        const value v = value_item(pool, path, i);
        uint64_t position;
        size_t nbytes = 0;
        const char *text = value_text(pool, v, &nbytes);
        if (value_as_u64(pool, v, &position)) {
            meta_put_int(m, position);
        } else if (text == NULL || value_kind_of(v) != VALUE_STR) {
            meta_fail(m, FAIL(m->err, INTERNAL, NONE,
                              "path contains a key that is neither a string nor a number"));
        } else {
            uint64_t *memo = value_map_put(&m->keys, v, NULL, m->err);
            uint32_t number = memo == NULL ? 0 : (uint32_t)*memo;
            if (memo == NULL) {
                meta_fail(m, FSDPCK_LIMIT);
            } else if (!meta_fetch(m, number)) {
                meta_put_text(m, text, nbytes);
                meta_remember(m, &number);
                *memo = number;
            }
        }
    }
    meta_put_op(m, OP_TUPLE);
}

/* offset NULL: a byte item without offset. */
static void put_index(meta_writer *m, uint32_t name, uint64_t hint, const uint64_t *offset,
                      unsigned ndim)
{
    meta_begin_object(m, W_INDEX);
    meta_put_word(m, W_FQN_KEY);
    meta_put_name(m, name);
    meta_put_word(m, W_INDEX_KEY);
    if (offset == NULL) {
        meta_put_op(m, OP_NONE);
    } else {
        meta_put_int(m, hint);
        meta_put_word(m, W_OFFSET_KEY);
        meta_put_size(m, offset, ndim);
    }
    meta_end_object(m);
}

static void put_info(meta_writer *m, uint32_t file_index, uint64_t offset_bytes, uint64_t nbytes)
{
    meta_begin_object(m, W_INFO);
    meta_put_word(m, W_PATH_KEY);
    meta_put_name(m, *VEC_AT(&m->w->file_names, const uint32_t, file_index));
    meta_put_word(m, W_OFFSET_KEY);
    meta_put_int(m, offset_bytes);
    meta_put_word(m, W_LENGTH_KEY);
    meta_put_int(m, nbytes);
    meta_end_object(m);
}

/* --- the three dicts --- */

static bool is_of_part(const meta_writer *m, uint32_t name)
{
    return m->part->folder == NULL ||
           dcp_part_of(m->w->form, catalogue_name(&m->t->cat, name)) == m->part->part;
}

static bool has_entry(const meta_writer *m, const cat_tensor *t)
{
    return (t->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) == 0 && is_of_part(m, t->name);
}

static void put_state_dict_metadata(meta_writer *m)
{
    const catalogue *cat = &m->t->cat;
    uint64_t count = 0;
    meta_put_op(m, OP_EMPTY_DICT);
    for (size_t i = 0; i < catalogue_tensor_count(cat) && m->st == FSDPCK_OK; i++) {
        if (!has_entry(m, catalogue_tensor(cat, i)))
            continue;
        meta_next_in_batch(m, &count, OP_SETITEMS);
        meta_put_name(m, catalogue_tensor(cat, i)->name);
        put_tensor(m, i);
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        if (!is_of_part(m, catalogue_object(cat, i)->name))
            continue;
        meta_next_in_batch(m, &count, OP_SETITEMS);
        meta_put_name(m, catalogue_object(cat, i)->name);
        meta_put_word(m, W_BYTES);
        meta_put_op(m, OP_EMPTY_TUPLE);
        meta_put_op(m, OP_NEWOBJ);
    }
    meta_end_batch(m, count, OP_SETITEMS);
}

/* In the order of the saved state, which only this dict keeps: the numbers of a raw optimizer refer
 * to parameters in the order of the model's state dict. */
static void put_planner_data(meta_writer *m)
{
    const catalogue *cat = &m->t->cat;
    const size_t tensors = catalogue_tensor_count(cat), objects = catalogue_object_count(cat);
    vec order = VEC_OF(saved_item, cat->owner);
    uint64_t count = 0;
    saved_item *items = vec_push_n(&order, tensors + objects, m->err);
    if (items == NULL && tensors + objects > 0) {
        m->st = FSDPCK_LIMIT;
        return;
    }
    for (size_t i = 0; i < tensors + objects; i++) {
        items[i] = (saved_item){.is_object = i >= tensors,
                                .index = (uint32_t)(i >= tensors ? i - tensors : i)};
        items[i].saved_at = items[i].is_object ? catalogue_object(cat, i - tensors)->saved_at
                                               : catalogue_tensor(cat, i)->saved_at;
    }
    saved_order_sort(items, tensors + objects);
    meta_put_op(m, OP_EMPTY_DICT);
    for (size_t i = 0; i < order.count && m->st == FSDPCK_OK; i++) {
        const saved_item *item = &items[i];
        const cat_tensor *t = item->is_object ? NULL : catalogue_tensor(cat, item->index);
        const cat_object *o = item->is_object ? catalogue_object(cat, item->index) : NULL;
        const uint32_t name = t != NULL ? t->name : o->name;
        if (t != NULL ? !has_entry(m, t) : !is_of_part(m, name))
            continue;
        meta_next_in_batch(m, &count, OP_SETITEMS);
        meta_put_name(m, name);
        put_path(m, t != NULL ? t->path : o->path, name);
    }
    vec_release(&order);
    meta_end_batch(m, count, OP_SETITEMS);
}

static void put_storage_data(meta_writer *m)
{
    const catalogue *cat = &m->t->cat;
    uint64_t offsets[NDIM_MAX], at, nbytes, count = 0;
    meta_put_op(m, OP_EMPTY_DICT);
    for (size_t i = 0; i < catalogue_tensor_count(cat) && m->st == FSDPCK_OK; i++) {
        const cat_tensor *t = catalogue_tensor(cat, i);
        if (!has_entry(m, t))
            continue;
        for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
            catalogue_chunk_box(cat, k, offsets, NULL);
            dcp_blob_range(m->t, k, &at, &nbytes);
            meta_next_in_batch(m, &count, OP_SETITEMS);
            put_index(m, t->name, k - t->first_chunk, offsets, t->ndim);
            put_info(m, catalogue_chunk(cat, k)->file, at, nbytes);
        }
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        if (!is_of_part(m, o->name))
            continue;
        meta_next_in_batch(m, &count, OP_SETITEMS);
        put_index(m, o->name, 0, NULL, 0);
        put_info(m, o->file, o->offset_bytes, o->nbytes);
    }
    meta_end_batch(m, count, OP_SETITEMS);
}

static void put_all(meta_writer *m)
{
    meta_put_op(m, OP_PROTO);
    meta_put_op(m, 2);
    meta_begin_object(m, W_METADATA);
    meta_put_word(m, W_STATE_DICT_METADATA);
    put_state_dict_metadata(m);
    meta_put_word(m, W_PLANNER_DATA);
    put_planner_data(m);
    meta_put_word(m, W_STORAGE_DATA);
    put_storage_data(m);
    meta_end_object(m);
    meta_put_op(m, OP_STOP);
    meta_flush(m);
}

fsdpck_status dcp_put_metadata(target *t, const dcp_write *w, const dcp_write_part *part,
                               uint32_t file_index, uint64_t *nbytes, fsdpck_error *err)
{
    budget *owner = t->cat.owner;
    const size_t text_at = t->text.nbytes;
    meta_writer *m = budget_alloc(owner, sizeof *m, err);
    if (m == NULL)
        return FSDPCK_LIMIT;
    m->t = t;
    m->w = w;
    m->part = part;
    m->out = &t->text;
    m->err = err;
    m->keys = VALUE_MAP(owner);
    m->size_memos = VEC_OF(uint32_t, owner);
    m->name_count = strtab_count(&t->cat.names);
    strtab_init(&m->sizes, owner);
    m->names = budget_alloc(owner, m->name_count * sizeof(uint32_t), err);
    if (m->names == NULL)
        m->st = FSDPCK_LIMIT;
    else
        put_all(m);
    fsdpck_status st = m->st != FSDPCK_OK ? m->st : text_check(&t->text, err);
    if (st == FSDPCK_OK) {
        *nbytes = t->text.nbytes - text_at;
        st = target_add_constant_at(t, file_index, 0, text_at, *nbytes, err);
    }
    if (m->names != NULL)
        budget_free(owner, m->names, m->name_count * sizeof(uint32_t));
    value_map_release(&m->keys);
    vec_release(&m->size_memos);
    strtab_release(&m->sizes);
    budget_free(owner, m, sizeof *m);
    return st;
}
