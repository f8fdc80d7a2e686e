/* step_name.h: the training step in the name of a checkpoint's file or folder. The only code that reads steps
 * from names. */
#ifndef FSDPCK_BASE_STEP_NAME_H
#define FSDPCK_BASE_STEP_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the number counts; a later kind decides before an earlier one in the same name. */
typedef enum step_kind {
    STEP_NONE,       /* no number, or only numbers of something else: seed42, fp16, val_loss=0.92 */
    STEP_UNKNOWN,    /* several numbers, and no word for one of them */
    STEP_NUMBER,     /* the only number: "1000", "weights.05-0.91" */
    STEP_CHECKPOINT, /* "checkpoint-500", "ckpt_500" */
    STEP_BATCH,      /* "batch_500" */
    STEP_EPOCH,      /* "epoch=3" */
    STEP_STEP        /* "step-1000", "global_step1000", "iter_0001000" */
} step_kind;

typedef enum step_mark {
    STEP_UNMARKED,
    STEP_UNFINISHED, /* "tmp-checkpoint-1000", "old_checkpoint-1000": staged, replaced, or to be deleted */
    STEP_EVALUATION /* "eval_1000": results, not a checkpoint */
} step_mark;

typedef struct step_name {
    step_kind kind;
    step_mark mark;
    uint64_t step;     /* UINT64_MAX if is_too_large */
    bool is_too_large; /* the number has more than 64 bits */
    bool has_epoch;
    bool has_numbers; /* with those of something else */
    uint64_t epoch;   /* if has_epoch */
    uint64_t
        minor; /* orders equal steps: the batch, or the next plain number, as in "checkpoint_1_5000" */
    uint64_t
        version; /* of "epoch=4-step=500-v1", which is later than the name without it; 0: none */
    size_t begin, end; /* of the number's digits, in the name */
} step_name;

/* `name` without the suffix of a file. */
void step_name_read(const char *name, size_t nbytes, step_name *out);

/* Whether its number may be the first group of a larger one: "step_1_000", read as 1. */
bool step_name_is_grouped(const char *name, size_t nbytes, const step_name *s);

/* Of the last part of a path that has a word for the number; false: none has. */
bool step_name_of_path(const char *path, size_t nbytes, step_name *out);

/* Above 0 if a is the later one of the same run. */
int step_name_compare(const step_name *a, const step_name *b);

/* Whether the name contains a word for what the number counts. */
bool step_name_has_word(const step_name *s);

/* Whether the numbers of both count the same, by their words. */
bool step_name_same_kind(const step_name *a, const step_name *b);

#endif
