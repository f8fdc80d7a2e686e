/* tile_set.h: tiles of several files that one worker fills together, because they need the same bytes of the source:
 * each file has some rows of the same small tensors, and reading those of one file alone would read nearly all rows.
 *
 *     tile_sets sets;
 *     fsdpck_status st = tile_sets_find(&sets, x, err);
 *     for (job = 0; job < sets.jobs; job++) {
 *         const tile_set *s = tile_sets_of_job(&sets, job);
 *         if (s->step_nbytes == 0)
 *             ... item tile_set_item(&sets, s, job) alone ...
 *         else
 *             RETURN_IF(tile_set_run(w, &sets, s, job, err));
 *     }
 *     tile_sets_release(&sets);
 *
 * Files are in one set if samples of them show that their reads overlap, and that each reads more than it needs. What
 * the samples miss costs time, not correctness. Each tile is recorded in the journal by itself.
 */
#ifndef FSDPCK_EXEC_TILE_SET_H
#define FSDPCK_EXEC_TILE_SET_H

#include "exec/exec_internal.h"

/* Consecutive files of this rank's items; most sets have one file. */
typedef struct tile_set {
    uint64_t first_job;
    uint64_t first_file; /* in tile_sets.files */
    uint32_t file_count;
    uint64_t step_nbytes; /* of each file, at a time; 0: items are run one by one */
} tile_set;

typedef struct tile_sets {
    vec files; /* tile_set_file */
    vec sets;  /* tile_set */
    uint64_t jobs;
} tile_sets;

/* This rank's items of a file: exec_own_item of [first, first + count). */
typedef struct tile_set_file {
    uint64_t first, count;
} tile_set_file;

/* Release also after a failure. */
fsdpck_status tile_sets_find(tile_sets *t, const struct exec *x,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
void tile_sets_release(tile_sets *t);
const tile_set *tile_sets_of_job(const tile_sets *t, uint64_t job);
/* Of a set with one file: the item. */
uint64_t tile_set_item(const struct exec *x, const tile_sets *t, const tile_set *s, uint64_t job);

/* --- tile_set_run.c --- */
/* Bytes of a worker's tile between those of two files: alignment, elements that an edge splits, padding. */
#define TILE_SET_GUARD_NBYTES ((uint64_t)3 * FILE_DIRECT_ALIGN)

fsdpck_status tile_set_run(worker *w, const tile_sets *t, const tile_set *s, uint64_t job,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
