#include "tests/support/fake_nccl.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fake_gpu.h"

enum { TYPE_UINT8 = 1, PATH_NBYTES = 160, OPS_MAX = 4096 };

typedef struct fake_id {
    char folder[128]; /* where messages lie */
} fake_id;

typedef struct fake_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fake_config;

typedef struct fake_comm fake_comm;

typedef struct fake_op {
    fake_comm *comm;
    const void *from; /* NULL: it receives */
    void *to;
    size_t nbytes;
    unsigned number; /* between these two ranks */
    int peer;
    bool done, flip;
} fake_op;

struct fake_comm {
    fake_comm *next;
    int waiting;
    int result;
    atomic_int dead;
    int rank, size;
    char folder[128];
    unsigned *sent, *received; /* by peer */
    unsigned groups, sends, receives;
    bool joined, hangs;
};

/* A group that is being given; a thread has one at a time. */
typedef struct fake_group {
    fake_op *ops;
    unsigned count;
    fake_gpu_handle *stream;
    fake_comm *comm;
} fake_group;

static fake_nccl told;
static _Atomic(fake_comm *) comms; /* all that were ever made */
static _Thread_local fake_group group;
static _Thread_local bool in_group;

__attribute__((visibility("default"))) fake_nccl *fake_nccl_control(void);
fake_nccl *fake_nccl_control(void)
{
    return &told;
}

#define NCCL(name) __attribute__((visibility("default"))) int name
NCCL(ncclGetVersion)(int *version);
NCCL(ncclGetUniqueId)(fake_id *id);
NCCL(ncclCommInitRankConfig)(fake_comm **out, int size, fake_id id, int rank, fake_config *config);
NCCL(ncclCommGetAsyncError)(fake_comm *c, int *result);
NCCL(ncclCommFinalize)(fake_comm *c);
NCCL(ncclCommDestroy)(fake_comm *c);
NCCL(ncclCommAbort)(fake_comm *c);
NCCL(ncclGroupStart)(void);
NCCL(ncclGroupEnd)(void);
NCCL(ncclSend)(const void *from, size_t n, int type, int peer, fake_comm *c, void *stream);
NCCL(ncclRecv)(void *to, size_t n, int type, int peer, fake_comm *c, void *stream);
__attribute__((visibility("default"))) const char *ncclGetErrorString(int result);

int ncclGetVersion(int *version)
{
    *version = told.version == 0 ? 22809 : told.version;
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return result == FAKE_NCCL_REMOTE_ERROR ? "remote process exited" : "unhandled system error";
}

/* ---- faults told by variables ---- */

static bool has_fault(const char *what, int rank, unsigned number, int *result)
{
    char word[16];
    int whose = -1, then = 0;
    unsigned which = 1;
    const char *text = getenv("FAKE_NCCL_FAULT");
    if (text == NULL || sscanf(text, "%15[^:]:%d:%d:%u", word, &whose, &then, &which) < 3 ||
        strcmp(word, what) != 0 || whose != rank || which != number)
        return false;
    *result = then;
    return true;
}

/* ---- communicators ---- */

int ncclGetUniqueId(fake_id *id)
{
    const char *tmp = getenv("TMPDIR");
    memset(id, 0, sizeof *id);
    (void)snprintf(id->folder, sizeof id->folder, "%.90s/fake_nccl.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(id->folder) != NULL ? 0 : FAKE_NCCL_SYSTEM_ERROR;
}

static void joined_path(const fake_comm *c, int rank, char *path)
{
    (void)snprintf(path, PATH_NBYTES, "%s/joined-%d", c->folder, rank);
}

int ncclCommInitRankConfig(fake_comm **out, int size, fake_id id, int rank, fake_config *config)
{
    char path[PATH_NBYTES];
    int result = told.init_result;
    told.inits++;
    if (config->blocking != 0 || config->magic != 0xcafebeef || id.folder[0] != '/' || rank >= size)
        told.bad_config = 1;
    const bool faulty = has_fault("join", rank, 1, &result);
    if ((faulty && result > 0) || (result != 0 && result != FAKE_NCCL_IN_PROGRESS && !faulty)) {
        (void)rmdir(id.folder); /* unless another rank has joined */
        return result;
    }
    fake_comm *c = calloc(1, sizeof *c);
    c->next = atomic_exchange(&comms, c);
    c->sent = calloc((size_t)size, sizeof *c->sent);
    c->received = calloc((size_t)size, sizeof *c->received);
    c->waiting = faulty ? -1 : told.init_waiting;
    c->result = told.init_async;
    c->rank = rank;
    c->size = size;
    memcpy(c->folder, id.folder, sizeof c->folder);
    joined_path(c, rank, path);
    FILE *f = fopen(path, "w");
    if (f != NULL)
        (void)fclose(f);
    *out = c;
    return size > 1 ? FAKE_NCCL_IN_PROGRESS : told.init_result;
}

static bool all_joined(fake_comm *c)
{
    char path[PATH_NBYTES];
    for (int r = 0; r < c->size && !c->joined; r++) {
        joined_path(c, r, path);
        if (access(path, F_OK) != 0)
            return false;
    }
    c->joined = true;
    return true;
}

int ncclCommGetAsyncError(fake_comm *c, int *result)
{
    if (atomic_load(&c->dead))
        return FAKE_NCCL_INVALID_ARGUMENT;
    *result = c->waiting != 0 || !all_joined(c) ? FAKE_NCCL_IN_PROGRESS : c->result;
    if (c->waiting > 0)
        c->waiting--;
    return 0;
}

int ncclCommFinalize(fake_comm *c)
{
    told.finalizes++;
    return atomic_load(&c->dead) ? FAKE_NCCL_INVALID_ARGUMENT : told.finalize_result;
}

static void message_path(const fake_comm *c, int from, int to, unsigned number, char *path)
{
    (void)snprintf(path, PATH_NBYTES, "%s/%d-%d-%u", c->folder, from, to, number);
}

/* Removes unreceived messages too; the last one removes the folder. */
static void remove_files(const fake_comm *c)
{
    char path[PATH_NBYTES];
    for (int to = 0; to < c->size; to++)
        for (unsigned n = 0; n < c->sent[to]; n++) {
            message_path(c, c->rank, to, n, path);
            (void)unlink(path);
        }
    joined_path(c, c->rank, path);
    (void)unlink(path);
    (void)rmdir(c->folder);
}

/* Its memory remains: abandoned operations still use it. */
static int end(fake_comm *c, const char *how)
{
    const char *path = getenv("FAKE_NCCL_LOG");
    FILE *f = path != NULL ? fopen(path, "a") : NULL;
    if (f != NULL) {
        (void)fprintf(f, "%d %u %u %s\n", c->rank, c->sends, c->receives, how);
        (void)fclose(f);
    }
    atomic_store(&c->dead, 1);
    remove_files(c);
    return 0;
}

int ncclCommDestroy(fake_comm *c)
{
    told.destroys++;
    return end(c, "destroyed");
}

int ncclCommAbort(fake_comm *c)
{
    told.aborts++;
    return end(c, "aborted");
}

/* ---- what travels ---- */

static void send_now(const fake_op *op)
{
    char path[PATH_NBYTES], hidden[PATH_NBYTES + 8];
    message_path(op->comm, op->comm->rank, op->peer, op->number, path);
    (void)snprintf(hidden, sizeof hidden, "%s.new", path);
    FILE *f = fopen(hidden, "wb");
    unsigned char *bytes = malloc(op->nbytes);
    memcpy(bytes, op->from, op->nbytes);
    if (op->flip)
        bytes[op->nbytes / 5] ^= 4;
    if (f == NULL || fwrite(bytes, 1, op->nbytes, f) != op->nbytes || fclose(f) != 0 ||
        rename(hidden, path) != 0)
        abort();
    free(bytes);
}

static bool receive_now(const fake_op *op)
{
    char path[PATH_NBYTES];
    message_path(op->comm, op->peer, op->comm->rank, op->number, path);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return false;
    /* Sizes must be equal. */
    if (fread(op->to, 1, op->nbytes, f) != op->nbytes || fgetc(f) != EOF)
        abort();
    (void)fclose(f);
    (void)unlink(path);
    return true;
}

typedef struct fake_batch {
    fake_op *ops;
    unsigned count;
    fake_comm *comm;
} fake_batch;

/* All of a group at once, as far as others have come. */
static bool run_batch(void *ctx)
{
    fake_batch *b = ctx;
    bool all = true;
    for (unsigned i = 0; i < b->count && !atomic_load(&b->comm->dead); i++) {
        fake_op *op = &b->ops[i];
        if (op->done)
            continue;
        if (op->from != NULL)
            send_now(op);
        op->done = op->from != NULL || receive_now(op);
        all = all && op->done;
    }
    if (!atomic_load(&b->comm->dead) && (!all || b->comm->hangs))
        return false;
    free(b->ops);
    free(b);
    return true;
}

int ncclGroupStart(void)
{
    group = (fake_group){.ops = calloc(OPS_MAX, sizeof(fake_op))};
    in_group = true;
    return 0;
}

static int end_group(void)
{
    fake_comm *c = group.comm;
    int result = told.end_result;
    in_group = false;
    if (c == NULL) {
        free(group.ops);
        return 0;
    }
    c->groups++;
    if (has_fault("stop", c->rank, c->groups, &result))
        (void)raise(SIGSTOP);
    c->waiting = told.end_waiting;
    c->result = told.end_async;
    if (has_fault("exchange", c->rank, c->groups, &result)) {
        c->hangs = result < 0;
        if (result >= 0) {
            c->result = result;
            result = 0;
        } else {
            result = told.end_result;
        }
    }
    fake_batch *b = calloc(1, sizeof *b);
    *b = (fake_batch){group.ops, group.count, c};
    if (group.stream != NULL)
        group.stream->enqueue(group.stream, run_batch, b);
    else
        while (!run_batch(b))
            usleep(100);
    return result;
}

int ncclGroupEnd(void)
{
    return end_group();
}

static int add(fake_op op, int type, fake_comm *c, void *stream)
{
    int ignored;
    if (type != TYPE_UINT8 || op.peer < 0 || op.peer >= c->size || atomic_load(&c->dead) ||
        !in_group || group.count == OPS_MAX)
        return FAKE_NCCL_INVALID_ARGUMENT;
    op.comm = c;
    op.number = op.from != NULL ? c->sent[op.peer]++ : c->received[op.peer]++;
    op.flip = op.from != NULL && has_fault("flip", c->rank, c->groups + 1, &ignored);
    group.comm = c;
    group.stream = stream;
    group.ops[group.count++] = op;
    return 0;
}

int ncclSend(const void *from, size_t n, int type, int peer, fake_comm *c, void *stream)
{
    told.sends++;
    c->sends++;
    const int result = add((fake_op){.from = from, .nbytes = n, .peer = peer}, type, c, stream);
    return result != 0 ? result : told.send_result;
}

int ncclRecv(void *to, size_t n, int type, int peer, fake_comm *c, void *stream)
{
    told.receives++;
    c->receives++;
    return add((fake_op){.to = to, .nbytes = n, .peer = peer}, type, c, stream);
}
