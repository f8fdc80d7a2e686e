/* tied_head.h: an output projection (lm_head) that is omitted because the model folder of --like takes it
 * from the embedding: both must be equal in the source. Where the output has both, and the config.json of --like or of
 * the output ties them, a difference is a warning. */
#ifndef FSDPCK_RUN_TIED_HEAD_H
#define FSDPCK_RUN_TIED_HEAD_H

#include "run/run.h"

/* A run_check_fn. BADINPUT (TIE-DIFFERS). */
fsdpck_status tied_head_compare(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Collective. Compares the bytes of two tensors of the model. `globs`, zeroed, receive their names as
 * patterns; release them also after a failure. */
fsdpck_status tied_head_differs(fsdpck_checkpoint *src, const run_options *options, uint32_t head,
                                uint32_t embedding, text_buf globs[2], bool *differs,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether two tensors that config.json ties differ, by dtype and shape, then, with `reads`, by tied_head_differs.
 * Tensors of quantized types are not compared. */
fsdpck_status tied_head_check(fsdpck_checkpoint *src, const run_options *options, uint32_t head,
                              uint32_t embedding, bool reads, text_buf globs[2], bool *differs,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
