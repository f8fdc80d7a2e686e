#define _GNU_SOURCE 1

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/platform.h"
#include "io/file.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_BYTES];
static char path[SCRATCH_BYTES];
static fsdpck_error err;

static void begin(void)
{
    scratch_make(dir);
}

static void end(void)
{
    scratch_remove(dir);
}

TestSuite(file, .init = begin, .fini = end);

Test(file, probe)
{
    path_kind kind;
    uint64_t nbytes;
    folder d;
    cr_assert_eq(folder_open(&d, dir, &err), FSDPCK_OK);
    scratch_write(dir, "a", "12345", 5);
    cr_assert_eq(path_probe(&d, "a", &kind, &nbytes, &err), FSDPCK_OK);
    cr_assert_eq(kind, PATH_FILE);
    cr_assert_eq(nbytes, 5);
    cr_assert_eq(path_probe(&d, "none", &kind, NULL, &err), FSDPCK_OK);
    cr_assert_eq(kind, PATH_ABSENT);
    cr_assert_eq(path_probe(&d, "a/b", &kind, NULL, &err), FSDPCK_OK);
    cr_assert_eq(kind, PATH_ABSENT);
    cr_assert_eq(path_probe(NULL, dir, &kind, NULL, &err), FSDPCK_OK);
    cr_assert_eq(kind, PATH_FOLDER);
    cr_assert_eq(mkfifo(scratch_path(path, dir, "fifo"), 0600), 0);
    cr_assert_eq(path_probe(&d, "fifo", &kind, NULL, &err), FSDPCK_OK);
    cr_assert_eq(kind, PATH_OTHER);
    cr_assert_eq(symlink("loop", scratch_path(path, dir, "loop")), 0);
    cr_assert_eq(path_probe(&d, "loop", &kind, NULL, &err), FSDPCK_IO, "an error is no absence");
    folder_close(&d);
    folder_close(&d);
}

Test(file, list_is_sorted_and_complete)
{
    folder d;
    char **names;
    size_t count;
    cr_assert_eq(folder_open(&d, dir, &err), FSDPCK_OK);
    cr_assert_eq(folder_list(&d, NULL, &names, &count, &err), FSDPCK_OK);
    cr_assert_eq(count, 0);
    free(names);
    scratch_write(dir, "b", "", 0);
    scratch_write(dir, ".hidden", "", 0);
    scratch_write(dir, "\xff", "", 0);
    scratch_write(dir, "B", "", 0);
    cr_assert_eq(mkdir(scratch_path(path, dir, "sub"), 0700), 0);
    scratch_write(path, "inner", "", 0);
    cr_assert_eq(folder_list(&d, NULL, &names, &count, &err), FSDPCK_OK);
    static const char *const want[] = {".hidden", "B", "b", "sub", "\xff"};
    cr_assert_eq(count, 5);
    for (size_t i = 0; i < 5; i++)
        cr_assert_str_eq(names[i], want[i]);
    free(names);
    cr_assert_eq(folder_list(&d, "sub", &names, &count, &err), FSDPCK_OK);
    cr_assert_eq(count, 1);
    cr_assert_str_eq(names[0], "inner");
    free(names);
    cr_assert_eq(folder_list(&d, "b", &names, &count, &err), FSDPCK_IO);
    cr_assert_null(names);
    folder_close(&d);
}

Test(file, folder_that_nobody_may_list)
{
    folder d;
    file f = FILE_CLOSED;
    int fd = -1;
    char text[3];
    scratch_write(dir, "a", "12345", 5);
    cr_assert_eq(chmod(scratch_path(path, dir, "a"), 0644), 0);
    cr_assert_eq(chmod(dir, 0311), 0);
    /* The permissions of root are no test: as somebody else, if we may. */
    const bool is_root = geteuid() == 0;
    cr_assert(!is_root || seteuid(65534) == 0);
    const bool can = platform_open_search(dir, &fd) == 0;
    if (can)
        close(fd);
    cr_expect_eq(folder_open(&d, dir, &err), FSDPCK_IO);
    cr_expect_eq(folder_open_parent(&d, path, &err), can ? FSDPCK_OK : FSDPCK_IO);
    if (can) {
        cr_assert_eq(file_open_read(&f, &d, "a", 0, &err), FSDPCK_OK, "%s", err.message);
        cr_expect_eq(file_read_at(&f, 1, text, 3, &err), FSDPCK_OK);
        cr_expect_arr_eq(text, "234", 3);
        cr_expect_eq(file_open_read(&f, &d, "none", 0, &err), FSDPCK_IO);
        file_abandon(&f);
        folder_close(&d);
    }
    cr_assert(!is_root || seteuid(0) == 0);
    cr_assert_eq(chmod(dir, 0700), 0);
}

Test(file, reads_exactly_or_says_why_not)
{
    file f;
    char b[16] = {0};
    scratch_write(dir, "a", "0123456789", 10);
    folder d;
    cr_assert_eq(folder_open(&d, dir, &err), FSDPCK_OK);
    cr_assert_eq(file_open_read(&f, &d, "a", 0, &err), FSDPCK_OK);
    cr_assert_eq(f.nbytes, 10);
    cr_assert_eq(file_read_at(&f, 3, b, 4, &err), FSDPCK_OK);
    cr_assert_str_eq(b, "3456");
    cr_assert_eq(file_read_at(&f, 10, b, 0, &err), FSDPCK_OK);
    cr_assert_eq(file_read_at(&f, 8, b, 3, &err), FSDPCK_BADINPUT);
    cr_assert_eq(err.has_offset, 1);
    cr_assert_eq(err.offset_bytes, 10);
    cr_assert(strstr(err.path, "/a") != NULL);
    cr_assert_eq(file_read_at(&f, UINT64_MAX, b, 3, &err), FSDPCK_BADINPUT);
    cr_assert_eq(file_read_at(&f, INT64_MAX, b, 3, &err), FSDPCK_BADINPUT);
    cr_assert_eq(file_check_unchanged(&f, &err), FSDPCK_OK);
    cr_assert_eq(truncate(scratch_path(path, dir, "a"), 6), 0);
    cr_assert_eq(file_read_at(&f, 4, b, 4, &err), FSDPCK_CHANGED);
    cr_assert_eq(file_check_unchanged(&f, &err), FSDPCK_CHANGED);
    cr_assert_eq(file_close(&f, &err), FSDPCK_OK);
    file_abandon(&f);
    folder_close(&d);
}

Test(file, same_size_rewrite_is_a_change)
{
    file f;
    scratch_write(dir, "a", "0123456789", 10);
    cr_assert_eq(file_open_read(&f, NULL, scratch_path(path, dir, "a"), 0, &err), FSDPCK_OK);
    const struct timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 1}};
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    cr_assert_eq(file_check_unchanged(&f, &err), FSDPCK_CHANGED);
    file_abandon(&f);
}

/* The clock of a file system advances in steps of a few ms. */
static void next_tick(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

Test(file, rewrite_with_the_old_mtime_is_a_change)
{
    file f;
    struct stat st;
    scratch_write(dir, "a", "0123456789", 10);
    cr_assert_eq(file_open_read(&f, NULL, scratch_path(path, dir, "a"), 0, &err), FSDPCK_OK);
    cr_assert_eq(stat(path, &st), 0);
    next_tick();
    scratch_write(dir, "a", "9876543210", 10);
    cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    cr_assert_eq(file_check_unchanged(&f, &err), FSDPCK_CHANGED);
    cr_expect(strstr(err.message, "content or attributes") != NULL, "%s", err.message);
    file_abandon(&f);
}

Test(file, a_changed_mode_or_link_is_named)
{
    file f;
    char other[SCRATCH_BYTES];
    scratch_write(dir, "a", "0123456789", 10);
    cr_assert_eq(file_open_read(&f, NULL, scratch_path(path, dir, "a"), 0, &err), FSDPCK_OK);
    next_tick();
    cr_assert_eq(chmod(path, 0400), 0);
    cr_assert_eq(file_check_unchanged(&f, &err), FSDPCK_CHANGED);
    cr_expect(strstr(err.message, "its mode changed") != NULL, "%s", err.message);
    cr_expect(strstr(err.found, "mode 0400") != NULL, "%s", err.found);
    file_abandon(&f);
    cr_assert_eq(file_open_read(&f, NULL, path, 0, &err), FSDPCK_OK);
    next_tick();
    cr_assert_eq(link(path, scratch_path(other, dir, "b")), 0);
    cr_assert_eq(file_check_unchanged(&f, &err), FSDPCK_CHANGED);
    cr_expect(strstr(err.message, "its links changed") != NULL, "%s", err.message);
    cr_expect(strstr(err.found, "2 links") != NULL, "%s", err.found);
    file_abandon(&f);
}

Test(file, only_regular_files_and_never_blocking, .timeout = 5)
{
    file f;
    folder d;
    cr_assert_eq(folder_open(&d, dir, &err), FSDPCK_OK);
    cr_assert_eq(mkfifo(scratch_path(path, dir, "fifo"), 0600), 0);
    cr_assert_eq(file_open_read(&f, &d, "fifo", 0, &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "FILE-TYPE");
    cr_assert_str_eq(err.found, "a FIFO");
    cr_assert_eq(file_open_read(&f, &d, ".", 0, &err), FSDPCK_BADINPUT);
    cr_assert_eq(file_open_read(&f, NULL, "/dev/null", 0, &err), FSDPCK_BADINPUT);
    cr_assert_eq(file_open_read(&f, &d, "none", 0, &err), FSDPCK_IO);
    scratch_write(dir, "a", "x", 1);
    cr_assert_eq(symlink("a", scratch_path(path, dir, "link")), 0);
    cr_assert_eq(file_open_read(&f, &d, "link", FILE_NO_FOLLOW, &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(err.found, "a symbolic link");
    cr_assert_eq(file_open_read(&f, &d, "link", 0, &err), FSDPCK_OK);
    file_abandon(&f);
    folder_close(&d);
}

Test(file, read_whole)
{
    char *text;
    size_t nbytes;
    scratch_write(dir, "a", "12345", 5);
    scratch_path(path, dir, "a");
    cr_assert_eq(file_read_whole(NULL, path, 5, &text, &nbytes, &err), FSDPCK_OK);
    cr_assert_eq(nbytes, 5);
    cr_assert_str_eq(text, "12345");
    free(text);
    cr_assert_eq(file_read_whole(NULL, path, 4, &text, &nbytes, &err), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "LIMIT-SIZE");
    cr_assert_null(text);
}

static void open_for_writing(file *f)
{
    *f = FILE_CLOSED;
    scratch_path(path, dir, "out");
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_gt(f->fd, 2);
    f->path = strdup(path);
}

Test(file, writes_at_any_place)
{
    file f;
    char b[16] = {0};
    open_for_writing(&f);
    cr_assert_eq(file_write_at(&f, 5, "world", 5, &err), FSDPCK_OK);
    cr_assert_eq(file_write_at(&f, 0, "hello", 5, &err), FSDPCK_OK);
    cr_assert_eq(file_truncate(&f, 9, &err), FSDPCK_OK);
    f.nbytes = 9;
    cr_assert_eq(file_read_at(&f, 0, b, 9, &err), FSDPCK_OK);
    cr_assert_str_eq(b, "helloworl");
    cr_assert_eq(file_write_at(&f, INT64_MAX, "x", 1, &err), FSDPCK_NOSPACE);
    cr_assert_eq(file_sync(&f, &err), FSDPCK_OK);
    cr_assert_eq(file_close(&f, &err), FSDPCK_OK);
}

Test(file, a_full_device_is_no_space)
{
    file f = FILE_CLOSED;
    f.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (f.fd < 0)
        return; /* not on this system */
    f.path = strdup("/dev/full");
    cr_assert_eq(file_write_at(&f, 7, "x", 1, &err), FSDPCK_NOSPACE);
    cr_assert_eq(err.offset_bytes, 7);
    file_abandon(&f);
}

/* The second descriptor refuses unaligned writes, as O_DIRECT does; on a file system without
 * O_DIRECT it is an ordinary one, and the bytes must be the same. */
Test(file, direct_writes_fall_back)
{
    enum { BLOCKS = 5 };
    file f;
    open_for_writing(&f);
    f.direct_fd = open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
    if (f.direct_fd < 0)
        f.direct_fd = open(path, O_WRONLY | O_CLOEXEC);
    uint8_t *b = aligned_alloc(4096, (BLOCKS + 1) * 4096);
    for (size_t i = 0; i < (BLOCKS + 1) * 4096; i++)
        b[i] = (uint8_t)(i * 7 + i / 4096);
    cr_assert_eq(file_write_direct(&f, 0, b, BLOCKS * 4096, &err), FSDPCK_OK);
    cr_assert_eq(file_write_direct(&f, 4096 + 1, b + 3, 100, &err), FSDPCK_OK, "%s", err.message);
    uint8_t *back = malloc(BLOCKS * 4096);
    f.nbytes = BLOCKS * 4096;
    cr_assert_eq(file_read_at(&f, 0, back, BLOCKS * 4096, &err), FSDPCK_OK);
    cr_assert_eq(memcmp(back, b, 4097), 0);
    cr_assert_eq(memcmp(back + 4097, b + 3, 100), 0);
    cr_assert_eq(memcmp(back + 4197, b + 4197, BLOCKS * 4096 - 4197), 0);
    free(back);
    free(b);
    cr_assert_eq(file_close(&f, &err), FSDPCK_OK);
}

Test(file, a_zeroed_file_closes_nothing)
{
    file f = {0};
    folder d = {0};
    file_abandon(&f);
    folder_close(&d);
    cr_assert_neq(fcntl(0, F_GETFD), -1);
}

Test(file, never_a_standard_descriptor)
{
    scratch_write(dir, "a", "x", 1);
    scratch_path(path, dir, "a");
    const int saved = dup(0);
    close(0);
    file f;
    const fsdpck_status st = file_open_read(&f, NULL, path, 0, &err);
    dup2(saved, 0);
    close(saved);
    cr_assert_eq(st, FSDPCK_OK);
    cr_assert_gt(f.fd, 2);
    file_abandon(&f);
}

static fsdpck_status inside(const char *name, size_t nbytes)
{
    return path_check_inside(name, nbytes, FSDPCK_FINDING_DCP_PATH, &err);
}

Test(path, inside)
{
    static const char *const good[] = {"a",   "a/b", "__0_0.distcp", "..a", "a..",
                                       "...", ".a",  "a.",           "-"};
    static const char *const bad[] = {"",   "/a", "..", "a/..", "../a",  "a/../b", "a//b",
                                      "a/", "/",  ".",  "./a",  "a/./b", "a/."};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_assert_eq(inside(good[i], strlen(good[i])), FSDPCK_OK, "'%s'", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(inside(bad[i], strlen(bad[i])), FSDPCK_BADINPUT, "'%s'", bad[i]);
        cr_assert_str_eq(fsdpck_finding_name(err.finding), "DCP-PATH");
    }
    cr_assert_eq(inside("a\0b", 3), FSDPCK_BADINPUT);
    char long_name[4200];
    for (size_t i = 0; i < sizeof(long_name); i++)
        long_name[i] = i % 100 == 99 ? '/' : 'a';
    cr_assert_eq(inside(long_name, 4096), FSDPCK_OK);
    cr_assert_eq(inside(long_name, 4097), FSDPCK_BADINPUT);
    memset(long_name, 'a', 300);
    cr_assert_eq(inside(long_name, 255), FSDPCK_OK);
    cr_assert_eq(inside(long_name, 256), FSDPCK_BADINPUT);
}
