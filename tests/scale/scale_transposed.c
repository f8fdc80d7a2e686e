/* Exports that transpose matrices, as those of experts: peak memory is that of the same export without
 * a map, and some MiB that depend neither on the size of the matrices nor on the number of threads.
 *
 * Arguments, to measure only: rows and columns of an expert, experts, threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fsdpck.h"
#include "tests/support/job_parts.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"

/* The tile that workers share, and what each of them reads at a time. */
#define MORE_KIB(threads) (3584 + 256 * (threads))

typedef struct experts {
    unsigned count;
    unsigned rows, cols; /* of bfloat16 */
} experts;

/* Holes: the values do not matter. */
static void make_source(const char *dir, const experts *e)
{
    const unsigned long nbytes = 2ul * e->count * e->rows * e->cols;
    char text[256] = {0}, path[SCRATCH_BYTES];
    const int n = snprintf(text + 8, sizeof text - 8,
                           "{\"w\":{\"dtype\":\"BF16\",\"shape\":[%u,%u,%u],"
                           "\"data_offsets\":[0,%lu]}}",
                           e->count, e->rows, e->cols, nbytes);
    text[0] = (char)n;
    scratch_write(dir, "in.safetensors", text, (size_t)n + 8);
    must(truncate(scratch_path(path, dir, "in.safetensors"), (off_t)(n + 8 + nbytes)) == 0,
         "truncate");
    scratch_write(dir, "plain", "w -> v\n", 7);
    scratch_write(dir, "transposed", "w -> v : transpose 1 2\n", 23);
}

static void consolidate(const char *dir, const char *map, unsigned threads)
{
    char from[SCRATCH_BYTES], to[SCRATCH_BYTES], rules[SCRATCH_BYTES];
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_open_options how = FSDPCK_INIT(fsdpck_open_options);
    fsdpck_checkpoint *src;
    fsdpck_report *report;
    fsdpck_error err;
    job_parts o = JOB_PARTS_INIT;
    fsdpck_error_init(&err);
    how.map = scratch_path(rules, dir, map);
    o.work.threads = threads;
    o.output.no_sync = 1;
    must_be_ok(fsdpck_open(ctx, scratch_path(from, dir, "in.safetensors"), &how, &src, &err), &err);
    must_be_ok(job_parts_consolidate(ctx, src, scratch_path(to, dir, "out.safetensors"), &o,
                                     &report, &err),
               &err);
    fsdpck_report_free(report);
    fsdpck_close(src);
    fsdpck_context_free(ctx);
}

/* In a process of its own. */
static long peak_kib(const char *dir, const char *map, unsigned threads)
{
    char to[SCRATCH_BYTES];
    struct rusage use;
    int status;
    fflush(stdout);
    const pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        consolidate(dir, map, threads);
        _exit(0);
    }
    must(wait4(child, &status, 0, &use) == child && status == 0, "consolidate");
    must(unlink(scratch_path(to, dir, "out.safetensors")) == 0, "unlink");
    printf("%-10s %u threads: peak %ld KiB, %.2f CPU s\n", map, threads, use.ru_maxrss,
           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec));
    return use.ru_maxrss;
}

static void compare(const experts *e, unsigned threads)
{
    char dir[SCRATCH_BYTES];
    scratch_make(dir);
    make_source(dir, e);
    const long plain = peak_kib(dir, "plain", threads);
    const long transposed = peak_kib(dir, "transposed", threads);
    scratch_remove(dir);
    must(transposed - plain <= MORE_KIB(threads), "transposing takes more memory");
}

int main(int argc, char **argv)
{
    if (argc == 5) {
        const experts e = {(unsigned)atoi(argv[3]), (unsigned)atoi(argv[1]),
                           (unsigned)atoi(argv[2])};
        compare(&e, (unsigned)atoi(argv[4]));
        return 0;
    }
    /* Those of gpt-oss, and a larger matrix. */
    const experts sizes[] = {{4, 2880, 2880}, {2, 5760, 2880}, {1, 2880, 20000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned threads = 1; threads <= 4; threads *= 2)
            compare(&sizes[i], threads);
    return 0;
}
