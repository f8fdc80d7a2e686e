#include <string.h>

#include "state/python_names.h"
#include "state/value.h"
#include "state/value_cells.h"
#include "state/value_map.h"

/* Bisimulation: two values are assumed equal until a difference is found. Assumed pairs are kept as
 * a forest (union-find over the handles of both sides). Hence no pair is compared twice, and the
 * number of comparisons is at most the number of containers, however they are shared. */
struct pair {
    value a;
    value b;
};

/* Kinds use few of the 8 bits. */
#define SIDE_B (UINT64_C(1) << 63)

struct equal_job {
    const value_pool *p;
    const value_pool *q;
    value_map parents; /* handle, with its side in SIDE_B -> the same of its parent */
    vec todo;          /* struct pair */
    bool in_json;      /* tuples are lists */
};

static value_kind kind_in(const struct equal_job *job, value v)
{
    const value_kind kind = value_kind_inline(v);
    return job->in_json && kind == VALUE_TUPLE ? VALUE_LIST : kind;
}

static bool texts_equal(const strtab *s, uint32_t a, const strtab *t, uint32_t b)
{
    return strtab_is(s, a, strtab_text(t, b), strtab_nbytes(t, b));
}

/* _functools.reduce and functools.reduce have one old name: so there and back. False: a text holds a
 * zero byte, and no such symbol was renamed. */
static bool names_of(const value_pool *p, value v, const char **module, const char **name)
{
    *module = value_symbol_module(p, v);
    *name = value_symbol_name(p, v);
    if (strlen(*module) + strlen(*name) + 5 !=
        strtab_nbytes(&p->strings, (uint32_t)value_payload(v)))
        return false;
    python2_names(module, name);
    python3_names(module, name);
    return true;
}

static bool symbols_equal(const struct equal_job *job, value a, value b)
{
    const char *modules[2];
    const char *names[2];
    if (texts_equal(&job->p->strings, (uint32_t)value_payload(a), &job->q->strings,
                    (uint32_t)value_payload(b)))
        return true;
    return names_of(job->p, a, &modules[0], &names[0]) &&
           names_of(job->q, b, &modules[1], &names[1]) && strcmp(modules[0], modules[1]) == 0 &&
           strcmp(names[0], names[1]) == 0;
}

/* Values of one kind without parts. */
static bool leaves_equal(const struct equal_job *job, value a, value b)
{
    int64_t i = 0;
    int64_t k = 0;
    double x = 0;
    double y = 0;
    switch (value_kind_inline(a)) {
    case VALUE_INT:
        return value_as_i64(job->p, a, &i) && value_as_i64(job->q, b, &k) && i == k;
    case VALUE_FLOAT:
        return value_as_double(job->p, a, &x) && value_as_double(job->q, b, &y) &&
               memcmp(&x, &y, sizeof(x)) == 0;
    case VALUE_STR:
    case VALUE_BYTES:
    case VALUE_BIGINT:
        return texts_equal(&job->p->strings, (uint32_t)value_payload(a), &job->q->strings,
                           (uint32_t)value_payload(b));
    case VALUE_SYMBOL:
        return symbols_equal(job, a, b);
    default:
        return a == b;
    }
}

static bool is_container(value v)
{
    switch (value_kind_inline(v)) {
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_SET:
    case VALUE_FROZENSET:
    case VALUE_CALL:
        return true;
    default:
        return false;
    }
}

/* The root of a handle's tree, with path halving. */
static fsdpck_status find_root(struct equal_job *job, uint64_t v, uint64_t *root, fsdpck_error *err)
{
    bool fresh = false;
    uint64_t *parent = value_map_put(&job->parents, v, &fresh, err);
    if (parent == NULL)
        return FSDPCK_LIMIT;
    if (fresh)
        *parent = v;
    while (*parent != v) {
        uint64_t *above = value_map_find(&job->parents, *parent);
        v = *parent;
        *parent = *above;
        parent = above;
    }
    *root = v;
    return FSDPCK_OK;
}

/* Joins the trees of a pair; *known if they were joined already. */
static fsdpck_status join(struct equal_job *job, value a, value b, bool *known, fsdpck_error *err)
{
    uint64_t x;
    uint64_t y;
    RETURN_IF(find_root(job, a, &x, err));
    RETURN_IF(find_root(job, b | SIDE_B, &y, err));
    *known = x == y;
    if (!*known)
        *value_map_find(&job->parents, y) = x;
    return FSDPCK_OK;
}

/* Where the parts of a call are that holds its pairs: see value_walk. */
enum { PART_ARGS = 1, PART_DICT_ITEMS = 4 };

static bool is_filled(const value_pool *p, value v)
{
    return value_kind_inline(v) == VALUE_DICT && value_count(p, v) > 0;
}

/* A pickle has the pairs of an OrderedDict or a Counter as items or as an argument, also if there are none. */
static value part_of(const value_pool *p, value v, size_t i)
{
    const value_call *call = value_call_of(p, v);
    const value part = value_part(p, v, i);
    if (call == NULL || (i != PART_ARGS && i != PART_DICT_ITEMS) ||
        !value_is_dict_class(p, call->callee))
        return part;
    const value first = value_item(p, call->args, 0);
    const bool has_items = is_filled(p, call->dict_items);
    const bool is_pairs = value_kind_inline(first) == VALUE_DICT ||
                          (value_kind_inline(first) == VALUE_LIST && value_count(p, first) == 0);
    if (!is_pairs || value_count(p, call->args) > 1 || (has_items && is_filled(p, first)))
        return i == PART_DICT_ITEMS && !has_items ? VALUE_OF_NONE : part;
    if (i == PART_ARGS)
        return value_make(VALUE_TUPLE, VALUE_NO_CELLS);
    return has_items ? part : is_filled(p, first) ? first : VALUE_OF_NONE;
}

/* Compares kinds and sizes; adds the parts to the list of pairs to compare. */
static fsdpck_status compare(struct equal_job *job, struct pair pair, bool *equal,
                             fsdpck_error *err)
{
    *equal = false;
    if (kind_in(job, pair.a) != kind_in(job, pair.b))
        return FSDPCK_OK;
    if (!is_container(pair.a)) {
        *equal = leaves_equal(job, pair.a, pair.b);
        return FSDPCK_OK;
    }
    const size_t count = value_part_count(job->p, pair.a);
    if (count != value_part_count(job->q, pair.b))
        return FSDPCK_OK;
    const value_call *call = value_call_of(job->p, pair.a);
    const value_call *other = value_call_of(job->q, pair.b);
    if (call != NULL && (call->how != other->how || call->has_state != other->has_state))
        return FSDPCK_OK;
    *equal = true;
    bool known = false;
    RETURN_IF(join(job, pair.a, pair.b, &known, err));
    if (known)
        return FSDPCK_OK;
    for (size_t i = count; i > 0; i--) {
        RETURN_IF(vec_add(
            &job->todo,
            &(struct pair){part_of(job->p, pair.a, i - 1), part_of(job->q, pair.b, i - 1)}, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status run(const value_pool *p, value a, const value_pool *q, value b, bool in_json,
                         bool *equal, fsdpck_error *err)
{
    struct equal_job job = {.p = p,
                            .q = q,
                            .parents = VALUE_MAP(p->owner),
                            .todo = VEC_OF(struct pair, p->owner),
                            .in_json = in_json};
    bool same = true;
    fsdpck_status st = compare(&job, (struct pair){a, b}, &same, err);
    while (st == FSDPCK_OK && same && job.todo.count > 0) {
        job.todo.count--;
        st = compare(&job, *VEC_AT(&job.todo, struct pair, job.todo.count), &same, err);
    }
    vec_release(&job.todo);
    value_map_release(&job.parents);
    if (st == FSDPCK_OK)
        *equal = same;
    return st;
}

fsdpck_status value_equal(const value_pool *p, value a, const value_pool *q, value b, bool *equal,
                          fsdpck_error *err)
{
    return run(p, a, q, b, false, equal, err);
}

fsdpck_status value_equal_in_json(const value_pool *p, value a, const value_pool *q, value b,
                                  bool *equal, fsdpck_error *err)
{
    return run(p, a, q, b, true, equal, err);
}
