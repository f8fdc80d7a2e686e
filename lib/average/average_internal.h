/* average_internal.h: what the files of averaging share:
 *
 *     average_catalogue.c   the second catalogue
 *     average_cut.c         the boxes of its chunks
 *     average_source.c      its source
 *     average_reader.c      bands of all inputs
 *     average_distance.c    distances of the inputs from the result
 *     average_slerp.c       the sums over a whole tensor that a slerp needs
 *     average_sum.h         the arithmetic
 */
#ifndef FSDPCK_AVERAGE_AVERAGE_INTERNAL_H
#define FSDPCK_AVERAGE_AVERAGE_INTERNAL_H

#include <pthread.h>

#include "average/average_sum.h"
#include "state/box_read.h"
#include "state/derived_source.h"

/* Bytes of most chunks, fewer with many inputs. */
#define AVERAGE_CHUNK_NBYTES_MAX ((uint64_t)2 << 20)
#define AVERAGE_CHUNK_NBYTES_MIN ((uint64_t)64 << 10)
#define AVERAGE_CHUNKS_NBYTES    ((uint64_t)32 << 20) /* of all inputs together */
/* Bytes of a tensor that are read from each input at once: all inputs together stay in the cache of a core. */
#define AVERAGE_BAND_NBYTES_MAX ((uint64_t)128 << 10)
#define AVERAGE_BAND_NBYTES_MIN ((uint64_t)16 << 10)
#define AVERAGE_BANDS_NBYTES    ((uint64_t)512 << 10)
#define AVERAGE_ALIGN           ((uint64_t)4 << 10)
#define AVERAGE_NONE            UINT32_MAX

/* A tensor whose chunks are streams, by slot. */
typedef struct average_tensor {
    uint32_t tensor;                  /* of the template */
    bool computed;                    /* else compared */
    uint64_t first_chunk, nchunks;    /* of the second catalogue */
    struct average_slerp_sums *slerp; /* NULL without */
} average_tensor;

/* A chunk of the second catalogue, by its aux. */
typedef struct average_chunk {
    uint64_t chunk; /* of the template: the same, or one whose file stands for the inputs */
    uint32_t slot;  /* AVERAGE_NONE: the same chunk */
} average_chunk;

struct averager {
    average_rule rule;
    average_input *inputs; /* a copy */
    size_t count, shape;
    const average_input *from; /* the template */
    uint32_t *tensors;         /* a copy, by tensor of the template and input */
    uint64_t tensors_nbytes;
    bool trust_others;
    uint64_t chunk_nbytes, band_nbytes;
    catalogue *out;
    box_reader *readers;         /* by input */
    vec slots;                   /* average_tensor */
    vec chunks;                  /* average_chunk */
    vec slot_of;                 /* uint32_t, by tensor of the template */
    _Atomic uint64_t *distances; /* bits of a double, by slot and input without the base */
    uint64_t distances_nbytes;
    _Atomic uint64_t further_nbytes; /* see averager_further_nbytes */
    pthread_mutex_t lock;            /* of the following */
    struct average_buffers *unused;  /* of closed streams, the last one first */
    derived_source source;
};

/* The tensor of an input. */
static inline uint32_t average_tensor_of(const averager *v, const average_tensor *t, size_t input)
{
    return v->tensors[(uint64_t)t->tensor * v->count + input];
}

static inline const char *average_name(const averager *v, const average_tensor *t)
{
    return catalogue_name(v->out, catalogue_tensor(v->out, t->tensor)->name);
}

/* average_distance.c: whether a tensor is a weight of integers, whose scales are averaged: it must be equal. */
bool average_is_quantized(const averager *v, uint32_t tensor);

/* An error of one input. */
static inline void average_name_input(const averager *v, size_t input, fsdpck_error *err)
{
    if (err != NULL && err->path[0] == '\0')
        error_path(err, v->inputs[input].name);
}

/* average_cut.c: calls add(ctx, offsets, sizes, err) for the boxes into which a tensor is divided, in
 * row-major order. */
typedef fsdpck_status (*average_add_fn)(void *ctx, const uint64_t *offsets, const uint64_t *sizes,
                                        fsdpck_error *err);
fsdpck_status average_cut(const averager *v, const average_tensor *t, average_add_fn add, void *ctx,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Memory of one stream, and cursors on a chunk, which the next box of the chunk uses again. */
struct average_buffers {
    struct average_buffers *next;
    uint64_t chunk;       /* of the second catalogue */
    box_cursor **cursors; /* by input; NULL: none */
    const uint8_t **from; /* by input: the numbers of a block */
    uint8_t *block;       /* the result */
    uint8_t *bands[];     /* by input: band_nbytes */
};

/* average_reader.c: a box of all inputs, band by band in row-major order. */
typedef struct average_reader {
    const averager *v;
    const average_tensor *t;
    unsigned ndim;
    uint64_t itemsize, nelems;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    struct average_buffers *buffers; /* of the averager */
    uint64_t next;                   /* element after the band */
} average_reader;

/* A box of the chunk. */
fsdpck_status average_reader_open(average_reader *r, const averager *v, uint64_t chunk,
                                  const uint64_t *offsets, const uint64_t *sizes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* *n: elements of the band, 0 after the last; bands[i]: those of input i. */
fsdpck_status average_reader_next(average_reader *r, const uint8_t *const **bands, uint64_t *n,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status average_reader_finish(average_reader *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* keep: the cursors may be used again; not where they read streams, or after a failure. */
void average_reader_close(average_reader *r, bool keep);
void average_free_buffers(averager *v);
/* An element of an input, or of the result, that is not finite. */
fsdpck_status average_fail_special(const averager *v, const average_tensor *t, size_t culprit,
                                   fsdpck_error *err);
/* average_source.c: sets v->source. */
void average_set_source(averager *v);

/* average_slerp.c */
fsdpck_status average_slerp_new(average_tensor *t, fsdpck_error *err) FSDPCK_MUST_CHECK;
void average_slerp_free(average_tensor *t);
/* The factors of both inputs, from sums over the whole tensor. Threads that need those of one tensor share
 * the work. */
fsdpck_status average_slerp_factors(const averager *v, const average_tensor *t, double *factors,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
