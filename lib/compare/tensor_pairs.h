/* tensor_pairs.h: walks the elements of tensors that two checkpoints have in common, whatever their
 * formats and shardings.
 *
 *     tensor_pairs_init(&p, &run_a, &run_b);
 *     RETURN_IF(tensor_pairs_add(&p, a, b, err));       // tensors of the two targets
 *     RETURN_IF(tensor_pairs_plan(&p, err));
 *     RETURN_IF(tensor_pairs_resolve(&p, err));         // collective; then the ranks agree
 *     RETURN_IF(tensor_pairs_assign(&p, err));          // collective
 *     st = tensor_pairs_walk(&p, "comparing", fn, ctx, cancel, err);
 *     tensor_pairs_release(&p);
 *
 * Both targets get files of one layout that are never written: equal offsets of file 0 contain the
 * same element.
 */
#ifndef FSDPCK_COMPARE_TENSOR_PAIRS_H
#define FSDPCK_COMPARE_TENSOR_PAIRS_H

#include "run/run.h"

/* Tensors of both targets, with equal dtype and shape. */
typedef struct tensor_pair {
    uint32_t a, b;
} tensor_pair;

typedef struct tensor_pairs {
    run *a, *b; /* borrowed; selected */
    vec list;   /* tensor_pair, in the order of their offsets */
    unsigned workers;
    uint64_t fill_nbytes;
} tensor_pairs;

/* Consecutive elements of a pair, little-endian. */
typedef struct pair_elements {
    size_t pair;
    uint64_t first, count; /* elements */
    const uint8_t *a, *b;
} pair_elements;

/* From any worker; each element once, in any order. */
typedef void (*pair_elements_fn)(void *ctx, unsigned worker, const pair_elements *e);

void tensor_pairs_init(tensor_pairs *p, run *a, run *b);
void tensor_pairs_release(tensor_pairs *p);

/* Both hold buffers at once: each gets half of the memory of a. Before tensor_pairs_plan. */
void tensor_pairs_share_memory(tensor_pairs *p);
fsdpck_status tensor_pairs_add(tensor_pairs *p, uint32_t a, uint32_t b,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Lays out both targets, and plans both runs. */
fsdpck_status tensor_pairs_plan(tensor_pairs *p, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective steps first; steps that may fail on a single rank follow. */
fsdpck_status tensor_pairs_resolve(tensor_pairs *p, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status tensor_pairs_assign(tensor_pairs *p, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After tensor_pairs_resolve: whether a side is read as streams. A walk has zeros in its place. */
bool tensor_pairs_is_streamed(const tensor_pairs *p, size_t pair);

/* All elements of this rank's items. `cancel`: stops the walk besides the caller's own token. */
fsdpck_status tensor_pairs_walk(tensor_pairs *p, const char *phase, pair_elements_fn fn, void *ctx,
                                const cancel_token *cancel, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* nbytes of a pair on one side, no more than fill_nbytes; valid until the worker fills the next. */
fsdpck_status tensor_pairs_fill(const tensor_pairs *p, unsigned worker, size_t pair, bool second,
                                uint64_t at, uint64_t nbytes, const uint8_t **bytes,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The first nbytes of a pair on one side, little-endian. Not during a walk. */
fsdpck_status tensor_pairs_read(tensor_pairs *p, size_t pair, bool second, uint8_t *bytes,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After the walk. */
fsdpck_status tensor_pairs_check_unchanged(const tensor_pairs *p,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
