/* resume_report.h: messages of --resume about earlier runs. A run that does not continue an unfinished output of its
 * name warns (RESUME-FRESH), also with --quiet. */
#ifndef FSDPCK_RUN_RESUME_REPORT_H
#define FSDPCK_RUN_RESUME_REPORT_H

#include "io/output_remains.h"

struct run;

/* A next step for an unfinished output that stays. */
extern const char resume_next_not_needed[];

/* "'partial' next to 'DST' `what`, and the run begins from the start: `why`". `next` "": as the kind of finding has it. */
void resume_warn_fresh(const struct run *r, const char *partial, const char *what, const char *why,
                       const char *next);
/* A note, if the run continues an earlier one. */
void resume_report_continued(const struct run *r);
/* Removes journals whose unfinished output is gone, and names the unfinished outputs that stay. */
void resume_report_remains(const struct run *r, const output_remains *found);
/* Of a run without a journal; `why`: the obstacle of this rank, or NULL. Rank 0 looks for unfinished outputs. */
fsdpck_status resume_report_refused(const struct run *r, const char *why,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
