#include "open/adapter_files.h"

#include <string.h>

bool adapter_files_is_other(const catalogue *read, const char *entry)
{
    static const char newer[] = "adapter_model.safetensors", older[] = "adapter_model.bin";
    bool reads = false;
    for (size_t i = 0; !reads && i < catalogue_file_count(read); i++)
        reads = strcmp(catalogue_name(read, catalogue_file(read, (uint32_t)i)->path), newer) == 0;
    return reads && strcmp(entry, older) == 0;
}
