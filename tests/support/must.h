/* must.h: assertions for a driver, a fuzz target or a simulated library: prints the failure and
 * aborts. */
#ifndef FSDPCK_TESTS_SUPPORT_MUST_H
#define FSDPCK_TESTS_SUPPORT_MUST_H

#include <stdio.h>
#include <stdlib.h>

/* With a text of its own. */
#define must(condition, what)                                         \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, what); \
            abort();                                                  \
        }                                                             \
    } while (0)

#define MUST(condition) must(condition, #condition)

/* For a call that fills `err`. */
#define must_be_ok(st, err)                                                                       \
    do {                                                                                          \
        if ((st) != FSDPCK_OK) {                                                                  \
            fprintf(stderr, "%s:%d: %s %s: %s\n", __FILE__, __LINE__, (err)->path, (err)->tensor, \
                    (err)->message);                                                              \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

#endif
