#include <criterion/criterion.h>
#include <string.h>

#include "state/catalogue.h"

static budget owner;
static catalogue c;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, 1u << 30, "metadata", NULL);
    catalogue_init(&c, &owner);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    catalogue_release(&c);
    cr_expect_eq(owner.used_bytes, 0, "everything is given back");
}

TestSuite(catalogue, .init = setup, .fini = teardown);

static uint32_t add_tensor(const char *name, dtype d, unsigned ndim, const uint64_t *shape)
{
    uint32_t t = CAT_NONE;
    cr_assert_eq(catalogue_add_tensor(&c, name, strlen(name), d, ndim, shape, &t, &err), FSDPCK_OK,
                 "%s", err.message);
    return t;
}

Test(catalogue, seal_groups_chunks_and_keeps_their_order)
{
    const uint64_t shape[] = {6, 2};
    const uint32_t a = add_tensor("a", DTYPE_FLOAT32, 2, shape);
    const uint32_t b = add_tensor("b", DTYPE_BFLOAT16, 2, shape);
    const uint32_t none = add_tensor("none", DTYPE_BOOL, 2, shape);
    for (uint64_t i = 0; i < 3; i++) {
        const uint64_t offsets[] = {2 * i, 0}, sizes[] = {2, 2};
        const cat_chunk proto = {
            .file = (uint32_t)i, .place = LOCATION_ROWS, .offset_bytes = 100 * i};
        cr_assert_eq(catalogue_add_chunk(&c, b, offsets, sizes, &proto, &err), FSDPCK_OK);
        cr_assert_eq(catalogue_add_chunk(&c, a, offsets, sizes, &proto, &err), FSDPCK_OK);
    }
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK);
    for (uint32_t t = a; t <= b; t++) {
        cr_assert_eq(catalogue_tensor(&c, t)->nchunks, 3);
        for (uint64_t i = 0; i < 3; i++) {
            const uint64_t k = catalogue_tensor(&c, t)->first_chunk + i;
            uint64_t offsets[2], sizes[2];
            catalogue_chunk_box(&c, k, offsets, sizes);
            cr_expect_eq(catalogue_chunk(&c, k)->tensor, t);
            cr_expect_eq(catalogue_chunk(&c, k)->offset_bytes, 100 * i);
            cr_expect(offsets[0] == 2 * i && offsets[1] == 0 && sizes[0] == 2 && sizes[1] == 2);
        }
    }
    cr_expect_eq(catalogue_tensor(&c, none)->nchunks, 0);
    cr_expect_eq(catalogue_find(&c, "b", 1), b);
    cr_expect_eq(catalogue_find(&c, "bb", 2), CAT_NONE);
    cr_expect_eq(catalogue_tensor_nbytes(&c, a), 48);
    cr_expect_eq(catalogue_tensor_nbytes(&c, b), 24);
}

Test(catalogue, a_file_name_is_no_tensor)
{
    uint32_t file;
    cr_assert_eq(catalogue_add_file(&c, "x", 1, 10, CAT_NONE, &file, &err), FSDPCK_OK);
    add_tensor("y", DTYPE_INT8, 0, NULL);
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK);
    cr_expect_eq(catalogue_find(&c, "x", 1), CAT_NONE);
    cr_expect_eq(catalogue_tensor_nelems(&c, 0), 1);
    /* Writers declare their files after aim has sealed. */
    cr_expect_eq(catalogue_add_file(&c, "late", 4, 10, CAT_NONE, &file, &err), FSDPCK_OK);
    cr_expect_eq(catalogue_find(&c, "late", 4), CAT_NONE);
}

Test(catalogue, two_tensors_of_one_name_are_an_error)
{
    const uint64_t shape[] = {1};
    add_tensor("w", DTYPE_INT8, 1, shape);
    add_tensor("w", DTYPE_INT8, 1, shape);
    cr_expect_eq(catalogue_seal(&c, &err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "KEY-DUP");
    cr_expect_str_eq(err.tensor, "w");
}

Test(catalogue, names_may_hold_nul)
{
    uint32_t a, b;
    cr_assert_eq(catalogue_add_tensor(&c, "a\0b", 3, DTYPE_INT8, 0, NULL, &a, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_tensor(&c, "a\0c", 3, DTYPE_INT8, 0, NULL, &b, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK);
    cr_expect_eq(catalogue_find(&c, "a\0c", 3), b);
    cr_expect_eq(catalogue_find(&c, "a", 1), CAT_NONE);
}

Test(catalogue, boxes_outside_of_the_tensor_are_refused)
{
    const uint64_t shape[] = {5, 3};
    const uint32_t t = add_tensor("w", DTYPE_FLOAT32, 2, shape);
    const cat_chunk proto = {.place = LOCATION_ROWS};
    static const uint64_t bad[][4] = {
        {5, 0, 1, 3}, {0, 1, 5, 3}, {6, 0, 0, 3}, {UINT64_MAX, 0, 2, 3}, {1, 0, UINT64_MAX, 3},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fsdpck_error_init(&err);
        cr_expect_eq(catalogue_add_chunk(&c, t, bad[i], bad[i] + 2, &proto, &err), FSDPCK_BADINPUT);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), "CHUNK-BOUNDS");
    }
    const uint64_t last[] = {5, 0}, none[] = {0, 3};
    cr_expect_eq(catalogue_add_chunk(&c, t, last, none, &proto, &err), FSDPCK_OK,
                 "an empty chunk lies at the end, as torch records it");
    cr_expect_eq(catalogue_chunk(&c, 0)->place, LOCATION_EMPTY);
    cr_expect_eq(catalogue_chunk_count(&c), 1);
}

Test(catalogue, shapes_that_cannot_exist_are_refused)
{
    uint32_t t;
    const uint64_t much[] = {(uint64_t)1 << 61, 4};
    cr_expect_eq(catalogue_add_tensor(&c, "w", 1, DTYPE_INT8, 2, much, &t, &err), FSDPCK_BADINPUT);
    const uint64_t bytes[] = {(uint64_t)1 << 61};
    cr_expect_eq(catalogue_add_tensor(&c, "w", 1, DTYPE_INT32, 1, bytes, &t, &err),
                 FSDPCK_BADINPUT);
    const uint64_t negative[] = {UINT64_MAX, 0};
    cr_expect_eq(catalogue_add_tensor(&c, "w", 1, DTYPE_INT8, 2, negative, &t, &err),
                 FSDPCK_BADINPUT);
    uint64_t dims[NDIM_MAX + 1] = {0};
    cr_expect_eq(catalogue_add_tensor(&c, "w", 1, DTYPE_INT8, NDIM_MAX + 1, dims, &t, &err),
                 FSDPCK_LIMIT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "LIMIT-COUNT");
    cr_expect_eq(catalogue_add_tensor(&c, "w", 1, DTYPE_INT8, NDIM_MAX, dims, &t, &err), FSDPCK_OK);
    cr_expect_eq(catalogue_tensor_count(&c), 1);
}

Test(catalogue, wide_dims_survive)
{
    const uint64_t shape[] = {(uint64_t)1 << 40, 2};
    const uint32_t t = add_tensor("w", DTYPE_INT8, 2, shape);
    const uint64_t offsets[] = {((uint64_t)1 << 39) + 7, 1}, sizes[] = {(uint64_t)1 << 38, 1};
    const cat_chunk proto = {.place = LOCATION_ROWS};
    cr_assert_eq(catalogue_add_chunk(&c, t, offsets, sizes, &proto, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK);
    uint64_t o[2], s[2];
    catalogue_chunk_box(&c, 0, o, s);
    cr_expect(box_equal(o, s, offsets, sizes, 2));
}

Test(catalogue, object_tensors_come_after_the_seal)
{
    const uint64_t shape[] = {3};
    add_tensor("w", DTYPE_INT8, 1, shape);
    const cat_chunk proto = {.place = LOCATION_BLOB, .offset_bytes = 9, .nbytes = 3};
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK);
    uint32_t t;
    cr_expect_eq(catalogue_add_tensor(&c, "x", 1, DTYPE_INT8, 1, shape, &t, &err), FSDPCK_INTERNAL);
    cr_assert_eq(catalogue_add_object_tensor(&c, "rng", 3, DTYPE_UINT8, 1, shape, &proto, &t, &err),
                 FSDPCK_OK);
    const cat_tensor *tensor = catalogue_tensor(&c, t);
    cr_expect_eq(tensor->nchunks, 1);
    cr_expect_eq(catalogue_chunk(&c, tensor->first_chunk)->offset_bytes, 9);
    cr_expect(tensor->flags & CAT_TENSOR_IN_OBJECT);
    cr_expect_eq(catalogue_find(&c, "rng", 3), CAT_NONE);
}

Test(catalogue, a_two_dim_chunk_costs_at_most_64_bytes)
{
    const uint64_t n = 100000;
    const uint64_t shape[] = {2 * n, 8};
    const uint32_t t = add_tensor("w", DTYPE_FLOAT32, 2, shape);
    const cat_chunk proto = {.place = LOCATION_BLOB};
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t offsets[] = {2 * i, 0}, sizes[] = {2, 8};
        cr_assert_eq(catalogue_add_chunk(&c, t, offsets, sizes, &proto, &err), FSDPCK_OK);
    }
    cr_assert_eq(catalogue_seal(&c, &err), FSDPCK_OK);
    cr_expect_leq(owner.used_bytes, 64 * n + 4096, "%zu bytes", (size_t)owner.used_bytes);
}

Test(catalogue, a_small_budget_is_a_status)
{
    budget_init(&owner, 4096, "metadata", "--memory");
    const uint64_t shape[] = {1u << 20};
    uint32_t t;
    const cat_chunk proto = {.place = LOCATION_BLOB};
    fsdpck_status st = catalogue_add_tensor(&c, "w", 1, DTYPE_INT8, 1, shape, &t, &err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < 1000; i++) {
        const uint64_t size = 1;
        st = catalogue_add_chunk(&c, t, &i, &size, &proto, &err);
    }
    cr_expect_eq(st, FSDPCK_LIMIT);
}
