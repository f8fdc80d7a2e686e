#include "model/optim_groups.h"

#include <string.h>

void optim_groups_init(optim_groups *g, budget *owner)
{
    *g = (optim_groups){.lists = VEC_OF(optim_list, owner),
                        .groups = VEC_OF(optim_group, owner),
                        .members = VEC_OF(uint32_t, owner)};
    strtab_init(&g->names, owner);
}

void optim_groups_release(optim_groups *g)
{
    strtab_release(&g->names);
    VEC_RELEASE_ALL(&g->lists, &g->groups, &g->members);
}

fsdpck_status optim_groups_add(optim_groups *g, const char *name, size_t nbytes, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&g->names, name, nbytes, &id, err));
    return vec_add(&g->lists, &(optim_list){.name = id, .first = (uint32_t)g->groups.count}, err);
}

fsdpck_status optim_groups_open(optim_groups *g, fsdpck_error *err)
{
    RETURN_IF(vec_add(&g->groups, &(optim_group){.first = (uint32_t)g->members.count}, err));
    VEC_AT(&g->lists, optim_list, g->lists.count - 1)->count++;
    return FSDPCK_OK;
}

fsdpck_status optim_groups_put(optim_groups *g, const char *fqn, size_t nbytes, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&g->names, fqn, nbytes, &id, err));
    RETURN_IF(vec_add(&g->members, &(uint32_t){id}, err));
    VEC_AT(&g->groups, optim_group, g->groups.count - 1)->count++;
    return FSDPCK_OK;
}

static fsdpck_status copy_list(const optim_groups *from, const optim_list *l, optim_groups *to,
                               fsdpck_error *err)
{
    RETURN_IF(optim_groups_add(to, strtab_text(&from->names, l->name),
                               strtab_nbytes(&from->names, l->name), err));
    for (uint32_t i = 0; i < l->count; i++) {
        const optim_group *group = optim_groups_at(from, l, i);
        RETURN_IF(optim_groups_open(to, err));
        for (uint32_t k = 0; k < group->count; k++) {
            size_t nbytes;
            const char *text = optim_groups_member(from, group, k, &nbytes);
            RETURN_IF(optim_groups_put(to, text, nbytes, err));
        }
    }
    return FSDPCK_OK;
}

fsdpck_status optim_groups_copy(const optim_groups *from, optim_groups *to, fsdpck_error *err)
{
    for (size_t i = 0; i < from->lists.count; i++)
        RETURN_IF(copy_list(from, VEC_AT(&from->lists, const optim_list, i), to, err));
    return FSDPCK_OK;
}

const optim_list *optim_groups_find(const optim_groups *g, const char *prefix, size_t nbytes,
                                    bool is_only)
{
    if (nbytes > 0 && prefix[nbytes - 1] == '.')
        nbytes--;
    size_t at = nbytes;
    while (at > 0 && prefix[at - 1] != '.')
        at--;
    for (size_t i = 0; i < g->lists.count; i++) {
        const optim_list *l = VEC_AT(&g->lists, const optim_list, i);
        if (strtab_is(&g->names, l->name, prefix + at, nbytes - at))
            return l;
    }
    return is_only && g->lists.count == 1 ? VEC_AT(&g->lists, const optim_list, 0) : NULL;
}

const optim_group *optim_groups_at(const optim_groups *g, const optim_list *l, uint32_t i)
{
    return VEC_AT(&g->groups, const optim_group, l->first + i);
}

const char *optim_groups_member(const optim_groups *g, const optim_group *group, uint32_t i,
                                size_t *nbytes)
{
    const uint32_t id = *VEC_AT(&g->members, const uint32_t, group->first + i);
    *nbytes = strtab_nbytes(&g->names, id);
    return strtab_text(&g->names, id);
}
