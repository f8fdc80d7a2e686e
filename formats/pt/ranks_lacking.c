/* Finds plain tensors of a model that some rank's file lacks. Pipeline stages and local experts have
 * parameters that others do not have, each its own. A rank that has a part of another rank's
 * parameters and no other lacks the rest. Ranks with different sharded parameters are different
 * stages. */
#include <string.h>

#include "formats/pt/ranks_internal.h"

/* More different sets of names are those of local experts. */
enum { CLASSES_MAX = 4096, WORD_BITS = 64 };

/* Ranks of one class have the same names. */
typedef struct lacking_search {
    ranks_state *s;
    uint32_t *of_rank; /* class by rank */
    size_t rank_count;
    vec sums;           /* uint64_t by class: the sum of its sharded parameters */
    size_t words;       /* in a set of classes */
    uint64_t *has_all;  /* sets by class: classes that have all its names */
    uint64_t *has_some; /* sets by class: classes whose names it has all */
    uint64_t *holders;  /* a set: classes that have the tensor */
    uint32_t *sorted;   /* shards by tensor; first[i] is the start of the i-th */
    uint64_t *first;
} lacking_search;

static uint64_t sum_of(const vec *sums, uint32_t rank)
{
    return rank < sums->count ? *VEC_AT(sums, const uint64_t, rank) : 0;
}

static bool is_in(const uint64_t *set, size_t class)
{
    return (set[class / WORD_BITS] >> class % WORD_BITS & 1) != 0;
}

static void put_in(uint64_t *set, size_t class)
{
    set[class / WORD_BITS] |= UINT64_C(1) << class % WORD_BITS;
}

static fsdpck_status find_classes(lacking_search *x, fsdpck_error *err)
{
    const ranks_state *s = x->s;
    const uint64_t odd = UINT64_C(0x9E3779B97F4A7C15);
    value_map seen = VALUE_MAP(s->req->metadata);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < s->list->files.count; i++) {
        const uint32_t rank = VEC_AT(&s->list->files, const ranks_file, i)->rank;
        const uint64_t sharded = sum_of(&s->name_sums, rank);
        const uint64_t key = (sharded * odd + sum_of(&s->plain_sums, rank)) | 1;
        uint64_t *known = value_map_put(&seen, key, NULL, err);
        if (known == NULL) {
            st = FSDPCK_LIMIT;
            break;
        }
        if (*known == 0) {
            st = vec_add(&x->sums, &sharded, err);
            *known = x->sums.count;
        }
        x->of_rank[rank] = (uint32_t)(*known - 1);
    }
    value_map_release(&seen);
    return st;
}

static bool is_searched(const ranks_state *s, const ranks_shard *q)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, q->tensor);
    return (q->flags & RANKS_SHARD_PLAIN) && t->is_partial && !t->in_optimizer;
}

static void sort_by_tensor(lacking_search *x)
{
    const vec *pieces = &x->s->reader->pieces;
    for (size_t i = 0; i < pieces->count; i++)
        if (is_searched(x->s, VEC_AT(pieces, const ranks_shard, i)))
            x->first[VEC_AT(pieces, const ranks_shard, i)->tensor + 2]++;
    for (size_t i = 2; i < x->s->tensors.count + 2; i++)
        x->first[i] += x->first[i - 1];
    for (size_t i = 0; i < pieces->count; i++)
        if (is_searched(x->s, VEC_AT(pieces, const ranks_shard, i)))
            x->sorted[x->first[VEC_AT(pieces, const ranks_shard, i)->tensor + 1]++] = (uint32_t)i;
}

static size_t class_at(const lacking_search *x, uint64_t at)
{
    return x->of_rank[VEC_AT(&x->s->reader->pieces, const ranks_shard, x->sorted[at])->rank];
}

static bool find_holders(lacking_search *x, uint32_t entry)
{
    memset(x->holders, 0, x->words * sizeof *x->holders);
    for (uint64_t at = x->first[entry]; at < x->first[entry + 1]; at++)
        put_in(x->holders, class_at(x, at));
    return x->first[entry] < x->first[entry + 1];
}

static void compare_classes(lacking_search *x)
{
    const size_t classes = x->sums.count;
    for (size_t a = 0; a < classes; a++)
        for (size_t b = 0; b < classes; b++)
            if (a != b &&
                *VEC_AT(&x->sums, const uint64_t, a) == *VEC_AT(&x->sums, const uint64_t, b))
                put_in(x->has_all + a * x->words, b);
    for (uint32_t i = 0; i < x->s->tensors.count; i++) {
        if (!find_holders(x, i))
            continue;
        for (uint64_t at = x->first[i]; at < x->first[i + 1]; at++)
            for (size_t k = 0; k < x->words; k++)
                x->has_all[class_at(x, at) * x->words + k] &= x->holders[k];
    }
    for (size_t a = 0; a < classes; a++)
        for (size_t b = 0; b < classes; b++)
            if (is_in(x->has_all + a * x->words, b))
                put_in(x->has_some + b * x->words, a);
}

static bool is_lacked(const lacking_search *x, uint32_t entry)
{
    bool lacked = false;
    for (uint64_t at = x->first[entry]; !lacked && at < x->first[entry + 1]; at++)
        for (size_t k = 0; k < x->words; k++)
            lacked = lacked || (x->has_some[class_at(x, at) * x->words + k] & ~x->holders[k]) != 0;
    return lacked;
}

static fsdpck_status search(lacking_search *x, fsdpck_error *err)
{
    ranks_state *s = x->s;
    uint64_t count = 0;
    uint32_t first = 0;
    sort_by_tensor(x);
    compare_classes(x);
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        if (!find_holders(x, i) || !is_lacked(x, i))
            continue;
        VEC_AT(&s->tensors, ranks_tensor, i)->is_own = 1;
        first = count++ == 0 ? i : first;
    }
    return ranks_report_partial(s, first, count, "only some ranks hold tensors of the model", err);
}

static fsdpck_status search_classes(lacking_search *x, fsdpck_error *err)
{
    budget *owner = x->s->req->metadata;
    const size_t pieces = x->s->reader->pieces.count, tensors = x->s->tensors.count;
    const size_t classes = x->sums.count;
    x->words = (classes + WORD_BITS - 1) / WORD_BITS;
    const uint64_t sets_nbytes = (2 * classes + 1) * x->words * sizeof *x->has_all;
    x->has_all = budget_alloc(owner, sets_nbytes, err);
    x->sorted = budget_alloc(owner, pieces * sizeof *x->sorted, err);
    x->first = budget_alloc(owner, (tensors + 2) * sizeof *x->first, err);
    fsdpck_status st = FSDPCK_LIMIT;
    if (x->has_all != NULL && x->sorted != NULL && x->first != NULL) {
        x->has_some = x->has_all + classes * x->words;
        x->holders = x->has_some + classes * x->words;
        st = search(x, err);
    }
    if (x->has_all != NULL)
        budget_free(owner, x->has_all, sets_nbytes);
    if (x->sorted != NULL)
        budget_free(owner, x->sorted, pieces * sizeof *x->sorted);
    if (x->first != NULL)
        budget_free(owner, x->first, (tensors + 2) * sizeof *x->first);
    return st;
}

fsdpck_status ranks_warn_lacking(ranks_state *s, fsdpck_error *err)
{
    lacking_search x = {.s = s, .sums = VEC_OF(uint64_t, s->req->metadata)};
    if (s->plain_sums.count == 0) /* no such tensors */
        return FSDPCK_OK;
    for (size_t i = 0; i < s->list->files.count; i++) {
        const uint32_t rank = VEC_AT(&s->list->files, const ranks_file, i)->rank;
        x.rank_count = rank >= x.rank_count ? (size_t)rank + 1 : x.rank_count;
    }
    x.of_rank = budget_alloc(s->req->metadata, x.rank_count * sizeof *x.of_rank, err);
    if (x.of_rank == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = find_classes(&x, err);
    if (st == FSDPCK_OK && x.sums.count > 1 && x.sums.count <= CLASSES_MAX)
        st = search_classes(&x, err);
    budget_free(s->req->metadata, x.of_rank, x.rank_count * sizeof *x.of_rank);
    vec_release(&x.sums);
    return st;
}
