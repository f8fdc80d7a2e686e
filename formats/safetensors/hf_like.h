/* hf_like.h: the layout of an hf folder whose files, names of files and order of tensors are those of
 * another one. */
#ifndef FSDPCK_HF_LIKE_H
#define FSDPCK_HF_LIKE_H

#include "formats/format.h"

/* format_writer.layout with opt->like. UNSUPPORTED for names of files that transformers does not read,
 * BADINPUT (EXPORT-KEYS) for a tensor that the folder lacks. */
fsdpck_status hf_like_layout(target *t, const writer_options *opt,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The text of an index: tensor names, sorted here, and the names of their files. */
typedef struct hf_index_entry {
    const char *name;
    size_t nbytes;
    const char *file;
} hf_index_entry;

/* Adds the index as a file of constant bytes. */
fsdpck_status hf_index_add(target *t, const char *file_name, hf_index_entry *list, size_t count,
                           uint64_t total_nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
