/* System calls that fail from the k-th on, so that replays reach the error paths.
 *
 *     faults_set(FAULTS_MEMORY, k);     the k-th allocation from here returns NULL
 *     ... code under test ...
 *     if (!faults_clear()) break;       it made fewer than k: nothing failed
 *
 * The linker puts faults.c between the library and malloc and its relatives, free, strdup, strndup,
 * pread (tests/CMakeLists.txt); other libraries call the real ones. A failing read returns EIO; a
 * short read returns no byte, as for a file that was truncated meanwhile. */
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
