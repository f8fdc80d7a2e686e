/* Laying out a DCP folder of many chunks: time grows linearly, whatever the number of tensors,
 * ranks and replicas. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/dcp/dcp.h"
#include "tests/support/must.h"
#include "tests/support/seconds.h"

typedef struct scale {
    unsigned tensors; /* cut over the last mesh dim */
    unsigned scalars; /* on every rank */
    unsigned objects;
    uint64_t replicas; /* size of the first mesh dim */
    uint64_t ranks;    /* of the second */
} scale;

static uint32_t add_tensor(target *t, const char *kind, unsigned number, unsigned ndim,
                           const uint64_t *shape, fsdpck_error *err)
{
    char name[64];
    uint32_t tensor;
    const int n = snprintf(name, sizeof name, "model.layers.%u.%s", number, kind);
    must_be_ok(
        catalogue_add_tensor(&t->cat, name, (size_t)n, DTYPE_FLOAT32, ndim, shape, &tensor, err),
        err);
    return tensor;
}

static void fill(target *t, const scale *s, fsdpck_error *err)
{
    const mesh m = {.ndim = 2, .sizes = {s->replicas, s->ranks}};
    cat_spec spec = {.placements = {{.kind = PLACEMENT_REPLICATE}, {.kind = PLACEMENT_SHARD}}};
    must_be_ok(catalogue_add_mesh(&t->cat, &m, &spec.mesh, err), err);
    t->world_size = s->replicas * s->ranks;
    for (unsigned i = 0; i < s->tensors; i++) {
        const uint64_t shape[] = {4 * s->ranks, 8 + i % 10};
        const uint32_t tensor = add_tensor(t, "weight", i, 2, shape, err);
        must_be_ok(
            catalogue_add_spec(&t->cat, &spec, &catalogue_tensor(&t->cat, tensor)->spec, err), err);
        for (uint64_t rank = 0; rank < s->ranks; rank++) {
            const uint64_t offsets[] = {4 * rank, 0}, sizes[] = {4, shape[1]};
            const cat_chunk proto = {.file = CAT_NONE, .rank = (uint16_t)rank};
            must_be_ok(catalogue_add_chunk(&t->cat, tensor, offsets, sizes, &proto, err), err);
        }
    }
    for (unsigned i = 0; i < s->scalars; i++) {
        const cat_chunk proto = {.file = CAT_NONE};
        must_be_ok(catalogue_add_chunk(&t->cat, add_tensor(t, "step", i, 0, NULL, err), NULL, NULL,
                                       &proto, err),
                   err);
    }
    for (unsigned i = 0; i < s->objects; i++) {
        char name[64];
        uint32_t object;
        const int n = snprintf(name, sizeof name, "optim.%u.lr", i);
        must_be_ok(catalogue_add_object(&t->cat, name, (size_t)n, &object, err), err);
        must_be_ok(
            value_new_int(&t->cat.pool, i % 7, &catalogue_object(&t->cat, object)->content, err),
            err);
        catalogue_object(&t->cat, object)->loaded = 1;
    }
    must_be_ok(catalogue_seal(&t->cat, err), err);
}

static double run(const scale *s)
{
    budget b;
    target t;
    fsdpck_error err;
    fsdpck_error_init(&err);
    budget_init(&b, UINT64_C(8) << 30, "metadata", NULL);
    target_init(&t, &b);
    fill(&t, s, &err);
    const uint64_t before = b.used_bytes;
    const double begin = cpu_seconds();
    must_be_ok(dcp_writer.layout(&t, &(writer_options){0}, &err), &err);
    const double end = cpu_seconds();
    const double items = (double)catalogue_chunk_count(&t.cat) + s->objects;
    printf("%9.0f items on %6llu ranks  %6.3f s  %5.1f bytes an item, text %5.1f\n", items,
           (unsigned long long)t.world_size, end - begin, (double)(b.used_bytes - before) / items,
           (double)t.text.nbytes / items);
    assert(t.lates.count == catalogue_chunk_count(&t.cat));
    target_release(&t);
    assert(b.used_bytes == 0);
    return end - begin;
}

/* Best of three, since other work shares the machine. */
static double best(const scale *s)
{
    double least = run(s);
    for (int i = 0; i < 2; i++) {
        const double again = run(s);
        least = again < least ? again : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    if (argc == 3) { /* for measuring: tensors and ranks */
        const scale asked = {.tensors = (unsigned)atoi(argv[1]),
                             .replicas = 1,
                             .ranks = strtoull(argv[2], NULL, 10)};
        best(&asked);
        return 0;
    }
    const scale small = {.tensors = 400, .replicas = 1, .ranks = 250};
    const scale large = {.tensors = 800, .replicas = 1, .ranks = 250};
    const double a = best(&small), b = best(&large);
    if (b > 3 * a + 0.02) {
        fprintf(stderr, "twice the chunks took %.3f s after %.3f s\n", b, a);
        return 1;
    }
    /* Few chunks for many ranks to choose from, one tensor in many chunks, many objects. */
    const scale shapes[] = {
        {.tensors = 1, .replicas = 1, .ranks = 50000},
        {.tensors = 100, .replicas = 500, .ranks = 4},
        {.tensors = 1, .scalars = 50000, .replicas = 1, .ranks = 50000},
        {.tensors = 1, .objects = 100000, .replicas = 2, .ranks = 16384},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const double took = best(&shapes[i]);
        if (took > 2) {
            fprintf(stderr, "case %zu took %.3f s\n", i, took);
            return 1;
        }
    }
    return 0;
}
