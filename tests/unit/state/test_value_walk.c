/* Walking, copying, comparing and printing. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "state/value.h"

static budget memory;
static value_pool pool;
static value_pool other;

static void setup(void)
{
    budget_init(&memory, 256u << 20, "metadata", NULL);
    value_pool_init(&pool, &memory);
    value_pool_init(&other, &memory);
}

static void teardown(void)
{
    value_pool_release(&pool);
    value_pool_release(&other);
    cr_assert_eq(memory.used_bytes, 0);
}

TestSuite(value_walk, .init = setup, .fini = teardown);

static value str(value_pool *p, const char *text)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_str(p, text, strlen(text), &v, NULL), FSDPCK_OK);
    return v;
}

static value number(value_pool *p, int64_t i)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_int(p, i, &v, NULL), FSDPCK_OK);
    return v;
}

static value from(value_pool *p, value_kind kind, const value *items, size_t count)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_from(p, kind, items, count, &v, NULL), FSDPCK_OK);
    return v;
}

static value from1(value_pool *p, value_kind kind, value item)
{
    return from(p, kind, &item, 1);
}

static const char *printed(const value_pool *p, value v, size_t limit_bytes)
{
    static char text[4096];
    text_buf b = {0};
    value_print(p, v, limit_bytes, &b);
    snprintf(text, sizeof(text), "%s", b.text);
    text_release(&b);
    return text;
}

/* One of everything, with a shared part and a cycle. */
static value make_all(value_pool *p)
{
    const uint8_t big[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0x80};
    value d;
    value list;
    value call;
    value wide;
    value f;
    value bytes;
    value symbol;
    cr_assert_eq(value_new_dict(p, &d, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_list(p, &list, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_bigint(p, big, 9, &wide, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_float(p, 0.1, &f, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_bytes(p, "\0z", 2, &bytes, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_symbol_of(p, "m", 1, "C", 1, &symbol, NULL), FSDPCK_OK);
    const value shared = from1(p, VALUE_TUPLE, number(p, INT64_MIN));
    const value leaves[] = {VALUE_OF_NONE, value_of_bool(true), wide, f, bytes, symbol, shared,
                            shared};
    const value_call parts = {.callee = symbol,
                              .args = from1(p, VALUE_TUPLE, str(p, "x")),
                              .kwargs = d,
                              .state = shared,
                              .list_items = list,
                              .set_items = from1(p, VALUE_SET, number(p, 2)),
                              .how = CALL_NEWOBJ_EX,
                              .has_state = 1};
    cr_assert_eq(value_new_call(p, &parts, &call, NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(p, d, str(p, "k"), value_of_tensor(1), NULL), FSDPCK_OK);
    cr_assert_eq(value_append(p, list, from(p, VALUE_FROZENSET, leaves, 8), NULL), FSDPCK_OK);
    cr_assert_eq(value_append(p, list, list, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(p, list, call, NULL), FSDPCK_OK);
    return list;
}

static fsdpck_status note_visit(void *ctx, value v, fsdpck_error *err)
{
    text_buf *b = ctx;
    static const char letters[] = "nbiIfsBltdSFycTh";
    (void)err;
    text_append(b, &letters[value_kind_of(v)], 1);
    return b->nbytes == 1000 ? FSDPCK_CANCELLED : FSDPCK_OK;
}

Test(value_walk, visits_in_order_and_shared_parts_once)
{
    text_buf seen = {0};
    cr_assert_eq(value_walk(&pool, make_all(&pool), note_visit, &seen, NULL), FSDPCK_OK);
    /* list, frozenset and its leaves, one tuple, the call: callee, args, kwargs, (list), set,
     * (state) */
    cr_assert_str_eq(seen.text, "lFnbIfByticytsdsTSi");
    text_release(&seen);
}

Test(value_walk, stops_when_told)
{
    value list;
    text_buf seen = {0};
    cr_assert_eq(value_new_list(&pool, &list, NULL), FSDPCK_OK);
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(value_append(&pool, list, VALUE_OF_NONE, NULL), FSDPCK_OK);
    cr_assert_eq(value_walk(&pool, list, note_visit, &seen, NULL), FSDPCK_CANCELLED);
    cr_assert_eq(seen.nbytes, 1000);
    text_release(&seen);
}

/* Deeper than any stack. */
static value make_deep(value_pool *p, int levels)
{
    value v = VALUE_OF_NONE;
    for (int i = 0; i < levels; i++)
        v = from1(p, i % 2 ? VALUE_TUPLE : VALUE_LIST, v);
    return v;
}

static fsdpck_status count_visit(void *ctx, value v, fsdpck_error *err)
{
    (void)v;
    (void)err;
    ++*(size_t *)ctx;
    return FSDPCK_OK;
}

Test(value_walk, depth_costs_no_stack)
{
    enum { LEVELS = 1000000 };
    const value deep = make_deep(&pool, LEVELS);
    size_t visits = 0;
    value copy;
    bool equal = false;
    cr_assert_eq(value_walk(&pool, deep, count_visit, &visits, NULL), FSDPCK_OK);
    cr_assert_eq(visits, LEVELS + 1);
    cr_assert_eq(value_copy(&pool, deep, &other, NULL, &copy, NULL), FSDPCK_OK);
    cr_assert_eq(value_equal(&pool, deep, &other, copy, &equal, NULL), FSDPCK_OK);
    cr_assert(equal);
    cr_assert_eq(strlen(printed(&pool, deep, 300)) > 100, 1);
}

Test(value_walk, copies_keep_sharing_and_cycles)
{
    const value all = make_all(&pool);
    value copy;
    bool equal = false;
    (void)str(&other, "so that ids differ");
    cr_assert_eq(value_copy(&pool, all, &other, NULL, &copy, NULL), FSDPCK_OK);
    cr_assert_eq(value_item(&other, copy, 1), copy, "the cycle");
    const value leaves = value_item(&other, copy, 0);
    cr_assert_eq(value_item(&other, leaves, 6), value_item(&other, leaves, 7), "the shared part");
    const value_call *call = value_call_of(&other, value_item(&other, copy, 2));
    cr_assert_eq(call->list_items, copy);
    cr_assert_eq(call->state, value_item(&other, leaves, 6));
    cr_assert_eq(value_equal(&pool, all, &other, copy, &equal, NULL), FSDPCK_OK);
    cr_assert(equal);
    cr_assert_str_eq(printed(&other, copy, 1000), printed(&pool, all, 1000));
    /* within one pool */
    cr_assert_eq(value_copy(&pool, all, &pool, NULL, &copy, NULL), FSDPCK_OK);
    cr_assert_neq(copy, all);
    cr_assert_eq(value_equal(&pool, all, &pool, copy, &equal, NULL), FSDPCK_OK);
    cr_assert(equal);
}

Test(value_walk, a_copy_grows_on_its_own)
{
    const value items[] = {number(&pool, 1), number(&pool, 2)};
    const value list = from(&pool, VALUE_LIST, items, 2);
    value copy;
    cr_assert_eq(value_copy(&pool, list, &pool, NULL, &copy, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(&pool, copy, number(&pool, 3), NULL), FSDPCK_OK);
    cr_assert_str_eq(printed(&pool, list, 100), "[1, 2]");
    cr_assert_str_eq(printed(&pool, copy, 100), "[1, 2, 3]");
}

Test(value_walk, copies_renumber_tensors)
{
    const value items[] = {value_of_tensor(0), value_of_tensor(2), value_of_tensor(1)};
    const uint64_t map[] = {10, UINT64_MAX, 12};
    value copy;
    cr_assert_eq(value_copy(&pool, from(&pool, VALUE_TUPLE, items, 3), &other, map, &copy, NULL),
                 FSDPCK_OK);
    cr_assert_str_eq(printed(&other, copy, 100), "(<tensor 10>, <tensor 12>, None)");
}

static bool same(value a, value b)
{
    bool equal = false;
    cr_assert_eq(value_equal(&pool, a, &other, b, &equal, NULL), FSDPCK_OK);
    return equal;
}

static value symbol(value_pool *p, const char *module, const char *name)
{
    value v;
    cr_assert_eq(value_new_symbol_of(p, module, strlen(module), name, strlen(name), &v, NULL),
                 FSDPCK_OK);
    return v;
}

/* Python's _compat_pickle.NAME_MAPPING and IMPORT_MAPPING. */
Test(value_walk, renamed_symbols_are_equal)
{
    static const struct {
        const char *now[2], *then[2];
    } renamed[] = {
        {{"builtins", "slice"}, {"__builtin__", "slice"}},
        {{"builtins", "range"}, {"__builtin__", "xrange"}},
        {{"builtins", "range"}, {"__builtin__", "range"}},
        {{"builtins", "str"}, {"__builtin__", "unicode"}},
        {{"builtins", "zip"}, {"itertools", "izip"}},
        {{"copyreg", "_reconstructor"}, {"copy_reg", "_reconstructor"}},
        {{"functools", "reduce"}, {"__builtin__", "reduce"}},
        {{"_functools", "reduce"}, {"__builtin__", "reduce"}},
        {{"collections", "UserDict"}, {"UserDict", "IterableUserDict"}},
        {{"dbm", "open"}, {"anydbm", "open"}},
    };
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        const char *const *now = renamed[i].now, *const *then = renamed[i].then;
        cr_assert(same(symbol(&pool, now[0], now[1]), symbol(&other, then[0], then[1])), "%s.%s",
                  then[0], then[1]);
        cr_assert(same(symbol(&pool, then[0], then[1]), symbol(&other, now[0], now[1])), "%s.%s",
                  then[0], then[1]);
    }
    cr_assert(!same(symbol(&pool, "builtins", "slice"), symbol(&other, "__builtin__", "range")));
    cr_assert(!same(symbol(&pool, "builtins", "int"), symbol(&other, "numpy", "int")));
}

/* args: of collections.NAME; items: what SETITEMS adds, or None. */
static value dict_call(value_pool *p, const char *name, value args, value items)
{
    const value_call call = {
        .callee = symbol(p, "collections", name), .args = args, .dict_items = items};
    value v;
    cr_assert_eq(value_new_call(p, &call, &v, NULL), FSDPCK_OK);
    return v;
}

static value pairs_of(value_pool *p, int64_t count)
{
    value dict;
    cr_assert_eq(value_new_dict(p, &dict, NULL), FSDPCK_OK);
    for (int64_t i = 0; i < count; i++)
        cr_assert_eq(value_dict_put(p, dict, number(p, i), number(p, 7), NULL), FSDPCK_OK);
    return dict;
}

/* pickle.dumps writes Counter() as Counter({}), OrderedDict() as OrderedDict(), and Python 2 OrderedDict([]). */
Test(value_walk, pairs_of_dict_classes_are_equal_wherever_they_are)
{
    for (int64_t count = 0; count < 2; count++) {
        const value none = from(&pool, VALUE_TUPLE, NULL, 0),
                    none_b = from(&other, VALUE_TUPLE, NULL, 0);
        const value a = dict_call(&pool, "Counter", none, pairs_of(&pool, count));
        const value b = dict_call(
            &other, "Counter", from1(&other, VALUE_TUPLE, pairs_of(&other, count)), VALUE_OF_NONE);
        cr_assert(same(a, b));
        cr_assert(!same(a, dict_call(&other, "Counter", none_b, pairs_of(&other, count + 1))));
        cr_assert(!same(a, dict_call(&other, "OrderedDict", none_b, pairs_of(&other, count))));
        cr_assert_eq(same(a, dict_call(&other, "Counter", none_b, VALUE_OF_NONE)), count == 0);
        cr_assert_eq(
            same(a, dict_call(&other, "Counter",
                              from1(&other, VALUE_TUPLE, from(&other, VALUE_LIST, NULL, 0)),
                              VALUE_OF_NONE)),
            count == 0);
    }
    /* The factory of a defaultdict is no pair. */
    const value list = from1(&pool, VALUE_TUPLE, symbol(&pool, "builtins", "list"));
    const value set = from1(&other, VALUE_TUPLE, symbol(&other, "builtins", "set"));
    cr_assert(!same(dict_call(&pool, "defaultdict", list, VALUE_OF_NONE),
                    dict_call(&other, "defaultdict", set, pairs_of(&other, 0))));
}

static bool same_in_json(value a, value b)
{
    bool equal = false;
    cr_assert_eq(value_equal_in_json(&pool, a, &other, b, &equal, NULL), FSDPCK_OK);
    return equal;
}

Test(value_walk, json_has_arrays_alone)
{
    const value one = number(&pool, 1), two = number(&pool, 2);
    const value here[] = {one, from(&pool, VALUE_TUPLE, &two, 1)};
    const value three = number(&other, 1), four = number(&other, 2), five = number(&other, 5);
    const value there[] = {three, from(&other, VALUE_LIST, &four, 1)};
    const value others[] = {three, from(&other, VALUE_LIST, &five, 1)};
    const value a = from(&pool, VALUE_TUPLE, here, 2), b = from(&other, VALUE_LIST, there, 2);
    cr_assert(!same(a, b));
    cr_assert(same_in_json(a, b));
    cr_assert(!same_in_json(a, from(&other, VALUE_LIST, others, 2)));
    cr_assert(!same_in_json(a, from(&other, VALUE_SET, there, 2)));
    cr_assert(!same_in_json(one, from(&other, VALUE_LIST, &three, 1)));
}

Test(value_walk, differences_are_seen)
{
    value f;
    value call;
    value twin;
    cr_assert_eq(value_new_float(&other, 1.0, &f, NULL), FSDPCK_OK);
    cr_assert(same(number(&pool, 1), number(&other, 1)));
    cr_assert_not(same(number(&pool, 1), number(&other, 2)));
    cr_assert_not(same(number(&pool, 1), f));
    cr_assert_not(same(number(&pool, 1), value_of_bool(true)));
    cr_assert_not(same(str(&pool, "a"), str(&other, "b")));
    cr_assert(same(from1(&pool, VALUE_LIST, str(&pool, "a")),
                   from1(&other, VALUE_LIST, str(&other, "a"))));
    cr_assert_not(same(from1(&pool, VALUE_LIST, str(&pool, "a")),
                       from1(&other, VALUE_TUPLE, str(&other, "a"))));
    cr_assert_not(
        same(from1(&pool, VALUE_LIST, str(&pool, "a")), from(&other, VALUE_LIST, NULL, 0)));
    cr_assert(same(from(&pool, VALUE_TUPLE, NULL, 0), from(&other, VALUE_TUPLE, NULL, 0)));
    const value_call parts = {.args = from(&pool, VALUE_TUPLE, NULL, 0)};
    value_call changed = {.args = from(&other, VALUE_TUPLE, NULL, 0)};
    cr_assert_eq(value_new_call(&pool, &parts, &call, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_call(&other, &changed, &twin, NULL), FSDPCK_OK);
    cr_assert(same(call, twin));
    changed.has_state = 1;
    cr_assert_eq(value_new_call(&other, &changed, &twin, NULL), FSDPCK_OK);
    cr_assert_not(same(call, twin), "state None is not the same as no state");
    changed.has_state = 0;
    changed.how = CALL_NEWOBJ;
    cr_assert_eq(value_new_call(&other, &changed, &twin, NULL), FSDPCK_OK);
    cr_assert_not(same(call, twin));
}

/* (x, x) of 60 levels, shared on one side only as far as memory allows: 2^20 leaves on the other.
 */
Test(value_walk, comparing_shared_parts_takes_no_time)
{
    value a = from(&pool, VALUE_LIST, NULL, 0);
    value b = from(&other, VALUE_LIST, NULL, 0);
    for (int i = 0; i < 60; i++) {
        const value twice[] = {a, a};
        const value other_twice[] = {b, b};
        a = from(&pool, VALUE_TUPLE, twice, 2);
        b = from(&other, VALUE_TUPLE, other_twice, 2);
    }
    cr_assert(same(a, b));
    cr_assert_not(same(a, from1(&other, VALUE_TUPLE, b)));
}

/* Two cycles of different length that look the same from anywhere. */
Test(value_walk, cycles_of_different_length_are_equal)
{
    value a;
    value b;
    value c;
    cr_assert_eq(value_new_list(&pool, &a, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(&pool, a, a, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_list(&other, &b, NULL), FSDPCK_OK);
    c = from1(&other, VALUE_LIST, b);
    cr_assert_eq(value_append(&other, b, c, NULL), FSDPCK_OK);
    cr_assert(same(a, b));
}

Test(value_walk, prints_as_python_does)
{
    cr_assert_str_eq(
        printed(&pool, make_all(&pool), 1000),
        "[frozenset({None, True, -2361183241434822606848, 0.1, b'\\x00z', m.C, "
        "(-9223372036854775808,), "
        "(-9223372036854775808,)}), ..., m.C('x') **{'k': <tensor 1>} += ... |= {2} <- "
        "(-9223372036854775808,)]");
}

Test(value_walk, print_escapes_and_cuts)
{
    cr_assert_str_eq(printed(&pool, str(&pool, "a'b\\\n\x1b[0m\xff\xe2\x80\xae"), 100),
                     "'a\\'b\\\\\\x0A\\x1B[0m\\xFF\\xE2\\x80\\xAE'");
    cr_assert_str_eq(printed(&pool, str(&pool, "0123456789"), 5), "'0123...");
    cr_assert_str_eq(printed(&pool, str(&pool, "\xc3\xa9\xc3\xa9\xc3\xa9"), 4), "'\xc3\xa9...");
    cr_assert_str_eq(printed(&pool, str(&pool, "abc"), 5), "'abc'");
    cr_assert_str_eq(printed(&pool, from(&pool, VALUE_SET, NULL, 0), 50), "set()");
    cr_assert_str_eq(printed(&pool, from(&pool, VALUE_FROZENSET, NULL, 0), 50), "frozenset()");
    cr_assert_str_eq(printed(&pool, from(&pool, VALUE_LIST, NULL, 0), 50), "[]");
    value list;
    cr_assert_eq(value_new_list(&pool, &list, NULL), FSDPCK_OK);
    for (int i = 0; i < 100000; i++)
        cr_assert_eq(value_append(&pool, list, number(&pool, i), NULL), FSDPCK_OK);
    cr_assert_str_eq(printed(&pool, list, 12), "[0, 1, 2, 3,...");
}
