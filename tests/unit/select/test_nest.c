#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "select/nest.h"

static budget owner;
static value_pool pool;
static nest n;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    value_pool_init(&pool, &owner);
    fsdpck_error_init(&err);
    cr_assert_eq(nest_init(&n, &pool, &err), FSDPCK_OK);
}

static void teardown(void)
{
    nest_release(&n);
    value_pool_release(&pool);
    cr_expect_eq(owner.used_bytes, 0, "everything is given back");
}

TestSuite(nest, .init = setup, .fini = teardown);

/* "a/3/b": words of digits are list indices. */
static size_t split(const char *path, value elements[16])
{
    size_t count = 0;
    for (const char *at = path;; at++) {
        const size_t k = strcspn(at, "/");
        char *end;
        const long index = strtol(at, &end, 10);
        if (k > 0 && end == at + k)
            cr_assert_eq(value_new_int(&pool, index, &elements[count++], &err), FSDPCK_OK);
        else
            cr_assert_eq(value_new_str(&pool, at, k, &elements[count++], &err), FSDPCK_OK);
        at += k;
        if (*at == '\0')
            break;
    }
    return count;
}

static fsdpck_status put_value(const char *path, value leaf)
{
    value elements[16];
    const size_t count = split(path, elements);
    return nest_put(&n, elements, count, leaf, &err);
}

static fsdpck_status put(const char *path, uint64_t leaf)
{
    return put_value(path, value_of_tensor(leaf));
}

static nest_gap look(const char *path)
{
    value elements[16];
    const size_t count = split(path, elements);
    return nest_find_gap(&n, elements, count);
}

static void expect_root(const char *want)
{
    text_buf out = {0};
    value_print(&pool, n.root, 4096, &out);
    cr_assert_eq(text_check(&out, NULL), FSDPCK_OK);
    cr_expect_str_eq(out.text, want);
    text_release(&out);
}

Test(nest, an_empty_state_is_a_dict)
{
    expect_root("{}");
}

Test(nest, paths_become_dicts_and_lists_in_the_order_they_came)
{
    cr_assert_eq(put("b/x", 0), FSDPCK_OK);
    cr_assert_eq(put("a", 1), FSDPCK_OK);
    cr_assert_eq(put("b/list/1/k", 2), FSDPCK_OK);
    cr_assert_eq(put("b/list/0", 3), FSDPCK_OK);
    cr_assert_eq(value_count(&pool, n.root), 2);
    value b, list, item;
    cr_assert(value_is_str(&pool, value_key(&pool, n.root, 0), "b"));
    cr_assert(value_dict_find(&pool, n.root, "b", &b));
    cr_assert(value_dict_find(&pool, b, "list", &list));
    cr_assert_eq(value_kind_of(list), VALUE_LIST);
    cr_assert_eq(value_count(&pool, list), 2);
    cr_expect_eq(value_tensor_index(value_item(&pool, list, 0)), 3);
    cr_assert(value_dict_find(&pool, value_item(&pool, list, 1), "k", &item));
    cr_expect_eq(value_tensor_index(item), 2);
}

Test(nest, a_list_is_padded_with_none)
{
    cr_assert_eq(put("l/3", 0), FSDPCK_OK);
    value list;
    cr_assert(value_dict_find(&pool, n.root, "l", &list));
    cr_assert_eq(value_count(&pool, list), 4);
    for (size_t i = 0; i < 3; i++)
        cr_expect(value_is_none(value_item(&pool, list, i)));
}

Test(nest, holes_become_empty_dicts_and_none_that_was_put_stays)
{
    value list;
    cr_assert_eq(put("l/2", 0), FSDPCK_OK);
    cr_assert_eq(put_value("l/1", VALUE_OF_NONE), FSDPCK_OK);
    cr_assert_eq(put_value("leaf", VALUE_OF_NONE), FSDPCK_OK);
    cr_assert_eq(nest_fill_holes(&n, &err), FSDPCK_OK);
    cr_assert(value_dict_find(&pool, n.root, "l", &list));
    cr_assert_eq(value_count(&pool, list), 3);
    cr_expect_eq(value_kind_of(value_item(&pool, list, 0)), VALUE_DICT);
    cr_expect(value_is_none(value_item(&pool, list, 1)));
    cr_expect_eq(value_kind_of(value_item(&pool, list, 2)), VALUE_TENSOR);
}

Test(nest, paths_that_disagree_are_refused)
{
    static const char *const pairs[][2] = {
        {"a", "a/b"}, {"a/b", "a"}, {"a", "a"}, {"a/0", "a/b"}, {"a/b", "a/0"}, {"a/0/x", "a/0"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        nest_release(&n);
        cr_assert_eq(nest_init(&n, &pool, &err), FSDPCK_OK);
        cr_assert_eq(put(pairs[i][0], 0), FSDPCK_OK);
        cr_expect_eq(put(pairs[i][1], 1), FSDPCK_BADINPUT, "%s, then %s", pairs[i][0], pairs[i][1]);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), "KEY-NEST");
    }
}

Test(nest, a_leaf_with_items_is_no_container)
{
    value list, dict, key;
    cr_assert_eq(value_new_list(&pool, &list, &err), FSDPCK_OK);
    cr_assert_eq(value_append(&pool, list, VALUE_OF_NONE, &err), FSDPCK_OK);
    cr_assert_eq(put_value("l", list), FSDPCK_OK);
    cr_expect_eq(put("l/0/x", 0), FSDPCK_BADINPUT, "it replaces an item");
    cr_expect_eq(put("l/1", 0), FSDPCK_BADINPUT);
    cr_assert_eq(value_new_dict(&pool, &dict, &err), FSDPCK_OK);
    cr_assert_eq(value_new_str(&pool, "k", 1, &key, &err), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, dict, key, VALUE_OF_NONE, &err), FSDPCK_OK);
    cr_assert_eq(put_value("d", dict), FSDPCK_OK);
    cr_expect_eq(put("d/k", 0), FSDPCK_BADINPUT);
    expect_root("{'l': [None], 'd': {'k': None}}");
}

Test(nest, an_empty_leaf_is_filled)
{
    value list;
    cr_assert_eq(value_new_list(&pool, &list, &err), FSDPCK_OK);
    cr_assert_eq(put_value("l", list), FSDPCK_OK);
    cr_assert_eq(put("l/0", 0), FSDPCK_OK);
    cr_assert_eq(put("l/1", 1), FSDPCK_OK);
    expect_root("{'l': [<tensor 0>, <tensor 1>]}");
}

Test(nest, the_first_path_tells_what_the_outermost_is)
{
    cr_assert_eq(put("0/a", 0), FSDPCK_OK);
    cr_assert_eq(put("2", 1), FSDPCK_OK);
    expect_root("[{'a': <tensor 0>}, None, <tensor 1>]");
    cr_expect_eq(put("a", 2), FSDPCK_BADINPUT);
    nest_release(&n);
    cr_assert_eq(nest_init(&n, &pool, &err), FSDPCK_OK);
    cr_assert_eq(put("a", 0), FSDPCK_OK);
    cr_expect_eq(put("0/a", 1), FSDPCK_BADINPUT);
}

Test(nest, a_place_that_was_padded_is_a_hole)
{
    cr_assert_eq(put("l/2/w", 0), FSDPCK_OK);
    cr_assert_eq(put("l/0", 1), FSDPCK_OK);
    cr_expect_eq(look("l/1"), NEST_GAP_ITEM);
    cr_expect_eq(look("l/1/w"), NEST_GAP_ITEM);
    cr_expect_eq(look("l/0"), NEST_GAP_NONE);
    cr_expect_eq(look("l/2/b"), NEST_GAP_NONE, "a dict lacks a key");
    cr_expect_eq(look("l/3"), NEST_GAP_NONE, "behind the end");
    cr_expect_eq(look("m/0"), NEST_GAP_NONE, "of a list that is not there");
}

Test(nest, a_list_without_tensor_or_dict_is_not_opened)
{
    cr_assert_eq(put_value("l/0", VALUE_OF_NONE), FSDPCK_OK);
    cr_assert_eq(put_value("m/0/0", VALUE_OF_NONE), FSDPCK_OK);
    cr_assert_eq(put_value("m/1/0", value_of_tensor(1)), FSDPCK_OK);
    cr_assert_eq(put_value("d/0/k", VALUE_OF_NONE), FSDPCK_OK);
    cr_expect_eq(look("l/1"), NEST_GAP_NONE, "before they were looked for");
    nest_find_opened(&n);
    cr_expect_eq(look("l/1"), NEST_GAP_TENSOR);
    cr_expect_eq(look("l/0"), NEST_GAP_NONE, "it is there");
    cr_expect_eq(look("m/0/1"), NEST_GAP_TENSOR);
    cr_expect_eq(look("m/1/1"), NEST_GAP_NONE);
    cr_expect_eq(look("m/2"), NEST_GAP_NONE);
    cr_expect_eq(look("d/1/k"), NEST_GAP_NONE);
}

Test(nest, an_index_is_no_size_that_is_trusted)
{
    cr_expect_eq(put("l/4000000000", 0), FSDPCK_BADINPUT);
    cr_expect_eq(put("m/-1", 0), FSDPCK_BADINPUT);
    cr_expect_lt(owner.used_bytes, 1u << 20);
}

Test(nest, many_leaves_are_found_again)
{
    char path[64];
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(path, sizeof path, "g%u/k%u", i % 7, i);
        cr_assert_eq(put(path, i), FSDPCK_OK);
    }
    cr_expect_eq(value_count(&pool, n.root), 7);
    cr_expect_eq(put("g3/k3", 0), FSDPCK_BADINPUT);
}
