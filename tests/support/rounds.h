/* rounds.h: random rounds of a driver: a failure names its round. */
#ifndef FSDPCK_TESTS_SUPPORT_ROUNDS_H
#define FSDPCK_TESTS_SUPPORT_ROUNDS_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/random.h"

#define REQUIRE(truth)                                                                       \
    do {                                                                                     \
        if (!(truth)) {                                                                      \
            fprintf(stderr, "%s:%d: round %u: %s\n", __FILE__, __LINE__, the_round, #truth); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static unsigned the_round;
static uint64_t state;

static uint64_t below(uint64_t n)
{
    return random_below(&state, n);
}

#endif
