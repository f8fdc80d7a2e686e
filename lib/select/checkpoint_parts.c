#include "select/checkpoint_parts_internal.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/fqn.h"

/* The first match, in list order. */
static const char *const model_keys[] = {
    "model",          "module",      "state_dict",        "model_state_dict",
    "app.model",      "state.model", "model_state.model", "model_state",
    "network_weights"};
/* Keys of trainers. A key followed by more than a number may be a module's. */
static const char *const other_stems[] = {"lr_scheduler", "dataloader", "train_state", "rng",
                                          "extra_state"};
static const char *const counter_globs[] = {"*step*", "*epoch*", "*iter*", "*tokens_seen*",
                                            "*samples_seen*"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

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

/* Elements of the path that are the dotted key, where more is below them; else 0. */
static unsigned depth_under(const catalogue *c, value path, uint32_t name, const char *key)
{
    unsigned depth = 0;
    const char *rest = key;
    if (value_is_none(path))
        return 0;
    for (;;) {
        const size_t n = strcspn(rest, ".");
        size_t nbytes;
        if (depth + 1 >= value_count(&c->pool, path))
            return 0;
        const value v = value_item(&c->pool, path, depth++);
        const char *text = value_kind_of(v) == VALUE_STR ? value_text(&c->pool, v, &nbytes) : NULL;
        if (text == NULL || nbytes != n || memcmp(text, rest, n) != 0)
            return 0;
        if (rest[n] == '\0')
            return outer_key_name_begins(c, name, key) ? depth : 0;
        rest += n + 1;
    }
}

const char *checkpoint_parts_flat_key(const char *name, size_t nbytes)
{
    for (size_t i = 0; i < COUNT(model_keys); i++) {
        const size_t n = strlen(model_keys[i]);
        if (nbytes > n + 1 && memcmp(name, model_keys[i], n) == 0 && name[n] == '.')
            return model_keys[i];
    }
    return NULL;
}

static void find_model_key(parts_context *s)
{
    size_t best = COUNT(model_keys);
    for (size_t i = 0; i < s->parts->tensor_count && best > 0; i++) {
        const cat_tensor *t = catalogue_tensor(s->c, i);
        for (size_t k = 0; k < best; k++) {
            const unsigned depth = depth_under(s->c, t->path, t->name, model_keys[k]);
            if (depth == 0)
                continue;
            best = k;
            s->parts->model_depth = depth;
        }
    }
    if (best < COUNT(model_keys))
        memcpy(s->parts->model_key, model_keys[best], strlen(model_keys[best]) + 1);
}

/* The outer keys of a bare optimizer's state dict. */
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
static bool find_bare_optimizer(const catalogue *c, const checkpoint_parts *parts)
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

/* --- keys of trainers --- */

static bool is_other_stem(const char *text)
{
    for (size_t i = 0; i < COUNT(other_stems); i++)
        if (optimizer_roots_is_stem(text, strlen(text), other_stems[i]))
            return true;
    return false;
}

static bool begins_as(const char *text, const char *const *stems, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(text, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

static bool may_be_other(const char *text)
{
    return begins_as(text, other_stems, COUNT(other_stems));
}

static bool may_be_optimizer(const char *text)
{
    static const char *const stems[] = {"optim", "last_optimizer_state"};
    return begins_as(text, stems, COUNT(stems));
}

/* Parameters under a key that begins as a trainer's does. */
static fsdpck_status record_params(parts_context *s, const cat_tensor *t, const outer_key *key,
                                   fsdpck_error *err)
{
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    uint32_t id;
    if (t->ndim == 0 || (kind != DTYPE_IS_FLOAT && kind != DTYPE_IS_COMPLEX) ||
        (!may_be_other(without_app(key)) && !may_be_optimizer(without_app(key))))
        return FSDPCK_OK;
    return strtab_intern(&s->with_params, key->text, strlen(key->text), &id, err);
}

static bool has_params(const parts_context *s, const outer_key *key)
{
    return strtab_find(&s->with_params, key->text, strlen(key->text)) != STRTAB_NONE;
}

/* An object of a bare model is what a module's get_extra_state() gave. */
static bool is_extra_state(const char *text)
{
    static const char end[] = "_extra_state";
    const size_t n = strlen(text);
    return n >= sizeof end - 1 && strcmp(text + n - (sizeof end - 1), end) == 0;
}

static bool is_nested_key(const parts_context *s, const outer_key *key)
{
    const char *text = without_app(key);
    return key->has_more &&
           (optimizer_roots_is_key(text, strlen(text)) || is_other_stem(text) ||
            ((may_be_other(text) || may_be_optimizer(text)) && !has_params(s, key)));
}

/* Whether the checkpoint has trainer state and not only a bare model. */
static fsdpck_status find_non_model(parts_context *s, fsdpck_error *err)
{
    const catalogue *c = s->c;
    outer_key key;
    s->more =
        s->parts->model_depth > 0 || s->parts->bare_optimizer || optimizer_roots_any(&s->roots);
    for (size_t i = 0; i < s->parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        outer_key_of(c, t->path, t->name, &key);
        RETURN_IF(record_params(s, t, &key, err));
    }
    for (size_t i = 0; i < s->parts->tensor_count && !s->more; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        outer_key_of(c, t->path, t->name, &key);
        s->more = is_nested_key(s, &key);
    }
    for (size_t i = 0; i < s->parts->object_count && !s->more; i++) {
        const cat_object *o = catalogue_object(c, i);
        outer_key_of(c, o->path, o->name, &key);
        s->more = (key.has_more || key.is_word) && !is_extra_state(key.text);
    }
    return FSDPCK_OK;
}

/* --- parts --- */

/* A 0-dim integer at the top level that is named like a counter. */
static bool is_counter(const parts_context *s, const cat_tensor *t, const outer_key *key)
{
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    return s->more && t->ndim == 0 && kind == DTYPE_IS_INT && key->is_word &&
           matches_any(counter_globs, COUNT(counter_globs), key->text);
}

static bool is_optimizer(const parts_context *s, const char *name, size_t nbytes,
                         const outer_key *key)
{
    const char *text = without_app(key);
    size_t root_nbytes;
    if ((s->parts->bare_optimizer && is_bare_key(key)) ||
        optimizer_roots_contain(&s->roots, name, nbytes, &root_nbytes))
        return true;
    if (optimizer_roots_is_key(text, strlen(text)))
        return key->has_more || s->parts->model_depth > 0 ||
               optimizer_roots_has_flat(&s->roots, key->text, strlen(key->text));
    return key->has_more && may_be_optimizer(text) && !has_params(s, key);
}

static bool is_other(const parts_context *s, const outer_key *key)
{
    const char *text = without_app(key);
    if (is_other_stem(text))
        return key->has_more || (s->more && !has_params(s, key));
    return key->has_more && may_be_other(text) && !has_params(s, key);
}

/* apart: it is an object, a counter, or lies inside an object. */
static checkpoint_part part_of(const parts_context *s, value path, uint32_t name,
                               const outer_key *key, bool apart)
{
    const checkpoint_parts *parts = s->parts;
    const char *text = catalogue_name(s->c, name);
    const size_t nbytes = catalogue_name_nbytes(s->c, name);
    if (parts->model_depth > 0 && depth_under(s->c, path, name, parts->model_key) > 0)
        return optimizer_roots_contain_group(&s->roots, text, nbytes) ? PART_OPTIMIZER : PART_MODEL;
    if (is_optimizer(s, text, nbytes, key))
        return PART_OPTIMIZER;
    return parts->model_depth > 0 || apart || is_other(s, key) ? PART_OTHER : PART_MODEL;
}

/* The text before `base_model.model.`, which begins the names of a model of PEFT; "" if it is none. */
static size_t before_peft(const catalogue *c, uint32_t name)
{
    static const char root[] = ".base_model.model.";
    const char *text = catalogue_name(c, name);
    const size_t nbytes = catalogue_name_nbytes(c, name), n = sizeof root - 1;
    for (size_t i = 0; i + n <= nbytes; i++)
        if (memcmp(text + i, root, n) == 0)
            return i;
    return 0;
}

/* In flat names an outer key is no more than their common beginning, which `base_model.model.` ends.
 * Wrappers are removed by cleaning. */
static void find_peft_key(const catalogue *c, checkpoint_parts *parts)
{
    const char *key = NULL;
    size_t key_nbytes = 0;
    if (parts->model_depth > 0 || parts->bare_optimizer)
        return;
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (parts->tensor_part[i] != PART_MODEL || (t->flags & CAT_TENSOR_IN_OBJECT))
            continue;
        const char *text = catalogue_name(c, t->name);
        const size_t nbytes = before_peft(c, t->name);
        if (nbytes == 0 || nbytes >= sizeof parts->model_key || text[0] == '_' ||
            text_is(text, nbytes, "module") ||
            (key != NULL && !text_equal(text, nbytes, key, key_nbytes)))
            return;
        key = text;
        key_nbytes = nbytes;
    }
    if (key == NULL)
        return;
    memcpy(parts->model_key, key, key_nbytes);
    parts->model_key[key_nbytes] = '\0';
    parts->has_flat_key = true;
}

/* Name of a model tensor as the model has it: without the outer key. */
static void find_ddp(const catalogue *c, checkpoint_parts *parts)
{
    size_t with = 0, all = 0;
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        if (parts->tensor_part[i] != PART_MODEL || (t->flags & CAT_TENSOR_IN_OBJECT))
            continue;
        const size_t skip = checkpoint_parts_outer_nbytes(parts, PART_MODEL);
        all++;
        with += fqn_has_ddp_prefix(catalogue_name(c, t->name) + skip,
                                   catalogue_name_nbytes(c, t->name) - skip);
    }
    parts->model_has_ddp = all > 0 && with == all;
}

/* The prefix of the names of an optimizer's state: its root, or else the outer key. */
static size_t optimizer_key_of(const parts_context *s, value path, uint32_t name, bool by_root)
{
    outer_key key;
    size_t nbytes;
    if (by_root && optimizer_roots_contain(&s->roots, catalogue_name(s->c, name),
                                           catalogue_name_nbytes(s->c, name), &nbytes))
        return nbytes;
    outer_key_of(s->c, path, name, &key);
    return value_is_none(path) || key.has_more ? strlen(key.text) : 0;
}

/* Whether optimizer tensors are below a key, and all so far have this key. */
static bool is_only_key(parts_context *s, value path, uint32_t name, bool by_root)
{
    char *only = s->parts->optimizer_key;
    const size_t nbytes = optimizer_key_of(s, path, name, by_root);
    const char *text = catalogue_name(s->c, name);
    if (nbytes == 0 || nbytes >= sizeof s->parts->optimizer_key ||
        catalogue_name_nbytes(s->c, name) <= nbytes + 1 || memchr(text, '\0', nbytes) != NULL)
        return false;
    if (only[0] == '\0')
        memcpy(only, text, nbytes);
    return strlen(only) == nbytes && memcmp(only, text, nbytes) == 0;
}

/* With several optimizers, their keys distinguish them. */
static bool find_optimizer_key(parts_context *s, bool by_root)
{
    checkpoint_parts *parts = s->parts;
    bool only = !parts->bare_optimizer;
    memset(parts->optimizer_key, 0, sizeof parts->optimizer_key);
    for (size_t i = 0; only && i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(s->c, i);
        if (parts->tensor_part[i] == PART_OPTIMIZER && !(t->flags & CAT_TENSOR_IN_OBJECT))
            only = is_only_key(s, t->path, t->name, by_root);
    }
    for (size_t i = 0; only && i < parts->object_count; i++) {
        const cat_object *o = catalogue_object(s->c, i);
        if (parts->object_part[i] == PART_OPTIMIZER)
            only = is_only_key(s, o->path, o->name, by_root);
    }
    if (!only)
        memset(parts->optimizer_key, 0, sizeof parts->optimizer_key);
    return only;
}

static fsdpck_status classify(parts_context *s, fsdpck_error *err)
{
    checkpoint_parts *parts = s->parts;
    RETURN_IF(optimizer_roots_find(s->c, parts->tensor_count, &s->roots, err));
    find_model_key(s);
    parts->bare_optimizer = find_bare_optimizer(s->c, parts);
    RETURN_IF(find_non_model(s, err));
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(s->c, i);
        outer_key key;
        outer_key_of(s->c, t->path, t->name, &key);
        const bool apart = is_counter(s, t, &key) ||
                           ((t->flags & CAT_TENSOR_IN_OBJECT) && !(t->flags & CAT_TENSOR_NAMED));
        parts->tensor_part[i] = (uint8_t)part_of(s, t->path, t->name, &key, apart);
    }
    for (size_t i = 0; i < parts->object_count; i++) {
        const cat_object *o = catalogue_object(s->c, i);
        outer_key key;
        outer_key_of(s->c, o->path, o->name, &key);
        parts->object_part[i] = (uint8_t)part_of(s, o->path, o->name, &key, true);
    }
    find_peft_key(s->c, parts);
    find_ddp(s->c, parts);
    if (!find_optimizer_key(s, true))
        (void)find_optimizer_key(s, false);
    return checkpoint_parts_describe(s, err);
}

/* Every tensor and object is of the model, PART_MODEL. */
static fsdpck_status allocate(const catalogue *c, checkpoint_parts *parts, fsdpck_error *err)
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
        checkpoint_parts_release(parts);
        return error_set_nomem(err, parts->tensor_count + parts->object_count);
    }
    return FSDPCK_OK;
}

fsdpck_status checkpoint_parts_all_model(const catalogue *c, checkpoint_parts *parts,
                                         fsdpck_error *err)
{
    RETURN_IF(allocate(c, parts, err));
    snprintf(parts->rule, sizeof parts->rule, "model only: the tensors that the map makes");
    return FSDPCK_OK;
}

fsdpck_status checkpoint_parts_find(const catalogue *c, checkpoint_parts *parts, fsdpck_error *err)
{
    RETURN_IF(allocate(c, parts, err));
    parts_context s = {.c = c, .parts = parts};
    strtab_init(&s.with_params, c->owner);
    const fsdpck_status st = classify(&s, err);
    strtab_release(&s.with_params);
    optimizer_roots_release(&s.roots);
    if (st != FSDPCK_OK)
        checkpoint_parts_release(parts);
    return st;
}

const char *checkpoint_parts_outer_key(const checkpoint_parts *parts, checkpoint_part part)
{
    const bool has_key = parts->model_depth > 0 || parts->has_flat_key;
    return part == PART_MODEL && has_key ? parts->model_key
           : part == PART_OPTIMIZER      ? parts->optimizer_key
                                         : "";
}

size_t checkpoint_parts_outer_nbytes(const checkpoint_parts *parts, checkpoint_part part)
{
    const char *key = checkpoint_parts_outer_key(parts, part);
    return key[0] == '\0' ? 0 : strlen(key) + 1;
}

bool checkpoint_parts_has_ddp(const checkpoint_parts *parts, checkpoint_part part)
{
    return parts->model_has_ddp &&
           (part == PART_MODEL || (part == PART_OTHER && parts->model_depth == 0));
}

void checkpoint_parts_clean_state(const checkpoint_parts *parts, const char *name, size_t nbytes,
                                  text_buf *out)
{
    size_t begin = 0;
    for (size_t i = 0; parts->model_has_ddp && begin == 0 && i < nbytes; i++) {
        const bool is_end = name[i] == '.' && (text_is_last_word(name, i, "state") ||
                                               text_is_last_word(name, i, "param_groups"));
        if (is_end && fqn_has_ddp_prefix(name + i + 1, nbytes - i - 1))
            begin = i + 1;
    }
    fqn_clean(name, begin, false, out);
    fqn_clean(name + begin, nbytes - begin, begin > 0, out);
}

void checkpoint_parts_append_name(const checkpoint_parts *parts, checkpoint_part part, bool alone,
                                  bool clean, const char *name, size_t nbytes, text_buf *out)
{
    const size_t skip = checkpoint_parts_outer_nbytes(parts, part);
    if (!alone)
        text_append(out, name, skip);
    if (clean && part == PART_OPTIMIZER)
        checkpoint_parts_clean_state(parts, name + skip, nbytes - skip, out);
    else if (clean)
        fqn_clean(name + skip, nbytes - skip, checkpoint_parts_has_ddp(parts, part), out);
    else
        text_append(out, name + skip, nbytes - skip);
}

void checkpoint_parts_release(checkpoint_parts *parts)
{
    free(parts->tensor_part);
    free(parts->object_part);
    memset(parts, 0, sizeof *parts);
}
