#include "formats/common/renamed_file.h"

/* Requires one stat call per entry. */
#define ENTRIES_MOST 4096u

const char *renamed_file_find(const probe_input *in, uint64_t nbytes,
                              renamed_file_known_fn is_known, const void *ctx)
{
    const char *found = NULL;
    for (size_t i = 0; in->entry_count <= ENTRIES_MOST && i < in->entry_count; i++) {
        const char *entry = in->entries[i];
        path_kind kind;
        uint64_t have;
        if (is_known(ctx, entry) || path_probe(&in->dir, entry, &kind, &have, NULL) != FSDPCK_OK ||
            kind != PATH_FILE || have == 0 || (nbytes != RENAMED_FILE_ANY_SIZE && have != nbytes))
            continue;
        if (found != NULL)
            return NULL;
        found = entry;
    }
    return found;
}
