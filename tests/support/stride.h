/* stride.h: reduces the repetitions of a driver, by the environment (tests/CMakeLists.txt): under a
 * sanitizer each step costs many times as much, and a fraction of them suffices, because the plain
 * build does all. */
#ifndef TESTS_SUPPORT_STRIDE_H
#define TESTS_SUPPORT_STRIDE_H

#include <stdlib.h>

/* TEST_STRIDE; 1 if it is not set. */
static inline unsigned test_stride(void)
{
    const char *text = getenv("TEST_STRIDE");
    const unsigned long n = text != NULL ? strtoul(text, NULL, 10) : 1;
    return n > 0 && n < 1000 ? (unsigned)n : 1;
}

#endif
