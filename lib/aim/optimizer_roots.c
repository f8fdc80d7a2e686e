#include "aim/optimizer_roots.h"

#include <string.h>

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

static bool is_word(const char *text, size_t nbytes, const char *word)
{
    return strlen(word) == nbytes && memcmp(text, word, nbytes) == 0;
}

static bool word_is(const words *w, const char *word)
{
    return is_word(w->text + w->at, w->end - w->at, word);
}

/* What optimizers keep for each parameter, by names that no module gives to a parameter. */
static bool is_slot(const words *w)
{
    static const char *const slots[] = {"exp_avg",         "exp_avg_sq",     "max_exp_avg_sq",
                                        "exp_avg_sq_row",  "exp_avg_sq_col", "exp_inf",
                                        "square_avg",      "grad_avg",       "acc_delta",
                                        "momentum_buffer", "fp32_param"};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        if (word_is(w, slots[i]))
            return true;
    return false;
}

bool optimizer_roots_is_stem(const char *text, size_t nbytes, const char *stem)
{
    static const char *const ends[] = {
        "", "s", "_state", "_states", "_state_dict", "_state_dicts", "s_state_dict", "s_state"};
    const size_t n = strlen(stem);
    while (nbytes > n && text[nbytes - 1] >= '0' && text[nbytes - 1] <= '9')
        nbytes--;
    if (nbytes > n && text[nbytes - 1] == '_')
        nbytes--;
    if (nbytes < n || memcmp(text, stem, n) != 0)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (is_word(text + n, nbytes - n, ends[i]))
            return true;
    return false;
}

bool optimizer_roots_is_key(const char *text, size_t nbytes)
{
    return optimizer_roots_is_stem(text, nbytes, "optim") ||
           optimizer_roots_is_stem(text, nbytes, "optimizer") ||
           is_word(text, nbytes, "last_optimizer_state");
}

/* The root of a tensor's name by the slots in it, 0 where there is none: what stands before the last
 * `state` that has a slot behind it, or a first word that only an optimizer has. */
static size_t root_by_slot(const char *name, size_t nbytes)
{
    words w = words_of(name, nbytes);
    const bool is_key = optimizer_roots_is_key(name, w.end);
    size_t root = 0, pending = 0, key = 0;
    if (is_key)
        key = w.end;
    while (next_word(&w)) {
        if (word_is(&w, "state") && w.at <= ROOT_MAX_NBYTES)
            pending = w.at - 1;
        else if (pending > 0 && is_slot(&w))
            root = pending;
        else if (key > 0 && root == 0 && is_slot(&w))
            root = key;
    }
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

fsdpck_status optimizer_roots_find(const catalogue *c, size_t tensor_count, optimizer_roots *r,
                                   fsdpck_error *err)
{
    uint32_t id;
    strtab_init(&r->groups, c->owner);
    strtab_init(&r->slots, c->owner);
    for (size_t i = 0; i < catalogue_object_count(c); i++) {
        const uint32_t name = catalogue_object(c, i)->name;
        const char *text = catalogue_name(c, name);
        const size_t n = root_by_groups(text, catalogue_name_nbytes(c, name));
        if (n > 0)
            RETURN_IF(strtab_intern(&r->groups, text, n, &id, err));
    }
    for (size_t i = 0; i < tensor_count; i++) {
        const uint32_t name = catalogue_tensor(c, i)->name;
        const char *text = catalogue_name(c, name);
        const size_t n = root_by_slot(text, catalogue_name_nbytes(c, name));
        if (n > 0)
            RETURN_IF(strtab_intern(&r->slots, text, n, &id, err));
    }
    return FSDPCK_OK;
}

void optimizer_roots_release(optimizer_roots *r)
{
    strtab_release(&r->groups);
    strtab_release(&r->slots);
}

bool optimizer_roots_any(const optimizer_roots *r)
{
    return strtab_count(&r->groups) > 0 || strtab_count(&r->slots) > 0;
}

bool optimizer_roots_has(const optimizer_roots *r, const char *root, size_t nbytes)
{
    return strtab_find(&r->groups, root, nbytes) != STRTAB_NONE ||
           strtab_find(&r->slots, root, nbytes) != STRTAB_NONE;
}

bool optimizer_roots_cover(const optimizer_roots *r, const char *name, size_t nbytes,
                           size_t *root_nbytes)
{
    words w = words_of(name, nbytes);
    while (optimizer_roots_any(r) && next_word(&w) && w.at <= ROOT_MAX_NBYTES) {
        if ((word_is(&w, "state") || word_is(&w, "param_groups")) &&
            optimizer_roots_has(r, name, w.at - 1)) {
            *root_nbytes = w.at - 1;
            return true;
        }
    }
    return false;
}

bool optimizer_roots_group(const optimizer_roots *r, const char *name, size_t nbytes)
{
    words w = words_of(name, nbytes);
    while (strtab_count(&r->groups) > 0 && next_word(&w) && w.at <= ROOT_MAX_NBYTES)
        if ((word_is(&w, "state") || word_is(&w, "param_groups")) &&
            strtab_find(&r->groups, name, w.at - 1) != STRTAB_NONE)
            return true;
    return false;
}
