/* dtype_reference.h: conversion and comparison of elements one at a time, by real numbers instead of
 * bits: slow, and written independently of lib/state/cast.c and lib/compare/compare_elements.c. */
#ifndef FSDPCK_TESTS_DTYPE_REFERENCE_H
#define FSDPCK_TESTS_DTYPE_REFERENCE_H

#include "compare/compare_elements.h"

/* Of a floating dtype that can be cast. */
double reference_decode(dtype d, const uint8_t *element);

/* Whether `found` is the correct cast of `element`; *lost grows if it was finite and out of range.
 */
bool reference_cast_agrees(dtype from, const uint8_t *element, dtype to, const uint8_t *found,
                           uint64_t *lost);

/* Compares element number `at` of both sides; updates the counts of the elements before it. */
void reference_compare(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                       uint64_t at, compare_stats *sums);

/* Compares cast_elements and compare_elements on all n elements at `from` (and at `other`) with the
 * functions above; ends the program on a difference. */
void reference_check_cast(dtype from, dtype to, const uint8_t *elements, uint64_t n);
void reference_check_compare(dtype d, const compare_rule *rule, const uint8_t *a, const uint8_t *b,
                             uint64_t n);

#endif
