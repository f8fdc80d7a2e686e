/* A .metadata of many chunks is read in linear time and in little memory where hooks swallow its
 * records.
 *
 *     scale_pickle [CHUNKS]      default 200000; compares with a quarter of them
 *
 * The pickle is made here, opcode by opcode as Python's pickler writes protocol 4. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle.h"
#include "tests/support/seconds.h"

/* --- making --- */

typedef struct maker {
    text_buf out;
    size_t frame_at; /* where the length of the open frame goes */
    uint32_t nmemo;
} maker;

enum { FRAME_BYTES = 65536, BATCH = 1000, RANKS = 512, COLUMNS = 4096 };

static void put(maker *m, const void *bytes, size_t nbytes)
{
    text_append(&m->out, bytes, nbytes);
}

static void op(maker *m, int byte)
{
    const char c = (char)byte;
    put(m, &c, 1);
}

static void frame_close(maker *m)
{
    store_le64((uint8_t *)m->out.text + m->frame_at, m->out.nbytes - m->frame_at - 8);
}

static void frame_open(maker *m)
{
    op(m, 0x95);
    m->frame_at = m->out.nbytes;
    put(m, "\0\0\0\0\0\0\0\0", 8);
}

/* MEMOIZE; the only place where frames may change. */
static uint32_t memoize(maker *m)
{
    op(m, 0x94);
    if (m->out.nbytes - m->frame_at > FRAME_BYTES) {
        frame_close(m);
        frame_open(m);
    }
    return m->nmemo++;
}

static void get(maker *m, uint32_t index)
{
    uint8_t bytes[4];
    store_le32(bytes, index);
    op(m, index < 256 ? 'h' : 'j');
    put(m, bytes, index < 256 ? 1 : 4);
}

static uint32_t str(maker *m, const char *text)
{
    op(m, 0x8C);
    op(m, (int)strlen(text));
    put(m, text, strlen(text));
    return memoize(m);
}

static uint32_t symbol(maker *m, const char *module, const char *name)
{
    (void)str(m, module);
    (void)str(m, name);
    op(m, 0x93);
    return memoize(m);
}

static void number(maker *m, uint32_t n)
{
    uint8_t bytes[4];
    store_le32(bytes, n);
    op(m, n < 256 ? 'K' : n < 65536 ? 'M' : 'J');
    put(m, bytes, n < 256 ? 1 : n < 65536 ? 2 : 4);
}

typedef struct names {
    uint32_t chunk, index, info, size, fqn, hint, offset, offsets, sizes, path, length;
} names;

static void size_object(maker *m, const names *n, uint32_t rows, uint32_t columns)
{
    get(m, n->size);
    number(m, rows);
    number(m, columns);
    put(m, "\x86", 1); /* TUPLE2 */
    (void)memoize(m);
    put(m, "\x85", 1); /* TUPLE1 */
    (void)memoize(m);
    put(m, "R", 1);
    (void)memoize(m);
}

/* NEWOBJ of a class without arguments, and the beginning of its state. */
static void begin_object(maker *m, uint32_t class_at)
{
    get(m, class_at);
    put(m, ")\x81", 2);
    (void)memoize(m);
    put(m, "}", 1);
    (void)memoize(m);
    put(m, "(", 1);
}

static void end_object(maker *m)
{
    put(m, "ub", 2);
}

static void chunk(maker *m, const names *n, uint32_t rank)
{
    begin_object(m, n->chunk);
    get(m, n->offsets);
    size_object(m, n, rank * 8, 0);
    get(m, n->sizes);
    size_object(m, n, 8, COLUMNS);
    end_object(m);
}

static void fqn_of(char text[64], uint32_t tensor)
{
    snprintf(text, 64, "model.layers.%u.feed_forward.w%u.weight", tensor / 3, tensor % 3);
}

/* One pair of storage_data. */
static void entry(maker *m, const names *n, uint32_t tensor, uint32_t rank)
{
    char text[64];
    begin_object(m, n->index);
    get(m, n->fqn);
    fqn_of(text, tensor);
    (void)str(m, text);
    get(m, n->hint);
    number(m, rank);
    get(m, n->offset);
    size_object(m, n, rank * 8, 0);
    end_object(m);
    begin_object(m, n->info);
    get(m, n->path);
    snprintf(text, sizeof(text), "__%u_0.distcp", rank);
    (void)str(m, text);
    get(m, n->offset);
    number(m, tensor * 1577);
    get(m, n->length);
    number(m, 1577);
    end_object(m);
}

/* ( {fqn: [chunk, ...]}, {index: info} ) */
static void make(maker *m, uint32_t ntensors)
{
    char text[64];
    names n;
    put(m, "\x80\x04", 2);
    frame_open(m);
    put(m, "(", 1);
    n.chunk = symbol(m, "torch.distributed.checkpoint.metadata", "ChunkStorageMetadata");
    n.index = symbol(m, "torch.distributed.checkpoint.metadata", "MetadataIndex");
    n.info = symbol(m, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    n.size = symbol(m, "torch", "Size");
    n.fqn = str(m, "fqn");
    n.hint = str(m, "index");
    n.offset = str(m, "offset");
    n.offsets = str(m, "offsets");
    n.sizes = str(m, "sizes");
    n.path = str(m, "relative_path");
    n.length = str(m, "length");
    put(m, "1}(", 3); /* all those were only named */
    for (uint32_t t = 0; t < ntensors; t++) {
        fqn_of(text, t);
        (void)str(m, text);
        put(m, "]", 1);
        (void)memoize(m);
        put(m, "(", 1);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            chunk(m, &n, rank);
        put(m, "e", 1);
        if (t % BATCH == BATCH - 1)
            put(m, "u(", 2);
    }
    put(m, "u}(", 3);
    for (uint32_t i = 0; i < ntensors * RANKS; i++) {
        entry(m, &n, i % ntensors, i / ntensors);
        if (i % BATCH == BATCH - 1)
            put(m, "u(", 2);
    }
    put(m, "u\x86.", 3);
    frame_close(m);
}

/* --- reading --- */

typedef struct tally {
    budget *memory;
    uint64_t most_bytes;
    uint64_t sizes;
    uint64_t chunks;
    uint64_t indices;
    uint64_t infos;
    uint64_t lists;
    uint64_t pairs;
    uint64_t sum;     /* of all numbers, so that nothing can get lost unseen */
    value classes[5]; /* by note, once seen */
} tally;

enum { NOTE_SIZE = 1, NOTE_CHUNK, NOTE_INDEX, NOTE_INFO };

/* Equal symbols have equal handles, so each class is checked once. */
static uint64_t note_of(tally *t, const value_pool *pool, value callee)
{
    static const char *const classes[5] = {"", "Size", "ChunkStorageMetadata", "MetadataIndex",
                                           "_StorageInfo"};
    for (uint64_t note = NOTE_SIZE; note <= NOTE_INFO; note++) {
        if (t->classes[note] == callee)
            return note;
    }
    for (uint64_t note = NOTE_SIZE; note <= NOTE_INFO; note++) {
        if (value_is_symbol_named(pool, callee, classes[note])) {
            t->classes[note] = callee;
            return note;
        }
    }
    return 0;
}

static void add_numbers(tally *t, const value_pool *pool, value container)
{
    size_t count;
    const value *items = value_items(pool, container, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t n = 0;
        t->sum += value_as_u64(pool, items[i], &n) ? n : 0;
    }
}

static fsdpck_status on_call(void *ctx, value_pool *pool, const value_call *call, bool built,
                             value *replacement, bool *replaced, fsdpck_error *err)
{
    tally *t = ctx;
    (void)err;
    if (built)
        return FSDPCK_OK;
    const uint64_t used = t->memory->used_bytes;
    t->most_bytes = used > t->most_bytes ? used : t->most_bytes;
    const uint64_t note = note_of(t, pool, call->callee);
    if (note == NOTE_SIZE)
        add_numbers(t, pool, value_item(pool, call->args, 0));
    t->sizes += note == NOTE_SIZE;
    t->chunks += note == NOTE_CHUNK;
    t->indices += note == NOTE_INDEX;
    t->infos += note == NOTE_INFO;
    *replacement = value_of_host(note);
    *replaced = note != 0;
    return FSDPCK_OK;
}

static fsdpck_status on_build_host(void *ctx, value_pool *pool, value host, value state,
                                   fsdpck_error *err)
{
    (void)host;
    (void)err;
    add_numbers(ctx, pool, state);
    return FSDPCK_OK;
}

static fsdpck_status on_pair(void *ctx, value_pool *pool, value key, value item, bool *taken,
                             fsdpck_error *err)
{
    tally *t = ctx;
    (void)pool;
    (void)err;
    *taken = key == value_of_host(NOTE_INDEX) && item == value_of_host(NOTE_INFO);
    t->pairs += *taken;
    return FSDPCK_OK;
}

static fsdpck_status on_items(void *ctx, value_pool *pool, const value *items, size_t count,
                              uint64_t *list_note, bool *taken, fsdpck_error *err)
{
    tally *t = ctx;
    (void)pool;
    (void)items;
    (void)err;
    t->lists++;
    *list_note += count;
    *taken = true;
    return FSDPCK_OK;
}

/* The sum over all numbers that make() writes. */
static uint64_t expected_sum(uint64_t ntensors)
{
    uint64_t sum = 0;
    for (uint64_t t = 0; t < ntensors; t++)
        for (uint64_t rank = 0; rank < RANKS; rank++)
            sum += 2 * rank * 8 + 8 + COLUMNS + rank + t * 1577 + 1577;
    return sum;
}

static bool check(const tally *t, const value_pool *pool, value root, uint64_t ntensors)
{
    const uint64_t n = ntensors * RANKS;
    const value dict = value_item(pool, root, 0);
    bool good = t->sizes == 3 * n && t->chunks == n && t->indices == n && t->infos == n &&
                t->pairs == n && t->lists == ntensors && t->sum == expected_sum(ntensors) &&
                value_count(pool, dict) == ntensors &&
                value_count(pool, value_item(pool, root, 1)) == 0;
    for (size_t i = 0; good && i < ntensors; i++) {
        char text[64];
        fqn_of(text, (uint32_t)i);
        good = value_is_str(pool, value_key(pool, dict, i), text) &&
               value_list_note(pool, value_item(pool, dict, i)) == RANKS;
    }
    return good;
}

/* Reads a pickle of so many chunks; the best of three times. */
static bool measure(uint32_t nchunks, double *best_seconds, double *bytes_per_chunk)
{
    maker m = {.out = {.limit_bytes = SIZE_MAX / 2}};
    const uint32_t ntensors = nchunks / RANKS > 0 ? nchunks / RANKS : 1;
    make(&m, ntensors);
    const pickle_input in = {.bytes = (const uint8_t *)m.out.text, .nbytes = m.out.nbytes};
    bool good = !m.out.failed;
    for (int i = 0; good && i < 3; i++) {
        budget memory;
        budget_init(&memory, UINT64_MAX, "metadata", NULL);
        value_pool pool;
        value_pool_init(&pool, &memory);
        tally t = {.memory = &memory};
        const pickle_hooks hooks = {.ctx = &t,
                                    .on_call = on_call,
                                    .on_build_host = on_build_host,
                                    .on_pair = on_pair,
                                    .on_items = on_items};
        const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
        value root = VALUE_OF_NONE;
        size_t used = 0;
        fsdpck_error err;
        fsdpck_error_init(&err);
        const double begin = cpu_seconds();
        const fsdpck_status st = pickle_read(&in, &limits, &pool, &hooks, &root, &used, &err);
        const double took = cpu_seconds() - begin;
        if (st != FSDPCK_OK)
            fprintf(stderr, "%s: %s at %" PRIu64 "\n", fsdpck_finding_name(err.finding),
                    err.message, err.offset_bytes);
        good = st == FSDPCK_OK && used == in.nbytes && check(&t, &pool, root, ntensors);
        *best_seconds = i == 0 || took < *best_seconds ? took : *best_seconds;
        *bytes_per_chunk = (double)t.most_bytes / (double)ntensors / RANKS;
        value_pool_release(&pool);
        good = good && memory.used_bytes == 0;
    }
    printf("%u chunks: %zu bytes, %.0f ns and %.1f bytes of memory a chunk\n", ntensors * RANKS,
           in.nbytes, *best_seconds * 1e9 / (double)ntensors / RANKS, *bytes_per_chunk);
    text_release(&m.out);
    return good;
}

int main(int argc, char **argv)
{
    const long wanted = argc > 1 ? atol(argv[1]) : 200000;
    double small_seconds = 0;
    double large_seconds = 0;
    double small_bytes = 0;
    double large_bytes = 0;
    if (wanted < 4 * RANKS || wanted > 20000000) {
        fprintf(stderr, "the number of chunks must be between %d and 20000000\n", 4 * RANKS);
        return 1;
    }
    if (!measure((uint32_t)wanted / 4, &small_seconds, &small_bytes) ||
        !measure((uint32_t)wanted, &large_seconds, &large_bytes)) {
        fprintf(stderr, "the records that were read are not those that were written\n");
        return 1;
    }
    if (large_seconds > 4 * 2 * small_seconds) {
        fprintf(stderr, "four times the chunks took %.1f times the time\n",
                large_seconds / small_seconds);
        return 1;
    }
    if (large_bytes > 100) {
        fprintf(stderr, "a chunk took %.1f bytes of memory\n", large_bytes);
        return 1;
    }
    return 0;
}
