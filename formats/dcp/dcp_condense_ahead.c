/* dcp_condense_ahead.c: blocks of a `.metadata` that are matched by several threads.
 *
 * A block that begins with a frame begins with an opcode. Hence its records can be found and matched
 * without the opcodes before it: what a record is depends only on its bytes and on the roles. The
 * condenser takes them where it arrives at the same byte with the same roles, and matches the rest
 * itself.
 */
#include <string.h>

#include "formats/common/pickle_opcodes.h"
#include "formats/dcp/dcp_condense_internal.h"

/* More names than this are forgotten with the next block. */
#define TEXTS_MOST 16384u

void dcp_ahead_init(dcp_ahead *a, budget *owner, size_t room)
{
    a->block.owner = owner;
    a->block.room = room;
    a->m = (dcp_metadata){.owner = owner,
                          .dims = VEC_OF(uint32_t, owner),
                          .chunks = VEC_OF(dcp_chunk, owner),
                          .entries = VEC_OF(dcp_entry, owner)};
    strtab_init(&a->texts, owner);
    a->fetched_words = VEC_OF(uint64_t, owner);
    a->first_uses = VEC_OF(uint64_t, owner);
    a->spans = VEC_OF(dcp_span, owner);
    a->texts_map = VEC_OF(uint32_t, owner);
    a->memos_map = VEC_OF(uint32_t, owner);
    a->sizes_map = VEC_OF(uint32_t, owner);
    dcp_recorder_init(&a->r, &a->m);
    a->r.is_ahead = true;
    a->r.texts = &a->texts;
    a->r.fetched_words = &a->fetched_words;
    a->r.fetched = &a->first_uses;
}

void dcp_ahead_release(dcp_ahead *a)
{
    dcp_block_release(&a->block);
    dcp_recorder_release(&a->r);
    strtab_release(&a->texts);
    VEC_RELEASE_ALL(&a->m.dims, &a->m.chunks, &a->m.entries, &a->fetched_words, &a->first_uses,
                    &a->spans, &a->texts_map, &a->memos_map, &a->sizes_map);
}

static fsdpck_status forget(dcp_ahead *a)
{
    a->m.dims.count = a->m.chunks.count = a->m.entries.count = 0;
    a->fetched_words.count = a->first_uses.count = a->spans.count = 0;
    a->next_span = 0;
    a->mapped = false;
    a->r.memoized = 0;
    a->r.last_memo_word = 0;
    value_map_release(&a->r.memo_words);
    a->r.memo_words = VALUE_MAP(a->m.owner);
    memset(a->r.size_slots, 0, sizeof a->r.size_slots);
    if (a->stale || strtab_count(&a->texts) > TEXTS_MOST) {
        strtab_truncate(&a->texts, 0);
        a->r.next_text.count = a->texts_map.count = 0;
        a->r.last_fqn = DCP_NONE;
    }
    a->stale = false;
    /* Position 0 of dims means "none". */
    return vec_push(&a->m.dims, NULL) != NULL ? FSDPCK_OK : DCP_ODD;
}

static fsdpck_status put_record(dcp_ahead *a, const dcp_raw_record *r, size_t from, size_t to)
{
    const vec *records = r->pairs ? &a->m.entries : &a->m.chunks;
    dcp_span *span = a->spans.count == 0 ? NULL : VEC_AT(&a->spans, dcp_span, a->spans.count - 1);

    if (span == NULL || span->to != from || !dcp_part_continues(&span->part, r)) {
        span = vec_push(&a->spans, NULL);
        if (span == NULL)
            return DCP_ODD;
        span->part = dcp_part_begin(r, (uint32_t)records->count);
        span->from = span->to = from;
        span->memoized = a->r.memoized;
    }
    RETURN_IF(r->pairs ? dcp_record_entry(&a->r, r) : dcp_record_chunk(&a->r, r));
    span->part.count++;
    span->to = to;
    a->r.memoized += r->memoized;
    return FSDPCK_OK;
}

/* Up to whatever is unusual: that is left to the taker. */
static fsdpck_status match(dcp_ahead *a)
{
    dcp_window w = {.at = 0};
    dcp_raw_record r;

    RETURN_IF(dcp_window_enter(&w, &a->block));
    while (!dcp_window_is_low(&w) && w.at < w.end) {
        const size_t from = w.at;
        const uint8_t *p = w.bytes + from;
        size_t n = *p == OP_BINGET || *p == OP_LONG_BINGET ? dcp_record_match(&a->roles, p, &r) : 0;
        const bool taken = n > 0;
        if (!taken)
            n = dcp_opcode_nbytes(p);
        if (n == 0 || n > w.end - from)
            return DCP_ODD;
        w.at += n;
        if (taken ? !dcp_window_passed(&w, from) : !dcp_window_passed_one(&w))
            return DCP_ODD;
        if (taken)
            RETURN_IF(put_record(a, &r, from, w.at));
        else
            a->r.memoized += *p == OP_MEMOIZE;
    }
    return FSDPCK_OK;
}

void dcp_ahead_match(dcp_ahead *a, const dcp_bytes *from)
{
    a->failed = forget(a) != FSDPCK_OK || dcp_block_read(from, &a->block) != FSDPCK_OK;
    if (a->failed || a->nroles == 0 || !a->block.begins_frame || match(a) == FSDPCK_OK)
        return;
    a->stale = true;
    if (a->spans.count > 0 && VEC_AT(&a->spans, dcp_span, a->spans.count - 1)->part.count == 0)
        a->spans.count--;
}

const dcp_span *dcp_ahead_find(dcp_ahead *a, size_t at)
{
    for (; a->next_span < a->spans.count; a->next_span++) {
        const dcp_span *span = VEC_AT(&a->spans, const dcp_span, a->next_span);
        if (span->from >= at)
            return span->from == at ? span : NULL;
    }
    return NULL;
}

static fsdpck_status map_texts(dcp_ahead *a, dcp_recorder *t)
{
    for (size_t i = a->texts_map.count; i < strtab_count(&a->texts); i++) {
        const dcp_raw_text text = {.text = (const uint8_t *)strtab_text(&a->texts, (uint32_t)i),
                                   .nbytes = (uint32_t)strtab_nbytes(&a->texts, (uint32_t)i)};
        uint32_t word;
        RETURN_IF(dcp_record_text(t, &text, &word));
        RETURN_IF(vec_add(&a->texts_map, &word, NULL));
    }
    return FSDPCK_OK;
}

static fsdpck_status map_memos(dcp_ahead *a, dcp_recorder *t)
{
    a->memos_map.count = 0;
    for (size_t i = 0; i < a->fetched_words.count; i++) {
        const uint64_t memo = *VEC_AT(&a->fetched_words, uint64_t, i);
        uint32_t word;
        if (memo >= a->memo_shift + *VEC_AT(&a->first_uses, uint64_t, i))
            return DCP_ODD;
        RETURN_IF(dcp_record_memo(t, (uint32_t)memo, &word));
        RETURN_IF(vec_add(&a->memos_map, &word, NULL));
    }
    return FSDPCK_OK;
}

static fsdpck_status map_sizes(dcp_ahead *a, dcp_recorder *t)
{
    dcp_raw_size size = {.has = true};
    a->sizes_map.count = 0;
    uint32_t *map = vec_push_n(&a->sizes_map, a->m.dims.count + 1, NULL);
    if (map == NULL)
        return DCP_ODD;
    for (size_t at = 1; at < a->m.dims.count;) {
        size.ndim = dcp_size_get(&a->m, (uint32_t)at, size.dims);
        RETURN_IF(dcp_record_size(t, &size, &map[at]));
        at += dcp_size_nwords(&a->m, (uint32_t)at);
    }
    return FSDPCK_OK;
}

static fsdpck_status take_chunks(const dcp_ahead *a, const dcp_part *part, dcp_recorder *t)
{
    const dcp_chunk *from = VEC_AT(&a->m.chunks, dcp_chunk, part->first);
    const uint32_t *sizes = a->sizes_map.items;
    vec *chunks = &t->m->chunks;

    RETURN_IF(vec_reserve(chunks, part->count, NULL));
    dcp_chunk *to = VEC_AT(chunks, dcp_chunk, chunks->count);
    for (uint32_t i = 0; i < part->count; i++)
        to[i] = (dcp_chunk){sizes[from[i].offsets_at], sizes[from[i].sizes_at]};
    chunks->count += part->count;
    return FSDPCK_OK;
}

static fsdpck_status take_entries(const dcp_ahead *a, const dcp_part *part, dcp_recorder *t)
{
    const dcp_entry *from = VEC_AT(&a->m.entries, dcp_entry, part->first);
    const uint32_t *sizes = a->sizes_map.items, *texts = a->texts_map.items,
                   *memos = a->memos_map.items;
    vec *entries = &t->m->entries;

    RETURN_IF(vec_reserve(entries, part->count, NULL));
    dcp_entry *to = VEC_AT(entries, dcp_entry, entries->count);
    for (uint32_t i = 0; i < part->count; i++) {
        const uint32_t fqn = from[i].fqn, file = from[i].file;
        to[i] = from[i];
        to[i].offsets_at = sizes[from[i].offsets_at];
        to[i].fqn = fqn & DCP_WORD_IS_MEMO ? memos[fqn & ~DCP_WORD_IS_MEMO] : texts[fqn];
        to[i].file = (file & DCP_WORD_IS_MEMO ? memos[file & ~DCP_WORD_IS_MEMO] : texts[file]) &
                     (DCP_FILE_LIMIT - 1);
    }
    entries->count += part->count;
    return FSDPCK_OK;
}

fsdpck_status dcp_ahead_take(dcp_ahead *a, const dcp_span *span, dcp_recorder *t)
{
    if (!a->mapped) {
        a->memo_shift = t->memoized - span->memoized;
        RETURN_IF(map_texts(a, t));
        RETURN_IF(map_memos(a, t));
        RETURN_IF(map_sizes(a, t));
        a->mapped = true;
    }
    if (t->memoized != a->memo_shift + span->memoized)
        return DCP_ODD;
    return span->part.pairs ? take_entries(a, &span->part, t) : take_chunks(a, &span->part, t);
}
