#include <criterion/criterion.h>

#include "group/assignment.h"

#define MIB ((uint64_t)1 << 20)

static void expect_loads(const assignment *d, const uint64_t *loads)
{
    for (unsigned r = 0; r < d->size; r++)
        cr_expect_eq(d->load[r], loads[r] * MIB, "rank %u has %lu", r, (unsigned long)d->load[r]);
}

Test(assignment, goes_to_who_has_most_of_it)
{
    assignment d;
    cr_assert_eq(assignment_init(&d, 3, NULL, 12 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 12; i++) {
        assignment_add_local(&d, i / 4, MIB - 10);
        assignment_add_local(&d, (i / 4 + 1) % 3, 10);
        cr_expect_eq(assignment_next(&d, MIB), i / 4);
    }
    expect_loads(&d, (const uint64_t[]){4, 4, 4});
    assignment_release(&d);
}

Test(assignment, ranks_of_one_host_take_turns)
{
    assignment d;
    cr_assert_eq(assignment_init(&d, 4, NULL, 8 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 8; i++) {
        const unsigned host = i / 4;
        assignment_add_local(&d, 2 * host, MIB);
        assignment_add_local(&d, 2 * host + 1, MIB);
        cr_expect_eq(assignment_next(&d, MIB), 2 * host + i % 2);
    }
    assignment_release(&d);
}

/* One host has all: it does not do all. */
Test(assignment, nobody_gets_much_more_than_the_others)
{
    assignment d;
    cr_assert_eq(assignment_init(&d, 4, NULL, 160 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 160; i++) {
        assignment_add_local(&d, 1, MIB);
        (void)assignment_next(&d, MIB);
    }
    cr_expect_eq(d.load[1], 43 * MIB); /* a quarter, a sixteenth of it, one more */
    expect_loads(&d, (const uint64_t[]){39, 43, 39, 39});
    assignment_release(&d);
}

Test(assignment, who_takes_none_gets_none)
{
    assignment d;
    cr_assert_eq(assignment_init(&d, 3, (const uint8_t[]){1, 0, 1}, 6 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 6; i++) {
        assignment_add_local(&d, 1, MIB);
        cr_expect_neq(assignment_next(&d, MIB), 1);
    }
    expect_loads(&d, (const uint64_t[]){3, 0, 3});
    assignment_release(&d);
}
