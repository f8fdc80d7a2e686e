/* seconds.h: clocks of drivers that compare times. */
#ifndef FSDPCK_TESTS_SUPPORT_SECONDS_H
#define FSDPCK_TESTS_SUPPORT_SECONDS_H

#include <time.h>

static inline double seconds_by(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Processor time of this process. */
static inline double cpu_seconds(void)
{
    return seconds_by(CLOCK_PROCESS_CPUTIME_ID);
}

static inline double wall_seconds(void)
{
    return seconds_by(CLOCK_MONOTONIC);
}

#endif
