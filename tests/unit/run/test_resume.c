/* A call that continues another: only if the source is the files that the other one had open. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fsdpck.h"
#include "open/checkpoint.h"
#include "tests/support/scratch.h"

Test(resume, every_format_identifies_its_files)
{
    static const char *const names[] = {"dcp-fsdp2",     "dcp-wrapped", "deepspeed-zero3",
                                        "fsdp1-flat",    "hf-files",    "hf-shards",
                                        "pt-legacy",     "pt-training", "hf-index",
                                        "ranks-dtensor", "fsdp1-orig",  "st-official"};
    fsdpck_context *ctx = fsdpck_context_new();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        fsdpck_checkpoint *src = NULL;
        fsdpck_error err = FSDPCK_ERROR_INIT;
        snprintf(path, sizeof path, "%s/torch-2.15.0/%s", getenv("FIXTURES"), names[i]);
        cr_assert_eq(fsdpck_open(ctx, path, NULL, &src, &err), FSDPCK_OK, "%s: %s", path,
                     err.message);
        cr_expect_gt(catalogue_file_count(&src->cat), 0);
        for (size_t k = 0; k < catalogue_file_count(&src->cat); k++)
            cr_expect_neq(catalogue_file(&src->cat, k)->identity, 0, "%s", path);
        fsdpck_close(src);
    }
    fsdpck_context_free(ctx);
}

enum { ROWS = 24 << 20 };

/* A tensor of bytes, all of one value. */
static void write_model(const char *dir, const char *name, int byte)
{
    char header[128];
    const int n =
        snprintf(header, sizeof header,
                 "{\"w\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", ROWS, ROWS);
    char *text = malloc(8 + (size_t)n + ROWS);
    memset(text, 0, 8);
    text[0] = (char)n;
    memcpy(text + 8, header, (size_t)n);
    memset(text + 8 + n, byte, ROWS);
    scratch_write(dir, name, text, 8 + (size_t)n + ROWS);
    free(text);
}

typedef struct watch {
    fsdpck_context *ctx;
    bool cancels; /* after 4 MiB */
    atomic_bool ends;
    uint64_t kept; /* the most that was seen */
} watch;

static void *watch_progress(void *arg)
{
    watch *w = arg;
    const struct timespec pause = {.tv_nsec = 100000};
    while (!atomic_load(&w->ends)) {
        const char *phase;
        uint64_t done = 0, total = 0;
        const uint64_t kept = fsdpck_context_kept(w->ctx);
        fsdpck_context_progress(w->ctx, &phase, &done, &total);
        w->kept = kept > w->kept ? kept : w->kept;
        if (w->cancels && done >= 4 << 20)
            fsdpck_context_cancel(w->ctx);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* *kept: bytes that the progress counted as those of an earlier call. */
static fsdpck_status convert(const char *dir, bool cancels, const char *replaced_by,
                             fsdpck_report **report, uint64_t *kept)
{
    char from[SCRATCH_BYTES], to[SCRATCH_BYTES], other[SCRATCH_BYTES];
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *src = NULL;
    fsdpck_consolidate_options o = FSDPCK_INIT(fsdpck_consolidate_options);
    pthread_t thread;
    fsdpck_output_options output = FSDPCK_INIT(fsdpck_output_options);
    fsdpck_work_options work = FSDPCK_INIT(fsdpck_work_options);
    output.resume = 1;
    work.threads = 1;
    work.memory_nbytes = 16 << 20;
    o.output = &output;
    o.work = &work;
    cr_assert_eq(fsdpck_open(ctx, scratch_path(from, dir, "in.safetensors"), NULL, &src, NULL),
                 FSDPCK_OK);
    if (replaced_by != NULL)
        cr_assert_eq(rename(scratch_path(other, dir, replaced_by), from), 0);
    watch w = {.ctx = ctx, .cancels = cancels};
    cr_assert_eq(pthread_create(&thread, NULL, watch_progress, &w), 0);
    const fsdpck_status st =
        fsdpck_consolidate(ctx, src, scratch_path(to, dir, "out.safetensors"), &o, report, NULL);
    atomic_store(&w.ends, true);
    pthread_join(thread, NULL);
    *kept = w.kept;
    fsdpck_close(src);
    fsdpck_context_free(ctx);
    return st;
}

/* The first call reads the file that it opened, although another one has its name by then. */
Test(resume, ranges_of_a_replaced_file_are_not_kept)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES];
    unsigned cancelled = 0;
    uint64_t kept;
    for (unsigned i = 0; i < 20 && cancelled < 2; i++) {
        fsdpck_report *report = NULL;
        scratch_make(dir);
        write_model(dir, "in.safetensors", 1);
        write_model(dir, "new.safetensors", 2);
        const fsdpck_status st = convert(dir, true, "new.safetensors", &report, &kept);
        fsdpck_report_free(report);
        report = NULL;
        if (st == FSDPCK_CANCELLED && scratch_count_ending(dir, ".journal") == 1) {
            cancelled++;
            cr_assert_eq(convert(dir, false, NULL, &report, &kept), FSDPCK_OK);
            cr_expect_eq(report->resumed, 0);
            fsdpck_report_free(report);
            FILE *f = fopen(scratch_path(path, dir, "out.safetensors"), "rb");
            cr_assert_eq(fseek(f, -ROWS, SEEK_END), 0);
            size_t others = 0;
            for (size_t k = 0; k < ROWS; k++)
                others += getc(f) != 2;
            cr_expect_eq(others, 0);
            fclose(f);
        }
        scratch_remove(dir);
    }
    cr_assert_gt(cancelled, 0, "no call was cancelled in time");
}

/* Bytes of an earlier call are done, but not moved: the progress counts them apart. */
Test(resume, progress_counts_kept_bytes_apart)
{
    char dir[SCRATCH_BYTES];
    unsigned continued = 0;
    for (unsigned i = 0; i < 20 && continued == 0; i++) {
        fsdpck_report *report = NULL;
        uint64_t kept;
        scratch_make(dir);
        write_model(dir, "in.safetensors", 1);
        const fsdpck_status st = convert(dir, true, NULL, &report, &kept);
        cr_expect_eq(kept, 0);
        fsdpck_report_free(report);
        report = NULL;
        if (st == FSDPCK_CANCELLED && scratch_count_ending(dir, ".journal") == 1) {
            cr_assert_eq(convert(dir, false, NULL, &report, &kept), FSDPCK_OK);
            continued = report->resumed != 0 && report->kept_nbytes > 0;
            cr_expect_gt(kept, 0);
            cr_expect_leq(kept, report->kept_nbytes);
            fsdpck_report_free(report);
        }
        scratch_remove(dir);
    }
    cr_assert_gt(continued, 0, "no call was cancelled in time");
}
