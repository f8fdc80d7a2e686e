/* arguments_check.h: settings of config.json that change what a model computes, against the arguments of the training run
 * that a folder of Megatron-Core contains, such as rope_theta against rotary_base, and against params.json.
 *
 *     RETURN_IF(arguments_check(base, &params, &config, err));   // warns (MAP-ARGUMENTS)
 */
#ifndef FSDPCK_OPEN_ARGUMENTS_CHECK_H
#define FSDPCK_OPEN_ARGUMENTS_CHECK_H

#include "open/checkpoint.h"
#include "open/model_config.h"
#include "state/meta_params.h"

/* Only settings that both have are compared; arguments that cannot be read are not. */
fsdpck_status arguments_check(fsdpck_checkpoint *of, const meta_params *params,
                              const model_config *config, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
