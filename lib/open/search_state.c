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

/* Without its numbers, which may be NaN: Python writes it. */
static bool is_whole_object(const char *text, size_t nbytes)
{
    size_t depth = 0, i = 0;
    bool in_string = false;
    while (i < nbytes && strchr(" \t\r\n", text[i]) != NULL && text[i] != '\0')
        i++;
    if (i == nbytes || text[i] != '{')
        return false;
    for (; i < nbytes; i++) {
        const char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return true;
    }
    return false;
}

fsdpck_status trainer_state_read_json(const probe_input *in, char **text, size_t *nbytes,
                                      fsdpck_error *err)
{
    RETURN_IF(file_read_whole(&in->dir, TRAINER_STATE_JSON, TRAINER_STATE_JSON_NBYTES, text, nbytes,
                              err));
    if (is_whole_object(*text, *nbytes))
        return FSDPCK_OK;
    const bool is_empty = *nbytes == 0;
    free(*text);
    *text = NULL;
    return FAIL(err, BADINPUT, NONE, "%s",
                is_empty ? "file is empty: the save did not end"
                         : "JSON has no end: the file was truncated, or the save did not end");
}

void trainer_state_release(fsdpck_checkpoint *c)
{
    for (size_t i = 0; i < c->state_files.count; i++)
        free(VEC_AT(&c->state_files, found_state_file, i)->path);
    vec_release(&c->state_files);
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
