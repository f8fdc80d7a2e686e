/* stop_advice.h: the next step after a run that was ended by a signal, or by a full disk. */
#ifndef FSDPCK_RUN_STOP_ADVICE_H
#define FSDPCK_RUN_STOP_ADVICE_H

#include "base/status.h"

struct run;

/* Names --resume after a signal, if it applies to the run, and unfinished outputs of other runs after NOSPACE. */
void stop_advise(const struct run *r, fsdpck_status st, fsdpck_error *err);

#endif
