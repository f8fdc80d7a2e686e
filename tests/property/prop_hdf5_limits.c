/* HDF5 is written and read where there is too little: of file size, of room, of memory. Whatever the limit is,
 * it is told as what it is, nothing is left, nothing printed, and the process ends as it should. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/hdf5/hdf5.h"
#include "fsdpck.h"
#include "tests/support/job_parts.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"

enum { TENSORS = 3000 };
/* Of a child: 40 + what it returned. */
enum { STATUS_FROM = 40 };

static char input[SCRATCH_BYTES], out[SCRATCH_BYTES], said[SCRATCH_BYTES], whole[SCRATCH_BYTES];

/* TENSORS tensors of a float each, as safetensors. */
static void make_source(const char *scratch)
{
    const size_t capacity = 16 + TENSORS * 96;
    char *text = calloc(1, capacity);
    MUST(text != NULL);
    size_t at = 8;
    for (unsigned i = 0; i < TENSORS; i++)
        at += (size_t)snprintf(
            text + at, capacity - at,
            "%c\"layers.%u.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
            i == 0 ? '{' : ',', i, 4 * i, 4 * i + 4);
    text[at++] = '}';
    for (unsigned i = 0; i < 8; i++)
        text[i] = (char)((at - 8) >> (8 * i));
    text = realloc(text, at + 4 * TENSORS);
    MUST(text != NULL);
    memset(text + at, 1, 4 * TENSORS);
    scratch_write(scratch, "model.safetensors", text, at + 4 * TENSORS);
    free(text);
    (void)scratch_path(input, scratch, "model.safetensors");
    (void)scratch_path(said, scratch, "said");
    (void)scratch_path(whole, scratch, "whole.h5");
    (void)scratch_path(out, scratch, "out");
    MUST(mkdir(out, 0700) == 0);
}

static void limit_to(int resource, uint64_t most)
{
    struct rlimit r;
    MUST(getrlimit(resource, &r) == 0);
    r.rlim_cur = most;
    MUST(setrlimit(resource, &r) == 0);
}

static fsdpck_status write_hdf5(fsdpck_context *ctx, fsdpck_error *err)
{
    char dst[SCRATCH_BYTES];
    fsdpck_checkpoint *src;
    job_parts o = JOB_PARTS_INIT;
    o.output.no_sync = 1;
    o.work.threads = 1;
    fsdpck_status st = fsdpck_open(ctx, input, NULL, &src, err);
    if (st != FSDPCK_OK)
        return st;
    st = job_parts_consolidate(ctx, src, scratch_path(dst, out, "out.h5"), &o, NULL, err);
    fsdpck_close(src);
    return st;
}

static fsdpck_status read_hdf5(fsdpck_context *ctx, fsdpck_error *err)
{
    fsdpck_checkpoint *src;
    const fsdpck_status st = fsdpck_open(ctx, whole, NULL, &src, err);
    if (st == FSDPCK_OK)
        fsdpck_close(src);
    return st;
}

/* In a process of its own; its status. */
static int do_limited(fsdpck_status (*what)(fsdpck_context *, fsdpck_error *), int resource,
                      uint64_t most)
{
    (void)unlink(said);
    const pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        fsdpck_error err;
        fsdpck_error_init(&err);
        fsdpck_context *ctx = fsdpck_context_new();
        const int fd = open(said, O_WRONLY | O_CREAT, 0600);
        MUST(ctx != NULL && fd >= 0 && dup2(fd, 2) == 2);
        signal(SIGXFSZ, SIG_IGN);
        limit_to(resource, most);
        const fsdpck_status st = what(ctx, &err);
        fsdpck_context_free(ctx);
        limit_to(resource, RLIM_INFINITY);
        if (st == FSDPCK_LIMIT && strcmp(fsdpck_finding_name(err.finding), "LIMIT-MEMORY") != 0)
            fprintf(stderr, "%s: %s\n", fsdpck_finding_name(err.finding), err.message);
        if (st == FSDPCK_NOSPACE && err.next[0] == '\0')
            fprintf(stderr, "no advice with: %s\n", err.message);
        if (st == FSDPCK_INTERNAL || st == FSDPCK_IO)
            fprintf(stderr, "%s\n", err.message);
        /* Handlers of the exit run: libhdf5's too, if it has one. */
        exit(STATUS_FROM + (int)st);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    struct stat words;
    MUST(stat(said, &words) == 0);
    if (!WIFEXITED(status) || words.st_size > 0) {
        fprintf(stderr, "limit %d of %" PRIu64 ": status %x, and it said:\n", resource, most,
                (unsigned)status);
        FILE *f = fopen(said, "r");
        for (int c; f != NULL && (c = getc(f)) != EOF;)
            fputc(c, stderr);
        abort();
    }
    return WEXITSTATUS(status) - STATUS_FROM;
}

/* Nothing is left but a whole output. */
static int write_limited(int resource, uint64_t most)
{
    char dst[SCRATCH_BYTES];
    const int st = do_limited(write_hdf5, resource, most);
    MUST(scratch_count(out) == (st == FSDPCK_OK));
    if (st == FSDPCK_OK && access(whole, F_OK) != 0)
        MUST(rename(scratch_path(dst, out, "out.h5"), whole) == 0);
    else
        (void)unlink(scratch_path(dst, out, "out.h5"));
    return st;
}

static int read_limited(int resource, uint64_t most)
{
    return do_limited(read_hdf5, resource, most);
}

/* Of files: the memory file too is one. */
static void check_file_size(void)
{
    unsigned refused = 0;
    uint64_t most = 0;
    for (int st = FSDPCK_NOSPACE; st != FSDPCK_OK; most += most < 8192 ? 512 : 131072) {
        st = write_limited(RLIMIT_FSIZE, most);
        MUST(st == FSDPCK_OK || st == FSDPCK_NOSPACE);
        refused += st != FSDPCK_OK;
        MUST(most < (uint64_t)64 << 20);
    }
    MUST(refused > 20);
}

static uint64_t address_space_nbytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    uint64_t pages = 0;
    if (f == NULL)
        return 0;
    if (fscanf(f, "%" SCNu64, &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Not with sanitizers, which take terabytes of it. */
static void check_memory(int (*limited)(int, uint64_t))
{
    const uint64_t now = address_space_nbytes();
    unsigned refused = 0;
    if (now == 0 || now > (uint64_t)1 << 38)
        return;
    for (uint64_t more = 0;; more += (uint64_t)250 << 10) {
        const int st = limited(RLIMIT_AS, now + more);
        if (st == FSDPCK_OK)
            break;
        MUST(st == FSDPCK_LIMIT);
        refused++;
        MUST(more < (uint64_t)256 << 20);
    }
    MUST(refused > 20);
}

int main(void)
{
    char scratch[SCRATCH_BYTES];
    if (strcmp(hdf5_built_state(), "built without HDF5") == 0)
        return 0;
    scratch_make(scratch);
    make_source(scratch);
    check_file_size();
    check_memory(write_limited);
    check_memory(read_limited);
    scratch_remove(scratch);
    return 0;
}
