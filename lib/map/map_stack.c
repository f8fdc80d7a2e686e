/* map_stack.c: whether stacks over one list of modules have the same length.
 *
 * A list is the part of a name up to the stacked number, with any other numbers: the experts of all
 * layers are one list, "model.layers.#.mlp.experts.#". A shorter stack lacks its last tensors: no gap in
 * the numbers shows this.
 */
#include "map/map_match.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

typedef struct stack_search {
    const tensor_map *m;
    const map_input *inputs;
    const map_matches *matches;
    strtab lists;
    vec first;     /* uint32_t: the first instance of each list, by its id */
    text_buf name; /* of the current list */
} stack_search;

static const map_rule *rule_of(const stack_search *s, const map_instance *x)
{
    return VEC_AT(&s->m->rules, const map_rule, x->rule);
}

static const map_taken *first_of(const stack_search *s, const map_instance *x)
{
    return VEC_AT(&s->matches->taken, const map_taken, x->first);
}

static const char *name_of(const stack_search *s, const map_instance *x)
{
    return s->inputs[first_of(s, x)->input].name;
}

/* The text of '*', with each number in it replaced. */
static void put_any(text_buf *name, const map_captures *captures)
{
    bool in_number = false;
    for (size_t i = 0; i < captures->any_nbytes; i++) {
        const char c = captures->any[i];
        const bool digit = c >= '0' && c <= '9';
        if (!digit)
            text_append(name, &c, 1);
        else if (!in_number)
            text_puts(name, "#");
        in_number = digit;
    }
}

/* The list of a stack. Alternatives of a source are spellings of one name: the first one counts. */
static fsdpck_status write_list(stack_search *s, const map_instance *x, fsdpck_error *err)
{
    const map_rule *rule = rule_of(s, x);
    const map_pattern *p = VEC_AT(&s->m->patterns, const map_pattern, rule->first_source);
    const map_form *f = VEC_AT(&s->m->forms, const map_form, p->first_form);
    s->name.nbytes = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const map_part *part = VEC_AT(&s->m->parts, const map_part, f->first_part + i);
        if (part->kind == MAP_NUMBER && part->capture == rule->stacked)
            break;
        if (part->kind == MAP_NUMBER)
            text_puts(&s->name, "#");
        else if (part->kind == MAP_ANY)
            put_any(&s->name, &first_of(s, x)->captures);
        else
            text_append(&s->name, strtab_text(&s->m->texts, part->text),
                        strtab_nbytes(&s->m->texts, part->text));
    }
    return text_check(&s->name, err);
}

/* Names the first tensor that the shorter of two stacks lacks, unless its name has alternatives. */
static fsdpck_status fail_shorter(const stack_search *s, const map_instance *shorter,
                                  const map_instance *longer, fsdpck_error *err)
{
    const map_rule *rule = rule_of(s, shorter);
    const map_pattern *p = VEC_AT(&s->m->patterns, const map_pattern, rule->first_source);
    map_captures captures = first_of(s, shorter)->captures;
    text_buf missing = {0}, expected = {.limit_bytes = 4096};
    captures.numbers[rule->stacked] = shorter->stacked;
    fsdpck_status st = map_pattern_write(s->m, p, &captures, &missing, err);
    text_printf(&expected, "%" PRIu32 " tensors", longer->stacked);
    if (st == FSDPCK_OK && p->count == 1)
        text_printf(&expected, ", with '%s'", missing.text);
    if (st == FSDPCK_OK)
        st = text_check(&expected, err);
    if (st == FSDPCK_OK)
        st = FAIL_WITH(
            err, BADINPUT, MAP_SOURCE,
            ("the stack of '%s' has %" PRIu32 " tensor%s, but that of '%s' has %" PRIu32,
             name_of(s, shorter), shorter->stacked, text_plural(shorter->stacked),
             name_of(s, longer), longer->stacked),
            (tensor, name_of(s, shorter)), (expected, "%s", expected.text),
            (found, "%" PRIu32 " tensor%s", shorter->stacked, text_plural(shorter->stacked)));
    text_release(&missing);
    text_release(&expected);
    return st;
}

/* config.json counts the experts, under one name or several. */
static fsdpck_status check_experts(const stack_search *s, const map_instance *x, fsdpck_error *err)
{
    static const char module[] = "experts.";
    static const char *const keys[MAP_EXPERT_KEYS] = MAP_EXPERT_KEY_NAMES;
    const map_config_sizes sizes = map_sizes(s->m);
    const char *key = NULL;
    uint64_t stated = 0;
    const bool whole = text_is(s->name.text, s->name.nbytes, module) ||
                       text_ends_with(s->name.text, s->name.nbytes, ".experts.");
    for (size_t i = 0; i < MAP_EXPERT_KEYS && whole; i++) {
        if (sizes.experts[i] == x->stacked)
            return FSDPCK_OK;
        if (sizes.experts[i] != 0 && key == NULL) {
            key = keys[i];
            stated = sizes.experts[i];
        }
    }
    if (key == NULL)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, EXPORT_CONFIG, ("'%s' of config.json contradicts the tensors", key),
        (tensor, name_of(s, x)), (expected, "%" PRIu64 " experts", stated),
        (found, "%" PRIu32 " tensor%s in the stack", x->stacked, text_plural(x->stacked)),
        (next, "check that the checkpoint is complete and that config.json belongs "
               "to it"));
}

static fsdpck_status check_stack(stack_search *s, uint32_t instance, fsdpck_error *err)
{
    const map_instance *x = VEC_AT(&s->matches->instances, const map_instance, instance);
    uint32_t id;
    if (rule_of(s, x)->stacked == MAP_NONE)
        return FSDPCK_OK;
    RETURN_IF(write_list(s, x, err));
    RETURN_IF(strtab_intern(&s->lists, s->name.nbytes == 0 ? "" : s->name.text, s->name.nbytes, &id,
                            err));
    if (id == s->first.count) {
        RETURN_IF(vec_add(&s->first, &instance, err));
        return FSDPCK_OK;
    }
    const map_instance *first =
        VEC_AT(&s->matches->instances, const map_instance, *VEC_AT(&s->first, const uint32_t, id));
    if (x->stacked < first->stacked)
        return fail_shorter(s, x, first, err);
    return x->stacked > first->stacked ? fail_shorter(s, first, x, err) : FSDPCK_OK;
}

fsdpck_status map_check_stacks(const tensor_map *m, const map_input *inputs, const map_matches *x,
                               fsdpck_error *err)
{
    stack_search s = {.m = m, .inputs = inputs, .matches = x, .first = VEC_OF(uint32_t, m->owner)};
    fsdpck_status st = FSDPCK_OK;
    /* LongCat-Flash: experts without weights count in one of its tensors only. */
    if (map_sizes(m).zero_expert_num > 0)
        return FSDPCK_OK;
    strtab_init(&s.lists, m->owner);
    for (uint32_t i = 0; i < x->instances.count && st == FSDPCK_OK; i++)
        st = check_stack(&s, i, err);
    /* The length that all stacks of a list have. */
    for (uint32_t i = 0; i < s.first.count && st == FSDPCK_OK; i++) {
        const map_instance *first =
            VEC_AT(&x->instances, const map_instance, *VEC_AT(&s.first, const uint32_t, i));
        st = write_list(&s, first, err);
        if (st == FSDPCK_OK)
            st = check_experts(&s, first, err);
    }
    text_release(&s.name);
    vec_release(&s.first);
    strtab_release(&s.lists);
    return st;
}
