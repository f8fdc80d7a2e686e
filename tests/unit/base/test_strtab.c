#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static uint32_t intern(strtab *t, const char *text, size_t nbytes)
{
    uint32_t id = STRTAB_NONE;
    cr_assert_eq(strtab_intern(t, text, nbytes, &id, NULL), FSDPCK_OK);
    return id;
}

Test(strtab, equal_bytes_equal_ids)
{
    strtab t;
    strtab_init(&t, NULL);
    cr_assert_eq(strtab_find(&t, "a", 1), STRTAB_NONE);
    cr_assert_eq(intern(&t, "a", 1), 0);
    cr_assert_eq(intern(&t, "", 0), 1);
    cr_assert_eq(intern(&t, NULL, 0), 1);
    cr_assert_eq(intern(&t, "a\0", 2), 2, "a NUL counts");
    cr_assert_eq(intern(&t, "a\0b", 3), 3);
    cr_assert_eq(intern(&t, "a", 1), 0);
    cr_assert_eq(strtab_count(&t), 4);
    cr_assert_eq(strtab_nbytes(&t, 0), 1);
    cr_assert_eq(strtab_nbytes(&t, 1), 0);
    cr_assert_eq(strtab_nbytes(&t, 3), 3);
    cr_assert_eq(memcmp(strtab_text(&t, 3), "a\0b", 4), 0, "and terminated");
    cr_assert_eq(strtab_find(&t, "a\0b", 3), 3);
    cr_assert_eq(strtab_find(&t, "b", 1), STRTAB_NONE);
    strtab_release(&t);
    strtab_release(&t);
}

/* Names as they come, of all lengths around the hash's block sizes. */
static size_t name_of(char *name, size_t capacity, unsigned i)
{
    static const char *const shapes[] = {"%u", "layers.%u.w", "model.layers.%u.attn",
                                         "model.layers.%u.self_attn.q_proj.weight"};
    const int n = snprintf(name, capacity, shapes[i % 4], i / 4);
    return (size_t)n;
}

Test(strtab, many_names)
{
    enum { COUNT = 100000 };
    budget b;
    budget_init(&b, 64 << 20, "metadata", NULL);
    strtab t;
    strtab_init(&t, &b);
    char name[100];
    for (unsigned i = 0; i < COUNT; i++) {
        const size_t n = name_of(name, sizeof(name), i);
        cr_assert_eq(intern(&t, name, n), i);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        const size_t n = name_of(name, sizeof(name), i);
        cr_assert_eq(strtab_find(&t, name, n), i);
        cr_assert_eq(strtab_nbytes(&t, i), n);
        cr_assert_str_eq(strtab_text(&t, i), name);
    }
    strtab_release(&t);
    cr_assert_eq(b.used_bytes, 0, "all of the budget comes back");
}

/* Longest run of full buckets: what linear probing has to walk. */
static size_t longest_run(const strtab *t)
{
    size_t longest = 0;
    size_t run = 0;
    for (size_t i = 0; i < t->buckets.count; i++) {
        run = *VEC_AT(&t->buckets, const uint32_t, i) == STRTAB_NONE ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return longest;
}

Test(strtab, names_spread)
{
    /* Blocks of zeros and of repeated words: what wipes out a multiplicative hash with known
     * constants. */
    strtab t;
    strtab_init(&t, NULL);
    static char zeros[4096];
    for (size_t n = 0; n < sizeof(zeros); n++)
        intern(&t, zeros, n);
    cr_assert_lt(longest_run(&t), 100);
    strtab_release(&t);
    strtab_init(&t, NULL);
    for (uint64_t i = 0; i < 4096; i++) {
        const uint64_t block[4] = {i << 52, i << 32, i << 52, i};
        intern(&t, (const char *)block, sizeof(block));
    }
    cr_assert_lt(longest_run(&t), 100);
    strtab_release(&t);
}

Test(strtab, seeds_differ)
{
    strtab a;
    strtab b;
    strtab_init(&a, NULL);
    strtab_init(&b, NULL);
    cr_assert_neq(a.seed, b.seed);
    strtab_release(&a);
    strtab_release(&b);
}

Test(strtab, stops_at_the_budget)
{
    budget b;
    budget_init(&b, 10000, "metadata", NULL);
    strtab t;
    strtab_init(&t, &b);
    fsdpck_error err;
    fsdpck_status st = FSDPCK_OK;
    char name[32];
    uint32_t id;
    unsigned n = 0;
    for (; st == FSDPCK_OK && n < 100000; n++)
        st = strtab_intern(&t, name, (size_t)snprintf(name, sizeof(name), "%u", n), &id, &err);
    cr_assert_eq(st, FSDPCK_LIMIT);
    cr_assert_leq(b.used_bytes, 10000);
    cr_assert_eq(strtab_find(&t, name, strlen(name)), STRTAB_NONE, "the last one is not half in");
    cr_assert_eq(strtab_count(&t), n - 1);
    for (unsigned i = 0; i < n - 1; i++)
        cr_assert_eq(strtab_find(&t, name, (size_t)snprintf(name, sizeof(name), "%u", i)), i);
    strtab_release(&t);
    cr_assert_eq(b.used_bytes, 0);
}

Test(strtab, truncated)
{
    strtab t;
    strtab_init(&t, NULL);
    char name[32];
    uint32_t id;
    for (unsigned n = 0; n < 300; n++)
        cr_assert_eq(
            strtab_intern(&t, name, (size_t)snprintf(name, sizeof(name), "%u", n), &id, NULL),
            FSDPCK_OK);
    strtab_truncate(&t, 400);
    cr_assert_eq(strtab_count(&t), 300);
    strtab_truncate(&t, 7);
    cr_assert_eq(strtab_count(&t), 7);
    for (unsigned n = 0; n < 300; n++)
        cr_assert_eq(strtab_find(&t, name, (size_t)snprintf(name, sizeof(name), "%u", n)),
                     n < 7 ? n : STRTAB_NONE);
    cr_assert_eq(strtab_intern(&t, "later", 5, &id, NULL), FSDPCK_OK);
    cr_assert_eq(id, 7);
    cr_assert(strtab_is(&t, 6, "6", 1) && strtab_is(&t, 7, "later", 5));
    strtab_truncate(&t, 0);
    cr_assert_eq(strtab_find(&t, "0", 1), STRTAB_NONE);
    strtab_release(&t);
}
