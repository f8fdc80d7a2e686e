#include "formats/safetensors/optim_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define FOLDER "../optim"

/* Of "__3_0.distcp": 4; of other names 0. */
static uint64_t ranks_of_name(const char *name)
{
    const size_t digits = strncmp(name, "__", 2) == 0 ? strspn(name + 2, "0123456789") : 0;
    return digits > 0 && digits < 10 && name[2 + digits] == '_' &&
                   text_ends_with(name, strlen(name), ".distcp")
               ? strtoull(name + 2, NULL, 10) + 1
               : 0;
}

bool optim_folder_ranks(const probe_input *in, uint64_t *ranks)
{
    char **entries = NULL;
    size_t count = 0;
    path_kind kind;
    *ranks = 0;
    if (path_probe(&in->dir, FOLDER "/.metadata", &kind, NULL, NULL) != FSDPCK_OK ||
        kind != PATH_FILE || folder_list(&in->dir, FOLDER, &entries, &count, NULL) != FSDPCK_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        if (ranks_of_name(entries[i]) > *ranks)
            *ranks = ranks_of_name(entries[i]);
    free(entries);
    return true;
}
