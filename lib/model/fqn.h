/* fqn.h: fully qualified names and the prefixes that wrappers add to them.
 *
 * Wrappers rename their contents: FSDP1 (`_fsdp_wrapped_module.`, up to 1.13 also `_fpw_module.`),
 * activation checkpointing (`_checkpoint_wrapped_module.`), torch.compile (`_orig_mod.`); DDP and
 * DataParallel add one leading `module.`. No model uses the first four names for its own modules:
 * they are removed anywhere, as whole dotted parts. `module` is an ordinary word: it is only removed
 * from the front, and only if the caller allows it (when every tensor of the model has it).
 *
 * Source: torch 2.15 (fsdp/_common_utils.py, checkpoint/state_dict.py).
 */
#ifndef FSDPCK_MODEL_FQN_H
#define FSDPCK_MODEL_FQN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"

/* Appends the name without wrapper parts to `out`. strip_ddp: also removes one leading `module.`.
 */
void fqn_clean(const char *name, size_t nbytes, bool strip_ddp, text_buf *out);

/* The same, part by part, without allocation:
 *
 *     fqn_parts p = {.name = name, .nbytes = nbytes, .strip_ddp = true};
 *     while (fqn_parts_next(&p)) ... p.part, p.part_nbytes, followed by a dot unless p.last
 */
typedef struct fqn_parts {
    const char *name;
    size_t nbytes;
    bool strip_ddp;
    const char *part; /* inside the name */
    size_t part_nbytes;
    bool last;
    bool begun; /* a part was returned */
    size_t at;
} fqn_parts;

bool fqn_parts_next(fqn_parts *p);

/* Whether the name begins with `module.`, ignoring other wrapper parts. */
bool fqn_has_ddp_prefix(const char *name, size_t nbytes);

#endif
