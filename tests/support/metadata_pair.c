#include "tests/support/metadata_pair.h"

#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/dcp/dcp_match_chunks.h"
#include "state/box.h"
#include "tests/support/must.h"

/* Of any bytes: at least 1, at most `left`. */
static size_t opcode_nbytes(const uint8_t *p, size_t left)
{
    size_t n = 1;
    switch (p[0]) {
    case OP_BINGET:
    case OP_BININT1:
        n = 2;
        break;
    case OP_BININT2:
        n = 3;
        break;
    case OP_BININT:
    case OP_LONG_BINGET:
        n = 5;
        break;
    case OP_BINFLOAT:
        n = 9;
        break;
    case OP_LONG1:
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINBYTES:
        n = left > 1 ? 2u + p[1] : 1;
        break;
    case OP_BINUNICODE:
    case OP_BINBYTES:
        n = left > 4 ? 5 + (size_t)load_le32(p + 1) : 1;
        break;
    default:
        break;
    }
    return n < left ? n : left;
}

void metadata_frames(const uint8_t *opcodes, size_t nbytes, size_t frame_nbytes, text_buf *out)
{
    text_append(out, "\x80\x04", 2);
    for (size_t at = 0; at < nbytes;) {
        uint8_t head[9] = {OP_FRAME};
        size_t n = frame_nbytes == 0 ? nbytes : 0;
        while (frame_nbytes > 0 && n < frame_nbytes && at + n < nbytes)
            n += opcode_nbytes(opcodes + at + n, nbytes - at - n);
        store_le64(head + 1, n);
        text_append(out, head, sizeof head);
        text_append(out, opcodes + at, n);
        at += n;
    }
}

typedef struct reading {
    dcp_names names;
    value_pool pool;
    dcp_metadata m;
    bool done;
} reading;

static void reading_init(reading *r, budget *b)
{
    value_pool_init(&r->pool, b);
    MUST(dcp_names_init(&r->names, b, NULL) == FSDPCK_OK);
}

static void reading_release(reading *r)
{
    if (r->done)
        dcp_metadata_release(&r->m);
    dcp_names_release(&r->names);
    value_pool_release(&r->pool);
}

static void check_texts(const strtab *a, const strtab *b)
{
    MUST(strtab_count(a) == strtab_count(b));
    for (uint32_t i = 0; i < strtab_count(a); i++)
        MUST(strtab_is(b, i, strtab_text(a, i), strtab_nbytes(a, i)));
}

static void check_size(const dcp_metadata *a, uint32_t x, const dcp_metadata *b, uint32_t y)
{
    uint64_t sizes[2][NDIM_MAX];
    MUST((x == 0) == (y == 0));
    const unsigned ndim = dcp_size_get(a, x, sizes[0]);
    MUST(dcp_size_get(b, y, sizes[1]) == ndim &&
         memcmp(sizes[0], sizes[1], ndim * sizeof(uint64_t)) == 0);
}

static void check_same_bytes(const vec *a, const vec *b)
{
    MUST(a->count == b->count &&
         (a->count == 0 || memcmp(a->items, b->items, a->count * a->item_nbytes) == 0));
}

/* The value as text, with notes but not their numbers: these are places in tables of one reading. */
static void print_without_numbers(const reading *r, value v, text_buf *out)
{
    static const char note[] = "<note ";
    text_buf whole = {0};
    value_print(&r->pool, v, SIZE_MAX, &whole);
    MUST(!whole.failed);
    for (size_t i = 0; i < whole.nbytes; i++) {
        text_append(out, whole.text + i, 1);
        if (i + 1 >= sizeof note - 1 &&
            memcmp(whole.text + i + 2 - sizeof note, note, sizeof note - 1) == 0)
            while (i + 1 < whole.nbytes && whole.text[i + 1] != '>')
                i++;
    }
    text_release(&whole);
}

/* A torch.Size in planner data, which no trainer writes, is a note. */
static bool differ_in_notes(const reading *a, value x, const reading *b, value y)
{
    text_buf texts[2] = {{0}};
    print_without_numbers(a, x, &texts[0]);
    print_without_numbers(b, y, &texts[1]);
    MUST(!texts[0].failed && !texts[1].failed);
    const bool equal = texts[0].nbytes == texts[1].nbytes &&
                       strstr(texts[0].text, "<note >") != NULL &&
                       memcmp(texts[0].text, texts[1].text, texts[0].nbytes) == 0;
    text_release(&texts[0]);
    text_release(&texts[1]);
    return equal;
}

static void check_value(const reading *a, value x, const reading *b, value y)
{
    bool equal = false;
    const fsdpck_status st = value_equal(&a->pool, x, &b->pool, y, &equal, NULL);
    MUST(st == FSDPCK_LIMIT || st == FSDPCK_UNSUPPORTED ||
         (st == FSDPCK_OK && (equal || differ_in_notes(a, x, b, y))));
}

static void check_dtype(const dcp_metadata *a, uint32_t x, const dcp_metadata *b, uint32_t y)
{
    MUST((x == DCP_NONE) == (y == DCP_NONE));
    MUST(x == DCP_NONE || VEC_AT(&a->properties, dcp_properties, x)->dtype ==
                              VEC_AT(&b->properties, dcp_properties, y)->dtype);
}

/* By their order. Where an object is inside another one that has no place for it, which no trainer writes, the readers
 * number lists in different orders. */
static void check_chunks(const dcp_metadata *a, uint32_t x, const dcp_metadata *b, uint32_t y)
{
    MUST((x == DCP_NONE) == (y == DCP_NONE));
    if (x == DCP_NONE)
        return;
    const uint32_t count = VEC_AT(&a->lists, dcp_chunk_list, x)->count;
    dcp_run_walk walks[] = {dcp_run_walk_begin(a, x), dcp_run_walk_begin(b, y)};
    MUST(count == VEC_AT(&b->lists, dcp_chunk_list, y)->count);
    for (uint32_t i = 0; i < count; i++) {
        const dcp_chunk *of_a = dcp_run_walk_next(&walks[0]), *of_b = dcp_run_walk_next(&walks[1]);
        check_size(a, of_a->offsets_at, b, of_b->offsets_at);
        check_size(a, of_a->sizes_at, b, of_b->sizes_at);
    }
}

static void check_tensors(const dcp_metadata *a, const dcp_metadata *b)
{
    check_same_bytes(&a->items, &b->items);
    MUST(a->tensors.count == b->tensors.count && a->chunks.count == b->chunks.count &&
         a->properties.count == b->properties.count && a->lists.count == b->lists.count);
    for (size_t i = 0; i < a->tensors.count; i++) {
        const dcp_tensor *x = VEC_AT(&a->tensors, dcp_tensor, i),
                         *y = VEC_AT(&b->tensors, dcp_tensor, i);
        check_dtype(a, x->properties, b, y->properties);
        check_size(a, x->size_at, b, y->size_at);
        check_chunks(a, x->list, b, y->list);
    }
}

static void check_entries(const dcp_metadata *a, const dcp_metadata *b)
{
    MUST(a->entries.count == b->entries.count);
    for (size_t i = 0; i < a->entries.count; i++) {
        const dcp_entry *x = VEC_AT(&a->entries, dcp_entry, i),
                        *y = VEC_AT(&b->entries, dcp_entry, i);
        MUST(x->fqn == y->fqn && x->hint == y->hint && x->file == y->file &&
             x->transform == y->transform && x->has_info == y->has_info && x->paired == y->paired &&
             x->offset_bytes == y->offset_bytes && x->nbytes == y->nbytes);
        check_size(a, x->offsets_at, b, y->offsets_at);
    }
}

static void check_readings(const reading *a, const reading *b)
{
    const dcp_metadata *x = &a->m, *y = &b->m;
    check_texts(&a->names.fqns, &b->names.fqns);
    check_texts(&a->names.paths, &b->names.paths);
    check_texts(&a->names.transforms, &b->names.transforms);
    check_tensors(x, y);
    check_entries(x, y);
    check_value(a, x->planner, b, y->planner);
    check_value(a, x->mcore, b, y->mcore);
    MUST(x->has_storage_meta == y->has_storage_meta && x->has_modules == y->has_modules &&
         x->has_version == y->has_version && x->has_mcore_data == y->has_mcore_data &&
         x->has_traces == y->has_traces && x->has_new_paths == y->has_new_paths &&
         x->has_six_properties == y->has_six_properties && x->old_package == y->old_package &&
         x->old_properties == y->old_properties && x->is_by_fsdpck == y->is_by_fsdpck);
}

static fsdpck_status read_memory(void *ctx, uint64_t at, void *dst, uint64_t nbytes,
                                 fsdpck_error *err)
{
    const pickle_input *in = ctx;
    (void)err;
    MUST(at <= in->nbytes && nbytes <= in->nbytes - at);
    memcpy(dst, in->bytes + at, nbytes);
    return FSDPCK_OK;
}

bool metadata_pair_equal(const uint8_t *bytes, size_t nbytes, size_t window_nbytes,
                         unsigned nthreads, bool opaque)
{
    pickle_input in = {.bytes = bytes, .nbytes = nbytes};
    const dcp_bytes from = {.ctx = &in,
                            .nbytes = nbytes,
                            .read = read_memory,
                            .window_nbytes = window_nbytes,
                            .nthreads = nthreads};
    reading a = {0}, b = {0};
    budget owner;

    budget_init(&owner, UINT64_C(1) << 30, "metadata", NULL);
    reading_init(&a, &owner);
    reading_init(&b, &owner);
    b.done = dcp_metadata_read_condensed(&from, &b.names, &b.pool, opaque, &b.m);
    if (b.done) {
        a.done = dcp_metadata_read(&in, &a.names, &a.pool, opaque, &a.m, NULL) == FSDPCK_OK;
        MUST(a.done);
        check_readings(&a, &b);
    } else {
        MUST(strtab_count(&b.names.fqns) == 0 && strtab_count(&b.names.paths) == 0 &&
             strtab_count(&b.names.transforms) == 1 && b.pool.cells.count == 0);
    }
    const bool done = b.done;
    reading_release(&a);
    reading_release(&b);
    MUST(owner.used_bytes == 0);
    return done;
}
