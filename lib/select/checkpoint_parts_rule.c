/* checkpoint_parts_rule.c: one line that describes the rule that separated model, optimizer and
 * other. */
#include <stdio.h>
#include <string.h>

#include "select/checkpoint_parts_internal.h"

/* Up to three keys of a part, in quotes. */
typedef struct key_list {
    strtab keys;
    bool by_shape;
} key_list;

static fsdpck_status add_key(const parts_context *s, value path, uint32_t name, key_list *l,
                             fsdpck_error *err)
{
    const char *text = catalogue_name(s->c, name);
    size_t nbytes, root;
    uint32_t id;
    outer_key key;
    outer_key_of(s->c, path, name, &key);
    nbytes = strlen(key.text);
    if (optimizer_roots_contain(&s->roots, text, catalogue_name_nbytes(s->c, name), &root)) {
        l->by_shape = true;
        nbytes = root;
    } else {
        text = key.text;
    }
    return nbytes == 0 || nbytes > 64 ? FSDPCK_OK : strtab_intern(&l->keys, text, nbytes, &id, err);
}

static fsdpck_status list_keys(const parts_context *s, checkpoint_part part, key_list *l,
                               fsdpck_error *err)
{
    const checkpoint_parts *parts = s->parts;
    strtab_init(&l->keys, s->c->owner);
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(s->c, i);
        if (parts->tensor_part[i] == part && !(t->flags & CAT_TENSOR_IN_OBJECT))
            RETURN_IF(add_key(s, t->path, t->name, l, err));
    }
    for (size_t i = 0; i < parts->object_count; i++) {
        const cat_object *o = catalogue_object(s->c, i);
        if (parts->object_part[i] == part)
            RETURN_IF(add_key(s, o->path, o->name, l, err));
    }
    return FSDPCK_OK;
}

static void print_keys(const key_list *l, text_buf *out)
{
    const size_t count = strtab_count(&l->keys);
    for (uint32_t i = 0; i < count && i < 3; i++) {
        char key[280];
        text_printf(
            out, "%s'%s'", i == 0 ? " " : ", ",
            escape_text(key, sizeof key, strtab_text(&l->keys, i), strtab_nbytes(&l->keys, i)));
    }
    if (count > 3)
        text_printf(out, " and %zu more", count - 3);
}

fsdpck_status checkpoint_parts_describe(parts_context *s, fsdpck_error *err)
{
    checkpoint_parts *parts = s->parts;
    key_list optimizer = {.by_shape = false}, other = {.by_shape = false};
    text_buf text = {.limit_bytes = 4096};
    fsdpck_status st = list_keys(s, PART_OPTIMIZER, &optimizer, err);
    const bool has_optimizer = strtab_count(&optimizer.keys) > 0;
    strtab_init(&other.keys, s->c->owner);
    if (st == FSDPCK_OK)
        st = list_keys(s, PART_OTHER, &other, err);
    const bool has_other = strtab_count(&other.keys) > 0;
    if (parts->model_depth > 0 || parts->has_flat_key)
        text_printf(&text, "model under the key '%s'", parts->model_key);
    else if (parts->bare_optimizer)
        text_puts(&text, "an optimizer only: 'state' beside 'param_groups'");
    else if (has_optimizer || has_other)
        text_puts(&text, "model: all except the following");
    else
        text_puts(&text, "model only: no outer key, no optimizer state");
    if (has_optimizer && !parts->bare_optimizer) {
        text_printf(&text, "; optimizer by its %s:", optimizer.by_shape ? "state" : "key");
        print_keys(&optimizer, &text);
    }
    if (has_other) {
        text_puts(&text, parts->model_depth > 0 ? "; the rest is other:" : "; other by its key:");
        print_keys(&other, &text);
    }
    if (st == FSDPCK_OK)
        st = text_check(&text, err);
    if (st == FSDPCK_OK)
        snprintf(parts->rule, sizeof parts->rule, "%s", text.text);
    text_release(&text);
    strtab_release(&optimizer.keys);
    strtab_release(&other.keys);
    return st;
}
