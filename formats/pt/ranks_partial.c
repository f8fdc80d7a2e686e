/* Finds entries of dicts and lists that only some ranks hold. The merged state gives them to all,
 * unless the rule for copies keeps or omits them.
 * Parts of a model or its optimizer are excepted: pipeline stages and local experts differ in names
 * by intent. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "formats/pt/ranks_internal.h"

typedef struct partial_search {
    ranks_state *s;
    strtab places; /* containers and their entries, as printed paths */
    vec most;      /* uint32_t by place: most ranks that hold one value below it */
    strtab groups; /* outer dicts that hold sharded tensors */
    vec has_model; /* bool by family: a model is below its own key */
    strtab empty;  /* places of empty containers and None that only some ranks hold */
    vec empties;   /* uint32_t, by place in `empty`: their entries */
    text_buf text;
} partial_search;

static bool is_sharded(const ranks_tensor *t)
{
    return t->kind == RANKS_DTENSOR || t->kind == RANKS_SHARDED;
}

static value path_of(const ranks_state *s, const ranks_tensor *t)
{
    if (t->index == CAT_NONE)
        return VALUE_OF_NONE;
    return t->kind == RANKS_OBJECT ? VEC_AT(&s->objects, const ranks_object, t->index)->path
                                   : catalogue_tensor(s->cat, t->index)->path;
}

static uint32_t family_number(const ranks_state *s, const ranks_tensor *t)
{
    return VEC_AT(&s->list->files, const ranks_file, t->first_file)->family;
}

static const ranks_family *family_at(const ranks_state *s, const ranks_tensor *t)
{
    return VEC_AT(&s->list->families, const ranks_family, family_number(s, t));
}

static uint64_t files_of(const ranks_state *s, const ranks_tensor *t)
{
    const uint32_t family = VEC_AT(&s->list->files, const ranks_file, t->first_file)->family;
    uint64_t count = 0;
    for (size_t i = 0; i < s->list->files.count; i++)
        count += VEC_AT(&s->list->files, const ranks_file, i)->family == family;
    return count;
}

/* The first `count` elements of a path, as a key of a table. */
static fsdpck_status print_place(partial_search *x, value path, size_t count, fsdpck_error *err)
{
    const value_pool *pool = &x->s->cat->pool;
    x->text.nbytes = 0;
    for (size_t i = 0; i < count; i++) {
        value_print(pool, value_item(pool, path, i), 4096, &x->text);
        text_append(&x->text, "\n", 1);
    }
    return text_check(&x->text, err);
}

/* --- the model and the optimizer --- */

static bool is_model_key(const char *text, size_t nbytes)
{
    static const char *const keys[] = {"model",       "module",          "state_dict",
                                       "model_state", "network_weights", "model_state_dict"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i]) == nbytes && memcmp(keys[i], text, nbytes) == 0)
            return true;
    return (nbytes >= 5 && memcmp(text, "optim", 5) == 0) ||
           (nbytes == 12 && memcmp(text, "param_groups", 12) == 0);
}

/* Number of path elements that are an outer dict: a generic family's key, "app" or "state" may be
 * above it. */
static size_t outer_depth(const ranks_state *s, const ranks_tensor *t, value path)
{
    const value_pool *pool = &s->cat->pool;
    const ranks_family *f = family_at(s, t);
    const value first = value_item(pool, path, 0);
    const bool wrapped = (f->key[0] != '\0' && f->trainer[0] == '\0') ||
                         value_is_str(pool, first, "app") || value_is_str(pool, first, "state");
    return wrapped && value_count(pool, path) > 2 ? 2 : 1;
}

static fsdpck_status is_of_model(partial_search *x, const ranks_tensor *t, value path, bool *yes,
                                 fsdpck_error *err)
{
    const value_pool *pool = &x->s->cat->pool;
    const size_t count = value_count(pool, path), depth = outer_depth(x->s, t, path);
    size_t nbytes = 0;

    *yes = true;
    for (size_t i = 0; i < depth; i++) {
        const value v = value_item(pool, path, i);
        const char *text = value_kind_of(v) == VALUE_STR ? value_text(pool, v, &nbytes) : NULL;
        if (text != NULL && is_model_key(text, nbytes))
            return FSDPCK_OK;
    }
    /* A state dict without an outer key; a module's extra state is an object. */
    const bool is_bare = !*VEC_AT(&x->has_model, const bool, family_number(x->s, t));
    const value last = value_item(pool, path, count - 1);
    const char *text = value_kind_of(last) == VALUE_STR ? value_text(pool, last, &nbytes) : NULL;
    if (count == 1 && ((t->kind == RANKS_PLAIN && is_bare) ||
                       (text != NULL && text_ends_with(text, nbytes, "_extra_state"))))
        return FSDPCK_OK;
    *yes = false;
    if (count == 1)
        return FSDPCK_OK;
    RETURN_IF(print_place(x, path, depth, err));
    *yes = strtab_find(&x->groups, x->text.text, x->text.nbytes) != STRTAB_NONE;
    return FSDPCK_OK;
}

static void note_model(partial_search *x, const ranks_tensor *t)
{
    const value_pool *pool = &x->s->cat->pool;
    const value path = path_of(x->s, t);
    const value first = value_is_none(path) || value_count(pool, path) < 2
                            ? VALUE_OF_NONE
                            : value_item(pool, path, 0);
    size_t nbytes = 0;
    const char *text = value_kind_of(first) == VALUE_STR ? value_text(pool, first, &nbytes) : NULL;
    if (text != NULL && t->kind != RANKS_OBJECT && is_model_key(text, nbytes))
        *VEC_AT(&x->has_model, bool, family_number(x->s, t)) = true;
}

static fsdpck_status note_group(partial_search *x, const ranks_tensor *t, fsdpck_error *err)
{
    const value path = path_of(x->s, t);
    uint32_t id;
    if (!is_sharded(t) || value_count(&x->s->cat->pool, path) < 2)
        return FSDPCK_OK;
    RETURN_IF(print_place(x, path, outer_depth(x->s, t, path), err));
    return strtab_intern(&x->groups, x->text.text, x->text.nbytes, &id, err);
}

/* --- lists --- */

static fsdpck_status note_place(partial_search *x, value path, size_t count, uint32_t ranks,
                                fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(print_place(x, path, count, err));
    RETURN_IF(strtab_intern(&x->places, x->text.text == NULL ? "" : x->text.text, x->text.nbytes,
                            &id, err));
    if (id == x->most.count && vec_push_n(&x->most, 1, err) == NULL)
        return FSDPCK_LIMIT;
    uint32_t *most = VEC_AT(&x->most, uint32_t, id);
    *most = ranks > *most ? ranks : *most;
    return FSDPCK_OK;
}

static uint32_t most_at(const partial_search *x)
{
    const uint32_t id =
        strtab_find(&x->places, x->text.text == NULL ? "" : x->text.text, x->text.nbytes);
    return id == STRTAB_NONE ? 0 : *VEC_AT(&x->most, const uint32_t, id);
}

static fsdpck_status note_lists(partial_search *x, const ranks_tensor *t, fsdpck_error *err)
{
    const value_pool *pool = &x->s->cat->pool;
    const value path = path_of(x->s, t);
    for (size_t i = 0; i < value_count(pool, path); i++) {
        if (value_kind_of(value_item(pool, path, i)) != VALUE_INT)
            continue;
        RETURN_IF(note_place(x, path, i, t->rank_count, err));
        RETURN_IF(note_place(x, path, i + 1, t->rank_count, err));
    }
    return FSDPCK_OK;
}

/* Whether a list above the value has other lengths on other ranks. */
static fsdpck_status is_past_end(partial_search *x, value path, bool *yes, fsdpck_error *err)
{
    const value_pool *pool = &x->s->cat->pool;
    *yes = false;
    for (size_t i = 0; !*yes && i < value_count(pool, path); i++) {
        if (value_kind_of(value_item(pool, path, i)) != VALUE_INT)
            continue;
        RETURN_IF(print_place(x, path, i, err));
        const uint32_t of_list = most_at(x);
        RETURN_IF(print_place(x, path, i + 1, err));
        *yes = most_at(x) < of_list;
    }
    return FSDPCK_OK;
}

/* --- empty values --- */

static bool is_empty(ranks_state *s, const ranks_tensor *t)
{
    if (t->kind != RANKS_OBJECT || t->index == CAT_NONE || t->rank_count == files_of(s, t))
        return false;
    const ranks_object *o = VEC_AT(&s->objects, const ranks_object, t->index);
    const ranks_variant *first = VEC_AT(&s->variants, const ranks_variant, o->first_variant);
    const value_kind kind = value_kind_of(first->content);
    value items = first->content;
    if (o->differs || first->piece_count > 0)
        return false;
    if (kind == VALUE_NONE)
        return true;
    return (kind == VALUE_LIST || kind == VALUE_TUPLE ||
            value_as_dict(&s->pool, first->content, &items)) &&
           value_count(&s->pool, items) == 0;
}

static fsdpck_status note_empty(partial_search *x, uint32_t entry, fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&x->s->tensors, const ranks_tensor, entry);
    const value path = path_of(x->s, t);
    uint32_t id;
    if (!is_empty(x->s, t) || value_is_none(path) || value_count(&x->s->cat->pool, path) == 0)
        return FSDPCK_OK;
    RETURN_IF(print_place(x, path, value_count(&x->s->cat->pool, path), err));
    RETURN_IF(strtab_intern(&x->empty, x->text.text, x->text.nbytes, &id, err));
    uint32_t *slot = id == x->empties.count ? vec_push(&x->empties, err) : NULL;
    if (slot == NULL)
        return id < x->empties.count ? FSDPCK_OK : FSDPCK_LIMIT;
    *slot = entry;
    return FSDPCK_OK;
}

/* Marks the empty values above a value. */
static fsdpck_status fill_empty(partial_search *x, const ranks_tensor *t, fsdpck_error *err)
{
    const value path = path_of(x->s, t);
    const size_t count = value_is_none(path) ? 0 : value_count(&x->s->cat->pool, path);
    for (size_t i = 1; x->empties.count > 0 && i < count; i++) {
        RETURN_IF(print_place(x, path, i, err));
        const uint32_t id = strtab_find(&x->empty, x->text.text, x->text.nbytes);
        if (id != STRTAB_NONE)
            VEC_AT(&x->s->tensors, ranks_tensor, *VEC_AT(&x->empties, const uint32_t, id))
                ->is_filled = 1;
    }
    return FSDPCK_OK;
}

/* --- the warning --- */

static void print_ranks(const ranks_state *s, uint32_t entry, text_buf *out)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, entry);
    for (size_t i = 0; t->kind == RANKS_OBJECT && i < s->occurrences.count; i++) {
        const ranks_occurrence *o = VEC_AT(&s->occurrences, const ranks_occurrence, i);
        if (o->object == t->index)
            text_printf(out, "%s%u", out->nbytes > 0 ? ", " : "", (unsigned)o->rank);
    }
    for (size_t i = 0; t->kind == RANKS_PLAIN && i < s->reader->pieces.count; i++) {
        const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, i);
        if ((q->flags & RANKS_SHARD_PLAIN) && q->tensor == entry)
            text_printf(out, "%s%u", out->nbytes > 0 ? ", " : "", (unsigned)q->rank);
    }
}

/* Values that stay with their ranks, or are omitted, need no warning. */
fsdpck_status ranks_report_partial(const ranks_state *s, uint32_t entry, uint64_t count,
                                   const char *what, fsdpck_error *err)
{
    const rank_copies_rule *rule = &s->req->copies;
    text_buf ranks = {.limit_bytes = 160};
    fsdpck_status st = FSDPCK_OK;
    if (count == 0)
        return FSDPCK_OK;
    const rank_copies copies = {
        .name = strtab_text(&s->names, entry), .is_object = true, .on_some_ranks = true};
    const rank_copies_use use = rule->use(rule->ctx, &copies);
    if (use == RANK_COPIES_EACH || use == RANK_COPIES_OMIT)
        return FSDPCK_OK;
    print_ranks(s, entry, &ranks);
    const char *holders = ranks.text == NULL ? "?" : ranks.text;
    if (use == RANK_COPIES_REFUSE) {
        st = error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_RANK_DIFFER, "%s", what);
        error_tensor(err, strtab_text(&s->names, entry));
        error_expected(err, "the same values on all ranks");
        error_found(err, "%" PRIu64 " value%s on some ranks only, this one on rank %s%s", count,
                    count == 1 ? "" : "s", holders, ranks.failed ? ", ..." : "");
        error_next(err, "give --per-rank keep, first or drop");
    } else {
        log_warn(
            &s->req->log, FSDPCK_FINDING_RANK_DIFFER,
            "give --per-rank keep to write such values for their own ranks only, or drop to omit "
            "them",
            "%s: %" PRIu64
            " value%s, first '%s' of rank %s%s; the merged state gives such values to all ranks",
            what, count, count == 1 ? "" : "s", strtab_text(&s->names, entry), holders,
            ranks.failed ? ", ..." : "");
    }
    text_release(&ranks);
    return st;
}

static bool has_one_element(const ranks_state *s, const ranks_tensor *t)
{
    const cat_tensor *tensor = t->kind == RANKS_PLAIN ? catalogue_tensor(s->cat, t->index) : NULL;
    return tensor != NULL && box_nelems(catalogue_shape(s->cat, t->index), tensor->ndim) == 1;
}

static fsdpck_status search(partial_search *x, fsdpck_error *err)
{
    ranks_state *s = x->s;
    uint64_t keys = 0, items = 0;
    uint32_t first_key = 0, first_item = 0;

    bool *has_model = vec_push_n(&x->has_model, s->list->families.count, err);
    if (has_model == NULL)
        return FSDPCK_LIMIT;
    memset(has_model, 0, s->list->families.count * sizeof *has_model);
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        note_model(x, t);
        RETURN_IF(note_group(x, t, err));
        RETURN_IF(note_lists(x, t, err));
        RETURN_IF(note_empty(x, i, err));
    }
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        ranks_tensor *t = VEC_AT(&s->tensors, ranks_tensor, i);
        const value path = path_of(s, t);
        bool past_end, of_model;
        RETURN_IF(fill_empty(x, t, err));
        if (value_is_none(path) || value_count(&s->cat->pool, path) == 0 || is_sharded(t))
            continue;
        const bool on_all = t->rank_count == files_of(s, t);
        const bool single = has_one_element(s, t);
        if (on_all && t->kind != RANKS_OBJECT && !single)
            continue;
        RETURN_IF(is_of_model(x, t, path, &of_model, err));
        t->of_model = of_model;
        t->is_single = single && !of_model;
        if (on_all)
            continue;
        RETURN_IF(is_past_end(x, path, &past_end, err));
        t->is_own = past_end;
        if (past_end)
            first_item = items++ == 0 ? i : first_item;
        if (past_end)
            continue;
        t->is_partial = of_model && t->kind == RANKS_PLAIN;
        t->is_own = !of_model;
        if (!of_model)
            first_key = keys++ == 0 ? i : first_key;
    }
    RETURN_IF(ranks_report_partial(s, first_item, items,
                                   "lists have different lengths on different ranks", err));
    return ranks_report_partial(s, first_key, keys, "only some ranks hold values of a dict", err);
}

fsdpck_status ranks_warn_partial(ranks_state *s, fsdpck_error *err)
{
    partial_search x = {
        .s = s, .most = VEC_OF(uint32_t, s->req->metadata), .text = {.limit_bytes = 1u << 20}};
    strtab_init(&x.places, s->req->metadata);
    strtab_init(&x.groups, s->req->metadata);
    strtab_init(&x.empty, s->req->metadata);
    x.empties = VEC_OF(uint32_t, s->req->metadata);
    x.has_model = VEC_OF(bool, s->req->metadata);
    const fsdpck_status st = s->list->files.count > 1 ? search(&x, err) : FSDPCK_OK;
    strtab_release(&x.places);
    strtab_release(&x.groups);
    strtab_release(&x.empty);
    VEC_RELEASE_ALL(&x.empties, &x.has_model, &x.most);
    text_release(&x.text);
    return st;
}
