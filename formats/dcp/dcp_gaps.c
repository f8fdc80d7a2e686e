#include "formats/dcp/dcp_gaps.h"

#include <string.h>

fsdpck_status dcp_gaps_init(dcp_gaps *g, const dcp_condensed *c, budget *owner)
{
    const size_t nwords = strtab_count(&c->texts) + c->fetched_words.count;
    *g = (dcp_gaps){.c = c, .fqns = VEC_OF(uint32_t, owner), .paths = VEC_OF(uint32_t, owner)};
    uint32_t *fqns = vec_push_n(&g->fqns, nwords, NULL);
    uint32_t *paths = vec_push_n(&g->paths, nwords, NULL);
    if (fqns == NULL || paths == NULL)
        return DCP_ODD;
    memset(fqns, 0xFF, nwords * sizeof *fqns); /* DCP_NONE */
    memset(paths, 0xFF, nwords * sizeof *paths);
    return FSDPCK_OK;
}

void dcp_gaps_release(dcp_gaps *g)
{
    VEC_RELEASE_ALL(&g->fqns, &g->paths);
}

bool dcp_gaps_next_chunk(dcp_parser *parser, uint32_t *index)
{
    *index = (uint32_t)parser->gaps->next_chunk++;
    return *index < parser->m->chunks.count;
}

bool dcp_gaps_next_entry(dcp_parser *parser, uint32_t *index)
{
    *index = (uint32_t)parser->gaps->next_entry++;
    return *index < parser->m->entries.count;
}

bool dcp_gaps_are_filled(const dcp_gaps *g, const dcp_metadata *m)
{
    return g->next_chunk == m->chunks.count && g->next_entry == m->entries.count;
}

/* What a memo entry must hold for its role. */
static bool is_named(dcp_parser *parser, const value_pool *pool, value v, uint32_t role)
{
    static const dcp_symbol symbols[] = {[DCP_ROLE_CHUNK] = DCP_SYMBOL_CHUNK,
                                         [DCP_ROLE_INDEX] = DCP_SYMBOL_INDEX,
                                         [DCP_ROLE_INFO] = DCP_SYMBOL_INFO,
                                         [DCP_ROLE_SIZE] = DCP_SYMBOL_SIZE};
    static const dcp_key keys[] = {
        [DCP_ROLE_OFFSETS] = DCP_KEY_OFFSETS, [DCP_ROLE_SIZES] = DCP_KEY_SIZES,
        [DCP_ROLE_FQN] = DCP_KEY_FQN,         [DCP_ROLE_HINT] = DCP_KEY_INDEX,
        [DCP_ROLE_OFFSET] = DCP_KEY_OFFSET,   [DCP_ROLE_PATH] = DCP_KEY_RELATIVE_PATH,
        [DCP_ROLE_LENGTH] = DCP_KEY_LENGTH};
    return role <= DCP_ROLE_SIZE ? dcp_parser_symbol(parser, pool, v) == symbols[role]
                                 : v == parser->keys[keys[role]];
}

/* Of all entries that the gap may fetch. */
static bool check_roles(dcp_parser *parser, const value_pool *pool, const pickle_memo *memo,
                        uint64_t first_memo)
{
    dcp_gaps *g = parser->gaps;
    for (; g->roles_checked < g->c->roles.count; g->roles_checked++) {
        const dcp_named *n = VEC_AT(&g->c->roles, const dcp_named, g->roles_checked);
        value v;
        if (n->memo >= first_memo)
            return true;
        if (!pickle_memo_get(memo, n->memo, &v) || !is_named(parser, pool, v, n->role))
            return false;
    }
    return true;
}

/* The text of a word. False: a memo entry that is no str. */
static bool word_text(const dcp_gaps *g, const value_pool *pool, const pickle_memo *memo,
                      uint32_t word, const char **text, size_t *nbytes)
{
    value v;
    if ((word & DCP_WORD_IS_MEMO) == 0) {
        *text = strtab_text(&g->c->texts, word);
        *nbytes = strtab_nbytes(&g->c->texts, word);
        return true;
    }
    const uint64_t entry = *VEC_AT(&g->c->fetched_words, uint64_t, word & ~DCP_WORD_IS_MEMO);
    if (!pickle_memo_get(memo, entry, &v) || value_kind_inline(v) != VALUE_STR)
        return false;
    *text = value_text(pool, v, nbytes);
    return true;
}

static uint32_t *word_id(const dcp_gaps *g, const vec *ids, uint32_t word)
{
    const size_t ntexts = strtab_count(&g->c->texts);
    return VEC_AT(ids, uint32_t,
                  (word & DCP_WORD_IS_MEMO) == 0 ? word : ntexts + (word & ~DCP_WORD_IS_MEMO));
}

static fsdpck_status resolve_entry(dcp_parser *parser, const value_pool *pool,
                                   const pickle_memo *memo, dcp_entry *e)
{
    const dcp_gaps *g = parser->gaps;
    uint32_t *fqn = word_id(g, &g->fqns, e->fqn), *path = word_id(g, &g->paths, e->file);
    const char *text;
    size_t nbytes;
    if (*fqn == DCP_NONE) {
        if (!word_text(g, pool, memo, e->fqn, &text, &nbytes))
            return DCP_ODD;
        RETURN_IF(strtab_intern(&parser->names->fqns, text, nbytes, fqn, NULL));
    }
    if (*path == DCP_NONE) {
        if (!word_text(g, pool, memo, e->file, &text, &nbytes))
            return DCP_ODD;
        RETURN_IF(dcp_parser_path(parser, text, nbytes, path, NULL));
    }
    e->fqn = *fqn;
    e->file = *path & (DCP_FILE_LIMIT - 1);
    return FSDPCK_OK;
}

fsdpck_status dcp_on_gap(void *ctx, value_pool *pool, const pickle_memo *memo, size_t gap,
                         uint64_t first_memo, uint64_t *list_note, fsdpck_error *err)
{
    dcp_parser *parser = ctx;
    dcp_gaps *g = parser->gaps;
    const dcp_part *part = VEC_AT(&g->c->parts, const dcp_part, gap);
    size_t *next = part->pairs ? &g->next_entry : &g->next_chunk;

    if (*next != part->first || !check_roles(parser, pool, memo, first_memo))
        return DCP_ODD;
    *next += part->count;
    if (!part->pairs)
        return dcp_list_add_run(parser->m, part->first, part->count, list_note, err);
    for (uint32_t i = 0; i < part->count; i++)
        RETURN_IF(resolve_entry(parser, pool, memo,
                                VEC_AT(&parser->m->entries, dcp_entry, part->first + i)));
    return FSDPCK_OK;
}

static fsdpck_status str_of(value_pool *pool, const strtab *t, uint32_t id, value *v)
{
    return value_new_str(pool, strtab_text(t, id), strtab_nbytes(t, id), v, NULL);
}

fsdpck_status dcp_on_gap_memo(void *ctx, value_pool *pool, size_t gap, uint64_t k, value *v,
                              fsdpck_error *err)
{
    const dcp_parser *parser = ctx;
    const dcp_metadata *m = parser->m;
    const dcp_part *part = VEC_AT(&parser->gaps->c->parts, const dcp_part, gap);
    const uint32_t record = part->first + (uint32_t)(k / part->per_record);
    const uint8_t place = (uint8_t)(k % part->per_record);
    (void)err;

    if (!part->pairs) {
        const dcp_chunk *c = VEC_AT(&m->chunks, const dcp_chunk, record);
        *v = place == part->places[DCP_MEMO_FIRST]     ? dcp_note_make(DCP_NOTE_CHUNK, record)
             : place == part->places[DCP_MEMO_OFFSETS] ? dcp_note_make(DCP_NOTE_SIZE, c->offsets_at)
                                                       : dcp_note_make(DCP_NOTE_SIZE, c->sizes_at);
        return place == part->places[DCP_MEMO_FIRST] || place == part->places[DCP_MEMO_OFFSETS] ||
                       place == part->places[DCP_MEMO_SIZES]
                   ? FSDPCK_OK
                   : DCP_ODD;
    }
    const dcp_entry *e = VEC_AT(&m->entries, const dcp_entry, record);
    if (place == part->places[DCP_MEMO_FQN])
        return str_of(pool, &parser->names->fqns, e->fqn, v);
    if (place == part->places[DCP_MEMO_PATH] && parser->names->folder == NULL)
        return str_of(pool, &parser->names->paths, e->file, v);
    if (place == part->places[DCP_MEMO_OFFSETS])
        *v = dcp_note_make(DCP_NOTE_SIZE, e->offsets_at);
    else if (place == part->places[DCP_MEMO_FIRST] || place == part->places[DCP_MEMO_INFO])
        *v = dcp_note_make(place == part->places[DCP_MEMO_FIRST] ? DCP_NOTE_INDEX : DCP_NOTE_INFO,
                           record);
    else
        return DCP_ODD;
    return FSDPCK_OK;
}
