#include "map/chunk_index.h"

#include <stdlib.h>

/* A chunk's range in one dim. */
typedef struct indexed_chunk {
    uint64_t begin, end;
    uint64_t reach; /* the largest end up to here, in the order of `begin` */
    uint64_t chunk;
} indexed_chunk;

/* A dim in which chunks begin at several offsets. */
typedef struct indexed_dim {
    unsigned dim;
    size_t first; /* in entries */
} indexed_dim;

typedef struct indexed_tensor {
    uint32_t tensor;
    size_t first_dim, ndims;
    size_t count; /* chunks that have elements */
} indexed_tensor;

void chunk_index_init(chunk_index *x, const catalogue *c, budget *owner)
{
    *x = (chunk_index){.cat = c,
                       .tensors = VEC_OF(indexed_tensor, owner),
                       .dims = VEC_OF(indexed_dim, owner),
                       .entries = VEC_OF(indexed_chunk, owner),
                       .found = VEC_OF(uint64_t, owner)};
}

void chunk_index_release(chunk_index *x)
{
    VEC_RELEASE_ALL(&x->tensors, &x->dims, &x->entries, &x->found);
}

void chunk_index_clear(chunk_index *x)
{
    x->tensors.count = x->dims.count = x->entries.count = 0;
}

uint64_t chunk_index_compared(const chunk_index *x)
{
    return x->compared;
}

static int by_begin(const void *left, const void *right)
{
    const indexed_chunk *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

static int by_number(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* Adds the chunks by one dim. A dim that does not divide them is removed again, unless it is the first. */
static fsdpck_status add_dim(chunk_index *x, indexed_tensor *made, unsigned dim, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(x->cat, made->tensor);
    const size_t first = x->entries.count;
    bool divides = false;
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        catalogue_chunk_box(x->cat, i, offsets, sizes);
        if (box_nelems(sizes, t->ndim) == 0)
            continue;
        const indexed_chunk entry = {.begin = t->ndim == 0 ? 0 : offsets[dim],
                                     .end = t->ndim == 0 ? 1 : offsets[dim] + sizes[dim],
                                     .chunk = i};
        if (x->entries.count > first)
            divides = divides || entry.begin != VEC_AT(&x->entries, indexed_chunk, first)->begin;
        RETURN_IF(vec_add(&x->entries, &entry, err));
    }
    made->count = x->entries.count - first;
    if (!divides && made->ndims > 0) {
        x->entries.count = first;
        return FSDPCK_OK;
    }
    made->ndims++;
    RETURN_IF(vec_add(&x->dims, &(indexed_dim){.dim = dim, .first = first}, err));
    if (made->count == 0)
        return FSDPCK_OK;
    indexed_chunk *entries = VEC_AT(&x->entries, indexed_chunk, first);
    qsort(entries, made->count, sizeof *entries, by_begin);
    uint64_t reach = 0;
    for (size_t i = 0; i < made->count; i++) {
        reach = entries[i].end > reach ? entries[i].end : reach;
        entries[i].reach = reach;
    }
    return FSDPCK_OK;
}

static fsdpck_status index_of(chunk_index *x, uint32_t tensor, indexed_tensor *found,
                              fsdpck_error *err)
{
    size_t low = 0, high = x->tensors.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        *found = *VEC_AT(&x->tensors, const indexed_tensor, middle);
        if (found->tensor == tensor)
            return FSDPCK_OK;
        if (found->tensor < tensor)
            low = middle + 1;
        else
            high = middle;
    }
    *found = (indexed_tensor){.tensor = tensor, .first_dim = x->dims.count};
    const unsigned ndim = catalogue_tensor(x->cat, tensor)->ndim;
    for (unsigned d = 0; d == 0 || d < ndim; d++)
        RETURN_IF(add_dim(x, found, d, err));
    RETURN_IF(vec_add(&x->tensors, found, err));
    indexed_tensor *all = VEC_AT(&x->tensors, indexed_tensor, 0);
    for (size_t i = x->tensors.count - 1; i > low; i--)
        all[i] = all[i - 1];
    all[low] = *found;
    return FSDPCK_OK;
}

/* The first entry whose value is not below `limit`; values ascend. */
static size_t first_from(const indexed_chunk *entries, size_t count, uint64_t limit, bool of_reach)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((of_reach ? entries[middle].reach : entries[middle].begin) < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

fsdpck_status chunk_index_find(chunk_index *x, uint32_t tensor, const uint64_t *begins,
                               const uint64_t *ends, const uint64_t **chunks, size_t *count,
                               fsdpck_error *err)
{
    indexed_tensor t;
    RETURN_IF(index_of(x, tensor, &t, err));
    const indexed_chunk *best = NULL;
    size_t from = 0, to = 0;
    for (size_t i = 0; t.count > 0 && i < t.ndims; i++) {
        const indexed_dim *d = VEC_AT(&x->dims, const indexed_dim, t.first_dim + i);
        const indexed_chunk *entries = VEC_AT(&x->entries, const indexed_chunk, d->first);
        const size_t first = first_from(entries, t.count, begins[d->dim] + 1, true);
        const size_t end = first_from(entries, t.count, ends[d->dim], false);
        const size_t found = end > first ? end - first : 0;
        if (best != NULL && found >= to - from)
            continue;
        best = entries;
        from = first;
        to = first + found;
    }
    x->found.count = 0;
    uint64_t *numbers = vec_push_n(&x->found, to - from, err);
    if (numbers == NULL && to > from)
        return FSDPCK_LIMIT;
    bool ascends = true;
    for (size_t i = from; i < to; i++) {
        numbers[i - from] = best[i].chunk;
        ascends = ascends && (i == from || best[i].chunk > best[i - 1].chunk);
    }
    if (!ascends)
        qsort(numbers, to - from, sizeof *numbers, by_number);
    x->compared += to - from;
    *chunks = numbers;
    *count = to - from;
    return FSDPCK_OK;
}
