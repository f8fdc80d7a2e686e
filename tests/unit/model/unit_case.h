/* unit_case.h: an empty list of units before each test, and none of its memory after it. */
#ifndef FSDPCK_TESTS_UNIT_MODEL_UNIT_CASE_H
#define FSDPCK_TESTS_UNIT_MODEL_UNIT_CASE_H

#include <criterion/criterion.h>

#include "model/unit.h"

static budget bytes;
static unit_list list;
static fsdpck_error why;

static void setup(void)
{
    budget_init(&bytes, 1u << 20, "metadata", NULL);
    unit_list_init(&list, &bytes);
    fsdpck_error_init(&why);
}

static void teardown(void)
{
    unit_list_release(&list);
    cr_assert_eq(bytes.used_bytes, 0);
}

#endif
