#include <criterion/criterion.h>
#include <string.h>

#include "state/catalogue_tables.h"

static budget owner;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, 1u << 30, "metadata", NULL);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    cr_expect_eq(owner.used_bytes, 0, "everything is given back");
}

TestSuite(catalogue_tables, .init = setup, .fini = teardown);

/* Each kind of table has an item. */
static void fill(catalogue *c)
{
    const uint64_t shape[] = {6, 2}, wide[] = {UINT64_C(1) << 40}, offsets[] = {2, 0},
                   sizes[] = {4, 2}, zero[] = {0};
    const cat_chunk proto = {.place = LOCATION_ROWS, .offset_bytes = 100, .nbytes = 32, .aux = 5};
    const mesh m = {.ndim = 1, .sizes = {4}, .names = {"dp"}};
    const cat_spec spec = {.mesh = 0};
    uint32_t file, a, b, object, index;
    value key, item;
    catalogue_init(c, &owner);
    cr_assert_eq(catalogue_add_file(c, "__0_0.distcp", 12, 4096, 3, &file, &err), FSDPCK_OK);
    catalogue_file(c, file)->identity = 77;
    cr_assert_eq(catalogue_add_tensor(c, "a", 1, DTYPE_FLOAT32, 2, shape, &a, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_tensor(c, "b", 1, DTYPE_UINT8, 1, wide, &b, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_chunk(c, b, zero, wide, &proto, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_chunk(c, a, offsets, sizes, &proto, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_object(c, "step", 4, &object, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_mesh(c, &m, &index, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_spec(c, &spec, &index, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_add_skipped(c, "left", 4, true, 9, VALUE_OF_NONE, &err), FSDPCK_OK);
    cr_assert_eq(value_new_dict(&c->pool, &c->root, &err), FSDPCK_OK);
    cr_assert_eq(value_new_str(&c->pool, "lr", 2, &key, &err), FSDPCK_OK);
    cr_assert_eq(value_new_float(&c->pool, 0.1, &item, &err), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&c->pool, c->root, key, item, &err), FSDPCK_OK);
    strcpy(c->origin.format, "dcp");
    c->origin.step = 12;
    cr_assert_eq(catalogue_seal(c, &err), FSDPCK_OK);
}

static void expect_filled(const catalogue *c)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    value item;
    double lr = 0;
    cr_expect(catalogue_tensor_count(c) == 2 && catalogue_chunk_count(c) == 2 &&
              catalogue_object_count(c) == 1 && catalogue_file_count(c) == 1);
    cr_expect_str_eq(catalogue_name(c, catalogue_file(c, 0)->path), "__0_0.distcp");
    cr_expect(catalogue_file(c, 0)->identity == 77 && catalogue_file(c, 0)->rank == 3);
    cr_expect_eq(catalogue_find(c, "a", 1), 0);
    cr_expect_eq(catalogue_find(c, "b", 1), 1);
    cr_expect_eq(catalogue_find(c, "c", 1), CAT_NONE);
    catalogue_chunk_box(c, catalogue_tensor(c, 0)->first_chunk, offsets, sizes);
    cr_expect(offsets[0] == 2 && offsets[1] == 0 && sizes[0] == 4 && sizes[1] == 2);
    catalogue_chunk_box(c, catalogue_tensor(c, 1)->first_chunk, offsets, sizes);
    cr_expect(offsets[0] == 0 && sizes[0] == UINT64_C(1) << 40);
    cr_expect_eq(catalogue_chunk(c, 1)->aux, 5);
    cr_expect_eq(catalogue_shape(c, 0)[1], 2);
    cr_expect_eq(catalogue_mesh(c, 0)->sizes[0], 4);
    cr_expect_eq(c->specs.count, 1);
    cr_expect_eq(VEC_AT(&c->passed_over, const cat_skipped, 0)->nbytes, 9);
    cr_expect(value_dict_find(&c->pool, c->root, "lr", &item) &&
              value_as_double(&c->pool, item, &lr));
    cr_expect_eq(lr, 0.1);
    cr_expect_str_eq(c->origin.format, "dcp");
    cr_expect_eq(c->origin.step, 12);
    cr_expect_eq(c->sealed, 1);
}

Test(catalogue_tables, hold_all_of_it)
{
    const uint64_t one[] = {1};
    const cat_chunk proto = {.place = LOCATION_ROWS};
    table_file f;
    table_file_address address;
    catalogue c, copy;
    uint32_t tensor;
    fill(&c);
    cr_assert_eq(table_file_create(&f, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_tables(&c, &f, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(table_file_finish(&f, &address, &err), FSDPCK_OK);
    cr_assert_eq(table_file_map(&f, &owner, &err), FSDPCK_OK);
    catalogue_init(&copy, &owner);
    cr_assert_eq(catalogue_tables(&copy, &f, &err), FSDPCK_OK, "%s", err.message);
    expect_filled(&c);
    expect_filled(&copy);
    cr_assert_eq(
        catalogue_add_object_tensor(&copy, "t", 1, DTYPE_INT8, 1, one, &proto, &tensor, &err),
        FSDPCK_OK);
    cr_assert_eq(catalogue_rename(&copy, 0, "renamed", 7, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_reindex(&copy, &err), FSDPCK_OK);
    cr_expect_eq(catalogue_find(&copy, "renamed", 7), 0);
    cr_expect_eq(catalogue_find(&copy, "t", 1), 2);
    expect_filled(&c);
    catalogue_release(&copy);
    catalogue_release(&c);
    table_file_release(&f);
}

Test(catalogue_tables, what_is_not_its_own_is_not_shared)
{
    const cat_metadata metadata = {0};
    table_file f;
    catalogue c;
    fill(&c);
    cr_assert_eq(table_file_create(&f, &err), FSDPCK_OK);
    c.origin.metadata = &metadata;
    cr_expect_eq(catalogue_tables(&c, &f, &err), FSDPCK_UNSUPPORTED);
    table_file_release(&f);
    catalogue_release(&c);
}
