/* The containers of the lowest rank's state: classes of dicts and their attributes, for containers that are rebuilt from paths. */
#include <string.h>

#include "formats/pt/ranks_internal.h"

/* Leaves that are objects are in the catalogue by themselves: None stands for them here. */
static fsdpck_status copy_containers(ranks_parse *p, value *copy, fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    value_map made = VALUE_MAP(p->s->req->metadata);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < p->flat.objects.count; i++) {
        const pt_object_place *o = VEC_AT(&p->flat.objects, const pt_object_place, i);
        const value content = catalogue_object(&p->scratch, o->object)->content;
        uint64_t *slot = value_is_none(content) ? NULL : value_map_put(&made, content, NULL, err);
        if (slot != NULL)
            *slot = VALUE_OF_NONE;
        else if (!value_is_none(content))
            st = FSDPCK_LIMIT;
    }
    if (st == FSDPCK_OK)
        st = value_copy_shared(pool, p->archive.root, &p->s->cat->pool, NULL, &made, copy, err);
    value_map_release(&made);
    return st;
}

fsdpck_status ranks_take_frame(ranks_parse *p, fsdpck_error *err)
{
    catalogue *cat = p->s->cat;
    const ranks_family *f = VEC_AT(&p->s->list->families, const ranks_family, p->file->family);
    value copy, key, dict;
    if (f->key[0] == '\0' && !value_is_none(cat->like))
        return FSDPCK_OK;
    if (value_is_none(cat->like) && f->key[0] != '\0')
        RETURN_IF(value_new_dict(&cat->pool, &cat->like, err));
    if (f->key[0] != '\0' && value_dict_find(&cat->pool, cat->like, f->key, &dict))
        return FSDPCK_OK;
    if (!value_as_dict(&p->scratch.pool, p->archive.root, &dict))
        return FSDPCK_OK;
    RETURN_IF(copy_containers(p, &copy, err));
    if (f->key[0] == '\0') {
        cat->like = copy;
        return FSDPCK_OK;
    }
    RETURN_IF(value_new_str(&cat->pool, f->key, strlen(f->key), &key, err));
    return value_dict_put(&cat->pool, cat->like, key, copy, err);
}
