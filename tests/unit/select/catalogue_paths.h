/* catalogue_paths.h: tensors by their path: "model/a.b", elements between slashes; without a slash
 * the name alone, as flat formats have it. */
#ifndef FSDPCK_TESTS_UNIT_SELECT_CATALOGUE_PATHS_H
#define FSDPCK_TESTS_UNIT_SELECT_CATALOGUE_PATHS_H

#include <criterion/criterion.h>
#include <string.h>

#include "state/catalogue.h"

static inline uint32_t add_by_path(catalogue *c, const char *path, dtype d, unsigned ndim,
                                   const uint64_t *shape)
{
    char name[128];
    value elements[8], tuple = VALUE_OF_NONE;
    size_t count = 0, n = 0;
    uint32_t index;
    for (const char *at = path;; at++) {
        const size_t k = strcspn(at, "/");
        cr_assert_eq(value_new_str(&c->pool, at, k, &elements[count++], NULL), FSDPCK_OK);
        memcpy(name + n, at, k);
        n += k;
        at += k;
        if (*at == '\0')
            break;
        name[n++] = '.';
    }
    cr_assert_eq(catalogue_add_tensor(c, name, n, d, ndim, shape, &index, NULL), FSDPCK_OK);
    if (count > 1)
        cr_assert_eq(value_new_from(&c->pool, VALUE_TUPLE, elements, count, &tuple, NULL),
                     FSDPCK_OK);
    catalogue_tensor(c, index)->path = tuple;
    return index;
}

#endif
