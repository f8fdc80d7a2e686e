/* latest_required.h: files without which the trainer that wrote a step does not load it, and which it writes last. */
#ifndef FSDPCK_VERIFY_LATEST_REQUIRED_H
#define FSDPCK_VERIFY_LATEST_REQUIRED_H

#include "open/checkpoint.h"

/* BADINPUT (SAVE-INCOMPLETE) if one is missing or without an end. without_state: a trainer's state may be missing. */
fsdpck_status latest_required_check(fsdpck_checkpoint *c, bool without_state,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Of a folder, whatever was read in it. */
fsdpck_status latest_required_check_folder(const probe_input *in, bool without_state,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The part of it about files that the weights can be read without: of Lightning, transformers, PEFT, VeOmni and
 * OLMo-core, and the common state of Megatron-Core. */
fsdpck_status latest_required_check_beside(fsdpck_checkpoint *c,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Of PEFT: weights of an adapter without their config. */
fsdpck_status latest_required_check_adapter(const probe_input *in,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
