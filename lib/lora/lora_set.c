/* lora_set.c: finds the adapters among the tensors of a model. */
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"

/* Names of modules of PEFT, from the names of what they hold. */
static fsdpck_status add_wrapper(lora_set *set, const lora_name *n, fsdpck_error *err)
{
    static const char token[] = ".token_adapter";
    uint32_t id;
    if (n->role == LORA_ROLE_BASE || n->role == LORA_ROLE_FOREIGN ||
        n->role == LORA_ROLE_ORIGINAL || n->wrapped_nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&set->wrappers, n->name, n->wrapped_nbytes, &id, err));
    RETURN_IF(strtab_intern(&set->adapters, n->adapter, n->adapter_nbytes, &id, err));
    if (n->role != LORA_ROLE_TOKENS)
        return FSDPCK_OK;
    text_buf name = {0};
    text_append(&name, n->name, n->wrapped_nbytes);
    text_puts(&name, token);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&set->wrappers, name.text, name.nbytes, &id, err);
    text_release(&name);
    return st;
}

static uint32_t kind_of(const catalogue *c, const lora_name *n, uint32_t tensor)
{
    if (n->role == LORA_ROLE_SAVED)
        return LORA_SAVED;
    if (n->role == LORA_ROLE_TOKENS)
        return LORA_TOKENS;
    if (n->is_embedding)
        return LORA_EMBEDDING;
    return catalogue_tensor(c, tensor)->ndim > 2 ? LORA_CONV : LORA_LINEAR;
}

/* Number of base_layer segments at the end of a path. */
static unsigned nesting_of(const char *path, size_t nbytes)
{
    static const char end[] = ".base_layer";
    unsigned count = 0;
    while (text_ends_with(path, nbytes, end)) {
        nbytes -= sizeof end - 1;
        count++;
    }
    return count;
}

/* The module of a tensor; a module has one for LoRA, one for trainable tokens and one that is saved. */
static fsdpck_status find_module(lora_set *set, const catalogue *c, const lora_name *n,
                                 lora_tensor *t, fsdpck_error *err)
{
    const char family = n->role == LORA_ROLE_SAVED ? 's' : n->role == LORA_ROLE_TOKENS ? 't' : 'a';
    text_buf text = {0};
    const size_t known = strtab_count(&set->module_keys);
    text_append(&text, &family, 1);
    text_append(&text, n->adapter, n->adapter_nbytes);
    text_puts(&text, ".");
    text_append(&text, n->name, n->wrapped_nbytes);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = strtab_intern(&set->module_keys, text.text, text.nbytes, &t->module, err);
    text.nbytes = 0;
    if (st == FSDPCK_OK && t->module == known) {
        lora_module m = {.adapter = t->adapter,
                         .kind = LORA_LINEAR,
                         .parameter = LORA_NONE,
                         .nesting = nesting_of(n->name, n->wrapped_nbytes),
                         .holder = LORA_NONE,
                         .a = LORA_NONE,
                         .b = LORA_NONE,
                         .a_bias = LORA_NONE,
                         .b_bias = LORA_NONE,
                         .magnitude = LORA_NONE,
                         .tokens = LORA_NONE,
                         .base_weight = LORA_NONE,
                         .base_bias = LORA_NONE};
        lora_name_append_base(&set->wrappers, n->name, n->wrapped_nbytes, &text);
        st = text_check(&text, err);
        if (st == FSDPCK_OK)
            st = strtab_intern(&set->names, text.text, text.nbytes, &m.path, err);
        if (st == FSDPCK_OK)
            st = vec_add(&set->modules, &m, err);
    }
    text_release(&text);
    if (st == FSDPCK_OK && (n->role == LORA_ROLE_A || n->role == LORA_ROLE_B || family != 'a')) {
        lora_module *m = VEC_AT(&set->modules, lora_module, t->module);
        const uint32_t kind = kind_of(c, n, t->tensor);
        m->kind = kind != LORA_LINEAR ? kind : m->kind;
    }
    return st;
}

static uint32_t *slot_of(lora_module *m, uint32_t role)
{
    switch (role) {
    case LORA_ROLE_A:
        return &m->a;
    case LORA_ROLE_B:
        return &m->b;
    case LORA_ROLE_A_BIAS:
        return &m->a_bias;
    case LORA_ROLE_B_BIAS:
        return &m->b_bias;
    case LORA_ROLE_MAGNITUDE:
        return &m->magnitude;
    case LORA_ROLE_TOKENS:
        return &m->tokens;
    default:
        return NULL;
    }
}

/* Puts a tensor into its module. */
static fsdpck_status place(lora_set *set, const catalogue *c, uint32_t index, fsdpck_error *err)
{
    const lora_tensor *t = VEC_AT(&set->tensors, const lora_tensor, index);
    lora_module *m = VEC_AT(&set->modules, lora_module, t->module);
    uint32_t *slot = slot_of(m, t->role);
    if (slot == NULL)
        return FSDPCK_OK;
    if (*slot != LORA_NONE) {
        const lora_tensor *other = VEC_AT(&set->tensors, const lora_tensor, *slot);
        const cat_tensor *first = catalogue_tensor(c, other->tensor);
        const cat_tensor *second = catalogue_tensor(c, t->tensor);
        return FAIL_WITH(err, BADINPUT, LORA_PAIR, ("two tensors are the same part of an adapter"),
                         (tensor, catalogue_name(c, second->name)),
                         (found, "also '%s'", catalogue_name(c, first->name)),
                         (next, "omit one of them with --exclude, or save the checkpoint again"));
    }
    *slot = index;
    return FSDPCK_OK;
}

static fsdpck_status intern(strtab *names, text_buf *text, uint32_t *id, fsdpck_error *err)
{
    text_append(text, "", 0);
    RETURN_IF(text_check(text, err));
    return strtab_intern(names, text->text, text->nbytes, id, err);
}

/* The name that the base model has for a tensor of the base model, or of a trained copy. */
static fsdpck_status name_base(lora_set *set, const lora_name *n, text_buf *text, uint32_t *base,
                               fsdpck_error *err)
{
    text->nbytes = 0;
    if (n->role == LORA_ROLE_BASE || n->role == LORA_ROLE_ORIGINAL) {
        lora_name_append_base(&set->wrappers, n->name, n->nbytes, text);
    } else if (n->role == LORA_ROLE_SAVED) {
        lora_name_append_base(&set->wrappers, n->name, n->wrapped_nbytes, text);
        text_puts(text, ".");
        text_append(text, n->mark, n->mark_nbytes);
    } else {
        *base = LORA_NONE;
        return FSDPCK_OK;
    }
    return intern(&set->names, text, base, err);
}

static fsdpck_status add_tensor(lora_set *set, const catalogue *c, const lora_input *in,
                                text_buf *text, fsdpck_error *err)
{
    lora_name n;
    lora_tensor t = {.tensor = in->tensor, .adapter = LORA_NONE, .module = LORA_NONE};
    const uint32_t index = (uint32_t)set->tensors.count;
    lora_name_parse(in->name, in->nbytes, &n);
    t.role = n.role;
    text->nbytes = 0;
    lora_name_append_saved(&n, text);
    RETURN_IF(intern(&set->names, text, &t.saved, err));
    RETURN_IF(name_base(set, &n, text, &t.base, err));
    if (n.role != LORA_ROLE_BASE && n.role != LORA_ROLE_ORIGINAL && n.role != LORA_ROLE_FOREIGN) {
        t.adapter = strtab_find(&set->adapters, n.adapter, n.adapter_nbytes);
        RETURN_IF(find_module(set, c, &n, &t, err));
    }
    RETURN_IF(vec_add(&set->tensors, &t, err));
    return t.module == LORA_NONE ? FSDPCK_OK : place(set, c, index, err);
}

/* ---- the base model ---- */

static fsdpck_status index_base(lora_set *set, fsdpck_error *err)
{
    const size_t count = strtab_count(&set->names);
    uint32_t *by = vec_push_n(&set->by_base, count, err);
    if (by == NULL && count > 0)
        return FSDPCK_LIMIT;
    if (count > 0)
        memset(by, 0xff, count * sizeof *by);
    for (uint32_t i = 0; i < set->tensors.count; i++) {
        const lora_tensor *t = VEC_AT(&set->tensors, const lora_tensor, i);
        if (t->role == LORA_ROLE_BASE || t->role == LORA_ROLE_ORIGINAL)
            by[t->base] = i;
    }
    return FSDPCK_OK;
}

uint32_t lora_set_find_base(const lora_set *set, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&set->names, name, nbytes);
    return id == STRTAB_NONE || id >= set->by_base.count
               ? LORA_NONE
               : *VEC_AT(&set->by_base, const uint32_t, id);
}

static fsdpck_status find_below(const lora_set *set, uint32_t path, const char *key, uint32_t *i,
                                fsdpck_error *err)
{
    text_buf name = {0};
    text_append(&name, strtab_text(&set->names, path), strtab_nbytes(&set->names, path));
    text_puts(&name, key);
    const fsdpck_status st = text_check(&name, err);
    *i = st == FSDPCK_OK ? lora_set_find_base(set, name.text, name.nbytes) : LORA_NONE;
    text_release(&name);
    return st;
}

/* Modules with a parameter of two dims or more that is not called weight. */
static fsdpck_status find_holders(const lora_set *set, const catalogue *c, strtab *holders,
                                  fsdpck_error *err)
{
    for (size_t i = 0; i < set->tensors.count; i++) {
        const lora_tensor *t = VEC_AT(&set->tensors, const lora_tensor, i);
        uint32_t id;
        if (t->role != LORA_ROLE_BASE || catalogue_tensor(c, t->tensor)->ndim < 2)
            continue;
        const char *name = strtab_text(&set->names, t->base);
        size_t n = strtab_nbytes(&set->names, t->base);
        if (text_ends_with(name, n, ".weight"))
            continue;
        while (n > 0 && name[n - 1] != '.')
            n--;
        if (n > 1)
            RETURN_IF(strtab_intern(holders, name, n - 1, &id, err));
    }
    return FSDPCK_OK;
}

/* A linear module without base weight, or with several wrappers, has adapters of parameters. */
static fsdpck_status find_parameters(lora_set *set, const strtab *holders, fsdpck_error *err)
{
    strtab nested;
    strtab_init(&nested, set->names.owner);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < set->modules.count && st == FSDPCK_OK; i++) {
        const lora_module *m = VEC_AT(&set->modules, const lora_module, i);
        uint32_t id;
        if (m->nesting > 0)
            st = strtab_intern(&nested, strtab_text(&set->names, m->path),
                               strtab_nbytes(&set->names, m->path), &id, err);
    }
    for (size_t i = 0; i < set->modules.count && st == FSDPCK_OK; i++) {
        lora_module *m = VEC_AT(&set->modules, lora_module, i);
        const char *path = strtab_text(&set->names, m->path);
        const size_t n = strtab_nbytes(&set->names, m->path);
        if (m->kind == LORA_LINEAR && m->base_weight == LORA_NONE && !m->is_attention &&
            (strtab_find(&nested, path, n) != STRTAB_NONE ||
             strtab_find(holders, path, n) != STRTAB_NONE))
            m->kind = LORA_PARAMETER;
    }
    strtab_release(&nested);
    return st;
}

/* PEFT saves the base weight of targeted embeddings and of such an output projection with the adapter. */
static bool may_be_saved(const lora_set *set, const lora_module *m)
{
    static const char head[] = "lm_head";
    const char *path = strtab_text(&set->names, m->path);
    const size_t n = strtab_nbytes(&set->names, m->path);
    return m->kind == LORA_EMBEDDING || text_is(path, n, head) ||
           text_ends_with(path, n, ".lm_head");
}

/* Whether modules show that the base model is among the inputs: one has its weight there. */
static void find_base_model(lora_set *set, const strtab *holders)
{
    size_t modules = 0, with = 0;
    for (size_t i = 0; i < set->modules.count; i++) {
        const lora_module *m = VEC_AT(&set->modules, const lora_module, i);
        if (m->kind == LORA_SAVED || m->kind == LORA_TOKENS || may_be_saved(set, m))
            continue;
        modules++;
        with += m->base_weight != LORA_NONE ||
                strtab_find(holders, strtab_text(&set->names, m->path),
                            strtab_nbytes(&set->names, m->path)) != STRTAB_NONE;
    }
    set->has_base = modules > 0 ? with > 0 : strtab_find(&set->adapters, "", 0) == STRTAB_NONE;
}

/* PEFT wraps nn.MultiheadAttention, and its out_proj inside the wrapper.
 * Source: peft 0.21.2 (tuners/lora/layer.py: MultiheadAttention). */
static fsdpck_status find_attention(lora_set *set, uint32_t index, fsdpck_error *err)
{
    static const char inside[] = ".base_layer.out_proj";
    lora_module *m = VEC_AT(&set->modules, lora_module, index);
    text_buf key = {0};
    if (m->kind != LORA_LINEAR || m->base_weight != LORA_NONE)
        return FSDPCK_OK;
    text_append(&key, strtab_text(&set->module_keys, index),
                strtab_nbytes(&set->module_keys, index));
    text_puts(&key, inside);
    RETURN_IF(text_check(&key, err));
    const uint32_t out = strtab_find(&set->module_keys, key.text, key.nbytes);
    text_release(&key);
    if (out == STRTAB_NONE)
        return FSDPCK_OK;
    m->is_attention = true;
    VEC_AT(&set->modules, lora_module, out)->holder = index;
    return find_below(set, m->path, ".in_proj_weight", &m->base_weight, err);
}

static fsdpck_status join_base(lora_set *set, const catalogue *c, fsdpck_error *err)
{
    strtab holders;
    RETURN_IF(index_base(set, err));
    for (size_t i = 0; i < set->modules.count; i++) {
        lora_module *m = VEC_AT(&set->modules, lora_module, i);
        RETURN_IF(find_below(set, m->path, ".weight", &m->base_weight, err));
        RETURN_IF(find_below(set, m->path, ".bias", &m->base_bias, err));
    }
    for (uint32_t i = 0; i < set->modules.count; i++)
        RETURN_IF(find_attention(set, i, err));
    strtab_init(&holders, set->names.owner);
    fsdpck_status st = find_holders(set, c, &holders, err);
    if (st == FSDPCK_OK)
        st = find_parameters(set, &holders, err);
    if (st == FSDPCK_OK)
        find_base_model(set, &holders);
    strtab_release(&holders);
    return st;
}

/* A file of an adapter alone names no adapter, and holds no base model: all is the adapter's. */
static void own_all(lora_set *set)
{
    const uint32_t unnamed = strtab_find(&set->adapters, "", 0);
    if (set->has_base || strtab_count(&set->adapters) != 1 || unnamed == STRTAB_NONE)
        return;
    for (size_t i = 0; i < set->tensors.count; i++) {
        lora_tensor *t = VEC_AT(&set->tensors, lora_tensor, i);
        if (t->role == LORA_ROLE_BASE || t->role == LORA_ROLE_ORIGINAL) {
            t->role = LORA_ROLE_SAVED;
            t->adapter = unnamed;
        }
    }
}

fsdpck_status lora_set_find(const catalogue *c, const lora_input *inputs, size_t count, bool joined,
                            budget *owner, lora_set *set, fsdpck_error *err)
{
    *set = (lora_set){.tensors = VEC_OF(lora_tensor, owner),
                      .modules = VEC_OF(lora_module, owner),
                      .by_base = VEC_OF(uint32_t, owner)};
    strtab_init(&set->names, owner);
    strtab_init(&set->adapters, owner);
    strtab_init(&set->module_keys, owner);
    strtab_init(&set->wrappers, owner);
    for (size_t i = 0; i < count; i++) {
        lora_name n;
        lora_name_parse(inputs[i].name, inputs[i].nbytes, &n);
        set->has_prefix = set->has_prefix || n.name != inputs[i].name;
        RETURN_IF(add_wrapper(set, &n, err));
    }
    text_buf text = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++)
        st = add_tensor(set, c, &inputs[i], &text, err);
    text_release(&text);
    RETURN_IF(st);
    RETURN_IF(join_base(set, c, err));
    set->has_base = set->has_base || joined;
    own_all(set);
    return FSDPCK_OK;
}

void lora_set_release(lora_set *set)
{
    strtab_release(&set->names);
    strtab_release(&set->adapters);
    strtab_release(&set->module_keys);
    strtab_release(&set->wrappers);
    VEC_RELEASE_ALL(&set->tensors, &set->modules, &set->by_base);
}

size_t lora_saved_path(const lora_set *set, size_t i)
{
    static const char bias[] = ".bias";
    const lora_tensor *t = lora_tensor_at(set, i);
    const char *name = lora_text(set, t->base);
    size_t n = strlen(name);
    if (t->role != LORA_ROLE_SAVED || t->module != LORA_NONE)
        return 0;
    /* Weights of modules with an adapter, and trained biases, are saved too. */
    const char *saved = lora_text(set, t->saved);
    if (!text_ends_with(saved, strlen(saved), name) || text_ends_with(name, n, bias))
        return 0;
    while (n > 0 && name[n - 1] != '.')
        n--;
    return n > 0 ? n - 1 : 0;
}

size_t lora_adapter_count(const lora_set *set)
{
    return strtab_count(&set->adapters);
}

size_t lora_module_count(const lora_set *set)
{
    return set->modules.count;
}

size_t lora_tensor_count(const lora_set *set)
{
    return set->tensors.count;
}

const lora_module *lora_module_at(const lora_set *set, size_t i)
{
    return VEC_AT(&set->modules, const lora_module, i);
}

const lora_tensor *lora_tensor_at(const lora_set *set, size_t i)
{
    return VEC_AT(&set->tensors, const lora_tensor, i);
}

const char *lora_text(const lora_set *set, uint32_t name)
{
    return name == LORA_NONE ? "" : strtab_text(&set->names, name);
}

uint32_t lora_cat_tensor(const lora_set *set, uint32_t i)
{
    return i == LORA_NONE ? CAT_NONE : VEC_AT(&set->tensors, const lora_tensor, i)->tensor;
}
