#include "open/side_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

char *side_folder_above(const fsdpck_checkpoint *c)
{
    if (c->entered_from == NULL || c->remote_files != NULL ||
        (c->probe.is_folder && c->format->of_model))
        return NULL;
    if (c->probe.is_folder)
        return strdup(c->entered_from);
    const size_t n = (size_t)(text_file_name(c->probe.path) - c->probe.path);
    return strndup(c->probe.path, n > 1 ? n - 1 : n);
}

fsdpck_status side_folder_open(const fsdpck_checkpoint *c, folder *dir, fsdpck_error *err)
{
    const char *inside = c->cat.origin.side_folder;
    char *above = inside[0] == '\0' ? side_folder_above(c) : NULL;
    fsdpck_status st;
    if (above != NULL)
        st = folder_open(dir, above, err);
    else if (inside[0] == '\0')
        st = folder_open_same(dir, &c->probe.dir, c->path, err);
    else
        st = folder_open_inside(dir, &c->probe.dir, inside, err);
    free(above);
    return st;
}

fsdpck_status side_folder_config(const fsdpck_checkpoint *c, model_config *config,
                                 fsdpck_error *err)
{
    folder dir = FOLDER_CLOSED;
    *config = (model_config){0};
    if (c->remote_files != NULL || (!c->probe.is_folder && c->entered_from == NULL))
        return FSDPCK_OK;
    fsdpck_status st = side_folder_open(c, &dir, err);
    if (st == FSDPCK_OK)
        st = model_config_read(&dir, config, err);
    folder_close(&dir);
    return st;
}
