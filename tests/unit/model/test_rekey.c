#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statedict/rekey.h"

/* Catalogues are written down as paths: 'optim/state/#0/exp_avg' has an int key 0 of a dict, and
 * 'optim/param_groups/@0/lr' an index of a list. */

typedef struct stage {
    budget memory;
    catalogue cat;
    rekey_param params[16];
    uint64_t shapes[16][2];
    rekey_order order;
    optim_groups groups;
    unsigned warnings;
    char finding[32];
} stage;

static stage *s;

static void setup(void)
{
    s = calloc(1, sizeof *s);
    cr_assert_not_null(s);
    budget_init(&s->memory, 256u << 20, "metadata", NULL);
    catalogue_init(&s->cat, &s->memory);
    optim_groups_init(&s->groups, &s->memory);
    s->order.params = s->params;
}

static void teardown(void)
{
    catalogue_release(&s->cat);
    optim_groups_release(&s->groups);
    cr_expect_eq(s->memory.used_bytes, 0, "%" PRIu64 " bytes were not given back",
                 (uint64_t)s->memory.used_bytes);
    free(s);
}

TestSuite(rekey, .init = setup, .fini = teardown);

static value path_of(const char *text, char *name)
{
    value_pool *pool = &s->cat.pool;
    value elements[8], path;
    size_t count = 0;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    name[0] = '\0';
    for (char *at = strtok(copy, "/"); at != NULL; at = strtok(NULL, "/")) {
        const char *word = *at == '#' || *at == '@' ? at + 1 : at;
        fsdpck_status st;
        if (*at == '@')
            st = value_new_int(pool, atoi(word), &elements[count], NULL);
        else if (*at == '#')
            st = value_new_bytes(pool, word, strlen(word), &elements[count], NULL);
        else
            st = value_new_str(pool, word, strlen(word), &elements[count], NULL);
        cr_assert_eq(st, FSDPCK_OK);
        count++;
        strcat(name, name[0] == '\0' ? "" : ".");
        strcat(name, word);
    }
    cr_assert_eq(value_new_from(pool, VALUE_TUPLE, elements, count, &path, NULL), FSDPCK_OK);
    return path;
}

static uint32_t add_tensor(const char *path, unsigned ndim, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[2] = {rows, columns}, zeros[2] = {0};
    const cat_chunk k = {.place = PLACE_ROWS};
    char name[256];
    uint32_t tensor;
    const value v = path_of(path, name);
    cr_assert_eq(catalogue_add_tensor(&s->cat, name, strlen(name), DTYPE_FLOAT32, ndim, shape,
                                      &tensor, NULL),
                 FSDPCK_OK);
    catalogue_tensor(&s->cat, tensor)->path = v;
    cr_assert_eq(catalogue_add_chunk(&s->cat, tensor, zeros, shape, &k, NULL), FSDPCK_OK);
    return tensor;
}

static void add_object(const char *path, value content)
{
    char name[256];
    uint32_t object;
    const value v = path_of(path, name);
    cr_assert_eq(catalogue_add_object(&s->cat, name, strlen(name), &object, NULL), FSDPCK_OK);
    cat_object *o = catalogue_object(&s->cat, object);
    o->path = v;
    o->content = content;
    o->loaded = 1;
}

static value number(int64_t n)
{
    value v;
    cr_assert_eq(value_new_int(&s->cat.pool, n, &v, NULL), FSDPCK_OK);
    return v;
}

/* "0 1" are numbers, "a.w b" names; "" is an empty list. */
static value list_of(const char *text)
{
    value list, item;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    cr_assert_eq(value_new_list(&s->cat.pool, &list, NULL), FSDPCK_OK);
    for (char *at = strtok(copy, " "); at != NULL; at = strtok(NULL, " ")) {
        if (*at >= '0' && *at <= '9')
            item = number(atoi(at));
        else
            cr_assert_eq(value_new_str(&s->cat.pool, at, strlen(at), &item, NULL), FSDPCK_OK);
        cr_assert_eq(value_append(&s->cat.pool, list, item, NULL), FSDPCK_OK);
    }
    return list;
}

/* A parameter of the model part, with its tensor. */
static void add_param(const char *fqn, unsigned ndim, uint64_t rows, uint64_t columns)
{
    char path[256];
    snprintf(path, sizeof path, "model/%s", fqn);
    const uint32_t tensor = add_tensor(path, ndim, rows, columns);
    const uint32_t i = s->order.count++;
    s->shapes[i][0] = rows;
    s->shapes[i][1] = columns;
    s->params[i] = (rekey_param){.fqn = fqn,
                                 .fqn_nbytes = strlen(fqn),
                                 .shape = s->shapes[i],
                                 .ndim = ndim,
                                 .tensor = tensor};
}

static void hear(void *ctx, const log_line *line)
{
    (void)ctx;
    if (line->level != LOG_WARNING)
        return;
    s->warnings++;
    snprintf(s->finding, sizeof s->finding, "%s", fsdpck_finding_name(line->finding));
}

static fsdpck_status run(optim_keys to, fsdpck_error *err)
{
    const logger log = {.fn = hear};
    uint32_t count;
    fsdpck_error_init(err);
    if (!s->cat.sealed)
        cr_assert_eq(catalogue_seal(&s->cat, NULL), FSDPCK_OK);
    return rekey_run(&s->cat, &s->order, to, &log, &count, err);
}

static void must_run(optim_keys to)
{
    fsdpck_error err;
    const fsdpck_status st = run(to, &err);
    cr_assert_eq(st, FSDPCK_OK, "%s: %s %s", fsdpck_finding_name(err.finding), err.message,
                 err.found);
}

static void must_refuse(optim_keys to, const char *finding)
{
    fsdpck_error err;
    cr_assert_neq(run(to, &err), FSDPCK_OK);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding);
}

static void expect_tensor(const char *path)
{
    char name[256], shown[256];
    const value v = path_of(path, name);
    const uint32_t tensor = catalogue_find(&s->cat, name, strlen(name));
    text_buf text = {0};
    bool equal = false;
    cr_assert_neq(tensor, CAT_NONE, "no tensor '%s'", name);
    value_print(&s->cat.pool, catalogue_tensor(&s->cat, tensor)->path, 200, &text);
    snprintf(shown, sizeof shown, "%s", text.text);
    text_release(&text);
    cr_assert_eq(value_equal(&s->cat.pool, v, &s->cat.pool, catalogue_tensor(&s->cat, tensor)->path,
                             &equal, NULL),
                 FSDPCK_OK);
    cr_expect(equal, "'%s' has path %s", path, shown);
}

static void expect_object(const char *path, const char *printed)
{
    char name[256];
    const value v = path_of(path, name);
    for (size_t i = 0; i < catalogue_object_count(&s->cat); i++) {
        const cat_object *o = catalogue_object(&s->cat, i);
        bool equal = false;
        if (strcmp(catalogue_name(&s->cat, o->name), name) != 0)
            continue;
        cr_assert_eq(value_equal(&s->cat.pool, v, &s->cat.pool, o->path, &equal, NULL), FSDPCK_OK);
        cr_expect(equal, "path of '%s'", name);
        text_buf text = {0};
        value_print(&s->cat.pool, o->content, 400, &text);
        cr_expect_str_eq(text.text, printed, "'%s' is %s", name, text.text);
        text_release(&text);
        return;
    }
    cr_assert_fail("no object '%s'", name);
}

/* --- numbers to names --- */

static void add_adam(void)
{
    add_param("emb.weight", 2, 7, 4);
    add_param("norm.weight", 1, 4, 0);
    add_param("norm.scale", 1, 4, 0);
    add_param("head.weight", 2, 5, 4);
    add_tensor("optim/state/#0/step", 0, 0, 0);
    add_tensor("optim/state/#0/exp_avg", 2, 7, 4);
    add_tensor("optim/state/#1/exp_avg", 1, 4, 0);
    add_tensor("optim/state/#2/exp_avg", 1, 4, 0);
    add_tensor("optim/state/#3/exp_avg", 2, 5, 4);
}

Test(rekey, one_group_by_order)
{
    add_adam();
    s->order.assumed = true;
    add_object("optim/param_groups/@0/lr", number(3));
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/emb.weight/step");
    expect_tensor("optim/state/emb.weight/exp_avg");
    expect_tensor("optim/state/norm.scale/exp_avg");
    expect_tensor("optim/state/head.weight/exp_avg");
    expect_object("optim/param_groups/@0/params",
                  "['emb.weight', 'norm.weight', 'norm.scale', 'head.weight']");
    expect_object("optim/param_groups/@0/lr", "3");
    must_run(OPTIM_KEYS_ID);
    expect_tensor("optim/state/#3/exp_avg");
    expect_object("optim/param_groups/@0/params", "[0, 1, 2, 3]");
}

Test(rekey, groups_in_the_order_of_the_model)
{
    add_adam();
    s->order.assumed = true;
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    catalogue_object(&s->cat, 1)->content = list_of("0 3");
    catalogue_object(&s->cat, 0)->content = list_of("1 2");
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/head.weight/exp_avg");
    expect_object("optim/param_groups/@0/params", "['emb.weight', 'head.weight']");
    expect_object("optim/param_groups/@1/params", "['norm.weight', 'norm.scale']");
}

Test(rekey, two_of_one_shape_are_refused)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED"); /* 1 and 2 may be either norm */
}

Test(rekey, flattened_by_number_is_refused_too)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
    must_refuse(OPTIM_KEYS_FLAT, "MODEL-NEEDED");
}

/* A number that Adafactor's factors leave two parameters for has one once another took its own. */
Test(rekey, what_is_left_is_settled)
{
    add_param("b", 2, 6, 5);
    add_param("a", 2, 6, 3);
    add_param("c", 0, 0, 0);
    add_tensor("optim/state/#0/exp_avg", 0, 0, 0);
    add_tensor("optim/state/#1/row_var", 2, 6, 1);
    add_tensor("optim/state/#2/exp_avg", 2, 6, 5);
    add_object("optim/param_groups/@0/params", list_of("0 1 2"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/c/exp_avg");
    expect_tensor("optim/state/a/row_var");
    expect_tensor("optim/state/b/exp_avg");
}

/* Shapes settle whatever the order is. */
Test(rekey, another_order)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_param("unused", 1, 9, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 4, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['b', 'a']");
}

/* SGD without momentum: one group has all, so its members are known. */
Test(rekey, without_state_one_group_of_all_is_settled)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_object("optim/state/#0/momentum_buffer", VALUE_OF_NONE);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['a', 'b']");
}

Test(rekey, without_state_groups_are_not_settled)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    add_object("optim/param_groups/@1/params", list_of("1"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, without_state_a_part_is_not_settled)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

/* State of a kind that is not known tells no shape. */
Test(rekey, unknown_state_tells_nothing)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_tensor("optim/state/#0/preconditioner", 1, 3, 0);
    add_tensor("optim/state/#1/preconditioner", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

static void describe_groups(const char *key, const char *first, const char *second)
{
    cr_assert_eq(optim_groups_add(&s->groups, key, strlen(key), NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, first, strlen(first), NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, second, strlen(second), NULL), FSDPCK_OK);
    s->order.groups = &s->groups;
}

static void add_pair(void)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 3, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
}

Test(rekey, a_description_of_other_shapes_is_refused)
{
    add_pair();
    describe_groups("optim", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, given_names_of_other_shapes_are_refused)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("b a"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, a_description_against_given_names_is_refused)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("a b"));
    describe_groups("optim", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

/* A list under another key is no list of one of several optimizers. */
Test(rekey, one_list_for_two_optimizers_is_not_taken)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_tensor("one/state/#0/exp_avg", 1, 3, 0);
    add_tensor("one/state/#1/exp_avg", 1, 3, 0);
    add_tensor("two/state/#0/exp_avg", 1, 3, 0);
    add_tensor("two/state/#1/exp_avg", 1, 3, 0);
    add_object("one/param_groups/@0/params", list_of("0 1"));
    add_object("two/param_groups/@0/params", list_of("0 1"));
    describe_groups("any", "b", "a");
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, ambiguous_is_refused)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED"); /* either norm may be in either group */
}

Test(rekey, description_settles_it)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    cr_assert_eq(optim_groups_add(&s->groups, "optim", 5, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "emb.weight", 10, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "norm.scale", 10, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_open(&s->groups, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "norm.weight", 11, NULL), FSDPCK_OK);
    cr_assert_eq(optim_groups_put(&s->groups, "head.weight", 11, NULL), FSDPCK_OK);
    s->order.groups = &s->groups;
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['emb.weight', 'norm.scale']");
    must_run(OPTIM_KEYS_ID); /* in the order of the description, not of the model */
    expect_object("optim/param_groups/@0/params", "[0, 1]");
}

Test(rekey, other_shapes_are_refused)
{
    add_adam();
    add_tensor("optim/state/#4/exp_avg", 2, 9, 9);
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3 4"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, no_model_is_refused)
{
    add_tensor("state/#0/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("0"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, given_names_come_first)
{
    add_tensor("state/#0/exp_avg", 1, 4, 0);
    add_tensor("state/#1/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("0 1"));
    add_object("param_groups/@0/param_names", list_of("_orig_mod.b a"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("param_groups/@0/params", "['b', 'a']");
    expect_tensor("state/b/exp_avg");
}

Test(rekey, frozen_without_state_and_rows)
{
    add_param("a", 2, 6, 3);
    add_param("frozen", 2, 9, 9);
    add_param("b", 2, 3, 8);
    add_tensor("optim/state/#0/row_var", 2, 6, 1);
    add_tensor("optim/state/#0/col_var", 2, 1, 3);
    add_tensor("optim/state/#2/exp_avg_sq_row", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1 2"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a/row_var");
    expect_tensor("optim/state/b/exp_avg_sq_row");
}

/* --- several optimizers --- */

/* A tensor beside the model, which an optimizer may hold as well. */
static void add_outside(const char *fqn, unsigned ndim, uint64_t rows, uint64_t columns)
{
    add_param(fqn, ndim, rows, columns);
    s->params[s->order.count - 1].outside = true;
}

static void add_two_optimizers(void)
{
    add_param("pi", 1, 3, 0);
    add_tensor("one/state/#0/exp_avg", 1, 3, 0);
    add_tensor("two/state/#0/exp_avg", 1, 3, 0);
    add_object("one/param_groups/@0/params", list_of("0"));
    add_object("two/param_groups/@0/params", list_of("0"));
}

Test(rekey, two_optimizers_of_one_parameter_are_refused)
{
    add_two_optimizers();
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, two_optimizers_in_the_order_of_one_model_are_refused)
{
    add_two_optimizers();
    s->order.assumed = true;
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, names_of_one_of_two_optimizers_settle_nothing_for_the_other)
{
    add_two_optimizers();
    add_object("one/param_groups/@0/param_names", list_of("pi"));
    must_refuse(OPTIM_KEYS_FLAT, "MODEL-NEEDED");
}

Test(rekey, names_of_both_optimizers_are_believed)
{
    add_two_optimizers();
    add_object("one/param_groups/@0/param_names", list_of("pi"));
    add_object("two/param_groups/@0/param_names", list_of("pi"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("one/state/pi/exp_avg");
    expect_tensor("two/state/pi/exp_avg");
}

Test(rekey, a_tensor_beside_the_model_may_be_meant)
{
    add_param("x", 1, 5, 0);
    add_outside("criterion.log_vars", 1, 5, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 5, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

Test(rekey, the_order_is_that_of_the_model_alone)
{
    add_param("x", 1, 5, 0);
    add_outside("criterion.log_vars", 1, 5, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 5, 0);
    add_object("optim/param_groups/@0/params", list_of("0"));
    s->order.assumed = true;
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/x/exp_avg");
}

static bool is_open(const char *name)
{
    const uint32_t tensor = catalogue_find(&s->cat, name, strlen(name));
    cr_assert_neq(tensor, CAT_NONE);
    return (catalogue_tensor(&s->cat, tensor)->flags & CAT_TENSOR_PARAM_OPEN) != 0;
}

static void learn(void)
{
    const logger log = {0};
    cr_assert_eq(catalogue_seal(&s->cat, NULL), FSDPCK_OK);
    cr_assert_eq(rekey_learn(&s->cat, &s->order, &log, NULL), FSDPCK_OK);
}

Test(rekey, what_two_optimizers_could_mean_stays_open)
{
    add_two_optimizers();
    learn();
    cr_expect(is_open("one.state.0.exp_avg"));
    cr_expect(is_open("two.state.0.exp_avg"));
}

Test(rekey, groups_that_leave_the_order_open_stay_open)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@1/params", list_of("2 3"));
    s->order.assumed = true;
    learn();
    cr_expect_not(is_open("optim.state.0.exp_avg"));
    cr_expect(is_open("optim.state.1.exp_avg"));
    cr_expect(is_open("optim.state.2.exp_avg"));
}

Test(rekey, state_that_fits_nothing_stays_open)
{
    add_pair();
    add_tensor("optim/state/#0/exp_avg_sq", 1, 9, 0);
    learn();
    cr_expect(is_open("optim.state.0.exp_avg"));
    cr_expect(is_open("optim.state.1.exp_avg"));
}

/* Two numbers may be the two that need a gradient, or others. */
Test(rekey, frozen_ones_of_a_description_may_be_meant)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 3, 0);
    add_param("c", 1, 3, 0);
    s->params[1].frozen = true;
    add_tensor("optim/state/#0/exp_avg", 1, 3, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    s->order.assumed = true;
    s->order.described = true;
    must_refuse(OPTIM_KEYS_NAME, "MODEL-NEEDED");
}

/* --- param_names --- */

Test(rekey, given_names_of_a_wrapper_are_the_models)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("module.a module._orig_mod.b"));
    must_run(OPTIM_KEYS_NAME);
    expect_object("optim/param_groups/@0/params", "['a', 'b']");
}

Test(rekey, given_names_that_the_model_does_not_have_are_refused)
{
    add_pair();
    add_object("optim/param_groups/@0/param_names", list_of("a gone"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, given_names_of_what_is_beside_the_model_are_its_own)
{
    add_pair();
    add_outside("critic.q", 1, 6, 0);
    add_tensor("critic_optim/state/#0/exp_avg", 1, 6, 0);
    add_object("critic_optim/param_groups/@0/params", list_of("0"));
    add_object("critic_optim/param_groups/@0/param_names", list_of("q"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("critic_optim/state/q/exp_avg");
}

Test(rekey, given_names_of_a_tie_stay)
{
    add_pair();
    add_param("tied", 1, 4, 0);
    s->params[2].tied = true;
    s->params[2].tied_to = 1;
    add_object("optim/param_groups/@0/param_names", list_of("a tied"));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/tied/exp_avg");
}

/* A tie is no second parameter of its shape. */
Test(rekey, a_tie_is_no_parameter_of_its_own)
{
    add_pair();
    add_param("tied", 1, 4, 0);
    s->params[2].tied = true;
    s->params[2].tied_to = 1;
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/b/exp_avg");
}

/* --- names to numbers --- */

Test(rekey, sorted_names_may_be_the_optimizers_own)
{
    add_param("z", 1, 3, 0);
    add_param("a", 1, 4, 0);
    add_tensor("optim/state/a/exp_avg", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("a z"));
    must_refuse(OPTIM_KEYS_ID, "MODEL-NEEDED");
}

Test(rekey, sorted_names_follow_the_model)
{
    s->order.assumed = true;
    add_param("z", 1, 3, 0);
    add_param("a", 1, 4, 0);
    add_tensor("optim/state/a/exp_avg", 1, 4, 0);
    add_tensor("optim/state/z/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("a z"));
    must_run(OPTIM_KEYS_ID);
    expect_object("optim/param_groups/@0/params", "[0, 1]");
    char name[64];
    (void)path_of("optim/state/#0/exp_avg", name);
    const uint32_t first = catalogue_find(&s->cat, name, strlen(name));
    cr_expect_eq(catalogue_shape(&s->cat, first)[0], 3, "number 0 is the model's first");
    cr_expect_eq(s->warnings, 0);
}

Test(rekey, without_a_model_the_list_is_warned_of)
{
    add_tensor("state/a/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("b a"));
    must_run(OPTIM_KEYS_ID);
    expect_tensor("state/#1/exp_avg");
    cr_expect_eq(s->warnings, 1);
    cr_expect_str_eq(s->finding, "OPTIM-ORDER");
}

Test(rekey, state_that_no_group_lists_keeps_its_keys)
{
    add_tensor("state/a/exp_avg", 1, 4, 0);
    add_tensor("state/gone/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("a"));
    must_run(OPTIM_KEYS_ID);
    expect_tensor("state/#0/exp_avg");
    expect_tensor("state/gone/exp_avg");
    cr_expect_eq(s->warnings, 1);
    cr_expect_str_eq(s->finding, "OPTIM-STRAY");
}

Test(rekey, ddp_prefix_is_seen_through)
{
    s->order.assumed = true;
    add_param("b", 1, 3, 0);
    add_param("a", 1, 4, 0);
    add_tensor("optim/state/module.a/exp_avg", 1, 4, 0);
    add_object("optim/param_groups/@0/params", list_of("module.a module.b"));
    must_run(OPTIM_KEYS_ID);
    expect_tensor("optim/state/#1/exp_avg");
}

/* --- flattened --- */

Test(rekey, flattened_groups)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_param("c", 1, 5, 0);
    add_tensor("optim/state.a.exp_avg", 1, 3, 0);
    add_tensor("optim/state.c.exp_avg", 1, 5, 0);
    add_object("optim/param_groups.a.lr", number(1));
    add_object("optim/param_groups.b.lr", number(2));
    add_object("optim/param_groups.c.lr", number(1));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a/exp_avg");
    expect_object("optim/param_groups/@0/params", "['a', 'c']");
    expect_object("optim/param_groups/@0/lr", "1");
    expect_object("optim/param_groups/@1/params", "['b']");
    expect_object("optim/param_groups/@1/lr", "2");
    cr_expect_str_eq(s->finding, "OPTIM-GROUPS"); /* a, b, c may have been three */
    must_run(OPTIM_KEYS_FLAT);
    expect_tensor("optim/state.c.exp_avg");
    expect_object("optim/param_groups.c.lr", "1");
    cr_expect_eq(catalogue_object_count(&s->cat), 3);
}

Test(rekey, flattened_keys_may_have_dots)
{
    add_param("a", 1, 3, 0);
    add_param("a.b", 1, 3, 0);
    add_tensor("optim/state.a.b.exp_avg", 1, 3, 0);
    add_tensor("optim/state.a.exp_avg", 1, 3, 0);
    add_object("optim/param_groups.a.lr", number(1));
    add_object("optim/param_groups.a.b.lr", number(1));
    must_run(OPTIM_KEYS_NAME);
    expect_tensor("optim/state/a.b/exp_avg");
    expect_tensor("optim/state/a/exp_avg");
}

/* As torch: each parameter has the names of its whole group, and they give the order of numbers. */
Test(rekey, flattened_names_are_those_of_the_group)
{
    add_param("a", 1, 3, 0);
    add_param("b", 1, 4, 0);
    add_tensor("optim/state/#0/exp_avg", 1, 4, 0);
    add_tensor("optim/state/#1/exp_avg", 1, 3, 0);
    add_object("optim/param_groups/@0/params", list_of("0 1"));
    add_object("optim/param_groups/@0/param_names", list_of("b a"));
    must_run(OPTIM_KEYS_FLAT);
    expect_object("optim/param_groups.a.param_names", "['b', 'a']");
    expect_object("optim/param_groups.b.param_names", "['b', 'a']");
    must_run(OPTIM_KEYS_ID);
    expect_object("optim/param_groups/@0/params", "[0, 1]");
    expect_object("optim/param_groups/@0/param_names", "['b', 'a']");
    const uint32_t first = catalogue_find(&s->cat, "optim.state.0.exp_avg", 21);
    cr_assert_neq(first, CAT_NONE);
    cr_expect_eq(catalogue_shape(&s->cat, first)[0], 4, "number 0 is 'b'");
}

/* --- what cannot be --- */

Test(rekey, a_parameter_twice)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 1"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, numbers_and_names)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 emb.weight"));
    must_refuse(OPTIM_KEYS_NAME, "MODEL-OPTIM");
}

Test(rekey, no_list)
{
    add_adam();
    add_object("optim/param_groups/@0/params", number(1));
    must_refuse(OPTIM_KEYS_ID, "MODEL-OPTIM");
}

Test(rekey, too_many)
{
    value list;
    cr_assert_eq(value_new_list(&s->cat.pool, &list, NULL), FSDPCK_OK);
    for (int64_t i = 0; i <= INT64_C(1) << 22; i++)
        cr_assert_eq(value_append(&s->cat.pool, list, number(i), NULL), FSDPCK_OK);
    add_object("param_groups/@0/params", list);
    fsdpck_error err;
    cr_expect_eq(run(OPTIM_KEYS_NAME, &err), FSDPCK_LIMIT);
}

Test(rekey, two_names_that_are_one)
{
    add_tensor("state/_orig_mod.a/exp_avg", 1, 4, 0);
    add_tensor("state/a/exp_avg", 1, 4, 0);
    add_object("param_groups/@0/params", list_of("_orig_mod.a a"));
    must_refuse(OPTIM_KEYS_FLAT, "KEY-DUP");
}

Test(rekey, learning_changes_no_name)
{
    add_adam();
    add_object("optim/param_groups/@0/params", list_of("0 1 2 3"));
    cr_assert_eq(catalogue_seal(&s->cat, NULL), FSDPCK_OK);
    const logger log = {0};
    cr_assert_eq(rekey_learn(&s->cat, &s->order, &log, NULL), FSDPCK_OK);
    expect_tensor("optim/state/#3/exp_avg");
    const uint32_t tensor = catalogue_find(&s->cat, "optim.state.3.exp_avg", 21);
    cr_expect_str_eq(catalogue_name(&s->cat, catalogue_tensor(&s->cat, tensor)->param),
                     "head.weight");
    cr_expect_eq(catalogue_tensor(&s->cat, tensor)->flags & CAT_TENSOR_PARAM_OPEN, 0);
    const uint32_t open = catalogue_find(&s->cat, "optim.state.1.exp_avg", 21);
    cr_expect_neq(catalogue_tensor(&s->cat, open)->flags & CAT_TENSOR_PARAM_OPEN, 0);
}
