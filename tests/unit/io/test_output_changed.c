/* What an output would replace, or its unfinished output, is changed by another program. */
#define _GNU_SOURCE 1

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/output.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_BYTES];
static char path[SCRATCH_BYTES];  /* dir/out */
static char other[SCRATCH_BYTES]; /* for anything else */
static output out;
static fsdpck_error err;

static void begin(void)
{
    scratch_make(dir);
    scratch_path(path, dir, "out");
}

static void end(void)
{
    output_release(&out);
    scratch_remove(dir);
}

TestSuite(output_changed, .init = begin, .fini = end);

static void expect_content(const char *name, const char *text)
{
    char *have;
    size_t nbytes;
    cr_assert_eq(file_read_whole(NULL, scratch_path(other, dir, name), 1000, &have, &nbytes, &err),
                 FSDPCK_OK, "%s", err.message);
    cr_assert_str_eq(have, text);
    free(have);
}

/* Sets the mtime, so that tests do not depend on the steps of the clock. */
static void set_mtime(const char *file_path, long ns)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000, .tv_nsec = ns}};
    cr_assert_eq(utimensat(AT_FDCWD, file_path, times, 0), 0);
}

static void rewrite(const char *file_path, const char *text, long mtime_ns)
{
    const int fd = open(file_path, O_WRONLY | O_TRUNC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    set_mtime(file_path, mtime_ns);
}

static void begin_file(void)
{
    size_t index;
    scratch_write(dir, "out", "old", 3);
    set_mtime(path, 5);
    cr_assert_eq(output_begin(&out, path, OUTPUT_FILE, OUTPUT_REPLACE, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_assert_eq(output_add(&out, "", 3, false, &index, &err), FSDPCK_OK);
    cr_assert_eq(output_write_at(&out, index, 0, "new", 3, &err), FSDPCK_OK);
}

static void expect_refused(const char *text)
{
    cr_assert_eq(output_commit(&out, &err), FSDPCK_EXISTS);
    cr_expect_not_null(strstr(err.message, "another program"), "%s", err.message);
    cr_assert_str_eq(err.path, path);
    expect_content("out", text);
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output_changed, a_file_of_the_same_size)
{
    begin_file();
    rewrite(path, "BAD", 6);
    expect_refused("BAD");
}

Test(output_changed, a_file_of_the_same_mtime)
{
    begin_file();
    rewrite(path, "longer", 5);
    expect_refused("longer");
}

Test(output_changed, another_mode_or_link_is_no_change)
{
    begin_file();
    cr_assert_eq(chmod(path, 0600), 0);
    cr_assert_eq(link(path, scratch_path(other, dir, "link")), 0);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    expect_content("out", "new");
    expect_content("link", "old");
}

Test(output_changed, before_the_output_began)
{
    path_stamp earlier;
    begin_file();
    cr_assert_eq(path_stamp_get(&earlier, NULL, path, &err), FSDPCK_OK);
    cr_assert_eq(output_expect_old(&out, &earlier, &err), FSDPCK_OK);
    earlier.mtime_ns--;
    cr_assert_eq(output_expect_old(&out, &earlier, &err), FSDPCK_EXISTS);
    cr_assert_eq(output_expect_old(&out, &(path_stamp){0}, &err), FSDPCK_EXISTS);
    cr_expect_not_null(strstr(err.message, "created"), "%s", err.message);
    output_release(&out);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(output_begin(&out, path, OUTPUT_FILE, OUTPUT_REPLACE, &err), FSDPCK_OK);
    cr_assert_eq(output_expect_old(&out, &earlier, &err), FSDPCK_OK, "nothing can be lost");
}

/* Fails at call number `fails_at`; calls begin at 1. */
typedef struct checks {
    unsigned count, fails_at;
    bool under_final_name[2];
} checks;

static fsdpck_status check(const void *ctx, const folder *parent, const char *name, fsdpck_error *e)
{
    checks *c = (checks *)ctx;
    (void)parent;
    cr_assert_lt(c->count, 2u);
    c->under_final_name[c->count++] = strcmp(name, "out") == 0;
    return c->count == c->fails_at ? FAIL(e, EXISTS, NONE, "changed") : FSDPCK_OK;
}

static void expect_folder_checked(unsigned fails_at)
{
    size_t index;
    checks c = {.fails_at = fails_at};
    cr_assert_eq(output_begin(&out, path, OUTPUT_FOLDER, OUTPUT_REPLACE, &err), FSDPCK_OK, "%s",
                 err.message);
    out.check_replaced = check;
    out.check_ctx = &c;
    cr_assert_eq(output_add(&out, "x", 3, false, &index, &err), FSDPCK_OK);
    cr_assert_eq(output_write_at(&out, index, 0, "new", 3, &err), FSDPCK_OK);
    cr_assert_eq(output_commit(&out, &err), fails_at == 0 ? FSDPCK_OK : FSDPCK_EXISTS);
    output_release(&out);
    cr_assert_eq(c.count, fails_at == 0 ? 2 : fails_at);
    cr_assert(c.under_final_name[0], "the first check is before the exchange");
    cr_assert_not(c.under_final_name[1], "the second check is after it");
    expect_content("out/x", fails_at == 0 ? "new" : "old");
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output_changed, a_folder_is_checked_before_and_after_the_exchange)
{
    cr_assert_eq(mkdir(path, 0700), 0);
    scratch_write(path, "x", "old", 3);
    expect_folder_checked(1);
    expect_folder_checked(2);
    expect_folder_checked(0);
}

/* Removes the old folder and writes a file under its name, which may have the folder's inode. */
static fsdpck_status put_file(const void *ctx, const folder *parent, const char *name,
                              fsdpck_error *e)
{
    (void)ctx;
    (void)parent;
    (void)e;
    cr_assert_str_eq(name, "out", "not asked after the exchange: a file is no old folder");
    cr_assert_eq(unlink(scratch_path(other, path, "x")), 0);
    cr_assert_eq(rmdir(path), 0);
    scratch_write(dir, "out", "of another program", 18);
    return FSDPCK_OK;
}

Test(output_changed, a_folder_that_became_a_file)
{
    size_t index;
    cr_assert_eq(mkdir(path, 0700), 0);
    scratch_write(path, "x", "old", 3);
    cr_assert_eq(output_begin(&out, path, OUTPUT_FOLDER, OUTPUT_REPLACE, &err), FSDPCK_OK);
    out.check_replaced = put_file;
    cr_assert_eq(output_add(&out, "x", 3, false, &index, &err), FSDPCK_OK);
    cr_assert_eq(output_write_at(&out, index, 0, "new", 3, &err), FSDPCK_OK);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_EXISTS);
    output_release(&out);
    expect_content("out", "of another program");
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output_changed, stamps)
{
    path_stamp a, b;
    const folder cwd = {.fd = AT_FDCWD};
    scratch_write(dir, "f", "text", 4);
    scratch_path(other, dir, "f");
    set_mtime(other, 1);
    cr_assert_eq(path_stamp_get(&a, NULL, other, &err), FSDPCK_OK);
    cr_assert_eq(a.kind, PATH_FILE);
    cr_assert_eq(a.nbytes, 4);
    cr_assert_eq(a.mtime_ns, INT64_C(1000000000001));
    set_mtime(other, 2);
    cr_assert_eq(path_stamp_get(&b, &cwd, other, &err), FSDPCK_OK);
    cr_assert_not(path_stamp_is_same(&a, &b), "one nanosecond");
    cr_assert_eq(symlink("f", path), 0);
    cr_assert_eq(path_stamp_get(&b, NULL, path, &err), FSDPCK_OK);
    cr_assert_eq(b.kind, PATH_OTHER, "a link is not followed");
    strcat(other, "/inner");
    cr_assert_eq(path_stamp_get(&b, NULL, other, &err), FSDPCK_OK, "absence is no error");
    cr_assert_eq(b.kind, PATH_ABSENT);
    cr_assert_eq(path_stamp_get(&a, NULL, dir, &err), FSDPCK_OK);
    scratch_write(dir, "g", "", 0);
    set_mtime(dir, 9);
    cr_assert_eq(path_stamp_get(&b, NULL, dir, &err), FSDPCK_OK);
    cr_assert(path_stamp_is_same(&a, &b), "names of a folder are compared by the caller");
}

/* Another object under the partial's name does not become the output. */
static void expect_not_published(output_kind kind)
{
    char partial[SCRATCH_BYTES], moved[SCRATCH_BYTES];
    size_t index;
    cr_assert_eq(output_begin(&out, path, kind, 0, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(output_add(&out, kind == OUTPUT_FOLDER ? "x" : "", 3, false, &index, &err),
                 FSDPCK_OK);
    cr_assert_eq(output_write_at(&out, index, 0, "new", 3, &err), FSDPCK_OK);
    cr_assert_eq(output_finish(&out, &err), FSDPCK_OK, "%s", err.message);
    scratch_path(partial, dir, out.partial_name);
    cr_assert_eq(rename(partial, scratch_path(moved, dir, "moved")), 0);
    if (kind == OUTPUT_FOLDER)
        cr_assert_eq(mkdir(partial, 0700), 0);
    else
        scratch_write(dir, out.partial_name, "odd", 3);
    cr_expect_eq(output_publish(&out, &err), FSDPCK_IO);
    cr_expect(strstr(err.message, "was removed or replaced by another program") != NULL, "%s",
              err.message);
    cr_expect_eq(access(path, F_OK), -1);
    cr_expect_eq(scratch_count(dir), 2, "both objects stay");
}

Test(output_changed, another_object_in_the_place_of_the_file_is_not_published)
{
    expect_not_published(OUTPUT_FILE);
}

Test(output_changed, another_object_in_the_place_of_the_folder_is_not_published)
{
    expect_not_published(OUTPUT_FOLDER);
}
