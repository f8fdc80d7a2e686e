/* Merged tensors of a synthetic checkpoint, whatever the shards of weights and adapters are, against plain loops. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lora/merge.h"
#include "state/cast.h"
#include "tests/support/memory_source.h"
#include "tests/support/random.h"

/* Names that begin so have values of moderate size. */
#define NAME(text) "added " text

typedef struct merge_test {
    budget metadata;
    memory_source m;
    merge_list list;
    catalogue out;
    merger *merger;
    uint64_t state;
} merge_test;

static void begin(merge_test *t, uint64_t seed)
{
    *t = (merge_test){.state = seed};
    budget_init(&t->metadata, UINT64_MAX, "test", NULL);
    memory_source_init(&t->m, 2, &t->metadata);
    merge_list_init(&t->list, &t->metadata);
    catalogue_init(&t->out, &t->metadata);
}

/* A tensor cut at random along each of its dims. */
static uint32_t add(merge_test *t, const char *name, dtype d, unsigned ndim, const uint64_t *shape,
                    memory_layout layout)
{
    const uint32_t made = memory_source_add_tensor(&t->m, name, d, ndim, shape);
    uint64_t cut[3], corner = 0;
    for (unsigned i = 0; i < ndim; i++)
        cut[i] = random_below(&t->state, shape[i]);
    for (; corner < 1u << ndim; corner++) {
        uint64_t offsets[3], sizes[3];
        bool empty = false;
        for (unsigned i = 0; i < ndim; i++) {
            offsets[i] = corner >> i & 1 ? cut[i] : 0;
            sizes[i] = corner >> i & 1 ? shape[i] - cut[i] : cut[i];
            empty = empty || sizes[i] == 0;
        }
        layout.file = (uint32_t)(corner % 2);
        if (!empty)
            memory_source_add_chunk(&t->m, made, offsets, sizes, &layout);
    }
    return made;
}

static void add_target(merge_test *t, uint32_t tensor, const char *name, const merge_step *steps,
                       uint32_t count)
{
    merge_target target = {
        .tensor = tensor, .first_step = t->list.steps.count, .step_count = count};
    cr_assert_eq(strtab_intern(&t->list.names, name, strlen(name), &target.name, NULL), FSDPCK_OK);
    cr_assert_eq(vec_add(&t->list.targets, &target, NULL), FSDPCK_OK);
    cr_assert_eq(vec_add_n(&t->list.steps, steps, count, NULL), FSDPCK_OK);
}

static void make(merge_test *t)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    const merge_input in = {&t->m.cat, &t->m.src};
    memory_source_seal(&t->m);
    cr_assert_eq(vec_add(&t->list.inputs, &in, NULL), FSDPCK_OK);
    cr_assert_eq(merger_new(&t->list, &t->out, &t->merger, &err), FSDPCK_OK, "%s", err.message);
}

static void end(merge_test *t)
{
    cr_expect_eq(t->m.open_streams, 0);
    merger_free(t->merger);
    merge_list_release(&t->list);
    catalogue_release(&t->out);
    memory_source_release(&t->m);
}

static float number_at(const char *name, dtype d, uint64_t i)
{
    uint8_t bytes[8];
    float v;
    memory_element(name, d, i, bytes);
    if (d == DTYPE_FLOAT32)
        memcpy(&v, bytes, sizeof v);
    else
        cast_elements(d, DTYPE_FLOAT32, &v, bytes, 1);
    return v;
}

static float rounded(dtype d, float v)
{
    uint8_t bytes[4];
    if (d == DTYPE_FLOAT32)
        return v;
    cast_elements(DTYPE_FLOAT32, d, bytes, &v, 1);
    cast_elements(d, DTYPE_FLOAT32, &v, bytes, 1);
    return v;
}

/* Boxes of a chunk have the elements of its stream. */
static void check_boxes(merge_test *t, uint64_t chunk, const uint8_t *bytes, uint64_t itemsize)
{
    const source *s = merger_source(t->merger);
    const unsigned ndim = catalogue_tensor(&t->out, catalogue_chunk(&t->out, chunk)->tensor)->ndim;
    uint64_t sizes[4] = {1, 1, 1, 1}, at[4], n[4], strides[4];
    fsdpck_error err = FSDPCK_ERROR_INIT;
    catalogue_chunk_box(&t->out, chunk, NULL, sizes);
    box_row_major_strides(sizes, ndim, strides);
    for (int turn = 0; turn < 4; turn++) {
        for (unsigned d = 0; d < ndim; d++) {
            at[d] = random_below(&t->state, sizes[d]);
            n[d] = 1 + random_below(&t->state, sizes[d] - at[d]);
        }
        const uint64_t count = box_nelems(n, ndim);
        uint8_t *found = malloc(count * itemsize);
        cr_assert_eq(s->read_box(s->ctx, chunk, at, n, found, &err), FSDPCK_OK, "%s", err.message);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t from = 0, rest = i;
            for (unsigned d = ndim; d-- > 0; rest /= n[d])
                from += (at[d] + rest % n[d]) * strides[d];
            cr_assert_arr_eq(found + i * itemsize, bytes + from * itemsize, itemsize);
        }
        free(found);
    }
}

/* The whole tensor of the second catalogue, as floats. Streams are read in uneven parts. */
static float *read_all(merge_test *t, uint32_t tensor)
{
    const cat_tensor *of = catalogue_tensor(&t->out, tensor);
    const uint64_t *shape = catalogue_shape(&t->out, tensor);
    const uint64_t n = box_nelems(shape, of->ndim),
                   itemsize = dtype_get((dtype)of->dtype)->itemsize_bytes;
    const source *s = merger_source(t->merger);
    float *all = calloc(n, sizeof *all);
    fsdpck_error err = FSDPCK_ERROR_INIT;
    for (uint64_t k = of->first_chunk; k < of->first_chunk + of->nchunks; k++) {
        uint64_t offsets[3] = {0}, sizes[3] = {1, 1, 1}, strides[3];
        place where = {0};
        source_stream *stream;
        catalogue_chunk_box(&t->out, k, offsets, sizes);
        const uint64_t count = box_nelems(sizes, of->ndim);
        uint8_t *bytes = malloc(count * itemsize);
        float *part = malloc(count * sizeof *part);
        cr_assert_eq(s->locate(s->ctx, k, &where, &err), FSDPCK_OK);
        cr_assert(where.stream);
        cr_assert_gt(s->stream_nbytes(s->ctx, k), 0);
        cr_assert_eq(s->stream_open(s->ctx, k, &stream, &err), FSDPCK_OK, "%s", err.message);
        for (uint64_t at = 0; at < count * itemsize;) {
            const uint64_t left = count * itemsize - at, some = 1 + random_below(&t->state, left);
            cr_assert_eq(s->stream_read(stream, bytes + at, some, &err), FSDPCK_OK);
            at += some;
        }
        cr_assert_eq(s->stream_finish(stream, &err), FSDPCK_OK);
        s->stream_close(stream);
        if (where.boxes)
            check_boxes(t, k, bytes, itemsize);
        if (itemsize == 4)
            memcpy(part, bytes, count * sizeof *part);
        else
            cast_elements((dtype)of->dtype, DTYPE_FLOAT32, part, bytes, count);
        box_row_major_strides(shape, of->ndim, strides);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t to = 0, rest = i;
            for (unsigned d = of->ndim; d-- > 0; rest /= sizes[d])
                to += (offsets[d] + rest % sizes[d]) * strides[d];
            all[to] = part[i];
        }
        free(bytes);
        free(part);
    }
    return all;
}

/* W [out, in] or [in, out] plus one or two products, and its norms. */
static void check_linear(dtype d, bool transposed, bool round_delta, bool dora,
                         memory_layout layout)
{
    merge_test t;
    const uint64_t out = 37, in = 90, rank = 5;
    const uint64_t shape[2] = {transposed ? in : out, transposed ? out : in};
    begin(&t, 11 + (uint64_t)d);
    const uint32_t w = add(&t, NAME("w"), d, 2, shape, layout);
    const uint32_t a = add(&t, NAME("a"), DTYPE_FLOAT32, 2, (const uint64_t[]){rank, in}, layout);
    const uint32_t b = add(&t, NAME("b"), DTYPE_BFLOAT16, 2, (const uint64_t[]){out, rank}, layout);
    const uint32_t m = add(&t, NAME("m"), DTYPE_FLOAT32, 1, &out, (memory_layout){0});
    const merge_step step = {.kind = MERGE_PRODUCT,
                             .a = a,
                             .b = b,
                             .magnitude = dora ? m : CAT_NONE,
                             .rank = rank,
                             .scale = 0.3,
                             .transposed = transposed,
                             .round_delta = round_delta};
    add_target(&t, w, "merged", (const merge_step[]){step, step}, dora ? 1 : 2);
    make(&t);
    float *found = read_all(&t, 0);
    for (uint64_t o = 0; o < out; o++) {
        double sum = 0;
        float deltas[90], v[90];
        for (uint64_t i = 0; i < in; i++) {
            float product = 0;
            for (uint64_t k = 0; k < rank; k++)
                product = fmaf(number_at(NAME("b"), DTYPE_BFLOAT16, o * rank + k),
                               number_at(NAME("a"), DTYPE_FLOAT32, k * in + i), product);
            deltas[i] = product * 0.3f;
            v[i] = number_at(NAME("w"), d, transposed ? i * out + o : o * in + i);
            sum += (double)(v[i] + deltas[i]) * (v[i] + deltas[i]);
        }
        const float factor = number_at(NAME("m"), DTYPE_FLOAT32, o) / (float)sqrt(sum);
        for (uint64_t i = 0; i < in; i++) {
            const float delta = round_delta ? rounded(d, deltas[i]) : deltas[i];
            const float expected = dora ? rounded(d, (v[i] + deltas[i]) * factor)
                                        : rounded(d, rounded(d, v[i] + delta) + delta);
            cr_assert_eq(found[transposed ? i * out + o : o * in + i], expected,
                         "%s%s%s%s, output %d, input %d: %.9g", dtype_get(d)->name,
                         transposed ? ", transposed" : "", round_delta ? ", rounded" : "",
                         dora ? ", DoRA" : "", (int)o, (int)i,
                         (double)found[transposed ? i * out + o : o * in + i]);
        }
    }
    free(found);
    end(&t);
}

Test(merge, linear)
{
    const dtype types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT16, DTYPE_FLOAT32};
    const memory_layout layouts[] = {{.gap_nbytes = 3},
                                     {.permuted = true, .order = {1, 0}},
                                     {.stream = true, .gap_nbytes = 5},
                                     {.swap = true}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (unsigned way = 0; way < 6; way++) {
            memory_layout layout = layouts[(i + way) % 4];
            check_linear(types[i], way & 1, way & 2, way & 4, layout);
        }
}

static void check_experts(bool transposed)
{
    merge_test t;
    const uint64_t experts = 3, out = 20, in = 70, rank = 4;
    const uint64_t shape[3] = {experts, transposed ? in : out, transposed ? out : in};
    const memory_layout layout = {0};
    begin(&t, 5);
    const uint32_t w = add(&t, NAME("w"), DTYPE_BFLOAT16, 3, shape, layout);
    const uint32_t a =
        add(&t, NAME("a"), DTYPE_FLOAT32, 2, (const uint64_t[]){rank * experts, in}, layout);
    const uint32_t b =
        add(&t, NAME("b"), DTYPE_FLOAT32, 2, (const uint64_t[]){out, rank * experts}, layout);
    const merge_step step = {.kind = MERGE_PRODUCT,
                             .a = a,
                             .b = b,
                             .magnitude = CAT_NONE,
                             .rank = rank,
                             .scale = 2,
                             .transposed = transposed,
                             .round_delta = true};
    add_target(&t, w, "merged", &step, 1);
    make(&t);
    float *found = read_all(&t, 0);
    for (uint64_t e = 0; e < experts; e++)
        for (uint64_t o = 0; o < out; o++)
            for (uint64_t i = 0; i < in; i++) {
                const uint64_t at = transposed ? (e * in + i) * out + o : (e * out + o) * in + i;
                float sum = 0;
                for (uint64_t k = 0; k < rank; k++)
                    sum = fmaf(
                        number_at(NAME("b"), DTYPE_FLOAT32, o * rank * experts + k * experts + e),
                        number_at(NAME("a"), DTYPE_FLOAT32, (e * rank + k) * in + i), sum);
                const float v = number_at(NAME("w"), DTYPE_BFLOAT16, at);
                cr_assert_eq(found[at],
                             rounded(DTYPE_BFLOAT16, v + rounded(DTYPE_BFLOAT16, sum * 2)));
            }
    free(found);
    end(&t);
}

Test(merge, experts)
{
    check_experts(false);
    check_experts(true);
}

/* W [out, in, k]: a column is [in, k], and boxes divide columns too. */
Test(merge, convolution)
{
    merge_test t;
    const uint64_t shape[3] = {6, 5, 7}, rank = 2, zeros[3] = {0};
    begin(&t, 4);
    const uint32_t w = memory_source_add_tensor(&t.m, NAME("w"), DTYPE_BFLOAT16, 3, shape);
    memory_source_add_chunk(&t.m, w, zeros, shape, &(memory_layout){0});
    const uint32_t a =
        add(&t, NAME("a"), DTYPE_FLOAT32, 3, (const uint64_t[]){rank, 5, 7}, (memory_layout){0});
    const uint32_t b =
        add(&t, NAME("b"), DTYPE_FLOAT32, 3, (const uint64_t[]){6, rank, 1}, (memory_layout){0});
    const merge_step step = {
        .kind = MERGE_PRODUCT, .a = a, .b = b, .magnitude = CAT_NONE, .rank = rank, .scale = 0.5};
    add_target(&t, w, "merged", &step, 1);
    make(&t);
    float *found = read_all(&t, 0);
    for (uint64_t i = 0; i < 6 * 35; i++) {
        float sum = 0;
        for (uint64_t k = 0; k < rank; k++)
            sum = fmaf(number_at(NAME("b"), DTYPE_FLOAT32, i / 35 * rank + k),
                       number_at(NAME("a"), DTYPE_FLOAT32, k * 35 + i % 35), sum);
        cr_assert_eq(found[i],
                     rounded(DTYPE_BFLOAT16, number_at(NAME("w"), DTYPE_BFLOAT16, i) + sum * 0.5f));
    }
    free(found);
    end(&t);
}

Test(merge, other_changes)
{
    merge_test t;
    const uint64_t shape[2] = {9, 14}, n = 31;
    begin(&t, 8);
    const uint32_t w = add(&t, NAME("w"), DTYPE_FLOAT16, 2, shape, (memory_layout){0});
    const uint32_t v = add(&t, NAME("v"), DTYPE_BFLOAT16, 1, &n, (memory_layout){0});
    const uint32_t rows =
        add(&t, NAME("rows"), DTYPE_FLOAT32, 2, (const uint64_t[]){3, 14}, (memory_layout){0});
    const uint32_t bias = add(&t, NAME("bias"), DTYPE_FLOAT32, 1, &n, (memory_layout){0});
    const uint32_t other = add(&t, NAME("other"), DTYPE_FLOAT32, 2, shape, (memory_layout){0});
    const uint64_t list[3] = {7, 0, 4};
    cr_assert_eq(vec_add_n(&t.list.rows, list, 3, NULL), FSDPCK_OK);
    const merge_step copy = {.kind = MERGE_ROWS, .a = rows, .magnitude = CAT_NONE, .row_count = 3};
    const merge_step sum = {.kind = MERGE_ADD, .a = bias, .magnitude = CAT_NONE, .scale = 1.7};
    const merge_step replace = {.kind = MERGE_REPLACE, .a = other, .magnitude = CAT_NONE};
    add_target(&t, w, "rows", &copy, 1);
    add_target(&t, v, "sum", &sum, 1);
    add_target(&t, w, "replaced", &replace, 1);
    make(&t);
    cr_expect_eq(merger_count(t.merger), 3);
    float *found = read_all(&t, 0);
    for (uint64_t i = 0; i < 9 * 14; i++) {
        const int from = i / 14 == 7 ? 0 : i / 14 == 0 ? 1 : i / 14 == 4 ? 2 : -1;
        const float expected =
            from < 0 ? number_at(NAME("w"), DTYPE_FLOAT16, i)
                     : number_at(NAME("rows"), DTYPE_FLOAT32, (uint64_t)from * 14 + i % 14);
        cr_assert_eq(found[i], rounded(DTYPE_FLOAT16, expected));
    }
    free(found);
    found = read_all(&t, 1);
    for (uint64_t i = 0; i < n; i++)
        cr_assert_eq(found[i],
                     rounded(DTYPE_BFLOAT16, number_at(NAME("v"), DTYPE_BFLOAT16, i) +
                                                 number_at(NAME("bias"), DTYPE_FLOAT32, i) * 1.7f));
    free(found);
    found = read_all(&t, 2);
    for (uint64_t i = 0; i < 9 * 14; i++)
        cr_assert_eq(found[i], rounded(DTYPE_FLOAT16, number_at(NAME("other"), DTYPE_FLOAT32, i)));
    free(found);
    end(&t);
}

static fsdpck_error refused(dtype d, const uint64_t *a_shape, bool finite_dora)
{
    merge_test t;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    const uint64_t shape[2] = {6, 8}, rank = 2, m_shape[1] = {6};
    begin(&t, 1);
    const uint32_t w = add(&t, NAME("w"), d, 2, shape, (memory_layout){0});
    const uint32_t a = add(&t, NAME("a"), DTYPE_FLOAT32, 2, a_shape, (memory_layout){0});
    const uint32_t b =
        add(&t, NAME("b"), DTYPE_FLOAT32, 2, (const uint64_t[]){6, 2}, (memory_layout){0});
    const uint32_t m = add(&t, NAME("m"), DTYPE_FLOAT32, 1, m_shape, (memory_layout){0});
    const merge_input in = {&t.m.cat, &t.m.src};
    const merge_step step = {.kind = MERGE_PRODUCT,
                             .a = a,
                             .b = b,
                             .rank = rank,
                             .magnitude = finite_dora ? m : CAT_NONE};
    add_target(&t, w, "merged", &step, 1);
    memory_source_seal(&t.m);
    cr_assert_eq(vec_add(&t.list.inputs, &in, NULL), FSDPCK_OK);
    cr_assert_neq(merger_new(&t.list, &t.out, &t.merger, &err), FSDPCK_OK);
    cr_assert_null(t.merger);
    end(&t);
    return err;
}

Test(merge, refusals)
{
    fsdpck_error err = refused(DTYPE_BFLOAT16, (const uint64_t[]){2, 7}, false);
    cr_expect_eq(err.finding, FSDPCK_FINDING_LORA_SHAPE);
    err = refused(DTYPE_INT8, (const uint64_t[]){2, 8}, false);
    cr_expect_eq(err.finding, FSDPCK_FINDING_LORA_MERGE);
    cr_expect_eq(err.status, FSDPCK_UNSUPPORTED);
    err = refused(DTYPE_FLOAT64, (const uint64_t[]){2, 8}, true);
    cr_expect_eq(err.finding, FSDPCK_FINDING_LORA_MERGE);
}
