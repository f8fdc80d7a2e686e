#define _GNU_SOURCE 1

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pool.h"
#include "io/output.h"
#include "io/output_remove.h"
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

TestSuite(output, .init = begin, .fini = end);

static size_t add(const char *name, uint64_t nbytes, bool direct)
{
    size_t index = 99;
    cr_assert_eq(output_add(&out, name, nbytes, direct, &index, &err), FSDPCK_OK, "%s",
                 err.message);
    return index;
}

static void write_text(size_t index, const char *text)
{
    cr_assert_eq(output_write_at(&out, index, 0, text, strlen(text), &err), FSDPCK_OK, "%s",
                 err.message);
}

static void begin_kind(output_kind kind, unsigned flags)
{
    cr_assert_eq(output_begin(&out, path, kind, flags, &err), FSDPCK_OK, "%s", err.message);
}

static void expect_content(const char *name, const char *text)
{
    char *have;
    size_t nbytes;
    cr_assert_eq(file_read_whole(NULL, scratch_path(other, dir, name), 1000, &have, &nbytes, &err),
                 FSDPCK_OK, "%s", err.message);
    cr_assert_str_eq(have, text);
    cr_assert_eq(nbytes, strlen(text));
    free(have);
}

static mode_t mode_of(const char *name)
{
    struct stat st;
    cr_assert_eq(lstat(scratch_path(other, dir, name), &st), 0);
    return st.st_mode & 07777;
}

Test(output, file)
{
    const mode_t old = umask(027);
    begin_kind(OUTPUT_FILE, 0);
    cr_assert_eq(scratch_count_ending(dir, ".partial"), 1);
    cr_assert_eq(mode_of(out.partial_name), 0600, "nobody reads it before it is whole");
    cr_assert_eq(strncmp(out.partial_name, ".out.fsdpck-", 12), 0);
    write_text(add("", 5, false), "hello");
    cr_assert_eq(access(path, F_OK), -1);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    umask(old);
    output_release(&out);
    cr_assert_eq(scratch_count(dir), 1);
    expect_content("out", "hello");
    cr_assert_eq(mode_of("out"), 0640);
}

Test(output, folder)
{
    begin_kind(OUTPUT_FOLDER, 0);
    size_t files[40];
    char name[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        files[i] = add(name, strlen(name), i % 2 == 0);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        write_text(files[i], name);
    }
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_INTERNAL, "not twice");
    cr_assert_eq(scratch_count(dir), 1);
    cr_assert_eq(scratch_count(path), 40);
    expect_content("out/f0", "f0");
    expect_content("out/f39", "f39");
}

static fsdpck_status write_some(void *ctx, unsigned worker, uint64_t job, fsdpck_error *e)
{
    const size_t index = (size_t)(job * 7 % 1000);
    char *block = ctx;
    (void)worker;
    RETURN_IF(output_write_direct(&out, index, 0, block, 4096, e));
    RETURN_IF(output_write_at(&out, index, 4096, &index, sizeof index, e));
    size_t back;
    RETURN_IF(output_read_at(&out, index, 4096, &back, sizeof back, e));
    return back == index ? FSDPCK_OK : FSDPCK_INTERNAL;
}

Test(output, a_thousand_files_with_few_descriptors)
{
    char name[16];
    char *block = aligned_alloc(4096, 4096);
    memset(block, 'y', 4096);
    for (int direct = 0; direct < 2; direct++) {
        cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){direct ? 40 : 256, 256}), 0);
        begin_kind(OUTPUT_FOLDER, OUTPUT_REPLACE);
        for (int i = 0; i < 1000; i++) {
            snprintf(name, sizeof(name), "f%03d", i);
            (void)add(name, 5000, direct != 0);
        }
        /* Each three times, from four threads: an open file is always another one. */
        cr_assert_eq(pool_run(4, 3000, write_some, block, NULL, &err), FSDPCK_OK, "%s",
                     err.message);
        cr_assert_leq(out.cache.open_count, 32);
        cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
        output_release(&out);
        cr_assert_eq(scratch_count(path), 1000);
        for (size_t i = 0; i < 1000; i += 37) {
            size_t nbytes;
            char *have;
            snprintf(name, sizeof(name), "out/f%03zu", i);
            cr_assert_eq(
                file_read_whole(NULL, scratch_path(other, dir, name), 5000, &have, &nbytes, &err),
                FSDPCK_OK);
            cr_assert(nbytes == 5000 && memcmp(have, block, 4096) == 0 &&
                      memcmp(have + 4096, &i, sizeof i) == 0);
            free(have);
        }
    }
    free(block);
}

Test(output, a_file_replaced_while_it_was_closed_is_noticed)
{
    char name[16];
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}), 0);
    begin_kind(OUTPUT_FOLDER, 0);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        (void)add(name, 5, false);
    }
    char partial[SCRATCH_BYTES];
    scratch_path(other, scratch_path(partial, dir, out.partial_name), "f0");
    scratch_write(dir, "new", "", 0);
    cr_assert_eq(rename(scratch_path(partial, dir, "new"), other), 0);
    cr_assert_eq(output_write_at(&out, 0, 0, "hello", 5, &err), FSDPCK_CHANGED);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_CHANGED);
    cr_assert_eq(scratch_count(dir), 0);
}

Test(output, direct_blocks_are_cut_to_the_exact_size)
{
    begin_kind(OUTPUT_FILE, 0);
    const size_t f = add("", 5000, true);
    char *block = aligned_alloc(4096, 8192);
    memset(block, 'x', 8192);
    cr_assert_eq(output_write_direct(&out, f, 0, block, 8192, &err), FSDPCK_OK);
    cr_assert_eq(output_write_at(&out, f, 4990, "0123456789", 10, &err), FSDPCK_OK, "late bytes");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_size, 5000);
    char back[5001] = {0};
    file r;
    cr_assert_eq(file_open_read(&r, NULL, path, 0, &err), FSDPCK_OK);
    cr_assert_eq(file_read_at(&r, 0, back, 5000, &err), FSDPCK_OK);
    file_abandon(&r);
    memset(block + 4990, 0, 11);
    memcpy(block + 4990, "0123456789", 10);
    cr_assert_str_eq(back, block);
    free(block);
}

Test(output, without_commit_nothing_is_left)
{
    begin_kind(OUTPUT_FILE, 0);
    write_text(add("", 5, false), "hello");
    output_release(&out);
    output_release(&out);
    cr_assert_eq(scratch_count(dir), 0);
    begin_kind(OUTPUT_FOLDER, 0);
    write_text(add("a", 5, false), "hello");
    output_release(&out);
    cr_assert_eq(scratch_count(dir), 0);
    output zeroed = {0};
    output_release(&zeroed);
}

Test(output, what_exists_is_refused_and_untouched)
{
    scratch_write(dir, "file", "old", 3);
    cr_assert_eq(mkdir(scratch_path(other, dir, "folder"), 0700), 0);
    cr_assert_eq(symlink("file", scratch_path(other, dir, "link")), 0);
    cr_assert_eq(symlink("nowhere", scratch_path(other, dir, "dangling")), 0);
    cr_assert_eq(mkfifo(scratch_path(other, dir, "fifo"), 0600), 0);
    static const char *const names[] = {"file", "folder", "link", "dangling", "fifo"};
    for (size_t i = 0; i < 5; i++) {
        for (int kind = OUTPUT_FILE; kind <= OUTPUT_FOLDER; kind++) {
            scratch_path(path, dir, names[i]);
            cr_assert_eq(output_begin(&out, path, (output_kind)kind, 0, &err), FSDPCK_EXISTS);
            cr_assert(strstr(err.path, names[i]) != NULL);
            cr_assert_neq(err.next[0], '\0');
        }
    }
    cr_assert_eq(scratch_count(dir), 5);
    expect_content("file", "old");
}

Test(output, force_never_replaces_another_kind_of_thing)
{
    scratch_write(dir, "file", "old", 3);
    cr_assert_eq(mkdir(scratch_path(other, dir, "folder"), 0700), 0);
    cr_assert_eq(symlink("file", scratch_path(other, dir, "link")), 0);
    static const struct {
        const char *name;
        output_kind kind;
    } rows[] = {{"file", OUTPUT_FOLDER},
                {"folder", OUTPUT_FILE},
                {"link", OUTPUT_FILE},
                {"link", OUTPUT_FOLDER}};
    for (size_t i = 0; i < 4; i++) {
        scratch_path(path, dir, rows[i].name);
        cr_assert_eq(output_begin(&out, path, rows[i].kind, OUTPUT_REPLACE, &err), FSDPCK_EXISTS);
    }
    cr_assert_eq(scratch_count(dir), 3);
}

Test(output, force_replaces_a_file)
{
    scratch_write(dir, "out", "old", 3);
    begin_kind(OUTPUT_FILE, OUTPUT_REPLACE);
    write_text(add("", 3, false), "new");
    expect_content("out", "old");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    expect_content("out", "new");
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output, force_exchanges_a_folder_whole)
{
    scratch_write(dir, "outside", "keep", 4);
    cr_assert_eq(mkdir(path, 0700), 0);
    scratch_write(path, "stale", "old", 3);
    cr_assert_eq(symlink("../outside", scratch_path(other, path, "link")), 0);
    cr_assert_eq(symlink("..", scratch_path(other, path, "folder_link")), 0);
    cr_assert_eq(mkdir(scratch_path(other, path, "sub"), 0700), 0);
    scratch_write(other, "inner", "old", 3);
    begin_kind(OUTPUT_FOLDER, OUTPUT_REPLACE);
    write_text(add("fresh", 3, false), "new");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(scratch_count(path), 1, "never merged");
    expect_content("out/fresh", "new");
    expect_content("outside", "keep");
    cr_assert_eq(scratch_count(dir), 2);
}

Test(output, force_where_nothing_is)
{
    begin_kind(OUTPUT_FILE, OUTPUT_REPLACE);
    write_text(add("", 3, false), "new");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK);
    expect_content("out", "new");
}

Test(output, force_after_the_old_one_went_away)
{
    scratch_write(dir, "out", "old", 3);
    begin_kind(OUTPUT_FILE, OUTPUT_REPLACE);
    write_text(add("", 3, false), "new");
    cr_assert_eq(unlink(path), 0);
    const fsdpck_status st = output_commit(&out, &err);
    if (st == FSDPCK_OK)
        expect_content("out", "new");
    else
        cr_assert_eq(st, FSDPCK_EXISTS);
    cr_assert_eq(scratch_count(dir), st == FSDPCK_OK);
}

Test(output, a_name_taken_meanwhile_is_not_overwritten)
{
    for (unsigned flags = 0; flags <= OUTPUT_REPLACE; flags++) {
        begin_kind(OUTPUT_FILE, flags);
        write_text(add("", 3, false), "new");
        scratch_write(dir, "out", "theirs", 6);
        cr_assert_eq(output_commit(&out, &err), FSDPCK_EXISTS);
        expect_content("out", "theirs");
        cr_assert_eq(scratch_count(dir), 1);
        cr_assert_eq(unlink(path), 0);
    }
    begin_kind(OUTPUT_FOLDER, 0);
    write_text(add("a", 3, false), "new");
    cr_assert_eq(mkdir(path, 0700), 0);
    scratch_write(path, "theirs", "x", 1);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_EXISTS);
    expect_content("out/theirs", "x");
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output, force_replaces_only_what_it_saw)
{
    scratch_write(dir, "out", "old", 3);
    begin_kind(OUTPUT_FILE, OUTPUT_REPLACE);
    write_text(add("", 3, false), "new");
    scratch_write(dir, "theirs", "theirs", 6);
    cr_assert_eq(rename(scratch_path(other, dir, "theirs"), path), 0);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_EXISTS);
    expect_content("out", "theirs");
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output, folders_inside_a_folder)
{
    const mode_t old = umask(027);
    begin_kind(OUTPUT_FOLDER, 0);
    const size_t one = add("in/one", 3, false);
    const size_t top = add("top", 3, false);
    const size_t two = add("in/two", 3, false);
    const size_t other_one = add("inner/one", 5, false);
    write_text(one, "one");
    write_text(top, "top");
    write_text(two, "two");
    write_text(other_one, "other");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    umask(old);
    cr_assert_eq(scratch_count(dir), 1);
    cr_assert_eq(scratch_count(path), 3);
    expect_content("out/in/one", "one");
    expect_content("out/in/two", "two");
    expect_content("out/inner/one", "other");
    expect_content("out/top", "top");
    cr_assert_eq(mode_of("out/in"), 0750);
    cr_assert_eq(mode_of("out/in/one"), 0640);
}

Test(output, folders_inside_are_removed_with_the_output)
{
    begin_kind(OUTPUT_FOLDER, 0);
    write_text(add("in/one", 3, false), "one");
    output_release(&out);
    cr_assert_eq(scratch_count(dir), 0);
}

Test(output, bad_names_inside)
{
    static const char *const rows[] = {"",    ".",    "..",  "/a",   "a/",    "a//b",
                                       "./a", "../a", "a/.", "a/..", "a/b/c", "a/../b"};
    size_t index;
    begin_kind(OUTPUT_FOLDER, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(output_add(&out, rows[i], 1, false, &index, &err), FSDPCK_INTERNAL, "'%s'",
                     rows[i]);
    add("taken", 1, false);
    cr_assert_neq(output_add(&out, "taken/one", 1, false, &index, &err), FSDPCK_OK);
    add("in/one", 1, false);
    cr_assert_eq(output_add(&out, "in/one", 1, false, &index, &err), FSDPCK_INTERNAL, "twice");
    cr_assert_neq(output_add(&out, "in", 1, false, &index, &err), FSDPCK_OK);
}

Test(output, at_most_so_many_folders_inside)
{
    char name[16];
    size_t index;
    begin_kind(OUTPUT_FOLDER, 0);
    for (unsigned i = 0; i < OUTPUT_SUBS_MOST; i++) {
        snprintf(name, sizeof(name), "d%u/f", i);
        add(name, 1, false);
    }
    cr_assert_eq(output_add(&out, "more/f", 1, false, &index, &err), FSDPCK_INTERNAL);
    add("d0/g", 1, false);
}

Test(output, bad_names)
{
    static const char *const rows[] = {"", "/", ".", "..", "a/..", "//", "a/."};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(output_begin(&out, rows[i], OUTPUT_FILE, 0, &err), FSDPCK_USAGE, "'%s'",
                     rows[i]);
    cr_assert_eq(output_begin(&out, scratch_path(other, dir, "none/out"), OUTPUT_FILE, 0, &err),
                 FSDPCK_IO);
    cr_assert_eq(scratch_count(dir), 0);
}

Test(output, names_with_slashes_behind_and_names_of_full_length)
{
    strcat(path, "//");
    begin_kind(OUTPUT_FOLDER, 0);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(mode_of("out"), 0777 & ~0022);
    char name[300];
    memset(name, 'n', sizeof(name));
    name[255] = '\0';
    cr_assert_eq(output_begin(&out, scratch_path(path, dir, name), OUTPUT_FILE, 0, &err),
                 FSDPCK_OK);
    add("", 0, false);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(access(path, F_OK), 0);
    name[255] = 'n';
    name[256] = '\0';
    cr_assert_eq(output_begin(&out, scratch_path(path, dir, name), OUTPUT_FILE, 0, &err),
                 FSDPCK_IO);
}

Test(output, misuse_is_an_internal_error)
{
    size_t index;
    begin_kind(OUTPUT_FILE, 0);
    cr_assert_eq(output_add(&out, "name", 1, false, &index, &err), FSDPCK_INTERNAL);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_INTERNAL, "without its file");
    cr_assert_eq(scratch_count(dir), 0);
    begin_kind(OUTPUT_FOLDER, 0);
    static const char *const rows[] = {"", ".", "..", "a/b/c", "/a"};
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(output_add(&out, rows[i], 1, false, &index, &err), FSDPCK_INTERNAL);
    add("a", 0, false);
    cr_assert_eq(output_add(&out, "a", 1, false, &index, &err), FSDPCK_INTERNAL);
    output_release(&out);
    cr_assert_eq(scratch_count(dir), 0);
}

Test(output, space_that_is_not_there_is_told_at_once)
{
    size_t index;
    begin_kind(OUTPUT_FILE, 0);
    cr_assert_eq(output_add(&out, "", UINT64_C(1) << 52, true, &index, &err), FSDPCK_NOSPACE, "%s",
                 err.message);
    cr_assert(strstr(err.expected, "4503599627370496") != NULL);
    output_release(&out);
    begin_kind(OUTPUT_FILE, 0);
    cr_assert_eq(output_add(&out, "", UINT64_MAX, true, &index, &err), FSDPCK_NOSPACE);
    output_release(&out);
    cr_assert_eq(scratch_count(dir), 0);
}

Test(output, the_limit_on_file_sizes_is_no_space_and_no_signal)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 100000;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    size_t index;
    begin_kind(OUTPUT_FILE, 0);
    cr_assert_eq(output_add(&out, "", 100001, false, &index, &err), FSDPCK_NOSPACE);
    cr_assert(strstr(err.found, "100000") != NULL);
}

Test(output, a_setgid_parent_is_heard)
{
    cr_assert_eq(chmod(dir, 02770), 0);
    begin_kind(OUTPUT_FOLDER, 0);
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & S_ISGID, S_ISGID);
}

Test(output, no_sync_gives_the_same_output)
{
    begin_kind(OUTPUT_FOLDER, OUTPUT_NO_SYNC);
    write_text(add("a", 5, false), "hello");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK);
    expect_content("out/a", "hello");
}

Test(output, remove_tree_of_any_depth, .timeout = 60)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    const int top = fd;
    for (int i = 0; i < 2000; i++) {
        cr_assert_eq(mkdirat(fd, "a-name-of-some-length", 0700), 0);
        const int inner = openat(fd, "a-name-of-some-length", O_RDONLY | O_DIRECTORY);
        cr_assert_eq(mkdirat(inner, "side", 0700), 0);
        close(openat(inner, "file", O_CREAT | O_WRONLY, 0600));
        if (fd != top)
            close(fd);
        fd = inner;
    }
    close(fd);
    cr_assert_eq(remove_tree(top, "a-name-of-some-length"), 0);
    cr_assert_eq(remove_tree(top, "a-name-of-some-length"), 0, "absence is fine");
    cr_assert_eq(scratch_count(dir), 0);
    close(top);
}

/* Publishes, then takes it back: `old` (NULL: nothing) is there as before, and nothing else. */
static void expect_withdrawn(output_kind kind, const char *old)
{
    const bool is_folder = kind == OUTPUT_FOLDER;
    begin_kind(kind, old != NULL ? OUTPUT_REPLACE : 0);
    write_text(add(is_folder ? "x" : "", 3, false), "new");
    cr_assert_eq(output_finish(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(scratch_count_ending(dir, ".partial"), 1, "durable is not there yet");
    cr_assert_eq(output_publish(&out, &err), FSDPCK_OK, "%s", err.message);
    expect_content(is_folder ? "out/x" : "out", "new");
    output_rollback(&out);
    cr_assert_eq(scratch_count(dir), old != NULL);
    if (old != NULL)
        expect_content(is_folder ? "out/x" : "out", old);
    if (old != NULL && is_folder)
        cr_assert_eq(scratch_count(path), 1);
    output_rollback(&out);
    cr_assert_eq(scratch_count(dir), old != NULL, "a second time nothing happens");
}

Test(output, what_was_published_is_taken_back)
{
    expect_withdrawn(OUTPUT_FILE, NULL);
    expect_withdrawn(OUTPUT_FOLDER, NULL);
    scratch_write(dir, "out", "old", 3);
    expect_withdrawn(OUTPUT_FILE, "old");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    scratch_write(path, "x", "old", 3);
    expect_withdrawn(OUTPUT_FOLDER, "old");
}

Test(output, what_another_put_there_meanwhile_is_not_taken_back)
{
    begin_kind(OUTPUT_FILE, 0);
    write_text(add("", 3, false), "new");
    cr_assert_eq(output_finish(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(output_publish(&out, &err), FSDPCK_OK, "%s", err.message);
    scratch_write(dir, "theirs", "theirs", 6);
    cr_assert_eq(rename(scratch_path(other, dir, "theirs"), path), 0);
    output_rollback(&out);
    expect_content("out", "theirs");
}

/* As after two runs exchanged names with each other. */
Test(output, what_another_put_under_the_partial_name_stays)
{
    char partial[SCRATCH_BYTES], own[SCRATCH_BYTES];
    begin_kind(OUTPUT_FOLDER, OUTPUT_REPLACE);
    write_text(add("f0", 4, false), "mine");
    scratch_path(partial, dir, out.partial_name);
    cr_assert_eq(rename(partial, scratch_path(own, dir, "moved")), 0);
    cr_assert_eq(mkdir(partial, 0700), 0);
    output_release(&out);
    cr_expect_eq(access(partial, F_OK), 0, "the folder of another program was removed");
    cr_expect_eq(access(own, F_OK), 0);
}

Test(output, what_is_replaced_goes_last)
{
    scratch_write(dir, "out", "old", 3);
    begin_kind(OUTPUT_FILE, OUTPUT_REPLACE);
    write_text(add("", 3, false), "new");
    cr_assert_eq(output_finish(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(output_publish(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(scratch_count(dir), 2);
    expect_content("out", "new");
    cr_assert_eq(output_remove_replaced(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(scratch_count(dir), 1);
}

Test(output, files_of_others_count_and_are_none)
{
    size_t index;
    begin_kind(OUTPUT_FOLDER, 0);
    cr_assert_eq(output_add_none(&out, &index, &err), FSDPCK_OK);
    cr_assert_eq(index, 0);
    write_text(add("own", 3, false), "own");
    cr_assert_eq(output_add_none(&out, &index, &err), FSDPCK_OK);
    cr_assert_eq(index, 2);
    cr_assert_eq(output_file_nbytes(&out, 1), 3);
    cr_assert_str_eq(output_file_name(&out, 1), "own");
    cr_assert_str_eq(output_file_name(&out, add("sub/inner", 0, false)), "sub/inner");
    cr_assert_eq(output_commit(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(scratch_count(path), 2);
    expect_content("out/own", "own");
}

/* Other processes that wrote it are notified of a failure before or after the rollback. */
static void expect_abandon_leaves_old(output_kind kind)
{
    const bool is_folder = kind == OUTPUT_FOLDER;
    output joined;
    size_t index;
    begin_kind(kind, OUTPUT_REPLACE | OUTPUT_SHARED);
    add(is_folder ? "x" : "", 3, false);
    cr_assert_eq(output_join(&joined, path, kind, 0, out.partial_name, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_assert_eq(output_add(&joined, is_folder ? "x" : "", 3, false, &index, &err), FSDPCK_OK);
    cr_assert_eq(output_write_at(&joined, index, 0, "new", 3, &err), FSDPCK_OK);
    cr_assert_eq(output_flush(&joined, &err), FSDPCK_OK);
    cr_assert_eq(output_finish(&out, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(output_publish(&out, &err), FSDPCK_OK, "%s", err.message);
    output_abandon(&joined);
    output_rollback(&out);
    output_release(&joined);
    cr_assert_eq(scratch_count(dir), 1);
    expect_content(is_folder ? "out/x" : "out", "old");
}

Test(output, what_is_abandoned_is_never_what_was_replaced)
{
    scratch_write(dir, "out", "old", 3);
    expect_abandon_leaves_old(OUTPUT_FILE);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    scratch_write(path, "x", "old", 3);
    expect_abandon_leaves_old(OUTPUT_FOLDER);
}
