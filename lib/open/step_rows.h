/* step_rows.h: files in which trainers record the step of the training or the number of ranks, and the keys: one table
 * for verify, latest and conversions. */
#ifndef FSDPCK_OPEN_STEP_ROWS_H
#define FSDPCK_OPEN_STEP_ROWS_H

#include "open/checkpoint.h"

typedef struct step_record_row {
    const char *file;   /* glob of its name in the folder of the step */
    const char *step;   /* key */
    const char *ranks;  /* key; NULL: not recorded */
    const char *folder; /* glob of the folders whose number is that step */
    const char *beside; /* a file that the trainer writes too; NULL: the names are enough */
    int64_t ahead;      /* the step may be this much more than that number */
} step_record_row;

/* Not the name of a file: common.pt of Megatron-Core, or an object of newer releases. */
#define STEP_COMMON_STATE "common_state"

typedef struct step_record {
    const step_record_row *row;
    const char *path, *name;    /* the latter is valid as long as the checkpoint */
    int64_t step, ranks, named; /* named: the folder's number; -1: unknown */
} step_record;

/* NULL: none */
const step_record_row *step_record_row_of(const char *name);
/* NULL after the last */
const step_record_row *step_record_row_at(size_t i);
bool step_record_is_json(const step_record_row *row);
/* Of the folder that contains the file `name` of this path; -1: the trainer gives it another name. */
int64_t step_record_number(const char *path, const char *name, const step_record_row *row);
/* Whether the step is that of the name; true if one of them is unknown. */
bool step_record_fits(const step_record *r);

/* r->step and r->ranks of the JSON file of the row. False: it is absent, or has no step. */
bool step_record_read_json(const probe_input *in, const step_record_row *row, step_record *r);
/* False: ends the search. */
typedef bool (*step_record_fn)(void *ctx, const step_record *r);
/* JSON files in the folder of the checkpoint and in the one that was given. False: fn ended it, or they are not local. */
bool step_records_each_json(fsdpck_checkpoint *c, step_record_fn fn, void *ctx);
/* No other host has files, nor a rank of a group. */
bool step_records_are_local(const fsdpck_checkpoint *c);

#endif
