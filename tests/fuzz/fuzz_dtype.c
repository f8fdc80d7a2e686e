/* Conversion and comparison of elements against a scalar reference.
 *
 * Bytes: a dtype, another (the same: comparison), a tolerance, how many elements; then elements. */
#include <stdlib.h>

#include "state/cast.h"
#include "tests/support/dtype_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const double tolerances[] = {0, 1e-6, 0.01, 1, 1e30};
    if (nbytes < 3)
        return 0;
    const dtype from = (dtype)(1 + data[0] % (DTYPE_COUNT - 1));
    const dtype to = (dtype)(1 + data[1] % (DTYPE_COUNT - 1));
    const compare_rule rule = {tolerances[data[2] % 5], tolerances[data[2] / 5 % 5]};
    const size_t itemsize = dtype_get(from)->itemsize_bytes;
    const uint64_t n = (nbytes - 3) / itemsize;
    const uint64_t both = n / 2;
    if (cast_supported(from, to))
        reference_check_cast(from, to, data + 3, n);
    reference_check_compare(from, &rule, data + 3, data + 3 + both * itemsize, both);
    return 0;
}
