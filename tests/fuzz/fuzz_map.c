/* A tensor map, and the tensors of a checkpoint that it applies to:
 *
 *     layers.{n}.wq -> layers.{n}.q : rope heads
 *     %%
 *     3 layers.0.wq 8 4            ranks, name, shape
 *     %%
 *     {"heads": 2}                 config.json, or nothing
 *     %%
 *     heads=2                      a setting, or nothing
 *
 * A map that is accepted must move elements: every element of a tensor that it takes is in exactly one
 * target, every element of a target is filled once, and none comes from a tensor that it drops.
 *
 * Its inverse is applied to the result, and to the checkpoint itself. Where it is accepted, export must
 * give each tensor back. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "map/map_internal.h"
#include "tests/support/map_case.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#define ELEMENTS_MAX 4096u
#define RANKS_MAX    16u
#define DIMS_READ    10u

static uint64_t next_number(char **at)
{
    uint64_t n = 0;
    while (**at == ' ')
        ++*at;
    for (unsigned i = 0; i < 6 && **at >= '0' && **at <= '9'; i++)
        n = n * 10 + (uint64_t)(*(*at)++ - '0');
    return n;
}

/* False if the checkpoint cannot have the tensor. */
static bool add_line(map_case *c, char *line)
{
    uint64_t shape[DIMS_READ], nelems = 1;
    unsigned ndim = 0;
    const uint64_t ranks = next_number(&line) % RANKS_MAX;
    while (*line == ' ')
        line++;
    char *name = line;
    line += strcspn(line, " ");
    if (*line != '\0')
        *line++ = '\0';
    while (*line != '\0' && ndim < DIMS_READ) {
        shape[ndim] = next_number(&line) % ELEMENTS_MAX;
        nelems *= shape[ndim];
        nelems = nelems < ELEMENTS_MAX ? nelems : ELEMENTS_MAX;
        ndim++;
        line += strcspn(line, " ");
    }
    if (c->elements + nelems >= ELEMENTS_MAX || name[0] == '\0')
        return true;
    return map_case_add(c, name, ndim, shape, ranks);
}

/* Every element of the tensors that are taken, once. */
static void check_elements(const map_case *c)
{
    static uint8_t seen[ELEMENTS_MAX];
    static uint32_t numbers[ELEMENTS_MAX];
    uint64_t total = 0, dropped = 0;
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < catalogue_tensor_count(&c->seen); i++) {
        const uint64_t count = map_case_gather(c, i, numbers, ELEMENTS_MAX);
        for (uint64_t k = 0; k < count; k++)
            must(seen[numbers[k]]++ == 0, "an element is in two targets");
        total += count;
    }
    for (size_t i = 0; i < c->seen.passed_over.count; i++)
        dropped += VEC_AT(&c->seen.passed_over, const cat_skipped, i)->nbytes / 4;
    must(total + dropped == c->elements, "an element is lost");
}

static void check_variables(const tensor_map *m)
{
    for (size_t i = 0; i < map_variable_count(m); i++) {
        bool is_set;
        uint64_t number;
        must(map_variable(m, i, &is_set, &number)[0] != '\0', "a variable without a name");
        const bool is_switch = VEC_AT(&m->variables, const map_variable_def, i)->is_switch;
        const uint64_t least = is_switch ? 0 : 1, most = is_switch ? 1 : (uint64_t)1 << 40;
        must(!is_set || (number >= least && number <= most), "a variable out of range");
    }
    fsdpck_error err;
    fsdpck_error_init(&err);
    (void)map_sizes(m); /* for the sanitizers */
    (void)map_uses_config(m);
    (void)map_counts_layers(m);
    must(map_check_set(m, &err) == FSDPCK_OK || err.message[0] != '\0',
         "a refusal without a message");
}

/* Tensors that `tied` adds are not compared; `ignore` may omit some. */
static void check_same(const map_case *c, const map_step *again, bool imported_first)
{
    static uint32_t numbers[ELEMENTS_MAX], expected[ELEMENTS_MAX];
    const catalogue *before = imported_first ? &c->base : &c->seen;
    for (uint32_t i = 0; i < catalogue_tensor_count(&again->seen); i++) {
        const uint32_t name = catalogue_tensor(&again->seen, i)->name;
        const uint32_t k = catalogue_find(before, catalogue_name(&again->seen, name),
                                          catalogue_name_nbytes(&again->seen, name));
        if (k == CAT_NONE) {
            must(again->map->ties.count > 0, "a tensor that was not there");
            continue;
        }
        must(shape_equal(catalogue_shape(before, k), catalogue_tensor(before, k)->ndim,
                         catalogue_shape(&again->seen, i), catalogue_tensor(&again->seen, i)->ndim),
             "another shape after import and export");
        const uint64_t count = map_step_gather(again, c, i, numbers, ELEMENTS_MAX);
        if (imported_first)
            for (uint64_t n = 0; n < count; n++)
                expected[n] =
                    (uint32_t)(catalogue_chunk(before, catalogue_tensor(before, k)->first_chunk)
                                       ->offset_bytes /
                                   4 +
                               n);
        else
            must(map_case_gather(c, k, expected, ELEMENTS_MAX) == count, "another size");
        must(memcmp(numbers, expected, count * sizeof *numbers) == 0, "elements in another order");
    }
}

static bool ignores(const tensor_map *m)
{
    for (size_t i = 0; i < m->rules.count; i++)
        if (VEC_AT(&m->rules, const map_rule, i)->ignores)
            return true;
    return false;
}

/* Import, of the result if there is one, then export. */
static void check_return(map_case *c)
{
    map_step there = {0}, back = {0};
    fsdpck_error err;
    fsdpck_error_init(&err);
    const bool first = c->adapter == NULL;
    fsdpck_status st = map_step_apply(&there, c, NULL, true, &err);
    must(st == FSDPCK_OK || err.message[0] != '\0', "a refusal without a message");
    if (st == FSDPCK_OK) {
        const catalogue *before = first ? &c->base : &c->seen;
        st = map_step_apply(&back, c, &there, false, &err);
        must(st == FSDPCK_OK || st == FSDPCK_USAGE || st == FSDPCK_LIMIT, err.message);
        if (st == FSDPCK_OK) {
            check_same(c, &back, first);
            must(catalogue_tensor_count(&back.seen) >= catalogue_tensor_count(before) ||
                     ignores(back.map),
                 "a tensor does not come back");
        }
    }
    map_step_release(&back);
    map_step_release(&there);
}

/* Cuts the text at a line of two percent signs; the rest, or NULL. */
static char *cut(char *text)
{
    char *at = strstr(text, "%%\n");
    while (at != NULL && at != text && at[-1] != '\n')
        at = strstr(at + 1, "%%\n");
    if (at == NULL)
        return NULL;
    *at = '\0';
    return at + 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static map_case c;
    fsdpck_error err;
    if (nbytes > 20000)
        return 0;
    char *text = malloc(nbytes + 1);
    must(text != NULL, "no memory");
    memcpy(text, data, nbytes);
    text[nbytes] = '\0';
    fsdpck_error_init(&err);
    map_case_init(&c);
    char *tensors = cut(text);
    char *config = tensors == NULL ? NULL : cut(tensors);
    c.set = config == NULL ? NULL : cut(config);
    bool possible = true;
    while (tensors != NULL && *tensors != '\0' && possible) {
        char *end = tensors + strcspn(tensors, "\n");
        char *next = *end == '\0' ? end : end + 1;
        *end = '\0';
        if (end > tensors)
            possible = add_line(&c, tensors);
        tensors = next;
    }
    if (possible) {
        const size_t map_nbytes = tensors == NULL ? nbytes : strlen(text);
        const fsdpck_status st =
            map_case_apply(&c, text, map_nbytes, config, config == NULL ? 0 : strlen(config), &err);
        if (c.map != NULL)
            check_variables(c.map);
        if (st == FSDPCK_OK)
            check_elements(&c);
        else
            must(err.message[0] != '\0', "a refusal without a message");
        /* Also of a map that does not fit the names in the other direction. */
        if (c.map != NULL)
            check_return(&c);
    }
    map_case_release(&c);
    free(text);
    return 0;
}
