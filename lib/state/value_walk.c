#include "state/value.h"
#include "state/value_cells.h"
#include "state/value_map.h"

size_t value_part_count(const value_pool *p, value v)
{
    size_t count;
    if (value_kind_inline(v) == VALUE_CALL)
        return VALUE_CALL_PARTS;
    (void)value_items(p, v, &count);
    return count;
}

value value_part(const value_pool *p, value v, size_t i)
{
    const value_call *call = value_call_of(p, v);
    if (call == NULL) {
        size_t count;
        const value *cells = value_items(p, v, &count);
        return i < count ? cells[i] : VALUE_OF_NONE;
    }
    switch (i) {
    case 0:
        return call->callee;
    case 1:
        return call->args;
    case 2:
        return call->kwargs;
    case 3:
        return call->list_items;
    case 4:
        return call->dict_items;
    case 5:
        return call->set_items;
    default:
        return call->has_state ? call->state : VALUE_OF_NONE;
    }
}

/* A container or call whose parts are being visited. */
struct step {
    value v;
    size_t next;
};

struct walk {
    vec path; /* struct step */
    value_map seen;
    value_visit_fn fn;
    void *ctx;
};

static fsdpck_status visit(struct walk *w, const value_pool *p, value v, fsdpck_error *err)
{
    const size_t parts = value_part_count(p, v);
    if (parts > 0 || value_kind_inline(v) == VALUE_LIST || value_kind_inline(v) == VALUE_DICT ||
        value_kind_inline(v) == VALUE_SET) {
        bool fresh = false;
        if (value_map_put(&w->seen, v, &fresh, err) == NULL)
            return FSDPCK_LIMIT;
        if (!fresh)
            return FSDPCK_OK;
    }
    RETURN_IF(w->fn(w->ctx, v, err));
    if (parts == 0)
        return FSDPCK_OK;
    struct step *step = vec_push(&w->path, err);
    if (step == NULL)
        return FSDPCK_LIMIT;
    step->v = v;
    return FSDPCK_OK;
}

/* Missing parts of a call would otherwise be visited as None. */
static bool part_is_absent(const value_pool *p, value v, size_t i, value part)
{
    if (part != VALUE_OF_NONE || value_kind_inline(v) != VALUE_CALL)
        return false;
    return i != VALUE_CALL_PARTS - 1 || !value_call_of(p, v)->has_state;
}

fsdpck_status value_walk(const value_pool *p, value root, value_visit_fn fn, void *ctx,
                         fsdpck_error *err)
{
    struct walk w = {
        .path = VEC_OF(struct step, p->owner), .seen = VALUE_MAP(p->owner), .fn = fn, .ctx = ctx};
    fsdpck_status st = visit(&w, p, root, err);
    while (st == FSDPCK_OK && w.path.count > 0) {
        struct step *top = VEC_AT(&w.path, struct step, w.path.count - 1);
        if (top->next == value_part_count(p, top->v)) {
            w.path.count--;
            continue;
        }
        const size_t i = top->next++;
        const value part = value_part(p, top->v, i);
        if (!part_is_absent(p, top->v, i, part))
            st = visit(&w, p, part, err);
    }
    vec_release(&w.path);
    value_map_release(&w.seen);
    return st;
}
