/* The two readers of `.metadata`, the one that has it in memory as a whole and the one that takes chunks
 * and entries out while it reads, over changed inputs: what the second one accepts, the first one reads
 * to the same records.
 *
 *     prop_condense [COUNT [SEED]]      CORPUS: the seeds, tests/corpus/condense
 *
 * The seeds are changed by their structure (mutate_pickle). A changed input that the second reader accepts
 * may take the place of another one that was kept, so that changes add up; seeds stay. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/mutators/mutate.h"
#include "tests/support/metadata_pair.h"
#include "tests/support/must.h"
#include "tests/support/mutate_dice.h"
#include "tests/support/stride.h"

enum { COUNT_DEFAULT = 40000, KEPT = 512, INPUT_NBYTES = 8192 };

typedef struct input {
    size_t nbytes;
    uint8_t bytes[INPUT_NBYTES];
} input;

static input kept[KEPT];
static size_t nseeds, nkept;

static void load_seeds(const char *folder)
{
    struct dirent **entries = NULL;
    const int nentries = scandir(folder, &entries, NULL, alphasort);
    MUST(nentries > 0);
    for (int i = 0; i < nentries; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            FILE *file = fopen(path, "rb");
            MUST(file != NULL && nseeds < KEPT / 2);
            input *in = &kept[nseeds++];
            in->nbytes = fread(in->bytes, 1, sizeof in->bytes, file);
            MUST(fclose(file) == 0);
        }
        free(entries[i]);
    }
    free(entries);
    MUST(nseeds > 0);
    nkept = nseeds;
}

/* Whether both readers took the input. Aborts where they differ. */
static bool check(const input *in)
{
    static const size_t frames[] = {0, 64, 200, 1000};
    text_buf framed = {0};

    metadata_frames(in->bytes, in->nbytes, frames[mutate_dice_below(4)], &framed);
    MUST(!framed.failed);
    const bool taken = metadata_pair_equal((const uint8_t *)framed.text, framed.nbytes, 0, 1,
                                           mutate_dice_below(2) == 0);
    text_release(&framed);
    return taken;
}

int main(int argc, char **argv)
{
    const uint64_t count =
        argc > 1 ? strtoull(argv[1], NULL, 10) : COUNT_DEFAULT / (uint64_t)test_stride();
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const char *corpus = getenv("CORPUS");
    uint64_t ntaken = 0, nchanged = 0;
    static input in;

    MUST(corpus != NULL);
    load_seeds(corpus);
    for (uint64_t i = 0; i < count; i++) {
        mutate_dice_start(seed, i);
        const input *from = &kept[mutate_dice_below(nkept)];
        memcpy(in.bytes, from->bytes, from->nbytes);
        in.nbytes = mutate_input(in.bytes, from->nbytes, sizeof in.bytes,
                                 (unsigned)mutate_dice_below(UINT32_MAX), mutate_pickle);
        const bool changed =
            in.nbytes != from->nbytes || memcmp(in.bytes, from->bytes, in.nbytes) != 0;
        const bool taken = check(&in);
        nchanged += changed;
        ntaken += taken && changed;
        if (taken && changed && nkept < KEPT)
            kept[nkept++] = in;
        else if (taken && changed && mutate_dice_below(8) == 0)
            kept[nseeds + mutate_dice_below(KEPT - nseeds)] = in;
    }
    printf("%" PRIu64 " inputs, %" PRIu64 " changed, %" PRIu64 " of them taken by both readers\n",
           count, nchanged, ntaken);
    /* A property of nothing is none. */
    MUST(ntaken * 50 > count);
    return 0;
}
