#include "layout/slice.h"

#include <string.h>

#include "layout/rule_match.h"

static bool is_of(const layout_rule *rule, mesh_role role)
{
    switch ((layout_rule_kind)rule->kind) {
    case LAYOUT_EP_SHARD:
        return role == ROLE_EP;
    case LAYOUT_TP_SHARD:
    case LAYOUT_TP_COLWISE:
    case LAYOUT_TP_ROWWISE:
    case LAYOUT_TP_REPLICATE:
        return role == ROLE_TP;
    case LAYOUT_SHARD:
    case LAYOUT_REPLICATE:
        break;
    }
    return false;
}

static bool is_named(const layout *l, const layout_tensor *t, mesh_role role)
{
    rule_names names;
    rule_names_of(t, &names);
    for (size_t i = 0; i < l->rules.count; i++) {
        const layout_rule *rule = VEC_AT(&l->rules, const layout_rule, i);
        if (is_of(rule, role) &&
            (rule_names_match(&names, rule->glob) || rule_names_match_module(&names, rule->glob)))
            return true;
    }
    return false;
}

static bool is_absent(const layout *l, const layout_tensor *t, mesh_role role)
{
    const bool by_plan = role == ROLE_TP || role == ROLE_EP;
    if (by_plan && (role == ROLE_TP ? l->has_tp_plan : l->has_ep_rule))
        return !is_named(l, t, role);
    const unsigned dim = t->source == NULL ? 0 : mesh_dim_of(t->source_mesh, role);
    if (t->source == NULL || dim == t->source_mesh->ndim)
        return by_plan;
    return t->source_absent_dims >> dim & 1u;
}

uint8_t layout_absent_dims(const layout *l, const layout_tensor *t)
{
    mesh_role roles[MESH_NDIM_MAX];
    unsigned absent = 0;
    mesh_roles(&l->mesh, roles);
    for (unsigned i = 0; i < l->mesh.ndim; i++) {
        if (roles[i] == ROLE_UNKNOWN)
            return 0;
        absent |= is_absent(l, t, roles[i]) ? 1u << i : 0;
    }
    return (uint8_t)absent;
}

void mesh_slice_of(const mesh *root, const cat_spec *spec, mesh_slice *s)
{
    *s = (mesh_slice){0};
    for (unsigned i = 0; i < root->ndim; i++) {
        if (spec->absent_dims >> i & 1u)
            continue;
        const unsigned k = s->m.ndim++;
        s->m.sizes[k] = root->sizes[i];
        memcpy(s->m.names[k], root->names[i], sizeof root->names[i]);
        s->dims[k] = i;
        s->placements[k] = spec->placements[i];
    }
}

bool mesh_slice_widen(const mesh *root, const mesh *own, const cat_spec *from, cat_spec *spec)
{
    unsigned next = 0, absent = 0;
    memset(spec->placements, 0, sizeof spec->placements);
    for (unsigned i = 0; i < root->ndim; i++) {
        if (next == own->ndim || root->sizes[i] != own->sizes[next] ||
            strcmp(root->names[i], own->names[next]) != 0) {
            absent |= 1u << i;
            continue;
        }
        absent |= (from->absent_dims >> next & 1u) << i;
        spec->placements[i] = from->placements[next++];
    }
    spec->absent_dims = (uint8_t)absent;
    return next == own->ndim;
}
