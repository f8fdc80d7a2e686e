/* prop_file_set: many threads read many files through few descriptors, while more are added.
 *
 * First with a small limit of the set itself, then with a limit of the process that the set is not
 * given, so that opening fails with EMFILE. Every read returns the right bytes of the right file,
 * nothing hangs, and a file replaced during the run is reported. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/pool.h"
#include "io/file_set.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"

enum { FILES = 60, JOBS = 6000, TEXT_BYTES = 32 };

static void text_of(char text[TEXT_BYTES], unsigned number)
{
    memset(text, '.', TEXT_BYTES);
    snprintf(text, TEXT_BYTES, "the text of file %u", number);
}

static void name_of(char name[16], unsigned number)
{
    snprintf(name, 16, "f%u", number);
}

static void write_file(const char *dir, unsigned number)
{
    char name[16];
    char text[TEXT_BYTES];
    name_of(name, number);
    text_of(text, number);
    scratch_write(dir, name, text, TEXT_BYTES);
}

struct work {
    file_set set;
    atomic_uint added;
};

static fsdpck_status add_one(struct work *w, unsigned number, fsdpck_error *err)
{
    char name[16];
    uint32_t index;
    name_of(name, number);
    RETURN_IF(file_set_add(&w->set, name, &index, err));
    must(index == number, "indices do not count");
    atomic_store(&w->added, number + 1);
    return FSDPCK_OK;
}

static fsdpck_status job(void *ctx, unsigned worker, uint64_t number, fsdpck_error *err)
{
    struct work *w = ctx;
    const unsigned added = atomic_load(&w->added);
    if (worker == 0 && added < FILES)
        RETURN_IF(add_one(w, added, err));
    char want[TEXT_BYTES];
    char have[TEXT_BYTES] = {0};
    const uint32_t index = (uint32_t)(number * 2654435761u >> 7) % added;
    const uint64_t at = number % 20;
    text_of(want, index);
    RETURN_IF(file_set_read_at(&w->set, index, at, have, TEXT_BYTES - at, err));
    if (memcmp(have, want + at, TEXT_BYTES - at) != 0)
        return error_set(err, FSDPCK_INTERNAL, FSDPCK_FINDING_NONE, "bytes of another file");
    uint64_t nbytes;
    RETURN_IF(file_set_nbytes(&w->set, (uint32_t)(number % added), &nbytes, err));
    return nbytes == TEXT_BYTES ? FSDPCK_OK : FSDPCK_INTERNAL;
}

static void run(const char *dir, unsigned max_open, unsigned nthreads, bool replace)
{
    struct work w = {0};
    folder d;
    fsdpck_error err;
    fsdpck_error_init(&err);
    must(folder_open(&d, dir, &err) == FSDPCK_OK, err.message);
    must(file_set_init(&w.set, &d, max_open, 0, &err) == FSDPCK_OK, err.message);
    for (unsigned i = 0; i < 5; i++)
        must(add_one(&w, i, &err) == FSDPCK_OK, err.message);
    must(pool_run(nthreads, JOBS, job, &w, NULL, &err) == FSDPCK_OK, err.message);
    must(w.set.cache.open_count <= max_open, "more files open than allowed");
    must(w.set.cache.waiting_count == 0, "somebody still waits");
    must(file_set_check_unchanged(&w.set, &err) == FSDPCK_OK, err.message);
    if (replace)
        scratch_write(dir, "f3", "other", 5);
    must(!replace || file_set_check_unchanged(&w.set, &err) == FSDPCK_CHANGED, "missed a change");
    file_set_release(&w.set);
    folder_close(&d);
    if (replace)
        write_file(dir, 3);
}

int main(void)
{
    char dir[SCRATCH_BYTES];
    scratch_make(dir);
    for (unsigned i = 0; i < FILES; i++)
        write_file(dir, i);
    for (unsigned max_open = 1; max_open <= 9; max_open += 4)
        for (unsigned nthreads = 1; nthreads <= 8; nthreads += 7)
            run(dir, max_open, nthreads, true);
    struct rlimit before;
    must(getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
    const struct rlimit few = {.rlim_cur = scratch_count("/proc/self/fd") + 5,
                               .rlim_max = before.rlim_max};
    must(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
    run(dir, 1000, 1, false);
    run(dir, 1000, 8, false);
    must(setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit");
    scratch_remove(dir);
    puts("prop_file_set: held");
    return 0;
}
