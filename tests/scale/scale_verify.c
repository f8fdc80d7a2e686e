/* verify of folders of many chunks: level structure opens no data file and takes time with the
 * chunks alone; coverage reads a head a chunk. Arguments, for measuring: tensors, ranks, and level
 * (1 structure, whose data files are then holes; 2 coverage, 3 checksum). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "fsdpck.h"
#include "tests/support/dcp_pickle.h"
#include "tests/support/job_parts.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"
#include "tests/support/seconds.h"

#define ROWS 4u
#define COLS 8u

/* CPU seconds a chunk, with slack for slow machines and sanitizers' absence of tuning. */
#define STRUCTURE_MAX 4e-6
#define COVERAGE_MAX  20e-6

/* The one blob of a folder with one chunk. */
static char *make_blob(fsdpck_context *ctx, unsigned *nbytes)
{
    static const char header[] =
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[0,128]}}   ";
    char dir[SCRATCH_BYTES], from[SCRATCH_BYTES], to[SCRATCH_BYTES], blob[SCRATCH_BYTES];
    char bytes[8 + sizeof header - 1 + 128] = {sizeof header - 1};
    fsdpck_error err;
    fsdpck_checkpoint *src;
    job_parts o = JOB_PARTS_INIT;
    fsdpck_report *report;

    scratch_make(dir);
    memcpy(bytes + 8, header, sizeof header - 1);
    scratch_write(dir, "one.safetensors", bytes, sizeof bytes);
    fsdpck_error_init(&err);
    must_be_ok(fsdpck_open(ctx, scratch_path(from, dir, "one.safetensors"), NULL, &src, &err),
               &err);
    o.output.format = "dcp";
    must_be_ok(job_parts_consolidate(ctx, src, scratch_path(to, dir, "dcp"), &o, &report, &err),
               &err);
    fsdpck_report_free(report);
    fsdpck_close(src);
    FILE *f = fopen(scratch_path(blob, to, "__0_0.distcp"), "rb");
    assert(f != NULL && fseek(f, 0, SEEK_END) == 0);
    *nbytes = (unsigned)ftell(f);
    rewind(f);
    char *copy = malloc(*nbytes);
    assert(copy != NULL && fread(copy, 1, *nbytes, f) == *nbytes);
    fclose(f);
    scratch_remove(to);
    scratch_remove(dir);
    return copy;
}

static void make_files(const char *dir, const dcp_pickle *spec, const char *blob, int level)
{
    text_buf text = {.limit_bytes = (size_t)2 << 30};
    dcp_pickle_make(spec, &text);
    assert(!text.failed);
    scratch_write(dir, ".metadata", text.text, text.nbytes);
    text_release(&text);
    for (unsigned r = 0; r < spec->nranks; r++) {
        char name[64], path[SCRATCH_BYTES];
        snprintf(name, sizeof name, "__%u_0.distcp", r);
        FILE *f = fopen(scratch_path(path, dir, name), "wb");
        assert(f != NULL);
        for (unsigned t = 0; level > 1 && t < spec->ntensors; t++)
            assert(fwrite(blob, 1, spec->blob_nbytes, f) == spec->blob_nbytes);
        fclose(f);
        assert(truncate(path, (off_t)spec->ntensors * spec->blob_nbytes) == 0);
    }
}

typedef struct cost {
    double cpu, wall;
} cost;

static cost verify(fsdpck_context *ctx, const char *dir, int level, uint64_t nchunks)
{
    const fsdpck_verify_options options = {.struct_nbytes = sizeof options, .level = level};
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify *v;
    fsdpck_error err;

    fsdpck_error_init(&err);
    const cost begin = {seconds_by(CLOCK_PROCESS_CPUTIME_ID), seconds_by(CLOCK_MONOTONIC)};
    must_be_ok(fsdpck_verify_new(ctx, dir, &options, &v, &err), &err);
    fsdpck_verify_get_info(v, &info);
    assert(info.errors == 0 && info.warnings == 0);
    assert(level < FSDPCK_LEVEL_COVERAGE || info.chunks == nchunks);
    fsdpck_verify_free(v);
    return (cost){seconds_by(CLOCK_PROCESS_CPUTIME_ID) - begin.cpu,
                  seconds_by(CLOCK_MONOTONIC) - begin.wall};
}

/* Best of three, since other work shares the machine. */
static double best(fsdpck_context *ctx, unsigned ntensors, unsigned nranks, const char *blob,
                   unsigned blob_nbytes, int level)
{
    const dcp_pickle spec = {.ntensors = ntensors,
                             .nranks = nranks,
                             .rows = ROWS,
                             .cols = COLS,
                             .blob_nbytes = blob_nbytes,
                             .hints = 1};
    const uint64_t nchunks = (uint64_t)ntensors * nranks;
    char dir[SCRATCH_BYTES];
    double least = 1e9;

    scratch_make(dir);
    make_files(dir, &spec, blob, level);
    for (int i = 0; i < 3; i++) {
        struct rusage use;
        const cost c = verify(ctx, dir, level, nchunks);
        getrusage(RUSAGE_SELF, &use);
        printf("level %d  %9llu chunks  %6.3f s  %6.3f CPU s  %6.3f us a chunk  peak %ld MB\n",
               level, (unsigned long long)nchunks, c.wall, c.cpu, c.wall * 1e6 / (double)nchunks,
               use.ru_maxrss / 1000);
        least = c.cpu < least ? c.cpu : least;
    }
    scratch_remove(dir);
    return least;
}

/* Whether each further chunk costs at most so much. */
static int slope(fsdpck_context *ctx, const char *blob, unsigned blob_nbytes, int level,
                 double most)
{
    const double a = best(ctx, 200, 100, blob, blob_nbytes, level);
    const double b = best(ctx, 600, 100, blob, blob_nbytes, level);
    if (b - a <= 40000 * most)
        return 0;
    fprintf(stderr, "level %d: 40,000 more chunks took %.3f s more\n", level, b - a);
    return 1;
}

int main(int argc, char **argv)
{
    fsdpck_context *ctx = fsdpck_context_new();
    unsigned blob_nbytes;
    int failed = 0;

    assert(ctx != NULL);
    char *blob = make_blob(ctx, &blob_nbytes);
    if (argc == 4)
        best(ctx, (unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), blob, blob_nbytes,
             atoi(argv[3]));
    else
        failed = slope(ctx, blob, blob_nbytes, FSDPCK_LEVEL_STRUCTURE, STRUCTURE_MAX) |
                 slope(ctx, blob, blob_nbytes, FSDPCK_LEVEL_COVERAGE, COVERAGE_MAX);
    free(blob);
    fsdpck_context_free(ctx);
    return failed;
}
