/* Words of a command line: what bash makes of them is tested by tests/cli/odd_names. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/shell_word.h"

Test(shell_word, forms)
{
    static const char *const rows[][2] = {
        {"run/step-10", "run/step-10"},
        {"", "''"},
        {"-x", "./-x"},
        {"- x", "'./- x'"},
        {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},
        {"a\nb'c\\", "$'a\\nb\\'c\\\\'"},
        {"\xFF"
         "A",
         "$'\\xFFA'"},
        {"\xC3\xA4", "'\xC3\xA4'"},
        {"~", "'~'"},
        {"-\t", "$'./-\\t'"},
        {"\xE2\x80\x8B", "$'\\xE2\\x80\\x8B'"},
    };
    char out[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_str_eq(shell_word(out, sizeof out, rows[i][0]), rows[i][1]);
}

Test(shell_word, a_word_that_does_not_fit_is_empty)
{
    const char *const path = "it's a path\n";
    char out[SHELL_WORD_CAPACITY(12)];
    const size_t n = strlen(shell_word(out, sizeof out, path));
    cr_assert_gt(n, 0);
    for (size_t capacity = 1; capacity <= sizeof out; capacity++)
        cr_expect_eq(strlen(shell_word(out, capacity, path)), capacity > n ? n : 0);
}
