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

static bool fits(const tensor_map *m, const char *model_type, const map_input *inputs, size_t count)
{
    if (!is_for_type(m, model_type))
        return false;
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
        if (fits(m, model_type, inputs, count)) {
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

fsdpck_status map_print_purposes(const map_entry *entries, const char *model_type, budget *owner,
                                 text_buf *out, fsdpck_error *err)
{
    const char *separator = "";
    for (const map_entry *e = entries; e->name != NULL; e++) {
        tensor_map *m;
        RETURN_IF(map_read(e->text, e->nbytes, owner, &m, err));
        if (is_for_type(m, model_type)) {
            text_printf(out, "%s%s for %s", separator, e->name,
                        strtab_text(&m->texts, m->for_text));
            separator = "; ";
        }
        map_free(m);
    }
    return text_check(out, err);
}
