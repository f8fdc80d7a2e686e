/* consolidate_words.h: the options of `fsdpck consolidate`: the only file that knows their names.
 *
 *     return consolidate_with_words(c, argc, argv, run);   // run(c, &request) gives the exit code
 */
#ifndef FSDPCK_CLI_CONSOLIDATE_WORDS_H
#define FSDPCK_CLI_CONSOLIDATE_WORDS_H

#include "cmd.h"

typedef struct consolidate_request {
    fsdpck_open_options open;
    fsdpck_transform_options transform;
    int progress; /* progress_mode */
    const char *src, *dst;
} consolidate_request;

typedef int (*consolidate_fn)(cli *c, const consolidate_request *r);

/* Parses argv and calls `run`, which borrows the request. Shows help (0) or a usage error (2)
 * without it. */
int consolidate_with_words(cli *c, int argc, const char **argv, consolidate_fn run);

#endif
