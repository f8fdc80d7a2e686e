/* Finds plain tensors of a model that some rank's file lacks. Pipeline stages and local experts have
 * parameters that others do not have, each its own. A rank that has a part of another rank's
 * parameters and no other lacks the rest. Ranks with different sharded parameters are different
 * stages. */
#include "formats/pt/ranks_internal.h"

/* Bounds the comparisons of sets of names. */
#define STEPS_MAX (UINT64_C(1) << 30)

/* Ranks of one class have the same names. */
typedef struct lacking_search {
    ranks_state *s;
    uint32_t *of_rank; /* class by rank */
    size_t rank_count;
    vec sums;               /* uint64_t by class: the sum of its sharded parameters */
    vec ranks;              /* uint32_t by class: its first rank */
    uint32_t *classes;      /* by tensor */
    uint64_t *tensor_first; /* start in `classes` */
    uint32_t *tensors;      /* by class, in ascending order */
    uint64_t *class_first;  /* start in `tensors` */
    uint64_t steps;
} lacking_search;

static uint64_t sum_of(const vec *sums, uint32_t rank)
{
    return rank < sums->count ? *VEC_AT(sums, const uint64_t, rank) : 0;
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
            if (st == FSDPCK_OK)
                st = vec_add(&x->ranks, &rank, err);
            *known = x->sums.count;
        }
        x->of_rank[rank] = (uint32_t)(*known - 1);
    }
    value_map_release(&seen);
    return st;
}

static bool is_searched(const ranks_tensor *t)
{
    return t->kind == RANKS_PLAIN && t->is_partial && !t->in_optimizer;
}

/* The class whose names a shard shows, or CAT_NONE. */
static uint32_t class_of(const lacking_search *x, const torch_shard *q)
{
    if (!(q->flags & RANKS_SHARD_PLAIN) ||
        !is_searched(VEC_AT(&x->s->tensors, const ranks_tensor, q->tensor)))
        return CAT_NONE;
    const uint32_t class = x->of_rank[q->rank];
    return *VEC_AT(&x->ranks, const uint32_t, class) == q->rank ? class : CAT_NONE;
}

/* Starts of lists from their lengths, at [i + 2]. Afterwards [i + 1] is where the i-th begins, and moves
 * to its end as it is filled. */
static void sum_lengths(uint64_t *first, size_t count)
{
    for (size_t i = 2; i < count + 2; i++)
        first[i] += first[i - 1];
}

static void make_lists(lacking_search *x)
{
    const vec *pieces = &x->s->reader->pieces;
    for (size_t i = 0; i < pieces->count; i++) {
        const torch_shard *q = VEC_AT(pieces, const torch_shard, i);
        const uint32_t class = class_of(x, q);
        if (class == CAT_NONE)
            continue;
        x->tensor_first[q->tensor + 2]++;
        x->class_first[class + 2]++;
    }
    sum_lengths(x->tensor_first, x->s->tensors.count);
    sum_lengths(x->class_first, x->sums.count);
    for (size_t i = 0; i < pieces->count; i++) {
        const torch_shard *q = VEC_AT(pieces, const torch_shard, i);
        const uint32_t class = class_of(x, q);
        if (class != CAT_NONE)
            x->classes[x->tensor_first[q->tensor + 1]++] = class;
    }
    for (uint32_t i = 0; i < x->s->tensors.count; i++)
        for (uint64_t at = x->tensor_first[i]; at < x->tensor_first[i + 1]; at++)
            x->tensors[x->class_first[x->classes[at] + 1]++] = i;
}

/* Whether class b has all names of class a; marks the others of b. */
static bool has_all(lacking_search *x, uint32_t b, uint32_t a, bool mark)
{
    uint64_t at = x->class_first[a];
    const uint64_t end = x->class_first[a + 1];
    for (uint64_t k = x->class_first[b]; k < x->class_first[b + 1]; k++) {
        x->steps++;
        if (at < end && x->tensors[at] < x->tensors[k])
            return false;
        if (at < end && x->tensors[at] == x->tensors[k])
            at++;
        else if (mark)
            VEC_AT(&x->s->tensors, ranks_tensor, x->tensors[k])->is_own = 1;
    }
    return at == end;
}

/* Classes with all names of a class have its rarest name, too. */
static void compare_class(lacking_search *x, uint32_t a)
{
    const uint64_t own = *VEC_AT(&x->sums, const uint64_t, a);
    const uint32_t *others = NULL;
    uint64_t count = x->sums.count;
    for (uint64_t at = x->class_first[a]; at < x->class_first[a + 1]; at++) {
        const uint32_t tensor = x->tensors[at];
        const uint64_t holders = x->tensor_first[tensor + 1] - x->tensor_first[tensor];
        if (others != NULL && holders >= count)
            continue;
        others = x->classes + x->tensor_first[tensor];
        count = holders;
    }
    for (uint32_t i = 0; i < count && x->steps < STEPS_MAX; i++) {
        const uint32_t b = others == NULL ? i : others[i];
        x->steps++;
        if (b != a && *VEC_AT(&x->sums, const uint64_t, b) == own && has_all(x, b, a, false))
            (void)has_all(x, b, a, true);
    }
}

static fsdpck_status search(lacking_search *x, fsdpck_error *err)
{
    ranks_state *s = x->s;
    uint64_t count = 0;
    uint32_t first = 0;
    make_lists(x);
    for (uint32_t a = 0; a < x->sums.count; a++)
        compare_class(x, a);
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, i);
        if (is_searched(t) && t->is_own)
            first = count++ == 0 ? i : first;
    }
    if (x->steps >= STEPS_MAX)
        log_warn(&s->req->log, FSDPCK_FINDING_RANK_DIFFER,
                 "compare the tensor names in the files of the ranks: fsdpck inspect --tree FILE",
                 "ranks have %zu different sets of tensors, too many to compare all: a rank may "
                 "lack tensors without a warning",
                 x->sums.count);
    return ranks_report_partial(s, first, count, "only some ranks hold tensors of the model", err);
}

static fsdpck_status search_classes(lacking_search *x, fsdpck_error *err)
{
    budget *owner = x->s->req->metadata;
    const size_t lists_nbytes = 2 * x->s->reader->pieces.count * sizeof(uint32_t);
    const size_t firsts_nbytes = (x->s->tensors.count + 2 + x->sums.count + 2) * sizeof(uint64_t);
    x->classes = budget_alloc(owner, lists_nbytes, err);
    x->tensor_first = budget_alloc(owner, firsts_nbytes, err);
    fsdpck_status st = FSDPCK_LIMIT;
    if (x->classes != NULL && x->tensor_first != NULL) {
        x->tensors = x->classes + x->s->reader->pieces.count;
        x->class_first = x->tensor_first + x->s->tensors.count + 2;
        st = search(x, err);
    }
    if (x->classes != NULL)
        budget_free(owner, x->classes, lists_nbytes);
    if (x->tensor_first != NULL)
        budget_free(owner, x->tensor_first, firsts_nbytes);
    return st;
}

fsdpck_status ranks_warn_lacking(ranks_state *s, fsdpck_error *err)
{
    lacking_search x = {.s = s,
                        .sums = VEC_OF(uint64_t, s->req->metadata),
                        .ranks = VEC_OF(uint32_t, s->req->metadata)};
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
    if (st == FSDPCK_OK && x.sums.count > 1)
        st = search_classes(&x, err);
    budget_free(s->req->metadata, x.of_rank, x.rank_count * sizeof *x.of_rank);
    VEC_RELEASE_ALL(&x.sums, &x.ranks);
    return st;
}
