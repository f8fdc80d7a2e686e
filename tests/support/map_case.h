/* map_case.h: a small checkpoint of numbered elements under a tensor map, for tests.
 *
 * Elements are numbered over all tensors in the order in which they are added, row-major in each. A
 * tensor is stored in the row shards of some ranks, as torch.chunk makes them.
 *
 *     map_case c;
 *     map_case_init(&c);
 *     map_case_add(&c, "w", 2, (const uint64_t[]){8, 3}, 3);
 *     st = map_case_apply(&c, text, strlen(text), NULL, 0, &err);
 *     count = map_case_gather(&c, target, numbers, capacity);
 *     map_step back = {0};
 *     st = map_step_apply(&back, &c, NULL, true, &err);       // the result, imported by the inverse
 *     count = map_step_gather(&back, &c, target, numbers, capacity);
 *     map_step_release(&back);
 *     map_case_release(&c);
 */
#ifndef FSDPCK_TESTS_SUPPORT_MAP_CASE_H
#define FSDPCK_TESTS_SUPPORT_MAP_CASE_H

#include "map/map_adapter.h"

#define MAP_CASE_TENSORS_MAX 200u

typedef struct map_case {
    budget memory;
    catalogue base, seen;
    source src;
    tensor_map *map;
    map_adapter *adapter;
    map_input inputs[MAP_CASE_TENSORS_MAX];
    size_t count;
    const char *set; /* a setting "NAME=N" for map_case_apply; NULL: none */
    const char *text, *config;
    size_t text_nbytes, config_nbytes;
    uint32_t file;
    uint64_t elements; /* added so far */
} map_case;

void map_case_init(map_case *c);
/* False if the catalogue does not take it; shards of at least one row. */
bool map_case_add(map_case *c, const char *name, unsigned ndim, const uint64_t *shape,
                  uint64_t ranks);
/* config: of config.json, or NULL. */
fsdpck_status map_case_apply(map_case *c, const char *text, size_t nbytes, const char *config,
                             size_t config_nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The numbers of the elements of a tensor of the second catalogue, row-major. Aborts where a chunk lies
 * outside, or two chunks have the same element, or none has it. */
uint64_t map_case_gather(const map_case *c, uint32_t tensor, uint32_t *numbers, uint64_t capacity);
void map_case_release(map_case *c);

/* The same map, once more. */
typedef struct map_step {
    catalogue seen;
    tensor_map *map, *forward; /* forward: of an import */
    map_adapter *adapter;
    bool begun;
} map_step;

/* Applies the map, or its inverse, to the result of another step, or of the case for NULL. The latter
 * must have an adapter, or, with an adapter of NULL, its first catalogue is taken. */
fsdpck_status map_step_apply(map_step *s, map_case *c, const map_step *to, bool import,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
uint64_t map_step_gather(const map_step *s, const map_case *c, uint32_t tensor, uint32_t *numbers,
                         uint64_t capacity);
void map_step_release(map_step *s);

#endif
