/* Lists of the target: readers find an item by its position, and take a missing one for None. */

#include "select/nest.h"
#include "select/select_internal.h"

static bool has_index(const value_pool *pool, value path)
{
    for (size_t i = 0; !value_is_none(path) && i < value_count(pool, path); i++)
        if (value_kind_of(value_item(pool, path, i)) == VALUE_INT)
            return true;
    return false;
}

/* Whether options selected or renamed items. */
static bool is_chosen(const select_request *r)
{
    const select_options *w = &r->options;
    return w->keys_count + w->exclude_count + w->strip_prefix_count + w->rename_count > 0 ||
           r->part != PART_ALL || r->objects == SELECT_OBJECTS_DROP || r->tied == SELECT_TIED_FIRST;
}

/* The path that a leaf has or would have. */
static fsdpck_status path_after_rules(select_state *a, value path, uint32_t name,
                                      checkpoint_part part, target_path *p, fsdpck_error *err)
{
    const name_source s = {path, name, part};
    text_buf text = {.limit_bytes = UINT32_MAX}, marks = {.limit_bytes = UINT32_MAX};
    bool changed = false;
    select_original_name(a, name, part, &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = select_apply_rules(a, &s, &text, &marks, &changed, err);
    if (st == FSDPCK_OK && changed && marks.nbytes > 0)
        st = target_path_of_marks(a, text.text, text.nbytes, marks.text, p, err);
    else if (st == FSDPCK_OK)
        st = target_path_copy(a, path, name, part, p, err);
    text_release(&text);
    text_release(&marks);
    return st;
}

static fsdpck_status check_leaf(select_state *a, const nest *n, value path, uint32_t name,
                                checkpoint_part part, fsdpck_error *err)
{
    target_path p;
    if (!has_index(&a->from->pool, path))
        return FSDPCK_OK;
    RETURN_IF(path_after_rules(a, path, name, part, &p, err));
    const nest_gap lack = nest_find_gap(n, p.elements, p.count);
    if (lack == NEST_GAP_NONE)
        return FSDPCK_OK;
    return FAIL_AS(
        err, is_chosen(a->request) ? FSDPCK_USAGE : FSDPCK_UNSUPPORTED, FSDPCK_FINDING_KEY_LIST,
        ("%s", lack == NEST_GAP_ITEM
                   ? "list would have a gap: later items are written, this one is not"
                   : "list would have no tensor without this one: torch could not load it"),
        (tensor, catalogue_name(a->from, name)),
        (next, "omit the whole list or its end with --exclude, or write safetensors, "
               "which stores names without lists"));
}

fsdpck_status select_check_lists(select_state *a, const nest *n, uint64_t rank, fsdpck_error *err)
{
    const catalogue *from = a->from;
    for (size_t i = 0; n->has_lists && i < a->parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(from, i);
        const bool of_rank = (t->flags & CAT_TENSOR_OF_RANK) != 0 && t->nchunks > 0;
        if ((t->flags & (CAT_TENSOR_IN_OBJECT | CAT_TENSOR_STORAGE)) ||
            (of_rank && rank != UINT64_MAX && catalogue_chunk(from, t->first_chunk)->rank != rank))
            continue;
        RETURN_IF(
            check_leaf(a, n, t->path, t->name, (checkpoint_part)a->parts->tensor_part[i], err));
    }
    for (size_t i = 0; n->has_lists && i < a->parts->object_count; i++) {
        const cat_object *o = catalogue_object(from, i);
        if (o->rank != UINT16_MAX && rank != UINT64_MAX && o->rank != rank)
            continue;
        RETURN_IF(
            check_leaf(a, n, o->path, o->name, (checkpoint_part)a->parts->object_part[i], err));
    }
    for (size_t i = 0; n->has_lists && i < from->passed_over.count; i++) {
        const cat_skipped *skipped = VEC_AT(&from->passed_over, const cat_skipped, i);
        RETURN_IF(check_leaf(a, n, skipped->path, skipped->name, PART_OTHER, err));
    }
    return FSDPCK_OK;
}
