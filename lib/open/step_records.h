/* step_records.h: which file of which trainer records the step of the training, or the number of ranks, and under which
 * key: one table for verify, latest and conversions.
 *
 *     step_records_each(c, fn, ctx);   // "train/rank0.pt" of OLMo-core: step 3, ranks 2, in the folder "step3"
 */
#ifndef FSDPCK_OPEN_STEP_RECORDS_H
#define FSDPCK_OPEN_STEP_RECORDS_H

#include "open/checkpoint.h"

typedef struct step_record_row {
    const char *file;   /* glob of its name in the folder of the step */
    const char *step;   /* key */
    const char *ranks;  /* key; NULL: not recorded */
    const char *folder; /* glob of the folders whose number is that step */
    int64_t ahead;      /* the step may be this much more than that number */
} step_record_row;

typedef struct step_record {
    const step_record_row *row;
    const char *path, *name;    /* the latter is valid as long as the checkpoint */
    int64_t step, ranks, named; /* named: the folder's number; -1: unknown */
} step_record;

/* NULL: none */
const step_record_row *step_record_row_of(const char *name);
/* What `state`, an open file, records. */
void step_record_read(fsdpck_checkpoint *state, const step_record_row *row, int64_t *step,
                      int64_t *ranks);

/* False: ends the search. */
typedef bool (*step_record_fn)(void *ctx, const step_record *r);
/* Of the folder of the checkpoint and of the one that was given. None if other hosts have files, or ranks of a group. */
void step_records_each(fsdpck_checkpoint *c, step_record_fn fn, void *ctx);
/* Only of JSON files, which are small. */
void step_records_each_json(fsdpck_checkpoint *c, step_record_fn fn, void *ctx);
/* Whether the step is that of the name; true if one of them is unknown. */
bool step_record_fits(const step_record *r);

/* Whether files of two ranks record different steps, or numbers of ranks. *what: RANK-MIXED. */
bool step_records_differ(fsdpck_checkpoint *c, fsdpck_error *what);

typedef struct recorded_ranks {
    uint64_t ranks; /* 0: none is recorded */
    char file[64];
} recorded_ranks;
/* The number of ranks that a file in the folder `in` records, which is opened for `c`; NULL: only JSON is read. */
void step_records_ranks(const probe_input *in, fsdpck_checkpoint *c, recorded_ranks *r);

#endif
