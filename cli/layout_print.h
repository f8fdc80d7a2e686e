/* layout_print.h: output of `fsdpck layout`, on stdout. Each returns the exit code. */
#ifndef FSDPCK_CLI_LAYOUT_PRINT_H
#define FSDPCK_CLI_LAYOUT_PRINT_H

#include "transform_options.h"

/* Ranks whose pieces are shown one by one: first to last - 1; none where they are equal. */
typedef struct layout_scope {
    uint64_t first, last;
} layout_scope;

/* All tensors, by index, without their placements; free() it. Asking once matters: each question
 * looks at every rank. NULL where memory ran out. */
fsdpck_layout_tensor *layout_tensors(fsdpck_layout *l);

/* info: of the source. */
int layout_print_text(const cli *c, const transform_request *r, const fsdpck_info *info,
                      fsdpck_layout *l, const layout_scope *scope);
int layout_print_json(const cli *c, const fsdpck_info *info, fsdpck_layout *l,
                      const layout_scope *scope);

/* Bytes of ranks, without padding: the lightest, the heaviest, of which the lowest each. */
typedef struct layout_ranks {
    uint64_t min, max, min_rank, max_rank;
    uint64_t mean;
    double imbalance;
} layout_ranks;

/* Lines of the sums: "per rank  ..." and "padding   ...". */
void layout_print_ranks(const layout_ranks *r);
void layout_print_padding(uint64_t padding_nbytes, uint64_t held_nbytes);

/* Largest rank over the mean; 1 where nothing is held. */
double layout_imbalance(const fsdpck_layout_info *info);

#endif
