#include "exec/gpu/gpu_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/status.h"
#include "exec/exec_internal.h"
#include "exec/gpu/gpu_dtype.h"
#include "state/dtype.h"

/* Words of GATHER_DIMS are three a dim. A box of ndim dims may take one dim more, see gpu_box_prepare. */
#define GPU_WORKER_DIMS (GATHER_DIMS / 3 + GATHER_READ_OPS)
#define GPU_WORKER_LIST_NBYTES \
    (GATHER_READ_OPS * sizeof(gpu_box) + GPU_WORKER_DIMS * sizeof(gpu_dim))
/* For alignment between the reads of a slot. */
#define GPU_WORKER_SLACK_NBYTES 256u
#define GPU_WORKER_ALIGN        256u

/* Words of device memory for the counters of a tile. */
enum { COUNT_LOST, COUNT_IN, COUNT_OUT, COUNT_RECEIVED, COUNT_EXPECTED, COUNTS };
enum { GPU_WORKER_SLOTS = 2, MARK_DONE = GPU_WORKER_SLOTS };

typedef struct gpu_worker_slot {
    uint8_t *host;
    gpu_address device;
    bool busy; /* its mark was set */
} gpu_worker_slot;

struct gpu_worker {
    gpu *gpu;
    gpu_stream *stream;
    gpu_address memory, counts, span;
    gpu_address to;   /* origin of destinations: span, or a message */
    gpu_address from; /* what boxes are put from; 0: the slot */
    uint64_t slot_nbytes;
    uint64_t staging_nbytes;
    gpu_worker_slot slots[GPU_WORKER_SLOTS];
    unsigned now;
    uint64_t used; /* of the slot */
    uint64_t *counts_here;
    uint64_t sum_in;
    unsigned box_count, dims_count;
    uint32_t tasks;
    bool any;     /* the tile has data */
    bool refused; /* a box was unsuitable for the device */
    bool had_new_kinds;
    uint8_t *kinds;                      /* that were compared */
    uint8_t new_kinds[GPU_KINDS_NBYTES]; /* of them: by this tile */
    gpu_box boxes[GATHER_READ_OPS];
    gpu_dim dims[GPU_WORKER_DIMS];
};

static uint64_t align_up(uint64_t at, uint64_t to)
{
    return at + (to - at % to) % to;
}

static uint64_t slot_nbytes(uint64_t staging_nbytes)
{
    return align_up(staging_nbytes + GPU_WORKER_SLACK_NBYTES + GPU_WORKER_LIST_NBYTES,
                    GPU_WORKER_ALIGN);
}

uint64_t gpu_worker_host_nbytes(uint64_t staging_nbytes)
{
    return GPU_WORKER_SLOTS * slot_nbytes(staging_nbytes) + GPU_WORKER_ALIGN;
}

static fsdpck_status allocate(gpu_worker *l, uint64_t tile_span, uint8_t *pinned, fsdpck_error *err)
{
    const gpu_calls *calls = l->gpu->calls;
    RETURN_IF(calls->stream_new(l->gpu, false, &l->stream, err));
    RETURN_IF(calls->device_new(l->gpu,
                                GPU_WORKER_ALIGN + GPU_WORKER_SLOTS * l->slot_nbytes +
                                    align_up(tile_span, GPU_WORKER_ALIGN),
                                &l->memory, err));
    l->counts = l->memory;
    for (unsigned i = 0; i < GPU_WORKER_SLOTS; i++) {
        l->slots[i].host = pinned + GPU_WORKER_ALIGN + i * l->slot_nbytes;
        l->slots[i].device = l->memory + GPU_WORKER_ALIGN + i * l->slot_nbytes;
    }
    l->counts_here = (uint64_t *)(void *)pinned;
    l->span = l->memory + GPU_WORKER_ALIGN + GPU_WORKER_SLOTS * l->slot_nbytes;
    l->to = l->span;
    return FSDPCK_OK;
}

fsdpck_status gpu_worker_new(gpu *g, uint64_t tile_span, uint64_t staging_nbytes, uint8_t *pinned,
                             uint8_t *kinds, gpu_worker **out, fsdpck_error *err)
{
    *out = NULL;
    gpu_worker *l = calloc(1, sizeof *l);
    if (l == NULL)
        return error_set_nomem(err, sizeof *l);
    l->gpu = g;
    l->kinds = kinds;
    l->staging_nbytes = staging_nbytes;
    l->slot_nbytes = slot_nbytes(staging_nbytes);
    const fsdpck_status st = allocate(l, tile_span, pinned, err);
    if (st != FSDPCK_OK)
        gpu_worker_free(l);
    else
        *out = l;
    return st;
}

void gpu_worker_free(gpu_worker *l)
{
    if (l == NULL)
        return;
    if (l->stream != NULL)
        l->gpu->calls->stream_free(l->stream);
    if (l->memory != 0)
        l->gpu->calls->device_free(l->gpu, l->memory);
    free(l);
}

/* The slot's reads are finished: clears its list. */
static void clear_slot(gpu_worker *l)
{
    l->used = 0;
    l->box_count = 0;
    l->dims_count = 0;
    l->tasks = 0;
}

fsdpck_status gpu_worker_begin(gpu_worker *l, fsdpck_error *err)
{
    clear_slot(l);
    l->sum_in = 0;
    l->any = false;
    l->refused = false;
    l->had_new_kinds = false;
    memset(l->new_kinds, 0, sizeof l->new_kinds);
    l->from = 0;
    return l->gpu->calls->zero(l->stream, l->counts, COUNTS * sizeof(uint64_t), err);
}

/* Sends the slot with its boxes to the device and switches to the other one. */
static fsdpck_status submit(gpu_worker *l, fsdpck_error *err)
{
    const gpu_calls *calls = l->gpu->calls;
    gpu_worker_slot *s = &l->slots[l->now];
    const uint64_t boxes_at = align_up(l->used, 16);
    const uint64_t dims_at = boxes_at + l->box_count * sizeof *l->boxes;
    const uint64_t end = dims_at + l->dims_count * sizeof *l->dims;
    if (l->box_count == 0)
        return FSDPCK_OK;
    memset(s->host + l->used, 0, boxes_at - l->used);
    memcpy(s->host + boxes_at, l->boxes, dims_at - boxes_at);
    memcpy(s->host + dims_at, l->dims, end - dims_at);
    l->sum_in += gpu_sum(s->host, end);
    const gpu_batch what = {.src = l->from != 0 ? l->from : s->device,
                            .dst = l->to,
                            .boxes = s->device + boxes_at,
                            .dims = s->device + dims_at,
                            .lost = l->counts + COUNT_LOST * sizeof(uint64_t),
                            .sum = l->counts + COUNT_IN * sizeof(uint64_t),
                            .sum_expected = l->sum_in,
                            .count = l->box_count,
                            .tasks = l->tasks};
    RETURN_IF(calls->copy_in(l->stream, s->device, s->host, end, err));
    RETURN_IF(
        calls->add_sum(l->stream, s->device, end, l->counts + COUNT_IN * sizeof(uint64_t), err));
    RETURN_IF(calls->place(l->stream, &what, err));
    RETURN_IF(calls->mark(l->stream, l->now, err));
    s->busy = true;
    l->now = (l->now + 1) % GPU_WORKER_SLOTS;
    l->any = true;
    clear_slot(l);
    return FSDPCK_OK;
}

fsdpck_status gpu_worker_reserve(gpu_worker *l, uint64_t nbytes, uint64_t like, unsigned boxes,
                                 unsigned dims, uint8_t **buffer, fsdpck_error *err)
{
    uint64_t at = align_up(l->used, 16) + like % 16;
    if (at + nbytes > l->staging_nbytes + GPU_WORKER_SLACK_NBYTES ||
        l->box_count + boxes > GATHER_READ_OPS ||
        l->dims_count + boxes + dims / 3 > GPU_WORKER_DIMS) {
        RETURN_IF(submit(l, err));
        at = like % 16;
    }
    gpu_worker_slot *s = &l->slots[l->now];
    if (l->used == 0 && s->busy) {
        RETURN_IF(l->gpu->calls->wait(l->stream, l->now, err));
        s->busy = false;
    }
    memset(s->host + l->used, 0, at - l->used);
    *buffer = s->host + at;
    l->used = at + nbytes;
    return FSDPCK_OK;
}

/* As element_ops_resolve: which bits of an element change their value. */
static void set_bit_ops(gpu_copy *copy, const element_ops *c)
{
    const dtype_info *info = dtype_get(c->from);
    const unsigned n = info->itemsize_bytes;
    uint8_t flip[16] = {0};
    copy->swap_nbytes = c->swap ? info->swap_nbytes : 0;
    if (c->conj && info->kind == DTYPE_IS_COMPLEX)
        flip[n - 1] ^= 0x80;
    if (c->neg && info->kind == DTYPE_IS_COMPLEX)
        flip[n - 1] ^= 0x80, flip[n / 2 - 1] ^= 0x80;
    if (c->neg && info->kind == DTYPE_IS_FLOAT)
        flip[n - 1] ^= 0x80;
    copy->negate = c->neg && info->kind == DTYPE_IS_INT;
    memcpy(copy->flip, flip, sizeof flip);
}

static void put(gpu_worker *l, const gpu_copy *copy)
{
    gpu_box *box = &l->boxes[l->box_count];
    if (!gpu_box_prepare(box, l->dims + l->dims_count, copy)) {
        l->refused = true;
        return;
    }
    const unsigned kind = box->way * 256u + box->from * 16u + box->to;
    const uint8_t bit = (uint8_t)(1u << kind % 8);
    if ((__atomic_load_n(&l->kinds[kind / 8], __ATOMIC_RELAXED) & bit) == 0 &&
        (__atomic_fetch_or(&l->kinds[kind / 8], bit, __ATOMIC_RELAXED) & bit) == 0) {
        l->new_kinds[kind / 8] |= bit;
        l->had_new_kinds = true;
    }
    box->first_task = l->tasks;
    box->dims_at = l->dims_count;
    l->tasks += box->tasks;
    l->dims_count += box->ndim;
    l->box_count++;
}

static void put_box(gpu_worker *l, const element_ops *c, const strided *s, uint64_t dst_at,
                    uint64_t src_at)
{
    if (c->add != 0) { /* threads do that, see exec_chunk_is_for_threads */
        l->refused = true;
        return;
    }
    gpu_copy copy = {.src = src_at,
                     .dst = dst_at,
                     .ndim = s->ndim,
                     .sizes = s->sizes,
                     .src_strides = s->src_strides,
                     .dst_strides = s->dst_strides,
                     .from = c->from == c->to ? GPU_BYTES : gpu_dtype_of(c->from),
                     .to = c->from == c->to ? GPU_BYTES : gpu_dtype_of(c->to),
                     .from_nbytes = dtype_get(c->from)->itemsize_bytes,
                     .to_nbytes = dtype_get(c->to)->itemsize_bytes};
    set_bit_ops(&copy, c);
    put(l, &copy);
}

void gpu_worker_put(gpu_worker *l, const element_ops *c, const strided *s, uint64_t dst_at,
                    const uint8_t *src)
{
    put_box(l, c, s, dst_at, (uint64_t)(src - l->slots[l->now].host));
}

fsdpck_status gpu_worker_put_received(gpu_worker *l, const element_ops *c, const strided *s,
                                      uint64_t dst_at, uint64_t src_at, fsdpck_error *err)
{
    uint8_t *nothing; /* room for the box alone */
    RETURN_IF(gpu_worker_reserve(l, 0, 0, 1, 3 * s->ndim, &nothing, err));
    put_box(l, c, s, dst_at, src_at);
    return FSDPCK_OK;
}

void gpu_worker_put_run(gpu_worker *l, uint64_t dst_at, const uint8_t *src, uint64_t nbytes)
{
    const uint64_t one = 1;
    const gpu_copy copy = {.src = (uint64_t)(src - l->slots[l->now].host),
                           .dst = dst_at,
                           .ndim = 1,
                           .sizes = &nbytes,
                           .src_strides = &one,
                           .dst_strides = &one,
                           .from_nbytes = 1,
                           .to_nbytes = 1};
    put(l, &copy);
}

static fsdpck_status copy_out(gpu_worker *l, const gpu_worker_out *out, fsdpck_error *err)
{
    const gpu_calls *calls = l->gpu->calls;
    const uint64_t begin = out->from - out->from % 16;
    if (out->span == NULL)
        return FSDPCK_OK;
    RETURN_IF(calls->add_crc(l->stream, l->to + out->from, out->to - out->from,
                             l->counts + COUNT_OUT * sizeof(uint64_t), err));
    return calls->copy_out(l->stream, out->span + begin, l->to + begin, out->to - begin, err);
}

static fsdpck_status store_sums(gpu_worker *l, const gpu_worker_out *out, fsdpck_error *err)
{
    const gpu_calls *calls = l->gpu->calls;
    for (unsigned i = 0; i < out->sum_count; i++) {
        const gpu_worker_sum *s = &out->sums[i];
        RETURN_IF(calls->zero(l->stream, l->to + s->sum_at, sizeof(uint64_t), err));
        RETURN_IF(calls->add_sum(l->stream, l->to + s->begin, s->nbytes, l->to + s->sum_at, err));
    }
    return FSDPCK_OK;
}

/* The device's CRC has zeros up to a multiple of 8. */
static bool out_is_intact(const gpu_worker *l, const gpu_worker_out *out)
{
    if (out->span == NULL)
        return true;
    const uint64_t crc = out->crc != NULL
                             ? out->crc(out->ctx)
                             : crc64_raw(0, out->span + out->from, out->to - out->from);
    return crc64_shift(crc, (8 - out->to % 8) % 8) == l->counts_here[COUNT_OUT];
}

fsdpck_status gpu_worker_finish(gpu_worker *l, const gpu_worker_out *out, uint64_t *lost,
                                bool *intact, fsdpck_error *err)
{
    const gpu_calls *calls = l->gpu->calls;
    *lost = 0;
    *intact = true;
    if (l->refused)
        return FAIL(err, DEVICE, NONE,
                    "GPU cannot copy a box: it has too many elements, or an added constant");
    RETURN_IF(submit(l, err));
    if (!l->any)
        return FSDPCK_OK;
    RETURN_IF(copy_out(l, out, err));
    RETURN_IF(store_sums(l, out, err));
    RETURN_IF(
        calls->copy_out(l->stream, l->counts_here, l->counts, COUNTS * sizeof(uint64_t), err));
    RETURN_IF(calls->mark(l->stream, MARK_DONE, err));
    RETURN_IF(calls->wait(l->stream, MARK_DONE, err));
    *lost = l->counts_here[COUNT_LOST];
    *intact = l->counts_here[COUNT_IN] == l->sum_in &&
              l->counts_here[COUNT_RECEIVED] == l->counts_here[COUNT_EXPECTED] &&
              out_is_intact(l, out);
    for (unsigned i = 0; !*intact && i < GPU_KINDS_NBYTES; i++) /* new again in the next try */
        (void)__atomic_fetch_and(&l->kinds[i], (uint8_t)~l->new_kinds[i], __ATOMIC_RELAXED);
    return FSDPCK_OK;
}

/* ---- messages ---- */

void gpu_worker_set_output(gpu_worker *l, gpu_address span)
{
    l->to = span != 0 ? span : l->span;
}

fsdpck_status gpu_worker_receive(gpu_worker *l, gpu_address message, uint64_t nbytes,
                                 uint64_t sum_at, fsdpck_error *err)
{
    const gpu_calls *calls = l->gpu->calls;
    RETURN_IF(calls->add_sum(l->stream, message, nbytes,
                             l->counts + COUNT_RECEIVED * sizeof(uint64_t), err));
    /* Of one word that is the word itself. */
    return calls->add_sum(l->stream, message + sum_at, sizeof(uint64_t),
                          l->counts + COUNT_EXPECTED * sizeof(uint64_t), err);
}

fsdpck_status gpu_worker_set_input(gpu_worker *l, gpu_address taken, fsdpck_error *err)
{
    if (l->from != taken)
        RETURN_IF(submit(l, err));
    l->from = taken;
    return FSDPCK_OK;
}

bool gpu_worker_had_new_kinds(const gpu_worker *l)
{
    return l->had_new_kinds;
}
