#include "aim/parts.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "model/fqn.h"

static const char *const model_keys[] = {"model", "module", "state_dict", "model_state_dict",
                                         "app.model"};
static const char *const other_globs[] = {"lr_scheduler*", "dataloader*", "train_state*", "rng*",
                                          "extra_state*"};
static const char *const counter_globs[] = {"*step*", "*epoch*", "*iter*", "*tokens_seen*",
                                            "*samples_seen*"};

/* The outer key of a path: its first element, or the first two where the first is `app`. */
typedef struct outer_key {
    char text[64]; /* "" where it is no str or too long to be any key that we know */
    unsigned depth;
    bool has_more; /* the path goes on below it */
} outer_key;

static bool element_is(const catalogue *c, value path, size_t i, const char *text)
{
    return i < value_count(&c->pool, path) &&
           value_is_str(&c->pool, value_item(&c->pool, path, i), text);
}

/* A folder's metadata may hold a path that is not the name's: its keys cut nothing off the name. */
static bool name_begins(const catalogue *c, uint32_t name, const char *key)
{
    const size_t n = strlen(key);
    return catalogue_name_nbytes(c, name) > n + 1 && catalogue_name(c, name)[n] == '.' &&
           memcmp(catalogue_name(c, name), key, n) == 0;
}

static void outer_key_of(const catalogue *c, value path, uint32_t name, outer_key *key)
{
    memset(key, 0, sizeof *key);
    const char *text;
    size_t nbytes;
    if (value_is_none(path)) {
        text = catalogue_name(c, name);
        nbytes = catalogue_name_nbytes(c, name);
        const char *dot = memchr(text, '.', nbytes);
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
            if (dot != NULL)
                nbytes = (size_t)(dot - text);
        }
    }
    if (nbytes + 5 > sizeof key->text)
        return;
    if (key->depth == 2)
        memcpy(key->text, "app.", 4);
    memcpy(key->text + (key->depth == 2 ? 4 : 0), text, nbytes);
    if (key->has_more && !name_begins(c, name, key->text))
        memset(key, 0, sizeof *key);
}

static bool matches_any(const char *const *globs, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (fnmatch(globs[i], text, 0) == 0)
            return true;
    }
    return false;
}

static const char *without_app(const outer_key *key)
{
    return key->depth == 2 ? key->text + 4 : key->text;
}

static void find_model_key(const catalogue *c, aim_parts *parts)
{
    size_t best = sizeof model_keys / sizeof model_keys[0];
    for (size_t i = 0; i < parts->tensor_count && best > 0; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        outer_key key;
        outer_key_of(c, t->path, t->name, &key);
        if (!key.has_more)
            continue;
        for (size_t k = 0; k < best; k++) {
            if (strcmp(model_keys[k], key.text) == 0) {
                best = k;
                parts->model_depth = key.depth;
                break;
            }
        }
    }
    if (best < sizeof model_keys / sizeof model_keys[0])
        memcpy(parts->model_key, model_keys[best], strlen(model_keys[best]) + 1);
}

/* A 0-dim integer at the top level that is named like a counter. */
static bool is_counter(const catalogue *c, size_t tensor, const outer_key *key)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    return t->ndim == 0 && kind == DTYPE_IS_INT && !key->has_more &&
           matches_any(counter_globs, sizeof counter_globs / sizeof counter_globs[0], key->text);
}

/* The outer keys of an optimizer's state dict that stands alone. */
static bool is_bare_key(const outer_key *key)
{
    return strcmp(key->text, "state") == 0 || strcmp(key->text, "param_groups") == 0;
}

static bool has_outer_path(const catalogue *c, value path, uint32_t name, const char *text)
{
    outer_key key;
    outer_key_of(c, path, name, &key);
    return !value_is_none(path) && strcmp(key.text, text) == 0;
}

/* Whether optimizer.state_dict() itself was saved, or what FSDP.optim_state_dict() gives: `state`
 * beside `param_groups`, which no model has both. */
static bool find_bare_optimizer(const catalogue *c, const aim_parts *parts)
{
    bool groups = false, state = false;
    for (size_t i = 0; i < parts->object_count && !(groups && state); i++) {
        const cat_object *o = catalogue_object(c, i);
        groups = groups || has_outer_path(c, o->path, o->name, "param_groups");
        state = state || has_outer_path(c, o->path, o->name, "state");
    }
    for (size_t i = 0; i < parts->tensor_count && groups && !state; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        state = has_outer_path(c, t->path, t->name, "state");
    }
    return groups && state;
}

static bool is_optimizer_key(const aim_parts *parts, const outer_key *key)
{
    return fnmatch("optim*", without_app(key), 0) == 0 ||
           strcmp(without_app(key), "last_optimizer_state") == 0 ||
           (parts->bare_optimizer && is_bare_key(key));
}

static aim_part part_of(const aim_parts *parts, const outer_key *key, bool counter, bool is_object)
{
    if (parts->model_depth > 0 && key->has_more && strcmp(key->text, parts->model_key) == 0)
        return PART_MODEL;
    if (is_optimizer_key(parts, key))
        return PART_OPTIMIZER;
    if (parts->model_depth > 0 || is_object || counter)
        return PART_OTHER;
    if (matches_any(other_globs, sizeof other_globs / sizeof other_globs[0], without_app(key)))
        return PART_OTHER;
    return PART_MODEL;
}

/* Name of a model tensor as the model has it: without the outer key. */
static void find_ddp(const catalogue *c, aim_parts *parts)
{
    size_t with = 0, all = 0;
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (parts->tensor_part[i] != PART_MODEL || (t->flags & CAT_TENSOR_IN_OBJECT))
            continue;
        const size_t skip = parts->model_depth > 0 ? strlen(parts->model_key) + 1 : 0;
        all++;
        with += fqn_has_ddp_prefix(catalogue_name(c, t->name) + skip,
                                   catalogue_name_nbytes(c, t->name) - skip);
    }
    parts->model_has_ddp = all > 0 && with == all;
}

/* Whether something of the optimizer is below a key, and that the one that all of it has so far. */
static bool is_only_key(const catalogue *c, value path, uint32_t name, aim_parts *parts)
{
    outer_key key;
    outer_key_of(c, path, name, &key);
    const size_t nbytes = strlen(key.text);
    if (nbytes == 0 || nbytes >= sizeof parts->optimizer_key ||
        catalogue_name_nbytes(c, name) <= nbytes + 1 || (!value_is_none(path) && !key.has_more))
        return false;
    if (parts->optimizer_key[0] == '\0')
        memcpy(parts->optimizer_key, key.text, nbytes + 1);
    return strcmp(parts->optimizer_key, key.text) == 0;
}

/* Where there are several optimizers, their keys tell them apart. */
static void find_optimizer_key(const catalogue *c, aim_parts *parts)
{
    bool only = !parts->bare_optimizer;
    for (size_t i = 0; only && i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (parts->tensor_part[i] == PART_OPTIMIZER && !(t->flags & CAT_TENSOR_IN_OBJECT))
            only = is_only_key(c, t->path, t->name, parts);
    }
    for (size_t i = 0; only && i < parts->object_count; i++) {
        const cat_object *o = catalogue_object(c, i);
        if (parts->object_part[i] == PART_OPTIMIZER)
            only = is_only_key(c, o->path, o->name, parts);
    }
    if (!only)
        parts->optimizer_key[0] = '\0';
}

fsdpck_status aim_parts_find(const catalogue *c, aim_parts *parts, fsdpck_error *err)
{
    memset(parts, 0, sizeof *parts);
    parts->tensor_count = catalogue_tensor_count(c);
    while (parts->tensor_count > 0 &&
           (catalogue_tensor(c, parts->tensor_count - 1)->flags & CAT_TENSOR_STORAGE))
        parts->tensor_count--;
    parts->object_count = catalogue_object_count(c);
    parts->tensor_part = calloc(parts->tensor_count + 1, 1);
    parts->object_part = calloc(parts->object_count + 1, 1);
    if (parts->tensor_part == NULL || parts->object_part == NULL) {
        aim_parts_release(parts);
        return error_set_nomem(err, parts->tensor_count + parts->object_count);
    }
    find_model_key(c, parts);
    parts->bare_optimizer = find_bare_optimizer(c, parts);
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        outer_key key;
        outer_key_of(c, t->path, t->name, &key);
        const bool apart = is_counter(c, i, &key) ||
                           ((t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED));
        parts->tensor_part[i] = (uint8_t)part_of(parts, &key, apart, false);
    }
    for (size_t i = 0; i < parts->object_count; i++) {
        const cat_object *o = catalogue_object(c, i);
        outer_key key;
        outer_key_of(c, o->path, o->name, &key);
        parts->object_part[i] = (uint8_t)part_of(parts, &key, false, true);
    }
    find_ddp(c, parts);
    find_optimizer_key(c, parts);
    return FSDPCK_OK;
}

size_t aim_parts_outer_nbytes(const aim_parts *parts, aim_part part)
{
    const char *key = part == PART_MODEL && parts->model_depth > 0 ? parts->model_key
                      : part == PART_OPTIMIZER                     ? parts->optimizer_key
                                                                   : "";
    return key[0] == '\0' ? 0 : strlen(key) + 1;
}

void aim_parts_name(const aim_parts *parts, aim_part part, bool alone, bool clean, const char *name,
                    size_t nbytes, text_buf *out)
{
    const size_t skip = aim_parts_outer_nbytes(parts, part);
    if (!alone)
        text_append(out, name, skip);
    if (clean)
        fqn_clean(name + skip, nbytes - skip, part == PART_MODEL && parts->model_has_ddp, out);
    else
        text_append(out, name + skip, nbytes - skip);
}

void aim_parts_release(aim_parts *parts)
{
    free(parts->tensor_part);
    free(parts->object_part);
    memset(parts, 0, sizeof *parts);
}
