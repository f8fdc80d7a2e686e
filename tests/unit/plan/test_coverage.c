#include <criterion/criterion.h>

#include "plan/coverage.h"

static budget b;
static catalogue c;
static uint32_t tensor;

static void begin(unsigned ndim, const uint64_t *shape)
{
    uint32_t f;
    budget_init(&b, 1u << 30, "metadata", NULL);
    catalogue_init(&c, &b);
    cr_assert_eq(catalogue_add_file(&c, "a", 1, 100, 0, &f, NULL), FSDPCK_OK);
    cr_assert_eq(catalogue_add_file(&c, "b", 1, 100, 1, &f, NULL), FSDPCK_OK);
    cr_assert_eq(catalogue_add_tensor(&c, "w", 1, DTYPE_FLOAT32, ndim, shape, &tensor, NULL),
                 FSDPCK_OK);
}

static void add(uint32_t f, const uint64_t *offsets, const uint64_t *sizes)
{
    const cat_chunk proto = {.file = f, .place = LOCATION_ROWS};
    cr_assert_eq(catalogue_add_chunk(&c, tensor, offsets, sizes, &proto, NULL), FSDPCK_OK);
}

static void check(struct coverage_report *r)
{
    cr_assert_eq(catalogue_seal(&c, NULL), FSDPCK_OK);
    cr_assert_eq(coverage_check(&c, tensor, &b, r, NULL), FSDPCK_OK);
}

static void end(void)
{
    catalogue_release(&c);
    cr_assert_eq(b.used_bytes, 0);
}

#define BOX(...) ((const uint64_t[]){__VA_ARGS__})

Test(cover, whole_partition_with_empty_chunk)
{
    struct coverage_report r;
    begin(2, BOX(5, 3));
    add(0, BOX(0, 0), BOX(2, 3));
    add(1, BOX(2, 0), BOX(2, 3));
    add(0, BOX(4, 0), BOX(1, 3));
    add(1, BOX(5, 0), BOX(0, 3));
    check(&r);
    cr_assert(coverage_is_complete(&r));
    cr_assert_eq(r.distinct, 3);
    cr_assert_eq(r.empty, 1);
    cr_assert_eq(r.covered, 15);
    end();
}

Test(cover, hole_is_found_and_named)
{
    struct coverage_report r;
    fsdpck_error err = {0};
    begin(2, BOX(8, 8));
    add(0, BOX(0, 0), BOX(4, 8));
    add(1, BOX(4, 4), BOX(4, 4));
    check(&r);
    cr_assert(r.hole && !r.overlap && r.hole_located);
    cr_assert_eq(r.missing, 16);
    cr_assert_eq(r.hole_offsets[0], 4);
    cr_assert_eq(r.hole_offsets[1], 0);
    cr_assert_eq(r.hole_sizes[0], 4);
    cr_assert_eq(r.hole_sizes[1], 4);
    cr_assert_eq(coverage_error(&c, tensor, &r, &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "CHUNK-GAP");
    cr_assert_str_eq(err.tensor, "w");
    cr_assert_str_eq(err.found, "16 missing, among them [4:8, 0:4]");
    end();
}

Test(cover, overlap_and_gap_of_equal_volume_are_both_seen)
{
    struct coverage_report r;
    fsdpck_error err = {0};
    begin(1, BOX(10));
    add(0, BOX(0), BOX(5));
    add(1, BOX(4), BOX(5));
    check(&r);
    cr_assert(r.overlap && r.hole);
    cr_assert_eq(coverage_error(&c, tensor, &r, &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "CHUNK-OVERLAP");
    cr_assert_str_eq(err.found, "[0:5] in 'a' and [4:9] in 'b'");
    end();
}

Test(cover, scalars_may_be_replicas_but_not_missing)
{
    struct coverage_report r;
    begin(0, NULL);
    add(0, NULL, NULL);
    add(1, NULL, NULL);
    check(&r);
    cr_assert(coverage_is_complete(&r));
    cr_assert_eq(r.replicas, 1);
    end();

    begin(0, NULL);
    check(&r);
    cr_assert(r.hole && r.hole_located);
    cr_assert_eq(r.missing, 1);
    end();
}

Test(cover, tensor_without_elements_needs_no_chunk)
{
    struct coverage_report r;
    begin(2, BOX(0, 7));
    check(&r);
    cr_assert(coverage_is_complete(&r));
    end();
}

Test(cover, replica_and_its_overlap_by_a_third_box)
{
    struct coverage_report r;
    begin(1, BOX(4));
    add(0, BOX(0), BOX(4));
    add(1, BOX(0), BOX(4));
    add(1, BOX(3), BOX(1));
    check(&r);
    cr_assert(r.overlap);
    cr_assert_eq(r.overlap_a, 0);
    cr_assert_eq(r.overlap_b, 2);
    end();
}

/* A grid of 40 x 25 boxes in plan order, each stored twice, minus one box. */
Test(cover, large_grid_goes_through_the_tree)
{
    struct coverage_report r;
    begin(2, BOX(400, 250));
    for (uint64_t col = 0; col < 25; col++)
        for (uint64_t row = 0; row < 40; row++)
            for (uint32_t f = 0; f < 2 && !(row == 17 && col == 9); f++)
                add(f, BOX(row * 10, col * 10), BOX(10, 10));
    check(&r);
    cr_assert_eq(r.distinct, 999);
    cr_assert_eq(r.replicas, 999);
    cr_assert_eq(r.missing, 100);
    cr_assert(r.hole_located);
    cr_assert_eq(r.hole_offsets[0], 170);
    cr_assert_eq(r.hole_offsets[1], 90);
    cr_assert_eq(r.hole_sizes[0], 10);
    cr_assert_eq(r.hole_sizes[1], 10);
    end();
}

Test(cover, sixty_four_dims)
{
    struct coverage_report r;
    uint64_t shape[NDIM_MAX], offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    for (unsigned d = 0; d < NDIM_MAX; d++)
        shape[d] = sizes[d] = d < 4 ? 3 : 1;
    begin(NDIM_MAX, shape);
    for (unsigned i = 0; i < 81; i++) {
        unsigned rest = i;
        for (unsigned d = 0; d < 4; d++, rest /= 3) {
            offsets[d] = rest % 3;
            sizes[d] = 1;
        }
        add(0, offsets, sizes);
    }
    check(&r);
    cr_assert(coverage_is_complete(&r));
    cr_assert_eq(r.distinct, 81);
    end();
}

Test(cover, budget_is_respected)
{
    struct coverage_report r;
    fsdpck_error err = {0};
    begin(1, BOX(1000));
    for (uint64_t i = 0; i < 1000; i++)
        add(0, BOX(i), BOX(1));
    cr_assert_eq(catalogue_seal(&c, NULL), FSDPCK_OK);
    const uint64_t used = b.used_bytes;
    for (uint64_t room = 0; room < 40000; room += 1000) {
        budget small;
        budget_init(&small, room, "metadata", NULL);
        const fsdpck_status st = coverage_check(&c, tensor, &small, &r, &err);
        cr_assert(st == FSDPCK_OK || st == FSDPCK_LIMIT);
        cr_assert_eq(small.used_bytes, 0);
    }
    cr_assert_eq(b.used_bytes, used);
    end();
}
