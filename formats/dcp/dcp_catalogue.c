#include "formats/dcp/dcp_catalogue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_join_chunks.h"
#include "formats/dcp/dcp_leftover.h"
#include "formats/dcp/dcp_match_chunks.h"
#include "formats/dcp/dcp_name_order.h"
#include "formats/dcp/dcp_planner_keys.h"

typedef enum kept_kind { KEPT_NOTHING, KEPT_TENSOR, KEPT_OBJECT } kept_kind;

/* The catalogue entry of an FQN. */
typedef struct dcp_kept {
    uint32_t index;
    uint32_t kind;
} dcp_kept;

/* One `.metadata` while it is joined. */
typedef struct join {
    dcp_builder *b;
    const dcp_metadata *m;
    size_t nfqns;
    uint32_t *starts; /* nfqns + 1: entries of FQN f are order[starts[f]..starts[f + 1]) */
    uint32_t *order;
    uint8_t *holds;     /* files with entries */
    uint8_t *seen;      /* FQNs that are items */
    value *paths;       /* of each FQN, None if absent from planner_data */
    value *shapes;      /* of each FQN: dcp_flattened.h */
    uint32_t *saved_at; /* of each FQN: its position in planner_data, from 1 */
    uint8_t *joined;    /* of each FQN: cat_tensor.joined */
    vec joins;          /* dcp_join: tensors whose chunks are to be filled */
} join;

void dcp_builder_init(dcp_builder *b, catalogue *cat, const dcp_names *names)
{
    *b = (dcp_builder){
        .cat = cat,
        .names = names,
        .kept = VEC_OF(dcp_kept, cat->owner),
        .repeats = VEC_OF(dcp_repeat, cat->owner),
        .flat_boxes = VEC_OF(dcp_flat_box, cat->owner),
        .ends = VEC_OF(uint64_t, cat->owner),
        .listed = VEC_OF(uint8_t, cat->owner),
    };
    strtab_init(&b->unlisted, cat->owner);
    strtab_init(&b->keyless, cat->owner);
}

void dcp_builder_release(dcp_builder *b)
{
    VEC_RELEASE_ALL(&b->kept, &b->repeats, &b->flat_boxes, &b->ends, &b->listed);
    strtab_release(&b->unlisted);
    strtab_release(&b->keyless);
}

/* "__" digits, then `*end`; CAT_NONE for any other name. */
static uint32_t leading_rank(const char *name, const char **end)
{
    const char *p = text_file_name(name);
    uint64_t rank = 0;

    if (p[0] != '_' || p[1] != '_' || p[2] < '0' || p[2] > '9')
        return CAT_NONE;
    for (p += 2; *p >= '0' && *p <= '9'; p++) {
        rank = rank * 10 + (uint64_t)(*p - '0');
        if (rank > (1u << 24))
            return CAT_NONE;
    }
    *end = p;
    return (uint32_t)rank;
}

uint32_t dcp_rank_of_blobs(const char *name)
{
    const char *p;
    const uint32_t rank = leading_rank(name, &p);
    if (rank == CAT_NONE || *p++ != '_' || *p < '0' || *p > '9')
        return CAT_NONE;
    while (*p >= '0' && *p <= '9')
        p++;
    return strcmp(p, ".distcp") == 0 ? rank : CAT_NONE;
}

uint32_t dcp_rank_of_metadata(const char *name)
{
    const char *p;
    const uint32_t rank = leading_rank(name, &p);
    return rank != CAT_NONE && strcmp(p, ".metadata") == 0 ? rank : CAT_NONE;
}

static const char *fqn_text(const join *j, uint32_t fqn)
{
    return strtab_text(&j->b->names->fqns, fqn);
}

static fsdpck_status fail(const join *j, uint32_t fqn, fsdpck_finding_id finding,
                          const char *message, fsdpck_error *err)
{
    return dcp_name_fail(j->b, fqn, finding, message, err);
}

static fsdpck_status add_files(const join *j, fsdpck_error *err)
{
    const strtab *paths = &j->b->names->paths;
    for (size_t i = catalogue_file_count(j->b->cat); i < strtab_count(paths); i++) {
        const char *path = strtab_text(paths, (uint32_t)i);
        uint32_t index;
        RETURN_IF(catalogue_add_file(j->b->cat, path, strtab_nbytes(paths, (uint32_t)i), 0,
                                     dcp_rank_of_blobs(path), &index, err));
    }
    return FSDPCK_OK;
}

/* Counts the entries of each FQN into starts; finds the ends of all blobs, including those of no
 * tensor or object. */
static fsdpck_status count_entries(join *j, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(j->b->cat);
    const dcp_entry *entries = j->m->entries.items;
    vec *all_ends = &j->b->ends;

    if (nfiles > all_ends->count && vec_push_n(all_ends, nfiles - all_ends->count, err) == NULL)
        return FSDPCK_LIMIT;
    uint64_t *ends = all_ends->items;
    for (size_t i = 0, n = j->m->entries.count; i < n; i++) {
        const dcp_entry *e = &entries[i];
        uint64_t end;
        if (!e->paired)
            continue;
        j->starts[e->fqn]++;
        j->holds[e->file] = 1;
        if (checked_add(e->offset_bytes, e->nbytes, &end) && end > ends[e->file])
            ends[e->file] = end;
    }
    return FSDPCK_OK;
}

/* Entries of storage_data grouped by FQN, each group in the order of the file. */
static fsdpck_status group_entries(join *j, fsdpck_error *err)
{
    const dcp_entry *entries = j->m->entries.items;
    const size_t count = j->m->entries.count;

    j->starts = budget_alloc(j->m->owner, (j->nfqns + 1) * sizeof *j->starts, err);
    j->order = budget_alloc(j->m->owner, count * sizeof *j->order, err);
    j->holds = budget_alloc(j->m->owner, catalogue_file_count(j->b->cat), err);
    if (j->starts == NULL || j->order == NULL || j->holds == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(count_entries(j, err));
    uint32_t end = 0;
    for (size_t f = 0; f <= j->nfqns; f++) {
        end += f < j->nfqns ? j->starts[f] : 0;
        j->starts[f] = end;
    }
    for (size_t i = count; i-- > 0;)
        if (entries[i].paired)
            j->order[--j->starts[entries[i].fqn]] = (uint32_t)i;
    return FSDPCK_OK;
}

static fsdpck_status fail_path(const value_pool *pool, value path, const char *fqn,
                               fsdpck_error *err)
{
    text_buf found = {.limit_bytes = 300};
    value_print(pool, path, 200, &found);
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, KEY_NEST, ("the metadata records the keys of another value"),
                  (tensor, fqn), (expected, "keys that give this name when joined with dots"),
                  (found, "%s", found.text == NULL ? "" : found.text),
                  (next, "restore the metadata from another copy, or save the checkpoint again"));
    text_release(&found);
    return st;
}

static fsdpck_status collect_paths(join *j, fsdpck_error *err)
{
    value_pool *pool = &j->b->cat->pool;
    const value planner = j->m->planner;

    j->paths = budget_alloc(j->m->owner, j->nfqns * sizeof *j->paths, err);
    j->saved_at = budget_alloc(j->m->owner, j->nfqns * sizeof *j->saved_at, err);
    if (j->paths == NULL || j->saved_at == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0, n = value_count(pool, planner); i < n; i++) {
        const value key = value_key(pool, planner, i);
        size_t nbytes;
        if (value_kind_of(key) != VALUE_STR)
            continue;
        const char *text = value_text(pool, key, &nbytes);
        const uint32_t fqn = strtab_find(&j->b->names->fqns, text, nbytes);
        if (fqn == STRTAB_NONE)
            continue;
        RETURN_IF(dcp_planner_path(pool, value_item(pool, planner, i), &j->paths[fqn], err));
        if (!value_is_none(j->paths[fqn]) &&
            !dcp_path_gives_name(pool, j->paths[fqn], text, nbytes))
            return fail_path(pool, j->paths[fqn], fqn_text(j, fqn), err);
        j->saved_at[fqn] = (uint32_t)i + 1;
    }
    return FSDPCK_OK;
}

/* The tensor of this name, new or merged with that of another rank's metadata. */
static fsdpck_status keep_tensor(join *j, uint32_t fqn, const dcp_tensor *t, uint32_t *tensor,
                                 dcp_flattening *f, fsdpck_error *err)
{
    catalogue *cat = j->b->cat;
    dcp_kept *kept = VEC_AT(&j->b->kept, dcp_kept, fqn);
    const dcp_properties *p = VEC_AT(&j->m->properties, dcp_properties, t->properties);
    uint64_t shape[NDIM_MAX];
    unsigned ndim = dcp_size_get(j->m, t->size_at, shape);

    const fsdpck_status st =
        dcp_flattening_read(j->m, &cat->pool, j->shapes[fqn], shape, ndim, f, err);
    if (st != FSDPCK_OK) {
        error_tensor(err, fqn_text(j, fqn));
        return st;
    }
    if (f->ndim > 0) {
        ndim = f->ndim;
        memcpy(shape, f->shape, sizeof shape);
    }
    if (p->dtype == DTYPE_NONE)
        return FAIL_WITH(
            err, UNSUPPORTED, DCP_DTYPE,
            ("unknown element type '%s'", value_kind_of(p->dtype_symbol) == VALUE_SYMBOL
                                              ? value_symbol_name(&cat->pool, p->dtype_symbol)
                                              : "none"),
            (tensor, fqn_text(j, fqn)));
    if (kept->kind == KEPT_NOTHING) {
        RETURN_IF(catalogue_add_tensor(cat, fqn_text(j, fqn),
                                       strtab_nbytes(&j->b->names->fqns, fqn), (dtype)p->dtype,
                                       ndim, shape, tensor, err));
        catalogue_tensor(cat, *tensor)->path = j->paths[fqn];
        catalogue_tensor(cat, *tensor)->saved_at = j->saved_at[fqn];
        catalogue_tensor(cat, *tensor)->joined = j->joined[fqn];
        *kept = (dcp_kept){.index = *tensor, .kind = KEPT_TENSOR};
        return FSDPCK_OK;
    }
    *tensor = kept->index;
    const cat_tensor *known = kept->kind == KEPT_TENSOR ? catalogue_tensor(cat, *tensor) : NULL;
    if (known == NULL || known->dtype != p->dtype ||
        !shape_equal(catalogue_shape(cat, *tensor), known->ndim, shape, ndim))
        return fail(j, fqn, FSDPCK_FINDING_DCP_MIXED,
                    "dtype or shape of a tensor differs between ranks", err);
    return FSDPCK_OK;
}

static fsdpck_status add_tensor(join *j, const dcp_item *item, fsdpck_error *err)
{
    const dcp_metadata *m = j->m;
    const dcp_tensor *t = VEC_AT(&m->tensors, dcp_tensor, item->tensor);
    uint32_t *group = &j->order[j->starts[item->fqn]];
    const uint32_t count = j->starts[item->fqn + 1] - j->starts[item->fqn];
    const uint32_t nchunks =
        t->list == DCP_NONE ? 0 : VEC_AT(&m->lists, dcp_chunk_list, t->list)->count;
    uint32_t tensor;
    dcp_flattening f;

    if (t->properties == DCP_NONE)
        return fail(j, item->fqn, FSDPCK_FINDING_DCP_META_TYPE,
                    "metadata holds a tensor without properties", err);
    RETURN_IF(keep_tensor(j, item->fqn, t, &tensor, &f, err));
    if (nchunks == 0) {
        j->b->stray_blobs += count;
        return catalogue_tensor_nelems(j->b->cat, tensor) == 0
                   ? FSDPCK_OK
                   : dcp_join_orphan(j->b, m, item->fqn, NULL, err);
    }
    dcp_join waits = {
        .fqn = item->fqn, .list = t->list, .tensor = tensor, .group = group, .count = count};
    if (f.ndim > 0)
        return dcp_join_flattened(j->b, m, &waits, &f, err);
    RETURN_IF(catalogue_add_chunks(j->b->cat, tensor, nchunks, &waits.chunks, err));
    return vec_add(&j->joins, &waits, err);
}

static fsdpck_status add_object(join *j, const dcp_item *item, fsdpck_error *err)
{
    dcp_kept *kept = VEC_AT(&j->b->kept, dcp_kept, item->fqn);
    const uint32_t first = j->starts[item->fqn];
    const uint32_t count = j->starts[item->fqn + 1] - first;
    uint32_t object;

    if (count == 0)
        return dcp_join_orphan(j->b, j->m, item->fqn, NULL, err);
    if (count > 1)
        return fail(j, item->fqn, FSDPCK_FINDING_KEY_DUP, "storage_data contains a byte item twice",
                    err);
    if (kept->kind == KEPT_TENSOR)
        return fail(j, item->fqn, FSDPCK_FINDING_DCP_MIXED,
                    "one name is a tensor on one rank and an object on another", err);
    const dcp_entry *e = VEC_AT(&j->m->entries, dcp_entry, j->order[first]);
    if (kept->kind == KEPT_OBJECT) {
        RETURN_IF(vec_add(
            &j->b->repeats,
            &(dcp_repeat){kept->index, e->file, e->transform, e->offset_bytes, e->nbytes}, err));
        return FSDPCK_OK;
    }
    RETURN_IF(catalogue_add_object(j->b->cat, fqn_text(j, item->fqn),
                                   strtab_nbytes(&j->b->names->fqns, item->fqn), &object, err));
    cat_object *o = catalogue_object(j->b->cat, object);
    o->file = e->file;
    o->offset_bytes = e->offset_bytes;
    o->nbytes = e->nbytes;
    o->aux = e->transform;
    o->path = j->paths[item->fqn];
    o->saved_at = j->saved_at[item->fqn];
    o->joined = j->joined[item->fqn];
    *kept = (dcp_kept){.index = object, .kind = KEPT_OBJECT};
    return FSDPCK_OK;
}

/* Whether to leave the item out; counts it. */
static bool leave_out(join *j, const dcp_leftovers *l, const dcp_item *item)
{
    if (j->b->keep_leftovers || item->tensor == DCP_NONE || !dcp_is_leftover(l, item))
        return false;
    if (j->b->leftovers++ == 0)
        j->b->first_leftover = item->fqn;
    return true;
}

static fsdpck_status join_items(join *j, fsdpck_error *err)
{
    const dcp_item *items = j->m->items.items;
    dcp_leftovers l;
    fsdpck_status st = dcp_leftovers_init(&l, j->m, j->b->names, err);

    for (size_t i = 0; i < j->m->items.count && st == FSDPCK_OK; i++) {
        if (j->seen[items[i].fqn])
            st =
                fail(j, items[i].fqn, FSDPCK_FINDING_KEY_DUP, "metadata contains a key twice", err);
        else if (!leave_out(j, &l, &items[i]))
            st = items[i].tensor == DCP_NONE ? add_object(j, &items[i], err)
                                             : add_tensor(j, &items[i], err);
        j->seen[items[i].fqn] = 1;
        *VEC_AT(&j->b->listed, uint8_t, items[i].fqn) = 1;
    }
    for (size_t f = 0; f < j->nfqns; f++)
        if (!j->seen[f])
            j->b->stray_blobs += j->starts[f + 1] - j->starts[f];
    dcp_leftovers_release(&l);
    /* After a failure too: the first one in the order of the file is reported. */
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status filled = dcp_join_chunks(j->b, j->m, &j->joins, &what);
    if (filled != FSDPCK_OK) {
        if (err != NULL)
            *err = what;
        return filled;
    }
    return st == FSDPCK_OK ? dcp_note_unlisted(j->b, j->m, j->seen, j->paths, err) : st;
}

fsdpck_status dcp_builder_add(dcp_builder *b, const dcp_metadata *m, fsdpck_error *err)
{
    join j = {.b = b,
              .m = m,
              .nfqns = strtab_count(&b->names->fqns),
              .joins = VEC_OF(dcp_join, m->owner)};
    fsdpck_status st = FSDPCK_LIMIT;

    if (vec_push_n(&b->kept, j.nfqns - b->kept.count, err) == NULL ||
        vec_push_n(&b->listed, j.nfqns - b->listed.count, err) == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(vec_reserve(&b->cat->chunks, m->chunks.count, err));
    j.seen = budget_alloc(m->owner, j.nfqns, err);
    if (j.seen == NULL)
        return FSDPCK_LIMIT;
    j.joined = budget_alloc(m->owner, j.nfqns, err);
    if (j.joined == NULL)
        goto out;
    GOTO_IF(add_files(&j, err), out);
    GOTO_IF(group_entries(&j, err), out);
    GOTO_IF(collect_paths(&j, err), out);
    j.shapes = budget_alloc(m->owner, j.nfqns * sizeof *j.shapes, err);
    GOTO_IF(j.shapes == NULL ? FSDPCK_LIMIT : FSDPCK_OK, out);
    dcp_flattened_collect(&b->cat->pool, m->mcore, &b->names->fqns, j.shapes);
    GOTO_IF(dcp_find_joined(b, m, j.holds, j.saved_at, j.nfqns, j.joined, err), out);
    st = join_items(&j, err);
out:
    vec_release(&j.joins);
    budget_free(m->owner, j.seen, j.nfqns);
    budget_free(m->owner, j.joined, j.nfqns);
    budget_free(m->owner, j.starts, (j.nfqns + 1) * sizeof *j.starts);
    budget_free(m->owner, j.order, m->entries.count * sizeof *j.order);
    budget_free(m->owner, j.holds, catalogue_file_count(b->cat));
    budget_free(m->owner, j.shapes, j.nfqns * sizeof *j.shapes);
    budget_free(m->owner, j.paths, j.nfqns * sizeof *j.paths);
    budget_free(m->owner, j.saved_at, j.nfqns * sizeof *j.saved_at);
    return st;
}
