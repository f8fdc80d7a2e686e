/* Files of a trainer's state among the checkpoints that a search finds. */
#include <fnmatch.h>
#include <stdlib.h>

#include "base/text.h"
#include "open/checkpoint.h"

bool trainer_state_has_name(const char *name)
{
    static const char *const globs[] = {"optimizer*.pt",    "optimizer*.bin", "optimizer*.pth",
                                        "scheduler*.pt",    "scheduler*.bin", "scaler*.pt",
                                        "sampler*.bin",     "rng_state*.pth", "random_states_*.pkl",
                                        "training_args.bin"};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

bool trainer_state_is_file(const char *path)
{
    path_kind kind;
    return trainer_state_has_name(text_file_name(path)) &&
           path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

void search_omit_state(search_result *found)
{
    size_t kept = 0;
    for (size_t i = 0; i < found->count; i++)
        kept += !trainer_state_is_file(found->paths[i]);
    if (kept == 0)
        return;
    kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        if (trainer_state_is_file(found->paths[i]))
            free(found->paths[i]);
        else
            found->paths[kept++] = found->paths[i];
    }
    found->count = kept;
    found->more_state = 0;
}
