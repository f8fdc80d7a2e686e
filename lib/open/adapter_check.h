/* adapter_check.h: adapters of LoRA in the model part, by names, shapes and config: LORA-PAIR, LORA-RANK, LORA-SHAPE,
 * LORA-CONFIG, LORA-KIND.
 *
 *     RETURN_IF(adapter_check(c, true, &faults, err));   // all: verify
 *     RETURN_IF(adapter_check_errors(c, err));           // the first error: latest
 *     RETURN_IF(adapter_warn(c, err));                   // as warnings: consolidate, reshard, average
 */
#ifndef FSDPCK_OPEN_ADAPTER_CHECK_H
#define FSDPCK_OPEN_ADAPTER_CHECK_H

#include "open/checkpoint.h"

/* Receives each fault, which names `path`; a status other than OK ends the check. */
typedef struct adapter_faults {
    fsdpck_status (*found)(void *ctx, finding_severity severity, const fsdpck_error *fault,
                           fsdpck_error *err);
    void *ctx;
    const char *path;
} adapter_faults;

/* alone: no base model shows whether names of the config have no tensor in it. */
fsdpck_status adapter_check(fsdpck_checkpoint *c, bool alone, const adapter_faults *to,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Names of modules_to_save for which the adapter has no tensor. base: NULL if it is unknown. */
fsdpck_status adapter_check_saved(const lora_set *set, const lora_config *config,
                                  const fsdpck_checkpoint *base, const adapter_faults *to,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Fails with the first fault that is an error. */
fsdpck_status adapter_check_errors(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Logs the first fault of each finding, of the checkpoint that `c` is made of and of each input of an average. A merge
 * checks its adapters; of one that is extracted, names of the config remain. */
fsdpck_status adapter_warn(fsdpck_checkpoint *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
