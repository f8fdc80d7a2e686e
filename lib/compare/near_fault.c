#include "compare/near_fault.h"

#include <stdlib.h>
#include <string.h>

/* Elements compared with each of the other tensors, and bytes read of the tensor itself. */
#define SAMPLE_NELEMS   ((uint64_t)1 << 17)
#define ROWS_NBYTES_MAX ((uint64_t)16 << 20)
#define HEAD_ROWS_MAX   1024u
/* Other tensors that are read at most. */
#define OTHERS_MAX 1024u

typedef struct search {
    nearness *n;
    size_t pair;
    const cat_tensor *tensor; /* of a */
    const uint64_t *shape;
    widener of_a;
    uint64_t itemsize_bytes;
    uint8_t *a, *b; /* the first bytes of both */
    double score;   /* of *fault */
    near_fault *fault;
} search;

static const tensor_pair *get_pair(const nearness *n, size_t pair)
{
    return VEC_AT(&n->common.list, const tensor_pair, pair);
}

static bool widener_of(const catalogue *c, uint32_t tensor, widener *w)
{
    return widener_init(w, (dtype)catalogue_tensor(c, tensor)->dtype);
}

static void take_fault(search *s, const cosine_sums *sums, near_fault found)
{
    const double score = cosine_sums_score(sums);
    if (!(score >= NEAR_SCORE_MIN && score > s->score))
        return;
    s->score = score;
    found.cosine = cosine_sums_cosine(sums);
    *s->fault = found;
}

/* ---- another tensor ---- */

static size_t component_nbytes(const char *name, size_t nbytes)
{
    const char *dot = memchr(name, '.', nbytes);
    return dot == NULL ? nbytes : (size_t)(dot - name);
}

/* Whether two names differ in exactly one of their components: a number, or gate_proj and up_proj. */
static bool differ_in_one(const char *a, size_t a_nbytes, const char *b, size_t b_nbytes)
{
    unsigned differing = 0;
    for (;;) {
        const size_t i = component_nbytes(a, a_nbytes), k = component_nbytes(b, b_nbytes);
        differing += i != k || memcmp(a, b, i) != 0;
        if (i == a_nbytes || k == b_nbytes)
            return i == a_nbytes && k == b_nbytes && differing == 1;
        a += i + 1;
        a_nbytes -= i + 1;
        b += k + 1;
        b_nbytes -= k + 1;
    }
}

static bool may_be_swapped(const search *s, size_t other)
{
    const catalogue *c = &s->n->b.to.cat;
    const uint32_t i = get_pair(s->n, s->pair)->b, k = get_pair(s->n, other)->b;
    const uint32_t name = catalogue_tensor(c, i)->name, of_other = catalogue_tensor(c, k)->name;
    return !VEC_AT(&s->n->found, const near_tensor, other)->is_streamed &&
           shape_equal(s->shape, s->tensor->ndim, catalogue_shape(c, k),
                       catalogue_tensor(c, k)->ndim) &&
           differ_in_one(catalogue_name(c, name), catalogue_name_nbytes(c, name),
                         catalogue_name(c, of_other), catalogue_name_nbytes(c, of_other));
}

static fsdpck_status compare_with(search *s, size_t other, uint64_t nelems, fsdpck_error *err)
{
    const uint32_t tensor = get_pair(s->n, other)->b;
    cosine_sums sums = {0};
    widener of_b;
    if (!widener_of(&s->n->b.to.cat, tensor, &of_b))
        return FSDPCK_OK;
    RETURN_IF(
        tensor_pairs_read(&s->n->common, other, true, s->b, nelems * of_b.number_nbytes, err));
    cosine_sums_add_elements(&s->of_a, &of_b, s->a, s->b, nelems, &sums);
    take_fault(s, &sums, (near_fault){.kind = NEAR_FAULT_TENSOR, .tensor = tensor});
    return FSDPCK_OK;
}

static fsdpck_status compare_others(search *s, uint64_t nelems, fsdpck_error *err)
{
    size_t compared = 0;
    for (size_t i = 0; i < s->n->common.list.count && compared < OTHERS_MAX; i++) {
        if (i == s->pair || !may_be_swapped(s, i))
            continue;
        RETURN_IF(compare_with(s, i, nelems, err));
        compared++;
    }
    return FSDPCK_OK;
}

/* ---- RoPE ---- */

/* Heads whose rows alternate between both halves, against heads with one half after the other. */
static void compare_orders(search *s, uint64_t rows, uint64_t row_nelems, uint64_t head_rows)
{
    const uint64_t row_nbytes = row_nelems * s->itemsize_bytes, half = head_rows / 2;
    cosine_sums to_halves = {0}, to_alternating = {0};
    const near_fault found = {.kind = NEAR_FAULT_ROPE, .head_rows = head_rows};
    for (uint64_t row = 0; row < rows / head_rows * head_rows; row++) {
        const uint64_t in_head = row % head_rows;
        const uint64_t alternating = row - in_head + 2 * (in_head % half) + in_head / half;
        cosine_sums_add_elements(&s->of_a, &s->of_a, s->a + alternating * row_nbytes,
                                 s->b + row * row_nbytes, row_nelems, &to_halves);
        cosine_sums_add_elements(&s->of_a, &s->of_a, s->a + row * row_nbytes,
                                 s->b + alternating * row_nbytes, row_nelems, &to_alternating);
    }
    take_fault(s, &to_halves, found);
    take_fault(s, &to_alternating, found);
}

static fsdpck_status compare_rows(search *s, uint64_t nelems, fsdpck_error *err)
{
    const uint64_t row_nelems = s->shape[1], rows = nelems / row_nelems;
    RETURN_IF(tensor_pairs_read(&s->n->common, s->pair, true, s->b,
                                rows * row_nelems * s->itemsize_bytes, err));
    for (uint64_t head_rows = 4; head_rows <= rows && head_rows <= HEAD_ROWS_MAX; head_rows += 2)
        if (s->shape[0] % head_rows == 0)
            compare_orders(s, rows, row_nelems, head_rows);
    return FSDPCK_OK;
}

/* ---- all of it ---- */

static fsdpck_status find(search *s, fsdpck_error *err)
{
    const uint64_t all = catalogue_tensor_nelems(&s->n->a.to.cat, get_pair(s->n, s->pair)->a);
    const uint64_t limit = ROWS_NBYTES_MAX / sizeof(double);
    const uint64_t nelems = all < limit ? all : limit;
    s->a = malloc(nelems * sizeof(double));
    s->b = malloc(nelems * sizeof(double));
    if (s->a == NULL || s->b == NULL)
        return error_set_nomem(err, nelems * sizeof(double));
    RETURN_IF(
        tensor_pairs_read(&s->n->common, s->pair, false, s->a, nelems * s->itemsize_bytes, err));
    RETURN_IF(compare_others(s, nelems < SAMPLE_NELEMS ? nelems : SAMPLE_NELEMS, err));
    if (s->fault->kind == NEAR_FAULT_NONE && s->tensor->ndim == 2)
        RETURN_IF(compare_rows(s, nelems, err));
    return FSDPCK_OK;
}

fsdpck_status near_fault_find(nearness *n, size_t pair, near_fault *fault, fsdpck_error *err)
{
    const uint32_t tensor = get_pair(n, pair)->a;
    *fault = (near_fault){.kind = NEAR_FAULT_NONE, .tensor = CAT_NONE};
    search s = {.n = n,
                .pair = pair,
                .tensor = catalogue_tensor(&n->a.to.cat, tensor),
                .shape = catalogue_shape(&n->a.to.cat, tensor),
                .fault = fault};
    fsdpck_status st = FSDPCK_OK;
    if (widener_of(&n->a.to.cat, tensor, &s.of_a)) {
        s.itemsize_bytes = s.of_a.number_nbytes;
        st = find(&s, err);
    }
    free(s.a);
    free(s.b);
    return st;
}
