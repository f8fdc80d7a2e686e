#include "open/trainer_name.h"

#include <fnmatch.h>
#include <string.h>

#include "base/text.h"
#include "open/state_files.h"
#include "open/step_manifest.h"

/* Beside the weights, in the folder above, or above that. */
static bool has_entry(const fsdpck_checkpoint *c, const char *path, path_kind wanted)
{
    path_kind kind;
    return path_probe(&c->probe.dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == wanted;
}

static bool any_tensor_begins(const fsdpck_checkpoint *c, const char *prefix)
{
    const size_t n = strlen(prefix);
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++)
        if (strncmp(catalogue_name(&c->cat, catalogue_tensor(&c->cat, i)->name), prefix, n) == 0)
            return true;
    return false;
}

static bool any_entry_is(const fsdpck_checkpoint *c, const char *glob)
{
    for (size_t i = 0; i < c->probe.entry_count; i++)
        if (fnmatch(glob, c->probe.entries[i], 0) == 0)
            return true;
    return false;
}

/* NeMo 2: weights/ and context/; verl: dist_ckpt/. */
static const char *trainer_with_megatron(const fsdpck_checkpoint *c)
{
    const char *name = text_file_name(c->probe.path);
    if (strcmp(name, "weights") == 0 && has_entry(c, "../context", PATH_FOLDER))
        return "nemo";
    return strcmp(name, "dist_ckpt") == 0 ? "verl" : c->cat.origin.trainer;
}

static const char *trainer_of_files(const fsdpck_checkpoint *c)
{
    step_manifest m;
    /* transformers' Trainer, also in axolotl, trl and LLaMA-Factory */
    if (has_entry(c, TRAINER_STATE_JSON, PATH_FILE) || has_entry(c, "training_args.bin", PATH_FILE))
        return "transformers";
    if (!c->probe.is_folder)
        return strcmp(c->probe.name, "pytorch_model_fsdp.bin") == 0 ? "accelerate" : "";
    if (step_manifest_read(&c->probe, &m) || any_entry_is(c, "trainer_state_rank_*.pt"))
        return "veomni";
    return has_entry(c, "../recipe_state/recipe_state.pt", PATH_FILE) ? "torchtune" : "";
}

const char *checkpoint_trainer(const fsdpck_checkpoint *c)
{
    while (c->base != NULL)
        c = c->base;
    if (c->cat.origin.is_megatron)
        return trainer_with_megatron(c);
    if (c->cat.origin.trainer[0] != '\0')
        return c->cat.origin.trainer;
    if (any_tensor_begins(c, "state.model.") && any_tensor_begins(c, "state.optimizers."))
        return "composer";
    if (any_tensor_begins(c, "model_state.model."))
        return "slime";
    return trainer_of_files(c);
}
