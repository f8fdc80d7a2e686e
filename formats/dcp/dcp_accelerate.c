#include "formats/dcp/dcp_accelerate.h"

#include <string.h>

static const struct {
    const char *key;
    const char *family; /* of folders; the number of the model follows */
    const char *folder;
} parts[DCP_PART_COUNT] = {
    {"model", "pytorch_model_fsdp_", "pytorch_model_fsdp_0"},
    {"optimizer", "optimizer_", "optimizer_0"},
};

const char *dcp_part_folder(uint32_t part)
{
    return parts[part].folder;
}

uint32_t dcp_part_of(const char *name)
{
    uint32_t part = 0;
    for (; part < DCP_PART_COUNT; part++) {
        const size_t n = strlen(parts[part].key);
        if (strncmp(name, parts[part].key, n) == 0 && (name[n] == '.' || name[n] == '\0'))
            break;
    }
    return part;
}

static bool holds_metadata(const probe_input *in, const char *folder_name)
{
    char path[280];
    const size_t n = strlen(folder_name);
    path_kind kind;

    if (n > 255)
        return false;
    memcpy(path, folder_name, n);
    memcpy(path + n, "/.metadata", sizeof "/.metadata");
    return path_probe(&in->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

/* "optimizer_1", a folder. */
static bool is_of_other_model(const probe_input *in, const char *name, const char *family)
{
    const char *digits = name + strlen(family);
    path_kind kind;

    return digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0' &&
           strcmp(digits, "0") != 0 && path_probe(&in->dir, name, &kind, NULL, NULL) == FSDPCK_OK &&
           kind == PATH_FOLDER;
}

bool dcp_parts_probe(const probe_input *in)
{
    bool has_model = false;

    for (size_t i = 0; i < in->entry_count; i++) {
        const char *name = in->entries[i];
        for (uint32_t p = 0; p < DCP_PART_COUNT; p++) {
            if (strncmp(name, parts[p].family, strlen(parts[p].family)) != 0)
                continue;
            if (is_of_other_model(in, name, parts[p].family))
                return false;
            if (!holds_metadata(in, name))
                continue;
            if (strcmp(name, parts[p].folder) != 0)
                return false;
            has_model = has_model || p == 0;
        }
    }
    return has_model;
}

bool dcp_parts_needed(const target *t)
{
    const catalogue *cat = &t->cat;

    if (!cat->origin.in_parts)
        return false;
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const cat_tensor *tensor = catalogue_tensor(cat, i);
        if (!(tensor->flags & CAT_TENSOR_IN_OBJECT) &&
            dcp_part_of(catalogue_name(cat, tensor->name)) == DCP_PART_COUNT)
            return false;
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        if (dcp_part_of(catalogue_name(cat, catalogue_object(cat, i)->name)) == DCP_PART_COUNT)
            return false;
    return true;
}
