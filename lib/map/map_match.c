#include "map/map_match.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN 3u
#define LINES_SHOWN 5u

typedef struct match_search {
    const tensor_map *m;
    const map_input *inputs;
    map_matches *out;
    text_buf untaken; /* the first names */
    uint64_t untaken_count;
    uint64_t made_count; /* those of them that the map makes, in the same direction */
} match_search;

static const map_rule *rule_at(const tensor_map *m, uint32_t index)
{
    return VEC_AT(&m->rules, const map_rule, index);
}

/* --- one tensor --- */

static fsdpck_status taken_twice(const match_search *s, const map_input *in, const map_taken *a,
                                 const map_taken *b, fsdpck_error *err)
{
    const uint32_t first = rule_at(s->m, a->rule)->at.line,
                   second = rule_at(s->m, b->rule)->at.line;
    return FAIL_WITH(
        err, BADINPUT, MAP_TAKEN_TWICE,
        ("'%s' matches two rules, of lines %u and %u of the map", in->name, first, second),
        (expected, "one rule for each tensor"), (tensor, in->name));
}

/* The first source of a rule, from *at on, that the name matches. */
static bool find_source(const match_search *s, const map_rule *r, const map_input *in, uint32_t *at,
                        map_captures *captures)
{
    for (; *at < r->nsources; ++*at) {
        const map_pattern *p = VEC_AT(&s->m->patterns, const map_pattern, r->first_source + *at);
        if (map_pattern_match(s->m, p, in->name, in->nbytes, captures))
            return true;
    }
    return false;
}

static fsdpck_status add_taken(match_search *s, uint32_t input, map_taken *t, fsdpck_error *err)
{
    t->input = input;
    const map_rule *rule = rule_at(s->m, t->rule);
    if (rule->loses)
        RETURN_IF(vec_add(&s->out->lost, &input, err));
    if (rule->ntargets == 0 && !rule->keeps)
        return vec_add(&s->out->dropped, &input, err);
    RETURN_IF(strtab_intern(&s->out->any, t->captures.any, t->captures.any_nbytes, &t->any, err));
    return vec_add(&s->out->taken, t, err);
}

/* Names of targets may overlap; an inverted map takes the narrower one: without '*', then with a number
 * that something was added to. */
static unsigned precedence_of(const tensor_map *m, const map_taken *t)
{
    const map_pattern *p =
        VEC_AT(&m->patterns, const map_pattern, rule_at(m, t->rule)->first_source + t->source);
    return m->forward == NULL ? 0 : (p->has_any ? 0 : 2) + (map_pattern_adds(m, p) ? 1 : 0);
}

/* The rule that takes a tensor, of those without `keep`; none: found->rule is MAP_NONE. */
static fsdpck_status find_rule(const match_search *s, const map_input *in, map_taken *found,
                               fsdpck_error *err)
{
    map_taken again = {.rule = MAP_NONE}, t;
    unsigned highest = 0;
    *found = again;
    for (t.rule = 0; t.rule < s->m->rules.count; t.rule++) {
        const map_rule *r = rule_at(s->m, t.rule);
        t.source = 0;
        for (; !r->keeps && !r->ignores && find_source(s, r, in, &t.source, &t.captures);
             t.source++) {
            const unsigned precedence = precedence_of(s->m, &t);
            if (found->rule == MAP_NONE || precedence > highest) {
                *found = t;
                again.rule = MAP_NONE;
                highest = precedence;
            } else if (precedence == highest && again.rule == MAP_NONE) {
                again = t;
            }
        }
    }
    if (again.rule != MAP_NONE)
        return taken_twice(s, in, found, &again, err);
    return FSDPCK_OK;
}

/* Whether the map makes a tensor of this name. An inverted map makes what the other one takes. */
static bool is_made(const tensor_map *m, const map_input *in)
{
    const tensor_map *by = m->forward == NULL ? m : m->forward;
    map_captures captures;
    for (uint32_t i = 0; i < by->rules.count; i++) {
        const map_rule *r = rule_at(by, i);
        const uint32_t first = m->forward == NULL ? r->first_target : r->first_source,
                       count = m->forward == NULL ? r->ntargets : r->nsources;
        for (uint32_t k = 0; k < count && !r->ignores; k++)
            if (map_pattern_match(by, VEC_AT(&by->patterns, const map_pattern, first + k), in->name,
                                  in->nbytes, &captures))
                return true;
    }
    return false;
}

static fsdpck_status match_input(match_search *s, uint32_t input, fsdpck_error *err)
{
    const map_input *in = &s->inputs[input];
    map_taken found, t;
    RETURN_IF(find_rule(s, in, &found, err));
    for (t.rule = 0; found.rule == MAP_NONE && t.rule < s->m->rules.count; t.rule++) {
        t.source = 0;
        if (rule_at(s->m, t.rule)->keeps &&
            find_source(s, rule_at(s->m, t.rule), in, &t.source, &t.captures))
            found = t;
    }
    if (found.rule != MAP_NONE && found.captures.unset != NULL) {
        uint64_t number;
        RETURN_IF(map_get_value(s->m, found.captures.unset, &number, err));
    }
    if (found.rule != MAP_NONE)
        return add_taken(s, input, &found, err);
    s->made_count += is_made(s->m, in);
    if (s->untaken_count++ < NAMES_SHOWN)
        text_printf(&s->untaken, "%s'%s'", s->untaken_count > 1 ? ", " : "", in->name);
    return FSDPCK_OK;
}

/* The rules that match nothing: one of them may have a wrong source. */
static fsdpck_status find_idle_rules(const match_search *s, text_buf *lines, fsdpck_error *err)
{
    uint64_t idle = 0, used = 0;
    bool *takes = calloc(s->m->rules.count + 1, sizeof *takes);
    if (takes == NULL)
        return error_set_nomem(err, s->m->rules.count);
    for (size_t i = 0; i < s->out->taken.count; i++)
        takes[VEC_AT(&s->out->taken, const map_taken, i)->rule] = true;
    for (uint32_t i = 0; i < s->m->rules.count; i++) {
        used += takes[i];
        if (!takes[i] && rule_at(s->m, i)->ntargets > 0 && idle++ < LINES_SHOWN)
            text_printf(lines, "%s%u", idle == 1 ? "" : ", ", rule_at(s->m, i)->at.line);
    }
    free(takes);
    if (idle > LINES_SHOWN)
        text_puts(lines, ", ...");
    if (used == 0)
        lines->nbytes = 0;
    return text_check(lines, err);
}

static fsdpck_status fail_untaken(const match_search *s, fsdpck_error *err)
{
    RETURN_IF(text_check(&s->untaken, err));
    if (s->made_count == s->untaken_count)
        return FAIL_WITH(err, BADINPUT, MAP_UNTAKEN,
                         ("%" PRIu64 " tensor%s without a rule: %s%s", s->untaken_count,
                          s->untaken_count == 1 ? "" : "s", s->untaken.text,
                          s->untaken_count > NAMES_SHOWN ? ", ..." : ""),
                         (next, "the map makes tensors of these names: %s",
                          s->m->forward == NULL
                              ? "to apply it in the other direction, give --import"
                              : "omit --import to apply it in the other direction"));
    text_buf lines = {0};
    fsdpck_status st = find_idle_rules(s, &lines, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, BADINPUT, MAP_UNTAKEN,
                       ("%" PRIu64 " tensor%s without a rule: %s%s", s->untaken_count,
                        s->untaken_count == 1 ? "" : "s", s->untaken.text,
                        s->untaken_count > NAMES_SHOWN ? ", ..." : ""),
                       (next,
                        "add rules for them, or '%s NAME', to a copy of the map; "
                        "fsdpck-map(5) describes rules",
                        s->m->forward == NULL ? "drop" : "ignore"));
    if (st == FSDPCK_BADINPUT && lines.nbytes > 0)
        error_found(err, "rules of the map that match no tensor, by line: %s", lines.text);
    text_release(&lines);
    return st;
}

/* --- instances --- */

/* By rule, captures without the stacked one, source, stacked capture. The texts of '*' are compared
 * by id: any order that brings equal ones together will do. */
typedef struct sort_key {
    uint32_t rule, any, kept, source;
    uint64_t captures[MAP_CAPTURES_MAX];
    uint64_t stacked;
} sort_key;

static void make_key(const tensor_map *m, const map_taken *t, sort_key *k)
{
    const uint32_t stacked = rule_at(m, t->rule)->stacked;
    *k = (sort_key){.rule = t->rule, .any = t->any, .source = t->source};
    /* Each tensor that is kept is an instance of its own. */
    if (rule_at(m, t->rule)->keeps) {
        k->kept = t->input;
        k->source = 0;
    }
    memcpy(k->captures, t->captures.numbers, sizeof k->captures);
    if (stacked == MAP_NONE)
        return;
    k->stacked = k->captures[stacked];
    k->captures[stacked] = 0;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_instance(const sort_key *a, const sort_key *b)
{
    int order = compare_numbers(a->rule, b->rule);
    if (order == 0)
        order = compare_numbers(a->any, b->any);
    if (order == 0)
        order = compare_numbers(a->kept, b->kept);
    for (unsigned i = 0; i < MAP_CAPTURES_MAX && order == 0; i++)
        order = compare_numbers(a->captures[i], b->captures[i]);
    return order;
}

typedef struct sorted_taken {
    sort_key key;
    map_taken taken;
} sorted_taken;

static int compare_taken(const void *left, const void *right)
{
    const sorted_taken *a = left, *b = right;
    int order = compare_instance(&a->key, &b->key);
    if (order == 0)
        order = compare_numbers(a->key.source, b->key.source);
    if (order == 0)
        order = compare_numbers(a->key.stacked, b->key.stacked);
    return order != 0 ? order : compare_numbers(a->taken.input, b->taken.input);
}

static int compare_order(const void *left, const void *right)
{
    return compare_numbers(((const map_instance *)left)->order,
                           ((const map_instance *)right)->order);
}

/* Two spellings of one source. */
static fsdpck_status fail_double(const match_search *s, const map_taken *a, const map_taken *b,
                                 fsdpck_error *err)
{
    const char *first = s->inputs[a->input].name, *second = s->inputs[b->input].name;
    return FAIL_WITH(err, BADINPUT, MAP_SOURCE,
                     ("'%s' and '%s' are the same source of the rule of line %u of the map", first,
                      second, rule_at(s->m, a->rule)->at.line),
                     (tensor, second), (expected, "one of them"));
}

static fsdpck_status fail_missing(const match_search *s, const map_taken *taken, uint64_t which,
                                  uint64_t index, fsdpck_error *err)
{
    const map_rule *r = rule_at(s->m, taken->rule);
    const map_pattern *p = VEC_AT(&s->m->patterns, const map_pattern, r->first_source + which);
    const map_input *in = &s->inputs[taken->input];
    map_captures captures = taken->captures;
    text_buf name = {0};
    if (r->stacked != MAP_NONE)
        captures.numbers[r->stacked] = index;
    fsdpck_status st = map_pattern_write(s->m, p, &captures, &name, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(err, BADINPUT, MAP_SOURCE,
                       ("'%s' has no '%s' beside it, which the rule of line %u of the map requires",
                        in->name, name.text, r->at.line),
                       (tensor, in->name), (expected, "a tensor '%s'", name.text));
    text_release(&name);
    return st;
}

/* Checks that the tensors of an instance are those of its rule: every source, with numbers from 0. */
static fsdpck_status check_instance(const match_search *s, map_instance *x,
                                    const sorted_taken *sorted, fsdpck_error *err)
{
    const map_rule *r = rule_at(s->m, x->rule);
    uint64_t stacked = 1;
    if (r->keeps) {
        x->stacked = 1;
        return FSDPCK_OK;
    }
    for (uint32_t i = 0; i < x->count; i++) {
        const sort_key *k = &sorted[i].key;
        if (r->stacked != MAP_NONE && k->stacked >= stacked)
            stacked = k->stacked + 1;
        if (i > 0 && k->source == sorted[i - 1].key.source &&
            k->stacked == sorted[i - 1].key.stacked)
            return fail_double(s, &sorted[i - 1].taken, &sorted[i].taken, err);
    }
    for (uint64_t i = 0; i < r->nsources * stacked; i++)
        if (i >= x->count || sorted[i].key.source != i / stacked ||
            sorted[i].key.stacked != i % stacked)
            return fail_missing(s, &sorted[0].taken, i / stacked, i % stacked, err);
    x->stacked = (uint32_t)stacked;
    return FSDPCK_OK;
}

static fsdpck_status cut_instances(match_search *s, const sorted_taken *sorted, size_t count,
                                   fsdpck_error *err)
{
    size_t end;
    for (size_t begin = 0; begin < count; begin = end) {
        map_instance x = {.rule = sorted[begin].key.rule,
                          .order = sorted[begin].taken.input,
                          .first = (uint32_t)begin};
        for (end = begin; end < count; end++) {
            if (compare_instance(&sorted[begin].key, &sorted[end].key) != 0)
                break;
            if (sorted[end].taken.input < x.order)
                x.order = sorted[end].taken.input;
            *VEC_AT(&s->out->taken, map_taken, end) = sorted[end].taken;
        }
        x.count = (uint32_t)(end - begin);
        RETURN_IF(check_instance(s, &x, sorted + begin, err));
        RETURN_IF(vec_add(&s->out->instances, &x, err));
    }
    if (s->out->instances.count > 1)
        qsort(s->out->instances.items, s->out->instances.count, sizeof(map_instance),
              compare_order);
    return FSDPCK_OK;
}

static fsdpck_status find_instances(match_search *s, fsdpck_error *err)
{
    const size_t count = s->out->taken.count;
    vec sorted = VEC_OF(sorted_taken, s->m->owner);
    sorted_taken *all = vec_push_n(&sorted, count, err);
    fsdpck_status st = all == NULL && count > 0 ? FSDPCK_LIMIT : FSDPCK_OK;
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++) {
        all[i].taken = *VEC_AT(&s->out->taken, const map_taken, i);
        make_key(s->m, &all[i].taken, &all[i].key);
    }
    if (st == FSDPCK_OK && count > 1)
        qsort(all, count, sizeof *all, compare_taken);
    if (st == FSDPCK_OK)
        st = cut_instances(s, all, count, err);
    vec_release(&sorted);
    return st;
}

fsdpck_status map_match(const tensor_map *m, const map_input *inputs, size_t count,
                        map_matches *out, fsdpck_error *err)
{
    match_search s = {.m = m, .inputs = inputs, .out = out};
    *out = (map_matches){.taken = VEC_OF(map_taken, m->owner),
                         .instances = VEC_OF(map_instance, m->owner),
                         .dropped = VEC_OF(uint32_t, m->owner),
                         .lost = VEC_OF(uint32_t, m->owner)};
    strtab_init(&out->any, m->owner);
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; i < count && st == FSDPCK_OK; i++) {
        st = match_input(&s, i, err);
        if (st != FSDPCK_OK)
            error_tensor(err, inputs[i].name);
    }
    if (st == FSDPCK_OK && s.untaken_count > 0)
        st = fail_untaken(&s, err);
    if (st == FSDPCK_OK)
        st = find_instances(&s, err);
    if (st == FSDPCK_OK)
        st = map_check_stacks(m, inputs, out, err);
    text_release(&s.untaken);
    if (st != FSDPCK_OK)
        map_matches_release(out);
    return st;
}

fsdpck_status map_check_return(const tensor_map *m, const map_rule *rule, const char *name,
                               size_t nbytes, fsdpck_error *err)
{
    const map_input in = {.name = name, .nbytes = nbytes};
    const match_search s = {.m = m->forward, .inputs = &in};
    map_taken found;
    if (m->forward == NULL)
        return FSDPCK_OK;
    RETURN_IF(find_rule(&s, &in, &found, err));
    if (found.rule == MAP_NONE && rule->keeps)
        return FSDPCK_OK;
    if (found.rule != MAP_NONE && rule_at(m->forward, found.rule)->at.line == rule->at.line)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MAP_TAKEN_TWICE,
                     ("on export, another rule matches '%s', which the rule of line %u of the map "
                      "makes on import",
                      name, rule->at.line),
                     (tensor, name), (expected, "the same rule"));
}

void map_matches_release(map_matches *x)
{
    vec_release(&x->taken);
    vec_release(&x->instances);
    vec_release(&x->dropped);
    vec_release(&x->lost);
    strtab_release(&x->any);
}
