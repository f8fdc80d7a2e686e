#include "overwrite_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path_names.h"
#include "report.h"

bool overwrite_is_inside(const char *path, const char *other)
{
    char *real = realpath(path, NULL);
    const bool is = path_is_within(real, other);
    free(real);
    return is;
}

static fsdpck_status check(const command_request *r, const char *dst, fsdpck_error *err)
{
    const struct {
        const char *path, *option;
    } read[] = {{r->open.model_path, "--model"},  {r->open.map, "--map"},
                {r->open.map_config, "--config"}, {r->given->like, "--like"},
                {r->given->base, "--like"},       {r->given->tp_plan, "--tp-plan"},
                {r->given->check, "--check"}};
    const char *written[] = {dst, r->job.output.manifest_path};
    for (size_t i = 0; i < sizeof read / sizeof read[0]; i++)
        for (size_t k = 0; k < 2; k++) {
            if (read[i].path == NULL || written[k] == NULL ||
                !overwrite_is_inside(read[i].path, written[k]))
                continue;
            err->status = FSDPCK_USAGE;
            report_set_path(err, written[k]);
            struct stat found;
            const bool is_folder = stat(read[i].path, &found) == 0 && S_ISDIR(found.st_mode);
            snprintf(err->message, sizeof err->message, "%s would replace the %s of %s",
                     k == 0 ? "output" : "manifest", is_folder ? "folder" : "file", read[i].option);
            snprintf(err->next, sizeof err->next, "choose a different name");
            return FSDPCK_USAGE;
        }
    return FSDPCK_OK;
}

fsdpck_status overwrite_check(const cli *c, const command_request *r, const char *dst,
                              fsdpck_error *err)
{
    const bool first = fsdpck_context_rank(c->ctx) == 0;
    return fsdpck_context_agree(c->ctx, first ? check(r, dst, err) : FSDPCK_OK, err);
}
