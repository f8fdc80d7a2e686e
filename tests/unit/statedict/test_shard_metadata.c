#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "statedict/shard_metadata.h"

/* Two wrappers as fairscale describes them: the root with a tied weight, and `blk`. */

static budget memory;
static catalogue c;
static unit_list units;
static fsdpck_error why;

static void setup(void)
{
    budget_init(&memory, 1u << 20, "metadata", NULL);
    catalogue_init(&c, &memory);
    unit_list_init(&units, &memory);
    fsdpck_error_init(&why);
}

static void teardown(void)
{
    unit_list_release(&units);
    catalogue_release(&c);
    cr_assert_eq(memory.used_bytes, 0);
}

TestSuite(shard_metadata, .init = setup, .fini = teardown);

static value text_of(const char *text)
{
    value v;
    cr_assert_eq(value_new_str(&c.pool, text, strlen(text), &v, NULL), FSDPCK_OK);
    return v;
}

static value int_of(int64_t i)
{
    value v;
    cr_assert_eq(value_new_int(&c.pool, i, &v, NULL), FSDPCK_OK);
    return v;
}

static value list_of(value_kind kind, const value *items, size_t count)
{
    value v;
    cr_assert_eq(value_new_from(&c.pool, kind, items, count, &v, NULL), FSDPCK_OK);
    return v;
}

static value size_of(int64_t rows, int64_t columns)
{
    const value inner = list_of(VALUE_TUPLE, (const value[]){int_of(rows), int_of(columns)}, 2);
    value_call call = {.how = CALL_REDUCE, .args = list_of(VALUE_TUPLE, &inner, 1)};
    value v;
    cr_assert_eq(value_new_symbol_of(&c.pool, "torch", 5, "Size", 4, &call.callee, NULL),
                 FSDPCK_OK);
    cr_assert_eq(value_new_call(&c.pool, &call, &v, NULL), FSDPCK_OK);
    return v;
}

/* shard_metadata.param_metadata.INDEX.WORD, or ..params.KEY.WORD */
static void put(int64_t index, const char *key, const char *word, value content)
{
    value path[6] = {text_of("shard_metadata"), text_of("param_metadata"), int_of(index)};
    size_t count = 3;
    char name[64];
    uint32_t object;
    if (key != NULL) {
        path[count++] = text_of("params");
        path[count++] = text_of(key);
    }
    path[count++] = text_of(word);
    const int n = snprintf(name, sizeof name, "%d.%s.%s", (int)index, key == NULL ? "" : key, word);
    cr_assert_eq(catalogue_add_object(&c, name, (size_t)n, &object, NULL), FSDPCK_OK);
    cat_object *o = catalogue_object(&c, object);
    o->rank = UINT16_MAX;
    o->loaded = 1;
    o->content = content;
    o->path = list_of(VALUE_TUPLE, path, count);
}

static void put_flat(int64_t index, const char *key, const char *name, int64_t rows,
                     int64_t columns, int64_t numel)
{
    const value names = text_of(name), shapes = size_of(rows, columns), numels = int_of(numel);
    put(index, key, "names", list_of(VALUE_LIST, &names, 1));
    put(index, key, "shapes", list_of(VALUE_LIST, &shapes, 1));
    put(index, key, "numels", list_of(VALUE_LIST, &numels, 1));
    put(index, key, "padding", int_of(0));
}

static void put_both(int64_t numel)
{
    const value pair =
        list_of(VALUE_TUPLE, (const value[]){text_of("emb.weight"), text_of("head.weight")}, 2);
    put(0, NULL, "fsdp_path", text_of(""));
    put_flat(0, "flat_param_0", "emb.weight", 3, 7, numel);
    put(0, NULL, "no_broadcast_optim_state", value_of_bool(false));
    put(0, NULL, "shared_param_info", list_of(VALUE_LIST, &pair, 1));
    put(1, NULL, "fsdp_path", text_of("_fsdp_wrapped_module.blk"));
    put_flat(1, "flat_param_0", "a.weight", 5, 3, 15);
    put_flat(1, "flat_param_1", "b.weight", 2, 2, 4);
    put(1, NULL, "no_broadcast_optim_state", value_of_bool(true));
}

Test(shard_metadata, units_are_found_by_their_keys)
{
    put_both(21);
    cr_assert(shard_metadata_is(&c));
    cr_assert_eq(shard_metadata_units(&c, 4, &units, &why), FSDPCK_OK, "%s", why.message);
    cr_assert_eq(unit_count(&units), 3);
    const unit *u = unit_list_find(&units, "flat_param_0", 12);
    cr_assert_not_null(u);
    cr_expect(u->keyed);
    cr_expect_eq(u->world_size, 4);
    cr_expect_eq(u->total, 21);
    cr_expect_eq(u->shard_size, 6);
    cr_expect_eq(unit_shard_of(u, 3).padding, 3);
    const unit_param *p = unit_list_find_param(&units, "head.weight", 11, NULL);
    cr_assert_not_null(p);
    cr_expect_str_eq(unit_name(&units, p->fqn, NULL), "emb.weight");
    u = unit_list_find(&units, "blk.flat_param_1", 16);
    cr_assert_not_null(u);
    cr_expect(u->unsharded); /* each rank has all of it */
    cr_expect_str_eq(unit_name(&units, unit_param_at(&units, u, 0)->fqn, NULL), "blk.b.weight");
}

Test(shard_metadata, numels_are_those_of_the_shapes)
{
    put_both(20);
    cr_assert_eq(shard_metadata_units(&c, 4, &units, &why), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "SHARD-METADATA");
    cr_expect_str_eq(why.tensor, "emb.weight");
}

Test(shard_metadata, lists_are_of_one_length)
{
    put(0, NULL, "fsdp_path", text_of(""));
    put_flat(0, "flat_param_0", "a", 1, 1, 1);
    put(1, NULL, "fsdp_path", text_of("b"));
    put(1, "flat_param_0", "names", list_of(VALUE_LIST, (const value[]){text_of("w")}, 1));
    cr_assert_eq(shard_metadata_units(&c, 4, &units, &why), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "SHARD-METADATA");
}

Test(shard_metadata, a_path_is_a_text)
{
    put(0, NULL, "fsdp_path", int_of(3));
    put_flat(0, "flat_param_0", "a", 1, 1, 1);
    cr_assert_eq(shard_metadata_units(&c, 4, &units, &why), FSDPCK_BADINPUT);
}

Test(shard_metadata, other_objects_are_none)
{
    put(0, NULL, "fsdp_path", text_of(""));
    cr_expect_not(shard_metadata_is(&c));
}
