#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "io/file_set.h"
#include "tests/support/scratch.h"

enum { FILES = 20 };

static char dir[SCRATCH_BYTES];
static folder d;
static file_set set;
static fsdpck_error err;

static void begin(void)
{
    scratch_make(dir);
    for (int i = 0; i < FILES; i++) {
        char name[16];
        char text[16];
        snprintf(name, sizeof(name), "f%02d", i);
        scratch_write(dir, name, text, (size_t)snprintf(text, sizeof(text), "text %02d", i));
    }
    cr_assert_eq(folder_open(&d, dir, &err), FSDPCK_OK);
    cr_assert_eq(file_set_init(&set, &d, 3, 0, &err), FSDPCK_OK);
    for (unsigned i = 0; i < FILES; i++) {
        char name[16];
        uint32_t index = 99;
        snprintf(name, sizeof(name), "f%02u", i);
        cr_assert_eq(file_set_add(&set, name, &index, &err), FSDPCK_OK);
        cr_assert_eq(index, i);
    }
}

static void end(void)
{
    file_set_release(&set);
    folder_close(&d);
    scratch_remove(dir);
}

TestSuite(file_set, .init = begin, .fini = end);

static unsigned descriptors(void)
{
    return (unsigned)scratch_count("/proc/self/fd");
}

static fsdpck_status read_one(uint32_t index, fsdpck_error *e)
{
    char text[8] = {0};
    char want[8];
    const fsdpck_status st = file_set_read_at(&set, index, 0, text, 7, e);
    if (st != FSDPCK_OK)
        return st;
    snprintf(want, sizeof(want), "text %02u", index);
    return strcmp(text, want) == 0 ? FSDPCK_OK : FSDPCK_INTERNAL;
}

Test(file_set, few_descriptors_serve_many_files)
{
    const unsigned before = descriptors();
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < FILES; i++)
            cr_assert_eq(read_one(i, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(descriptors(), before + 3);
    uint64_t nbytes = 0;
    cr_assert_eq(file_set_nbytes(&set, 4, &nbytes, &err), FSDPCK_OK);
    cr_assert_eq(nbytes, 7);
    cr_assert_str_eq(file_set_path(&set, 4), "f04");
    cr_assert_eq(file_set_check_unchanged(&set, &err), FSDPCK_OK);
    cr_assert_eq(descriptors(), before + 3);
}

static fsdpck_status job(void *ctx, unsigned worker, uint64_t number, fsdpck_error *e)
{
    (void)ctx;
    (void)worker;
    return read_one((uint32_t)(number * 7 % FILES), e);
}

Test(file_set, many_threads, .timeout = 30)
{
    cr_assert_eq(pool_run(8, 5000, job, NULL, NULL, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_leq(set.cache.open_count, 3);
}

Test(file_set, a_missing_file_is_an_error_each_time, .timeout = 10)
{
    uint32_t index;
    cr_assert_eq(file_set_add(&set, "none", &index, &err), FSDPCK_OK);
    for (int i = 0; i < 10; i++) {
        char b;
        cr_assert_eq(file_set_read_at(&set, index, 0, &b, 1, &err), FSDPCK_IO);
    }
    cr_assert_eq(read_one(0, &err), FSDPCK_OK, "and takes no slot");
    cr_assert_eq(file_set_check_unchanged(&set, &err), FSDPCK_OK);
}

Test(file_set, replaced_while_closed_is_a_change)
{
    char path[SCRATCH_BYTES];
    cr_assert_eq(read_one(0, &err), FSDPCK_OK);
    for (uint32_t i = 1; i < FILES; i++)
        cr_assert_eq(read_one(i, &err), FSDPCK_OK);
    cr_assert_eq(unlink(scratch_path(path, dir, "f00")), 0);
    scratch_write(dir, "extra", "", 0);
    scratch_write(dir, "f00", "text 00", 7);
    cr_assert_eq(read_one(0, &err), FSDPCK_CHANGED);
    cr_assert_eq(file_set_check_unchanged(&set, &err), FSDPCK_CHANGED);
}

Test(file_set, growth_is_a_change)
{
    cr_assert_eq(read_one(2, &err), FSDPCK_OK);
    scratch_write(dir, "f02", "text 02 and more", 16);
    cr_assert_eq(file_set_check_unchanged(&set, &err), FSDPCK_CHANGED);
}

static void expect_listed(uint32_t index, const char *name)
{
    path_kind kind;
    uint64_t nbytes, identity;
    cr_assert_eq(path_identify(&d, name, &kind, &nbytes, &identity, NULL, &err), FSDPCK_OK);
    file_set_expect(&set, index, nbytes, identity);
}

Test(file_set, change_between_listing_and_opening)
{
    char path[SCRATCH_BYTES], other[SCRATCH_BYTES];
    expect_listed(3, "f03");
    expect_listed(4, "f04");
    expect_listed(5, "f05");
    scratch_write(dir, "f04", "text 04 and more", 16);
    scratch_write(dir, "other", "text 05", 7);
    cr_assert_eq(rename(scratch_path(other, dir, "other"), scratch_path(path, dir, "f05")), 0);
    cr_assert_eq(read_one(3, &err), FSDPCK_OK);
    cr_assert_eq(read_one(4, &err), FSDPCK_CHANGED);
    cr_assert_str_eq(err.expected, "7 bytes");
    cr_assert_eq(read_one(5, &err), FSDPCK_CHANGED);
    cr_assert_neq(strstr(err.path, "f05"), NULL);
}

Test(file_set_zeroed, can_be_released)
{
    const unsigned before = descriptors();
    const file_set zeros = {0};
    file_set s = {0};
    file_set_release(&s);
    file_set_release(&s);
    /* It took nothing for an open descriptor, such as 0, and is as it was. */
    cr_assert_eq(descriptors(), before);
    cr_assert_eq(memcmp(&s, &zeros, sizeof s), 0);
}
