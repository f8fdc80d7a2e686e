/* Names of tensors inside objects. */
#include <criterion/criterion.h>
#include <string.h>

#include "state/inner.h"

static budget memory;
static value_pool pool;
static value_map judged, seen;
static text_buf found; /* "name=index " of each, in the order of the calls */
static uint64_t next;  /* what a second place of a tensor becomes */
static uint8_t used[64];

static void setup(void)
{
    budget_init(&memory, 256u << 20, "metadata", NULL);
    value_pool_init(&pool, &memory);
    judged = VALUE_MAP(&memory);
    seen = VALUE_MAP(&memory);
    found = (text_buf){0};
    next = 40;
    memset(used, 0, sizeof used);
}

static void teardown(void)
{
    value_pool_release(&pool);
    value_map_release(&judged);
    value_map_release(&seen);
    text_release(&found);
    cr_assert_eq(memory.used_bytes, 0);
}

TestSuite(inner, .init = setup, .fini = teardown);

static fsdpck_status on_tensor(void *ctx, const char *name, size_t nbytes, value path,
                               uint64_t *tensor, fsdpck_error *err)
{
    (void)ctx;
    (void)err;
    cr_assert_eq(value_kind_of(path), VALUE_TUPLE);
    if (used[*tensor])
        *tensor = next++;
    used[*tensor] = 1;
    text_append(&found, name, nbytes);
    text_printf(&found, "=%u ", (unsigned)*tensor);
    return FSDPCK_OK;
}

static value text(const char *t)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_str(&pool, t, strlen(t), &v, NULL), FSDPCK_OK);
    return v;
}

static value of(value_kind kind, size_t count, const value *items)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(value_new_from(&pool, kind, items, count, &v, NULL), FSDPCK_OK);
    return v;
}

static value call(const char *class_name, value_call more)
{
    value v = VALUE_OF_NONE;
    cr_assert_eq(
        value_new_symbol_of(&pool, "any", 3, class_name, strlen(class_name), &more.callee, NULL),
        FSDPCK_OK);
    if (value_is_none(more.args))
        more.args = of(VALUE_TUPLE, 0, NULL);
    cr_assert_eq(value_new_call(&pool, &more, &v, NULL), FSDPCK_OK);
    return v;
}

static value run(value content, const char *want)
{
    inner_names in = {.pool = &pool,
                      .judged = &judged,
                      .seen = &seen,
                      .steps_limit = 1000,
                      .on_tensor = on_tensor};
    const value path = of(VALUE_TUPLE, 1, &(value){text("o")});
    found.nbytes = 0;
    cr_assert_eq(inner_name_tensors(&in, "o", 1, path, &content, NULL), FSDPCK_OK);
    cr_expect_str_eq(found.text == NULL ? "" : found.text, want);
    return content;
}

#define T(i) value_of_tensor(i)

Test(inner, tuples_lists_and_dicts_lead_to_tensors)
{
    value dict = VALUE_OF_NONE, seven = VALUE_OF_NONE;
    cr_assert_eq(value_new_int(&pool, 7, &seven, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_dict(&pool, &dict, NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, dict, text("a"), T(1), NULL), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&pool, dict, seven, T(2), NULL), FSDPCK_OK);
    const value list = of(VALUE_LIST, 2, (value[]){seven, T(3)});
    run(of(VALUE_TUPLE, 4, (value[]){T(0), dict, list, text("x")}),
        "o.0=0 o.1.a=1 o.1.7=2 o.2.1=3 ");
}

Test(inner, named_tuples_and_deques_are_opened)
{
    const value args = of(VALUE_TUPLE, 2, (value[]){T(0), T(1)});
    const value items = of(VALUE_LIST, 1, (value[]){T(2)});
    const value named = call("Point", (value_call){.how = CALL_NEWOBJ, .args = args});
    const value queue = call("deque", (value_call){.how = CALL_REDUCE, .list_items = items});
    run(of(VALUE_TUPLE, 2, (value[]){named, queue}), "o.0.0=0 o.0.1=1 o.1.0=2 ");
}

Test(inner, other_objects_and_sets_are_not)
{
    const value state = of(VALUE_TUPLE, 1, (value[]){T(0)});
    const value box = call("Box", (value_call){.how = CALL_NEWOBJ, .state = state, .has_state = 1});
    const value set = of(VALUE_SET, 1, (value[]){T(1)});
    run(of(VALUE_TUPLE, 2, (value[]){box, set}), "");
}

Test(inner, each_place_has_a_tensor_of_its_own)
{
    const value shared = of(VALUE_TUPLE, 2, (value[]){T(0), T(0)});
    const value all = of(VALUE_TUPLE, 2, (value[]){shared, shared});
    const value now = run(all, "o.0.0=0 o.0.1=40 o.1.0=41 o.1.1=42 ");
    cr_expect_eq(now, all);
    cr_expect_eq(value_item(&pool, value_item(&pool, now, 0), 1), T(40));
    cr_expect_eq(value_item(&pool, value_item(&pool, now, 1), 0), T(41));
    /* The same object at a second place of the state. */
    const value again = run(all, "o.0.0=43 o.0.1=44 o.1.0=45 o.1.1=46 ");
    cr_expect_neq(again, all);
    cr_expect_eq(value_item(&pool, value_item(&pool, all, 0), 1), T(40), "the first stays");
}

Test(inner, what_contains_itself_is_passed_over)
{
    value list = VALUE_OF_NONE;
    cr_assert_eq(value_new_list(&pool, &list, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(&pool, list, of(VALUE_TUPLE, 2, (value[]){list, T(0)}), NULL),
                 FSDPCK_OK);
    run(list, "o.0.1=0 ");
}

Test(inner, steps_are_bounded)
{
    value v = of(VALUE_TUPLE, 2, (value[]){T(0), T(0)});
    for (int i = 0; i < 40; i++)
        v = of(VALUE_TUPLE, 2, (value[]){v, v});
    inner_names in = {
        .pool = &pool, .judged = &judged, .seen = &seen, .steps_limit = 20, .on_tensor = on_tensor};
    next = 1;
    const value none = VALUE_OF_NONE;
    cr_assert_eq(inner_name_tensors(&in, "o", 1, none, &v, NULL), FSDPCK_OK);
    cr_expect_leq(found.nbytes, 20 * 100);
}
