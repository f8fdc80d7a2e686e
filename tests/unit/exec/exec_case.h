/* exec_case.h: checkpoints that the tests of exec run. */
#ifndef FSDPCK_TESTS_UNIT_EXEC_CASE_H
#define FSDPCK_TESTS_UNIT_EXEC_CASE_H

#include <criterion/criterion.h>

#include "tests/support/exec_harness.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})

/* One float32 tensor [rows, cols] in `nshards` shards, cut along `dim`, each laid out alike. */
static inline exec_harness *sharded(uint64_t rows, uint64_t cols, unsigned dim, uint64_t nshards,
                                    memory_layout layout)
{
    exec_harness *w = exec_harness_new(2, 1);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_FLOAT32, 2, BOX(rows, cols));
    for (uint64_t s = 0; s < nshards; s++) {
        uint64_t offsets[2] = {0, 0};
        uint64_t sizes[2] = {rows, cols};
        sizes[dim] /= nshards;
        offsets[dim] = s * sizes[dim];
        layout.file = (uint32_t)(s % 2);
        memory_source_add_chunk(&w->source, t, offsets, sizes, &layout);
    }
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 1001);
    w->to.want_crc = true;
    exec_harness_expect(w);
    return w;
}

static inline void run(exec_harness *w, exec_harness_options o)
{
    fsdpck_error err = {0};
    cr_assert_eq(exec_harness_run(w, &o, &err), FSDPCK_OK, "%s", err.message);
}

#endif
