#include "verify_options.h"

#include <stdlib.h>
#include <string.h>

#include "opt.h"

/* Digits and a point only; strtod would also accept signs, blanks, hexadecimal numbers and nan. */
static bool parse_number(const char **text, double *number)
{
    char *end;
    const size_t n = strspn(*text, "0123456789.");
    if (n == 0 || n > 20)
        return false;
    *number = strtod(*text, &end);
    if (end != *text + n)
        return false;
    *text = end;
    return true;
}

bool verify_parse_sample(const cli *c, const char *text, double *begin, double *end)
{
    const char *at = text;
    double first, parts;
    if (parse_number(&at, &first)) {
        if (strcmp(at, "%") == 0 && first > 0 && first <= 100) {
            *begin = 0;
            *end = first / 100;
            return true;
        }
        /* One quotient is both the end of a part and the start of the next. */
        if (*at++ == '/' && parse_number(&at, &parts) && *at == '\0' && parts >= 1 &&
            parts <= 1000000 && first >= 1 && first <= parts && strchr(text, '.') == NULL) {
            *begin = (first - 1) / parts;
            *end = first / parts;
            return true;
        }
    }
    opt_usage_error_next(c,
                         "give a percentage: --sample 5%, or one part of several: "
                         "--sample 1/20, next time 2/20",
                         "--sample: '%s' is not a percentage or a fraction", text);
    return false;
}

bool verify_parse_duration(const cli *c, const char *text, double *seconds)
{
    static const char units[] = "smhd";
    static const double factors[] = {1, 60, 3600, 86400};
    const char *at = text;
    if (parse_number(&at, seconds) && *seconds > 0) {
        const char *unit = *at == '\0' ? units : strchr(units, *at);
        if (unit != NULL && (*at == '\0' || at[1] == '\0')) {
            *seconds *= factors[unit - units];
            return true;
        }
    }
    opt_usage_error_next(c, "give --max-duration 10m, or 90s, 2h, 1d",
                         "--max-duration: '%s' is not a duration", text);
    return false;
}
