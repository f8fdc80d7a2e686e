/* The names that the files of a folder were saved under. */
#include <stdlib.h>

#include "formats/torch_folder/torch_folder.h"
#include "io/saved_names.h"

void torch_file_note_root(torch_folder *r, uint32_t index, const char *root)
{
    torch_folder_file *f = VEC_AT(&r->inputs, torch_folder_file, index);
    free(f->saved_as);
    f->saved_as = saved_name_of(file_set_path(&r->files, index), root);
}

void torch_file_names_check(torch_folder *r, const open_request *req)
{
    const size_t count = r->inputs.count;
    const torch_folder_file *inputs = r->inputs.items;
    saved_name *list = calloc(count + 1, sizeof *list);
    if (list == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        list[i] =
            (saved_name){file_set_path(&r->files, (uint32_t)i), inputs[i].saved_as, SAVED_OF_RANK};
    saved_names_warn(list, count, req->path, &req->log);
    free(list);
}
