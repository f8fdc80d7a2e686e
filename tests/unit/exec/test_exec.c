#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "exec/tile_parts.h"
#include "tests/unit/exec/exec_case.h"

Test(exec, rows_of_many_steps)
{
    exec_harness *w = sharded(1024, 1000, 0, 4, (memory_layout){.gap_nbytes = 99});
    run(w, (exec_harness_options){.nthreads = 2});
    /* Each once, but for elements that a step's edge cuts. */
    cr_assert(w->sums.bytes_read >= 4096000 && w->sums.bytes_read < 4096000 + 100);
    cr_assert_geq(w->sums.bytes_written, 4096000);
    run(w, (exec_harness_options){.nthreads = 1, .direct = EXEC_DIRECT_OFF, .tile_nbytes = 12288});
    cr_assert_eq(w->sums.direct_bytes, 0);
    exec_harness_free(w);
}

Test(exec, tiles_and_workers_are_fitted_to_the_memory)
{
    exec_harness *w = sharded(512, 1000, 0, 4, (memory_layout){.gap_nbytes = 99});
    run(w, (exec_harness_options){.nthreads = 64, .tile_nbytes = (uint64_t)64 << 20});
    cr_assert_leq(w->sums.buffer_nbytes, EXEC_MEMORY_NBYTES_MIN);
    run(w, (exec_harness_options){.nthreads = 64, .tile_nbytes = 4096 * 3});
    exec_harness_free(w);
}

Test(exec, stored_across_with_long_strides)
{
    exec_harness *w = sharded(6000, 40, 1, 1, (memory_layout){.permuted = true, .order = {1, 0}});
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 4096});
    /* Run by run, and not the 1 MB between the first and the last one for each tile. */
    cr_assert_lt(w->sums.bytes_read, 4 * 960000);
    run(w, (exec_harness_options){.nthreads = 2});
    exec_harness_free(w);
}

/* Bytes of the output that are filled at a time. */
static uint64_t fill_nbytes(exec_harness *w)
{
    plan *p;
    struct exec *x;
    cr_assert_eq(plan_new(&w->source.cat, &w->to, &(plan_options){0}, &w->metadata, &p, NULL),
                 FSDPCK_OK);
    const exec_request r = {.plan = p,
                            .source = &w->source.src,
                            .target = &w->to,
                            .nthreads = 1,
                            .memory_nbytes = (uint64_t)64 << 20,
                            .metadata = &w->metadata};
    cr_assert_eq(exec_resolve(&r, &x, NULL), FSDPCK_OK);
    const uint64_t nbytes = exec_fill_nbytes(
        x, &(output_range){.end = catalogue_file(&w->to.cat, 0)->nbytes}, (uint64_t)1 << 20);
    exec_free(x);
    plan_free(p);
    return nbytes;
}

Test(exec, rows_apart_need_no_large_tile)
{
    exec_harness *w = sharded(2048, 1000, 0, 1, (memory_layout){.pad_elems = 1000});
    cr_assert_eq(fill_nbytes(w), (uint64_t)1 << 20);
    run(w, (exec_harness_options){.nthreads = 2, .memory_nbytes = (uint64_t)64 << 20});
    /* 16 MB by reads of at most 512 KiB, apart from rows that an edge splits. */
    cr_assert_geq(w->sums.reads, 32);
    cr_assert_lt(w->sums.reads, 80);
    exec_harness_free(w);
}

/* Experts of float32, [count, rows, cols], each stored across. */
static exec_harness *experts(uint64_t count, uint64_t rows, uint64_t cols, uint64_t gap_nbytes)
{
    exec_harness *w = exec_harness_new(1, 1);
    const uint32_t t =
        memory_source_add_tensor(&w->source, "w", DTYPE_FLOAT32, 3, BOX(count, rows, cols));
    memory_source_add_chunk(&w->source, t, BOX(0, 0, 0), BOX(count, rows, cols),
                            &(memory_layout){.permuted = true, .order = {0, 2, 1}});
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, gap_nbytes);
    w->to.want_crc = true;
    exec_harness_expect(w);
    return w;
}

Test(exec, transposed_matrices_need_a_quarter_of_them_at_a_time)
{
    const struct {
        uint64_t rows, nbytes;
    } cases[] = {
        {400, 1 << 20}, {2048, 2 << 20}, {2200, 4 << 20}, {8000, 8 << 20}, {20000, 8 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exec_harness *w =
            sharded(cases[i].rows, 1000, 0, 1, (memory_layout){.permuted = true, .order = {1, 0}});
        cr_assert_eq(fill_nbytes(w), cases[i].nbytes, "%zu", i);
        if (cases[i].rows < 8000)
            run(w, (exec_harness_options){.nthreads = 2, .memory_nbytes = (uint64_t)64 << 20});
        cr_assert_leq(w->sums.bytes_read, 5 * cases[i].rows * 4000, "%zu", i);
        exec_harness_free(w);
    }
    /* Experts: each is a matrix. */
    exec_harness *w = experts(8, 400, 1000, 3);
    cr_assert_eq(fill_nbytes(w), (uint64_t)1 << 20);
    exec_harness_free(w);
}

Test(exec, workers_fill_a_tile_of_transposed_matrices_together)
{
    /* The tile has 1 MiB a worker, of two a thread, and 3 MiB. A matrix is read once for each tile that
     * it meets, and tiles end with matrices: rows of edges apart, as often as the tiles are needed. */
    const struct {
        uint64_t count, rows, cols, reads;
    } cases[] = {{12, 400, 1000, 1}, {3, 1000, 1500, 1}, {3, 2000, 1000, 2}, {1, 8191, 1023, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exec_harness *w = experts(cases[i].count, cases[i].rows, cases[i].cols, 3);
        const uint64_t nbytes = cases[i].count * cases[i].rows * cases[i].cols * 4;
        run(w, (exec_harness_options){
                   .nthreads = 2, .memory_nbytes = (uint64_t)64 << 20, .direct = EXEC_DIRECT_ON});
        cr_assert_eq(w->sums.workers, 4);
        cr_assert_leq(w->sums.bytes_read, cases[i].reads * nbytes * 11 / 10, "%zu", i);
        exec_harness_free(w);
    }
}

Test(exec, edges_of_transposed_matrices)
{
    const uint64_t sizes[] = {1, 2, 31, 32, 33, 64, 65, 257};
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 8; j++) {
            exec_harness *w = experts(3, sizes[i], sizes[j], 4095 + i);
            run(w, (exec_harness_options){.nthreads = 1 + (unsigned)(i + j) % 4,
                                          .tile_nbytes = j % 2 ? 4096 : 0});
            exec_harness_free(w);
        }
}

/* A tile needs little of large rows: it is read run by run, by all workers. */
Test(exec, runs_of_transposed_matrices)
{
    exec_harness *w = experts(1, 30000, 500, 7);
    run(w, (exec_harness_options){.nthreads = 3, .memory_nbytes = (uint64_t)64 << 20});
    cr_assert_lt(w->sums.bytes_read, 2 * (uint64_t)30000 * 500 * 4);
    cr_assert_gt(w->sums.reads, 500);
    exec_harness_free(w);
}

/* Half of the tensor comes from a stream, after the tiles. */
Test(exec, tiles_of_runs_beside_streams_are_written)
{
    exec_harness *w = exec_harness_new(1, 1);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_FLOAT32, 2, BOX(6100, 40));
    memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(6000, 40),
                            &(memory_layout){.permuted = true, .order = {1, 0}});
    memory_source_add_chunk(&w->source, t, BOX(6000, 0), BOX(100, 40),
                            &(memory_layout){.stream = true});
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 0);
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 1, .tile_nbytes = 4096});
    run(w, (exec_harness_options){.nthreads = 2});
    exec_harness_free(w);
}

Test(exec, columns_out_of_rows)
{
    exec_harness *w = exec_harness_new(1, 4);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_INT16, 2, BOX(100, 20000));
    memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(100, 20000), &(memory_layout){0});
    memory_source_seal(&w->source);
    const uint32_t x = exec_harness_add_target(w, t, "w", DTYPE_INT16);
    for (uint32_t i = 0; i < 4; i++)
        exec_harness_add_chunk(w, x, i, BOX(0, 5000 * i), BOX(100, 5000));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 3);
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 65536});
    run(w, (exec_harness_options){.nthreads = 1});
    exec_harness_free(w);
}

/* bfloat16 [rows, cols] in row shards, to columns over four files, `wide` members each; one of the
 * files begins with something else. */
static exec_harness *columns(uint64_t rows, uint64_t cols, uint64_t members, dtype to)
{
    exec_harness *w = exec_harness_new(2, 4);
    const uint32_t t =
        memory_source_add_tensor(&w->source, "w", DTYPE_BFLOAT16, 2, BOX(rows, cols));
    const uint32_t u = memory_source_add_tensor(&w->source, "u", DTYPE_INT16, 1, BOX(777));
    for (uint64_t s = 0; s < 2; s++)
        memory_source_add_chunk(&w->source, t, BOX(s * (rows / 2), 0), BOX(rows / 2, cols),
                                &(memory_layout){.file = (uint32_t)s, .gap_nbytes = 77});
    memory_source_add_chunk(&w->source, u, BOX(0), BOX(777), &(memory_layout){0});
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, u, 2, DTYPE_INT16);
    const uint32_t x = exec_harness_add_target(w, t, "x", to);
    const uint64_t each = (cols + members - 1) / members;
    for (uint64_t k = 0; k < members; k++) {
        const uint64_t begin = k * each < cols ? k * each : cols;
        const uint64_t end = begin + each < cols ? begin + each : cols;
        exec_harness_add_chunk(w, x, (uint32_t)(k % 4), BOX(0, begin), BOX(rows, end - begin));
    }
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 13);
    for (uint32_t i = 0; i < 4; i++)
        catalogue_file(&w->to.cat, i)->nbytes += 5000;
    w->to.want_crc = true;
    exec_harness_expect(w);
    return w;
}

Test(exec, rows_are_read_once_for_all_their_columns)
{
    static const uint64_t members[] = {4, 7, 100, 500};
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned cast = 0; cast < 2; cast++) {
            exec_harness *w = columns(3000, 500, members[i], cast ? DTYPE_FLOAT32 : DTYPE_BFLOAT16);
            const uint64_t nbytes = 3000 * 500 * 2;
            run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 65536});
            run(w, (exec_harness_options){.nthreads = 1, .direct = EXEC_DIRECT_ON});
            run(w, (exec_harness_options){.nthreads = 4,
                                          .memory_nbytes = (uint64_t)256 << 20,
                                          .direct = EXEC_DIRECT_ON});
            cr_assert_float_eq(w->sums.read_amplification, 1, 1e-9);
            cr_assert_lt(w->sums.bytes_read, nbytes + nbytes / 8);
            cr_assert_lt(w->sums.reads, 30);
            if (w->direct)
                cr_assert_gt(w->sums.direct_bytes, members[i] < 100 ? nbytes / 2 : 0);
            else
                cr_assert_eq(w->sums.direct_bytes, 0);
            exec_harness_free(w);
        }
    }
}

Test(exec, more_columns_than_buffers_take_passes_and_say_so)
{
    exec_harness *w = columns(2000, 1200, 1200, DTYPE_BFLOAT16);
    run(w, (exec_harness_options){.nthreads = 1, .memory_nbytes = (uint64_t)256 << 20});
    cr_assert_float_eq(w->sums.read_amplification, 3, 1e-3); /* at most 512 members at a time */
    cr_assert_lt(w->sums.bytes_read, 4 * 2000 * 1200 * 2);
    run(w, (exec_harness_options){.nthreads = 1});
    cr_assert_gt(w->sums.read_amplification, 4);
    cr_assert_lt((double)w->sums.bytes_read, (w->sums.read_amplification + 1) * 2000 * 1200 * 2);
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 4096});
    exec_harness_free(w);
}

Test(exec, columns_to_other_columns)
{
    exec_harness *w = exec_harness_new(2, 3);
    const uint32_t t =
        memory_source_add_tensor(&w->source, "w", DTYPE_FLOAT32, 3, BOX(5, 600, 240));
    for (uint64_t s = 0; s < 4; s++)
        memory_source_add_chunk(&w->source, t, BOX(0, 0, 60 * s), BOX(5, 600, 60),
                                &(memory_layout){.file = (uint32_t)(s % 2), .swap = s == 1});
    memory_source_seal(&w->source);
    const uint32_t x = exec_harness_add_target(w, t, "x", DTYPE_FLOAT32);
    for (uint32_t k = 0; k < 6; k++) /* two meshes of three: each box twice */
        exec_harness_add_chunk(w, x, k % 3, BOX(0, 0, 80 * (k % 3)), BOX(5, 600, 80));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 4096);
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 2});
    cr_assert_lt(w->sums.bytes_read, 5 * 600 * 240 * 4 * 9 / 8);
    exec_harness_free(w);
}

Test(exec, many_tiny_tensors_take_few_reads)
{
    exec_harness *w = exec_harness_new(2, 1);
    for (unsigned i = 0; i < 3000; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        const uint32_t t = memory_source_add_tensor(&w->source, name, DTYPE_FLOAT32, 1, BOX(6));
        for (uint32_t f = 0; f < 2; f++)
            memory_source_add_chunk(&w->source, t, BOX(3 * f), BOX(3),
                                    &(memory_layout){.file = f, .gap_nbytes = 500});
        exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
    }
    memory_source_seal(&w->source);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 0);
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 2});
    cr_assert_lt(w->sums.reads, 20);
    exec_harness_free(w);
}

Test(exec, tiles_of_more_parts_than_are_listed)
{
    static const unsigned counts[] = {TILE_PARTS / 2, 5 * TILE_PARTS / 4};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        exec_harness *w = exec_harness_new(1, 1);
        for (unsigned i = 0; i < counts[k]; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "t%u", i);
            const uint32_t t = memory_source_add_tensor(&w->source, name, DTYPE_FLOAT32, 1, BOX(3));
            memory_source_add_chunk(&w->source, t, BOX(0), BOX(3), &(memory_layout){0});
            exec_harness_add_whole(w, t, 0, DTYPE_FLOAT32);
        }
        memory_source_seal(&w->source);
        cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
        exec_harness_place(w, 8);
        catalogue_file(&w->to.cat, 0)->nbytes += 8;
        cr_assert_lt(catalogue_file(&w->to.cat, 0)->nbytes, 256 << 10, "more than one tile");
        for (uint64_t i = 0; i < counts[k]; i++)
            exec_harness_add_deferred(w, 0, catalogue_chunk(&w->to.cat, i)->offset_bytes + 12, 8,
                                      i);
        exec_harness_expect(w);
        run(w, (exec_harness_options){.nthreads = 1});
        exec_harness_free(w);
    }
}

Test(exec, stream_that_does_not_fit_is_told_before_anything_is_written)
{
    fsdpck_error err = {0};
    exec_harness *w = sharded(500, 64, 1, 16, (memory_layout){.stream = true});
    const exec_harness_options o = {.nthreads = 2};
    w->source.stream_nbytes = EXEC_MEMORY_NBYTES_MIN - ((uint64_t)3 << 20);
    run(w, o);
    cr_assert_eq(atomic_load(&w->source.most_streams), 1);
    w->source.stream_nbytes = EXEC_MEMORY_NBYTES_MIN - 4096;
    cr_assert_eq(exec_harness_run(w, &o, &err), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "LIMIT-MEMORY");
    cr_assert_str_eq(err.expected, "at least 18 MiB");
    cr_assert(strstr(err.next, "--memory") != NULL);
    w->source.stream_nbytes = UINT64_MAX;
    cr_assert_eq(exec_harness_run(w, &o, &err), FSDPCK_LIMIT);
    exec_harness_free(w);
}

/* A constant is added to the elements of tiles, column groups and streams, and to both of two copies. */
Test(exec, added_constants)
{
    const memory_layout layouts[] = {{.add = 1, .crc = true},
                                     {.add = -1, .stream = true},
                                     {.add = 1, .swap = true, .permuted = true, .order = {1, 0}},
                                     {.add = 1, .stream = true, .boxes = true}};
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        exec_harness *w = exec_harness_new(2, 1);
        const uint32_t t =
            memory_source_add_tensor(&w->source, "added", DTYPE_BFLOAT16, 2, BOX(300, 70));
        memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(300, 70), &layouts[i]);
        memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(300, 70),
                                &(memory_layout){.file = 1});
        memory_source_seal(&w->source);
        exec_harness_add_whole(w, t, 0, i >= 2 ? DTYPE_FLOAT32 : DTYPE_BFLOAT16);
        cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
        exec_harness_place(w, 1001);
        exec_harness_expect(w);
        run(w, (exec_harness_options){
                   .nthreads = 2, .tile_nbytes = 8192, .replicas = REPLICAS_COMPARE});
        exec_harness_free(w);
    }
}

Test(exec, stream_whose_elements_do_not_follow_each_other_is_staged)
{
    fsdpck_error err = {0};
    exec_harness *w =
        sharded(900, 500, 0, 3, (memory_layout){.gap_nbytes = 7, .stream = true, .tilted = true});
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 8192});
    cr_assert_eq(w->sums.streams, 3);
    exec_harness_free(w);
    /* 4 x (2999 x 3001 + 2 x 3000 + 1) bytes need 36 MB beside the buffers, whatever else is streamed. */
    w = sharded(3000, 3, 0, 1, (memory_layout){.stream = true, .tilted = true});
    const exec_harness_options o = {.nthreads = 2, .memory_nbytes = (uint64_t)32 << 20};
    cr_assert_eq(exec_harness_run(w, &o, &err), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "LIMIT-MEMORY");
    cr_assert_str_eq(err.expected, "at least 36 MiB");
    cr_assert_str_eq(err.found, "32 MiB");
    run(w, (exec_harness_options){.nthreads = 2, .memory_nbytes = (uint64_t)36 << 20});
    exec_harness_free(w);
}

Test(exec, two_names_for_one_place)
{
    exec_harness *w = exec_harness_new(1, 1);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_INT64, 1, BOX(2000));
    memory_source_add_chunk(&w->source, t, BOX(0), BOX(2000), &(memory_layout){0});
    memory_source_seal(&w->source);
    const uint32_t a = exec_harness_add_target(w, t, "a", DTYPE_INT64);
    const uint32_t b = exec_harness_add_target(w, t, "b", DTYPE_INT64);
    exec_harness_add_chunk(w, a, 0, BOX(0), BOX(2000));
    exec_harness_add_chunk(w, b, 0, BOX(0), BOX(2000));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 8);
    catalogue_chunk(&w->to.cat, 1)->offset_bytes = 8;
    catalogue_file(&w->to.cat, 0)->nbytes = 16008;
    w->to.want_crc = true;
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 4096});
    exec_harness_free(w);
}

/* After each of the chunks its deferred bytes. */
Test(exec, late_bytes_with_their_tile_and_after_all)
{
    exec_harness *w = exec_harness_new(1, 2);
    for (unsigned i = 0; i < 60; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        const uint64_t n = i % 10 == 0 ? 30000 : 1 + 40 * i;
        const uint32_t t = memory_source_add_tensor(&w->source, name, DTYPE_FLOAT32, 1, BOX(n));
        memory_source_add_chunk(&w->source, t, BOX(0), BOX(n), &(memory_layout){.stream = i == 31});
        exec_harness_add_whole(w, t, i / 30, DTYPE_FLOAT32);
    }
    memory_source_seal(&w->source);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 350);
    /* In the gap before the next chunk, with one more right after it; and those of chunk 3 in front
     * of everything. */
    exec_harness_add_deferred(w, 0, 0, 5, 3);
    for (uint64_t k = 0; k < 60; k++) {
        const cat_chunk *c = catalogue_chunk(&w->to.cat, k);
        if (k == 30)
            exec_harness_add_deferred(w, 1, 7, 100, 2);
        if (k % 30 == 29)
            catalogue_file(&w->to.cat, c->file)->nbytes += 350;
        exec_harness_add_deferred(w, c->file, c->offset_bytes + c->nbytes, 200, k);
        exec_harness_add_deferred(w, c->file, c->offset_bytes + c->nbytes + 200, 150, k);
    }
    exec_harness_expect(w);
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 4096}); /* most chunks are cut */
    run(w, (exec_harness_options){.nthreads = 3, .tile_nbytes = 65536});
    run(w, (exec_harness_options){.nthreads = 1}); /* whole files */
    run(w, (exec_harness_options){.nthreads = 2, .direct = EXEC_DIRECT_ON});
    exec_harness_free(w);
}

Test(exec, failures_leave_nothing_and_name_the_tensor)
{
    exec_harness *w = sharded(1024, 100, 0, 8, (memory_layout){.gap_nbytes = 99});
    for (uint64_t n = 1; n <= 8; n++) {
        fsdpck_error err = {0};
        w->source.fail_read = n;
        atomic_store(&w->source.reads, 0);
        cr_assert_eq(exec_harness_run(w, &(exec_harness_options){.nthreads = 2}, &err), FSDPCK_IO);
        cr_assert_str_eq(err.tensor, "w");
        cr_assert_neq(err.path[0], '\0');
    }
    w->source.fail_read = 0;
    w->source.changed = true;
    cr_assert_eq(exec_harness_run(w, &(exec_harness_options){.nthreads = 2}, NULL), FSDPCK_CHANGED);
    w->source.changed = false;
    cancel_token cancel = {.set = 1};
    cr_assert_eq(
        exec_harness_run(w, &(exec_harness_options){.nthreads = 2, .cancel = &cancel}, NULL),
        FSDPCK_CANCELLED);
    cr_assert_eq(exec_harness_run(w, &(exec_harness_options){.memory_nbytes = 1 << 20}, NULL),
                 FSDPCK_USAGE);
    run(w, (exec_harness_options){.nthreads = 2});
    exec_harness_free(w);
}
