#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "statedict/description_match.h"

/* A description, and a catalogue with the model's tensors. */
typedef struct stage {
    budget memory;
    model m;
    unit_list units;
    description_match a;
    catalogue cat;
    uint8_t part[32];
    vec ties;
    fsdpck_error err;
} stage;

static stage *s;

static void setup(void)
{
    s = calloc(1, sizeof *s);
    cr_assert_not_null(s);
    budget_init(&s->memory, 64u << 20, "metadata", NULL);
    model_init(&s->m, &s->memory);
    unit_list_init(&s->units, &s->memory);
    catalogue_init(&s->cat, &s->memory);
    s->ties = VEC_OF(description_tie, &s->memory);
}

static void teardown(void)
{
    description_match_release(&s->a);
    vec_release(&s->ties);
    catalogue_release(&s->cat);
    unit_list_release(&s->units);
    model_release(&s->m);
    cr_expect_eq(s->memory.used_bytes, 0, "%" PRIu64 " bytes were not given back",
                 (uint64_t)s->memory.used_bytes);
    free(s);
}

TestSuite(description_match, .init = setup, .fini = teardown);

static void describe(const char *modules)
{
    char text[2048] = "{\"version\": 1, \"world_size\": 2, \"modules\": [";
    strcat(text, modules);
    strcat(text, "]}");
    cr_assert_eq(model_read(&s->m, text, strlen(text), &s->err), FSDPCK_OK, "%s", s->err.message);
    cr_assert_eq(model_find_units(&s->m, &(model_ranks){0}, &s->units, &s->err), FSDPCK_OK, "%s",
                 s->err.message);
    cr_assert_eq(description_match_init(&s->a, &s->m, &s->units, NULL), FSDPCK_OK);
}

static value path_of(const char *first, const char *key)
{
    value items[2], tuple;
    cr_assert_eq(value_new_str(&s->cat.pool, first, strlen(first), &items[0], NULL), FSDPCK_OK);
    cr_assert_eq(value_new_str(&s->cat.pool, key, strlen(key), &items[1], NULL), FSDPCK_OK);
    cr_assert_eq(value_new_from(&s->cat.pool, VALUE_TUPLE, items, 2, &tuple, NULL), FSDPCK_OK);
    return tuple;
}

/* A tensor of `rows` x 3. */
static uint32_t add(const char *name, dtype d, uint64_t rows)
{
    const uint64_t shape[2] = {rows, 3};
    uint32_t tensor;
    cr_assert_eq(catalogue_add_tensor(&s->cat, name, strlen(name), d, 2, shape, &tensor, NULL),
                 FSDPCK_OK);
    return tensor;
}

static fsdpck_status check(description_notes *notes)
{
    cr_assert_eq(description_match_set(&s->a, &s->cat, s->part, NULL), FSDPCK_OK);
    fsdpck_error_init(&s->err);
    return description_match_check(&s->a, notes, &s->err);
}

#define F32           DTYPE_FLOAT32
#define W(n)          "{\"name\": \"" n "\", \"shape\": [2, 3], \"dtype\": \"float32\"}"
#define MODULE(n, ps) "{\"name\": \"" n "\", \"params\": [" ps "]}"
#define TWO           "{\"name\": \"\"}, " MODULE("a", W("w")) ", " MODULE("b", W("w"))

static void expect_mismatch(const char *tensor, const char *message)
{
    description_notes notes;
    cr_expect_eq(check(&notes), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(s->err.finding), "MODEL-MISMATCH");
    cr_expect_str_eq(s->err.tensor, tensor, "%s", s->err.tensor);
    cr_expect_str_eq(s->err.message, message, "%s", s->err.message);
    cr_expect(s->err.expected[0] != '\0' && s->err.found[0] != '\0' && s->err.next[0] != '\0');
}

static void expect_agreement(void)
{
    description_notes notes;
    cr_expect_eq(check(&notes), FSDPCK_OK, "%s: %s", s->err.tensor, s->err.message);
    cr_expect_eq(notes.casts + notes.unfound, 0);
}

Test(description_match, names_are_taken_without_wrappers_and_outer_keys)
{
    describe(TWO);
    add("net.module.a._orig_mod.w", F32, 2);
    add("net.module._fsdp_wrapped_module.b.w", F32, 2);
    expect_agreement();
    cr_expect_eq(description_match_find(&s->a, "b.w", 3), 1);
    cr_expect_eq(description_match_find(&s->a, "c.w", 3), CAT_NONE);
}

Test(description_match, a_path_says_what_the_outer_key_is)
{
    describe(TWO);
    catalogue_tensor(&s->cat, add("ema.a.w", F32, 7))->path = path_of("ema", "x.a.w");
    catalogue_tensor(&s->cat, add("model.a.w", F32, 2))->path = path_of("model", "a.w");
    catalogue_tensor(&s->cat, add("model.b.w", F32, 2))->path = path_of("model", "b.w");
    expect_agreement();
    cr_expect_eq(description_match_find(&s->a, "a.w", 3), 1);
}

Test(description_match, the_first_difference_is_named)
{
    describe(TWO);
    add("a.w", F32, 2);
    expect_mismatch("b.w", "checkpoint lacks a parameter of the model");
    add("b.w", F32, 5);
    expect_mismatch("b.w", "tensor and model differ in shape");
    cr_expect_str_eq(s->err.expected, "float32 [2, 3]");
    cr_expect_str_eq(s->err.found, "float32 [5, 3]");
}

Test(description_match, a_tensor_that_the_model_lacks_is_named_and_extra_state_is_not)
{
    describe(TWO);
    add("a.w", F32, 2);
    add("b.w", F32, 2);
    add("b._extra_state", F32, 2);
    expect_agreement();
    add("b.v", F32, 2);
    expect_mismatch("b.v", "the model lacks a tensor of the checkpoint");
}

Test(description_match, floating_dtypes_may_differ_and_others_may_not)
{
    description_notes notes;
    describe(TWO);
    add("a.w", DTYPE_BFLOAT16, 2);
    add("b.w", DTYPE_BFLOAT16, 2);
    cr_expect_eq(check(&notes), FSDPCK_OK);
    cr_expect_eq(notes.casts, 2);
    cr_expect_eq(notes.first_cast, 0);
    cr_expect_eq(notes.wanted, DTYPE_FLOAT32);
    catalogue_tensor(&s->cat, 1)->dtype = DTYPE_INT64;
    expect_mismatch("b.w", "tensor and model differ in dtype");
}

Test(description_match, another_model_is_refused_and_an_optimizer_alone_is_not)
{
    describe(TWO);
    add("state.0.exp_avg", F32, 2);
    expect_agreement();
    add("x.w", F32, 2);
    expect_mismatch("x.w", "no tensor name of the checkpoint is in the model");
    s->part[1] = 1;
    expect_agreement();
}

Test(description_match, what_is_ignored_or_not_persistent_may_be_away)
{
    describe("{\"name\": \"\"}, " MODULE(
        "a", W("w")) ", {\"name\": \"b\", \"ignored\": true, "
                     "\"params\": [" W(
                         "w") "], \"buffers\": [{\"name\": \"t\", \"shape\": [1], \"dtype\": "
                              "\"int64\", \"persistent\": false}]}");
    add("a.w", F32, 2);
    expect_agreement();
}

Test(description_match, each_rank_has_its_own_where_the_group_is_one)
{
    describe("{\"name\": \"\"}, " MODULE(
        "a", W("w")) ", {\"name\": \"x\", \"local_group\": true}, "
                     "{\"name\": \"x.y\", \"params\": [" W(
                         "w") "], \"buffers\": [{\"name\": \"mean\", "
                              "\"shape\": [1], \"dtype\": \"float32\"}]}");
    static const struct {
        const char *name;
        bool local;
    } names[] = {{"x.y.w", true},
                 {"model.x.y.w", true},
                 {"module._fsdp_wrapped_module.x.y.mean", true},
                 {"optim.state.x.y.w.exp_avg", true},
                 {"state.x.y.w.exp_avg", true},
                 {"mystate.x.y.w.exp_avg", false},
                 {"x.y.w.exp_avg", false},
                 {"a.w", false},
                 {"state.a.w.exp_avg", false},
                 {"", false}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect_eq(description_is_local(&s->a, names[i].name, strlen(names[i].name)),
                     names[i].local, "%s", names[i].name);
}

/* --- ties --- */

#define TIE(n, first) "{\"name\": \"" n "\", \"same_as\": \"" first "\"}"
#define TIED                                                                                \
    "{\"name\": \"\"}, " MODULE("a", W("w")) ", " MODULE("b", TIE("w", "a.w")) ", " MODULE( \
        "c", TIE("w", "a.w"))

static void find_ties(size_t count)
{
    cr_assert_eq(description_match_set(&s->a, &s->cat, s->part, NULL), FSDPCK_OK);
    cr_assert_eq(description_match_ties(&s->a, &s->ties, &s->err), FSDPCK_OK, "%s", s->err.message);
    cr_assert_eq(s->ties.count, count, "%zu", s->ties.count);
}

static const description_tie *tie_at(size_t i)
{
    return VEC_AT(&s->ties, const description_tie, i);
}

Test(description_match, ties_have_the_first_name_that_is_there)
{
    size_t nbytes;
    describe(TIED);
    add("b.w", F32, 2);
    add("c.w", F32, 2);
    find_ties(2);
    cr_expect_eq(tie_at(0)->first, 0);
    cr_expect_eq(tie_at(0)->twin, CAT_NONE);
    cr_expect_str_eq(tie_at(0)->fqn, "a.w");
    cr_expect_eq(tie_at(1)->first, 0);
    cr_expect_eq(tie_at(1)->twin, 1);
    cr_expect_str_eq(description_alias(&s->a, "b.w", 3, 0, &nbytes), "a.w");
    cr_expect_str_eq(description_alias(&s->a, "b.w", 3, 1, &nbytes), "c.w");
    cr_expect_null(description_alias(&s->a, "b.w", 3, 2, &nbytes));
    cr_expect_null(description_alias(&s->a, "z.w", 3, 0, &nbytes));
}

Test(description_match, tied_names_of_two_shapes_are_refused)
{
    describe(TIED);
    add("a.w", F32, 2);
    add("b.w", F32, 3);
    cr_assert_eq(description_match_set(&s->a, &s->cat, s->part, NULL), FSDPCK_OK);
    cr_expect_eq(description_match_ties(&s->a, &s->ties, &s->err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(s->err.finding), "TIE-DIFFERS");
    cr_expect_str_eq(s->err.tensor, "b.w");
    cr_expect_str_eq(s->err.expected, "float32 [2, 3], as in 'a.w'");
}

#define UNIT(n, orig, ps) \
    "{\"name\": \"" n "\", \"fsdp\": {\"use_orig_params\": " orig "}, \"params\": [" ps "]}"

Test(description_match, units_without_original_parameters_let_a_tie_part)
{
    describe(
        "{\"name\": \"\"}, " UNIT("a", "false", W("w")) ", " UNIT("b", "false", TIE("w", "a.w")));
    add("a.w", F32, 2);
    add("b.w", F32, 2);
    find_ties(0);
}

Test(description_match, units_with_original_parameters_do_not)
{
    describe(
        "{\"name\": \"\"}, " UNIT("a", "true", W("w")) ", " UNIT("b", "true", TIE("w", "a.w")));
    add("a.w", F32, 2);
    add("b.w", F32, 2);
    find_ties(1);
}

Test(description_match, pieces_beside_a_flat_parameter_are_no_twins)
{
    const uint64_t five = 5;
    uint32_t flat;
    describe(
        "{\"name\": \"\"}, " UNIT("a", "true", W("w")) ", " UNIT("b", "true", TIE("w", "a.w")));
    cr_assert_eq(catalogue_add_tensor(&s->cat, "a._flat_param", 13, F32, 1, &five, &flat, NULL),
                 FSDPCK_OK);
    add("a.w", F32, 1);
    add("b.w", F32, 2);
    find_ties(0);
}

Test(description_match, a_module_registered_twice_has_its_buffers_twice)
{
    describe("{\"name\": \"\"}, {\"name\": \"n\", \"buffers\": [" W("t") "]}, {\"name\": \"o\", "
                                                                         "\"same_as\": \"n\"}");
    add("n.t", F32, 2);
    find_ties(1);
    cr_expect_str_eq(tie_at(0)->fqn, "o.t");
    cr_expect_eq(tie_at(0)->twin, CAT_NONE);
}

/* --- overridden names --- */

#define OUTER "{\"name\": \"\"}, {\"name\": \"in\", \"override\": \"\"}, "

Test(description_match, overridden_names_are_known_both_ways)
{
    size_t nbytes;
    describe(OUTER MODULE("in.a", W("w")) ", {\"name\": \"in.b\", \"same_as\": \"in.a\"}, "
                                          "{\"name\": \"in.c\", \"fsdp\": {}, \"params\": [" TIE(
                                              "v", "in.b.w") ", " W("w") "]}");
    cr_expect_str_eq(model_name(&s->m, model_param_at(&s->m, 0)->name, &nbytes), "a.w");
    cr_expect_str_eq(model_name(&s->m, model_param_at(&s->m, 1)->name, &nbytes), "b.w");
    cr_expect_eq(model_find_param(&s->m, "in.b.w", 6), 1);
    cr_expect_eq(model_param_at(&s->m, 2)->same_as, 0);
    cr_assert_eq(unit_count(&s->units), 1);
    cr_expect_str_eq(unit_name(&s->units, unit_at(&s->units, 0)->prefix, &nbytes), "c");
    add("a.w", F32, 2);
    add("in.b.w", F32, 2);
    add("c.v", F32, 2);
    add("c.w", F32, 2);
    expect_agreement();
    find_ties(1);
    cr_expect_eq(tie_at(0)->twin, 1);
}

Test(description_match, an_overridden_name_that_is_not_there_is_noted)
{
    description_notes notes;
    describe(OUTER MODULE("in.a", W("w")) ", " MODULE("in.b", W("w")) ", " MODULE("z", W("w")));
    add("a.w", F32, 2);
    add("z.w", F32, 2);
    cr_expect_eq(check(&notes), FSDPCK_OK, "%s", s->err.message);
    cr_expect_eq(notes.unfound, 1);
    cr_expect_str_eq(notes.first_unfound, "b.w");
}

Test(description_match, overriding_to_a_name_that_is_taken_is_refused)
{
    static const char text[] = "{\"version\": 1, \"modules\": [" OUTER MODULE(
        "in.a", W("w")) ", " MODULE("a", W("w")) "]}";
    cr_expect_eq(model_read(&s->m, text, strlen(text), &s->err), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(s->err.finding), "MODEL-NAME-DUP");
    cr_expect_str_eq(s->err.tensor, "a.w");
}
