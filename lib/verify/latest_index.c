#include "verify/latest_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/checkpoint.h"

enum { NAME_NBYTES_MAX = 256 };

static bool has_file(const char *folder_path, const char *name)
{
    path_kind kind;
    char *path = folder_path_join(folder_path, name);
    const bool has =
        path != NULL && path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
    free(path);
    return has;
}

/* Loaders read the whole model in one file, "model.safetensors" of "model.safetensors.index.json", before numbered files: these
 * are left from another save. */
static bool has_whole(const probe_input *in, const char *index)
{
    char name[NAME_NBYTES_MAX];
    const char *end = strstr(index, ".index.");
    snprintf(name, sizeof name, "%.*s", end == NULL ? 0 : (int)(end - index), index);
    return probe_has_entry(in, name);
}

/* Whether the folder has files with this suffix that need `index`, and no index of such files. */
static bool lacks_index_of(const probe_input *in, const char *suffix, bool *has_files, char *index)
{
    char mark[64];
    bool has_index = false;
    *has_files = false;
    snprintf(mark, sizeof mark, "%s.index.", suffix);
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *entry = in->entries[i];
        has_index = has_index || strstr(entry, mark) != NULL;
        *has_files = *has_files || (text_ends_with(entry, strlen(entry), suffix) &&
                                    format_file_count(entry) > 1 &&
                                    format_index_name(entry, index, NAME_NBYTES_MAX));
    }
    return *has_files && !has_index && !has_whole(in, index);
}

/* Loaders prefer safetensors: files of torch.save beside them need no index. */
static bool lacks_index(const probe_input *in, char *index)
{
    static const char *const suffixes[] = {".safetensors", ".bin"};
    bool has_files = false, lacks = false;
    for (size_t i = 0; !has_files && i < sizeof suffixes / sizeof *suffixes; i++)
        lacks = lacks_index_of(in, suffixes[i], &has_files, index);
    return lacks;
}

static const latest_step *older_with(const latest_step *list, size_t count, size_t at,
                                     const char *index)
{
    for (size_t i = at + 1; i < count; i++)
        if (latest_step_may_count(&list[i]) && has_file(list[i].path, index))
            return &list[i];
    return NULL;
}

/* One that its folder lacks, with the path from the step: of the step, or of a model in a folder inside, such as unet/ of
 * diffusers. */
typedef struct lost_index {
    char path[2 * NAME_NBYTES_MAX];
    bool of_component, has_config;
} lost_index;

enum { COMPONENTS_MAX = 64 };

static bool find_in_component(const char *path, const char *name, lost_index *lost)
{
    probe_input in;
    char index[NAME_NBYTES_MAX] = "";
    char *inside = folder_path_join(path, name);
    bool lacks = false;
    if (inside != NULL && probe_gather(inside, &in, NULL) == FSDPCK_OK) {
        lost->has_config = probe_has_entry(&in, "config.json");
        lacks = in.is_folder && lost->has_config && lacks_index(&in, index);
        probe_release(&in);
    }
    free(inside);
    lost->of_component = lacks;
    return lacks && (size_t)snprintf(lost->path, sizeof lost->path, "%s/%s", name, index) <
                        sizeof lost->path;
}

/* Folders inside that are no other step, no link and not hidden. */
static bool find_in_components(const char *path, const probe_input *in, lost_index *lost)
{
    size_t tried = 0;
    bool lacks = false;
    for (size_t i = 0; i < in->entry_count && !lacks && tried < COMPONENTS_MAX; i++) {
        const char *name = in->entries[i];
        path_kind kind;
        step_name s;
        step_name_read(name, strlen(name), &s);
        if (name[0] == '.' || s.mark != STEP_UNMARKED || step_name_has_word(&s) ||
            path_probe(&in->dir, name, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FOLDER)
            continue;
        tried++;
        lacks = find_in_component(path, name, lost);
    }
    return lacks;
}

static bool find_lost(const char *path, lost_index *lost)
{
    probe_input in;
    *lost = (lost_index){0};
    if (probe_gather(path, &in, NULL) != FSDPCK_OK)
        return false;
    bool lacks = in.is_folder && lacks_index(&in, lost->path);
    lost->has_config = probe_has_entry(&in, "config.json");
    if (in.is_folder && !lacks)
        lacks = find_in_components(path, &in, lost);
    probe_release(&in);
    return lacks;
}

fsdpck_status latest_index_check(const latest_step *list, size_t count, size_t at,
                                 const logger *log, fsdpck_error *err)
{
    lost_index lost;
    if (!find_lost(list[at].path, &lost))
        return FSDPCK_OK;
    const latest_step *older = older_with(list, count, at, lost.path);
    if (older != NULL)
        return FAIL_WITH(
            err, BADINPUT, SAVE_INCOMPLETE,
            ("step lacks '%s', which '%s' contains", lost.path, text_file_name(older->path)),
            (path, list[at].path),
            (expected, "'%s', which is written after the numbered files", lost.path),
            (next, "use an older checkpoint, or copy the file from where it was written"));
    if (lost.has_config)
        log_warn(log, FSDPCK_FINDING_IDX_NONE,
                 "copy it from where it was written, or write the folder again with: fsdpck "
                 "consolidate DIR OUT",
                 "'%s' lacks '%s': %s cannot load the numbered files without it",
                 text_file_name(list[at].path), lost.path,
                 lost.of_component ? "the model's library" : "transformers");
    return FSDPCK_OK;
}
