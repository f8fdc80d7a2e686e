/* struct_copy.h: public structs that begin with struct_nbytes, between a caller and a library of different
 * versions. Both functions copy the smaller of both sizes.
 *
 *     fsdpck_open_options o = FSDPCK_INIT(fsdpck_open_options); // the library's defaults
 *     struct_copy_in(&o, sizeof o, options);                    // what the caller's struct has
 *
 *     fsdpck_info all = {.path = path, ...};
 *     struct_copy_out(info, &all, sizeof all);                  // what the caller's struct can hold
 */
#ifndef FSDPCK_BASE_STRUCT_COPY_H
#define FSDPCK_BASE_STRUCT_COPY_H

#include <stddef.h>

/* `to` is the library's struct of nbytes; `from`, the caller's, may be NULL: `to` stays as it is. */
void struct_copy_in(void *to, size_t nbytes, const void *from);

/* `to` is the caller's struct, whose size stays as it is. Members that only the caller's version has
 * become zero. `from` is the library's struct of nbytes. */
void struct_copy_out(void *to, const void *from, size_t nbytes);

#endif
