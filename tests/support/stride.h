/* stride.h: how much less a driver is to do of what it does over and over, from the environment
 * (tests/CMakeLists.txt): under a sanitizer each step costs many times as much, and one of a few is as
 * good as all, which the plain build does. */
#ifndef TESTS_SUPPORT_STRIDE_H
#define TESTS_SUPPORT_STRIDE_H

#include <stdlib.h>

/* TEST_STRIDE; 1 where it is not set. */
static inline unsigned test_stride(void)
{
    const char *text = getenv("TEST_STRIDE");
    const unsigned long n = text != NULL ? strtoul(text, NULL, 10) : 1;
    return n > 0 && n < 1000 ? (unsigned)n : 1;
}

#endif
