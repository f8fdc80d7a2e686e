#include "formats/dcp/dcp_name_order.h"

#include <string.h>

/* The lowest and the highest rank that wrote a blob; false if a file's rank is unknown. */
static bool find_ranks(const catalogue *cat, const uint8_t *holds, uint32_t *first, uint32_t *last)
{
    *first = CAT_NONE;
    *last = 0;
    for (size_t i = 0; i < catalogue_file_count(cat); i++) {
        const uint32_t rank = catalogue_file(cat, i)->rank;
        if (!holds[i])
            continue;
        if (rank == CAT_NONE)
            return false;
        *first = rank < *first ? rank : *first;
        *last = rank > *last ? rank : *last;
    }
    return true;
}

/* --- optimizers of one rank --- */

#define STATE  "state."
#define GROUPS "param_groups."

/* What precedes both words in the names of an optimizer, and the positions of names. */
typedef struct optimizer {
    uint32_t first_of_groups, last_of_state; /* 0: none */
} optimizer;

typedef struct optimizers {
    const strtab *fqns;
    strtab prefixes;
    vec items; /* optimizer, by prefix */
} optimizers;

/* The next place of `word`, from `at` on, where it begins an element; NULL. */
static const char *find_element(const char *at, const char *text, const char *word)
{
    const char *found = strstr(at, word);
    while (found != NULL && found != text && found[-1] != '.')
        found = strstr(found + 1, word);
    return found;
}

/* A name with `word`, of an optimizer; NULL. */
static optimizer *find_optimizer(const optimizers *o, uint32_t fqn, const char *word)
{
    const char *text = strtab_text(o->fqns, fqn);
    for (const char *at = find_element(text, text, word); at != NULL;
         at = find_element(at + 1, text, word)) {
        const uint32_t id = strtab_find(&o->prefixes, text, (size_t)(at - text));
        if (id != STRTAB_NONE)
            return VEC_AT(&o->items, optimizer, id);
    }
    return NULL;
}

static fsdpck_status add_groups(optimizers *o, uint32_t fqn, uint32_t saved_at, fsdpck_error *err)
{
    const char *text = strtab_text(o->fqns, fqn);
    const char *at = find_element(text, text, GROUPS);
    uint32_t id;
    if (at == NULL || saved_at == 0)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&o->prefixes, text, (size_t)(at - text), &id, err));
    if (id == o->items.count)
        return vec_add(&o->items, &(optimizer){.first_of_groups = saved_at}, err);
    uint32_t *first = &VEC_AT(&o->items, optimizer, id)->first_of_groups;
    *first = saved_at < *first ? saved_at : *first;
    return FSDPCK_OK;
}

/* A rank lists an optimizer's state before its groups, and names that only lower ranks have follow. State of another
 * rank thus follows some groups: where none does, one rank had all of the optimizer, whichever ranks wrote it. */
static fsdpck_status clear_whole(const dcp_builder *b, const uint32_t *saved_at, size_t nfqns,
                                 uint8_t *joined, fsdpck_error *err)
{
    optimizers o = {.fqns = &b->names->fqns, .items = VEC_OF(optimizer, b->cat->owner)};
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&o.prefixes, b->cat->owner);
    for (uint32_t f = 0; f < nfqns && st == FSDPCK_OK; f++)
        st = add_groups(&o, f, saved_at[f], err);
    for (uint32_t f = 0; f < nfqns && st == FSDPCK_OK; f++) {
        optimizer *of = find_optimizer(&o, f, STATE);
        if (of != NULL && saved_at[f] > of->last_of_state)
            of->last_of_state = saved_at[f];
    }
    for (uint32_t f = 0; f < nfqns && st == FSDPCK_OK; f++) {
        const optimizer *of = joined[f] ? find_optimizer(&o, f, STATE) : NULL;
        if (joined[f] && of == NULL)
            of = find_optimizer(&o, f, GROUPS);
        if (of != NULL && of->last_of_state > 0 && of->last_of_state < of->first_of_groups)
            joined[f] = 0;
    }
    vec_release(&o.items);
    strtab_release(&o.prefixes);
    return st;
}

fsdpck_status dcp_find_joined(const dcp_builder *b, const dcp_metadata *m, const uint8_t *holds,
                              const uint32_t *saved_at, size_t nfqns, uint8_t *joined,
                              fsdpck_error *err)
{
    uint32_t first, last, known_to = 0;
    bool has_order = false;

    memset(joined, b->has_lower_ranks, nfqns);
    /* fsdpck keeps the order of its input, whichever ranks it writes. */
    if (b->has_lower_ranks || m->is_by_fsdpck || !find_ranks(b->cat, holds, &first, &last) ||
        first == last)
        return FSDPCK_OK;
    for (size_t f = 0; f < nfqns; f++)
        has_order = has_order || saved_at[f] > 0;
    memset(joined, !has_order, nfqns);
    for (size_t i = 0; i < m->entries.count; i++) {
        const dcp_entry *e = VEC_AT(&m->entries, const dcp_entry, i);
        if (!e->paired)
            continue;
        const uint32_t rank = catalogue_file(b->cat, e->file)->rank;
        if (rank == last && saved_at[e->fqn] > known_to)
            known_to = saved_at[e->fqn];
        if (rank == first && !has_order)
            joined[e->fqn] = 0;
    }
    for (size_t f = 0; f < nfqns; f++)
        joined[f] = joined[f] || saved_at[f] > known_to;
    return has_order ? clear_whole(b, saved_at, nfqns, joined, err) : FSDPCK_OK;
}
