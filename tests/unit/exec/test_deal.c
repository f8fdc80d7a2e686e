#include <criterion/criterion.h>

#include "group/deal.h"

#define MIB ((uint64_t)1 << 20)

static void expect_loads(const deal *d, const uint64_t *loads)
{
    for (unsigned r = 0; r < d->size; r++)
        cr_expect_eq(d->load[r], loads[r] * MIB, "rank %u has %lu", r, (unsigned long)d->load[r]);
}

Test(deal, goes_to_who_has_most_of_it)
{
    deal d;
    cr_assert_eq(deal_init(&d, 3, NULL, 12 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 12; i++) {
        deal_near(&d, i / 4, MIB - 10);
        deal_near(&d, (i / 4 + 1) % 3, 10);
        cr_expect_eq(deal_next(&d, MIB), i / 4);
    }
    expect_loads(&d, (const uint64_t[]){4, 4, 4});
    deal_release(&d);
}

Test(deal, ranks_of_one_host_take_turns)
{
    deal d;
    cr_assert_eq(deal_init(&d, 4, NULL, 8 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 8; i++) {
        const unsigned host = i / 4;
        deal_near(&d, 2 * host, MIB);
        deal_near(&d, 2 * host + 1, MIB);
        cr_expect_eq(deal_next(&d, MIB), 2 * host + i % 2);
    }
    deal_release(&d);
}

/* One host has all: it does not do all. */
Test(deal, nobody_gets_much_more_than_the_others)
{
    deal d;
    cr_assert_eq(deal_init(&d, 4, NULL, 160 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 160; i++) {
        deal_near(&d, 1, MIB);
        (void)deal_next(&d, MIB);
    }
    cr_expect_eq(d.load[1], 43 * MIB); /* a quarter, a sixteenth of it, one more */
    expect_loads(&d, (const uint64_t[]){39, 43, 39, 39});
    deal_release(&d);
}

Test(deal, who_takes_none_gets_none)
{
    deal d;
    cr_assert_eq(deal_init(&d, 3, (const uint8_t[]){1, 0, 1}, 6 * MIB, MIB, NULL), FSDPCK_OK);
    for (unsigned i = 0; i < 6; i++) {
        deal_near(&d, 1, MIB);
        cr_expect_neq(deal_next(&d, MIB), 1);
    }
    expect_loads(&d, (const uint64_t[]){3, 0, 3});
    deal_release(&d);
}
