#include "tests/support/fake_gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "kernels/gpu_body.h"
#include "state/cast.h"
#include "tests/support/must.h"

#define DEVICE_ALIGN 256u
#define QUEUE_MAX    4096u

typedef struct fake_op {
    fake_call call;
    uint8_t *to;
    const uint8_t *from;
    uint64_t nbytes;
    gpu_batch place;
    bool (*other)(void *ctx);
    void *ctx;
} fake_op;

struct gpu_stream {
    fake_gpu_handle handle;
    fake_gpu *fake;
    bool broken;
    fake_op queue[QUEUE_MAX];
    unsigned begin, end;       /* of the queue, ever growing */
    unsigned marks[GPU_MARKS]; /* ends of the queue */
};

static fake_gpu *fake_of(gpu *g)
{
    return (fake_gpu *)(void *)g;
}

static fsdpck_status step(fake_gpu *f, fake_call call, fsdpck_error *err)
{
    atomic_fetch_add(&f->made[call], 1);
    if (atomic_fetch_add(&f->calls, 1) + 1 == f->fail_at)
        return error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "the fake GPU failed as told");
    return FSDPCK_OK;
}

static fsdpck_status stream_step(gpu_stream *s, fake_call call, fsdpck_error *err)
{
    if (s->broken)
        return error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "the fake GPU failed before");
    const fsdpck_status st = step(s->fake, call, err);
    s->broken = st != FSDPCK_OK;
    return st;
}

/* ---- launches ---- */

static uint8_t *at_address(gpu_address a)
{
    return (uint8_t *)(uintptr_t)a;
}

static void place_by_bodies(const gpu_batch *p)
{
    const gpu_box *boxes = (const gpu_box *)(const void *)at_address(p->boxes);
    uint64_t lost = 0;
    for (uint32_t task = 0; task < p->tasks; task++) {
        const uint32_t box = gpu_find_box(boxes, p->count, task);
        for (uint32_t thread = 0; thread < GPU_THREADS; thread++)
            lost += gpu_run_task(boxes + box, (const uint64_t *)(const void *)at_address(p->dims),
                                 at_address(p->src), at_address(p->dst), task, thread, GPU_THREADS);
    }
    *(uint64_t *)(void *)at_address(p->lost) += lost;
}

static dtype dtype_of(unsigned number)
{
    static const dtype types[] = {
        [GPU_FLOAT16] = DTYPE_FLOAT16,
        [GPU_BFLOAT16] = DTYPE_BFLOAT16,
        [GPU_FLOAT32] = DTYPE_FLOAT32,
        [GPU_FLOAT64] = DTYPE_FLOAT64,
        [GPU_FLOAT8_E4M3FN] = DTYPE_FLOAT8_E4M3FN,
        [GPU_FLOAT8_E5M2] = DTYPE_FLOAT8_E5M2,
        [GPU_FLOAT8_E4M3FNUZ] = DTYPE_FLOAT8_E4M3FNUZ,
        [GPU_FLOAT8_E5M2FNUZ] = DTYPE_FLOAT8_E5M2FNUZ,
        [GPU_FLOAT8_E8M0FNU] = DTYPE_FLOAT8_E8M0FNU,
    };
    return types[number];
}

static uint64_t convert_one(const gpu_box *b, uint8_t *dst, const uint8_t *src)
{
    uint8_t in[16], flip[16];
    memcpy(in, src, b->from_nbytes);
    memcpy(flip, b->flip, sizeof flip);
    for (unsigned u = 0; b->swap_nbytes > 1 && u < b->from_nbytes; u += b->swap_nbytes)
        for (unsigned i = 0; i < b->swap_nbytes; i++)
            in[u + i] = src[u + b->swap_nbytes - 1 - i];
    for (unsigned i = 0; i < b->from_nbytes; i++)
        in[i] ^= flip[i];
    for (unsigned i = 0, carry = 1; b->negate && i < b->from_nbytes; i++) {
        const unsigned v = (uint8_t)~in[i] + carry;
        in[i] = (uint8_t)v;
        carry = v >> 8;
    }
    if (b->from != b->to)
        return cast_elements(dtype_of(b->from), dtype_of(b->to), dst, in, 1);
    memcpy(dst, in, b->to_nbytes);
    return 0;
}

/* By loops of its own, over the dims that the box has. */
static void place_by_reference(const gpu_batch *p)
{
    const gpu_box *boxes = (const gpu_box *)(const void *)at_address(p->boxes);
    for (uint32_t i = 0; i < p->count; i++) {
        const gpu_box *b = &boxes[i];
        const uint64_t *dims = (const uint64_t *)(const void *)at_address(p->dims) + b->dims_at;
        uint64_t at[GPU_DIMS_MAX] = {0};
        const size_t unit = b->way == GPU_WAY_ROWS ? 1 : (size_t)1 << b->dst_log2;
        for (uint64_t n = 0; n < b->nelems; n++) {
            const uint8_t *src = at_address(p->src) + b->src;
            uint8_t *dst = at_address(p->dst) + b->dst;
            for (unsigned d = 0; d < b->ndim; d++) {
                src += at[d] * dims[b->ndim + d];
                dst += at[d] * dims[2 * b->ndim + d];
            }
            if (b->way == GPU_WAY_CONVERT)
                *(uint64_t *)(void *)at_address(p->lost) += convert_one(b, dst, src);
            else
                memcpy(dst, src, unit);
            for (unsigned d = b->ndim; d-- > 0 && ++at[d] == dims[d];)
                at[d] = 0;
        }
    }
}

static void place_now(fake_gpu *f, const gpu_batch *p)
{
    const gpu_box *boxes = (const gpu_box *)(const void *)at_address(p->boxes);
    if (p->sum != 0 && *(const uint64_t *)(const void *)at_address(p->sum) != p->sum_expected)
        return;
    MUST(p->src % 16 == 0 && p->dst % 16 == 0 && p->boxes % 8 == 0 && p->dims % 8 == 0);
    if (f->bodies)
        place_by_bodies(p);
    else
        place_by_reference(p);
    if (f->wrong)
        at_address(p->dst)[boxes[0].dst] ^= 1;
}

/* ---- streams ---- */

static void copy_now(fake_gpu *f, const fake_op *op)
{
    memcpy(op->to, op->from, op->nbytes);
    const uint64_t number = atomic_fetch_add(&f->copies, 1) + 1;
    if (f->flips > 0 && number >= f->flip_at && number < f->flip_at + f->flips)
        op->to[op->nbytes / 3] ^= 0x10;
}

/* Whether all was done: what others bring may not be there yet. */
static bool do_some(gpu_stream *s, unsigned end)
{
    for (; (int)(end - s->begin) > 0; s->begin++) {
        const fake_op *op = &s->queue[s->begin % QUEUE_MAX];
        switch (op->call) {
        case FAKE_OTHER:
            if (!op->other(op->ctx))
                return false;
            break;
        case FAKE_COPY_IN:
        case FAKE_COPY_OUT:
            copy_now(s->fake, op);
            break;
        case FAKE_ZERO:
            memset(op->to, 0, op->nbytes);
            break;
        case FAKE_PLACE:
            place_now(s->fake, &op->place);
            break;
        default:
            *(uint64_t *)(void *)op->to += gpu_sum(op->from, op->nbytes);
        }
    }
    return true;
}

static void do_until(gpu_stream *s, unsigned end)
{
    const struct timespec pause = {.tv_nsec = 100000};
    while (!do_some(s, end))
        nanosleep(&pause, NULL);
}

static fsdpck_status enqueue(gpu_stream *s, const fake_op *op, fsdpck_error *err)
{
    RETURN_IF(stream_step(s, op->call, err));
    MUST(s->end - s->begin < QUEUE_MAX);
    s->queue[s->end++ % QUEUE_MAX] = *op;
    return FSDPCK_OK;
}

static fsdpck_status fake_copy_in(gpu_stream *s, gpu_address to, const void *from, uint64_t nbytes,
                                  fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_COPY_IN, .to = at_address(to), .from = from, .nbytes = nbytes};
    return enqueue(s, &op, err);
}

static fsdpck_status fake_copy_out(gpu_stream *s, void *to, gpu_address from, uint64_t nbytes,
                                   fsdpck_error *err)
{
    const fake_op op = {
        .call = FAKE_COPY_OUT, .to = to, .from = at_address(from), .nbytes = nbytes};
    return enqueue(s, &op, err);
}

static fsdpck_status fake_zero(gpu_stream *s, gpu_address at, uint64_t nbytes, fsdpck_error *err)
{
    const fake_op op = {.call = FAKE_ZERO, .to = at_address(at), .nbytes = nbytes};
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
    const fake_op op = {
        .call = FAKE_SUM, .to = at_address(sum), .from = at_address(at), .nbytes = nbytes};
    MUST(at % 8 == 0);
    return enqueue(s, &op, err);
}

static fsdpck_status fake_mark(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    MUST(mark < GPU_MARKS);
    RETURN_IF(stream_step(s, FAKE_MARK, err));
    s->marks[mark] = s->end;
    return FSDPCK_OK;
}

static fsdpck_status fake_wait(gpu_stream *s, unsigned mark, fsdpck_error *err)
{
    RETURN_IF(stream_step(s, FAKE_WAIT, err));
    do_until(s, s->marks[mark]);
    return FSDPCK_OK;
}

static fsdpck_status fake_is_done(gpu_stream *s, unsigned mark, bool *done, fsdpck_error *err)
{
    *done = false;
    if (s->broken)
        return error_set(err, FSDPCK_DEVICE, FSDPCK_FINDING_NONE, "the fake GPU failed before");
    *done = do_some(s, s->marks[mark]);
    return FSDPCK_OK;
}

static void enqueue_other(fake_gpu_handle *h, bool (*other)(void *ctx), void *ctx)
{
    gpu_stream *s = (gpu_stream *)(void *)h;
    MUST(s->end - s->begin < QUEUE_MAX);
    s->queue[s->end++ % QUEUE_MAX] = (fake_op){.call = FAKE_OTHER, .other = other, .ctx = ctx};
}

static fsdpck_status fake_stream_new(gpu *g, gpu_stream **out, fsdpck_error *err)
{
    *out = NULL;
    RETURN_IF(step(fake_of(g), FAKE_STREAM_NEW, err));
    *out = calloc(1, sizeof **out);
    MUST(*out != NULL);
    (*out)->fake = fake_of(g);
    (*out)->handle.enqueue = enqueue_other;
    atomic_fetch_add(&fake_of(g)->live, 1);
    return FSDPCK_OK;
}

static void fake_stream_free(gpu_stream *s)
{
    if (s == NULL)
        return;
    do_until(s, s->end);
    atomic_fetch_sub(&s->fake->live, 1);
    free(s);
}

static void *fake_stream_handle(gpu_stream *s)
{
    return &s->handle;
}

/* ---- memory ---- */

static fsdpck_status fake_host_new(gpu *g, uint64_t nbytes, void **memory, fsdpck_error *err)
{
    *memory = NULL;
    RETURN_IF(step(fake_of(g), FAKE_HOST_NEW, err));
    *memory = aligned_alloc(4096, nbytes + (4096 - nbytes % 4096) % 4096);
    MUST(*memory != NULL);
    atomic_fetch_add(&fake_of(g)->live, 1);
    return FSDPCK_OK;
}

static void fake_host_free(gpu *g, void *memory)
{
    if (memory != NULL)
        atomic_fetch_sub(&fake_of(g)->live, 1);
    free(memory);
}

static fsdpck_status fake_device_new(gpu *g, uint64_t nbytes, gpu_address *memory,
                                     fsdpck_error *err)
{
    fake_gpu *f = fake_of(g);
    *memory = 0;
    RETURN_IF(step(f, FAKE_DEVICE_NEW, err));
    nbytes += (DEVICE_ALIGN - nbytes % DEVICE_ALIGN) % DEVICE_ALIGN;
    uint8_t *p = aligned_alloc(DEVICE_ALIGN, nbytes);
    MUST(p != NULL);
    memset(p, 0xA5, nbytes);
    *memory = (gpu_address)(uintptr_t)p;
    atomic_fetch_add(&f->live, 1);
    atomic_fetch_add(&f->device_nbytes, nbytes);
    return FSDPCK_OK;
}

static void fake_device_free(gpu *g, gpu_address memory)
{
    if (memory != 0)
        atomic_fetch_sub(&fake_of(g)->live, 1);
    free(at_address(memory));
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
        .device_new = fake_device_new,
        .device_free = fake_device_free,
        .stream_new = fake_stream_new,
        .stream_free = fake_stream_free,
        .copy_in = fake_copy_in,
        .copy_out = fake_copy_out,
        .zero = fake_zero,
        .place = fake_place,
        .add_sum = fake_sum,
        .mark = fake_mark,
        .wait = fake_wait,
        .is_done = fake_is_done,
        .stream_handle = fake_stream_handle,
    };
    memset(f, 0, sizeof *f);
    f->base.calls = &calls;
    f->base.count = 1;
    (void)snprintf(f->base.name, sizeof f->base.name, "fake");
}

void fake_gpu_release(fake_gpu *f)
{
    MUST(atomic_load(&f->live) == 0);
}
