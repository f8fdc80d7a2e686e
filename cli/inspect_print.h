/* inspect_print.h: output of `fsdpck inspect`. Each function walks the checkpoint, prints on stdout and
 * returns the exit code. Names from files are escaped. */
#ifndef FSDPCK_CLI_INSPECT_PRINT_H
#define FSDPCK_CLI_INSPECT_PRINT_H

#include "base/json.h"
#include "command_options.h"
#include "name_tree.h"

#define INSPECT_TOP    5u
#define INSPECT_DTYPES 32u
#define INSPECT_NEXT   6u

/* Data of both the summary and the JSON report. */
typedef struct inspect_totals {
    fsdpck_info info;
    struct {
        const char *dtype;
        uint64_t tensors, nbytes;
    } dtypes[INSPECT_DTYPES];
    size_t dtype_count;
    uint64_t largest[INSPECT_TOP]; /* tensor indices, largest first */
    size_t largest_count;
    uint64_t *rank_nbytes; /* by rank; free() */
    size_t rank_count;
    bool has_state_beside;       /* an optimizer's, in a file of the trainer */
    text_buf next[INSPECT_NEXT]; /* likely next command lines */
    size_t next_count;
} inspect_totals;

/* given: the options of the command. damage: NULL, or why the checkpoint can only be described; no next commands then. False if memory runs out. */
bool inspect_collect(fsdpck_checkpoint *ckpt, const fsdpck_error *damage,
                     const command_options *given, inspect_totals *sums);
void inspect_totals_release(inspect_totals *sums);

/* "optimizer state": what a file of the trainer's state holds. */
const char *inspect_state_words(fsdpck_state_kind kind);

int inspect_print_summary(const cli *c, fsdpck_checkpoint *ckpt, const fsdpck_error *damage,
                          const command_options *given);
/* Tensors in `order`, if they are listed. */
int inspect_print_json(const cli *c, fsdpck_checkpoint *ckpt, const fsdpck_error *damage,
                       const command_options *given, bool tensors, bool objects, name_order order);
int inspect_print_table(const cli *c, const fsdpck_checkpoint *ckpt, name_order order);
int inspect_print_tree(const cli *c, const fsdpck_checkpoint *ckpt, name_order order);
int inspect_print_objects(const cli *c, fsdpck_checkpoint *ckpt);

/* Unfinished outputs in a folder; `clean` removes those that no process has. */
int inspect_print_partials(const cli *c, const char *path, const char *of, bool clean);

#endif
