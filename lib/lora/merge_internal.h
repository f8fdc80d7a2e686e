/* merge_internal.h: what the files of merging share:
 *
 *     merge.c           the list, the second catalogue
 *     merge_source.c    its source: streams
 *     merge_geometry.c  rows and columns of a weight
 *     merge_rows.c      applies the steps to rows of a weight
 *     merge_factors.c   the factors of a step, shared by streams
 *     merge_norms.c     norms of DoRA
 *     merge_kernel.c    the arithmetic
 */
#ifndef FSDPCK_LORA_MERGE_INTERNAL_H
#define FSDPCK_LORA_MERGE_INTERNAL_H

#include <pthread.h>

#include "lora/merge.h"
#include "state/box_read.h"
#include "state/derived_source.h"

#define MERGE_NONE UINT32_MAX
/* Elements of one chunk of the second catalogue, and of the rows that are computed together. */
#define MERGE_CHUNK_NELEMS ((uint64_t)1 << 21)
#define MERGE_BLOCK_NELEMS ((uint64_t)1 << 16)

/* A chunk of the second catalogue, by its aux. */
typedef struct merge_chunk {
    uint64_t chunk;  /* of input 0; of MERGE_REPLACE: of its input */
    uint32_t target; /* MERGE_NONE: the same chunk */
    uint32_t box;    /* in `boxes`: ndim offsets, then ndim sizes */
} merge_chunk;

/* The factors of a step that all its streams share. Numbers are floats, or doubles for float64 weights. */
typedef struct merge_shared {
    unsigned users;
    enum { SHARED_ABSENT, SHARED_LOADING, SHARED_READY } state;
    void *right; /* rank x columns; of 3 dims: for each index of the first */
    void *
        left; /* rows x rank; of 3 dims: for each index of the first; NULL if it is large, of 2 dims */
    uint64_t nbytes;
    /* DoRA of a transposed weight: magnitude / norm, by column. Kept. */
    enum { NORMS_ABSENT, NORMS_LOADING, NORMS_READY } norms_state;
    float *factors;
} merge_shared;

struct merger {
    merge_list list;
    vec readers; /* box_reader, by input */
    catalogue *out;
    vec chunks; /* merge_chunk */
    vec boxes;  /* uint64_t */
    vec same;   /* uint32_t: tensor of `out` plus 1, by tensor of input 0 */
    uint64_t changed;
    pthread_mutex_t lock; /* of shared, idle */
    pthread_cond_t changed_state;
    bool locks;           /* both are initialized */
    merge_shared *shared; /* by step */
    vec idle;             /* uint64_t: steps without users whose factors are kept, oldest first */
    uint64_t idle_nbytes;
    derived_source source;
};

/* Geometry of a weight: [experts,] rows, columns. Dims after the columns' first one belong to it. */
typedef struct merge_shape {
    unsigned ndim;
    unsigned row; /* the dim of the rows */
    uint64_t experts, rows, columns;
} merge_shape;

static inline const merge_target *merge_target_at(const merger *m, uint32_t i)
{
    return VEC_AT(&m->list.targets, const merge_target, i);
}

static inline const merge_step *merge_step_at(const merger *m, uint64_t i)
{
    return VEC_AT(&m->list.steps, const merge_step, i);
}

static inline const merge_input *merge_input_at(const merger *m, uint32_t i)
{
    return VEC_AT(&m->list.inputs, const merge_input, i);
}

static inline const box_reader *merge_reader_at(const merger *m, uint32_t i)
{
    return VEC_AT(&m->readers, const box_reader, i);
}

/* The dtype of a target: that of input 0, or wider. */
static inline dtype merge_dtype(const merger *m, const merge_target *t)
{
    const dtype d = (dtype)catalogue_tensor(merge_input_at(m, 0)->cat, t->tensor)->dtype;
    const bool is_half = d == DTYPE_BFLOAT16 || d == DTYPE_FLOAT16;
    return m->list.wide && t->step_count > 0 && is_half ? DTYPE_FLOAT32 : d;
}

/* The tensor whose boxes the chunks of a target are, and its input. */
uint32_t merge_from(const merger *m, const merge_target *t, uint32_t *input);
merge_shape merge_shape_of(const merger *m, const merge_target *t);
const char *merge_target_name(const merger *m, const merge_target *t);

/* n * each items of memory, to be freed; NULL and *err if that is too much. */
void *merge_alloc(uint64_t n, uint64_t each, size_t item_nbytes, fsdpck_error *err);

/* merge_factors.c: the shared factors of a step, until they are released. */
fsdpck_status merge_factors_get(merger *m, const merge_target *t, uint64_t step,
                                const merge_shared **shared, fsdpck_error *err) FSDPCK_MUST_CHECK;
void merge_factors_release(merger *m, uint64_t step);
/* The left factor of n rows of index `expert`: a part of the shared one; without it, read to `memory`, which has room
 * for n * rank numbers. */
fsdpck_status merge_left_get(const merger *m, const merge_target *t, uint64_t step,
                             const merge_shared *shared, uint64_t expert, uint64_t first_row,
                             uint64_t n, void *memory, const void **left,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A box of a tensor as floats, or doubles if `wide`. */
fsdpck_status merge_read_numbers(const merger *m, uint32_t input, uint32_t tensor,
                                 const uint64_t *offsets, const uint64_t *sizes, bool wide,
                                 void *numbers, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Likewise cast to any dtype of merging. */
fsdpck_status merge_read_cast(const merger *m, uint32_t input, uint32_t tensor,
                              const uint64_t *offsets, const uint64_t *sizes, dtype to,
                              void *elements, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* merge_norms.c: magnitude / norm of n rows with their left factor, to `factors`. */
fsdpck_status merge_row_factors(const merger *m, const merge_target *t, uint64_t step,
                                const merge_shared *shared, const float *left, uint64_t first_row,
                                uint64_t n, float *factors, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For a transposed weight: of all columns, computed once; *factors is borrowed. */
fsdpck_status merge_column_factors(merger *m, const merge_target *t, uint64_t step,
                                   const merge_shared *shared, const float **factors,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Rows whose product is computed before it is added. */
#define MERGE_PRODUCT_ROWS 16u

/* merge_rows.c: the steps of a target, for rows of one stream. */
typedef struct merge_rows {
    merger *m;
    const merge_target *target;
    merge_shape shape;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];     /* of the stream */
    uint64_t first_row, rows, first_column, columns; /* likewise */
    const merge_shared *shared[MERGE_STEPS_MAX];     /* by step of the target; NULL: none */
    const void *left[MERGE_STEPS_MAX];               /* of the rows */
    void *left_memory[MERGE_STEPS_MAX];
    const float
        *factors[MERGE_STEPS_MAX]; /* DoRA: by row of the stream, or by column of the tensor */
    float *factors_memory[MERGE_STEPS_MAX];
    void *product; /* MERGE_PRODUCT_ROWS x columns of a block */
} merge_rows;

/* Close it also after a failure. */
fsdpck_status merge_rows_open(merge_rows *r, merger *m, const merge_target *t,
                              const uint64_t *offsets, const uint64_t *sizes,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Changes n rows from row `at` of the stream, row-major in the target's dtype. */
fsdpck_status merge_rows_apply(merge_rows *r, uint64_t at, uint64_t n, void *weight,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void merge_rows_close(merge_rows *r);
uint64_t merge_rows_nbytes(const merger *m, const merge_target *t, const uint64_t *sizes);

/* Sets m->source. */
void merger_set_source(merger *m);

#endif
