#include "kernels/nccl_exchange.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

/* The parts of nccl.h (2.14 to 2.28) used here. */
enum { RESULT_SUCCESS = 0, RESULT_IN_PROGRESS = 7 };
enum { TYPE_UINT8 = 1 };
#define VERSION_MIN  21403
#define CONFIG_MAGIC 0xcafebeefu

typedef struct id_value {
    char bytes[NCCL_ID_NBYTES];
} id_value;

/* ncclConfig_t as in 2.14.3: later versions read as much as `size` and `version` state. */
typedef struct config_value {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
} config_value;

typedef struct handle handle; /* ncclComm_t points to it */

struct nccl {
    void *library;
    unsigned version;
    int (*get_version)(int *version);
    const char *(*get_error_string)(int result);
    int (*get_unique_id)(id_value *id);
    int (*init_rank_config)(handle **comm, int size, id_value id, int rank, config_value *config);
    int (*get_async_error)(handle *comm, int *result);
    int (*finalize)(handle *comm);
    int (*destroy)(handle *comm);
    int (*abort)(handle *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t count, int type, int peer, handle *comm, void *stream);
    int (*recv)(void *to, size_t count, int type, int peer, handle *comm, void *stream);
};

struct nccl_comm {
    nccl *n;
    handle *handle; /* NULL: aborted */
    nccl_watch watch;
};

/* ---- the library ---- */

/* Maps a function of the library to a member of struct nccl. */
typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

static const char *find_symbols(nccl *n)
{
    static const symbol symbols[] = {
        {"ncclGetVersion", offsetof(nccl, get_version)},
        {"ncclGetErrorString", offsetof(nccl, get_error_string)},
        {"ncclGetUniqueId", offsetof(nccl, get_unique_id)},
        {"ncclCommInitRankConfig", offsetof(nccl, init_rank_config)},
        {"ncclCommGetAsyncError", offsetof(nccl, get_async_error)},
        {"ncclCommFinalize", offsetof(nccl, finalize)},
        {"ncclCommDestroy", offsetof(nccl, destroy)},
        {"ncclCommAbort", offsetof(nccl, abort)},
        {"ncclGroupStart", offsetof(nccl, group_start)},
        {"ncclGroupEnd", offsetof(nccl, group_end)},
        {"ncclSend", offsetof(nccl, send)},
        {"ncclRecv", offsetof(nccl, recv)},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(n->library, symbols[i].name);
        if (address == NULL)
            return symbols[i].name;
        memcpy((char *)n + symbols[i].offset, &address, sizeof address);
    }
    return NULL;
}

/* NCCL would write its log to stdout, where results go. It empties the file that it opens: a file
 * that is stderr must not be it. */
static void keep_log_off_stdout(void)
{
    struct stat s;
    const bool is_file = fstat(STDERR_FILENO, &s) == 0 && S_ISREG(s.st_mode);
    (void)setenv("NCCL_DEBUG_FILE", is_file ? "/dev/null" : "/dev/stderr", 0);
}

static fsdpck_status load(nccl *n, const char *path, fsdpck_error *err)
{
    int version = 0;
    keep_log_off_stdout();
    /* Its threads may outlive an aborted communicator: the code stays loaded. */
    n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (n->library == NULL) {
        const char *why = dlerror();
        error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "NCCL cannot be loaded: %s",
                  why == NULL ? "" : why);
        error_next(err, "install NCCL 2, or add its folder to LD_LIBRARY_PATH");
        return FSDPCK_DEVICE;
    }
    const char *missing = find_symbols(n);
    const bool told = n->get_version != NULL && n->get_version(&version) == RESULT_SUCCESS;
    n->version = (unsigned)version;
    if (missing == NULL && told && version >= VERSION_MIN)
        return FSDPCK_OK;
    error_set(err, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_NONE, "this NCCL is too old");
    error_path(err, path);
    error_expected(err, "2.14.3 or newer");
    if (missing != NULL)
        error_found(err, "%d, without %s", version, missing);
    else
        error_found(err, "%d", version);
    error_next(err, "install a newer NCCL, or omit --engine");
    return FSDPCK_UNSUPPORTED;
}

fsdpck_status nccl_load(const char *path, nccl **out, fsdpck_error *err)
{
    *out = NULL;
    nccl *n = calloc(1, sizeof *n);
    if (n == NULL)
        return error_set_nomem(err, sizeof *n);
    const fsdpck_status st = load(n, path == NULL ? "libnccl.so.2" : path, err);
    if (st != FSDPCK_OK)
        nccl_unload(n);
    else
        *out = n;
    return st;
}

void nccl_unload(nccl *n)
{
    if (n == NULL)
        return;
    if (n->library != NULL)
        dlclose(n->library);
    free(n);
}

unsigned nccl_version(const nccl *n)
{
    return n->version;
}

static fsdpck_status failed(const nccl *n, int result, const char *what, fsdpck_error *err)
{
    const char *why = n->get_error_string(result);
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "%s failed in NCCL: %s", what,
              why == NULL ? "" : why);
    error_next(err, "set NCCL_DEBUG=WARN for details, or omit --engine cuda to exchange by MPI");
    return FSDPCK_DEVICE;
}

/* ---- waiting ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_briefly(void)
{
    const struct timespec t = {.tv_nsec = 100000};
    nanosleep(&t, NULL);
}

static fsdpck_status abort_comm(nccl_comm *c, fsdpck_status st)
{
    if (c->handle != NULL)
        (void)c->n->abort(c->handle);
    c->handle = NULL;
    return st;
}

static fsdpck_status aborted(const nccl_comm *c, fsdpck_error *err)
{
    if (c->handle != NULL)
        return FSDPCK_OK;
    return error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE,
                     "a communicator of NCCL was used after its end");
}

/* A wait for other ranks. */
typedef struct patience {
    double since; /* when they went on last, as far as known */
    uint64_t activity;
} patience;

static patience begin_wait(const nccl_comm *c)
{
    return (patience){now(), c->watch.activity == NULL ? 0 : c->watch.activity(c->watch.ctx)};
}

static fsdpck_status may_wait(const nccl_comm *c, patience *p, const char *what, fsdpck_error *err)
{
    const patience here = begin_wait(c);
    if (c->watch.stop != NULL && c->watch.stop(c->watch.ctx))
        return error_set(err, FSDPCK_CANCELLED, FSDPCK_FINDING_NONE, "cancelled");
    if (here.activity != p->activity)
        *p = here;
    if (here.since - p->since < c->watch.timeout_seconds)
        return FSDPCK_OK;
    error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "NCCL: %s took more than %u s", what,
              c->watch.timeout_seconds);
    error_next(err, "check that all ranks still run; --peer-timeout sets the time limit");
    return FSDPCK_DEVICE;
}

/* `result` is the return value of a call: waits for the operation that it began. Aborts on failure.
 */
static fsdpck_status wait_for_call(nccl_comm *c, int result, const char *what, fsdpck_error *err)
{
    patience waited = begin_wait(c);
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && result == RESULT_IN_PROGRESS) {
        const int asked = c->n->get_async_error(c->handle, &result);
        if (asked != RESULT_SUCCESS)
            result = asked;
        if (result != RESULT_IN_PROGRESS)
            break;
        st = may_wait(c, &waited, what, err);
        sleep_briefly();
    }
    if (st == FSDPCK_OK && result != RESULT_SUCCESS)
        st = failed(c->n, result, what, err);
    return st == FSDPCK_OK ? st : abort_comm(c, st);
}

/* ---- communicators ---- */

fsdpck_status nccl_make_id(nccl *n, uint8_t *id, fsdpck_error *err)
{
    id_value value;
    const int result = n->get_unique_id(&value);
    if (result != RESULT_SUCCESS)
        return failed(n, result, "a new id", err);
    memcpy(id, value.bytes, NCCL_ID_NBYTES);
    return FSDPCK_OK;
}

fsdpck_status nccl_join(nccl *n, const uint8_t *id, unsigned rank, unsigned size,
                        const nccl_watch *watch, nccl_comm **out, fsdpck_error *err)
{
    id_value value;
    config_value config = {sizeof config, CONFIG_MAGIC, VERSION_MIN, 0};
    *out = NULL;
    nccl_comm *c = calloc(1, sizeof *c);
    if (c == NULL)
        return error_set_nomem(err, sizeof *c);
    c->n = n;
    c->watch = *watch;
    memcpy(value.bytes, id, NCCL_ID_NBYTES);
    const int result = n->init_rank_config(&c->handle, (int)size, value, (int)rank, &config);
    fsdpck_status st;
    if (c->handle == NULL && (result == RESULT_SUCCESS || result == RESULT_IN_PROGRESS))
        st = error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "NCCL returned no communicator");
    else if (c->handle == NULL)
        st = failed(n, result, "joining the ranks", err);
    else
        st = wait_for_call(c, result, "joining the ranks", err);
    if (st != FSDPCK_OK)
        nccl_leave(&c);
    *out = c;
    return st;
}

void nccl_leave(nccl_comm **out)
{
    nccl_comm *c = *out;
    *out = NULL;
    if (c == NULL)
        return;
    if (c->handle != NULL &&
        wait_for_call(c, c->n->finalize(c->handle), "leaving the ranks", NULL) == FSDPCK_OK)
        (void)c->n->destroy(c->handle);
    free(c);
}

void nccl_abort(nccl_comm **c)
{
    if (*c != NULL)
        (void)abort_comm(*c, FSDPCK_OK);
    nccl_leave(c);
}

/* ---- moving ---- */

static int enqueue_transfer(const nccl_comm *c, const nccl_transfer *m, void *stream)
{
    void *at = (void *)(uintptr_t)m->at;
    if (m->receive)
        return c->n->recv(at, m->nbytes, TYPE_UINT8, (int)m->peer, c->handle, stream);
    return c->n->send(at, m->nbytes, TYPE_UINT8, (int)m->peer, c->handle, stream);
}

static bool is_success(int result)
{
    return result == RESULT_SUCCESS || result == RESULT_IN_PROGRESS;
}

fsdpck_status nccl_exchange(nccl_comm *c, const nccl_transfer *transfers, size_t count,
                            void *stream, fsdpck_error *err)
{
    RETURN_IF(aborted(c, err));
    int result = c->n->group_start();
    if (!is_success(result))
        return wait_for_call(c, result, "an exchange", err);
    for (size_t i = 0; i < count && is_success(result); i++)
        if (transfers[i].nbytes > 0)
            result = enqueue_transfer(c, &transfers[i], stream);
    const int ended = c->n->group_end();
    return wait_for_call(c, is_success(result) ? ended : result, "an exchange", err);
}

fsdpck_status nccl_check(nccl_comm *c, fsdpck_error *err)
{
    int result;
    RETURN_IF(aborted(c, err));
    const int asked = c->n->get_async_error(c->handle, &result);
    if (asked != RESULT_SUCCESS)
        result = asked;
    return is_success(result) ? FSDPCK_OK : abort_comm(c, failed(c->n, result, "an exchange", err));
}

fsdpck_status nccl_wait(nccl_comm *c, bool (*done)(void *ctx), void *ctx, fsdpck_error *err)
{
    patience waited = begin_wait(c);
    for (;;) {
        RETURN_IF(nccl_check(c, err));
        if (done(ctx))
            return nccl_check(c, err);
        const fsdpck_status st = may_wait(c, &waited, "an exchange", err);
        if (st != FSDPCK_OK)
            return abort_comm(c, st);
        sleep_briefly();
    }
}
