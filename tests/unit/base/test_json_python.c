/* Numbers that only Python's JSON has. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/json.h"

static fsdpck_error err;

Test(json_python, numbers)
{
    static const char text[] = "[NaN,Infinity , -Infinity, -1]";
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "-1"};
    static const char *const refused[] = {"Nan", "Inf", "-Inf", "-NaN", "+Infinity", "[NaNx]", "N"};
    json_reader r;
    json_token t;
    json_reader_init(&r, text, sizeof text - 1, FSDPCK_FINDING_ST_JSON);
    r.takes_python_numbers = true;
    cr_assert_eq(json_expect(&r, JSON_ARRAY, &t, &err), FSDPCK_OK);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        cr_assert_eq(json_expect(&r, JSON_NUMBER, &t, &err), FSDPCK_OK);
        cr_expect(json_is(&t, words[i]));
        cr_expect_not(t.is_u64);
    }
    cr_expect_eq(json_expect(&r, JSON_ARRAY_END, &t, &err), FSDPCK_OK);
    cr_expect_eq(json_expect(&r, JSON_END, &t, &err), FSDPCK_OK);
    json_reader_release(&r);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        fsdpck_status st = FSDPCK_OK;
        json_reader_init(&r, refused[i], strlen(refused[i]), FSDPCK_FINDING_ST_JSON);
        r.takes_python_numbers = true;
        for (t.kind = JSON_NULL; st == FSDPCK_OK && t.kind != JSON_END;)
            st = json_next(&r, &t, &err);
        cr_expect_eq(st, FSDPCK_BADINPUT, "%s", refused[i]);
        json_reader_release(&r);
    }
}
