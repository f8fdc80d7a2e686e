/* Maps the elements read to tensors, and combines results of parts, made by any thread, into those
 * of tensors. */
#include <stdlib.h>
#include <string.h>

#include "check/check_internal.h"
#include "state/sort.h"

/* ---- which elements count ---- */

/* Elements that several ranks hold count once: those of the first chunk of each box. */
static fsdpck_status mark_replicas(check *c, uint64_t tensor, fsdpck_error *err)
{
    const catalogue *cat = c->r->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const uint64_t nbytes = 2 * (uint64_t)t->nchunks * sizeof(sort_pair);
    uint64_t sum = 0;
    for (uint64_t k = 0; k < t->nchunks; k++)
        sum += check_chunk_nbytes(cat, t->first_chunk + k);
    if (t->nchunks < 2 || sum <= box_nelems(catalogue_shape(cat, tensor), t->ndim) *
                                     dtype_get((dtype)t->dtype)->itemsize_bytes)
        return FSDPCK_OK;
    sort_pair *list = budget_alloc(c->r->metadata, nbytes, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t k = 0; k < t->nchunks; k++)
        list[k] = (sort_pair){catalogue_chunk_hash(cat, t->first_chunk + k), k};
    sort_pairs(list, list + t->nchunks, t->nchunks, NULL, NULL);
    for (uint32_t k = 1; k < t->nchunks; k++)
        if (list[k].key == list[k - 1].key &&
            catalogue_chunk_is_same(cat, t->first_chunk + list[k].item,
                                    t->first_chunk + list[k - 1].item))
            c->replica[t->first_chunk + list[k].item] = 1;
    budget_free(c->r->metadata, list, nbytes);
    return FSDPCK_OK;
}

static dtype dtype_of(const check *c, const extent *chunk_extent)
{
    return (dtype)catalogue_tensor(c->r->cat, check_tensor_of(c, chunk_extent))->dtype;
}

static uint64_t chunk_extent_nbytes(const check *c, const extent *chunk_extent)
{
    return check_chunk_nbytes(c->r->cat, chunk_extent->chunk);
}

static uint64_t chunk_extent_begin(const extent *chunk_extent)
{
    return chunk_extent->stream ? 0 : chunk_extent->at_bytes;
}

/* A storage is no tensor: the tensors on it are checked. */
static bool is_tensor(const check *c, uint32_t tensor)
{
    return (catalogue_tensor(c->r->cat, tensor)->flags & CAT_TENSOR_STORAGE) == 0;
}

static bool is_alias(const check *c, const extent *a, const extent *b)
{
    return a->at_bytes == b->at_bytes && a->swap == b->swap && a->negated == b->negated &&
           dtype_of(c, a) == dtype_of(c, b) &&
           chunk_extent_nbytes(c, a) == chunk_extent_nbytes(c, b);
}

/* Selects the chunk extents to scan; the others are `unread`. Two names of one tensor are scanned
 * once. */
static void mark_shared_extents(check *c, const extent *e)
{
    const extent *last = NULL;
    for (uint32_t i = e->first_chunk_extent; i < e->first_chunk_extent + e->chunk_extents; i++) {
        extent *chunk_extent = VEC_AT(&c->chunk_extents, extent, i);
        const uint32_t tensor = check_tensor_of(c, chunk_extent);
        chunk_extent->unread = c->replica[chunk_extent->chunk] != 0 || chunk_extent->scattered ||
                               !is_tensor(c, tensor);
        if (chunk_extent->scattered)
            c->no_statistics[tensor] |= STATISTICS_SCATTERED;
        if (chunk_extent->negated)
            c->no_statistics[tensor] |= STATISTICS_NEGATED;
        if (chunk_extent->unread)
            continue;
        if (last != NULL && is_alias(c, last, chunk_extent)) {
            if (check_tensor_of(c, last) != tensor)
                c->alias[tensor] = check_tensor_of(c, last);
            chunk_extent->unread = true;
        } else {
            last = chunk_extent;
        }
    }
}

fsdpck_status chunk_scans_begin(check *c, fsdpck_error *err)
{
    const catalogue *cat = c->r->cat;
    const uint64_t ntensors = catalogue_tensor_count(cat);
    c->zero_runs = VEC_OF(zero_run, c->r->metadata);
    c->parts = VEC_OF(moments_part, c->r->metadata);
    c->sums = calloc(ntensors + 1, sizeof *c->sums);
    c->alias = malloc((ntensors + 1) * sizeof *c->alias);
    c->replica = calloc(catalogue_chunk_count(cat) + 1, 1);
    c->live = calloc(c->chunk_extents.count + 1, 1);
    c->no_statistics = calloc(ntensors + 1, 1);
    if (c->sums == NULL || c->alias == NULL || c->replica == NULL || c->live == NULL ||
        c->no_statistics == NULL)
        return error_set_nomem(err, ntensors * sizeof *c->sums);
    if (c->r->statistics) {
        c->result->numbers = calloc(ntensors + 1, sizeof *c->result->numbers);
        if (c->result->numbers == NULL)
            return error_set_nomem(err, ntensors * sizeof *c->result->numbers);
        c->result->ntensors = ntensors;
    }
    for (uint64_t i = 0; i < ntensors; i++) {
        c->alias[i] = CAT_NONE;
        RETURN_IF(mark_replicas(c, i, err));
    }
    for (size_t i = 0; i < c->extents.count; i++)
        if (VEC_AT(&c->extents, const extent, i)->chunk != NO_CHUNK)
            mark_shared_extents(c, VEC_AT(&c->extents, const extent, i));
    return FSDPCK_OK;
}

void chunk_scans_end(check *c)
{
    free(c->sums);
    free(c->alias);
    free(c->replica);
    free(c->live);
    free(c->no_statistics);
    c->sums = NULL;
    c->alias = NULL;
    c->replica = c->live = c->no_statistics = NULL;
    VEC_RELEASE_ALL(&c->zero_runs, &c->parts);
}

/* ---- scanning ---- */

fsdpck_status chunk_scan_init(chunk_scan *s, check *c, fsdpck_error *err)
{
    *s = (chunk_scan){.c = c, .chunk_extent = CAT_NONE};
    if (!c->r->statistics)
        return FSDPCK_OK;
    s->exponents = calloc(EXPONENTS, sizeof *s->exponents);
    return s->exponents != NULL ? FSDPCK_OK
                                : error_set_nomem(err, EXPONENTS * sizeof *s->exponents);
}

void chunk_scan_release(chunk_scan *s)
{
    free(s->exponents);
    s->exponents = NULL;
}

static void reverse_bytes(uint8_t *bytes, uint64_t nbytes, unsigned unit)
{
    for (uint64_t at = 0; at + unit <= nbytes; at += unit)
        for (unsigned i = 0; i < unit / 2; i++) {
            const uint8_t one = bytes[at + i];
            bytes[at + i] = bytes[at + unit - 1 - i];
            bytes[at + unit - 1 - i] = one;
        }
}

static fsdpck_status add_zero_run(check *c, const zero_run *z, fsdpck_error *err)
{
    if (z->nbytes == 0)
        return FSDPCK_OK;
    return vec_add(&c->zero_runs, z, err);
}

/* Elements from `at` of the chunk extent on. */
static fsdpck_status scan(chunk_scan *s, dtype d, uint64_t at, const uint8_t *bytes,
                          uint64_t nbytes, bool negated, fsdpck_error *err)
{
    const uint64_t n = nbytes / dtype_get(d)->itemsize_bytes;
    const uint64_t zeros = s->sums.zeros, nelems = s->sums.nelems;
    fsdpck_status st = FSDPCK_OK;
    scan_add_elements(d, bytes, n, &s->sums);
    if (s->exponents != NULL && !negated)
        element_stats_add_elements(d, bytes, n, &s->m, s->exponents);
    const bool all_zero =
        s->sums.nelems > nelems && s->sums.zeros - zeros == s->sums.nelems - nelems;
    if (all_zero && s->zeros.nbytes > 0 && s->zeros.at_bytes + s->zeros.nbytes == at) {
        s->zeros.nbytes += nbytes;
    } else if (all_zero) {
        pthread_mutex_lock(&s->c->lock);
        st = add_zero_run(s->c, &s->zeros, err);
        pthread_mutex_unlock(&s->c->lock);
        s->zeros = (zero_run){s->chunk_extent, at, nbytes};
    }
    s->end_bytes = at + nbytes;
    return st;
}

fsdpck_status chunk_scan_window(chunk_scan *s, const extent *e, uint64_t at, uint8_t *bytes,
                                uint64_t nbytes, fsdpck_error *err)
{
    check *c = s->c;
    for (uint32_t i = e->first_chunk_extent; i < e->first_chunk_extent + e->chunk_extents; i++) {
        const extent *chunk_extent = VEC_AT(&c->chunk_extents, const extent, i);
        const dtype d = dtype_of(c, chunk_extent);
        const dtype_info *info = dtype_get(d);
        const uint64_t first = chunk_extent_begin(chunk_extent),
                       end = first + chunk_extent_nbytes(c, chunk_extent);
        const uint64_t from = first > at ? first : at;
        const uint64_t to = end < at + nbytes ? end : at + nbytes;
        if (first >= at + nbytes)
            break;
        if (from >= to || chunk_extent->unread || first % info->itemsize_bytes != 0)
            continue;
        if (s->chunk_extent != i || s->end_bytes != from - first) {
            RETURN_IF(chunk_scan_flush(s, err));
            s->chunk_extent = i;
            s->at_bytes = from - first;
        }
        if (chunk_extent->swap)
            reverse_bytes(bytes + (from - at), to - from, info->swap_nbytes);
        RETURN_IF(
            scan(s, d, from - first, bytes + (from - at), to - from, chunk_extent->negated, err));
        if (chunk_extent->swap && e->chunk_extents > 1)
            reverse_bytes(bytes + (from - at), to - from, info->swap_nbytes);
    }
    return FSDPCK_OK;
}

/* Room for counts of exponents first to end, besides those that are there. */
static fsdpck_status widen_counts(check_statistics *t, uint32_t first, uint32_t end,
                                  fsdpck_error *err)
{
    const uint32_t had = (uint32_t)(t->exponent_least - EXPONENT_MIN);
    const uint32_t least = t->exponents == 0 || first < had ? first : had;
    const uint32_t most = t->exponents == 0 || end > had + t->exponents ? end : had + t->exponents;
    if (t->exponents > 0 && least == had && most == had + t->exponents)
        return FSDPCK_OK;
    uint64_t *more = calloc(most - least, sizeof *more);
    if (more == NULL)
        return error_set_nomem(err, (most - least) * sizeof *more);
    if (t->exponents > 0)
        memcpy(more + (had - least), t->counts, t->exponents * sizeof *more);
    free(t->counts);
    t->counts = more;
    t->exponent_least = (int)least + EXPONENT_MIN;
    t->exponents = most - least;
    return FSDPCK_OK;
}

fsdpck_status statistics_add_counts(check_statistics *t, uint32_t first, uint32_t n,
                                    const uint64_t *counts, fsdpck_error *err)
{
    RETURN_IF(widen_counts(t, first, first + n, err));
    const uint32_t at = first - (uint32_t)(t->exponent_least - EXPONENT_MIN);
    for (uint32_t i = 0; i < n; i++)
        t->counts[at + i] += counts[i];
    return FSDPCK_OK;
}

static fsdpck_status add_exponents(check_statistics *t, uint64_t *counts, fsdpck_error *err)
{
    uint32_t first = 0, end = EXPONENTS;
    while (first < end && counts[first] == 0)
        first++;
    while (end > first && counts[end - 1] == 0)
        end--;
    if (first == end)
        return FSDPCK_OK;
    RETURN_IF(statistics_add_counts(t, first, end - first, counts + first, err));
    memset(counts + first, 0, (end - first) * sizeof *counts);
    return FSDPCK_OK;
}

static fsdpck_status add_moments_part(chunk_scan *s, uint32_t tensor, fsdpck_error *err)
{
    check *c = s->c;
    if (s->exponents == NULL || s->m.numbers == 0)
        return FSDPCK_OK;
    RETURN_IF(vec_add(&c->parts, &(moments_part){s->chunk_extent, s->at_bytes, s->m}, err));
    return add_exponents(&c->result->numbers[tensor], s->exponents, err);
}

fsdpck_status chunk_scan_flush(chunk_scan *s, fsdpck_error *err)
{
    check *c = s->c;
    if (s->chunk_extent == CAT_NONE)
        return FSDPCK_OK;
    const extent *chunk_extent = VEC_AT(&c->chunk_extents, const extent, s->chunk_extent);
    const uint32_t tensor = check_tensor_of(c, chunk_extent);
    if (chunk_extent->negated)
        s->sums.negative = 0;
    pthread_mutex_lock(&c->lock);
    scan_add(&c->sums[tensor], &s->sums);
    if (s->sums.nelems > 0)
        c->live[s->chunk_extent] |=
            s->sums.zeros == s->sums.nelems ? EXTENT_ZEROS : EXTENT_NONZEROS;
    fsdpck_status st = add_moments_part(s, tensor, err);
    if (st == FSDPCK_OK)
        st = add_zero_run(c, &s->zeros, err);
    pthread_mutex_unlock(&c->lock);
    uint64_t *exponents = s->exponents;
    *s = (chunk_scan){.c = c, .chunk_extent = CAT_NONE, .exponents = exponents};
    return st;
}

/* ---- the whole ---- */

static int compare_parts(const void *left, const void *right)
{
    const moments_part *a = left, *b = right;
    ORDER_BY(a->chunk_extent, b->chunk_extent);
    return a->at_bytes < b->at_bytes ? -1 : a->at_bytes > b->at_bytes;
}

static int compare_zeros(const void *left, const void *right)
{
    const zero_run *a = left, *b = right;
    ORDER_BY(a->chunk_extent, b->chunk_extent);
    return a->at_bytes < b->at_bytes ? -1 : a->at_bytes > b->at_bytes;
}

static void join_zeros(vec *runs)
{
    zero_run *list = runs->items;
    size_t n = 0;
    if (runs->count > 1)
        qsort(list, runs->count, sizeof *list, compare_zeros);
    for (size_t i = 0; i < runs->count; i++) {
        if (n > 0 && list[n - 1].chunk_extent == list[i].chunk_extent &&
            list[n - 1].at_bytes + list[n - 1].nbytes == list[i].at_bytes)
            list[n - 1].nbytes += list[i].nbytes;
        else
            list[n++] = list[i];
    }
    runs->count = n;
}

/* As its alias, where a tensor is another name of it. */
static fsdpck_status copy_statistics(check_statistics *to, const check_statistics *from,
                                     fsdpck_error *err)
{
    *to = *from;
    to->counts = NULL;
    if (from->exponents == 0)
        return FSDPCK_OK;
    to->counts = malloc(from->exponents * sizeof *to->counts);
    if (to->counts == NULL) {
        to->exponents = 0;
        return error_set_nomem(err, from->exponents * sizeof *to->counts);
    }
    memcpy(to->counts, from->counts, from->exponents * sizeof *to->counts);
    return FSDPCK_OK;
}

fsdpck_status chunk_scans_total(check *c, fsdpck_error *err)
{
    check_statistics *all = c->result->numbers;
    join_zeros(&c->zero_runs);
    if (all == NULL)
        return FSDPCK_OK;
    if (c->parts.count > 1)
        qsort(c->parts.items, c->parts.count, sizeof(moments_part), compare_parts);
    for (size_t i = 0; i < c->parts.count; i++) {
        const moments_part *p = VEC_AT(&c->parts, const moments_part, i);
        element_stats_add(
            &all[check_tensor_of(c, VEC_AT(&c->chunk_extents, const extent, p->chunk_extent))].m,
            &p->m);
    }
    for (uint64_t i = 0; i < c->result->ntensors; i++) {
        if (c->no_statistics[i] != 0) {
            all[i].m = (element_stats){0};
            continue;
        }
        all[i].nan = c->sums[i].nan;
        all[i].inf = c->sums[i].inf;
        all[i].nelems = all[i].m.numbers + all[i].nan + all[i].inf;
    }
    for (uint64_t i = 0; i < c->result->ntensors; i++)
        if (all[i].nelems == 0 && c->alias[i] != CAT_NONE)
            RETURN_IF(copy_statistics(&all[i], &all[c->alias[i]], err));
    return FSDPCK_OK;
}
