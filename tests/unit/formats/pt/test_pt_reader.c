#include <criterion/criterion.h>
#include <string.h>

#include "pt_checkpoint.h"
#include "pt_state.h"
#include "state_file.h"

static pt_state s;
static pt_checkpoint o;
static fsdpck_error err;

TestSuite(pt_reader, .init = begin, .fini = end);

/* Writes the state and reads it back. */
static fsdpck_status reopen(value root)
{
    fsdpck_error_init(&err);
    cr_assert_eq(pt_state_write(&s, root, path, &err), FSDPCK_OK, "%s", err.message);
    pt_state_end(&s);
    return pt_checkpoint_open(&o, path, false, &err);
}

static void expect_tensor(const char *name)
{
    cr_expect_neq(catalogue_find(&o.cat, name, strlen(name)), CAT_NONE, "no tensor '%s'", name);
}

static const cat_object *object_of(const char *name)
{
    for (size_t i = 0; i < catalogue_object_count(&o.cat); i++)
        if (strcmp(catalogue_name(&o.cat, catalogue_object(&o.cat, i)->name), name) == 0)
            return catalogue_object(&o.cat, i);
    return NULL;
}

Test(pt_reader, dicts_are_opened_and_lists_where_they_hold_tensors_or_dicts)
{
    value list, inner, plain, number, step;

    pt_state_begin(&s);
    value_pool *pool = &s.t.cat.pool;
    const value root = pt_state_dict(&s), deep = pt_state_dict(&s), empty = pt_state_dict(&s);
    pt_state_put(&s, deep, "w", pt_state_tensor(&s, "a", 3));
    cr_assert_eq(value_new_list(pool, &inner, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(pool, inner, deep, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_list(pool, &list, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_int(pool, 5, &number, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(pool, list, number, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(pool, list, inner, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_list(pool, &plain, NULL), FSDPCK_OK);
    cr_assert_eq(value_append(pool, plain, number, NULL), FSDPCK_OK);
    cr_assert_eq(value_new_int(pool, 1200, &step, NULL), FSDPCK_OK);
    const value in_tuple[] = {pt_state_tensor(&s, "b", 2), number};
    pt_state_put(&s, root, "list", list);
    pt_state_put(&s, root, "plain", plain);
    pt_state_put(&s, root, "empty", empty);
    pt_state_put(&s, root, "pair", pt_state_tuple(&s, in_tuple, 2));
    pt_state_put(&s, root, "global_step", step);
    cr_assert_eq(value_dict_put(pool, root, number, pt_state_tensor(&s, "c", 1), NULL), FSDPCK_OK);
    cr_assert_eq(reopen(root), FSDPCK_OK, "%s", err.message);

    cr_expect_eq(catalogue_tensor_count(&o.cat), 3);
    expect_tensor("list.1.0.w");
    expect_tensor("5");
    cr_expect_eq(catalogue_object_count(&o.cat), 5);
    cr_expect_not_null(object_of("list.0"));
    cr_expect_not_null(object_of("plain"));
    cr_expect_not_null(object_of("pair"));
    cr_expect_not_null(object_of("empty"));
    cr_expect_eq(o.cat.origin.step, 1200);

    const cat_tensor *t = catalogue_tensor(&o.cat, catalogue_find(&o.cat, "list.1.0.w", 10));
    cr_assert_eq(value_count(&o.cat.pool, t->path), 4);
    cr_expect_eq(value_kind_of(value_item(&o.cat.pool, t->path, 1)), VALUE_INT);
    cr_expect_eq(value_kind_of(value_item(&o.cat.pool, t->path, 3)), VALUE_STR);
    const value first = value_item(&o.cat.pool, object_of("pair")->content, 0);
    cr_assert_eq(value_kind_of(first), VALUE_TENSOR);
    cr_expect(catalogue_tensor(&o.cat, value_tensor_index(first))->flags & CAT_TENSOR_IN_OBJECT);
    cr_expect_eq(catalogue_chunk(&o.cat, 0)->place, LOCATION_ROWS);
    pt_checkpoint_close(&o);
}

Test(pt_reader, a_container_at_two_places_gives_two_names_to_each_tensor)
{
    value left, right, a, b;

    pt_state_begin(&s);
    const value root = pt_state_dict(&s), shared = pt_state_dict(&s);
    pt_state_put(&s, shared, "w", pt_state_tensor(&s, "w", 4));
    pt_state_put(&s, root, "left", shared);
    pt_state_put(&s, root, "right", shared);
    cr_assert_eq(reopen(root), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(catalogue_tensor_count(&o.cat), 3);
    const cat_tensor *storage = catalogue_tensor(&o.cat, 2);
    cr_expect(storage->flags & CAT_TENSOR_STORAGE);
    cr_expect_eq(catalogue_shape(&o.cat, 2)[0], 4);
    cr_expect_eq(catalogue_tensor(&o.cat, 0)->alias, 2);
    expect_tensor("left.w");
    expect_tensor("right.w");
    cr_expect_eq(catalogue_tensor(&o.cat, 0)->alias, catalogue_tensor(&o.cat, 1)->alias);
    /* Each place of the tree has the index of its own tensor. */
    cr_assert(value_dict_find(&o.cat.pool, o.cat.root, "left", &left) &&
              value_dict_find(&o.cat.pool, left, "w", &a));
    cr_assert(value_dict_find(&o.cat.pool, o.cat.root, "right", &right) &&
              value_dict_find(&o.cat.pool, right, "w", &b));
    cr_expect_eq(value_tensor_index(a), catalogue_find(&o.cat, "left.w", 6));
    cr_expect_eq(value_tensor_index(b), catalogue_find(&o.cat, "right.w", 7));
    pt_checkpoint_close(&o);
}

Test(pt_reader, two_places_of_one_flat_key)
{
    pt_state_begin(&s);
    const value root = pt_state_dict(&s), inner = pt_state_dict(&s);
    pt_state_put(&s, inner, "b", pt_state_tensor(&s, "x", 1));
    pt_state_put(&s, root, "a", inner);
    pt_state_put(&s, root, "a.b", pt_state_tensor(&s, "y", 1));
    cr_assert_eq(reopen(root), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "KEY-DUP");
    cr_expect_str_eq(err.tensor, "a.b");
    cr_expect_not_null(strstr(err.expected, "('a', 'b')"), "%s", err.expected);
    cr_expect_not_null(strstr(err.found, "('a.b',)"), "%s", err.found);
    cr_expect_not_null(strstr(err.path, "state.pt"));
    pt_checkpoint_close(&o);
}

/* Both would have one path. */
Test(pt_reader, two_keys_of_one_text)
{
    pt_state_begin(&s);
    const value root = pt_state_dict(&s), outer = pt_state_dict(&s);
    const value a = pt_state_dict(&s), b = pt_state_dict(&s);
    pt_state_put(&s, a, "x", pt_state_tensor(&s, "x", 1));
    pt_state_put(&s, b, "y", pt_state_tensor(&s, "y", 1));
    cr_assert_eq(value_dict_put(&s.t.cat.pool, outer, VALUE_OF_NONE, a, &err), FSDPCK_OK);
    pt_state_put(&s, outer, "None", b);
    pt_state_put(&s, root, "m", outer);
    cr_assert_eq(reopen(root), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "KEY-DUP");
    cr_expect_str_eq(err.tensor, "m");
    cr_expect_str_eq(err.expected, "one of them: None");
    cr_expect_str_eq(err.found, "also 'None'");
    pt_checkpoint_close(&o);
}

Test(pt_reader, state_that_contains_itself)
{
    pt_state_begin(&s);
    const value root = pt_state_dict(&s), inner = pt_state_dict(&s);
    pt_state_put(&s, inner, "up", root);
    pt_state_put(&s, root, "down", inner);
    cr_assert_eq(reopen(root), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "PKL-CYCLE");
    pt_checkpoint_close(&o);
}

/* 60 levels of {'l': x, 'r': x}: 2^60 places. */
Test(pt_reader, shared_dicts_that_expand_without_end)
{
    pt_state_begin(&s);
    value root = pt_state_dict(&s);
    for (int i = 0; i < 60; i++) {
        const value above = pt_state_dict(&s);
        pt_state_put(&s, above, "l", root);
        pt_state_put(&s, above, "r", root);
        root = above;
    }
    cr_assert_eq(reopen(root), FSDPCK_LIMIT, "%s", err.message);
    pt_checkpoint_close(&o);
}

Test(pt_reader, distributed_tensors_are_refused_by_name)
{
    pt_state_begin(&s);
    const value root = pt_state_dict(&s), state = pt_state_dict(&s), spec = pt_state_dict(&s);
    pt_state_put(&s, state, "_local_tensor", pt_state_tensor(&s, "x", 1));
    pt_state_put(&s, state, "_spec", spec);
    const value args[] = {pt_state_symbol(&s, "torch._utils", "_rebuild_wrapper_subclass"),
                          pt_state_symbol(&s, "torch.distributed.tensor", "DTensor"),
                          pt_state_tuple(&s, NULL, 0), state};
    pt_state_put(&s, root, "weight",
                 pt_state_call(&s, "torch._tensor", "_rebuild_from_type_v2", args, 4));
    cr_assert_eq(reopen(root), FSDPCK_UNSUPPORTED, "%s", err.message);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "PT-TENSOR-KIND");
    cr_expect_str_eq(err.tensor, "weight");
    cr_expect_not_null(strstr(err.next, "pt-ranks"));
    pt_checkpoint_close(&o);
}

Test(pt_reader, a_root_that_is_no_dict)
{
    pt_state_begin(&s);
    cr_assert_eq(reopen(pt_state_tensor(&s, "x", 2)), FSDPCK_OK, "%s", err.message);
    expect_tensor("tensor");
    pt_checkpoint_close(&o);
    pt_state_begin(&s);
    cr_assert_eq(reopen(pt_state_str(&s, "text")), FSDPCK_OK, "%s", err.message);
    cr_expect_not_null(object_of("object"));
    pt_checkpoint_close(&o);
}

Test(pt_reader, probe_goes_by_content)
{
    const char *near_miss = NULL;
    probe_input in = {
        .path = "x", .name = "x", .nbytes = 100, .head = "PK\3\4", .head_nbytes = 100};

    cr_expect(pt_reader.probe(&in, &near_miss));
    in.is_folder = true;
    cr_expect_not(pt_reader.probe(&in, &near_miss));
    in.is_folder = false;
    memcpy(in.head, "\x80\2}.", 4);
    cr_expect_not(pt_reader.probe(&in, &near_miss));
    cr_expect_not_null(near_miss);
    in.name = "x.pt";
    cr_expect(pt_reader.probe(&in, &near_miss));
}
