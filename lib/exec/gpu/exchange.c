#include "exec/gpu/exchange.h"

#include <stdlib.h>

#include "base/crc.h"
#include "exec/gpu/exchange_internal.h"
#include "exec/gpu/fill_gpu.h"

/* ---- readers of files ---- */

unsigned exchange_reader(const exchange *e, uint32_t file_index, unsigned rank)
{
    const file_holders *h = &e->readers[file_index];
    if (h->count == 0 || ranks_contain(h->ranks, h->count, rank))
        return rank;
    return h->ranks[rank % h->count];
}

/* ---- choice of tiles ---- */

static bool next_tile(exchange *e, tile_cursor *c)
{
    const struct exec *x = e->x;
    while (c->item != ITEM_NONE) {
        if (!c->begun) {
            plan_get_item(x->r.plan, c->item, &c->whole);
            c->range = (output_range){.file = c->whole.file, .end = c->whole.begin};
            c->tile = c->range;
            c->begun = true;
        }
        if (c->tile.end < c->range.end)
            return exec_next_tile(&c->range, e->tile_nbytes, &c->tile);
        if (exec_next_range(x, &c->whole, &c->range)) {
            c->tile = (output_range){.file = c->range.file, .end = c->range.begin};
        } else {
            c->item = e->next_item[c->item];
            c->begun = false;
        }
    }
    return false;
}

/* Bytes that a rank's tile needs from others: elements of the target, in the order of
 * gather_elements. */
static fsdpck_status next_tile_needs(void *ctx, unsigned rank, output_range *tile,
                                     uint64_t *nbytes_from, bool *there, fsdpck_error *err)
{
    exchange *e = ctx;
    const struct exec *x = e->x;
    const catalogue *to = &x->r.target->cat;
    range_walk walk;
    range_part part;
    (void)err;
    *there = next_tile(e, &e->cursors[rank]);
    if (!*there)
        return FSDPCK_OK;
    *tile = e->cursors[rank].tile;
    if (!fill_can_use_gpu(x, tile))
        return FSDPCK_OK;
    range_walk_begin(&walk, x->r.plan, tile);
    while (range_walk_next(&walk, &part)) {
        if (part.kind != RANGE_PART_CHUNK)
            continue;
        const dtype d = (dtype)catalogue_tensor(to, catalogue_chunk(to, part.chunk)->tensor)->dtype;
        gather_walk_begin(x, &e->walk, part.chunk, false, part.first_elem, part.end_elem);
        while (segment_walk_next(&e->walk))
            nbytes_from[exchange_reader(e, x->chunk_extents[e->walk.src_chunk].file, rank)] +=
                e->walk.nelems * dtype_get(d)->itemsize_bytes;
    }
    nbytes_from[rank] = 0;
    return FSDPCK_OK;
}

fsdpck_status exchange_schedule(exchange *e, fsdpck_error *err)
{
    struct exec *x = e->x;
    const unsigned size = group_size(x->r.group);
    const catalogue *from = plan_source(x->r.plan);
    e->readers = calloc(catalogue_file_count(from) + 1, sizeof *e->readers);
    e->next_item = calloc(x->owners.count + 1, sizeof *e->next_item);
    e->cursors = calloc(size, sizeof *e->cursors);
    e->received_at = calloc((size_t)x->nworkers * size, sizeof *e->received_at);
    if (e->readers == NULL || e->next_item == NULL || e->cursors == NULL || e->received_at == NULL)
        return error_set_nomem(err, x->owners.count * sizeof *e->next_item);
    partition_find_holders(x, e->readers);
    for (unsigned r = 0; r < size; r++)
        e->cursors[r].item = ITEM_NONE;
    for (size_t i = x->owners.count; i-- > 0;) {
        tile_cursor *c = &e->cursors[*VEC_AT(&x->owners, const uint32_t, i)];
        e->next_item[i] = c->item;
        c->item = (uint32_t)i;
    }
    for (unsigned i = 0; i < x->nworkers; i++)
        x->workers[i]->of_engine->tile_exchange.received_at = e->received_at + (size_t)i * size;
    return rounds_init(&e->rounds, size, e->tiles_each, e->capacity_nbytes, next_tile_needs, e,
                       err);
}

/* ---- one tile, messages to one rank ---- */

/* Messages that are made together. */
#define MESSAGES_MAX 64u

/* A segment sent by another rank: copied from its message, which has its elements in final form. */
static fsdpck_status receive_segment(worker *w, const segment_walk *seg, unsigned sender, dtype to,
                                     int64_t chunk_at, fsdpck_error *err)
{
    const uint64_t to_size = dtype_get(to)->itemsize_bytes;
    const element_ops as_it_is = {.from = to, .to = to};
    const uint64_t src_at = w->of_engine->tile_exchange.received_at[sender];
    const uint8_t *dst = w->gather.base + chunk_at + (int64_t)(seg->dst_first * to_size);
    strided *s = &w->shape;
    w->of_engine->tile_exchange.received_at[sender] += seg->nelems * to_size;
    s->ndim = seg->ndim;
    box_row_major_strides(seg->sizes, seg->ndim, s->src_strides);
    for (unsigned d = 0; d < seg->ndim; d++) {
        s->sizes[d] = seg->sizes[d];
        s->src_strides[d] *= to_size;
        s->dst_strides[d] = seg->dst_strides[d] * to_size;
    }
    strided_collapse(s);
    if (s->ndim == 0) {
        s->ndim = 1;
        s->sizes[0] = 1;
        s->src_strides[0] = s->dst_strides[0] = to_size;
    }
    return gpu_worker_put_received(w->of_engine->gpu_worker, &as_it_is, s, gpu_span_at(w, dst),
                                   src_at, err);
}

static unsigned reader_of(const worker *w, const segment_walk *seg, unsigned rank)
{
    const struct exec *x = w->x;
    return exchange_reader(x->of_engine->exchange, x->chunk_extents[seg->src_chunk].file, rank);
}

/* Places the segments that others sent. */
static fsdpck_status take_sent(worker *w, const segment_walk *seg, dtype to, int64_t chunk_at,
                               fsdpck_error *err)
{
    const unsigned here = group_rank(w->x->r.group);
    const unsigned reader = reader_of(w, seg, here);
    return reader == here ? FSDPCK_OK : receive_segment(w, seg, reader, to, chunk_at, err);
}

/* Gathers the segments that this rank reads for itself. */
static fsdpck_status gather_here(worker *w, const segment_walk *seg, dtype to, int64_t chunk_at,
                                 fsdpck_error *err)
{
    const unsigned here = group_rank(w->x->r.group);
    return reader_of(w, seg, here) == here ? gather_segment(w, seg, to, chunk_at, err) : FSDPCK_OK;
}

/* Gathers the segments that this rank reads for another: packed consecutively, as elements of the
 * target. */
static fsdpck_status gather_to_send(worker *w, const segment_walk *seg, dtype to, int64_t chunk_at,
                                    fsdpck_error *err)
{
    tile_exchange *t = &w->of_engine->tile_exchange;
    uint64_t strides[NDIM_MAX];
    (void)chunk_at;
    if (reader_of(w, seg, t->rank) != group_rank(w->x->r.group) ||
        (w->x->chunk_extents[seg->src_chunk].flags & EXTENT_STREAM))
        return FSDPCK_OK;
    const int64_t at = (int64_t)t->sent;
    t->sent += seg->nelems * dtype_get(to)->itemsize_bytes;
    box_row_major_strides(seg->sizes, seg->ndim, strides);
    return gather_segment_to(w, seg, to, at, strides, err);
}

fsdpck_status exchange_gather(worker *w, const output_range *range, fsdpck_error *err)
{
    tile_exchange *t = &w->of_engine->tile_exchange;
    gpu_worker *const part = w->of_engine->gpu_worker;
    const exchange_received *recv_buffer = t->recv_buffer;
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < recv_buffer->need_count; i++) {
        const round_need *n = &recv_buffer->needs[i];
        t->received_at[n->from] = n->at_to;
        st = gpu_worker_receive(part, recv_buffer->at + n->at_to, n->nbytes,
                                rounds_sum_at(n->nbytes), err);
    }
    w->segment = take_sent;
    if (st == FSDPCK_OK)
        st = gpu_worker_set_input(part, recv_buffer->at, err);
    if (st == FSDPCK_OK)
        st = gather_range(w, range, err);
    w->segment = gather_here;
    if (st == FSDPCK_OK)
        st = gpu_worker_set_input(part, 0, err);
    if (st == FSDPCK_OK)
        st = gather_range(w, range, err);
    w->segment = gather_segment;
    return st;
}

/* Messages for tiles of one rank, together on the device. */
typedef struct messages {
    const round_list *list;
    const uint32_t *needs; /* of the list */
    unsigned count;
    gpu_worker_sum sums[MESSAGES_MAX]; /* their places, from the first one on */
} messages;

static fsdpck_status gather_message(worker *w, const round_tile *tile, const gpu_worker_sum *m,
                                    fsdpck_error *err)
{
    tile_exchange *t = &w->of_engine->tile_exchange;
    t->rank = tile->rank;
    t->sent = m->begin;
    RETURN_IF(gather_range(w, &tile->range, err));
    return t->sent == m->begin + m->nbytes
               ? FSDPCK_OK
               : FAIL(err, INTERNAL, NONE, "size of a message differs from the plan");
}

static fsdpck_status gather_messages(worker *w, const void *ctx, fsdpck_error *err)
{
    const messages *m = ctx;
    fsdpck_status st = FSDPCK_OK;
    w->segment = gather_to_send;
    for (unsigned i = 0; st == FSDPCK_OK && i < m->count; i++) {
        const round_need *n = VEC_AT(&m->list->needs, const round_need, m->needs[i]);
        st =
            gather_message(w, VEC_AT(&m->list->tiles, const round_tile, n->tile), &m->sums[i], err);
    }
    w->segment = gather_segment;
    return st;
}

static uint64_t sum_messages(worker *w, const void *ctx)
{
    const messages *m = ctx;
    uint64_t crc = 0;
    for (unsigned i = 0; i < m->count; i++)
        crc = crc64_update(crc, w->memory + m->sums[i].begin, m->sums[i].nbytes);
    return crc;
}

/* Makes this rank's messages for tiles of another rank, at `at` on the device, and waits once. */
static fsdpck_status make_messages(worker *w, const messages *m, gpu_address at, fsdpck_error *err)
{
    const gpu_worker_sum *last = &m->sums[m->count - 1];
    const engine_fill f = {.gather = gather_messages,
                           .sum = sum_messages,
                           .ctx = m,
                           .begin = w->memory,
                           .end = w->memory + last->begin + last->nbytes,
                           .stays = true};
    tile_exchange *t = &w->of_engine->tile_exchange;
    const uint64_t tiles = w->stats.gpu_tiles;
    w->gather.base = w->memory;
    t->sums = m->sums;
    t->sum_count = m->count;
    gpu_worker_set_output(w->of_engine->gpu_worker, at);
    fsdpck_status st = cancel_check(w->x->r.cancel, err);
    if (st == FSDPCK_OK)
        st = fill_by_gpu(w, &f, err);
    gpu_worker_set_output(w->of_engine->gpu_worker, 0);
    t->sum_count = 0;
    w->gather.base = w->tile;
    w->gather.count = 0; /* after a failure */
    w->gather.dims_count = 0;
    w->stats.gpu_tiles = tiles;
    return st;
}

/* ---- what workers do in a round ---- */

/* Jobs: messages of the next round, then tiles of the one before. */
typedef struct round_jobs {
    exchange *e;
    const round_list *out, *in;
    gpu_address send_buffer, recv_buffer;
    vec messages, tiles; /* uint32_t: indices of this rank's in out->needs and in->tiles */
    vec groups;          /* uint32_t: where messages that are made together begin, and their end */
} round_jobs;

static fsdpck_status run_messages(const round_jobs *jobs, worker *w, uint64_t job,
                                  fsdpck_error *err)
{
    const uint32_t *ends = VEC_AT(&jobs->groups, const uint32_t, job);
    const uint32_t *needs = VEC_AT(&jobs->messages, const uint32_t, ends[0]);
    const uint64_t first = VEC_AT(&jobs->out->needs, const round_need, needs[0])->at_from;
    messages m = {.list = jobs->out, .needs = needs, .count = ends[1] - ends[0]};
    for (unsigned i = 0; i < m.count; i++) {
        const round_need *n = VEC_AT(&jobs->out->needs, const round_need, needs[i]);
        const uint64_t begin = n->at_from - first;
        m.sums[i] = (gpu_worker_sum){begin, n->nbytes, begin + rounds_sum_at(n->nbytes)};
    }
    return make_messages(w, &m, jobs->send_buffer + first, err);
}

static fsdpck_status run_job(void *ctx, unsigned worker_index, uint64_t job, fsdpck_error *err)
{
    const round_jobs *jobs = ctx;
    const uint64_t groups = jobs->groups.count - 1;
    worker *w = jobs->e->x->workers[worker_index];
    if (job < groups)
        return run_messages(jobs, w, job, err);
    job -= groups;
    const round_tile *tile =
        VEC_AT(&jobs->in->tiles, const round_tile, *VEC_AT(&jobs->tiles, const uint32_t, job));
    const exchange_received recv_buffer = {
        jobs->recv_buffer,
        tile->need_count > 0 ? VEC_AT(&jobs->in->needs, const round_need, tile->first_need) : NULL,
        tile->need_count};
    w->of_engine->tile_exchange.recv_buffer = tile->need_count > 0 ? &recv_buffer : NULL;
    const fsdpck_status st = exec_run_tile(w, &tile->range, tile->range.begin, err);
    w->of_engine->tile_exchange.recv_buffer = NULL;
    return st;
}

static fsdpck_status add_index(vec *v, size_t index, fsdpck_error *err)
{
    return vec_add(v, &(uint32_t){(uint32_t)index}, err);
}

/* Messages to one rank are made together, as many as a worker's memory holds to compare them. */
static fsdpck_status group_messages(round_jobs *jobs, fsdpck_error *err)
{
    const round_need *first = NULL;
    uint32_t first_rank = 0, count = 0;
    for (size_t i = 0; i < jobs->messages.count; i++, count++) {
        const round_need *n = VEC_AT(&jobs->out->needs, const round_need,
                                     *VEC_AT(&jobs->messages, const uint32_t, i));
        const uint32_t rank = VEC_AT(&jobs->out->tiles, const round_tile, n->tile)->rank;
        if (first != NULL && rank == first_rank && count < MESSAGES_MAX &&
            n->at_from + n->nbytes - first->at_from <= jobs->e->needs_nbytes)
            continue;
        RETURN_IF(add_index(&jobs->groups, i, err));
        first = n;
        first_rank = rank;
        count = 0;
    }
    return add_index(&jobs->groups, jobs->messages.count, err);
}

static fsdpck_status list_jobs(round_jobs *jobs, fsdpck_error *err)
{
    const unsigned here = group_rank(jobs->e->x->r.group);
    for (size_t i = 0; i < jobs->out->needs.count; i++)
        if (VEC_AT(&jobs->out->needs, const round_need, i)->from == here)
            RETURN_IF(add_index(&jobs->messages, i, err));
    RETURN_IF(group_messages(jobs, err));
    for (size_t i = 0; i < jobs->in->tiles.count; i++)
        if (VEC_AT(&jobs->in->tiles, const round_tile, i)->rank == here)
            RETURN_IF(add_index(&jobs->tiles, i, err));
    return FSDPCK_OK;
}

/* Messages of round `number` + 1 are made, tiles of round `number` - 1 filled. */
static fsdpck_status run_while_exchanging(exchange *e, uint64_t number, fsdpck_error *err)
{
    struct exec *x = e->x;
    round_jobs jobs = {.e = e,
                       .out = &e->lists[(number + 1) % ROUND_LISTS],
                       .in = &e->lists[(number + ROUND_LISTS - 1) % ROUND_LISTS],
                       .send_buffer = e->send_buffer[(number + 1) % 2],
                       .recv_buffer = e->recv_buffer[(number + 1) % 2],
                       .messages = VEC_OF(uint32_t, NULL),
                       .tiles = VEC_OF(uint32_t, NULL),
                       .groups = VEC_OF(uint32_t, NULL)};
    fsdpck_status st = list_jobs(&jobs, err);
    if (st == FSDPCK_OK)
        st = exec_pool_run(x, x->nworkers, jobs.groups.count - 1 + jobs.tiles.count, run_job, &jobs,
                           x->r.cancel, err);
    VEC_RELEASE_ALL(&jobs.messages, &jobs.tiles, &jobs.groups);
    return st;
}

/* ---- between the devices ---- */

/* Enqueues a whole round on the stream. */
static fsdpck_status begin_transfers(exchange *e, uint64_t number, fsdpck_error *err)
{
    const round_list *list = &e->lists[number % ROUND_LISTS];
    const unsigned here = group_rank(e->x->r.group);
    const gpu_calls *calls = e->x->r.gpu->calls;
    e->transfers.count = 0;
    for (size_t i = 0; i < list->transfers.count; i++) {
        const round_transfer *t = VEC_AT(&list->transfers, const round_transfer, i);
        const nccl_transfer send = {e->send_buffer[number % 2] + t->at_from, t->nbytes, t->to,
                                    false};
        const nccl_transfer receive = {e->recv_buffer[number % 2] + t->at_to, t->nbytes, t->from,
                                       true};
        if (t->from == here)
            RETURN_IF(vec_add(&e->transfers, &send, err));
        if (t->to == here) {
            RETURN_IF(vec_add(&e->transfers, &receive, err));
            e->travelled_nbytes += t->data_nbytes;
        }
    }
    if (e->transfers.count == 0)
        return FSDPCK_OK;
    RETURN_IF(nccl_exchange(e->comm, e->transfers.items, e->transfers.count,
                            calls->stream_handle(e->stream), err));
    return calls->mark(e->stream, 0, err);
}

typedef struct waiting {
    exchange *e;
    fsdpck_status st;
    fsdpck_error *err;
} waiting;

static bool transfers_are_done(void *ctx)
{
    waiting *w = ctx;
    bool done = true;
    w->st = w->e->x->r.gpu->calls->is_done(w->e->stream, 0, &done, w->err);
    return done || w->st != FSDPCK_OK;
}

static fsdpck_status finish_transfers(exchange *e, fsdpck_error *err)
{
    waiting w = {e, FSDPCK_OK, err};
    if (e->transfers.count == 0)
        return FSDPCK_OK;
    RETURN_IF(nccl_wait(e->comm, transfers_are_done, &w, err));
    return w.st;
}

static bool is_empty(const exchange *e)
{
    for (unsigned i = 0; i < ROUND_LISTS; i++)
        if (e->lists[i].tiles.count > 0)
            return false;
    return true;
}

/* Round 0 has nothing yet. */
static fsdpck_status run_rounds(exchange *e, fsdpck_error *err)
{
    for (uint64_t number = 0;; number++) {
        e->round_count += e->lists[number % ROUND_LISTS].needs.count > 0;
        RETURN_IF(begin_transfers(e, number, err));
        RETURN_IF(rounds_next(&e->rounds, &e->lists[(number + 1) % ROUND_LISTS], err));
        if (is_empty(e))
            break;
        RETURN_IF(run_while_exchanging(e, number, err));
        RETURN_IF(finish_transfers(e, err));
    }
    return FSDPCK_OK;
}

fsdpck_status exchange_run(exchange *e, fsdpck_error *err)
{
    gpu *g = e->x->r.gpu;
    const int before = g->calls->enter(g);
    const fsdpck_status st = run_rounds(e, err);
    g->calls->leave(g, before);
    return st;
}
