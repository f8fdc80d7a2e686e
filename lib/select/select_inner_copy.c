/* Tensors inside objects: an object that is written has all of its tensors. */
#include <inttypes.h>

#include "select/select_internal.h"

/* A name for a target tensor that no other has: "(model.w of 'ema')". */
static fsdpck_status make_name(select_state *a, uint32_t tensor, text_buf *name, fsdpck_error *err)
{
    const catalogue *from = a->from;
    const uint32_t own = catalogue_tensor(from, tensor)->name;
    name->limit_bytes = UINT32_MAX;
    for (uint64_t n = 1;; n++) {
        name->nbytes = 0;
        text_append(name, "(", 1);
        text_append(name, catalogue_name(from, own), catalogue_name_nbytes(from, own));
        if (a->inner_object != CAT_NONE) {
            const uint32_t object = catalogue_object(from, a->inner_object)->name;
            text_puts(name, " of '");
            text_append(name, catalogue_name(from, object), catalogue_name_nbytes(from, object));
            text_puts(name, "'");
        }
        if (n > 1)
            text_printf(name, " %" PRIu64, n);
        text_append(name, ")", 1);
        RETURN_IF(text_check(name, err));
        if (strtab_find(&a->to->cat.names, name->text, name->nbytes) == STRTAB_NONE)
            return FSDPCK_OK;
    }
}

/* Tensors omitted under their own name are still in the output. */
static fsdpck_status record_carried(select_state *a, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *from = a->from;
    const uint32_t own = catalogue_tensor(from, tensor)->name;
    select_result *r = a->result;
    text_buf text = {.limit_bytes = UINT32_MAX};
    r->carried++;
    r->carried_nbytes += catalogue_tensor_nbytes(from, tensor);
    text_append(&text, catalogue_name(from, own), catalogue_name_nbytes(from, own));
    if (a->inner_object != CAT_NONE) {
        const uint32_t object = catalogue_object(from, a->inner_object)->name;
        text_puts(&text, " in '");
        text_append(&text, catalogue_name(from, object), catalogue_name_nbytes(from, object));
        text_puts(&text, "'");
    }
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = name_list_add(&r->carried_names, text.text, text.nbytes, err);
    text_release(&text);
    return st;
}

static bool is_of_same_part(const select_state *a, uint32_t tensor)
{
    return a->inner_object != CAT_NONE &&
           a->parts->object_part[a->inner_object] == a->parts->tensor_part[tensor];
}

/* Like the tensor under its own name if that is in the same part; else unchanged. */
static dtype dtype_inside(const select_state *a, uint32_t tensor)
{
    const uint64_t named = a->tensor_map[tensor];
    const uint8_t own = catalogue_tensor(a->from, tensor)->dtype;
    if (named == UINT64_MAX || !is_of_same_part(a, tensor))
        return (dtype)own;
    return (dtype)catalogue_tensor(&a->to->cat, named)->dtype;
}

/* The tensor's name in the target if it is free: its own name, or inside an object the object's
 * name after the rules. */
static fsdpck_status first_name(const select_state *a, uint32_t tensor, bool has_name,
                                text_buf *name, fsdpck_error *err)
{
    const uint32_t own = catalogue_tensor(a->from, tensor)->name;
    if (!has_name && a->inner_object != CAT_NONE)
        return select_inner_name(a, a->inner_pick, tensor, name, err);
    text_append(name, catalogue_name(a->from, own), catalogue_name_nbytes(a->from, own));
    text_append(name, "", 0);
    return text_check(name, err);
}

/* The rules apply to a nameless tensor if only containers lead to it, inside objects of its part.
 * An object of a different part keeps it unchanged. */
static fsdpck_status dtype_by_rules(select_state *a, uint32_t tensor, dtype *d, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, tensor);
    text_buf name = {.limit_bytes = UINT32_MAX};
    *d = (dtype)t->dtype;
    if (!(t->flags & CAT_TENSOR_NAMED) || tensor >= a->parts->tensor_count ||
        !is_of_same_part(a, tensor))
        return FSDPCK_OK;
    const fsdpck_status st = first_name(a, tensor, false, &name, err);
    if (st == FSDPCK_OK)
        *d = select_rules_cast(&a->rules, name.text, (dtype)t->dtype,
                               a->parts->tensor_part[tensor] == PART_MODEL);
    text_release(&name);
    return st;
}

/* A tensor and its cast are counted once, for any number of copies in objects. */
static void count_once(select_state *a, uint32_t tensor, dtype d, bool has_name)
{
    const uint64_t made = a->tensor_map[tensor];
    const uint8_t own = catalogue_tensor(a->from, tensor)->dtype;
    if (!has_name && (made == UINT64_MAX || catalogue_tensor(&a->to->cat, made)->dtype == own))
        a->result->cast += d != (dtype)own;
    if (!has_name && made == UINT64_MAX)
        return;
    a->result->tensors_out--;
    a->result->nbytes_out -= catalogue_tensor_nbytes(a->from, tensor);
}

static fsdpck_status add_copy(select_state *a, uint32_t tensor, bool has_name, dtype d,
                              uint32_t *index, fsdpck_error *err)
{
    const unsigned named = catalogue_tensor(a->from, tensor)->flags & CAT_TENSOR_NAMED;
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = first_name(a, tensor, has_name, &name, err);
    if (st == FSDPCK_OK &&
        (has_name || strtab_find(&a->to->cat.names, name.text, name.nbytes) != STRTAB_NONE))
        st = make_name(a, tensor, &name, err);
    if (st == FSDPCK_OK)
        st = select_add_tensor(a, NULL, tensor, name.text, name.nbytes, d, index, err);
    if (st == FSDPCK_OK) {
        catalogue_tensor(&a->to->cat, *index)->flags |= (uint8_t)(CAT_TENSOR_IN_OBJECT | named);
        count_once(a, tensor, d, has_name);
    }
    text_release(&name);
    return st;
}

/* Copies inside objects by their source tensor, their dtype and, where the writer keeps objects
 * apart, the object: at most 22, 8 and 32 bits. */
static uint64_t key_of(const select_state *a, uint32_t tensor, dtype d)
{
    const uint64_t object = a->request->flat_keys ? (uint64_t)a->inner_object + 1 : 0;
    return (object << 31 | (uint64_t)d << 23 | tensor) + 1;
}

static fsdpck_status add_source(select_state *a, uint32_t tensor, fsdpck_error *err)
{
    const bool has_name = (catalogue_tensor(a->from, tensor)->flags & CAT_TENSOR_IN_OBJECT) == 0;
    const uint64_t named = a->tensor_map[tensor];
    dtype d = dtype_inside(a, tensor);
    if (!has_name)
        RETURN_IF(dtype_by_rules(a, tensor, &d, err));
    bool fresh = false;
    uint32_t index;
    if (has_name && named != UINT64_MAX && a->request->nested && a->request->sharding == NULL &&
        catalogue_tensor(&a->to->cat, named)->dtype == (uint8_t)d) {
        a->inner_map[tensor] = named;
        return FSDPCK_OK;
    }
    uint64_t *slot = value_map_put(&a->inner, key_of(a, tensor, d), &fresh, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    if (fresh) {
        RETURN_IF(add_copy(a, tensor, has_name, d, &index, err));
        *slot = index;
        a->has_own_inner = a->has_own_inner || has_name || named != UINT64_MAX;
        if (has_name && named == UINT64_MAX)
            RETURN_IF(record_carried(a, tensor, err));
        if (!has_name &&
            (named == UINT64_MAX || d != (dtype)catalogue_tensor(a->from, tensor)->dtype))
            a->tensor_map[tensor] = index;
    }
    a->inner_map[tensor] = *slot;
    return FSDPCK_OK;
}

static fsdpck_status visit(void *ctx, value v, fsdpck_error *err)
{
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    return add_source(ctx, (uint32_t)value_tensor_index(v), err);
}

fsdpck_status select_inner_add(select_state *a, size_t k, fsdpck_error *err)
{
    const uint32_t object = *VEC_AT(&a->objects, const uint32_t, k);
    const cat_object *o = catalogue_object(a->from, object);
    a->inner_object = object;
    a->inner_pick = k;
    a->inner_rank = o->rank;
    return value_walk(&a->from->pool, o->content, visit, a, err);
}

/* Attributes of the root's containers, such as of an OrderedDict. */
static fsdpck_status visit_root(void *ctx, value v, fsdpck_error *err)
{
    select_state *a = ctx;
    if (value_kind_of(v) != VALUE_TENSOR || a->tensor_map[value_tensor_index(v)] != UINT64_MAX)
        return FSDPCK_OK;
    return add_source(a, (uint32_t)value_tensor_index(v), err);
}

fsdpck_status select_inner_add_all(select_state *a, fsdpck_error *err)
{
    for (size_t k = 0; !a->request->flat_keys && k < a->objects.count; k++)
        RETURN_IF(select_inner_add(a, k, err));
    if (!a->request->nested || value_is_none(a->from->root) || !select_is_everything(a))
        return FSDPCK_OK;
    a->inner_object = CAT_NONE;
    a->inner_rank = UINT16_MAX;
    return value_walk(&a->from->pool, a->from->root, visit_root, a, err);
}
