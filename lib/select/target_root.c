
#include "base/text.h"
#include "select/nest.h"
#include "select/select_internal.h"
#include "state/saved_order.h"
#include "state/tensor_rank_suffix.h"

/* A state that is rebuilt, and how many keys before the others all of its leaves have lost (--strip-prefix). */
typedef struct rebuilt {
    nest n;
    value prefix; /* path of a leaf in the source */
    size_t depth;
    value whole; /* a state without keys: a tensor, or an object that is no dict */
    bool is_begun, differs, is_whole;
} rebuilt;

static void note_prefix(rebuilt *b, const value_pool *pool, value path, size_t depth)
{
    if (!b->is_begun) {
        b->prefix = path;
        b->depth = depth;
        b->is_begun = true;
    }
    b->differs = b->differs || depth != b->depth;
    for (size_t i = 0; !b->differs && i < depth; i++)
        b->differs = value_item(pool, path, i) != value_item(pool, b->prefix, i);
}

/* The key of a rank's own tensor, without the rank. */
static fsdpck_status drop_rank(value_pool *pool, value *key, fsdpck_error *err)
{
    text_buf text = {.limit_bytes = UINT32_MAX};
    size_t nbytes;
    if (value_kind_of(*key) != VALUE_STR)
        return FSDPCK_OK;
    const char *name = value_text(pool, *key, &nbytes);
    text_append(&text, name, name_without_rank(name, nbytes));
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = value_new_str(pool, text.text == NULL ? "" : text.text, text.nbytes, key, err);
    text_release(&text);
    return st;
}

/* Whether this leaf is the whole state of the source: its path has no keys. */
static bool is_whole_state(const select_state *a, value path)
{
    return !value_is_none(path) && value_count(&a->from->pool, path) == 0;
}

/* The keys of a second leaf would have no place. */
static fsdpck_status check_whole(const rebuilt *b, bool is_whole, fsdpck_error *err)
{
    if (b->is_whole || (is_whole && b->n.slots.count > 0))
        return FAIL_WITH(
            err, BADINPUT, KEY_NEST,
            ("the state has keys on one rank, and is a single value on another"),
            (next, "check that all files are from one save, or read one of them alone"));
    return FSDPCK_OK;
}

static fsdpck_status put_whole(const select_state *a, rebuilt *b, value leaf, fsdpck_error *err)
{
    RETURN_IF(check_whole(b, true, err));
    if (value_is_none(leaf))
        return FAIL_WITH(
            err, UNSUPPORTED, KEY_LIST,
            ("the state is None, but format '%s' requires a value", a->request->format),
            (next, "check the program that saved it: the files hold no data"));
    b->whole = leaf;
    b->is_whole = true;
    return FSDPCK_OK;
}

/* Under the path that the leaf has in the source, too. */
static fsdpck_status put_leaf(const select_state *a, rebuilt *b, const target_path *p, value path,
                              bool is_of_rank, value leaf, fsdpck_error *err)
{
    value like[SELECT_PATH_MAX];
    value_pool *pool = &a->from->pool;
    const size_t count = value_is_none(path) ? 0 : value_count(pool, path);
    RETURN_IF(check_whole(b, false, err));
    if (count < p->count) {
        note_prefix(b, pool, path, 0);
        return nest_put(&b->n, p->elements, p->count, leaf, err);
    }
    const size_t depth = count - p->count;
    note_prefix(b, pool, path, depth);
    for (size_t i = 0; i < p->count; i++)
        like[i] = value_item(pool, path, depth + i);
    if (is_of_rank && p->count > 0)
        RETURN_IF(drop_rank(pool, &like[p->count - 1], err));
    return nest_put_like(&b->n, p->elements, p->count, leaf, like, p->count, err);
}

/* The source's container whose keys the root has; None: there is none. */
static value like_of_root(const select_state *a, const rebuilt *b)
{
    value_pool *pool = &a->from->pool;
    value at = value_is_none(a->from->root) ? a->from->like : a->from->root;
    for (size_t i = 0; !b->differs && i < b->depth; i++) {
        size_t nbytes;
        const value key = value_item(pool, b->prefix, i);
        value dict;
        if (value_kind_of(key) != VALUE_STR || !value_as_dict(pool, at, &dict) ||
            !value_dict_find(pool, dict, value_text(pool, key, &nbytes), &at))
            return VALUE_OF_NONE;
    }
    return at;
}

static fsdpck_status put_tensor(select_state *a, rebuilt *b, const select_pick *pick, uint64_t rank,
                                fsdpck_error *err)
{
    const uint16_t own = select_only_rank(a, pick);
    if (pick->target == CAT_NONE || (own != UINT16_MAX && own != rank))
        return FSDPCK_OK;
    const char *name = strtab_text(&a->names, pick->name);
    size_t nbytes = strtab_nbytes(&a->names, pick->name);
    if (own != UINT16_MAX)
        nbytes = name_without_rank(name, nbytes);
    const cat_tensor *t = catalogue_tensor(a->from, pick->source);
    const value leaf = value_of_tensor(pick->target);
    const bool is_whole =
        is_whole_state(a, t->path) &&
        text_equal(strtab_text(&a->names, pick->name), strtab_nbytes(&a->names, pick->name),
                   catalogue_name(a->from, t->name), catalogue_name_nbytes(a->from, t->name));
    target_path p;
    RETURN_IF(target_path_copy(a, t->path, t->name,
                               (checkpoint_part)a->parts->tensor_part[pick->source], &p, err));
    RETURN_IF(target_path_fit(a, name, nbytes, pick->marks, &p, err));
    const fsdpck_status st = is_whole ? put_whole(a, b, leaf, err)
                                      : put_leaf(a, b, &p, t->path, own != UINT16_MAX, leaf, err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(a->from, t->name));
    return st;
}

static fsdpck_status put_object(select_state *a, rebuilt *b, size_t k, uint64_t rank,
                                fsdpck_error *err)
{
    const cat_object *o = catalogue_object(a->from, *VEC_AT(&a->objects, uint32_t, k));
    target_path p;
    value content;
    if (o->rank != UINT16_MAX && o->rank != rank)
        return FSDPCK_OK;
    RETURN_IF(select_object_path(a, k, &p, err));
    RETURN_IF(select_object_content(a, k, &content, err));
    const fsdpck_status st = p.count == 0 ? put_whole(a, b, content, err)
                                          : put_leaf(a, b, &p, o->path, false, content, err);
    if (st != FSDPCK_OK)
        error_tensor(err, catalogue_name(a->from, o->name));
    return st;
}

/* Lists the leaves of the state in the order of the save. If the order is unknown, tensors come first
 * within one container. */
static fsdpck_status list_leaves(const select_state *a, vec *leaves, fsdpck_error *err)
{
    const size_t tensors = a->picks.count, count = tensors + a->objects.count;
    saved_item *items = vec_push_n(leaves, count, err);
    if (items == NULL && count > 0)
        return FSDPCK_LIMIT;
    for (size_t k = 0; k < tensors; k++) {
        const select_pick *pick = VEC_AT(&a->picks, const select_pick, k);
        items[k] = (saved_item){.saved_at = catalogue_tensor(a->from, pick->source)->saved_at,
                                .index = (uint32_t)k};
    }
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t object = *VEC_AT(&a->objects, uint32_t, k);
        items[tensors + k] = (saved_item){.saved_at = catalogue_object(a->from, object)->saved_at,
                                          .index = (uint32_t)k,
                                          .is_object = true};
    }
    saved_order_sort(items, count);
    return FSDPCK_OK;
}

static fsdpck_status build_from_paths(select_state *a, uint64_t rank, value *root,
                                      fsdpck_error *err)
{
    vec leaves = VEC_OF(saved_item, a->from->owner);
    value_map kept = VALUE_MAP(a->from->owner);
    rebuilt b = {.differs = false};
    fsdpck_status st;
    GOTO_IF(nest_init(&b.n, &a->to->cat.pool, err), out);
    GOTO_IF(list_leaves(a, &leaves, err), out);
    for (size_t k = 0; k < leaves.count; k++) {
        const saved_item *leaf = VEC_AT(&leaves, const saved_item, k);
        if (leaf->is_object)
            GOTO_IF(put_object(a, &b, leaf->index, rank, err), out);
        else
            GOTO_IF(put_tensor(a, &b, VEC_AT(&a->picks, select_pick, leaf->index), rank, err), out);
    }
    if (b.is_whole) {
        *root = b.whole;
        goto out;
    }
    GOTO_IF(select_check_lists(a, &b.n, rank, err), out);
    if (a->from->origin.omits_empty_dicts)
        GOTO_IF(nest_fill_holes(&b.n, err), out);
    *root = b.n.root;
    if (b.differs)
        nest_forget_likes(&b.n);
    const value like = like_of_root(a, &b);
    if (!value_is_none(like))
        GOTO_IF(nest_restore(&b.n, &a->from->pool, like, root, &kept, err), out);
    if (rank == UINT64_MAX || rank == 0)
        GOTO_IF(select_find_lost_attributes(a, &kept, err), out);
out:
    value_map_release(&kept);
    vec_release(&leaves);
    nest_release(&b.n);
    return st;
}

/* One root per rank: only small objects are duplicated, as tensors are numbers. */
static fsdpck_status build_rank_roots(select_state *a, fsdpck_error *err)
{
    for (uint64_t rank = 0; rank < a->to->world_size; rank++) {
        value *root = vec_push(&a->to->rank_roots, err);
        if (root == NULL)
            return FSDPCK_LIMIT;
        RETURN_IF(build_from_paths(a, rank, root, err));
    }
    a->to->root = *VEC_AT(&a->to->rank_roots, value, 0);
    return FSDPCK_OK;
}

/* The source's own. Objects that have tensors of their own are copied first. */
static fsdpck_status copy_root(select_state *a, fsdpck_error *err)
{
    const value_pool *pool = &a->from->pool;
    value_map made = VALUE_MAP(a->from->owner);
    fsdpck_status st = FSDPCK_OK;
    for (size_t k = 0; a->has_own_inner && k < a->objects.count; k++) {
        const uint32_t object = *VEC_AT(&a->objects, const uint32_t, k);
        const value content = catalogue_object(a->from, object)->content;
        value copy;
        GOTO_IF(select_object_content(a, k, &copy, err), out);
        if (value_is_none(content))
            continue;
        uint64_t *slot = value_map_put(&made, content, NULL, err);
        GOTO_IF(slot == NULL ? FSDPCK_LIMIT : FSDPCK_OK, out);
        *slot = copy;
    }
    st = value_copy_shared(pool, a->from->root, &a->to->cat.pool, a->tensor_map, &made,
                           &a->to->root, err);
out:
    value_map_release(&made);
    return st;
}

fsdpck_status select_build_root(select_state *a, fsdpck_error *err)
{
    for (size_t k = 0; k < a->picks.count; k++)
        if (select_only_rank(a, VEC_AT(&a->picks, const select_pick, k)) != UINT16_MAX)
            return build_rank_roots(a, err);
    for (size_t k = 0; k < a->objects.count; k++) {
        const uint32_t object = *VEC_AT(&a->objects, uint32_t, k);
        if (catalogue_object(a->from, object)->rank != UINT16_MAX)
            return build_rank_roots(a, err);
    }
    if (!value_is_none(a->from->root) && select_is_everything(a))
        return copy_root(a, err);
    return build_from_paths(a, UINT64_MAX, &a->to->root, err);
}
