/* recorded_numbers.h: numbers of the model that the source contains beside its tensors: the arguments of a training by
 * Megatron-Core, and params.json of Meta's Llama. On export, they set variables of the map, and are compared with
 * --map-set and with the config.json that the output gets.
 *
 *     RETURN_IF(recorded_numbers_apply(c, options, &unread, err));   // c->map has been read
 */
#ifndef FSDPCK_OPEN_RECORDED_NUMBERS_H
#define FSDPCK_OPEN_RECORDED_NUMBERS_H

#include "open/checkpoint.h"

/* *unread: why the arguments cannot be read, which is an error only if the map needs them. BADINPUT, UNSUPPORTED
 * (MAP-ARGUMENTS). */
fsdpck_status recorded_numbers_apply(fsdpck_checkpoint *c, const fsdpck_open_options *o,
                                     fsdpck_error *unread, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
