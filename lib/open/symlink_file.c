/* Files of Composer, such as 'latest-rank0.symlink'. Object stores have no links. */
#include "open/symlink_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { TEXT_NBYTES_MAX = 4096 };

static bool has_suffix(const char *path)
{
    static const char suffix[] = ".symlink";
    const size_t n = strlen(path);
    return n > sizeof suffix - 1 && strcmp(path + n - (sizeof suffix - 1), suffix) == 0;
}

static bool exists(const char *path)
{
    path_kind kind;
    return path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK &&
           (kind == PATH_FILE || kind == PATH_FOLDER);
}

/* `name` in the folder of the first nbytes of `path`; NULL if it is not there. */
static char *find_in(const char *path, size_t nbytes, const char *name)
{
    char *folder_path = nbytes == 0 ? strdup(".") : strndup(path, nbytes);
    char *found = folder_path == NULL ? NULL : folder_path_join(folder_path, name);
    free(folder_path);
    if (found != NULL && !exists(found)) {
        free(found);
        found = NULL;
    }
    return found;
}

/* The text is the path in the object store: its first name is that of a folder that the file is in, or the copy of
 * the checkpoint lies beside the file. */
static char *find_target(const char *path, const char *text)
{
    const size_t first = strcspn(text, "/");
    size_t end = (size_t)(text_file_name(path) - path);
    char *found = find_in(path, end, text);
    if (found == NULL)
        found = find_in(path, end, text_file_name(text));
    while (found == NULL && text[first] != '\0' && end > 1) {
        size_t begin = --end;
        while (begin > 0 && path[begin - 1] != '/')
            begin--;
        if (end - begin == first && memcmp(path + begin, text, first) == 0)
            found = find_in(path, begin, text);
        end = begin;
    }
    return found;
}

static fsdpck_status fail_target(const char *path, const char *text, fsdpck_error *err)
{
    char shown[512];
    escape_text(shown, sizeof shown, text, strlen(text));
    return FAIL_WITH(err, BADINPUT, LINK_TARGET,
                     ("file names a checkpoint that is not beside it or below a folder above it"),
                     (path, path), (found, "'%s'", shown),
                     (next, "copy that checkpoint from the object store, and give its folder"));
}

/* *named: the checkpoint that a file names, to be freed; NULL: `path` is no such file. */
static fsdpck_status read_target(const char *path, char **named, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes = 0;
    path_kind kind;
    *named = NULL;
    if (!has_suffix(path) || path_probe(NULL, path, &kind, NULL, NULL) != FSDPCK_OK ||
        kind != PATH_FILE)
        return FSDPCK_OK;
    RETURN_IF(file_read_whole(NULL, path, TEXT_NBYTES_MAX, &text, &nbytes, err));
    while (nbytes > 0 && memchr(" \t\r\n", text[nbytes - 1], 4) != NULL)
        text[--nbytes] = '\0';
    if (path_check_inside(text, nbytes, FSDPCK_FINDING_LINK_TARGET, NULL) == FSDPCK_OK)
        *named = find_target(path, text);
    const fsdpck_status st = *named == NULL ? fail_target(path, text, err) : FSDPCK_OK;
    free(text);
    return st;
}

fsdpck_status open_probe_linked(fsdpck_checkpoint *c, const char *path,
                                const fsdpck_open_options *o, fsdpck_error *err)
{
    char *named;
    fsdpck_status st = read_target(path, &named, err);
    if (st == FSDPCK_OK && named != NULL)
        log_write(&c->ctx->log, LOG_NOTE, "'%s' names the checkpoint '%s'", path, named);
    st = open_probe_ranks(c, st, named != NULL ? named : path, o, err);
    free(named);
    return st;
}
