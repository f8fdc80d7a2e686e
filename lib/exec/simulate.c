#include "exec/simulate.h"

#include <stdlib.h>

#include "base/text.h"
#include "exec/column_group.h"
#include "exec/exec_internal.h"
#include "exec/partition.h"
#include "group/group_remote_reads.h"

/* Request, header of the reply, and the bytes. */
#define MESSAGES_PER_READ 3u

typedef struct simulation {
    const struct exec *x;
    const exec_cluster *cluster;
    file_holders *holders; /* by source file; NULL: all see all */
    uint32_t *ranks;       /* that they point into */
    uint64_t read_nbytes;  /* of one read at most */
    exec_load *loads;
} simulation;

unsigned exec_cluster_host(const exec_cluster *c, unsigned rank)
{
    return (unsigned)((uint64_t)rank * c->hosts / c->ranks);
}

static unsigned first_rank(const exec_cluster *c, uint64_t host)
{
    return (unsigned)((host * c->ranks + c->hosts - 1) / c->hosts);
}

/* ---- location of the source ---- */

/* Number of ranks that wrote it, or 0 if a file does not record its rank. */
static uint64_t count_writers(const catalogue *from)
{
    uint64_t writers = 0;
    for (size_t i = 0; i < catalogue_file_count(from); i++) {
        const uint32_t rank = catalogue_file(from, i)->rank;
        if (rank == CAT_NONE)
            return 0;
        writers = rank >= writers ? (uint64_t)rank + 1 : writers;
    }
    return writers;
}

static fsdpck_status assign_files(simulation *s, fsdpck_error *err)
{
    const exec_cluster *c = s->cluster;
    const catalogue *from = plan_source(s->x->r.plan);
    const uint64_t files = catalogue_file_count(from);
    const uint64_t writers = count_writers(from);
    s->holders = calloc(files + 1, sizeof *s->holders);
    s->ranks = calloc(c->ranks, sizeof *s->ranks);
    if (s->holders == NULL || s->ranks == NULL)
        return error_set_nomem(err, files * sizeof *s->holders);
    for (unsigned r = 0; r < c->ranks; r++)
        s->ranks[r] = r;
    for (uint64_t i = 0; i < files; i++) {
        const uint64_t host = writers > 0
                                  ? catalogue_file(from, i)->rank * (uint64_t)c->hosts / writers
                                  : i * c->hosts / files;
        const unsigned first = first_rank(c, host);
        s->holders[i] = (file_holders){s->ranks + first, first_rank(c, host + 1) - first};
    }
    return FSDPCK_OK;
}

/* ---- the work of a rank ---- */

/* Reads a range of a file for a rank: itself, or by the rank that remote_folder.h would use. */
static void count_read(simulation *s, unsigned rank, uint32_t file_index, uint64_t nbytes)
{
    exec_load *own = &s->loads[rank];
    const file_holders *h = s->holders == NULL ? NULL : &s->holders[file_index];
    if (h == NULL || (rank >= h->ranks[0] && rank - h->ranks[0] < h->count)) {
        own->read_nbytes += nbytes;
        return;
    }
    /* Its ends may be anywhere in a step. */
    const uint64_t messages =
        MESSAGES_PER_READ * ((nbytes + s->read_nbytes - 1) / s->read_nbytes + 1);
    exec_load *other = &s->loads[h->ranks[0]];
    own->received_nbytes += nbytes;
    own->messages += messages;
    other->read_nbytes += nbytes;
    other->sent_nbytes += nbytes;
    other->messages += messages;
}

/* Elements of a target chunk; returns the bytes of those that rank 0 brings instead, from streams. */
static uint64_t count_segments(simulation *s, unsigned rank, uint64_t chunk, uint64_t first,
                               uint64_t end)
{
    const struct exec *x = s->x;
    const catalogue *to = &x->r.target->cat;
    const dtype type = (dtype)catalogue_tensor(to, catalogue_chunk(to, chunk)->tensor)->dtype;
    uint64_t streamed = 0;
    segment_walk seg;
    segment_walk_begin(&seg, x->r.plan, chunk, first, end);
    while (segment_walk_next(&seg)) {
        const chunk_extent *where = &x->chunk_extents[seg.src_chunk];
        const dtype from = exec_chunk_dtype(x, seg.src_chunk);
        if ((where->flags & (EXTENT_STREAM | EXTENT_BOXES)) == EXTENT_STREAM)
            streamed += seg.nelems * dtype_get(type)->itemsize_bytes;
        else
            count_read(s, rank, where->file, seg.nelems * dtype_get(from)->itemsize_bytes);
    }
    return streamed;
}

static uint64_t count_elements(simulation *s, unsigned rank, uint64_t chunk, uint64_t first,
                               uint64_t end)
{
    const struct exec *x = s->x;
    const uint32_t tensor = catalogue_chunk(&x->r.target->cat, chunk)->tensor;
    const catalogue *from = plan_source(x->r.plan);
    if (s->holders != NULL || exec_chunk_is_streamed(x, chunk))
        return count_segments(s, rank, chunk, first, end);
    const dtype type = (dtype)catalogue_tensor(from, plan_source_tensor(x->r.plan, tensor))->dtype;
    s->loads[rank].read_nbytes += (end - first) * dtype_get(type)->itemsize_bytes;
    return 0;
}

static fsdpck_status take_item(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err)
{
    simulation *s = ctx;
    const struct exec *x = s->x;
    output_range range;
    range_walk walk;
    range_part part;
    uint64_t others = 0;
    (void)err;
    plan_get_item(x->r.plan, item, &range);
    range_walk_begin(&walk, x->r.plan, &range);
    while (range_walk_next(&walk, &part)) {
        if (part.kind != RANGE_PART_CHUNK)
            continue;
        if (exec_chunk_is_grouped(x, part.chunk)) {
            others += part.end - part.begin;
            continue;
        }
        const uint64_t streamed =
            count_elements(s, rank, part.chunk, part.first_elem, part.end_elem);
        others += streamed;
        s->loads[0].written_nbytes += streamed;
    }
    s->loads[rank].items++;
    s->loads[rank].written_nbytes += range.end - range.begin - others;
    return FSDPCK_OK;
}

static fsdpck_status take_row_block(void *ctx, unsigned rank, uint64_t item, fsdpck_error *err)
{
    simulation *s = ctx;
    const catalogue *to = &s->x->r.target->cat;
    column_block b;
    (void)err;
    column_group_get_block(s->x, item, &b);
    for (uint32_t i = 0; i < b.count; i++) {
        const cat_chunk *k = catalogue_chunk(to, b.members[i]);
        const uint64_t itemsize =
            dtype_get((dtype)catalogue_tensor(to, k->tensor)->dtype)->itemsize_bytes;
        const uint64_t row = k->nbytes / b.column_group->rows / itemsize;
        (void)count_elements(s, rank, b.members[i], b.first_row * row,
                             (b.first_row + b.rows) * row);
    }
    s->loads[rank].row_blocks++;
    s->loads[rank].written_nbytes += column_block_nbytes(s->x, &b);
    return FSDPCK_OK;
}

/* Work that is not distributed by items: streams, which rank 0 decodes, and replicas to compare. */
static void count_rest(simulation *s)
{
    const struct exec *x = s->x;
    const catalogue *from = plan_source(x->r.plan);
    for (size_t i = 0; i < x->streams.count; i++) {
        const cat_chunk *k = catalogue_chunk(from, *VEC_AT(&x->streams, const uint64_t, i));
        count_read(s, 0, k->file, k->nbytes);
    }
    for (unsigned r = 0; r < s->cluster->ranks; r++) {
        uint64_t begin, end;
        group_range_of(r, s->cluster->ranks, x->compare.count, &begin, &end);
        for (; begin < end; begin++) {
            const replica_pair *pair = VEC_AT(&x->compare, const replica_pair, begin);
            const cat_chunk *a = catalogue_chunk(from, pair->first);
            const cat_chunk *b = catalogue_chunk(from, pair->again);
            count_read(s, r, a->file, a->nbytes);
            count_read(s, r, b->file, b->nbytes);
        }
    }
}

static void count_memory(simulation *s)
{
    const struct exec *x = s->x;
    uint64_t nbytes = x->stats.buffer_nbytes;
    if (x->r.metadata != NULL)
        nbytes += atomic_load(&x->r.metadata->peak_bytes);
    for (unsigned r = 0; r < s->cluster->ranks; r++)
        s->loads[r].memory_nbytes =
            nbytes +
            (s->loads[r].sent_nbytes > 0 ? REMOTE_READS_JOBS * REMOTE_READS_NBYTES_MAX : 0);
}

fsdpck_status exec_simulate(const struct exec *x, const exec_cluster *cluster, exec_load *loads,
                            fsdpck_error *err)
{
    simulation s = {.x = x, .cluster = cluster, .loads = loads};
    fsdpck_status st = FSDPCK_OK;
    if (cluster->ranks == 0 || cluster->hosts == 0 || cluster->hosts > cluster->ranks)
        return FAIL_WITH(err, USAGE, NONE, ("group has fewer ranks than hosts"),
                         (found, "%u rank%s on %u host%s", cluster->ranks,
                          text_plural(cluster->ranks), cluster->hosts,
                          text_plural(cluster->hosts)));
    s.read_nbytes =
        x->step_nbytes < REMOTE_READS_NBYTES_MAX ? x->step_nbytes : REMOTE_READS_NBYTES_MAX;
    if (cluster->local && cluster->hosts > 1)
        GOTO_IF(assign_files(&s, err), out);
    const partition_group g = {.size = cluster->ranks, .holders = s.holders};
    GOTO_IF(partition_items(x, &g, take_item, &s, err), out);
    GOTO_IF(partition_row_blocks(x, &g, take_row_block, &s, err), out);
    count_rest(&s);
    count_memory(&s);
out:
    free(s.holders);
    free(s.ranks);
    return st;
}

/* ---- times ---- */

static double longer_of(double a, double b)
{
    return a > b ? a : b;
}

static double seconds_of(uint64_t nbytes, double bandwidth)
{
    return bandwidth > 0 ? (double)nbytes / bandwidth : 0;
}

/* The bytes of one host's ranks, from `at` on. */
static exec_load host_load(const exec_cluster *c, const exec_load *loads, unsigned *at)
{
    exec_load sum = {0};
    const unsigned host = exec_cluster_host(c, *at);
    for (; *at < c->ranks && exec_cluster_host(c, *at) == host; ++*at) {
        sum.read_nbytes += loads[*at].read_nbytes;
        sum.written_nbytes += loads[*at].written_nbytes;
        sum.sent_nbytes += loads[*at].sent_nbytes;
        sum.received_nbytes += loads[*at].received_nbytes;
    }
    return sum;
}

void exec_predict_times(const exec_cluster *c, const exec_load *loads,
                        const exec_bandwidth *bandwidth, exec_times *t)
{
    const double read = (double)bandwidth->read, write = (double)bandwidth->write;
    *t = (exec_times){0};
    /* A rank gets its part of the file system's bandwidth. */
    for (unsigned r = 0; r < c->ranks; r++) {
        if (!c->local)
            t->read = longer_of(t->read, seconds_of(loads[r].read_nbytes, read / c->ranks));
        t->write = longer_of(t->write, seconds_of(loads[r].written_nbytes, write / c->ranks));
    }
    for (unsigned r = 0; r < c->ranks;) {
        const exec_load host = host_load(c, loads, &r);
        const uint64_t in = host.received_nbytes + (c->local ? 0 : host.read_nbytes);
        const uint64_t out = host.sent_nbytes + host.written_nbytes;
        if (c->local)
            t->read = longer_of(t->read, seconds_of(host.read_nbytes, read));
        t->net = longer_of(t->net, seconds_of(in > out ? in : out, (double)bandwidth->net));
    }
    t->overlapped = longer_of(longer_of(t->read, t->write), t->net);
    t->serial = longer_of(t->read + t->write, t->net);
}
