/* A search remembers the folders that it has seen. Its time grows with their number.
 *
 * Argument: folders, to measure only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "open/folder_set.h"
#include "tests/support/must.h"
#include "tests/support/seconds.h"

/* Every folder twice. */
static double run(uint64_t folders)
{
    folder_set seen;
    bool is_new;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    folder_set_init(&seen);
    const double begin = cpu_seconds();
    for (uint64_t i = 0; i < 2 * folders; i++) {
        const folder_id id = {.dev = i % 2, .ino = i % folders};
        must_be_ok(folder_set_add(&seen, &id, &is_new, &err), &err);
        must(is_new == (i < folders || folders % 2 == 1), "a folder is new once");
    }
    const double took = cpu_seconds() - begin;
    folder_set_release(&seen);
    return took;
}

/* The best of three: other work shares the machine. */
static double best(uint64_t folders)
{
    double least = run(folders);
    for (int i = 0; i < 2; i++) {
        const double again = run(folders);
        least = again < least ? again : least;
    }
    printf("%7" PRIu64 " folders: %.3f s\n", folders, least);
    fflush(stdout);
    return least;
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        best(strtoull(argv[1], NULL, 10));
        return 0;
    }
    /* The limit of a search, and 16 times as many. */
    const double small = best(16384), large = best(262144);
    must(large < 64 * small || large < 0.2, "time grows with the square of the folders");
    return 0;
}
