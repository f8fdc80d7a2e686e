/* map_words.c: names, numbers, variables and errors of the text of a map. */
#include <string.h>

#include "map/map_internal.h"

#define NUMBER_MAX ((uint64_t)1 << 40)

fsdpck_status map_syntax_error(map_at at, const char *expected, const char *found,
                               size_t found_nbytes, fsdpck_error *err)
{
    char text[120];
    if (found == NULL)
        return FAIL_WITH(err, USAGE, MAP_SYNTAX,
                         ("line %u, column %u: expected %s", at.line, at.column, expected),
                         (expected, "%s", expected), (found, "the end of the line"));
    escape_text(text, sizeof text, found, found_nbytes);
    return FAIL_WITH(
        err, USAGE, MAP_SYNTAX,
        ("line %u, column %u: expected %s, found '%s'", at.line, at.column, expected, text),
        (expected, "%s", expected), (found, "'%s'", text));
}

bool map_word_is(const map_word *w, const char *text)
{
    return strlen(text) == w->nbytes && memcmp(text, w->text, w->nbytes) == 0;
}

bool map_is_name(const char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        const char c = text[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return nbytes > 0;
}

bool map_parse_number(const char *text, size_t nbytes, uint64_t *number)
{
    uint64_t n = 0;
    if (nbytes == 0 || (nbytes > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
        if (n > NUMBER_MAX)
            return false;
    }
    *number = n;
    return true;
}

fsdpck_status map_find_variable(tensor_map *m, const char *name, size_t nbytes, uint32_t *index,
                                fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&m->texts, name, nbytes, &id, err));
    for (*index = 0; *index < m->variables.count; ++*index)
        if (VEC_AT(&m->variables, const map_variable_def, *index)->name == id)
            return FSDPCK_OK;
    RETURN_IF(vec_add(
        &m->variables,
        &(map_variable_def){
            .name = id, .first_key = (uint32_t)m->keys.count, .nkeys = 1, .found_key = MAP_NONE},
        err));
    return vec_add(&m->keys, &id, err);
}

fsdpck_status map_read_value(tensor_map *m, const char *text, size_t nbytes, map_at at,
                             const char *expected, map_value *value, fsdpck_error *err)
{
    *value = (map_value){.variable = MAP_NONE, .at = at};
    if (map_parse_number(text, nbytes, &value->number))
        return FSDPCK_OK;
    if (!map_is_name(text, nbytes))
        return map_syntax_error(at, expected, text, nbytes, err);
    RETURN_IF(map_find_variable(m, text, nbytes, &value->variable, err));
    return VEC_AT(&m->variables, const map_variable_def, value->variable)->is_switch
               ? map_syntax_error(at, expected, text, nbytes, err)
               : FSDPCK_OK;
}
