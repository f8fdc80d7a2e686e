#define _GNU_SOURCE 1 /* RTLD_DEFAULT */
#include "tests/support/fake_nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fake_gpu.h"
#include "tests/support/fake_nccl_internal.h"

fake_nccl told;
static _Atomic(fake_comm *) comms; /* all that were ever made */

__attribute__((visibility("default"))) fake_nccl *fake_nccl_control(void);
fake_nccl *fake_nccl_control(void)
{
    return &told;
}

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
uint64_t current_device(void)
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

bool has_fault(const char *what, int rank, unsigned number, int *result)
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

/* As NCCL's log has it. */
static void log_network(void)
{
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE");
    FILE *f = level != NULL && strcmp(level, "INFO") == 0 && path != NULL ? fopen(path, "a") : NULL;
    if (f == NULL)
        return;
    (void)fprintf(f, "host:1:1 [0] NCCL INFO NET/Fake : no device\n"
                     "host:1:1 [0] NCCL INFO Using network Fake\n");
    (void)fclose(f);
}

int ncclCommInitRankConfig(fake_comm **out, int size, fake_id id, int rank, fake_config *config)
{
    char path[PATH_NBYTES], hidden[PATH_NBYTES + 8];
    int result = told.init_result;
    told.inits++;
    log_network();
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

bool meet_others(fake_comm *c)
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

void begin_to_meet(fake_comm *c)
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

void message_path(const fake_comm *c, int from, int to, unsigned number, char *path)
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
