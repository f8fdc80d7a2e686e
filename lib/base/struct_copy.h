/* struct_copy.h: public structs that begin with struct_nbytes, between a caller and a library of different
 * versions. Both copies take the smaller of both sizes.
 *
 *     fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options);   // the library's defaults
 *     st = STRUCT_COPY_IN(&o, options, fsdpck_open_options, err); // what the caller's struct has
 *
 *     fsdpck_info all = {.path = path, ...};
 *     struct_copy_out(info, &all, sizeof all);                    // what the caller's struct can hold
 */
#ifndef FSDPCK_BASE_STRUCT_COPY_H
#define FSDPCK_BASE_STRUCT_COPY_H

#include <stddef.h>

#include "base/fsdpck_status.h"

/* `to` is the library's struct of nbytes; `from`, the caller's, may be NULL: `to` stays as it is. `type`
 * is its name. Errors: USAGE (a struct_nbytes that no struct can have: FSDPCK_INIT was forgotten). */
fsdpck_status struct_copy_in(void *to, size_t nbytes, const void *from, const char *type,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#define STRUCT_COPY_IN(to, from, type, err) struct_copy_in(to, sizeof(type), from, #type, err)

/* `to` is the caller's struct, whose size stays as it is. Members that only the caller's version has
 * become zero. `from` is the library's struct of nbytes. */
void struct_copy_out(void *to, const void *from, size_t nbytes);

/* Sets all members but the size of the caller's struct `to` to zero. */
void struct_clear(void *to);

/* A member of type int, or of an enum type, that has the values min to max only. */
typedef struct struct_choice {
    const char *name; /* "fsdpck_verify_options.level" */
    size_t at;        /* its offset */
    int min, max;
} struct_choice;

/* Checks `count` members of the struct `s`. Errors: USAGE, which names the member and its range. */
fsdpck_status struct_check_choices(const void *s, const struct_choice *rows, size_t count,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Checks that a member is 0 to `max`, not NaN. Errors: USAGE likewise. */
fsdpck_status struct_check_number(const char *name, double value, double max,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
