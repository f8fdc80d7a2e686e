/* dcp_condense_internal.h: one record or pair as opcodes (dcp_condense_record.c), and as records of
 * dcp_metadata (dcp_condense_put.c); blocks that are matched ahead (dcp_condense_ahead.c). */
#ifndef FSDPCK_DCP_CONDENSE_INTERNAL_H
#define FSDPCK_DCP_CONDENSE_INTERNAL_H

#include <string.h>

#include "formats/dcp/dcp_condense.h"
#include "state/value_map.h"

#define DCP_RECORD_NDIM 8u

/* A str in the opcodes, or its memo entry. */
typedef struct dcp_raw_text {
    const uint8_t *text; /* NULL: a memo entry */
    uint32_t nbytes;
    uint32_t memo;
} dcp_raw_text;

typedef struct dcp_raw_size {
    uint64_t dims[DCP_RECORD_NDIM];
    unsigned ndim;
    bool has;
} dcp_raw_size;

typedef struct dcp_raw_record {
    dcp_raw_size offsets, sizes; /* an index has only offsets */
    dcp_raw_text fqn, path;
    uint64_t hint, offset_bytes, nbytes; /* hint: DCP_NONE if it has none */
    uint8_t places[DCP_MEMO_PLACES];
    uint8_t memoized;
    bool pairs;
} dcp_raw_record;

/* Roles by memo entry. */
typedef struct dcp_roles {
    uint32_t memo1[DCP_ROLE_SLOTS]; /* entry + 1; 0: none */
    uint8_t role[DCP_ROLE_SLOTS];
} dcp_roles;

static inline dcp_role dcp_role_of(const dcp_roles *roles, uint32_t memo)
{
    size_t i = memo % DCP_ROLE_SLOTS;
    while (roles->memo1[i] != memo + 1) {
        if (roles->memo1[i] == 0)
            return DCP_ROLE_NONE;
        i = (i + 1) % DCP_ROLE_SLOTS;
    }
    return (dcp_role)roles->role[i];
}

/* Of the text of a str that may name an attribute, or (is_class) a class. */
dcp_role dcp_role_by_name(const uint8_t *text, size_t nbytes, bool is_class);

/* Bytes of the record or pair at p, where DCP_LOOK bytes can be read; 0: it has none of the known
 * forms. */
size_t dcp_record_match(const dcp_roles *roles, const uint8_t *p, dcp_raw_record *r);

/* Whether the record belongs to the part; if not, a new one begins. */
static inline bool dcp_part_continues(const dcp_part *part, const dcp_raw_record *r)
{
    return part->pairs == r->pairs && part->per_record == r->memoized &&
           memcmp(part->places, r->places, sizeof r->places) == 0;
}

static inline dcp_part dcp_part_begin(const dcp_raw_record *r, uint32_t first)
{
    dcp_part part = {.first = first, .per_record = r->memoized, .pairs = r->pairs};
    memcpy(part.places, r->places, sizeof part.places);
    return part;
}

/* Length of the opcode at p; 0: unknown, or too long for the window. */
size_t dcp_opcode_nbytes(const uint8_t *p);

/* --- dcp_condense_put.c --- */

/* Sizes that were stored last, by their hash: layers have the same shapes. */
#define DCP_SIZE_SLOTS 8192u

typedef struct dcp_recorder {
    dcp_metadata *m;
    uint64_t memoized; /* so far; is_ahead: in the block */
    bool is_ahead;
    /* Words */
    strtab *texts;
    vec *fetched_words;
    vec *
        fetched; /* uint64_t: the memo entry of each; is_ahead: `memoized` when it was fetched first */
    vec next_text; /* uint32_t: the text after this one */
    uint32_t last_fqn;
    value_map memo_words; /* memo entry + 1 -> position in fetched_words, + 1 */
    uint32_t last_memo_word;
    uint32_t size_slots[DCP_SIZE_SLOTS];
} dcp_recorder;

/* A zeroed recorder; the caller sets its other vecs. */
void dcp_recorder_init(dcp_recorder *t, dcp_metadata *m);
void dcp_recorder_release(dcp_recorder *t);

fsdpck_status dcp_record_size(dcp_recorder *t, const dcp_raw_size *size, uint32_t *at);
fsdpck_status dcp_record_text(dcp_recorder *t, const dcp_raw_text *text, uint32_t *word);
fsdpck_status dcp_record_memo(dcp_recorder *t, uint32_t memo, uint32_t *word);
fsdpck_status dcp_record_chunk(dcp_recorder *t, const dcp_raw_record *r);
fsdpck_status dcp_record_entry(dcp_recorder *t, const dcp_raw_record *r);

/* --- dcp_condense_ahead.c --- */

/* Records in a row with the same memo entries, in a block. */
typedef struct dcp_span {
    dcp_part part;     /* of the block's records */
    size_t from, to;   /* in the block's bytes */
    uint64_t memoized; /* in the block, before it */
} dcp_span;

/* A block that any thread reads and matches, before it is known what the opcodes before it do: with
 * the roles known by then, and with words, sizes and memo entries of its own. */
typedef struct dcp_ahead {
    dcp_block block;
    bool ready;      /* read, and matched as far as can be */
    bool failed;     /* not read */
    bool stale;      /* its texts are incomplete */
    dcp_roles roles; /* known before */
    size_t nroles;   /* 0: only read it */
    dcp_metadata m;  /* its dims, chunks and entries */
    dcp_recorder r;
    strtab texts; /* of this block and those before it that this dcp_ahead had */
    vec fetched_words, first_uses;
    vec spans;
    /* Of the taker. */
    size_t next_span;
    bool mapped;
    uint64_t memo_shift;                 /* memo entries before the block, as of its first span */
    vec texts_map, memos_map, sizes_map; /* uint32_t: what they are in the whole */
} dcp_ahead;

void dcp_ahead_init(dcp_ahead *a, budget *owner, size_t room);
void dcp_ahead_release(dcp_ahead *a);
/* After dcp_block_plan, with the roles set. */
void dcp_ahead_match(dcp_ahead *a, const dcp_bytes *from);
/* The span that begins at `at`, NULL if none does. */
const dcp_span *dcp_ahead_find(dcp_ahead *a, size_t at);
/* Appends its records to those of `t`. */
fsdpck_status dcp_ahead_take(dcp_ahead *a, const dcp_span *span, dcp_recorder *t);

#endif
