/* map_invert.c: the map in the other direction. Operations are inverted in the opposite order; a target
 * becomes a source, and the first alternative of a source becomes a target. */
#include "map/map_internal.h"

static fsdpck_status fail_one_way(const map_at *at, const char *reason, const char *expected,
                                  fsdpck_error *err)
{
    return FAIL_WITH(
        err, UNSUPPORTED, MAP_ONE_WAY,
        ("line %u, column %u: the rule has no inverse: %s", at->line, at->column, reason),
        (expected, "%s", expected));
}

static fsdpck_status fail_needs(const tensor_map *m, fsdpck_error *err)
{
    const fsdpck_status st = FAIL(
        err, UNSUPPORTED, MAP_ONE_WAY,
        "map cannot import: the trainer also needs %s, which no tensor determines", m->needed.text);
    error_next(err, "import the folder with the trainer's own converter");
    return st;
}

/* Equal parts: a proportion of 1 for each tensor. */
static fsdpck_status add_equal_parts(tensor_map *m, uint32_t count, map_op *op, fsdpck_error *err)
{
    op->first_value = (uint32_t)m->values.count;
    op->count = count;
    for (uint32_t i = 0; i < count; i++)
        RETURN_IF(vec_add(&m->values, &(map_value){.variable = MAP_NONE, .number = 1, .at = op->at},
                          err));
    return FSDPCK_OK;
}

/* rule: the one to invert. */
static fsdpck_status invert_op(tensor_map *m, const map_rule *rule, map_op *op, fsdpck_error *err)
{
    static const map_op_kind inverse[] = {
        [MAP_OP_STACK] = MAP_OP_UNSTACK, [MAP_OP_UNSTACK] = MAP_OP_STACK,
        [MAP_OP_CONCAT] = MAP_OP_SPLIT,  [MAP_OP_SPLIT] = MAP_OP_CONCAT,
        [MAP_OP_ROPE] = MAP_OP_UNROPE,   [MAP_OP_TRANSPOSE] = MAP_OP_TRANSPOSE,
        [MAP_OP_UNROPE] = MAP_OP_ROPE,   [MAP_OP_GROUP] = MAP_OP_UNGROUP,
        [MAP_OP_UNGROUP] = MAP_OP_GROUP, [MAP_OP_ADD] = MAP_OP_ADD,
    };
    if (op->kind == MAP_OP_NARROW)
        return fail_one_way(&op->at, "narrow omits padding, which the tensors of the model lack",
                            "no narrow", err);
    if (op->kind == MAP_OP_UNSTACK && rule->unstacked_inner != MAP_NONE)
        return fail_one_way(&op->at, "it has two unstacks", "one unstack", err);
    if (op->kind == MAP_OP_CONCAT && op->count == 0)
        return fail_one_way(&op->at, "the proportions of the sources are unknown", "concat DIM N N",
                            err);
    if (op->kind == MAP_OP_SPLIT && op->count == 0)
        RETURN_IF(add_equal_parts(m, rule->ntargets, op, err));
    op->kind = inverse[op->kind];
    op->subtract = !op->subtract;
    return FSDPCK_OK;
}

static fsdpck_status invert_rule(tensor_map *m, map_rule *rule, fsdpck_error *err)
{
    const uint32_t first_op = (uint32_t)m->ops.count;
    const map_rule from = *rule;
    for (uint32_t i = 0; i < from.ntargets; i++) {
        const map_pattern *p = VEC_AT(&m->patterns, const map_pattern, from.first_target + i);
        if (!map_pattern_is_clear(m, p))
            return fail_one_way(&p->at, "names that it makes do not show their parts",
                                "text between any two of {n} and '*', and no digit "
                                "next to {n}",
                                err);
    }
    for (uint32_t i = 0; i < from.nsources; i++)
        VEC_AT(&m->patterns, map_pattern, from.first_source + i)->count = 1;
    for (uint32_t i = from.nops; i-- > 0;) {
        map_op op = *VEC_AT(&m->ops, const map_op, from.first_op + i);
        RETURN_IF(invert_op(m, &from, &op, err));
        RETURN_IF(vec_add(&m->ops, &op, err));
    }
    rule->first_source = from.first_target;
    rule->nsources = from.ntargets;
    rule->first_target = from.first_source;
    rule->ntargets = from.nsources;
    rule->first_op = first_op;
    rule->stacked = rule->unstacked = rule->unstacked_inner = MAP_NONE;
    return map_check_rule(m, rule, err);
}

fsdpck_status map_invert(tensor_map *m, const tensor_map *forward, fsdpck_error *err)
{
    size_t count = 0;
    if (m->needed.nbytes > 0)
        return fail_needs(m, err);
    for (size_t i = 0; i < m->rules.count; i++) {
        map_rule rule = *VEC_AT(&m->rules, const map_rule, i);
        if (rule.ntargets == 0 && !rule.keeps && !rule.ignores)
            continue;
        if (rule.ntargets > 0)
            RETURN_IF(invert_rule(m, &rule, err));
        rule.ignores = false;
        *VEC_AT(&m->rules, map_rule, count++) = rule;
    }
    m->rules.count = count;
    m->forward = forward;
    return FSDPCK_OK;
}

const char *map_dropped_names(const tensor_map *m)
{
    return m->dropped.text == NULL ? "" : m->dropped.text;
}
