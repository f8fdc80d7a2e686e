/* Decides from the evidence whether a tensor lacks shards. */
#include <stdlib.h>

#include "formats/safetensors/dcp_safetensors_count.h"

/* The most shards, including empty ones, of a tensor of this root with all its files; 0: none. */
static uint32_t most_shards(const shards_evidence *e, uint32_t root)
{
    size_t begin = 0, end = e->complete.count; /* they are sorted by root, then by shards */
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (VEC_AT(&e->complete, const shards_count, middle)->root <= root)
            begin = middle + 1;
        else
            end = middle;
    }
    const uint32_t entries = VEC_AT(&e->seen, const shards_rank, root)->entries;
    const shards_count *last =
        begin > 0 ? VEC_AT(&e->complete, const shards_count, begin - 1) : NULL;
    const uint32_t shards = last != NULL && last->root == root ? last->shards : 0;
    return shards > entries ? shards : entries;
}

/* Whether a ShardedTensor of this size over this number of ranks has all its shards: it has no
 * empty ones. */
static bool may_be_short(const shards_evidence *e, const shards_spread *t, uint64_t ranks)
{
    return !e->has_ends && t->shards > 1 && t->is_regular && ranks > t->shards &&
           (t->end - 1) / ranks + 1 == t->first;
}

/* On a mesh of two dims that shards other tensors in both, one dim may shard this one. */
static bool is_of_grid(const shards_evidence *e, const shards_spread *t)
{
    const shards_rank *root =
        VEC_AT(&e->seen, const shards_rank, shards_evidence_root(e, t->rank_number));
    return t->shards > 1 && t->is_regular &&
           (t->shards == root->grid[0] || t->shards == root->grid[1]);
}

static bool lacks_of_file(const shards_evidence *e, const shards_spread *t, uint32_t most)
{
    const shards_count key = shards_count_of(e, t);
    if (most <= t->shards)
        return false;
    if (e->complete.count > 0 && bsearch(&key, e->complete.items, e->complete.count, sizeof key,
                                         shards_count_compare) != NULL)
        return false;
    /* A tensor in one shard on another rank than the first of the others is complete. */
    if (t->shards == 1 && !VEC_AT(&e->seen, const shards_rank, t->rank_number)->begins)
        return false;
    if (is_of_grid(e, t))
        return false;
    /* A last shard that is smaller than the others is the tensor's end. */
    return !((t->first == 1 || t->end % t->first != 0) && may_be_short(e, t, most));
}

static bool lacks_of_rank(const shards_evidence *e, const shards_spread *t, uint32_t most,
                          uint64_t ranks)
{
    if (t->shards < 2 || !t->is_regular || most <= t->shards)
        return false;
    return most % t->shards != 0 && ranks % t->shards != 0 && !may_be_short(e, t, most);
}

static bool is_judged(const shards_spread *t)
{
    return !t->has_end && t->shards > 0 && t->ndim > 0;
}

static bool lacks(const shards_evidence *e, const shards_spread *t, uint64_t ranks, bool are_stated,
                  shards_gap *lack)
{
    const bool is_file = shards_evidence_lacking(e, t) > 0;
    const shards_spread *peer =
        t->peer != STRTAB_NONE ? VEC_AT(&e->tensors, const shards_spread, t->peer) : NULL;
    if (!is_judged(t) || (!is_file && are_stated))
        return false;
    *lack = (shards_gap){
        .peer = STRTAB_NONE,
        .shards = t->shards,
        .root = shards_evidence_root(e, t->rank_number),
        .file_number = is_file ? t->file_number : 0,
    };
    lack->peer_shards = most_shards(e, lack->root);
    if (is_file ? lacks_of_file(e, t, lack->peer_shards)
                : lacks_of_rank(e, t, lack->peer_shards, ranks))
        return true;
    if (peer == NULL || (!t->is_of_role && is_of_grid(e, t)) ||
        (!is_file && may_be_short(e, t, peer->shards)))
        return false;
    lack->peer = t->peer;
    lack->peer_shards = peer->shards;
    return true;
}

bool shards_gap_find(const shards_evidence *e, uint64_t ranks, bool are_stated, shards_gap *lack)
{
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        if (lacks(e, VEC_AT(&e->tensors, const shards_spread, i), ranks, are_stated, lack)) {
            lack->tensor = i;
            return true;
        }
    }
    return false;
}

bool shards_gap_find_open(const shards_evidence *e, shards_gap *lack)
{
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        if (!is_judged(t) || t->shards < 2)
            continue;
        *lack = (shards_gap){.tensor = i, .peer = STRTAB_NONE, .shards = t->shards};
        return true;
    }
    return false;
}

/* --- ranks apart: they have files, but none with a sharded tensor --- */

/* One shard on each rank of the root, and no mesh dim of that size fits the number of ranks. */
static bool is_even(const shards_evidence *e, const shards_spread *t, uint64_t ranks)
{
    const uint32_t root = shards_evidence_root(e, t->rank_number);
    return t->shards > 1 && !t->has_end && t->is_regular && ranks % t->shards != 0 &&
           VEC_AT(&e->seen, const shards_rank, root)->members == t->shards &&
           !may_be_short(e, t, ranks);
}

/* The first of two such tensors, if one root alone has sharded tensors; otherwise NULL. Several roots are the
 * stages of a pipeline. Of two tensors with replicas, torch would give one to the ranks that have less. */
static const shards_spread *find_even(const shards_evidence *e, uint64_t ranks)
{
    const shards_spread *first = NULL;
    uint32_t root = 0;
    size_t count = 0;
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        const uint32_t of = shards_evidence_root(e, t->rank_number);
        if (VEC_AT(&e->seen, const shards_rank, of)->members < 2)
            continue;
        if (root != 0 && of != root)
            return NULL;
        root = of;
        if (!is_even(e, t, ranks))
            continue;
        count++;
        first = first == NULL ? t : first;
    }
    return count > 1 ? first : NULL;
}

enum { HAS_SHARDS = 1 };

/* Which file numbers and name patterns the sharded tensors of the root have. */
static void mark_shards(const shards_evidence *e, uint32_t root, uint8_t *files, uint8_t *patterns)
{
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        if (shards_evidence_root(e, t->rank_number) != root || (t->shards < 2 && !t->has_end))
            continue;
        files[t->file_number] = HAS_SHARDS;
        patterns[t->pattern] = HAS_SHARDS;
    }
}

/* A rank with one of these files wrote it without shards, and one with such a name is a stage of a
 * pipeline. */
static uint32_t find_apart(const shards_evidence *e, const uint8_t *files, const uint8_t *patterns)
{
    shards_rank *seen = VEC_AT(&e->seen, shards_rank, 0);
    for (uint32_t i = 0; i < e->tensors.count; i++) {
        const shards_spread *t = VEC_AT(&e->tensors, const shards_spread, i);
        if (files[t->file_number] == HAS_SHARDS || patterns[t->pattern] == HAS_SHARDS)
            seen[t->rank_number].is_outside = true;
    }
    for (uint32_t r = 1; r < e->parent.count; r++)
        if (seen[r].files > 0 && shards_evidence_root(e, r) == r && seen[r].members == 1 &&
            !seen[r].is_outside)
            return r;
    return 0;
}

fsdpck_status shards_gap_find_apart(const shards_evidence *e, uint64_t ranks, uint32_t file_count,
                                    shards_gap *lack, fsdpck_error *err)
{
    const shards_spread *t = find_even(e, ranks);
    *lack = (shards_gap){.peer = STRTAB_NONE};
    if (t == NULL)
        return FSDPCK_OK;
    vec marks = VEC_OF(uint8_t, e->owner);
    uint8_t *files = vec_push_n(&marks, (size_t)file_count + 1 + e->tensors.count, err);
    if (files == NULL)
        return FSDPCK_LIMIT;
    mark_shards(e, shards_evidence_root(e, t->rank_number), files, files + file_count + 1);
    const uint32_t rank_number = find_apart(e, files, files + file_count + 1);
    vec_release(&marks);
    if (rank_number == 0)
        return FSDPCK_OK;
    lack->tensor = (uint32_t)(t - VEC_AT(&e->tensors, const shards_spread, 0));
    lack->shards = t->shards;
    lack->root = rank_number;
    lack->file_number = t->file_number;
    return FSDPCK_OK;
}
