/* latest_recorded.h: checkpoints of a run whose step is not in their names: last.ckpt and hpc_ckpt_1.ckpt of Lightning,
 * which number saves or nothing. Their files may record it. */
#ifndef FSDPCK_VERIFY_LATEST_RECORDED_H
#define FSDPCK_VERIFY_LATEST_RECORDED_H

#include "verify/latest_list.h"

/* Moves those of l->nameless that are the newest checkpoint by convention and record their step to l->steps, where their
 * order beside the others is known; drops those that are none, or links to others. */
fsdpck_status latest_recorded_add(fsdpck_context *ctx, latest_list *l,
                                  const fsdpck_open_options *open,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether it has the step of `found`, a checkpoint that is printed; NULL: none. */
bool latest_recorded_is_copy(const latest_step *c, const latest_step *found);

/* The step that the files of the checkpoint record, without a message. -1: unknown. */
int64_t latest_recorded_step(fsdpck_context *ctx, const char *path,
                             const fsdpck_open_options *open);
/* That of `chosen` (NULL: none), or the number after a word in its name. -1: unknown. */
int64_t latest_recorded_step_of_chosen(fsdpck_context *ctx, const latest_step *chosen,
                                       const fsdpck_open_options *open);
/* Whether the path is a link to one of l->steps. */
bool latest_recorded_is_link(const latest_list *l, const char *path);

/* LATEST-NAME: those that were not considered and may be newer than `chosen` (NULL: none). */
void latest_recorded_warn(fsdpck_context *ctx, const latest_list *l, const latest_step *chosen,
                          const fsdpck_open_options *open);
/* STEP-NAME: `chosen` (NULL: none) records another step than its name, while another step of the run records its own. */
void latest_recorded_warn_name(fsdpck_context *ctx, const latest_list *l, const latest_step *chosen,
                               const fsdpck_open_options *open);

#endif
