#define _GNU_SOURCE 1 /* RTLD_DEFAULT */
#include "tests/support/fake_nccl.h"

#include <dlfcn.h>
#include <pthread.h>
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
    bool sends;
    uint64_t at; /* an address of the device, or of the host where no stream is given */
    size_t nbytes;
    unsigned number; /* between these two ranks */
    int peer;
    bool begun, done, flip;
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
    bool finalized;
    bool settled;      /* the last call that may go on has ended */
    bool *meets, *met; /* by peer: in the group under way; in an earlier one */
    pthread_t thread;
    uint64_t device;
};

/* A group that is being given; a thread has one at a time. */
typedef struct fake_group {
    fake_op *ops;
    unsigned count;
    int result; /* of its calls */
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

/* FAKE_NCCL_VERSION, or what the test says. */
static int own_version(void)
{
    int whose = -1, version = 0;
    const char *text = getenv("FAKE_NCCL_VERSION");
    const char *here = getenv("OMPI_COMM_WORLD_RANK");
    here = here != NULL ? here : getenv("PMI_RANK");
    if (text != NULL && here != NULL && sscanf(text, "%d:%d", &whose, &version) == 2 &&
        whose == atoi(here))
        return version;
    return told.version == 0 ? 22809 : told.version;
}

int ncclGetVersion(int *version)
{
    *version = own_version();
    return 0;
}

/* Of the fake GPU that is current in this thread; 0: the program has none. */
static uint64_t current_device(void)
{
    fake_gpu_current_fn current;
    *(void **)(void *)&current = dlsym(RTLD_DEFAULT, FAKE_GPU_CURRENT);
    return current == NULL ? 0 : current();
}

const char *ncclGetErrorString(int result)
{
    return result == FAKE_NCCL_REMOTE_ERROR    ? "remote process exited"
           : result == FAKE_NCCL_INVALID_USAGE ? "invalid usage"
                                               : "unhandled system error";
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
    char path[PATH_NBYTES], hidden[PATH_NBYTES + 8];
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
    c->thread = pthread_self();
    c->device = current_device();
    c->meets = calloc((size_t)size, sizeof *c->meets);
    c->met = calloc((size_t)size, sizeof *c->met);
    c->met[rank] = true;
    memcpy(c->folder, id.folder, sizeof c->folder);
    joined_path(c, rank, path);
    (void)snprintf(hidden, sizeof hidden, "%s.new", path);
    FILE *f = fopen(hidden, "w");
    if (f != NULL && fprintf(f, "%d %llu", own_version(), (unsigned long long)c->device) > 0 &&
        fclose(f) == 0)
        (void)rename(hidden, path);
    *out = c;
    c->settled = size == 1 && told.init_result == 0;
    return size > 1 ? FAKE_NCCL_IN_PROGRESS : told.init_result;
}

/* Ranks of several versions do not join. One device cannot be that of two ranks, which they alone find:
 * the others go on waiting. */
static int check_others(const fake_comm *c, int rank, int version, uint64_t device)
{
    if (version != own_version() || (device != 0 && device == c->device && rank != c->rank))
        return FAKE_NCCL_INVALID_USAGE;
    return 0;
}

/* IN_PROGRESS until all have come. */
static int join_others(fake_comm *c)
{
    char path[PATH_NBYTES];
    bool all = true, others_fail = false;
    uint64_t devices[64] = {0};
    if (c->joined)
        return 0;
    for (int r = 0; r < c->size; r++) {
        int version = 0;
        unsigned long long device = 0;
        joined_path(c, r, path);
        FILE *f = fopen(path, "r");
        if (f == NULL) {
            all = false;
            continue;
        }
        if (fscanf(f, "%d %llu", &version, &device) != 2)
            abort();
        (void)fclose(f);
        const int result = check_others(c, r, version, device);
        if (result != 0)
            return result;
        for (int k = 0; k < r && r < 64; k++)
            others_fail = others_fail || (device != 0 && devices[k] == device);
        devices[r % 64] = device;
    }
    if (!all || others_fail)
        return FAKE_NCCL_IN_PROGRESS;
    c->joined = true;
    return 0;
}

static void met_path(const fake_comm *c, int from, int to, char *path)
{
    (void)snprintf(path, PATH_NBYTES, "%s/met-%d-%d", c->folder, from, to);
}

/* Connections are made in the first group of two ranks, when both have come to it. */
static bool meet_others(fake_comm *c)
{
    char path[PATH_NBYTES];
    bool all = true;
    for (int r = 0; r < c->size; r++) {
        if (!c->meets[r] || c->met[r])
            continue;
        met_path(c, r, c->rank, path);
        c->met[r] = unlink(path) == 0;
        all = all && c->met[r];
    }
    return all;
}

static void begin_to_meet(fake_comm *c)
{
    char path[PATH_NBYTES];
    for (int r = 0; r < c->size; r++) {
        if (!c->meets[r] || c->met[r])
            continue;
        met_path(c, c->rank, r, path);
        FILE *f = fopen(path, "w");
        if (f != NULL)
            (void)fclose(f);
    }
}

int ncclCommGetAsyncError(fake_comm *c, int *result)
{
    if (atomic_load(&c->dead) || !pthread_equal(c->thread, pthread_self()))
        return FAKE_NCCL_INVALID_ARGUMENT;
    *result = c->waiting != 0 ? FAKE_NCCL_IN_PROGRESS : join_others(c);
    if (*result == 0)
        *result = meet_others(c) ? c->result : FAKE_NCCL_IN_PROGRESS;
    c->settled = *result != FAKE_NCCL_IN_PROGRESS;
    if (c->waiting > 0)
        c->waiting--;
    return 0;
}

int ncclCommFinalize(fake_comm *c)
{
    told.finalizes++;
    if (atomic_load(&c->dead) || !c->settled)
        return FAKE_NCCL_INVALID_ARGUMENT;
    if (told.finalize_result != 0)
        return told.finalize_result;
    c->waiting = 2;
    c->settled = false;
    c->finalized = true;
    return FAKE_NCCL_IN_PROGRESS;
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
    for (int from = 0; from < c->size; from++) {
        met_path(c, from, c->rank, path);
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
    if (!c->finalized || !c->settled)
        return FAKE_NCCL_INVALID_ARGUMENT;
    return end(c, "destroyed");
}

int ncclCommAbort(fake_comm *c)
{
    told.aborts++;
    return end(c, "aborted");
}

/* ---- what travels ---- */

static uint8_t *bytes_of(const fake_op *op, fake_gpu_handle *stream)
{
    return stream == NULL ? (uint8_t *)(uintptr_t)op->at
                          : stream->bytes_at(stream, op->at, op->nbytes);
}

static void begin_send(const fake_op *op, const uint8_t *from)
{
    char path[PATH_NBYTES], hidden[PATH_NBYTES + 8];
    message_path(op->comm, op->comm->rank, op->peer, op->number, path);
    (void)snprintf(hidden, sizeof hidden, "%s.new", path);
    FILE *f = fopen(hidden, "wb");
    unsigned char *bytes = malloc(op->nbytes);
    memcpy(bytes, from, op->nbytes);
    if (op->flip)
        bytes[op->nbytes / 5] ^= 4;
    if (f == NULL || fwrite(bytes, 1, op->nbytes, f) != op->nbytes || fclose(f) != 0 ||
        rename(hidden, path) != 0)
        abort();
    free(bytes);
}

/* A send ends when its message was received, as NCCL's do where it has no buffer left. */
static bool is_received(const fake_op *op)
{
    char path[PATH_NBYTES];
    message_path(op->comm, op->comm->rank, op->peer, op->number, path);
    return access(path, F_OK) != 0;
}

static bool receive_now(const fake_op *op, uint8_t *to)
{
    char path[PATH_NBYTES];
    message_path(op->comm, op->peer, op->comm->rank, op->number, path);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return false;
    /* Sizes must be equal. */
    if (fread(to, 1, op->nbytes, f) != op->nbytes || fgetc(f) != EOF)
        abort();
    (void)fclose(f);
    (void)unlink(path);
    return true;
}

typedef struct fake_batch {
    fake_op *ops;
    unsigned count;
    fake_comm *comm;
    fake_gpu_handle *stream;
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
        if (op->sends && !op->begun)
            begin_send(op, bytes_of(op, b->stream));
        op->begun = true;
        op->done = op->sends ? is_received(op) : receive_now(op, bytes_of(op, b->stream));
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

static int drop_group(int result)
{
    free(group.ops);
    return result;
}

/* What tests and variables say about it. */
static int group_result(fake_comm *c)
{
    int result = told.end_result;
    c->groups++;
    if (has_fault("stop", c->rank, c->groups, &result))
        (void)raise(SIGSTOP);
    c->waiting = told.end_waiting;
    c->result = told.end_async;
    if (!has_fault("exchange", c->rank, c->groups, &result))
        return result;
    c->hangs = result < 0;
    if (result >= 0)
        c->result = result;
    return told.end_result;
}

static int end_group(void)
{
    fake_comm *c = group.comm;
    in_group = false;
    if (c == NULL || group.result != 0)
        return drop_group(group.result);
    if (!c->settled || c->device != current_device())
        return drop_group(FAKE_NCCL_INVALID_USAGE);
    int result = group_result(c);
    fake_batch *b = calloc(1, sizeof *b);
    *b = (fake_batch){group.ops, group.count, c, group.stream};
    begin_to_meet(c);
    if (!meet_others(c))
        result = FAKE_NCCL_IN_PROGRESS;
    c->settled = result != FAKE_NCCL_IN_PROGRESS;
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
        !in_group || group.count == OPS_MAX || c->finalized ||
        !pthread_equal(c->thread, pthread_self()))
        return FAKE_NCCL_INVALID_ARGUMENT;
    op.comm = c;
    op.number = op.sends ? c->sent[op.peer]++ : c->received[op.peer]++;
    op.flip = op.sends && has_fault("flip", c->rank, c->groups + 1, &ignored);
    c->meets[op.peer] = true;
    group.comm = c;
    group.stream = stream;
    group.ops[group.count++] = op;
    return 0;
}

int ncclSend(const void *from, size_t n, int type, int peer, fake_comm *c, void *stream)
{
    const fake_op op = {.sends = true, .at = (uintptr_t)from, .nbytes = n, .peer = peer};
    told.sends++;
    c->sends++;
    const int result = add(op, type, c, stream);
    group.result = result != 0 ? result : told.send_result;
    return group.result;
}

int ncclRecv(void *to, size_t n, int type, int peer, fake_comm *c, void *stream)
{
    const fake_op op = {.at = (uintptr_t)to, .nbytes = n, .peer = peer};
    told.receives++;
    c->receives++;
    const int result = add(op, type, c, stream);
    group.result = result != 0 ? result : group.result;
    return result;
}
