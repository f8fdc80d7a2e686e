/* Tensor maps in the other direction: import. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/map_case.h"

static fsdpck_error err;

#define SHAPE(...)                                                     \
    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]) \
    {                                                                  \
        __VA_ARGS__                                                    \
    }

static fsdpck_status import(map_case *c, map_step *s, const char *text, const char *config)
{
    fsdpck_error_init(&err);
    c->text = text;
    c->text_nbytes = strlen(text);
    c->config = config;
    c->config_nbytes = config == NULL ? 0 : strlen(config);
    cr_assert(catalogue_seal(&c->base, &err) == FSDPCK_OK);
    return map_step_apply(s, c, NULL, true, &err);
}

static void gather(map_case *c, const map_step *s, const char *name, unsigned ndim,
                   const uint64_t *shape, uint32_t *numbers)
{
    const uint32_t tensor = catalogue_find(&s->seen, name, strlen(name));
    cr_assert(tensor != CAT_NONE, "no target '%s'", name);
    cr_assert(shape_equal(catalogue_shape(&s->seen, tensor),
                          catalogue_tensor(&s->seen, tensor)->ndim, shape, ndim),
              "shape of %s", name);
    map_step_gather(s, c, tensor, numbers, 4096);
}

/* view(heads, 2, D / 2, in).transpose(1, 2).reshape(heads * D, in), also of what split made. */
Test(map_import, rope_backwards_for_any_sharding)
{
    const uint64_t heads = 3, rows = 8, width = 2;
    for (uint64_t ranks = 1; ranks < 9; ranks++) {
        map_case c;
        map_step s = {0};
        uint32_t numbers[48], bias[24];
        map_case_init(&c);
        map_case_add(&c, "q", 2, (uint64_t[]){heads * rows, width}, ranks);
        map_case_add(&c, "upper", 1, (uint64_t[]){heads * rows / 2}, ranks);
        map_case_add(&c, "lower", 1, (uint64_t[]){heads * rows / 2}, ranks);
        cr_assert(import(&c, &s,
                         "(w|old) -> q : rope heads\n[new_]b -> lower, upper : rope 3, split 0\n"
                         "drop freq\n",
                         "{\"heads\": 3}") == FSDPCK_OK,
                  "%s", err.message);
        cr_assert_str_eq(map_dropped_names(s.forward), "freq");
        gather(&c, &s, "w", SHAPE(heads * rows, width), numbers);
        gather(&c, &s, "new_b", SHAPE(heads * rows), bias);
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t r = 0; r < 2; r++)
                for (uint64_t i = 0; i < rows / 2; i++) {
                    const uint64_t to = h * rows + 2 * i + r, from = h * rows + r * rows / 2 + i;
                    /* `upper` was added before `lower`. */
                    cr_assert(bias[to] ==
                              heads * rows * width + (from + heads * rows / 2) % (heads * rows));
                    for (uint64_t k = 0; k < width; k++)
                        cr_assert(numbers[to * width + k] == from * width + k, "%u ranks",
                                  (unsigned)ranks);
                }
        map_step_release(&s);
        map_case_release(&c);
    }
}

Test(map_import, import_of_numbers_experts_and_ties)
{
    map_case c;
    map_step s = {0};
    uint32_t numbers[64];
    map_case_init(&c);
    map_case_add(&c, "m.1.e.0.up", 2, (uint64_t[]){2, 1}, 1);
    map_case_add(&c, "m.1.e.1.up", 2, (uint64_t[]){2, 1}, 2);
    map_case_add(&c, "m.1.e.1.gate", 2, (uint64_t[]){2, 1}, 1);
    map_case_add(&c, "m.1.e.0.gate", 2, (uint64_t[]){2, 1}, 1);
    map_case_add(&c, "m.0.norm", 1, (uint64_t[]){1}, 1);
    map_case_add(&c, "m.3.norm", 1, (uint64_t[]){1}, 1);
    map_case_add(&c, "qkv", 1, (uint64_t[]){4}, 1);
    map_case_add(&c, "embed", 1, (uint64_t[]){2}, 1);
    map_case_add(&c, "m.0.inv_freq", 1, (uint64_t[]){2}, 1);
    cr_assert(import(&c, &s,
                     "l.{n}.both -> m.{n}.e.{i}.gate, m.{n}.e.{i}.up : unstack i, split 0\n"
                     "l.{n}.norm -> m.{n}.norm\n"
                     "further.{n}.norm -> m.{n+layers}.norm\n"
                     "q, k -> qkv : concat 0 3 1\n"
                     "[tok_]embed -> embed\n"
                     "head -> lm_head\n"
                     "ignore *.inv_freq\n"
                     "tied head = tok_embed\n",
                     "{\"layers\": 2, \"text_config\": {\"tie_word_embeddings\": true}}") ==
                  FSDPCK_OK,
              "%s", err.message);
    gather(&c, &s, "l.1.both", SHAPE(2, 4, 1), numbers);
    static const uint32_t both[] = {6, 7, 0, 1, 4, 5, 2, 3};
    cr_assert(memcmp(numbers, both, sizeof both) == 0);
    gather(&c, &s, "l.0.norm", SHAPE(1), numbers);
    cr_assert(numbers[0] == 8);
    gather(&c, &s, "further.1.norm", SHAPE(1), numbers);
    cr_assert(numbers[0] == 9);
    gather(&c, &s, "q", SHAPE(3), numbers);
    cr_assert(numbers[0] == 10);
    gather(&c, &s, "k", SHAPE(1), numbers);
    cr_assert(numbers[0] == 13);
    gather(&c, &s, "tok_embed", SHAPE(2), numbers);
    cr_assert(numbers[0] == 14);
    gather(&c, &s, "head", SHAPE(2), numbers);
    cr_assert(numbers[0] == 14);
    cr_assert(catalogue_tensor_count(&s.seen) == 7 && s.seen.passed_over.count == 1);
    map_step_release(&s);
    map_case_release(&c);
}

/* Without the member, the model type decides. */
Test(map_import, ties_by_default)
{
    static const struct {
        const char *config;
        bool tied;
    } cases[] = {
        {"{\"model_type\": \"gemma\"}", true},
        {"{\"model_type\": \"llama\"}", false},
        {"{\"model_type\": \"x\"}", false},
        {"{\"model_type\": \"gemma\", \"tie_word_embeddings\": false}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        map_case c;
        map_step s = {0};
        map_case_init(&c);
        map_case_add(&c, "embed", 1, (uint64_t[]){2}, 1);
        cr_assert_eq(import(&c, &s, "tok_embed -> embed\nhead -> lm_head\ntied head = tok_embed\n",
                            cases[i].config),
                     FSDPCK_OK, "%s", err.message);
        cr_expect_eq(catalogue_tensor_count(&s.seen), cases[i].tied ? 2 : 1, "%s", cases[i].config);
        map_step_release(&s);
        map_case_release(&c);
    }
}

Test(map_import, import_refusals)
{
    static const struct {
        const char *text, *message;
        fsdpck_status status;
        fsdpck_finding_id finding;
    } rows[] = {
        {"x, y -> b : concat 0\n", "line 1, column 13: the rule has no inverse", FSDPCK_UNSUPPORTED,
         FSDPCK_FINDING_MAP_ONE_WAY},
        {"x.{n}.{k} -> {n}{k}\n", "line 1, column 14: the rule has no inverse", FSDPCK_UNSUPPORTED,
         FSDPCK_FINDING_MAP_ONE_WAY},
        {"x.{n}.* -> {n}*\n", "line 1, column 12: the rule has no inverse", FSDPCK_UNSUPPORTED,
         FSDPCK_FINDING_MAP_ONE_WAY},
        {"x -> a.{e}.w : unstack e\nkeep b\n", "'a.0.w' has no 'a.1.w' beside it", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_SOURCE},
        {"x.{n} -> a.{n+1}.w\nkeep b\n", "1 tensor without a rule: 'a.0.w'", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_UNTAKEN},
        {"x.{n} -> a.{n+u}.w\nkeep b\n", "variable 'u' has no value: line 1, column 15",
         FSDPCK_USAGE, FSDPCK_FINDING_MAP_VARIABLE},
        {"x -> b : rope 3\nkeep a.*\n", "operation in line 1, column 10", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_SHAPE},
        {"x.{n} -> a.{n}.w\ny.{n} -> a.{n}.w\nkeep b\n", "lines 1 and 2", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_TAKEN_TWICE},
        {"keep *\nb -> c\n", "on export, another rule matches", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_TAKEN_TWICE},
        {"keep *\ndrop b\n", "on export, another rule matches", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_TAKEN_TWICE},
        {"x -> a.0.w\nx -> a.2.w\nkeep b\n", "'x' matches two rules, of lines 1 and 2",
         FSDPCK_BADINPUT, FSDPCK_FINDING_MAP_TAKEN_TWICE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        map_case c;
        map_step s = {0};
        map_case_init(&c);
        map_case_add(&c, "a.0.w", 2, (uint64_t[]){6, 4}, 2);
        map_case_add(&c, "a.2.w", 2, (uint64_t[]){6, 4}, 2);
        map_case_add(&c, "b", 2, (uint64_t[]){5, 4}, 2);
        const fsdpck_status st = import(&c, &s, rows[i].text, NULL);
        cr_expect(st == rows[i].status && err.finding == rows[i].finding &&
                      strstr(err.message, rows[i].message) != NULL,
                  "'%s': %d %s: %s", rows[i].text, (int)st, fsdpck_finding_name(err.finding),
                  err.message);
        map_step_release(&s);
        map_case_release(&c);
    }
}
