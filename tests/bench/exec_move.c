/* exec_move: plan and exec alone, without any format, on shard files of raw elements.
 *
 *     exec_move make   FOLDER SHARDS ROWS COLS TENSORS         makes SHARDS files of float32
 * elements exec_move rows   FOLDER SHARDS ROWS COLS TENSORS DST     merges them as row shards
 *     exec_move columns ...                                    the same bytes, taken as column
 * shards exec_move cast ...                                       row shards to bfloat16 exec_move
 * transposed ...                                 row shards stored column by column
 *
 * TENSORS tensors of ROWS x COLS, each in SHARDS chunks, chunk s in file s. Environment: THREADS,
 * DIRECT (0, 1, 2), TILE (bytes), MEMORY (bytes). Prints seconds of each phase and the counters.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file_set.h"
#include "exec/exec.h"
#include "state/target.h"

typedef struct move {
    const char *layout;
    uint64_t shards, rows, cols, tensors;
    folder dir;
    file_set files;
    catalogue from;
    target to;
    budget b;
    source src;
} move;

static void must(fsdpck_status st, const fsdpck_error *err)
{
    if (st == FSDPCK_OK)
        return;
    fprintf(stderr, "exec_move: %s %s %s\n", err->message, err->path, err->found);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void make(const char *path, uint64_t shards, uint64_t nbytes)
{
    uint64_t *block = malloc(1 << 20);
    uint64_t state = 1;
    for (uint64_t s = 0; s < shards; s++) {
        char name[600];
        (void)snprintf(name, sizeof name, "%s/%" PRIu64, path, s);
        FILE *f = fopen(name, "wb");
        if (f == NULL || block == NULL)
            exit(1);
        for (uint64_t at = 0; at < nbytes; at += 1 << 20) {
            for (int i = 0; i < 1 << 17; i++)
                block[i] = (state = state * 6364136223846793005u + 1442695040888963407u) &
                           0xBFFFFFFFBFFFFFFF;
            const uint64_t n = nbytes - at < 1 << 20 ? nbytes - at : 1 << 20;
            if (fwrite(block, 1, n, f) != n)
                exit(1);
        }
        if (fclose(f) != 0)
            exit(1);
    }
    free(block);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const move *m = ctx;
    const cat_chunk *k = catalogue_chunk(&m->from, chunk);
    uint64_t sizes[2];
    (void)err;
    catalogue_chunk_box(&m->from, chunk, NULL, sizes);
    where->file = k->file;
    where->offset_bytes = k->offset_bytes;
    where->rows = strcmp(m->layout, "transposed") != 0;
    where->strides[0] = 1;
    where->strides[1] = sizes[0];
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t index, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    move *m = ctx;
    return file_set_read_at(&m->files, index, offset_bytes, dst, nbytes, err);
}

static void make_catalogues(move *m, fsdpck_error *err)
{
    const bool columns = strcmp(m->layout, "columns") == 0;
    const bool cast = strcmp(m->layout, "cast") == 0;
    const uint64_t shape[2] = {m->rows, m->cols};
    const uint64_t zeros[2] = {0, 0};
    uint64_t sizes[2] = {m->rows, m->cols};
    sizes[columns] /= m->shards;
    const uint64_t nbytes = sizes[0] * sizes[1] * 4;
    uint32_t index;
    budget_init(&m->b, (uint64_t)8 << 30, "metadata", NULL);
    catalogue_init(&m->from, &m->b);
    target_init(&m->to, &m->b);
    for (uint64_t s = 0; s < m->shards; s++) {
        char name[32];
        const int n = snprintf(name, sizeof name, "%" PRIu64, s);
        must(catalogue_add_file(&m->from, name, (size_t)n, nbytes * m->tensors, (uint32_t)s, &index,
                                err),
             err);
        must(file_set_add(&m->files, name, &index, err), err);
    }
    const uint64_t out_nbytes = m->rows * m->cols * (cast ? 2 : 4);
    must(catalogue_add_file(&m->to.cat, "", 0, 1000 + out_nbytes * m->tensors, CAT_NONE, &index,
                            err),
         err);
    char header[1000];
    memset(header, ' ', sizeof header);
    must(target_add_literal(&m->to, 0, 0, header, sizeof header, err), err);
    for (uint64_t t = 0; t < m->tensors; t++) {
        char name[32];
        uint32_t tensor;
        const int n = snprintf(name, sizeof name, "layers.%" PRIu64 ".weight", t);
        must(catalogue_add_tensor(&m->from, name, (size_t)n, DTYPE_FLOAT32, 2, shape, &tensor, err),
             err);
        for (uint64_t s = 0; s < m->shards; s++) {
            uint64_t offsets[2] = {0, 0};
            offsets[columns] = s * sizes[columns];
            const cat_chunk proto = {.file = (uint32_t)s,
                                     .place = PLACE_ROWS,
                                     .offset_bytes = t * nbytes,
                                     .nbytes = nbytes};
            must(catalogue_add_chunk(&m->from, tensor, offsets, sizes, &proto, err), err);
        }
        must(catalogue_add_tensor(&m->to.cat, name, (size_t)n,
                                  cast ? DTYPE_BFLOAT16 : DTYPE_FLOAT32, 2, shape, &tensor, err),
             err);
        const cat_chunk proto = {
            .place = PLACE_ROWS, .offset_bytes = 1000 + t * out_nbytes, .nbytes = out_nbytes};
        must(catalogue_add_chunk(&m->to.cat, tensor, zeros, shape, &proto, err), err);
        uint32_t *from = vec_push(&m->to.from, err);
        if (from == NULL)
            exit(1);
        *from = (uint32_t)t;
    }
    must(catalogue_seal(&m->from, err), err);
    must(catalogue_seal(&m->to.cat, err), err);
    m->to.want_crc = setting("CRC", 0) != 0;
}

static void run(move *m, const char *dst, fsdpck_error *err)
{
    plan *p;
    struct exec *x;
    struct exec_sums sums;
    output out;
    size_t index;
    const double t0 = now();
    make_catalogues(m, err);
    const double t1 = now();
    const plan_options opt = {.tile_nbytes = setting("TILE", 0)};
    must(plan_new(&m->from, &m->to, &opt, &m->b, &p, err), err);
    const double t2 = now();
    m->src = (source){.ctx = m, .cat = &m->from, .locate = locate, .read_at = read_at};
    const exec_request r = {.plan = p,
                            .source = &m->src,
                            .target = &m->to,
                            .nthreads = (unsigned)setting("THREADS", 2),
                            .memory_nbytes = setting("MEMORY", (uint64_t)256 << 20),
                            .direct = (int)setting("DIRECT", 0),
                            .metadata = &m->b};
    must(exec_locate(&r, &x, err), err);
    const double t3 = now();
    must(output_begin(&out, dst, OUTPUT_FILE, setting("SYNC", 1) ? 0 : OUTPUT_NO_SYNC, err), err);
    must(output_add(&out, "", catalogue_file(&m->to.cat, 0)->nbytes, r.direct != EXEC_DIRECT_OFF,
                    &index, err),
         err);
    must(exec_run(x, &out, err), err);
    const double t4 = now();
    must(output_commit(&out, err), err);
    output_release(&out);
    const double t5 = now();
    exec_get_sums(x, &sums);
    printf("%.3f s  %.2f GB/s | catalogues %.3f plan %.3f locate %.3f run %.3f commit %.3f | read "
           "%.1f MB in %" PRIu64 ", wrote %.1f (direct %.1f), %u workers, %.1f MB\n",
           t5 - t0, (double)sums.bytes_written / (t5 - t0) / 1e9, t1 - t0, t2 - t1, t3 - t2,
           t4 - t3, t5 - t4, (double)sums.bytes_read / 1e6, sums.reads,
           (double)sums.bytes_written / 1e6, (double)sums.direct_bytes / 1e6, sums.workers,
           (double)sums.buffer_nbytes / 1e6);
    exec_free(x);
    plan_free(p);
}

int main(int argc, char **argv)
{
    fsdpck_error err;
    static move m;
    fsdpck_error_init(&err);
    if (argc < 7) {
        fprintf(stderr, "usage: exec_move make|rows|columns|cast|transposed FOLDER SHARDS ROWS "
                        "COLS TENSORS [DST]\n");
        return 2;
    }
    m.layout = argv[1];
    m.shards = strtoull(argv[3], NULL, 10);
    m.rows = strtoull(argv[4], NULL, 10);
    m.cols = strtoull(argv[5], NULL, 10);
    m.tensors = strtoull(argv[6], NULL, 10);
    if (strcmp(m.layout, "make") == 0) {
        make(argv[2], m.shards, m.rows * m.cols / m.shards * 4 * m.tensors);
        return 0;
    }
    must(folder_open(&m.dir, argv[2], &err), &err);
    must(file_set_init(&m.files, &m.dir, 0, 0, &err), &err);
    if (argc > 7)
        run(&m, argv[7], &err);
    file_set_release(&m.files);
    catalogue_release(&m.from);
    target_release(&m.to);
    folder_close(&m.dir);
    return 0;
}
