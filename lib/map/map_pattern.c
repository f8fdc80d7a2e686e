/* map_pattern.c: patterns of tensor names. */
#include <inttypes.h>
#include <string.h>

#include "map/map_internal.h"

/* --- reading --- */

/* A part of a pattern before its alternatives become forms. */
typedef struct raw_part {
    map_part part;
    uint32_t first_text, count; /* alternatives; 0: none */
} raw_part;

typedef struct pattern_reader {
    tensor_map *m;
    map_rule *rule;
    const map_word *word;
    size_t at;
    bool is_target;
    map_pattern made;
    vec raw;   /* raw_part */
    vec texts; /* uint32_t: ids of alternatives */
    text_buf literal;
} pattern_reader;

static fsdpck_status pattern_error(const pattern_reader *r, const char *expected, fsdpck_error *err)
{
    const map_word *w = r->word;
    const map_at at = {w->at.line, w->at.column + (uint32_t)r->at};
    return r->at < w->nbytes
               ? map_syntax_error(at, expected, w->text + r->at, 1, err)
               : map_syntax_error(at, expected, w->comma ? "," : NULL, w->comma ? 1 : 0, err);
}

static fsdpck_status add_raw(pattern_reader *r, const raw_part *part, fsdpck_error *err)
{
    if (r->raw.count == MAP_PARTS_MAX)
        return pattern_error(r, "at most 64 parts of a name", err);
    return vec_add(&r->raw, part, err);
}

static fsdpck_status end_literal(pattern_reader *r, fsdpck_error *err)
{
    raw_part raw = {.part = {.kind = MAP_TEXT}};
    if (r->literal.nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(text_check(&r->literal, err));
    RETURN_IF(strtab_intern(&r->m->texts, r->literal.text, r->literal.nbytes, &raw.part.text, err));
    r->literal.nbytes = 0;
    return add_raw(r, &raw, err);
}

static fsdpck_status find_or_add_capture(pattern_reader *r, const char *name, size_t nbytes,
                                         uint32_t *capture, fsdpck_error *err)
{
    uint32_t id;
    map_rule *rule = r->rule;
    RETURN_IF(strtab_intern(&r->m->texts, name, nbytes, &id, err));
    for (*capture = 0; *capture < rule->ncaptures; ++*capture)
        if (rule->captures[*capture] == id)
            return FSDPCK_OK;
    if (rule->ncaptures == MAP_CAPTURES_MAX)
        return pattern_error(r, "at most 4 names in braces in a rule", err);
    rule->captures[rule->ncaptures++] = id;
    return FSDPCK_OK;
}

/* {n}, and in targets {n+1}, {n-L} */
static fsdpck_status read_capture(pattern_reader *r, fsdpck_error *err)
{
    const char *text = r->word->text;
    const size_t nbytes = r->word->nbytes;
    const size_t begin = ++r->at;
    raw_part raw = {.part = {.kind = MAP_NUMBER, .offset = {.variable = MAP_NONE}}};
    while (r->at < nbytes && strchr("+-}", text[r->at]) == NULL)
        r->at++;
    const size_t end = r->at;
    r->at = begin;
    if (memchr(text + begin, '}', nbytes - begin) == NULL) {
        while (r->at < nbytes && map_is_name(text + begin, r->at + 1 - begin))
            r->at++;
        if (r->at > begin)
            return pattern_error(r, "'}'", err);
    }
    if (!map_is_name(text + begin, end - begin))
        return pattern_error(r, "a name in braces, as in {n}", err);
    RETURN_IF(find_or_add_capture(r, text + begin, end - begin, &raw.part.capture, err));
    r->at = end;
    if (r->at < nbytes && text[r->at] != '}') {
        if (!r->is_target)
            return pattern_error(r, "'}': only a target may add or subtract", err);
        raw.part.subtract = text[r->at++] == '-';
        const size_t from = r->at;
        while (r->at < nbytes && text[r->at] != '}')
            r->at++;
        RETURN_IF(map_read_value(r->m, text + from, r->at - from,
                                 (map_at){r->word->at.line, r->word->at.column + (uint32_t)from},
                                 "a number or a variable", &raw.part.offset, err));
    }
    if (r->at == nbytes)
        return pattern_error(r, "'}'", err);
    if (!r->is_target && (r->made.captures & 1u << raw.part.capture)) {
        r->at = begin;
        return pattern_error(r, "a name in braces that this tensor name does not contain yet", err);
    }
    r->made.captures |= 1u << raw.part.capture;
    r->at++;
    return add_raw(r, &raw, err);
}

/* (a|b): one of these texts; [a|b]: one of them, or nothing */
static fsdpck_status read_choice(pattern_reader *r, char close, fsdpck_error *err)
{
    const char *text = r->word->text;
    raw_part raw = {.part = {.kind = MAP_TEXT}, .first_text = (uint32_t)r->texts.count};
    uint32_t id;
    if (r->is_target)
        return pattern_error(r, "one name: only a source has alternatives", err);
    do {
        const size_t begin = ++r->at;
        while (r->at < r->word->nbytes && text[r->at] != '|' && text[r->at] != close) {
            if (strchr("{}[]()*\\", text[r->at]) != NULL)
                return pattern_error(r, "plain text between '|'", err);
            r->at++;
        }
        if (r->at == r->word->nbytes)
            return pattern_error(r, close == ')' ? "')'" : "']'", err);
        RETURN_IF(strtab_intern(&r->m->texts, text + begin, r->at - begin, &id, err));
        RETURN_IF(vec_add(&r->texts, &id, err));
        raw.count++;
    } while (text[r->at] == '|');
    if (close == ']') {
        RETURN_IF(strtab_intern(&r->m->texts, "", 0, &id, err));
        RETURN_IF(vec_add(&r->texts, &id, err));
        raw.count++;
    }
    r->at++;
    return add_raw(r, &raw, err);
}

static fsdpck_status read_any(pattern_reader *r, fsdpck_error *err)
{
    if (r->made.has_any)
        return pattern_error(r, "one '*' at most", err);
    r->made.has_any = true;
    r->at++;
    return add_raw(r, &(raw_part){.part = {.kind = MAP_ANY}}, err);
}

static fsdpck_status read_parts(pattern_reader *r, fsdpck_error *err)
{
    while (r->at < r->word->nbytes) {
        const char c = r->word->text[r->at];
        if (strchr("}])|", c) != NULL && c != '\0')
            return pattern_error(r, "'\\' before '}', ']', ')' and '|'", err);
        if (c == '\0' || strchr("{[(*", c) == NULL) {
            r->at += c == '\\' && r->at + 1 < r->word->nbytes;
            text_append(&r->literal, r->word->text + r->at++, 1);
            continue;
        }
        RETURN_IF(end_literal(r, err));
        RETURN_IF(c == '{'   ? read_capture(r, err)
                  : c == '*' ? read_any(r, err)
                             : read_choice(r, c == '(' ? ')' : ']', err));
    }
    return end_literal(r, err);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether every number has an end: it is as long as it can be. */
static bool form_is_clear(const tensor_map *m, const map_form *f)
{
    for (uint32_t i = 1; i < f->count; i++) {
        const map_part *a = VEC_AT(&m->parts, map_part, f->first_part + i - 1), *b = a + 1;
        if (a->kind != MAP_TEXT && b->kind != MAP_TEXT)
            return false;
        const char *left = strtab_text(&m->texts, a->text),
                   *right = strtab_text(&m->texts, b->text);
        if ((a->kind == MAP_NUMBER && is_digit(right[0])) ||
            (b->kind == MAP_NUMBER && is_digit(left[strtab_nbytes(&m->texts, a->text) - 1])))
            return false;
    }
    return true;
}

/* The form with these alternatives; texts without characters are left out. */
static fsdpck_status add_form(pattern_reader *r, const uint32_t *chosen, fsdpck_error *err)
{
    tensor_map *m = r->m;
    map_form form = {.first_part = (uint32_t)m->parts.count};
    for (uint32_t i = 0; i < r->raw.count; i++) {
        const raw_part *raw = VEC_AT(&r->raw, const raw_part, i);
        map_part part = raw->part;
        if (raw->count > 0)
            part.text = *VEC_AT(&r->texts, const uint32_t, raw->first_text + chosen[i]);
        if (part.kind == MAP_TEXT && strtab_nbytes(&m->texts, part.text) == 0)
            continue;
        RETURN_IF(vec_add(&m->parts, &part, err));
        form.count++;
    }
    r->at = 0;
    if (form.count == 0)
        return pattern_error(r, "a name that is not empty", err);
    if (!r->is_target && !form_is_clear(m, &form))
        return pattern_error(r, "text between any two of {n} and '*', and no digit next to {n}",
                             err);
    r->made.count++;
    return vec_add(&m->forms, &form, err);
}

bool map_pattern_is_clear(const tensor_map *m, const map_pattern *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (!form_is_clear(m, VEC_AT(&m->forms, const map_form, p->first_form + i)))
            return false;
    return true;
}

static fsdpck_status add_forms(pattern_reader *r, fsdpck_error *err)
{
    uint32_t chosen[MAP_PARTS_MAX] = {0};
    r->made.first_form = (uint32_t)r->m->forms.count;
    for (;;) {
        size_t i = 0;
        if (r->made.count == MAP_FORMS_MAX) {
            r->at = 0;
            return pattern_error(r, "at most 64 names from alternatives", err);
        }
        RETURN_IF(add_form(r, chosen, err));
        for (; i < r->raw.count; i++) {
            const uint32_t count = VEC_AT(&r->raw, const raw_part, i)->count;
            if (count > 0 && ++chosen[i] < count)
                break;
            chosen[i] = 0;
        }
        if (i == r->raw.count)
            return FSDPCK_OK;
    }
}

fsdpck_status map_read_pattern(tensor_map *m, map_rule *rule, const map_word *w, bool is_target,
                               fsdpck_error *err)
{
    pattern_reader r = {.m = m,
                        .rule = rule,
                        .word = w,
                        .is_target = is_target,
                        .made = {.at = w->at},
                        .raw = VEC_OF(raw_part, m->owner),
                        .texts = VEC_OF(uint32_t, m->owner)};
    fsdpck_status st = read_parts(&r, err);
    if (st == FSDPCK_OK)
        st = add_forms(&r, err);
    if (st == FSDPCK_OK)
        st = vec_add(&m->patterns, &r.made, err);
    vec_release(&r.raw);
    vec_release(&r.texts);
    text_release(&r.literal);
    return st;
}

/* --- matching --- */

typedef struct match_state {
    const tensor_map *m;
    const char *name;
    size_t begin, end; /* the rest of the name */
    map_captures *captures;
} match_state;

/* Whether a name can have `number` at a part: the capture is that number without its offset, and the same
 * wherever it occurs. */
static bool match_capture(match_state *s, const map_part *p, uint64_t number)
{
    map_captures *captures = s->captures;
    const unsigned bit = 1u << p->capture;
    uint64_t offset;
    if (!map_value_is_set(s->m, &p->offset)) {
        captures->unset = &p->offset;
        return true;
    }
    if (map_get_value(s->m, &p->offset, &offset, NULL) != FSDPCK_OK ||
        (!p->subtract && number < offset))
        return false;
    number = p->subtract ? number + offset : number - offset;
    if ((captures->found & bit) && captures->numbers[p->capture] != number)
        return false;
    captures->found |= bit;
    captures->numbers[p->capture] = number;
    return true;
}

static bool match_number(match_state *s, const map_part *p, bool at_end)
{
    size_t n = 0;
    uint64_t number;
    const size_t rest = s->end - s->begin;
    while (n < rest && is_digit(s->name[at_end ? s->end - 1 - n : s->begin + n]))
        n++;
    if (!map_parse_number(s->name + (at_end ? s->end - n : s->begin), n, &number) ||
        !match_capture(s, p, number))
        return false;
    s->begin += at_end ? 0 : n;
    s->end -= at_end ? n : 0;
    return true;
}

static bool match_part(match_state *s, const map_part *p, bool at_end)
{
    if (p->kind == MAP_NUMBER)
        return match_number(s, p, at_end);
    const size_t n = strtab_nbytes(&s->m->texts, p->text);
    if (n > s->end - s->begin || memcmp(strtab_text(&s->m->texts, p->text),
                                        s->name + (at_end ? s->end - n : s->begin), n) != 0)
        return false;
    s->begin += at_end ? 0 : n;
    s->end -= at_end ? n : 0;
    return true;
}

static bool match_form(const tensor_map *m, const map_form *f, const char *name, size_t nbytes,
                       map_captures *captures)
{
    match_state s = {.m = m, .name = name, .end = nbytes, .captures = captures};
    const map_part *parts = VEC_AT(&m->parts, const map_part, f->first_part);
    uint32_t first = 0, last = f->count;
    while (first < last && parts[first].kind != MAP_ANY)
        if (!match_part(&s, &parts[first++], false))
            return false;
    if (first == last)
        return s.begin == s.end;
    while (last > first + 1)
        if (!match_part(&s, &parts[--last], true))
            return false;
    captures->any = name + s.begin;
    captures->any_nbytes = s.end - s.begin;
    return true;
}

bool map_pattern_match(const tensor_map *m, const map_pattern *p, const char *name, size_t nbytes,
                       map_captures *captures)
{
    for (uint32_t i = 0; i < p->count; i++) {
        *captures = (map_captures){.any = ""};
        if (match_form(m, VEC_AT(&m->forms, const map_form, p->first_form + i), name, nbytes,
                       captures))
            return true;
    }
    return false;
}

bool map_pattern_adds(const tensor_map *m, const map_pattern *p)
{
    const map_form *f = VEC_AT(&m->forms, const map_form, p->first_form);
    for (uint32_t i = 0; i < f->count; i++) {
        const map_part *part = VEC_AT(&m->parts, const map_part, f->first_part + i);
        if (part->kind == MAP_NUMBER && !part->subtract &&
            (part->offset.variable != MAP_NONE || part->offset.number > 0))
            return true;
    }
    return false;
}

/* --- writing --- */

static fsdpck_status write_number(const tensor_map *m, const map_part *p,
                                  const map_captures *captures, text_buf *name, fsdpck_error *err)
{
    uint64_t offset;
    const uint64_t number = captures->numbers[p->capture];
    RETURN_IF(map_get_value(m, &p->offset, &offset, err));
    if (p->subtract && offset > number)
        return FAIL(err, BADINPUT, MAP_SHAPE,
                    "%" PRIu64 " - %" PRIu64 " is below 0: line %u, column %u of the map", number,
                    offset, p->offset.at.line, p->offset.at.column);
    text_printf(name, "%" PRIu64, p->subtract ? number - offset : number + offset);
    return FSDPCK_OK;
}

fsdpck_status map_pattern_write(const tensor_map *m, const map_pattern *p,
                                const map_captures *captures, text_buf *name, fsdpck_error *err)
{
    const map_form *f = VEC_AT(&m->forms, const map_form, p->first_form);
    name->nbytes = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const map_part *part = VEC_AT(&m->parts, const map_part, f->first_part + i);
        if (part->kind == MAP_NUMBER)
            RETURN_IF(write_number(m, part, captures, name, err));
        else if (part->kind == MAP_ANY)
            text_append(name, captures->any, captures->any_nbytes);
        else
            text_append(name, strtab_text(&m->texts, part->text),
                        strtab_nbytes(&m->texts, part->text));
    }
    return text_check(name, err);
}
