/* fqn.h: fully qualified names and the prefixes that wrappers put into them.
 *
 * Wrappers rename what they wrap: FSDP1 (`_fsdp_wrapped_module.`, up to 1.13 also `_fpw_module.`),
 * activation checkpointing (`_checkpoint_wrapped_module.`), torch.compile (`_orig_mod.`); DDP and
 * DataParallel put one `module.` in front. The first four are names that no model gives its own
 * modules, so they go wherever they stand, as whole dotted parts; `module` is an ordinary word, so
 * it only goes from the front, and the caller says whether it may (when every tensor of the model
 * has it).
 *
 * Source: torch 2.15 (fsdp/_common_utils.py, checkpoint/state_dict.py).
 */
#ifndef FSDPCK_MODEL_FQN_H
#define FSDPCK_MODEL_FQN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"

/* Appends the name without wrapper parts to `out`. strip_ddp: one leading `module.` goes as
 * well. */
void fqn_clean(const char *name, size_t nbytes, bool strip_ddp, text_buf *out);

/* The same, part by part, into memory that is there already:
 *
 *     fqn_parts p = {.name = name, .nbytes = nbytes, .strip_ddp = true};
 *     while (fqn_parts_next(&p)) ... p.part, p.part_nbytes, with a dot behind it unless p.last
 */
typedef struct fqn_parts {
    const char *name;
    size_t nbytes;
    bool strip_ddp;
    const char *part; /* inside the name */
    size_t part_nbytes;
    bool last;
    bool begun; /* a part was given */
    size_t at;
} fqn_parts;

bool fqn_parts_next(fqn_parts *p);

/* Whether the name, other wrapper parts set aside, begins with `module.`. */
bool fqn_has_ddp_prefix(const char *name, size_t nbytes);

#endif
