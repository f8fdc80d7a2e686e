/* A library in NCCL's place, loaded by tests: one rank that sends to itself, which answers as it is
 * told by fake_nccl_tell. */
#include <string.h>

typedef struct fake_id {
    char bytes[128];
} fake_id;

typedef struct fake_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fake_config;

typedef struct fake_comm {
    int waiting; /* how often it still says that it is in progress; -1: for ever */
    int result;  /* what it says then */
    int dead;
} fake_comm;

/* What the test tells, and sees. */
typedef struct fake_nccl {
    int version;
    int init_result, init_waiting, init_async;
    int send_result, end_result, end_waiting, end_async;
    int finalize_result;
    int inits, aborts, destroys, finalizes, sends, receives;
    int bad_config;
} fake_nccl;

static fake_nccl told;
static fake_comm comm;
static const void *sent[16];
static size_t sent_nbytes[16];
static int sent_count, received_count;

__attribute__((visibility("default"))) fake_nccl *fake_nccl_tell(void);
fake_nccl *fake_nccl_tell(void)
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
NCCL(ncclAllGather)(const void *from, void *to, size_t n, int type, fake_comm *c, void *stream);
__attribute__((visibility("default"))) const char *ncclGetErrorString(int result);

int ncclGetVersion(int *version)
{
    *version = told.version == 0 ? 22809 : told.version;
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return result == 6 ? "remote process exited" : "unhandled system error";
}

int ncclGetUniqueId(fake_id *id)
{
    memset(id, 0x17, sizeof *id);
    return 0;
}

int ncclCommInitRankConfig(fake_comm **out, int size, fake_id id, int rank, fake_config *config)
{
    told.inits++;
    if (config->blocking != 0 || config->magic != 0xcafebeef || id.bytes[127] != 0x17 ||
        rank >= size)
        told.bad_config = 1;
    if (told.init_result != 0 && told.init_result != 7)
        return told.init_result;
    comm = (fake_comm){told.init_waiting, told.init_async, 0};
    *out = &comm;
    return told.init_result;
}

int ncclCommGetAsyncError(fake_comm *c, int *result)
{
    if (c->dead)
        return 4;
    *result = c->waiting != 0 ? 7 : c->result;
    if (c->waiting > 0)
        c->waiting--;
    return 0;
}

int ncclCommFinalize(fake_comm *c)
{
    told.finalizes++;
    return c->dead ? 4 : told.finalize_result;
}

int ncclCommDestroy(fake_comm *c)
{
    told.destroys++;
    c->dead = 1;
    return 0;
}

int ncclCommAbort(fake_comm *c)
{
    told.aborts++;
    c->dead = 1;
    return 0;
}

int ncclGroupStart(void)
{
    sent_count = 0;
    received_count = 0;
    return 0;
}

int ncclGroupEnd(void)
{
    comm.waiting = told.end_waiting;
    comm.result = told.end_async;
    return told.end_result;
}

int ncclSend(const void *from, size_t n, int type, int peer, fake_comm *c, void *stream)
{
    (void)stream;
    if (type != 1 || peer != 0 || c->dead || sent_count == 16)
        return 4;
    told.sends++;
    sent[sent_count] = from;
    sent_nbytes[sent_count++] = n;
    return told.send_result;
}

/* Sends come first in the tests. */
int ncclRecv(void *to, size_t n, int type, int peer, fake_comm *c, void *stream)
{
    (void)stream;
    if (type != 1 || peer != 0 || c->dead || received_count == sent_count ||
        sent_nbytes[received_count] != n)
        return 4;
    told.receives++;
    memcpy(to, sent[received_count++], n);
    return 0;
}

int ncclAllGather(const void *from, void *to, size_t n, int type, fake_comm *c, void *stream)
{
    (void)stream;
    if (type != 1 || c->dead)
        return 4;
    memcpy(to, from, n);
    return 0;
}
