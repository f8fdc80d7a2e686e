/* mutate.h: structure-aware mutation of fuzz inputs, only for live runs.
 *
 * A file target_NAME.c gives target NAME its mutator:
 *
 *     size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed)
 *     {
 *         return mutate_input(data, nbytes, capacity, seed, mutate_pickle);
 *     }
 *
 * One change in five is libFuzzer's own, of bytes. The others are one to three calls of a
 * mutate_fn. Each call makes one change: it parses the input as far as possible, reassembles it,
 * and repairs the fields that depend on the change (lengths, offsets, checksums), often all of
 * them, often all but one. Broken inputs are accepted; if no change is possible, the input is
 * unchanged.
 *
 * Words and numbers to insert come from tables in each file: opcodes and classes, keys of JSON,
 * dtypes, signatures. */
#ifndef FSDPCK_TESTS_MUTATE_H
#define FSDPCK_TESTS_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mutation {
    uint8_t *bytes;
    size_t nbytes;
    size_t capacity;
    uint64_t random;
} mutation;

typedef void (*mutate_fn)(mutation *m);

size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t capacity);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed);

size_t mutate_input(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed, mutate_fn fn);
/* Defines a target's mutator. */
#define MUTATOR(fn)                                                                              \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t capacity, unsigned seed) \
    {                                                                                            \
        return mutate_input(data, nbytes, capacity, seed, fn);                                   \
    }

/* 0 to n - 1; 0 where n is 0. */
size_t mutate_below(mutation *m, size_t n);
/* True once in n times. */
bool mutate_once_in(mutation *m, size_t n);
/* [at, at + old_nbytes) becomes `with`, which may lie in m->bytes. False where there is no room. */
bool mutate_replace(mutation *m, size_t at, size_t old_nbytes, const void *with, size_t nbytes);
/* Numbers that break bounds: near 0, near powers of two, near `v`, or any. */
uint64_t mutate_number(mutation *m, uint64_t v);
/* Runs `fn` only on [at, at + *nbytes); later bytes move. */
void mutate_part(mutation *m, size_t at, size_t *nbytes, mutate_fn fn);
/* libFuzzer's change of bytes as a mutate_fn. */
void mutate_bytes(mutation *m);

void mutate_pickle(mutation *m);
void mutate_json(mutation *m);
void mutate_zip(mutation *m);       /* records called data.pkl by mutate_pickle */
void mutate_st_header(mutation *m); /* u64 length, JSON, data */

#endif
