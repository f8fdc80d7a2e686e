#include "open/model_type.h"

#include <stdio.h>
#include <string.h>

#include "open/model_config.h"

fsdpck_status model_type_read(const fsdpck_checkpoint *c, char type[64], fsdpck_error *err)
{
    folder dir = FOLDER_CLOSED;
    model_config config = {0};
    type[0] = '\0';
    while (c->base != NULL)
        c = c->base;
    if (!c->probe.is_folder || c->remote_files != NULL)
        return FSDPCK_OK;
    const char *inside = c->cat.origin.side_folder;
    fsdpck_status st = FSDPCK_OK;
    if (inside[0] == '\0')
        st = model_config_read(&c->probe.dir, &config, err);
    else if (folder_open_inside(&dir, &c->probe.dir, inside, NULL) == FSDPCK_OK)
        st = model_config_read(&dir, &config, err);
    memcpy(type, config.model_type, sizeof config.model_type);
    model_config_release(&config);
    folder_close(&dir);
    return st;
}

void model_type_name_other(const fsdpck_checkpoint *of, const fsdpck_checkpoint *like,
                           fsdpck_error *err)
{
    char ours[64], theirs[64], message[sizeof err->message];
    if (err == NULL || model_type_read(of, ours, NULL) != FSDPCK_OK ||
        model_type_read(like, theirs, NULL) != FSDPCK_OK || ours[0] == '\0' || theirs[0] == '\0' ||
        strcmp(ours, theirs) == 0)
        return;
    memcpy(message, err->message, sizeof message);
    snprintf(
        err->message, sizeof err->message,
        "config.json of the source has model type '%s', that of the folder of --like '%s'; %.300s",
        ours, theirs, message);
    snprintf(err->next, sizeof err->next, "give --like a folder of a model of type '%s'", ours);
}
