/* A large reshard planned and dealt to the ranks of a cluster, without data: Llama 3.1 405B with two
 * Adam moments in fp32 (4.87 TB), saved by 1,024 ranks of 128 hosts, for 256 ranks. All is what a run
 * does before it writes, and what reshard --dry-run --group-size then tells of (exec/simulate.h), where
 * the source is on a file system that all see and where it is on the disks of the hosts that saved it.
 *
 * Argument: layers of the model (4); 126 are all of them: "full size", under 30 s and 4 GiB. The
 * table tells the bytes of the rank that has least and most, and the seconds predicted at some
 * bandwidths of the file system (reading / writing, GB/s, with 45 GB/s for each host's network), with
 * reading and writing at the same time ("both"), and in turns on one path. Beside them what no dealing
 * can go below: the bytes of all through the narrowest of the three.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/simulate.h"
#include "tests/support/seconds.h"
#include "tests/support/synthetic_dcp.h"

#define RANKS_IN  1024u
#define RANKS_OUT 256u
#define RANKS_MAX 1024u
#define LIMIT     ((uint64_t)4 << 30)
#define SECONDS   30.0
#define LAYERS    126u
#define GB        UINT64_C(1000000000)
#define NET       (45 * GB)
/* Of one read of another host's file. */
#define STEP_NBYTES ((uint64_t)256 << 10)

/* Of the wall: two cores do what 128 hosts would all do alike. */
/* ---- the model ---- */

typedef struct parameter {
    const char *name;
    uint64_t shape[2]; /* the second 0: a vector */
} parameter;

#define IN_LAYER 9u
#define OUTSIDE  3u

static const parameter in_layer[IN_LAYER] = {
    {"attention.wq.weight", {16384, 16384}},
    {"attention.wk.weight", {1024, 16384}},
    {"attention.wv.weight", {1024, 16384}},
    {"attention.wo.weight", {16384, 16384}},
    {"feed_forward.w1.weight", {53248, 16384}},
    {"feed_forward.w2.weight", {16384, 53248}},
    {"feed_forward.w3.weight", {53248, 16384}},
    {"attention_norm.weight", {16384, 0}},
    {"ffn_norm.weight", {16384, 0}},
};
static const parameter outside[OUTSIDE] = {
    {"tok_embeddings.weight", {128256, 16384}},
    {"norm.weight", {16384, 0}},
    {"output.weight", {128256, 16384}},
};

static const parameter *parameter_of(uint64_t i)
{
    return i < OUTSIDE ? &outside[i] : &in_layer[(i - OUTSIDE) % IN_LAYER];
}

static unsigned shape_of(uint64_t i, uint64_t *shape)
{
    memcpy(shape, parameter_of(i)->shape, sizeof parameter_of(i)->shape);
    return shape[1] > 0 ? 2 : 1;
}

/* "layers.3.ffn_norm.weight" */
static void name_of(uint64_t i, char *fqn, size_t capacity)
{
    const char *name = parameter_of(i)->name;
    if (i < OUTSIDE)
        snprintf(fqn, capacity, "%s", name);
    else
        snprintf(fqn, capacity, "layers.%" PRIu64 ".%s", (i - OUTSIDE) / IN_LAYER, name);
}

/* ---- what each rank has ---- */

typedef struct extent {
    uint64_t least, most, total;
} extent;

static void add(extent *e, uint64_t n)
{
    e->least = e->total == 0 || n < e->least ? n : e->least;
    e->most = n > e->most ? n : e->most;
    e->total += n;
}

typedef struct extents {
    extent read, written, sent, received, items, messages, memory;
} extents;

static void sum_loads(const exec_cluster *c, const exec_load *loads, extents *e)
{
    memset(e, 0, sizeof *e);
    for (unsigned r = 0; r < c->ranks; r++) {
        add(&e->read, loads[r].read_nbytes);
        add(&e->written, loads[r].written_nbytes);
        add(&e->sent, loads[r].sent_nbytes);
        add(&e->received, loads[r].received_nbytes);
        add(&e->items, loads[r].items + loads[r].row_blocks);
        add(&e->messages, loads[r].messages);
        add(&e->memory, loads[r].memory_nbytes);
    }
}

static bool is_near(const extent *e, unsigned ranks, uint64_t slack)
{
    const uint64_t mean = e->total / ranks;
    return e->most <= mean + slack && e->least + slack >= mean;
}

static void check(const exec_cluster *c, const exec_load *loads, const extents *e,
                  const plan_totals *s, uint64_t output_nbytes)
{
    /* Elements that the edges of items cut are read by both. */
    synthetic_dcp_must(e->read.total >= s->source_bytes &&
                           e->read.total <= s->source_bytes + 4 * s->items,
                       "not every element is read once");
    synthetic_dcp_must(e->written.total == output_nbytes, "not every byte is written once");
    synthetic_dcp_must(e->sent.total == e->received.total, "what is sent is not what is received");
    synthetic_dcp_must(e->items.total == s->items, "not every item is done once");
    const uint64_t mean = e->written.total / c->ranks;
    if (!c->local) {
        synthetic_dcp_must(is_near(&e->written, c->ranks, PLAN_TILE_NBYTES),
                           "ranks differ by more than a tile from the mean");
        synthetic_dcp_must(e->read.most <= e->written.most + 4 * e->items.most,
                           "a rank reads more than it writes");
        synthetic_dcp_must(e->sent.total == 0 && e->messages.total == 0,
                           "bytes travel on a shared file system");
        return;
    }
    synthetic_dcp_must(e->written.most <= mean + mean / 16 + PLAN_TILE_NBYTES,
                       "a rank writes much more than the mean");
    synthetic_dcp_must(e->received.total < e->read.total / 4, "too much travels");
    for (unsigned r = 0; r < c->ranks; r++)
        synthetic_dcp_must(
            loads[r].messages <=
                3 * ((loads[r].sent_nbytes + loads[r].received_nbytes) / STEP_NBYTES +
                     2 * e->items.most),
            "more messages than bytes and items ask for");
}

/* ---- the table ---- */

static double most_of(double a, double b, double c)
{
    const double most = a > b ? a : b;
    return most > c ? most : c;
}

static void print_times(const exec_cluster *c, const exec_load *loads, double all_nbytes,
                        uint64_t read, uint64_t write)
{
    const exec_bandwidth bandwidth = {c->local ? 0 : read * GB, write * GB, NET};
    const double reading = c->local ? 0 : all_nbytes / (double)(read * GB);
    const double writing = all_nbytes / (double)(write * GB);
    const double net = all_nbytes / ((double)c->hosts * (double)NET);
    exec_times t;
    exec_predict_times(c, loads, &bandwidth, &t);
    printf(" %6.1f/%-6.1f", t.overlapped, most_of(reading, writing, net));
    if (c->local)
        printf(" %6s %-6s", "-", "");
    else
        printf(" %6.1f/%-6.1f", t.serial, most_of(reading + writing, net, 0));
    if (!c->local && c->hosts > 8)
        synthetic_dcp_must(t.overlapped <= 1.02 * writing, "slower than the file system");
}

static void deal_cluster(const synthetic_dcp *w, const exec_cluster *c, const plan_totals *sums)
{
    static exec_load loads[RANKS_MAX];
    fsdpck_error err;
    extents e;
    uint64_t output_nbytes = 0;
    fsdpck_error_init(&err);
    memset(loads, 0, sizeof loads);
    for (size_t i = 0; i < catalogue_file_count(&w->to.cat); i++)
        output_nbytes += catalogue_file(&w->to.cat, i)->nbytes;
    const double began = wall_seconds();
    synthetic_dcp_must(exec_simulate(w->exec, c, loads, &err) == FSDPCK_OK, err.message);
    const double took = wall_seconds() - began;
    sum_loads(c, loads, &e);
    printf("%5u %5u %-6s %8.3f %8.3f %8.3f %8.3f %6" PRIu64 " %7.3f %7.3f %7" PRIu64
           " %6.0f %5.1f%%",
           c->ranks, c->hosts, c->local ? "local" : "shared", (double)e.read.least / 1e9,
           (double)e.read.most / 1e9, (double)e.written.least / 1e9, (double)e.written.most / 1e9,
           e.items.most, (double)e.sent.most / 1e9, (double)e.received.most / 1e9, e.messages.most,
           (double)e.memory.most / 1e6, 100 * (double)e.received.total / (double)e.read.total);
    print_times(c, loads, (double)sums->target_bytes, 500, 300);
    print_times(c, loads, (double)sums->target_bytes, 100, 50);
    printf(" %6.2f\n", took);
    fflush(stdout);
    check(c, loads, &e, sums, output_nbytes);
}

static void deal_all(const synthetic_dcp *w, const plan_totals *sums)
{
    static const exec_cluster all[] = {{8, 8, false},      {16, 16, false},  {128, 128, false},
                                       {1024, 128, false}, {128, 128, true}, {1024, 128, true}};
    printf(
        "                   read, GB          written, GB        most    most GB   most GB    most "
        " "
        "most MB travels seconds/bound at 500/300    at 100/50\n"
        "ranks hosts source    least     most    least     most  items    sent received messages "
        "memory  of all     both         one path      both         one path    dealt\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        deal_cluster(w, &all[i], sums);
}

int main(int argc, char **argv)
{
    const uint64_t layers = argc > 1 ? strtoull(argv[1], NULL, 10) : 4;
    const synthetic_dcp_model model = {layers * IN_LAYER + OUTSIDE, name_of, shape_of};
    synthetic_dcp w;
    plan_totals sums;
    synthetic_dcp_init(&w, &model, RANKS_IN, LIMIT);
    const double began = wall_seconds();
    synthetic_dcp_explain(&w);
    synthetic_dcp_select(&w, RANKS_OUT);
    synthetic_dcp_lay_out(&w);
    synthetic_dcp_plan(&w);
    const double planned = wall_seconds() - began;
    synthetic_dcp_resolve(&w);
    const double located = wall_seconds() - began - planned;
    plan_get_totals(w.plan, &sums);
    printf("%" PRIu64 " layers, %" PRIu64 " tensors, %.3f TB; %" PRIu64 " chunks in, %" PRIu64
           " out, %" PRIu64 " items; planned in %.2f s, located in %.2f s\n",
           layers, w.tensors, (double)sums.target_bytes / 1e12, catalogue_chunk_count(&w.from),
           catalogue_chunk_count(&w.to.cat), sums.items, planned, located);
    deal_all(&w, &sums);
    const double all = wall_seconds() - began;
    printf("all in %.1f s; peak %.0f MB\n", all, (double)synthetic_dcp_peak_nbytes() / 1e6);
    synthetic_dcp_must(all < SECONDS, "more than 30 s");
    synthetic_dcp_must(synthetic_dcp_peak_nbytes() <= LIMIT, "more than 4 GiB");
    synthetic_dcp_release(&w);
    return 0;
}
