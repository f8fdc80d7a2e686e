#include "select/optim_state_map.h"

#include <string.h>

#include "model/fqn.h"

bool optim_state_map_param(const catalogue *c, const checkpoint_parts *parts, const cat_tensor *t,
                           text_buf *fqn)
{
    const value_pool *pool = &c->pool;
    const size_t count = value_count(pool, t->path);
    fqn->nbytes = 0;
    if (t->param != CAT_NONE) {
        fqn_clean(catalogue_name(c, t->param), catalogue_name_nbytes(c, t->param),
                  parts->model_has_ddp, fqn);
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        size_t nbytes;
        const char *text = value_text(pool, value_item(pool, t->path, i), &nbytes);
        if (text == NULL)
            return false;
        if (nbytes == 5 && memcmp(text, "state", 5) == 0 && i + 2 < count) {
            text = value_text(pool, value_item(pool, t->path, i + 1), &nbytes);
            if (text == NULL)
                return false;
            fqn_clean(text, nbytes, parts->model_has_ddp, fqn);
            return true;
        }
        if (nbytes > 6 && memcmp(text, "state.", 6) == 0) {
            size_t end = nbytes;
            while (end > 6 && text[end - 1] != '.')
                end--;
            if (end <= 7)
                return false;
            fqn_clean(text + 6, end - 7, parts->model_has_ddp, fqn);
            return true;
        }
    }
    return false;
}

/* Cleaned names of the model's tensors, without its outer key; ids count them in their order. */
static fsdpck_status name_model(const catalogue *c, const checkpoint_parts *parts, strtab *names,
                                vec *tensors, fsdpck_error *err)
{
    const size_t outer = parts->model_depth > 0 ? strlen(parts->model_key) + 1 : 0;
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const uint32_t key = catalogue_tensor(c, i)->name;
        const size_t nbytes = catalogue_name_nbytes(c, key);
        if (parts->tensor_part[i] != PART_MODEL || nbytes <= outer)
            continue;
        uint32_t id;
        name.nbytes = 0;
        fqn_clean(catalogue_name(c, key) + outer, nbytes - outer, parts->model_has_ddp, &name);
        GOTO_IF(text_check(&name, err), out);
        GOTO_IF(strtab_intern(names, name.text, name.nbytes, &id, err), out);
        if (id < tensors->count)
            continue; /* two wrappers' names of one tensor */
        uint32_t *slot = vec_push(tensors, err);
        st = slot == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
        if (st != FSDPCK_OK)
            goto out;
        *slot = (uint32_t)i;
    }
out:
    text_release(&name);
    return st;
}

static void add_state(const catalogue *c, size_t state, size_t model, optim_state_map *t)
{
    const cat_tensor *s = catalogue_tensor(c, state);
    const cat_tensor *m = catalogue_tensor(c, model);
    t->known = true;
    if (shape_equal(catalogue_shape(c, state), s->ndim, catalogue_shape(c, model), m->ndim)) {
        t->itemsize_nbytes[model] += dtype_get((dtype)s->dtype)->itemsize_bytes;
    } else if (s->ndim > 0) {
        t->extra_nbytes[model] += catalogue_tensor_nbytes(c, state);
        if (s->spec == CAT_NONE && catalogue_tensor_nelems(c, state) > 1 &&
            t->other_shape_count++ == 0)
            t->other_shape_first = (uint32_t)state;
    }
}

static fsdpck_status find_state(const catalogue *c, const checkpoint_parts *parts,
                                const strtab *names, const vec *tensors, optim_state_map *t,
                                fsdpck_error *err)
{
    text_buf fqn = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < parts->tensor_count && st == FSDPCK_OK; i++) {
        if (parts->tensor_part[i] != PART_OPTIMIZER ||
            !optim_state_map_param(c, parts, catalogue_tensor(c, i), &fqn))
            continue;
        st = text_check(&fqn, err);
        const uint32_t id =
            st == FSDPCK_OK ? strtab_find(names, fqn.text, fqn.nbytes) : STRTAB_NONE;
        if (id != STRTAB_NONE)
            add_state(c, i, *VEC_AT(tensors, const uint32_t, id), t);
    }
    text_release(&fqn);
    return st;
}

fsdpck_status optim_state_map_find(const catalogue *c, const checkpoint_parts *parts,
                                   optim_state_map *t, fsdpck_error *err)
{
    *t = (optim_state_map){.count = parts->tensor_count, .owner = c->owner};
    strtab names;
    vec tensors = VEC_OF(uint32_t, c->owner);
    strtab_init(&names, c->owner);
    t->itemsize_nbytes = budget_alloc(t->owner, t->count * sizeof *t->itemsize_nbytes, err);
    t->extra_nbytes = budget_alloc(t->owner, t->count * sizeof *t->extra_nbytes, err);
    fsdpck_status st = t->itemsize_nbytes == NULL || t->extra_nbytes == NULL
                           ? FSDPCK_LIMIT
                           : name_model(c, parts, &names, &tensors, err);
    if (st == FSDPCK_OK)
        st = find_state(c, parts, &names, &tensors, t, err);
    strtab_release(&names);
    vec_release(&tensors);
    if (st != FSDPCK_OK)
        optim_state_map_release(t);
    return st;
}

void optim_state_map_release(optim_state_map *t)
{
    if (t->itemsize_nbytes != NULL)
        budget_free(t->owner, t->itemsize_nbytes, t->count * sizeof *t->itemsize_nbytes);
    if (t->extra_nbytes != NULL)
        budget_free(t->owner, t->extra_nbytes, t->count * sizeof *t->extra_nbytes);
    *t = (optim_state_map){0};
}

bool optim_state_map_has(const optim_state_map *t, size_t i)
{
    return i < t->count && (t->itemsize_nbytes[i] > 0 || t->extra_nbytes[i] > 0);
}
