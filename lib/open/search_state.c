/* Files of a trainer's state among the checkpoints that a search finds. */
#include "open/search_state.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/checkpoint.h"
#include "open/state_files.h"

/* With the config and the tokenizer. */
#define AUTOMODEL_SIDE_FOLDER ".hf_metadata"

bool trainer_state_has_name(const char *name)
{
    static const char *const globs[] = {"optimizer*.pt",
                                        "optimizer*.bin",
                                        "optimizer*.pth",
                                        "scheduler*.pt",
                                        "scheduler*.bin",
                                        "scaler*.pt",
                                        "sampler*.bin",
                                        "rng_state*.pth",
                                        "random_states_*.pkl",
                                        "training_args.bin",
                                        "common.pt",
                                        "train_state.pt",
                                        "latest_train_state.pt",
                                        "recipe_state.pt",
                                        "trainer_state.pt",
                                        "trainer_state_rank_*.pt",
                                        "training_state.pt",
                                        "client_state.pt",
                                        "extra_state.pt",
                                        "step_scheduler.pt",
                                        "lr_scheduler.pt",
                                        "loss_scaler.pt",
                                        "grad_scaler.pt",
                                        "rng_state*.pt",
                                        "dataloader*.pt",
                                        "dl_state_dict*.bin",
                                        "custom_checkpoint_*.pkl",
                                        "rng.pt",
                                        "meta.pt"};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

bool tokenizer_file_has_name(const char *name)
{
    static const char *const ends[] = {".model",    ".jinja",     ".tiktoken", ".spm",
                                       "vocab.txt", "merges.txt", "vocab.bpe", "bpe.codes"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends_with(name, strlen(name), ends[i]))
            return true;
    return false;
}

/* Zeros are what a crash of the machine leaves. */
const char *tokenizer_file_damage(const folder *dir, const char *name)
{
    enum { HEAD_NBYTES = 4096 };
    uint8_t head[HEAD_NBYTES];
    file f = FILE_CLOSED;
    size_t i = 0;
    if (file_open_read(&f, dir, name, 0, NULL) != FSDPCK_OK)
        return NULL;
    const uint64_t nbytes = f.nbytes;
    const size_t n = nbytes < HEAD_NBYTES ? (size_t)nbytes : HEAD_NBYTES;
    const bool is_read = n > 0 && file_read_at(&f, 0, head, n, NULL) == FSDPCK_OK;
    file_abandon(&f);
    while (is_read && i < n && head[i] == 0)
        i++;
    return nbytes == 0 ? "file is empty" : is_read && i == n ? "file begins with zeros" : NULL;
}

void trainer_state_release(fsdpck_checkpoint *c)
{
    for (size_t i = 0; i < c->state_files.count; i++)
        free(VEC_AT(&c->state_files, found_state_file, i)->path);
    for (size_t i = 0; i < c->other_files.count; i++)
        free(VEC_AT(&c->other_files, found_state_file, i)->path);
    VEC_RELEASE_ALL(&c->state_files, &c->other_files);
}

static bool has_folder(const char *folder_path, const char *name)
{
    path_kind kind;
    text_buf path = {0};
    text_printf(&path, "%s/%s", folder_path, name);
    const bool has = text_check(&path, NULL) == FSDPCK_OK &&
                     path_probe(NULL, path.text, &kind, NULL, NULL) == FSDPCK_OK &&
                     kind == PATH_FOLDER;
    text_release(&path);
    return has;
}

bool trainer_state_is_file(const char *path)
{
    path_kind kind;
    return trainer_state_has_name(text_file_name(path)) &&
           path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

bool trainer_state_is_alone(const char *path)
{
    /* Of VeOmni, of slime, of NeMo Automodel. */
    static const char *const folders[] = {"extra_state", "lr_scheduler", "dataloader", "rng"};
    const char *name = text_file_name(path);
    path_kind kind = PATH_ABSENT;
    if (trainer_state_is_file(path) || TEXT_IS_IN(name, strlen(name), folders))
        return true;
    text_buf beside = {0};
    text_printf(&beside, "%s/../.metadata.json", path);
    const bool is_olmo = strcmp(name, "train") == 0 && text_check(&beside, NULL) == FSDPCK_OK &&
                         path_probe(NULL, beside.text, &kind, NULL, NULL) == FSDPCK_OK &&
                         kind == PATH_FILE;
    text_release(&beside);
    return is_olmo;
}

/* verl with Megatron-Core: model/dist_ckpt/, whose common.pt has the arguments, and the others beside it. */
static bool is_of_verl(const char *weights, const char *path, const char *state)
{
    static const char of_model[] = "model/dist_ckpt";
    const size_t n = strlen(path), k = strlen(state);
    return n >= k && strcmp(path + n - k, state) == 0 && strncmp(weights, path, n - k) == 0 &&
           strcmp(weights + n - k, of_model) == 0;
}

bool search_is_state_folder(const char *weights, const char *path)
{
    const char *name = text_file_name(path);
    const size_t parent_nbytes = (size_t)(name - path);
    if (is_of_verl(weights, path, "optimizer/dist_ckpt") ||
        is_of_verl(weights, path, "extra/dist_ckpt"))
        return true;
    if (strncmp(weights, path, parent_nbytes) != 0 || strcmp(weights, path) == 0)
        return false;
    /* OLMo-core: stepN/model_and_optim/, and a file of each rank's data loader. */
    if (strcmp(weights + parent_nbytes, "model_and_optim") == 0)
        return strcmp(name, "train") == 0;
    /* NeMo Automodel: epoch_E_step_S/model/, and optim/, dataloader/, rng/. */
    return strcmp(weights + parent_nbytes, "model") == 0 &&
           has_folder(weights, AUTOMODEL_SIDE_FOLDER);
}

static bool is_state_folder(const search_result *found, const char *path)
{
    for (size_t i = 0; i < found->count; i++)
        if (search_is_state_folder(found->paths[i], path))
            return true;
    return false;
}

/* The folder of a part that contains this checkpoint is complete. */
static void drop_part(search_result *found, const char *path)
{
    for (size_t i = 0; i < found->part_count;) {
        const size_t n = strlen(found->parts[i]);
        if (strncmp(found->parts[i], path, n) != 0 || (path[n] != '/' && path[n] != '\0')) {
            i++;
            continue;
        }
        free(found->parts[i]);
        found->parts[i] = found->parts[--found->part_count];
    }
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
        if (omitted[i]) {
            drop_part(found, found->paths[i]);
            free(found->paths[i]);
        } else {
            found->paths[kept++] = found->paths[i];
        }
    }
    found->count = kept;
    found->more_state = 0;
}
