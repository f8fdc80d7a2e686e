/* Finds optimizer state that pipeline stages number from 0: one number stands for a different
 * parameter in every stage. Ranks of one stage have the same sharded parameters. */
#include "formats/pt/ranks_internal.h"

fsdpck_status ranks_note_name(ranks_state *s, uint32_t rank, uint32_t entry, fsdpck_error *err)
{
    if (VEC_AT(&s->tensors, const ranks_tensor, entry)->in_optimizer)
        return FSDPCK_OK;
    if (s->name_sums.count <= rank &&
        vec_push_n(&s->name_sums, (size_t)rank + 1 - s->name_sums.count, err) == NULL)
        return FSDPCK_LIMIT;
    uint64_t h = (entry + UINT64_C(1)) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    *VEC_AT(&s->name_sums, uint64_t, rank) += h ^ h >> 32;
    return FSDPCK_OK;
}

static uint64_t sum_of(const ranks_state *s, uint32_t rank)
{
    return rank < s->name_sums.count ? *VEC_AT(&s->name_sums, const uint64_t, rank) : 0;
}

/* The catalogue's tensors that are numbered optimizer state: 1, and 2 if stages share it. */
typedef struct stage_marks {
    uint64_t *first; /* the name sum of the first rank that has it; 0: none yet */
    uint8_t *state;
    size_t count;
} stage_marks;

enum { MARK_NONE, MARK_NUMBERED, MARK_SHARED };

/* Ranks without sharded parameters decide nothing. */
static void mark(const ranks_state *s, stage_marks *m, uint32_t tensor, uint32_t rank)
{
    const uint64_t sum = sum_of(s, rank);
    if (m->state[tensor] == MARK_NONE || sum == 0)
        return;
    if (m->first[tensor] == 0)
        m->first[tensor] = sum;
    else if (m->first[tensor] != sum)
        m->state[tensor] = MARK_SHARED;
}

static bool mark_sharded(const ranks_state *s, stage_marks *m)
{
    bool any = false;
    for (size_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        if (t->in_optimizer && t->kind != RANKS_OBJECT && t->index != CAT_NONE)
            m->state[t->index] = MARK_NUMBERED;
    }
    for (size_t i = 0; i < s->cat->chunks.count; i++) {
        const cat_chunk *k = catalogue_chunk(s->cat, i);
        mark(s, m, k->tensor, k->rank);
        any = any || m->state[k->tensor] == MARK_SHARED;
    }
    return any;
}

/* Plain tensors follow: shards of flat parameters, which have no DTensors, are numbered alike. */
static void mark_plain(const ranks_state *s, stage_marks *m)
{
    const vec *pieces = &s->reader->pieces;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < pieces->count; i++) {
            ranks_shard *q = VEC_AT(pieces, ranks_shard, i);
            if (!(q->flags & RANKS_SHARD_PLAIN))
                continue;
            const uint32_t tensor = VEC_AT(&s->tensors, const ranks_tensor, q->tensor)->index;
            if (pass == 0)
                mark(s, m, tensor, q->rank);
            else if (m->state[tensor] == MARK_SHARED)
                q->flags |= RANKS_SHARD_STAGES;
        }
}

fsdpck_status ranks_mark_stages(ranks_state *s, fsdpck_error *err)
{
    stage_marks m = {.count = s->cat->tensors.count};
    m.first = budget_alloc(s->req->metadata, m.count * sizeof *m.first, err);
    m.state = budget_alloc(s->req->metadata, m.count * sizeof *m.state, err);
    const bool made = m.first != NULL && m.state != NULL;
    if (made && mark_sharded(s, &m)) {
        mark_plain(s, &m);
        for (size_t i = 0; i < s->cat->chunks.count; i++) {
            cat_chunk *k = catalogue_chunk(s->cat, i);
            if (m.state[k->tensor] != MARK_SHARED)
                continue;
            k->place = LOCATION_STRIDED;
            VEC_AT(&s->reader->pieces, ranks_shard, k->aux)->flags |= RANKS_SHARD_STAGES;
        }
    }
    if (m.first != NULL)
        budget_free(s->req->metadata, m.first, m.count * sizeof *m.first);
    if (m.state != NULL)
        budget_free(s->req->metadata, m.state, m.count * sizeof *m.state);
    return made ? FSDPCK_OK : FSDPCK_LIMIT;
}
