/* map_arguments.c: values of the variables of a map, from the arguments of the training run or params.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "map/map_internal.h"

#define ARGUMENT_MAX ((uint64_t)1 << 40)

/* --- lines of a map --- */

static fsdpck_status unexpected(const map_word *words, uint32_t count, uint32_t at,
                                uint32_t end_column, const char *expected, fsdpck_error *err)
{
    if (at >= count)
        return map_syntax_error((map_at){words[0].at.line, end_column}, expected, NULL, 0, err);
    return map_syntax_error(words[at].at, expected, words[at].text, words[at].nbytes, err);
}

/* refuse ARGUMENT[, ARGUMENT]... */
fsdpck_status map_read_refuse(tensor_map *m, const map_word *words, uint32_t count,
                              uint32_t end_column, fsdpck_error *err)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t id;
        if (!map_is_name(words[i].text, words[i].nbytes) || words[i].comma != (i + 1 < count))
            return unexpected(words, count, i, end_column,
                              "arguments of the training with ',' between them", err);
        RETURN_IF(strtab_intern(&m->texts, words[i].text, words[i].nbytes, &id, err));
        RETURN_IF(vec_add(&m->refused, &id, err));
    }
    return FSDPCK_OK;
}

/* expect ARGUMENT = VALUE [or VALUE]... */
fsdpck_status map_read_expect(tensor_map *m, const map_word *words, uint32_t count,
                              uint32_t end_column, fsdpck_error *err)
{
    map_expected e = {.first_value = (uint32_t)m->keys.count};
    for (uint32_t i = 1; i < count || i < 4 || i % 2 == 1; i++) {
        const char *expected = i == 1       ? "an argument of the training"
                               : i == 2     ? "'='"
                               : i % 2 == 1 ? "a value"
                                            : "'or' or the end of the line";
        uint32_t id;
        if (i >= count || words[i].comma ||
            (i == 1 && !map_is_name(words[i].text, words[i].nbytes)) ||
            (i == 2 && !map_word_is(&words[i], "=")) ||
            (i > 2 && i % 2 == 0 && !map_word_is(&words[i], "or")))
            return unexpected(words, count, i, end_column, expected, err);
        if (i % 2 == 0)
            continue;
        RETURN_IF(strtab_intern(&m->texts, words[i].text, words[i].nbytes, &id, err));
        if (i == 1) {
            e.argument = id;
            continue;
        }
        RETURN_IF(vec_add(&m->keys, &id, err));
        e.nvalues++;
    }
    return vec_add(&m->expected, &e, err);
}

/* --- arguments --- */

/* Only the first key of a variable: the next ones may stand in for it where config.json omits it. */
static void set_argument(const tensor_map *m, map_variable_def *v, uint32_t key,
                         const map_argument *a)
{
    if (v->nkeys == 0 || *VEC_AT(&m->keys, const uint32_t, v->first_key) != key ||
        a->value > (v->is_switch ? 1 : ARGUMENT_MAX) || (a->value == 0 && !v->is_switch))
        return;
    v->has_argument = true;
    v->argument_may_differ = a->may_differ;
    v->argument = a->value;
    v->argument_note = a->note == NULL ? "" : a->note;
    v->argument_file = a->file;
}

void map_take_head_dim(tensor_map *m, uint64_t rows, const char *from)
{
    m->head_rows = rows;
    m->head_rows_from = from;
}

void map_take_argument(tensor_map *m, const map_argument *argument)
{
    static const char kv_channels[] = "kv_channels";
    const uint32_t key = strtab_find(&m->texts, argument->key, argument->key_nbytes);
    if (argument->key_nbytes == strlen(kv_channels) &&
        memcmp(argument->key, kv_channels, strlen(kv_channels)) == 0)
        map_take_head_dim(m, argument->value, "'kv_channels' of the training");
    if (key == STRTAB_NONE)
        return;
    for (size_t i = 0; i < m->variables.count; i++)
        set_argument(m, VEC_AT(&m->variables, map_variable_def, i), key, argument);
    for (size_t i = 0; i < m->refused.count; i++)
        if (*VEC_AT(&m->refused, const uint32_t, i) == key && argument->value != 0)
            m->refused_key = key;
}

static bool is_expected(const tensor_map *m, const map_expected *e, const char *text, size_t nbytes)
{
    for (uint32_t i = 0; i < e->nvalues; i++)
        if (strtab_is(&m->texts, *VEC_AT(&m->keys, const uint32_t, e->first_value + i), text,
                      nbytes))
            return true;
    return false;
}

void map_take_argument_text(tensor_map *m, const char *key, size_t key_nbytes, const char *text,
                            size_t nbytes)
{
    for (size_t i = 0; i < m->expected.count; i++) {
        map_expected *e = VEC_AT(&m->expected, map_expected, i);
        if (!strtab_is(&m->texts, e->argument, key, key_nbytes))
            continue;
        if (is_expected(m, e, text, nbytes))
            e->found[0] = '\0';
        else
            escape_text(e->found, sizeof e->found, nbytes == 0 ? "''" : text,
                        nbytes == 0 ? 2 : nbytes);
    }
}

static fsdpck_status check_expected(const tensor_map *m, fsdpck_error *err)
{
    for (size_t i = 0; i < m->expected.count; i++) {
        const map_expected *e = VEC_AT(&m->expected, const map_expected, i);
        text_buf values = {.limit_bytes = 300};
        if (e->found[0] == '\0')
            continue;
        for (uint32_t k = 0; k < e->nvalues; k++)
            text_printf(
                &values, "%s%s", k == 0 ? "" : " or ",
                strtab_text(&m->texts, *VEC_AT(&m->keys, const uint32_t, e->first_value + k)));
        const char *name = strtab_text(&m->texts, e->argument);
        const fsdpck_status st =
            FAIL_WITH(err, UNSUPPORTED, MAP_ARGUMENTS,
                      ("map does not convert a model trained with %s = %s", name, e->found),
                      (expected, "%s = %s", name, values.text == NULL ? "" : values.text),
                      (next, "write a map that converts such models, and that expects this value: "
                             "fsdpck-map(5)"));
        text_release(&values);
        return st;
    }
    return FSDPCK_OK;
}

static fsdpck_status fail_differs(const tensor_map *m, const map_variable_def *v, fsdpck_error *err)
{
    const uint32_t key = *VEC_AT(&m->keys, const uint32_t, v->first_key);
    const char *name = strtab_text(&m->texts, v->name);
    const char *from =
        v->argument_file != NULL ? v->argument_file : "the arguments of the training";
    return FAIL_WITH(
        err, BADINPUT, MAP_ARGUMENTS,
        ("config.json and %s differ in '%s'", from, strtab_text(&m->texts, key)),
        (expected, "%" PRIu64 ", as in %s", v->argument, from),
        (found, "%" PRIu64 " in config.json", v->value),
        (next,
         v->argument_file != NULL
             ? "give the config.json of this model with --config; if %s is of another model, "
               "copy that of this model beside the weights"
             : "give the config.json of this model, or the right value with --map-set %s=N",
         v->argument_file != NULL ? v->argument_file : name));
}

static fsdpck_status fail_by_user(const tensor_map *m, const map_variable_def *v, fsdpck_error *err)
{
    const char *name = strtab_text(&m->texts, v->name);
    return FAIL_WITH(
        err, BADINPUT, MAP_ARGUMENTS,
        ("--map-set %s=%" PRIu64 " contradicts %s", name, v->value, v->argument_file),
        (expected, "%" PRIu64 ", as in %s", v->argument, v->argument_file),
        (found, "%" PRIu64, v->value),
        (next,
         "omit --map-set %s; if %s is of another model, copy that of this model beside the weights",
         name, v->argument_file));
}

fsdpck_status map_apply_arguments(tensor_map *m, text_buf *used, fsdpck_error *err)
{
    if (m->refused_key != STRTAB_NONE)
        return FAIL_WITH(err, UNSUPPORTED, MAP_ARGUMENTS,
                         ("map does not convert a model trained with %s",
                          strtab_text(&m->texts, m->refused_key)),
                         (next,
                          "write a map that converts such models, and remove this name from its "
                          "'refuse' lines: fsdpck-map(5)"));
    RETURN_IF(check_expected(m, err));
    for (size_t i = 0; i < m->variables.count; i++) {
        map_variable_def *v = VEC_AT(&m->variables, map_variable_def, i);
        if (v->has_argument && v->by_user && v->argument_file != NULL && !v->argument_may_differ &&
            v->value != v->argument)
            return fail_by_user(m, v, err);
        if (!v->has_argument || v->by_user)
            continue;
        if (v->is_set && !v->is_switch && !v->argument_may_differ && v->value != v->argument)
            return fail_differs(m, v, err);
        if (v->is_set && (!v->is_switch || v->argument == 0))
            continue;
        v->is_set = true;
        v->value = v->argument;
        text_printf(used, "%s%s=%" PRIu64 "%s", used->nbytes == 0 ? "" : ", ",
                    strtab_text(&m->texts, v->name), v->value, v->argument_note);
    }
    return text_check(used, err);
}
