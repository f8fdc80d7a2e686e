
#include "state/value.h"
#include "state/value_cells.h"
#include "state/value_map.h"

struct copy_job {
    const value_pool *from;
    value_pool *to;
    const uint64_t *tensor_map;
    value_map *made; /* container or call in `from` -> its copy */
    vec todo;        /* struct copy_pair: copied, but its parts are not */
};

struct copy_pair {
    value old;
    value fresh;
};

/* A symbol is one text in either pool (value_cells.h). */
static fsdpck_status copy_symbol(struct copy_job *job, value v, value *copy, fsdpck_error *err)
{
    const uint32_t old = (uint32_t)value_payload(v);
    uint32_t id;
    RETURN_IF(strtab_intern(&job->to->strings, strtab_text(&job->from->strings, old),
                            strtab_nbytes(&job->from->strings, old), &id, err));
    *copy = value_make(VALUE_SYMBOL, id);
    return FSDPCK_OK;
}

static fsdpck_status copy_leaf(struct copy_job *job, value v, value *copy, fsdpck_error *err)
{
    size_t nbytes = 0;
    const char *text = value_text(job->from, v, &nbytes);
    int64_t i;
    double d;
    switch (value_kind_inline(v)) {
    case VALUE_INT:
        if (!value_as_i64(job->from, v, &i))
            return FSDPCK_OK;
        return value_new_int(job->to, i, copy, err);
    case VALUE_FLOAT:
        if (!value_as_double(job->from, v, &d))
            return FSDPCK_OK;
        return value_new_float(job->to, d, copy, err);
    case VALUE_STR:
        return value_new_str(job->to, text, nbytes, copy, err);
    case VALUE_BYTES:
        return value_new_bytes(job->to, text, nbytes, copy, err);
    case VALUE_BIGINT:
        return value_new_bigint(job->to, (const uint8_t *)text, nbytes, copy, err);
    case VALUE_SYMBOL:
        return copy_symbol(job, v, copy, err);
    case VALUE_TENSOR:
        *copy = v;
        if (job->tensor_map != NULL) {
            const uint64_t index = job->tensor_map[value_tensor_index(v)];
            *copy = index == UINT64_MAX ? VALUE_OF_NONE : value_of_tensor(index);
        }
        return FSDPCK_OK;
    default:
        *copy = v;
        return FSDPCK_OK;
    }
}

/* A container of the same kind and size, with items still None. */
static fsdpck_status new_like(struct copy_job *job, value v, value *copy, fsdpck_error *err)
{
    const value_kind kind = value_kind_inline(v);
    size_t count;
    (void)value_items(job->from, v, &count);
    if (kind == VALUE_CALL)
        return value_new_call(job->to, value_call_of(job->from, v), copy, err);
    uint64_t at;
    if (kind == VALUE_TUPLE || kind == VALUE_FROZENSET) {
        RETURN_IF(value_cells_reserve(job->to, count + 1, &at, err));
        *value_cell(job->to, at) = count;
        *copy = value_make(kind, at);
        return FSDPCK_OK;
    }
    RETURN_IF(value_cells_reserve(job->to, VALUE_NODE_CELLS + count, &at, err));
    const uint32_t nitems = (uint32_t)value_count(job->from, v);
    *copy = value_make(kind, at);
    *value_node_of(job->to, *copy) = (value_node){.items_at = at + VALUE_NODE_CELLS,
                                                  .note = value_node_of(job->from, v)->note,
                                                  .count = nitems,
                                                  .capacity = nitems};
    return FSDPCK_OK;
}

static fsdpck_status copy_one(struct copy_job *job, value v, value *copy, fsdpck_error *err)
{
    const value_kind kind = value_kind_inline(v);
    if (!value_has_cells(v) || kind == VALUE_INT || kind == VALUE_FLOAT)
        return copy_leaf(job, v, copy, err);
    bool fresh = false;
    uint64_t *made = value_map_put(job->made, v, &fresh, err);
    if (made == NULL)
        return FSDPCK_LIMIT;
    if (fresh) {
        RETURN_IF(new_like(job, v, made, err));
        RETURN_IF(vec_add(&job->todo, &(struct copy_pair){v, *made}, err));
    }
    *copy = *made;
    return FSDPCK_OK;
}

static fsdpck_status copy_call_parts(struct copy_job *job, struct copy_pair pair, fsdpck_error *err)
{
    const value_call old = *value_call_of(job->from, pair.old);
    value_call fresh = old;
    RETURN_IF(copy_one(job, old.callee, &fresh.callee, err));
    RETURN_IF(copy_one(job, old.args, &fresh.args, err));
    RETURN_IF(copy_one(job, old.kwargs, &fresh.kwargs, err));
    RETURN_IF(copy_one(job, old.list_items, &fresh.list_items, err));
    RETURN_IF(copy_one(job, old.dict_items, &fresh.dict_items, err));
    RETURN_IF(copy_one(job, old.set_items, &fresh.set_items, err));
    fresh.state = VALUE_OF_NONE;
    if (old.has_state)
        RETURN_IF(copy_one(job, old.state, &fresh.state, err));
    *value_call_of(job->to, pair.fresh) = fresh;
    return FSDPCK_OK;
}

static fsdpck_status copy_parts(struct copy_job *job, struct copy_pair pair, fsdpck_error *err)
{
    if (value_kind_inline(pair.old) == VALUE_CALL)
        return copy_call_parts(job, pair, err);
    size_t count;
    const value *items = value_items(job->to, pair.fresh, &count);
    if (count == 0)
        return FSDPCK_OK;
    /* By index, because the cells move while the parts are copied. */
    const uint64_t at = (uint64_t)(items - value_cell(job->to, 0));
    for (size_t i = 0; i < count; i++) {
        value copy = VALUE_OF_NONE;
        RETURN_IF(copy_one(job, value_part(job->from, pair.old, i), &copy, err));
        *value_cell(job->to, at + i) = copy;
    }
    return FSDPCK_OK;
}

fsdpck_status value_copy_shared(const value_pool *from, value v, value_pool *to,
                                const uint64_t *tensor_map, value_map *made, value *copy,
                                fsdpck_error *err)
{
    struct copy_job job = {.from = from,
                           .to = to,
                           .tensor_map = tensor_map,
                           .made = made,
                           .todo = VEC_OF(struct copy_pair, to->owner)};
    value fresh = VALUE_OF_NONE;
    fsdpck_status st = copy_one(&job, v, &fresh, err);
    while (st == FSDPCK_OK && job.todo.count > 0) {
        job.todo.count--;
        st = copy_parts(&job, *VEC_AT(&job.todo, struct copy_pair, job.todo.count), err);
    }
    vec_release(&job.todo);
    if (st == FSDPCK_OK)
        *copy = fresh;
    return st;
}

fsdpck_status value_copy(const value_pool *from, value v, value_pool *to,
                         const uint64_t *tensor_map, value *copy, fsdpck_error *err)
{
    value_map made = VALUE_MAP(to->owner);
    const fsdpck_status st = value_copy_shared(from, v, to, tensor_map, &made, copy, err);
    value_map_release(&made);
    return st;
}
