#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/status.h"

static const char *escaped(const char *text, size_t nbytes)
{
    static char out[256];
    return escape_text(out, sizeof(out), text, nbytes);
}

#define ESCAPED(literal) escaped(literal, sizeof(literal) - 1)

Test(status, every_status_has_a_name)
{
    for (int i = 0; i <= FSDPCK_CANCELLED; i++) {
        if (i == 9 || i == 11)
            continue;
        cr_assert_str_neq(fsdpck_status_name((fsdpck_status)i), "unknown status", "status %d", i);
    }
    cr_assert_str_eq(fsdpck_status_name((fsdpck_status)99), "unknown status");
}

Test(status, set_resets_what_was_there)
{
    fsdpck_error err;
    memset(&err, 0x5A, sizeof(err));
    const fsdpck_status st =
        error_set(&err, FSDPCK_BADINPUT, FSDPCK_FINDING_ZIP_CRC, "record %d is bad", 7);
    cr_assert_eq(st, FSDPCK_BADINPUT);
    cr_assert_eq(err.status, FSDPCK_BADINPUT);
    cr_assert_str_eq(err.message, "record 7 is bad");
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-CRC");
    cr_assert_eq(err.rank, -1);
    cr_assert_eq(err.has_offset, 0);
    cr_assert_str_eq(err.path, "");
    cr_assert_str_eq(err.next, "");
}

Test(status, fail_sets_all_details_and_returns_the_status)
{
    fsdpck_error err;
    memset(&err, 0x5A, sizeof(err));
    cr_assert_eq(FAIL(&err, LIMIT, LIMIT_SIZE, "%s of %d", "record", 7), FSDPCK_LIMIT);
    cr_assert_eq(err.status, FSDPCK_LIMIT);
    cr_assert_eq(err.finding, FSDPCK_FINDING_LIMIT_SIZE);
    cr_assert_str_eq(err.message, "record of 7");
    cr_assert_str_eq(err.found, "");

    const fsdpck_status st = FAIL_WITH(&err, BADINPUT, ZIP_CRC, ("record %d is bad", 8),
                                       (offset, 9), (expected, "%d, %d", 1, 2), (found, "none"),
                                       (next, "copy it"), (path_in, "a", "b"), (tensor, "w"));
    cr_assert_eq(st, FSDPCK_BADINPUT);
    cr_assert_eq(err.status, FSDPCK_BADINPUT);
    cr_assert_eq(err.finding, FSDPCK_FINDING_ZIP_CRC);
    cr_assert_str_eq(err.message, "record 8 is bad");
    cr_assert_eq(err.offset_bytes, 9);
    cr_assert_str_eq(err.expected, "1, 2");
    cr_assert_str_eq(err.found, "none");
    cr_assert_str_eq(err.next, "copy it");
    cr_assert_str_eq(err.path, "a/b");
    cr_assert_str_eq(err.tensor, "w");
    cr_assert_eq(FAIL_AS(NULL, st, err.finding, ("x"), (found, "y")), FSDPCK_BADINPUT);
}

Test(status, null_error_is_fine)
{
    cr_assert_eq(error_set(NULL, FSDPCK_LIMIT, FSDPCK_FINDING_NONE, "x"), FSDPCK_LIMIT);
    cr_assert_eq(error_set_errno(NULL, ENOSPC, "write", "p"), FSDPCK_NOSPACE);
    error_path(NULL, "x");
    error_offset(NULL, 1);
    error_expected(NULL, "%d", 1);
    fsdpck_error_init(NULL);
}

Test(status, the_innermost_caller_wins)
{
    fsdpck_error err;
    error_set(&err, FSDPCK_IO, FSDPCK_FINDING_NONE, "x");
    error_path(&err, "inner");
    error_path(&err, "outer");
    error_offset(&err, 0);
    error_offset(&err, 5);
    error_found(&err, "%d", 1);
    error_found(&err, "%d", 2);
    cr_assert_str_eq(err.path, "inner");
    cr_assert_eq(err.has_offset, 1);
    cr_assert_eq(err.offset_bytes, 0);
    cr_assert_str_eq(err.found, "1");
}

Test(status, errno_gives_the_status)
{
    static const struct {
        int sys_errno;
        fsdpck_status status;
    } rows[] = {{ENOSPC, FSDPCK_NOSPACE}, {EDQUOT, FSDPCK_NOSPACE}, {EFBIG, FSDPCK_NOSPACE},
                {ENOMEM, FSDPCK_LIMIT},   {EMFILE, FSDPCK_LIMIT},   {EEXIST, FSDPCK_EXISTS},
                {EIO, FSDPCK_IO},         {ENOENT, FSDPCK_IO},      {ESTALE, FSDPCK_IO}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fsdpck_error err;
        cr_assert_eq(error_set_errno(&err, rows[i].sys_errno, "pread", "a\nb"), rows[i].status);
        cr_assert_eq(err.sys_errno, rows[i].sys_errno);
        cr_assert_str_eq(fsdpck_finding_name(err.finding),
                         rows[i].sys_errno == ENOMEM   ? "LIMIT-MEMORY"
                         : rows[i].sys_errno == EMFILE ? "LIMIT-OPEN"
                                                       : "");
        cr_assert_str_eq(err.path, "a\nb");
        cr_assert_eq(strncmp(err.message, "pread failed: ", 14), 0);
    }
}

Test(status, texts_from_files_are_escaped)
{
    fsdpck_error err;
    error_set(&err, FSDPCK_BADINPUT, FSDPCK_FINDING_NONE, "tensor '%s'", "a\x1b[31mb");
    cr_assert_str_eq(err.message, "tensor 'a\\x1B[31mb'");
    error_tensor(&err, "w\r\n");
    cr_assert_str_eq(err.tensor, "w\\x0D\\x0A");
}

Test(escape, what_passes)
{
    cr_assert_str_eq(ESCAPED("plain ~ text\\"), "plain ~ text\\");
    cr_assert_str_eq(ESCAPED("\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x98\x80"),
                     "\xC3\xA9 \xE4\xB8\xAD \xF0\x9F\x98\x80");
    cr_assert_str_eq(ESCAPED(""), "");
}

Test(escape, what_does_not)
{
    cr_assert_str_eq(ESCAPED("\0\x1f\x7f"), "\\x00\\x1F\\x7F");
    cr_assert_str_eq(ESCAPED("\x80\xC3("), "\\x80\\xC3(");
    cr_assert_str_eq(ESCAPED("\xC0\xAF"), "\\xC0\\xAF", "overlong");
    cr_assert_str_eq(ESCAPED("\xE0\x80\xAF"), "\\xE0\\x80\\xAF", "overlong");
    cr_assert_str_eq(ESCAPED("\xED\xA0\x80"), "\\xED\\xA0\\x80", "surrogate");
    cr_assert_str_eq(ESCAPED("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80", "above U+10FFFF");
    cr_assert_str_eq(ESCAPED("\xC2\x9B"), "\\xC2\\x9B", "C1: a control sequence introducer");
    cr_assert_str_eq(ESCAPED("\xE2\x80"), "\\xE2\\x80", "cut short");
}

Test(escape, bidirectional_controls)
{
    static const char *const rows[] = {
        "\xE2\x80\xAA", "\xE2\x80\xAB", "\xE2\x80\xAC", "\xE2\x80\xAD",
        "\xE2\x80\xAE", "\xE2\x81\xA6", "\xE2\x81\xA7", "\xE2\x81\xA8",
        "\xE2\x81\xA9", "\xE2\x80\x8E", "\xE2\x80\x8F", "\xD8\x9C",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(escaped(rows[i], strlen(rows[i]))[0], '\\', "row %zu", i);
}

Test(escape, cuts_at_a_boundary_with_dots)
{
    char out[8];
    memset(out, 'x', sizeof(out));
    cr_assert_str_eq(escape_text(out, 8, "1234567", 7), "1234567");
    cr_assert_str_eq(escape_text(out, 8, "12345678", 8), "1234...");
    cr_assert_str_eq(escape_text(out, 8, "123\xC3\xA9\xC3\xA9\xC3\xA9", 9), "123...",
                     "a character is never split");
    cr_assert_str_eq(escape_text(out, 8, "\n\n", 2), "\\x0A...", "nor an escape");
    cr_assert_str_eq(escape_text(out, 3, "abc", 3), "ab", "no room for dots");
    cr_assert_str_eq(escape_text(out, 1, "abc", 3), "");
}

Test(escape, long_messages_are_cut_inside_the_field)
{
    static char text[5000];
    memset(text, 'a', sizeof(text) - 1);
    fsdpck_error err;
    error_set(&err, FSDPCK_IO, FSDPCK_FINDING_NONE, "%s", text);
    cr_assert_eq(strlen(err.message), sizeof(err.message) - 1);
    cr_assert_str_eq(err.message + sizeof(err.message) - 4, "...");
    error_path(&err, text);
    cr_assert_eq(strlen(err.path), sizeof(err.path) - 1);
}
