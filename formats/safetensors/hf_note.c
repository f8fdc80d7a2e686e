#include "formats/safetensors/hf_note.h"

#include <stdio.h>
#include <string.h>

#include "formats/safetensors/hf_shadow.h"

static bool is_sidecar(const char *name)
{
    static const char *const starts[] = {
        "config.json",
        "generation_config.json",
        "tokenizer",
        "special_tokens_map.json",
        "vocab",
        "merges.txt",
        "chat_template",
        "preprocessor_config.json",
        "processor_config.json",
        "adapter_config.json",
    };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

void hf_note_describe(const open_request *req, const st_files *s, cat_origin *origin)
{
    text_buf note = {.limit_bytes = sizeof origin->note - 1};
    snprintf(origin->format, sizeof origin->format, "hf");
    if (hf_shadow_zeroed_scalars(req->probe, s)) {
        text_puts(&note, "0-dim tensors may be zeros that torch wrote by mistake: 'sharded/' has "
                         "the correct values; ");
        log_warn(&req->log, FSDPCK_FINDING_ST_ZERO_DIM, "read its folder 'sharded' instead",
                 "'%s' holds 0-dim tensors consolidated by torch, which writes them as zeros",
                 req->path);
    }
    bool any = false;
    for (size_t i = 0; i < req->probe->entry_count; i++) {
        if (!is_sidecar(req->probe->entries[i]))
            continue;
        text_printf(&note, "%s%s",
                    any ? ", " : "files next to the weights: ", req->probe->entries[i]);
        any = true;
    }
    if (note.text != NULL)
        snprintf(origin->note, sizeof origin->note, "%s%s", note.text, note.failed ? "..." : "");
    text_release(&note);
}
