/* Random boxes in a small tensor: the coverage checker against a bitmap. */
#include <stdlib.h>
#include <string.h>

#include "plan/coverage.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/support/must.h"

#define NELEMS_MAX 4096u
#define BOXES_MAX  200u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* Number of boxes that cover an element, at most 2. Replicas count once. */
static void paint(uint8_t *bitmap, const uint64_t *shape, unsigned ndim, const uint64_t *offsets,
                  const uint64_t *sizes)
{
    uint64_t strides[NDIM_MAX];
    box_row_major_strides(shape, ndim, strides);
    for (uint64_t flat = 0; flat < box_nelems(sizes, ndim); flat++) {
        uint64_t rest = flat;
        uint64_t at = 0;
        for (unsigned d = ndim; d-- > 0;) {
            at += (offsets[d] + rest % sizes[d]) * strides[d];
            rest /= sizes[d];
        }
        if (bitmap[at] < 2)
            bitmap[at]++;
    }
}

static void check_report(const catalogue *c, const uint8_t *bitmap, const struct coverage_report *r)
{
    const cat_tensor *t = catalogue_tensor(c, 0);
    const uint64_t *shape = catalogue_shape(c, 0);
    const uint64_t n = box_nelems(shape, t->ndim);
    uint64_t missing = 0;
    bool overlap = false;
    for (uint64_t i = 0; i < n; i++) {
        missing += bitmap[i] == 0;
        overlap = overlap || bitmap[i] > 1;
    }
    MUST(r->overlap == overlap);
    MUST(r->distinct + r->replicas + r->empty == t->nchunks);
    if (overlap) {
        uint64_t a[2][NDIM_MAX], b[2][NDIM_MAX], meet[2][NDIM_MAX];
        MUST(!r->hole || missing > 0);
        MUST(r->overlap_a < r->overlap_b);
        catalogue_chunk_box(c, r->overlap_a, a[0], a[1]);
        catalogue_chunk_box(c, r->overlap_b, b[0], b[1]);
        MUST(box_intersect(a[0], a[1], b[0], b[1], t->ndim, meet[0], meet[1]));
        MUST(!box_equal(a[0], a[1], b[0], b[1], t->ndim));
        return;
    }
    MUST(r->hole == (missing > 0));
    MUST(r->missing == missing);
    MUST(r->hole_located == r->hole);
    if (r->hole) {
        uint8_t *copy = malloc(n);
        MUST(copy != NULL);
        memcpy(copy, bitmap, n);
        paint(copy, shape, t->ndim, r->hole_offsets, r->hole_sizes);
        for (uint64_t i = 0; i < n; i++)
            MUST(copy[i] < 2);
        MUST(box_nelems(r->hole_sizes, t->ndim) > 0);
        free(copy);
    }
}

static void consume_box(reader *r, const uint64_t *shape, unsigned ndim, uint64_t *offsets,
                        uint64_t *sizes)
{
    for (unsigned d = 0; d < ndim; d++) {
        offsets[d] = take(r) % (shape[d] + 1);
        sizes[d] = take(r) % (shape[d] - offsets[d] + 1);
    }
}

/* Cuts the whole tensor; each byte pair cuts one of the boxes in two. */
static unsigned consume_partition(reader *r, const uint64_t *shape, unsigned ndim,
                                  uint64_t (*offsets)[4], uint64_t (*sizes)[4])
{
    unsigned count = 1;
    const unsigned cuts = take(r) % (BOXES_MAX - 20);
    for (unsigned d = 0; d < ndim; d++) {
        offsets[0][d] = 0;
        sizes[0][d] = shape[d];
    }
    for (unsigned i = 0; i < cuts && ndim > 0; i++) {
        const unsigned which = take(r) % count;
        const unsigned how = take(r);
        const unsigned d = how % ndim;
        if (sizes[which][d] < 2)
            continue;
        const uint64_t at = 1 + how / ndim % (sizes[which][d] - 1);
        memcpy(offsets[count], offsets[which], sizeof *offsets);
        memcpy(sizes[count], sizes[which], sizeof *sizes);
        offsets[count][d] += at;
        sizes[count][d] -= at;
        sizes[which][d] = at;
        count++;
    }
    return count;
}

static void run(reader *r, catalogue *c, budget *b)
{
    static uint64_t offsets[BOXES_MAX][4], sizes[BOXES_MAX][4];
    static uint8_t bitmap[NELEMS_MAX];
    uint64_t shape[4];
    uint32_t tensor, f;
    struct coverage_report report;
    unsigned count = 0;
    const unsigned first = take(r);
    const unsigned ndim = first % 5;
    for (unsigned d = 0; d < ndim; d++)
        shape[d] = take(r) % (ndim < 3 ? 64 : 8);
    if (first & 0x80)
        count = consume_partition(r, shape, ndim, offsets, sizes);
    if (first & 0x40 && count > 0) /* one defect: a box is dropped */
        count--;
    const unsigned more = (first & 0x20) || count == 0 ? take(r) % 20 : 0;
    for (unsigned i = 0; i < more; i++) {
        if (count > 0 && take(r) % 2 == 0) { /* a replica */
            const unsigned which = take(r) % count;
            memcpy(offsets[count], offsets[which], sizeof *offsets);
            memcpy(sizes[count], sizes[which], sizeof *sizes);
        } else {
            consume_box(r, shape, ndim, offsets[count], sizes[count]);
        }
        count++;
    }
    MUST(catalogue_add_file(c, "f", 1, 0, 0, &f, NULL) == FSDPCK_OK);
    MUST(catalogue_add_tensor(c, "t", 1, DTYPE_UINT8, ndim, shape, &tensor, NULL) == FSDPCK_OK);
    memset(bitmap, 0, sizeof bitmap);
    for (unsigned i = 0; i < count; i++) {
        const cat_chunk proto = {.place = LOCATION_ROWS};
        bool again = false;
        MUST(catalogue_add_chunk(c, tensor, offsets[i], sizes[i], &proto, NULL) == FSDPCK_OK);
        for (unsigned j = 0; j < i && !again; j++)
            again = box_equal(offsets[i], sizes[i], offsets[j], sizes[j], ndim);
        if (!again)
            paint(bitmap, shape, ndim, offsets[i], sizes[i]);
    }
    MUST(catalogue_seal(c, NULL) == FSDPCK_OK);
    MUST(coverage_check(c, tensor, b, &report, NULL) == FSDPCK_OK);
    check_report(c, bitmap, &report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    reader r = {data, nbytes};
    budget b;
    catalogue c;
    budget_init(&b, 1u << 26, "metadata", NULL);
    catalogue_init(&c, &b);
    run(&r, &c, &b);
    catalogue_release(&c);
    MUST(b.used_bytes == 0);
    return 0;
}
