/* Round trips: a random checkpoint sharded over a random mesh in a random format, resharded over
 * another, then consolidated, gives the bytes of consolidating it directly; and the output does not
 * depend on threads or memory.
 *
 *     prop_reshard [ROUNDS [SEED]]
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdpck.h"
#include "tests/support/job_parts.h"
#include "tests/support/rounds.h"
#include "tests/support/scratch.h"

/* ---- the source: one safetensors file ---- */

typedef struct kind {
    const char *name;
    unsigned nbytes;
} kind;

static const kind kinds[] = {{"F32", 4}, {"BF16", 2}, {"F64", 8},
                             {"I64", 8}, {"U8", 1},   {"F8_E5M2", 1}};

static void make_source(const char *dir)
{
    const unsigned count = 1 + (unsigned)below(9);
    char header[8192];
    size_t n = 8;
    uint64_t nbytes = 0;
    header[n++] = '{';
    for (unsigned i = 0; i < count; i++) {
        const kind *k = &kinds[below(sizeof kinds / sizeof kinds[0])];
        const unsigned ndim = (unsigned)below(4);
        uint64_t nelems = 1;
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%s\"m.%u.%s\":{\"dtype\":\"%s\",\"shape\":[", i == 0 ? "" : ",", i,
                              below(2) ? "weight" : "bias", k->name);
        for (unsigned d = 0; d < ndim; d++) {
            static const uint64_t sizes[] = {0, 1, 2, 3, 5, 6, 8, 9, 12, 13, 16, 67, 1030};
            const uint64_t size = sizes[below(13 - (ndim == 3 ? 2 : ndim == 2 ? 1 : 0))];
            nelems *= size;
            n += (size_t)snprintf(header + n, sizeof header - n, "%s%" PRIu64, d == 0 ? "" : ",",
                                  size);
        }
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", nbytes,
                              nbytes + nelems * k->nbytes);
        nbytes += nelems * k->nbytes;
    }
    header[n++] = '}';
    while (n % 8 != 0)
        header[n++] = ' ';
    for (unsigned i = 0; i < 8; i++)
        header[i] = (char)((n - 8) >> (8 * i));
    char *file = malloc(n + nbytes);
    REQUIRE(file != NULL);
    memcpy(file, header, n);
    for (uint64_t i = 0; i < nbytes; i++)
        file[n + i] = (char)below(256);
    scratch_write(dir, "source.safetensors", file, n + nbytes);
    free(file);
}

/* ---- a random way of cutting ---- */

typedef struct way {
    char mesh[64], plan[96], shard[32], replicate[32];
    const char *shards[1], *replicates[1];
    const char *format;
} way;

static bool is_built_in(const char *what, const char *format)
{
    const char *name;
    for (size_t i = 0; (name = fsdpck_builtin(what, i, NULL)) != NULL; i++) {
        if (strcmp(name, format) == 0)
            return true;
    }
    return false;
}

static void draw_way(way *w)
{
    static const char *const formats[] = {"dcp", "pt-ranks", "dcp-safetensors"};
    memset(w, 0, sizeof *w);
    do
        w->format = formats[below(3)];
    while (!is_built_in("reader", w->format) || !is_built_in("writer", w->format));
    const unsigned f = 1 + (unsigned)below(5), t = 1 + (unsigned)below(3);
    const unsigned shape = (unsigned)below(4);
    if (shape < 2)
        snprintf(w->mesh, sizeof w->mesh, shape == 0 ? "fsdp=%u" : "dp_replicate=2,dp_shard=%u", f);
    else
        snprintf(w->mesh, sizeof w->mesh,
                 shape == 2 ? "dp_shard=%u,tp=%u" : "dp_replicate=2,dp_shard=%u,tp=%u", f, t);
    if (shape >= 2)
        snprintf(w->plan, sizeof w->plan, "{\"m.%u.*\": \"rowwise\", \"*\": \"colwise\"}",
                 (unsigned)below(4));
    w->shards[0] = w->shard;
    w->replicates[0] = w->replicate;
    if (below(4) == 0)
        snprintf(w->shard, sizeof w->shard, "m.%u.*=1", (unsigned)below(3));
    if (below(4) == 0)
        snprintf(w->replicate, sizeof w->replicate, "m.%u.*", (unsigned)below(3));
}

static void options_of(const way *w, job_parts *o)
{
    *o = (job_parts)JOB_PARTS_INIT;
    o->work.threads = 1 + (unsigned)below(8);
    o->work.memory_nbytes = (uint64_t)16 << 20 << below(3);
    o->output.no_sync = 1;
    if (w == NULL)
        return;
    o->sharding.mesh = w->mesh;
    o->sharding.tp_plan = w->plan[0] == '\0' ? NULL : w->plan;
    o->sharding.shard = w->shards;
    o->sharding.shard_count = w->shard[0] != '\0';
    o->sharding.replicate = w->replicates;
    o->sharding.replicate_count = w->replicate[0] != '\0';
    o->output.format = w->format;
    o->output.align_nbytes = below(3) == 0 ? 4096 : 0;
}

/* w NULL: consolidate. False where the way does not fit this checkpoint. */
static bool run(fsdpck_context *ctx, const char *from, const char *to, const way *w,
                const job_parts *o)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_checkpoint *src = NULL;
    fsdpck_status st = fsdpck_open(ctx, from, NULL, &src, &err);
    if (st == FSDPCK_OK)
        st = w == NULL ? job_parts_consolidate(ctx, src, to, o, NULL, &err)
                       : job_parts_reshard(ctx, src, to, o, NULL, &err);
    fsdpck_close(src);
    if (w != NULL && (st == FSDPCK_USAGE || st == FSDPCK_UNSUPPORTED))
        return false; /* a rule that matches nothing, an uneven column */
    if (st != FSDPCK_OK)
        fprintf(stderr, "round %u: %s -> %s (%s %s %s %s %s): %s [%s] %s: expected %s, found %s\n",
                the_round, from, to, w == NULL ? "" : w->format, w == NULL ? "" : w->mesh,
                w == NULL ? "" : w->plan, w == NULL ? "" : w->shard, w == NULL ? "" : w->replicate,
                err.message, fsdpck_finding_name(err.finding), err.tensor, err.expected, err.found);
    REQUIRE(st == FSDPCK_OK);
    return true;
}

/* ---- comparing ---- */

static char *read_file(const char *path, size_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    REQUIRE(f != NULL);
    REQUIRE(fseek(f, 0, SEEK_END) == 0);
    *nbytes = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*nbytes + 1);
    REQUIRE(bytes != NULL && fread(bytes, 1, *nbytes, f) == *nbytes);
    fclose(f);
    return bytes;
}

static void require_same_file(const char *a, const char *b)
{
    size_t na, nb;
    char *x = read_file(a, &na);
    char *y = read_file(b, &nb);
    if (na != nb || memcmp(x, y, na) != 0) {
        size_t at = 0;
        while (at < na && at < nb && x[at] == y[at])
            at++;
        fprintf(stderr, "round %u: %s (%zu bytes) and %s (%zu bytes) differ at %zu\n", the_round, a,
                na, b, nb, at);
        exit(1);
    }
    free(x);
    free(y);
}

static void require_same_folder(const char *a, const char *b)
{
    REQUIRE(scratch_count(a) == scratch_count(b));
    DIR *d = opendir(a);
    REQUIRE(d != NULL);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char x[SCRATCH_BYTES], y[SCRATCH_BYTES];
        require_same_file(scratch_path(x, a, e->d_name), scratch_path(y, b, e->d_name));
    }
    closedir(d);
}

static bool one_round(fsdpck_context *ctx)
{
    char dir[SCRATCH_BYTES], source[SCRATCH_BYTES], once[SCRATCH_BYTES], a[SCRATCH_BYTES],
        again[SCRATCH_BYTES], b[SCRATCH_BYTES], merged[SCRATCH_BYTES];
    scratch_make(dir);
    make_source(dir);
    scratch_path(source, dir, "source.safetensors");
    scratch_path(once, dir, "once.safetensors");
    scratch_path(a, dir, "a");
    scratch_path(again, dir, "again");
    scratch_path(b, dir, "b");
    scratch_path(merged, dir, "merged.safetensors");
    way first, second;
    draw_way(&first);
    draw_way(&second);
    job_parts o = JOB_PARTS_INIT;
    options_of(NULL, &o);
    run(ctx, source, once, NULL, &o);
    options_of(&first, &o);
    bool fits = run(ctx, source, a, &first, &o);
    if (fits) {
        o.work.threads = 1 + (unsigned)below(8);
        o.work.memory_nbytes = (uint64_t)16 << 20 << below(3);
        REQUIRE(run(ctx, source, again, &first, &o));
        require_same_folder(a, again);
        options_of(&second, &o);
        fits = run(ctx, a, b, &second, &o);
    }
    if (fits) {
        options_of(NULL, &o);
        run(ctx, b, merged, NULL, &o);
        require_same_file(once, merged);
    }
    scratch_remove(dir);
    return fits;
}

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 150;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 4;
    unsigned whole = 0;
    fsdpck_context *ctx = fsdpck_context_new();
    for (the_round = 0; the_round < rounds; the_round++) {
        state = seed * 1000003 + the_round;
        whole += one_round(ctx);
    }
    fsdpck_context_free(ctx);
    printf("%u rounds, %u of them all the way\n", rounds, whole);
    return whole * 3 > rounds ? 0 : 1;
}
