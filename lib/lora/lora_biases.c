/* lora_biases.c: biases of the base model that were trained by the config of an adapter ("bias": "all", "lora_only"), and that
 * the adapter lacks. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

static const char bias[] = ".bias";

typedef struct bias_check {
    const lora_config_check *of;
    const strtab *saved;
    const strtab *stacks; /* of the modules of the adapter */
    strtab modules;       /* paths of these modules */
    strtab layers,
        templates; /* of biases of the adapter: to their last number, and with '#' for numbers */
    strtab own_stacks; /* of biases of the adapter */
    text_buf scratch;
} bias_check;

typedef enum loss { LOSS_NONE, LOSS_UNPROVEN, LOSS_CERTAIN } loss;

static bool has_any(const bias_check *s)
{
    return strtab_count(&s->templates) > 0;
}

/* Older files of GPT-2 and GPT-NeoX have the mask of attention under such a name. */
static bool is_mask(const char *name, size_t nbytes)
{
    return text_ends_with(name, nbytes, ".attn.bias") ||
           text_ends_with(name, nbytes, ".attention.bias");
}

static bool is_trained_bias(const bias_check *s, const char *name, size_t nbytes)
{
    return text_ends_with(name, nbytes, bias) && !is_mask(name, nbytes) &&
           lora_saved_around(s->of->config, name, nbytes, false) == 0;
}

/* ---- what the adapter has ---- */

static fsdpck_status note_module(bias_check *s, const lora_module *m, fsdpck_error *err)
{
    const bool has_bias = m->kind == LORA_LINEAR || m->kind == LORA_CONV;
    uint32_t id;
    if (m->adapter != s->of->adapter || !has_bias || m->is_attention || m->holder != LORA_NONE)
        return FSDPCK_OK;
    return strtab_intern(&s->modules, lora_text(s->of->set, m->path),
                         strtab_nbytes(&s->of->set->names, m->path), &id, err);
}

static fsdpck_status note_bias(bias_check *s, const char *name, size_t nbytes, fsdpck_error *err)
{
    uint32_t id;
    s->scratch.nbytes = 0;
    const size_t layer = lora_append_template(name, nbytes, &s->scratch);
    const lora_layer_number first = lora_first_number(name, nbytes);
    RETURN_IF(text_check(&s->scratch, err));
    RETURN_IF(strtab_intern(&s->templates, s->scratch.text, s->scratch.nbytes, &id, err));
    if (layer > 0)
        RETURN_IF(strtab_intern(&s->layers, name, layer, &id, err));
    return first.nnumbers == 0 ? FSDPCK_OK
                               : strtab_intern(&s->own_stacks, name, first.begin, &id, err);
}

static fsdpck_status note_all(bias_check *s, fsdpck_error *err)
{
    for (size_t i = 0; i < lora_module_count(s->of->set); i++)
        RETURN_IF(note_module(s, lora_module_at(s->of->set, i), err));
    for (uint32_t i = 0; i < strtab_count(s->saved); i++)
        if (is_trained_bias(s, strtab_text(s->saved, i), strtab_nbytes(s->saved, i)))
            RETURN_IF(note_bias(s, strtab_text(s->saved, i), strtab_nbytes(s->saved, i), err));
    return FSDPCK_OK;
}

/* ---- what it lacks ---- */

/* Files of base models may have more than the model that was trained: further layers, a pooler, heads. */
static fsdpck_status find_in_layer(bias_check *s, const char *name, size_t nbytes,
                                   lora_layer_number first, loss *found, fsdpck_error *err)
{
    const uint64_t layers = s->of->lost == NULL ? 0 : s->of->lost->layers;
    s->scratch.nbytes = 0;
    const size_t layer = lora_append_template(name, nbytes, &s->scratch);
    RETURN_IF(text_check(&s->scratch, err));
    const bool is_known =
        strtab_find(&s->templates, s->scratch.text, s->scratch.nbytes) != STRTAB_NONE;
    const bool is_own = strtab_find(&s->own_stacks, name, first.begin) != STRTAB_NONE;
    if ((!is_own && strtab_find(s->stacks, name, first.begin) == STRTAB_NONE) ||
        (layers > 0 && first.layer >= layers) || (!is_known && strstr(name, "expert") != NULL))
        return FSDPCK_OK;
    const bool is_shown =
        is_own && (layers > 0 || (is_known && strtab_find(&s->layers, name, layer) != STRTAB_NONE));
    *found = is_shown ? LOSS_CERTAIN : LOSS_UNPROVEN;
    return FSDPCK_OK;
}

/* Releases of PEFT looked for the biases of "lora_only" beside base_layer, and saved none: that is no proof. */
static fsdpck_status find_loss(bias_check *s, const char *name, size_t nbytes, loss *found,
                               fsdpck_error *err)
{
    const lora_layer_number first = lora_first_number(name, nbytes);
    *found = LOSS_NONE;
    if (!is_trained_bias(s, name, nbytes) || strtab_find(s->saved, name, nbytes) != STRTAB_NONE)
        return FSDPCK_OK;
    if (s->of->config->bias == LORA_BIAS_ONLY) {
        const bool is_module =
            strtab_find(&s->modules, name, nbytes - (sizeof bias - 1)) != STRTAB_NONE;
        *found = !is_module ? LOSS_NONE : has_any(s) ? LOSS_CERTAIN : LOSS_UNPROVEN;
        return FSDPCK_OK;
    }
    if (first.nnumbers > 0)
        return find_in_layer(s, name, nbytes, first, found, err);
    if (strstr(name, "pooler") == NULL && lora_is_outside(s->stacks, name, nbytes))
        *found = LOSS_UNPROVEN;
    return FSDPCK_OK;
}

static fsdpck_status check_one(bias_check *s, const lora_tensor *t, fsdpck_error *err)
{
    const char *name = lora_text(s->of->set, t->base);
    loss found;
    RETURN_IF(find_loss(s, name, strtab_nbytes(&s->of->set->names, t->base), &found, err));
    if (found == LOSS_UNPROVEN && s->of->lost != NULL && s->of->lost->biases++ == 0)
        s->of->lost->first_bias = t->base;
    if (found != LOSS_CERTAIN)
        return FSDPCK_OK;
    LORA_REPORT(s->of, err, LORA_PAIR,
                ("the adapter lacks the trained bias '%s', but its config has \"bias\": \"%s\"",
                 name, s->of->config->bias == LORA_BIAS_ALL ? "all" : "lora_only"),
                (tensor, name),
                (next, "save the adapter again, or give the config of this training with "
                       "--adapter-config"));
    return FSDPCK_OK;
}

static fsdpck_status check_all(bias_check *s, fsdpck_error *err)
{
    const lora_set *set = s->of->set;
    RETURN_IF(note_all(s, err));
    for (size_t i = s->of->own; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const bool is_base = t->role == LORA_ROLE_BASE || t->role == LORA_ROLE_ORIGINAL ||
                             (t->role == LORA_ROLE_SAVED && t->module == LORA_NONE);
        if (is_base && t->base != LORA_NONE)
            RETURN_IF(check_one(s, t, err));
    }
    return FSDPCK_OK;
}

fsdpck_status lora_check_biases(const lora_config_check *check, const strtab *saved,
                                const strtab *stacks, fsdpck_error *err)
{
    budget *owner = check->set->names.owner;
    bias_check s = {.of = check, .saved = saved, .stacks = stacks};
    strtab *const tables[] = {&s.modules, &s.layers, &s.templates, &s.own_stacks};
    /* A state with the base model has the biases that were trained. */
    if (check->config->bias == LORA_BIAS_NONE || check->own == 0)
        return FSDPCK_OK;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        strtab_init(tables[i], owner);
    const fsdpck_status st = check_all(&s, err);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        strtab_release(tables[i]);
    text_release(&s.scratch);
    return st;
}
