/* Files of a trainer's state among the checkpoints that a search finds. */
#include "open/search_state.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "open/checkpoint.h"
#include "open/model_config.h"
#include "open/state_files.h"
#include "open/step_manifest.h"

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

/* After the first object; 0: it does not end. Without its numbers, which may be NaN: Python writes it. is_list: it may be a
 * list, after a byte order mark. */
static size_t json_end(const char *text, size_t nbytes, bool is_list)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t depth = 0, i = is_list && strncmp(text, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
    bool in_string = false;
    while (i < nbytes && strchr(" \t\r\n", text[i]) != NULL && text[i] != '\0')
        i++;
    if (i == nbytes || (text[i] != '{' && !(is_list && text[i] == '[')))
        return 0;
    for (; i < nbytes; i++) {
        const char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return i + 1;
    }
    return 0;
}

bool json_text_has_end(const char *text, size_t nbytes)
{
    return json_end(text, nbytes, true) > 0;
}

bool trainer_state_is_json(const char *name)
{
    static const char *const names[] = {TRAINER_STATE_JSON, "adapter_config.json", STEP_MANIFEST};
    return TEXT_IS_IN(name, strlen(name), names);
}

bool model_json_has_name(const char *name)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "preprocessor_config.json",
                                        "processor_config.json"};
    return TEXT_IS_IN(name, strlen(name), names);
}

static bool has_member(const char *text, size_t nbytes, const char *name)
{
    json_reader r;
    json_token t;
    bool has = false;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    fsdpck_status st = json_next(&r, &t, NULL);
    while (st == FSDPCK_OK && !has && (st = json_next(&r, &t, NULL)) == FSDPCK_OK &&
           t.kind == JSON_KEY) {
        has = json_is(&t, name);
        st = json_next(&r, &t, NULL);
        if (st == FSDPCK_OK)
            st = json_skip(&r, &t, NULL);
    }
    json_reader_release(&r);
    return has || st != FSDPCK_OK;
}

/* What all writers of such a file put into it. Of names that others use too, only where it is another known file. */
static const char *lacks_member(const char *name, const char *text, size_t nbytes)
{
    static const struct {
        const char *name, *member, *damage;
        bool is_only;
    } rows[] = {
        {TRAINER_STATE_JSON, "global_step", "it has no global_step: it is another file", true},
        {"adapter_config.json", "peft_type", "it has no peft_type: it is another file", false},
        {"tokenizer.json", "model", "it has no model of a tokenizer: it is another file", false},
    };
    static const char *const others[] = {"architectures", "tokenizer_class", "weight_map",
                                         "transformers_version"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(name, rows[i].name) != 0 || has_member(text, nbytes, rows[i].member))
            continue;
        bool is_other = rows[i].is_only;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            is_other = is_other || has_member(text, nbytes, others[k]);
        return is_other ? rows[i].damage : NULL;
    }
    return NULL;
}

/* Files that were exchanged: transformers writes the model's type into each config.json, and sizes of layers into no
 * other file. */
static const char *exchange_damage(const char *name, const char *text, size_t nbytes)
{
    model_config config;
    const char *damage = NULL;
    const bool is_config = strcmp(name, "config.json") == 0;
    const char *lacking = lacks_member(name, text, nbytes);
    if (lacking != NULL)
        return lacking;
    if (!is_config && strcmp(name, "generation_config.json") != 0)
        return NULL;
    if (model_config_read_text(text, nbytes, &config, NULL) != FSDPCK_OK) {
        model_config_release(&config);
        return NULL;
    }
    const bool has_sizes = config.number_keys[MODEL_HIDDEN_SIZE] != NULL ||
                           config.number_keys[MODEL_HIDDEN_LAYERS] != NULL;
    if (config.has_weight_map)
        damage = "it is an index of weights";
    else if (is_config && config.has_version && !config.has_model_type && !has_sizes)
        damage = "it has no model_type: it is another file, such as generation_config.json";
    else if (!is_config && config.has_model_type && has_sizes)
        damage = "it has the sizes of a model: it is a config.json";
    model_config_release(&config);
    return damage;
}

/* Python's json refuses text after the end, as of a longer file that was there before. Settings are an object. */
static const char *json_damage(const char *name, const char *text, size_t nbytes)
{
    size_t end = json_end(text, nbytes, model_json_has_name(name));
    if (nbytes == 0)
        return "file is empty: the save did not end";
    if (end == 0)
        return "JSON has no end: the file was truncated, or the save did not end";
    while (end < nbytes && memchr(" \t\r\n", text[end], 4) != NULL)
        end++;
    if (end < nbytes)
        return "JSON has text after its end: the file was longer, or was written twice";
    return text_ends_with(name, strlen(name), "config.json") && text[strspn(text, " \t\r\n")] == '['
               ? "JSON is a list, not an object"
               : exchange_damage(name, text, nbytes);
}

fsdpck_status trainer_state_read_json(const probe_input *in, const char *name, char **text,
                                      size_t *nbytes, fsdpck_error *err)
{
    RETURN_IF(file_read_whole(&in->dir, name, TRAINER_STATE_JSON_NBYTES, text, nbytes, err));
    const char *why = json_damage(name, *text, *nbytes);
    if (why == NULL)
        return FSDPCK_OK;
    free(*text);
    *text = NULL;
    return FAIL(err, BADINPUT, NONE, "%s", why);
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
