/* dcp_origin.c: infers the writer from the marks of releases and trainers. */
#include <stdio.h>
#include <string.h>

#include "formats/common/step_folder.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_part_folders.h"

static bool any_name_begins(const catalogue *cat, const char *prefix)
{
    const size_t n = strlen(prefix);
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        if (strncmp(catalogue_name(cat, catalogue_tensor(cat, i)->name), prefix, n) == 0)
            return true;
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        if (strncmp(catalogue_name(cat, catalogue_object(cat, i)->name), prefix, n) == 0)
            return true;
    return false;
}

static bool is_file(const probe_input *in, const char *path)
{
    path_kind kind;
    return path_probe(&in->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

/* Folders of general names are a trainer's only with its keys. */
static const char *trainer_of_folders(const catalogue *cat, const probe_input *in,
                                      const dcp_marks *m)
{
    const dcp_part_folders *f = dcp_part_folders_get(m->part_folders);
    if (f->trainer[0] == '\0')
        return probe_has_entry(in, "composer_metadata.json") ? "composer"
               : any_name_begins(cat, "optim.")              ? "automodel"
                                                             : "";
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        if (dcp_part_of(f, catalogue_name(cat, catalogue_tensor(cat, i)->name)) == DCP_PARTS_MAX)
            return "";
    return f->trainer;
}

static bool is_megatron(const catalogue *cat, const open_request *req, const dcp_marks *m)
{
    return m->has_mcore_data || any_name_begins(cat, "common_state/shard_0_1") ||
           (probe_has_entry(req->probe, "metadata.json") &&
            probe_has_entry(req->probe, "common.pt"));
}

static const char *guess_trainer(const catalogue *cat, const open_request *req, const dcp_marks *m,
                                 const char *folder_name)
{
    if (cat->origin.is_megatron)
        return "megatron";
    if (probe_has_entry(req->probe, "meta.pt"))
        return "lightning";
    if (m->part_folders > 0)
        return trainer_of_folders(cat, req->probe, m);
    if (strncmp(folder_name, "pytorch_model_fsdp_", 19) == 0)
        return "accelerate";
    if (strncmp(folder_name, "step-", 5) == 0 && any_name_begins(cat, "optimizer.") &&
        any_name_begins(cat, "train_state"))
        return "torchtitan";
    if (any_name_begins(cat, "state.model.") && any_name_begins(cat, "state.optimizers."))
        return "composer";
    if (strcmp(folder_name, "model_and_optim") == 0 && is_file(req->probe, "../.metadata.json"))
        return "olmo-core";
    if (is_file(req->probe, "extra_state/extra_state_rank_0.pt"))
        return "veomni";
    if (strncmp(folder_name, "dist_epoch", 10) == 0)
        return "torchtune";
    return m->is_by_fsdpck ? "fsdpck" : "";
}

/* Output of fsdpck has the marks of no release: it uses old forms that all releases read. */
static const char *guess_torch(const dcp_marks *m)
{
    if (m->is_by_fsdpck)
        return "";
    if (m->has_six_properties)
        return "2.15 or newer";
    if (m->has_version)
        return m->has_tensors ? "2.9 to 2.14" : "2.9 or newer";
    if (m->no_collectives)
        return "2.9 or newer";
    if (m->has_modules)
        return "2.7 or 2.8";
    if (m->has_transforms)
        return "2.7 or newer";
    if (m->has_storage_meta)
        return "2.4 to 2.6";
    if (m->old_package)
        return "1.13";
    if (!m->has_tensors)
        return "";
    if (!m->old_properties)
        return "2.3 or newer";
    return m->has_planner ? "2.0 to 2.2" : "2.2 or older";
}

void dcp_origin_fill(catalogue *cat, const open_request *req, const dcp_marks *marks)
{
    cat_origin *o = &cat->origin;
    char name[256];

    path_component(req->path, 0, name, sizeof name);
    snprintf(o->format, sizeof o->format, "dcp");
    o->is_megatron = is_megatron(cat, req, marks);
    snprintf(o->trainer, sizeof o->trainer, "%s", guess_trainer(cat, req, marks, name));
    snprintf(o->torch_version, sizeof o->torch_version, "%s", guess_torch(marks));
    o->world_size = marks->world_size;
    o->part_folders = marks->part_folders;
    o->omits_empty_dicts = true;
    o->by_rank = marks->no_collectives;
    o->ranks_unknown = marks->no_collectives && req->expect_ranks == 0;
    o->step = step_of_folder(req->path);
    if (strcmp(name, "dist_ckpt") == 0 && /* verl */
        is_file(req->probe, "../../optimizer/dist_ckpt/.metadata"))
        snprintf(o->note, sizeof o->note,
                 "the optimizer is in '../../optimizer/dist_ckpt', a checkpoint of its own");
}
