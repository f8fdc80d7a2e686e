#include <mpi.h>
#include <stdlib.h>

#include "group/group_remote_reads.h"

enum { REQUEST_TAG = 2, HEADER_TAG = 1000, DATA_TAG = 2000 }; /* the latter two plus the slot */
enum { SERVERS = 2 };
/* Calls of MPI that end no message before the thread of the link sleeps: each moves what the sockets
 * hold, which is less than a message. */
#define TESTS 8u

typedef struct read_request {
    link_range what;
    uint32_t slot;
    uint32_t unused;
} read_request;

typedef enum slot_state { SLOT_FREE, SLOT_POSTED, SLOT_SENT } slot_state;

/* A call of remote_reads_read: several of its requests are in progress at a time. */
typedef struct reader {
    unsigned in_progress;
    fsdpck_status status; /* of the first request that failed */
    fsdpck_error *err;
} reader;

/* A read request of this rank. */
typedef struct slot {
    slot_state state;
    int owner;
    read_request q;
    void *dst;
    reader *of;
    fsdpck_error head; /* status OK, or why not */
    unsigned left;     /* of its messages */
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
    unsigned left; /* of its messages */
} job;

/* Messages in progress: of slots, of jobs, and the next request. */
enum {
    SLOT_MESSAGES = 3,
    JOB_MESSAGES = 2,
    JOBS_AT = SLOT_MESSAGES * REMOTE_READS_SLOTS,
    INCOMING_AT = JOBS_AT + JOB_MESSAGES * REMOTE_READS_JOBS,
    MESSAGES
};

struct remote_reads {
    pthread_mutex_t *lock; /* of all but `incoming` */
    pthread_cond_t *wake;
    pthread_cond_t answered; /* a slot is free */
    pthread_cond_t asked;    /* a job is to be read */
    slot slots[REMOTE_READS_SLOTS];
    job jobs[REMOTE_READS_JOBS];
    bool failed, stopping;
    group_serve_fn serve;
    void *serve_ctx;
    pthread_t servers[SERVERS];
    unsigned server_count;
    read_request incoming; /* being received */
    bool receiving, received;
    int asker; /* of `incoming`, once it is received */
    MPI_Request messages[MESSAGES];
    int finished[MESSAGES]; /* numbers of those that ended */
    MPI_Status results[MESSAGES];
};

/* ---- requests ---- */

/* NULL if all are in use. */
static slot *find_free_slot(remote_reads *r)
{
    for (unsigned i = 0; i < REMOTE_READS_SLOTS; i++)
        if (r->slots[i].state == SLOT_FREE)
            return &r->slots[i];
    return NULL;
}

/* Under the lock. */
static void post_request(remote_reads *r, slot *s, unsigned owner, const link_range *what,
                         void *dst, reader *of)
{
    s->owner = (int)owner;
    s->q = (read_request){*what, (uint32_t)(s - r->slots), 0};
    s->dst = dst;
    s->of = of;
    s->state = SLOT_POSTED;
    of->in_progress++;
    (void)pthread_cond_broadcast(r->wake);
}

static void finish_slot(remote_reads *r, slot *s)
{
    reader *of = s->of;
    of->in_progress--;
    if (s->head.status != FSDPCK_OK && of->status == FSDPCK_OK) {
        of->status = s->head.status;
        if (of->err != NULL)
            *of->err = s->head;
    }
    s->state = SLOT_FREE;
    (void)pthread_cond_broadcast(&r->answered);
}

static link_range part_at(const link_range *what, uint64_t at)
{
    const uint64_t left = what->nbytes - at;
    return (link_range){what->view, what->file, what->offset + at,
                        left < REMOTE_READS_NBYTES_MAX ? left : REMOTE_READS_NBYTES_MAX};
}

fsdpck_status remote_reads_read(remote_reads *r, unsigned owner, const link_range *what, void *dst,
                                fsdpck_error *err)
{
    reader of = {.status = FSDPCK_OK, .err = err};
    uint64_t at = 0;
    pthread_mutex_lock(r->lock);
    while (!r->failed && (of.in_progress > 0 || (at < what->nbytes && of.status == FSDPCK_OK))) {
        slot *s = at < what->nbytes && of.status == FSDPCK_OK ? find_free_slot(r) : NULL;
        if (s == NULL) {
            (void)pthread_cond_wait(&r->answered, r->lock);
            continue;
        }
        const link_range part = part_at(what, at);
        post_request(r, s, owner, &part, (uint8_t *)dst + at, &of);
        at += part.nbytes;
    }
    const bool lost = r->failed && (of.in_progress > 0 || at < what->nbytes);
    pthread_mutex_unlock(r->lock);
    return lost ? FAIL(err, PEER, NONE, "the rank that has the file was lost") : of.status;
}

static int send_request(remote_reads *r, slot *s)
{
    const int n = (int)s->q.what.nbytes, number = (int)s->q.slot;
    MPI_Request *messages = r->messages + SLOT_MESSAGES * number;
    int rc = MPI_Irecv(&s->head, sizeof s->head, MPI_BYTE, s->owner, HEADER_TAG + number,
                       MPI_COMM_WORLD, &messages[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Irecv(s->dst, n, MPI_BYTE, s->owner, DATA_TAG + number, MPI_COMM_WORLD,
                       &messages[1]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(&s->q, sizeof s->q, MPI_BYTE, s->owner, REQUEST_TAG, MPI_COMM_WORLD,
                       &messages[2]);
    s->left = SLOT_MESSAGES;
    s->state = SLOT_SENT;
    return rc;
}

static int send_requests(remote_reads *r, bool *busy)
{
    int rc = MPI_SUCCESS;
    for (unsigned i = 0; i < REMOTE_READS_SLOTS && rc == MPI_SUCCESS; i++) {
        slot *s = &r->slots[i];
        if (s->state == SLOT_POSTED)
            rc = send_request(r, s);
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
static int send_answer(remote_reads *r, job *j)
{
    static const uint8_t nothing[1];
    const int n = (int)j->q.what.nbytes, number = (int)j->q.slot;
    const bool has = j->bytes != NULL;
    MPI_Request *messages = r->messages + JOBS_AT + JOB_MESSAGES * (j - r->jobs);
    int rc = MPI_Isend(&j->head, sizeof j->head, MPI_BYTE, j->asker, HEADER_TAG + number,
                       MPI_COMM_WORLD, &messages[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(has ? j->bytes : nothing, has ? n : 0, MPI_BYTE, j->asker, DATA_TAG + number,
                       MPI_COMM_WORLD, &messages[1]);
    j->left = JOB_MESSAGES;
    j->state = JOB_SENDING;
    return rc;
}

static int send_answers(remote_reads *r, bool *busy)
{
    int rc = MPI_SUCCESS;
    for (unsigned i = 0; i < REMOTE_READS_JOBS && rc == MPI_SUCCESS; i++) {
        job *j = &r->jobs[i];
        if (j->state == JOB_READ)
            rc = send_answer(r, j);
        *busy = *busy || j->state != JOB_FREE;
    }
    return rc;
}

/* A received read request goes to a free job. Without a free job, it and all later ones wait. */
static int begin_job(remote_reads *r, bool *busy)
{
    unsigned i = 0;
    while (i < REMOTE_READS_JOBS && r->jobs[i].state != JOB_FREE)
        i++;
    if (i == REMOTE_READS_JOBS)
        return MPI_SUCCESS;
    job *j = &r->jobs[i];
    r->received = false;
    j->asker = r->asker;
    j->q = r->incoming;
    if (j->q.what.nbytes > REMOTE_READS_NBYTES_MAX || j->q.slot >= REMOTE_READS_SLOTS)
        return MPI_ERR_OTHER;
    j->taken = false;
    j->state = JOB_READING;
    *busy = true;
    (void)pthread_cond_signal(&r->asked);
    return MPI_SUCCESS;
}

static int receive_request(remote_reads *r, bool *busy)
{
    if (r->received) {
        const int rc = begin_job(r, busy);
        if (rc != MPI_SUCCESS || r->received)
            return rc;
    }
    if (r->receiving)
        return MPI_SUCCESS;
    r->receiving = true;
    return MPI_Irecv(&r->incoming, sizeof r->incoming, MPI_BYTE, MPI_ANY_SOURCE, REQUEST_TAG,
                     MPI_COMM_WORLD, &r->messages[INCOMING_AT]);
}

/* ---- messages ---- */

static void finish_message(remote_reads *r, int number, const MPI_Status *result)
{
    if (number == INCOMING_AT) {
        r->receiving = false;
        r->received = true;
        r->asker = result->MPI_SOURCE;
    } else if (number >= JOBS_AT) {
        job *j = &r->jobs[(number - JOBS_AT) / JOB_MESSAGES];
        if (--j->left == 0)
            j->state = JOB_FREE;
    } else {
        slot *s = &r->slots[number / SLOT_MESSAGES];
        if (--s->left == 0)
            finish_slot(r, s);
    }
}

/* One call of MPI for all messages: each call checks all connections. */
static int finish_messages(remote_reads *r, int *count)
{
    *count = 0;
    const int rc = MPI_Testsome(MESSAGES, r->messages, count, r->finished, r->results);
    if (rc != MPI_SUCCESS || *count == MPI_UNDEFINED) {
        *count = 0;
        return rc;
    }
    for (int i = 0; i < *count; i++)
        finish_message(r, r->finished[i], &r->results[i]);
    return MPI_SUCCESS;
}

static int progress_all(remote_reads *r, bool *busy)
{
    unsigned idle = 0;
    int rc = MPI_SUCCESS;
    while (rc == MPI_SUCCESS && idle < (*busy ? TESTS : 1u)) {
        int count = 0;
        rc = send_requests(r, busy);
        if (rc == MPI_SUCCESS)
            rc = receive_request(r, busy);
        if (rc == MPI_SUCCESS)
            rc = send_answers(r, busy);
        if (rc == MPI_SUCCESS)
            rc = finish_messages(r, &count);
        idle += count == 0;
    }
    return rc;
}

/* ---- life ---- */

int remote_reads_step(remote_reads *r, bool *busy)
{
    pthread_mutex_lock(r->lock);
    /* After a failure the memory of readers is gone. */
    const int rc = r->failed ? MPI_SUCCESS : progress_all(r, busy);
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
    (void)MPI_Cancel(&r->messages[INCOMING_AT]);
    (void)MPI_Wait(&r->messages[INCOMING_AT], MPI_STATUS_IGNORE);
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
    for (unsigned i = 0; i < MESSAGES; i++)
        r->messages[i] = MPI_REQUEST_NULL;
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
