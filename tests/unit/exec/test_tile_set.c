/* Files that need rows of the same small tensors, which are read once for all of them. */
#include <stdio.h>

#include "tests/unit/exec/exec_case.h"

#define FILES 4u

/* `count` tensors [rows, 32] in two shards, their rows over four files; `others`: bytes that one of the files has before. */
static exec_harness *small_tensors(unsigned count, uint64_t rows, uint64_t others, dtype from,
                                   dtype to)
{
    exec_harness *w = exec_harness_new(2, FILES);
    const uint32_t u = memory_source_add_tensor(&w->source, "u", DTYPE_INT8, 1, BOX(others));
    memory_source_add_chunk(&w->source, u, BOX(0), BOX(others), &(memory_layout){0});
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        const uint32_t t = memory_source_add_tensor(&w->source, name, from, 2, BOX(rows, 32));
        for (uint32_t s = 0; s < 2; s++)
            memory_source_add_chunk(&w->source, t, BOX(s * rows / 2, 0), BOX(rows / 2, 32),
                                    &(memory_layout){.file = s, .gap_nbytes = i % 3});
    }
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, u, 2, DTYPE_INT8);
    for (uint32_t t = 1; t <= count; t++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", t);
        const uint32_t x = exec_harness_add_target(w, t, name, to);
        for (uint32_t k = 0; k < FILES; k++)
            exec_harness_add_chunk(w, x, k, BOX(k * rows / FILES, 0), BOX(rows / FILES, 32));
    }
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 13);
    for (uint32_t i = 0; i < FILES; i++)
        catalogue_file(&w->to.cat, i)->nbytes += 5000;
    w->to.want_crc = true;
    exec_harness_expect(w);
    return w;
}

Test(tile_set, small_tensors_are_read_once_for_all_files)
{
    exec_harness *w = small_tensors(3000, 16, 40000, DTYPE_BFLOAT16, DTYPE_BFLOAT16);
    const uint64_t nbytes = 3000 * 16 * 32 * 2 + 40000;
    static const uint64_t memory[] = {0, (uint64_t)64 << 20};
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned n = 1; n <= 4; n += 3) {
            run(w, (exec_harness_options){.nthreads = n, .memory_nbytes = memory[i]});
            cr_assert_lt(w->sums.bytes_read, nbytes * 3 / 2, "%u %u", i, n);
            run(w, (exec_harness_options){
                       .nthreads = n, .memory_nbytes = memory[i], .direct = EXEC_DIRECT_ON});
            cr_assert_lt(w->sums.bytes_read, nbytes * 3 / 2, "%u %u", i, n);
        }
    }
    run(w, (exec_harness_options){.nthreads = 3, .tile_nbytes = 65536});
    run(w, (exec_harness_options){.nthreads = 3, .tile_nbytes = 4096});
    exec_harness_free(w);
}

Test(tile_set, elements_are_cast)
{
    exec_harness *w = small_tensors(500, 12, 777, DTYPE_BFLOAT16, DTYPE_FLOAT32);
    run(w, (exec_harness_options){.nthreads = 2});
    cr_assert_lt(w->sums.bytes_read, 500 * 12 * 32 * 2 * 3 / 2);
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 8192});
    exec_harness_free(w);
}

Test(tile_set, deferred_bytes_of_each_file)
{
    exec_harness *w = small_tensors(400, 8, 100, DTYPE_INT16, DTYPE_INT16);
    for (uint32_t f = 0; f < FILES; f++)
        for (uint64_t i = 0; i < catalogue_chunk_count(&w->to.cat); i++)
            if (catalogue_chunk(&w->to.cat, i)->file == f)
                exec_harness_add_deferred(w, f, catalogue_chunk(&w->to.cat, i)->offset_bytes - 9, 8,
                                          i);
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 2});
    run(w, (exec_harness_options){.nthreads = 2, .direct = EXEC_DIRECT_ON, .tile_nbytes = 4096});
    exec_harness_free(w);
}

/* Sets are no use to files whose parts are long. */
Test(tile_set, long_parts_are_read_file_by_file)
{
    exec_harness *w = small_tensors(8, 16384, 0, DTYPE_BFLOAT16, DTYPE_BFLOAT16);
    const uint64_t nbytes = 8 * 16384 * 32 * 2;
    run(w, (exec_harness_options){.nthreads = 2});
    cr_assert_lt(w->sums.bytes_read, nbytes * 9 / 8);
    exec_harness_free(w);
}
