/* pickle_check.h: properties of the pickle machine for every input.
 *
 * An accepted pickle is copied, written, read again and compared. Then it is read by hooks that
 * replace calls: reusing memory of replaced calls must make no difference. */
#ifndef FSDPCK_TESTS_PICKLE_CHECK_H
#define FSDPCK_TESTS_PICKLE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/common/pickle.h"

/* Aborts, with a line on stderr, if a property is violated. Returns whether the input is a pickle.
 */
bool pickle_check(const uint8_t *data, size_t size);

/* pickle_plain_call, and getattr as a symbol. */
extern const pickle_hooks pickle_plain_hooks;

#endif
