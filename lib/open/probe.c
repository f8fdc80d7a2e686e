/* probe.c: what a path is, and which reader takes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "io/dead_link.h"
#include "open/checkpoint.h"

void probe_release(probe_input *in)
{
    folder_close(&in->dir);
    free((void *)in->path);
    free(in->entries);
    memset(in, 0, sizeof *in);
    in->dir = FOLDER_CLOSED;
}

static fsdpck_status gather_file(probe_input *in, fsdpck_error *err)
{
    in->name = text_file_name(in->path);
    RETURN_IF(folder_open_parent(&in->dir, in->path, err));
    file f = FILE_CLOSED;
    RETURN_IF(file_open_read(&f, &in->dir, in->name, 0, err));
    in->nbytes = f.nbytes;
    in->head_nbytes = f.nbytes < sizeof in->head ? (size_t)f.nbytes : sizeof in->head;
    const fsdpck_status st = file_read_at(&f, 0, in->head, in->head_nbytes, err);
    file_abandon(&f);
    return st;
}

/* "._NAME" beside NAME: macOS stores attributes there on file systems without them. */
static bool is_of_attributes(const char *name)
{
    return name[0] == '.' && name[1] == '_';
}

fsdpck_status probe_list_entries(probe_input *in, fsdpck_error *err)
{
    size_t kept = 0;
    RETURN_IF(folder_list(&in->dir, ".", &in->entries, &in->entry_count, err));
    for (size_t i = 0; i < in->entry_count; i++)
        if (!is_of_attributes(in->entries[i]))
            in->entries[kept++] = in->entries[i];
    in->entry_count = kept;
    return FSDPCK_OK;
}

/* OWNER/NAME of the Hugging Face Hub, not a typing error in a path: no folder has the first name. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    path_kind kind;
    if (slash == NULL || slash == path || path[0] == '.' || path[0] == '~' || slash[1] == '\0' ||
        strchr(slash + 1, '/') != NULL)
        return false;
    char *owner = strndup(path, (size_t)(slash - path));
    const bool is_absent = owner != NULL &&
                           path_probe(NULL, owner, &kind, NULL, NULL) == FSDPCK_OK &&
                           kind == PATH_ABSENT;
    free(owner);
    return is_absent;
}

fsdpck_status probe_gather(const char *path, probe_input *in, fsdpck_error *err)
{
    memset(in, 0, sizeof *in);
    in->dir = FOLDER_CLOSED;
    path_kind kind;
    if (path[0] == '\0')
        return FAIL_WITH(err, USAGE, NONE, ("checkpoint name is empty"),
                         (next, "give a file or folder; '.' is the current folder"));
    RETURN_IF(path_probe(NULL, path, &kind, NULL, err));
    char link_to[300];
    if (kind == PATH_ABSENT && dead_link_target(NULL, path, link_to, sizeof link_to))
        return FAIL_WITH(err, IO, NONE, ("link to '%s', which does not exist", link_to),
                         (path, path), (sys_errno, ENOENT));
    if (kind == PATH_ABSENT && is_hub_name(path))
        return FAIL_WITH(
            err, IO, NONE, ("no such file or folder"), (path, path), (sys_errno, ENOENT),
            (next,
             "for a model of the Hugging Face Hub, run hf download %s --local-dir DIR, "
             "and give DIR",
             path));
    if (kind == PATH_ABSENT)
        return FAIL_WITH(err, IO, NONE, ("no such file or folder"), (path, path),
                         (sys_errno, ENOENT));
    if (kind == PATH_OTHER)
        return FAIL_WITH(err, BADINPUT, FILE_TYPE, ("neither a regular file nor a folder"),
                         (path, path));
    char *copy = strdup(path);
    if (copy == NULL)
        return error_set_nomem(err, strlen(path));
    size_t n = strlen(copy);
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = '\0';
    in->path = copy;
    in->is_folder = kind == PATH_FOLDER;
    fsdpck_status st;
    if (in->is_folder) {
        st = folder_open(&in->dir, copy, err);
        if (st == FSDPCK_OK)
            st = probe_list_entries(in, err);
    } else {
        st = gather_file(in, err);
    }
    if (st != FSDPCK_OK) {
        error_path(err, path);
        probe_release(in);
    }
    return st;
}

const format_reader *probe_readers(const probe_input *in, const char **near_miss)
{
    for (size_t i = 0; format_readers[i] != NULL; i++) {
        const char *miss = NULL;
        if (format_readers[i]->probe(in, &miss))
            return format_readers[i];
        if (miss != NULL && near_miss != NULL && *near_miss == NULL)
            *near_miss = miss;
    }
    return NULL;
}
