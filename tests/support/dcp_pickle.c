#include "tests/support/dcp_pickle.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

#define METADATA_MODULE "torch.distributed.checkpoint.metadata"

/* Symbols and texts that recur; each is written once, then fetched from the memo. */
enum {
    MODULE_METADATA,
    CLASS_TENSOR,
    CLASS_PROPERTIES,
    CLASS_SIZE,
    CLASS_CHUNK,
    CLASS_INDEX,
    CLASS_INFO,
    DTYPE,
    LAYOUT,
    ENCODING,
    KEY_PROPERTIES,
    KEY_SIZE,
    KEY_CHUNKS,
    KEY_OFFSETS,
    KEY_SIZES,
    KEY_FQN,
    KEY_INDEX,
    KEY_OFFSET,
    KEY_PATH,
    KEY_LENGTH,
    SHARED_COUNT
};

typedef struct pen {
    text_buf *out;
    uint32_t memo;
    uint32_t at[SHARED_COUNT]; /* memo index + 1; 0: not yet written */
} pen;

static void op(pen *p, char c)
{
    text_append(p->out, &c, 1);
}

static void memoize(pen *p)
{
    op(p, '\x94');
    p->memo++;
}

static void put_str(pen *p, const char *text)
{
    const size_t n = strlen(text);
    uint8_t head[5] = {0x8C, (uint8_t)n};
    if (n < 256) {
        text_append(p->out, head, 2);
    } else {
        head[0] = 'X';
        store_le32(head + 1, (uint32_t)n);
        text_append(p->out, head, 5);
    }
    text_append(p->out, text, n);
    memoize(p);
}

static void put_get(pen *p, uint32_t index)
{
    uint8_t bytes[5] = {'h', (uint8_t)index};
    if (index < 256) {
        text_append(p->out, bytes, 2);
        return;
    }
    bytes[0] = 'j';
    store_le32(bytes + 1, index);
    text_append(p->out, bytes, 5);
}

static void put_int(pen *p, uint64_t v)
{
    uint8_t bytes[11] = {'K', (uint8_t)v};
    if (v < 256) {
        text_append(p->out, bytes, 2);
    } else if (v < 65536) {
        bytes[0] = 'M';
        store_le16(bytes + 1, (uint16_t)v);
        text_append(p->out, bytes, 3);
    } else if (v < UINT64_C(1) << 31) {
        bytes[0] = 'J';
        store_le32(bytes + 1, (uint32_t)v);
        text_append(p->out, bytes, 5);
    } else {
        bytes[0] = (uint8_t)0x8A;
        bytes[1] = 9;
        store_le64(bytes + 2, v);
        bytes[10] = 0;
        text_append(p->out, bytes, 11);
    }
}

/* From the memo, or false where it is to be written (and memoized last) by the caller. */
static int fetched(pen *p, int shared)
{
    if (p->at[shared] == 0)
        return 0;
    put_get(p, p->at[shared] - 1);
    return 1;
}

static void shared_str(pen *p, int shared, const char *text)
{
    if (fetched(p, shared))
        return;
    put_str(p, text);
    p->at[shared] = p->memo;
}

static void shared_symbol(pen *p, int shared, const char *module, const char *name)
{
    if (fetched(p, shared))
        return;
    if (strcmp(module, METADATA_MODULE) == 0)
        shared_str(p, MODULE_METADATA, module);
    else
        put_str(p, module);
    put_str(p, name);
    op(p, '\x93');
    memoize(p);
    p->at[shared] = p->memo;
}

/* Class() and an open state dict. */
static void begin_object(pen *p, int shared, const char *module, const char *name)
{
    shared_symbol(p, shared, module, name);
    text_append(p->out, ")\x81", 2);
    memoize(p);
    op(p, '}');
    memoize(p);
    op(p, '(');
}

static void put_size(pen *p, uint64_t a, uint64_t b)
{
    shared_symbol(p, CLASS_SIZE, "torch", "Size");
    put_int(p, a);
    put_int(p, b);
    op(p, '\x86');
    memoize(p);
    op(p, '\x85');
    memoize(p);
    op(p, 'R');
    memoize(p);
}

static void put_enum_call(pen *p, int shared, const char *module, const char *name,
                          const char *text)
{
    if (fetched(p, shared))
        return;
    put_str(p, module);
    put_str(p, name);
    op(p, '\x93');
    memoize(p);
    if (text != NULL)
        put_str(p, text);
    else
        put_int(p, 0);
    op(p, '\x85');
    memoize(p);
    op(p, 'R');
    memoize(p);
    p->at[shared] = p->memo;
}

static void put_tensor(pen *p, const dcp_pickle *spec)
{
    begin_object(p, CLASS_TENSOR, METADATA_MODULE, "TensorStorageMetadata");
    shared_str(p, KEY_PROPERTIES, "properties");
    shared_symbol(p, CLASS_PROPERTIES, METADATA_MODULE, "TensorProperties");
    text_append(p->out, ")\x81", 2);
    memoize(p);
    op(p, '(');
    shared_symbol(p, DTYPE, "torch", "float32");
    put_enum_call(p, LAYOUT, "torch.serialization", "_get_layout", "torch.strided");
    op(p, '\x89');
    put_enum_call(p, ENCODING, METADATA_MODULE, "_MEM_FORMAT_ENCODING", NULL);
    op(p, '\x89');
    op(p, 't');
    memoize(p);
    op(p, 'b');
    shared_str(p, KEY_SIZE, "size");
    put_size(p, (uint64_t)spec->nranks * spec->rows, spec->cols);
    shared_str(p, KEY_CHUNKS, "chunks");
    op(p, ']');
    memoize(p);
    for (unsigned first = 0; first < spec->nranks; first += 1000) {
        op(p, '(');
        for (unsigned r = first; r < spec->nranks && r < first + 1000; r++) {
            const unsigned k = spec->reversed ? spec->nranks - 1 - r : r;
            begin_object(p, CLASS_CHUNK, METADATA_MODULE, "ChunkStorageMetadata");
            shared_str(p, KEY_OFFSETS, "offsets");
            put_size(p, (uint64_t)k * spec->rows, 0);
            shared_str(p, KEY_SIZES, "sizes");
            put_size(p, spec->rows, spec->cols);
            text_puts(p->out, "ub");
        }
        op(p, 'e');
    }
    text_puts(p->out, "ub");
}

static void tensor_name(char *name, size_t nbytes, unsigned t)
{
    snprintf(name, nbytes, "model.layers.%u.feed_forward.experts.w%u.weight", t / 8, t % 8);
}

static void put_entry(pen *p, const dcp_pickle *spec, unsigned r, unsigned t, uint32_t *path_at)
{
    char name[80];

    begin_object(p, CLASS_INDEX, METADATA_MODULE, "MetadataIndex");
    shared_str(p, KEY_FQN, "fqn");
    tensor_name(name, sizeof name, t);
    put_str(p, name);
    shared_str(p, KEY_INDEX, "index");
    if (spec->hints == 0)
        op(p, 'N');
    else
        put_int(p, spec->hints == 1 ? r : (r + 1) % spec->nranks);
    shared_str(p, KEY_OFFSET, "offset");
    put_size(p, (uint64_t)(spec->reversed ? spec->nranks - 1 - r : r) * spec->rows, 0);
    text_puts(p->out, "ub");
    begin_object(p, CLASS_INFO, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    shared_str(p, KEY_PATH, "relative_path");
    if (*path_at == 0) {
        snprintf(name, sizeof name, "__%u_0.distcp", r);
        put_str(p, name);
        *path_at = p->memo;
    } else {
        put_get(p, *path_at - 1);
    }
    shared_str(p, KEY_OFFSET, "offset");
    put_int(p, (uint64_t)t * spec->blob_nbytes);
    shared_str(p, KEY_LENGTH, "length");
    put_int(p, spec->blob_nbytes);
    text_puts(p->out, "ub");
}

void dcp_pickle_make(const dcp_pickle *spec, text_buf *out)
{
    pen p = {.out = out};
    char name[80];
    unsigned in_batch = 0;

    text_append(out, "\x80\x04", 2);
    shared_str(&p, MODULE_METADATA, METADATA_MODULE);
    put_str(&p, "Metadata");
    op(&p, '\x93');
    memoize(&p);
    text_append(out, ")\x81", 2);
    memoize(&p);
    op(&p, '}');
    memoize(&p);
    op(&p, '(');
    put_str(&p, "state_dict_metadata");
    op(&p, '}');
    memoize(&p);
    for (unsigned t = 0; t < spec->ntensors; t++) {
        if (t % 1000 == 0)
            text_puts(out, t == 0 ? "(" : "u(");
        tensor_name(name, sizeof name, t);
        put_str(&p, name);
        put_tensor(&p, spec);
    }
    text_puts(out, spec->ntensors > 0 ? "u" : "");
    put_str(&p, "planner_data");
    op(&p, 'N');
    put_str(&p, "storage_data");
    op(&p, '}');
    memoize(&p);
    for (unsigned r = 0; r < spec->nranks; r++) {
        uint32_t path_at = 0;
        for (unsigned t = 0; t < spec->ntensors; t++) {
            if (in_batch++ % 1000 == 0)
                text_puts(out, in_batch == 1 ? "(" : "u(");
            put_entry(&p, spec, r, t, &path_at);
        }
    }
    text_puts(out, in_batch > 0 ? "uub." : "ub.");
}
