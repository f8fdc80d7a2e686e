/* dcp_hooks.h: the hooks that turn DCP's classes into records while a `.metadata` is read.
 *
 * Each record is made at NEWOBJ (so that the memo holds its note) and filled at BUILD. A note is a HOST value:
 * what it is in the upper bits, the record's index in the lower 32.
 */
#ifndef FSDPCK_DCP_HOOKS_H
#define FSDPCK_DCP_HOOKS_H

#include "formats/dcp/dcp_metadata.h"

typedef enum dcp_note {
    DCP_NOTE_SIZE = 1, /* index in dims */
    DCP_NOTE_CHUNK,
    DCP_NOTE_TENSOR,
    DCP_NOTE_BYTES,
    DCP_NOTE_PROPERTIES,
    DCP_NOTE_INDEX, /* an entry, by its key */
    DCP_NOTE_INFO   /* an entry, by its item */
} dcp_note;

typedef struct dcp_parser {
    dcp_metadata *m;
    dcp_names *names;
    bool opaque_calls;
} dcp_parser;

static inline value dcp_note_make(dcp_note what, uint64_t index)
{
    return value_of_host(((uint64_t)what << 48) | index);
}

/* 0 where v is no note. */
static inline unsigned dcp_note_what(value v)
{
    return value_kind_of(v) == VALUE_HOST ? (unsigned)(value_host_note(v) >> 48) : 0;
}

static inline uint32_t dcp_note_index(value v)
{
    return (uint32_t)value_host_note(v);
}

/* Hooks over `parser`. */
pickle_hooks dcp_hooks_make(dcp_parser *parser);

/* BUILD of a record (dcp_build.c). */
fsdpck_status dcp_build(dcp_parser *parser, value_pool *pool, value note, value state,
                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A torch.Size record from its items: a TUPLE or LIST of ints, or a note of one. */
fsdpck_status dcp_size_from(dcp_parser *parser, const value_pool *pool, value items, uint32_t *at,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds chunk notes to the list whose note (index + 1, 0: none yet) is *list_note. */
fsdpck_status dcp_list_add(dcp_parser *parser, const value *chunks, size_t count, uint64_t *list_note,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
