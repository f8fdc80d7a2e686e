#include <inttypes.h>
#include <string.h>

#include "aim/aim_internal.h"
#include "aim/nest.h"
#include "model/fqn.h"

/* Deepest path that is rebuilt; torch's own flattening recurses and so stays far below. */
#define PATH_MAX_ELEMENTS 64u

/* A path as values of the target's pool. */
typedef struct new_path {
    value elements[PATH_MAX_ELEMENTS];
    size_t count;
} new_path;

static fsdpck_status put_text(aim_state *a, new_path *p, const char *text, size_t nbytes,
                              fsdpck_error *err)
{
    if (p->count == PATH_MAX_ELEMENTS)
        return error_set(err, FSDPCK_LIMIT, "KEY-NEST", "path has more than %u elements",
                         PATH_MAX_ELEMENTS);
    return value_new_str(&a->to->cat.pool, text, nbytes, &p->elements[p->count++], err);
}

/* The path as the source has it, wrapper parts cleaned where that is asked for. */
static fsdpck_status copy_path(aim_state *a, value path, uint32_t name, bool is_model, new_path *p,
                               fsdpck_error *err)
{
    const catalogue *c = a->from;
    p->count = 0;
    if (value_is_none(path))
        return put_text(a, p, catalogue_name(c, name), catalogue_name_nbytes(c, name), err);
    text_buf cleaned = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < value_count(&c->pool, path); i++) {
        const value v = value_item(&c->pool, path, i);
        int64_t index;
        if (value_as_i64(&c->pool, v, &index)) {
            if (p->count == PATH_MAX_ELEMENTS)
                GOTO_IF(put_text(a, p, "", 0, err), out);
            GOTO_IF(value_new_int(&a->to->cat.pool, index, &p->elements[p->count++], err), out);
            continue;
        }
        size_t nbytes;
        const char *text = value_text(&c->pool, v, &nbytes);
        if (a->request->clean) {
            cleaned.nbytes = 0;
            fqn_clean(text, nbytes,
                      is_model && i == a->parts->model_depth && a->parts->model_has_ddp, &cleaned);
            GOTO_IF(text_check(&cleaned, err), out);
            text = cleaned.text;
            nbytes = cleaned.nbytes;
        }
        GOTO_IF(put_text(a, p, text, nbytes, err), out);
    }
out:
    text_release(&cleaned);
    return st;
}

static void append_element(const value_pool *pool, value v, text_buf *out)
{
    int64_t index;
    size_t nbytes;
    if (value_as_i64(pool, v, &index)) {
        text_printf(out, "%" PRId64, index);
    } else {
        const char *text = value_text(pool, v, &nbytes);
        text_append(out, text, nbytes);
    }
}

/* Fits the path to the final name: outer elements that the name still begins with are kept, what
 * remains of the name is the last key. */
static fsdpck_status fit_path(aim_state *a, const char *name, size_t nbytes, new_path *p,
                              fsdpck_error *err)
{
    const value_pool *pool = &a->to->cat.pool;
    text_buf joined = {0};
    size_t keep = 0, keep_nbytes = 0;
    bool is_list_next = false;
    for (size_t i = 0; i < p->count; i++) {
        append_element(pool, p->elements[i], &joined);
        const bool last = i + 1 == p->count;
        if (last && joined.nbytes == nbytes && memcmp(joined.text, name, nbytes) == 0) {
            text_release(&joined);
            return FSDPCK_OK;
        }
        text_append(&joined, ".", 1);
        is_list_next = !last && value_kind_of(p->elements[i + 1]) == VALUE_INT;
        if (last || joined.failed || joined.nbytes >= nbytes ||
            memcmp(joined.text, name, joined.nbytes) != 0)
            break;
        if (!is_list_next) {
            keep = i + 1;
            keep_nbytes = joined.nbytes;
        }
    }
    const fsdpck_status st = text_check(&joined, err);
    text_release(&joined);
    if (st != FSDPCK_OK)
        return st;
    p->count = keep;
    return put_text(a, p, name + keep_nbytes, nbytes - keep_nbytes, err);
}

static fsdpck_status put_tensor(aim_state *a, nest *n, const aim_pick *pick, fsdpck_error *err)
{
    if (pick->target == CAT_NONE)
        return FSDPCK_OK;
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    new_path p;
    RETURN_IF(
        copy_path(a, t->path, t->name, a->parts->tensor_part[pick->source] == PART_MODEL, &p, err));
    RETURN_IF(fit_path(a, strtab_text(&a->names, pick->name), strtab_nbytes(&a->names, pick->name),
                       &p, err));
    const fsdpck_status st = nest_put(n, p.elements, p.count, value_of_tensor(pick->target), err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(a->from, t->name));
    return st;
}

static fsdpck_status put_object(aim_state *a, nest *n, uint32_t object, fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, object);
    new_path p;
    RETURN_IF(copy_path(a, o->path, o->name, a->parts->object_part[object] == PART_MODEL, &p, err));
    value content;
    RETURN_IF(
        value_copy(&a->from->pool, o->content, &a->to->cat.pool, a->tensor_map, &content, err));
    const fsdpck_status st = nest_put(n, p.elements, p.count, content, err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(a->from, o->name));
    return st;
}

/* Whether every tensor and object goes under its own name: then the source's own nesting serves. */
static bool takes_everything(const aim_state *a)
{
    const aim_result *r = a->result;
    if (r->left_out_tensors > 0 || r->left_out_objects > 0 || r->tied_dropped > 0)
        return false;
    for (size_t k = 0; k < a->picks.count; k++) {
        const aim_pick *pick = VEC_AT(&a->picks, aim_pick, k);
        const cat_tensor *t = catalogue_tensor(a->from, pick->source);
        const size_t nbytes = strtab_nbytes(&a->names, pick->name);
        if (nbytes != catalogue_name_nbytes(a->from, t->name) ||
            memcmp(strtab_text(&a->names, pick->name), catalogue_name(a->from, t->name), nbytes) !=
                0)
            return false;
    }
    return true;
}

/* Tensors and objects as they follow each other in the source: torch builds its dicts from
 * planner_data in that order, but readers keep tensors and objects apart, so tensors come first
 * within one container. */
static fsdpck_status build_from_paths(aim_state *a, fsdpck_error *err)
{
    nest n;
    fsdpck_status st;
    GOTO_IF(nest_init(&n, &a->to->cat.pool, err), out);
    for (size_t k = 0; k < a->picks.count; k++)
        GOTO_IF(put_tensor(a, &n, VEC_AT(&a->picks, aim_pick, k), err), out);
    for (size_t k = 0; k < a->objects.count; k++)
        GOTO_IF(put_object(a, &n, *VEC_AT(&a->objects, uint32_t, k), err), out);
    a->to->root = n.root;
out:
    nest_release(&n);
    return st;
}

fsdpck_status aim_build_root(aim_state *a, fsdpck_error *err)
{
    if (!value_is_none(a->from->root) && takes_everything(a))
        return value_copy(&a->from->pool, a->from->root, &a->to->cat.pool, a->tensor_map,
                          &a->to->root, err);
    return build_from_paths(a, err);
}
