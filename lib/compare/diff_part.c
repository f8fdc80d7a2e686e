/* Selects the parts of two checkpoints to compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/diff.h"

static bool part_exists(uint64_t counts[2][3], fsdpck_part part)
{
    return counts[0][part] > 0 && counts[1][part] > 0;
}

static void count_parts(const fsdpck_checkpoint *c, uint64_t counts[3])
{
    for (size_t i = 0; i < c->parts.tensor_count; i++)
        counts[c->parts.tensor_part[i]]++;
}

/* The tensor's name if only `part` is compared, without wrapper prefixes; NULL: it is in a
 * different part. Borrowed until the next call. */
static const char *name_in(const fsdpck_checkpoint *c, uint32_t tensor, fsdpck_part part,
                           text_buf *text)
{
    const uint32_t id = catalogue_tensor(&c->cat, tensor)->name;
    const char *name = catalogue_name(&c->cat, id);
    if (part == FSDPCK_PART_ALL)
        return name;
    if (c->parts.tensor_part[tensor] != (uint8_t)part)
        return NULL;
    text->nbytes = 0;
    checkpoint_parts_append_name(&c->parts, (checkpoint_part)part, true, true, name,
                                 catalogue_name_nbytes(&c->cat, id), text);
    text_append(text, "", 1);
    return text->failed ? NULL : text->text;
}

/* Number of names of `a` that are in `b` if `part` is compared. */
static fsdpck_status count_common(const fsdpck_checkpoint *a, const fsdpck_checkpoint *b,
                                  fsdpck_part part, budget *owner, uint64_t *met, fsdpck_error *err)
{
    text_buf text = {.limit_bytes = UINT32_MAX};
    strtab names;
    fsdpck_status st = FSDPCK_OK;
    uint32_t id;

    *met = 0;
    strtab_init(&names, owner);
    for (uint32_t i = 0; st == FSDPCK_OK && i < b->parts.tensor_count; i++) {
        const char *name = name_in(b, i, part, &text);
        if (name != NULL)
            st = strtab_intern(&names, name, strlen(name), &id, err);
    }
    for (uint32_t i = 0; st == FSDPCK_OK && i < a->parts.tensor_count; i++) {
        const char *name = name_in(a, i, part, &text);
        if (name != NULL && strtab_find(&names, name, strlen(name)) != STRTAB_NONE)
            ++*met;
    }
    strtab_release(&names);
    text_release(&text);
    return st;
}

fsdpck_status diff_choose_part(const run_options *o, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                               fsdpck_part *part, fsdpck_error *err)
{
    uint64_t counts[2][3] = {{0}}, all, alone;

    if (o->select.part >= 0) {
        *part = (fsdpck_part)o->select.part;
        return FSDPCK_OK;
    }
    count_parts(a, counts[0]);
    count_parts(b, counts[1]);
    const bool models = part_exists(counts, FSDPCK_PART_MODEL);
    const bool optimizers = part_exists(counts, FSDPCK_PART_OPTIMIZER);
    const bool alike =
        strcmp(a->parts.model_key, b->parts.model_key) == 0 &&
        (models || strcmp(a->parts.optimizer_key, b->parts.optimizer_key) == 0) &&
        (counts[0][FSDPCK_PART_OPTIMIZER] > 0) == (counts[1][FSDPCK_PART_OPTIMIZER] > 0);
    *part = FSDPCK_PART_ALL;
    if (alike || (!models && !optimizers))
        return FSDPCK_OK;
    *part = models ? FSDPCK_PART_MODEL : FSDPCK_PART_OPTIMIZER;
    if (o->select.rename_count > 0 || o->select.strip_prefix_count > 0)
        return FSDPCK_OK; /* which names meet is not seen here */
    RETURN_IF(count_common(a, b, FSDPCK_PART_ALL, &a->metadata, &all, err));
    RETURN_IF(count_common(a, b, *part, &a->metadata, &alone, err));
    if (all > alone)
        *part = FSDPCK_PART_ALL;
    return FSDPCK_OK;
}

static bool is_below(const catalogue *c, uint32_t name, const char *key)
{
    const size_t n = strlen(key);
    const char *text = catalogue_name(c, name);
    return catalogue_name_nbytes(c, name) > n && memcmp(text, key, n) == 0 && text[n] == '.';
}

/* Of the parts of a checkpoint of flat names: the model has the names below `key`. */
static fsdpck_status copy_parts_below(const fsdpck_checkpoint *c, const char *key,
                                      checkpoint_parts *made, fsdpck_error *err)
{
    const size_t tensors = c->parts.tensor_count, objects = c->parts.object_count;
    *made = c->parts;
    made->tensor_part = malloc(tensors + 1);
    made->object_part = malloc(objects + 1);
    if (made->tensor_part == NULL || made->object_part == NULL) {
        checkpoint_parts_release(made);
        return error_set_nomem(err, tensors + objects);
    }
    snprintf(made->model_key, sizeof made->model_key, "%s", key);
    made->has_flat_key = true;
    for (size_t i = 0; i < tensors; i++) {
        const uint8_t part = c->parts.tensor_part[i];
        const bool is_other =
            part == PART_MODEL && !is_below(&c->cat, catalogue_tensor(&c->cat, i)->name, key);
        made->tensor_part[i] = is_other ? PART_OTHER : part;
    }
    for (size_t i = 0; i < objects; i++) {
        const uint8_t part = c->parts.object_part[i];
        const bool is_other =
            part == PART_MODEL && !is_below(&c->cat, catalogue_object(&c->cat, i)->name, key);
        made->object_part[i] = is_other ? PART_OTHER : part;
    }
    return FSDPCK_OK;
}

fsdpck_status diff_share_key(const run_options *o, fsdpck_checkpoint *a, fsdpck_checkpoint *b,
                             fsdpck_part part, diff_shared_key *shared, fsdpck_error *err)
{
    uint64_t without, with;
    fsdpck_checkpoint *to = a->parts.model_depth > 0 ? b : a;
    const fsdpck_checkpoint *from = to == b ? a : b;
    checkpoint_parts made;
    if (part != FSDPCK_PART_MODEL || o->select.rename_count > 0 ||
        o->select.strip_prefix_count > 0 || from->parts.model_depth == 0 ||
        to->parts.model_key[0] != '\0')
        return FSDPCK_OK;
    RETURN_IF(count_common(a, b, part, &a->metadata, &without, err));
    RETURN_IF(copy_parts_below(to, from->parts.model_key, &made, err));
    *shared = (diff_shared_key){to, to->parts};
    to->parts = made;
    const fsdpck_status st = count_common(a, b, part, &a->metadata, &with, err);
    if (st != FSDPCK_OK || with <= without)
        diff_unshare_key(shared);
    return st;
}

void diff_unshare_key(diff_shared_key *shared)
{
    if (shared->side == NULL)
        return;
    checkpoint_parts_release(&shared->side->parts);
    shared->side->parts = shared->parts;
    shared->side = NULL;
}

static bool has_any(const run_options *o, const checkpoint_parts *parts, fsdpck_part part)
{
    const bool objects = part != FSDPCK_PART_MODEL && o->select.keys_count == 0 &&
                         o->select.objects != FSDPCK_OBJECTS_DROP;
    for (size_t i = 0; i < parts->tensor_count; i++)
        if (part == FSDPCK_PART_ALL || parts->tensor_part[i] == (uint8_t)part)
            return true;
    for (size_t i = 0; objects && i < parts->object_count; i++)
        if (part == FSDPCK_PART_ALL || parts->object_part[i] == (uint8_t)part)
            return true;
    return false;
}

bool diff_may_be_empty(const run_options *o, const fsdpck_checkpoint *side,
                       const fsdpck_checkpoint *other, fsdpck_part part)
{
    const bool is_optional = part == FSDPCK_PART_ALL || part == FSDPCK_PART_OTHER;
    return has_any(o, &side->parts, part) || (is_optional && has_any(o, &other->parts, part));
}

/* Keys of letters, digits, '_' and dots need no escape but the dot's. */
static bool append_key(text_buf *rule, const char *key, bool is_pattern)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (strspn(key, plain) != strlen(key))
        return false;
    for (; *key != '\0'; key++) {
        if (*key == '.' && is_pattern)
            text_append(rule, "\\", 1);
        text_append(rule, key, 1);
    }
    return true;
}

void diff_rename_optimizer(const run_options *o, const fsdpck_checkpoint *a,
                           const fsdpck_checkpoint *b, fsdpck_part part, char *rule,
                           size_t capacity)
{
    const char *from = a->parts.optimizer_key, *to = b->parts.optimizer_key;
    text_buf text = {.limit_bytes = capacity};
    rule[0] = '\0';
    if (part != FSDPCK_PART_ALL || o->select.part >= 0 || from[0] == '\0' || to[0] == '\0' ||
        strcmp(from, to) == 0 || o->select.rename_count > 0 || o->select.strip_prefix_count > 0)
        return;
    text_puts(&text, "s/^");
    bool good = append_key(&text, from, true);
    text_puts(&text, "\\./");
    good = good && append_key(&text, to, false);
    text_puts(&text, "./");
    if (good && !text.failed && text.nbytes < capacity) {
        memcpy(rule, text.text, text.nbytes);
        rule[text.nbytes] = '\0';
    }
    text_release(&text);
}
