/* map_rule.c: whether the operations of a rule lead from its sources to its targets. */
#include <stdio.h>
#include <string.h>

#include "map/map_internal.h"

static const map_pattern *pattern_at(const tensor_map *m, uint32_t index)
{
    return VEC_AT(&m->patterns, const map_pattern, index);
}

/* A name of the rule that differs from the first in its captures. */
static fsdpck_status check_alike(const tensor_map *m, uint32_t first, uint32_t count,
                                 fsdpck_error *err)
{
    const map_pattern *p = pattern_at(m, first);
    for (uint32_t i = 1; i < count; i++) {
        const map_pattern *q = pattern_at(m, first + i);
        if (q->captures != p->captures || q->has_any != p->has_any)
            return FAIL_WITH(err, USAGE, MAP_SYNTAX,
                             ("line %u, column %u: expected the same names in braces as in the "
                              "name before it",
                              q->at.line, q->at.column),
                             (expected, "the same names in braces in all sources, and in all "
                                        "targets"));
    }
    return FSDPCK_OK;
}

static fsdpck_status op_error(const map_op *op, const char *what, const char *expected,
                              fsdpck_error *err)
{
    return FAIL_WITH(
        err, USAGE, MAP_SYNTAX,
        ("line %u, column %u: %s: expected %s", op->at.line, op->at.column, what, expected),
        (expected, "%s", expected));
}

/* Before an operation: the number of tensors, and the captures that their names have. */
typedef struct rule_state {
    uint32_t tensors;
    unsigned captures;
    bool added;
} rule_state;

static fsdpck_status check_numbering(map_rule *rule, const map_op *op, rule_state *s,
                                     fsdpck_error *err)
{
    const unsigned bit = 1u << op->capture;
    if (op->kind == MAP_OP_STACK) {
        if (!(s->captures & bit) || rule->unstacked != MAP_NONE)
            return op_error(op, "stack", "a name in braces from the sources", err);
        if (rule->stacked != MAP_NONE)
            return op_error(op, "stack", "one stack at most", err);
        rule->stacked = op->capture;
        s->captures &= ~bit;
        return FSDPCK_OK;
    }
    if (s->captures & bit)
        return op_error(op, "unstack", "a name in braces that only the targets have", err);
    if (rule->unstacked_inner != MAP_NONE)
        return op_error(op, "unstack", "two unstacks at most", err);
    *(rule->unstacked == MAP_NONE ? &rule->unstacked : &rule->unstacked_inner) = op->capture;
    s->captures |= bit;
    return FSDPCK_OK;
}

static fsdpck_status check_op(map_rule *rule, const map_op *op, rule_state *s, fsdpck_error *err)
{
    switch (op->kind) {
    case MAP_OP_STACK:
    case MAP_OP_UNSTACK:
        return check_numbering(rule, op, s, err);
    case MAP_OP_CONCAT:
        if (s->tensors < 2)
            return op_error(op, "concat", "two sources or more, separated by commas", err);
        if (op->count > 0 && op->count != s->tensors)
            return op_error(op, "concat", "no proportions, or one for each source", err);
        s->tensors = 1;
        return FSDPCK_OK;
    case MAP_OP_SPLIT:
        if (s->tensors > 1)
            return op_error(op, "split", "one tensor to split", err);
        if (rule->ntargets < 2)
            return op_error(op, "split", "two targets or more, separated by commas", err);
        if (op->count > 0 && op->count != rule->ntargets)
            return op_error(op, "split", "no proportions, or one for each target", err);
        s->tensors = rule->ntargets;
        return FSDPCK_OK;
    case MAP_OP_ADD:
        if (s->added)
            return op_error(op, "add", "one add at most", err);
        s->added = true;
        break;
    case MAP_OP_ROPE:
    case MAP_OP_UNROPE:
    case MAP_OP_TRANSPOSE:
    case MAP_OP_GROUP:
    case MAP_OP_UNGROUP:
    case MAP_OP_NARROW:
        break;
    }
    return FSDPCK_OK;
}

/* The first capture in `mask`, as text for a message. */
static const char *capture_name(const tensor_map *m, const map_rule *rule, unsigned mask)
{
    for (uint32_t i = 0; i < rule->ncaptures; i++)
        if (mask & 1u << i)
            return strtab_text(&m->texts, rule->captures[i]);
    return "";
}

static fsdpck_status check_end(const tensor_map *m, const map_rule *rule, const rule_state *s,
                               fsdpck_error *err)
{
    const map_pattern *from = pattern_at(m, rule->first_source),
                      *to = pattern_at(m, rule->first_target);
    const map_at at = rule->arrow;
    char expected[200] = "";
    if (s->tensors < rule->ntargets)
        snprintf(expected, sizeof expected, "': split DIM' for %u targets", rule->ntargets);
    else if (s->tensors > rule->ntargets)
        snprintf(expected, sizeof expected, "': concat DIM' for %u sources", rule->nsources);
    else if (s->captures & ~to->captures)
        snprintf(expected, sizeof expected, "{%.64s} in the targets, or ': stack %.64s'",
                 capture_name(m, rule, s->captures & ~to->captures),
                 capture_name(m, rule, s->captures & ~to->captures));
    else if (to->captures & ~s->captures)
        snprintf(expected, sizeof expected, "{%.64s} in the sources, or ': unstack %.64s'",
                 capture_name(m, rule, to->captures & ~s->captures),
                 capture_name(m, rule, to->captures & ~s->captures));
    else if (from->has_any != to->has_any)
        snprintf(expected, sizeof expected, "'*' in both the sources and the targets");
    if (expected[0] == '\0')
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, MAP_SYNTAX,
                     ("line %u, column %u: '->': expected %s", at.line, at.column, expected),
                     (expected, "%s", expected));
}

/* The braces belong to names: "{e}" in a target is "unstack e". */
fsdpck_status map_capture_error(const tensor_map *m, const map_rule *rule, const map_word *w,
                                fsdpck_error *err)
{
    text_buf expected = {.limit_bytes = 600};
    const bool braced = w->nbytes > 2 && w->text[0] == '{' && w->text[w->nbytes - 1] == '}';
    text_puts(&expected, rule->ncaptures == 0 ? "a name that a source or target has in braces"
                                              : "a name that is in braces in the rule, without "
                                                "braces: ");
    for (uint32_t i = 0; i < rule->ncaptures; i++)
        text_printf(&expected, "%s%s", i > 0 ? ", " : "",
                    strtab_text(&m->texts, rule->captures[i]));
    for (uint32_t i = 0; braced && i < rule->ncaptures; i++)
        if (strtab_is(&m->texts, rule->captures[i], w->text + 1, w->nbytes - 2)) {
            expected.nbytes = 0;
            text_printf(&expected, "%s, without braces", strtab_text(&m->texts, rule->captures[i]));
        }
    const fsdpck_status st = map_syntax_error(
        w->at, expected.text == NULL ? "a name in braces" : expected.text, w->text, w->nbytes, err);
    text_release(&expected);
    return st;
}

fsdpck_status map_check_rule(const tensor_map *m, map_rule *rule, fsdpck_error *err)
{
    RETURN_IF(check_alike(m, rule->first_source, rule->nsources, err));
    RETURN_IF(check_alike(m, rule->first_target, rule->ntargets, err));
    rule_state s = {.tensors = rule->nsources,
                    .captures = pattern_at(m, rule->first_source)->captures};
    for (uint32_t i = 0; i < rule->nops; i++)
        RETURN_IF(check_op(rule, VEC_AT(&m->ops, const map_op, rule->first_op + i), &s, err));
    return check_end(m, rule, &s, err);
}
