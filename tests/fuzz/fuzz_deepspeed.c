/* A folder of DeepSpeed on two ranks: a byte (its kind), then files, each after its length (4 bytes, little-endian), in
 * the order of `names`. A length that extends past the end ends the folder. An accepted input has every chunk inside its
 * file and every box inside its tensor, the elements of a tensor fit its chunks, and all memory is freed. */
#include "base/bytes.h"
#include "formats/deepspeed/deepspeed.h"
#include "tests/fuzz/fuzz_folder_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { FILES = 9, KINDS = 3, UNIVERSAL = 2 };

static const char *const folders[] = {"zero", "zero/a", "zero/b", "zero/buffer"};
/* ZeRO 1 and 2, ZeRO 3, a universal checkpoint. */
static const char *const names[KINDS][FILES] = {
    {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
     "zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_2_mp_rank_00_optim_states.pt"},
    {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
     "zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt"},
    {"mp_rank_00_model_states.pt", "zero/optimizer_state.pt", "zero/a/fp32.pt", "zero/a/exp_avg.pt",
     "zero/a/step.pt", "zero/b/fp32.pt", "zero/b/exp_avg.pt", "zero/b/step.pt",
     "zero/buffer/fp32.pt"}};

static void remove_files(void)
{
    char path[600];
    for (unsigned k = 0; k < KINDS; k++)
        for (unsigned i = 0; i < FILES && names[k][i] != NULL; i++) {
            path_of(path, sizeof path, names[k][i]);
            unlink(path);
        }
}

static void remove_scratch(void)
{
    char path[600];
    remove_files();
    for (unsigned i = sizeof folders / sizeof *folders; i-- > 0;) {
        path_of(path, sizeof path, folders[i]);
        rmdir(path);
    }
    rmdir(scratch);
}

static void open_once(const format_reader *reader, const probe_input *in, bool opaque)
{
    open_and_check(
        reader,
        (open_request){.path = scratch, .probe = in, .nthreads = 1, .opaque_calls = opaque});
}

static void make_folders(void)
{
    make_scratch("fuzz_deepspeed", remove_scratch);
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[600];
        path_of(path, sizeof path, folders[i]);
        if (mkdir(path, 0700) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char *entries[FILES];
    probe_input in = {.path = scratch, .is_folder = true, .entries = entries};

    if (scratch[0] == '\0')
        make_folders();
    if (nbytes < 1)
        return 0;
    const unsigned kind = data[0] % KINDS;
    const format_reader *reader =
        kind == UNIVERSAL ? &deepspeed_universal_reader : &deepspeed_reader;
    data++;
    nbytes--;
    remove_files();
    while (in.entry_count < FILES && names[kind][in.entry_count] != NULL && nbytes >= 4) {
        const size_t length = load_le32(data);
        const char *name = names[kind][in.entry_count];
        data += 4;
        nbytes -= 4;
        if (length > nbytes)
            break;
        write_file(name, data, length);
        entries[in.entry_count++] = (char *)(uintptr_t)name;
        data += length;
        nbytes -= length;
    }
    in.dir = FOLDER_CLOSED;
    open_once(reader, &in, false);
    open_once(reader, &in, true);
    return 0;
}
