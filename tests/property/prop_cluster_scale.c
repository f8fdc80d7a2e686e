/* A large reshard planned and dealt to the ranks of a cluster, without data: Llama 3.1 405B with two
 * Adam moments in fp32 (4.87 TB), saved by 1,024 ranks of 128 hosts, for 256 ranks. The source
 * catalogue is made in memory, as the DCP reader leaves it; all else is what a run does before it
 * writes (aim, places, plan, heads located by a source that invents them), and who does which item,
 * where the source is on a file system that all see and where it is on the disks of the hosts that
 * saved it.
 *
 * Argument: layers of the model (4); 126 are all of them: "full size", under 30 s and 4 GiB. The
 * table tells what each rank reads, writes and has from others, and the seconds that this takes with
 * some bandwidths: all in time with each other, or reading and writing on one path after another.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "aim/aim.h"
#include "exec/deal.h"
#include "exec/exec.h"
#include "formats/dcp/dcp.h"
#include "plan/plan.h"
#include "plan/segment.h"

#define RANKS_IN   1024u
#define RANKS_OUT  256u
#define HOSTS      128u
#define RANKS_MOST 1024u
#define HEAD       700u /* bytes of a blob in front of a chunk's elements, and behind them */
#define TAIL       300u
#define LIMIT      ((uint64_t)4 << 30)
#define SECONDS    30.0
#define LAYERS     126u

typedef struct world {
    budget metadata;
    catalogue from;
    target to;
    layout cut;
    aim_parts parts;
    source src;
    uint64_t layers, tensors;
} world;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "prop_cluster_scale: %s\n", what);
    exit(1);
}

static void must_do(fsdpck_status st, const fsdpck_error *err)
{
    if (st == FSDPCK_OK)
        return;
    fprintf(stderr, "prop_cluster_scale: %s: %s\n", err->tensor, err->message);
    exit(1);
}

/* Of the wall: two cores do what 128 hosts would all do alike. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the source ---- */

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

static const parameter *parameter_of(const world *w, uint64_t i)
{
    return i < w->layers * IN_LAYER ? &in_layer[i % IN_LAYER] : &outside[i - w->layers * IN_LAYER];
}

static unsigned shape_of(const world *w, uint64_t i, uint64_t *shape)
{
    memcpy(shape, parameter_of(w, i)->shape, sizeof parameter_of(w, i)->shape);
    return shape[1] > 0 ? 2 : 1;
}

/* "layers.3.ffn_norm.weight" */
static void fqn_of(const world *w, uint64_t i, char *fqn, size_t capacity)
{
    const char *name = parameter_of(w, i)->name;
    if (i < w->layers * IN_LAYER)
        snprintf(fqn, capacity, "layers.%" PRIu64 ".%s", i / IN_LAYER, name);
    else
        snprintf(fqn, capacity, "%s", name);
}

/* Flat key and path of torch. */
static void add_tensor(world *w, uint64_t i, fsdpck_error *err)
{
    static const char *const moments[] = {"", "exp_avg", "exp_avg_sq"};
    value_pool *pool = &w->from.pool;
    char fqn[64], name[96];
    uint64_t shape[2];
    uint32_t tensor;
    value path[4];
    size_t n = 0;
    fqn_of(w, i / 3, fqn, sizeof fqn);
    const int nbytes = i % 3 == 0
                           ? snprintf(name, sizeof name, "model.%s", fqn)
                           : snprintf(name, sizeof name, "optim.state.%s.%s", fqn, moments[i % 3]);
    const unsigned ndim = shape_of(w, i / 3, shape);
    must_do(catalogue_add_tensor(&w->from, name, (size_t)nbytes, DTYPE_FLOAT32, ndim, shape,
                                 &tensor, err),
            err);
    const char *const texts[] = {i % 3 == 0 ? "model" : "optim", "state", fqn, moments[i % 3]};
    for (size_t k = 0; k < 4; k++) {
        if (i % 3 != 0 || k == 0 || k == 2)
            must_do(value_new_str(pool, texts[k], strlen(texts[k]), &path[n++], err), err);
    }
    must_do(
        value_new_from(pool, VALUE_TUPLE, path, n, &catalogue_tensor(&w->from, tensor)->path, err),
        err);
}

/* Rank r's part, by torch's rule; its bytes. */
static uint64_t piece_of(const world *w, uint64_t tensor, uint32_t r, uint64_t *offsets,
                         uint64_t *sizes)
{
    const unsigned ndim = shape_of(w, tensor / 3, sizes);
    const uint64_t rows = sizes[0];
    const uint64_t each = (rows + RANKS_IN - 1) / RANKS_IN;
    offsets[0] = r * each < rows ? r * each : rows;
    offsets[1] = 0;
    sizes[0] = rows - offsets[0] < each ? rows - offsets[0] : each;
    return sizes[0] * (ndim == 2 ? sizes[1] : 1) * 4;
}

static void add_source(world *w, fsdpck_error *err)
{
    uint64_t offsets[2], sizes[2];
    for (uint64_t i = 0; i < w->tensors; i++)
        add_tensor(w, i, err);
    for (uint32_t r = 0; r < RANKS_IN; r++) { /* rank by rank, as .metadata has them */
        char name[32];
        uint32_t index;
        uint64_t at = 0;
        const int n = snprintf(name, sizeof name, "__%u_0.distcp", r);
        must_do(catalogue_add_file(&w->from, name, (size_t)n, (uint64_t)1 << 50, r, &index, err),
                err);
        for (uint64_t t = 0; t < w->tensors; t++) {
            const uint64_t nbytes = piece_of(w, t, r, offsets, sizes) + HEAD + TAIL;
            const cat_chunk proto = {.file = index,
                                     .rank = (uint16_t)r,
                                     .place = PLACE_BLOB,
                                     .offset_bytes = at,
                                     .nbytes = nbytes};
            must_do(catalogue_add_chunk(&w->from, (uint32_t)t, offsets, sizes, &proto, err), err);
            at += nbytes;
        }
    }
    w->from.origin.world_size = RANKS_IN;
    must_do(catalogue_seal(&w->from, err), err);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const world *w = ctx;
    const cat_chunk *k = catalogue_chunk(&w->from, chunk);
    (void)err;
    where->file = k->file;
    where->offset_bytes = k->offset_bytes + HEAD;
    where->rows = true;
    return FSDPCK_OK;
}

/* ---- what a run does before it writes ---- */

static void aim_at_ranks(world *w, fsdpck_error *err)
{
    const aim_cut_request cut = {.layout = &w->cut, .every_rank = dcp_writer.every_rank};
    const aim_request request = {
        .src = &w->src,
        .part = PART_ALL,
        .nested = dcp_writer.takes == TAKES_NESTED,
        .keyed = dcp_writer.takes == TAKES_KEYED,
        .holds = dcp_writer.holds,
        .format = dcp_writer.name,
        .cut = &cut,
    };
    aim_result result;
    must(w->from.meshes.count == 1, "the chunks were not explained");
    layout_init(&w->cut, &w->metadata);
    must_do(layout_scale_mesh(catalogue_mesh(&w->from, 0), RANKS_OUT, &w->cut.mesh, err), err);
    must_do(aim_build(&w->from, &w->parts, &request, &w->to, &result, err), err);
    must(result.tensors_out == w->tensors, "tensors were lost");
    aim_result_release(&result);
}

static void locate_all(world *w, const plan *p, fsdpck_error *err)
{
    struct exec *x;
    const exec_request request = {
        .plan = p,
        .source = &w->src,
        .target = &w->to,
        .nthreads = 2,
        .memory_nbytes = EXEC_MEMORY_NBYTES_MIN,
        .metadata = &w->metadata,
    };
    must_do(exec_locate(&request, &x, err), err);
    exec_free(x);
}

/* Bytes of memory that the process has had at most. */
static uint64_t peak_nbytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* ---- who does what ---- */

typedef struct rank_load {
    uint64_t items, nbytes, received;
} rank_load;

typedef struct cluster {
    const world *w;
    const plan *p;
    unsigned ranks, hosts;
    bool near; /* files are on the disks of who saved them */
    rank_load loads[RANKS_MOST];
    uint64_t sent[HOSTS];    /* by host */
    uint64_t on_host[HOSTS]; /* of the item under way */
    double took;
} cluster;

static unsigned host_of_rank(const cluster *c, unsigned rank)
{
    return rank / (c->ranks / c->hosts);
}

static void count_segments(cluster *c, uint64_t item, uint64_t *nbytes)
{
    static segment_walk s;
    output_range range;
    range_walk walk;
    range_part part;
    *nbytes = 0;
    memset(c->on_host, 0, sizeof c->on_host);
    plan_get_item(c->p, item, &range);
    range_walk_begin(&walk, c->p, &range);
    while (range_walk_next(&walk, &part)) {
        *nbytes += part.end - part.begin;
        if (part.kind != PART_CHUNK || !c->near)
            continue;
        segment_walk_begin(&s, c->p, part.chunk, part.first_elem, part.end_elem);
        while (segment_walk_next(&s))
            c->on_host[catalogue_chunk(&c->w->from, s.src_chunk)->rank / (RANKS_IN / HOSTS)] +=
                4 * s.nelems;
    }
}

static unsigned choose(cluster *c, deal *d, uint64_t nbytes)
{
    const unsigned each = c->ranks / c->hosts;
    for (unsigned h = 0; h < c->hosts; h++)
        for (unsigned k = 0; c->on_host[h] > 0 && k < each; k++)
            deal_near(d, h * each + k, c->on_host[h]);
    return deal_next(d, nbytes);
}

static void deal_cluster(cluster *c, fsdpck_error *err)
{
    const double began = seconds();
    const uint64_t items = plan_item_count(c->p);
    uint64_t nbytes, total = 0, largest = 0, begin = 0, end = 0;
    unsigned owner = 0;
    deal d;
    memset(c->loads, 0, sizeof c->loads);
    memset(c->sent, 0, sizeof c->sent);
    for (uint64_t i = 0; i < items; i++) {
        output_range range;
        plan_get_item(c->p, i, &range);
        total += range.end - range.begin;
        largest = range.end - range.begin > largest ? range.end - range.begin : largest;
    }
    must_do(deal_init(&d, c->ranks, NULL, total, largest, err), err);
    group_share(0, c->ranks, items, &begin, &end);
    for (uint64_t i = 0; i < items; i++) {
        count_segments(c, i, &nbytes);
        while (!c->near && i >= end)
            group_share(++owner, c->ranks, items, &begin, &end);
        if (c->near)
            owner = choose(c, &d, nbytes);
        c->loads[owner].items++;
        c->loads[owner].nbytes += nbytes;
        for (unsigned h = 0; h < c->hosts && c->near; h++) {
            const uint64_t some = h == host_of_rank(c, owner) ? 0 : c->on_host[h];
            c->loads[owner].received += some;
            c->sent[h] += some;
        }
    }
    deal_release(&d);
    c->took = seconds() - began;
}

static void print_cluster(const cluster *c)
{
    uint64_t least = UINT64_MAX, most = 0, total = 0, travelled = 0, received = 0, sent = 0,
             items = 0;
    for (unsigned r = 0; r < c->ranks; r++) {
        const rank_load *l = &c->loads[r];
        least = l->nbytes < least ? l->nbytes : least;
        most = l->nbytes > most ? l->nbytes : most;
        items = l->items > items ? l->items : items;
        received = l->received > received ? l->received : received;
        total += l->nbytes;
        travelled += l->received;
    }
    for (unsigned h = 0; h < c->hosts; h++)
        sent = c->sent[h] > sent ? c->sent[h] : sent;
    printf("%5u %5u %-7s %7.3f to %7.3f %6" PRIu64 " %8.2f %5.1f%% %8.3f %8.3f %6.2f", c->ranks,
           c->hosts, c->near ? "local" : "shared", (double)least / 1e9, (double)most / 1e9, items,
           (double)travelled / 1e9, 100 * (double)travelled / (double)total, (double)received / 1e9,
           (double)sent / 1e9, c->took);
    /* The slowest rank: its part of a path of so many GB/s. */
    const double part = (double)most / 1e9 * (double)c->ranks;
    if (!c->near)
        printf(" %7.1f %7.1f %7.1f %7.1f\n", part / 300, part / 500 + part / 300, part / 50,
               part / 100 + part / 50);
    else
        printf(" %7.1f %7s %7.1f %7s\n", part / 300, "-", part / 50, "-");
    must(total > 0 && (c->near || travelled == 0), "bytes travel on a shared file system");
    must(most - least <= (uint64_t)total / c->ranks / 4 + 2 * PLAN_TILE_NBYTES ||
             c->w->layers < LAYERS,
         "ranks do not do about as much");
    must(travelled < total / 4, "too much travels");
}

static void print_all(const world *w, const plan *p, fsdpck_error *err)
{
    static cluster c;
    static const struct {
        unsigned ranks, hosts;
        bool near;
    } all[] = {
        {8, 8, false}, {128, 128, false}, {1024, 128, false}, {128, 128, true}, {1024, 128, true}};
    printf(
        "                      read and write, GB  most  travelled of all  most GB    most GB      "
        "  "
        "    seconds at read/write GB/s\n"
        "ranks hosts source    of a rank           items       GB        received     sent   dealt "
        "500/300 one path 100/50 one path\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        c = (cluster){
            .w = w, .p = p, .ranks = all[i].ranks, .hosts = all[i].hosts, .near = all[i].near};
        deal_cluster(&c, err);
        print_cluster(&c);
    }
}

int main(int argc, char **argv)
{
    world w = {.layers = argc > 1 ? strtoull(argv[1], NULL, 10) : 4};
    plan *p;
    plan_sums sums;
    const plan_options opt = {.replicas = REPLICAS_CRC};
    const writer_options wo = {0};
    uint64_t otherwise;
    fsdpck_error err;
    fsdpck_error_init(&err);
    w.tensors = 3 * (w.layers * IN_LAYER + OUTSIDE);
    budget_init(&w.metadata, LIMIT, "metadata", NULL);
    catalogue_init(&w.from, &w.metadata);
    target_init(&w.to, &w.metadata);
    w.src = (source){.ctx = &w, .cat = &w.from, .locate = locate};
    add_source(&w, &err);
    const double began = seconds();
    must_do(aim_parts_find(&w.from, &w.parts, &err), &err);
    must_do(aim_explain(&w.from, &otherwise, &err), &err);
    aim_at_ranks(&w, &err);
    must_do(dcp_writer.layout(&w.to, &wo, &err), &err);
    must_do(plan_new(&w.from, &w.to, &opt, &w.metadata, &p, &err), &err);
    const double planned = seconds() - began;
    locate_all(&w, p, &err);
    const double located = seconds() - began - planned;
    plan_get_sums(p, &sums);
    printf("%" PRIu64 " layers, %" PRIu64 " tensors, %.3f TB; %" PRIu64 " chunks in, %" PRIu64
           " out, %" PRIu64 " items; planned in %.2f s, located in %.2f s\n",
           w.layers, w.tensors, (double)sums.target_bytes / 1e12, sums.chunks_in, sums.chunks_out,
           sums.items, planned, located);
    print_all(&w, p, &err);
    printf("all in %.1f s; peak %.0f MB\n", seconds() - began, (double)peak_nbytes() / 1e6);
    must(seconds() - began < SECONDS, "more than 30 s");
    must(peak_nbytes() <= LIMIT, "more than 4 GiB");
    plan_free(p);
    layout_release(&w.cut);
    aim_parts_release(&w.parts);
    catalogue_release(&w.from);
    target_release(&w.to);
    must(w.metadata.used_bytes == 0, "memory was not given back");
    return 0;
}
