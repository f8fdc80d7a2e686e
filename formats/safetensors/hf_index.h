/* hf_index.h: `model.safetensors.index.json`: maps tensors to files.
 *
 *     hf_index ix;
 *     RETURN_IF(hf_index_read(&dir, "model.safetensors.index.json", budget, &ix, err));
 *     strtab_count(&ix.files), strtab_text(&ix.files, f)       // in order of appearance
 *     hf_index_release(&ix);
 *
 * Errors: IDX-JSON (invalid or empty JSON), IDX-DUP (a tensor twice), IDX-PATH (a file outside the
 * folder), LIMIT over 256 MiB.
 */
#ifndef FSDPCK_HF_INDEX_H
#define FSDPCK_HF_INDEX_H

#include <stdbool.h>

#include "base/alloc.h"
#include "io/file.h"
#include "state/cat_metadata.h"

typedef struct hf_index {
    strtab tensors;
    strtab files;
    vec file_of; /* uint32_t: file of each tensor, by the tensor's id */
    bool has_total;
    uint64_t total_nbytes;
    cat_metadata metadata; /* except total_size */
} hf_index;

fsdpck_status hf_index_read(const folder *dir, const char *name, budget *owner, hf_index *ix,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same from memory. On failure *ix is released. */
fsdpck_status hf_index_parse(const char *text, size_t nbytes, budget *owner, hf_index *ix,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void hf_index_release(hf_index *ix);

#endif
