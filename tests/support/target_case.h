/* target_case.h: a target with row-major tensors, for the tests of a writer's layout. */
#ifndef FSDPCK_TESTS_SUPPORT_TARGET_CASE_H
#define FSDPCK_TESTS_SUPPORT_TARGET_CASE_H

#include <criterion/criterion.h>
#include <string.h>

#include "state/target.h"

static budget owner;
static target t;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    target_init(&t, &owner);
    fsdpck_error_init(&err);
}

static void teardown(void)
{
    target_release(&t);
    cr_expect_eq(owner.used_bytes, 0);
}

static uint32_t add(const char *name, dtype d, unsigned ndim, const uint64_t *shape)
{
    static const uint64_t zeros[NDIM_MAX];
    const cat_chunk proto = {.file = CAT_NONE, .place = LOCATION_ROWS};
    uint32_t tensor;
    cr_assert_eq(catalogue_add_tensor(&t.cat, name, strlen(name), d, ndim, shape, &tensor, &err),
                 FSDPCK_OK);
    cr_assert_eq(catalogue_add_chunk(&t.cat, tensor, zeros, shape, &proto, &err), FSDPCK_OK);
    return tensor;
}

static void add_bytes(const char *name, uint64_t nbytes)
{
    (void)add(name, DTYPE_UINT8, 1, &nbytes);
}

#endif
