/* Rank files whose optimizer has many parameter groups: time to open them grows with the groups of all
 * files. As layer-wise learning rates make them, each group has its own settings and one parameter.
 *
 * Arguments: groups and ranks, to measure only. */
#include <stdio.h>
#include <stdlib.h>

#include "fsdpck.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"
#include "tests/support/seconds.h"
#include "tests/support/torch_stream.h"

#define PUT(file, opcodes) text_append(file, opcodes, sizeof(opcodes) - 1)

static void put_setting(text_buf *file, const char *name, int32_t number)
{
    torch_stream_text(file, name);
    torch_stream_int(file, number);
    PUT(file, "s");
}

/* {'optimizer': {'state': {}, 'param_groups': [{'lr': N, ..., 'params': [N]}, ...]}, 'rank': R} */
static void put_state(text_buf *file, unsigned groups, unsigned rank)
{
    PUT(file, "}");
    torch_stream_text(file, "optimizer");
    PUT(file, "}");
    torch_stream_text(file, "state");
    PUT(file, "}s");
    torch_stream_text(file, "param_groups");
    PUT(file, "]");
    for (unsigned i = 0; i < groups; i++) {
        PUT(file, "}");
        put_setting(file, "lr", (int32_t)i);
        put_setting(file, "weight_decay", 0);
        put_setting(file, "initial_lr", (int32_t)i);
        torch_stream_text(file, "params");
        PUT(file, "]");
        torch_stream_int(file, (int32_t)i);
        PUT(file, "as");
        PUT(file, "a");
    }
    PUT(file, "ss");
    put_setting(file, "rank", (int32_t)rank);
}

static void write_files(const char *dir, unsigned groups, unsigned ranks)
{
    for (unsigned rank = 0; rank < ranks; rank++) {
        text_buf file = {.limit_bytes = SIZE_MAX / 2};
        char name[64];
        torch_stream_begin(&file);
        put_state(&file, groups, rank);
        torch_stream_end(&file);
        must(!file.failed, "memory");
        snprintf(name, sizeof name, "model_world_size_%u_rank_%u.pt", ranks, rank);
        scratch_write(dir, name, file.text, file.nbytes);
        text_release(&file);
    }
}

static double run(const char *dir)
{
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *src = NULL;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    const double begin = cpu_seconds();
    if (fsdpck_open(ctx, dir, NULL, &src, &err) != FSDPCK_OK) {
        fprintf(stderr, "%s: %s\n", fsdpck_finding_name(err.finding), err.message);
        exit(1);
    }
    const double took = cpu_seconds() - begin;
    fsdpck_close(src);
    fsdpck_context_free(ctx);
    return took;
}

/* The better of two: other work shares the machine. */
static double best(unsigned groups, unsigned ranks)
{
    char dir[SCRATCH_BYTES];
    scratch_make(dir);
    write_files(dir, groups, ranks);
    const double one = run(dir), two = run(dir);
    scratch_remove(dir);
    printf("%6u groups, %4u ranks: %.3f s\n", groups, ranks, one < two ? one : two);
    fflush(stdout);
    return one < two ? one : two;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        best((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]));
        return 0;
    }
    const double small = best(1000, 16), large = best(4000, 16);
    /* n log n gives 5 over a factor of 4; quadratic is 16. */
    must(large < 8 * small || large < 0.3, "time grows faster than n log n");
    return 0;
}
