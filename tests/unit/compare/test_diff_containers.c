/* Attributes of dicts are compared wherever both files have the dict: at any depth, and in any order of
 * the keys. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fsdpck_verify.h"
#include "tests/support/scratch.h"
#include "tests/support/torch_stream.h"

enum { ROWS_SHOWN = 64 };

static char dir[SCRATCH_BYTES];

static void begin(void)
{
    scratch_make(dir);
}

static void end(void)
{
    scratch_remove(dir);
}

TestSuite(diff_containers, .init = begin, .fini = end);

static fsdpck_checkpoint *open_file(fsdpck_context *ctx, const char *name, text_buf *file)
{
    char path[SCRATCH_BYTES];
    fsdpck_checkpoint *src = NULL;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    torch_stream_end(file);
    cr_assert(!file->failed);
    scratch_write(dir, name, file->text, file->nbytes);
    text_release(file);
    cr_assert_eq(fsdpck_open(ctx, scratch_path(path, dir, name), NULL, &src, &err), FSDPCK_OK, "%s",
                 err.message);
    return src;
}

/* Files of one object each, without their ends. Returns the number of differences; *stopped as in
 * fsdpck_diff_info, the first row's name and texts in `first`. */
static uint64_t compare(text_buf files[2], int *stopped, char *first, size_t capacity)
{
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *a = open_file(ctx, "a.pt", &files[0]),
                      *b = open_file(ctx, "b.pt", &files[1]);
    fsdpck_diff_info info = FSDPCK_INIT(fsdpck_diff_info);
    fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_diff *d = NULL;
    cr_assert_eq(fsdpck_diff_new(ctx, a, b, NULL, &d, &err), FSDPCK_OK, "%s", err.message);
    fsdpck_diff_get_info(d, &info);
    *stopped = info.stopped;
    first[0] = '\0';
    if (info.rows > 0) {
        fsdpck_diff_get_row(d, 0, &row);
        snprintf(first, capacity, "%s: %s, %s", row.name, row.text_a, row.text_b);
    }
    fsdpck_diff_free(d);
    fsdpck_close(a);
    fsdpck_close(b);
    fsdpck_context_free(ctx);
    return info.rows;
}

static void begin_files(text_buf files[2])
{
    for (unsigned i = 0; i < 2; i++) {
        files[i] = (text_buf){.limit_bytes = SIZE_MAX / 2};
        torch_stream_begin(&files[i]);
        text_append(&files[i], "}", 1);
    }
}

Test(diff_containers, at_any_depth)
{
    enum { DEPTH = 300 };
    text_buf files[2], expected = {0};
    char first[4 * DEPTH];
    int stopped;
    begin_files(files);
    for (unsigned i = 0; i < DEPTH; i++)
        text_printf(&expected, "%sk", i > 0 ? "." : "");
    text_puts(&expected, ": attributes {'version': 1}, attributes {'version': 2}");
    for (int32_t i = 0; i < 2; i++) {
        for (unsigned k = 0; k < DEPTH; k++) {
            torch_stream_text(&files[i], "k");
            if (k + 1 < DEPTH)
                text_append(&files[i], "}", 1);
        }
        torch_stream_dict(&files[i], i + 1);
        for (unsigned k = 0; k < DEPTH; k++)
            text_append(&files[i], "s", 1);
    }
    cr_expect_eq(compare(files, &stopped, first, sizeof first), 1);
    cr_expect_str_eq(first, expected.text);
    cr_expect(!stopped);
    text_release(&expected);
}

/* In the opposite order, each key of A is the last one of B that is left. */
Test(diff_containers, in_any_order_of_keys)
{
    enum { COUNT = 12000 };
    text_buf files[2];
    char first[100];
    int stopped;
    begin_files(files);
    for (int32_t i = 0; i < 2; i++)
        for (int32_t k = 0; k < COUNT; k++) {
            const int32_t number = i == 0 ? k : COUNT - 1 - k;
            torch_stream_int(&files[i], number);
            torch_stream_dict(&files[i], number == COUNT - 1 ? i + 1 : 0);
            text_append(&files[i], "s", 1);
        }
    cr_expect_eq(compare(files, &stopped, first, sizeof first), 1);
    cr_expect_str_eq(first, "11999: attributes {'version': 1}, attributes {'version': 2}");
    cr_expect(!stopped);
}

Test(diff_containers, reports_that_rows_are_missing)
{
    for (unsigned more = 0; more < 2; more++) {
        text_buf files[2];
        char first[100];
        int stopped;
        begin_files(files);
        for (int32_t i = 0; i < 2; i++)
            for (int32_t k = 0; k < ROWS_SHOWN - 1 + 2 * (int32_t)more; k++) {
                torch_stream_int(&files[i], k);
                torch_stream_dict(&files[i], i + 1);
                text_append(&files[i], "s", 1);
            }
        cr_expect_eq(compare(files, &stopped, first, sizeof first), ROWS_SHOWN - 1 + more);
        cr_expect_eq(stopped, (int)more);
    }
}
