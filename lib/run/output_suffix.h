/* output_suffix.h: the format that the suffix of an output's name selects. */
#ifndef FSDPCK_RUN_OUTPUT_SUFFIX_H
#define FSDPCK_RUN_OUTPUT_SUFFIX_H

#include "open/checkpoint.h"

#define OUTPUT_SUFFIX_CAPACITY 32u

/* By the suffix, in any case; NULL: no writer has it. */
const format_writer *output_suffix_writer(const char *path);
/* A suffix of a writer that is meant by that of the path: ".safetensors" by ".sft", and by the misspelling ".safetensor".
 * Short ones are similar to none: ".pt2" is another format. "" if none. */
void output_suffix_similar(const char *path, char suffix[OUTPUT_SUFFIX_CAPACITY]);
/* Whether the suffix is that of files that no writer makes, such as ".gguf". */
bool output_suffix_is_of_file(const char *path);
/* The writer of the suffix before the last one: of "x.safetensors.tmp"; NULL. */
const format_writer *output_suffix_inner(const char *path);
/* Appends the suffixes of all writers: ".pt, .safetensors". */
void output_suffix_list(text_buf *text);
/* A writer that `name`, which is none, may mean: a misspelling, or a suffix such as h5. NULL: none. */
const format_writer *output_suffix_guess(const char *name, bool sharded);
/* Whether the name may be given to --format of this kind of command. */
bool output_suffix_is_offered(const format_writer *w, bool sharded);

#endif
