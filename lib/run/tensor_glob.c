#include "run/tensor_glob.h"

#include <string.h>

fsdpck_status tensor_glob_make(const fsdpck_checkpoint *src, uint32_t tensor, text_buf *glob,
                               fsdpck_error *err)
{
    text_buf name = {0};
    const uint32_t id = catalogue_tensor(&src->cat, tensor)->name;
    checkpoint_parts_append_name(&src->parts, PART_MODEL, true, true, catalogue_name(&src->cat, id),
                                 catalogue_name_nbytes(&src->cat, id), &name);
    for (size_t i = 0; i < name.nbytes; i++) {
        if (strchr("*?[]\\", name.text[i]) != NULL)
            text_puts(glob, "\\");
        text_append(glob, &name.text[i], 1);
    }
    const fsdpck_status st = text_check(&name, err);
    text_release(&name);
    return st == FSDPCK_OK ? text_check(glob, err) : st;
}
