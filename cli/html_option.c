#include "html_option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opt.h"
#include "report.h"
#include "report_page.h"

static bool is_in_writable_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return access(".", W_OK) == 0;
    char *folder = strndup(path, (size_t)(slash - path) + 1);
    const bool can = folder != NULL && access(folder, W_OK) == 0;
    free(folder);
    return can;
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

int html_option_start(cli *c, const char *path)
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
    if (writes && !is_in_writable_folder(path))
        return report_unwritable(c, path);
    c->json = true;
    if (writes) {
        c->page->path = path;
        c->page->quiet = c->quiet;
    }
    return -1;
}
