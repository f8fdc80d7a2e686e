/* gpu_check [--fake] [SEED [ROUNDS]]: boxes of all types, sizes, strides and offsets, changed in all ways
 * that there are, through a lane of the GPU and by the processor: the bytes must be the same.
 *
 * Exit status 77 where there is no GPU. --fake stands in for one, to test this program. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"
#include "exec/gpu/gpu_worker.h"
#include "state/cast.h"
#include "tests/support/cast_edge.h"
#include "tests/support/fake_gpu.h"

#define SPAN_NBYTES    ((uint64_t)4 << 20)
#define STAGING_NBYTES ((uint64_t)1 << 20)
#define SKIPPED        77

typedef struct checker {
    gpu *gpu;
    gpu_worker *lane;
    uint8_t *memory; /* span, then the lane's */
    uint8_t *want;
    uint8_t kinds[GPU_KINDS_NBYTES];
    uint8_t *scratch;
    uint64_t state, seed;
    uint64_t boxes, bytes;
} checker;

static uint64_t draw(checker *c, uint64_t below)
{
    uint64_t z = c->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

static void must(const checker *c, fsdpck_status st, const fsdpck_error *err)
{
    if (st == FSDPCK_OK)
        return;
    fprintf(stderr, "gpu_check: seed %" PRIu64 ": %s\n", c->seed, err->message);
    exit(1);
}

static void randomize(checker *c, uint8_t *bytes, uint64_t nbytes)
{
    for (uint64_t i = 0; i < nbytes; i += 8) {
        const uint64_t word = draw(c, UINT64_MAX);
        memcpy(bytes + i, &word, nbytes - i < 8 ? (size_t)(nbytes - i) : 8);
    }
}

/* Elements of a type that is cast are those on which casts differ, by turns. */
static void randomize_elements(checker *c, const element_ops *v, uint8_t *bytes, uint64_t nbytes)
{
    const uint64_t each = dtype_get(v->from)->itemsize_bytes;
    if (v->from == v->to || draw(c, 2) == 0) {
        randomize(c, bytes, nbytes);
        return;
    }
    uint64_t number = draw(c, 1 << 20);
    for (uint64_t i = 0; i + each <= nbytes; i += each) {
        const uint64_t bits = cast_edge(v->from, number++, &c->state);
        memcpy(bytes + i, &bits, each);
    }
}

static element_ops draw_convert(checker *c)
{
    element_ops v = {.from = (dtype)(1 + draw(c, DTYPE_COUNT - 1))};
    v.to = v.from;
    if (draw(c, 2) == 0) {
        const dtype to = (dtype)(1 + draw(c, DTYPE_COUNT - 1));
        if (cast_supported(v.from, to))
            v.to = to;
    }
    v.swap = draw(c, 4) == 0;
    v.conj = dtype_get(v.from)->kind == DTYPE_IS_COMPLEX && draw(c, 3) == 0;
    v.neg = dtype_get(v.from)->kind != DTYPE_IS_BOOL && draw(c, 5) == 0;
    return v;
}

/* *src_span and *dst_span: bytes that the box lies in. */
static void draw_box(checker *c, const element_ops *v, strided *s, uint64_t *src_span,
                     uint64_t *dst_span)
{
    static const uint64_t most[] = {1, 30000, 170, 30, 13, 8, 5};
    const uint64_t from = dtype_get(v->from)->itemsize_bytes;
    const uint64_t to = dtype_get(v->to)->itemsize_bytes;
    unsigned order[8] = {0};
    s->ndim = (unsigned)draw(c, 7);
    for (unsigned d = 0; d < s->ndim; d++) {
        s->sizes[d] = 1 + draw(c, most[s->ndim]);
        order[d] = d;
        const unsigned j = draw(c, 3) == 0 ? (unsigned)draw(c, d + 1) : d;
        order[d] = order[j];
        order[j] = d;
    }
    *src_span = from;
    for (unsigned i = s->ndim; i-- > 0;) {
        s->src_strides[order[i]] = *src_span;
        *src_span = *src_span * s->sizes[order[i]] + (draw(c, 3) == 0 ? draw(c, 9) * from : 0);
    }
    *dst_span = to;
    for (unsigned d = s->ndim; d-- > 0;) {
        s->dst_strides[d] = *dst_span;
        *dst_span = *dst_span * s->sizes[d] + (draw(c, 3) == 0 ? draw(c, 9) * to : 0);
    }
    strided_collapse(s);
}

static void compare(const checker *c, uint64_t lost, uint64_t want_lost, bool intact)
{
    for (uint64_t i = 0; i < SPAN_NBYTES; i++) {
        if (c->memory[i] == c->want[i])
            continue;
        fprintf(stderr, "gpu_check: seed %" PRIu64 ": byte %" PRIu64 " is %02x instead of %02x\n",
                c->seed, i, c->memory[i], c->want[i]);
        exit(1);
    }
    if (lost == want_lost && intact)
        return;
    fprintf(stderr,
            "gpu_check: seed %" PRIu64 ": %" PRIu64 " elements lost instead of %" PRIu64 "%s\n",
            c->seed, lost, want_lost, intact ? "" : ", copies changed bytes");
    exit(1);
}

/* All of the span, by runs of any length. */
static void fill_span(checker *c)
{
    fsdpck_error err;
    uint64_t lost;
    bool intact;
    must(c, gpu_worker_begin(c->lane, &err), &err);
    randomize(c, c->want, SPAN_NBYTES);
    for (uint64_t at = 0; at < SPAN_NBYTES;) {
        const uint64_t left = SPAN_NBYTES - at;
        uint64_t n = 1 + draw(c, draw(c, 2) == 0 ? 300 : STAGING_NBYTES);
        uint8_t *buffer;
        n = n < left ? n : left;
        must(c, gpu_worker_reserve(c->lane, n, draw(c, 16), 1, 3, &buffer, &err), &err);
        memcpy(buffer, c->want + at, n);
        gpu_worker_put_run(c->lane, at, buffer, n);
        at += n;
        c->boxes++;
    }
    const gpu_worker_out out = {.span = c->memory, .to = SPAN_NBYTES};
    must(c, gpu_worker_finish(c->lane, &out, &lost, &intact, &err), &err);
    compare(c, lost, 0, intact);
}

static void place_boxes(checker *c)
{
    fsdpck_error err;
    uint64_t lost, src_span, dst_span;
    uint64_t want_lost = 0;
    bool intact;
    must(c, gpu_worker_begin(c->lane, &err), &err);
    for (uint64_t at = draw(c, 64);; at += dst_span + draw(c, 33)) {
        strided s;
        uint8_t *buffer;
        const element_ops v = draw_convert(c);
        draw_box(c, &v, &s, &src_span, &dst_span);
        while (src_span > STAGING_NBYTES)
            draw_box(c, &v, &s, &src_span, &dst_span);
        if (at + dst_span > SPAN_NBYTES)
            break;
        must(c, gpu_worker_reserve(c->lane, src_span, draw(c, 16), 1, 3 * s.ndim, &buffer, &err),
             &err);
        randomize_elements(c, &v, buffer, src_span);
        gpu_worker_put(c->lane, &v, &s, at, buffer);
        if (element_ops_is_copy(&v))
            strided_copy(&s, dtype_get(v.from)->itemsize_bytes, c->want + at, buffer);
        else
            want_lost += element_ops_box(&v, &s, c->want + at, buffer, c->scratch);
        c->boxes++;
        c->bytes += dst_span;
    }
    const gpu_worker_out out = {.span = c->memory, .to = SPAN_NBYTES};
    must(c, gpu_worker_finish(c->lane, &out, &lost, &intact, &err), &err);
    compare(c, lost, want_lost, intact);
}

static void check(checker *c, uint64_t rounds)
{
    fsdpck_error err;
    void *memory;
    must(c,
         c->gpu->calls->host_new(c->gpu, SPAN_NBYTES + gpu_worker_host_nbytes(STAGING_NBYTES),
                                 &memory, &err),
         &err);
    c->memory = memory;
    must(c,
         gpu_worker_new(c->gpu, SPAN_NBYTES, STAGING_NBYTES, c->memory + SPAN_NBYTES, c->kinds,
                        &c->lane, &err),
         &err);
    c->want = malloc(SPAN_NBYTES);
    c->scratch = aligned_alloc(64, ELEMENT_OPS_SCRATCH_NBYTES);
    if (c->want == NULL || c->scratch == NULL)
        exit(1);
    for (uint64_t i = 0; i < rounds; i++) {
        c->state = ++c->seed;
        fill_span(c);
        place_boxes(c);
    }
    free(c->want);
    free(c->scratch);
    gpu_worker_free(c->lane);
    c->gpu->calls->host_free(c->gpu, memory, SPAN_NBYTES + gpu_worker_host_nbytes(STAGING_NBYTES));
    printf("%s: %" PRIu64 " boxes, %" PRIu64 " bytes as the processor's\n", c->gpu->name, c->boxes,
           c->bytes);
    c->gpu->calls->close(c->gpu);
}

/* Work at the last moment, at once, and by threads. */
static void check_fakes(uint64_t seed, uint64_t rounds)
{
    for (fake_mode mode = FAKE_LAST; mode <= FAKE_THREADS; mode++) {
        static checker c;
        static fake_gpu fake;
        fake_gpu_init(&fake);
        fake.bodies = true;
        fake.mode = mode;
        memset(&c, 0, sizeof c);
        c.seed = seed;
        c.gpu = &fake.base;
        check(&c, rounds);
        fake_gpu_release(&fake);
    }
}

int main(int argc, char **argv)
{
    static checker c;
    fsdpck_error err;
    const bool faked = argc > 1 && strcmp(argv[1], "--fake") == 0;
    argc -= faked;
    argv += faked;
    c.seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : faked ? 3 : 200;
    if (faked) {
        check_fakes(c.seed, rounds);
        return 0;
    }
    if (gpu_open(0, &c.gpu, &err) != FSDPCK_OK) {
        printf("skipped: %s\n", err.message);
        return SKIPPED;
    }
    check(&c, rounds);
    return 0;
}
