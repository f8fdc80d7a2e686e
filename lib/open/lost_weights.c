/* A folder whose model is lost, while something else in it can be read: a value head, a model of its own in a folder
 * inside, the optimizer's state. Whoever gives that file or folder itself wants it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/weight_role.h"
#include "open/checkpoint.h"
#include "open/lost_beside.h"
#include "open/model_config.h"
#include "open/search_state.h"
#include "open/state_files.h"
#include "open/step_numbers.h"
#include "open/weights_names.h"

/* Of a trainer's state, in messages. */
#define FILES_NAMED 4u

static bool is_of_part(const fsdpck_checkpoint *c, size_t tensor, checkpoint_part part)
{
    return tensor < c->parts.tensor_count && c->parts.tensor_part[tensor] == part;
}

/* "model.layers.0.mlp.up_proj.weight" */
static bool has_number(const char *name)
{
    while (name != NULL) {
        const size_t n = strspn(name, "0123456789");
        if (n > 0 && (name[n] == '.' || name[n] == '\0'))
            return true;
        name = strchr(name, '.');
        name = name == NULL ? NULL : name + 1;
    }
    return false;
}

/* Whether a tensor has the sizes of the embedding that config.json describes; rows may be padded. */
static bool has_embedding(const fsdpck_checkpoint *c, const model_config *config)
{
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const uint64_t *shape = catalogue_shape(&c->cat, i);
        if (is_of_part(c, i, PART_MODEL) && catalogue_tensor(&c->cat, i)->ndim == 2 &&
            shape[0] >= (uint64_t)config->numbers[MODEL_VOCAB_SIZE] &&
            shape[1] == (uint64_t)config->numbers[MODEL_HIDDEN_SIZE])
            return true;
    }
    return false;
}

/* LLaVA's "model.mm_projector.0.weight", which has its own file beside adapters and in steps of the first stage. */
static bool is_projector(const char *name)
{
    return strstr(name, "mm_projector.") != NULL || strstr(name, "vision_resampler.") != NULL;
}

static bool has_projector(const fsdpck_checkpoint *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (is_projector(catalogue_name(&c->cat, catalogue_tensor(&c->cat, i)->name)))
            return true;
    return false;
}

/* Whether a tensor may be of the model that config.json describes: an embedding, one of numbered layers, or the
 * parameters of a unit. */
static bool has_model(const fsdpck_checkpoint *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const char *name = catalogue_name(&c->cat, catalogue_tensor(&c->cat, i)->name);
        if (is_of_part(c, i, PART_MODEL) && !is_projector(name) &&
            (weight_role_of(name) == WEIGHT_TABLE || has_number(name) ||
             strstr(name, "flat_param") != NULL))
            return true;
    }
    return false;
}

/* Where a model is that is read in a folder inside of the one that was given. */
typedef enum inner_place {
    PLACE_NONE,
    PLACE_PART,
    PLACE_MODEL, /* a part with its own config: the model of the folder around if its sizes are the same */
    PLACE_STEP,
    PLACE_OTHER
} inner_place;

/* A folder with the name of a part. Averages and critics with their own config are beside a model that has its own. */
static inner_place find_part(const fsdpck_checkpoint *c, const char *name)
{
    const bool has_own = c->probe.is_folder && (probe_has_entry(&c->probe, "config.json") ||
                                                probe_has_entry(&c->probe, "adapter_config.json"));
    return !has_own ? PLACE_PART : search_is_part_beside_model(name) ? PLACE_OTHER : PLACE_MODEL;
}

/* Sharded formats are what a trainer writes below the folder with config.json; so are folders with names of parts. */
static inner_place find_inner(const fsdpck_checkpoint *c)
{
    char first[256];
    const char *inside =
        c->entered_from == NULL ? NULL : checkpoint_path_below(c->probe.path, c->entered_from);
    const size_t n = inside == NULL ? 0 : strcspn(inside, "/");
    if (n == 0 || n >= sizeof first || (inside[n] == '\0' && !c->probe.is_folder) ||
        (c->probe.is_folder && !c->format->of_model))
        return PLACE_NONE;
    memcpy(first, inside, n);
    first[n] = '\0';
    return search_is_part_name(first)     ? find_part(c, first)
           : nested_folder_is_step(first) ? PLACE_STEP
                                          : PLACE_OTHER;
}

static bool is_elsewhere(const fsdpck_checkpoint *c)
{
    const inner_place where = find_inner(c);
    return where == PLACE_OTHER || where == PLACE_MODEL;
}

static fsdpck_status fail_lost(const fsdpck_checkpoint *c, const char *given, const char *what,
                               fsdpck_error *err)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    const size_t tensors = catalogue_tensor_count(&c->cat);
    text_buf other = {0};
    text_printf(&other, "%s", c->probe.path);
    if (c->probe.is_folder && c->entered_from == NULL && catalogue_file_count(read) > 0) {
        const char *first = catalogue_name(read, catalogue_file(read, 0)->path);
        const size_t n = c->cat.origin.part_folders > 0 /* a file of them is no checkpoint */
                             ? strlen(first) - strlen(text_file_name(first))
                             : 0;
        text_printf(&other, "/%.*s", (int)(n > 0 ? n - 1 : strlen(first)), first);
    }
    fsdpck_status st = text_check(&other, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, BADINPUT, WEIGHTS_LOST, ("%s", what), (path, given),
                       (found, "%zu tensor%s in '%s'", tensors, text_plural(tensors), other.text),
                       (next,
                        "copy the files of the model from where they were saved; to read '%s' "
                        "as it is, give its path",
                        other.text));
    text_release(&other);
    return st;
}

/* A draft, a reference or the best model of the same sizes cannot be distinguished from the model that the folder had, and
 * a step that the Trainer of transformers saved before is another model. */
static void warn_elsewhere(const fsdpck_checkpoint *c, const char *given, const char *config)
{
    log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_LOST,
             "copy them from where they were saved, or give the path of the other ones",
             "'%s' has %s, but its weights are those of '%s': the folder's own may be lost", given,
             config, c->probe.path);
}

/* ---- adapters ---- */

static bool has_adapter_file(const fsdpck_checkpoint *c)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    static const char word[] = "adapter_model";
    if (!c->probe.is_folder && text_begins(text_file_name(c->probe.path), word))
        return true;
    for (size_t i = 0; i < catalogue_file_count(read); i++)
        if (text_begins(
                text_file_name(catalogue_name(read, catalogue_file(read, (uint32_t)i)->path)),
                word))
            return true;
    return false;
}

static bool has_table(const fsdpck_checkpoint *c)
{
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (weight_role_of(catalogue_name(&c->cat, catalogue_tensor(&c->cat, i)->name)) ==
            WEIGHT_TABLE)
            return true;
    return false;
}

/* Whether adapter_config.json is that of LoRA. An unreadable one is reported where it is needed. */
static bool is_of_lora(const fsdpck_checkpoint *c)
{
    adapter_source from;
    lora_config config = {0};
    const bool is = adapter_source_find(c, NULL, false, NULL, &from, NULL) == FSDPCK_OK &&
                    from.text != NULL &&
                    lora_config_read(from.text, from.nbytes, NULL, &config, NULL) == FSDPCK_OK;
    lora_config_release(&config);
    adapter_source_release(&from);
    return is;
}

/* The folder has PEFT's adapter_config.json: an adapter, or a model into which it was merged. Others are a value head,
 * LLaVA's non_lora_trainables.bin, a second adapter in a folder inside, a model under the name of the adapter. */
static fsdpck_status check_adapter(const fsdpck_checkpoint *c, const char *given, fsdpck_error *err)
{
    const bool is_whole_model = !c->probe.is_folder || c->format->of_model;
    const bool is_likely = adapters_are_likely(&c->cat), has_file = has_adapter_file(c);
    const bool is_here = is_likely || (has_file ? !is_of_lora(c) : has_table(c));
    if (!is_whole_model || (is_here && !is_elsewhere(c)))
        return FSDPCK_OK;
    return fail_lost(
        c, given, "the folder has no weights of the adapter that its adapter_config.json describes",
        err);
}

/* ---- models ---- */

static const char optimizer_word[] = "optim";

/* Of transformers: a language model, which has an embedding and layers. */
static fsdpck_status check_config(const fsdpck_checkpoint *c, const char *given, fsdpck_error *err)
{
    folder dir = FOLDER_CLOSED;
    model_config config = {0};
    path_kind kind = PATH_ABSENT;
    bool has_config = false, fits = false, is_adapter = false;
    RETURN_IF(folder_open(&dir, given, err));
    /* An unreadable one is reported where it is needed. */
    if (path_probe(&dir, "adapter_config.json", &kind, NULL, NULL) == FSDPCK_OK)
        is_adapter = kind == PATH_FILE;
    if (!is_adapter && model_config_read(&dir, &config, NULL) == FSDPCK_OK) {
        has_config = config.numbers[MODEL_HIDDEN_SIZE] > 0 &&
                     config.numbers[MODEL_VOCAB_SIZE] > 0 &&
                     !(config.has_only_projector && has_projector(c));
        fits = has_config && has_embedding(c, &config);
    }
    model_config_release(&config);
    folder_close(&dir);
    const inner_place where = find_inner(c);
    if (is_adapter && where == PLACE_STEP)
        warn_elsewhere(c, given, "an adapter_config.json");
    if (is_adapter)
        return check_adapter(c, given, err);
    if (fits && (where == PLACE_OTHER || where == PLACE_STEP))
        warn_elsewhere(c, given, "a config.json");
    const bool lost =
        has_config && !fits &&
        (is_elsewhere(c) || ((!c->probe.is_folder || c->format->of_model) && !has_model(c)));
    return lost ? fail_lost(c, given,
                            "the folder has no weights of the model that its config.json describes",
                            err)
                : FSDPCK_OK;
}

/* accelerate's optimizer_0_rank0.bin, verl's optim_world_size_8_rank_0.pt: all files are of the optimizer, or of verl's
 * third part. A folder that fsdpck wrote has its manifest. *third: the latter are there. */
static bool has_family_of_optimizer(const fsdpck_checkpoint *c, bool *third)
{
    static const char of_verl[] = "extra_state_world_size_";
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    size_t of_optimizer = 0, of_third = 0;
    if (c->format->id != FSDPCK_FORMAT_PT_RANKS ||
        probe_has_entry(&c->probe, "fsdpck-manifest.json") ||
        read->origin.rank_pattern[0] != '\0') /* as the user asked */
        return false;
    for (size_t i = 0; i < catalogue_file_count(read); i++) {
        const char *name = catalogue_name(read, catalogue_file(read, (uint32_t)i)->path);
        of_optimizer += text_begins(name, optimizer_word);
        of_third += text_begins(name, of_verl);
    }
    *third = of_third > 0;
    for (size_t i = 0; i < c->probe.entry_count; i++)
        if (checkpoint_is_weights_name(c->probe.entries[i]) &&
            !catalogue_has_file(read, c->probe.entries[i]))
            return false; /* "model.pt" beside them, which other_weights.c names */
    return of_optimizer > 0 && of_optimizer + of_third == catalogue_file_count(read) &&
           !text_begins(text_file_name(c->probe.path), optimizer_word);
}

/* Found in the folder that was given, by a name of optimizers, and without any other part. */
static bool is_optimizer_alone(const fsdpck_checkpoint *c)
{
    const size_t count = catalogue_tensor_count(&c->cat);
    if (c->entered_from == NULL || count == 0 ||
        !text_begins(text_file_name(c->probe.path), optimizer_word))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_of_part(c, i, PART_OPTIMIZER))
            return false;
    return true;
}

/* Found in the folder that was given, such as 'scheduler.bin', and without floating-point tensors that may be weights. */
static bool is_state_alone(const fsdpck_checkpoint *c)
{
    if (c->entered_from == NULL || !trainer_state_is_alone(c->probe.path))
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        if (t->ndim > 0 && dtype_get((dtype)t->dtype)->kind == DTYPE_IS_FLOAT)
            return false;
    }
    return true;
}

/* A folder with one folder for each part, accelerate's pytorch_model_fsdp_0 and optimizer_0: the first has no model. */
static bool has_parts_without_model(const fsdpck_checkpoint *c)
{
    bool has_optimizer = false;
    for (size_t i = 0; c->cat.origin.part_folders > 0 && i < catalogue_tensor_count(&c->cat); i++) {
        if (is_of_part(c, i, PART_MODEL))
            return false;
        has_optimizer = has_optimizer || is_of_part(c, i, PART_OPTIMIZER);
    }
    return has_optimizer;
}

void checkpoint_warn_lost(const fsdpck_checkpoint *c, checkpoint_open_fn open)
{
    static const char next[] =
        "copy the files of the model from where they were saved, if they are missing";
    bool third = false;
    if (c->remote_files != NULL)
        return;
    if (is_optimizer_alone(c))
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_LOST, next,
                 "'%s' has the state of the optimizer, but no model", c->entered_from);
    else if (is_state_alone(c))
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_LOST, next,
                 "'%s' has a trainer's state ('%s'), but no weights", c->entered_from,
                 text_file_name(c->probe.path));
    else if (has_parts_without_model(c))
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_LOST, next,
                 "'%s' has the state of the optimizer, but no model", c->path);
    else if (has_family_of_optimizer(c, &third))
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_LOST, next,
                 "'%s' has files of the optimizer%s, but none of the model", c->path,
                 third ? " and of further state" : "");
    lost_beside_warn(c, has_adapter_file(c), open);
    step_numbers_warn_mixed(c);
}

bool search_has_state_only(const search_result *found)
{
    /* NeMo Automodel: optim/ beside model/ */
    for (size_t i = 0; i < found->count; i++)
        if (!trainer_state_is_alone(found->paths[i]) &&
            (found->count == 1 || strcmp(text_file_name(found->paths[i]), "optim") != 0))
            return false;
    return found->count > 0 && found->more == 0;
}

fsdpck_status search_fail_state_only(const search_result *found, const char *path,
                                     fsdpck_error *err)
{
    text_buf list = {0};
    for (size_t i = 0; i < found->count && i < FILES_NAMED; i++)
        text_printf(&list, "%s'%s'", i == 0 ? "" : ", ", text_file_name(found->paths[i]));
    FAIL_WITH(err, BADINPUT, WEIGHTS_LOST,
              ("folder contains a trainer's state (%s%s), but no weights",
               list.text != NULL ? list.text : "",
               found->count > FILES_NAMED || found->more_state > 0 ? ", ..." : ""),
              (path, path),
              (next, "copy the files of the model from where they were saved, or use another "
                     "checkpoint; to read one of these files, give its path"));
    text_release(&list);
    return FSDPCK_BADINPUT;
}

fsdpck_status checkpoint_check_lost(const fsdpck_checkpoint *c, bool optimizer, fsdpck_error *err)
{
    for (; c->base != NULL && c->average == NULL; c = c->base)
        for (size_t i = 0; i < c->beside_count; i++)
            if (c->beside[i] != NULL)
                RETURN_IF(checkpoint_check_lost(c->beside[i], false, err));
    for (size_t i = 0; c->average != NULL && i < c->input_count; i++)
        RETURN_IF(checkpoint_check_lost(c->inputs[i], optimizer, err));
    const char *given = c->entered_from != NULL ? c->entered_from : c->path;
    if (c->base != NULL || c->remote_files != NULL)
        return FSDPCK_OK;
    if (optimizer && (is_optimizer_alone(c) || has_parts_without_model(c)))
        return fail_lost(c, given, "the folder has the state of the optimizer, but no model", err);
    if (optimizer && is_state_alone(c))
        return fail_lost(c, given, "the folder has a trainer's state, but no weights", err);
    if (catalogue_tensor_count(&c->cat) == 0 || (c->entered_from == NULL && !c->probe.is_folder))
        return FSDPCK_OK;
    return check_config(c, given, err);
}

void checkpoint_warn_lost_whole(const fsdpck_checkpoint *c)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (checkpoint_check_lost(c, false, &what) != FSDPCK_OK)
        log_warn(&c->ctx->log, what.finding, what.next, "'%s': %s", what.path, what.message);
}
