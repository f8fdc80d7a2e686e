/* pickle_check.h: what must hold for every input of the pickle machine.
 *
 * It is read; what is accepted is copied, written, read again and compared. Then it is read by
 * hooks that replace calls: whether memory of replaced calls is reused must make no difference. */
#ifndef FSDPCK_TESTS_PICKLE_CHECK_H
#define FSDPCK_TESTS_PICKLE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Aborts, with a line on stderr, where something does not hold. Returns whether the input is a
 * pickle. */
bool pickle_check(const uint8_t *data, size_t size);

#endif
