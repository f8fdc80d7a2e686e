/* ranks_kinds.h: files that contain another kind of state than the files of other ranks, such as an
 * optimizer under the name of a model's. All ranks save the same kinds of values. Every rank names all
 * sharded tensors, even without a shard of them. Pipeline stages name other tensors, but each names some.
 *
 *     RETURN_IF(ranks_note_kind(p, flat, RANKS_DTENSOR, err));   // each tensor of each file
 *     RETURN_IF(ranks_warn_kinds(s, err));                       // after the last file: RANK-KIND
 */
#ifndef FSDPCK_RANKS_KINDS_H
#define FSDPCK_RANKS_KINDS_H

#include "formats/pt/ranks_internal.h"

/* The tensors of one file. */
typedef struct ranks_content {
    uint64_t names_sum; /* of hashes of their names, without the key of the family */
    uint64_t tensors, sharded;
} ranks_content;

/* A tensor of the file that is parsed, by its flat key. */
fsdpck_status ranks_note_kind(const ranks_parse *p, uint32_t flat, ranks_kind kind,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status ranks_warn_kinds(const ranks_state *s, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
