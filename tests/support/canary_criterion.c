/* canary_criterion.c: a unit test that fails; CTest must see it. */
#include <criterion/criterion.h>

Test(canary, fails)
{
    cr_assert_eq(1, 2);
}
