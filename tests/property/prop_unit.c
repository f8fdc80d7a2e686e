/* prop_unit: units of small parameters against a flat list made element by element: torch's padding
 * and chunks, every element held once, pieces and boxes in their place.
 *
 *     prop_unit [TRIALS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/unit.h"
#include "tests/support/random.h"

#define PARAMS_MAX 5u
#define RANKS_MAX  9u
#define FLAT_MAX   4096u

static uint64_t state = UINT64_C(0x2545f4914f6cdd1d);

static unsigned draw(unsigned below)
{
    return (unsigned)random_below(&state, below);
}

/* The random model. */
typedef struct given {
    unit proto;
    unsigned count;
    unsigned ndim[PARAMS_MAX];
    uint64_t shape[PARAMS_MAX][4], strides[PARAMS_MAX][4];
    bool strided[PARAMS_MAX];
    uint64_t nelems[PARAMS_MAX];
} given;

/* One element of the flat list: param -1 is padding; at: place in the parameter's memory. */
typedef struct element {
    int param;
    uint64_t at;
} element;

static void must(bool ok, const char *what, const given *g)
{
    if (ok)
        return;
    fprintf(stderr, "prop_unit: %s: world size %u, alignment %u, orig %d, row-major %d\n", what,
            g->proto.world_size, g->proto.alignment, g->proto.use_orig_params, g->proto.row_major);
    for (unsigned k = 0; k < g->count; k++) {
        fprintf(stderr, "  shape");
        for (unsigned d = 0; d < g->ndim[k]; d++)
            fprintf(stderr, " %llu", (unsigned long long)g->shape[k][d]);
        fprintf(stderr, g->strided[k] ? ", strides" : "\n");
        for (unsigned d = 0; d < g->ndim[k] && g->strided[k]; d++)
            fprintf(stderr, " %llu%s", (unsigned long long)g->strides[k][d],
                    d + 1 == g->ndim[k] ? "\n" : "");
    }
    exit(1);
}

static void draw_param(given *g, unsigned k)
{
    unsigned order[4] = {0, 1, 2, 3};
    const unsigned ndim = draw(5);
    g->ndim[k] = ndim;
    g->nelems[k] = 1;
    for (unsigned d = 0; d < ndim; d++) {
        g->shape[k][d] = draw(8) == 0 ? 0 : 1 + draw(4);
        g->nelems[k] *= g->shape[k][d];
    }
    g->strided[k] = ndim > 0 && draw(2) == 0;
    for (unsigned d = ndim; d > 1; d--) {
        const unsigned other = draw(d);
        const unsigned kept = order[d - 1];
        order[d - 1] = order[other];
        order[other] = kept;
    }
    uint64_t stride = 1;
    for (unsigned i = ndim; i-- > 0;) {
        const uint64_t size = g->shape[k][order[i]];
        /* The stride of a dim of one element may be anything. */
        g->strides[k][order[i]] = size == 1 ? draw(50) : stride;
        stride *= size;
    }
}

static void draw_unit(given *g)
{
    static const uint32_t alignments[] = {0, 1, 2, 3, 4, 8, 16};
    memset(g, 0, sizeof *g);
    g->proto.world_size = 1 + draw(RANKS_MAX);
    g->proto.use_orig_params = draw(2) == 0;
    g->proto.unsharded = draw(10) == 0;
    g->proto.row_major = draw(6) == 0;
    g->proto.alignment = alignments[draw(7)];
    g->count = draw(PARAMS_MAX + 1);
    for (unsigned k = 0; k < g->count; k++)
        draw_param(g, k);
}

/* torch's flattening; returns how many elements. */
static unsigned flatten(const given *g, element *flat)
{
    const unsigned aligned = g->proto.use_orig_params ? g->proto.alignment : 0;
    unsigned n = 0;
    for (unsigned k = 0; k < g->count; k++) {
        while (aligned > 0 && n % aligned != 0)
            flat[n++] = (element){-1, 0};
        for (uint64_t at = 0; at < g->nelems[k]; at++)
            flat[n++] = (element){(int)k, at};
    }
    while (aligned > 0 && n % g->proto.world_size != 0)
        flat[n++] = (element){-1, 0};
    return n;
}

/* Place in memory order of an element of the parameter. */
static uint64_t place_of(const given *g, unsigned k, const uint64_t *index)
{
    const bool by_stride = g->strided[k] && !g->proto.row_major;
    uint64_t at = 0;
    for (unsigned d = 0; d < g->ndim[k]; d++)
        if (!by_stride)
            at = at * g->shape[k][d] + index[d];
        else if (g->shape[k][d] > 1)
            at += index[d] * g->strides[k][d];
    return at;
}

/* Walks a box in the order of its memory: places must go up by one. */
static void check_box(const given *g, unsigned k, const unit_boxes *b, uint64_t place)
{
    const unsigned ndim = g->ndim[k];
    const uint64_t count = box_nelems(b->sizes, ndim);
    must(count > 0, "empty box", g);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index[4] = {0};
        uint64_t rest = i;
        for (unsigned j = ndim; j-- > 0;) {
            const uint64_t d = b->order == NULL ? j : b->order[j];
            index[d] = b->offsets[d] + rest % b->sizes[d];
            rest /= b->sizes[d];
        }
        for (unsigned d = 0; d < ndim; d++)
            must(index[d] < g->shape[k][d], "box outside the parameter", g);
        must(place_of(g, k, index) == place + i, "box out of memory order", g);
    }
}

static void check_boxes(const given *g, const unit_list *l, unsigned k, const unit_param *p,
                        uint64_t begin, uint64_t end)
{
    unit_boxes b;
    unsigned count = 0;
    unit_boxes_init(&b, l, p, begin, end);
    while (unit_boxes_next(&b)) {
        must(b.flat == begin, "boxes leave a gap", g);
        check_box(g, k, &b, b.flat);
        begin += box_nelems(b.sizes, p->ndim);
        count++;
    }
    must(begin == end, "boxes do not cover the piece", g);
    must(count <= (p->ndim == 0 ? 1u : 2u * p->ndim - 1), "too many boxes", g);
}

/* torch's rule with inclusive ends, as it is written there. */
static bool in_shard(uint64_t shard_begin, uint64_t shard_size, const unit_param *p)
{
    const int64_t first = (int64_t)shard_begin;
    const int64_t last = (int64_t)(shard_begin + shard_size) - 1;
    return first <= (int64_t)(p->offset + p->nelems) - 1 && last >= (int64_t)p->offset;
}

static void check_rank(const given *g, const unit_list *l, const unit *u, uint32_t rank,
                       const element *flat, unsigned total, unsigned *held)
{
    const uint64_t size = g->proto.unsharded ? total : (total + u->world_size - 1) / u->world_size;
    const uint64_t first = g->proto.unsharded ? 0 : rank * size;
    const uint64_t begin = first < total ? first : total;
    const uint64_t end = first + size < total ? first + size : total;
    const unit_shard s = unit_shard_of(u, rank);
    uint32_t first_piece, end_piece;
    must(u->shard_size == size, "shard size", g);
    must(s.begin == begin && s.end == end && s.padding == size - (end - begin), "shard", g);
    unit_params_of_rank(l, u, rank, &first_piece, &end_piece);
    uint64_t covered = 0;
    for (uint32_t k = 0; k < u->nparams; k++) {
        const unit_param *p = unit_param_at(l, u, k);
        const unit_param_range x = unit_param_range_of(l, u, k, rank);
        must(x.in_shard == in_shard(first, size, p), "in shard", g);
        must(x.begin == x.end || (first_piece <= k && k < end_piece), "range of pieces", g);
        must(x.begin < x.end || p->nelems == 0 || k < first_piece || end_piece <= k,
             "range of pieces too wide", g);
        for (uint64_t i = x.begin; i < x.end; i++) {
            const element *e = &flat[begin + x.shard_offset + (i - x.begin)];
            must(e->param == (int)k && e->at == i, "piece", g);
            held[e - flat]++;
        }
        covered += x.end - x.begin;
        check_boxes(g, l, k, p, x.begin, x.end);
    }
    for (uint64_t i = begin; i < end; i++)
        covered += flat[i].param < 0;
    must(covered == end - begin, "pieces and padding are not the shard", g);
}

static void check_unit(const given *g, budget *b)
{
    static element flat[FLAT_MAX];
    static unsigned held[FLAT_MAX];
    unit_list l;
    unit_list_init(&l, b);
    must(unit_list_add(&l, &g->proto, "blk", 3, "_flat_param", 11, NULL) == FSDPCK_OK, "add", g);
    for (unsigned k = 0; k < g->count; k++) {
        const char name = (char)('a' + (int)k);
        must(unit_list_add_param(&l, &name, 1, g->ndim[k], g->shape[k],
                                 g->strided[k] ? g->strides[k] : NULL, NULL) == FSDPCK_OK,
             "parameter", g);
    }
    must(unit_list_close(&l, NULL) == FSDPCK_OK && unit_list_seal(&l, NULL) == FSDPCK_OK, "close",
         g);
    const unit *u = unit_at(&l, 0);
    const unsigned total = flatten(g, flat);
    must(u->total == total, "total", g);
    memset(held, 0, sizeof held);
    for (uint32_t rank = 0; rank < u->world_size; rank++)
        check_rank(g, &l, u, rank, flat, total, held);
    const unsigned times = u->unsharded ? u->world_size : 1;
    for (unsigned i = 0; i < total; i++)
        must(held[i] == (flat[i].param < 0 ? 0 : times), "element held once", g);
    unit_list_release(&l);
    must(b->used_bytes == 0, "memory given back", g);
}

int main(int argc, char **argv)
{
    const unsigned long trials = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    given g;
    budget b;
    budget_init(&b, 1u << 20, "metadata", NULL);
    for (unsigned long i = 0; i < trials; i++) {
        draw_unit(&g);
        check_unit(&g, &b);
    }
    return 0;
}
