/* dcp_condense.h: takes the records of chunks and blobs out of a `.metadata` while it is read.
 *
 * Nearly all of a large `.metadata` are two sequences of opcodes, one for each chunk of a tensor and
 * one for each entry of storage_data. They are matched in a window of the file and become records of
 * dcp_metadata at once. All other opcodes are kept as they are, with PICKLE_GAP for each sequence that
 * was taken. The pickle machine then reads these, a small part, and gives the records their place:
 *
 *     dcp_condensed c;
 *     if (dcp_condense(&bytes, m, &c) == FSDPCK_OK)
 *         ... pickle_read() of dcp_condensed_input(&c), with the hooks of dcp_gaps.h
 *     dcp_condensed_release(&c);
 *
 * The matcher knows classes and attributes by the memo entries that hold their names. It does not
 * know what the stack holds. The machine checks both; whatever it cannot confirm, and whatever is
 * wrong or unusual, is left to a reader of the whole file. So an error here has no message.
 *
 * Memory: the records, the names, and the opcodes that are kept.
 */
#ifndef FSDPCK_DCP_CONDENSE_H
#define FSDPCK_DCP_CONDENSE_H

#include "formats/dcp/dcp_metadata.h"
#include "formats/dcp/dcp_window.h"

/* Names in known memo entries. */
typedef enum dcp_role {
    DCP_ROLE_NONE,
    DCP_ROLE_CHUNK, /* classes */
    DCP_ROLE_INDEX,
    DCP_ROLE_INFO,
    DCP_ROLE_SIZE,
    DCP_ROLE_OFFSETS, /* attributes */
    DCP_ROLE_SIZES,
    DCP_ROLE_FQN,
    DCP_ROLE_HINT,
    DCP_ROLE_OFFSET,
    DCP_ROLE_PATH,
    DCP_ROLE_LENGTH
} dcp_role;

typedef struct dcp_named {
    uint64_t memo;
    uint32_t role; /* dcp_role */
} dcp_named;

#define DCP_ROLES_MAX  64u
#define DCP_ROLE_SLOTS 256u

/* Positions of memo entries among those of one record or pair. */
typedef enum dcp_memo_place {
    DCP_MEMO_FIRST, /* the record, or the index of a pair */
    DCP_MEMO_INFO,
    DCP_MEMO_OFFSETS,
    DCP_MEMO_SIZES,
    DCP_MEMO_FQN,
    DCP_MEMO_PATH,
    DCP_MEMO_PLACES
} dcp_memo_place;

#define DCP_MEMO_NOWHERE UINT8_MAX

/* Records in a row with the same memo entries: one gap. */
typedef struct dcp_part {
    uint32_t first, count; /* of m->chunks, or of m->entries (pairs) */
    uint8_t places[DCP_MEMO_PLACES];
    uint8_t per_record; /* memo entries */
    uint8_t pairs;
} dcp_part;

/* Until the machine has seen a gap, `fqn` and `file` of its entries are words: texts of the gap, or
 * memo entries. */
#define DCP_WORD_IS_MEMO (UINT32_C(1) << 23)

typedef struct dcp_condensed {
    vec kept;          /* uint8_t: opcodes */
    pickle_gaps gaps;  /* one for each part */
    vec parts;         /* dcp_part */
    vec roles;         /* dcp_named, by ascending entry */
    strtab texts;      /* words */
    vec fetched_words; /* uint64_t: words that are memo entries */
} dcp_condensed;

/* Fills m->dims, m->chunks and m->entries; records that are kept as opcodes have an empty record in
 * their place. DCP_ODD: read the whole file instead. Release c in any case. */
fsdpck_status dcp_condense(const dcp_bytes *from, dcp_metadata *m,
                           dcp_condensed *c) FSDPCK_MUST_CHECK;
pickle_input dcp_condensed_input(const dcp_condensed *c);
void dcp_condensed_release(dcp_condensed *c);

#endif
