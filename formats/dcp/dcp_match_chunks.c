#include "formats/dcp/dcp_match_chunks.h"

#include <string.h>

void dcp_match_room_init(dcp_match_room *room, budget *owner)
{
    *room = (dcp_match_room){.matched = VEC_OF(uint32_t, owner), .slots = VEC_OF(uint32_t, owner)};
}

void dcp_match_room_release(dcp_match_room *room)
{
    VEC_RELEASE_ALL(&room->matched, &room->slots);
}

fsdpck_status dcp_name_fail(const dcp_builder *b, uint32_t fqn, fsdpck_finding_id finding,
                            const char *message, fsdpck_error *err)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", message),
                   (tensor, strtab_text(&b->names->fqns, fqn)));
}

static fsdpck_status fail(const dcp_match *m, fsdpck_finding_id finding, const char *message,
                          fsdpck_error *err)
{
    return dcp_name_fail(m->b, m->fqn, finding, message, err);
}

dcp_run_walk dcp_run_walk_begin(const dcp_metadata *m, uint32_t list)
{
    return (dcp_run_walk){.m = m, .run = VEC_AT(&m->lists, dcp_chunk_list, list)->first_run};
}

const dcp_chunk *dcp_run_walk_next(dcp_run_walk *w)
{
    const dcp_run *run = VEC_AT(&w->m->runs, dcp_run, w->run);
    const dcp_chunk *chunk = VEC_AT(&w->m->chunks, dcp_chunk, run->first + w->at);
    if (++w->at == run->count) {
        w->run = run->next;
        w->at = 0;
    }
    return chunk;
}

bool dcp_chunk_has_elements(const dcp_metadata *m, const dcp_chunk *chunk)
{
    uint64_t sizes[NDIM_MAX];
    const unsigned ndim = dcp_size_get(m, chunk->sizes_at, sizes);
    for (unsigned d = 0; d < ndim; d++)
        if (sizes[d] == 0)
            return false;
    return true;
}

/* Uses the hints if the tensor's chunks are one run, as in every file of torch. Counts the
 * remaining entries and moves them to the front of the group. */
static uint32_t match_hints(const dcp_match *m, const dcp_chunk_list *list, uint32_t *group,
                            uint32_t count, uint32_t *matched)
{
    const dcp_entry *entries = m->m->entries.items;
    if (list->first_run != list->last_run)
        return count;
    const dcp_chunk *chunks =
        VEC_AT(&m->m->chunks, dcp_chunk, VEC_AT(&m->m->runs, dcp_run, list->first_run)->first);
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        const dcp_entry *e = &entries[group[i]];
        if (e->hint < list->count && matched[e->hint] == DCP_NONE && e->offsets_at != 0 &&
            dcp_size_equal(m->m, e->offsets_at, chunks[e->hint].offsets_at))
            matched[e->hint] = group[i];
        else
            group[left++] = group[i];
    }
    return left;
}

/* Hash over the chunks by offsets. Of two chunks at one offset at most one may have elements. */
static fsdpck_status hash_chunks(const dcp_match *m, const dcp_chunk *const *chunks, uint32_t count,
                                 fsdpck_error *err)
{
    uint32_t *slots = m->room->slots.items;
    const size_t mask = m->room->slots.count - 1;
    const uint64_t seed = m->b->names->fqns.seed;

    memset(slots, 0xFF, m->room->slots.count * sizeof *slots);
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)dcp_size_hash(m->m, chunks[i]->offsets_at, seed) & mask;
        while (slots[at] != DCP_NONE &&
               !dcp_size_equal(m->m, chunks[slots[at]]->offsets_at, chunks[i]->offsets_at))
            at = (at + 1) & mask;
        if (slots[at] == DCP_NONE || !dcp_chunk_has_elements(m->m, chunks[slots[at]]))
            slots[at] = i;
        else if (dcp_chunk_has_elements(m->m, chunks[i]))
            return fail(m, FSDPCK_FINDING_CHUNK_OVERLAP,
                        "two chunks of a tensor begin at the same offset", err);
    }
    return FSDPCK_OK;
}

/* Matches the remaining entries by offset. */
static fsdpck_status match_offsets(const dcp_match *m, const dcp_chunk_list *list,
                                   const uint32_t *group, uint32_t left, uint32_t *matched,
                                   fsdpck_error *err)
{
    const dcp_entry *entries = m->m->entries.items;
    const uint64_t seed = m->b->names->fqns.seed;
    const dcp_chunk **chunks = budget_alloc(m->m->owner, list->count * sizeof *chunks, err);
    size_t nslots = 8;

    if (chunks == NULL)
        return FSDPCK_LIMIT;
    dcp_run_walk walk = dcp_run_walk_begin(m->m, m->list);
    for (uint32_t i = 0; i < list->count; i++)
        chunks[i] = dcp_run_walk_next(&walk);
    while (nslots < 2 * (size_t)list->count)
        nslots *= 2;
    m->room->slots.count = 0;
    fsdpck_status st = vec_push_n(&m->room->slots, nslots, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
    if (st == FSDPCK_OK)
        st = hash_chunks(m, chunks, list->count, err);
    const uint32_t *slots = m->room->slots.items;
    for (uint32_t i = 0; i < left && st == FSDPCK_OK; i++) {
        const dcp_entry *e = &entries[group[i]];
        if (e->offsets_at == 0) {
            /* An index without offsets can be matched only by its hint. */
            if (e->hint < list->count && matched[e->hint] == DCP_NONE)
                matched[e->hint] = group[i];
            else
                m->room->stray_blobs++;
            continue;
        }
        size_t at = (size_t)dcp_size_hash(m->m, e->offsets_at, seed) & (nslots - 1);
        while (slots[at] != DCP_NONE &&
               !dcp_size_equal(m->m, chunks[slots[at]]->offsets_at, e->offsets_at))
            at = (at + 1) & (nslots - 1);
        if (slots[at] == DCP_NONE)
            m->room->stray_blobs++;
        else if (matched[slots[at]] == DCP_NONE)
            matched[slots[at]] = group[i];
        else if (dcp_chunk_has_elements(m->m, chunks[slots[at]]))
            st = fail(m, FSDPCK_FINDING_KEY_DUP, "storage_data contains a chunk twice", err);
    }
    budget_free(m->m->owner, chunks, list->count * sizeof *chunks);
    return st;
}

/* A hint may assign an entry to an empty chunk although a full one begins at the same offset:
 * entries of empty chunks then return to the group, to be matched by offset. */
static uint32_t return_entries(const dcp_match *m, uint32_t count, uint32_t *group, uint32_t left,
                               uint32_t *matched)
{
    bool lacks = false;
    dcp_run_walk walk = dcp_run_walk_begin(m->m, m->list);
    for (uint32_t i = 0; i < count && !lacks; i++) {
        const dcp_chunk *chunk = dcp_run_walk_next(&walk);
        lacks =
            matched[i] == DCP_NONE && chunk->sizes_at != 0 && dcp_chunk_has_elements(m->m, chunk);
    }
    walk = dcp_run_walk_begin(m->m, m->list);
    for (uint32_t i = 0; i < count && lacks; i++) {
        const dcp_chunk *chunk = dcp_run_walk_next(&walk);
        if (matched[i] == DCP_NONE || chunk->sizes_at == 0 || dcp_chunk_has_elements(m->m, chunk))
            continue;
        group[left++] = matched[i];
        matched[i] = DCP_NONE;
    }
    return left;
}

fsdpck_status dcp_match_chunks(const dcp_match *m, uint32_t *group, uint32_t count,
                               fsdpck_error *err)
{
    const dcp_chunk_list *list = VEC_AT(&m->m->lists, dcp_chunk_list, m->list);
    m->room->matched.count = 0;
    uint32_t *matched = vec_push_n(&m->room->matched, list->count, err);
    if (matched == NULL)
        return FSDPCK_LIMIT;
    memset(matched, 0xFF, list->count * sizeof *matched);
    uint32_t left = match_hints(m, list, group, count, matched);
    if (count - left < list->count) /* not every chunk has an entry */
        left = return_entries(m, list->count, group, left, matched);
    return left == 0 ? FSDPCK_OK : match_offsets(m, list, group, left, matched, err);
}
