/* bundle.h: target chunks that are filled together, band of rows by band of rows.
 *
 *     RETURN_IF(bundle_all(x, err));            // after exec_locate_all
 *     for (i = 0; i < x->bundle_items; i++)
 *         RETURN_IF(bundle_run_item(w, i, err));
 *
 * A bundle has all target chunks of a tensor that lie in the same rows: a row is an index of the
 * dims before the last one that is cut. Its items are bands of rows; bytes of a band are one range
 * of each file, whose inner edges lie on blocks of the file, so that they are a few rows off. Where
 * there are more members than buffers of a sensible size they are dealt to passes, each of which
 * reads the rows again.
 */
#ifndef FSDPCK_EXEC_BUNDLE_H
#define FSDPCK_EXEC_BUNDLE_H

#include "exec/exec_state.h"

/* Between the bytes of two members: alignment, and elements or blocks that an edge cuts. */
#define BUNDLE_GUARD_NBYTES ((uint64_t)5 * FILE_DIRECT_ALIGN)

typedef struct cut_bundle {
    uint32_t tensor; /* of the target */
    uint32_t member_count;
    uint64_t members_at; /* in exec.members */
    uint64_t rows;
    uint64_t widest_nbytes; /* of a row of a member */
    uint64_t band_rows;
    uint64_t step_rows; /* copied at a time */
    uint64_t first_item;
    uint32_t pass_members;
    uint32_t passes;
    uint8_t cut; /* dim */
} cut_bundle;

/* What an item is: rows [first_row, first_row + rows) of some members. */
typedef struct bundle_band {
    const cut_bundle *bundle;
    uint64_t first_row, rows;
    const uint32_t *members; /* target chunks */
    uint32_t count;
} bundle_band;

void bundle_get_band(const struct exec *x, uint64_t item, bundle_band *b);
/* Of all its members, give or take the blocks that edges are moved to. */
uint64_t bundle_band_nbytes(const struct exec *x, const bundle_band *b);

/* Finds bundles, marks their chunks, takes the workers' buffers for them. */
fsdpck_status bundle_all(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status bundle_run_item(worker *w, uint64_t item, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
