/* similar_option.h: what an unknown option, or an unknown value of one, may mean. */
#ifndef FSDPCK_CLI_SIMILAR_OPTION_H
#define FSDPCK_CLI_SIMILAR_OPTION_H

#include "opt.h"

/* For a word such as "--gpus=4": the name of one of the rows, maybe with a value, that other programs call so, else the
 * most similar one. NULL: neither. */
const char *similar_option(const opt_row *const *rows, size_t count, const char *word);

/* The one of `choices` ("all|first") most similar to the text. False: none is. */
bool similar_choice(const char *text, const char *choices, char *word, size_t capacity);

#endif
