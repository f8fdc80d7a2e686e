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
    char fqns[16][64];
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

/* "PATH 6x3", "PATH 3", or "PATH" for no dims. */
static uint32_t add_tensor(const char *row)
{
    const uint64_t zeros[2] = {0};
    const cat_chunk k = {.place = LOCATION_ROWS};
    uint64_t shape[2] = {0};
    char path[256], name[256];
    uint32_t tensor;
    const int words = sscanf(row, "%255s %" SCNu64 "x%" SCNu64, path, &shape[0], &shape[1]);
    const value v = path_of(path, name);
    cr_assert_eq(catalogue_add_tensor(&s->cat, name, strlen(name), DTYPE_FLOAT32,
                                      (unsigned)words - 1, shape, &tensor, NULL),
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

/* "[0 1]" has numbers, "[a.w b]" names. */
static value list_of(const char *text)
{
    value list, item;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    cr_assert_eq(value_new_list(&s->cat.pool, &list, NULL), FSDPCK_OK);
    for (char *at = strtok(copy, "[ ]"); at != NULL; at = strtok(NULL, "[ ]")) {
        if (*at >= '0' && *at <= '9')
            item = number(atoi(at));
        else
            cr_assert_eq(value_new_str(&s->cat.pool, at, strlen(at), &item, NULL), FSDPCK_OK);
        cr_assert_eq(value_append(&s->cat.pool, list, item, NULL), FSDPCK_OK);
    }
    return list;
}

/* "FQN SIZE": a parameter of the model part, with its tensor; "outside FQN SIZE": a tensor beside
 * the model, which an optimizer may hold as well. */
static void add_param(const char *row)
{
    const bool outside = strncmp(row, "outside ", 8) == 0;
    const uint32_t i = s->order.count++;
    char path[256];
    row += outside ? 8 : 0;
    snprintf(path, sizeof path, "model/%s", row);
    snprintf(s->fqns[i], sizeof s->fqns[i], "%.*s", (int)strcspn(row, " "), row);
    const uint32_t tensor = add_tensor(path);
    const unsigned ndim = catalogue_tensor(&s->cat, tensor)->ndim;
    memcpy(s->shapes[i], catalogue_shape(&s->cat, tensor), ndim * sizeof *s->shapes[i]);
    s->params[i] = (rekey_param){.fqn = s->fqns[i],
                                 .fqn_nbytes = strlen(s->fqns[i]),
                                 .shape = s->shapes[i],
                                 .ndim = ndim,
                                 .tensor = tensor,
                                 .outside = outside};
}

/* Adds rows that end with ';': "FQN SIZE" a parameter, "PATH SIZE" a tensor, "PATH = [0 1]",
 * "PATH = 3" or "PATH = none" an object; "in order": the optimizer has the model's order. */
static void given(const char *rows)
{
    char copy[1024], *rest = copy;
    cr_assert_lt(snprintf(copy, sizeof copy, "%s", rows), (int)sizeof copy);
    for (char *row; (row = strtok_r(rest, ";", &rest)) != NULL;) {
        row += strspn(row, " ");
        char *equals = strstr(row, " = ");
        if (strcmp(row, "in order") == 0) {
            s->order.assumed = true;
        } else if (equals != NULL) {
            *equals = '\0';
            const char *text = equals + 3;
            add_object(row, *text == '['   ? list_of(text)
                            : *text == 'n' ? VALUE_OF_NONE
                                           : number(atoi(text)));
        } else if (strchr(row, '/') != NULL) {
            (void)add_tensor(row);
        } else {
            add_param(row);
        }
    }
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

#define ADAM                                                                     \
    "emb.weight 7x4; norm.weight 4; norm.scale 4; head.weight 5x4;"              \
    "optim/state/#0/step; optim/state/#0/exp_avg 7x4; optim/state/#1/exp_avg 4;" \
    "optim/state/#2/exp_avg 4; optim/state/#3/exp_avg 5x4;"
#define PAIR                                                        \
    "a 3; b 4; optim/state/#0/exp_avg 3; optim/state/#1/exp_avg 4;" \
    "optim/param_groups/@0/params = [0 1];"
#define TWO_OPTIMIZERS                                      \
    "pi 3; one/state/#0/exp_avg 3; two/state/#0/exp_avg 3;" \
    "one/param_groups/@0/params = [0]; two/param_groups/@0/params = [0];"

#endif
