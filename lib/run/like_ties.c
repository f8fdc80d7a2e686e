#include "run/like_ties.h"

#include <string.h>

#include "open/model_embedding.h"
#include "run/digest_run.h"
#include "run/tensor_glob.h"

/* More tensors that the folder lacks show that it belongs to another model. */
#define EXTRAS_MAX 256u
/* Candidates of an unrelated model may be most of its tensors: their bytes are limited, unless they are few. */
#define FEW_CANDIDATES       4u
#define CANDIDATE_NBYTES_MAX (UINT64_C(1) << 30)

typedef struct search {
    fsdpck_checkpoint *src;
    const like_output *l;
    const catalogue *to;
    const uint32_t *from;
    vec candidates; /* tied_pair of indexes in `to`, by alias */
    vec digests;    /* uint64_t of each tensor of `to`; only those of candidates are filled */
} search;

static uint32_t source_of(const search *s, uint32_t i)
{
    return s->from == NULL ? i : s->from[i];
}

static bool is_in_base(const search *s, uint32_t i)
{
    const catalogue *base = &s->l->base->cat;
    const uint32_t name = catalogue_tensor(s->to, i)->name;
    return catalogue_find(base, catalogue_name(s->to, name), catalogue_name_nbytes(s->to, name)) !=
           CAT_NONE;
}

/* A folder with "tie_word_embeddings": false that lacks the output projection is none of this model. */
static bool may_be_copy(const search *s, uint32_t i)
{
    return (catalogue_tensor(s->to, i)->flags & CAT_TENSOR_STORAGE) == 0 && !is_in_base(s, i) &&
           catalogue_tensor_nelems(s->to, i) > 0 &&
           !(s->l->config.ties == MODEL_TIES_NO && model_is_head(s->to, i));
}

static bool has_same_type(const search *s, uint32_t i, uint32_t k)
{
    const catalogue *c = &s->src->cat;
    const uint32_t a = source_of(s, i), b = source_of(s, k);
    const cat_tensor *x = catalogue_tensor(c, a), *y = catalogue_tensor(c, b);
    return x->dtype == y->dtype &&
           shape_equal(catalogue_shape(c, a), x->ndim, catalogue_shape(c, b), y->ndim);
}

static fsdpck_status add_candidates(search *s, uint32_t extra, fsdpck_error *err)
{
    const size_t before = s->candidates.count;
    const uint64_t nbytes = catalogue_tensor_nbytes(&s->src->cat, source_of(s, extra));
    for (uint32_t k = 0; k < catalogue_tensor_count(s->to); k++)
        if (has_same_type(s, extra, k) &&
            (catalogue_tensor(s->to, k)->flags & CAT_TENSOR_STORAGE) == 0 && is_in_base(s, k))
            RETURN_IF(vec_add(&s->candidates, &(tied_pair){.first = k, .alias = extra}, err));
    const size_t count = s->candidates.count - before;
    if (count > FEW_CANDIDATES && nbytes > CANDIDATE_NBYTES_MAX / count)
        s->candidates.count = before;
    return FSDPCK_OK;
}

static fsdpck_status find_candidates(search *s, fsdpck_error *err)
{
    uint32_t extras = 0;
    const uint32_t count = (uint32_t)catalogue_tensor_count(s->to);
    for (uint32_t i = 0; i < count; i++)
        extras += may_be_copy(s, i);
    for (uint32_t i = 0; extras <= EXTRAS_MAX && i < count; i++)
        if (may_be_copy(s, i))
            RETURN_IF(add_candidates(s, i, err));
    return FSDPCK_OK;
}

/* --- bytes --- */

static fsdpck_status list_globs(const search *s, vec *globs, const uint8_t *used, fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_tensor_count(s->to); i++) {
        text_buf glob = {0};
        if (!used[i])
            continue;
        const fsdpck_status st = tensor_glob_make(s->src, source_of(s, i), &glob, err);
        if (st != FSDPCK_OK || vec_add(globs, &glob.text, err) != FSDPCK_OK) {
            text_release(&glob);
            return st == FSDPCK_OK ? FSDPCK_LIMIT : st;
        }
    }
    return FSDPCK_OK;
}

/* The digest of each source tensor that was read. */
static void take_digests(search *s, const fsdpck_digests *d, const uint8_t *used)
{
    for (uint64_t k = 0; k < d->rows.count; k++) {
        const digest_row *row = &d->rows.rows[k];
        const uint32_t at = *VEC_AT(&d->run.to.from, const uint32_t, row->tensor);
        for (uint32_t i = 0; i < catalogue_tensor_count(s->to); i++)
            if (used[i] && source_of(s, i) == at)
                *VEC_AT(&s->digests, uint64_t, i) = row->digest;
    }
}

static fsdpck_status read_digests(search *s, const run_options *options, const uint8_t *used,
                                  fsdpck_error *err)
{
    fsdpck_digests d = {0};
    run_options o;
    vec globs = VEC_OF(char *, NULL);
    run_options_init(&o);
    o.work = options->work;
    o.select.part = FSDPCK_PART_MODEL;
    o.select.clean_names = FSDPCK_ON;
    o.select.replicas = options->select.replicas;
    fsdpck_status st = group_agree(s->src->ctx->group, list_globs(s, &globs, used, err), err);
    if (st == FSDPCK_OK) {
        o.select.keys = globs.items;
        o.select.keys_count = globs.count;
        st = digest_run(&d, s->src->ctx, s->src, &o, false, err);
        if (st == FSDPCK_OK)
            take_digests(s, &d, used);
        digest_run_release(&d);
    }
    for (size_t i = 0; i < globs.count; i++)
        free(*VEC_AT(&globs, char *, i));
    vec_release(&globs);
    return st;
}

/* --- copies --- */

bool like_ties_has(const vec *pairs, uint32_t alias)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (VEC_AT(pairs, const tied_pair, i)->alias == alias)
            return true;
    return false;
}

/* The length of the name of its module, with the dot. */
static size_t module_nbytes(const catalogue *c, uint32_t tensor, const char **name)
{
    const uint32_t id = catalogue_tensor(c, tensor)->name;
    size_t nbytes = catalogue_name_nbytes(c, id);
    *name = catalogue_name(c, id);
    while (nbytes > 0 && (*name)[nbytes - 1] != '.')
        nbytes--;
    return nbytes;
}

/* Whether another copy is in the module of this one: cls.predictions.decoder.bias beside .weight. */
static bool is_beside_copy(const search *s, const vec *pairs, uint32_t i)
{
    const char *name, *other;
    const size_t nbytes = module_nbytes(s->to, i, &name);
    for (uint32_t k = 0; k < catalogue_tensor_count(s->to); k++) {
        if (k == i || !like_ties_has(pairs, source_of(s, k)) ||
            catalogue_tensor(s->to, k)->ndim < 2)
            continue;
        const size_t n = module_nbytes(s->to, k, &other);
        if (text_equal(name, nbytes, other, n))
            return true;
    }
    return false;
}

static bool shares_storage(const search *s, const tied_pair *p)
{
    const catalogue *c = &s->src->cat;
    const uint32_t alias = catalogue_tensor(c, source_of(s, p->alias))->alias;
    return alias != CAT_NONE && catalogue_tensor(c, source_of(s, p->first))->alias == alias;
}

static fsdpck_status list_copies(search *s, bool vectors, vec *pairs, fsdpck_error *err)
{
    for (size_t i = 0; i < s->candidates.count; i++) {
        const tied_pair *p = VEC_AT(&s->candidates, const tied_pair, i);
        const uint32_t alias = source_of(s, p->alias);
        const bool is_vector = catalogue_tensor(s->to, p->alias)->ndim < 2;
        if (is_vector != vectors || like_ties_has(pairs, alias) ||
            *VEC_AT(&s->digests, const uint64_t, p->alias) !=
                *VEC_AT(&s->digests, const uint64_t, p->first) ||
            (is_vector && !shares_storage(s, p) && !is_beside_copy(s, pairs, p->alias)))
            continue;
        RETURN_IF(
            vec_add(pairs, &(tied_pair){.first = source_of(s, p->first), .alias = alias}, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status compare(search *s, const run_options *options, vec *pairs, fsdpck_error *err)
{
    const size_t count = catalogue_tensor_count(s->to);
    vec used = VEC_OF(uint8_t, NULL);
    uint8_t *is_used = vec_push_n(&used, count, err);
    uint64_t *digests = vec_push_n(&s->digests, count, err);
    fsdpck_status st = is_used == NULL || digests == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (st == FSDPCK_OK) {
        memset(is_used, 0, count);
        memset(digests, 0, count * sizeof *digests);
        for (size_t i = 0; i < s->candidates.count; i++) {
            const tied_pair *p = VEC_AT(&s->candidates, const tied_pair, i);
            is_used[p->first] = is_used[p->alias] = 1;
        }
    }
    st = group_agree(s->src->ctx->group, st, err);
    if (st == FSDPCK_OK)
        st = read_digests(s, options, is_used, err);
    if (st == FSDPCK_OK)
        st = list_copies(s, false, pairs, err);
    if (st == FSDPCK_OK)
        st = list_copies(s, true, pairs, err);
    vec_release(&used);
    return st;
}

fsdpck_status like_ties_find(fsdpck_checkpoint *src, const run_options *options,
                             const like_output *l, const catalogue *to, const uint32_t *from,
                             vec *pairs, fsdpck_error *err)
{
    search s = {.src = src,
                .l = l,
                .to = to,
                .from = from,
                .candidates = VEC_OF(tied_pair, NULL),
                .digests = VEC_OF(uint64_t, NULL)};
    fsdpck_status st = group_agree(src->ctx->group, find_candidates(&s, err), err);
    if (st == FSDPCK_OK && s.candidates.count > 0)
        st = compare(&s, options, pairs, err);
    VEC_RELEASE_ALL(&s.candidates, &s.digests);
    return st;
}

/* --- consolidate --like --- */

static fsdpck_status select_all(run *q)
{
    RETURN_IF(request_choose_writer(q, NULL));
    RETURN_IF(like_output_open(&q->like, &q->opt, NULL));
    return q->writer->of_model ? run_select(q, NULL) : FSDPCK_USAGE;
}

fsdpck_status like_ties_prepare(run *r, fsdpck_error *err)
{
    run q;
    if (r->opt.like == NULL)
        return FSDPCK_OK;
    run_init(&q, r->ctx, r->src, &r->opt);
    q.dst = r->dst;
    fsdpck_status st = group_agree_result(r->ctx->group, select_all(&q), false, NULL);
    if (st == FSDPCK_OK)
        st = like_ties_find(r->src, &r->opt, &q.like, &q.to.cat, q.to.from.items, &r->like_ties,
                            err);
    else
        st = FSDPCK_OK;
    run_release(&q);
    return st;
}
