/* prop_flatten: original parameters through aim and the fsdp1 writer: every element of every flat
 * parameter, padding too, against a list made element by element.
 *
 *     prop_flatten [TRIALS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pt/pt.h"
#include "select/select.h"
#include "tests/support/random.h"
#include "tests/support/scratch.h"
#include "tests/support/target_write.h"

#define UNITS_MAX  3u
#define PARAMS_MAX 4u
#define FLAT_MAX   4096u
#define PADDING    UINT32_MAX

static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static unsigned draw(unsigned below)
{
    return (unsigned)random_below(&state, below);
}

static void must(bool ok, const char *what, const fsdpck_error *err)
{
    if (ok)
        return;
    fprintf(stderr, "prop_flatten: %s %s\n", what, err == NULL ? "" : err->message);
    exit(1);
}

/* An element of a flat parameter: which target tensor, and its row-major number there. */
typedef struct element {
    uint32_t tensor; /* or PADDING */
    uint64_t number;
} element;

typedef struct world {
    budget owner;
    catalogue from;
    checkpoint_parts parts;
    unit_list units;
    layout cut;
    target to;
    uint32_t ranks;
    element flat[UNITS_MAX][FLAT_MAX];
    uint64_t total[UNITS_MAX];
} world;

static void pad_to(world *w, unsigned u, uint64_t multiple)
{
    while (w->total[u] % multiple != 0)
        w->flat[u][w->total[u]++] = (element){PADDING, 0};
}

/* A parameter of up to 4 dims in a drawn order of memory: to the units, the source and the list. */
static void add_param(world *w, unsigned u, unsigned tensor, fsdpck_error *err)
{
    static const uint64_t zeros[4] = {0};
    const cat_chunk whole = {.rank = UINT16_MAX, .place = LOCATION_ROWS};
    uint64_t shape[4] = {0}, strides[4] = {0}, rows[4] = {0}, at[4] = {0};
    unsigned order[4] = {0, 1, 2, 3};
    const unsigned ndim = 1 + draw(4);
    char name[16];
    uint32_t index;
    for (unsigned d = 0; d < ndim; d++)
        shape[d] = draw(12) == 0 ? 0 : 1 + draw(4);
    for (unsigned d = ndim; d > 1 && draw(2) == 0; d--) {
        const unsigned other = draw(d), kept = order[d - 1];
        order[d - 1] = order[other];
        order[other] = kept;
    }
    uint64_t nelems = 1;
    for (unsigned i = ndim; i-- > 0;) {
        strides[order[i]] = nelems;
        nelems *= shape[order[i]];
    }
    box_row_major_strides(shape, ndim, rows);
    const int n = snprintf(name, sizeof name, "p%u.w", tensor);
    must(unit_list_add_param(&w->units, name, (size_t)n, ndim, shape, strides, err) == FSDPCK_OK,
         "unit", err);
    must(catalogue_add_tensor(&w->from, name, (size_t)n, DTYPE_FLOAT32, ndim, shape, &index, err) ==
             FSDPCK_OK,
         "tensor", err);
    must(catalogue_add_chunk(&w->from, index, zeros, shape, &whole, err) == FSDPCK_OK, "chunk",
         err);
    for (uint64_t k = 0; k < nelems; k++) {
        uint64_t number = 0;
        for (unsigned d = 0; d < ndim; d++)
            number += at[d] * rows[d];
        must(w->total[u] < FLAT_MAX - 64, "too many elements", NULL);
        w->flat[u][w->total[u]++] = (element){index, number};
        for (unsigned i = ndim; i-- > 0 && ++at[order[i]] == shape[order[i]];)
            at[order[i]] = 0;
    }
}

static void add_units(world *w, fsdpck_error *err)
{
    static const uint32_t alignments[] = {2, 4, 8};
    const unsigned count = 1 + draw(UNITS_MAX);
    unsigned tensor = 0;
    for (unsigned u = 0; u < count; u++) {
        const unit proto = {.dtype = DTYPE_FLOAT32,
                            .world_size = w->ranks,
                            .use_orig_params = draw(2) == 0,
                            .alignment = alignments[draw(3)]};
        const char prefix[] = {(char)('a' + u), '\0'};
        const unsigned params = 1 + draw(PARAMS_MAX);
        must(unit_list_add(&w->units, &proto, prefix, 1, "_flat_param", 11, err) == FSDPCK_OK,
             "unit", err);
        for (unsigned k = 0; k < params; k++) {
            if (proto.use_orig_params)
                pad_to(w, u, proto.alignment);
            add_param(w, u, tensor++, err);
        }
        if (proto.use_orig_params)
            pad_to(w, u, w->ranks);
        must(unit_list_close(&w->units, err) == FSDPCK_OK, "unit", err);
    }
    must(unit_list_seal(&w->units, err) == FSDPCK_OK, "units", err);
    must(catalogue_seal(&w->from, err) == FSDPCK_OK, "source", err);
}

static void aim_and_write(world *w, const char *folder_path, fsdpck_error *err)
{
    const shard_request cut = {.layout = &w->cut, .every_rank = true, .units = &w->units};
    const select_request request = {.part = PART_MODEL,
                                    .holds = fsdp1_writer.holds,
                                    .format = fsdp1_writer.name,
                                    .sharding = &cut};
    select_result result;
    char mesh_text[32];
    snprintf(mesh_text, sizeof mesh_text, "fsdp=%u", w->ranks);
    must(mesh_parse(mesh_text, &w->cut.mesh, err) == FSDPCK_OK, "mesh", err);
    must(checkpoint_parts_find(&w->from, &w->parts, err) == FSDPCK_OK, "parts", err);
    must(select_build_target(&w->from, &w->parts, &request, &w->to, &result, err) == FSDPCK_OK,
         "aim", err);
    select_result_release(&result);
    must(fsdp1_writer.layout(&w->to, NULL, err) == FSDPCK_OK, "layout", err);
    must(target_write(&w->to, &fsdp1_writer, folder_path, target_fill_index, NULL, err) ==
             FSDPCK_OK,
         "written", err);
}

/* Where the writer put an element of a tensor, and in which rank's file. */
static uint64_t find_element(const catalogue *cat, element e, uint32_t *in_file)
{
    const cat_tensor *t = catalogue_tensor(cat, e.tensor);
    uint64_t shape[4], rows[4], at[4], offsets[4], sizes[4], found = UINT64_MAX;
    memcpy(shape, catalogue_shape(cat, e.tensor), t->ndim * sizeof *shape);
    box_row_major_strides(shape, t->ndim, rows);
    for (unsigned d = 0; d < t->ndim; d++)
        at[d] = e.number / rows[d] % shape[d];
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        bool inside = true;
        uint64_t own[4], number = 0;
        catalogue_chunk_box(cat, k, offsets, sizes);
        box_row_major_strides(sizes, t->ndim, own);
        for (unsigned d = 0; d < t->ndim; d++) {
            inside = inside && at[d] >= offsets[d] && at[d] < offsets[d] + sizes[d];
            number += (at[d] - offsets[d]) * own[d];
        }
        if (!inside)
            continue;
        must(found == UINT64_MAX, "an element has two places", NULL);
        found = catalogue_chunk(cat, k)->offset_bytes + 4 * number;
        *in_file = catalogue_chunk(cat, k)->file;
        must(catalogue_chunk(cat, k)->rank == *in_file, "a chunk is in another rank's file", NULL);
    }
    must(found != UINT64_MAX, "an element has no place", NULL);
    return found;
}

static bool is_padding_at(const target *t, uint32_t in_file, uint64_t at)
{
    static const uint8_t wanted[4] = {0, 0, 0x28, 0x42};
    for (size_t i = 0; i < t->literals.count; i++) {
        const target_constant *l = VEC_AT(&t->literals, const target_constant, i);
        if (l->file == in_file && at >= l->offset_bytes && at + 4 <= l->offset_bytes + l->nbytes)
            return memcmp(t->text.text + l->text_at + (at - l->offset_bytes), wanted, 4) == 0;
    }
    return false;
}

/* Element begin + k of a rank is 4 * k bytes after the first. */
static void check_rank(const world *w, unsigned u, uint32_t rank, uint64_t begin, uint64_t end)
{
    uint64_t base = UINT64_MAX;
    for (uint64_t k = begin; k < end; k++) {
        uint32_t in_file = 0;
        if (w->flat[u][k].tensor == PADDING)
            continue;
        const uint64_t first = find_element(&w->to.cat, w->flat[u][k], &in_file) - 4 * (k - begin);
        must(in_file == rank, "an element is in another rank's file", NULL);
        must(base == UINT64_MAX || base == first, "elements are not in their order", NULL);
        base = first;
    }
    for (uint64_t k = begin; k < end && base != UINT64_MAX; k++)
        must(w->flat[u][k].tensor != PADDING || is_padding_at(&w->to, rank, base + 4 * (k - begin)),
             "padding is not 42", NULL);
}

static void check(const world *w)
{
    for (uint32_t u = 0; u < unit_count(&w->units); u++) {
        must(unit_at(&w->units, u)->total == w->total[u], "another total", NULL);
        const uint64_t each = (w->total[u] + w->ranks - 1) / w->ranks;
        for (uint32_t rank = 0; rank < w->ranks; rank++) {
            const uint64_t begin = rank * each, end = begin + each;
            if (begin < w->total[u])
                check_rank(w, u, rank, begin, end < w->total[u] ? end : w->total[u]);
        }
    }
}

static void try_one(world *w)
{
    char folder_path[SCRATCH_BYTES];
    fsdpck_error err;
    memset(w, 0, sizeof *w);
    fsdpck_error_init(&err);
    scratch_make(folder_path);
    budget_init(&w->owner, 64 << 20, "metadata", NULL);
    catalogue_init(&w->from, &w->owner);
    unit_list_init(&w->units, &w->owner);
    layout_init(&w->cut, &w->owner);
    target_init(&w->to, &w->owner);
    w->ranks = 2 + draw(6);
    add_units(w, &err);
    aim_and_write(w, folder_path, &err);
    check(w);
    target_release(&w->to);
    layout_release(&w->cut);
    unit_list_release(&w->units);
    checkpoint_parts_release(&w->parts);
    catalogue_release(&w->from);
    must(w->owner.used_bytes == 0, "memory was not given back", NULL);
    scratch_remove(folder_path);
}

int main(int argc, char **argv)
{
    static world w;
    const int trials = argc > 1 ? atoi(argv[1]) : 300;
    for (int i = 0; i < trials; i++)
        try_one(&w);
    printf("prop_flatten: %d trials\n", trials);
    return 0;
}
