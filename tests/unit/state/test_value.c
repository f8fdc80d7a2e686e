#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "state/value.h"

static budget memory;
static value_pool pool;

static void setup(void)
{
    budget_init(&memory, 64u << 20, "metadata", NULL);
    value_pool_init(&pool, &memory);
}

static void teardown(void)
{
    value_pool_release(&pool);
    cr_assert_eq(memory.used_bytes, 0);
}

TestSuite(value, .init = setup, .fini = teardown);

static value str(const char *text)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_str(&pool, text, strlen(text), &v, NULL), FSDPCK_OK);
    return v;
}

static value number(int64_t i)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_int(&pool, i, &v, NULL), FSDPCK_OK);
    return v;
}

Test(value, zeroed_pool_can_be_released)
{
    value_pool zeroed;
    memset(&zeroed, 0, sizeof(zeroed));
    value_pool_release(&zeroed);
    cr_assert(value_is_none(0));
    cr_assert_eq(value_kind_of(0), VALUE_NONE);
}

Test(value, integers_of_every_size)
{
    const int64_t all[] = {0,
                           1,
                           -1,
                           INT64_C(1) << 53,
                           -(INT64_C(1) << 54),
                           (INT64_C(1) << 54) - 1,
                           INT64_C(1) << 54,
                           -(INT64_C(1) << 54) - 1,
                           INT64_C(1) << 55,
                           INT64_MAX,
                           INT64_MIN};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int64_t back = 7;
        uint64_t u = 7;
        const value v = number(all[i]);
        cr_assert_eq(value_kind_of(v), VALUE_INT);
        cr_assert(value_as_i64(&pool, v, &back));
        cr_assert_eq(back, all[i]);
        cr_assert_eq(value_as_u64(&pool, v, &u), all[i] >= 0);
        cr_assert_eq(u, all[i] >= 0 ? (uint64_t)all[i] : 7);
    }
}

Test(value, bytes_of_a_big_integer_are_made_as_few_as_possible)
{
    const uint8_t small[12] = {5};
    const uint8_t large[10] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0};
    uint8_t minus[12];
    memset(minus, 0xFF, sizeof(minus));
    value v;
    value w;
    size_t n;
    int64_t i;
    cr_assert_eq(value_new_bigint(&pool, small, 12, &v, NULL), FSDPCK_OK);
    cr_assert(value_as_i64(&pool, v, &i) && i == 5);
    cr_assert_eq(value_new_bigint(&pool, minus, 12, &v, NULL), FSDPCK_OK);
    cr_assert(value_as_i64(&pool, v, &i) && i == -1);
    cr_assert_eq(value_new_bigint(&pool, small, 0, &v, NULL), FSDPCK_OK);
    cr_assert(value_as_i64(&pool, v, &i) && i == 0);
    cr_assert_eq(value_new_bigint(&pool, large, 10, &v, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_bigint(&pool, large, 9, &w, NULL), FSDPCK_OK);
    cr_assert_eq(v, w, "equal numbers are the same value");
    cr_assert_eq(value_kind_of(v), VALUE_BIGINT);
    cr_assert_not_null(value_text(&pool, v, &n));
    cr_assert_eq(n, 9);
    cr_assert_not(value_as_i64(&pool, v, &i));
}

Test(value, floats_keep_every_bit)
{
    const double all[] = {0.0, -0.0, 1.0, 0.1, -3.75, 1e300, 5e-324, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        value v;
        double back = 7;
        cr_assert_eq(value_new_float(&pool, all[i], &v, NULL), FSDPCK_OK);
        cr_assert(value_as_double(&pool, v, &back));
        cr_assert_eq(memcmp(&back, &all[i], sizeof(back)), 0);
    }
    double d;
    cr_assert(value_as_double(&pool, number(-3), &d) && d == -3.0);
    cr_assert_not(value_as_double(&pool, str("1"), &d));
}

Test(value, bools_count_as_integers_but_not_as_sizes)
{
    int64_t i = 0;
    uint64_t u = 7;
    cr_assert(value_as_i64(&pool, value_of_bool(true), &i) && i == 1);
    cr_assert_not(value_as_u64(&pool, value_of_bool(true), &u));
    cr_assert(value_is_true(value_of_bool(true)));
    cr_assert_not(value_is_true(value_of_bool(false)));
    cr_assert_not(value_is_true(number(1)));
}

Test(value, texts_are_interned)
{
    value bytes;
    size_t n = 7;
    cr_assert_eq(str("abc"), str("abc"));
    cr_assert_neq(str("abc"), str("abd"));
    cr_assert_eq(value_new_bytes(&pool, "abc", 3, &bytes, NULL), FSDPCK_OK);
    cr_assert_neq(bytes, str("abc"));
    cr_assert(value_is_str(&pool, str("abc"), "abc"));
    cr_assert_not(value_is_str(&pool, bytes, "abc"));
    cr_assert_not(value_is_str(&pool, str("abc"), "ab"));
    cr_assert_null(value_text(&pool, number(1), &n));
    cr_assert_eq(n, 0);
}

Test(value, symbols_are_compared_by_both_names)
{
    value v;
    value w;
    cr_assert_eq(value_new_symbol_of(&pool, "torch", 5, "Size", 4, &v, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_symbol_of(&pool, "torch", 5, "Size", 4, &w, NULL), FSDPCK_OK);
    cr_assert_eq(v, w);
    cr_assert_str_eq(value_symbol_module(&pool, v), "torch");
    cr_assert_str_eq(value_symbol_name(&pool, v), "Size");
    cr_assert_str_eq(value_symbol_name(&pool, str("Size")), "");
    cr_assert(value_is_symbol_named(&pool, v, "Size"));
    cr_assert(value_is_symbol(&pool, v, "torch", "Size"));
    cr_assert_not(value_is_symbol(&pool, v, "torch.x", "Size"));
    cr_assert_eq(value_new_symbol_of(&pool, "torch", 5, "Size\0x", 6, &w, NULL), FSDPCK_OK);
    cr_assert_not(value_is_symbol_named(&pool, w, "Size"));
    /* where the border lies between module and name matters */
    cr_assert_eq(value_new_symbol_of(&pool, "a", 1, "b\0c", 3, &v, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_symbol_of(&pool, "a\0b", 3, "c", 1, &w, NULL), FSDPCK_OK);
    cr_assert_neq(v, w);
    char name[600];
    memset(name, 'x', sizeof(name));
    cr_assert_eq(value_new_symbol_of(&pool, "a", 1, name, 600, &v, NULL), FSDPCK_LIMIT);
}

Test(value, lists_grow_side_by_side)
{
    value a;
    value b;
    cr_assert_eq(value_new_list(&pool, &a, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_set(&pool, &b, NULL), FSDPCK_OK);
    cr_assert_eq(value_count(&pool, a), 0);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(value_append(&pool, a, number(i), NULL), FSDPCK_OK);
        cr_assert_eq(value_append(&pool, b, number(-i), NULL), FSDPCK_OK);
    }
    cr_assert_eq(value_count(&pool, a), 1000);
    cr_assert_eq(value_count(&pool, b), 1000);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(value_item(&pool, a, (size_t)i), number(i));
        cr_assert_eq(value_item(&pool, b, (size_t)i), number(-i));
    }
    cr_assert(value_is_none(value_item(&pool, a, 1000)));
    value_set_item(&pool, a, 3, str("x"));
    value_set_item(&pool, a, 1000, str("x"));
    cr_assert_eq(value_item(&pool, a, 3), str("x"));
    cr_assert_eq(value_append(&pool, number(1), a, NULL), FSDPCK_INTERNAL);
    cr_assert_lt(pool.cells.count, 8000, "growth doubles");
}

Test(value, tuples)
{
    const value items[] = {number(1), str("b"), VALUE_OF_NONE};
    value v;
    value empty;
    const size_t before = pool.cells.count;
    cr_assert_eq(value_new_from(&pool, VALUE_TUPLE, items, 3, &v, NULL), FSDPCK_OK);
    cr_assert_eq(pool.cells.count - before, 4, "a count and the items");
    cr_assert_eq(value_new_from(&pool, VALUE_TUPLE, NULL, 0, &empty, NULL), FSDPCK_OK);
    cr_assert_eq(pool.cells.count - before, 4, "nothing for the empty one");
    cr_assert_eq(value_count(&pool, v), 3);
    cr_assert_eq(value_item(&pool, v, 1), str("b"));
    cr_assert_eq(value_count(&pool, empty), 0);
    cr_assert_eq(value_kind_of(empty), VALUE_TUPLE);
    value_set_item(&pool, v, 0, str("x"));
    cr_assert_eq(value_item(&pool, v, 0), str("x"));
    cr_assert_eq(value_item(&pool, v, 1), str("b"), "the others stay");
    cr_assert_eq(value_new_from(&pool, VALUE_DICT, items, 2, &v, NULL), FSDPCK_INTERNAL);
    cr_assert_eq(value_new_from(&pool, VALUE_LIST, items, 3, &v, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(&pool, v, number(4), NULL), FSDPCK_OK);
    cr_assert_eq(value_count(&pool, v), 4);
}

Test(value, dicts)
{
    value d;
    value item;
    cr_assert_eq(value_new_dict(&pool, &d, NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, d, str("a"), number(1), NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, d, number(1), number(2), NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, d, str("a"), number(3), NULL), FSDPCK_OK);
    cr_assert_eq(value_count(&pool, d), 3);
    cr_assert(value_dict_find(&pool, d, "a", &item));
    cr_assert_eq(item, number(3), "the last one wins");
    cr_assert_not(value_dict_find(&pool, d, "b", &item));
    cr_assert_not(value_dict_find(&pool, number(1), "a", &item));
    cr_assert(value_is_none(value_key(&pool, d, 3)));
}

Test(value, keys_are_equal_as_in_python)
{
    value f;
    value g;
    cr_assert_eq(value_new_float(&pool, 2.0, &f, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_float(&pool, 0.1, &g, NULL), FSDPCK_OK);
    cr_assert(value_keys_equal(&pool, f, number(2)));
    cr_assert_not(value_keys_equal(&pool, f, number(3)));
    cr_assert_not(value_keys_equal(&pool, g, number(0)));
    cr_assert(value_keys_equal(&pool, number(INT64_MIN), number(INT64_MIN)),
              "two cells, one number");
    cr_assert_not(value_keys_equal(&pool, number(INT64_MIN), number(INT64_MAX)));
    cr_assert_not(value_keys_equal(&pool, str("1"), number(1)));
    cr_assert_not(value_keys_equal(&pool, VALUE_OF_NONE, number(0)));
}

static value call_of(const char *name, value args)
{
    value_call call = {.args = args, .how = CALL_REDUCE};
    value v = VALUE_OF_NONE;
    cr_assert_eq(
        value_new_symbol_of(&pool, "collections", 11, name, strlen(name), &call.callee, NULL),
        FSDPCK_OK);
    cr_assert_eq(value_new_call(&pool, &call, &v, NULL), FSDPCK_OK);
    return v;
}

Test(value, calls_that_are_dicts)
{
    value empty;
    value dict;
    value d;
    cr_assert_eq(value_new_from(&pool, VALUE_TUPLE, NULL, 0, &empty, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_dict(&pool, &dict, NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, dict, str("a"), number(1), NULL), FSDPCK_OK);

    const value ordered = call_of("OrderedDict", empty);
    cr_assert(value_as_dict(&pool, ordered, &d));
    cr_assert_eq(value_count(&pool, d), 0);
    value_call_of(&pool, ordered)->dict_items = dict;
    cr_assert(value_as_dict(&pool, ordered, &d));
    cr_assert_eq(d, dict);
    cr_assert(value_as_dict(&pool, dict, &d));
    cr_assert_eq(d, dict);

    value args;
    cr_assert_eq(value_new_from(&pool, VALUE_TUPLE, &dict, 1, &args, NULL), FSDPCK_OK);
    cr_assert(value_as_dict(&pool, call_of("Counter", args), &d));
    cr_assert_eq(d, dict);

    const value pair_items[] = {str("k"), number(5)};
    value pair;
    value pairs;
    cr_assert_eq(value_new_from(&pool, VALUE_LIST, pair_items, 2, &pair, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_from(&pool, VALUE_LIST, &pair, 1, &pairs, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_from(&pool, VALUE_TUPLE, &pairs, 1, &args, NULL), FSDPCK_OK);
    cr_assert(value_as_dict(&pool, call_of("OrderedDict", args), &d), "as Python 2 writes it");
    cr_assert_eq(value_key(&pool, d, 0), str("k"));
    cr_assert_eq(value_item(&pool, d, 0), number(5));

    cr_assert_not(value_as_dict(&pool, call_of("deque", empty), &d));
    cr_assert_not(value_as_dict(&pool, number(1), &d));
}

Test(value, memory_is_bounded)
{
    budget small;
    value_pool p;
    value v;
    fsdpck_error err;
    budget_init(&small, 10000, "metadata", NULL);
    value_pool_init(&p, &small);
    cr_assert_eq(value_new_list(&p, &v, &err), FSDPCK_OK);
    fsdpck_status st = FSDPCK_OK;
    int n = 0;
    while (st == FSDPCK_OK && n < 100000) {
        st = value_append(&p, v, VALUE_OF_NONE, &err);
        n += st == FSDPCK_OK;
    }
    cr_assert_eq(st, FSDPCK_LIMIT);
    cr_assert_eq(value_count(&p, v), (size_t)n);
    cr_assert_leq(small.used_bytes, 10000);
    value_pool_release(&p);
    cr_assert_eq(small.used_bytes, 0);
}
