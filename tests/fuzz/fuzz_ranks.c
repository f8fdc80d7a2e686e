/* Two rank files as one checkpoint: a length (4 bytes, little-endian), the first file, the second.
 * If the length extends past the end there is one file. An accepted input has every chunk inside
 * its file and every box inside its tensor, and all memory is freed. */
#include "base/bytes.h"
#include "formats/pt/pt.h"
#include "statedict/per_rank.h"
#include "tests/fuzz/fuzz_folder_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static const char *const names[] = {"state_rank0.pt", "state_rank1.pt"};

static void remove_scratch(void)
{
    char path[600];
    for (unsigned r = 0; r < 2; r++) {
        path_of(path, sizeof path, names[r]);
        unlink(path);
    }
    rmdir(scratch);
}

static void open_once(probe_input *in, size_t count, per_rank_policy per_rank, bool tp_first)
{
    const per_rank_rule rule = {.policy = per_rank};
    in->entry_count = count;
    open_and_check(&pt_ranks_reader, (open_request){.path = scratch,
                                                    .probe = in,
                                                    .nthreads = 1,
                                                    .expect_ranks = count,
                                                    .copies = per_rank_copies(&rule),
                                                    .assume_tp_first = tp_first});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char *entries[] = {(char *)(uintptr_t)names[0], (char *)(uintptr_t)names[1]};
    probe_input in = {.path = scratch, .is_folder = true, .entries = entries};
    size_t count = 2;

    if (scratch[0] == '\0')
        make_scratch("fuzz_ranks", remove_scratch);
    if (nbytes < 4)
        return 0;
    size_t first = load_le32(data);
    data += 4;
    nbytes -= 4;
    if (first > nbytes) {
        first = nbytes;
        count = 1;
    }
    write_file(names[0], data, first);
    write_file(names[1], data + first, nbytes - first);
    open_once(&in, count, PER_RANK_AUTO, false);
    open_once(&in, count, PER_RANK_KEEP, true);
    return 0;
}
