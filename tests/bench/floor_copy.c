/* floor_copy: the plainest copier there is, to measure fsdpck against: the bytes of the sources,
 * one after the other, into one new file; preallocated, two threads, tiles of 8 MiB, fsync
 * included.
 *
 *     floor_copy [--buffered] [--no-sync] [--threads N] SRC... DST
 *     floor_copy --read [--threads N] SRC...         reads them, into buffers of 1 MiB, and that is all
 *
 * Prints seconds and GB/s. Refuses an existing DST.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TILE    ((uint64_t)8 << 20)
#define PIECE   ((uint64_t)1 << 20) /* that is only read: it stays in the cache */
#define SOURCES 1024

typedef struct copier {
    int src[SOURCES];
    uint64_t begin[SOURCES + 1]; /* of each source in the output */
    int nsources;
    int dst;
    bool direct;
    bool only_read;
    _Atomic uint64_t next;
} copier;

static void fail(const char *what)
{
    fprintf(stderr, "floor_copy: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void read_range(const copier *c, uint64_t begin, uint64_t end, uint8_t *to)
{
    for (int i = 0; i < c->nsources; i++) {
        uint64_t at = begin > c->begin[i] ? begin : c->begin[i];
        const uint64_t stop = end < c->begin[i + 1] ? end : c->begin[i + 1];
        while (at < stop) {
            const ssize_t n =
                pread(c->src[i], to + (at - begin), stop - at, (off_t)(at - c->begin[i]));
            if (n <= 0)
                fail("read");
            at += (uint64_t)n;
        }
    }
}

static void *work(void *ctx)
{
    copier *c = ctx;
    const uint64_t total = c->begin[c->nsources];
    uint8_t *tile = aligned_alloc(4096, TILE);
    if (tile == NULL)
        fail("memory");
    const uint64_t step = c->only_read ? PIECE : TILE;
    for (;;) {
        const uint64_t at = atomic_fetch_add(&c->next, step);
        if (at >= total)
            break;
        const uint64_t n = total - at < step ? total - at : step;
        read_range(c, at, at + n, tile);
        if (c->only_read)
            continue;
        const uint64_t padded = c->direct ? (n + 4095) / 4096 * 4096 : n;
        memset(tile + n, 0, padded - n);
        if (pwrite(c->dst, tile, padded, (off_t)at) != (ssize_t)padded)
            fail("write");
    }
    free(tile);
    return NULL;
}

static void open_output(copier *c, const char *name, uint64_t total)
{
    c->dst = open(name, O_RDWR | O_CREAT | O_EXCL | (c->direct ? O_DIRECT : 0), 0666);
    if (c->dst < 0)
        fail(name);
    if (fallocate(c->dst, 0, 0, (off_t)total) != 0 && errno != EOPNOTSUPP)
        fail("fallocate");
}

int main(int argc, char **argv)
{
    static copier c;
    pthread_t threads[64];
    struct timespec start, end;
    int nthreads = 2;
    bool sync = true;
    const char *names[SOURCES + 1];
    int count = 0;
    c.direct = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--buffered") == 0)
            c.direct = false;
        else if (strcmp(argv[i], "--direct") == 0)
            c.direct = true;
        else if (strcmp(argv[i], "--read") == 0)
            c.only_read = true;
        else if (strcmp(argv[i], "--no-sync") == 0)
            sync = false;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            nthreads = atoi(argv[++i]);
        else if (count <= SOURCES)
            names[count++] = argv[i];
    }
    if (count < (c.only_read ? 1 : 2) || nthreads < 1 || nthreads > 64) {
        fprintf(stderr, "usage: floor_copy [--buffered] [--no-sync] [--threads N] SRC... DST\n"
                        "       floor_copy --read [--threads N] SRC...\n");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    c.nsources = c.only_read ? count : count - 1;
    for (int i = 0; i < c.nsources; i++) {
        struct stat st;
        c.src[i] = open(names[i], O_RDONLY);
        if (c.src[i] < 0 || fstat(c.src[i], &st) != 0)
            fail(names[i]);
        c.begin[i + 1] = c.begin[i] + (uint64_t)st.st_size;
    }
    const uint64_t total = c.begin[c.nsources];
    if (!c.only_read)
        open_output(&c, names[count - 1], total);
    for (int i = 0; i < nthreads; i++)
        if (pthread_create(&threads[i], NULL, work, &c) != 0)
            fail("thread");
    for (int i = 0; i < nthreads; i++)
        pthread_join(threads[i], NULL);
    if (!c.only_read &&
        (ftruncate(c.dst, (off_t)total) != 0 || (sync && fsync(c.dst) != 0) || close(c.dst) != 0))
        fail("finish");
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds =
        (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    printf("%.3f s  %.2f GB/s  %" PRIu64 " bytes\n", seconds, (double)total / seconds / 1e9, total);
    return 0;
}
