/* ds_groups.c: the optimizer's state of each parameter, and its param_groups with names. */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

static const ds_key optim = {.text = "optim", .nbytes = 5};

/* --- state --- */

static fsdpck_status add_slot(ds_state *s, uint32_t slot, const ds_param *p, fsdpck_error *err)
{
    static const uint64_t none[1];
    const ds_key keys[] = {optim,
                           {.text = "state", .nbytes = 5},
                           ds_key_of(&s->names, p->name),
                           ds_key_of(&s->slots, slot)};
    const dtype d = ds_flat_dtype(s, slot, p);
    uint32_t tensor;
    if (d == DTYPE_NONE)
        return FSDPCK_OK;
    RETURN_IF(ds_add_tensor(s, keys, 4, d, p->ndim,
                            p->ndim > 0 ? VEC_AT(&s->shapes, const uint64_t, p->shape_at) : none,
                            &tensor, err));
    return ds_flat_add(s, slot, p, tensor, err);
}

static fsdpck_status add_scalar(ds_state *s, const ds_scalar *x, const ds_param *p,
                                fsdpck_error *err)
{
    const ds_key keys[] = {optim,
                           {.text = "state", .nbytes = 5},
                           ds_key_of(&s->names, p->name),
                           ds_key_of(&s->slots, x->slot)};
    uint32_t tensor;
    if (x->piece == CAT_NONE)
        return ds_add_object(s, keys, 4, x->content, err);
    const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, x->piece);
    RETURN_IF(ds_add_tensor(s, keys, 4, (dtype)q->dtype, q->ndim, torch_shard_sizes(s->reader, q),
                            &tensor, err));
    return ds_add_piece(s, tensor, x->piece, err);
}

static fsdpck_status add_states(ds_state *s, fsdpck_error *err)
{
    const size_t slots = strtab_count(&s->slots);
    for (size_t i = 0; i < s->params.count; i++) {
        const ds_param *p = VEC_AT(&s->params, const ds_param, i);
        for (size_t k = 0; k < s->scalars.count; k++) {
            const ds_scalar *x = VEC_AT(&s->scalars, const ds_scalar, k);
            if (x->group == (x->of_param ? i : p->group) && x->rank == 0)
                RETURN_IF(add_scalar(s, x, p, err));
        }
        for (uint32_t slot = 1; slot < slots; slot++)
            RETURN_IF(add_slot(s, slot, p, err));
    }
    return FSDPCK_OK;
}

/* --- state that a group lacks --- */

enum { SLOTS_MAX = 64, KINDS_MAX = 16 };

/* A bit for each slot with a partition of the group. */
static void mark_slots(const ds_state *s, uint64_t *masks)
{
    for (size_t i = 0; i < s->partitions.count; i++) {
        const ds_partition *p = VEC_AT(&s->partitions, const ds_partition, i);
        if (p->slot > 0 && p->slot < SLOTS_MAX && p->group < s->group_count)
            masks[p->group] |= UINT64_C(1) << p->slot;
    }
}

static void note_stateless(ds_state *s, uint32_t slot, uint32_t group)
{
    char name[200];
    if (++s->stateless <= 3)
        text_printf(&s->stateless_names, "%s'%s' of group %" PRIu32, s->stateless > 1 ? ", " : "",
                    escape_text(name, sizeof name, strtab_text(&s->slots, slot),
                                strtab_nbytes(&s->slots, slot)),
                    group);
}

/* A group without state, or with a part of the slots of another one, lacks the others. Groups without
 * a common slot may have different optimizers. */
static fsdpck_status find_stateless(ds_state *s, fsdpck_error *err)
{
    const uint64_t nbytes = s->group_count * sizeof(uint64_t);
    uint64_t kinds[KINDS_MAX];
    unsigned count = 0;
    if (s->is_universal || s->group_count == 0)
        return FSDPCK_OK;
    uint64_t *masks = budget_alloc(s->req->metadata, nbytes, err);
    if (masks == NULL)
        return FSDPCK_LIMIT;
    mark_slots(s, masks);
    for (uint32_t g = 0; g < s->group_count; g++) {
        unsigned k = 0;
        while (k < count && kinds[k] != masks[g])
            k++;
        if (k == count && count < KINDS_MAX)
            kinds[count++] = masks[g];
    }
    for (uint32_t g = 0; g < s->group_count; g++) {
        uint64_t missing = 0;
        for (unsigned k = 0; k < count; k++)
            if (masks[g] == 0 || (masks[g] & kinds[k]) != 0)
                missing |= kinds[k] & ~masks[g];
        for (uint32_t slot = 1; slot < SLOTS_MAX; slot++)
            if (missing >> slot & 1)
                note_stateless(s, slot, g);
    }
    budget_free(s->req->metadata, masks, nbytes);
    return FSDPCK_OK;
}

/* --- param_groups --- */

/* Names of the parameters of all groups that a param_group numbers. */
static fsdpck_status make_params(ds_state *s, size_t group, value *list, fsdpck_error *err)
{
    value_pool *pool = &s->cat->pool;
    const uint32_t *first = VEC_AT(&s->group_first, const uint32_t, group);
    RETURN_IF(value_new_list(pool, list, err));
    for (uint32_t i = first[0]; i < first[1]; i++)
        for (size_t k = 0; k < s->params.count; k++) {
            const ds_param *p = VEC_AT(&s->params, const ds_param, k);
            value name;
            if (p->group != *VEC_AT(&s->group_params, const uint32_t, i))
                continue;
            RETURN_IF(value_new_str(pool, strtab_text(&s->names, p->name),
                                    strtab_nbytes(&s->names, p->name), &name, err));
            RETURN_IF(value_append(pool, *list, name, err));
        }
    return FSDPCK_OK;
}

static fsdpck_status add_group(ds_state *s, size_t group, value dict, fsdpck_error *err)
{
    value_pool *pool = &s->cat->pool;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        const value key = value_key(pool, dict, i);
        value content = value_item(pool, dict, i);
        size_t nbytes;
        if (value_kind_of(key) != VALUE_STR)
            continue;
        const char *borrowed = value_text(pool, key, &nbytes);
        text_buf text = {.limit_bytes = UINT32_MAX};
        text_append(&text, borrowed, nbytes);
        fsdpck_status st = text_check(&text, err);
        if (st == FSDPCK_OK && text_is(text.text, nbytes, "params"))
            st = make_params(s, group, &content, err);
        const ds_key keys[] = {optim,
                               {.text = "param_groups", .nbytes = 12},
                               {.index = group},
                               {.text = text.text, .nbytes = nbytes}};
        if (st == FSDPCK_OK)
            st = ds_add_object(s, keys, 4, content, err);
        text_release(&text);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

/* Whether each number is a group of the parameters, in one param_group. */
static fsdpck_status check_numbers(const ds_state *s, bool *valid, fsdpck_error *err)
{
    const uint64_t nbytes = s->group_count;
    uint8_t *seen = budget_alloc(s->req->metadata, nbytes, err);
    if (seen == NULL)
        return FSDPCK_LIMIT;
    *valid = s->group_params.count == s->group_count;
    for (size_t i = 0; *valid && i < s->group_params.count; i++) {
        const uint32_t group = *VEC_AT(&s->group_params, const uint32_t, i);
        *valid = group < s->group_count && seen[group]++ == 0;
    }
    budget_free(s->req->metadata, seen, nbytes);
    return FSDPCK_OK;
}

fsdpck_status ds_build_optimizer(ds_state *s, fsdpck_error *err)
{
    static const char groups[] = "param_groups";
    const size_t count = value_count(&s->cat->pool, s->groups);
    bool valid = false;
    RETURN_IF(add_states(s, err));
    RETURN_IF(find_stateless(s, err));
    RETURN_IF(check_numbers(s, &valid, err));
    if (!valid && count > 0) {
        ds_leave_out(s, groups, strlen(groups));
        return FSDPCK_OK;
    }
    for (size_t g = 0; g < count; g++)
        RETURN_IF(add_group(s, g, value_item(&s->cat->pool, s->groups, g), err));
    return FSDPCK_OK;
}
