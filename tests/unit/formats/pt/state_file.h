/* state_file.h: the path of one file in a temporary folder, for each test. */
#ifndef FSDPCK_TESTS_UNIT_FORMATS_PT_STATE_FILE_H
#define FSDPCK_TESTS_UNIT_FORMATS_PT_STATE_FILE_H

#include "tests/support/scratch.h"

static char scratch[SCRATCH_BYTES], path[SCRATCH_BYTES];

static void begin(void)
{
    scratch_make(scratch);
    scratch_path(path, scratch, "state.pt");
}

static void end(void)
{
    scratch_remove(scratch);
}

#endif
