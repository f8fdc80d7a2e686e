#include <criterion/criterion.h>
#include <math.h>

#include "average/coefficients.h"

static void expect(const char *schedule, size_t count, const double *expected, double error)
{
    double c[8];
    fsdpck_error err = {0};
    cr_assert_eq(average_coefficients_schedule(schedule, c, count, &err), FSDPCK_OK, "%s",
                 err.message);
    for (size_t i = 0; i < count; i++)
        cr_expect(fabs(c[i] - expected[i]) <= error, "%s, %zu of %zu: %.17g", schedule, i, count,
                  c[i]);
}

/* The figures of Megatron-LM's schedule_to_merge_coefficients. */
Test(coefficients, minus_sqrt)
{
    expect("minus-sqrt", 5,
           (const double[]){0.44721359549995787, 0.185241936533718, 0.14214113720780752,
                            0.11983052175843245, 0.10557280900008414},
           1e-15);
    expect("minus-sqrt", 2, (const double[]){0.70710678118654746, 0.29289321881345254}, 1e-15);
    expect("minus-sqrt", 1, (const double[]){1}, 0);
}

Test(coefficients, linear_is_the_mean)
{
    expect("linear", 4, (const double[]){0.25, 0.25, 0.25, 0.25}, 0);
    expect("linear", 1, (const double[]){1}, 0);
}

/* e = beta e + (1 - beta) x, beginning with the first input. */
Test(coefficients, moving_average)
{
    expect("ema=0.5", 4, (const double[]){0.125, 0.125, 0.25, 0.5}, 0);
    expect("ema=0.9", 3, (const double[]){0.81, 0.09, 0.1}, 1e-15);
    expect("ema=0", 3, (const double[]){0, 0, 1}, 0);
    expect("ema=.75", 1, (const double[]){1}, 0);
}

/* Python's BETA**k, exactly. */
Test(coefficients, moving_average_has_powers)
{
    expect("ema=0.9", 8,
           (const double[]){0.4782969000000001, 0.05314409999999999, 0.059049, 0.06560999999999999,
                            0.07289999999999999, 0.08099999999999999, 0.08999999999999998,
                            0.09999999999999998},
           0);
}

Test(coefficients, unknown_schedules)
{
    static const char *const bad[] = {"",         "cubic",    "Linear",  "ema",
                                      "ema=",     "ema=1",    "ema=nan", "ema=-0.5",
                                      "ema=0x.8", "ema=0.5 ", "ema=.",   "ema=1.0.0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double c[2];
        cr_expect_eq(average_coefficients_schedule(bad[i], c, 2, NULL), FSDPCK_USAGE, "%s", bad[i]);
    }
}

Test(coefficients, normalized)
{
    double c[3] = {1, 2, 5}, none[2] = {1, -1};
    cr_expect_eq(average_coefficients_normalize(c, 3, NULL), FSDPCK_OK);
    cr_expect(c[0] == 0.125 && c[1] == 0.25 && c[2] == 0.625);
    cr_expect_eq(average_coefficients_normalize(none, 2, NULL), FSDPCK_USAGE);
    average_coefficients_equal(c, 3);
    cr_expect(c[0] == 1.0 / 3 && c[2] == 1.0 / 3);
}
