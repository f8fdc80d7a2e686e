/* Strings with escapes, and integers that are written. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/json.h"

/* Every plain byte, and each kind of escape at each place between them. */
Test(json_text, escapes_at_all_places)
{
    static const char *const escapes[] = {"\\\"", "\\\\", "\\n", "\\u00e9"};
    static const char *const meanings[] = {"\"", "\\", "\n", "\xC3\xA9"};
    for (size_t e = 0; e < sizeof escapes / sizeof *escapes; e++) {
        for (size_t at = 0; at < 96; at++) {
            char text[128], expected[128];
            size_t n = 1, m = 0;
            text[0] = '"';
            for (size_t i = 0; i < 96; i++) {
                const char c = (char)(' ' + i);
                if (i == at) {
                    memcpy(text + n, escapes[e], strlen(escapes[e]));
                    memcpy(expected + m, meanings[e], strlen(meanings[e]));
                    n += strlen(escapes[e]);
                    m += strlen(meanings[e]);
                }
                if (c != '"' && c != '\\')
                    text[n++] = expected[m++] = c;
            }
            text[n++] = '"';
            json_reader r;
            json_token t;
            json_reader_init(&r, text, n, FSDPCK_FINDING_ST_JSON);
            cr_assert_eq(json_next(&r, &t, NULL), FSDPCK_OK);
            cr_assert_eq(t.nbytes, m);
            cr_assert_eq(memcmp(t.text, expected, m), 0, "'%s' at %zu", escapes[e], at);
            json_reader_release(&r);
        }
    }
}

Test(json_text, written_integers)
{
    static const uint64_t values[] = {0, 9, 10, 1000000, UINT64_MAX};
    text_buf out = {0};
    json_writer w;
    json_writer_init(&w, &out, 0);
    json_put_u64s(&w, values, sizeof values / sizeof *values);
    cr_assert_str_eq(out.text, "[0,9,10,1000000,18446744073709551615]");
    text_release(&out);
}
