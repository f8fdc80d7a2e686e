/* column_group.h: target chunks that are filled together, row block by row block.
 *
 *     RETURN_IF(column_groups_find(x, err));            // after exec_resolve_all
 *     for (i = 0; i < x->column_group_items; i++)
 *         RETURN_IF(column_group_run_item(w, i, err));
 *
 * A column group contains all target chunks of a tensor with the same rows. A row is an index of
 * the dims before the last sharded one. Its items are row blocks. The bytes of a row block are one
 * range of each file. Its inner edges are aligned to blocks of the file, which moves them by a few
 * rows. If the members need more buffers than memory allows, they are divided into passes, and each
 * pass reads the rows again.
 */
#ifndef FSDPCK_EXEC_COLUMN_GROUP_H
#define FSDPCK_EXEC_COLUMN_GROUP_H

#include "exec/exec_internal.h"

/* Space between the bytes of two members: alignment, and elements or blocks that an edge splits. */
#define COLUMN_GUARD_NBYTES ((uint64_t)5 * FILE_DIRECT_ALIGN)

typedef struct column_group_info {
    uint32_t tensor; /* of the target */
    uint32_t member_count;
    uint64_t members_at; /* in exec.members */
    uint64_t rows;
    uint64_t widest_nbytes; /* of a row of a member */
    uint64_t buffer_nbytes; /* that its members share: of the tile, or exec.column_group_nbytes */
    uint64_t block_rows;
    uint64_t step_rows; /* copied at a time */
    uint64_t first_item;
    uint32_t pass_members;
    uint8_t cut; /* dim */
} column_group_info;

/* An item: rows [first_row, first_row + rows) of some members. */
typedef struct column_block {
    const column_group_info *column_group;
    uint64_t first_row, rows;
    const uint32_t *members; /* target chunks */
    uint32_t count;
} column_block;

void column_group_get_block(const struct exec *x, uint64_t item, column_block *b);
/* Bytes of all its members, up to the alignment of edges. */
uint64_t column_block_nbytes(const struct exec *x, const column_block *b);

/* Finds column groups, marks their chunks, reserves the workers' buffers. */
fsdpck_status column_groups_find(struct exec *x, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status column_group_run_item(worker *w, uint64_t item, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
