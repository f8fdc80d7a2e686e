/* dcp_condense_record.c: the opcodes with which torch writes a chunk, or an entry of storage_data. */
#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/dcp/dcp_condense_internal.h"

typedef struct role_name {
    const char *name;
    dcp_role role;
} role_name;

static const role_name classes[] = {
    {"ChunkStorageMetadata", DCP_ROLE_CHUNK},
    {"MetadataIndex", DCP_ROLE_INDEX},
    {"_StorageInfo", DCP_ROLE_INFO},
    {"Size", DCP_ROLE_SIZE},
};

static const role_name attributes[] = {
    {"offsets", DCP_ROLE_OFFSETS},    {"sizes", DCP_ROLE_SIZES},   {"fqn", DCP_ROLE_FQN},
    {"index", DCP_ROLE_HINT},         {"offset", DCP_ROLE_OFFSET}, {"length", DCP_ROLE_LENGTH},
    {"relative_path", DCP_ROLE_PATH},
};

dcp_role dcp_role_by_name(const uint8_t *text, size_t nbytes, bool is_class)
{
    const role_name *const names = is_class ? classes : attributes;
    const size_t count =
        is_class ? sizeof classes / sizeof *classes : sizeof attributes / sizeof *attributes;
    for (size_t i = 0; nbytes <= 20 && i < count; i++)
        if (strlen(names[i].name) == nbytes && memcmp(names[i].name, text, nbytes) == 0)
            return names[i].role;
    return DCP_ROLE_NONE;
}

/* `p` is the next byte to match. */
typedef struct matcher {
    const dcp_roles *roles;
    const uint8_t *p;
    dcp_raw_record *r;
    unsigned memoized;
} matcher;

static inline bool take_byte(matcher *t, uint8_t op)
{
    const bool is = *t->p == op;
    t->p += is;
    return is;
}

static inline bool take_fetch(matcher *t, uint32_t *memo)
{
    if (*t->p == OP_BINGET) {
        *memo = t->p[1];
        t->p += 2;
        return true;
    }
    if (*t->p != OP_LONG_BINGET)
        return false;
    *memo = load_le32(t->p + 1);
    t->p += 5;
    return true;
}

/* Not negative; nothing is taken where the result is false, so that a tuple does not end there. */
static inline bool take_int(matcher *t, uint64_t *n)
{
    const uint8_t *const p = t->p;
    switch (p[0]) {
    case OP_BININT1:
        *n = p[1];
        t->p += 2;
        return true;
    case OP_BININT2:
        *n = load_le16(p + 1);
        t->p += 3;
        return true;
    case OP_BININT:
        *n = load_le32(p + 1);
        t->p += *n <= INT32_MAX ? 5 : 0;
        return *n <= INT32_MAX;
    case OP_LONG1:
        if (p[1] == 0 || p[1] > 8 || (p[1 + p[1]] & 0x80) != 0)
            return false;
        *n = load_le64(p + 2) & UINT64_MAX >> (64 - 8 * p[1]);
        t->p += 2u + p[1];
        return true;
    default:
        return false;
    }
}

/* torch.Size((...)) */
static inline bool take_size(matcher *t, dcp_memo_place place, dcp_raw_size *size)
{
    uint32_t memo;
    if (!take_fetch(t, &memo) || dcp_role_of(t->roles, memo) != DCP_ROLE_SIZE)
        return false;
    const bool marked = take_byte(t, OP_MARK);
    unsigned ndim = 0;
    size->has = true;
    if (take_byte(t, OP_EMPTY_TUPLE)) {
        if (marked)
            return false;
    } else {
        while (ndim < DCP_RECORD_NDIM && take_int(t, &size->dims[ndim]))
            ndim++;
        if (ndim == 0 || (!marked && ndim > 3) ||
            !take_byte(t, (uint8_t)(marked ? OP_TUPLE : OP_TUPLE1 + ndim - 1)) ||
            !take_byte(t, OP_MEMOIZE))
            return false;
        t->memoized++;
    }
    size->ndim = ndim;
    static const uint8_t call[] = {OP_TUPLE1, OP_MEMOIZE, OP_REDUCE, OP_MEMOIZE};
    if (memcmp(t->p, call, sizeof call) != 0)
        return false;
    t->p += sizeof call;
    t->memoized += 2;
    t->r->places[place] = (uint8_t)(t->memoized - 1);
    return true;
}

static inline bool take_text(matcher *t, dcp_memo_place place, dcp_raw_text *text)
{
    if (*t->p != OP_SHORT_BINUNICODE) {
        text->text = NULL;
        return take_fetch(t, &text->memo);
    }
    text->nbytes = t->p[1];
    text->text = t->p + 2;
    t->p += 2 + text->nbytes;
    t->r->places[place] = (uint8_t)t->memoized++;
    return take_byte(t, OP_MEMOIZE);
}

static inline bool take_attribute(matcher *t, dcp_role role)
{
    dcp_raw_record *r = t->r;
    switch (role) {
    case DCP_ROLE_OFFSETS:
        return take_size(t, DCP_MEMO_OFFSETS, &r->offsets);
    case DCP_ROLE_SIZES:
        return take_size(t, DCP_MEMO_SIZES, &r->sizes);
    case DCP_ROLE_FQN:
        return take_text(t, DCP_MEMO_FQN, &r->fqn);
    case DCP_ROLE_PATH:
        return take_text(t, DCP_MEMO_PATH, &r->path);
    case DCP_ROLE_HINT:
        return take_byte(t, OP_NONE) || (take_int(t, &r->hint) && r->hint < DCP_NONE);
    case DCP_ROLE_LENGTH:
        return take_int(t, &r->nbytes);
    default:
        return false;
    }
}

/* The object of a class (its fetch is taken already) with exactly the attributes `wanted`, a bit for
 * each role. `offset` is a torch.Size in an index, and a number in a _StorageInfo. */
static inline bool take_object(matcher *t, dcp_memo_place place, unsigned wanted)
{
    static const uint8_t head[] = {OP_EMPTY_TUPLE, OP_NEWOBJ,  OP_MEMOIZE,
                                   OP_EMPTY_DICT,  OP_MEMOIZE, OP_MARK};
    unsigned seen = 0;
    uint32_t memo;
    if (memcmp(t->p, head, sizeof head) != 0)
        return false;
    t->p += sizeof head;
    t->r->places[place] = (uint8_t)t->memoized;
    t->memoized += 2;
    while (*t->p != OP_SETITEMS) {
        if (!take_fetch(t, &memo))
            return false;
        const dcp_role role = dcp_role_of(t->roles, memo);
        const unsigned bit = 1u << role;
        bool is;
        if ((wanted & bit) == 0 || (seen & bit) != 0)
            return false;
        seen |= bit;
        if (role != DCP_ROLE_OFFSET)
            is = take_attribute(t, role);
        else if (place == DCP_MEMO_FIRST)
            is = take_byte(t, OP_NONE) || take_size(t, DCP_MEMO_OFFSETS, &t->r->offsets);
        else
            is = take_int(t, &t->r->offset_bytes);
        if (!is)
            return false;
    }
    t->p++;
    return seen == wanted && take_byte(t, OP_BUILD);
}

size_t dcp_record_match(const dcp_roles *roles, const uint8_t *p, dcp_raw_record *r)
{
    matcher t = {.roles = roles, .p = p, .r = r};
    uint32_t memo;

    if (!take_fetch(&t, &memo))
        return 0;
    const dcp_role role = dcp_role_of(roles, memo);
    memset(r->places, DCP_MEMO_NOWHERE, sizeof r->places);
    r->offsets.has = r->sizes.has = false;
    r->hint = DCP_NONE;
    r->pairs = role == DCP_ROLE_INDEX;
    if (role == DCP_ROLE_CHUNK) {
        if (!take_object(&t, DCP_MEMO_FIRST, 1u << DCP_ROLE_OFFSETS | 1u << DCP_ROLE_SIZES))
            return 0;
    } else if (role != DCP_ROLE_INDEX ||
               !take_object(&t, DCP_MEMO_FIRST,
                            1u << DCP_ROLE_FQN | 1u << DCP_ROLE_HINT | 1u << DCP_ROLE_OFFSET) ||
               !take_fetch(&t, &memo) || dcp_role_of(roles, memo) != DCP_ROLE_INFO ||
               !take_object(&t, DCP_MEMO_INFO,
                            1u << DCP_ROLE_PATH | 1u << DCP_ROLE_OFFSET | 1u << DCP_ROLE_LENGTH)) {
        return 0;
    }
    r->memoized = (uint8_t)t.memoized;
    return (size_t)(t.p - p);
}

/* An argument of more bytes than this is not in the window. */
#define ARGUMENT_MOST (DCP_LOOK - 16)

/* Length of an opcode with a counted argument; 0: unknown opcode. */
static size_t counted_nbytes(const uint8_t *p)
{
    switch (p[0]) {
    case OP_LONG1:
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINBYTES:
        return 2u + p[1];
    case OP_BINUNICODE:
    case OP_BINBYTES:
        return 5u + (size_t)load_le32(p + 1);
    default:
        return 0;
    }
}

/* By opcode, of those without a counted argument. */
static const uint8_t fixed_nbytes[256] = {
    [OP_MARK] = 1,        [OP_POP] = 1,          [OP_POP_MARK] = 1,   [OP_DUP] = 1,
    [OP_NONE] = 1,        [OP_BINPERSID] = 1,    [OP_REDUCE] = 1,     [OP_APPEND] = 1,
    [OP_BUILD] = 1,       [OP_DICT] = 1,         [OP_EMPTY_DICT] = 1, [OP_APPENDS] = 1,
    [OP_LIST] = 1,        [OP_EMPTY_LIST] = 1,   [OP_SETITEM] = 1,    [OP_TUPLE] = 1,
    [OP_EMPTY_TUPLE] = 1, [OP_SETITEMS] = 1,     [OP_NEWOBJ] = 1,     [OP_TUPLE1] = 1,
    [OP_TUPLE2] = 1,      [OP_TUPLE3] = 1,       [OP_NEWTRUE] = 1,    [OP_NEWFALSE] = 1,
    [OP_EMPTY_SET] = 1,   [OP_ADDITEMS] = 1,     [OP_FROZENSET] = 1,  [OP_NEWOBJ_EX] = 1,
    [OP_MEMOIZE] = 1,     [OP_STACK_GLOBAL] = 1, [OP_STOP] = 1,       [OP_BININT1] = 2,
    [OP_BINGET] = 2,      [OP_BININT2] = 3,      [OP_BININT] = 5,     [OP_LONG_BINGET] = 5,
    [OP_BINFLOAT] = 9};

size_t dcp_opcode_nbytes(const uint8_t *p)
{
    const size_t n = fixed_nbytes[p[0]] > 0 ? fixed_nbytes[p[0]] : counted_nbytes(p);
    return n <= ARGUMENT_MOST ? n : 0;
}
