/* map_heads.c: operations that count heads. A wrong number of heads often divides the rows of a tensor
 * too, and would then permute them. So the rows of a head must be head_dim of config.json, and those of
 * query and key must be equal. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/text.h"
#include "map/map_adapter_internal.h"
#include "map/map_layout_internal.h"

/* --- head_dim --- */

static bool is_heads(const tensor_map *m, const map_value *number)
{
    return number->variable != MAP_NONE &&
           map_counts_heads(m, VEC_AT(&m->variables, const map_variable_def, number->variable));
}

/* The heads that a dim consists of; 0: it does not consist of heads. */
static uint64_t count_heads(const tensor_map *m, const map_op *op)
{
    const bool has_groups = op->kind == MAP_OP_GROUP || op->kind == MAP_OP_UNGROUP;
    uint64_t heads = 0, number;
    if (op->kind != MAP_OP_ROPE && op->kind != MAP_OP_UNROPE && op->kind != MAP_OP_SPLIT &&
        op->kind != MAP_OP_CONCAT && !has_groups)
        return 0;
    for (uint32_t i = 0; i < op->count; i++) {
        const map_value *v = VEC_AT(&m->values, const map_value, op->first_value + i);
        if (!is_heads(m, v) || map_get_value(m, v, &number, NULL) != FSDPCK_OK ||
            !checked_add(heads, i == 0 && has_groups ? 0 : number, &heads))
            return 0;
    }
    return heads;
}

static bool follows_split(const map_layout *l, const map_op *op)
{
    for (uint32_t i = 0; i < l->rule->nops; i++) {
        const map_op *before = VEC_AT(&l->m->ops, const map_op, l->rule->first_op + i);
        if (before == op || before->kind == MAP_OP_SPLIT)
            return before != op;
    }
    return false;
}

static fsdpck_status fail_head_dim(const map_layout *l, const map_op *op,
                                   const map_layout_tensor *t, uint64_t heads, fsdpck_error *err)
{
    text_buf shape = {.limit_bytes = 300};
    const char *from;
    const uint64_t head_dim = map_head_dim(l->m, &from);
    print_shape(t, &shape);
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, MAP_SHAPE,
        ("the numbers of heads and %s contradict the tensor: line %u, column %u of the map", from,
         op->at.line, op->at.column),
        (expected, "dim %u of %" PRIu64 " times the head_dim %" PRIu64, op->dim, heads, head_dim),
        (found, "%s %s", dtype_get(t->dtype)->name, shape.text == NULL ? "" : shape.text),
        (next, "%s",
         follows_split(l, op)
             ? "use two maps, one after the other: an operation after split applies to each part "
               "(fsdpck-map(5)); else give the config.json of this model with --config"
             : "give the config.json of this model with --config, or the numbers of heads with "
               "--map-set"));
    text_release(&shape);
    return st;
}

/* --- rope --- */

/* Of a rule that gives one tensor another layout: all its rows are heads. */
static void record_rope(map_layout *l, const map_op *op)
{
    uint64_t heads;
    if ((op->kind != MAP_OP_ROPE && op->kind != MAP_OP_UNROPE) || l->rule->nsources != 1 ||
        l->rule->ntargets != 1 || l->tensors.count == 0 ||
        map_get_value(l->m, VEC_AT(&l->m->values, const map_value, op->first_value), &heads,
                      NULL) != FSDPCK_OK)
        return;
    l->head_rows = tensor_at(l, 0)->shape[0] / heads;
    l->rope = op;
}

fsdpck_status map_check_heads(map_layout *l, const map_op *op, bool is_done, fsdpck_error *err)
{
    if (is_done)
        record_rope(l, op);
    const char *from;
    const uint64_t head_dim = map_head_dim(l->m, &from);
    /* The tensor that consists of all the heads. */
    if (head_dim == 0 || is_done != (op->kind == MAP_OP_CONCAT))
        return FSDPCK_OK;
    const uint64_t heads = count_heads(l->m, op);
    uint64_t size;
    for (size_t i = 0; heads > 0 && i < l->tensors.count; i++) {
        const map_layout_tensor *t = tensor_at(l, i);
        if (op->dim < t->ndim &&
            (!checked_mul(heads, head_dim, &size) || t->shape[op->dim] != size))
            return fail_head_dim(l, op, t, heads, err);
    }
    return FSDPCK_OK;
}

/* --- query and key --- */

/* The length of a name without its last two words, as in "layers.0.attention.wq.weight". */
static size_t module_nbytes(const char *name, size_t nbytes)
{
    unsigned words = 2;
    for (size_t n = nbytes; n > 0; n--)
        if (name[n - 1] == '.' && --words == 0)
            return n;
    return 0;
}

static fsdpck_status fail_rows(const map_layout *l, const map_input *in,
                               const map_module_heads *other, fsdpck_error *err)
{
    const map_op *op = l->rope;
    return FAIL_WITH(
        err, BADINPUT, MAP_SHAPE,
        ("'%s' has %" PRIu64 " row%s for each head, but '%s' has %" PRIu64
         ": line %u, column %u of the map",
         in->name, l->head_rows, text_plural(l->head_rows), other->name, other->rows, op->at.line,
         op->at.column),
        (expected, "heads of the same size"),
        (next,
         "check the numbers of heads: give the config.json of this model with --config, or the "
         "numbers with --map-set"));
}

static fsdpck_status compare_in_module(map_modules *modules, const char *name, size_t nbytes,
                                       const map_input *in, const map_layout *l, fsdpck_error *err)
{
    uint32_t module;
    RETURN_IF(strtab_intern(&modules->names, name, module_nbytes(name, nbytes), &module, err));
    if (module >= modules->heads.count &&
        vec_push_n(&modules->heads, module + 1 - modules->heads.count, err) == NULL)
        return FSDPCK_LIMIT;
    map_module_heads *first = VEC_AT(&modules->heads, map_module_heads, module);
    if (first->name == NULL)
        *first = (map_module_heads){.name = in->name, .rows = l->head_rows};
    return first->rows == l->head_rows ? FSDPCK_OK : fail_rows(l, in, first, err);
}

/* By the names before and after the map, so that the way back refuses nothing that the way there accepts. */
fsdpck_status map_compare_heads(map_adapter *v, const map_input *in, const text_buf *target,
                                const map_layout *l, fsdpck_error *err)
{
    if (l->head_rows == 0)
        return FSDPCK_OK;
    RETURN_IF(compare_in_module(&v->source_modules, in->name, in->nbytes, in, l, err));
    return compare_in_module(&v->target_modules, target->text, target->nbytes, in, l, err);
}
