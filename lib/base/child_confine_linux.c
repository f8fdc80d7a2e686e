#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/child_confine.h"

#define DESCRIPTORS_MAX 65536u
/* More than any process has, and the precision of the search for the space in use. */
#define ADDRESSES_MAX      ((uint64_t)1 << 57)
#define TAKEN_EXACT_NBYTES ((uint64_t)1 << 20)

/* Of descriptors [first, last]. */
static void close_range_of(unsigned first, unsigned last)
{
    if (first > last)
        return;
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
#endif
    struct rlimit r;
    unsigned end = DESCRIPTORS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < DESCRIPTORS_MAX)
        end = (unsigned)r.rlim_cur;
    for (unsigned fd = first; fd < end && fd <= last; fd++)
        close((int)fd);
}

void confine_close_others(int one, int two)
{
    const unsigned low = (unsigned)(one < two ? one : two);
    const unsigned high = (unsigned)(one < two ? two : one);
    if (low > 0)
        close_range_of(0, low - 1);
    close_range_of(low + 1, high - 1);
    close_range_of(high + 1, ~0u);
}

/* Whether one more page can be mapped under this limit. */
static bool has_room(struct rlimit r, uint64_t nbytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    r.rlim_cur = nbytes;
    if (setrlimit(RLIMIT_AS, &r) != 0)
        return true;
    void *one = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (one != MAP_FAILED)
        munmap(one, page);
    return one != MAP_FAILED;
}

/* Finds the space in use without /proc, by trying limits: a sanitizer or a device driver may use
 * terabytes of addresses. */
void confine_memory(uint64_t nbytes)
{
    struct rlimit r;
    uint64_t low = 0, high = ADDRESSES_MAX;
    if (getrlimit(RLIMIT_AS, &r) != 0)
        return;
    const rlim_t before = r.rlim_cur;
    high = r.rlim_max < high ? r.rlim_max : high;
    while (high - low > TAKEN_EXACT_NBYTES) {
        const uint64_t middle = low + (high - low) / 2;
        if (has_room(r, middle))
            high = middle;
        else
            low = middle;
    }
    if (before > high && before - high > nbytes)
        r.rlim_cur = r.rlim_max = high + nbytes;
    (void)setrlimit(RLIMIT_AS, &r);
}

#if defined(__x86_64__)
#define CALLS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define CALLS_ARCH AUDIT_ARCH_AARCH64
#endif

#define LOAD(field) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(what)     BPF_STMT(BPF_RET | BPF_K, (what))
#define DENY             RETURN(SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA))
#define ALLOW            RETURN(SECCOMP_RET_ALLOW)
#define ALLOW_CALL(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), ALLOW
/* The third argument without these bits. */
#define ALLOW_WITHOUT(name, bits)                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 4), LOAD(args[2]), \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, 1), DENY, ALLOW

/* Removed from newer architectures. */
#ifdef SYS_time
#define ALLOW_OLD_CALLS ALLOW_CALL(time),
#else
#define ALLOW_OLD_CALLS
#endif

bool confine_calls(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef CALLS_ARCH
    static const struct sock_filter rules[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS_ARCH, 1, 0),
        DENY,
        LOAD(nr),
        ALLOW_CALL(read),
        ALLOW_CALL(pread64),
        ALLOW_CALL(write),
        ALLOW_CALL(lseek),
        ALLOW_CALL(brk),
        ALLOW_CALL(futex),
        ALLOW_CALL(munmap),
        ALLOW_CALL(mremap),
        ALLOW_CALL(madvise),
        ALLOW_CALL(close),
        ALLOW_OLD_CALLS ALLOW_CALL(clock_gettime),
        ALLOW_CALL(gettimeofday),
        ALLOW_CALL(getrusage),
        ALLOW_CALL(getrandom),
        ALLOW_CALL(getpid),
        ALLOW_CALL(gettid),
        ALLOW_CALL(getuid),
        ALLOW_CALL(sched_yield),
        ALLOW_CALL(sigaltstack),
        ALLOW_CALL(rt_sigaction),
        ALLOW_CALL(rt_sigprocmask),
        ALLOW_CALL(rt_sigreturn),
        ALLOW_CALL(tgkill),
        ALLOW_CALL(exit),
        ALLOW_CALL(exit_group),
        /* No executable mappings. */
        ALLOW_WITHOUT(mmap, PROT_EXEC),
        ALLOW_WITHOUT(mprotect, PROT_EXEC),
        DENY,
    };
    const struct sock_fprog program = {sizeof rules / sizeof rules[0], (struct sock_filter *)rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    /* A kernel without filters, or a container that forbids them, has only the limits. */
    (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
#endif
    return true;
}
