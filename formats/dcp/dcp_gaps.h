/* dcp_gaps.h: gives the records of a condensed `.metadata` (dcp_condense.h) their place while the
 * pickle machine reads the opcodes that were kept.
 *
 * All records have the order of the file: those of gaps are there already, those that the machine
 * makes take the empty ones between them. Every count is compared; a difference is an error without
 * a message.
 */
#ifndef FSDPCK_DCP_GAPS_H
#define FSDPCK_DCP_GAPS_H

#include "formats/dcp/dcp_condense.h"
#include "formats/dcp/dcp_hooks.h"

typedef struct dcp_gaps {
    const dcp_condensed *c;
    size_t next_chunk, next_entry; /* of m->chunks and m->entries */
    size_t roles_checked;
    vec fqns, paths; /* uint32_t: the id of each word, DCP_NONE before its first use */
} dcp_gaps;

/* Release it in any case. */
fsdpck_status dcp_gaps_init(dcp_gaps *g, const dcp_condensed *c, budget *owner) FSDPCK_MUST_CHECK;
void dcp_gaps_release(dcp_gaps *g);
/* The next empty record; false if none is left. */
bool dcp_gaps_next_chunk(dcp_parser *parser, uint32_t *index);
bool dcp_gaps_next_entry(dcp_parser *parser, uint32_t *index);
/* Whether all records have been used. */
bool dcp_gaps_are_filled(const dcp_gaps *g, const dcp_metadata *m);

/* pickle_hooks; ctx is the parser. */
fsdpck_status dcp_on_gap(void *ctx, value_pool *pool, const pickle_memo *memo, size_t gap,
                         uint64_t first_memo, uint64_t *list_note, fsdpck_error *err);
fsdpck_status dcp_on_gap_memo(void *ctx, value_pool *pool, size_t gap, uint64_t k, value *v,
                              fsdpck_error *err);

#endif
