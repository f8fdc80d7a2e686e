/* memory_file.h: memory of the caller as the only file of a catalogue.
 *
 *     memory_file_init(&m, ctx, &cat);
 *     RETURN_IF(memory_file_add(&m, &tensor, err));            // for each box
 *     RETURN_IF(memory_file_seal(&m, err));                    // seals the catalogue
 *     m.copy = NULL, or copies from a GPU
 *     source src = memory_file_get(&m);
 *     memory_file_release(&m);
 *
 * Boxes that overlap in memory overlap in the file, so that tensors of one storage are found to be tied.
 */
#ifndef FSDPCK_OPEN_MEMORY_FILE_H
#define FSDPCK_OPEN_MEMORY_FILE_H

#include "exec/device_copy.h"
#include "fsdpck_memory.h"
#include "open/checkpoint.h"

typedef struct memory_file {
    const fsdpck_context *ctx;
    catalogue *cat;    /* borrowed */
    strtab names;      /* of its tensors, with the same numbers */
    vec boxes;         /* struct held_box, by cat_chunk.aux */
    vec strides;       /* uint64_t */
    vec ranges;        /* struct held_range, in ascending order */
    device_copy *copy; /* borrowed; NULL: addresses are those of the host */
} memory_file;

void memory_file_init(memory_file *m, const fsdpck_context *ctx, catalogue *cat);
void memory_file_release(memory_file *m);
fsdpck_status memory_file_add(memory_file *m, const fsdpck_memory_tensor *t,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status memory_file_seal(memory_file *m, fsdpck_error *err) FSDPCK_MUST_CHECK;
source memory_file_get(memory_file *m);

#endif
