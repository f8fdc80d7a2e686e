/* dcp_origin.c: infers the writer from the marks of releases and trainers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp_internal.h"

/* Last component but `skip` of a path, into `name`; empty if none. */
static void component(const char *path, unsigned skip, char *name, size_t capacity_bytes)
{
    size_t end = strlen(path), begin;
    for (;;) {
        while (end > 0 && path[end - 1] == '/')
            end--;
        for (begin = end; begin > 0 && path[begin - 1] != '/'; begin--)
            continue;
        if (skip-- == 0)
            break;
        end = begin;
    }
    snprintf(name, capacity_bytes, "%.*s", (int)(end - begin < 255 ? end - begin : 255),
             path + begin);
}

/* "step-100", "global_step_100", "iter_0000100", "checkpoint-100" and the like; otherwise -1. */
static int64_t step_of(const char *name)
{
    static const char *const prefixes[] = {"step-", "step_",       "global_step_", "global_step",
                                           "iter_", "checkpoint-", "checkpoint_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) != 0 || name[n] < '0' || name[n] > '9' ||
            strlen(name) > n + 18)
            continue;
        char *end;
        const long long step = strtoll(name + n, &end, 10);
        if (*end == '\0')
            return step;
    }
    return -1;
}

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

static const char *guess_trainer(const catalogue *cat, const open_request *req, const dcp_marks *m,
                                 const char *folder_name)
{
    if (m->has_mcore_data ||
        (probe_has_entry(req->probe, "metadata.json") && probe_has_entry(req->probe, "common.pt")))
        return "megatron";
    if (probe_has_entry(req->probe, "meta.pt"))
        return "lightning";
    if (m->in_parts || strncmp(folder_name, "pytorch_model_fsdp_", 19) == 0)
        return "accelerate";
    if (strncmp(folder_name, "step-", 5) == 0 && any_name_begins(cat, "optimizer.") &&
        any_name_begins(cat, "train_state"))
        return "torchtitan";
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
    char name[256], parent[256];

    component(req->path, 0, name, sizeof name);
    component(req->path, 1, parent, sizeof parent);
    snprintf(o->format, sizeof o->format, "dcp");
    snprintf(o->trainer, sizeof o->trainer, "%s", guess_trainer(cat, req, marks, name));
    snprintf(o->torch_version, sizeof o->torch_version, "%s", guess_torch(marks));
    o->world_size = marks->world_size;
    o->in_parts = marks->in_parts;
    o->omits_empty_dicts = true;
    o->by_rank = marks->no_collectives;
    o->step = step_of(name);
    if (o->step < 0)
        o->step = step_of(parent);
}
