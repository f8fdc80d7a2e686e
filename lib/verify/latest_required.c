#include "verify/latest_required.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/megatron_config.h"
#include "open/step_manifest.h"
#include "verify/trainer_state.h"

static fsdpck_status fail_lacks(const char *path, const char *what, const char *name,
                                fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, SAVE_INCOMPLETE, ("%s lacks '%s'", what, name), (path, path),
                     (expected, "'%s', without which the step is not loaded", name),
                     (next, "use an older checkpoint, or copy the file from where it was written"));
}

/* ---- Lightning ---- */

/* "optimizer_0.state.weight.exp_avg" */
static bool is_numbered_optimizer(const char *name)
{
    static const char word[] = "optimizer_";
    const char *digits = name + sizeof word - 1;
    if (strncmp(name, word, sizeof word - 1) != 0)
        return false;
    const size_t n = strspn(digits, "0123456789");
    return n > 0 && (digits[n] == '.' || digits[n] == '\0');
}

/* Whether it is of the model or of an optimizer. *is_certain: under a key that only Lightning uses. */
static bool has_lightning_key(const char *name, bool *is_certain)
{
    const bool is_its = text_has_key(name, "state_dict") || is_numbered_optimizer(name);
    *is_certain = *is_certain || is_its;
    return is_its || text_has_key(name, "model");
}

/* FSDPStrategy and ModelParallelStrategy of Lightning: 'epoch=1-step=7.ckpt', a folder of DCP. */
static bool is_of_lightning(const fsdpck_checkpoint *c)
{
    static const char suffix[] = ".ckpt";
    const char *path = c->probe.path;
    size_t n = strlen(path);
    bool is_certain = false;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (!c->probe.is_folder || c->format->id != FSDPCK_FORMAT_DCP || n < sizeof suffix ||
        memcmp(path + n - (sizeof suffix - 1), suffix, sizeof suffix - 1) != 0)
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (!has_lightning_key(catalogue_name(&c->cat, catalogue_tensor(&c->cat, i)->name),
                               &is_certain))
            return false;
    for (size_t i = 0; i < catalogue_object_count(&c->cat); i++)
        if (!has_lightning_key(catalogue_name(&c->cat, catalogue_object(&c->cat, i)->name),
                               &is_certain))
            return false;
    return is_certain;
}

static fsdpck_status check_lightning(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    return is_of_lightning(c) && !probe_has_entry(&c->probe, LIGHTNING_STATE)
               ? fail_lacks(c->probe.path, "folder of Lightning", LIGHTNING_STATE, err)
               : FSDPCK_OK;
}

/* ---- Megatron-Core ---- */

static const char of_megatron[] = "folder of Megatron-Core";

static bool may_be_megatron(const fsdpck_checkpoint *c)
{
    return c->probe.is_folder && c->format->id == FSDPCK_FORMAT_DCP && c->remote_files == NULL;
}

/* Releases since 0.19 write no common.pt, but an object of this content. */
static bool has_common(fsdpck_checkpoint *c)
{
    fsdpck_megatron m = FSDPCK_INIT(fsdpck_megatron);
    return fsdpck_get_megatron(c, &m) != 0;
}

static fsdpck_status check_common(fsdpck_checkpoint *c, fsdpck_error *err)
{
    return may_be_megatron(c) && megatron_config_read(&c->probe) == MEGATRON_CONFIG_OK &&
                   !has_common(c)
               ? fail_lacks(c->probe.path, of_megatron, "common.pt", err)
               : FSDPCK_OK;
}

static fsdpck_status check_megatron(fsdpck_checkpoint *c, fsdpck_error *err)
{
    if (!may_be_megatron(c))
        return FSDPCK_OK;
    const megatron_config_state config = megatron_config_read(&c->probe);
    if (config == MEGATRON_CONFIG_OK || (!c->cat.origin.is_megatron && !has_common(c)))
        return check_common(c, err);
    if (config == MEGATRON_CONFIG_ABSENT)
        return fail_lacks(c->probe.path, of_megatron, MEGATRON_CONFIG_FILE, err);
    return FAIL_WITH(
        err, BADINPUT, SAVE_INCOMPLETE,
        ("'%s' of Megatron-Core does not name its format", MEGATRON_CONFIG_FILE),
        (path, c->probe.path), (expected, "a JSON object with sharded_backend"),
        (next, "use an older checkpoint, or copy the file from another one of the same release"));
}

/* ---- OLMo-core ---- */

/* stepN/train/, stepN/model_and_optim/ and, after both, stepN/.metadata.json, without which its Checkpointer does not
 * find the step. */
static fsdpck_status check_olmo(const probe_input *in, fsdpck_error *err)
{
    static const char last[] = ".metadata.json";
    path_kind kind;
    if (!in->is_folder || !probe_has_entry(in, "model_and_optim") ||
        !probe_has_entry(in, "train") || probe_has_entry(in, last) ||
        path_probe(&in->dir, "train", &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FOLDER)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, SAVE_INCOMPLETE, ("step of OLMo-core lacks '%s'", last), (path, in->path),
        (expected, "'%s', which is written last; the step is not found without it", last),
        (next, "use an older checkpoint, or copy the file from where it was written"));
}

/* ---- VeOmni ---- */

static bool is_folder(const probe_input *in, const char *path)
{
    path_kind kind;
    return path_probe(&in->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

/* global_step_N/model/ckpt/, extra_state/ and, after the files of all ranks, the manifest, without which VeOmni does
 * not take the step for a checkpoint. */
static fsdpck_status check_veomni(const probe_input *in, fsdpck_error *err)
{
    return in->is_folder && !probe_has_entry(in, STEP_MANIFEST) && is_folder(in, "model/ckpt") &&
                   is_folder(in, "extra_state")
               ? fail_lacks(in->path, "step of VeOmni", STEP_MANIFEST, err)
               : FSDPCK_OK;
}

/* ---- Trainer of transformers ---- */

/* "checkpoint-500" */
static bool is_step_name(const char *path)
{
    static const char word[] = "checkpoint-";
    const char *name = text_file_name(path);
    if (!text_begins(name, word))
        return false;
    name += sizeof word - 1;
    const size_t n = strspn(name, "0123456789");
    return n > 0 && name[n + strspn(name + n, "/")] == '\0';
}

static bool has_entry_from(const probe_input *in, const char *first)
{
    bool has = false;
    for (size_t i = 0; !has && i < in->entry_count; i++)
        has = text_begins(in->entries[i], first);
    return has;
}

/* training_args.bin, optimizer.pt, scheduler.pt, rng_state.pth and, after them, trainer_state.json, which resuming reads. The
 * first is not written beside shards of FSDP; accelerate alone has other names for state. A model that was exported at the
 * end of the training has only the first, under another name than that of a step. */
static bool is_of_trainer(const probe_input *in)
{
    const bool is_step = is_step_name(in->path),
               has_scheduler = probe_has_entry(in, "scheduler.pt");
    if (!in->is_folder)
        return false;
    if (probe_has_entry(in, "training_args.bin"))
        return is_step || has_scheduler || probe_has_entry(in, "optimizer.pt");
    return is_step && has_scheduler && has_entry_from(in, "rng_state") &&
           has_entry_from(in, "pytorch_model_fsdp");
}

static fsdpck_status check_trainer(const probe_input *in, fsdpck_error *err)
{
    static const char last[] = "trainer_state.json";
    if (!is_of_trainer(in) || probe_has_entry(in, last))
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, SAVE_INCOMPLETE, ("step of transformers lacks '%s'", last), (path, in->path),
        (expected, "'%s', which is written last; the step is not loaded without it", last),
        (next, "use an older checkpoint, or copy the file from where it was written; to "
               "accept a step without it, give latest --allow-missing-state"));
}

/* The step is the folder around a file or folder of the weights alone, such as pytorch_model_fsdp.bin. */
static fsdpck_status check_trainer_around(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    const char *name = text_file_name(c->probe.path);
    probe_input around;
    if (c->entered_from == NULL || name - c->probe.path < 2)
        return FSDPCK_OK;
    char *path = strndup(c->probe.path, (size_t)(name - c->probe.path) - 1);
    const bool is_open = path != NULL && probe_gather(path, &around, NULL) == FSDPCK_OK;
    free(path);
    if (!is_open)
        return FSDPCK_OK;
    const fsdpck_status st = check_trainer(&around, err);
    probe_release(&around);
    return st;
}

/* ---- PEFT ---- */

fsdpck_status latest_required_check_adapter(const probe_input *in, fsdpck_error *err)
{
    static const char config[] = "adapter_config.json";
    return in->is_folder && !probe_has_entry(in, config) &&
                   (probe_has_entry(in, "adapter_model.safetensors") ||
                    probe_has_entry(in, "adapter_model.bin"))
               ? fail_lacks(in->path, "folder of an adapter", config, err)
               : FSDPCK_OK;
}

/* ---- all ---- */

fsdpck_status latest_required_check_folder(const probe_input *in, bool without_state,
                                           fsdpck_error *err)
{
    RETURN_IF(latest_required_check_adapter(in, err));
    if (!without_state)
        RETURN_IF(check_trainer(in, err));
    RETURN_IF(check_veomni(in, err));
    return check_olmo(in, err);
}

fsdpck_status latest_required_check_beside(fsdpck_checkpoint *c, fsdpck_error *err)
{
    probe_input above;
    RETURN_IF(check_lightning(c, err));
    RETURN_IF(check_common(c, err));
    RETURN_IF(latest_required_check_adapter(&c->probe, err));
    RETURN_IF(check_trainer(&c->probe, err));
    RETURN_IF(check_trainer_around(c, err));
    RETURN_IF(check_veomni(&c->probe, err));
    if (c->entered_from == NULL || probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const fsdpck_status st = check_olmo(&above, err);
    probe_release(&above);
    return st;
}

fsdpck_status latest_required_check(fsdpck_checkpoint *c, bool without_state, fsdpck_error *err)
{
    RETURN_IF(check_lightning(c, err));
    RETURN_IF(check_megatron(c, err));
    return latest_required_check_folder(&c->probe, without_state, err);
}
