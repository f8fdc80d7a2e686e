/* rekey_case.h: a checkpoint of a model and its optimizer, made row by row, for the tests of rekey. */
#ifndef FSDPCK_TESTS_UNIT_STATEDICT_REKEY_CASE_H
#define FSDPCK_TESTS_UNIT_STATEDICT_REKEY_CASE_H

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
    const cat_chunk k = {.place = LOCATION_ROWS};
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

#endif
