/* dcp_condense_put.c: records of dcp_metadata from matched opcodes. */
#include <string.h>

#include "base/utf8.h"
#include "formats/dcp/dcp_condense_internal.h"

void dcp_recorder_init(dcp_recorder *t, dcp_metadata *m)
{
    t->m = m;
    t->next_text = VEC_OF(uint32_t, m->owner);
    t->last_fqn = DCP_NONE;
    t->memo_words = VALUE_MAP(m->owner);
}

void dcp_recorder_release(dcp_recorder *t)
{
    vec_release(&t->next_text);
    value_map_release(&t->memo_words);
}

fsdpck_status dcp_record_size(dcp_recorder *t, const dcp_raw_size *size, uint32_t *at)
{
    uint64_t h = size->ndim;
    *at = 0;
    if (!size->has)
        return FSDPCK_OK;
    for (unsigned i = 0; i < size->ndim; i++)
        h = (h ^ size->dims[i]) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t *slot = &t->size_slots[h >> 51];
    if (*slot == 0 || !dcp_size_is(t->m, *slot, size->dims, size->ndim))
        RETURN_IF(dcp_size_add(t->m, size->dims, size->ndim, slot, NULL));
    *at = *slot;
    return FSDPCK_OK;
}

static bool is_utf8(const uint8_t *text, size_t nbytes)
{
    uint32_t c;
    for (size_t i = 0; i < nbytes;) {
        const unsigned n = utf8_decode(text + i, nbytes - i, &c);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

fsdpck_status dcp_record_text(dcp_recorder *t, const dcp_raw_text *text, uint32_t *word)
{
    strtab *texts = t->texts;
    const size_t before = strtab_count(texts);
    RETURN_IF(strtab_intern(texts, (const char *)text->text, text->nbytes, word, NULL));
    if (strtab_count(texts) == before)
        return FSDPCK_OK;
    if (!is_utf8(text->text, text->nbytes) || before >= DCP_WORD_IS_MEMO - 1)
        return DCP_ODD;
    return vec_add(&t->next_text, &(uint32_t){0}, NULL);
}

fsdpck_status dcp_record_memo(dcp_recorder *t, uint32_t memo, uint32_t *word)
{
    vec *words = t->fetched_words;
    /* In the same order as before, with ranks in turn. */
    uint32_t at = t->last_memo_word;
    if (at >= words->count || *VEC_AT(words, uint64_t, at) != memo)
        at = at + 1 < words->count ? at + 1 : 0;
    if (at >= words->count || *VEC_AT(words, uint64_t, at) != memo) {
        uint64_t *slot = value_map_put(&t->memo_words, (uint64_t)memo + 1, NULL, NULL);
        if (slot == NULL || words->count >= DCP_WORD_IS_MEMO - 1)
            return DCP_ODD;
        if (*slot == 0) {
            const uint64_t noted = t->is_ahead ? t->memoized : memo;
            RETURN_IF(vec_add(words, &(uint64_t){memo}, NULL));
            RETURN_IF(vec_add(t->fetched, &noted, NULL));
            *slot = words->count;
        }
        at = (uint32_t)(*slot - 1);
    }
    t->last_memo_word = at;
    *word = at | DCP_WORD_IS_MEMO;
    return FSDPCK_OK;
}

/* Where entries of the memo are counted from the start of the block, the check comes later. */
static fsdpck_status memo_word(dcp_recorder *t, uint32_t memo, uint32_t *word)
{
    return t->is_ahead || memo < t->memoized ? dcp_record_memo(t, memo, word) : DCP_ODD;
}

/* Names come in the same order from each rank, or many times in a row. */
static fsdpck_status fqn_word(dcp_recorder *t, const dcp_raw_text *text, uint32_t *word)
{
    const strtab *texts = t->texts;
    if (text->text == NULL)
        return memo_word(t, text->memo, word);
    if (t->last_fqn < strtab_count(texts)) {
        *word = t->last_fqn;
        if (strtab_is(texts, *word, (const char *)text->text, text->nbytes))
            return FSDPCK_OK;
        *word = *VEC_AT(&t->next_text, uint32_t, *word);
        if (strtab_is(texts, *word, (const char *)text->text, text->nbytes)) {
            t->last_fqn = *word;
            return FSDPCK_OK;
        }
    }
    RETURN_IF(dcp_record_text(t, text, word));
    if (t->last_fqn < strtab_count(texts))
        *VEC_AT(&t->next_text, uint32_t, t->last_fqn) = *word;
    t->last_fqn = *word;
    return FSDPCK_OK;
}

fsdpck_status dcp_record_chunk(dcp_recorder *t, const dcp_raw_record *r)
{
    dcp_chunk made;
    RETURN_IF(dcp_record_size(t, &r->offsets, &made.offsets_at));
    RETURN_IF(dcp_record_size(t, &r->sizes, &made.sizes_at));
    return vec_add(&t->m->chunks, &made, NULL);
}

fsdpck_status dcp_record_entry(dcp_recorder *t, const dcp_raw_record *r)
{
    uint32_t file;
    dcp_entry made = {.hint = (uint32_t)r->hint,
                      .has_info = 1,
                      .paired = 1,
                      .offset_bytes = r->offset_bytes,
                      .nbytes = r->nbytes};
    RETURN_IF(dcp_record_size(t, &r->offsets, &made.offsets_at));
    RETURN_IF(fqn_word(t, &r->fqn, &made.fqn));
    if (r->path.text != NULL)
        RETURN_IF(dcp_record_text(t, &r->path, &file));
    else
        RETURN_IF(memo_word(t, r->path.memo, &file));
    made.file = file & (DCP_FILE_LIMIT - 1);
    return vec_add(&t->m->entries, &made, NULL);
}
