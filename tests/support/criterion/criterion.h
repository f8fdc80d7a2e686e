/* criterion/criterion.h: the part of Criterion that the unit tests of the GPU use, for builds with sanitizers:
 * Criterion aborts under ThreadSanitizer and hides leaks from AddressSanitizer. Each test runs in a process
 * of its own (unit_runner.c). Formats after a condition are not printed. */
#ifndef FSDPCK_TESTS_SUPPORT_CRITERION_H
#define FSDPCK_TESTS_SUPPORT_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct unit_test {
    const char *suite, *name;
    void (*run)(void);
    int line;
    int signal; /* that ends it; 0: none */
} unit_test;

/* Prints and ends the process where it does not hold. */
void unit_check(bool holds, const char *text, const char *file, int line);

/* Test(suite, name) or Test(suite, name, .signal = SIGABRT). Pointers to all tests of the program are in one
 * section. */
#define Test(...) UNIT_TEST(__VA_ARGS__, .line = __LINE__)
#define UNIT_TEST(of, called, ...)                                                               \
    static void of##_##called(void);                                                             \
    static const unit_test of##_##called##_test = {                                              \
        .suite = #of, .name = #called, .run = of##_##called, __VA_ARGS__};                       \
    __attribute__((section("unit_tests"), used)) static const unit_test *const of##_##called##_at = \
        &of##_##called##_test;                                                                   \
    static void of##_##called(void)

#define UNIT_HOLDS(condition, ...)     unit_check((condition), #condition, __FILE__, __LINE__)
#define UNIT_COMPARES(op, a, b, ...)   unit_check((a)op(b), #a " " #op " " #b, __FILE__, __LINE__)
#define UNIT_SAME_TEXT(a, b, ...)      UNIT_HOLDS(strcmp((a), (b)) == 0, )
#define UNIT_SAME_BYTES(a, b, n, ...)  UNIT_HOLDS(memcmp((a), (b), (n)) == 0, )
#define UNIT_NEAR(a, b, most, ...)     UNIT_HOLDS(fabs((double)(a) - (double)(b)) <= (most), )
#define UNIT_HOLDS_NOT(condition, ...) UNIT_HOLDS(!(condition), )

#define cr_assert(...)          UNIT_HOLDS(__VA_ARGS__, )
#define cr_assert_not(...)      UNIT_HOLDS_NOT(__VA_ARGS__, )
#define cr_assert_null(...)     UNIT_COMPARES(==, UNIT_FIRST(__VA_ARGS__, ), NULL, )
#define cr_assert_not_null(...) UNIT_COMPARES(!=, UNIT_FIRST(__VA_ARGS__, ), NULL, )
#define cr_assert_eq(...)       UNIT_COMPARES(==, __VA_ARGS__, )
#define cr_assert_neq(...)      UNIT_COMPARES(!=, __VA_ARGS__, )
#define cr_assert_lt(...)       UNIT_COMPARES(<, __VA_ARGS__, )
#define cr_assert_leq(...)      UNIT_COMPARES(<=, __VA_ARGS__, )
#define cr_assert_gt(...)       UNIT_COMPARES(>, __VA_ARGS__, )
#define cr_assert_geq(...)      UNIT_COMPARES(>=, __VA_ARGS__, )
#define cr_assert_str_eq(...)   UNIT_SAME_TEXT(__VA_ARGS__, )
#define cr_assert_arr_eq(...)   UNIT_SAME_BYTES(__VA_ARGS__, )
#define cr_assert_float_eq(...) UNIT_NEAR(__VA_ARGS__, )
#define cr_expect(...)          cr_assert(__VA_ARGS__)
#define cr_expect_eq(...)       cr_assert_eq(__VA_ARGS__)
#define cr_expect_neq(...)      cr_assert_neq(__VA_ARGS__)
#define cr_expect_str_eq(...)   cr_assert_str_eq(__VA_ARGS__)
#define cr_expect_arr_eq(...)   cr_assert_arr_eq(__VA_ARGS__)

#define UNIT_FIRST(first, ...) first

#endif
