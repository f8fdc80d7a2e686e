/* sidecars.h: small files of a trainer's folder that go along when it is resharded to the same kind
 * of folder: the model's config and tokenizer, which do not depend on the number of ranks. */
#ifndef FSDPCK_SIDECARS_H
#define FSDPCK_SIDECARS_H

#include "run.h"

/* After the writer's layout(): adds the files to r->to. Files of more than 64 MiB are left behind
 * with a warning. */
fsdpck_status sidecars_add(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
