#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

Test(budget, takes_up_to_its_limit)
{
    budget b;
    fsdpck_error err;
    budget_init(&b, 100, "metadata", "--metadata-limit");
    cr_assert_eq(budget_reserve(&b, 60, &err), FSDPCK_OK);
    cr_assert_eq(budget_reserve(&b, 41, &err), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "LIMIT-MEMORY");
    cr_assert(strstr(err.next, "--metadata-limit") != NULL);
    cr_assert(strstr(err.message, "metadata") != NULL);
    cr_assert_eq(budget_reserve(&b, UINT64_MAX, &err), FSDPCK_LIMIT, "no wrap");
    cr_assert_eq(budget_reserve(&b, 40, &err), FSDPCK_OK);
    budget_release(&b, 100);
    cr_assert_eq(b.used_bytes, 0);
}

Test(budget, alloc_is_zeroed_and_accounted)
{
    budget b;
    budget_init(&b, 1000, "metadata", NULL);
    unsigned char *p = budget_alloc(&b, 1000, NULL);
    cr_assert_not_null(p);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(p[i], 0);
    cr_assert_null(budget_alloc(&b, 1, NULL));
    budget_free(&b, p, 1000);
    cr_assert_eq(b.used_bytes, 0);
    p = budget_alloc(NULL, 0, NULL);
    cr_assert_not_null(p);
    free(p);
    fsdpck_error err;
    cr_assert_null(budget_alloc(NULL, UINT64_MAX / 2, &err), "malloc's own refusal");
    cr_assert_eq(err.status, FSDPCK_LIMIT);
}

Test(vec, grows_and_keeps_items)
{
    budget b;
    budget_init(&b, 1 << 20, "metadata", NULL);
    vec v = VEC_OF(uint32_t, &b);
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t *slot = vec_push(&v, NULL);
        cr_assert_not_null(slot);
        cr_assert_eq(*slot, 0, "new items are zeroed");
        *slot = i;
    }
    for (uint32_t i = 0; i < 10000; i++)
        cr_assert_eq(*VEC_AT(&v, uint32_t, i), i);
    cr_assert_eq(b.used_bytes, v.capacity * 4);
    vec_trim(&v);
    cr_assert_eq(v.capacity, 10000);
    cr_assert_eq(b.used_bytes, 40000);
    vec_release(&v);
    cr_assert_eq(b.used_bytes, 0);
    vec_release(&v);
}

Test(vec, stops_at_the_budget_but_uses_all_of_it)
{
    budget b;
    fsdpck_error err;
    budget_init(&b, 4000, "metadata", NULL);
    vec v = VEC_OF(uint32_t, &b);
    size_t n = 0;
    while (vec_push(&v, &err) != NULL)
        n++;
    cr_assert_eq(err.status, FSDPCK_LIMIT);
    cr_assert_eq(n, 1000, "growth by half does not waste the last third, got %zu", n);
    cr_assert_eq(v.count, 1000);
    vec_release(&v);
}

Test(vec, absurd_counts_are_refused)
{
    vec v = VEC_OF(uint64_t, NULL);
    cr_assert_eq(vec_reserve(&v, SIZE_MAX / 4, NULL), FSDPCK_LIMIT);
    cr_assert_not_null(vec_push(&v, NULL));
    cr_assert_eq(vec_reserve(&v, SIZE_MAX, NULL), FSDPCK_LIMIT);
    cr_assert_eq(v.count, 1);
    cr_assert_not_null(vec_push_n(&v, 0, NULL));
    cr_assert_eq(v.count, 1);
    vec_release(&v);
}

Test(text, appends)
{
    text_buf b = {0};
    text_puts(&b, "ab");
    text_append(&b, "\0c", 2);
    text_printf(&b, "%s%d", "x", 12);
    cr_assert_eq(b.nbytes, 7);
    cr_assert_eq(memcmp(b.text, "ab\0cx12", 8), 0, "and terminated");
    cr_assert_eq(text_check(&b, NULL), FSDPCK_OK);
    text_release(&b);
    text_append(&b, "", 0);
    cr_assert_str_eq(b.text, "");
    text_release(&b);
}

Test(text, failure_sticks)
{
    text_buf b = {.limit_bytes = 10};
    text_puts(&b, "0123456789");
    cr_assert_eq(text_check(&b, NULL), FSDPCK_OK);
    text_puts(&b, "x");
    cr_assert_eq(text_check(&b, NULL), FSDPCK_LIMIT);
    text_append(&b, "", 0);
    text_printf(&b, "%s", "");
    cr_assert_eq(text_check(&b, NULL), FSDPCK_LIMIT);
    cr_assert_str_eq(b.text, "0123456789");
    text_release(&b);
}

Test(text_buf, memory_that_is_not_there_is_no_limit_of_size)
{
    text_buf text = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_error err = {0};
    text_append(&text, "", SIZE_MAX / 4);
    cr_assert_eq(text_check(&text, &err), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "LIMIT-MEMORY");
    text_release(&text);
    text.limit_bytes = 3;
    text_puts(&text, "four");
    cr_assert_eq(text_check(&text, &err), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "LIMIT-SIZE");
    text_release(&text);
}
