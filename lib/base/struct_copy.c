#include "base/struct_copy.h"

#include <string.h>

#include "base/status.h"

static size_t size_of(const void *given)
{
    size_t nbytes;
    memcpy(&nbytes, given, sizeof nbytes);
    return nbytes;
}

fsdpck_status struct_copy_in(void *to, size_t nbytes, const void *from, const char *type,
                             fsdpck_error *err)
{
    if (from == NULL)
        return FSDPCK_OK;
    const size_t given = size_of(from);
    if (given < sizeof given)
        return FAIL_WITH(err, USAGE, NONE, ("%s was not initialized", type),
                         (expected, "its size in struct_nbytes"), (found, "%zu", given),
                         (next, "initialize it with FSDPCK_INIT, or as its comment says"));
    memcpy(to, from, given < nbytes ? given : nbytes);
    return FSDPCK_OK;
}

void struct_copy_out(void *to, const void *from, size_t nbytes)
{
    const size_t given = size_of(to);
    const size_t n = given < nbytes ? given : nbytes;
    if (n > sizeof given)
        memcpy((char *)to + sizeof given, (const char *)from + sizeof given, n - sizeof given);
    if (given > nbytes)
        memset((char *)to + nbytes, 0, given - nbytes);
}

void struct_clear(void *to)
{
    const size_t given = size_of(to);
    if (given > sizeof given)
        memset((char *)to + sizeof given, 0, given - sizeof given);
}

fsdpck_status struct_check_choices(const void *s, const struct_choice *rows, size_t count,
                                   fsdpck_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct_choice *r = &rows[i];
        int value;
        memcpy(&value, (const char *)s + r->at, sizeof value);
        if (value < r->min || value > r->max)
            return FAIL_WITH(err, USAGE, NONE, ("%s is out of range", r->name),
                             (expected, "%d to %d", r->min, r->max), (found, "%d", value));
    }
    return FSDPCK_OK;
}

fsdpck_status struct_check_number(const char *name, double value, double max, fsdpck_error *err)
{
    if (value >= 0 && value <= max)
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, NONE, ("%s is out of range", name), (expected, "0 to %g", max),
                     (found, "%g", value));
}
