/* Chunks that are decoded or computed, and copies that are compared. */
#include "tests/unit/exec/exec_case.h"

Test(streams, streams_of_column_shards_share_their_lines)
{
    exec_harness *w = sharded(500, 64, 1, 16, (memory_layout){.gap_nbytes = 10, .stream = true});
    run(w, (exec_harness_options){.nthreads = 4, .tile_nbytes = 4096});
    cr_assert_eq(w->sums.streams, 16);
    run(w, (exec_harness_options){.nthreads = 1});
    exec_harness_free(w);
}

/* In the tiles, without streams: every element once, but for those that a step's edge cuts. */
Test(streams, boxes_are_computed_in_tiles)
{
    for (unsigned dim = 0; dim < 2; dim++) {
        exec_harness *w =
            sharded(512, 1200, dim, 4, (memory_layout){.stream = true, .boxes = true});
        run(w, (exec_harness_options){.nthreads = 4});
        cr_expect_eq(w->sums.streams, 0);
        cr_expect_eq(w->sums.reads, 0);
        cr_expect(w->sums.bytes_read >= 512 * 1200 * 4 && w->sums.bytes_read < 512 * 1200 * 4 + 100,
                  "%d", (int)w->sums.bytes_read);
        cr_expect_geq(w->source.box_bytes, w->sums.bytes_read);
        cr_expect_eq(w->source.decoded_bytes, 0);
        run(w, (exec_harness_options){.nthreads = 1, .tile_nbytes = 4096});
        exec_harness_free(w);
    }
}

/* What a box needs comes from the memory of its worker. */
Test(streams, boxes_share_the_memory_with_buffers)
{
    fsdpck_error err = {0};
    exec_harness *w = sharded(512, 64, 0, 32, (memory_layout){.stream = true, .boxes = true});
    w->source.stream_nbytes = (uint64_t)5 << 20;
    run(w, (exec_harness_options){.nthreads = 8});
    cr_expect(w->sums.workers > 1 && w->sums.workers < 4, "%u", w->sums.workers);
    cr_expect_leq(w->sums.buffer_nbytes, EXEC_MEMORY_NBYTES_MIN);
    w->source.stream_nbytes = EXEC_MEMORY_NBYTES_MIN - 4096;
    cr_expect_eq(exec_harness_run(w, &(exec_harness_options){.nthreads = 8}, &err), FSDPCK_LIMIT);
    exec_harness_free(w);
}

Test(streams, streams_share_the_memory_with_buffers)
{
    const uint64_t nbytes = (uint64_t)3 << 20;
    exec_harness *w = sharded(512, 64, 0, 32, (memory_layout){.stream = true});
    w->source.stream_nbytes = nbytes;
    run(w, (exec_harness_options){.nthreads = 8});
    const uint64_t most = (uint64_t)atomic_load(&w->source.most_streams) * nbytes;
    cr_assert(most >= 2 * nbytes && most <= EXEC_MEMORY_NBYTES_MIN, "%d",
              atomic_load(&w->source.most_streams));
    exec_harness_free(w);
}

Test(streams, streams_with_elements_that_change)
{
    exec_harness *w =
        sharded(300, 70, 0, 3,
                (memory_layout){
                    .stream = true, .swap = true, .neg = true, .permuted = true, .order = {1, 0}});
    run(w, (exec_harness_options){.nthreads = 2, .tile_nbytes = 8192});
    exec_harness_free(w);
}

/* Copies, all with different layouts. */
static exec_harness *replicas_unlike(bool wrong)
{
    const memory_layout layouts[] = {
        {.stream = true},
        {.stream = true, .permuted = true, .order = {1, 0}},
        {.stream = true, .tilted = true, .wrong = wrong},
    };
    exec_harness *w = exec_harness_new(1, 1);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_INT32, 2, BOX(90, 70));
    for (size_t i = 0; i < 3; i++)
        memory_source_add_chunk(&w->source, t, BOX(0, 0), BOX(90, 70), &layouts[i]);
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, t, 0, DTYPE_INT32);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 0);
    exec_harness_expect(w);
    return w;
}

Test(streams, streams_with_other_strides_are_compared)
{
    fsdpck_error err = {0};
    const exec_harness_options o = {.nthreads = 2, .replicas = REPLICAS_COMPARE};
    exec_harness *w = replicas_unlike(false);
    run(w, o);
    cr_assert_eq(w->sums.replicas_compared, 2);
    exec_harness_free(w);
    w = replicas_unlike(true);
    cr_assert_eq(exec_harness_run(w, &o, &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "REPLICA-DIFFER");
    exec_harness_free(w);
}

/* w in one chunk that three ranks hold; the last may be wrong. */
static exec_harness *replicated(bool crc, bool wrong, bool stream)
{
    exec_harness *w = exec_harness_new(3, 1);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", DTYPE_BFLOAT16, 1, BOX(5000));
    for (uint32_t f = 0; f < 3; f++)
        memory_source_add_chunk(
            &w->source, t, BOX(0), BOX(5000),
            &(memory_layout){.file = f, .crc = crc, .stream = stream, .wrong = wrong && f == 2});
    memory_source_seal(&w->source);
    exec_harness_add_whole(w, t, 0, DTYPE_BFLOAT16);
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 0);
    exec_harness_expect(w);
    return w;
}

Test(streams, equal_replicas_by_checksum_by_bytes_or_on_trust)
{
    exec_harness *w = replicated(true, false, false);
    run(w, (exec_harness_options){.replicas = REPLICAS_CRC});
    cr_assert_eq(w->sums.replicas_by_crc, 2);
    cr_assert_eq(w->sums.bytes_read, 10000);
    run(w, (exec_harness_options){.replicas = REPLICAS_COMPARE});
    cr_assert_eq(w->sums.replicas_compared, 2);
    run(w, (exec_harness_options){.replicas = REPLICAS_FIRST});
    cr_assert_eq(w->sums.replicas_trusted, 2);
    exec_harness_free(w);
    w = replicated(false, false, false);
    run(w, (exec_harness_options){.replicas = REPLICAS_CRC});
    cr_assert_eq(w->sums.replicas_compared, 2);
    exec_harness_free(w);
}

Test(streams, replicas_that_differ_are_refused)
{
    for (unsigned i = 0; i < 8; i++) {
        fsdpck_error err = {0};
        exec_harness *w = replicated(i & 1, true, i & 2);
        const exec_harness_options o = {.replicas = i & 4 ? REPLICAS_COMPARE : REPLICAS_CRC};
        cr_assert_eq(exec_harness_run(w, &o, &err), FSDPCK_BADINPUT);
        cr_assert_str_eq(fsdpck_finding_name(err.finding), "REPLICA-DIFFER");
        cr_assert_str_eq(err.tensor, "w");
        cr_assert_str_eq(err.found, "'rank_0.bin' and 'rank_2.bin' differ");
        run(w, (exec_harness_options){.replicas = REPLICAS_FIRST});
        exec_harness_free(w);
    }
}
