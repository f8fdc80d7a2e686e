/* The output side of a plan: chunks and constant bytes in file order, divided into items. */
#include "base/checked.h"
#include "plan/plan_internal.h"
#include "state/sort.h"

static fsdpck_status error_layout(const plan *p, uint64_t chunk, const char *what,
                                  fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    return FAIL_WITH(
        err, INTERNAL, NONE, ("%s", what),
        (tensor,
         catalogue_name(to, catalogue_tensor(to, catalogue_chunk(to, chunk)->tensor)->name)));
}

static fsdpck_status check_place(const plan *p, uint64_t chunk, fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    const cat_chunk *k = catalogue_chunk(to, chunk);
    const cat_tensor *t = catalogue_tensor(to, k->tensor);
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(to, chunk, NULL, sizes);
    const uint64_t nbytes = box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
    if (k->place != LOCATION_ROWS || k->file >= p->file_count || k->nbytes != nbytes ||
        !checked_range(k->offset_bytes, nbytes, catalogue_file(to, k->file)->nbytes))
        return error_layout(p, chunk, "target chunk has no location in its file", err);
    return FSDPCK_OK;
}

static fsdpck_status sort_chunks(plan *p, fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    const uint64_t nbytes = 2 * p->order_capacity * sizeof(sort_pair);
    sort_pair *pairs = budget_alloc(p->owner, nbytes, err);
    if (pairs == NULL)
        return FSDPCK_LIMIT;
    size_t n = 0;
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t k = 0; st == FSDPCK_OK && k < catalogue_chunk_count(to); k++) {
        const cat_chunk *chunk = catalogue_chunk(to, k);
        if (chunk->place == LOCATION_EMPTY)
            continue;
        st = check_place(p, k, err);
        pairs[n++] = (sort_pair){chunk->offset_bytes, (uint32_t)k};
    }
    if (st == FSDPCK_OK) {
        sort_pair *scratch = pairs + p->order_capacity;
        sort_pairs(pairs, scratch, n, NULL, NULL);
        for (size_t i = 0; i < n; i++)
            pairs[i].key = catalogue_chunk(to, pairs[i].item)->file;
        sort_pairs(pairs, scratch, n, NULL, NULL);
        for (size_t i = 0; i < n; i++)
            p->order[i] = pairs[i].item;
        p->order_count = n;
    }
    budget_free(p->owner, pairs, nbytes);
    return st;
}

static uint64_t *new_table(plan *p, fsdpck_error *err)
{
    return budget_alloc(p->owner, (p->file_count + 1) * sizeof(uint64_t), err);
}

static fsdpck_status error_overlapping(fsdpck_error *err)
{
    return FAIL(err, INTERNAL, NONE,
                "target chunks, constant or deferred bytes share bytes of a file");
}

/* Merges chunks, constant and deferred bytes of one file: none may begin before the end of the
 * previous one, except a chunk at the same location as its predecessor (an alias). */
static fsdpck_status check_file(const plan *p, uint64_t file, fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    uint64_t c = p->file_order[file];
    uint64_t l = p->file_constant[file];
    uint64_t deferred = p->file_deferred[file];
    uint64_t end = 0;
    const cat_chunk *last = NULL;
    for (;;) {
        uint64_t begin = UINT64_MAX;
        uint64_t nbytes = 0;
        uint64_t *next = NULL;
        const cat_chunk *chunk =
            c < p->file_order[file + 1] ? catalogue_chunk(to, p->order[c]) : NULL;
        if (chunk != NULL && last != NULL && chunk->offset_bytes == last->offset_bytes &&
            chunk->nbytes == last->nbytes) {
            c++;
            continue;
        }
        if (chunk != NULL)
            begin = chunk->offset_bytes, nbytes = chunk->nbytes, next = &c;
        if (l < p->file_constant[file + 1] && constant_at(p->to, l)->offset_bytes <= begin)
            begin = constant_at(p->to, l)->offset_bytes, nbytes = constant_at(p->to, l)->nbytes,
            next = &l;
        if (deferred < p->file_deferred[file + 1] &&
            deferred_at(p->to, deferred)->offset_bytes <= begin)
            begin = deferred_at(p->to, deferred)->offset_bytes,
            nbytes = deferred_at(p->to, deferred)->nbytes, next = &deferred;
        if (next == NULL)
            return FSDPCK_OK;
        if (begin < end || !checked_range(begin, nbytes, catalogue_file(to, file)->nbytes))
            return chunk != NULL
                       ? error_layout(p, p->order[c], "target chunk shares bytes of its file", err)
                       : error_overlapping(err);
        end = begin + nbytes;
        if (next == &c)
            last = chunk;
        ++*next;
    }
}

static fsdpck_status check_deferred(const plan *p, const target_deferred *deferred,
                                    fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    if (p->to->want_crc && p->to->make_deferred != NULL && deferred->nbytes > 0 &&
        deferred->chunk < catalogue_chunk_count(to) &&
        catalogue_chunk(to, deferred->chunk)->place != LOCATION_EMPTY)
        return FSDPCK_OK;
    return FAIL(err, INTERNAL, NONE, "deferred bytes of the target depend on nothing");
}

fsdpck_status plan_index_output(plan *p, fsdpck_error *err)
{
    const catalogue *to = &p->to->cat;
    p->file_count = catalogue_file_count(to);
    p->order_capacity = catalogue_chunk_count(to);
    if ((p->order = budget_alloc(p->owner, p->order_capacity * sizeof *p->order, err)) == NULL ||
        (p->file_order = new_table(p, err)) == NULL ||
        (p->file_constant = new_table(p, err)) == NULL ||
        (p->file_deferred = new_table(p, err)) == NULL ||
        (p->file_item = new_table(p, err)) == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(sort_chunks(p, err));

    uint64_t c = 0;
    uint64_t l = 0;
    uint64_t deferred = 0;
    for (uint64_t file = 0; file < p->file_count; file++) {
        const uint64_t nbytes = catalogue_file(to, file)->nbytes;
        p->file_order[file] = c;
        p->file_constant[file] = l;
        p->file_deferred[file] = deferred;
        while (c < p->order_count && catalogue_chunk(to, p->order[c])->file == file)
            c++;
        while (l < p->to->literals.count && constant_at(p->to, l)->file == file)
            p->totals.constant_bytes += constant_at(p->to, l++)->nbytes;
        for (; deferred < p->to->lates.count && deferred_at(p->to, deferred)->file == file;
             deferred++) {
            RETURN_IF(check_deferred(p, deferred_at(p->to, deferred), err));
            p->totals.constant_bytes += deferred_at(p->to, deferred)->nbytes;
        }
        const uint64_t tile = p->opt.tile_nbytes;
        p->file_item[file + 1] = p->file_item[file] + nbytes / tile + (nbytes % tile != 0);
        p->file_order[file + 1] = c;
        p->file_constant[file + 1] = l;
        p->file_deferred[file + 1] = deferred;
        RETURN_IF(check_file(p, file, err));
    }
    if (l != p->to->literals.count || deferred != p->to->lates.count)
        return FAIL(err, INTERNAL, NONE,
                    "constant or deferred bytes of the target are not in order");
    p->totals.files = p->file_count;
    p->totals.items = p->file_item[p->file_count];
    return FSDPCK_OK;
}
