#include <stdlib.h>
#include <string.h>

#include "aim/aim_internal.h"

/* Tied tensors view the same bytes of one storage in the same way. Equal bytes in two places are no
 * tie: they may be meant to part. */

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

fsdpck_status aim_locate(const aim_state *a, uint32_t from_index, place *where, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(a->from, from_index);
    memset(where, 0, sizeof *where);
    RETURN_IF(a->request->src->locate(a->request->src->ctx, t->first_chunk, where, err));
    if (where->rows)
        box_row_major_strides(catalogue_shape(a->from, from_index), t->ndim, where->strides);
    return FSDPCK_OK;
}

static fsdpck_status same_view(const aim_state *a, uint32_t i, uint32_t k, bool *same,
                               fsdpck_error *err)
{
    const cat_tensor *x = catalogue_tensor(a->from, i), *y = catalogue_tensor(a->from, k);
    const size_t n = x->ndim * sizeof(uint64_t);
    *same = x->dtype == y->dtype && x->ndim == y->ndim &&
            (n == 0 || memcmp(catalogue_shape(a->from, i), catalogue_shape(a->from, k), n) == 0);
    if (!*same)
        return FSDPCK_OK;
    place p, q;
    RETURN_IF(aim_locate(a, i, &p, err));
    RETURN_IF(aim_locate(a, k, &q, err));
    *same = p.file == q.file && p.offset_bytes == q.offset_bytes && p.conj == q.conj &&
            p.neg == q.neg && (n == 0 || memcmp(p.strides, q.strides, n) == 0);
    return FSDPCK_OK;
}

fsdpck_status aim_note_tie(aim_state *a, const aim_pick *first, const aim_pick *tied,
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

static fsdpck_status list_views(const aim_state *a, vec *keys, fsdpck_error *err)
{
    for (size_t k = 0; k < a->picks.count; k++) {
        const uint32_t from_index = VEC_AT(&a->picks, aim_pick, k)->source;
        const cat_tensor *t = catalogue_tensor(a->from, from_index);
        if (t->alias == CAT_NONE || t->nchunks != 1 ||
            catalogue_tensor_nelems(a->from, from_index) == 0)
            continue;
        place where;
        RETURN_IF(aim_locate(a, from_index, &where, err));
        tie_key *key = vec_push(keys, err);
        if (key == NULL)
            return FSDPCK_LIMIT;
        *key = (tie_key){t->alias, (uint32_t)k, where.offset_bytes};
    }
    return FSDPCK_OK;
}

fsdpck_status aim_find_ties(aim_state *a, fsdpck_error *err)
{
    vec keys = VEC_OF(tie_key, a->from->owner);
    fsdpck_status st = FSDPCK_OK;
    GOTO_IF(list_views(a, &keys, err), out);
    if (keys.count > 1)
        qsort(keys.items, keys.count, sizeof(tie_key), compare_keys);
    size_t head = 0;
    for (size_t k = 1; k < keys.count; k++) {
        const tie_key *h = VEC_AT(&keys, tie_key, head), *key = VEC_AT(&keys, tie_key, k);
        const aim_pick *first = VEC_AT(&a->picks, aim_pick, h->pick);
        aim_pick *pick = VEC_AT(&a->picks, aim_pick, key->pick);
        bool same = false;
        if (h->alias == key->alias && h->offset_bytes == key->offset_bytes)
            GOTO_IF(same_view(a, first->source, pick->source, &same, err), out);
        if (!same) {
            head = k;
            continue;
        }
        pick->tied_to = h->pick;
        GOTO_IF(aim_note_tie(a, first, pick, err), out);
    }
out:
    vec_release(&keys);
    return st;
}
