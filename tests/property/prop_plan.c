/* Random checkpoints through plan and exec, whatever the chunks, strides, encodings, tiles and
 * threads: every byte of the output is what the element's tensor and index say, and the same for
 * all runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "exec/exec.h"
#include "plan/plan.h"
#include "state/target.h"
#include "tests/support/memory_source.h"

#define MUST(condition)                                                                   \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: seed %" PRIu64 ": %s\n", __FILE__, __LINE__, g->seed, \
                    #condition);                                                          \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define TENSORS_MAX 6
#define FILES_MAX   4

typedef struct generator {
    uint64_t seed;
    uint64_t state;
    char folder[64];
    memory_source source;
    target to;
    dtype source_type[TENSORS_MAX];
    uint8_t *image[FILES_MAX];
    uint64_t image_nbytes[FILES_MAX];
    uint32_t nfiles;
    bool has_stream;
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

static memory_layout draw_layout(generator *g, unsigned ndim, dtype type)
{
    memory_layout l = {.file = (uint32_t)draw(g, g->source.file_count),
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
    l.swap = chance(g, 15);
    l.conj = info->kind == DTYPE_IS_COMPLEX && chance(g, 30);
    l.neg = (info->kind == DTYPE_IS_COMPLEX || info->kind == DTYPE_IS_FLOAT) && chance(g, 15);
    l.crc = chance(g, 50);
    return l;
}

static void add_source_chunk(generator *g, uint32_t tensor, const uint64_t *offsets,
                             const uint64_t *sizes)
{
    const cat_tensor *t = catalogue_tensor(&g->source.cat, tensor);
    const unsigned ndim = t->ndim;
    const dtype type = (dtype)t->dtype;
    const memory_layout first = draw_layout(g, ndim, type);
    memory_source_add_chunk(&g->source, tensor, offsets, sizes, &first);
    while (chance(g, 10)) {
        memory_layout l = first; /* two streams are compared only if they agree in strides */
        if (!first.stream) {
            l = draw_layout(g, ndim, type);
            l.stream = false;
        } else if (chance(g, 50)) {
            l.stream = false;
        }
        memory_source_add_chunk(&g->source, tensor, offsets, sizes, &l);
    }
    if (chance(g, 10) && ndim > 0) {
        uint64_t none[8];
        memcpy(none, sizes, ndim * sizeof *none);
        none[draw(g, ndim)] = 0;
        const memory_layout l = {0};
        memory_source_add_chunk(&g->source, tensor, offsets, none, &l);
    }
}

static void make_source(generator *g, budget *b)
{
    static const dtype types[] = {DTYPE_UINT8,      DTYPE_INT16, DTYPE_BFLOAT16,
                                  DTYPE_FLOAT32,    DTYPE_INT64, DTYPE_COMPLEX64,
                                  DTYPE_COMPLEX128, DTYPE_BOOL,  DTYPE_FLOAT64};
    const uint64_t zeros[8] = {0};
    const unsigned ntensors = 1 + (unsigned)draw(g, TENSORS_MAX);
    memory_source_init(&g->source, 1 + (uint32_t)draw(g, 4), b);
    g->has_stream = chance(g, 30);
    for (unsigned i = 0; i < ntensors; i++) {
        char name[16];
        uint64_t shape[8];
        const unsigned ndim = (unsigned)draw(g, 5);
        const dtype type = types[draw(g, sizeof types / sizeof *types)];
        for (unsigned d = 0; d < ndim; d++)
            shape[d] =
                chance(g, 5) ? draw(g, 2) : 1 + draw(g, ndim <= 2 && chance(g, 30) ? 200 : 9);
        (void)snprintf(name, sizeof name, "t%u", i);
        const uint32_t tensor = memory_source_add_tensor(&g->source, name, type, ndim, shape);
        const unsigned pieces = 1 + (unsigned)draw(g, chance(g, 30) ? 40 : 6);
        g->source_type[i] = type;
        if (box_nelems(shape, ndim) > 0)
            cut_box(g, tensor, ndim, zeros, shape, pieces, add_source_chunk);
    }
    memory_source_seal(&g->source);
}

static void add_target_chunk(generator *g, uint32_t tensor, const uint64_t *offsets,
                             const uint64_t *sizes)
{
    const cat_chunk proto = {.file = (uint32_t)draw(g, g->nfiles), .place = PLACE_ROWS};
    MUST(catalogue_add_chunk(&g->to.cat, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK);
}

static void add_literal(generator *g, uint32_t index, uint64_t at)
{
    char text[300];
    const uint64_t n = 1 + draw(g, sizeof text);
    for (uint64_t i = 0; i < n; i++)
        text[i] = (char)('a' + draw(g, 26));
    MUST(target_add_literal(&g->to, index, at, text, n, NULL) == FSDPCK_OK);
}

/* Gives every chunk of one file a place, in random order, with literals and gaps between. */
static void place_file(generator *g, uint32_t index)
{
    catalogue *c = &g->to.cat;
    uint64_t at = 0;
    const uint64_t n = catalogue_chunk_count(c);
    const uint64_t start = n > 0 ? draw(g, n) : 0;
    for (uint64_t i = 0; i < n; i++) {
        cat_chunk *k = catalogue_chunk(c, (start + i) % n);
        uint64_t sizes[NDIM_MAX];
        if (k->file != index || k->place == PLACE_EMPTY)
            continue;
        if (chance(g, 40)) {
            add_literal(g, index, at);
            at += VEC_AT(&g->to.literals, target_literal, g->to.literals.count - 1)->nbytes;
        }
        at += chance(g, 40) ? draw(g, 200) : 0;
        const cat_tensor *t = catalogue_tensor(c, k->tensor);
        catalogue_chunk_box(c, (start + i) % n, NULL, sizes);
        k->offset_bytes = at;
        k->nbytes = box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
        at += k->nbytes;
    }
    at += chance(g, 20) ? draw(g, 6000) : 0;
    catalogue_file(c, index)->nbytes = at;
}

static dtype draw_target_type(generator *g, dtype from)
{
    return from == DTYPE_BFLOAT16 && chance(g, 50) ? DTYPE_FLOAT32 : from;
}

static void make_target(generator *g, budget *b)
{
    const uint64_t zeros[8] = {0};
    const size_t nsource = catalogue_tensor_count(&g->source.cat);
    const unsigned ntensors = 1 + (unsigned)draw(g, TENSORS_MAX);
    target_init(&g->to, b);
    g->to.want_crc = chance(g, 60);
    g->to.is_folder = true;
    g->nfiles = 1 + (uint32_t)draw(g, FILES_MAX);
    for (uint32_t i = 0; i < g->nfiles; i++) {
        char name[16];
        uint32_t index;
        const int n = snprintf(name, sizeof name, "out%u", i);
        MUST(catalogue_add_file(&g->to.cat, name, (size_t)n, 0, CAT_NONE, &index, NULL) ==
             FSDPCK_OK);
    }
    for (unsigned i = 0; i < ntensors; i++) {
        char name[16];
        uint32_t tensor;
        const uint32_t from = (uint32_t)draw(g, nsource);
        const cat_tensor *s = catalogue_tensor(&g->source.cat, from);
        const uint64_t *shape = catalogue_shape(&g->source.cat, from);
        const int n = snprintf(name, sizeof name, "x%u", i);
        const dtype type = draw_target_type(g, (dtype)s->dtype);
        MUST(catalogue_add_tensor(&g->to.cat, name, (size_t)n, type, s->ndim, shape, &tensor,
                                  NULL) == FSDPCK_OK);
        uint32_t *entry = vec_push(&g->to.from, NULL);
        MUST(entry != NULL);
        *entry = from;
        if (box_nelems(shape, s->ndim) > 0)
            cut_box(g, tensor, s->ndim, zeros, shape, chance(g, 50) ? 1 : 1 + (unsigned)draw(g, 20),
                    add_target_chunk);
    }
    MUST(catalogue_seal(&g->to.cat, NULL) == FSDPCK_OK);
    for (uint32_t i = 0; i < g->nfiles; i++)
        place_file(g, i);
}

static void expect_chunk(generator *g, uint64_t chunk)
{
    const catalogue *c = &g->to.cat;
    const cat_chunk *k = catalogue_chunk(c, chunk);
    const cat_tensor *t = catalogue_tensor(c, k->tensor);
    const uint32_t from = *VEC_AT(&g->to.from, uint32_t, k->tensor);
    const cat_tensor *s = catalogue_tensor(&g->source.cat, from);
    const char *name = catalogue_name(&g->source.cat, s->name);
    const unsigned itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX];
    catalogue_chunk_box(c, chunk, offsets, sizes);
    box_row_major_strides(catalogue_shape(c, k->tensor), t->ndim, strides);
    for (uint64_t flat = 0; flat < box_nelems(sizes, t->ndim); flat++) {
        uint64_t rest = flat;
        uint64_t global = 0;
        uint8_t bytes[18] = {0};
        for (unsigned d = t->ndim; d-- > 0;) {
            global += (offsets[d] + rest % sizes[d]) * strides[d];
            rest /= sizes[d];
        }
        memory_element(name, (dtype)s->dtype, global, bytes + 2);
        /* bfloat16 is the upper half of a float32. */
        memcpy(g->image[k->file] + k->offset_bytes + flat * itemsize,
               s->dtype != t->dtype ? bytes : bytes + 2, itemsize);
    }
}

static void make_image(generator *g)
{
    for (uint32_t i = 0; i < g->nfiles; i++) {
        g->image_nbytes[i] = catalogue_file(&g->to.cat, i)->nbytes;
        g->image[i] = calloc(1, g->image_nbytes[i] + 1);
        MUST(g->image[i] != NULL);
    }
    for (size_t i = 0; i < g->to.literals.count; i++) {
        const target_literal *l = VEC_AT(&g->to.literals, target_literal, i);
        memcpy(g->image[l->file] + l->offset_bytes, g->to.text.text + l->text_at, l->nbytes);
    }
    for (uint64_t k = 0; k < catalogue_chunk_count(&g->to.cat); k++)
        if (catalogue_chunk(&g->to.cat, k)->place != PLACE_EMPTY)
            expect_chunk(g, k);
}

static void check_output(generator *g, const char *path)
{
    for (uint32_t i = 0; i < g->nfiles; i++) {
        char name[128];
        char *text;
        size_t nbytes;
        (void)snprintf(name, sizeof name, "%s/out%u", path, i);
        MUST(file_read_whole(NULL, name, 1u << 30, &text, &nbytes, NULL) == FSDPCK_OK);
        MUST(nbytes == g->image_nbytes[i]);
        for (size_t at = 0; at < nbytes; at++) {
            if ((uint8_t)text[at] == g->image[i][at])
                continue;
            fprintf(stderr, "seed %" PRIu64 ": file %u differs at byte %zu of %zu\n", g->seed, i,
                    at, nbytes);
            exit(1);
        }
        free(text);
        MUST(unlink(name) == 0);
    }
    MUST(rmdir(path) == 0);
    for (uint64_t k = 0; g->to.want_crc && k < catalogue_chunk_count(&g->to.cat); k++) {
        const cat_chunk *c = catalogue_chunk(&g->to.cat, k);
        if (c->place != PLACE_EMPTY)
            MUST(g->to.chunk_crc[k] ==
                 crc32_update(0, g->image[c->file] + c->offset_bytes, c->nbytes));
    }
}

static void must_ok(generator *g, fsdpck_status st, const fsdpck_error *err)
{
    if (st == FSDPCK_OK)
        return;
    fprintf(stderr, "seed %" PRIu64 ": status %d: %s; expected %s, found %s; tensor %s\n", g->seed,
            st, err->message, err->expected, err->found, err->tensor);
    exit(1);
}

static void run_once(generator *g, budget *b, uint64_t tile, unsigned nthreads, int direct)
{
    fsdpck_error err = {0};
    char path[100];
    plan *p;
    struct exec *x;
    struct exec_sums sums;
    output out;
    const plan_options opt = {.tile_nbytes = tile,
                              .replicas = chance(g, 50) ? REPLICAS_CRC : REPLICAS_COMPARE};
    must_ok(g, plan_new(&g->source.cat, &g->to, &opt, b, &p, &err), &err);
    const exec_request r = {.plan = p,
                            .source = &g->source.src,
                            .target = &g->to,
                            .nthreads = nthreads,
                            .memory_nbytes = EXEC_MEMORY_NBYTES_MIN,
                            .direct = direct,
                            .metadata = b};
    must_ok(g, exec_locate(&r, &x, &err), &err);
    (void)snprintf(path, sizeof path, "%s/out", g->folder);
    must_ok(g, output_begin(&out, path, OUTPUT_FOLDER, OUTPUT_NO_SYNC, &err), &err);
    for (uint32_t i = 0; i < g->nfiles; i++) {
        char name[16];
        size_t index;
        (void)snprintf(name, sizeof name, "out%u", i);
        must_ok(g,
                output_add(&out, name, g->image_nbytes[i], direct != EXEC_DIRECT_OFF, &index, &err),
                &err);
        MUST(index == i);
    }
    must_ok(g, exec_run(x, &out, &err), &err);
    must_ok(g, output_commit(&out, &err), &err);
    output_release(&out);
    exec_get_sums(x, &sums);
    MUST(sums.workers > 0 && sums.buffer_nbytes <= EXEC_MEMORY_NBYTES_MIN);
    exec_free(x);
    plan_free(p);
    check_output(g, path);
}

static void run_seed(uint64_t seed, const char *scratch)
{
    generator *g = calloc(1, sizeof *g);
    budget b;
    if (g == NULL)
        exit(1);
    budget_init(&b, 1u << 30, "metadata", NULL);
    g->seed = g->state = seed;
    (void)snprintf(g->folder, sizeof g->folder, "%s", scratch);
    make_source(g, &b);
    make_target(g, &b);
    make_image(g);
    const uint64_t used = b.used_bytes;
    run_once(g, &b, 4096, 1, EXEC_DIRECT_OFF);
    run_once(g, &b, 4096 * (1 + draw(g, 8)), 3, EXEC_DIRECT_ON);
    run_once(g, &b, 0, 2, EXEC_DIRECT_AUTO);
    MUST(b.used_bytes == used);
    for (uint32_t i = 0; i < g->nfiles; i++)
        free(g->image[i]);
    target_release(&g->to);
    memory_source_release(&g->source);
    MUST(b.used_bytes == 0);
    free(g);
}

/* Arguments: first seed, number of seeds. */
int main(int argc, char **argv)
{
    char scratch[] = "/tmp/prop_plan.XXXXXX";
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 300;
    if (mkdtemp(scratch) == NULL)
        return 1;
    for (uint64_t seed = first; seed < first + count; seed++)
        run_seed(seed, scratch);
    if (rmdir(scratch) != 0)
        return 1;
    printf("%" PRIu64 " seeds\n", count);
    return 0;
}
