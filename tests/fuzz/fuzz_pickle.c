/* Pickles, of any form. */
#include "tests/support/pickle_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)pickle_check(data, size);
    return 0;
}
