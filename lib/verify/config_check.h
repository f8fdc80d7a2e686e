/* config_check.h: config.json of an output against its tensors and against that of the model folder, where
 * shapes alone show nothing: numbers of heads, and settings such as rope_theta.
 *
 *     RETURN_IF(config_check(v, &output_config, base, &base_config, err));   // findings of v
 */
#ifndef FSDPCK_VERIFY_CONFIG_CHECK_H
#define FSDPCK_VERIFY_CONFIG_CHECK_H

#include "open/model_config.h"
#include "verify/verify_internal.h"

/* Nothing is checked if either folder has no config.json, or an unreadable one. */
fsdpck_status config_check(fsdpck_verify *v, const model_config *ours,
                           const fsdpck_checkpoint *base, const model_config *theirs,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
