#include "base/child.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const child_limits limits = {
    .memory_nbytes = (uint64_t)64 << 20, .cpu_seconds = 1, .silent_seconds = 20};

static int some_file(void)
{
    const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

/* What `fn` writes, and how it ended. */
static child_fate run(child_fn fn, void *ctx, const child_limits *l, char text[64])
{
    child c;
    fsdpck_error err;
    uint64_t got = 0;
    const int fd = some_file();
    memset(text, 0, 64);
    cr_assert_eq(child_start(&c, l, fn, ctx, fd, NULL, &err), FSDPCK_OK);
    cr_assert_eq(child_read(&c, text, 63, &got, &err), FSDPCK_OK);
    close(fd);
    const child_fate fate = child_end(&c);
    cr_assert_eq(child_end(&c), CHILD_DONE);
    return fate;
}

static bool tell(int out_fd, const char *text)
{
    return child_write(out_fd, text, strlen(text));
}

static bool speaks(void *ctx, int in_fd, int out_fd)
{
    (void)in_fd;
    return tell(out_fd, "one ") && tell(out_fd, ctx);
}

static bool fails(void *ctx, int in_fd, int out_fd)
{
    (void)ctx;
    (void)in_fd;
    return tell(out_fd, "no") && false;
}

static bool crashes(void *ctx, int in_fd, int out_fd)
{
    (void)ctx;
    (void)in_fd;
    (void)tell(out_fd, "before");
    raise(SIGSEGV);
    return true;
}

static bool burns(void *ctx, int in_fd, int out_fd)
{
    volatile uint64_t n = 0;
    (void)ctx;
    (void)in_fd;
    (void)out_fd;
    for (;;)
        n = n + 1;
    return true;
}

static bool waits(void *ctx, int in_fd, int out_fd)
{
    (void)ctx;
    (void)in_fd;
    (void)out_fd;
    for (;;)
        usleep(1000); /* which a filter of calls may refuse: then it burns */
    return true;
}

Test(child, what_it_writes_is_read)
{
    char text[64];
    cr_assert_eq(run(speaks, "two", &limits, text), CHILD_DONE);
    cr_assert_str_eq(text, "one two");
}

Test(child, its_end_is_told)
{
    char text[64];
    cr_assert_eq(run(fails, NULL, &limits, text), CHILD_FAILED);
    cr_assert_str_eq(text, "no");
    cr_assert_eq(run(crashes, NULL, &limits, text), CHILD_CRASHED);
    cr_assert_str_eq(text, "before");
}

Test(child, processor_time_is_bounded, .timeout = 20)
{
    char text[64];
    cr_assert_eq(run(burns, NULL, &limits, text), CHILD_OUT_OF_TIME);
}

Test(child, silence_is_bounded_and_cancel_is_heard, .timeout = 20)
{
    const child_limits short_ones = {
        .memory_nbytes = (uint64_t)64 << 20, .cpu_seconds = 60, .silent_seconds = 1};
    cancel_token cancel = {0};
    fsdpck_error err;
    uint64_t got;
    char byte;
    child c;
    const int fd = some_file();
    cr_assert_eq(child_start(&c, &short_ones, waits, NULL, fd, &cancel, &err), FSDPCK_OK);
    cr_assert_eq(child_read(&c, &byte, 1, &got, &err), FSDPCK_LIMIT);
    cr_assert(strstr(err.message, "does not respond") != NULL);
    child_end(&c);
    atomic_store(&cancel.set, 1);
    cr_assert_eq(child_start(&c, &limits, waits, NULL, fd, &cancel, &err), FSDPCK_OK);
    cr_assert_eq(child_read(&c, &byte, 1, &got, &err), FSDPCK_CANCELLED);
    child_end(&c);
    close(fd);
}

/* A letter for each thing that it could do. */
static bool tries(void *ctx, int in_fd, int out_fd)
{
    char path[64], byte, could[16] = "";
    size_t n = 0;
    struct stat s;
    const int other = *(int *)ctx;
    snprintf(path, sizeof path, "/dev/fd/%d", in_fd);
    if (read(in_fd, &byte, 1) == 1)
        could[n++] = 'r';
    if (open(path, O_RDONLY) >= 0)
        could[n++] = 'a';
    if (open("/dev/null", O_RDONLY) >= 0)
        could[n++] = 'o';
    if (open("/dev/null", O_WRONLY) >= 0)
        could[n++] = 'w';
    if (stat("/dev/null", &s) == 0)
        could[n++] = 'f';
    if (dup(in_fd) >= 0)
        could[n++] = 'u';
    if (read(other, &byte, 1) >= 0)
        could[n++] = 'd';
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0)
        could[n++] = 's';
    void *much = malloc((size_t)512 << 20);
    if (much != NULL)
        could[n++] = 'm';
    free(much);
    /* The portable twin has no filter of calls, and never asked for one. */
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)
        could[n++] = 'p';
    return tell(out_fd, could);
}

Test(child, it_can_read_its_file_and_nothing_else)
{
    char text[64];
    int other = open("/dev/zero", O_RDONLY);
    cr_assert_geq(other, 0);
    cr_assert_eq(run(tries, &other, &limits, text), CHILD_DONE);
    /* What the build has tells, not the child: one without its filter would be taken for the other. */
    if (strcmp(FSDPCK_TEST_PLATFORM, "linux") == 0)
        cr_assert_str_eq(text, "r", "could '%s'", text);
    else
        cr_assert(text[0] == 'r' && strpbrk(text, "aowuds") == NULL, "could '%s'", text);
    close(other);
}
