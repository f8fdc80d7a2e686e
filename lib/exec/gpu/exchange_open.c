/* Checks whether all ranks can exchange by NCCL, and allocates the resources. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/gpu/exchange_internal.h"

#define REASON_NBYTES 400
/* The timeout for NCCL exceeds that for a silent rank, so that a lost rank is reported as such. */
#define SLACK_SECONDS 5u

/* The answer of a rank. */
typedef struct rank_answer {
    uint64_t tile_nbytes;
    uint64_t workers;
    unsigned nccl_version;       /* 0: none */
    uint8_t uuid[16];            /* of its GPU */
    char why_not[REASON_NBYTES]; /* "": it can */
} rank_answer;

typedef struct all_answers {
    const group *g;
    uint64_t tile_nbytes;
    uint64_t workers;
    vec answers;                      /* rank_answer, of the ranks so far */
    char why_not[REASON_NBYTES + 64]; /* the first rank that cannot */
} all_answers;

/* A communicator with two ranks on one device can wait forever: NCCL refuses it on these ranks only. */
static void check_devices(all_answers *all, unsigned rank, const rank_answer *c)
{
    static const uint8_t unknown[sizeof c->uuid];
    if (memcmp(c->uuid, unknown, sizeof unknown) == 0)
        return;
    for (unsigned i = 0; i < all->answers.count && all->why_not[0] == '\0'; i++)
        if (memcmp(VEC_AT(&all->answers, const rank_answer, i)->uuid, c->uuid, sizeof c->uuid) == 0)
            (void)snprintf(all->why_not, sizeof all->why_not,
                           "ranks %u and %u on %s share one GPU, and NCCL needs one for each", i,
                           rank, group_host(all->g, rank));
}

/* NCCL requires one version. */
static void check_version(all_answers *all, unsigned rank, const rank_answer *c)
{
    if (all->answers.count == 0 || all->why_not[0] != '\0')
        return;
    const unsigned first = VEC_AT(&all->answers, const rank_answer, 0)->nccl_version;
    if (first != c->nccl_version)
        (void)snprintf(all->why_not, sizeof all->why_not,
                       "rank 0 has NCCL %u, rank %u on %s has NCCL %u", first, rank,
                       group_host(all->g, rank), c->nccl_version);
}

static fsdpck_status receive_answer(void *ctx, unsigned rank, const uint8_t *bytes, uint64_t nbytes,
                                    fsdpck_error *err)
{
    all_answers *all = ctx;
    rank_answer c;
    if (nbytes != sizeof c)
        return FAIL(err, INTERNAL, NONE, "a rank sent an unexpected answer");
    memcpy(&c, bytes, sizeof c);
    c.why_not[REASON_NBYTES - 1] = '\0';
    all->tile_nbytes = c.tile_nbytes < all->tile_nbytes ? c.tile_nbytes : all->tile_nbytes;
    all->workers = c.workers < all->workers ? c.workers : all->workers;
    if (c.why_not[0] != '\0' && all->why_not[0] == '\0')
        (void)snprintf(all->why_not, sizeof all->why_not, "rank %u on %s: %s", rank,
                       group_host(all->g, rank), c.why_not);
    check_devices(all, rank, &c);
    check_version(all, rank, &c);
    return vec_add(&all->answers, &c, err);
}

static bool is_on_several_hosts(const group *g)
{
    for (unsigned i = 1; i < group_size(g); i++)
        if (strcmp(group_host(g, i), group_host(g, 0)) != 0)
            return true;
    return false;
}

/* Between hosts MPI may be much slower. */
static void report_no_nccl(const exchange *e, const char *why_not)
{
    const logger *log = e->x->r.log;
    if (is_on_several_hosts(e->x->r.group))
        log_warn(log, FSDPCK_FINDING_SYS_DEVICE,
                 "if NCCL finds no connection, set NCCL_SOCKET_IFNAME to the interface between the "
                 "hosts; NCCL_DEBUG=INFO prints what it does",
                 "ranks exchange data over MPI, not NCCL: %s", why_not);
    else
        log_write(log, LOG_DETAIL, "ranks exchange data over MPI, not NCCL: %s", why_not);
}

/* *can: whether `st` is OK on all ranks; else the reason is logged. */
static fsdpck_status agree_on_answers(exchange *e, fsdpck_status st, const fsdpck_error *failure,
                                      bool *can, fsdpck_error *err)
{
    const struct exec *x = e->x;
    rank_answer here = {.tile_nbytes = x->tile_nbytes, .workers = x->nworkers};
    all_answers all = {.g = x->r.group,
                       .tile_nbytes = UINT64_MAX,
                       .workers = UINT64_MAX,
                       .answers = VEC_OF(rank_answer, NULL)};
    here.nccl_version = e->library == NULL ? 0 : nccl_version(e->library);
    memcpy(here.uuid, x->r.gpu->uuid, sizeof here.uuid);
    if (st != FSDPCK_OK)
        (void)snprintf(here.why_not, sizeof here.why_not, "%.399s", failure->message);
    st = group_all_gather(x->r.group, FSDPCK_OK, GROUP_STOPS, &here, sizeof here, receive_answer,
                          &all, err);
    vec_release(&all.answers);
    RETURN_IF(st);
    e->tile_nbytes = all.tile_nbytes;
    e->tiles_each = (unsigned)all.workers;
    *can = all.why_not[0] == '\0';
    if (!*can)
        report_no_nccl(e, all.why_not);
    return FSDPCK_OK;
}

static bool is_stopped(void *ctx)
{
    return cancel_check(((const exchange *)ctx)->x->r.cancel, NULL) != FSDPCK_OK;
}

/* A rank may read its round from slow storage, while its messages are waited for. */
static uint64_t activity_of_others(void *ctx)
{
    progress *p = ((const exchange *)ctx)->x->r.progress;
    return p == NULL ? 0 : atomic_load(&p->peers_moved_bytes);
}

/* Needs of a tile: rows split by its edges may be read whole. */
static uint64_t needs_nbytes(uint64_t tile_nbytes)
{
    return tile_nbytes + 2 * TILE_MARGIN + FILE_DIRECT_ALIGN;
}

uint64_t exchange_worker_nbytes(uint64_t tile_span)
{
    return 4 * rounds_message_nbytes(tile_span);
}

static fsdpck_status allocate_memory(exchange *e, fsdpck_error *err)
{
    const struct exec *x = e->x;
    gpu *g = x->r.gpu;
    e->needs_nbytes = needs_nbytes(e->tile_nbytes);
    e->capacity_nbytes = rounds_capacity(group_size(x->r.group), e->tiles_each, e->needs_nbytes);
    RETURN_IF(exchange_schedule(e, err));
    RETURN_IF(g->calls->stream_new(g, true, &e->stream, err));
    RETURN_IF(
        g->calls->device_new(g, 4 * e->capacity_nbytes, &e->x->of_engine->exchange_memory, err));
    for (unsigned i = 0; i < 2; i++) {
        e->send_buffer[i] = x->of_engine->exchange_memory + i * e->capacity_nbytes;
        e->recv_buffer[i] = x->of_engine->exchange_memory + (2 + i) * e->capacity_nbytes;
    }
    return FSDPCK_OK;
}

static fsdpck_status join(exchange *e, fsdpck_error *err)
{
    typedef struct invitation {
        uint8_t id[NCCL_ID_NBYTES];
        fsdpck_error failure;
    } invitation;
    group *g = e->x->r.group;
    invitation i;
    memset(&i, 0, sizeof i);
    fsdpck_error_init(&i.failure);
    if (group_rank(g) == 0)
        i.failure.status = nccl_make_id(e->library, i.id, &i.failure);
    RETURN_IF(group_broadcast(g, 0, &i, sizeof i, err));
    fsdpck_status st = i.failure.status;
    gpu *device = e->x->r.gpu;
    const int before = device->calls->enter(device);
    if (st == FSDPCK_OK)
        st = nccl_join(e->library, i.id, group_rank(g), group_size(g), &e->watch, &e->comm,
                       &i.failure);
    device->calls->leave(device, before);
    bool can;
    RETURN_IF(agree_on_answers(e, st, &i.failure, &can, err));
    return can ? FSDPCK_OK : FSDPCK_UNSUPPORTED;
}

/* UNSUPPORTED: the ranks use MPI; the reason was logged. */
static fsdpck_status open_all(exchange *e, fsdpck_error *err)
{
    fsdpck_error failure = FSDPCK_ERROR_INIT;
    bool can;
    fsdpck_status st = nccl_load(NULL, &e->library, &failure);
    RETURN_IF(agree_on_answers(e, st, &failure, &can, err));
    if (!can)
        return FSDPCK_UNSUPPORTED;
    st = allocate_memory(e, &failure);
    RETURN_IF(agree_on_answers(e, st, &failure, &can, err));
    return can ? join(e, err) : FSDPCK_UNSUPPORTED;
}

fsdpck_status exchange_open(struct exec *x, fsdpck_error *err)
{
    if (x->r.group == NULL || x->r.gpu == NULL || !x->r.gpu_required ||
        x->r.source_folder == NULL || !x->shared)
        return FSDPCK_OK;
    if (x->r.is_own_file != NULL) { /* ranks have only the items of their own host */
        log_write(x->r.log, LOG_DETAIL,
                  "ranks exchange data over MPI, not NCCL: each host has its own output");
        return FSDPCK_OK;
    }
    exchange *e = calloc(1, sizeof *e);
    RETURN_IF(
        group_agree(x->r.group, e != NULL ? FSDPCK_OK : error_set_nomem(err, sizeof *e), err));
    e->x = x;
    e->transfers = VEC_OF(nccl_transfer, NULL);
    e->watch = (nccl_watch){is_stopped, activity_of_others, e,
                            group_peer_timeout(x->r.group) + SLACK_SECONDS};
    x->of_engine->exchange = e;
    const fsdpck_status st = open_all(e, err);
    if (st == FSDPCK_OK)
        log_write(x->r.log, LOG_DETAIL, "ranks exchange data over NCCL %u",
                  nccl_version(e->library));
    else
        exchange_close(x, false);
    return st == FSDPCK_UNSUPPORTED ? FSDPCK_OK : st;
}

void exchange_close(struct exec *x, bool in_order)
{
    exchange *e = x->of_engine == NULL ? NULL : x->of_engine->exchange;
    if (e == NULL)
        return;
    x->of_engine->exchange = NULL;
    x->exchanged_nbytes = e->travelled_nbytes;
    x->exchange_rounds = e->round_count;
    gpu *g = x->r.gpu;
    const int before = g->calls->enter(g);
    /* First the resources that may block the stream. */
    if (in_order)
        nccl_leave(&e->comm);
    else
        nccl_abort(&e->comm);
    g->calls->leave(g, before);
    if (e->stream != NULL)
        g->calls->stream_free(e->stream);
    nccl_unload(e->library);
    rounds_release(&e->rounds);
    for (unsigned i = 0; i < ROUND_LISTS; i++)
        round_list_release(&e->lists[i]);
    vec_release(&e->transfers);
    free(e->readers);
    free(e->next_item);
    free(e->cursors);
    free(e->received_at);
    free(e);
}
