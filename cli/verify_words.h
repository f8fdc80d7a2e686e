/* verify_words.h: how much of the data `fsdpck verify` reads, in words. False after having reported a
 * usage error. */
#ifndef FSDPCK_CLI_VERIFY_WORDS_H
#define FSDPCK_CLI_VERIFY_WORDS_H

#include "cmd.h"

/* "5%", "0.5%"; "3/20" is the third of twenty parts that have nothing in common. */
bool verify_words_sample(const cli *c, const char *text, double *begin, double *end);
/* "90", "90s", "10m", "2h". */
bool verify_words_duration(const cli *c, const char *text, double *seconds);

#endif
