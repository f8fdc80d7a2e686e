#include <stdlib.h>
#include <string.h>

#include "aim/aim_internal.h"

/* Tied tensors view the same bytes of one storage in the same way. Equal bytes in two places are no tie:
 * they may be meant to part. */

typedef struct tie_key {
    uint32_t alias;
    uint32_t pick;
    uint64_t offset_bytes;
} tie_key;

static int compare_keys(const void *left, const void *right)
{
    const tie_key *a = left, *b = right;
    if (a->alias != b->alias)
        return a->alias < b->alias ? -1 : 1;
    if (a->offset_bytes != b->offset_bytes)
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    return a->pick < b->pick ? -1 : a->pick > b->pick;
}

static bool same_view(const catalogue *c, uint32_t i, uint32_t k)
{
    const cat_tensor *a = catalogue_tensor(c, i), *b = catalogue_tensor(c, k);
    if (a->dtype != b->dtype || a->ndim != b->ndim || a->nchunks != 1 || b->nchunks != 1)
        return false;
    if (a->ndim > 0 && memcmp(catalogue_shape(c, i), catalogue_shape(c, k), a->ndim * sizeof(uint64_t)) != 0)
        return false;
    const cat_chunk *x = catalogue_chunk(c, a->first_chunk), *y = catalogue_chunk(c, b->first_chunk);
    return x->place == PLACE_ROWS && y->place == PLACE_ROWS && x->file == y->file &&
           x->offset_bytes == y->offset_bytes && x->nbytes > 0;
}

static fsdpck_status note_tie(aim_state *a, const aim_pick *first, const aim_pick *tied,
                              fsdpck_error *err)
{
    aim_result *r = a->result;
    r->tied++;
    if (r->tied_names_count >= AIM_NAMES_MAX)
        return FSDPCK_OK;
    text_buf both = {0};
    text_append(&both, strtab_text(&a->names, tied->name), strtab_nbytes(&a->names, tied->name));
    text_puts(&both, " = ");
    text_append(&both, strtab_text(&a->names, first->name), strtab_nbytes(&a->names, first->name));
    fsdpck_status st = text_check(&both, err);
    char *line = st == FSDPCK_OK ? malloc(512) : NULL;
    if (line != NULL)
        r->tied_names[r->tied_names_count++] = escape_text(line, 512, both.text, both.nbytes);
    else if (st == FSDPCK_OK)
        st = error_set_nomem(err, 512);
    text_release(&both);
    return st;
}

fsdpck_status aim_find_ties(aim_state *a, fsdpck_error *err)
{
    vec keys = VEC_OF(tie_key, a->from->owner);
    fsdpck_status st = FSDPCK_OK;
    for (size_t k = 0; k < a->picks.count; k++) {
        const cat_tensor *t = catalogue_tensor(a->from, VEC_AT(&a->picks, aim_pick, k)->source);
        if (t->alias == CAT_NONE || t->nchunks != 1)
            continue;
        tie_key *key = vec_push(&keys, err);
        if (key == NULL)
            GOTO_IF(FSDPCK_LIMIT, out);
        *key = (tie_key){t->alias, (uint32_t)k, catalogue_chunk(a->from, t->first_chunk)->offset_bytes};
    }
    if (keys.count > 1)
        qsort(keys.items, keys.count, sizeof(tie_key), compare_keys);
    size_t head = 0;
    for (size_t k = 1; k < keys.count; k++) {
        const tie_key *h = VEC_AT(&keys, tie_key, head), *key = VEC_AT(&keys, tie_key, k);
        aim_pick *first = VEC_AT(&a->picks, aim_pick, h->pick);
        aim_pick *pick = VEC_AT(&a->picks, aim_pick, key->pick);
        if (h->alias != key->alias || !same_view(a->from, first->source, pick->source)) {
            head = k;
            continue;
        }
        pick->tied_to = h->pick;
        first->has_ties = true;
        GOTO_IF(note_tie(a, first, pick, err), out);
    }
out:
    vec_release(&keys);
    return st;
}
