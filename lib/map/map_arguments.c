/* map_arguments.c: values of the variables of a map, from the arguments of the training run. */
#include <inttypes.h>
#include <string.h>

#include "map/map_internal.h"

#define ARGUMENT_MAX ((uint64_t)1 << 40)

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
}

void map_take_argument(tensor_map *m, const map_argument *argument)
{
    static const char kv_channels[] = "kv_channels";
    const uint32_t key = strtab_find(&m->texts, argument->key, argument->key_nbytes);
    if (argument->key_nbytes == strlen(kv_channels) &&
        memcmp(argument->key, kv_channels, strlen(kv_channels)) == 0)
        m->kv_channels = argument->value;
    if (key == STRTAB_NONE)
        return;
    for (size_t i = 0; i < m->variables.count; i++)
        set_argument(m, VEC_AT(&m->variables, map_variable_def, i), key, argument);
    for (size_t i = 0; i < m->refused.count; i++)
        if (*VEC_AT(&m->refused, const uint32_t, i) == key && argument->value != 0)
            m->refused_key = key;
}

static fsdpck_status fail_differs(const tensor_map *m, const map_variable_def *v, fsdpck_error *err)
{
    const uint32_t key = *VEC_AT(&m->keys, const uint32_t, v->first_key);
    const char *name = strtab_text(&m->texts, v->name);
    return FAIL_WITH(
        err, BADINPUT, MAP_ARGUMENTS,
        ("config.json and the arguments of the training differ in '%s'",
         strtab_text(&m->texts, key)),
        (expected, "%" PRIu64 ", as in the arguments of the training", v->argument),
        (found, "%" PRIu64 " in config.json", v->value),
        (next, "give the config.json of this model, or the right value with --map-set %s=N", name));
}

fsdpck_status map_apply_arguments(tensor_map *m, text_buf *used, fsdpck_error *err)
{
    if (m->refused_key != STRTAB_NONE)
        return FAIL_WITH(
            err, UNSUPPORTED, MAP_ARGUMENTS,
            ("map does not convert a model trained with %s",
             strtab_text(&m->texts, m->refused_key)),
            (next, "write a map that does, without this name in a line 'refuse': fsdpck-map(5)"));
    for (size_t i = 0; i < m->variables.count; i++) {
        map_variable_def *v = VEC_AT(&m->variables, map_variable_def, i);
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
