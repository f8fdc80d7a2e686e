#include "open/adapter_files.h"

#include <stdlib.h>
#include <string.h>

#include "open/checkpoint.h"

bool adapter_files_is_other(const catalogue *read, const char *entry)
{
    static const char newer[] = "adapter_model.safetensors", older[] = "adapter_model.bin";
    return strcmp(entry, older) == 0 && catalogue_has_file(read, newer);
}

/* As transformers and PEFT: each takes its own of the two. */
fsdpck_status adapter_files_choose(const char *path, char **weights, fsdpck_error *err)
{
    static const char *const models[] = {"model.safetensors", "model.safetensors.index.json",
                                         "pytorch_model.bin", "pytorch_model.bin.index.json"};
    static const char *const adapters[] = {"adapter_model.safetensors", "adapter_model.bin"};
    const char *of_adapter = NULL;
    bool has_model = false;
    probe_input in;
    *weights = NULL;
    if (probe_gather(path, &in, NULL) != FSDPCK_OK)
        return FSDPCK_OK; /* opening it reports the error */
    for (size_t i = 0; in.is_folder && i < sizeof models / sizeof *models; i++)
        has_model = has_model || probe_has_entry(&in, models[i]);
    for (size_t i = sizeof adapters / sizeof *adapters; has_model && i-- > 0;)
        of_adapter = probe_has_entry(&in, adapters[i]) ? adapters[i] : of_adapter;
    probe_release(&in);
    if (of_adapter == NULL)
        return FSDPCK_OK;
    *weights = folder_path_join(path, of_adapter);
    return *weights == NULL ? error_set_nomem(err, strlen(path)) : FSDPCK_OK;
}
