/* Optimizer state of random optimizers, keyed by name, by number and flattened: there and back is the
 * identity for every name, path and list; and whatever is written into the lists or paths of a
 * catalogue is accepted or refused, never misread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "statedict/rekey.h"
#include "tests/support/must.h"
#include "tests/support/random.h"

#define ROUNDS     400u
#define PARAMS_MAX 24u
#define GROUPS_MAX 4u

static uint64_t seed = 12345;

static uint32_t pick(uint32_t below)
{
    return (uint32_t)random_below(&seed, below);
}

typedef struct trial {
    budget memory;
    catalogue cat;
    uint32_t nparams, ngroups;
    uint32_t group[PARAMS_MAX];
    char names[PARAMS_MAX][32];
    uint64_t shapes[PARAMS_MAX][2];
    rekey_param params[PARAMS_MAX];
} trial;

static value text_value(trial *t, const char *text)
{
    value v;
    must(value_new_str(&t->cat.pool, text, strlen(text), &v, NULL) == FSDPCK_OK, "str");
    return v;
}

static value int_value(trial *t, int64_t n)
{
    value v;
    must(value_new_int(&t->cat.pool, n, &v, NULL) == FSDPCK_OK, "int");
    return v;
}

static value path3(trial *t, const char *a, value b, const char *c)
{
    const value items[4] = {text_value(t, "optim"), text_value(t, a), b, text_value(t, c)};
    value path;
    must(value_new_from(&t->cat.pool, VALUE_TUPLE, items, 4, &path, NULL) == FSDPCK_OK, "path");
    return path;
}

static uint32_t add_tensor(trial *t, const char *name, unsigned ndim, const uint64_t *shape)
{
    const uint64_t zeros[2] = {0};
    const cat_chunk k = {.place = LOCATION_ROWS};
    uint32_t tensor;
    must(catalogue_add_tensor(&t->cat, name, strlen(name), DTYPE_FLOAT32, ndim, shape, &tensor,
                              NULL) == FSDPCK_OK,
         "tensor");
    must(catalogue_add_chunk(&t->cat, tensor, zeros, shape, &k, NULL) == FSDPCK_OK, "chunk");
    return tensor;
}

static void add_object(trial *t, const char *name, value path, value content)
{
    uint32_t object;
    must(catalogue_add_object(&t->cat, name, strlen(name), &object, NULL) == FSDPCK_OK, "object");
    cat_object *o = catalogue_object(&t->cat, object);
    o->path = path;
    o->content = content;
    o->loaded = 1;
}

/* Parameters whose shapes are all different, so that numbers always have one meaning. */
static void make(trial *t)
{
    char name[96];
    memset(t, 0, sizeof *t);
    budget_init(&t->memory, 64u << 20, "metadata", NULL);
    catalogue_init(&t->cat, &t->memory);
    t->nparams = 1 + pick(PARAMS_MAX);
    t->ngroups = 1 + pick(GROUPS_MAX);
    for (uint32_t i = 0; i < t->nparams; i++) {
        snprintf(t->names[i], sizeof t->names[i], "l%" PRIu32 ".%s", i, pick(2) ? "weight" : "a.b");
        t->shapes[i][0] = i + 1;
        t->shapes[i][1] = 3;
        t->group[i] = pick(t->ngroups);
        t->params[i] = (rekey_param){.fqn = t->names[i],
                                     .fqn_nbytes = strlen(t->names[i]),
                                     .shape = t->shapes[i],
                                     .ndim = 2,
                                     .tensor = CAT_NONE};
        snprintf(name, sizeof name, "model.%s", t->names[i]);
        (void)add_tensor(t, name, 2, t->shapes[i]);
    }
    for (uint32_t g = 0, number = 0; g < t->ngroups; g++) {
        value list;
        must(value_new_list(&t->cat.pool, &list, NULL) == FSDPCK_OK, "list");
        for (uint32_t i = 0; i < t->nparams; i++) {
            char digits[16];
            value key;
            if (t->group[i] != g)
                continue;
            must(value_append(&t->cat.pool, list, int_value(t, number), NULL) == FSDPCK_OK, "item");
            snprintf(digits, sizeof digits, "%" PRIu32, number++);
            snprintf(name, sizeof name, "optim.state.%s.exp_avg", digits);
            must(value_new_bytes(&t->cat.pool, digits, strlen(digits), &key, NULL) == FSDPCK_OK,
                 "key");
            const uint32_t tensor = add_tensor(t, name, 2, t->shapes[i]);
            catalogue_tensor(&t->cat, tensor)->path = path3(t, "state", key, "exp_avg");
        }
        snprintf(name, sizeof name, "optim.param_groups.%" PRIu32 ".params", g);
        add_object(t, name, path3(t, "param_groups", int_value(t, g), "params"), list);
        snprintf(name, sizeof name, "optim.param_groups.%" PRIu32 ".lr", g);
        add_object(t, name, path3(t, "param_groups", int_value(t, g), "lr"), int_value(t, 100 + g));
    }
}

static fsdpck_status rekey_to(trial *t, optim_keys to)
{
    const rekey_order order = {.params = t->params, .count = t->nparams};
    const logger log = {0};
    uint32_t count;
    return rekey_run(&t->cat, &order, to, &log, &count, NULL);
}

/* All names, paths and contents as one text. */
static void print(const trial *t, text_buf *out)
{
    const catalogue *c = &t->cat;
    out->nbytes = 0;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const cat_tensor *tensor = catalogue_tensor(c, i);
        text_printf(out, "%s ", catalogue_name(c, tensor->name));
        value_print(&c->pool, tensor->path, 200, out);
        text_puts(out, "\n");
    }
    for (size_t i = 0; i < catalogue_object_count(c); i++) {
        const cat_object *o = catalogue_object(c, i);
        text_printf(out, "%s ", catalogue_name(c, o->name));
        value_print(&c->pool, o->path, 200, out);
        value_print(&c->pool, o->content, 4000, out);
        text_puts(out, "\n");
    }
    must(!out->failed, "text");
}

static void release(trial *t)
{
    catalogue_release(&t->cat);
    must(t->memory.used_bytes == 0, "memory was not given back");
}

/* The flattened form has no place for a group without parameters. */
static void to_flattened_and_back(trial *t)
{
    bool filled[GROUPS_MAX] = {false};
    bool can = true;
    for (uint32_t i = 0; i < t->nparams; i++)
        filled[t->group[i]] = true;
    for (uint32_t g = 0; g < t->ngroups; g++)
        can = can && filled[g];
    must(rekey_to(t, OPTIM_KEYS_NAME) == FSDPCK_OK, "to names again");
    must(rekey_to(t, OPTIM_KEYS_FLAT) == (can ? FSDPCK_OK : FSDPCK_UNSUPPORTED),
         "to the flattened form");
    if (!can)
        return;
    for (uint32_t i = 0; i < t->nparams; i++) {
        char name[96];
        snprintf(name, sizeof name, "optim.state.%s.exp_avg", t->names[i]);
        must(catalogue_find(&t->cat, name, strlen(name)) != CAT_NONE, "flattened state");
    }
    must(catalogue_object_count(&t->cat) == t->nparams, "a hyper-parameter of each parameter");
    must(rekey_to(t, OPTIM_KEYS_ID) == FSDPCK_OK, "from the flattened form");
}

static void there_and_back(void)
{
    text_buf before = {0}, named = {0}, after = {0};
    trial t;
    make(&t);
    must(catalogue_seal(&t.cat, NULL) == FSDPCK_OK, "seal");
    print(&t, &before);
    must(rekey_to(&t, OPTIM_KEYS_NAME) == FSDPCK_OK, "to names");
    print(&t, &named);
    must(strcmp(before.text, named.text) != 0, "nothing was renamed");
    for (uint32_t i = 0; i < t.nparams; i++) {
        char name[96];
        snprintf(name, sizeof name, "optim.state.%s.exp_avg", t.names[i]);
        const uint32_t tensor = catalogue_find(&t.cat, name, strlen(name));
        must(tensor != CAT_NONE, "a parameter's state is not there");
        must(memcmp(catalogue_shape(&t.cat, tensor), t.shapes[i], sizeof t.shapes[i]) == 0,
             "state of another parameter");
    }
    must(rekey_to(&t, OPTIM_KEYS_ID) == FSDPCK_OK, "to numbers");
    print(&t, &after);
    must(strcmp(before.text, after.text) == 0, "numbers to names and back");
    to_flattened_and_back(&t);
    text_release(&before);
    text_release(&named);
    text_release(&after);
    release(&t);
}

static value odd_value(trial *t)
{
    static const char *const words[] = {"l0.weight",
                                        "state",
                                        "param_groups",
                                        "0",
                                        "",
                                        "params",
                                        "state.l0.weight.exp_avg",
                                        "param_groups.l0.weight.lr"};
    switch (pick(6)) {
    case 0:
        return VALUE_OF_NONE;
    case 1:
        return int_value(t, (int64_t)pick(40) - 3);
    case 2:
        return int_value(t, INT64_MAX - pick(3));
    case 3:
        return value_of_tensor(pick(3));
    default:
        return text_value(t, words[pick(sizeof words / sizeof *words)]);
    }
}

/* Some list items, contents and path elements become something else. */
static void hostile(void)
{
    trial t;
    make(&t);
    for (uint32_t n = pick(6); n > 0; n--) {
        cat_object *o = catalogue_object(&t.cat, pick((uint32_t)catalogue_object_count(&t.cat)));
        const size_t count = value_count(&t.cat.pool, o->content);
        if (count > 0 && pick(3) > 0)
            value_set_item(&t.cat.pool, o->content, pick((uint32_t)count), odd_value(&t));
        else
            o->content = odd_value(&t);
    }
    for (uint32_t n = pick(4); n > 0; n--) {
        cat_tensor *x = catalogue_tensor(&t.cat, pick((uint32_t)catalogue_tensor_count(&t.cat)));
        value elements[5];
        const uint32_t count = 1 + pick(5);
        for (uint32_t i = 0; i < count; i++)
            elements[i] = i < value_count(&t.cat.pool, x->path) && pick(4) > 0
                              ? value_item(&t.cat.pool, x->path, i)
                              : odd_value(&t);
        must(value_new_from(&t.cat.pool, VALUE_TUPLE, elements, count, &x->path, NULL) == FSDPCK_OK,
             "path");
    }
    must(catalogue_seal(&t.cat, NULL) == FSDPCK_OK, "seal");
    (void)!rekey_to(&t, (optim_keys)(1 + pick(3)));
    release(&t);
}

int main(void)
{
    for (unsigned i = 0; i < ROUNDS; i++)
        there_and_back();
    for (unsigned i = 0; i < 20 * ROUNDS; i++)
        hostile();
    return 0;
}
