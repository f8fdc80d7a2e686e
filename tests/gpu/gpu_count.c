/* gpu_count [MIB]: what the GPU engine does per byte that it moves, counted on a GPU that is none, with MIB
 * of memory or the default: sizes of tiles, bytes over the bus, launches, waits, and bytes that the host
 * reads for sums, digests included. These are compared with those of threads. Then how often the source is
 * read for shards by columns. The source's bytes are a
 * function of their offset; 16 MiB of a 2 GiB tensor are filled. Fails where a bound is exceeded.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/must.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})
enum { ROWS = 131072, COLUMNS = 4096 };
#define FILL_NBYTES ((uint64_t)16 << 20)

typedef struct count_case {
    const char *name;
    dtype to;
    uint64_t width; /* columns of a source chunk */
    bool crosses;   /* the bus */
} count_case;

static const count_case cases[] = {
    {"plain", DTYPE_FLOAT32, COLUMNS, false},
    {"cast", DTYPE_BFLOAT16, COLUMNS, true},
    {"thin", DTYPE_FLOAT32, 16, true},
    {"gathered", DTYPE_FLOAT32, 1024, false},
};

/* By --wrap: bytes that the host reads for sums of any kind. */
static uint64_t summed;
uint64_t __real_gpu_sum(const void *bytes, uint64_t nbytes);
uint64_t __wrap_gpu_sum(const void *bytes, uint64_t nbytes);
uint64_t __wrap_gpu_sum(const void *bytes, uint64_t nbytes)
{
    summed += nbytes;
    return __real_gpu_sum(bytes, nbytes);
}

uint64_t __real_crc64_raw(uint64_t raw, const void *bytes, uint64_t nbytes);
uint64_t __wrap_crc64_raw(uint64_t raw, const void *bytes, uint64_t nbytes);
uint64_t __wrap_crc64_raw(uint64_t raw, const void *bytes, uint64_t nbytes)
{
    summed += nbytes;
    return __real_crc64_raw(raw, bytes, nbytes);
}

/* Chunks one after the other, row-major. */
static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const catalogue *cat = ctx;
    uint64_t sizes[NDIM_MAX];
    (void)err;
    catalogue_chunk_box(cat, chunk, NULL, sizes);
    *where = (place){.rows = true, .offset_bytes = chunk * sizes[0] * sizes[1] * sizeof(float)};
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t index, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    uint8_t *bytes = dst;
    (void)ctx, (void)index, (void)err;
    for (uint64_t i = 0; i < nbytes; i++)
        bytes[i] = (uint8_t)((offset_bytes + i) * 0x9E3779B97F4A7C15u >> 32);
    return FSDPCK_OK;
}

static uint32_t add_tensor(catalogue *cat, dtype type, uint64_t width)
{
    const uint64_t nbytes = (uint64_t)ROWS * COLUMNS * dtype_get(type)->itemsize_bytes;
    uint32_t tensor, index;
    MUST(catalogue_add_file(cat, "f", 1, nbytes, CAT_NONE, &index, NULL) == FSDPCK_OK);
    MUST(catalogue_add_tensor(cat, "w", 1, type, 2, BOX(ROWS, COLUMNS), &tensor, NULL) ==
         FSDPCK_OK);
    for (uint64_t at = 0; at < COLUMNS; at += width) {
        const cat_chunk chunk = {.place = LOCATION_ROWS,
                                 .file = index,
                                 .nbytes = nbytes * width / COLUMNS,
                                 .offset_bytes = at * nbytes / COLUMNS};
        MUST(catalogue_add_chunk(cat, tensor, BOX(0, at), BOX(ROWS, width), &chunk, NULL) ==
             FSDPCK_OK);
    }
    MUST(catalogue_seal(cat, NULL) == FSDPCK_OK);
    return tensor;
}

/* Fills tiles from the begin on, as a worker does; returns their bytes. */
static uint64_t fill(struct exec *x)
{
    output_range item;
    uint64_t done = 0;
    for (uint64_t i = 0; done < FILL_NBYTES; i++) {
        fsdpck_error err;
        const uint8_t *bytes;
        plan_get_item(x->r.plan, i, &item);
        const uint64_t nbytes = exec_fill_nbytes(x, &item, x->step_nbytes);
        output_range tile = {.file = item.file, .end = item.begin};
        while (done < FILL_NBYTES && exec_next_tile(&item, nbytes, &tile)) {
            must_be_ok(exec_fill(x, 0, &tile, &bytes, &err), &err);
            exec_checksums_add_chunks(x, &x->workers[0]->parts, &tile, bytes);
            done += tile.end - tile.begin;
        }
    }
    return done;
}

static uint64_t digest_by_threads(const exec_request *r)
{
    struct exec *x;
    fsdpck_error err;
    must_be_ok(exec_resolve(r, &x, &err), &err);
    must_be_ok(exec_checksums_begin(x, &err), &err);
    (void)fill(x);
    exec_free(x);
    return r->target->chunk_digest[0];
}

static void count(const count_case *c, const exec_request *given, uint64_t digest)
{
    exec_request r = *given;
    fake_gpu f;
    struct exec *x;
    fsdpck_error err;
    fake_gpu_init(&f);
    f.bodies = true;
    f.blank = true;
    r.gpu = &f.base;
    must_be_ok(exec_resolve(&r, &x, &err), &err);
    must_be_ok(exec_checksums_begin(x, &err), &err);
    (void)fill(x); /* a tile of a new kind is filled twice */
    MUST(r.target->chunk_digest[0] == digest);
    const uint64_t in = atomic_load(&f.in_nbytes), out = atomic_load(&f.out_nbytes);
    const uint64_t launches = atomic_load(&f.made[FAKE_PLACE]) + atomic_load(&f.made[FAKE_SUM]) +
                              atomic_load(&f.made[FAKE_CRC]);
    const uint64_t waits = atomic_load(&f.made[FAKE_WAIT]);
    summed = 0;
    const uint64_t moved = fill(x);
    const double bus = (double)(atomic_load(&f.in_nbytes) - in + atomic_load(&f.out_nbytes) - out);
    const double mib = (double)moved / (1 << 20);
    const double launched =
        (double)(atomic_load(&f.made[FAKE_PLACE]) + atomic_load(&f.made[FAKE_SUM]) +
                 atomic_load(&f.made[FAKE_CRC]) - launches);
    const double waited = (double)(atomic_load(&f.made[FAKE_WAIT]) - waits);
    printf("%-9s %7u %6u %9" PRIu64 " %10.3f %12.3f %10.3f %12.3f\n", c->name, r.nthreads,
           x->nworkers, x->tile_nbytes >> 10, bus / (double)moved, launched / mib, waited / mib,
           (double)summed / (double)moved);
    MUST(c->crosses ? bus > 0 : bus == 0 && launched == 0 && waited == 0);
    /* Once what crosses the bus, or is written; boxes are little. */
    MUST((double)summed <= (c->crosses ? bus : (double)moved) * 1.001);
    MUST(x->tile_nbytes >= (uint64_t)4 << 20 && x->nworkers >= 8);
    exec_free(x);
    fake_gpu_release(&f);
}

static void run_case(const count_case *c, uint64_t memory_nbytes)
{
    static const unsigned threads[] = {16, 64, 224};
    budget metadata;
    catalogue from;
    target to;
    plan *p;
    fsdpck_error err;
    budget_init(&metadata, 1u << 30, "metadata", NULL);
    catalogue_init(&from, &metadata);
    target_init(&to, &metadata);
    (void)add_tensor(&from, DTYPE_FLOAT32, c->width);
    uint32_t *source_tensor = vec_push(&to.from, NULL);
    MUST(source_tensor != NULL);
    *source_tensor = 0;
    (void)add_tensor(&to.cat, c->to, COLUMNS);
    to.want_digest = true;
    const source src = {.ctx = &from, .cat = &from, .locate = locate, .read_at = read_at};
    must_be_ok(plan_new(&from, &to, &(plan_options){0}, &metadata, &p, &err), &err);
    const uint64_t digest = digest_by_threads(&(exec_request){.plan = p,
                                                              .source = &src,
                                                              .target = &to,
                                                              .nthreads = 2,
                                                              .memory_nbytes = memory_nbytes,
                                                              .metadata = &metadata});
    for (unsigned i = 0; i < sizeof threads / sizeof threads[0]; i++)
        count(c,
              &(exec_request){.plan = p,
                              .source = &src,
                              .target = &to,
                              .nthreads = threads[i],
                              .memory_nbytes = memory_nbytes,
                              .gpu_required = true,
                              .metadata = &metadata},
              digest);
    plan_free(p);
    target_release(&to);
    catalogue_release(&from);
}

/* How often the source is read for so many shards by columns, cast: with a GPU, or without. */
static double reads_of_columns(uint64_t shards, uint64_t memory_nbytes, gpu *g)
{
    budget metadata;
    catalogue from;
    target to;
    plan *p;
    struct exec *x;
    struct exec_stats stats;
    fsdpck_error err;
    budget_init(&metadata, 1u << 30, "metadata", NULL);
    catalogue_init(&from, &metadata);
    target_init(&to, &metadata);
    (void)add_tensor(&from, DTYPE_FLOAT32, COLUMNS);
    uint32_t *source_tensor = vec_push(&to.from, NULL);
    MUST(source_tensor != NULL);
    *source_tensor = 0;
    (void)add_tensor(&to.cat, DTYPE_BFLOAT16, COLUMNS / shards);
    const source src = {.ctx = &from, .cat = &from, .locate = locate, .read_at = read_at};
    must_be_ok(plan_new(&from, &to, &(plan_options){0}, &metadata, &p, &err), &err);
    const exec_request r = {.plan = p,
                            .source = &src,
                            .target = &to,
                            .nthreads = 8,
                            .memory_nbytes = memory_nbytes,
                            .gpu = g,
                            .gpu_required = g != NULL,
                            .metadata = &metadata};
    must_be_ok(exec_resolve(&r, &x, &err), &err);
    exec_get_stats(x, &stats);
    exec_free(x);
    plan_free(p);
    target_release(&to);
    catalogue_release(&from);
    return stats.read_amplification;
}

static void count_columns(uint64_t shards, uint64_t memory_nbytes)
{
    fake_gpu f;
    const double by_threads = reads_of_columns(shards, memory_nbytes, NULL);
    fake_gpu_init(&f);
    f.blank = true;
    const double by_gpu = reads_of_columns(shards, memory_nbytes, &f.base);
    fake_gpu_release(&f);
    printf("%-9" PRIu64 " %12.2f %15.2f\n", shards, by_threads, by_gpu);
    MUST(by_gpu <= by_threads);
}

int main(int argc, char **argv)
{
    const uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
    printf("%-9s %7s %6s %9s %10s %12s %10s %12s\n", "tiles", "threads", "lanes", "KiB/tile",
           "bus B/B", "launches/MiB", "waits/MiB", "summed B/B");
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i], mib << 20);
    printf("\n%-9s %12s %15s\n", "columns", "by threads", "by the engine");
    for (uint64_t shards = 16; shards <= 1024; shards *= 4)
        count_columns(shards, mib << 20);
    return 0;
}
