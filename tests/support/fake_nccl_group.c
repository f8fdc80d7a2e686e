/* Groups of sends and receives of the library that replaces NCCL. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fake_gpu.h"
#include "tests/support/fake_nccl_internal.h"

enum { TYPE_UINT8 = 1, OPS_MAX = 4096 };

typedef struct fake_op {
    fake_comm *comm;
    bool sends;
    uint64_t at; /* an address of the device, or of the host where no stream is given */
    size_t nbytes;
    unsigned number; /* between these two ranks */
    int peer;
    bool begun, done, flip;
} fake_op;

/* A group that is being given; a thread has one at a time. */
typedef struct fake_group {
    fake_op *ops;
    unsigned count;
    int result; /* of its calls */
    fake_gpu_handle *stream;
    fake_comm *comm;
} fake_group;

static _Thread_local fake_group group;
static _Thread_local bool in_group;

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
