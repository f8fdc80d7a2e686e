#include "tests/fuzz/faults.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

/* Of blocks of this size and more one is kept. */
#define KEPT_LEAST ((size_t)1 << 20)

/* Calls until the one that fails; 0: it has failed, or nothing is to. */
static atomic_uint left[FAULTS_KINDS];
static atomic_bool reached;

void *__real_malloc(size_t nbytes);
void *__real_calloc(size_t count, size_t nbytes);
void *__real_realloc(void *old, size_t nbytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t nbytes);
void *__real_aligned_alloc(size_t align, size_t nbytes);
void __real_free(void *block);
ssize_t __real_pread(int fd, void *dst, size_t nbytes, off_t at);
void *__wrap_malloc(size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes);
void *__wrap_realloc(void *old, size_t nbytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t nbytes);
void *__wrap_aligned_alloc(size_t align, size_t nbytes);
void __wrap_free(void *block);
ssize_t __wrap_pread(int fd, void *dst, size_t nbytes, off_t at);
ssize_t __wrap_pread64(int fd, void *dst, size_t nbytes, off_t at);

void faults_set(faults_kind kind, unsigned at)
{
    atomic_store(&reached, false);
    atomic_store(&left[kind], at);
}

bool faults_clear(void)
{
    for (int i = 0; i < FAULTS_KINDS; i++)
        atomic_store(&left[i], 0);
    return atomic_load(&reached);
}

static bool fails(faults_kind kind)
{
    unsigned n = atomic_load(&left[kind]);
    while (n > 0 && !atomic_compare_exchange_weak(&left[kind], &n, n - 1))
        ;
    if (n != 1)
        return false;
    if (kind == FAULTS_MEMORY_GONE)
        atomic_store(&left[kind], 1);
    atomic_store(&reached, true);
    errno = kind <= FAULTS_MEMORY_GONE ? ENOMEM : EIO;
    return true;
}

static bool memory_fails(void)
{
    return fails(FAULTS_MEMORY) || fails(FAULTS_MEMORY_GONE);
}

void *__wrap_malloc(size_t nbytes)
{
    return memory_fails() ? NULL : __real_malloc(nbytes);
}

void *__wrap_calloc(size_t count, size_t nbytes)
{
    return memory_fails() ? NULL : __real_calloc(count, nbytes);
}

void *__wrap_realloc(void *old, size_t nbytes)
{
    return memory_fails() ? NULL : __real_realloc(old, nbytes);
}

char *__wrap_strdup(const char *text)
{
    return memory_fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t nbytes)
{
    return memory_fails() ? NULL : __real_strndup(text, nbytes);
}

/* The buffer of the one worker: many MiB that few runs touch, but an address sanitizer marks and
 * unmarks it byte by byte. It is the most expensive part of a run, and is kept for the next run. */
static void *_Atomic kept, *_Atomic lent;
static size_t kept_nbytes, lent_nbytes;

void *__wrap_aligned_alloc(size_t align, size_t nbytes)
{
    if (memory_fails())
        return NULL;
    if (nbytes < KEPT_LEAST || atomic_load(&lent) != NULL)
        return __real_aligned_alloc(align, nbytes);
    void *block = kept_nbytes == nbytes ? atomic_exchange(&kept, NULL) : NULL;
    if (block == NULL)
        block = __real_aligned_alloc(align, nbytes);
    lent_nbytes = nbytes;
    atomic_store(&lent, block);
    return block;
}

void __wrap_free(void *block)
{
    if (block != NULL && block == atomic_load(&lent)) {
        kept_nbytes = lent_nbytes;
        block = atomic_exchange(&kept, block);
        atomic_store(&lent, NULL);
    }
    __real_free(block);
}

ssize_t __wrap_pread(int fd, void *dst, size_t nbytes, off_t at)
{
    if (fails(FAULTS_READ))
        return -1;
    return fails(FAULTS_SHORT) ? 0 : __real_pread(fd, dst, nbytes, at);
}

ssize_t __wrap_pread64(int fd, void *dst, size_t nbytes, off_t at)
{
    return __wrap_pread(fd, dst, nbytes, at);
}
