/* mutate_dice.h: the mutators of tests/fuzz without libFuzzer: its change of bytes, from a generator of random
 * numbers of our own. */
#ifndef FSDPCK_TESTS_SUPPORT_MUTATE_DICE_H
#define FSDPCK_TESTS_SUPPORT_MUTATE_DICE_H

#include <stddef.h>
#include <stdint.h>

/* The generator's state: any number, set before each change that is to be repeatable. */
extern uint64_t mutate_dice;

/* 0 to n - 1; 0 where n is 0. */
size_t mutate_dice_below(size_t n);

#endif
