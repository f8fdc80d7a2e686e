/* What is not a tensor, compared as trees. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "digest.h"

/* Of each side in a report. */
#define SHOWN_NBYTES 120u

typedef struct object_key {
    const char *name;
    size_t name_nbytes;
    uint16_t rank;
    uint32_t object;
} object_key;

static int compare_keys(const void *a, const void *b)
{
    const object_key *x = a, *y = b;
    const size_t shorter = x->name_nbytes < y->name_nbytes ? x->name_nbytes : y->name_nbytes;
    const int diff = shorter == 0 ? 0 : memcmp(x->name, y->name, shorter);
    if (diff != 0)
        return diff;
    if (x->name_nbytes != y->name_nbytes)
        return x->name_nbytes > y->name_nbytes ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static fsdpck_status list_objects(const run *r, object_key **keys, size_t *count, fsdpck_error *err)
{
    const catalogue *c = &r->src->cat;
    const size_t n = catalogue_object_count(c);
    *count = 0;
    *keys = calloc(n + 1, sizeof **keys);
    if (*keys == NULL)
        return error_set_nomem(err, n * sizeof **keys);
    for (uint32_t i = 0; i < n; i++) {
        const cat_object *o = catalogue_object(c, i);
        if (r->opt.part != FSDPCK_PART_ALL && r->src->parts.object_part[i] != r->opt.part)
            continue;
        (*keys)[(*count)++] = (object_key){.name = catalogue_name(c, o->name),
                                           .name_nbytes = catalogue_name_nbytes(c, o->name),
                                           .rank = o->rank,
                                           .object = i};
    }
    if (*count > 1)
        qsort(*keys, *count, sizeof **keys, compare_keys);
    return FSDPCK_OK;
}

/* Tensors are told apart by their names, those inside objects by what they hold. */
static fsdpck_status map_tensors(run *r, strtab *names, uint64_t **map, fsdpck_error *err)
{
    const catalogue *c = &r->src->cat;
    const uint64_t n = catalogue_tensor_count(c);
    uint64_t *inner = calloc(n + 1, sizeof *inner);
    *map = calloc(n + 1, sizeof **map);
    if (*map == NULL || inner == NULL) {
        free(inner);
        return error_set_nomem(err, n * sizeof **map);
    }
    fsdpck_status st = digest_inner(r->ctx, r->src, &r->opt, inner, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < n; i++) {
        const cat_tensor *t = catalogue_tensor(c, i);
        char digest[24];
        uint32_t id;
        const int nbytes = snprintf(digest, sizeof digest, "\n%016" PRIx64, inner[i]);
        if (t->flags & CAT_TENSOR_IN_OBJECT)
            st = strtab_intern(names, digest, (size_t)nbytes, &id, err);
        else
            st = strtab_intern(names, catalogue_name(c, t->name), catalogue_name_nbytes(c, t->name),
                               &id, err);
        if (st == FSDPCK_OK)
            (*map)[i] = id;
    }
    free(inner);
    return st;
}

/* Names move when objects are loaded, and tensors inside them are added: all at once, before. */
static fsdpck_status load_all(run *r, fsdpck_error *err)
{
    fsdpck_checkpoint *c = r->src;
    for (uint32_t i = 0; i < c->parts.object_count; i++) {
        if (r->opt.part != FSDPCK_PART_ALL && c->parts.object_part[i] != r->opt.part)
            continue;
        if (!catalogue_object(&c->cat, i)->loaded)
            RETURN_IF(transform_load_object(c, i, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status show(fsdpck_diff *d, const value_pool *pool, value v, uint64_t *at,
                          fsdpck_error *err)
{
    text_buf text = {0};
    *at = d->texts.nbytes;
    value_print(pool, v, SHOWN_NBYTES, &text);
    fsdpck_status st = text_check(&text, err);
    if (st == FSDPCK_OK)
        text_append(&d->texts, text.text == NULL ? "" : text.text, text.nbytes);
    text_append(&d->texts, "", 1);
    text_release(&text);
    return st == FSDPCK_OK ? text_check(&d->texts, err) : st;
}

static fsdpck_status compare_pair(fsdpck_diff *d, const object_key *a, const object_key *b,
                                  uint64_t *const maps[2], fsdpck_error *err)
{
    value_pool pool;
    value x, y;
    bool equal = false;
    diff_row row = {.kind = FSDPCK_DIFF_OBJECT, .a = a->object, .b = b->object};
    value_pool_init(&pool, &d->a.src->metadata);
    const catalogue *from = &d->a.src->cat, *to = &d->b.src->cat;
    fsdpck_status st = value_copy(&from->pool, catalogue_object(from, a->object)->content, &pool,
                                  maps[0], &x, err);
    if (st == FSDPCK_OK)
        st = value_copy(&to->pool, catalogue_object(to, b->object)->content, &pool, maps[1], &y,
                        err);
    if (st == FSDPCK_OK)
        st = value_equal(&pool, x, &pool, y, &equal, err);
    if (st == FSDPCK_OK && !equal)
        st = show(d, &pool, x, &row.text_at, err);
    if (st == FSDPCK_OK && !equal)
        st = show(d, &pool, y, &row.text_b_at, err);
    value_pool_release(&pool);
    d->objects_compared++;
    return st == FSDPCK_OK && !equal ? diff_add_row(d, &row, err) : st;
}

static fsdpck_status merge(fsdpck_diff *d, const object_key *a, size_t na, const object_key *b,
                           size_t nb, uint64_t *const maps[2], fsdpck_error *err)
{
    size_t i = 0, k = 0;
    while (i < na || k < nb) {
        int order = i == na ? 1 : -1;
        if (i < na && k < nb)
            order = compare_keys(&a[i], &b[k]);
        if (order == 0)
            RETURN_IF(compare_pair(d, &a[i], &b[k], maps, err));
        else
            RETURN_IF(diff_add_row(d,
                                   &(diff_row){.kind = order < 0 ? FSDPCK_DIFF_OBJECT_ONLY_A
                                                                 : FSDPCK_DIFF_OBJECT_ONLY_B,
                                               .a = order < 0 ? a[i].object : CAT_NONE,
                                               .b = order < 0 ? CAT_NONE : b[k].object},
                                   err));
        i += order <= 0;
        k += order >= 0;
    }
    return FSDPCK_OK;
}

fsdpck_status diff_objects(fsdpck_diff *d, fsdpck_error *err)
{
    object_key *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;
    uint64_t *maps[2] = {NULL, NULL};
    strtab names;
    strtab_init(&names, &d->a.src->metadata);
    fsdpck_status st = load_all(&d->a, err);
    if (st == FSDPCK_OK)
        st = load_all(&d->b, err);
    if (st == FSDPCK_OK)
        st = list_objects(&d->a, &a, &na, err);
    if (st == FSDPCK_OK)
        st = list_objects(&d->b, &b, &nb, err);
    if (st == FSDPCK_OK)
        st = map_tensors(&d->a, &names, &maps[0], err);
    if (st == FSDPCK_OK)
        st = map_tensors(&d->b, &names, &maps[1], err);
    if (st == FSDPCK_OK)
        st = merge(d, a, na, b, nb, maps, err);
    strtab_release(&names);
    free(a);
    free(b);
    free(maps[0]);
    free(maps[1]);
    return st;
}
