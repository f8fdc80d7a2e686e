#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child_confine.h"

#define POLL_MILLISECONDS 100
/* Any other status comes from a library or a sanitizer. */
#define EXIT_OF_FAILED 1

static void limit(int resource, rlim_t most)
{
    struct rlimit r;
    if (getrlimit(resource, &r) != 0)
        return;
    if (r.rlim_max == RLIM_INFINITY || r.rlim_max > most)
        r.rlim_max = most;
    if (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > r.rlim_max)
        r.rlim_cur = r.rlim_max;
    (void)setrlimit(resource, &r);
}

/* Inherited handlers set flags that the child does not check. Those of a sanitizer would end it
 * with an exit status of their own. */
static void reset_signals(void)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU,
                                  SIGXFSZ, SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGABRT};
    struct sigaction normal;
    sigset_t none;
    memset(&normal, 0, sizeof normal);
    normal.sa_handler = SIG_DFL;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)sigaction(signals[i], &normal, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool run(const child_limits *limits, child_fn fn, void *ctx, int in_fd, int out_fd)
{
    reset_signals();
    confine_memory(limits->memory_nbytes);
    confine_close_others(in_fd, out_fd);
    /* With a limit of 1 the kernel also gives no core to a program that collects them. */
    limit(RLIMIT_CORE, 1);
    limit(RLIMIT_FSIZE, 0);
    /* SIGXCPU at the limit, SIGKILL at the hard one. */
    limit(RLIMIT_CPU, (rlim_t)limits->cpu_seconds + 1);
    struct rlimit cpu;
    if (getrlimit(RLIMIT_CPU, &cpu) == 0 && cpu.rlim_cur > limits->cpu_seconds) {
        cpu.rlim_cur = limits->cpu_seconds;
        (void)setrlimit(RLIMIT_CPU, &cpu);
    }
    limit(RLIMIT_NOFILE, 0);
    return confine_calls() && fn(ctx, in_fd, out_fd);
}

fsdpck_status child_start(child *c, const child_limits *limits, child_fn fn, void *ctx, int in_fd,
                          const cancel_token *cancel, fsdpck_error *err)
{
    int ends[2];
    *c = (child){.fd = -1, .silent_seconds = limits->silent_seconds, .cancel = cancel};
    if (pipe(ends) != 0)
        return error_set_errno(err, errno, "pipe", NULL);
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(run(limits, fn, ctx, in_fd, ends[1]) ? 0 : EXIT_OF_FAILED);
    const int why = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_set_errno(err, why, "fork", NULL);
    }
    c->pid = pid;
    c->fd = ends[0];
    return FSDPCK_OK;
}

static fsdpck_status wait_for_word(const child *c, fsdpck_error *err)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    RETURN_IF(cancel_check(c->cancel, err));
    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        const int ready = poll(&p, 1, POLL_MILLISECONDS);
        if (ready > 0)
            return FSDPCK_OK;
        if (ready < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll", NULL);
        RETURN_IF(cancel_check(c->cancel, err));
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begin.tv_sec > (time_t)c->silent_seconds)
            return FAIL_WITH(err, LIMIT, NONE, ("process that reads the file does not respond"),
                             (expected, "a response within %u s", c->silent_seconds));
    }
}

static uint64_t take_held(child *c, uint8_t *dst, uint64_t nbytes)
{
    const unsigned left = c->held_nbytes - c->held_at;
    const unsigned n = nbytes < left ? (unsigned)nbytes : left;
    if (n > 0)
        memcpy(dst, c->held + c->held_at, n);
    c->held_at += n;
    if (c->held_at == c->held_nbytes)
        c->held_at = c->held_nbytes = 0;
    return n;
}

fsdpck_status child_read(child *c, void *dst, uint64_t nbytes, uint64_t *got, fsdpck_error *err)
{
    uint8_t *p = dst;
    *got = 0;
    while (*got < nbytes) {
        *got += take_held(c, p + *got, nbytes - *got);
        if (*got == nbytes)
            break;
        RETURN_IF(wait_for_word(c, err));
        const bool hold = nbytes - *got < sizeof c->held;
        const ssize_t n =
            hold ? read(c->fd, c->held, sizeof c->held) : read(c->fd, p + *got, nbytes - *got);
        if (n == 0) {
            c->ended = true;
            break;
        }
        if (n > 0 && hold)
            c->held_nbytes = (unsigned)n;
        else if (n > 0)
            *got += (uint64_t)n;
        else if (errno != EINTR && errno != EAGAIN)
            return error_set_errno(err, errno, "read", NULL);
    }
    return FSDPCK_OK;
}

child_fate child_end(child *c)
{
    int status = 0;
    if (c->pid <= 0)
        return CHILD_DONE;
    close(c->fd);
    /* A child that has written everything is about to end. A caller that read to the end needs its
     * exit status; any other caller does not. */
    siginfo_t info = {0};
    struct timespec pause = {.tv_nsec = 1000000};
    for (unsigned i = 0; i < 50 && info.si_pid == 0; i++) {
        if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
        if (info.si_pid == 0)
            nanosleep(&pause, NULL);
    }
    if (info.si_pid == 0)
        (void)kill((pid_t)c->pid, SIGKILL);
    while (waitpid((pid_t)c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    c->pid = 0;
    c->fd = -1;
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGXCPU ? CHILD_OUT_OF_TIME : CHILD_CRASHED;
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 0)
        return CHILD_DONE;
    return WEXITSTATUS(status) == EXIT_OF_FAILED ? CHILD_FAILED : CHILD_CRASHED;
}

bool child_write(int out_fd, const void *bytes, uint64_t nbytes)
{
    const uint8_t *p = bytes;
    while (nbytes > 0) {
        const ssize_t n = write(out_fd, p, nbytes);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            p += n;
            nbytes -= (uint64_t)n;
        }
    }
    return true;
}
