#include "formats/dcp/dcp_write_pickle.h"

#include <string.h>

#include "base/bytes.h"

enum { BATCH_MOST = 1000 /* items between a MARK and its opcode, as Python's pickler */ };

#define MODULE_METADATA "torch.distributed.checkpoint.metadata"
#define MODULE_OLD      "torch.distributed._shard.sharded_tensor.metadata"

static const struct {
    const char *module; /* NULL: a str */
    const char *name;
} words[W_COUNT] = {
    [W_METADATA] = {MODULE_METADATA, "Metadata"},
    [W_TENSOR] = {MODULE_METADATA, "TensorStorageMetadata"},
    [W_CHUNK] = {MODULE_METADATA, "ChunkStorageMetadata"},
    [W_BYTES] = {MODULE_METADATA, "BytesStorageMetadata"},
    [W_PROPERTIES] = {MODULE_OLD, "TensorProperties"},
    [W_INDEX] = {MODULE_METADATA, "MetadataIndex"},
    [W_INFO] = {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    [W_ENCODING] = {MODULE_OLD, "MEM_FORMAT_ENCODING"},
    [W_GET_LAYOUT] = {"torch.serialization", "_get_layout"},
    [W_SIZE] = {"torch", "Size"},
    [W_STATE_DICT_METADATA] = {NULL, "state_dict_metadata"},
    [W_PLANNER_DATA] = {NULL, "planner_data"},
    [W_STORAGE_DATA] = {NULL, "storage_data"},
    [W_SIZE_KEY] = {NULL, "size"},
    [W_PROPERTIES_KEY] = {NULL, "properties"},
    [W_CHUNKS_KEY] = {NULL, "chunks"},
    [W_OFFSETS_KEY] = {NULL, "offsets"},
    [W_SIZES_KEY] = {NULL, "sizes"},
    [W_FQN_KEY] = {NULL, "fqn"},
    [W_INDEX_KEY] = {NULL, "index"},
    [W_OFFSET_KEY] = {NULL, "offset"},
    [W_PATH_KEY] = {NULL, "relative_path"},
    [W_LENGTH_KEY] = {NULL, "length"},
};

void meta_flush(meta_writer *m)
{
    text_append(m->out, m->pending, m->pending_nbytes);
    m->pending_nbytes = 0;
}

/* Room for nbytes, few of them. */
static uint8_t *room(meta_writer *m, size_t nbytes)
{
    if (m->pending_nbytes + nbytes > META_PENDING_NBYTES)
        meta_flush(m);
    uint8_t *at = m->pending + m->pending_nbytes;
    m->pending_nbytes += nbytes;
    return at;
}

void meta_put_op(meta_writer *m, int op)
{
    *room(m, 1) = (uint8_t)op;
}

void meta_put_bytes(meta_writer *m, const void *bytes, size_t nbytes)
{
    meta_flush(m);
    text_append(m->out, bytes, nbytes);
}

static void put_numbered(meta_writer *m, int short_op, int long_op, uint32_t number)
{
    uint8_t *at = room(m, number <= UINT8_MAX ? 2 : 5);
    if (number <= UINT8_MAX) {
        at[0] = (uint8_t)short_op;
        at[1] = (uint8_t)number;
    } else {
        at[0] = (uint8_t)long_op;
        store_le32(at + 1, number);
    }
}

void meta_fail(meta_writer *m, fsdpck_status st)
{
    if (m->st == FSDPCK_OK)
        m->st = st;
}

/* The value on top of the stack can be fetched by *memo from now on. */
void meta_remember(meta_writer *m, uint32_t *memo)
{
    put_numbered(m, OP_BINPUT, OP_LONG_BINPUT, m->nmemo);
    *memo = ++m->nmemo;
    if (m->nmemo == UINT32_MAX)
        meta_fail(m, FAIL(m->err, UNSUPPORTED, NONE, "too many names for .metadata"));
}

bool meta_fetch(meta_writer *m, uint32_t memo)
{
    if (memo != 0)
        put_numbered(m, OP_BINGET, OP_LONG_BINGET, memo - 1);
    return memo != 0;
}

void meta_put_int(meta_writer *m, uint64_t i)
{
    uint8_t *at;
    if (i <= UINT8_MAX) {
        at = room(m, 2);
        at[0] = OP_BININT1;
        at[1] = (uint8_t)i;
    } else if (i <= UINT16_MAX) {
        at = room(m, 3);
        at[0] = OP_BININT2;
        store_le16(at + 1, (uint16_t)i);
    } else if (i <= INT32_MAX) {
        at = room(m, 5);
        at[0] = OP_BININT;
        store_le32(at + 1, (uint32_t)i);
    } else {
        at = room(m, 10);
        at[0] = OP_LONG1;
        at[1] = 8;
        store_le64(at + 2, i);
    }
}

void meta_put_text(meta_writer *m, const char *text, size_t nbytes)
{
    uint8_t *at = room(m, 5);
    at[0] = OP_BINUNICODE;
    store_le32(at + 1, (uint32_t)nbytes);
    if (nbytes > UINT32_MAX)
        meta_fail(m, FAIL(m->err, UNSUPPORTED, NONE, "name is too long for a pickle"));
    meta_put_bytes(m, text, nbytes);
}

void meta_put_word(meta_writer *m, enum word word)
{
    const char *module = words[word].module;
    const char *name = words[word].name;
    if (meta_fetch(m, m->words[word]))
        return;
    if (module == NULL) {
        meta_put_text(m, name, strlen(name));
    } else {
        meta_put_op(m, OP_GLOBAL);
        meta_put_bytes(m, module, strlen(module));
        meta_put_op(m, '\n');
        meta_put_bytes(m, name, strlen(name));
        meta_put_op(m, '\n');
    }
    meta_remember(m, &m->words[word]);
}

void meta_put_name(meta_writer *m, uint32_t name)
{
    if (meta_fetch(m, m->names[name]))
        return;
    meta_put_text(m, catalogue_name(&m->t->cat, name), catalogue_name_nbytes(&m->t->cat, name));
    meta_remember(m, &m->names[name]);
}

/* An object of a class, with a dict of attributes begun. */
void meta_begin_object(meta_writer *m, enum word word)
{
    meta_put_word(m, word);
    uint8_t *at = room(m, 4);
    at[0] = OP_EMPTY_TUPLE;
    at[1] = OP_NEWOBJ;
    at[2] = OP_EMPTY_DICT;
    at[3] = OP_MARK;
}

void meta_end_object(meta_writer *m)
{
    uint8_t *at = room(m, 2);
    at[0] = OP_SETITEMS;
    at[1] = OP_BUILD;
}

/* Call before each item of a dict or list with the opcode op; end_batch after the last. */
void meta_next_in_batch(meta_writer *m, uint64_t *count, int op)
{
    if (*count % BATCH_MOST == 0) {
        if (*count > 0)
            meta_put_op(m, op);
        meta_put_op(m, OP_MARK);
    }
    ++*count;
}

void meta_end_batch(meta_writer *m, uint64_t count, int op)
{
    if (count > 0)
        meta_put_op(m, op);
}

static void put_plain_size(meta_writer *m, const uint64_t *dims, unsigned ndim)
{
    static const uint8_t ops[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    meta_put_word(m, W_SIZE);
    if (ndim > 3)
        meta_put_op(m, OP_MARK);
    for (unsigned i = 0; i < ndim; i++)
        meta_put_int(m, dims[i]);
    meta_put_op(m, ndim > 3 ? OP_TUPLE : ops[ndim]);
    meta_put_op(m, OP_TUPLE1);
    meta_put_op(m, OP_REDUCE);
}

/* torch.Size of dims; equal ones are one object, up to a limit. */
void meta_put_size(meta_writer *m, const uint64_t *dims, unsigned ndim)
{
    const char *key = (const char *)dims;
    const size_t key_nbytes = ndim * sizeof *dims;
    uint32_t id = strtab_find(&m->sizes, key, key_nbytes);
    if (id != STRTAB_NONE && id < m->size_memos.count) { /* fewer once memory has run out */
        (void)meta_fetch(m, *VEC_AT(&m->size_memos, const uint32_t, id));
        return;
    }
    put_plain_size(m, dims, ndim);
    if (m->size_memos.count == META_SIZES_MOST || m->st != FSDPCK_OK)
        return;
    meta_fail(m, strtab_intern(&m->sizes, key, key_nbytes, &id, m->err));
    uint32_t *memo = m->st == FSDPCK_OK ? vec_push(&m->size_memos, m->err) : NULL;
    if (memo == NULL)
        meta_fail(m, FSDPCK_LIMIT);
    else
        meta_remember(m, memo);
}
