/* select_tensor.c: one tensor of the target, its name before the rules, and whether all names stay. */
#include <string.h>

#include "select/select_internal.h"

bool select_keeps_objects(const select_state *a)
{
    return a->request->nested || a->request->flat_keys;
}

bool select_stands_alone(const select_state *a, checkpoint_part part)
{
    if (select_keeps_objects(a))
        return false;
    if (part == PART_OPTIMIZER)
        return a->request->bare_optimizer && a->request->part == PART_OPTIMIZER;
    return a->request->part == PART_MODEL || a->to->units != NULL;
}

void select_original_name(const select_state *a, uint32_t name, checkpoint_part part, text_buf *out)
{
    out->nbytes = 0;
    checkpoint_parts_append_name(a->parts, part, select_stands_alone(a, part), a->request->clean,
                                 catalogue_name(a->from, name),
                                 catalogue_name_nbytes(a->from, name), out);
    text_append(out, "", 0);
}

static fsdpck_status check_dtype(const select_state *a, const char *name, dtype d,
                                 fsdpck_error *err)
{
    if (a->request->holds(d))
        return FSDPCK_OK;
    return FAIL_WITH(err, UNSUPPORTED, KEY_DTYPE,
                     ("%s cannot hold %s tensors", a->request->format, dtype_get(d)->name),
                     (tensor, name),
                     (next, "write a .pt file, or omit it with --exclude '%s'", name));
}

fsdpck_status select_add_tensor(select_state *a, const select_pick *pick, uint32_t from_index,
                                const char *name, size_t nbytes, dtype d, uint32_t *index,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    const uint64_t *shape = catalogue_shape(a->from, from_index);
    RETURN_IF(check_dtype(a, name, d, err));
    catalogue *cat = &a->to->cat;
    RETURN_IF(catalogue_add_tensor(cat, name, nbytes, d, t->ndim, shape, index, err));
    catalogue_tensor(cat, *index)->python = t->python;
    if (dtype_get(d)->kind == DTYPE_IS_FLOAT || dtype_get(d)->kind == DTYPE_IS_COMPLEX)
        catalogue_tensor(cat, *index)->flags |= t->flags & CAT_TENSOR_REQUIRES_GRAD;
    RETURN_IF(select_shard_tensor(a, pick, from_index, *index, err));
    uint32_t *from = vec_push(&a->to->from, err);
    if (from == NULL)
        return FSDPCK_LIMIT;
    *from = from_index;
    a->result->tensors_out++;
    a->result->nbytes_out += catalogue_tensor_nbytes(a->from, from_index);
    if (a->to->units == NULL)
        return FSDPCK_OK;
    uint32_t *param = vec_push(&a->to->flat_params, err);
    if (param == NULL)
        return FSDPCK_LIMIT;
    *param = pick == NULL ? CAT_NONE : pick->param;
    return vec_add(&a->to->flat_states,
                   &(uint32_t){pick != NULL && (pick->state == 0 || pick->param != CAT_NONE)
                                   ? pick->state
                                   : TARGET_STATE_PLAIN},
                   err);
}

/* Whether every tensor and object goes under its own name: then the source's own nesting serves. */
bool select_is_everything(const select_state *a)
{
    const select_result *r = a->result;
    if (r->left_out_tensors > 0 || r->left_out_objects > 0 || r->tied_dropped > 0 ||
        a->objects_renamed)
        return false;
    for (size_t k = 0; k < a->picks.count; k++) {
        const select_pick *pick = VEC_AT(&a->picks, select_pick, k);
        const cat_tensor *t = catalogue_tensor(a->from, pick->source);
        if (!strtab_is(&a->names, pick->name, catalogue_name(a->from, t->name),
                       catalogue_name_nbytes(a->from, t->name)))
            return false;
    }
    return true;
}
