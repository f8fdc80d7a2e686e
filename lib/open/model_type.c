#include "open/model_type.h"

#include <stdio.h>
#include <string.h>

#include "open/side_folder.h"

fsdpck_status model_type_read(const fsdpck_checkpoint *c, char type[64], fsdpck_error *err)
{
    model_config config = {0};
    type[0] = '\0';
    while (c->base != NULL)
        c = c->base;
    const fsdpck_status st = side_folder_config(c, &config, err);
    memcpy(type, config.model_type, sizeof config.model_type);
    model_config_release(&config);
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
