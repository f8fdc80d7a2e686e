#include "verify/latest_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return *has_files && !has_index;
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

fsdpck_status latest_index_check(const latest_step *list, size_t count, size_t at,
                                 const logger *log, fsdpck_error *err)
{
    probe_input in;
    char index[NAME_NBYTES_MAX] = "";
    if (probe_gather(list[at].path, &in, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const bool lacks = in.is_folder && lacks_index(&in, index);
    const bool has_config = probe_has_entry(&in, "config.json");
    probe_release(&in);
    const latest_step *older = lacks ? older_with(list, count, at, index) : NULL;
    if (older != NULL)
        return FAIL_WITH(
            err, BADINPUT, SAVE_INCOMPLETE,
            ("step lacks '%s', which '%s' contains", index, text_file_name(older->path)),
            (path, list[at].path),
            (expected, "'%s', which is written after the numbered files", index),
            (next, "use an older checkpoint, or copy the file from where it was written"));
    if (lacks && has_config)
        log_warn(log, FSDPCK_FINDING_IDX_NONE,
                 "copy it from where it was written, or write the folder again with: fsdpck "
                 "consolidate DIR OUT",
                 "'%s' lacks '%s': transformers cannot load the numbered files without it",
                 text_file_name(list[at].path), index);
    return FSDPCK_OK;
}
