/* prop_output: an output is absent or complete under its final name, whatever fails or kills.
 *
 *     kill    the writing process kills itself before its k-th system call, for every k, and is
 *             killed from outside at random moments
 *     fault   the k-th system call fails, for every k and several errors: an orderly failure
 *             leaves nothing, and with OUTPUT_REPLACE the old output as it was
 *     retry   EINTR and short writes change nothing
 *     poor    all of it again as on a file system that cannot reserve, exchange, rename without
 *             replacing, or write directly
 *     race    two processes write the same name: one wins, the other gets EXISTS
 *
 * The calls that change files are defined here, in front of libc's; they count, fail or kill, and
 * else make the real system call. */
#define _GNU_SOURCE 1

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/output.h"
#include "tests/support/scratch.h"
#include "tests/support/seconds.h"
#include "tests/support/stride.h"

enum { BIG_BYTES = 3 * 4096 + 77, SMALL_BYTES = 1000, CALLS_MAX = 500, RANDOM_KILLS = 60 };

enum act { ACT_NOTHING, ACT_FAIL, ACT_KILL, ACT_SHORT };

static bool poor;

static struct {
    int armed;
    _Atomic int calls; /* so far; files of a folder are finished by several threads */
    int at;            /* act on this one; 0: on every call */
    enum act act;
    int sys_errno;
    _Atomic bool must_tell; /* a call was struck whose failure may not be passed over */
} plan;

/* What a call may be made to fail with. */
enum { CLEANS = 0, FAILS = 1, RESTARTS = 2, TELLS = 4 };

/* Whether the call is to fail; plan.sys_errno says how. */
static bool strike(unsigned can)
{
    if (!plan.armed)
        return false;
    const int call = ++plan.calls;
    if (plan.at != 0 && call != plan.at)
        return false;
    if (plan.act == ACT_KILL)
        kill(getpid(), SIGKILL);
    if (plan.act != ACT_FAIL || (can & (plan.sys_errno == EINTR ? RESTARTS : FAILS)) == 0)
        return false;
    if ((can & TELLS) != 0 && plan.sys_errno != EINTR)
        plan.must_tell = true;
    errno = plan.sys_errno;
    return true;
}

static bool lacks(int sys_errno)
{
    if (poor)
        errno = sys_errno;
    return poor;
}

int openat(int dirfd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    /* Reading is not tested here; folders opened for removal must open. */
    const bool writes = (flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0;
    /* Without direct writing it goes on. */
    if (writes && strike(FAILS | RESTARTS | ((flags & O_DIRECT) != 0 ? 0 : TELLS)))
        return -1;
    if ((flags & O_DIRECT) != 0 && lacks(EINVAL))
        return -1;
    return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    return strike(TELLS | FAILS) ? -1 : (int)syscall(SYS_mkdirat, dirfd, path, mode);
}

int fallocate(int fd, int mode, off_t offset, off_t nbytes)
{
    return strike(TELLS | FAILS | RESTARTS) || lacks(EOPNOTSUPP)
               ? -1
               : (int)syscall(SYS_fallocate, fd, mode, offset, nbytes);
}

int ftruncate(int fd, off_t nbytes)
{
    return strike(TELLS | FAILS | RESTARTS) ? -1 : (int)syscall(SYS_ftruncate, fd, nbytes);
}

int fchmod(int fd, mode_t mode)
{
    return strike(TELLS | FAILS) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int fsync(int fd)
{
    return strike(TELLS | FAILS | RESTARTS) ? -1 : (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
    /* As the kernel does it: the descriptor is gone, whatever is returned. */
    const bool written = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    const bool fails = strike(FAILS | RESTARTS | (written ? TELLS : 0));
    const int sys_errno = errno;
    const int rc = (int)syscall(SYS_close, fd);
    errno = fails ? sys_errno : errno;
    return fails ? -1 : rc;
}

ssize_t pwrite(int fd, const void *src, size_t nbytes, off_t offset)
{
    if (strike(TELLS | FAILS | RESTARTS))
        return -1;
    if (plan.armed && plan.act == ACT_SHORT && nbytes > 1)
        nbytes = nbytes / 2;
    return (ssize_t)syscall(SYS_pwrite64, fd, src, nbytes, offset);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return strike(TELLS | FAILS) || lacks(EINVAL)
               ? -1
               : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return strike(TELLS | FAILS) ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return strike(FAILS) ? -1 : (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
}

int unlinkat(int dirfd, const char *path, int flags)
{
    /* Cleaning up cannot be promised where cleaning up fails: kills only. */
    (void)strike(CLEANS);
    return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

static char dir[SCRATCH_BYTES];
static char final_path[SCRATCH_BYTES];

struct shape {
    const char *name;
    output_kind kind;
    unsigned flags;
    bool old; /* something is there before */
};

static const struct shape shapes[] = {
    {"file", OUTPUT_FILE, 0, false},
    {"folder", OUTPUT_FOLDER, 0, false},
    {"file over file", OUTPUT_FILE, OUTPUT_REPLACE, true},
    {"folder over folder", OUTPUT_FOLDER, OUTPUT_REPLACE, true},
};

static void fail(const struct shape *s, const char *what, const char *how, int k)
{
    fprintf(stderr, "prop_output: %s: %s, %s at call %d\n", s->name, what, how, k);
    exit(1);
}

static uint8_t byte_at(uint64_t i, int generation)
{
    return (uint8_t)(i * 13 + i / 251 + (uint64_t)generation * 101);
}

static fsdpck_status put(output *out, const char *name, uint64_t nbytes, int generation,
                         fsdpck_error *err)
{
    size_t index;
    RETURN_IF(output_add(out, name, nbytes, nbytes == BIG_BYTES, &index, err));
    const size_t padded = (nbytes + 4095) / 4096 * 4096;
    uint8_t *b = aligned_alloc(4096, padded);
    if (b == NULL)
        return error_set_nomem(err, padded);
    for (size_t i = 0; i < padded; i++)
        b[i] = byte_at(i, generation);
    fsdpck_status st;
    if (output_is_direct(out, index))
        st = output_write_direct(out, index, 0, b, padded, err);
    else
        st = output_write_at(out, index, 0, b, nbytes, err);
    free(b);
    return st;
}

static fsdpck_status write_output(const struct shape *s, int generation, fsdpck_error *err)
{
    output out;
    RETURN_IF(output_begin(&out, final_path, s->kind, s->flags, err));
    fsdpck_status st;
    if (s->kind == OUTPUT_FILE) {
        st = put(&out, "", BIG_BYTES, generation, err);
    } else {
        st = put(&out, "big", BIG_BYTES, generation, err);
        if (st == FSDPCK_OK)
            st = put(&out, "inner/big", BIG_BYTES, generation, err);
        if (st == FSDPCK_OK)
            st = put(&out, "small", SMALL_BYTES, generation, err);
        if (st == FSDPCK_OK)
            st = put(&out, "inner/small", SMALL_BYTES, generation, err);
    }
    if (st == FSDPCK_OK)
        st = output_commit(&out, err);
    output_release(&out);
    return st;
}

static bool is_complete_file(const char *path, uint64_t nbytes, int generation)
{
    char *have = NULL;
    size_t have_nbytes = 0;
    if (file_read_whole(NULL, path, 1 << 20, &have, &have_nbytes, NULL) != FSDPCK_OK)
        return false;
    bool same = have_nbytes == nbytes;
    for (size_t i = 0; same && i < nbytes; i++)
        same = (uint8_t)have[i] == byte_at(i, generation);
    free(have);
    return same;
}

/* A folder with a big and a small file, and `others` entries more. */
static bool is_complete_folder(const char *folder_path, size_t others, int generation)
{
    char path[SCRATCH_BYTES];
    struct stat st;
    return lstat(folder_path, &st) == 0 && S_ISDIR(st.st_mode) &&
           scratch_count(folder_path) == 2 + others &&
           is_complete_file(scratch_path(path, folder_path, "big"), BIG_BYTES, generation) &&
           is_complete_file(scratch_path(path, folder_path, "small"), SMALL_BYTES, generation);
}

static bool is_complete(const struct shape *s, int generation)
{
    char inner[SCRATCH_BYTES];
    if (s->kind == OUTPUT_FILE)
        return is_complete_file(final_path, BIG_BYTES, generation);
    return is_complete_folder(final_path, 1, generation) &&
           is_complete_folder(scratch_path(inner, final_path, "inner"), 0, generation);
}

static bool is_absent(void)
{
    struct stat st;
    return lstat(final_path, &st) != 0 && errno == ENOENT;
}

/* Generation 1 is old, 2 is new. */
static void start_over(const struct shape *s)
{
    fsdpck_error err;
    scratch_make(dir);
    scratch_path(final_path, dir, "out");
    if (s->old && write_output(s, 1, &err) != FSDPCK_OK)
        fail(s, err.message, "nothing", 0);
}

static void check_killed(const struct shape *s, const char *how, int k)
{
    const size_t leftovers =
        scratch_count_ending(dir, ".partial") + scratch_count_ending(dir, ".old");
    const bool there = !is_absent();
    if (scratch_count(dir) != leftovers + there)
        fail(s, "leftovers without their mark", how, k);
    if (there && !is_complete(s, 2) && !(s->old && is_complete(s, 1)))
        fail(s, "the final name is not complete", how, k);
    if (!there && s->old && scratch_count_ending(dir, ".old") == 0)
        fail(s, "the old output is gone", how, k);
}

/* Runs the writing in a child; returns its wait status. */
static int run_child(const struct shape *s, int at, useconds_t kill_after)
{
    const pid_t child = fork();
    if (child == 0) {
        plan.armed = at > 0;
        plan.calls = 0;
        plan.at = at;
        plan.act = ACT_KILL;
        fsdpck_error err;
        _exit(write_output(s, 2, &err) == FSDPCK_OK ? 0 : 1);
    }
    if (kill_after > 0) {
        usleep(kill_after);
        kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

static void kill_everywhere(const struct shape *s)
{
    int k = 1;
    for (;; k += (int)test_stride()) {
        start_over(s);
        const int status = run_child(s, k, 0);
        if (WIFSIGNALED(status))
            check_killed(s, "killed", k);
        else if (status != 0 || !is_complete(s, 2))
            fail(s, "a run without a kill failed", "killed", k);
        scratch_remove(dir);
        if (!WIFSIGNALED(status))
            break;
        if (k >= CALLS_MAX)
            fail(s, "no end of calls", "killed", k);
    }
    printf("prop_output: %s: killed before each of %d calls\n", s->name, k - 1);
    if (k < 8)
        fail(s, "too few calls were seen: the driver is not in front of libc", "killed", k);
}

static void kill_at_random(const struct shape *s, unsigned seed)
{
    start_over(s);
    const double begin = wall_seconds();
    run_child(s, 0, 0);
    const double whole = wall_seconds() - begin;
    scratch_remove(dir);
    const int kills = RANDOM_KILLS / (int)test_stride();
    int killed = 0;
    for (int i = 0; i < kills; i++) {
        start_over(s);
        seed = seed * 1664525u + 1013904223u;
        const double share = (double)(seed >> 8) / (1 << 24);
        const int status = run_child(s, 0, 1 + (useconds_t)(whole * share * 1e6));
        killed += WIFSIGNALED(status);
        check_killed(s, "killed at random", i);
        scratch_remove(dir);
    }
    printf("prop_output: %s: %d of %d runs killed at random\n", s->name, killed, kills);
}

static void check_failed(const struct shape *s, fsdpck_status st, const fsdpck_error *err, int k)
{
    if (err->status != st || err->message[0] == '\0')
        fail(s, "the error says nothing", "failing", k);
    if (s->old ? !is_complete(s, 1) : !is_absent())
        fail(s, "the old state is not there", "failing", k);
    if (scratch_count(dir) != (size_t)s->old)
        fail(s, "an orderly failure left something", "failing", k);
}

static void fail_everywhere(const struct shape *s, int sys_errno, fsdpck_status want)
{
    int failures = 0;
    for (int k = 1;; k++) {
        start_over(s);
        plan.calls = 0;
        plan.at = k;
        plan.act = ACT_FAIL;
        plan.sys_errno = sys_errno;
        plan.armed = 1;
        fsdpck_error err;
        fsdpck_error_init(&err);
        const fsdpck_status st = write_output(s, 2, &err);
        plan.armed = 0;
        const bool struck = plan.calls >= k;
        if (st == FSDPCK_OK && plan.must_tell)
            fail(s, "a failure was passed over", strerror(sys_errno), k);
        plan.must_tell = false;
        if (st == FSDPCK_OK && !is_complete(s, 2))
            fail(s, "called done, but it is not", strerror(sys_errno), k);
        if (st == FSDPCK_OK && scratch_count(dir) != 1)
            fail(s, "done, but something is left", strerror(sys_errno), k);
        if (st != FSDPCK_OK) {
            failures++;
            check_failed(s, st, &err, k);
            if (st != want && err.sys_errno == sys_errno)
                fail(s, fsdpck_status_name(st), strerror(sys_errno), k);
        }
        scratch_remove(dir);
        if (!struck)
            break;
    }
    printf("prop_output: %s: %d failures with '%s' were orderly\n", s->name, failures,
           strerror(sys_errno));
    if (failures < 6)
        fail(s, "too few failures were seen", strerror(sys_errno), failures);
}

static void retry(const struct shape *s)
{
    fsdpck_error err;
    start_over(s);
    plan.calls = 0;
    plan.at = 0;
    plan.act = ACT_SHORT;
    plan.armed = 1;
    const fsdpck_status st = write_output(s, 2, &err);
    plan.armed = 0;
    if (st != FSDPCK_OK || !is_complete(s, 2))
        fail(s, "short writes were not continued", "writing", 0);
    scratch_remove(dir);
    for (int k = 1; k <= plan.calls; k++) {
        start_over(s);
        plan.calls = 0;
        plan.at = k;
        plan.act = ACT_FAIL;
        plan.sys_errno = EINTR;
        plan.armed = 1;
        const fsdpck_status again = write_output(s, 2, &err);
        plan.armed = 0;
        if (again != FSDPCK_OK || !is_complete(s, 2))
            fail(s, "not made again after EINTR", "writing", k);
        scratch_remove(dir);
    }
}

static void race(const struct shape *s)
{
    int both[2] = {0, 0};
    for (int round = 0; round < 60; round += (int)test_stride()) {
        start_over(s);
        int gate[2];
        pid_t children[2];
        if (pipe(gate) != 0)
            exit(1);
        for (int i = 0; i < 2; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                char byte;
                fsdpck_error err;
                close(gate[1]);
                if (read(gate[0], &byte, 1) != 0)
                    _exit(99);
                _exit((int)write_output(s, 2 + i, &err));
            }
        }
        close(gate[0]);
        close(gate[1]); /* both start now */
        int codes[2];
        for (int i = 0; i < 2; i++) {
            int status = 0;
            waitpid(children[i], &status, 0);
            codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        const int winner = codes[0] == 0 ? 0 : 1;
        if (codes[winner] != 0 || codes[1 - winner] != FSDPCK_EXISTS)
            fail(s, "not one winner and one EXISTS", "racing", round);
        if (!is_complete(s, 2 + winner) || scratch_count(dir) != 1)
            fail(s, "the winner's output is not complete and alone", "racing", round);
        both[winner]++;
        scratch_remove(dir);
    }
    printf("prop_output: %s: races won %d to %d\n", s->name, both[0], both[1]);
}

int main(void)
{
    const size_t count = sizeof(shapes) / sizeof(shapes[0]);
    for (size_t n = 0; n < 2 * count; n++) {
        const size_t i = n % count;
        poor = n >= count;
        if (n == count)
            puts("prop_output: again on a poor file system");
        const struct shape *s = &shapes[i];
        kill_everywhere(s);
        fail_everywhere(s, EIO, FSDPCK_IO);
        fail_everywhere(s, ENOSPC, FSDPCK_NOSPACE);
        retry(s);
        kill_at_random(s, (unsigned)i + 1);
        if (!s->old)
            race(s);
    }
    return 0;
}
