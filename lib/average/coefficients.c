#include "average/coefficients.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void average_coefficients_equal(double *c, size_t count)
{
    for (size_t i = 0; i < count; i++)
        c[i] = 1.0 / (double)count;
}

/* The decay of the learning rate that the schedule replaces. */
static double decay(double x, bool root)
{
    return root ? 1 - sqrt(x) : 1 - x;
}

static void replace_decay(double *c, size_t count, bool root)
{
    const double n = (double)count;
    double others = 0;
    if (count == 1) {
        c[0] = 1;
        return;
    }
    c[count - 1] = decay((n - 1) / n, root);
    for (size_t k = 1; k + 1 < count; k++)
        c[k] = decay((double)k / n, root) - decay((double)(k + 1) / n, root);
    for (size_t k = 1; k < count; k++)
        others += c[k];
    c[0] = 1 - others;
}

static void moving_average(double *c, size_t count, double beta)
{
    c[0] = pow(beta, (double)(count - 1));
    for (size_t i = 1; i < count; i++)
        c[i] = pow(beta, (double)(count - 1 - i)) * (1 - beta);
}

/* Digits and a point: strtod would also accept signs, blanks, hexadecimal numbers and nan. */
static bool read_beta(const char *text, double *beta)
{
    char *end;
    if (text[strspn(text, "0123456789.")] != '\0' || strpbrk(text, "0123456789") == NULL)
        return false;
    *beta = strtod(text, &end);
    return *end == '\0' && *beta >= 0 && *beta < 1;
}

fsdpck_status average_coefficients_schedule(const char *schedule, double *c, size_t count,
                                            fsdpck_error *err)
{
    static const char ema[] = "ema=";
    double beta;
    if (strcmp(schedule, "linear") == 0)
        replace_decay(c, count, false);
    else if (strcmp(schedule, "minus-sqrt") == 0)
        replace_decay(c, count, true);
    else if (strncmp(schedule, ema, strlen(ema)) == 0 && read_beta(schedule + strlen(ema), &beta))
        moving_average(c, count, beta);
    else
        return FAIL_WITH(err, USAGE, NONE, ("unknown schedule '%s'", schedule),
                         (expected, "linear, minus-sqrt, or ema=BETA with 0 <= BETA < 1"));
    return FSDPCK_OK;
}

fsdpck_status average_coefficients_normalize(double *c, size_t count, fsdpck_error *err)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += c[i];
    if (sum == 0 || !isfinite(sum))
        return FAIL_WITH(err, USAGE, NONE, ("weights cannot be normalized: their sum is %g", sum),
                         (next, "omit --normalize"));
    for (size_t i = 0; i < count; i++)
        c[i] /= sum;
    return FSDPCK_OK;
}
