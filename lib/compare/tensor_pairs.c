#include "compare/tensor_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "group/remote_folder.h"
#include "run/digest_run.h"

/* Filled at a time on each side: both, read and then compared, fit the L2 cache. */
#define STEP_NBYTES ((uint64_t)256 << 10)

/* As tiles: each tensor is divided at the same elements, whatever the size of a tile. */
#define PAIR_ALIGN FILE_DIRECT_ALIGN

typedef struct walk {
    tensor_pairs *p;
    pair_elements_fn fn;
    void *ctx;
} walk;

void tensor_pairs_init(tensor_pairs *p, run *a, run *b)
{
    *p = (tensor_pairs){.a = a, .b = b, .list = VEC_OF(tensor_pair, &a->src->metadata)};
}

void tensor_pairs_release(tensor_pairs *p)
{
    vec_release(&p->list);
}

void tensor_pairs_share_memory(tensor_pairs *p)
{
    uint64_t nbytes = run_memory_nbytes(p->a) / 2;
    if (nbytes < EXEC_MEMORY_NBYTES_MIN)
        nbytes = EXEC_MEMORY_NBYTES_MIN;
    p->a->opt.work.memory_nbytes = nbytes;
    p->b->opt.work.memory_nbytes = nbytes;
}

fsdpck_status tensor_pairs_add(tensor_pairs *p, uint32_t a, uint32_t b, fsdpck_error *err)
{
    return vec_add(&p->list, &(tensor_pair){a, b}, err);
}

/* ---- layout ---- */

static const tensor_pair *get_pair(const tensor_pairs *p, size_t pair)
{
    return VEC_AT(&p->list, const tensor_pair, pair);
}

/* The tensors without a pair go to file 1, which is not walked. */
static fsdpck_status lay_out_others(catalogue *c, const uint8_t *is_paired, uint64_t *nbytes,
                                    fsdpck_error *err)
{
    for (uint32_t i = 0; i < catalogue_tensor_count(c); i++)
        if (!is_paired[i])
            RETURN_IF(digest_lay_out_tensor(c, i, 1, nbytes, err));
    return FSDPCK_OK;
}

static fsdpck_status lay_out_side(const tensor_pairs *p, bool second, fsdpck_error *err)
{
    catalogue *c = second ? &p->b->to.cat : &p->a->to.cat;
    uint64_t paired_nbytes = 0, other_nbytes = 0;
    uint32_t index;
    uint8_t *is_paired = calloc(catalogue_tensor_count(c) + 1, 1);
    if (is_paired == NULL)
        return error_set_nomem(err, catalogue_tensor_count(c));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < p->list.count; i++) {
        const uint32_t tensor = second ? get_pair(p, i)->b : get_pair(p, i)->a;
        is_paired[tensor] = 1;
        st = digest_lay_out_tensor(c, tensor, 0, &paired_nbytes, err);
        paired_nbytes += -paired_nbytes % PAIR_ALIGN;
    }
    if (st == FSDPCK_OK)
        st = lay_out_others(c, is_paired, &other_nbytes, err);
    free(is_paired);
    if (st == FSDPCK_OK)
        st = catalogue_add_file(c, "both", 4, paired_nbytes, CAT_NONE, &index, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_file(c, "rest", 4, other_nbytes, CAT_NONE, &index, err);
    return st;
}

fsdpck_status tensor_pairs_plan(tensor_pairs *p, fsdpck_error *err)
{
    RETURN_IF(lay_out_side(p, false, err));
    RETURN_IF(lay_out_side(p, true, err));
    RETURN_IF(run_make_plan(p->a, err));
    return run_make_plan(p->b, err);
}

fsdpck_status tensor_pairs_resolve(tensor_pairs *p, fsdpck_error *err)
{
    RETURN_IF(group_agree_result(p->a->ctx->group, run_resolve(p->a, err), true, err));
    return run_resolve(p->b, err);
}

fsdpck_status tensor_pairs_assign(tensor_pairs *p, fsdpck_error *err)
{
    unsigned workers;
    uint64_t nbytes;
    RETURN_IF(exec_assign_work(p->a->exec, true, FSDPCK_OK, err));
    RETURN_IF(exec_assign_work(p->b->exec, true, FSDPCK_OK, err));
    exec_fill_limits(p->a->exec, &p->workers, &p->fill_nbytes);
    exec_fill_limits(p->b->exec, &workers, &nbytes);
    p->workers = workers < p->workers ? workers : p->workers;
    p->fill_nbytes = nbytes < p->fill_nbytes ? nbytes : p->fill_nbytes;
    return FSDPCK_OK;
}

bool tensor_pairs_is_streamed(const tensor_pairs *p, size_t pair)
{
    const tensor_pair *one = get_pair(p, pair);
    return exec_is_streamed(p->a->exec, one->a) || exec_is_streamed(p->b->exec, one->b);
}

/* ---- elements ---- */

static const cat_chunk *first_chunk(const catalogue *c, uint32_t tensor)
{
    return catalogue_chunk(c, catalogue_tensor(c, tensor)->first_chunk);
}

/* The pair of a chunk of A. */
static size_t find_pair(const tensor_pairs *p, uint64_t chunk)
{
    const catalogue *a = &p->a->to.cat;
    const uint64_t at = catalogue_chunk(a, chunk)->offset_bytes;
    size_t low = 0, high = p->list.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (first_chunk(a, get_pair(p, middle)->a)->offset_bytes <= at)
            low = middle;
        else
            high = middle;
    }
    /* Tensors without elements share an offset with the next one. */
    while (get_pair(p, low)->a != catalogue_chunk(a, chunk)->tensor)
        low--;
    return low;
}

static void visit_part(const walk *w, unsigned worker, const range_part *part, const uint8_t *a,
                       const uint8_t *b)
{
    const size_t pair = find_pair(w->p, part->chunk);
    const uint32_t tensor = get_pair(w->p, pair)->a;
    const dtype type = (dtype)catalogue_tensor(&w->p->a->to.cat, tensor)->dtype;
    const uint64_t itemsize = dtype_get(type)->itemsize_bytes;
    const pair_elements elements = {.pair = pair,
                                    .first = (part->begin - part->chunk_begin) / itemsize,
                                    .count = (part->end - part->begin) / itemsize,
                                    .a = a,
                                    .b = b};
    w->fn(w->ctx, worker, &elements);
}

static fsdpck_status visit_range(const walk *w, unsigned worker, const output_range *range,
                                 fsdpck_error *err)
{
    const tensor_pairs *p = w->p;
    const uint8_t *a, *b;
    range_walk parts;
    range_part part;
    RETURN_IF(cancel_check(&p->a->ctx->cancel, err));
    RETURN_IF(exec_fill(p->a->exec, worker, range, &a, err));
    RETURN_IF(exec_fill(p->b->exec, worker, range, &b, err));
    range_walk_begin(&parts, p->a->plan, range);
    while (range_walk_next(&parts, &part)) {
        const uint64_t at = part.begin - range->begin;
        visit_part(w, worker, &part, a + at, b + at);
    }
    progress_add(&p->a->ctx->progress, range->end - range->begin);
    return FSDPCK_OK;
}

/* Tiles and elements both begin at multiples of their size, so none is cut. */
static fsdpck_status visit_item(void *ctx, unsigned worker, uint64_t item, fsdpck_error *err)
{
    const walk *w = ctx;
    const tensor_pairs *p = w->p;
    output_range whole;
    plan_get_item(p->a->plan, exec_own_item(p->a->exec, item), &whole);
    if (whole.file != 0)
        return FSDPCK_OK;
    uint64_t nbytes = exec_fill_nbytes(p->a->exec, &whole, STEP_NBYTES);
    const uint64_t other = exec_fill_nbytes(p->b->exec, &whole, STEP_NBYTES);
    nbytes = nbytes > other ? nbytes : other;
    nbytes = nbytes < p->fill_nbytes ? nbytes : p->fill_nbytes;
    output_range range = whole;
    for (; range.begin < whole.end; range.begin = range.end) {
        range.end = whole.end - range.begin > nbytes ? range.begin + nbytes : whole.end;
        RETURN_IF(visit_range(w, worker, &range, err));
    }
    return FSDPCK_OK;
}

fsdpck_status tensor_pairs_walk(tensor_pairs *p, const char *phase, pair_elements_fn fn, void *ctx,
                                const cancel_token *cancel, fsdpck_error *err)
{
    walk w = {p, fn, ctx};
    progress_phase(&p->a->ctx->progress, phase, catalogue_file(&p->a->to.cat, 0)->nbytes);
    return exec_pool_run(p->a->exec, p->workers, exec_own_item_count(p->a->exec), visit_item, &w,
                         cancel, err);
}

fsdpck_status tensor_pairs_fill(const tensor_pairs *p, unsigned worker, size_t pair, bool second,
                                uint64_t at, uint64_t nbytes, const uint8_t **bytes,
                                fsdpck_error *err)
{
    const run *r = second ? p->b : p->a;
    const tensor_pair *one = get_pair(p, pair);
    const uint64_t begin = first_chunk(&r->to.cat, second ? one->b : one->a)->offset_bytes + at;
    const output_range range = {.file = 0, .begin = begin, .end = begin + nbytes};
    return exec_fill(r->exec, worker, &range, bytes, err);
}

fsdpck_status tensor_pairs_read(tensor_pairs *p, size_t pair, bool second, uint8_t *bytes,
                                uint64_t nbytes, fsdpck_error *err)
{
    for (uint64_t at = 0; at < nbytes;) {
        const uint64_t some = nbytes - at < p->fill_nbytes ? nbytes - at : p->fill_nbytes;
        const uint8_t *from;
        RETURN_IF(cancel_check(&p->a->ctx->cancel, err));
        RETURN_IF(tensor_pairs_fill(p, 0, pair, second, at, some, &from, err));
        memcpy(bytes + at, from, some);
        at += some;
    }
    return FSDPCK_OK;
}

static fsdpck_status check_unchanged(const run *r, fsdpck_error *err)
{
    const source *s = &r->src->src;
    RETURN_IF(remote_folder_check_unchanged(r->src->remote_files, err));
    return s->check_unchanged == NULL ? FSDPCK_OK : s->check_unchanged(s->ctx, err);
}

fsdpck_status tensor_pairs_check_unchanged(const tensor_pairs *p, fsdpck_error *err)
{
    RETURN_IF(check_unchanged(p->a, err));
    return check_unchanged(p->b, err);
}
