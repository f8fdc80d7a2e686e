/* layout_print.h: output of `fsdpck layout`, on stdout. */
#ifndef FSDPCK_CLI_LAYOUT_PRINT_H
#define FSDPCK_CLI_LAYOUT_PRINT_H

#include "base/json.h"
#include "command_options.h"
#include "convert_run.h"

/* Ranks whose shards are listed: first to last - 1; none if they are equal. */
typedef struct layout_scope {
    uint64_t first, last;
} layout_scope;

/* The ranks of --rank, which may be NULL. Returns false after it has reported a usage error. */
bool layout_choose_scope(const cli *c, const char *rank, uint64_t world_size, layout_scope *scope);

/* All tensors, by index, without their placements; free() it. Call it once: its cost grows with the
 * number of ranks. NULL if memory runs out. */
fsdpck_layout_tensor *layout_tensors(fsdpck_layout *l);

/* Both return the exit code. info: of the source. */
int layout_print_text(const cli *c, const command_request *r, const fsdpck_info *info,
                      fsdpck_layout *l, const layout_scope *scope);
int layout_print_json(const cli *c, const command_request *r, const convert_inputs *in,
                      fsdpck_layout *l, const layout_scope *scope);

/* Bytes of the smallest and the largest rank, without padding. Ties go to the lowest rank number. */
typedef struct layout_ranks {
    uint64_t min, max, min_rank, max_rank;
    uint64_t mean;
    double imbalance;
} layout_ranks;

/* Lines of the totals: "per rank  ..." and "padding   ...". */
void layout_print_ranks(const layout_ranks *r);
void layout_print_padding(uint64_t padding_nbytes, uint64_t held_nbytes);

/* Largest rank over the mean; 1 if all ranks are empty. */
double layout_imbalance(uint64_t most, uint64_t sum, uint64_t ranks);
/* The members sum, mean and imbalance of rank_nbytes. */
void layout_put_sum(json_writer *w, uint64_t most, uint64_t sum, uint64_t ranks);

#endif
