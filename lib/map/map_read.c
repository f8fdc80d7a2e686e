/* map_read.c: the text of a map, fsdpck-map(5): lines of words. */
#include "map/map_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct map_reader {
    tensor_map *m;
    const map_word *words;
    uint32_t count;
    uint32_t next;
    uint32_t line;
    uint32_t end_column;
} map_reader;

/* --- words --- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A comma belongs to a word only inside it. */
static fsdpck_status add_word(const char *text, size_t nbytes, map_at at, vec *words,
                              fsdpck_error *err)
{
    const bool comma = text[nbytes - 1] == ',' && (nbytes == 1 || text[nbytes - 2] != '\\');
    map_word *last = words->count == 0 ? NULL : VEC_AT(words, map_word, words->count - 1);
    if (comma && nbytes == 1) {
        if (last == NULL || last->comma)
            return map_syntax_error(at, "a name", text, nbytes, err);
        last->comma = true;
        return FSDPCK_OK;
    }
    return vec_add(
        words,
        &(map_word){.text = text, .nbytes = nbytes - (comma ? 1 : 0), .at = at, .comma = comma},
        err);
}

static fsdpck_status find_words(const char *line, size_t nbytes, uint32_t number, vec *words,
                                fsdpck_error *err)
{
    size_t i = 0;
    words->count = 0;
    for (;;) {
        while (i < nbytes && is_space(line[i]))
            i++;
        if (i == nbytes || line[i] == '#')
            return FSDPCK_OK;
        const size_t begin = i;
        while (i < nbytes && !is_space(line[i]))
            i++;
        RETURN_IF(
            add_word(line + begin, i - begin, (map_at){number, (uint32_t)begin + 1}, words, err));
    }
}

static const map_word *peek(const map_reader *r)
{
    return r->next < r->count ? &r->words[r->next] : NULL;
}

static fsdpck_status unexpected(const map_reader *r, const char *expected, fsdpck_error *err)
{
    const map_word *w = peek(r);
    if (w == NULL)
        return map_syntax_error((map_at){r->line, r->end_column}, expected, NULL, 0, err);
    return map_syntax_error(w->at, expected, w->text, w->nbytes, err);
}

static fsdpck_status take(map_reader *r, const char *text, const char *expected, fsdpck_error *err)
{
    const map_word *w = peek(r);
    if (w == NULL || !map_word_is(w, text))
        return unexpected(r, expected, err);
    r->next++;
    return FSDPCK_OK;
}

static fsdpck_status check_end(const map_reader *r, const char *expected, fsdpck_error *err)
{
    return r->next == r->count ? FSDPCK_OK : unexpected(r, expected, err);
}

/* --- statements --- */

/* let NAME = KEY [or KEY]..., let NAME = [KEY or]... 0 */
static fsdpck_status read_let(map_reader *r, fsdpck_error *err)
{
    tensor_map *m = r->m;
    const map_word *name = &r->words[1];
    uint32_t id;
    r->next = 2;
    if (!map_is_name(name->text, name->nbytes))
        return map_syntax_error(name->at, "the name of a variable", name->text, name->nbytes, err);
    RETURN_IF(strtab_intern(&m->texts, name->text, name->nbytes, &id, err));
    for (size_t i = 0; i < m->variables.count; i++)
        if (VEC_AT(&m->variables, const map_variable_def, i)->name == id)
            return map_syntax_error(name->at, "a new name, before its first use", name->text,
                                    name->nbytes, err);
    RETURN_IF(take(r, "=", "'='", err));
    map_variable_def v = {.name = id, .first_key = (uint32_t)m->keys.count, .found_key = MAP_NONE};
    do {
        const map_word *key = peek(r);
        if (key != NULL && map_word_is(key, "0") && !key->comma) {
            r->next++;
            v.is_switch = v.is_set = true;
            RETURN_IF(check_end(r, "the end of the line", err));
            return vec_add(&m->variables, &v, err);
        }
        if (key == NULL || !map_is_name(key->text, key->nbytes) || key->comma)
            return unexpected(r, "a key of config.json, or 0", err);
        RETURN_IF(strtab_intern(&m->texts, key->text, key->nbytes, &id, err));
        RETURN_IF(vec_add(&m->keys, &id, err));
        v.nkeys++;
        r->next++;
    } while (peek(r) != NULL && take(r, "or", "", NULL) == FSDPCK_OK);
    RETURN_IF(check_end(r, "'or' or the end of the line", err));
    return vec_add(&m->variables, &v, err);
}

static fsdpck_status read_names(map_reader *r, map_rule *rule, bool is_target, uint32_t *count,
                                fsdpck_error *err)
{
    for (;;) {
        const map_word *w = peek(r);
        if (w == NULL || map_word_is(w, "->") || map_word_is(w, ":"))
            return unexpected(r, is_target ? "the name of a target" : "the name of a source", err);
        RETURN_IF(map_read_pattern(r->m, rule, w, is_target, err));
        ++*count;
        r->next++;
        if (!w->comma)
            return FSDPCK_OK;
    }
}

static uint32_t find_capture(const tensor_map *m, const map_rule *rule, const map_word *w)
{
    for (uint32_t i = 0; i < rule->ncaptures; i++)
        if (strtab_nbytes(&m->texts, rule->captures[i]) == w->nbytes &&
            memcmp(strtab_text(&m->texts, rule->captures[i]), w->text, w->nbytes) == 0)
            return i;
    return MAP_NONE;
}

static fsdpck_status read_dim(map_reader *r, unsigned *dim, fsdpck_error *err)
{
    uint64_t number;
    const map_word *w = peek(r);
    if (w == NULL || !map_parse_number(w->text, w->nbytes, &number) || number > 7)
        return unexpected(r, "a dim, 0 to 7", err);
    *dim = (unsigned)number;
    r->next++;
    return FSDPCK_OK;
}

static fsdpck_status read_other_dim(map_reader *r, map_op *op, fsdpck_error *err)
{
    const map_word *first = &r->words[r->next - 1];
    if (first->comma)
        return map_syntax_error(first->at, "two dims", ",", 1, err);
    const map_word *w = peek(r);
    RETURN_IF(read_dim(r, &op->other_dim, err));
    return op->other_dim != op->dim
               ? FSDPCK_OK
               : map_syntax_error(w->at, "another dim", w->text, w->nbytes, err);
}

static fsdpck_status read_values(map_reader *r, map_op *op, uint32_t most, fsdpck_error *err)
{
    op->first_value = (uint32_t)r->m->values.count;
    while (peek(r) != NULL && op->count < most && !r->words[r->next - 1].comma) {
        map_value v;
        const map_word *w = peek(r);
        RETURN_IF(map_read_value(r->m, w->text, w->nbytes, w->at, "a positive number or a variable",
                                 &v, err));
        if (v.variable == MAP_NONE && v.number == 0)
            return unexpected(r, "a positive number or a variable", err);
        RETURN_IF(vec_add(&r->m->values, &v, err));
        op->count++;
        r->next++;
    }
    return FSDPCK_OK;
}

/* The numbers after the dim: for narrow one, for group and ungroup three or more. */
static fsdpck_status read_counts(map_reader *r, map_op *op, fsdpck_error *err)
{
    const bool narrow = op->kind == MAP_OP_NARROW;
    RETURN_IF(read_values(r, op, narrow ? 1 : UINT32_MAX, err));
    if (narrow && op->count == 0)
        return unexpected(r, "a positive number or a variable", err);
    if (!narrow && op->count < 3)
        return unexpected(r, "the number of groups and two proportions or more", err);
    return FSDPCK_OK;
}

/* 1, -1, or a switch with or without '-'. */
static fsdpck_status read_constant(map_reader *r, map_op *op, fsdpck_error *err)
{
    static const char expected[] = "1, -1, or a variable of 'let NAME = 0'";
    const map_word *w = peek(r);
    map_value v = {.variable = MAP_NONE, .number = 1, .at = w->at};
    op->subtract = w->text[0] == '-';
    const char *text = w->text + (op->subtract ? 1 : 0);
    const size_t nbytes = w->nbytes - (op->subtract ? 1 : 0);
    if (map_is_name(text, nbytes)) {
        RETURN_IF(map_find_variable(r->m, text, nbytes, &v.variable, err));
        if (!VEC_AT(&r->m->variables, const map_variable_def, v.variable)->is_switch)
            return unexpected(r, expected, err);
    } else if (nbytes != 1 || text[0] != '1') {
        return unexpected(r, expected, err);
    }
    op->first_value = (uint32_t)r->m->values.count;
    op->count = 1;
    r->next++;
    return vec_add(&r->m->values, &v, err);
}

static fsdpck_status read_op(map_reader *r, const map_rule *rule, map_op *op, fsdpck_error *err)
{
    static const char *const names[] = {
        [MAP_OP_STACK] = "stack", [MAP_OP_UNSTACK] = "unstack", [MAP_OP_CONCAT] = "concat",
        [MAP_OP_SPLIT] = "split", [MAP_OP_ROPE] = "rope",       [MAP_OP_TRANSPOSE] = "transpose",
        [MAP_OP_GROUP] = "group", [MAP_OP_UNGROUP] = "ungroup", [MAP_OP_NARROW] = "narrow",
        [MAP_OP_ADD] = "add"};
    const map_word *w = peek(r);
    unsigned kind = 0;
    while (w != NULL && kind < sizeof names / sizeof *names && !map_word_is(w, names[kind]))
        kind++;
    if (w == NULL || kind == sizeof names / sizeof *names)
        return unexpected(
            r, "rope, split, concat, transpose, stack, unstack, group, ungroup, narrow or add",
            err);
    *op = (map_op){.kind = (map_op_kind)kind, .at = w->at};
    r->next++;
    const map_word *argument = peek(r);
    if (w->comma || argument == NULL)
        return w->comma ? map_syntax_error(w->at, "an argument of the operation", ",", 1, err)
                        : unexpected(r, "an argument of the operation", err);
    if (kind == MAP_OP_STACK || kind == MAP_OP_UNSTACK) {
        op->capture = find_capture(r->m, rule, argument);
        r->next++;
        return op->capture != MAP_NONE ? FSDPCK_OK : map_capture_error(r->m, rule, argument, err);
    }
    if (kind == MAP_OP_ROPE)
        return read_values(r, op, 1, err);
    if (kind == MAP_OP_ADD)
        return read_constant(r, op, err);
    RETURN_IF(read_dim(r, &op->dim, err));
    if (kind == MAP_OP_TRANSPOSE)
        return read_other_dim(r, op, err);
    if (kind == MAP_OP_GROUP || kind == MAP_OP_UNGROUP || kind == MAP_OP_NARROW)
        return read_counts(r, op, err);
    return read_values(r, op, UINT32_MAX, err);
}

static fsdpck_status read_ops(map_reader *r, map_rule *rule, fsdpck_error *err)
{
    RETURN_IF(take(r, ":", "':' or the end of the line", err));
    do {
        map_op op;
        RETURN_IF(read_op(r, rule, &op, err));
        RETURN_IF(vec_add(&r->m->ops, &op, err));
        rule->nops++;
    } while (r->words[r->next - 1].comma);
    return check_end(r, "',' or the end of the line", err);
}

/* The names after the keyword, as they are written. */
static fsdpck_status put_names(const map_reader *r, text_buf *names, fsdpck_error *err)
{
    for (uint32_t i = 1; i < r->count; i++)
        text_printf(names, "%s%.*s", names->nbytes > 0 ? ", " : "", (int)r->words[i].nbytes,
                    r->words[i].text);
    return text_check(names, err);
}

/* Tensors may have the names of keywords too. */
static bool is_keyword(const map_reader *r, const char *text)
{
    return map_word_is(&r->words[0], text) && !r->words[0].comma && r->count > 1 &&
           !map_word_is(&r->words[1], "->");
}

/* drop PATTERN[, PATTERN]...; keep, lose and ignore likewise */
static fsdpck_status read_list(map_reader *r, fsdpck_error *err)
{
    map_rule rule = {.keeps = is_keyword(r, "keep"),
                     .ignores = is_keyword(r, "ignore"),
                     .loses = is_keyword(r, "lose"),
                     .first_source = (uint32_t)r->m->patterns.count,
                     .stacked = MAP_NONE,
                     .unstacked = MAP_NONE,
                     .unstacked_inner = MAP_NONE,
                     .at = r->words[0].at};
    r->next = 1;
    RETURN_IF(read_names(r, &rule, false, &rule.nsources, err));
    RETURN_IF(check_end(r, "',' or the end of the line", err));
    if (!rule.keeps && !rule.ignores)
        RETURN_IF(put_names(r, &r->m->dropped, err));
    return vec_add(&r->m->rules, &rule, err);
}

/* needs NAME[, NAME]... */
static fsdpck_status read_needs(map_reader *r, fsdpck_error *err)
{
    for (r->next = 1; r->next < r->count; r->next++)
        if (r->words[r->next].comma != (r->next + 1 < r->count))
            return unexpected(r, "names with ',' between them", err);
    return put_names(r, &r->m->needed, err);
}

/* tied NAME = NAME */
static fsdpck_status read_tie(map_reader *r, fsdpck_error *err)
{
    uint32_t ids[2];
    r->next = 1;
    for (unsigned i = 0; i < 2; i++) {
        const map_word *w = peek(r);
        if (w == NULL || w->comma)
            return unexpected(r, "the name of a tensor", err);
        RETURN_IF(strtab_intern(&r->m->texts, w->text, w->nbytes, &ids[i], err));
        r->next++;
        if (i == 0)
            RETURN_IF(take(r, "=", "'='", err));
    }
    RETURN_IF(check_end(r, "the end of the line", err));
    return vec_add(&r->m->ties, &(map_tie){.name = ids[0], .same_as = ids[1]}, err);
}

/* PATTERN[, PATTERN]... -> PATTERN[, PATTERN]... [: OPERATION[, OPERATION]...] */
static fsdpck_status read_rule(map_reader *r, fsdpck_error *err)
{
    map_rule rule = {.first_source = (uint32_t)r->m->patterns.count,
                     .stacked = MAP_NONE,
                     .unstacked = MAP_NONE,
                     .unstacked_inner = MAP_NONE,
                     .at = r->words[0].at};
    RETURN_IF(read_names(r, &rule, false, &rule.nsources, err));
    if (peek(r) != NULL)
        rule.arrow = peek(r)->at;
    RETURN_IF(take(r, "->",
                   rule.nsources > 1 ? "'->'"
                                     : "'->', or a line that begins with let, for, drop, lose, "
                                       "keep, ignore, tied, needs, refuse or expect",
                   err));
    rule.first_target = (uint32_t)r->m->patterns.count;
    RETURN_IF(read_names(r, &rule, true, &rule.ntargets, err));
    rule.first_op = (uint32_t)r->m->ops.count;
    if (peek(r) != NULL)
        RETURN_IF(read_ops(r, &rule, err));
    RETURN_IF(map_check_rule(r->m, &rule, err));
    return vec_add(&r->m->rules, &rule, err);
}

static fsdpck_status read_model_types(map_reader *r, fsdpck_error *err)
{
    uint32_t id;
    const map_word *w;
    do {
        w = peek(r);
        if (w == NULL || map_word_is(w, ":"))
            return unexpected(r, "a model type", err);
        RETURN_IF(strtab_intern(&r->m->texts, w->text, w->nbytes, &id, err));
        RETURN_IF(vec_add(&r->m->model_types, &id, err));
        r->next++;
    } while (w->comma);
    return FSDPCK_OK;
}

/* for MODEL_TYPE[, MODEL_TYPE]... : PATTERN[, PATTERN]... */
static fsdpck_status read_for(map_reader *r, fsdpck_error *err)
{
    tensor_map *m = r->m;
    const map_word *last = &r->words[r->count - 1];
    if (m->model_types.count > 0)
        return map_syntax_error(r->words[0].at, "one 'for' in a map", "for", strlen("for"), err);
    r->next = 1;
    RETURN_IF(read_model_types(r, err));
    RETURN_IF(take(r, ":", "',' or ':'", err));
    m->first_name = (uint32_t)m->patterns.count;
    const uint32_t first = r->next;
    RETURN_IF(read_names(r, &(map_rule){0}, false, &m->nnames, err));
    RETURN_IF(check_end(r, "',' or the end of the line", err));
    const char *begin = r->words[first].text;
    return strtab_intern(&m->texts, begin, (size_t)(last->text + last->nbytes - begin),
                         &m->for_text, err);
}

static fsdpck_status read_line(tensor_map *m, const char *line, size_t nbytes, uint32_t number,
                               vec *words, fsdpck_error *err)
{
    RETURN_IF(find_words(line, nbytes, number, words, err));
    if (words->count == 0)
        return FSDPCK_OK;
    const map_word *last = VEC_AT(words, const map_word, words->count - 1);
    map_reader r = {.m = m,
                    .words = words->items,
                    .count = (uint32_t)words->count,
                    .line = number,
                    .end_column = last->at.column + (uint32_t)last->nbytes};
    if (is_keyword(&r, "let"))
        return read_let(&r, err);
    if (is_keyword(&r, "for"))
        return read_for(&r, err);
    if (is_keyword(&r, "tied"))
        return read_tie(&r, err);
    if (is_keyword(&r, "needs"))
        return read_needs(&r, err);
    if (is_keyword(&r, "refuse"))
        return map_read_refuse(m, r.words, r.count, r.end_column, err);
    if (is_keyword(&r, "expect"))
        return map_read_expect(m, r.words, r.count, r.end_column, err);
    const bool lists = is_keyword(&r, "drop") || is_keyword(&r, "keep") || is_keyword(&r, "lose") ||
                       is_keyword(&r, "ignore");
    return lists ? read_list(&r, err) : read_rule(&r, err);
}

static fsdpck_status read_lines(tensor_map *m, const char *text, size_t nbytes, fsdpck_error *err)
{
    vec words = VEC_OF(map_word, m->owner);
    fsdpck_status st = FSDPCK_OK;
    uint32_t number = 1;
    for (size_t at = 0; at < nbytes && st == FSDPCK_OK; number++) {
        const char *end = memchr(text + at, '\n', nbytes - at);
        const size_t length = end == NULL ? nbytes - at : (size_t)(end - (text + at));
        st = read_line(m, text + at, length, number, &words, err);
        at += length + 1;
    }
    vec_release(&words);
    if (st == FSDPCK_OK && m->rules.count == 0)
        st = map_syntax_error((map_at){number, 1}, "a rule: SOURCE -> TARGET", NULL, 0, err);
    return st;
}

fsdpck_status map_read(const char *text, size_t nbytes, budget *owner, tensor_map **out,
                       fsdpck_error *err)
{
    *out = NULL;
    tensor_map *m = calloc(1, sizeof *m);
    if (m == NULL)
        return error_set_nomem(err, sizeof *m);
    m->owner = owner;
    strtab_init(&m->texts, owner);
    m->parts = VEC_OF(map_part, owner);
    m->forms = VEC_OF(map_form, owner);
    m->patterns = VEC_OF(map_pattern, owner);
    m->values = VEC_OF(map_value, owner);
    m->ops = VEC_OF(map_op, owner);
    m->rules = VEC_OF(map_rule, owner);
    m->variables = VEC_OF(map_variable_def, owner);
    m->keys = VEC_OF(uint32_t, owner);
    m->model_types = VEC_OF(uint32_t, owner);
    m->ties = VEC_OF(map_tie, owner);
    m->refused = VEC_OF(uint32_t, owner);
    m->expected = VEC_OF(map_expected, owner);
    m->refused_key = STRTAB_NONE;
    const fsdpck_status st = nbytes > UINT32_MAX / 2
                                 ? FAIL(err, LIMIT, LIMIT_COUNT, "map is larger than 2 GiB")
                                 : read_lines(m, text, nbytes, err);
    if (st != FSDPCK_OK) {
        map_free(m);
        return st;
    }
    *out = m;
    return FSDPCK_OK;
}

void map_free(tensor_map *m)
{
    if (m == NULL)
        return;
    strtab_release(&m->texts);
    text_release(&m->dropped);
    text_release(&m->needed);
    vec_release(&m->parts);
    vec_release(&m->forms);
    vec_release(&m->patterns);
    vec_release(&m->values);
    vec_release(&m->ops);
    vec_release(&m->rules);
    vec_release(&m->variables);
    vec_release(&m->keys);
    vec_release(&m->model_types);
    vec_release(&m->ties);
    vec_release(&m->refused);
    vec_release(&m->expected);
    free(m);
}
