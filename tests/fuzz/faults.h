/* Calls of the system that fail from the one that is told: how replays reach what follows a refusal.
 *
 *     faults_set(FAULTS_MEMORY, k);     the k-th allocation from here gives NULL
 *     ... what is under test ...
 *     if (!faults_clear()) break;       it made fewer than k: nothing failed
 *
 * The linker puts faults.c between the library and malloc and its kin, free, strdup, strndup, pread
 * (tests/CMakeLists.txt); other libraries call the true ones. A read that fails gives EIO; one that
 * ends early gives no byte, as of a file that was cut meanwhile. */
#ifndef TESTS_FUZZ_FAULTS_H
#define TESTS_FUZZ_FAULTS_H

#include <stdbool.h>

typedef enum faults_kind {
    FAULTS_MEMORY,      /* once */
    FAULTS_MEMORY_GONE, /* no allocation is granted from then on: growth is tried twice */
    FAULTS_READ,
    FAULTS_SHORT,
    FAULTS_KINDS
} faults_kind;

/* `at` counts from 1. */
void faults_set(faults_kind kind, unsigned at);

/* Ends it; whether the call that was to fail was reached. */
bool faults_clear(void);

#endif
