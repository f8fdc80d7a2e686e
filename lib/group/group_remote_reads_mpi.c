#include <mpi.h>
#include <stdlib.h>

#include "group/group_remote_reads.h"

enum { REQUEST_TAG = 2, HEADER_TAG = 1000, DATA_TAG = 2000 }; /* the latter two plus the slot */
enum { SERVERS = 2 };

typedef struct read_request {
    link_range what;
    uint32_t slot;
    uint32_t unused;
} read_request;

typedef enum slot_state { SLOT_FREE, SLOT_POSTED, SLOT_SENT, SLOT_DONE } slot_state;

/* A read request of this rank. */
typedef struct slot {
    slot_state state;
    int owner;
    read_request q;
    void *dst;
    fsdpck_error head; /* status OK, or why not */
    MPI_Request requests[3];
} slot;

typedef enum job_state { JOB_FREE, JOB_READING, JOB_READ, JOB_SENDING } job_state;

/* A read request of another rank. */
typedef struct job {
    job_state state;
    bool taken; /* by a server */
    int asker;
    read_request q;
    uint8_t *bytes; /* REMOTE_READS_NBYTES_MAX, kept */
    fsdpck_error head;
    MPI_Request requests[2];
} job;

struct remote_reads {
    pthread_mutex_t *lock; /* of all but `incoming` */
    pthread_cond_t *wake;
    pthread_cond_t answered; /* a slot is done or free */
    pthread_cond_t asked;    /* a job is to be read */
    slot slots[REMOTE_READS_SLOTS];
    job jobs[REMOTE_READS_JOBS];
    bool failed, stopping;
    group_serve_fn serve;
    void *serve_ctx;
    pthread_t servers[SERVERS];
    unsigned server_count;
    read_request incoming; /* being received */
    bool receiving;
    MPI_Request receive;
};

/* ---- requests ---- */

static slot *take_slot(remote_reads *r)
{
    for (;;) {
        for (unsigned i = 0; i < REMOTE_READS_SLOTS && !r->failed; i++)
            if (r->slots[i].state == SLOT_FREE)
                return &r->slots[i];
        if (r->failed)
            return NULL;
        (void)pthread_cond_wait(&r->answered, r->lock);
    }
}

static fsdpck_status set_lost(fsdpck_error *err)
{
    return FAIL(err, PEER, NONE, "the rank that has the file was lost");
}

/* Under the lock. */
static fsdpck_status fill_request(remote_reads *r, unsigned owner, const link_range *what,
                                  void *dst, fsdpck_error *err)
{
    slot *s = take_slot(r);
    if (s == NULL)
        return set_lost(err);
    s->owner = (int)owner;
    s->q = (read_request){*what, (uint32_t)(s - r->slots), 0};
    s->dst = dst;
    s->state = SLOT_POSTED;
    (void)pthread_cond_broadcast(r->wake);
    while (s->state != SLOT_DONE && !r->failed)
        (void)pthread_cond_wait(&r->answered, r->lock);
    if (s->state != SLOT_DONE)
        return set_lost(err);
    const fsdpck_status st = s->head.status;
    if (st != FSDPCK_OK && err != NULL)
        *err = s->head;
    s->state = SLOT_FREE;
    (void)pthread_cond_broadcast(&r->answered);
    return st;
}

fsdpck_status remote_reads_read(remote_reads *r, unsigned owner, const link_range *what, void *dst,
                                fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    for (uint64_t at = 0; st == FSDPCK_OK && at < what->nbytes; at += REMOTE_READS_NBYTES_MAX) {
        link_range part = *what;
        part.offset += at;
        part.nbytes = what->nbytes - at < REMOTE_READS_NBYTES_MAX ? what->nbytes - at
                                                                  : REMOTE_READS_NBYTES_MAX;
        pthread_mutex_lock(r->lock);
        st = fill_request(r, owner, &part, (uint8_t *)dst + at, err);
        pthread_mutex_unlock(r->lock);
    }
    return st;
}

static int send_request(slot *s)
{
    const int n = (int)s->q.what.nbytes, number = (int)s->q.slot;
    int rc = MPI_Irecv(&s->head, sizeof s->head, MPI_BYTE, s->owner, HEADER_TAG + number,
                       MPI_COMM_WORLD, &s->requests[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Irecv(s->dst, n, MPI_BYTE, s->owner, DATA_TAG + number, MPI_COMM_WORLD,
                       &s->requests[1]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(&s->q, sizeof s->q, MPI_BYTE, s->owner, REQUEST_TAG, MPI_COMM_WORLD,
                       &s->requests[2]);
    s->state = SLOT_SENT;
    return rc;
}

static int progress_slots(remote_reads *r, bool *busy)
{
    int rc = MPI_SUCCESS;
    for (unsigned i = 0; i < REMOTE_READS_SLOTS && rc == MPI_SUCCESS; i++) {
        slot *s = &r->slots[i];
        MPI_Status ignored[3];
        int done = 0;
        if (s->state == SLOT_POSTED)
            rc = send_request(s);
        if (rc == MPI_SUCCESS && s->state == SLOT_SENT)
            rc = MPI_Testall(3, s->requests, &done, ignored);
        if (done) {
            s->state = SLOT_DONE;
            (void)pthread_cond_broadcast(&r->answered);
        }
        *busy = *busy || s->state == SLOT_SENT;
    }
    return rc;
}

/* ---- replies ---- */

static job *next_job(remote_reads *r)
{
    for (unsigned i = 0; i < REMOTE_READS_JOBS; i++)
        if (r->jobs[i].state == JOB_READING && !r->jobs[i].taken)
            return &r->jobs[i];
    return NULL;
}

static void answer(const remote_reads *r, job *j)
{
    fsdpck_error_init(&j->head);
    if (j->bytes == NULL)
        j->head.status = error_set_nomem(&j->head, REMOTE_READS_NBYTES_MAX);
    else if (r->serve == NULL)
        j->head.status =
            FAIL(&j->head, INTERNAL, NONE, "request for a file that this rank does not serve");
    else
        j->head.status = r->serve(r->serve_ctx, &j->q.what, j->bytes, &j->head);
}

static void *run_server(void *ctx)
{
    remote_reads *r = ctx;
    pthread_mutex_lock(r->lock);
    while (!r->stopping) {
        job *j = next_job(r);
        if (j == NULL) {
            (void)pthread_cond_wait(&r->asked, r->lock);
            continue;
        }
        j->taken = true;
        pthread_mutex_unlock(r->lock);
        if (j->bytes == NULL)
            j->bytes = malloc(REMOTE_READS_NBYTES_MAX);
        answer(r, j);
        pthread_mutex_lock(r->lock);
        j->state = JOB_READ;
        (void)pthread_cond_broadcast(r->wake);
    }
    pthread_mutex_unlock(r->lock);
    return NULL;
}

/* The requesting rank waits for nbytes in any case, even if they are invalid. */
static int send_answer(job *j)
{
    static const uint8_t nothing[1];
    const int n = (int)j->q.what.nbytes, number = (int)j->q.slot;
    const bool has = j->bytes != NULL;
    int rc = MPI_Isend(&j->head, sizeof j->head, MPI_BYTE, j->asker, HEADER_TAG + number,
                       MPI_COMM_WORLD, &j->requests[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(has ? j->bytes : nothing, has ? n : 0, MPI_BYTE, j->asker, DATA_TAG + number,
                       MPI_COMM_WORLD, &j->requests[1]);
    j->state = JOB_SENDING;
    return rc;
}

static int progress_jobs(remote_reads *r, bool *busy)
{
    int rc = MPI_SUCCESS;
    for (unsigned i = 0; i < REMOTE_READS_JOBS && rc == MPI_SUCCESS; i++) {
        job *j = &r->jobs[i];
        MPI_Status ignored[2];
        int done = 0;
        if (j->state == JOB_READ)
            rc = send_answer(j);
        if (rc == MPI_SUCCESS && j->state == JOB_SENDING)
            rc = MPI_Testall(2, j->requests, &done, ignored);
        if (done)
            j->state = JOB_FREE;
        *busy = *busy || j->state != JOB_FREE;
    }
    return rc;
}

/* A received read request goes to a free job. Without a free job, it and all later ones wait. */
static int progress_incoming(remote_reads *r, bool *busy)
{
    MPI_Status status;
    int done = 0;
    if (!r->receiving) {
        const int rc = MPI_Irecv(&r->incoming, sizeof r->incoming, MPI_BYTE, MPI_ANY_SOURCE,
                                 REQUEST_TAG, MPI_COMM_WORLD, &r->receive);
        if (rc != MPI_SUCCESS)
            return rc;
        r->receiving = true;
    }
    unsigned i = 0;
    while (i < REMOTE_READS_JOBS && r->jobs[i].state != JOB_FREE)
        i++;
    if (i == REMOTE_READS_JOBS)
        return MPI_SUCCESS;
    const int rc = MPI_Test(&r->receive, &done, &status);
    if (rc != MPI_SUCCESS || !done)
        return rc;
    r->receiving = false;
    job *j = &r->jobs[i];
    j->asker = status.MPI_SOURCE;
    j->q = r->incoming;
    if (j->q.what.nbytes > REMOTE_READS_NBYTES_MAX || j->q.slot >= REMOTE_READS_SLOTS)
        return MPI_ERR_OTHER;
    j->taken = false;
    j->state = JOB_READING;
    *busy = true;
    (void)pthread_cond_signal(&r->asked);
    return MPI_SUCCESS;
}

/* ---- life ---- */

int remote_reads_step(remote_reads *r, bool *busy)
{
    pthread_mutex_lock(r->lock);
    int rc = progress_slots(r, busy);
    if (rc == MPI_SUCCESS)
        rc = progress_incoming(r, busy);
    if (rc == MPI_SUCCESS)
        rc = progress_jobs(r, busy);
    pthread_mutex_unlock(r->lock);
    return rc;
}

void remote_reads_fail(remote_reads *r)
{
    pthread_mutex_lock(r->lock);
    r->failed = true;
    (void)pthread_cond_broadcast(&r->answered);
    pthread_mutex_unlock(r->lock);
}

void remote_reads_stop(remote_reads *r)
{
    if (!r->receiving)
        return;
    (void)MPI_Cancel(&r->receive);
    (void)MPI_Wait(&r->receive, MPI_STATUS_IGNORE);
    r->receiving = false;
}

void remote_reads_serve(remote_reads *r, group_serve_fn fn, void *ctx)
{
    pthread_mutex_lock(r->lock);
    r->serve = fn;
    r->serve_ctx = ctx;
    while (r->server_count < SERVERS &&
           pthread_create(&r->servers[r->server_count], NULL, run_server, r) == 0)
        r->server_count++;
    pthread_mutex_unlock(r->lock);
}

remote_reads *remote_reads_new(pthread_mutex_t *lock, pthread_cond_t *wake)
{
    remote_reads *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->lock = lock;
    r->wake = wake;
    pthread_cond_init(&r->answered, NULL);
    pthread_cond_init(&r->asked, NULL);
    return r;
}

void remote_reads_free(remote_reads *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(r->lock);
    r->stopping = true;
    (void)pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(r->lock);
    for (unsigned i = 0; i < r->server_count; i++)
        pthread_join(r->servers[i], NULL);
    for (unsigned i = 0; i < REMOTE_READS_JOBS; i++)
        free(r->jobs[i].bytes);
    pthread_cond_destroy(&r->answered);
    pthread_cond_destroy(&r->asked);
    free(r);
}
