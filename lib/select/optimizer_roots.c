#include "select/optimizer_roots.h"

#include <string.h>

#include "base/text.h"
#include "state/tensor_rank_suffix.h"

/* Longer roots are none: looking them up costs their length, once for each word. */
#define ROOT_MAX_NBYTES 512u

/* A dotted name, word by word. */
typedef struct words {
    const char *text;
    size_t nbytes;
    size_t at, end; /* of the word */
} words;

static words words_of(const char *name, size_t nbytes)
{
    const char *dot = memchr(name, '.', nbytes);
    return (words){.text = name, .nbytes = nbytes, .end = dot ? (size_t)(dot - name) : nbytes};
}

static bool next_word(words *w)
{
    if (w->end >= w->nbytes)
        return false;
    w->at = w->end + 1;
    const char *dot = memchr(w->text + w->at, '.', w->nbytes - w->at);
    w->end = dot ? (size_t)(dot - w->text) : w->nbytes;
    return true;
}

static bool word_is(const words *w, const char *word)
{
    return text_is(w->text + w->at, w->end - w->at, word);
}

/* What optimizers keep for each parameter, by names that no module gives to a parameter. */
bool optimizer_roots_is_slot(const char *text, size_t nbytes)
{
    static const char *const slots[] = {"exp_avg",         "exp_avg_sq",     "max_exp_avg_sq",
                                        "exp_avg_sq_row",  "exp_avg_sq_col", "exp_inf",
                                        "square_avg",      "grad_avg",       "acc_delta",
                                        "momentum_buffer", "fp32_param"};
    return TEXT_IS_IN(text, nbytes, slots);
}

static bool is_slot(const words *w)
{
    return optimizer_roots_is_slot(w->text + w->at, w->end - w->at);
}

bool optimizer_roots_is_stem(const char *text, size_t nbytes, const char *stem)
{
    static const char *const ends[] = {
        "",        "s",       "_state", "_states", "_state_dict", "_state_dicts", "s_state_dict",
        "s_state", "_weights"};
    const size_t n = strlen(stem);
    while (nbytes > n && text[nbytes - 1] >= '0' && text[nbytes - 1] <= '9')
        nbytes--;
    if (nbytes > n && text[nbytes - 1] == '_')
        nbytes--;
    if (nbytes < n || memcmp(text, stem, n) != 0)
        return false;
    return TEXT_IS_IN(text + n, nbytes - n, ends);
}

bool optimizer_roots_is_key(const char *text, size_t nbytes)
{
    return optimizer_roots_is_stem(text, nbytes, "optim") ||
           optimizer_roots_is_stem(text, nbytes, "optimizer") ||
           text_is(text, nbytes, "last_optimizer_state");
}

static bool is_number(const words *w)
{
    for (size_t i = w->at; i < w->end; i++)
        if (w->text[i] < '0' || w->text[i] > '9')
            return false;
    return w->end > w->at;
}

/* After a key that only an optimizer has, less is required: a scalar `state.FQN.step` of an
 * optimizer without other state, Keras' `vars.0`, or any slot. */
static bool has_key_shape(const words *key, unsigned ndim)
{
    words w = *key;
    (void)next_word(&w);
    if (word_is(&w, "vars") && next_word(&w))
        return is_number(&w);
    const bool is_state = word_is(&w, "state") && next_word(&w);
    bool found = false;
    while (!found && next_word(&w))
        found = is_slot(&w) || (is_state && ndim == 0 && w.end == w.nbytes && word_is(&w, "step"));
    return found;
}

/* Length of the root of a tensor's name by its slots, or 0: the prefix of the last `state` that a
 * slot follows, or a first word that only an optimizer has. */
static size_t root_by_slot(const char *name, size_t nbytes, unsigned ndim)
{
    const words first = words_of(name, nbytes);
    words w = first;
    size_t root = 0, pending = 0;
    while (next_word(&w)) {
        if (word_is(&w, "state") && w.at <= ROOT_MAX_NBYTES)
            pending = w.at - 1;
        else if (pending > 0 && is_slot(&w))
            root = pending;
    }
    if (root == 0 && first.end < nbytes && optimizer_roots_is_key(name, first.end) &&
        has_key_shape(&first, ndim))
        root = first.end;
    return root;
}

static size_t root_by_groups(const char *name, size_t nbytes)
{
    words w = words_of(name, nbytes);
    while (next_word(&w) && w.at <= ROOT_MAX_NBYTES)
        if (word_is(&w, "param_groups"))
            return w.at - 1;
    return 0;
}

/* In flat names too, where the name is its only key. */
static fsdpck_status add_root(const catalogue *c, optimizer_roots *r, strtab *to, value path,
                              const char *root, size_t nbytes, fsdpck_error *err)
{
    uint32_t id;
    if (nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(to, root, nbytes, &id, err));
    if (!value_is_none(path) && value_count(&c->pool, path) > 1)
        return FSDPCK_OK;
    return strtab_intern(&r->flat, root, nbytes, &id, err);
}

static fsdpck_status find_in_tensors(const catalogue *c, size_t tensor_count, optimizer_roots *r,
                                     fsdpck_error *err)
{
    static const char keras[] = "optimizer_weights";
    bool has_model = false, has_keras = false;
    for (size_t i = 0; i < tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        const char *text = catalogue_name(c, t->name);
        size_t nbytes = catalogue_name_nbytes(c, t->name);
        if (t->flags & CAT_TENSOR_OF_RANK)
            nbytes = name_without_rank(text, nbytes);
        const words first = words_of(text, nbytes);
        has_model = has_model || (first.end < nbytes && word_is(&first, "model_weights"));
        has_keras = has_keras || (first.end < nbytes && word_is(&first, keras));
        RETURN_IF(
            add_root(c, r, &r->slots, t->path, text, root_by_slot(text, nbytes, t->ndim), err));
    }
    if (!has_model || !has_keras)
        return FSDPCK_OK;
    /* A file of Keras 2 has no other shape to go by. */
    return add_root(c, r, &r->slots, VALUE_OF_NONE, keras, strlen(keras), err);
}

fsdpck_status optimizer_roots_find(const catalogue *c, size_t tensor_count, optimizer_roots *r,
                                   fsdpck_error *err)
{
    strtab_init(&r->groups, c->owner);
    strtab_init(&r->slots, c->owner);
    strtab_init(&r->flat, c->owner);
    for (size_t i = 0; i < catalogue_object_count(c); i++) {
        const cat_object *o = catalogue_object(c, i);
        const char *text = catalogue_name(c, o->name);
        const size_t n = root_by_groups(text, catalogue_name_nbytes(c, o->name));
        RETURN_IF(add_root(c, r, &r->groups, o->path, text, n, err));
    }
    return find_in_tensors(c, tensor_count, r, err);
}

void optimizer_roots_release(optimizer_roots *r)
{
    strtab_release(&r->groups);
    strtab_release(&r->slots);
    strtab_release(&r->flat);
}

bool optimizer_roots_any(const optimizer_roots *r)
{
    return strtab_count(&r->groups) > 0 || strtab_count(&r->slots) > 0;
}

bool optimizer_roots_has_flat(const optimizer_roots *r, const char *root, size_t nbytes)
{
    return strtab_find(&r->flat, root, nbytes) != STRTAB_NONE;
}

static bool has_root(const optimizer_roots *r, const char *root, size_t nbytes)
{
    return strtab_find(&r->groups, root, nbytes) != STRTAB_NONE ||
           strtab_find(&r->slots, root, nbytes) != STRTAB_NONE;
}

bool optimizer_roots_contain(const optimizer_roots *r, const char *name, size_t nbytes,
                             size_t *root_nbytes)
{
    words w = words_of(name, nbytes);
    while (optimizer_roots_any(r) && next_word(&w) && w.at <= ROOT_MAX_NBYTES) {
        if ((word_is(&w, "state") || word_is(&w, "param_groups")) && has_root(r, name, w.at - 1)) {
            *root_nbytes = w.at - 1;
            return true;
        }
    }
    return false;
}

bool optimizer_roots_contain_group(const optimizer_roots *r, const char *name, size_t nbytes)
{
    words w = words_of(name, nbytes);
    while (strtab_count(&r->groups) > 0 && next_word(&w) && w.at <= ROOT_MAX_NBYTES)
        if ((word_is(&w, "state") || word_is(&w, "param_groups")) &&
            strtab_find(&r->groups, name, w.at - 1) != STRTAB_NONE)
            return true;
    return false;
}
