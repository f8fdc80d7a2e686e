/* Pickles: opcodes are deleted, doubled, moved and put in; memo entries are fetched elsewhere;
 * classes, texts, counts and lengths are exchanged. */
#include <string.h>

#include "formats/common/pickle_opcodes.h"
#include "tests/fuzz/mutators/mutate.h"

enum { OPS_MAX = 4096 };

typedef struct ops {
    size_t count;
    uint32_t at[OPS_MAX + 1]; /* where each begins; the last one's end too */
} ops;

static const struct {
    uint8_t op, argument_nbytes, count_nbytes, lines;
} forms[] = {
    {OP_FLOAT, 0, 0, 1},
    {OP_INT, 0, 0, 1},
    {OP_BININT, 4, 0, 0},
    {OP_BININT1, 1, 0, 0},
    {OP_LONG, 0, 0, 1},
    {OP_BININT2, 2, 0, 0},
    {OP_PERSID, 0, 0, 1},
    {OP_STRING, 0, 0, 1},
    {OP_BINSTRING, 0, 4, 0},
    {OP_SHORT_BINSTRING, 0, 1, 0},
    {OP_UNICODE, 0, 0, 1},
    {OP_BINUNICODE, 0, 4, 0},
    {OP_GLOBAL, 0, 0, 2},
    {OP_INST, 0, 0, 2},
    {OP_GET, 0, 0, 1},
    {OP_BINGET, 1, 0, 0},
    {OP_LONG_BINGET, 4, 0, 0},
    {OP_PUT, 0, 0, 1},
    {OP_BINPUT, 1, 0, 0},
    {OP_LONG_BINPUT, 4, 0, 0},
    {OP_BINFLOAT, 8, 0, 0},
    {OP_BINBYTES, 0, 4, 0},
    {OP_SHORT_BINBYTES, 0, 1, 0},
    {OP_PROTO, 1, 0, 0},
    {OP_LONG1, 0, 1, 0},
    {OP_LONG4, 0, 4, 0},
    {OP_SHORT_BINUNICODE, 0, 1, 0},
    {OP_BINUNICODE8, 0, 8, 0},
    {OP_BINBYTES8, 0, 8, 0},
    {OP_BYTEARRAY8, 0, 8, 0},
    {OP_FRAME, 8, 0, 0},
    {OP_EXT1, 1, 0, 0},
    {OP_EXT2, 2, 0, 0},
    {OP_EXT4, 4, 0, 0},
};

/* Opcodes without an argument. */
static const uint8_t bare[] = {
    OP_MARK,      OP_POP,         OP_POP_MARK,   OP_DUP,       OP_NONE,         OP_BINPERSID,
    OP_REDUCE,    OP_APPEND,      OP_BUILD,      OP_DICT,      OP_EMPTY_DICT,   OP_APPENDS,
    OP_LIST,      OP_SETITEM,     OP_EMPTY_LIST, OP_TUPLE,     OP_EMPTY_TUPLE,  OP_SETITEMS,
    OP_NEWOBJ,    OP_TUPLE1,      OP_TUPLE2,     OP_TUPLE3,    OP_NEWTRUE,      OP_NEWFALSE,
    OP_EMPTY_SET, OP_ADDITEMS,    OP_FROZENSET,  OP_NEWOBJ_EX, OP_STACK_GLOBAL, OP_MEMOIZE,
    OP_OBJ,       OP_NEXT_BUFFER, OP_STOP,
};

static const char *const classes[] = {
    "collections\nOrderedDict",
    "torch\nSize",
    "torch._utils\n_rebuild_tensor_v2",
    "torch._utils\n_rebuild_tensor_v3",
    "torch._utils\n_rebuild_parameter",
    "torch._tensor\n_rebuild_from_type_v2",
    "torch\nFloatStorage",
    "torch\nBFloat16Storage",
    "torch.storage\nUntypedStorage",
    "torch\nfloat32",
    "torch\nbfloat16",
    "torch\ncomplex64",
    "torch.serialization\n_get_layout",
    "_codecs\nencode",
    "builtins\ngetattr",
    "__builtin__\ngetattr",
    "builtins\nset",
    "builtins\nbytearray",
    "os\nsystem",
    "torch.distributed.checkpoint.metadata\nMetadata",
    "torch.distributed.checkpoint.metadata\nTensorStorageMetadata",
    "torch.distributed.checkpoint.metadata\nBytesStorageMetadata",
    "torch.distributed.checkpoint.metadata\nChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata\nMetadataIndex",
    "torch.distributed.checkpoint.metadata\nTensorProperties",
    "torch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem\n_StorageInfo",
    "torch.distributed._shard.sharded_tensor.metadata\nTensorProperties",
    "torch.distributed._shard.sharded_tensor.shard\nShard",
    "torch.distributed._shard.sharded_tensor.api\nShardedTensor",
    "torch.distributed.tensor\nDTensor",
    "torch.distributed.tensor._dtensor_spec\nDTensorSpec",
    "torch.distributed.tensor.placement_types\nShard",
    "torch.distributed.tensor.placement_types\n_StridedShard",
    "torch.distributed.tensor.placement_types\nReplicate",
    "torch.distributed.device_mesh\nDeviceMesh",
};

static const char *const texts[] = {
    "state_dict_metadata",
    "storage_data",
    "planner_data",
    "storage_meta",
    "chunks",
    "properties",
    "size",
    "sizes",
    "offsets",
    "offset",
    "fqn",
    "index",
    "relative_path",
    "length",
    "transform_descriptors",
    "storage",
    "cpu",
    "0",
    "1",
    "model",
    "a",
    "",
    "..",
    "/",
    "../x",
    "x\n",
};

static unsigned form_of(uint8_t op)
{
    unsigned i = 0;
    while (i < sizeof forms / sizeof *forms && forms[i].op != op)
        i++;
    return i;
}

/* Bytes of the opcode at `at` with its argument; 0 where it does not fit. */
static size_t op_nbytes(const uint8_t *p, size_t left)
{
    const unsigned i = form_of(p[0]);
    if (i == sizeof forms / sizeof *forms)
        return 1;
    size_t n = 1u + forms[i].argument_nbytes + forms[i].count_nbytes;
    if (n > left)
        return 0;
    uint64_t count = 0;
    memcpy(&count, p + 1, forms[i].count_nbytes);
    if (count > left - n)
        return 0;
    n += (size_t)count;
    for (unsigned line = 0; line < forms[i].lines; line++) {
        const uint8_t *end = memchr(p + n, '\n', left - n);
        if (end == NULL)
            return 0;
        n = (size_t)(end - p) + 1;
    }
    return n;
}

static void split(const mutation *m, ops *o)
{
    size_t at = 0;
    o->count = 0;
    o->at[0] = 0;
    while (at < m->nbytes && o->count < OPS_MAX) {
        const size_t n = op_nbytes(m->bytes + at, m->nbytes - at);
        if (n == 0)
            break;
        at += n;
        o->at[++o->count] = (uint32_t)at;
    }
}

/* An opcode among `wanted`, from a random place on; o->count where there is none. */
static size_t find_op(mutation *m, const ops *o, const uint8_t *wanted, size_t count)
{
    const size_t start = mutate_below(m, o->count);
    for (size_t k = 0; k < o->count; k++) {
        const size_t i = (start + k) % o->count;
        if (memchr(wanted, m->bytes[o->at[i]], count) != NULL)
            return i;
    }
    return o->count;
}

static void insert_op(mutation *m, size_t at)
{
    uint8_t bytes[300];
    size_t n = 1;
    const size_t kind = mutate_below(m, 8);
    bytes[0] = bare[mutate_below(m, sizeof bare)];
    if (kind == 0) {
        const char *name = classes[mutate_below(m, sizeof classes / sizeof *classes)];
        bytes[0] = OP_GLOBAL;
        memcpy(bytes + 1, name, strlen(name));
        n += strlen(name);
        bytes[n++] = '\n';
    } else if (kind == 1) {
        const char *text = texts[mutate_below(m, sizeof texts / sizeof *texts)];
        bytes[0] = mutate_once_in(m, 2) ? OP_SHORT_BINUNICODE : OP_SHORT_BINSTRING;
        bytes[1] = (uint8_t)strlen(text);
        memcpy(bytes + 2, text, strlen(text));
        n += 1 + strlen(text);
    } else if (kind < 4) {
        const unsigned f = (unsigned)mutate_below(m, sizeof forms / sizeof *forms);
        const uint64_t v = mutate_number(m, 4);
        bytes[0] = forms[f].op;
        memcpy(bytes + 1, &v, sizeof v);
        n = 1u + forms[f].argument_nbytes + forms[f].count_nbytes;
        if (forms[f].count_nbytes > 0)
            bytes[1] = 0, bytes[2] = 0, bytes[3] = 0, bytes[4] = 0, memset(bytes + 5, 0, 4);
        for (unsigned line = 0; line < forms[f].lines; line++) {
            bytes[n++] = (uint8_t)('0' + mutate_below(m, 10));
            bytes[n++] = '\n';
        }
    }
    mutate_replace(m, at, 0, bytes, n);
}

/* A number of the memo, by the opcode's width. */
static void retarget(mutation *m, const ops *o)
{
    static const uint8_t memo[] = {OP_BINGET, OP_LONG_BINGET, OP_BINPUT, OP_LONG_BINPUT};
    const size_t i = find_op(m, o, memo, sizeof memo);
    const size_t other = find_op(m, o, memo, sizeof memo);
    if (i == o->count)
        return;
    uint8_t *p = m->bytes + o->at[i] + 1;
    const uint8_t *q = m->bytes + o->at[other] + 1;
    if (mutate_once_in(m, 3))
        p[0] = (uint8_t)(p[0] + 1 - 2 * mutate_below(m, 2));
    else
        p[0] = q[0];
}

static void exchange_class(mutation *m, const ops *o)
{
    static const uint8_t wanted[] = {OP_GLOBAL};
    static const uint8_t strings[] = {OP_SHORT_BINUNICODE};
    const char *name = classes[mutate_below(m, sizeof classes / sizeof *classes)];
    const size_t i = find_op(m, o, wanted, 1);
    if (i < o->count) {
        mutate_replace(m, o->at[i] + 1, o->at[i + 1] - o->at[i] - 2, name, strlen(name));
        return;
    }
    const size_t k = find_op(m, o, strings, 1); /* STACK_GLOBAL's name, perhaps */
    const char *tail = strchr(name, '\n') + 1;
    if (k == o->count ||
        !mutate_replace(m, o->at[k] + 2, o->at[k + 1] - o->at[k] - 2, tail, strlen(tail)))
        return;
    m->bytes[o->at[k] + 1] = (uint8_t)strlen(tail);
}

static void exchange_text(mutation *m, const ops *o)
{
    static const uint8_t strings[] = {OP_SHORT_BINUNICODE, OP_SHORT_BINSTRING, OP_BINUNICODE,
                                      OP_SHORT_BINBYTES, OP_BINSTRING};
    const size_t i = find_op(m, o, strings, sizeof strings);
    if (i == o->count)
        return;
    const uint8_t count_nbytes = forms[form_of(m->bytes[o->at[i]])].count_nbytes;
    const size_t begin = o->at[i] + 1u + count_nbytes;
    const char *text = texts[mutate_below(m, sizeof texts / sizeof *texts)];
    size_t n = o->at[i + 1] - begin;
    if (mutate_once_in(m, 3))
        mutate_part(m, begin, &n, mutate_bytes);
    else if (mutate_replace(m, begin, n, text, strlen(text)))
        n = strlen(text);
    const uint64_t count = n;
    if (n < 256 || count_nbytes > 1)
        memcpy(m->bytes + o->at[i] + 1, &count, count_nbytes);
}

/* Integers, counts and lengths. */
static void change_number(mutation *m, const ops *o)
{
    static const uint8_t numbers[] = {OP_BININT,  OP_BININT1, OP_BININT2,    OP_LONG1,
                                      OP_FRAME,   OP_LONG4,   OP_BINUNICODE, OP_SHORT_BINUNICODE,
                                      OP_BINFLOAT};
    const size_t i = find_op(m, o, numbers, sizeof numbers);
    if (i == o->count)
        return;
    const uint8_t op = m->bytes[o->at[i]];
    uint64_t v = 0;
    size_t n = o->at[i + 1] - o->at[i] - 1;
    memcpy(&v, m->bytes + o->at[i] + 1, n < 8 ? n : 8);
    v = mutate_number(m, v);
    if ((op == OP_BININT || op == OP_BININT1 || op == OP_BININT2) && mutate_once_in(m, 3)) {
        uint8_t wide[11] = {OP_LONG1, 8};
        memcpy(wide + 2, &v, 8);
        mutate_replace(m, o->at[i], n + 1, wide, 10);
        return;
    }
    if (op == OP_BINUNICODE || op == OP_SHORT_BINUNICODE || op == OP_LONG1)
        n = op == OP_BINUNICODE ? 4 : 1;
    memcpy(m->bytes + o->at[i] + 1, &v, n < 8 ? n : 8);
}

/* A run of opcodes goes elsewhere, or is doubled there. */
static void copy_from_other(mutation *m, const ops *o, bool move)
{
    const size_t i = mutate_below(m, o->count);
    const size_t most = o->count - i < 12 ? o->count - i : 12;
    const size_t from = o->at[i], n = o->at[i + 1 + mutate_below(m, most)] - from;
    const size_t to = o->at[mutate_below(m, o->count + 1)];
    if (!mutate_replace(m, to, 0, m->bytes + from, n) || !move)
        return;
    mutate_replace(m, to <= from ? from + n : from, to > from && to < from + n ? 0 : n, "", 0);
}

void mutate_pickle(mutation *m)
{
    static ops o;
    split(m, &o);
    if (o.count == 0) {
        mutate_bytes(m);
        return;
    }
    const size_t i = mutate_below(m, o.count);
    switch (mutate_below(m, 9)) {
    case 0:
        mutate_replace(m, o.at[i], o.at[i + 1] - o.at[i], "", 0);
        break;
    case 1:
        mutate_replace(m, o.at[mutate_below(m, o.count)], 0, m->bytes + o.at[i],
                       o.at[i + 1] - o.at[i]);
        break;
    case 2:
        insert_op(m, o.at[i]);
        break;
    case 3:
        retarget(m, &o);
        break;
    case 4:
        exchange_class(m, &o);
        break;
    case 5:
        exchange_text(m, &o);
        break;
    case 6:
        copy_from_other(m, &o, mutate_once_in(m, 2));
        break;
    default:
        change_number(m, &o);
        break;
    }
}
