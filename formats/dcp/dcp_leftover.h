/* dcp_leftover.h: tensors that FSDP1 stores under the names of parameters of a flat parameter.
 *
 * With LOCAL_STATE_DICT and use_orig_params a state dict contains, beside each `_flat_param`, the
 * names of its parameters with this rank's shard of each: one dim, any length, different on every
 * rank. DCP treats them as replicated tensors and keeps that of one rank (torch 2.0 to 2.15). They
 * are not parameters and must not be read as such.
 *
 *     dcp_leftovers l;
 *     RETURN_IF(dcp_leftovers_init(&l, &metadata, &names, err));
 *     if (dcp_is_leftover(&l, item)) ...                 // item is a tensor
 *     dcp_leftovers_release(&l);
 *
 * A leftover is a floating tensor of one dim in one chunk, below a module that has a flat parameter
 * of one dim in shards of several ranks: a parameter that only has this name has no leftovers. Kept
 * are running_mean and running_var of one shape and dtype, which are buffers of a norm, and tensors of
 * a module that has a tensor of two dims or more: leftovers have one dim, so that module's parameters
 * are not in the flat one (ignored_modules).
 */
#ifndef FSDPCK_DCP_LEFTOVER_H
#define FSDPCK_DCP_LEFTOVER_H

#include "formats/dcp/dcp_metadata.h"

typedef struct dcp_leftovers {
    const dcp_metadata *m;
    const dcp_names *names;
    strtab units;    /* names of modules, dot included, that have a flat parameter */
    strtab modules;  /* that have a tensor of two dims or more */
    strtab norms[2]; /* that have a running_mean, a running_var, with its shape and dtype */
} dcp_leftovers;

/* On failure *l may still be released. */
fsdpck_status dcp_leftovers_init(dcp_leftovers *l, const dcp_metadata *m, const dcp_names *names,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_leftovers_release(dcp_leftovers *l);
bool dcp_is_leftover(const dcp_leftovers *l, const dcp_item *item);

#endif
