#include <criterion/criterion.h>

#include "group/hosts.h"

Test(hosts, are_numbered_by_their_lowest_ranks)
{
    static const char *const names[] = {"b", "a", "b", "c", "a", "b"};
    static const unsigned want[] = {0, 1, 0, 2, 1, 0};
    hosts h;
    cr_assert_eq(hosts_from_names(&h, names, 6, 4, NULL), FSDPCK_OK);
    cr_expect_eq(h.ranks, 6);
    cr_expect_eq(h.count, 3);
    cr_expect_eq(h.mine, 1);
    for (unsigned r = 0; r < 6; r++) {
        cr_expect_eq(h.of_rank[r], want[r], "rank %u", r);
        cr_expect_eq(hosts_is_leader(&h, r), r == 0 || r == 1 || r == 3, "rank %u", r);
    }
    hosts_release(&h);
    hosts_release(&h);
}

Test(hosts, one_process_alone)
{
    hosts h;
    cr_assert_eq(hosts_init(&h, NULL, NULL), FSDPCK_OK);
    cr_expect_eq(h.count, 1);
    cr_expect(hosts_is_leader(&h, 0));
    hosts_release(&h);
}
