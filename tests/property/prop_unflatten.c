/* prop_unflatten: random units, shared by random ranks, as sharded tensors, as bare shards with their
 * padding, and as optimizer state by number: every element of every parameter is found once in each
 * replica, in its place, and padding nowhere.
 *
 *     prop_unflatten [TRIALS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statedict/unflatten.h"
#include "tests/support/must.h"
#include "tests/support/random.h"

#define PARAMS_MAX 5u
#define DATA_MAX   65536u

static unsigned long orders, orders_known;
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
static uint32_t data[DATA_MAX]; /* positions in the flat parameter, or PADDING */

#define PADDING UINT32_MAX

typedef struct trial {
    budget memory;
    unit_list units;
    catalogue base, seen;
    source src;
    flat_adapter *view;
    uint32_t used;
    uint32_t replicas;
    bool orig;
} trial;

static unsigned draw(unsigned below)
{
    return (unsigned)random_below(&state, below);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(&((trial *)ctx)->base, chunk);
    (void)err;
    *where = (place){.file = k->file, .rows = true, .offset_bytes = k->offset_bytes};
    return FSDPCK_OK;
}

static void draw_unit(trial *t, const char *prefix, uint32_t world)
{
    const unit proto = {.dtype = DTYPE_FLOAT32,
                        .use_orig_params = t->orig,
                        .alignment = t->orig ? 4u << draw(2) : 0,
                        .world_size = world};
    const unsigned count = 1 + draw(PARAMS_MAX);
    must(unit_list_add(&t->units, &proto, prefix, strlen(prefix), "_flat_param", 11, NULL) ==
             FSDPCK_OK,
         "adding a unit");
    for (unsigned k = 0; k < count; k++) {
        uint64_t shape[4], strides[4];
        const unsigned ndim = draw(5);
        char fqn[32];
        for (unsigned d = 0; d < ndim; d++)
            shape[d] = draw(12) == 0 ? 0 : 1 + draw(4);
        if (ndim == 4) {
            strides[1] = 1;
            strides[3] = shape[1] > 0 ? shape[1] : 1;
            strides[2] = strides[3] * (shape[3] > 0 ? shape[3] : 1);
            strides[0] = strides[2] * (shape[2] > 0 ? shape[2] : 1);
        }
        snprintf(fqn, sizeof fqn, "%s%sp%u", prefix, prefix[0] == '\0' ? "" : ".", k);
        must(unit_list_add_param(&t->units, fqn, strlen(fqn), ndim, shape,
                                 ndim == 4 && draw(2) ? strides : NULL, NULL) == FSDPCK_OK,
             "adding a parameter");
    }
    must(unit_list_close(&t->units, NULL) == FSDPCK_OK, "closing a unit");
}

static value path_of(trial *t, const char *const *parts, unsigned count, unsigned number_at)
{
    value items[4], path;
    for (unsigned i = 0; i < count; i++)
        must((i == number_at
                  ? value_new_bytes(&t->base.pool, parts[i], strlen(parts[i]), &items[i], NULL)
                  : value_new_str(&t->base.pool, parts[i], strlen(parts[i]), &items[i], NULL)) ==
                 FSDPCK_OK,
             "making a path");
    must(value_new_from(&t->base.pool, VALUE_TUPLE, items, count, &path, NULL) == FSDPCK_OK,
         "making a path");
    return path;
}

static uint32_t add_tensor(trial *t, const char *name, value path, uint64_t nelems, unsigned flags)
{
    uint32_t tensor;
    must(catalogue_add_tensor(&t->base, name, strlen(name), DTYPE_FLOAT32, 1, &nelems, &tensor,
                              NULL) == FSDPCK_OK,
         "adding a tensor");
    catalogue_tensor(&t->base, tensor)->path = path;
    catalogue_tensor(&t->base, tensor)->flags = (uint8_t)flags;
    return tensor;
}

static void add_values(trial *t, uint32_t tensor, uint64_t offset, uint64_t first, uint64_t count,
                       uint64_t padding, uint32_t rank)
{
    const uint64_t sizes[1] = {count + padding};
    const cat_chunk k = {.rank = (uint16_t)rank,
                         .place = LOCATION_ROWS,
                         .offset_bytes = t->used * UINT64_C(4),
                         .nbytes = (count + padding) * 4};
    must(t->used + count + padding <= DATA_MAX, "drawing too much");
    for (uint64_t i = 0; i < count + padding; i++)
        data[t->used++] = i < count ? (uint32_t)(first + i) : PADDING;
    must(catalogue_add_chunk(&t->base, tensor, &offset, sizes, &k, NULL) == FSDPCK_OK,
         "adding a chunk");
}

/* A rank's part of a unit's flat parameter, as the sharded tensor has it or bare. */
static void add_flat(trial *t, uint32_t unit_index, bool bare)
{
    const unit *u = unit_at(&t->units, unit_index);
    const char *const keys[] = {"model", unit_index == 0 ? "_flat_param" : "blk._flat_param"};
    char name[64], last[64];
    uint32_t tensor = 0;
    snprintf(name, sizeof name, "model.%s", keys[1]);
    if (!bare)
        tensor = add_tensor(t, name, path_of(t, keys, 2, 9), u->total, 0);
    for (uint32_t r = 0; r < u->world_size * t->replicas; r++) {
        const unit_shard h = unit_shard_of(u, r % u->world_size);
        if (bare) {
            snprintf(name, sizeof name, "model.%s.rank%u", keys[1], (unsigned)r);
            snprintf(last, sizeof last, "%s.rank%u", keys[1], (unsigned)r);
            const char *const parts[] = {"model", last};
            tensor =
                add_tensor(t, name, path_of(t, parts, 2, 9), u->shard_size, CAT_TENSOR_OF_RANK);
        }
        if (bare || h.end > h.begin)
            add_values(t, tensor, bare ? 0 : h.begin, h.begin, h.end - h.begin,
                       bare ? h.padding : 0, r);
    }
}

static void add_state(trial *t, unsigned number, uint32_t rank, uint64_t first, uint64_t count,
                      uint64_t padding)
{
    char digits[16], key[32], name[64];
    snprintf(digits, sizeof digits, "%u", number);
    snprintf(key, sizeof key, "exp_avg.rank%u", (unsigned)rank);
    snprintf(name, sizeof name, "optim.state.%s.%s", digits, key);
    const char *const parts[] = {"optim", "state", digits, key};
    const uint32_t tensor =
        add_tensor(t, name, path_of(t, parts, 4, 2), count + padding, CAT_TENSOR_OF_RANK);
    add_values(t, tensor, 0, first, count, padding, rank);
}

/* Numbers in the order of the list, which is one that a tree can have. */
static void add_optimizer(trial *t)
{
    unsigned number = 0;
    for (uint32_t i = 0; i < unit_count(&t->units); i++) {
        const unit *u = unit_at(&t->units, i);
        const uint32_t ranks = u->world_size * t->replicas;
        for (uint32_t r = 0; !t->orig && r < ranks; r++) {
            const unit_shard h = unit_shard_of(u, r % u->world_size);
            add_state(t, number, r, h.begin, h.end - h.begin, h.padding);
        }
        number += !t->orig;
        for (uint32_t k = 0; t->orig && k < u->nparams; k++, number++)
            for (uint32_t r = 0; r < ranks; r++) {
                const unit_param_range q = unit_param_range_of(&t->units, u, k, r % u->world_size);
                if (q.in_shard || draw(2))
                    add_state(t, number, r,
                              unit_param_at(&t->units, u, k)->offset + (q.in_shard ? q.begin : 0),
                              q.in_shard ? q.end - q.begin : 0, 0);
            }
    }
}

/* Counts, for each row-major element, how often a chunk has it, and that it is the right one. */
static void check_param(const trial *t, const unit_param *p, uint32_t tensor)
{
    static unsigned counts[4096];
    const uint64_t *shape = unit_param_shape(&t->units, p);
    const cat_tensor *c = catalogue_tensor(&t->seen, tensor);
    const source *src = flat_adapter_source(t->view);
    must(c->ndim == p->ndim, "dims of a parameter");
    memset(counts, 0, sizeof counts);
    for (uint64_t k = c->first_chunk; k < c->first_chunk + c->nchunks; k++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], rows[NDIM_MAX];
        place where;
        if (catalogue_chunk(&t->seen, k)->place == LOCATION_EMPTY)
            continue;
        must(src->locate(src->ctx, k, &where, NULL) == FSDPCK_OK, "locating a chunk");
        catalogue_chunk_box(&t->seen, k, offsets, sizes);
        box_row_major_strides(sizes, p->ndim, rows);
        for (uint64_t i = 0; i < box_nelems(sizes, p->ndim); i++) {
            uint64_t at[NDIM_MAX], rest = i, row = 0, stored = 0, from = where.offset_bytes / 4;
            for (unsigned d = p->ndim; d-- > 0; rest /= sizes[d]) {
                at[d] = offsets[d] + rest % sizes[d];
                from += rest % sizes[d] * (where.rows ? rows[d] : where.strides[d]);
            }
            for (unsigned j = 0; j < p->ndim; j++) {
                const uint64_t d =
                    p->permuted ? *VEC_AT(&t->units.dims, uint64_t, p->order_at + j) : j;
                row = row * shape[j] + at[j];
                stored = stored * shape[d] + at[d];
            }
            must(from < t->used && data[from] == p->offset + stored, "an element");
            counts[row]++;
        }
    }
    for (uint64_t i = 0; i < p->nelems; i++)
        must(counts[i] == t->replicas, "how often an element is there");
}

static void check_all(const trial *t, const char *before, const char *after, bool whole)
{
    for (uint32_t i = 0; i < t->units.params.count; i++) {
        const unit_param *p = VEC_AT(&t->units.params, const unit_param, i);
        size_t nbytes;
        char name[128];
        snprintf(name, sizeof name, "%s%s%s", before, unit_name(&t->units, p->fqn, &nbytes), after);
        const uint32_t tensor = catalogue_find(&t->seen, name, strlen(name));
        must(tensor != CAT_NONE || (!whole && p->nelems == 0), "a parameter");
        if (tensor != CAT_NONE)
            check_param(t, p, tensor);
    }
}

static void run(void)
{
    static trial t;
    const uint32_t world = 1 + draw(9);
    const flat_adapter_options options = {.assume_order = true};
    const bool bare = draw(2), with_model = draw(4) > 0;
    fsdpck_error err;
    uint32_t file;

    t = (trial){.replicas = 1 + draw(2), .orig = draw(2)};
    budget_init(&t.memory, 256u << 20, "metadata", NULL);
    unit_list_init(&t.units, &t.memory);
    catalogue_init(&t.base, &t.memory);
    catalogue_init(&t.seen, &t.memory);
    t.src = (source){.ctx = &t, .cat = &t.base, .locate = locate};
    if (!bare && !with_model)
        t.replicas = 1;
    draw_unit(&t, "", world);
    draw_unit(&t, "blk", world);
    must(unit_list_seal(&t.units, NULL) == FSDPCK_OK, "sealing the units");
    must(catalogue_add_file(&t.base, "data", 4, sizeof data, CAT_NONE, &file, NULL) == FSDPCK_OK,
         "adding a file");
    for (uint32_t i = 0; with_model && i < 2; i++)
        add_flat(&t, i, bare);
    add_optimizer(&t);
    must(catalogue_seal(&t.base, NULL) == FSDPCK_OK, "sealing");
    fsdpck_error_init(&err);
    must(flat_adapter_new(&t.base, &t.src, &t.units, &options, &t.seen, &t.view, &err) == FSDPCK_OK,
         err.message);
    if (with_model)
        check_all(&t, "model.", "", true);
    /* Lengths alone may leave the order open; then there is nothing under a parameter's name. */
    bool known = true;
    for (size_t i = 0; i < catalogue_tensor_count(&t.seen); i++) {
        const char *name = catalogue_name(&t.seen, catalogue_tensor(&t.seen, i)->name);
        known =
            known && (strncmp(name, "optim.state.", 12) != 0 || name[12] == 'p' || name[12] == 'b');
    }
    must(known || t.orig, "flat parameters in an unknown order");
    orders_known += t.orig && known;
    orders += t.orig;
    if (known)
        check_all(&t, "optim.state.", ".exp_avg", false);
    flat_adapter_free(t.view);
    catalogue_release(&t.seen);
    catalogue_release(&t.base);
    unit_list_release(&t.units);
    must(t.memory.used_bytes == 0, "bytes that were not given back");
}

int main(int argc, char **argv)
{
    const unsigned long trials = argc > 1 ? strtoul(argv[1], NULL, 10) : 3000;
    for (unsigned long i = 0; i < trials; i++)
        run();
    printf("prop_unflatten: %lu trials, %lu of %lu orders known\n", trials, orders_known, orders);
    must(trials < 1000 || orders_known * 3 > orders, "orders that are found too seldom");
    return 0;
}
