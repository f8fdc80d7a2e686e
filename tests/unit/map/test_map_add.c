/* The operation add of tensor maps: constants, and refusals. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/map_case.h"

static fsdpck_error err;

static fsdpck_status apply(map_case *c, const char *text, const char *set)
{
    fsdpck_error_init(&err);
    map_case_init(c);
    map_case_add(c, "norm.0", 1, (uint64_t[]){8}, 3);
    map_case_add(c, "norm.1", 1, (uint64_t[]){8}, 1);
    map_case_add(c, "w", 2, (uint64_t[]){4, 6}, 2);
    c->set = set;
    return map_case_apply(c, text, strlen(text), NULL, 0, &err);
}

/* The constant of all chunks of a tensor. */
static int added(const map_case *c, const catalogue *seen, const source *src, const char *name)
{
    const uint32_t tensor = catalogue_find(seen, name, strlen(name));
    cr_assert(tensor != CAT_NONE, "no target '%s'", name);
    const cat_tensor *t = catalogue_tensor(seen, tensor);
    int constant = 0;
    cr_assert_gt(t->nchunks, 0);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        place where = {0};
        cr_assert(src->locate(src->ctx, k, &where, &err) == FSDPCK_OK);
        cr_assert(k == t->first_chunk || where.add == constant);
        constant = where.add;
    }
    (void)c;
    return constant;
}

static int added_by_export(const map_case *c, const char *name)
{
    return added(c, &c->seen, map_adapter_source(c->adapter), name);
}

Test(map_add, constants_of_chunks)
{
    static const char text[] = "let off = 0\n"
                               "norm.0 -> n.0 : add off\n"
                               "norm.1 -> n.1 : add -off\n"
                               "w -> a, b : transpose 0 1, add 1, split 0\n";
    static const char *const sets[] = {NULL, "off=0", "off=1"};
    for (int i = 0; i < 3; i++) {
        map_case c;
        const int off = i == 2;
        cr_assert(apply(&c, text, sets[i]) == FSDPCK_OK, "%s", err.message);
        cr_assert_eq(added_by_export(&c, "n.0"), off);
        cr_assert_eq(added_by_export(&c, "n.1"), -off);
        cr_assert_eq(added_by_export(&c, "a"), 1);
        cr_assert_eq(added_by_export(&c, "b"), 1);
        /* Without a constant the rule only renames. */
        cr_assert_eq(map_adapter_renamed(c.adapter, 0) == CAT_NONE, off == 1);
        map_case_release(&c);
    }
}

Test(map_add, stacked_and_imported)
{
    map_case c;
    map_step back = {0};
    uint32_t numbers[24];
    cr_assert(apply(&c, "norm.{n} -> all : stack n, add 1\nw -> w : add -1\n", NULL) == FSDPCK_OK,
              "%s", err.message);
    cr_assert_eq(added_by_export(&c, "all"), 1);
    cr_assert_eq(added_by_export(&c, "w"), -1);
    /* The inverse adds the opposite: the sums are 0. */
    cr_assert(map_step_apply(&back, &c, NULL, true, &err) == FSDPCK_OK, "%s", err.message);
    const source *src = map_adapter_source(back.adapter);
    cr_assert_eq(added(&c, &back.seen, src, "norm.1"), 0);
    cr_assert_eq(added(&c, &back.seen, src, "w"), 0);
    const cat_tensor *t = catalogue_tensor(&back.seen, catalogue_find(&back.seen, "w", 1));
    cr_assert_eq(map_adapter_added(back.adapter, t->first_chunk), 1);
    cr_assert_eq(map_step_gather(&back, &c, catalogue_find(&back.seen, "w", 1), numbers, 24), 24);
    map_step_release(&back);
    map_case_release(&c);
}

typedef struct refusal {
    const char *text, *message;
} refusal;

static void check_refusals(const refusal *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        map_case c;
        cr_assert(apply(&c, list[i].text, NULL) == FSDPCK_USAGE, "%s", list[i].text);
        cr_assert_eq(err.finding, FSDPCK_FINDING_MAP_SYNTAX);
        cr_assert(strstr(err.message, list[i].message) != NULL, "'%s' gave '%s'", list[i].text,
                  err.message);
        map_case_release(&c);
    }
}

/* The braces belong to the names of tensors. */
Test(map_add, names_of_stack_and_unstack)
{
    static const refusal list[] = {
        {"a.{n} -> b : stack m\n",
         "expected a name that is in braces in the rule, without braces: n"},
        {"a.{n} -> b : stack {n}\n", "line 1, column 20: expected n, without braces, found '{n}'"},
        {"a.{n} -> b.{n}.{e} : unstack {e}\n", "expected e, without braces, found '{e}'"},
        {"a.{n} -> b.{n}.{e} : unstack {i}\n", "without braces: n, e, found '{i}'"},
        {"a -> b : stack n\n", "expected a name that a source or target has in braces"},
    };
    check_refusals(list, sizeof list / sizeof *list);
}

Test(map_add, refused_with_line_and_column)
{
    static const refusal list[] = {
        {"w -> w : add\n", "line 1, column 13: expected an argument of the operation"},
        {"w -> w : add 0\n", "line 1, column 14: expected 1, -1, or a variable of 'let NAME = 0'"},
        {"w -> w : add 2\n", "line 1, column 14: expected 1, -1, or a variable"},
        {"w -> w : add 11\n", "line 1, column 14: expected 1, -1, or a variable"},
        {"w -> w : add 1.0\n", "line 1, column 14: expected 1, -1, or a variable"},
        {"w -> w : add -\n", "line 1, column 14: expected 1, -1, or a variable"},
        {"w -> w : add --1\n", "line 1, column 14: expected 1, -1, or a variable"},
        {"w -> w : add heads\n", "line 1, column 14: expected 1, -1, or a variable"},
        {"let n = 0\nw -> w : add n 1\n", "line 2, column 16: expected ',' or the end"},
        {"w -> w : add 1, add -1\n", "line 1, column 17: add: expected one add"},
        {"w -> w : add 1,\n", "line 1, column 15: expected rope"},
        {"let n = 0 or m\n", "line 1, column 11: expected the end of the line, found 'or'"},
        {"let n = m or 0 or k\n", "line 1, column 16: expected the end of the line, found 'or'"},
        {"let n = m or 1\n", "line 1, column 14: expected a key of config.json, or 0"},
        {"let n = 1\n", "line 1, column 9: expected a key of config.json, or 0"},
        {"let n = 0,\n", "line 1, column 9: expected a key of config.json, or 0"},
        {"let n = 0\nw -> w : rope n\n", "line 2, column 15: expected a positive number"},
        {"let n = 0\nw.{i} -> w.{i+n}\n", "line 2, column 15: expected a number or a variable"},
    };
    check_refusals(list, sizeof list / sizeof *list);
}

Test(map_add, switches_take_0_or_1)
{
    map_case c;
    static const char text[] = "let off = 0\nkeep *\nx -> y : add off\n";
    cr_assert(apply(&c, text, "off=2") == FSDPCK_USAGE);
    cr_assert_eq(err.finding, FSDPCK_FINDING_MAP_VARIABLE);
    cr_assert_str_eq(err.expected, "NAME=N with 0 or 1");
    map_case_release(&c);
    cr_assert(apply(&c, text, "off=") == FSDPCK_USAGE);
    map_case_release(&c);
}
