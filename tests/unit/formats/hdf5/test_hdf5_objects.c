#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "formats/hdf5/hdf5_objects.h"

static budget owner;
static catalogue cat;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    catalogue_init(&cat, &owner);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    catalogue_release(&cat);
    cr_expect_eq(owner.used_bytes, 0);
}

TestSuite(hdf5_objects, .init = setup, .fini = teardown);

static value text(const char *s)
{
    value v;
    cr_assert_eq(value_new_str(&cat.pool, s, strlen(s), &v, &err), FSDPCK_OK);
    return v;
}

static value number(double d)
{
    value v;
    cr_assert_eq(value_new_float(&cat.pool, d, &v, &err), FSDPCK_OK);
    return v;
}

static value whole(int64_t i)
{
    value v;
    cr_assert_eq(value_new_int(&cat.pool, i, &v, &err), FSDPCK_OK);
    return v;
}

static value several(value_kind kind, value a, value b)
{
    const value items[] = {a, b};
    value v;
    cr_assert_eq(value_new_from(&cat.pool, kind, items, 2, &v, &err), FSDPCK_OK);
    return v;
}

static value pair(value key, value item)
{
    value v;
    cr_assert_eq(value_new_dict(&cat.pool, &v, &err), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&cat.pool, v, key, item, &err), FSDPCK_OK);
    return v;
}

static void add(const char *name, value content)
{
    uint32_t index;
    cr_assert_eq(catalogue_add_object(&cat, name, strlen(name), &index, &err), FSDPCK_OK);
    catalogue_object(&cat, index)->content = content;
}

static void check_put(const char *expected)
{
    text_buf json = {0};
    cr_assert_eq(hdf5_objects_write(&cat, &json, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_str_eq(json.text != NULL ? json.text : "", expected);
    text_release(&json);
}

Test(hdf5_objects, kinds_are_kept_apart)
{
    add("epoch", whole(3));
    add("lr", number(1.0));
    add("eps", number(1e-8));
    add("on", value_of_bool(true));
    add("none", VALUE_OF_NONE);
    add("name", text("\xC3\xA9\n\"x\""));
    add("betas", several(VALUE_TUPLE, number(0.5), whole(-9)));
    add("deep", pair(text("a"), several(VALUE_LIST, pair(text("b"), whole(1)), VALUE_OF_NONE)));
    check_put(
        "{\"epoch\":3,\"lr\":1.0,\"eps\":1e-08,\"on\":true,\"none\":null,"
        "\"name\":\"\xC3\xA9\\n\\\"x\\\"\",\"betas\":[0.5,-9],\"deep\":{\"a\":[{\"b\":1},null]}}");
}

Test(hdf5_objects, none_are_no_text)
{
    check_put("");
}

Test(hdf5_objects, what_json_cannot_say_is_not_held)
{
    const uint8_t big[] = {0, 0, 0, 0, 0, 0, 0, 0, 1};
    value bytes, bigint, loop;
    cr_assert_eq(value_new_bytes(&cat.pool, "x", 1, &bytes, &err), FSDPCK_OK);
    cr_assert_eq(value_new_bigint(&cat.pool, big, sizeof big, &bigint, &err), FSDPCK_OK);
    cr_assert_eq(value_new_list(&cat.pool, &loop, &err), FSDPCK_OK);
    cr_assert_eq(value_append(&cat.pool, loop, loop, &err), FSDPCK_OK);
    const value not_held[] = {
        bytes,
        bigint,
        loop,
        number(INFINITY),
        number(NAN),
        text("\xFF"),
        pair(whole(1), whole(2)),
        pair(text("\xED\xA0\x80"), whole(2)),
        several(VALUE_SET, whole(1), whole(2)),
        several(VALUE_LIST, whole(1), bytes),
        value_of_tensor(0),
    };
    for (size_t i = 0; i < sizeof not_held / sizeof not_held[0]; i++)
        cr_expect(!hdf5_holds_object(&cat.pool, not_held[i]), "value %zu", i);
    cr_expect(hdf5_holds_object(&cat.pool, several(VALUE_TUPLE, text("a"), number(-0.0))));
}

/* A shared value is written at each occurrence: 2^40 times here, without a limit. */
Test(hdf5_objects, sharing_is_bounded, .timeout = 60)
{
    value v = several(VALUE_LIST, whole(1), whole(2));
    for (int i = 0; i < 40; i++)
        v = several(VALUE_LIST, v, v);
    cr_expect(!hdf5_holds_object(&cat.pool, v));
}

Test(hdf5_objects, two_of_one_name_are_refused)
{
    text_buf json = {0};
    add("a", whole(1));
    add("a", whole(2));
    cr_expect_eq(hdf5_objects_write(&cat, &json, &err), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "KEY-DUP");
    text_release(&json);
}

static fsdpck_status take(const char *json)
{
    return hdf5_objects_read(&cat, json, strlen(json), FSDPCK_FINDING_H5_OBJECTS, &err);
}

Test(hdf5_objects, what_is_put_is_taken)
{
    static const char json[] = "{\"epoch\":3,\"far\":-9223372036854775808,\"lr\":1.0,\"e\":1e-08,"
                               "\"on\":true,\"off\":false,\"none\":null,\"name\":\"\xC3\xA9\\n\","
                               "\"list\":[0.5,[],{}],\"deep\":{\"a\":[{\"b\":1},null],\"c\":2}}";
    cr_assert_eq(take(json), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(catalogue_object_count(&cat), 10);
    const cat_object *lr = catalogue_object(&cat, 2);
    cr_expect_eq(value_kind_of(lr->content), VALUE_FLOAT);
    cr_expect(lr->loaded && lr->file == CAT_NONE && lr->rank == UINT16_MAX);
    cr_expect_eq(value_kind_of(catalogue_object(&cat, 0)->content), VALUE_INT);
    check_put(json);
}

Test(hdf5_objects, other_texts_are_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"a\":}",
        "{\"a\":1",
        "{\"a\":1}x",
        "{\"a\":1,\"a\":2}",
        "{\"a\":9223372036854775808}",
        "{\"a\":nan}",
        "{\"a\":\"\xFF\"}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_eq(take(bad[i]), FSDPCK_BADINPUT, "%s", bad[i]);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), "H5-OBJECTS", "%s", bad[i]);
        catalogue_release(&cat);
        catalogue_init(&cat, &owner);
    }
}
