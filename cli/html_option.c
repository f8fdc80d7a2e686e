#include "html_option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path_names.h"
#include "opt.h"
#include "overwrite_check.h"
#include "report.h"
#include "report_page.h"

/* NULL: no memory. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
}

/* Whether a folder belongs to a checkpoint: it is below `path`, and below the checkpoint inside it that is read instead, if
 * there is one. A folder that cannot be opened counts whole. */
static bool is_part_of(const char *folder, const char *path, char *where, size_t capacity)
{
    fsdpck_checkpoint *ckpt = NULL;
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    if (path == NULL || !overwrite_is_inside(folder, path))
        return false;
    fsdpck_context *alone = fsdpck_context_new();
    bool is = true;
    if (alone != NULL && fsdpck_open(alone, path, NULL, &ckpt, NULL) == FSDPCK_OK) {
        fsdpck_get_info(ckpt, &info);
        is = overwrite_is_inside(folder, info.path);
        path = info.entered ? info.path : path;
    }
    fsdpck_escape(where, capacity, path, strlen(path));
    fsdpck_close(ckpt);
    fsdpck_context_free(alone);
    return is;
}

static int report_unwritable(const cli *c, const char *path)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    err.status = FSDPCK_IO;
    err.sys_errno = errno;
    report_set_path(&err, path);
    snprintf(err.message, sizeof err.message, "cannot create the page: %s", strerror(errno));
    snprintf(err.next, sizeof err.next, "give --html a file in a folder that can be written");
    return report_failure(c, NULL, &err);
}

/* Before any work: the command would first write the other file, or has to read it. */
static int check_name(const cli *c, const char *path, const char *const *checkpoints, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (checkpoints[i] != NULL && path_is_one_name(path, checkpoints[i]))
            return opt_usage_error_next(c, "give --html a different name",
                                        "--html: '%s' is also a file that the command reads or "
                                        "writes",
                                        path);
    return -1;
}

/* There, it would be a foreign file of the checkpoint. */
static int check_folder(const cli *c, const char *path, const char *const *checkpoints,
                        size_t count)
{
    char *folder = folder_of(path), where[250], next[300];
    int code = -1;
    if (folder == NULL)
        return report_no_memory(c);
    for (size_t i = 0; code < 0 && i < count; i++)
        if (is_part_of(folder, checkpoints[i], where, sizeof where)) {
            snprintf(next, sizeof next, "give --html a file outside of '%s'", where);
            code = opt_usage_error_next(c, next, "--html: '%s' is inside the checkpoint", path);
        }
    if (code < 0 && access(folder, W_OK) != 0)
        code = report_unwritable(c, path);
    free(folder);
    return code;
}

int html_option_start(cli *c, const char *path, const char *const *checkpoints, size_t count)
{
    if (path == NULL)
        return -1;
    if (c->json)
        return opt_usage_error_next(c, "omit one of them",
                                    "--html and --json contradict each other");
    if (path[0] == '\0' || strcmp(path, "-") == 0)
        return opt_usage_error_next(c, "give a name: --html report.html",
                                    "--html: '%s' is not a name for a page", path);
    const bool writes = fsdpck_context_rank(c->ctx) == 0;
    if (writes && !report_page_is_free(path))
        return opt_usage_error_next(
            c, "give another name, or remove the file",
            "--html: '%s' exists and is not a page of fsdpck: it is not replaced", path);
    int unusable = writes ? check_name(c, path, checkpoints, count) : -1;
    if (writes && unusable < 0)
        unusable = check_folder(c, path, checkpoints, count);
    if (unusable >= 0)
        return unusable;
    c->json = true;
    if (writes) {
        c->page->path = path;
        c->page->quiet = c->quiet;
    }
    return -1;
}

bool html_option_wants_verdict(const cli *c)
{
    return c->page->path != NULL && !c->quiet;
}
