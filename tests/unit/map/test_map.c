#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "map/chunk_index.h"
#include "map/map_choose.h"
#include "tests/support/map_case.h"

static fsdpck_error err;

static fsdpck_status apply(map_case *c, const char *text, const char *config)
{
    fsdpck_error_init(&err);
    return map_case_apply(c, text, strlen(text), config, config == NULL ? 0 : strlen(config), &err);
}

#define SHAPE(...)                                                     \
    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]) \
    {                                                                  \
        __VA_ARGS__                                                    \
    }

/* The elements of a target, which has this shape. */
static void gather(map_case *c, const char *name, unsigned ndim, const uint64_t *shape,
                   uint32_t *numbers)
{
    const uint32_t tensor = catalogue_find(&c->seen, name, strlen(name));
    cr_assert(tensor != CAT_NONE, "no target '%s'", name);
    cr_assert(catalogue_tensor(&c->seen, tensor)->ndim == ndim, "dims of %s", name);
    for (unsigned d = 0; d < ndim; d++)
        cr_assert(catalogue_shape(&c->seen, tensor)[d] == shape[d], "dim %u of %s", d, name);
    map_case_gather(c, tensor, numbers, 4096);
}

/* --- operations: the formulas of torch, in loops --- */

Test(map, renames_captures_and_alternatives)
{
    map_case c;
    uint32_t numbers[16];
    map_case_init(&c);
    map_case_add(&c, "layers.10.a.c.w", 1, (uint64_t[]){2}, 1);
    map_case_add(&c, "layers.7.a.w", 1, (uint64_t[]){3}, 2);
    map_case_add(&c, "vision.tower.1.w", 1, (uint64_t[]){1}, 1);
    map_case_add(&c, "freq", 1, (uint64_t[]){4}, 1);
    map_case_add(&c, "plain{name}", 0, NULL, 1);
    cr_assert(apply(&c,
                    "# names\n"
                    "let k = first or second   # a comment\n"
                    "layers.{n}.a.[b.|c.]w -> m.{n+2}.{n-k}.w\r\n"
                    "vision.* -> v.*\n"
                    "plain\\{name\\} -> let\n"
                    "drop freq, *._extra\n",
                    "{\"text_config\": {\"second\": 5, \"first\": null}}") == FSDPCK_OK,
              "%s", err.message);
    gather(&c, "m.12.5.w", SHAPE(2), numbers);
    cr_assert(numbers[0] == 0 && numbers[1] == 1);
    gather(&c, "m.9.2.w", SHAPE(3), numbers);
    cr_assert(numbers[0] == 2 && numbers[2] == 4);
    gather(&c, "v.tower.1.w", SHAPE(1), numbers);
    gather(&c, "let", 0, NULL, numbers);
    cr_assert(numbers[0] == 10);
    cr_assert(catalogue_tensor_count(&c.seen) == 4);
    cr_assert(c.seen.passed_over.count == 1);
    map_case_release(&c);
}

/* view(heads, D / 2, 2, in).transpose(1, 2).reshape(heads * D, in) */
Test(map, rope_for_any_sharding)
{
    const uint64_t heads = 3, rows = 8, width = 2;
    for (uint64_t ranks = 1; ranks < 9; ranks++) {
        map_case c;
        uint32_t numbers[48], bias[24];
        map_case_init(&c);
        map_case_add(&c, "w", 2, (uint64_t[]){heads * rows, width}, ranks);
        map_case_add(&c, "b", 1, (uint64_t[]){heads * rows}, ranks);
        cr_assert(apply(&c, "w -> q : rope heads\nb -> qb : rope 3\n", "{\"heads\": 3}") ==
                  FSDPCK_OK);
        gather(&c, "q", SHAPE(heads * rows, width), numbers);
        gather(&c, "qb", SHAPE(heads * rows), bias);
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t r = 0; r < 2; r++)
                for (uint64_t i = 0; i < rows / 2; i++) {
                    const uint64_t to = h * rows + r * rows / 2 + i, from = h * rows + 2 * i + r;
                    cr_assert(bias[to] == heads * rows * width + from);
                    for (uint64_t k = 0; k < width; k++)
                        cr_assert(numbers[to * width + k] == from * width + k, "%u ranks",
                                  (unsigned)ranks);
                }
        map_case_release(&c);
    }
}

Test(map, split_by_proportion_and_concat)
{
    for (uint64_t ranks = 1; ranks < 6; ranks++) {
        map_case c;
        uint32_t numbers[64];
        map_case_init(&c);
        map_case_add(&c, "qkv", 2, (uint64_t[]){12, 2}, ranks);
        map_case_add(&c, "up", 2, (uint64_t[]){3, 4}, ranks);
        map_case_add(&c, "gate", 2, (uint64_t[]){3, 6}, ranks);
        cr_assert(apply(&c,
                        "qkv -> q, k, v : split 0 heads kv 2\n"
                        "gate, up -> both : concat 1\n",
                        "{\"heads\": 8, \"kv\": 2}") == FSDPCK_OK);
        gather(&c, "q", SHAPE(8, 2), numbers);
        cr_assert(numbers[0] == 0 && numbers[15] == 15);
        gather(&c, "k", SHAPE(2, 2), numbers);
        cr_assert(numbers[0] == 16 && numbers[3] == 19);
        gather(&c, "v", SHAPE(2, 2), numbers);
        cr_assert(numbers[0] == 20 && numbers[3] == 23);
        gather(&c, "both", SHAPE(3, 10), numbers);
        for (uint32_t row = 0; row < 3; row++)
            for (uint32_t k = 0; k < 10; k++)
                cr_assert(numbers[row * 10 + k] ==
                          (k < 6 ? 36 + row * 6 + k : 24 + row * 4 + k - 6));
        map_case_release(&c);
    }
}

/* view(groups, parts, ...): the parts of each group next to each other; then all first parts, ... */
Test(map, ungroup_and_group)
{
    const uint64_t groups = 3, width = 2;
    static const uint64_t sizes[] = {4, 2, 2};
    const uint64_t rows = groups * 8;
    for (uint64_t ranks = 1; ranks < 10; ranks++) {
        map_case c;
        uint32_t ungrouped[48], grouped[48], third[12];
        uint64_t to = 0, in_group = 0;
        map_case_init(&c);
        map_case_add(&c, "w", 2, (uint64_t[]){rows, width}, ranks);
        map_case_add(&c, "x", 2, (uint64_t[]){rows, width}, ranks);
        map_case_add(&c, "y", 2, (uint64_t[]){rows, width}, ranks);
        cr_assert(apply(&c,
                        "w -> u : ungroup 0 k h k k\n"
                        "x -> g : group 0 k h k k\n"
                        "y -> q, key, value : ungroup 0 k h k k, split 0 h k k\n",
                        "{\"k\": 3, \"h\": 6}") == FSDPCK_OK,
                  "%s", err.message);
        gather(&c, "u", SHAPE(rows, width), ungrouped);
        gather(&c, "g", SHAPE(rows, width), grouped);
        gather(&c, "value", SHAPE(6, width), third);
        for (unsigned part = 0; part < 3; in_group += sizes[part++])
            for (uint64_t g = 0; g < groups; g++)
                for (uint64_t i = 0; i < sizes[part]; i++, to++)
                    for (uint64_t k = 0; k < width; k++) {
                        const uint64_t from = g * 8 + in_group + i;
                        cr_assert(ungrouped[to * width + k] == from * width + k);
                        cr_assert(grouped[from * width + k] == (rows + to) * width + k);
                        if (part == 2)
                            cr_assert(third[(to - 18) * width + k] ==
                                      (2 * rows + from) * width + k);
                    }
        map_case_release(&c);
    }
}

/* Rows after the first ones are left out, and counted. */
Test(map, narrow)
{
    for (uint64_t ranks = 1; ranks < 9; ranks++) {
        map_case c;
        uint32_t numbers[40];
        map_case_init(&c);
        map_case_add(&c, "w", 2, (uint64_t[]){8, 3}, ranks);
        map_case_add(&c, "x", 2, (uint64_t[]){4, 2}, ranks);
        map_case_add(&c, "y", 2, (uint64_t[]){2, 4}, 1);
        cr_assert(apply(&c,
                        "w -> a : narrow 0 rows\nx -> b : narrow 0 4\n"
                        "y -> c : transpose 0 1, narrow 1 1\n",
                        "{\"rows\": 5}") == FSDPCK_OK,
                  "%s", err.message);
        gather(&c, "a", SHAPE(5, 3), numbers);
        for (uint32_t i = 0; i < 15; i++)
            cr_assert(numbers[i] == i);
        gather(&c, "b", SHAPE(4, 2), numbers);
        gather(&c, "c", SHAPE(4, 1), numbers);
        for (uint32_t i = 0; i < 4; i++)
            cr_assert(numbers[i] == 32 + i);
        cr_assert(c.seen.passed_over.count == 2);
        const cat_skipped *cut = VEC_AT(&c.seen.passed_over, const cat_skipped, 0);
        cr_assert_str_eq(catalogue_name(&c.seen, cut[0].name), "w[5:8]");
        cr_assert_str_eq(catalogue_name(&c.seen, cut[1].name), "y[:, 1:2]");
        cr_assert(cut[0].nbytes == 36 && cut[1].nbytes == 16);
        map_case_release(&c);
    }
}

/* Layers, then experts, then the halves of each. */
Test(map, unstack_twice)
{
    for (uint64_t ranks = 1; ranks < 5; ranks++) {
        map_case c;
        uint32_t numbers[8];
        char name[40];
        map_case_init(&c);
        map_case_add(&c, "w", 4, (uint64_t[]){2, 3, 4, 2}, ranks);
        cr_assert(apply(&c, "w -> l.{n}.e.{i}.gate, l.{n}.e.{i}.up : unstack n, unstack i, split 0",
                        NULL) == FSDPCK_OK,
                  "%s", err.message);
        cr_assert(catalogue_tensor_count(&c.seen) == 12);
        for (uint32_t at = 0; at < 12; at++) {
            snprintf(name, sizeof name, "l.%u.e.%u.%s", at / 6, at / 2 % 3, at % 2 ? "up" : "gate");
            gather(&c, name, SHAPE(2, 2), numbers);
            for (uint32_t i = 0; i < 4; i++)
                cr_assert(numbers[i] == at * 4 + i, "%s", name);
        }
        map_case_release(&c);
    }
}

/* Fused experts of transformers 5 to those of its hub files, and back. */
/* transpose(1, 2), of shards of any dim 0; then split along a dim that was another one. */
Test(map, transpose_and_split)
{
    for (uint64_t ranks = 1; ranks < 6; ranks++) {
        map_case c;
        uint32_t numbers[120], upper[60], bias[15];
        map_case_init(&c);
        map_case_add(&c, "w", 3, (uint64_t[]){5, 6, 4}, ranks);
        map_case_add(&c, "b", 2, (uint64_t[]){5, 3}, ranks);
        map_case_add(&c, "r", 2, (uint64_t[]){8, 3}, ranks);
        cr_assert(apply(&c,
                        "w -> lower, upper : transpose 2 1, split 2\n"
                        "b -> b : transpose 0 1\n"
                        "r -> r : rope 2, transpose 0 1\n",
                        NULL) == FSDPCK_OK,
                  "%s", err.message);
        gather(&c, "lower", SHAPE(5, 4, 3), numbers);
        gather(&c, "upper", SHAPE(5, 4, 3), upper);
        for (uint32_t e = 0; e < 5; e++)
            for (uint32_t i = 0; i < 4; i++)
                for (uint32_t k = 0; k < 3; k++) {
                    cr_assert(numbers[(e * 4 + i) * 3 + k] == (e * 6 + k) * 4 + i);
                    cr_assert(upper[(e * 4 + i) * 3 + k] == (e * 6 + k + 3) * 4 + i);
                }
        gather(&c, "b", SHAPE(3, 5), bias);
        for (uint32_t i = 0; i < 15; i++)
            cr_assert(bias[i] == 120 + i % 5 * 3 + i / 5);
        gather(&c, "r", SHAPE(3, 8), numbers);
        for (uint32_t i = 0; i < 24; i++) {
            const uint32_t row = i % 8, from = row / 4 * 4 + row % 2 * 2 + row / 2 % 2;
            cr_assert(numbers[i] == 135 + from * 3 + i / 8);
        }
        map_case_release(&c);
    }
}

Test(map, unstack_then_split_and_back)
{
    const uint64_t experts = 12, rows = 3, width = 2;
    for (uint64_t ranks = 1; ranks < 6; ranks++) {
        map_case c;
        uint32_t numbers[256];
        char name[40];
        map_case_init(&c);
        map_case_add(&c, "l.4.e.gate_up", 3, (uint64_t[]){experts, 2 * rows, width}, ranks);
        cr_assert(apply(&c,
                        "l.{n}.e.gate_up -> l.{n}.e.{i}.gate, l.{n}.e.{i}.up : unstack i, split 0",
                        NULL) == FSDPCK_OK);
        for (uint32_t e = 0; e < experts; e++)
            for (uint32_t half = 0; half < 2; half++) {
                snprintf(name, sizeof name, "l.4.e.%u.%s", e, half == 0 ? "gate" : "up");
                gather(&c, name, SHAPE(rows, width), numbers);
                for (uint32_t i = 0; i < rows * width; i++)
                    cr_assert(numbers[i] == (e * 2 + half) * rows * width + i);
            }
        map_case_release(&c);
        map_case_init(&c);
        /* Not in the order of their numbers: 10 and 11 before 2. */
        for (uint32_t e = 0; e < experts; e++) {
            snprintf(name, sizeof name, "l.4.e.%u.gate", (e + 10) % (uint32_t)experts);
            map_case_add(&c, name, 2, (uint64_t[]){rows, width}, ranks);
            snprintf(name, sizeof name, "l.4.e.%u.up", (e + 10) % (uint32_t)experts);
            map_case_add(&c, name, 2, (uint64_t[]){rows, width}, ranks);
        }
        cr_assert(apply(&c,
                        "l.{n}.e.{i}.gate, l.{n}.e.{i}.up -> l.{n}.e.gate_up : stack i, concat 1",
                        NULL) == FSDPCK_OK,
                  "%s", err.message);
        gather(&c, "l.4.e.gate_up", SHAPE(experts, 2 * rows, width), numbers);
        for (uint32_t e = 0; e < experts; e++)
            for (uint32_t i = 0; i < 2 * rows * width; i++)
                cr_assert(numbers[e * 2 * rows * width + i] ==
                          (e + 2) % (uint32_t)experts * 2 * rows * width + i);
        map_case_release(&c);
    }
}

/* Several sources and as many targets, without an operation. */
Test(map, renames_several)
{
    map_case c;
    uint32_t numbers[4];
    map_case_init(&c);
    map_case_add(&c, "a", 1, (uint64_t[]){2}, 2);
    map_case_add(&c, "b", 1, (uint64_t[]){3}, 1);
    cr_assert(apply(&c, "b, a -> c, d\n", NULL) == FSDPCK_OK, "%s", err.message);
    cr_assert(catalogue_tensor_count(&c.seen) == 2);
    gather(&c, "c", SHAPE(3), numbers);
    cr_assert(numbers[0] == 2);
    gather(&c, "d", SHAPE(2), numbers);
    cr_assert(numbers[0] == 0);
    map_case_release(&c);
}

/* `keep` is for what no other rule takes, even where it comes first. */
Test(map, keeps_names_of_others)
{
    map_case c;
    uint32_t numbers[16];
    map_case_init(&c);
    map_case_add(&c, "l.0.w", 1, (uint64_t[]){2}, 1);
    map_case_add(&c, "l.1.w", 1, (uint64_t[]){2}, 1);
    map_case_add(&c, "keep", 1, (uint64_t[]){3}, 1);
    map_case_add(&c, "w", 2, (uint64_t[]){4, 1}, 2);
    map_case_add(&c, "freq", 1, (uint64_t[]){1}, 1);
    cr_assert(apply(&c, "keep l.{n}.w, *\nkeep *\nw -> v : rope 2\ndrop freq\nkeep -> kept\n",
                    NULL) == FSDPCK_OK,
              "%s", err.message);
    cr_assert(catalogue_tensor_count(&c.seen) == 4);
    gather(&c, "l.0.w", SHAPE(2), numbers);
    cr_assert(numbers[0] == 0);
    gather(&c, "l.1.w", SHAPE(2), numbers);
    cr_assert(numbers[0] == 2);
    gather(&c, "kept", SHAPE(3), numbers);
    cr_assert(numbers[0] == 4);
    gather(&c, "v", SHAPE(4, 1), numbers);
    cr_assert(numbers[0] == 7 && numbers[1] == 8);
    map_case_release(&c);
}

/* --- refusals --- */

typedef struct refusal {
    const char *text, *config, *message;
    fsdpck_status status;
    fsdpck_finding_id finding;
} refusal;

static void check_refusals(const refusal *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        map_case c;
        map_case_init(&c);
        map_case_add(&c, "a.0.w", 2, (uint64_t[]){6, 4}, 2);
        map_case_add(&c, "a.2.w", 2, (uint64_t[]){6, 4}, 2);
        map_case_add(&c, "b", 2, (uint64_t[]){5, 4}, 2);
        const fsdpck_status st = apply(&c, list[i].text, list[i].config);
        cr_expect(st == list[i].status && err.finding == list[i].finding &&
                      strstr(err.message, list[i].message) != NULL,
                  "'%s': %d %s: %s", list[i].text, (int)st, fsdpck_finding_name(err.finding),
                  err.message);
        map_case_release(&c);
    }
}

#define SYNTAX(text, message)                                        \
    {                                                                \
        text, NULL, message, FSDPCK_USAGE, FSDPCK_FINDING_MAP_SYNTAX \
    }
#define WRONG(text, message, finding)                                              \
    {                                                                              \
        text, "{\"n\": 1}", message, FSDPCK_BADINPUT, FSDPCK_FINDING_MAP_##finding \
    }

Test(map, syntax_errors_have_line_and_column)
{
    static const refusal list[] = {
        SYNTAX("", "line 1, column 1: expected a rule"),
        SYNTAX("# only\n\n", "line 3, column 1: expected a rule"),
        SYNTAX("a\n", "line 1, column 2: expected '->'"),
        SYNTAX("a ->\n", "line 1, column 5: expected the name of a target"),
        SYNTAX("  -> b\n", "line 1, column 3: expected the name of a source"),
        SYNTAX("a, -> b\n", "line 1, column 4: expected the name of a source"),
        SYNTAX(", a -> b\n", "line 1, column 1: expected a name"),
        SYNTAX("a -> b c\n", "line 1, column 8: expected ':' or the end of the line, found 'c'"),
        SYNTAX("a -> b :\n", "line 1, column 9: expected rope, split, concat, transpose, stack"),
        SYNTAX("a -> b : turn\n", "line 1, column 10: expected rope, split"),
        SYNTAX("a -> b : rope\n", "line 1, column 14: expected an argument"),
        SYNTAX("a -> b : rope, split 0\n", "line 1, column 10: expected an argument"),
        SYNTAX("a -> b : rope 0\n", "line 1, column 15: expected a positive number"),
        SYNTAX("a -> b : rope 1 2\n", "line 1, column 17: expected ',' or the end"),
        SYNTAX("a -> b : rope 1.5\n", "line 1, column 15: expected a positive number"),
        SYNTAX("a -> b, c : split 8\n", "line 1, column 19: expected a dim, 0 to 7"),
        SYNTAX("a -> b, c : split 0 1\n", "line 1, column 13: split: expected no proportions"),
        SYNTAX("a -> b : split 0\n", "line 1, column 10: split: expected two targets"),
        SYNTAX("a, b -> c, d : split 0\n", "line 1, column 16: split: expected one tensor"),
        SYNTAX("a -> b : transpose 1\n", "line 1, column 21: expected a dim, 0 to 7"),
        SYNTAX("a -> b : transpose 1, 2\n", "line 1, column 20: expected two dims"),
        SYNTAX("a -> b : transpose 1 1\n", "line 1, column 22: expected another dim"),
        SYNTAX("a -> b : concat 0\n", "line 1, column 10: concat: expected two sources"),
        SYNTAX("a, b -> c : concat 0 1\n", "line 1, column 13: concat: expected no proportions"),
        SYNTAX("a, b -> c : concat 0 1 0\n", "line 1, column 24: expected a positive number"),
        SYNTAX("ignore a b\n", "line 1, column 10: expected ',' or the end of the line"),
        SYNTAX("tied a b\n", "line 1, column 8: expected '='"),
        SYNTAX("tied a =\n", "line 1, column 9: expected the name of a tensor"),
        SYNTAX("tied a = b c\n", "line 1, column 12: expected the end of the line"),
        SYNTAX("a -> b, c\n", "line 1, column 3: '->': expected ': split DIM'"),
        SYNTAX("a, b -> c\n", "line 1, column 6: '->': expected ': concat DIM'"),
        SYNTAX("a.{n} -> b\n",
               "line 1, column 7: '->': expected {n} in the targets, or ': stack n'"),
        SYNTAX("a -> b.{n}\n",
               "line 1, column 3: '->': expected {n} in the sources, or ': unstack n'"),
        SYNTAX("a* -> b\n", "line 1, column 4: '->': expected '*' in both"),
        SYNTAX("a.{n}, b -> c : concat 0\n", "line 1, column 8: expected the same names in"),
        SYNTAX("a.{n} -> b : stack m\n", "line 1, column 20: expected a name that is in braces"),
        SYNTAX("a.{n} -> b.{n} : unstack n\n",
               "line 1, column 18: unstack: expected a name in braces that"),
        SYNTAX("a.{n}.{m} -> b : stack n, stack m\n",
               "line 1, column 27: stack: expected one stack"),
        SYNTAX("a -> b.{n}.{m}.{k} : unstack n, unstack m, unstack k\n",
               "line 1, column 44: unstack: expected two unstacks"),
        SYNTAX("a -> b : narrow 0\n", "line 1, column 18: expected a positive number"),
        SYNTAX("a -> b : narrow 0 0\n", "line 1, column 19: expected a positive number"),
        SYNTAX("a -> b : narrow 0 1 2\n", "line 1, column 21: expected ',' or the end"),
        SYNTAX("a -> b : group 0 1 2\n", "line 1, column 21: expected the number of groups"),
        SYNTAX("a -> b : ungroup 8 1 2 3\n", "line 1, column 18: expected a dim, 0 to 7"),
        SYNTAX("a -> b.{n} : unstack n, stack n\n",
               "line 1, column 25: stack: expected a name in braces from"),
        SYNTAX("a.{n -> b\n", "line 1, column 5: expected '}'"),
        SYNTAX("a.{} -> b\n", "line 1, column 4: expected a name in braces"),
        SYNTAX("a.{1} -> b\n", "line 1, column 4: expected a name in braces"),
        SYNTAX("{n.a -> b\n", "line 1, column 3: expected '}'"),
        SYNTAX("lte n = k\n", "or a line that begins with let, for"),
        SYNTAX("a.{n+1} -> b.{n}\n", "line 1, column 5: expected '}': only a target"),
        SYNTAX("a.{n} -> b.{n+}\n", "line 1, column 15: expected a number or a variable"),
        SYNTAX("a.{n}.{n} -> b.{n}\n", "line 1, column 8: expected a name in braces that this"),
        SYNTAX("a.{n}{m} -> b.{n}.{m}\n", "line 1, column 1: expected text between any two"),
        SYNTAX("a.{n}* -> b.{n}*\n", "line 1, column 1: expected text between any two"),
        SYNTAX("a.{n}0 -> b.{n}\n", "line 1, column 1: expected text between any two"),
        SYNTAX("a.{a}.{b}.{c}.{d}.{e} -> b\n", "line 1, column 20: expected at most 4 names"),
        SYNTAX("a** -> b*\n", "line 1, column 3: expected one '*'"),
        SYNTAX("a} -> b\n", "line 1, column 2: expected '\\' before"),
        SYNTAX("(a|b -> c\n", "line 1, column 5: expected ')'"),
        SYNTAX("[a|{n}] -> c\n", "line 1, column 4: expected plain text"),
        SYNTAX("a -> (b|c)\n", "line 1, column 6: expected one name"),
        SYNTAX("[a] -> c\n", "line 1, column 1: expected a name that is not empty"),
        SYNTAX("[a][a][a][a][a][a][a]b -> c\n", "line 1, column 1: expected at most 64 names"),
        SYNTAX("let 1 = a\n", "line 1, column 5: expected the name of a variable"),
        SYNTAX("let a b\n", "line 1, column 7: expected '='"),
        SYNTAX("let a =\n", "line 1, column 8: expected a key of config.json"),
        SYNTAX("let a = b or\n", "line 1, column 13: expected a key of config.json"),
        SYNTAX("let a = b c\n", "line 1, column 11: expected 'or' or the end"),
        SYNTAX("let a = b\nlet a = c\n", "line 2, column 5: expected a new name"),
        SYNTAX("keep a -> b\n", "line 1, column 8: expected ',' or the end"),
        SYNTAX("drop a b\n", "line 1, column 8: expected ',' or the end"),
        SYNTAX("* -> *\ndrop\n", "line 2, column 5: expected '->'"),
    };
    check_refusals(list, sizeof list / sizeof *list);
}

Test(map, rules_that_do_not_fit_the_tensors)
{
    static const refusal list[] = {
        WRONG("a.{n}.w -> a.{n}\n", "1 tensor without a rule: 'b'", UNTAKEN),
        WRONG("drop x\n", "3 tensors without a rule: 'a.0.w', 'a.2.w', 'b'", UNTAKEN),
        WRONG("* -> *\nb -> c\n", "'b' matches two rules, of lines 1 and 2", TAKEN_TWICE),
        WRONG("* -> *\ndrop b\n", "'b' matches two rules, of lines 1 and 2", TAKEN_TWICE),
        WRONG("b, b -> c : concat 0\na.{n}.w -> {n}\n", "'b' matches two rules", TAKEN_TWICE),
        WRONG("b -> a.2.w\nkeep a.*\n", "'a.2.w' is filled twice, by the rules of lines 1 and 2",
              TARGET_TWICE),
        WRONG("keep b\n", "2 tensors without a rule: 'a.0.w', 'a.2.w'", UNTAKEN),
        WRONG("b -> x.2\na.{n}.w -> x.{n}\n", "'x.2' is filled twice, by the rules of lines",
              TARGET_TWICE),
        WRONG("a.{n}.w -> x.{n}.{n-n}\ndrop b\n", "0 - 1 is below 0: line 1, column 21 of the map",
              SHAPE),
        WRONG("a.{n}.w -> a : stack n\ndrop b\n", "'a.0.w' has no 'a.1.w' beside it", SOURCE),
        WRONG("a.{n}.w, c.{n} -> d.{n} : concat 0\ndrop b\n", "'a.0.w' has no 'c.0'", SOURCE),
        WRONG("a.(0|2).w -> a\ndrop b\n", "are the same source of the rule of line 1", SOURCE),
        WRONG("b -> c : rope 2\na.{n}.w -> a.{n}\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c : rope 5\na.{n}.w -> a.{n}\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c, d : split 0\na.{n}.w -> a.{n}\n", "line 1, column 13 of the map", SHAPE),
        WRONG("b -> c, d : split 2\na.{n}.w -> a.{n}\n", "line 1, column 13 of the map", SHAPE),
        WRONG("b -> c, d : split 1 2 3\na.{n}.w -> a.{n}\n", "line 1, column 13", SHAPE),
        WRONG("b -> c : transpose 0 2\na.{n}.w -> a.{n}\n", "line 1, column 10", SHAPE),
        WRONG("b -> c : narrow 0 6\nkeep *\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c : narrow 2 1\nkeep *\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c : ungroup 0 5 4 1\nkeep *\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c : ungroup 1 4 1 1\nkeep *\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c : group 1 8 2 2\nkeep *\n", "line 1, column 10 of the map", SHAPE),
        WRONG("b -> c : group 2 1 2 2\nkeep *\n", "line 1, column 10 of the map", SHAPE),
        WRONG("a.0.w, b -> c : concat 1\ndrop a.2.w\n", "line 1, column 17 of the map", SHAPE),
        WRONG("a.0.w, b -> c : concat 2\ndrop a.2.w\n", "line 1, column 17 of the map", SHAPE),
        {"* -> *\n", "{\"n\": ", "", FSDPCK_BADINPUT, FSDPCK_FINDING_MAP_CONFIG},
        {"* -> *\n", "[]", "", FSDPCK_BADINPUT, FSDPCK_FINDING_MAP_CONFIG},
        {"b -> c : rope n\n", "{\"n\": 0}", "'n' is not a positive integer", FSDPCK_BADINPUT,
         FSDPCK_FINDING_MAP_CONFIG},
        {"b -> c : rope n\ndrop a.{n}.w\n", "{\"m\": 1}",
         "variable 'n' has no value: line 1, column 15 of", FSDPCK_USAGE,
         FSDPCK_FINDING_MAP_VARIABLE},
    };
    check_refusals(list, sizeof list / sizeof *list);
}

/* --- variables --- */

static void check_variable(const char *let, const char *config, uint64_t expected)
{
    budget memory;
    tensor_map *m = NULL;
    char text[200];
    bool is_set;
    uint64_t number;
    budget_init(&memory, 1u << 20, "metadata", NULL);
    fsdpck_error_init(&err);
    snprintf(text, sizeof text, "%s\na -> b : rope x\n", let);
    cr_assert(map_read(text, strlen(text), &memory, &m, &err) == FSDPCK_OK);
    cr_assert(map_read_config(m, config, strlen(config), &err) == FSDPCK_OK, "%s", err.message);
    cr_assert(map_variable_count(m) == 1);
    cr_assert_str_eq(map_variable(m, 0, &is_set, &number), "x");
    cr_expect(is_set == (expected > 0) && number == expected, "%s with %s: %u", let, config,
              (unsigned)number);
    cr_assert(map_set_variable(m, "x=77", &err) == FSDPCK_OK);
    cr_assert(map_read_config(m, config, strlen(config), &err) == FSDPCK_OK);
    (void)map_variable(m, 0, &is_set, &number);
    cr_expect(is_set && number == 77, "--map-set comes first");
    map_free(m);
    cr_assert(memory.used_bytes == 0);
}

Test(map, variables_by_precedence)
{
    check_variable("", "{\"x\": 3}", 3);
    check_variable("let x = a or b", "{\"b\": 2, \"a\": 1}", 1);
    check_variable("let x = a or b", "{\"a\": 1, \"b\": 2}", 1);
    check_variable("let x = a or b", "{\"b\": 2, \"a\": null}", 2);
    check_variable("let x = a", "{\"text_config\": {\"a\": 5}}", 5);
    check_variable("let x = a", "{\"text_config\": {\"a\": 5}, \"a\": 4}", 4);
    check_variable("let x = a", "{\"a\": 4, \"text_config\": {\"a\": 5}}", 4);
    check_variable("let x = a or b", "{\"b\": 4, \"text_config\": {\"a\": 5}}", 5);
    check_variable("let x = a", "{\"other\": {\"a\": 5}, \"list\": [{\"a\": 6}]}", 0);
    check_variable("let x = a", "{\"text_config\": 3}", 0);
}

Test(map, set_variable_refusals)
{
    budget memory;
    tensor_map *m = NULL;
    static const char text[] = "a -> b : rope x\n";
    static const char *const wrong[] = {"x", "x=", "x=0", "x=-1", "x=1.5", "y=2", "=2", "x=01"};
    budget_init(&memory, 1u << 20, "metadata", NULL);
    cr_assert(map_read(text, strlen(text), &memory, &m, NULL) == FSDPCK_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fsdpck_error_init(&err);
        cr_expect(map_set_variable(m, wrong[i], &err) == FSDPCK_USAGE &&
                      err.finding == FSDPCK_FINDING_MAP_VARIABLE,
                  "%s", wrong[i]);
    }
    map_free(m);
}

/* --- the maps that are built in --- */

Test(map, built_in_maps_are_read)
{
    size_t count = 0;
    const char *before = "";
    for (const map_entry *e = map_entries; e->name != NULL; e++, count++) {
        budget memory;
        tensor_map *m = NULL;
        fsdpck_error_init(&err);
        budget_init(&memory, 1u << 20, "metadata", NULL);
        cr_expect(map_read(e->text, e->nbytes, &memory, &m, &err) == FSDPCK_OK, "%s: %s", e->name,
                  err.message);
        map_free(m);
        cr_expect(map_find(e->name) == e && strcmp(before, e->name) < 0);
        cr_expect(strlen(e->text) == e->nbytes && strncmp(e->text, "# ", 2) == 0 &&
                  strstr(e->text, "\n# Source: ") != NULL);
        before = e->name;
    }
    cr_assert(count >= 2);
    cr_assert(map_find("nowhere") == NULL);
}

/* --- the map for a model --- */

static map_choice choose(const map_entry *entries, const char *model_type, const char *names)
{
    map_input inputs[8];
    map_choice c;
    size_t count = 0;
    for (const char *at = names; *at != '\0'; at += strlen(at) + 1)
        inputs[count++] = (map_input){.name = at, .nbytes = strlen(at)};
    fsdpck_error_init(&err);
    cr_assert(map_choose(entries, model_type, inputs, count, NULL, &c, &err) == FSDPCK_OK, "%s",
              err.message);
    return c;
}

#define ENTRY(name, text)             \
    {                                 \
        name, text, sizeof(text) - 1, \
    }

Test(map, chosen_by_model_type_and_names)
{
    const map_entry maps[] = {
        ENTRY("any", "a -> b\n"),
        ENTRY("one", "for llama, mistral : layers.{n}.w\nlayers.{n}.w -> {n}\n"),
        ENTRY("two", "for llama : layers.{n}.w, (head|out)\nlayers.{n}.w -> {n}\ndrop head, out\n"),
        ENTRY("three", "for llama : layers.{n}.w, *.k\nlayers.{n}.w -> {n}\ndrop *.k\n"),
        {0},
    };
    map_choice c = choose(maps, "llama", "x\0layers.3.w\0");
    cr_assert(c.fits == &maps[1] && c.equal == NULL);
    c = choose(maps, "llama", "layers.3.w\0out\0");
    cr_assert(c.fits == &maps[2] && c.equal == NULL);
    c = choose(maps, "llama", "out\0a.k\0layers.3.w\0");
    cr_assert(c.fits == &maps[2] && c.equal == &maps[3]);
    c = choose(maps, "mistral", "out\0a.k\0layers.3.w\0");
    cr_assert(c.fits == &maps[1]);
    cr_assert(choose(maps, "llama", "out\0layers.w\0").fits == NULL);
    cr_assert(choose(maps, "qwen3", "layers.3.w\0").fits == NULL);
    cr_assert(choose(maps, "", "layers.3.w\0").fits == NULL);
    text_buf text = {0};
    cr_assert(map_print_purposes(maps, "llama", 90, &text, &err) == FSDPCK_OK);
    cr_assert_str_eq(text.text, "one for layers.{n}.w; two for layers.{n}.w, (head|out); "
                                "three for layers.{n}.w, *.k");
    text_release(&text);
}

/* Each map that is built in says what it is for. */
Test(map, built_in_maps_are_chosen)
{
    cr_assert_str_eq(
        choose(map_entries, "llama", "tok_embeddings.weight\0layers.0.attention.wq.weight\0")
            .fits->name,
        "torchtitan-llama3");
    cr_assert_str_eq(choose(map_entries, "qwen3_moe",
                            "tok_embeddings.weight\0layers.0.attention.q_norm.weight\0")
                         .fits->name,
                     "torchtitan-qwen3");
}

Test(map, refuses_a_wrong_for)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"for : a\na -> b\n", "line 1, column 5: expected a model type, found ':'"},
        {"for llama\na -> b\n", "line 1, column 10: expected ',' or ':'"},
        {"for llama, : a\na -> b\n", "line 1, column 12: expected a model type, found ':'"},
        {"for llama : a b\na -> b\n",
         "line 1, column 15: expected ',' or the end of the line, found 'b'"},
        {"for x : a\nfor y : a\na -> b\n",
         "line 2, column 1: expected one 'for' in a map, found 'for'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        map_case c;
        map_case_init(&c);
        cr_assert(apply(&c, rows[i].text, NULL) == FSDPCK_USAGE, "row %zu", i);
        cr_assert_str_eq(err.message, rows[i].message);
        map_case_release(&c);
    }
}

/* Pieces that end inside of groups: [5], [7] and [12] in 4 groups of 2 + 4. */
Test(map, regroups_pieces_of_any_size)
{
    static const char *const texts[] = {"a, b, c -> x : concat 0, ungroup 0 4 1 2\n",
                                        "a, b, c -> x : concat 0, group 0 4 1 2\n"};
    for (unsigned k = 0; k < 2; k++) {
        uint32_t numbers[24];
        map_case c;
        map_case_init(&c);
        cr_assert(map_case_add(&c, "a", 1, (const uint64_t[]){5}, 1));
        cr_assert(map_case_add(&c, "b", 1, (const uint64_t[]){7}, 2));
        cr_assert(map_case_add(&c, "c", 1, (const uint64_t[]){12}, 1));
        cr_assert(map_case_apply(&c, texts[k], strlen(texts[k]), NULL, 0, &err) == FSDPCK_OK);
        cr_assert(map_case_gather(&c, 0, numbers, 24) == 24);
        for (uint32_t i = 0; i < 24; i++) {
            const uint32_t joined = i % 6 < 2 ? i / 6 * 2 + i % 6 : 8 + i / 6 * 4 + i % 6 - 2;
            cr_assert(k == 0 ? numbers[joined] == i : numbers[i] == joined, "%u: %u", k, i);
        }
        map_case_release(&c);
    }
}

/* Chunks and pieces grow together: each piece is compared with those chunks alone that it may share elements with. */
Test(map, compares_each_piece_with_its_chunks_only)
{
    static const char *const texts[] = {
        "w -> x : rope 100\n",
        "w -> x.{e} : unstack e\n",
        "w -> x : transpose 0 1\n",
        "w -> x, y : ungroup 0 100 1 3, split 0 1 3\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (unsigned k = 0; k < 2; k++) {
            const uint64_t rows = k == 0 ? 400 : 1600;
            map_case c;
            map_case_init(&c);
            cr_assert(map_case_add(&c, "w", 2, (const uint64_t[]){rows, 2}, rows));
            const fsdpck_status st = map_case_apply(&c, texts[i], strlen(texts[i]), NULL, 0, &err);
            cr_assert(st == FSDPCK_OK, "%s: %d %s", texts[i], (int)st, err.message);
            const uint64_t compared = map_adapter_compared(c.adapter);
            cr_assert(compared >= rows && compared <= 2 * rows, "%s: %" PRIu64, texts[i], compared);
            map_case_release(&c);
        }
    }
}

/* As rows and columns of a grid, and in an order of their own. */
Test(map, finds_the_chunks_of_a_box)
{
    enum { SIDE = 40 };
    budget memory;
    catalogue c;
    uint32_t file, tensor;
    chunk_index x;
    budget_init(&memory, (uint64_t)1 << 30, "memory", NULL);
    catalogue_init(&c, &memory);
    cr_assert(catalogue_add_file(&c, "f", 1, SIDE * SIDE, 0, &file, &err) == FSDPCK_OK);
    cr_assert(catalogue_add_tensor(&c, "w", 1, DTYPE_UINT8, 2, (const uint64_t[]){SIDE, SIDE},
                                   &tensor, &err) == FSDPCK_OK);
    for (uint64_t i = 0; i < SIDE * SIDE; i++) {
        const uint64_t at = i * 7 % (SIDE * SIDE), offsets[] = {at % SIDE, at / SIDE};
        const cat_chunk k = {.file = file, .nbytes = 1};
        cr_assert(catalogue_add_chunk(&c, tensor, offsets, (const uint64_t[]){1, 1}, &k, &err) ==
                  FSDPCK_OK);
    }
    cr_assert(catalogue_seal(&c, &err) == FSDPCK_OK);
    chunk_index_init(&x, &c, &memory);
    for (unsigned wide = 0; wide < 2; wide++) {
        const uint64_t begins[] = {3, 5}, ends[] = {wide ? SIDE : 5, wide ? 7 : SIDE}, *chunks;
        size_t count, found = 0;
        cr_assert(chunk_index_find(&x, tensor, begins, ends, &chunks, &count, &err) == FSDPCK_OK);
        cr_assert(count == 2 * SIDE, "%zu", count);
        for (size_t i = 0; i < count; i++) {
            uint64_t offsets[NDIM_MAX];
            catalogue_chunk_box(&c, chunks[i], offsets, NULL);
            cr_assert(i == 0 || chunks[i] > chunks[i - 1]);
            found += offsets[0] >= begins[0] && offsets[0] < ends[0] && offsets[1] >= begins[1] &&
                     offsets[1] < ends[1];
        }
        cr_assert(found == (ends[0] - begins[0]) * (ends[1] - begins[1]));
    }
    chunk_index_release(&x);
    catalogue_release(&c);
}
