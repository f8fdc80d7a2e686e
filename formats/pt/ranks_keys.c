/* One flat key can be of different keys or containers: {1: x} and {'1': x}, {0: x} and [x], 'a.b' and
 * 'b' in 'a'. Merged, the value of one rank would replace another's, or its keys would change. */
#include <string.h>

#include "formats/pt/ranks_internal.h"

static value path_of(const ranks_state *s, const ranks_tensor *t)
{
    if (t->index == CAT_NONE)
        return VALUE_OF_NONE;
    return t->kind == RANKS_OBJECT ? VEC_AT(&s->objects, const ranks_object, t->index)->path
                                   : catalogue_tensor(s->cat, t->index)->path;
}

static bool is_same_element(const value_pool *p, value a, const value_pool *q, value b)
{
    size_t a_nbytes, b_nbytes;
    int64_t index, other;
    if (value_kind_of(a) != value_kind_of(b))
        return false;
    if (value_as_i64(p, a, &index) && value_as_i64(q, b, &other))
        return index == other;
    const char *text = value_text(p, a, &a_nbytes), *known = value_text(q, b, &b_nbytes);
    return text != NULL && known != NULL && a_nbytes == b_nbytes &&
           memcmp(text, known, a_nbytes) == 0;
}

/* "keys 'c' (text), 1 (int), 0 (list index)" */
static void print_keys(const value_pool *pool, value path, size_t first, uint64_t other_keys,
                       text_buf *out)
{
    for (size_t i = first; i < value_count(pool, path); i++) {
        const value v = value_item(pool, path, i);
        size_t nbytes;
        const char *text = value_text(pool, v, &nbytes);
        const bool is_other = (other_keys >> (i - first) % 64 & 1) != 0;
        text_puts(out, i > first ? ", " : "");
        if (value_kind_of(v) == VALUE_STR && !is_other)
            value_print(pool, v, 256, out);
        else if (value_kind_of(v) == VALUE_INT)
            value_print(pool, v, 256, out);
        else if (text != NULL)
            text_append(out, text, nbytes);
        text_puts(out, value_kind_of(v) == VALUE_INT     ? " (list item)"
                       : value_kind_of(v) == VALUE_BYTES ? " (int key)"
                                                         : "");
    }
}

static fsdpck_status refuse(const ranks_parse *p, uint32_t entry, value path, value known,
                            size_t depth, fsdpck_error *err)
{
    const ranks_state *s = p->s;
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, entry);
    text_buf expected = {.limit_bytes = 200}, found = {.limit_bytes = 200};
    print_keys(&s->cat->pool, known, depth, t->other_keys, &expected);
    print_keys(&p->scratch.pool, path, 0, p->other_keys, &found);
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, KEY_NEST, ("keys or containers of a value differ between ranks"),
                  (tensor, strtab_text(&s->names, entry)),
                  (expected, "%s, as in '%s'", expected.text == NULL ? "" : expected.text,
                   ranks_path(s, t->first_file)),
                  (found, "%s", found.text == NULL ? "" : found.text),
                  (next, "use the keys and containers of the lowest rank: give --per-rank first"));
    text_release(&expected);
    text_release(&found);
    return st;
}

fsdpck_status ranks_check_keys(const ranks_parse *p, uint32_t entry, value path, fsdpck_error *err)
{
    const ranks_state *s = p->s;
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, entry);
    const ranks_family *f = VEC_AT(&s->list->families, const ranks_family, p->file->family);
    const size_t depth = f->key[0] != '\0' ? 1 : 0, count = value_count(&p->scratch.pool, path);
    const value known = path_of(s, t);
    if (value_is_none(known))
        return FSDPCK_OK;
    bool same =
        value_count(&s->cat->pool, known) == count + depth && t->other_keys == p->other_keys;
    for (size_t i = 0; same && i < count; i++)
        same = is_same_element(&p->scratch.pool, value_item(&p->scratch.pool, path, i),
                               &s->cat->pool, value_item(&s->cat->pool, known, i + depth));
    if (same)
        return FSDPCK_OK;
    const rank_copies_rule *rule = &s->req->copies;
    const rank_copies copies = {
        .name = strtab_text(&s->names, entry), .is_object = true, .differ = true};
    return rule->use(rule->ctx, &copies) == RANK_COPIES_FIRST
               ? FSDPCK_OK
               : refuse(p, entry, path, known, depth, err);
}
