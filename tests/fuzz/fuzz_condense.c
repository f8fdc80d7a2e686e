/* Bytes as the opcodes of a `.metadata`, in frames, for two readers: one that has it in memory as a
 * whole, and one that takes chunks and entries out while it reads. What the second one accepts, the
 * first one must read to the same records. The number of bytes chooses the length of the frames, and large inputs
 * are read in small blocks by two threads, several times, because threads meet in different orders. */
#include <stddef.h>
#include <stdint.h>

#include "tests/support/metadata_pair.h"
#include "tests/support/must.h"

enum { LARGE_NBYTES = 40000, FRAME_NBYTES = 5000, BLOCK_NBYTES = 11000, TIMES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const size_t frames[] = {0, 64, 200, 1000};
    const bool is_large = nbytes >= LARGE_NBYTES;
    text_buf framed = {0};

    metadata_frames(data, nbytes, is_large ? FRAME_NBYTES : frames[nbytes & 3], &framed);
    MUST(!framed.failed);
    for (unsigned i = 0; i < (is_large ? TIMES : 1u); i++)
        (void)metadata_pair_equal((const uint8_t *)framed.text, framed.nbytes,
                                  is_large ? BLOCK_NBYTES : 0, is_large ? 2 : 1, (nbytes & 4) != 0);
    text_release(&framed);
    return 0;
}
