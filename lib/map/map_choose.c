#include "map/map_choose.h"

#include <string.h>

#include "map/map_internal.h"

static bool is_for_type(const tensor_map *m, const char *model_type)
{
    for (size_t i = 0; i < m->model_types.count; i++)
        if (strtab_is(&m->texts, *VEC_AT(&m->model_types, const uint32_t, i), model_type,
                      strlen(model_type)))
            return true;
    return false;
}

static bool has_name(const tensor_map *m, uint32_t pattern, const map_input *inputs, size_t count)
{
    map_captures captures;
    for (size_t i = 0; i < count; i++)
        if (map_pattern_match(m, VEC_AT(&m->patterns, const map_pattern, pattern), inputs[i].name,
                              inputs[i].nbytes, &captures))
            return true;
    return false;
}

static bool has_names(const tensor_map *m, const map_input *inputs, size_t count)
{
    for (uint32_t i = 0; i < m->nnames; i++)
        if (!has_name(m, m->first_name + i, inputs, count))
            return false;
    return true;
}

fsdpck_status map_choose(const map_entry *entries, const char *model_type, const map_input *inputs,
                         size_t count, budget *owner, map_choice *choice, fsdpck_error *err)
{
    uint32_t most = 0;
    *choice = (map_choice){0};
    for (const map_entry *e = entries; e->name != NULL; e++) {
        tensor_map *m;
        RETURN_IF(map_read(e->text, e->nbytes, owner, &m, err));
        if (is_for_type(m, model_type) && has_names(m, inputs, count)) {
            if (choice->fits != NULL && m->nnames == most)
                choice->equal = e;
            if (choice->fits == NULL || m->nnames > most)
                *choice = (map_choice){.fits = e};
            most = m->nnames > most ? m->nnames : most;
        }
        map_free(m);
    }
    return FSDPCK_OK;
}

fsdpck_status map_entry_is_for(const map_entry *e, const char *model_type, bool *is_for,
                               fsdpck_error *err)
{
    tensor_map *m;
    RETURN_IF(map_read(e->text, e->nbytes, NULL, &m, err));
    *is_for = is_for_type(m, model_type);
    map_free(m);
    return FSDPCK_OK;
}

static bool keeps_names(const tensor_map *m)
{
    for (size_t i = 0; i < m->rules.count; i++)
        if (VEC_AT(&m->rules, const map_rule, i)->keeps)
            return true;
    return false;
}

fsdpck_status map_print_fitting(const map_entry *entries, const char *model_type,
                                const map_input *inputs, size_t count, budget *owner, text_buf *out,
                                fsdpck_error *err)
{
    for (const map_entry *e = entries; e->name != NULL; e++) {
        tensor_map *m;
        RETURN_IF(map_read(e->text, e->nbytes, owner, &m, err));
        const bool may_be = model_type[0] != '\0' ? is_for_type(m, model_type) : !keeps_names(m);
        if (m->nnames > 0 && may_be && has_names(m, inputs, count))
            text_printf(out, "%s%s", out->nbytes > 0 ? ", " : "", e->name);
        map_free(m);
    }
    return text_check(out, err);
}

/* Appends "NAME, NAME", or "NAME for PATTERN, PATTERN; NAME for ...": the maps for a model type. */
static fsdpck_status put_maps(const map_entry *entries, const char *model_type, bool patterns,
                              text_buf *out, fsdpck_error *err)
{
    const char *separator = "";
    for (const map_entry *e = entries; e->name != NULL; e++) {
        tensor_map *m;
        RETURN_IF(map_read(e->text, e->nbytes, NULL, &m, err));
        if (is_for_type(m, model_type)) {
            text_printf(out, "%s%s%s%s", separator, e->name, patterns ? " for " : "",
                        patterns ? strtab_text(&m->texts, m->for_text) : "");
            separator = patterns ? "; " : ", ";
        }
        map_free(m);
    }
    return text_check(out, err);
}

fsdpck_status map_print_purposes(const map_entry *entries, const char *model_type, size_t most,
                                 text_buf *out, fsdpck_error *err)
{
    const size_t begin = out->nbytes;
    RETURN_IF(put_maps(entries, model_type, true, out, err));
    if (out->nbytes - begin <= most)
        return FSDPCK_OK;
    out->nbytes = begin;
    text_puts(out, "the names of one of ");
    return put_maps(entries, model_type, false, out, err);
}

bool map_check_model(const tensor_map *m, const char *name, fsdpck_error *what)
{
    const char *type = m->model_type[0] != '\0' ? m->model_type : m->nested_model_type;
    text_buf types = {.limit_bytes = 1000}, maps = {.limit_bytes = 1000};
    if (m->model_types.count == 0 || type[0] == '\0' || is_for_type(m, m->model_type) ||
        is_for_type(m, m->nested_model_type))
        return true;
    for (size_t i = 0; i < m->model_types.count; i++)
        text_printf(&types, "%s%s", i > 0 ? ", " : "",
                    strtab_text(&m->texts, *VEC_AT(&m->model_types, const uint32_t, i)));
    const bool known =
        put_maps(map_entries, type, false, &maps, NULL) == FSDPCK_OK && maps.nbytes > 0;
    FAIL_WITH(what, BADINPUT, MAP_MODEL,
              ("config.json has model type '%s', but map '%s' is for %s", type, name,
               types.text == NULL ? "other types" : types.text),
              (next, "%s%s",
               known ? "check the map and config.json; built-in maps for this type: "
                     : "check the map and config.json; no built-in map is for this type",
               known ? maps.text : ""));
    text_release(&types);
    text_release(&maps);
    return false;
}
