#include "group/group.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "group/group_internal.h"

/* Time for the others to clean up before a rank ends them all. */
#define CLEANING_SECONDS 5

typedef struct served {
    group_serve_fn fn;
    void *ctx; /* NULL: stopped */
    unsigned busy;
} served;

unsigned group_rank(const group *g)
{
    return g == NULL ? 0 : g->rank;
}

unsigned group_size(const group *g)
{
    return g == NULL ? 1 : g->size;
}

unsigned group_peer_timeout(const group *g)
{
    return g == NULL ? 0 : atomic_load(&g->watch->peer_timeout_seconds);
}

const char *group_host(const group *g, unsigned rank)
{
    return g == NULL || rank >= g->size ? "" : g->hellos[rank].host;
}

const char *group_built_name(void)
{
    return group_link_name();
}

const char *group_built_description(void)
{
    return group_link_description();
}

/* ---- joining ---- */

static bool is_several(const char *count)
{
    return count != NULL && count[0] != '\0' && strcmp(count, "1") != 0 && strcmp(count, "0") != 0;
}

/* Variables of Open MPI, MPICH and srun with PMI that contain the number of ranks. */
static const char *launched_count(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    const char *count = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && count == NULL; i++)
        count = getenv(sizes[i]);
    return count;
}

/* MPI must not be initialized without a launcher, as it would start its own job. srun with PMIx
 * sets only the rank. */
static bool launched_ranks(void)
{
    const char *count = launched_count();
    if (count != NULL)
        return is_several(count);
    return getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL || getenv("PMI_FD") != NULL;
}

/* Several processes not connected by MPI would all write the same output. To run a single process,
 * the user must unset the launcher's variable. */
static fsdpck_status refuse(const char *launcher, const char *count, const char *variable,
                            fsdpck_error *err)
{
    if (!is_several(count))
        return FSDPCK_OK;
    return FAIL_WITH(
        err, USAGE, GROUP_LONE,
        ("started by %s as one of %s processes that would all do the same work", launcher, count),
        (next,
         "use mpirun -n %s fsdpck ... or srun --mpi=pmix -n %s fsdpck ...; for a single process: "
         "env -u %s fsdpck ...",
         count, count, variable));
}

static fsdpck_status refuse_others(fsdpck_error *err)
{
    if (getenv("TORCHELASTIC_RUN_ID") != NULL)
        RETURN_IF(refuse("torchrun", getenv("WORLD_SIZE"), "TORCHELASTIC_RUN_ID", err));
    if (getenv("SLURM_PROCID") != NULL)
        return refuse("srun without PMI", getenv("SLURM_STEP_NUM_TASKS"), "SLURM_PROCID", err);
    return FSDPCK_OK;
}

/* MPI was initialized for a single process: the launcher belongs to a different MPI or uses a
 * different PMI. */
static fsdpck_status refuse_lone(const char *count, fsdpck_error *err)
{
    if (!is_several(count))
        return FSDPCK_OK;
    return FAIL_WITH(
        err, USAGE, GROUP_LONE,
        ("one of %s processes without a connection to each other: all would do the same work",
         count),
        (expected, "a launcher for %s", group_link_description()),
        (next, "use the mpirun of the MPI that fsdpck version prints, or srun, with --mpi=pmix for "
               "Open MPI or --mpi=pmi2 for MPICH"));
}

static fsdpck_status check_same_build(group *g, fsdpck_error *err)
{
    hello mine = {.build = "fsdpck " FSDPCK_VERSION};
    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        mine.host[0] = '?';
    const link_call call = {
        .kind = LINK_GATHER, .bytes = &mine, .all = (uint8_t *)g->hellos, .nbytes = sizeof mine};
    RETURN_IF(group_link_do(g->link, &call, err));
    for (unsigned r = 0; r < g->size; r++) {
        hello *h = &g->hellos[r];
        h->host[HOST_NBYTES - 1] = '\0';
        h->build[HOST_NBYTES - 1] = '\0';
        if (strcmp(h->build, g->hellos[0].build) == 0)
            continue;
        return FAIL_WITH(err, USAGE, GROUP_BUILDS, ("ranks run different builds"),
                         (expected, "'%s', as rank 0 on %s", g->hellos[0].build, g->hellos[0].host),
                         (found, "'%s' on rank %u on %s", h->build, r, h->host));
    }
    return FSDPCK_OK;
}

/* *link is NULL if this process is intentionally alone. */
static fsdpck_status open_link(group_watch *watch, group_link **link, fsdpck_error *err)
{
    const link_call leave = {.kind = LINK_LEAVE};
    char count[16] = ""; /* MPI sets these variables again for a single process */
    const char *stated = launched_count();
    if (stated == NULL)
        stated = getenv("SLURM_STEP_NUM_TASKS");
    if (stated != NULL)
        strncpy(count, stated, sizeof count - 1);
    RETURN_IF(group_link_open(watch, link, err));
    if (*link == NULL || group_link_size(*link) > 1)
        return FSDPCK_OK;
    RETURN_IF(group_link_do(*link, &leave, err));
    group_link_free(*link);
    *link = NULL;
    return refuse_lone(count, err);
}

static void free_group(group *g)
{
    free(g->hellos);
    free(g->votes);
    vec_release(&g->views);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static uint64_t inline_nbytes(unsigned size)
{
    const uint64_t each = GATHERED_NBYTES / size / sizeof(uint64_t) * sizeof(uint64_t);
    return each < GROUP_GATHER_MAX ? GROUP_GATHER_MAX : each < INLINE_MAX ? each : INLINE_MAX;
}

fsdpck_status group_join(group_watch *watch, group **out, fsdpck_error *err)
{
    *out = NULL;
    if (!launched_ranks())
        return refuse_others(err);
    group_link *link = NULL;
    RETURN_IF(open_link(watch, &link, err));
    if (link == NULL)
        return FSDPCK_OK;
    const unsigned size = group_link_size(link);
    group *g = calloc(1, sizeof *g);
    if (g != NULL) {
        g->inline_nbytes = inline_nbytes(size);
        g->hellos = calloc(size, sizeof *g->hellos);
        g->votes = calloc(size + 1u, sizeof(uint64_t) + g->inline_nbytes);
    }
    if (g == NULL || g->hellos == NULL || g->votes == NULL) {
        group_link_abort(link, FSDPCK_LIMIT); /* the others wait for this rank */
        return error_set_nomem(err, (size + 1u) * (sizeof *g->hellos + GATHERED_NBYTES / size));
    }
    pthread_mutex_init(&g->lock, NULL);
    g->views = VEC_OF(served, NULL);
    g->link = link;
    g->watch = watch;
    g->rank = group_link_rank(link);
    g->size = size;
    *out = g;
    return check_same_build(g, err);
}

/* ---- bytes ---- */

static fsdpck_status in_blocks(group *g, link_kind kind, unsigned root, void *bytes,
                               uint64_t nbytes, fsdpck_error *err)
{
    for (uint64_t at = 0; g != NULL && at < nbytes; at += LINK_NBYTES_MAX) {
        const link_call call = {
            .kind = kind,
            .root = root,
            .bytes = (uint8_t *)bytes + at,
            .nbytes = nbytes - at < LINK_NBYTES_MAX ? nbytes - at : LINK_NBYTES_MAX,
        };
        RETURN_IF(group_do(g, &call, err));
    }
    return FSDPCK_OK;
}

fsdpck_status group_broadcast(group *g, unsigned root, void *bytes, uint64_t nbytes,
                              fsdpck_error *err)
{
    return in_blocks(g, LINK_BROADCAST, root, bytes, nbytes, err);
}

fsdpck_status group_xor(group *g, uint64_t *words, uint64_t count, fsdpck_error *err)
{
    return in_blocks(g, LINK_XOR, 0, words, count * sizeof *words, err);
}

fsdpck_status group_or(group *g, uint64_t *words, uint64_t count, fsdpck_error *err)
{
    return in_blocks(g, LINK_OR, 0, words, count * sizeof *words, err);
}

void group_range(const group *g, uint64_t count, uint64_t *begin, uint64_t *end)
{
    group_range_of(group_rank(g), group_size(g), count, begin, end);
}

void group_range_of(uint64_t rank, uint64_t size, uint64_t count, uint64_t *begin, uint64_t *end)
{
    const uint64_t each = count / size, more = count % size;
    *begin = rank * each + (rank < more ? rank : more);
    *end = *begin + each + (rank < more ? 1 : 0);
}

/* ---- files of others ---- */

static fsdpck_status serve(void *ctx, const link_range *what, void *dst, fsdpck_error *err)
{
    group *g = ctx;
    served s = {0};
    pthread_mutex_lock(&g->lock);
    if (what->view < g->views.count) {
        served *v = VEC_AT(&g->views, served, what->view);
        s = *v;
        v->busy += v->ctx != NULL;
    }
    pthread_mutex_unlock(&g->lock);
    if (s.ctx == NULL)
        return FAIL(err, INTERNAL, NONE, "request for a file that this rank does not serve");
    const fsdpck_status st = s.fn(s.ctx, what, dst, err);
    pthread_mutex_lock(&g->lock);
    VEC_AT(&g->views, served, what->view)->busy--;
    pthread_mutex_unlock(&g->lock);
    return st;
}

uint32_t group_serve(group *g, group_serve_fn fn, void *ctx)
{
    pthread_mutex_lock(&g->lock);
    const uint32_t number = (uint32_t)g->views.count;
    served *v = vec_push(&g->views, NULL);
    if (v != NULL)
        *v = (served){.fn = fn, .ctx = ctx};
    pthread_mutex_unlock(&g->lock);
    if (number == 0)
        group_link_serve(g->link, serve, g);
    return number;
}

void group_stop_serving(group *g, const void *ctx)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < g->views.count; i++) {
        if (VEC_AT(&g->views, served, i)->ctx != ctx)
            continue;
        VEC_AT(&g->views, served, i)->ctx = NULL;
        while (VEC_AT(&g->views, served, i)->busy > 0) {
            pthread_mutex_unlock(&g->lock);
            nanosleep(&pause, NULL);
            pthread_mutex_lock(&g->lock);
        }
    }
    pthread_mutex_unlock(&g->lock);
}

fsdpck_status group_read(group *g, unsigned owner, const link_range *what, void *dst,
                         fsdpck_error *err)
{
    return group_link_read(g->link, owner, what, dst, err);
}

/* ---- leaving ---- */

static void leave_broken(group *g, fsdpck_status st)
{
    const struct timespec pause = {.tv_sec = CLEANING_SECONDS};
    /* The launcher ends all processes at once, so hosts with their own output get time to clean
     * up. */
    if (group_is_broken(g))
        nanosleep(&pause, NULL);
    /* The remaining ranks would wait forever. */
    group_link_abort(g->link, st == FSDPCK_OK || st == FSDPCK_CANCELLED ? FSDPCK_PEER : (int)st);
}

void group_leave(group **g, fsdpck_status st)
{
    if (*g == NULL)
        return;
    const link_call call = {.kind = LINK_LEAVE};
    if (group_is_broken(*g) || group_link_do((*g)->link, &call, NULL) != FSDPCK_OK)
        leave_broken(*g, st);
    else
        group_link_free((*g)->link);
    free_group(*g);
    *g = NULL;
}
