/* outer_key.c: the outer key of a path. */
#include <string.h>

#include "select/checkpoint_parts_internal.h"

static bool element_is(const catalogue *c, value path, size_t i, const char *text)
{
    return i < value_count(&c->pool, path) &&
           value_is_str(&c->pool, value_item(&c->pool, path, i), text);
}

/* A folder's metadata may hold a path that is not the name's: its keys cut nothing off the name. */
bool outer_key_name_begins(const catalogue *c, uint32_t name, const char *key)
{
    const size_t n = strlen(key);
    return catalogue_name_nbytes(c, name) > n + 1 && catalogue_name(c, name)[n] == '.' &&
           memcmp(catalogue_name(c, name), key, n) == 0;
}

void outer_key_of(const catalogue *c, value path, uint32_t name, outer_key *key)
{
    memset(key, 0, sizeof *key);
    const char *text;
    size_t nbytes;
    if (value_is_none(path)) {
        text = catalogue_name(c, name);
        nbytes = catalogue_name_nbytes(c, name);
        const char *dot = memchr(text, '.', nbytes);
        key->is_word = dot == NULL;
        if (dot != NULL)
            nbytes = (size_t)(dot - text);
    } else {
        key->depth = element_is(c, path, 0, "app") && value_count(&c->pool, path) > 2 ? 2 : 1;
        const value v = value_item(&c->pool, path, key->depth - 1);
        if (value_kind_of(v) != VALUE_STR)
            return;
        text = value_text(&c->pool, v, &nbytes);
        key->has_more = value_count(&c->pool, path) > key->depth;
        if (!key->has_more) {
            const char *dot = memchr(text, '.', nbytes);
            key->is_word = dot == NULL;
            if (dot != NULL)
                nbytes = (size_t)(dot - text);
        }
    }
    if (nbytes + 5 > sizeof key->text)
        return;
    if (key->depth == 2)
        memcpy(key->text, "app.", 4);
    memcpy(key->text + (key->depth == 2 ? 4 : 0), text, nbytes);
    if (key->has_more && !outer_key_name_begins(c, name, key->text))
        memset(key, 0, sizeof *key);
}
