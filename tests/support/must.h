/* must.h: assertions for a driver, a fuzz target or a simulated library: prints the failure and
 * aborts. */
#ifndef FSDPCK_TESTS_SUPPORT_MUST_H
#define FSDPCK_TESTS_SUPPORT_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                     \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

#endif
