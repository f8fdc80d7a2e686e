/* mutate_dice.h: the mutators of tests/fuzz without libFuzzer: its change of bytes, from a generator of random
 * numbers of our own. */
#ifndef FSDPCK_TESTS_SUPPORT_MUTATE_DICE_H
#define FSDPCK_TESTS_SUPPORT_MUTATE_DICE_H

#include <stddef.h>
#include <stdint.h>

/* The generator's state. */
extern uint64_t mutate_dice;

/* Sets the state before a change that is to be repeatable: change `at` of the run that began with `seed`. Its draws have
 * nothing in common with those of another change or run; the generator steps by a constant, so that states which are
 * multiples of it apart would draw the same numbers, shifted. */
void mutate_dice_start(uint64_t seed, uint64_t at);

/* 0 to n - 1; 0 where n is 0. */
size_t mutate_dice_below(size_t n);

#endif
