#include "formats/dcp/dcp_part_folders.h"

#include <stdio.h>
#include <string.h>

static const dcp_part_folders forms[] = {
    {.trainer = "accelerate",
     .numbered = {"pytorch_model_fsdp_", "optimizer_"},
     .parts = {{"model", "pytorch_model_fsdp_0"}, {"optimizer", "optimizer_0"}},
     .required = 1,
     .is_written = true},
    {.trainer = "veomni",
     .parts = {{"model", "model/ckpt"}, {"optimizer", "model/optimizer"}},
     .required = 2},
    {.trainer = "slime",
     .parts = {{"model_state", "model"},
               {"optim_state", "optimizer"},
               {"lr_scheduler_state", "lr_scheduler"}},
     .required = 2,
     .is_written = true},
    /* NeMo Automodel without safetensors, and composer.checkpoint: the model has no outer key. */
    {.trainer = "", .parts = {{"", "model"}, {"optim", "optim"}}, .required = 2},
};
#define FORMS (sizeof forms / sizeof *forms)

const dcp_part_folders *dcp_part_folders_get(unsigned number)
{
    return &forms[number - 1];
}

unsigned dcp_part_count(const dcp_part_folders *f)
{
    unsigned count = 0;
    while (count < DCP_PARTS_MAX && f->parts[count].key != NULL)
        count++;
    return count;
}

uint32_t dcp_part_of(const dcp_part_folders *f, const char *name)
{
    for (uint32_t part = 0; part < dcp_part_count(f); part++) {
        const char *key = f->parts[part].key;
        const size_t n = strlen(key);
        if (strncmp(name, key, n) == 0 && (name[n] == '.' || name[n] == '\0'))
            return part;
    }
    return DCP_PARTS_MAX;
}

static bool has_file(const probe_input *in, const char *folder_name, const char *name)
{
    char path[280];
    path_kind kind;
    if (strlen(folder_name) > 255)
        return false;
    snprintf(path, sizeof path, "%s/%s", folder_name, name);
    return path_probe(&in->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

static bool has_metadata(const probe_input *in, const char *folder_name)
{
    return has_file(in, folder_name, ".metadata");
}

/* Whether its hidden file was lost, or not written. A reader then reports it. */
static bool is_cut(const probe_input *in, const char *folder_name)
{
    return has_file(in, folder_name, "__0_0.distcp") && !has_file(in, folder_name, "__0.metadata");
}

/* "optimizer_1", a folder. */
static bool is_of_other_model(const probe_input *in, const char *name, const char *numbered)
{
    const char *digits = name + strlen(numbered);
    path_kind kind;

    return digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0' &&
           strcmp(digits, "0") != 0 && path_probe(&in->dir, name, &kind, NULL, NULL) == FSDPCK_OK &&
           kind == PATH_FOLDER;
}

/* Whether the folder is that of another model, or one of another name with a checkpoint in it. */
static bool is_foreign(const probe_input *in, const dcp_part_folders *f, const char *name)
{
    for (unsigned p = 0; p < DCP_PARTS_MAX && f->numbered[p] != NULL; p++) {
        if (strncmp(name, f->numbered[p], strlen(f->numbered[p])) == 0 &&
            (is_of_other_model(in, name, f->numbered[p]) ||
             (strcmp(name, f->parts[p].folder) != 0 && has_metadata(in, name))))
            return true;
    }
    return false;
}

static bool has_form(const probe_input *in, const dcp_part_folders *f)
{
    for (unsigned p = 0; p < f->required; p++)
        if (!has_metadata(in, f->parts[p].folder) &&
            !(f->numbered[p] != NULL && is_cut(in, f->parts[p].folder)))
            return false;
    for (size_t i = 0; i < in->entry_count; i++)
        if (is_foreign(in, f, in->entries[i]))
            return false;
    return true;
}

unsigned dcp_part_folders_probe(const probe_input *in)
{
    for (unsigned i = 0; i < FORMS; i++)
        if (has_form(in, &forms[i]))
            return i + 1;
    return 0;
}

const dcp_part_folders *dcp_part_folders_of(const target *t)
{
    const catalogue *cat = &t->cat;
    if (cat->origin.part_folders == 0)
        return NULL;
    const dcp_part_folders *f = dcp_part_folders_get(cat->origin.part_folders);
    if (!f->is_written)
        return NULL;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *tensor = catalogue_tensor(cat, i);
        if (!(tensor->flags & CAT_TENSOR_IN_OBJECT) &&
            dcp_part_of(f, catalogue_name(cat, tensor->name)) == DCP_PARTS_MAX)
            return NULL;
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        if (dcp_part_of(f, catalogue_name(cat, catalogue_object(cat, i)->name)) == DCP_PARTS_MAX)
            return NULL;
    return f;
}
