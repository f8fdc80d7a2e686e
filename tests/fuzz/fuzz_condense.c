/* Bytes as the opcodes of a `.metadata`, in frames, for two readers: one that has it in memory as a
 * whole, and one that takes chunks and entries out while it reads. What the second one accepts, the
 * first one must read to the same records. The number of bytes chooses the length of the frames. */
#include <stddef.h>
#include <stdint.h>

#include "tests/support/metadata_pair.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const size_t frames[] = {0, 64, 200, 1000};
    text_buf framed = {0};

    metadata_frames(data, nbytes, frames[nbytes & 3], &framed);
    MUST(!framed.failed);
    (void)metadata_pair_equal((const uint8_t *)framed.text, framed.nbytes, 0, 1, (nbytes & 4) != 0);
    text_release(&framed);
    return 0;
}
