/* fake_nccl_internal.h: shared by the files of the library that replaces NCCL. */
#ifndef FSDPCK_TESTS_SUPPORT_FAKE_NCCL_INTERNAL_H
#define FSDPCK_TESTS_SUPPORT_FAKE_NCCL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/fake_nccl.h"

enum { PATH_NBYTES = 160 };

typedef struct fake_id {
    char folder[128]; /* where messages lie */
} fake_id;

typedef struct fake_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fake_config;

typedef struct fake_comm fake_comm;

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

extern fake_nccl told; /* by the test */

/* Whether a variable names this fault of the rank; *result: its value. */
bool has_fault(const char *what, int rank, unsigned number, int *result);
uint64_t current_device(void);
void message_path(const fake_comm *c, int from, int to, unsigned number, char *path);
/* Connections are made in the first group of two ranks, when both have come to it. */
void begin_to_meet(fake_comm *c);
bool meet_others(fake_comm *c);

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

#endif
