/* Public structs between a program and a library of different versions. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/struct_copy.h"

typedef struct older {
    size_t struct_nbytes;
    unsigned a;
    unsigned b;
} older;

typedef struct newer {
    size_t struct_nbytes;
    unsigned a, b, c, d;
} newer;

Test(struct_copy, an_older_caller_gets_what_its_struct_holds)
{
    struct {
        older s;
        unsigned char after[16];
    } room;
    memset(&room, 0xa5, sizeof room);
    room.s.struct_nbytes = sizeof room.s;
    const newer all = {sizeof all, 1, 2, 3, 4};
    struct_copy_out(&room.s, &all, sizeof all);
    cr_assert_eq(room.s.struct_nbytes, sizeof room.s);
    cr_assert_eq(room.s.a, 1);
    cr_assert_eq(room.s.b, 2);
    for (size_t i = 0; i < sizeof room.after; i++)
        cr_assert_eq(room.after[i], 0xa5);
}

Test(struct_copy, a_newer_caller_gets_zeros_for_the_rest)
{
    newer mine;
    memset(&mine, 0xa5, sizeof mine);
    mine.struct_nbytes = sizeof mine;
    const older all = {sizeof all, 1, 2};
    struct_copy_out(&mine, &all, sizeof all);
    cr_assert_eq(mine.struct_nbytes, sizeof mine);
    cr_assert_eq(mine.a, 1);
    cr_assert_eq(mine.b, 2);
    cr_assert_eq(mine.c, 0);
    cr_assert_eq(mine.d, 0);
}

Test(struct_copy, a_struct_without_size_stays_as_it_is)
{
    older mine = {0, 7, 8};
    const newer all = {sizeof all, 1, 2, 3, 4};
    struct_copy_out(&mine, &all, sizeof all);
    cr_assert_eq(mine.struct_nbytes, 0);
    cr_assert_eq(mine.a, 7);
    cr_assert_eq(mine.b, 8);
}

Test(struct_copy, options_of_an_older_caller_leave_the_defaults_of_new_members)
{
    newer options = {sizeof options, 0, 0, 5, 6};
    const older given = {sizeof given, 1, 2};
    cr_assert_eq(struct_copy_in(&options, sizeof options, &given, "older", NULL), FSDPCK_OK);
    cr_assert_eq(options.a, 1);
    cr_assert_eq(options.b, 2);
    cr_assert_eq(options.c, 5);
    cr_assert_eq(options.d, 6);
    cr_assert_eq(struct_copy_in(&options, sizeof options, NULL, "older", NULL), FSDPCK_OK);
    cr_assert_eq(options.a, 1);
}
