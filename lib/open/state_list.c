#include "open/state_list.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/state_files.h"

/* Files of a folder inside that of the step. */
typedef struct folder_row {
    const char *folder, *glob;
    const char *beside; /* an entry of the step that must be there too; NULL: none */
    bool is_of_dim;     /* of the ranks of one dim of the mesh, not of each process */
} folder_row;

static const folder_row rows[] = {
    {"train", "rank*.pt", "model_and_optim", false}, /* OLMo-core */
    /* VeOmni: extra_state_rank_R.pt, rank_R.pt */
    {"extra_state", "*rank_*.pt", NULL, false},
    {"loader", "rank_*.pt", "model", false},
    {"model", "lr_scheduler.pt", "extra_state", false},
    /* NeMo Automodel */
    {"rng", "rng_dp_rank_*.pt", "model", true},
    {"dataloader", "dataloader_dp_rank_*.pt", "model", true},
};
#define ROWS (sizeof rows / sizeof *rows)

static bool applies(const probe_input *in, const folder_row *row)
{
    path_kind kind;
    return probe_has_entry(in, row->folder) &&
           (row->beside == NULL || probe_has_entry(in, row->beside)) &&
           path_probe(&in->dir, row->folder, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

static fsdpck_status add_below(const probe_input *in, const folder_row *row, strtab *names,
                               fsdpck_error *err)
{
    char **entries = NULL;
    size_t count = 0;
    uint32_t id;
    /* An unreadable folder is reported as such. */
    if (folder_list(&in->dir, row->folder, &entries, &count, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        if (fnmatch(row->glob, entries[i], 0) != 0)
            continue;
        char *path = folder_path_join(row->folder, entries[i]);
        st = path == NULL ? error_set_nomem(err, strlen(entries[i]))
                          : strtab_intern(names, path, strlen(path), &id, err);
        free(path);
    }
    free(entries);
    return st;
}

fsdpck_status state_list_read(const probe_input *in, strtab *names, fsdpck_error *err)
{
    uint32_t id;
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++)
        if (trainer_state_has_name(in->entries[i]))
            RETURN_IF(strtab_intern(names, in->entries[i], strlen(in->entries[i]), &id, err));
    for (size_t i = 0; in->is_folder && i < ROWS; i++)
        if (applies(in, &rows[i]))
            RETURN_IF(add_below(in, &rows[i], names, err));
    return FSDPCK_OK;
}

static const folder_row *find_row(const probe_input *in, const char *name)
{
    for (size_t i = 0; in->is_folder && i < ROWS; i++)
        if (strcmp(rows[i].folder, name) == 0 && applies(in, &rows[i]))
            return &rows[i];
    return NULL;
}

bool state_list_has_folder(const probe_input *in, const char *name)
{
    const folder_row *row = find_row(in, name);
    char **entries = NULL;
    size_t count = 0, listed = 0, others = 0;
    if (row == NULL || folder_list(&in->dir, name, &entries, &count, NULL) != FSDPCK_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        const bool is_listed = fnmatch(row->glob, entries[i], 0) == 0;
        listed += is_listed;
        others += !is_listed;
    }
    free(entries);
    return listed > 0 && others == 0;
}

const char *state_list_folder(const probe_input *in, size_t i, bool *of_each_process)
{
    for (size_t k = 0; k < ROWS; k++)
        if (state_list_has_folder(in, rows[k].folder) && i-- == 0) {
            *of_each_process = !rows[k].is_of_dim;
            return rows[k].folder;
        }
    return NULL;
}
