/* The use of NCCL against a library that answers as it is told. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/nccl_exchange.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/fake_nccl.h"

static const nccl_watch patient = {.timeout_seconds = 30};
static const nccl_watch hurried = {.timeout_seconds = 0};

/* The one that nccl_load gets under the same name. */
static fake_nccl *tell(void)
{
    fake_nccl_control_fn get;
    void *library = dlopen(getenv("FAKE_NCCL"), RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    *(void **)(void *)&get = dlsym(library, FAKE_NCCL_CONTROL);
    cr_assert_not_null(get);
    return get();
}

static nccl *load(void)
{
    nccl *n;
    fsdpck_error err = {0};
    cr_assert_eq(nccl_load(getenv("FAKE_NCCL"), &n, &err), FSDPCK_OK, "%s", err.message);
    return n;
}

static fsdpck_status join(nccl *n, const nccl_watch *watch, nccl_comm **c, fsdpck_error *err)
{
    uint8_t id[NCCL_ID_NBYTES];
    cr_assert_eq(nccl_make_id(n, id, NULL), FSDPCK_OK);
    return nccl_join(n, id, 0, 1, watch, c, err);
}

static nccl_transfer move_of(const void *at, uint64_t nbytes, bool receive)
{
    return (nccl_transfer){(gpu_address)(uintptr_t)at, nbytes, 0, receive};
}

static bool at_once(void *ctx)
{
    (void)ctx;
    return true;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

Test(nccl, a_library_that_is_not_there_or_too_old)
{
    nccl *n;
    fsdpck_error err = {0};
    cr_assert_eq(nccl_load("/nowhere/libnccl.so.2", &n, &err), FSDPCK_DEVICE);
    cr_assert_null(n);
    cr_assert_neq(err.next[0], '\0');
    cr_assert_eq(nccl_load("libz.so.1", &n, &err), FSDPCK_UNSUPPORTED);
    cr_assert_not_null(strstr(err.found, "ncclGetVersion"));
    fake_nccl *f = tell();
    f->version = 2708;
    cr_assert_eq(nccl_load(getenv("FAKE_NCCL"), &n, &err), FSDPCK_UNSUPPORTED);
    f->version = 21403;
    n = load();
    cr_assert_eq(nccl_version(n), 21403);
    nccl_unload(n);
}

/* NCCL's log would be among the results, and would empty a file that stderr is. */
Test(nccl, its_log_is_not_on_stdout)
{
    FILE *file = tmpfile();
    int pipe_ends[2];
    cr_assert_not_null(file);
    cr_assert_eq(pipe(pipe_ends), 0);
    (void)unsetenv("NCCL_DEBUG_FILE");
    cr_assert_neq(dup2(pipe_ends[1], STDERR_FILENO), -1);
    nccl_unload(load());
    cr_assert_str_eq(getenv("NCCL_DEBUG_FILE"), "/dev/stderr");
    (void)unsetenv("NCCL_DEBUG_FILE");
    cr_assert_neq(dup2(fileno(file), STDERR_FILENO), -1);
    nccl_unload(load());
    cr_assert_str_eq(getenv("NCCL_DEBUG_FILE"), "/dev/null");
    (void)setenv("NCCL_DEBUG_FILE", "mine", 1);
    nccl_unload(load());
    cr_assert_str_eq(getenv("NCCL_DEBUG_FILE"), "mine");
    (void)fclose(file);
}

Test(nccl, tiles_are_exchanged_in_one_group)
{
    fake_nccl *f = tell();
    uint8_t a[300], b[7], to_a[300] = {0}, to_b[7] = {0};
    nccl *n = load();
    nccl_comm *c;
    memset(a, 1, sizeof a);
    memset(b, 2, sizeof b);
    f->init_result = f->end_result = FAKE_NCCL_IN_PROGRESS;
    f->init_waiting = f->end_waiting = 3;
    cr_assert_eq(join(n, &patient, &c, NULL), FSDPCK_OK);
    cr_assert_eq(f->bad_config, 0);
    const nccl_transfer transfers[] = {move_of(a, sizeof a, false), move_of(b, 0, false),
                                       move_of(b, sizeof b, false), move_of(to_a, sizeof a, true),
                                       move_of(to_b, sizeof b, true)};
    cr_assert_eq(nccl_exchange(c, transfers, 5, NULL, NULL), FSDPCK_OK);
    cr_assert_arr_eq(a, to_a, sizeof a);
    cr_assert_arr_eq(b, to_b, sizeof b);
    cr_assert_eq(f->sends, 2);
    cr_assert_eq(nccl_wait(c, at_once, NULL, NULL), FSDPCK_OK);
    nccl_leave(&c);
    cr_assert_null(c);
    cr_assert(f->finalizes == 1 && f->destroys == 1 && f->aborts == 0);
    nccl_unload(n);
}

Test(nccl, joining_fails_at_once_later_or_never_ends)
{
    fake_nccl *f = tell();
    fsdpck_error err = {0};
    nccl *n = load();
    nccl_comm *c;
    f->init_result = FAKE_NCCL_SYSTEM_ERROR;
    cr_assert_eq(join(n, &patient, &c, &err), FSDPCK_DEVICE);
    cr_assert_null(c);
    cr_assert_not_null(strstr(err.message, "unhandled system error"));
    cr_assert_eq(f->aborts, 0);
    f->init_result = FAKE_NCCL_IN_PROGRESS;
    f->init_waiting = 2;
    f->init_async = FAKE_NCCL_REMOTE_ERROR;
    cr_assert_eq(join(n, &patient, &c, &err), FSDPCK_DEVICE);
    cr_assert_not_null(strstr(err.message, "remote process exited"));
    cr_assert_eq(f->aborts, 1);
    f->init_waiting = -1;
    cr_assert_eq(join(n, &hurried, &c, &err), FSDPCK_DEVICE);
    cr_assert_not_null(strstr(err.message, "more than 0 s"));
    cr_assert_eq(f->aborts, 2);
    const nccl_watch stopped = {.stop = at_once, .timeout_seconds = 30};
    cr_assert_eq(join(n, &stopped, &c, &err), FSDPCK_CANCELLED);
    cr_assert_eq(f->aborts, 3);
    cr_assert(f->destroys == 0 && f->finalizes == 0);
    nccl_unload(n);
}

/* Each way to fail: the communicator is aborted once, and only left after that. */
static void expect_aborted(fake_nccl *f, nccl *n, nccl_comm *c, fsdpck_status st)
{
    uint8_t byte = 0;
    const nccl_transfer move = move_of(&byte, 1, false);
    cr_assert_eq(st, FSDPCK_DEVICE);
    cr_assert_eq(f->aborts, 1);
    cr_assert_eq(nccl_exchange(c, &move, 1, NULL, NULL), FSDPCK_DEVICE);
    cr_assert_eq(nccl_check(c, NULL), FSDPCK_DEVICE);
    nccl_leave(&c);
    cr_assert(f->aborts == 1 && f->destroys == 0 && f->finalizes == 0);
    f->aborts = 0;
    f->send_result = f->end_result = f->end_waiting = f->end_async = 0;
    (void)n;
}

Test(nccl, exchanges_that_fail_abort)
{
    fake_nccl *f = tell();
    const uint8_t byte = 0;
    uint8_t other;
    const nccl_transfer moves[] = {move_of(&byte, 1, false), move_of(&other, 1, true)};
    nccl *n = load();
    nccl_comm *c;
    cr_assert_eq(join(n, &patient, &c, NULL), FSDPCK_OK);
    f->send_result = FAKE_NCCL_SYSTEM_ERROR;
    expect_aborted(f, n, c, nccl_exchange(c, moves, 2, NULL, NULL));
    cr_assert_eq(join(n, &patient, &c, NULL), FSDPCK_OK);
    f->end_result = FAKE_NCCL_IN_PROGRESS;
    f->end_async = FAKE_NCCL_REMOTE_ERROR;
    expect_aborted(f, n, c, nccl_exchange(c, moves, 2, NULL, NULL));
    cr_assert_eq(join(n, &hurried, &c, NULL), FSDPCK_OK);
    f->end_result = FAKE_NCCL_IN_PROGRESS;
    f->end_waiting = -1;
    expect_aborted(f, n, c, nccl_exchange(c, moves, 2, NULL, NULL));
    cr_assert_eq(join(n, &patient, &c, NULL), FSDPCK_OK);
    f->end_async = FAKE_NCCL_REMOTE_ERROR;
    cr_assert_eq(nccl_exchange(c, moves, 2, NULL, NULL), FSDPCK_OK);
    expect_aborted(f, n, c, nccl_wait(c, never, NULL, NULL));
    cr_assert_eq(join(n, &hurried, &c, NULL), FSDPCK_OK);
    cr_assert_eq(nccl_exchange(c, moves, 2, NULL, NULL), FSDPCK_OK);
    expect_aborted(f, n, c, nccl_wait(c, never, NULL, NULL));
    nccl_unload(n);
}

/* Between a rank and itself: a send without its receive does not end, nor does its wait. */
Test(nccl, a_send_waits_for_its_receive)
{
    fsdpck_error err = {0};
    const nccl_watch watch = {.timeout_seconds = 1};
    fake_gpu f;
    gpu_stream *s;
    gpu_address device;
    nccl_comm *c;
    bool done;
    fake_gpu_init(&f);
    const gpu_calls *calls = f.base.calls;
    nccl *n = load();
    cr_assert_eq(calls->stream_new(&f.base, true, &s, &err), FSDPCK_OK);
    cr_assert_eq(calls->device_new(&f.base, 512, &device, &err), FSDPCK_OK);
    const int before = calls->enter(&f.base);
    cr_assert_eq(join(n, &watch, &c, &err), FSDPCK_OK);
    const nccl_transfer moves[] = {{device, 100, 0, false}, {device + 256, 100, 0, true}};
    for (unsigned count = 2; count > 0; count--) {
        cr_assert_eq(nccl_exchange(c, moves, count, calls->stream_handle(s), &err), FSDPCK_OK);
        cr_assert_eq(calls->mark(s, 0, &err), FSDPCK_OK);
        cr_assert_eq(calls->is_done(s, 0, &done, &err), FSDPCK_OK);
        for (unsigned i = 0; i < (count == 2 ? 20000 : 30) && !done; i++) {
            const struct timespec pause = {.tv_nsec = 1000000};
            nanosleep(&pause, NULL);
            cr_assert_eq(calls->is_done(s, 0, &done, &err), FSDPCK_OK);
        }
        cr_assert_eq(done, count == 2);
    }
    cr_assert_eq(nccl_wait(c, never, NULL, &err), FSDPCK_DEVICE);
    nccl_leave(&c);
    calls->leave(&f.base, before);
    calls->stream_free(s);
    calls->device_free(&f.base, device);
    fake_gpu_release(&f);
    nccl_unload(n);
}

typedef struct joining {
    nccl *n;
    fake_gpu *f;
    const uint8_t *id;
    unsigned rank;
    unsigned patience_seconds;
    pthread_barrier_t *joined; /* the stand-in's ranks do not see one that has left */
    fsdpck_status st;
    fsdpck_error err;
} joining;

static void *join_one(void *ctx)
{
    joining *j = ctx;
    const nccl_watch watch = {.timeout_seconds = j->patience_seconds};
    nccl_comm *c;
    const int before = j->f->base.calls->enter(&j->f->base);
    j->st = nccl_join(j->n, j->id, j->rank, 3, &watch, &c, &j->err);
    (void)pthread_barrier_wait(j->joined);
    if (j->st == FSDPCK_OK)
        nccl_leave(&c);
    j->f->base.calls->leave(&j->f->base, before);
    return NULL;
}

/* Three ranks on two devices: those that share one are refused, the third waits in vain. */
Test(nccl, ranks_that_share_a_device_do_not_join)
{
    uint8_t id[NCCL_ID_NBYTES];
    nccl *n = load();
    for (unsigned shared = 0; shared < 2; shared++) {
        fake_gpu devices[3];
        joining all[3];
        unsigned refused = 0;
        pthread_t threads[3];
        pthread_barrier_t joined;
        cr_assert_eq(pthread_barrier_init(&joined, NULL, 3), 0);
        cr_assert_eq(nccl_make_id(n, id, NULL), FSDPCK_OK);
        for (unsigned i = 0; i < 3; i++) {
            fake_gpu_init(&devices[i]);
            devices[i].base.uuid[0] = (uint8_t)(shared == 1 && i == 2 ? 1 : i + 1);
            all[i] = (joining){.n = n,
                               .f = &devices[i],
                               .id = id,
                               .rank = i,
                               .patience_seconds = shared ? 1 : 30,
                               .joined = &joined};
        }
        for (unsigned i = 0; i < 3; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, join_one, &all[i]), 0);
        for (unsigned i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
            cr_assert_eq(all[i].st, shared ? FSDPCK_DEVICE : FSDPCK_OK);
            refused += strstr(all[i].err.message, "invalid usage") != NULL;
            fake_gpu_release(&devices[i]);
        }
        (void)pthread_barrier_destroy(&joined);
        /* One of the two may have left before the other looked. */
        cr_assert(shared == 0 || (refused > 0 && strstr(all[1].err.message, "1 s") != NULL));
    }
    nccl_unload(n);
}

typedef struct others {
    unsigned asked, most; /* how often they still go on */
} others;

/* One poll takes 100 us or more. */
static uint64_t go_on(void *ctx)
{
    others *o = ctx;
    const struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    o->asked += o->asked < o->most;
    return o->asked;
}

static bool stood_still(void *ctx)
{
    const others *o = ctx;
    return o->asked == o->most;
}

/* For 1.5 s another rank reads; the wait may take 1 s after that. */
Test(nccl, a_wait_lasts_while_others_go_on)
{
    others o = {.most = 30};
    const nccl_watch watch = {.activity = go_on, .ctx = &o, .timeout_seconds = 1};
    fsdpck_error err = {0};
    nccl *n = load();
    nccl_comm *c;
    cr_assert_eq(join(n, &watch, &c, &err), FSDPCK_OK);
    cr_assert_eq(nccl_wait(c, stood_still, &o, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(nccl_wait(c, never, NULL, &err), FSDPCK_DEVICE);
    cr_assert_not_null(strstr(err.message, "more than 1 s"));
    nccl_leave(&c);
    nccl_unload(n);
}
