/* Tensors inside objects: named by their path of dicts, lists and tuples, otherwise by the object's
 * name and a number. */
#include <inttypes.h>

#include "formats/common/pt_flatten.h"
#include "state/inner.h"

static fsdpck_status new_name(pt_flat *f, const char *name, size_t nbytes, uint32_t *flat,
                              fsdpck_error *err)
{
    *flat = STRTAB_NONE;
    if (strtab_find(&f->flat, name, nbytes) != STRTAB_NONE)
        return FSDPCK_OK;
    return strtab_intern(&f->flat, name, nbytes, flat, err);
}

/* A tensor that already has a path is added again, as in pt_flatten. A tensor with a taken name
 * stays unnamed. */
static fsdpck_status on_tensor(void *ctx, const char *name, size_t nbytes, value path,
                               uint64_t *tensor, fsdpck_error *err)
{
    pt_flat *f = ctx;
    pt_name made = {.path = path, .inner = true};
    RETURN_IF(new_name(f, name, nbytes, &made.flat, err));
    if (made.flat == STRTAB_NONE)
        return FSDPCK_OK;
    if (VEC_AT(&f->names, pt_name, *tensor)->flat != STRTAB_NONE) {
        torch_tensor *t = vec_push(&f->archive->tensors, err);
        if (t == NULL || vec_push(&f->names, err) == NULL)
            return FSDPCK_LIMIT;
        *t = *VEC_AT(&f->archive->tensors, torch_tensor, *tensor);
        *tensor = f->archive->tensors.count - 1;
    }
    *VEC_AT(&f->names, pt_name, *tensor) = made;
    return FSDPCK_OK;
}

static fsdpck_status name_in_object(pt_flat *f, inner_names *in, const pt_object_place *where,
                                    fsdpck_error *err)
{
    const cat_object *o = catalogue_object(f->cat, where->object);
    value content = o->content;
    const value was = content;
    text_buf name = {.limit_bytes = UINT32_MAX};
    /* A root without keys has no name. */
    if (!where->is_root)
        text_append(&name, catalogue_name(f->cat, o->name), catalogue_name_nbytes(f->cat, o->name));
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = inner_name_tensors(in, name.text == NULL ? "" : name.text, name.nbytes, o->path,
                                &content, err);
    text_release(&name);
    if (st != FSDPCK_OK || content == was)
        return st;
    catalogue_object(f->cat, where->object)->content = content;
    if (!where->is_root)
        value_set_item(&f->cat->pool, where->items, where->at, content);
    return FSDPCK_OK;
}

typedef struct numbering {
    pt_flat *f;
    const char *name; /* of what holds them */
    size_t nbytes;
    uint64_t number;
    uint64_t steps, unnamed;
} numbering;

static fsdpck_status number_tensor(void *ctx, value v, fsdpck_error *err)
{
    numbering *n = ctx;
    pt_flat *f = n->f;
    n->steps++;
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    pt_name *slot = VEC_AT(&f->names, pt_name, value_tensor_index(v));
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    n->unnamed -= slot->flat == STRTAB_NONE;
    while (st == FSDPCK_OK && slot->flat == STRTAB_NONE) {
        name.nbytes = 0;
        text_append(&name, n->name, n->nbytes);
        text_printf(&name, "#%" PRIu64, n->number++);
        st = text_check(&name, err);
        if (st == FSDPCK_OK)
            st = new_name(f, name.text, name.nbytes, &slot->flat, err);
        slot->inner = true;
    }
    text_release(&name);
    return st;
}

static fsdpck_status number_in(numbering *n, const char *name, size_t nbytes, value content,
                               fsdpck_error *err)
{
    n->name = name;
    n->nbytes = nbytes;
    n->number = 0;
    return value_walk(&n->f->cat->pool, content, number_tensor, n, err);
}

static fsdpck_status number_the_rest(pt_flat *f, fsdpck_error *err)
{
    numbering n = {.f = f};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < f->names.count; i++)
        n.unnamed += VEC_AT(&f->names, const pt_name, i)->flat == STRTAB_NONE;
    /* Objects may share their parts, so steps are counted. */
    for (size_t i = 0;
         st == FSDPCK_OK && i < f->objects.count && n.unnamed > 0 && n.steps <= f->steps_limit;
         i++) {
        const cat_object *o =
            catalogue_object(f->cat, VEC_AT(&f->objects, const pt_object_place, i)->object);
        st = number_in(&n, catalogue_name(f->cat, o->name), catalogue_name_nbytes(f->cat, o->name),
                       o->content, err);
    }
    for (size_t i = 0;
         st == FSDPCK_OK && i < f->attributes.count && n.unnamed > 0 && n.steps <= f->steps_limit;
         i++) {
        const pt_attributes *a = VEC_AT(&f->attributes, const pt_attributes, i);
        size_t nbytes;
        const char *name = value_text(&f->cat->pool, a->name, &nbytes);
        st = number_in(&n, name, nbytes, a->state, err);
    }
    return st;
}

/* Attributes too: those of a module's state dict may hold anything. */
static fsdpck_status refuse_sharded(const pt_flat *f, fsdpck_error *err)
{
    const value_pool *pool = &f->cat->pool;
    for (size_t i = 0; i < f->objects.count; i++) {
        const cat_object *o =
            catalogue_object(f->cat, VEC_AT(&f->objects, const pt_object_place, i)->object);
        const fsdpck_status st = pt_refuse_sharded(pool, o->content, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, catalogue_name(f->cat, o->name));
            return st;
        }
    }
    for (size_t i = 0; i < f->attributes.count; i++) {
        const pt_attributes *a = VEC_AT(&f->attributes, const pt_attributes, i);
        size_t nbytes;
        const fsdpck_status st = pt_refuse_sharded(pool, a->state, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, value_text(pool, a->name, &nbytes));
            return st;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status pt_flatten_inner(pt_flat *f, fsdpck_error *err)
{
    if (!f->keep_sharded)
        RETURN_IF(refuse_sharded(f, err));
    value_map judged = VALUE_MAP(f->cat->owner);
    inner_names in = {.pool = &f->cat->pool,
                      .judged = &judged,
                      .seen = &f->seen,
                      .steps_limit = f->steps_limit,
                      .on_tensor = on_tensor,
                      .ctx = f};
    fsdpck_status st = FSDPCK_OK;
    const size_t count = f->names.count == 0 ? 0 : f->objects.count;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = name_in_object(f, &in, VEC_AT(&f->objects, const pt_object_place, i), err);
    value_map_release(&judged);
    return st == FSDPCK_OK ? number_the_rest(f, err) : st;
}
