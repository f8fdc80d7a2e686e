/* diff_stat.h: the table of diff --stat. */
#ifndef FSDPCK_CLI_DIFF_STAT_H
#define FSDPCK_CLI_DIFF_STAT_H

#include "cmd.h"

#define DIFF_NAME_CAPACITY 1024u

/* "optimizer.pt: " for a row of such a file, else "". Returns out. */
const char *diff_file_prefix(const fsdpck_diff_row *r, char *out, size_t capacity);

/* The largest difference of a tensor or part: "nan" or "inf" if an element that differs is so on a side. */
const char *diff_largest(double largest, uint64_t not_numbers, uint64_t nans, char *out,
                         size_t capacity);

/* Tensors whose values differ: first those without a relative change, then the largest change first; the
 * last line counts steps and the like. Returns false if memory ran out. */
bool diff_print_stat(const cli *c, const fsdpck_diff *d, uint64_t rows);

#endif
