/* output_suffix.h: the format that the suffix of an output's name selects. */
#ifndef FSDPCK_RUN_OUTPUT_SUFFIX_H
#define FSDPCK_RUN_OUTPUT_SUFFIX_H

#include "open/checkpoint.h"

#define OUTPUT_SUFFIX_CAPACITY 32u

/* By the suffix, in any case; NULL: no writer has it. */
const format_writer *output_suffix_writer(const char *path);
/* A suffix of a writer that that of the path may be a misspelling of: ".safetensors" for ".safetensor". Short ones are
 * similar to none: ".pt2" is another format. "" if none. */
void output_suffix_similar(const char *path, char suffix[OUTPUT_SUFFIX_CAPACITY]);
/* A writer that `name`, which is none, may mean: a misspelling, or a suffix such as h5. NULL: none. */
const format_writer *output_suffix_guess(const char *name, bool sharded);
/* Whether the name may be given to --format of this kind of command. */
bool output_suffix_is_offered(const format_writer *w, bool sharded);

#endif
