#define _GNU_SOURCE 1 /* pthread_getattr_np */
#include "tests/support/fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "kernels/gpu_body.h"
#include "tests/support/must.h"

enum { QUEUE_MAX = 1024, PAUSES_US = 60 };

typedef struct fake_op {
    fake_call call;
    uint8_t *to;
    const uint8_t *from;
    uint64_t nbytes;
    gpu_address at, other_at;
    gpu_batch place;
    bool (*other)(void *ctx);
    void *ctx;
} fake_op;

struct gpu_stream {
    fake_gpu_handle handle;
    fake_gpu *fake;
    bool broken;
    fake_op queue[QUEUE_MAX];
    /* With FAKE_THREADS the lock guards these, and the thread works. */
    unsigned begin, end;       /* of the queue, ever growing */
    unsigned marks[GPU_MARKS]; /* ends of the queue */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool stops;
    uint64_t random;
};

static _Thread_local fake_gpu *current;

static fake_gpu *fake_of(gpu *g)
{
    return (fake_gpu *)(void *)g;
}

static fsdpck_status failed(fsdpck_error *err, const char *how)
{
    return error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "the fake GPU %s", how);
}

static void note_stack(fake_gpu *f)
{
    pthread_attr_t attr;
    size_t nbytes = 0;
    MUST(pthread_getattr_np(pthread_self(), &attr) == 0);
    MUST(pthread_attr_getstacksize(&attr, &nbytes) == 0);
    pthread_attr_destroy(&attr);
    uint_fast64_t least = atomic_load(&f->stack_nbytes);
    while ((least == 0 || nbytes < least) &&
           !atomic_compare_exchange_weak(&f->stack_nbytes, &least, nbytes))
        continue;
}

static fsdpck_status step(fake_gpu *f, fake_call call, fsdpck_error *err)
{
    if (atomic_fetch_add(&f->made[call], 1) == 0 || call == FAKE_WAIT)
        note_stack(f);
    if (atomic_load(&f->is_lost))
        return failed(err, "is lost since an operation failed");
    if (atomic_fetch_add(&f->calls, 1) + 1 == f->fail_at)
        return failed(err, "failed as told");
    return FSDPCK_OK;
}

static fsdpck_status stream_step(gpu_stream *s, fake_call call, fsdpck_error *err)
{
    if (s->broken)
        return failed(err, "failed before");
    const fsdpck_status st = step(s->fake, call, err);
    s->broken = st != FSDPCK_OK;
    return st;
}

/* ---- operations ---- */

static void copy_now(fake_gpu *f, const fake_op *op)
{
    uint8_t *to = op->call == FAKE_COPY_IN ? fake_device_bytes(f, op->at, op->nbytes) : op->to;
    const uint8_t *from =
        op->call == FAKE_COPY_IN ? op->from : fake_device_bytes(f, op->at, op->nbytes);
    memcpy(to, from, op->nbytes);
    atomic_fetch_add(op->call == FAKE_COPY_IN ? &f->in_nbytes : &f->out_nbytes, op->nbytes);
    const uint64_t number = atomic_fetch_add(&f->copies, 1) + 1;
    if (f->flips > 0 && number >= f->flip_at && number < f->flip_at + f->flips)
        to[op->nbytes / 3] ^= 0x10;
}

static void sum_now(fake_gpu *f, const fake_op *op)
{
    *(uint64_t *)(void *)fake_device_bytes(f, op->other_at, 8) +=
        gpu_sum_words(fake_device_bytes(f, op->at, op->nbytes), op->nbytes, 0, 1);
}

/* Whether it is done: what others bring may not be there yet. Of a lost device no memory changes. */
static bool do_one(fake_gpu *f, const fake_op *op)
{
    if (op->call == FAKE_OTHER)
        return op->other(op->ctx);
    const uint64_t number = atomic_fetch_add(&f->operations, 1) + 1;
    if (number <= f->pauses)
        usleep(f->pause_us);
    if (number == f->late_fail_at)
        atomic_store(&f->is_lost, true);
    if (atomic_load(&f->is_lost))
        return true;
    switch (op->call) {
    case FAKE_COPY_IN:
    case FAKE_COPY_OUT:
        copy_now(f, op);
        break;
    case FAKE_ZERO:
        memset(fake_device_bytes(f, op->at, op->nbytes), 0, op->nbytes);
        break;
    case FAKE_PLACE:
        fake_launch(f, &op->place);
        break;
    case FAKE_CRC:
        fake_crc(f, op->at, op->nbytes, op->other_at);
        break;
    default:
        sum_now(f, op);
    }
    return true;
}

/* ---- streams ---- */

static bool is_before(const gpu_stream *s, unsigned end)
{
    return (int)(end - s->begin) > 0;
}

static void *run_stream(void *ctx)
{
    gpu_stream *s = ctx;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->begin == s->end && !s->stops)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->begin == s->end)
            break;
        const fake_op op = s->queue[s->begin % QUEUE_MAX];
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        pthread_mutex_unlock(&s->lock);
        usleep((unsigned)(s->random >> 33) % PAUSES_US);
        const bool done = do_one(s->fake, &op);
        pthread_mutex_lock(&s->lock);
        s->begin += done;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void wait_until(gpu_stream *s, unsigned end)
{
    if (s->fake->mode != FAKE_THREADS) {
        while (is_before(s, end))
            if (do_one(s->fake, &s->queue[s->begin % QUEUE_MAX]))
                s->begin++;
            else
                usleep(100);
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (is_before(s, end))
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void append(gpu_stream *s, const fake_op *op)
{
    pthread_mutex_lock(&s->lock);
    MUST(s->end - s->begin < QUEUE_MAX);
    s->queue[s->end++ % QUEUE_MAX] = *op;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->fake->mode == FAKE_EAGER && op->call != FAKE_OTHER)
        wait_until(s, s->end);
}

static fsdpck_status enqueue(gpu_stream *s, const fake_op *op, fsdpck_error *err)
{
    RETURN_IF(stream_step(s, op->call, err));
    append(s, op);
    return FSDPCK_OK;
}

static fsdpck_status fake_copy_in(gpu_stream *s, gpu_address to, const void *from, uint64_t nbytes,
                                  fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_COPY_IN, .at = to, .from = from, .nbytes = nbytes};
    must(fake_is_pinned(s->fake, from, nbytes), "a copy from memory that is not pinned");
    return enqueue(s, &op, err);
}

static fsdpck_status fake_copy_out(gpu_stream *s, void *to, gpu_address from, uint64_t nbytes,
                                   fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_COPY_OUT, .to = to, .at = from, .nbytes = nbytes};
    must(fake_is_pinned(s->fake, to, nbytes), "a copy to memory that is not pinned");
    return enqueue(s, &op, err);
}

static fsdpck_status fake_zero(gpu_stream *s, gpu_address at, uint64_t nbytes, fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_ZERO, .at = at, .nbytes = nbytes};
    return enqueue(s, &op, err);
}

static fsdpck_status fake_place(gpu_stream *s, const gpu_batch *what, fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_PLACE, .place = *what};
    return enqueue(s, &op, err);
}

static fsdpck_status fake_sum(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address sum,
                              fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_SUM, .other_at = sum, .at = at, .nbytes = nbytes};
    MUST(at % 8 == 0 && sum % 8 == 0);
    return enqueue(s, &op, err);
}

static fsdpck_status add_crc(gpu_stream *s, gpu_address at, uint64_t nbytes, gpu_address crc,
                             fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_CRC, .other_at = crc, .at = at, .nbytes = nbytes};
    MUST(nbytes > 0 && crc % 8 == 0);
    return enqueue(s, &op, err);
}

static fsdpck_status fake_mark(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    MUST(mark < GPU_MARKS);
    RETURN_IF(stream_step(s, FAKE_MARK, err));
    s->marks[mark] = s->end;
    return FSDPCK_OK;
}

/* The failure of an operation is found here. */
static fsdpck_status end_of_wait(gpu_stream *s, fsdpck_error *err)
{
    if (!atomic_load(&s->fake->is_lost))
        return FSDPCK_OK;
    s->broken = true;
    return failed(err, "failed late, as told");
}

static fsdpck_status fake_wait(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    RETURN_IF(stream_step(s, FAKE_WAIT, err));
    wait_until(s, s->marks[mark]);
    return end_of_wait(s, err);
}

/* Does one operation at most. */
static fsdpck_status fake_is_done(gpu_stream *s, unsigned mark, bool *done, fsdpck_error *err)
{
    *done = false;
    if (s->broken)
        return failed(err, "failed before");
    if (s->fake->mode != FAKE_THREADS && is_before(s, s->marks[mark]) &&
        do_one(s->fake, &s->queue[s->begin % QUEUE_MAX]))
        s->begin++;
    pthread_mutex_lock(&s->lock);
    *done = !is_before(s, s->marks[mark]);
    pthread_mutex_unlock(&s->lock);
    return end_of_wait(s, err);
}

static void enqueue_other(fake_gpu_handle *h, bool (*other)(void *ctx), void *ctx)
{
    append((gpu_stream *)(void *)h, &(fake_op){.call = FAKE_OTHER, .other = other, .ctx = ctx});
}

static uint8_t *bytes_at(fake_gpu_handle *h, uint64_t address, uint64_t nbytes)
{
    return fake_device_bytes(((gpu_stream *)(void *)h)->fake, address, nbytes);
}

static fsdpck_status fake_stream_new(gpu *g, bool urgent, gpu_stream **out, fsdpck_error *err)
{
    fake_gpu *f = fake_of(g);
    *out = NULL;
    RETURN_IF(step(f, FAKE_STREAM_NEW, err));
    gpu_stream *s = calloc(1, sizeof *s);
    MUST(s != NULL);
    s->fake = f;
    s->handle = (fake_gpu_handle){enqueue_other, bytes_at};
    s->random = atomic_fetch_add(&f->live, 1);
    atomic_fetch_add(&f->urgent_streams, urgent);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (f->mode == FAKE_THREADS)
        MUST(pthread_create(&s->thread, NULL, run_stream, s) == 0);
    *out = s;
    return FSDPCK_OK;
}

static void fake_stream_free(gpu_stream *s)
{
    if (s == NULL)
        return;
    wait_until(s, s->end);
    if (s->fake->mode == FAKE_THREADS) {
        pthread_mutex_lock(&s->lock);
        s->stops = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    atomic_fetch_sub(&s->fake->live, 1);
    free(s);
}

static void *fake_stream_handle(gpu_stream *s)
{
    return &s->handle;
}

/* ---- memory and devices ---- */

static fsdpck_status fake_host_new(gpu *g, uint64_t nbytes, void **memory, fsdpck_error *err)
{
    fake_gpu *f = fake_of(g);
    *memory = NULL;
    RETURN_IF(step(f, FAKE_HOST_NEW, err));
    *memory = fake_pinned_new(f, nbytes);
    if (*memory == NULL)
        return failed(err, "has no more memory to pin");
    atomic_fetch_add(&f->live, 1);
    return FSDPCK_OK;
}

static void fake_host_free(gpu *g, void *memory, uint64_t nbytes)
{
    if (memory == NULL)
        return;
    fake_pinned_free(fake_of(g), memory, nbytes);
    atomic_fetch_sub(&fake_of(g)->live, 1);
}

static fsdpck_status fake_memory_new(gpu *g, uint64_t nbytes, gpu_address *memory,
                                     fsdpck_error *err)
{
    fake_gpu *f = fake_of(g);
    *memory = 0;
    RETURN_IF(step(f, FAKE_DEVICE_NEW, err));
    *memory = fake_device_new(f, nbytes);
    if (*memory == 0)
        return failed(err, "has no more memory");
    atomic_fetch_add(&f->live, 1);
    return FSDPCK_OK;
}

static void fake_memory_free(gpu *g, gpu_address memory)
{
    if (memory == 0)
        return;
    fake_device_free(fake_of(g), memory);
    atomic_fetch_sub(&fake_of(g)->live, 1);
}

static int fake_enter(gpu *g)
{
    const int before = current == fake_of(g);
    current = fake_of(g);
    return before;
}

static void fake_leave(gpu *g, int before)
{
    MUST(current == fake_of(g));
    if (!before)
        current = NULL;
}

uint64_t fake_gpu_current(void)
{
    uint64_t number = 0;
    if (current == NULL)
        return 0;
    memcpy(&number, current->base.uuid, sizeof number);
    return number != 0 ? number : (uint64_t)getpid() << 32 | current->id;
}

static void fake_close(gpu *g)
{
    if (fake_of(g)->on_close != NULL)
        fake_of(g)->on_close(fake_of(g));
}

void fake_gpu_init(fake_gpu *f)
{
    static const gpu_calls calls = {
        .close = fake_close,
        .host_new = fake_host_new,
        .host_free = fake_host_free,
        .device_new = fake_memory_new,
        .device_free = fake_memory_free,
        .stream_new = fake_stream_new,
        .stream_free = fake_stream_free,
        .copy_in = fake_copy_in,
        .copy_out = fake_copy_out,
        .zero = fake_zero,
        .place = fake_place,
        .add_sum = fake_sum,
        .add_crc = add_crc,
        .mark = fake_mark,
        .wait = fake_wait,
        .is_done = fake_is_done,
        .stream_handle = fake_stream_handle,
        .enter = fake_enter,
        .leave = fake_leave,
    };
    const char *mode = getenv(FAKE_GPU_MODE);
    memset(f, 0, sizeof *f);
    f->mode = mode != NULL ? (fake_mode)atoi(mode) : FAKE_LAST;
    fake_memory_init(f);
    f->base.calls = &calls;
    f->base.count = 1;
    (void)snprintf(f->base.name, sizeof f->base.name, "fake");
}

void fake_gpu_release(fake_gpu *f)
{
    MUST(atomic_load(&f->live) == 0);
    fake_memory_release(f);
}
