/* average_checks.h: what averaged_checkpoint.c asks of the inputs of an average:
 *
 *     average_steps_find, average_steps_check   // their order
 *     average_check_adapters                    // folders of adapters: the same config
 *     average_match_find                        // the same tensors and objects
 *     average_warn_inputs, average_warn_base
 */
#ifndef FSDPCK_OPEN_AVERAGE_CHECKS_H
#define FSDPCK_OPEN_AVERAGE_CHECKS_H

#include "open/checkpoint.h"

/* average_order.c: the training steps of the inputs, oldest first, -1 for none. *steps is freed by the caller. */
fsdpck_status average_steps_find(fsdpck_checkpoint *const *inputs, size_t count, int64_t **steps,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* USAGE if all are known and they decrease. */
fsdpck_status average_steps_check(fsdpck_checkpoint *const *inputs, size_t count,
                                  const int64_t *steps, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Warns where the average may differ from the user's expectation: other config.json (AVERAGE-CONFIG),
 * adapters (AVERAGE-LORA). `shape`: the input whose files are copied. */
void average_warn_inputs(fsdpck_checkpoint *const *inputs, size_t count, size_t shape);
/* average_adapters.c: warns where folders of adapters name different base models. */
void average_warn_base(fsdpck_checkpoint *const *inputs, size_t count, size_t shape);

/* average_adapters.c: BADINPUT (LORA-CONFIG) if the inputs are adapters whose configs differ. */
fsdpck_status average_check_adapters(fsdpck_checkpoint *const *inputs, size_t count, size_t shape,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;

/* average_match.c: the tensors of the inputs of an average, by name. */
typedef struct average_match {
    fsdpck_checkpoint *const *inputs;
    size_t count;
    size_t shape;                /* the input that all others must equal */
    checkpoint_part part;        /* or PART_ALL */
    const select_options *rules; /* keys and exclude */
    bool trusts_objects;         /* they need not be equal */
    vec tensors;                 /* uint32_t: average_request.tensors */
    uint8_t *takes_objects;      /* of the template, zeroed: those that the rules select */
} average_match;

/* Fills m->tensors. BADINPUT (AVERAGE-DIFFER) if names, shapes, dtypes or objects differ; each
 * difference is logged. */
fsdpck_status average_match_find(average_match *m, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
