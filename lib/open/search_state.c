/* Files of a trainer's state among the checkpoints that a search finds. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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

/* OLMo-core: stepN/model_and_optim/, and stepN/train/ with a file of each rank's data loader. */
static bool is_state_folder(const search_result *found, const char *path)
{
    static const char state[] = "train", weights[] = "model_and_optim";
    const char *name = text_file_name(path);
    const size_t parent_nbytes = (size_t)(name - path);
    for (size_t i = 0; strcmp(name, state) == 0 && i < found->count; i++)
        if (strncmp(found->paths[i], path, parent_nbytes) == 0 &&
            strcmp(found->paths[i] + parent_nbytes, weights) == 0)
            return true;
    return false;
}

void search_omit_state(search_result *found)
{
    bool omitted[SEARCH_RESULTS_MAX] = {false};
    size_t kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        omitted[i] =
            trainer_state_is_file(found->paths[i]) || is_state_folder(found, found->paths[i]);
        kept += !omitted[i];
    }
    if (kept == 0)
        return;
    kept = 0;
    for (size_t i = 0; i < found->count; i++) {
        if (omitted[i])
            free(found->paths[i]);
        else
            found->paths[kept++] = found->paths[i];
    }
    found->count = kept;
    found->more_state = 0;
}
