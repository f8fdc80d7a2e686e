/* step_manifest.h: checkpoint_manifest.json of VeOmni, which rank 0 writes after the files of all ranks. */
#ifndef FSDPCK_OPEN_STEP_MANIFEST_H
#define FSDPCK_OPEN_STEP_MANIFEST_H

#include "formats/format.h"

#define STEP_MANIFEST "checkpoint_manifest.json"

typedef struct step_manifest {
    int64_t step, world_size; /* -1: not recorded */
} step_manifest;

/* False if the folder has none, or one that is truncated or of another program. */
bool step_manifest_read(const probe_input *in, step_manifest *m);

#endif
