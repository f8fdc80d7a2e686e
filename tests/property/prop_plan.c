/* Random checkpoints through plan and exec, with any chunks, strides, encodings, tiles and threads,
 * by threads or by a GPU that may fail: every byte of the output is determined by its tensor and
 * index, and equal in all runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/exec_harness.h"
#include "tests/support/fake_gpu.h"

#define MUST(condition)                                                                   \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: seed %" PRIu64 ": %s\n", __FILE__, __LINE__, g->seed, \
                    #condition);                                                          \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define TENSORS_MAX 6

typedef struct generator {
    uint64_t seed;
    uint64_t state;
    exec_harness *world;
    bool has_stream;
    bool has_late;
} generator;

static uint64_t draw(generator *g, uint64_t below)
{
    uint64_t z = g->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

static bool chance(generator *g, unsigned percent)
{
    return draw(g, 100) < percent;
}

typedef void (*box_fn)(generator *g, uint32_t tensor, const uint64_t *offsets,
                       const uint64_t *sizes);

/* Cuts a box at random places until it is in about `pieces`. */
static void cut_box(generator *g, uint32_t tensor, unsigned ndim, const uint64_t *offsets,
                    const uint64_t *sizes, unsigned pieces, box_fn fn)
{
    struct {
        uint64_t offsets[8], sizes[8];
    } boxes[64];
    unsigned count = 1;
    memcpy(boxes[0].offsets, offsets, ndim * sizeof *offsets);
    memcpy(boxes[0].sizes, sizes, ndim * sizeof *sizes);
    for (unsigned tries = 0; ndim > 0 && count < pieces && tries < 4 * pieces; tries++) {
        const unsigned i = (unsigned)draw(g, count);
        const unsigned d = (unsigned)draw(g, ndim);
        if (boxes[i].sizes[d] < 2)
            continue;
        const uint64_t at = 1 + draw(g, boxes[i].sizes[d] - 1);
        boxes[count] = boxes[i];
        boxes[count].offsets[d] += at;
        boxes[count].sizes[d] -= at;
        boxes[i].sizes[d] = at;
        count++;
    }
    for (unsigned i = count; i > 1; i--) {
        const unsigned j = (unsigned)draw(g, i);
        const uint64_t swap_nbytes = sizeof boxes[0];
        uint8_t t[sizeof boxes[0]];
        memcpy(t, &boxes[i - 1], swap_nbytes);
        memcpy(&boxes[i - 1], &boxes[j], swap_nbytes);
        memcpy(&boxes[j], t, swap_nbytes);
    }
    for (unsigned i = 0; i < count; i++)
        fn(g, tensor, boxes[i].offsets, boxes[i].sizes);
}

static memory_layout draw_layout(generator *g, unsigned ndim, dtype type, bool added)
{
    memory_layout l = {.file = (uint32_t)draw(g, g->world->source.file_count),
                       .gap_nbytes = (uint32_t)draw(g, chance(g, 10) ? 70000 : 100)};
    const dtype_info *info = dtype_get(type);
    if (chance(g, 30) && ndim > 0) {
        l.permuted = true;
        for (unsigned d = 0; d < ndim; d++) {
            const unsigned j = (unsigned)draw(g, d + 1);
            l.order[d] = l.order[j];
            l.order[j] = (unsigned char)d;
        }
    }
    if (chance(g, 20))
        l.pad_elems = (uint32_t)draw(g, 5);
    l.stream = g->has_stream && chance(g, 40);
    l.boxes = l.stream && !l.permuted && l.pad_elems == 0 && chance(g, 50);
    l.gap_nbytes = l.boxes ? 0 : l.gap_nbytes;
    l.swap = chance(g, 15);
    l.conj = info->kind == DTYPE_IS_COMPLEX && chance(g, 30);
    l.neg = (info->kind == DTYPE_IS_COMPLEX || info->kind == DTYPE_IS_FLOAT) && chance(g, 15);
    if (added && dtype_can_add(type))
        l.add = (int8_t)((int)draw(g, 3) - 1);
    l.crc = chance(g, 50);
    return l;
}

static void add_source_chunk(generator *g, uint32_t tensor, const uint64_t *offsets,
                             const uint64_t *sizes)
{
    const cat_tensor *t = catalogue_tensor(&g->world->source.cat, tensor);
    const unsigned ndim = t->ndim;
    const dtype type = (dtype)t->dtype;
    const bool added = catalogue_name(&g->world->source.cat, t->name)[0] == 'a';
    const memory_layout first = draw_layout(g, ndim, type, added);
    memory_source_add_chunk(&g->world->source, tensor, offsets, sizes, &first);
    while (chance(g, 10)) {
        memory_layout l = first; /* two streams are compared only if they agree in strides */
        if (!first.stream) {
            l = draw_layout(g, ndim, type, added);
            l.stream = l.boxes = false;
        } else if (chance(g, 50)) {
            l.stream = l.boxes = false;
        }
        memory_source_add_chunk(&g->world->source, tensor, offsets, sizes, &l);
    }
    if (chance(g, 10) && ndim > 0) {
        uint64_t none[8];
        memcpy(none, sizes, ndim * sizeof *none);
        none[draw(g, ndim)] = 0;
        const memory_layout l = {0};
        memory_source_add_chunk(&g->world->source, tensor, offsets, none, &l);
    }
}

static void make_source(generator *g)
{
    static const dtype types[] = {DTYPE_UINT8,      DTYPE_INT16, DTYPE_BFLOAT16,
                                  DTYPE_FLOAT32,    DTYPE_INT64, DTYPE_COMPLEX64,
                                  DTYPE_COMPLEX128, DTYPE_BOOL,  DTYPE_FLOAT64};
    const uint64_t zeros[8] = {0};
    const unsigned ntensors = 1 + (unsigned)draw(g, TENSORS_MAX);
    g->has_stream = chance(g, 30);
    for (unsigned i = 0; i < ntensors; i++) {
        char name[16];
        uint64_t shape[8];
        const bool tall = chance(g, 4); /* stored across, its runs lie far apart */
        const unsigned ndim = tall ? 2 : (unsigned)draw(g, 5);
        const dtype type = types[draw(g, sizeof types / sizeof *types)];
        for (unsigned d = 0; d < ndim; d++)
            shape[d] =
                chance(g, 5) ? draw(g, 2) : 1 + draw(g, ndim <= 2 && chance(g, 30) ? 200 : 9);
        if (tall) {
            shape[0] = 5000 + draw(g, 3000);
            shape[1] = 10 + draw(g, 30);
        }
        if (!tall && ndim >= 2 && chance(g, 6) && dtype_get(type)->itemsize_bytes <= 4) {
            shape[0] = 900 + draw(g, 200); /* enough to be filled in bundles */
            shape[1] = 300 + draw(g, 60);
            for (unsigned d = 2; d < ndim; d++)
                shape[d] = 1 + draw(g, 2);
        }
        (void)snprintf(name, sizeof name, "%s%u", chance(g, 20) ? "added" : "t", i);
        const uint32_t tensor =
            memory_source_add_tensor(&g->world->source, name, type, ndim, shape);
        const unsigned pieces = 1 + (unsigned)draw(g, chance(g, 30) ? 40 : 6);
        if (box_nelems(shape, ndim) > 0)
            cut_box(g, tensor, ndim, zeros, shape, pieces, add_source_chunk);
    }
    memory_source_seal(&g->world->source);
}

static void add_target_chunk(generator *g, uint32_t tensor, const uint64_t *offsets,
                             const uint64_t *sizes)
{
    exec_harness_add_chunk(g->world, tensor, (uint32_t)draw(g, g->world->nfiles), offsets, sizes);
}

static void add_constant(generator *g, uint32_t index, uint64_t at)
{
    char text[300];
    const uint64_t n = 1 + draw(g, sizeof text);
    for (uint64_t i = 0; i < n; i++)
        text[i] = (char)('a' + draw(g, 26));
    MUST(target_add_constant(&g->world->to, index, at, text, n, NULL) == FSDPCK_OK);
}

/* Late bytes of this chunk or, now and then, of any other. */
static uint64_t add_deferred(generator *g, uint32_t index, uint64_t at, uint64_t target_chunk)
{
    const catalogue *c = &g->world->to.cat;
    const uint32_t nbytes = 1 + (uint32_t)draw(g, 400);
    if (chance(g, 10))
        target_chunk = draw(g, catalogue_chunk_count(c));
    if (catalogue_chunk(c, target_chunk)->place == LOCATION_EMPTY)
        return 0;
    exec_harness_add_deferred(g->world, index, at, nbytes, target_chunk);
    return nbytes;
}

/* Gives every chunk of one file a place, in random order, with literals and gaps between. */
static void place_file(generator *g, uint32_t index)
{
    catalogue *c = &g->world->to.cat;
    uint64_t at = 0;
    const uint64_t n = catalogue_chunk_count(c);
    const uint64_t start = n > 0 ? draw(g, n) : 0;
    for (uint64_t i = 0; i < n; i++) {
        cat_chunk *k = catalogue_chunk(c, (start + i) % n);
        uint64_t sizes[NDIM_MAX];
        if (k->file != index || k->place == LOCATION_EMPTY)
            continue;
        if (chance(g, 40)) {
            add_constant(g, index, at);
            at += VEC_AT(&g->world->to.literals, target_constant, g->world->to.literals.count - 1)
                      ->nbytes;
        }
        at += chance(g, 40) ? draw(g, 200) : 0;
        const cat_tensor *t = catalogue_tensor(c, k->tensor);
        catalogue_chunk_box(c, (start + i) % n, NULL, sizes);
        k->offset_bytes = at;
        k->nbytes = box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
        at += k->nbytes;
        if (g->has_late)
            at += add_deferred(g, index, at, (start + i) % n);
    }
    at += chance(g, 20) ? draw(g, 6000) : 0;
    catalogue_file(c, index)->nbytes = at;
}

/* Columns of the last dim, as ranks would hold them; now and then each twice. */
static void cut_columns(generator *g, uint32_t tensor, unsigned ndim, const uint64_t *shape)
{
    const uint64_t zeros[8] = {0};
    const unsigned pieces = 2 + (unsigned)draw(g, chance(g, 30) ? 100 : 8);
    const bool twice = chance(g, 20);
    const uint64_t each = shape[ndim - 1] / pieces + 1;
    uint64_t offsets[8];
    uint64_t sizes[8];
    memcpy(offsets, zeros, sizeof offsets);
    memcpy(sizes, shape, ndim * sizeof *sizes);
    for (uint64_t at = 0; at < shape[ndim - 1]; at += each) {
        const uint64_t left = shape[ndim - 1] - at;
        offsets[ndim - 1] = at;
        sizes[ndim - 1] = left < each ? left : each;
        for (unsigned i = 0; i < 1u + twice; i++)
            add_target_chunk(g, tensor, offsets, sizes);
    }
}

static dtype draw_target_type(generator *g, dtype from)
{
    return from == DTYPE_BFLOAT16 && chance(g, 50) ? DTYPE_FLOAT32 : from;
}

static void make_target(generator *g)
{
    const uint64_t zeros[8] = {0};
    exec_harness *w = g->world;
    const size_t nsource = catalogue_tensor_count(&w->source.cat);
    const unsigned ntensors = 1 + (unsigned)draw(g, TENSORS_MAX);
    w->to.want_crc = chance(g, 60);
    g->has_late = chance(g, 50);
    w->to.is_folder = true;
    for (unsigned i = 0; i < ntensors; i++) {
        char name[16];
        const uint32_t from = (uint32_t)draw(g, nsource);
        const cat_tensor *s = catalogue_tensor(&w->source.cat, from);
        const uint64_t *shape = catalogue_shape(&w->source.cat, from);
        (void)snprintf(name, sizeof name, "x%u", i);
        const uint32_t tensor =
            exec_harness_add_target(w, from, name, draw_target_type(g, (dtype)s->dtype));
        if (box_nelems(shape, s->ndim) > 0 && s->ndim >= 2 && chance(g, 30))
            cut_columns(g, tensor, s->ndim, shape);
        else if (box_nelems(shape, s->ndim) > 0)
            cut_box(g, tensor, s->ndim, zeros, shape, chance(g, 50) ? 1 : 1 + (unsigned)draw(g, 20),
                    add_target_chunk);
    }
    MUST(catalogue_seal(&w->to.cat, NULL) == FSDPCK_OK);
    for (uint32_t i = 0; i < w->nfiles; i++)
        place_file(g, i);
}

static void run_once(generator *g, uint64_t tile, unsigned nthreads, int direct)
{
    fsdpck_error err = {0};
    const exec_harness_options o = {.tile_nbytes = tile,
                                    .nthreads = nthreads,
                                    .direct = direct,
                                    .replicas = chance(g, 50) ? REPLICAS_CRC : REPLICAS_COMPARE};
    const fsdpck_status st = exec_harness_run(g->world, &o, &err);
    if (st == FSDPCK_OK)
        return;
    fprintf(stderr, "seed %" PRIu64 ": status %d: %s; expected %s, found %s; tensor %s\n", g->seed,
            st, err.message, err.expected, err.found, err.tensor);
    exit(1);
}

/* A read fails somewhere: an error, and nothing leaks. */
static void run_failing(generator *g)
{
    fsdpck_error err = {0};
    exec_harness *w = g->world;
    atomic_store(&w->source.reads, 0);
    w->source.fail_read = 1 + draw(g, 40);
    const exec_harness_options o = {
        .tile_nbytes = 4096, .nthreads = 2, .replicas = REPLICAS_COMPARE};
    const fsdpck_status st = exec_harness_run(w, &o, &err);
    MUST(st == (atomic_load(&w->source.reads) >= w->source.fail_read ? FSDPCK_IO : FSDPCK_OK));
    w->source.fail_read = 0;
}

static void run_by_gpu(generator *g, fake_gpu *fake, bool required, fsdpck_status want)
{
    fsdpck_error err = {0};
    fake->mode = (fake_mode)draw(g, FAKE_THREADS + 1);
    const exec_harness_options o = {.tile_nbytes = chance(g, 50) ? 0 : 4096 * (1 + draw(g, 30)),
                                    .nthreads = 1 + (unsigned)draw(g, 2),
                                    .replicas = REPLICAS_FIRST,
                                    .gpu = &fake->base,
                                    .gpu_required = required};
    const fsdpck_status st = exec_harness_run(g->world, &o, &err);
    if (st != want)
        fprintf(stderr, "seed %" PRIu64 ": status %d: %s\n", g->seed, st, err.message);
    MUST(st == want);
}

/* The same bytes; a failure is DEVICE, or threads take over. Nothing remains. */
static uint64_t run_gpus(generator *g)
{
    fake_gpu fake;
    uint64_t tiles = 0;
    uint64_t calls = 0;
    uint64_t copies = 0;
    for (unsigned i = 0; i < 2; i++) {
        fake_gpu_init(&fake);
        fake.bodies = i == 1;
        run_by_gpu(g, &fake, true, FSDPCK_OK);
        tiles += g->world->sums.gpu_tiles;
        calls = atomic_load(&fake.calls);
        copies = atomic_load(&fake.copies);
        fake_gpu_release(&fake);
    }
    for (unsigned i = 0; i < 2; i++) {
        fake_gpu_init(&fake);
        fake.fail_at = 1 + draw(g, calls);
        run_by_gpu(g, &fake, false, FSDPCK_OK);
        fake_gpu_release(&fake);
    }
    fake_gpu_init(&fake);
    fake.fail_at = 1 + draw(g, 3); /* a worker's memory and stream */
    run_by_gpu(g, &fake, true, FSDPCK_DEVICE);
    fake_gpu_release(&fake);
    fake_gpu_init(&fake);
    fake.flip_at = 1 + draw(g, copies + 1);
    fake.flips = 1;
    run_by_gpu(g, &fake, true, FSDPCK_OK);
    fake_gpu_release(&fake);
    return tiles;
}

static uint64_t run_seed(uint64_t seed)
{
    uint64_t tiles = 0;
    generator g = {.seed = seed, .state = seed};
    const uint32_t nfiles_in = 1 + (uint32_t)draw(&g, 4);
    g.world = exec_harness_new(nfiles_in, 1 + (uint32_t)draw(&g, HARNESS_FILES_MAX));
    g.world->seed = seed;
    make_source(&g);
    make_target(&g);
    exec_harness_expect(g.world);
    run_once(&g, 4096, 1, EXEC_DIRECT_OFF);
    run_once(&g, 4096 * (1 + draw(&g, 8)), 3, EXEC_DIRECT_ON);
    run_once(&g, 0, 2, EXEC_DIRECT_AUTO);
    if (chance(&g, 30))
        run_failing(&g);
    if (seed % 3 == 0)
        tiles = run_gpus(&g);
    exec_harness_free(g.world);
    return tiles;
}

/* Arguments: first seed, number of seeds. */
int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 150;
    uint64_t tiles = 0;
    for (uint64_t seed = first; seed < first + count; seed++)
        tiles += run_seed(seed);
    printf("%" PRIu64 " seeds, %" PRIu64 " tiles by a GPU\n", count, tiles);
    return count >= 3 && tiles == 0;
}
