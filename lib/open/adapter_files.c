#include "open/adapter_files.h"

#include <string.h>

bool adapter_files_is_other(const catalogue *read, const char *entry)
{
    static const char newer[] = "adapter_model.safetensors", older[] = "adapter_model.bin";
    return strcmp(entry, older) == 0 && catalogue_has_file(read, newer);
}
