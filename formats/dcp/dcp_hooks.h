/* dcp_hooks.h: the hooks that turn DCP's classes into records while a `.metadata` is read.
 *
 * Values are read through value_cells.h, since this happens some twenty times per chunk. Each
 * record is created at NEWOBJ (so that the memo holds its note) and filled at BUILD. A note is a
 * HOST value: its type in the upper bits, the record's index in the lower 32.
 */
#ifndef FSDPCK_DCP_HOOKS_H
#define FSDPCK_DCP_HOOKS_H

#include "formats/dcp/dcp_metadata.h"
#include "state/value_cells.h"

typedef enum dcp_note {
    DCP_NOTE_SIZE = 1, /* index in dims */
    DCP_NOTE_CHUNK,
    DCP_NOTE_TENSOR,
    DCP_NOTE_BYTES,
    DCP_NOTE_PROPERTIES,
    DCP_NOTE_INDEX, /* an entry, by its key */
    DCP_NOTE_INFO   /* an entry, by its item */
} dcp_note;

/* Attributes of DCP's classes, as handles of the pool: equal texts have equal handles there. */
typedef enum dcp_key {
    DCP_KEY_OFFSETS,
    DCP_KEY_SIZES,
    DCP_KEY_FQN,
    DCP_KEY_INDEX,
    DCP_KEY_OFFSET,
    DCP_KEY_RELATIVE_PATH,
    DCP_KEY_LENGTH,
    DCP_KEY_TRANSFORMS,
    DCP_KEY_PROPERTIES,
    DCP_KEY_SIZE,
    DCP_KEY_CHUNKS,
    DCP_KEY_DTYPE,
    DCP_KEY_COUNT
} dcp_key;

#define DCP_CACHE_SYMBOLS 64u
#define DCP_CACHE_TEXTS   4096u

typedef struct dcp_parser {
    dcp_metadata *m;
    dcp_names *names;
    bool opaque_calls;
    struct dcp_gaps *gaps; /* of a condensed `.metadata` (dcp_gaps.h); NULL: none */
    value keys[DCP_KEY_COUNT];
    /* Last result, by a hash of the handle. */
    struct {
        value handle;
        dcp_symbol symbol;
    } symbols[DCP_CACHE_SYMBOLS];
    struct {
        value handle;
        uint32_t id;
    } fqns[DCP_CACHE_TEXTS];
} dcp_parser;

static inline size_t dcp_cache_slot(value handle, size_t nslots)
{
    return (size_t)((handle * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (nslots - 1);
}

/* Class of a callee, through the cache. */
dcp_symbol dcp_parser_symbol(dcp_parser *parser, const value_pool *pool, value callee);

/* Id of a STR in names.fqns, through the cache. */
fsdpck_status dcp_parser_fqn(dcp_parser *parser, const value_pool *pool, value text, uint32_t *id,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Id of a relative_path in names.paths. DCP-PATH, PKL-LIMIT. */
fsdpck_status dcp_parser_path(dcp_parser *parser, const char *text, size_t nbytes, uint32_t *id,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

/* `parser` is zeroed except m, names, opaque_calls, gaps. */
fsdpck_status dcp_parser_init(dcp_parser *parser, value_pool *pool,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

static inline value dcp_note_make(dcp_note what, uint64_t index)
{
    return value_of_host(((uint64_t)what << 48) | index);
}

/* 0 if v is not a note. */
static inline unsigned dcp_note_what(value v)
{
    return value_kind_inline(v) == VALUE_HOST ? (unsigned)(value_payload(v) >> 48) : 0;
}

static inline uint32_t dcp_note_index(value v)
{
    return (uint32_t)value_payload(v);
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
fsdpck_status dcp_list_add(dcp_parser *parser, const value *chunks, size_t count,
                           uint64_t *list_note, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for chunks first..first + count - 1. */
fsdpck_status dcp_list_add_run(dcp_metadata *m, uint32_t first, uint32_t count, uint64_t *list_note,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
