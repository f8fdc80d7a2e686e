#include <criterion/criterion.h>
#include <string.h>

#include "exec/simulate.h"
#include "tests/support/exec_harness.h"

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})
#define RANKS    8u
#define TILE     ((uint64_t)64 << 10)

/* A tensor [rows, 1000] in eight row shards, one a file, to `columns` columns (1: whole) of float32 over
 * two files. */
static exec_harness *rows_to_columns(uint64_t rows, uint64_t columns, dtype from)
{
    exec_harness *w = exec_harness_new(8, 2);
    const uint32_t t = memory_source_add_tensor(&w->source, "w", from, 2, BOX(rows, 1000));
    for (uint32_t s = 0; s < 8; s++)
        memory_source_add_chunk(&w->source, t, BOX(s * rows / 8, 0), BOX(rows / 8, 1000),
                                &(memory_layout){.file = s, .gap_nbytes = 99});
    memory_source_seal(&w->source);
    const uint32_t x = exec_harness_add_target(w, t, "w", DTYPE_FLOAT32);
    for (uint64_t i = 0; i < columns; i++)
        exec_harness_add_chunk(w, x, (uint32_t)(i % 2), BOX(0, i * 1000 / columns),
                               BOX(rows, 1000 / columns));
    cr_assert_eq(catalogue_seal(&w->to.cat, NULL), FSDPCK_OK);
    exec_harness_place(w, 0);
    return w;
}

typedef struct sums {
    uint64_t read, written, sent, received, items, row_blocks, least, most;
} sums;

static sums simulate(exec_harness *w, const exec_cluster *c, exec_load *loads)
{
    plan *p;
    struct exec *x;
    sums s = {.least = UINT64_MAX};
    fsdpck_error err = {0};
    const plan_options opt = {.tile_nbytes = TILE, .replicas = REPLICAS_FIRST};
    cr_assert_eq(plan_new(&w->source.cat, &w->to, &opt, &w->metadata, &p, &err), FSDPCK_OK);
    const exec_request r = {.plan = p,
                            .source = &w->source.src,
                            .target = &w->to,
                            .memory_nbytes = EXEC_MEMORY_NBYTES_MIN,
                            .metadata = &w->metadata};
    cr_assert_eq(exec_resolve(&r, &x, &err), FSDPCK_OK, "%s", err.message);
    memset(loads, 0, c->ranks * sizeof *loads);
    cr_assert_eq(exec_simulate(x, c, loads, &err), FSDPCK_OK, "%s", err.message);
    for (unsigned i = 0; i < c->ranks; i++) {
        s.read += loads[i].read_nbytes;
        s.written += loads[i].written_nbytes;
        s.sent += loads[i].sent_nbytes;
        s.received += loads[i].received_nbytes;
        s.items += loads[i].items;
        s.row_blocks += loads[i].row_blocks;
        s.least = loads[i].written_nbytes < s.least ? loads[i].written_nbytes : s.least;
        s.most = loads[i].written_nbytes > s.most ? loads[i].written_nbytes : s.most;
        cr_expect_geq(loads[i].memory_nbytes, w->metadata.used_bytes);
    }
    exec_free(x);
    plan_free(p);
    return s;
}

Test(simulate, all_see_the_source)
{
    exec_load loads[RANKS];
    exec_harness *w = rows_to_columns(8000, 1, DTYPE_FLOAT32);
    const exec_cluster c = {.ranks = 7, .hosts = 7};
    const sums s = simulate(w, &c, loads);
    const uint64_t mean = 32000000 / 7;
    cr_expect_eq(s.written, 32000000);
    cr_expect_eq(s.read, 32000000);
    cr_expect_eq(s.items, (32000000 + TILE - 1) / TILE);
    cr_expect_eq(s.sent + s.received, 0);
    cr_expect(s.most <= mean + TILE && s.least + TILE >= mean);
    exec_harness_free(w);
}

Test(simulate, what_is_cast_is_read_in_its_own_size)
{
    exec_load loads[RANKS];
    exec_harness *w = rows_to_columns(800, 1, DTYPE_FLOAT32);
    exec_harness *cast = rows_to_columns(800, 1, DTYPE_BFLOAT16);
    const exec_cluster c = {.ranks = 2, .hosts = 1};
    cr_expect_eq(simulate(w, &c, loads).read, 3200000);
    const sums s = simulate(cast, &c, loads);
    cr_expect_eq(s.written, 3200000);
    cr_expect_eq(s.read, 1600000);
    exec_harness_free(w);
    exec_harness_free(cast);
}

Test(simulate, bands_of_columns_are_shared_by_bytes)
{
    exec_load loads[RANKS];
    exec_harness *w = rows_to_columns(80000, 100, DTYPE_FLOAT32);
    const exec_cluster c = {.ranks = 4, .hosts = 4};
    const sums s = simulate(w, &c, loads);
    cr_expect_gt(s.row_blocks, 4);
    cr_expect_eq(s.written, 320000000);
    cr_expect_eq(s.read, 320000000);
    cr_expect_lt(s.most - s.least, 2 * s.written / s.row_blocks);
    exec_harness_free(w);
}

/* Eight row shards on four hosts: what two ranks of a host write is theirs but for a part that keeps
 * them from having more than the others. */
Test(simulate, files_of_other_hosts_travel)
{
    exec_load loads[RANKS];
    exec_harness *w = rows_to_columns(8000, 1, DTYPE_FLOAT32);
    const exec_cluster c = {.ranks = 8, .hosts = 4, .local = true};
    const sums s = simulate(w, &c, loads);
    const uint64_t mean = 32000000 / 8;
    cr_expect_eq(s.written, 32000000);
    cr_expect_eq(s.read, 32000000);
    cr_expect_eq(s.sent, s.received);
    cr_expect_gt(s.sent, 0, "an item of two shards is read from two hosts");
    cr_expect_lt(s.sent, 32000000 / 16);
    cr_expect_leq(s.most, mean + mean / 16 + TILE);
    for (unsigned r = 0; r < 8; r++) {
        cr_expect_eq(exec_cluster_host(&c, r), r / 2);
        cr_expect((loads[r].sent_nbytes == 0) || r % 2 == 0, "the first rank of a host answers");
        cr_expect_eq(loads[r].messages > 0, loads[r].sent_nbytes + loads[r].received_nbytes > 0);
    }
    exec_harness_free(w);
}

/* Columns of rows on all hosts: most of it has to travel. */
Test(simulate, columns_of_local_rows_travel)
{
    exec_load loads[RANKS];
    exec_harness *w = rows_to_columns(8000, 2, DTYPE_FLOAT32);
    const exec_cluster c = {.ranks = 8, .hosts = 8, .local = true};
    const sums s = simulate(w, &c, loads);
    cr_expect_eq(s.written, 32000000);
    cr_expect_eq(s.sent, s.received);
    cr_expect_eq(s.read, 32000000);
    exec_harness_free(w);
}

Test(simulate, more_hosts_than_ranks)
{
    exec_load loads[RANKS];
    exec_harness *w = rows_to_columns(80, 1, DTYPE_FLOAT32);
    plan *p;
    struct exec *x;
    fsdpck_error err = {0};
    const plan_options opt = {.replicas = REPLICAS_FIRST};
    cr_assert_eq(plan_new(&w->source.cat, &w->to, &opt, &w->metadata, &p, &err), FSDPCK_OK);
    const exec_request r = {.plan = p,
                            .source = &w->source.src,
                            .target = &w->to,
                            .memory_nbytes = EXEC_MEMORY_NBYTES_MIN};
    cr_assert_eq(exec_resolve(&r, &x, &err), FSDPCK_OK);
    cr_expect_eq(exec_simulate(x, &(exec_cluster){.ranks = 2, .hosts = 3}, loads, &err),
                 FSDPCK_USAGE);
    cr_expect_eq(exec_simulate(x, &(exec_cluster){.ranks = 0, .hosts = 0}, loads, &err),
                 FSDPCK_USAGE);
    exec_free(x);
    plan_free(p);
    exec_harness_free(w);
}

Test(simulate, time_is_the_slowest)
{
    const exec_load loads[4] = {{.read_nbytes = 100, .written_nbytes = 100},
                                {.read_nbytes = 100, .written_nbytes = 150, .sent_nbytes = 20},
                                {.read_nbytes = 100, .written_nbytes = 100, .received_nbytes = 20},
                                {.read_nbytes = 100, .written_nbytes = 50}};
    exec_cluster c = {.ranks = 4, .hosts = 2};
    exec_times t;
    /* A rank has a quarter of the file system; a host the bytes of two ranks. */
    exec_predict_times(&c, loads, &(exec_bandwidth){40, 20, 0}, &t);
    cr_expect_float_eq(t.read, 10, 1e-9);
    cr_expect_float_eq(t.write, 30, 1e-9);
    cr_expect_float_eq(t.net, 0, 1e-9);
    cr_expect_float_eq(t.overlapped, 30, 1e-9);
    cr_expect_float_eq(t.serial, 40, 1e-9);
    exec_predict_times(&c, loads, &(exec_bandwidth){0, 0, 2}, &t);
    cr_expect_float_eq(t.net, 135, 1e-9); /* host 0 writes 250 and sends 20 */
    cr_expect_float_eq(t.overlapped, 135, 1e-9);
    c.local = true;
    exec_predict_times(&c, loads, &(exec_bandwidth){40, 20, 2}, &t);
    cr_expect_float_eq(t.read, 5, 1e-9); /* 200 bytes of the disks of a host */
    cr_expect_float_eq(t.net, 135, 1e-9);
}
