/* step_manifest.h: checkpoint_manifest.json of VeOmni, which rank 0 writes after the files of all ranks, and other JSON
 * files with a step and a number of ranks. */
#ifndef FSDPCK_OPEN_STEP_MANIFEST_H
#define FSDPCK_OPEN_STEP_MANIFEST_H

#include "formats/format.h"

#define STEP_MANIFEST "checkpoint_manifest.json"

typedef struct step_manifest {
    int64_t step, world_size; /* -1: not recorded */
} step_manifest;

/* Root members `step` and `ranks` of the file `name`. False if it is absent, or truncated. */
bool step_json_read(const probe_input *in, const char *name, const char *step, const char *ranks,
                    step_manifest *m);
/* False if the folder has none, or one that is truncated or of another program. */
bool step_manifest_read(const probe_input *in, step_manifest *m);

#endif
