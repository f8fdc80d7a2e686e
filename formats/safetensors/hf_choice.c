#include "formats/safetensors/hf_choice.h"

#include <string.h>

#include "formats/safetensors/hf_shadow.h"

#define INDEX_SUFFIX ".safetensors.index.json"

bool hf_choice_is_index(const char *name)
{
    const size_t n = strlen(name);
    const size_t m = strlen(INDEX_SUFFIX);
    return n > m && strcmp(name + n - m, INDEX_SUFFIX) == 0;
}

bool hf_choice_is_variant(const char *name)
{
    static const char before[] = ".safetensors.index.", after[] = ".json";
    const char *at = strstr(name, before);
    const size_t n = strlen(name), m = sizeof after - 1;
    return at != NULL && at > name && !hf_choice_is_index(name) && n > m &&
           strcmp(name + n - m, after) == 0 && name + n - m > at + sizeof before - 1;
}

#define SUFFIX                ".safetensors"
#define DIFFUSERS_SINGLE_FILE "diffusion_pytorch_model" SUFFIX

bool hf_choice_is_variant_of(const char *name, const char *single)
{
    const size_t n = strlen(name), m = strlen(single), suffix = strlen(SUFFIX);
    if (m <= suffix || n <= m + 1 || strcmp(name + n - suffix, SUFFIX) != 0 ||
        strncmp(name, single, m - suffix + 1) != 0)
        return false;
    return strcspn(name + m - suffix + 1, "-.") == n - m - 1; /* numbered ones need their index */
}

/* The whole model in one file, which loaders read without a variant's name: `model.safetensors` of transformers, that of
 * diffusers, or the file beside the index of a variant of it. NULL: none. */
static const char *find_single_file(const probe_input *in)
{
    if (probe_has_entry(in, HF_SINGLE_FILE))
        return HF_SINGLE_FILE;
    if (probe_has_entry(in, DIFFUSERS_SINGLE_FILE))
        return DIFFUSERS_SINGLE_FILE;
    for (size_t i = 0; i < in->entry_count; i++) {
        if (!hf_choice_is_variant(in->entries[i]))
            continue;
        const size_t n = (size_t)(strstr(in->entries[i], ".index.") - in->entries[i]);
        for (size_t k = 0; k < in->entry_count; k++)
            if (strncmp(in->entries[k], in->entries[i], n) == 0 && in->entries[k][n] == '\0')
                return in->entries[k];
    }
    return NULL;
}

/* The index of a variant, if the folder has no other index and no whole model in one file. */
static fsdpck_status choose_variant(const probe_input *in, const char **name, fsdpck_error *err)
{
    const char *first = NULL;
    for (size_t i = 0; find_single_file(in) == NULL && i < in->entry_count; i++) {
        if (!hf_choice_is_variant(in->entries[i]))
            continue;
        if (first != NULL)
            return FAIL_WITH(err, BADINPUT, IDX_JSON, ("folder has indexes of several variants"),
                             (path, in->path), (expected, "the index of one variant"),
                             (found, "'%s' and '%s'", first, in->entries[i]),
                             (next, "move each variant (index and files) to a folder of its own"));
        first = in->entries[i];
    }
    *name = first;
    return FSDPCK_OK;
}

fsdpck_status hf_choice_index(const probe_input *in, const char **name, fsdpck_error *err)
{
    static const char usual[] = "model" INDEX_SUFFIX;
    size_t count = 0;
    *name = NULL;
    for (size_t i = 0; i < in->entry_count; i++) {
        if (!hf_choice_is_index(in->entries[i]))
            continue;
        count++;
        *name = in->entries[i];
        if (strcmp(*name, usual) == 0)
            return FSDPCK_OK;
    }
    if (count == 0)
        return choose_variant(in, name, err);
    if (count == 1)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, IDX_JSON, ("folder has several indexes"), (path, in->path),
                     (expected, "one index, or one with the name '%s'", usual));
}

static bool same_family(const hf_choice *c, const char *name, const shard_name *parts)
{
    return shard_name_same_set(name, parts, c->family, &c->family_parts);
}

void hf_choice_survey(const probe_input *in, hf_choice *c)
{
    *c = (hf_choice){.alone = find_single_file(in)};
    for (size_t i = 0; i < in->entry_count; i++) {
        shard_name parts;
        c->has_visible = c->has_visible ||
                         (in->entries[i][0] != '.' && shard_name_is_safetensors(in->entries[i]));
        if (!shard_name_parse(in->entries[i], &parts))
            continue;
        if (c->families > 0 && (same_family(c, in->entries[i], &parts) ||
                                (parts.is_variant && !c->family_parts.is_variant)))
            continue;
        /* A variant is read only if no other files are numbered. */
        c->other = c->family;
        c->families = !parts.is_variant && c->families > 0 && c->family_parts.is_variant
                          ? 1
                          : c->families + 1;
        c->family = in->entries[i];
        c->family_parts = parts;
    }
}

bool hf_choice_has(const hf_choice *c, const char *name)
{
    shard_name parts;
    if (!shard_name_is_safetensors(name))
        return false;
    if (c->alone != NULL)
        return strcmp(name, c->alone) == 0;
    if (c->families == 1)
        return shard_name_parse(name, &parts) && same_family(c, name, &parts);
    return name[0] != '.' || !c->has_visible;
}
