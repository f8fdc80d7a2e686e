/* A checkpoint opened with `damaged`: its files are described, and no bytes are read. */
#include <criterion/criterion.h>
#include <string.h>

#include "fsdpck.h"
#include "fsdpck_verify.h"
#include "tests/support/scratch.h"

/* A float32 tensor of 8 bytes, and 7 bytes of its data. */
static void write_file(const char *dir)
{
    static const char header[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} ";
    char text[8 + sizeof header - 1 + 7] = {sizeof header - 1};
    memcpy(text + 8, header, sizeof header - 1);
    scratch_write(dir, "w.safetensors", text, sizeof text);
}

Test(damaged, is_walked_but_not_read)
{
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES], out[SCRATCH_BYTES];
    scratch_make(dir);
    write_file(dir);
    scratch_path(path, dir, "w.safetensors");
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options);
    fsdpck_checkpoint *src = NULL;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    cr_expect_eq(fsdpck_open(ctx, path, &o, &src, &err), FSDPCK_BADINPUT);
    cr_assert_null(src);
    o.damaged = 1;
    cr_expect_eq(fsdpck_open(ctx, path, &o, &src, NULL), FSDPCK_BADINPUT);
    cr_assert_not_null(src);
    fsdpck_close(src);
    cr_expect_eq(fsdpck_open(ctx, path, &o, &src, &err), FSDPCK_BADINPUT);
    cr_assert_not_null(src);
    cr_expect_eq(err.finding, FSDPCK_FINDING_FILE_SHORT);
    fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
    fsdpck_get_tensor(src, 0, &t);
    cr_expect_eq(t.nbytes, 8);
    fsdpck_digests *d = NULL;
    fsdpck_error refused = FSDPCK_ERROR_INIT;
    cr_expect_eq(fsdpck_digests_new(ctx, src, NULL, &d, &refused), FSDPCK_BADINPUT);
    cr_expect_null(d);
    cr_expect_eq(refused.finding, FSDPCK_FINDING_FILE_SHORT);
    scratch_path(out, dir, "out.safetensors");
    fsdpck_report *report = NULL;
    cr_expect_eq(fsdpck_consolidate(ctx, src, out, NULL, &report, &refused), FSDPCK_BADINPUT);
    cr_expect_null(report);
    cr_expect_eq(scratch_count(dir), 1);
    fsdpck_close(src);
    fsdpck_context_free(ctx);
    scratch_remove(dir);
}
