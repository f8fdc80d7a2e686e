/* Keys of the merged dicts. Two keys of different ranks that Python takes for one (True, 1 and 1.0)
 * would replace each other, and two of one text (None and 'None') would share their values. */
#include <inttypes.h>
#include <math.h>

#include "formats/pt/ranks_frame.h"

enum { KEY_NBYTES_LIMIT = 4096 };

/* --- texts --- */

static void print_key(const value_pool *pool, value key, text_buf *out)
{
    size_t nbytes;
    const char *text = value_kind_of(key) == VALUE_STR ? value_text(pool, key, &nbytes) : NULL;
    if (text != NULL)
        text_append(out, text, nbytes);
    else
        value_print(pool, key, KEY_NBYTES_LIMIT, out);
}

static const char *kind_name(value_kind kind)
{
    switch (kind) {
    case VALUE_STR:
        return "text";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
    case VALUE_BIGINT:
        return "int";
    case VALUE_FLOAT:
        return "float";
    case VALUE_BYTES:
        return "bytes";
    case VALUE_TUPLE:
        return "tuple";
    case VALUE_NONE:
        return "NoneType";
    default:
        return "another type";
    }
}

typedef struct equal_text {
    const value_pool *pool;
    text_buf *out;
} equal_text;

static bool is_whole(double number)
{
    const double least = -0x1p53, most = 0x1p53; /* beyond, all are */
    return isfinite(number) &&
           (number <= least || number >= most || (double)(int64_t)number == number);
}

/* Keys that are equal in Python have one text. */
static fsdpck_status print_equal(void *ctx, value v, fsdpck_error *err)
{
    const equal_text *x = ctx;
    const value_kind kind = value_kind_of(v);
    double number = 0;
    int64_t i;
    if (kind == VALUE_BIGINT) {
        text_puts(x->out, "n");
        value_print(x->pool, v, KEY_NBYTES_LIMIT, x->out);
    } else if (kind == VALUE_FLOAT && value_as_double(x->pool, v, &number) && is_whole(number)) {
        text_printf(x->out, "n%.0f", number == 0 ? 0.0 : number);
    } else if (kind != VALUE_FLOAT && value_as_i64(x->pool, v, &i)) {
        text_printf(x->out, "n%" PRId64, i);
    } else if (kind == VALUE_TUPLE || kind == VALUE_FROZENSET) {
        text_printf(x->out, "(%zu", value_count(x->pool, v));
    } else {
        text_printf(x->out, "%d:", (int)kind);
        print_key(x->pool, v, x->out);
    }
    text_puts(x->out, ",");
    return text_check(x->out, err);
}

/* --- refusals --- */

/* "x.a.b": the place, or the container that holds the current key. */
static void print_place(const ranks_parse *p, bool is_container, text_buf *out)
{
    const ranks_family *f = VEC_AT(&p->s->list->families, const ranks_family, p->file->family);
    const vec *keys = &p->s->frame.place;
    const size_t first = f->key[0] == '\0' ? 1 : 0, count = keys->count - (is_container ? 1 : 0);
    for (size_t i = first; i < count; i++) {
        text_puts(out, i > first ? "." : "");
        print_key(&p->scratch.pool, *VEC_AT(keys, const value, i), out);
    }
}

static const char *text_of(const text_buf *b)
{
    return b->text == NULL ? "" : b->text;
}

static fsdpck_status refuse_key(const ranks_parse *p, const ranks_slot *known, value key,
                                const char *why, fsdpck_error *err)
{
    const value_pool *pool = &p->s->cat->pool;
    text_buf name = {.limit_bytes = KEY_NBYTES_LIMIT}, expected = {.limit_bytes = 200},
             found = {.limit_bytes = 200};
    print_place(p, true, &name);
    value_print(pool, known->key, 128, &expected);
    value_print(&p->scratch.pool, key, 128, &found);
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, KEY_NEST, ("two keys of a dict %s", why), (tensor, text_of(&name)),
        (expected, "the key %s (%s) of rank %" PRIu32 ", as in '%s'", text_of(&expected),
         kind_name(value_kind_of(known->key)), known->rank, ranks_path(p->s, known->file)),
        (found, "the key %s (%s) of rank %" PRIu32, text_of(&found), kind_name(value_kind_of(key)),
         p->file->rank),
        (next, "%s: load the files with Python, and save them again",
         known->rank == p->file->rank ? "rename one of the two" : "use one key on all ranks"));
    text_release(&name);
    text_release(&expected);
    text_release(&found);
    return st;
}

/* The rule for values that differ, or that only some ranks hold. */
static rank_copies_use use_of(const ranks_parse *p, bool differ)
{
    text_buf name = {.limit_bytes = KEY_NBYTES_LIMIT};
    const rank_copies_rule *rule = &p->s->req->copies;
    print_place(p, false, &name);
    const rank_copies copies = {
        .name = text_of(&name), .is_object = true, .differ = differ, .on_some_ranks = !differ};
    const rank_copies_use use = rule->use(rule->ctx, &copies);
    text_release(&name);
    return use;
}

static bool keeps_apart(const ranks_parse *p)
{
    const rank_copies_use use = use_of(p, false);
    return use == RANK_COPIES_EACH || use == RANK_COPIES_OMIT;
}

fsdpck_status ranks_frame_refuse_shape(const ranks_parse *p, const ranks_slot *known,
                                       ranks_shape found, fsdpck_error *err)
{
    static const char *const names[] = {"a value",        "an empty dict", "an empty list",
                                        "an empty tuple", "a dict",        "a list"};
    text_buf name = {.limit_bytes = KEY_NBYTES_LIMIT};
    if (keeps_apart(p))
        return FSDPCK_OK;
    print_place(p, false, &name);
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, KEY_NEST, ("containers of a value differ between ranks"),
                  (tensor, text_of(&name)),
                  (expected, "%s as on rank %" PRIu32 ", in '%s'", names[known->shape], known->rank,
                   ranks_path(p->s, known->file)),
                  (found, "%s on rank %" PRIu32, names[found], p->file->rank),
                  (next, "keep each rank's own value with --per-rank keep"));
    text_release(&name);
    return st;
}

/* --- slots --- */

/* KEY-NEST if the dict has a key that is equal in Python, but is not this one. */
static fsdpck_status check_equal(ranks_parse *p, uint32_t container, value key, uint32_t slot,
                                 fsdpck_error *err)
{
    ranks_frame *frame = &p->s->frame;
    text_buf text = {.limit_bytes = UINT32_MAX};
    equal_text x = {.pool = &p->scratch.pool, .out = &text};
    uint32_t id;
    text_printf(&text, "%" PRIu32 ".", container);
    fsdpck_status st = value_walk(&p->scratch.pool, key, print_equal, &x, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&frame->numbers, text_of(&text), text.nbytes, &id, err);
    text_release(&text);
    RETURN_IF(st);
    if (id == frame->number_slots.count)
        return vec_add(&frame->number_slots, &slot, err);
    if (keeps_apart(p))
        return FSDPCK_OK;
    const uint32_t other = *VEC_AT(&frame->number_slots, const uint32_t, id);
    return refuse_key(p, VEC_AT(&frame->slots, const ranks_slot, other), key, "are equal in Python",
                      err);
}

/* The slot `known` has a key of the same text: KEY-NEST if it is another, and the rule does not take the lowest rank's. */
static fsdpck_status check_same(const ranks_parse *p, const ranks_slot *known, value key,
                                fsdpck_error *err)
{
    bool same = value_kind_of(key) == VALUE_STR && value_kind_of(known->key) == VALUE_STR;
    if (!same)
        RETURN_IF(value_equal(&p->scratch.pool, key, &p->s->cat->pool, known->key, &same, err));
    if (same || (known->file != p->file->index && use_of(p, true) == RANK_COPIES_FIRST))
        return FSDPCK_OK;
    return refuse_key(p, known, key, "have one text", err);
}

/* The path element: ints apart, all other keys by their texts. */
static fsdpck_status intern_key(ranks_parse *p, uint32_t container, value key, uint32_t *slot,
                                fsdpck_error *err)
{
    text_buf text = {.limit_bytes = UINT32_MAX};
    text_printf(&text, "%" PRIu32 "%s", container, value_kind_of(key) == VALUE_INT ? "#" : ".");
    print_key(&p->scratch.pool, key, &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&p->s->frame.keys, text_of(&text), text.nbytes, slot, err);
    text_release(&text);
    return st;
}

fsdpck_status ranks_frame_slot(ranks_parse *p, uint32_t container, value items, value key,
                               uint32_t *slot, bool *fresh, fsdpck_error *err)
{
    ranks_frame *frame = &p->s->frame;
    const value_kind kind = value_kind_of(key);
    const bool is_dict = value_kind_of(items) == VALUE_DICT;
    RETURN_IF(intern_key(p, container, key, slot, err));
    *fresh = *slot == frame->slots.count;
    if (!*fresh)
        return check_same(p, VEC_AT(&frame->slots, const ranks_slot, *slot), key, err);
    if (is_dict && kind != VALUE_STR && kind != VALUE_NONE)
        RETURN_IF(check_equal(p, container, key, *slot, err));
    ranks_slot made = {.file = p->file->index, .rank = p->file->rank};
    RETURN_IF(value_copy(&p->scratch.pool, key, &p->s->cat->pool, NULL, &made.key, err));
    return vec_add(&frame->slots, &made, err);
}
