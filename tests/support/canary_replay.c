/* canary_replay.c: a fuzz target that aborts on the first input that is not empty. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    if (nbytes > 0 && data != NULL) {
        fputs("canary replayed\n", stderr);
        abort();
    }
    return 0;
}
