/* hf_bin_files.h: checks that the torch.save files of one model are readable and that no tensor is
 * in two of them.
 *
 *     hf_bin_files files;
 *     hf_bin_files_init(&files, in, true);
 *     for each name: RETURN_IF(hf_bin_files_check(&files, name, err));
 *     hf_bin_files_release(&files);
 *
 * BADINPUT: as torch_archive_open, or IDX-DUP. Files that cannot be opened or are not supported are
 * left to the reader of single files.
 */
#ifndef FSDPCK_HF_BIN_FILES_H
#define FSDPCK_HF_BIN_FILES_H

#include "formats/format.h"

typedef struct hf_bin_files {
    const probe_input *in;
    bool is_one_model; /* otherwise names may repeat */
    budget owner;
    strtab tensors;
    vec files; /* const char *: the file of each tensor */
} hf_bin_files;

void hf_bin_files_init(hf_bin_files *b, const probe_input *in, bool is_one_model);
void hf_bin_files_release(hf_bin_files *b);
/* `name` must outlive `b`. */
fsdpck_status hf_bin_files_check(hf_bin_files *b, const char *name,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
