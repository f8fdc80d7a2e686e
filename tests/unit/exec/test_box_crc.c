#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "exec/box_crc.h"

#define TENSOR_MAX 60000u

typedef struct world {
    uint32_t seed;
    unsigned ndim;
    uint64_t itemsize;
    uint64_t shape[5], offsets[5], sizes[5];
    uint64_t box_nbytes, nbytes;
    uint8_t tensor[TENSOR_MAX], box[TENSOR_MAX], alone[TENSOR_MAX];
} world;

static uint32_t draw(world *w, uint32_t below)
{
    w->seed = w->seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(w->seed >> 4) * below >> 28);
}

/* Elements of the box, in its order, and in a tensor of zeros at their places. */
static void cut_box(world *w)
{
    uint64_t at[5] = {0};
    memset(w->alone, 0, w->nbytes);
    for (uint64_t n = 0; n < w->box_nbytes; n += w->itemsize) {
        uint64_t place = 0;
        for (unsigned d = 0; d < w->ndim; d++)
            place = place * w->shape[d] + w->offsets[d] + at[d];
        memcpy(w->box + n, w->tensor + place * w->itemsize, w->itemsize);
        memcpy(w->alone + place * w->itemsize, w->tensor + place * w->itemsize, w->itemsize);
        for (unsigned d = w->ndim; d-- > 0 && ++at[d] == w->sizes[d];)
            at[d] = 0;
    }
}

static void draw_mesh(world *w)
{
    static const uint64_t itemsizes[] = {1, 2, 4, 8, 16};
    do {
        w->ndim = draw(w, 6);
        w->itemsize = itemsizes[draw(w, 5)];
        w->nbytes = w->box_nbytes = w->itemsize;
        for (unsigned d = 0; d < w->ndim; d++) {
            const uint32_t most = w->ndim == 1 ? 3000 : w->ndim == 2 ? 200 : w->ndim == 3 ? 24 : 9;
            w->shape[d] = 1 + draw(w, most);
            w->sizes[d] = draw(w, 3) == 0 ? w->shape[d] : 1 + draw(w, (uint32_t)w->shape[d]);
            w->offsets[d] = draw(w, (uint32_t)(w->shape[d] - w->sizes[d] + 1));
            w->nbytes *= w->shape[d];
            w->box_nbytes *= w->sizes[d];
        }
    } while (w->nbytes > TENSOR_MAX);
    for (uint64_t i = 0; i < w->nbytes; i++)
        w->tensor[i] = (uint8_t)draw(w, 256);
    cut_box(w);
}

Test(box_crc, random_boxes_in_random_cuts_against_the_whole)
{
    world *w = calloc(1, sizeof *w);
    w->seed = 1;
    for (unsigned round = 0; round < 3000; round++) {
        draw_mesh(w);
        const box_bytes b = {w->ndim, w->shape, w->itemsize, w->offsets, w->sizes};
        uint64_t sum = 0;
        for (uint64_t at = 0; at < w->box_nbytes;) {
            uint64_t end = at + 1 + draw(w, (uint32_t)(w->box_nbytes - at));
            if (draw(w, 4) == 0)
                end = w->box_nbytes;
            const uint64_t part = box_crc(&b, at, end, w->box + at);
            uint64_t after_nbytes;
            if (box_is_run(&b, at, end, &after_nbytes))
                cr_assert_eq(part, crc64_shift(crc64_raw(0, w->box + at, end - at), after_nbytes));
            sum ^= part;
            at = end;
        }
        cr_assert_eq(sum, crc64_raw(0, w->alone, w->nbytes), "round %u", round);
    }
    free(w);
}

Test(box_crc, a_run_is_seen)
{
    const uint64_t shape[] = {4, 6}, offsets[] = {1, 0}, sizes[] = {2, 6}, narrow[] = {2, 5};
    const box_bytes whole = {2, shape, 2, offsets, sizes};
    const box_bytes thin = {2, shape, 2, offsets, narrow};
    uint64_t after_nbytes;
    cr_assert(box_is_run(&whole, 0, 24, &after_nbytes));
    cr_assert_eq(after_nbytes, 12);
    cr_assert(box_is_run(&thin, 3, 10, &after_nbytes));
    cr_assert_eq(after_nbytes, 48 - 12 - 10);
    cr_assert_not(box_is_run(&thin, 3, 11, &after_nbytes));
}

/* Columns of 1 to 48 bytes of many rows: words, with and without a rest, in several sums. */
Test(box_crc, narrow_columns_of_many_rows)
{
    world *w = calloc(1, sizeof *w);
    w->seed = 7;
    for (uint64_t run = 1; run <= 48; run++) {
        static const uint64_t rows[] = {47, 1023, 1024, 1199};
        for (unsigned i = 0; i < 4; i++) {
            w->ndim = 2;
            w->itemsize = 1;
            w->shape[0] = w->sizes[0] = rows[i];
            w->shape[1] = run + 2;
            w->sizes[1] = run;
            w->offsets[0] = 0;
            w->offsets[1] = draw(w, 3);
            w->nbytes = rows[i] * (run + 2);
            w->box_nbytes = rows[i] * run;
            for (uint64_t k = 0; k < w->nbytes; k++)
                w->tensor[k] = (uint8_t)draw(w, 256);
            cut_box(w);
            const box_bytes b = {w->ndim, w->shape, w->itemsize, w->offsets, w->sizes};
            const uint64_t middle = draw(w, (uint32_t)w->box_nbytes);
            const uint64_t sum = box_crc(&b, 0, w->box_nbytes, w->box);
            cr_assert_eq(sum, crc64_raw(0, w->alone, w->nbytes), "%u %u", (unsigned)run, i);
            cr_assert_eq(sum, box_crc(&b, 0, middle, w->box) ^
                                  box_crc(&b, middle, w->box_nbytes, w->box + middle));
        }
    }
    free(w);
}
