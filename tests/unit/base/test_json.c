#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static fsdpck_error err;

/* Walks a text to its end or to the refusal. */
static fsdpck_status walk(const char *text, size_t nbytes)
{
    /* A block of exactly its size, so that a read past the end is seen. */
    char *copy = malloc(nbytes + 1);
    memcpy(copy, text, nbytes);
    json_reader r;
    json_token t;
    json_reader_init(&r, copy, nbytes, FSDPCK_FINDING_ST_JSON);
    fsdpck_status st;
    do {
        st = json_next(&r, &t, &err);
    } while (st == FSDPCK_OK && t.kind != JSON_END);
    if (st != FSDPCK_OK) {
        cr_assert_eq(json_next(&r, &t, NULL), FSDPCK_BADINPUT, "refused for ever");
        cr_assert_eq(err.has_offset, 1);
        cr_assert_leq(err.offset_bytes, nbytes);
    } else {
        cr_assert_eq(json_next(&r, &t, NULL), FSDPCK_OK);
        cr_assert_eq(t.kind, JSON_END, "the end for ever");
    }
    json_reader_release(&r);
    free(copy);
    return st;
}

#define WALK(literal) walk(literal, sizeof(literal) - 1)

Test(json, accepted)
{
    static const char *const rows[] = {
        "{}",
        "[]",
        " { } ",
        "\t[\r\n]\n",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1",
        "10",
        "1.5",
        "1e5",
        "1E+5",
        "1.25e-7",
        "\"\"",
        "\"a\"",
        "[1,2]",
        "[ 1 , 2 ]",
        "{\"a\":1}",
        "{\"a\" : {\"b\":[]} , \"\":null}",
        "[[],{},[{}]]",
        "\"\\u0041\"",
        "\"\\ud83d\\ude00\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "{\"a\":1,\"a\":2}",
        "123456789012345678901234567890",
        "\"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\"",
        "\"\x7f\"",
        "\"\\u0000\"",
        "\"\\uFFFF\"",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(walk(rows[i], strlen(rows[i])), FSDPCK_OK, "%s: %s", rows[i], err.expected);
}

static void expect_refused(const char *const *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(walk(rows[i], strlen(rows[i])), FSDPCK_BADINPUT, "%s", rows[i]);
        cr_assert_str_eq(fsdpck_finding_name(err.finding), "ST-JSON");
    }
}

Test(json, refused)
{
    static const char *const rows[] = {
        "",
        " ",
        "{",
        "[",
        "}",
        "]",
        "[}",
        "{]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\":1,}",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "nul",
        "nulL",
        "True",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "1.e5",
        "0x10",
        "1_000",
        "[1] [2]",
        "{} x",
        "[] ,",
        "// c\n1",
        "/* c */1",
        "1//",
        "\f1",
    };
    expect_refused(rows, sizeof rows / sizeof *rows);
    cr_assert_eq(WALK("{}\0"), FSDPCK_BADINPUT, "a NUL behind");
}

Test(json, refused_texts)
{
    static const char *const rows[] = {
        "\"",
        "\"abc",
        "\"\\\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u\"",
        "\"\\u12\"",
        "\"\\u12G4\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800x\"",
        "\"a\nb\"",
        "\"\t\"",
        "\xEF\xBB\xBF{}",
        "\xC2\xA0[1]",
        "\"\x80\"",
        "\"\xC3\"",
        "\"\xC0\xAF\"",
        "\"\xED\xA0\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF8\x88\x80\x80\x80\"",
        "\"\xE4\xB8\"",
    };
    expect_refused(rows, sizeof rows / sizeof *rows);
    cr_assert_eq(WALK("\"a\0b\""), FSDPCK_BADINPUT, "a NUL inside");
    cr_assert_eq(WALK("\"\\\0\""), FSDPCK_BADINPUT, "an escaped NUL byte");
}

Test(json, every_prefix_is_refused)
{
    static const char text[] = "{\"a\\u0041\":[1.5e3,true,null,\"\\ud83d\\ude00\xC3\xA9\",{}]}";
    cr_assert_eq(WALK(text), FSDPCK_OK);
    for (size_t n = 0; n < sizeof(text) - 1; n++)
        cr_assert_eq(walk(text, n), FSDPCK_BADINPUT, "prefix of %zu", n);
}

/* Each byte that is not plain at each place of a string around the eight-byte steps. */
Test(json, strings_of_all_lengths)
{
    for (size_t n = 0; n < 40; n++) {
        for (size_t at = 0; at < n; at++) {
            char text[64];
            memset(text, 'a', sizeof(text));
            text[0] = '"';
            text[n + 1] = '"';
            text[at + 1] = '\x1f';
            cr_assert_eq(walk(text, n + 2), FSDPCK_BADINPUT);
            cr_assert_eq(err.offset_bytes, at + 1);
            text[at + 1] = '\xff';
            cr_assert_eq(walk(text, n + 2), FSDPCK_BADINPUT);
            cr_assert_eq(err.offset_bytes, at + 1);
            text[at + 1] = ' ';
            cr_assert_eq(walk(text, n + 2), FSDPCK_OK);
            text[at + 1] = '"';
            cr_assert_eq(walk(text, at + 2), FSDPCK_OK);
        }
    }
}

Test(json, nesting_has_a_limit)
{
    char text[200];
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    cr_assert_eq(walk(text + 36, 128), FSDPCK_OK, "64 levels");
    cr_assert_eq(walk(text + 35, 130), FSDPCK_BADINPUT, "65 levels");
    cr_assert_eq(err.offset_bytes, 64);
}

static json_token next(json_reader *r)
{
    json_token t;
    cr_assert_eq(json_next(r, &t, &err), FSDPCK_OK);
    return t;
}

static void expect_text(json_reader *r, json_kind kind, const char *text, size_t nbytes)
{
    const json_token t = next(r);
    cr_assert_eq(t.kind, kind);
    cr_assert_eq(t.nbytes, nbytes);
    cr_assert_eq(memcmp(t.text, text, nbytes), 0);
}

Test(json, tokens)
{
    static const char text[] =
        "{\"k\\n\": [18446744073709551615, 18446744073709551616, -1, 1.0, -0, "
        "\"a\\u0000\\ud83d\\ude00\\\\\", \"\"], \"x\": true}";
    json_reader r;
    json_reader_init(&r, text, sizeof(text) - 1, FSDPCK_FINDING_NONE);
    cr_assert_eq(next(&r).kind, JSON_OBJECT);
    expect_text(&r, JSON_KEY, "k\n", 2);
    cr_assert_eq(next(&r).kind, JSON_ARRAY);
    json_token t = next(&r);
    cr_assert(t.is_u64);
    cr_assert_eq(t.u64, UINT64_MAX);
    cr_assert_eq(t.offset_bytes, 9);
    t = next(&r);
    cr_assert_not(t.is_u64, "2^64 does not fit");
    cr_assert_eq(t.nbytes, 20);
    cr_assert_not(next(&r).is_u64);
    cr_assert_not(next(&r).is_u64);
    cr_assert_not(next(&r).is_u64);
    expect_text(&r, JSON_STRING, "a\0\xF0\x9F\x98\x80\\", 7);
    expect_text(&r, JSON_STRING, "", 0);
    cr_assert_eq(next(&r).kind, JSON_ARRAY_END);
    expect_text(&r, JSON_KEY, "x", 1);
    cr_assert_eq(next(&r).kind, JSON_TRUE);
    cr_assert_eq(next(&r).kind, JSON_OBJECT_END);
    cr_assert_eq(next(&r).kind, JSON_END);
    json_reader_release(&r);
}

Test(json, only_plain_numbers_are_u64)
{
    static const char *const rows[] = {
        "-1", "-0", "1.0", "1e5", "1E5", "0e0", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_reader r;
        json_reader_init(&r, rows[i], strlen(rows[i]), FSDPCK_FINDING_NONE);
        const json_token t = next(&r);
        cr_assert_eq(t.kind, JSON_NUMBER);
        cr_assert_not(t.is_u64, "%s", rows[i]);
        cr_assert_eq(t.u64, 0);
        json_reader_release(&r);
    }
}

Test(json, skip_and_expect)
{
    static const char text[] = "{\"a\": [1, {\"b\": []}, \"]\"], \"c\": 5}";
    json_reader r;
    json_reader_init(&r, text, sizeof(text) - 1, FSDPCK_FINDING_NONE);
    json_token t;
    cr_assert_eq(json_expect(&r, JSON_OBJECT, &t, &err), FSDPCK_OK);
    cr_assert_eq(json_expect(&r, JSON_KEY, &t, &err), FSDPCK_OK);
    cr_assert_eq(json_next(&r, &t, &err), FSDPCK_OK);
    cr_assert_eq(json_skip(&r, &t, &err), FSDPCK_OK);
    cr_assert_eq(json_expect(&r, JSON_KEY, &t, &err), FSDPCK_OK);
    cr_assert_eq(t.text[0], 'c');
    cr_assert_eq(json_expect(&r, JSON_STRING, &t, &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(err.expected, "a string");
    cr_assert_str_eq(err.found, "a number");
    cr_assert_eq(err.offset_bytes, 32);
    json_reader_release(&r);
    json_reader_init(&r, "[1,[2]", 6, FSDPCK_FINDING_NONE);
    cr_assert_eq(json_next(&r, &t, &err), FSDPCK_OK);
    cr_assert_eq(json_skip(&r, &t, &err), FSDPCK_BADINPUT, "a skip checks what it skips");
    json_reader_release(&r);
}

/* --- the writer --- */

static text_buf out;
static json_writer w;

static void begin(unsigned indent)
{
    text_release(&out);
    out = (text_buf){0};
    json_writer_init(&w, &out, indent);
}

static void end(void)
{
    text_release(&out);
}

Test(json, writer_compact_and_indented, .fini = end)
{
    static const struct {
        unsigned indent;
        const char *text;
    } rows[] = {
        {0, "{\"a\":[1,-2,0.5,true,null],\"b\":{},\"c\":[],\"d\":\"x\"}"},
        {2, "{\n  \"a\": [\n    1,\n    -2,\n    0.5,\n    true,\n    null\n  ],\n  \"b\": {},\n"
            "  \"c\": [],\n  \"d\": \"x\"\n}"},
    };
    for (size_t i = 0; i < 2; i++) {
        begin(rows[i].indent);
        json_begin_object(&w);
        json_put_key(&w, "a", 1);
        json_begin_array(&w);
        json_put_u64(&w, 1);
        json_put_i64(&w, -2);
        json_put_double(&w, 0.5);
        json_put_bool(&w, true);
        json_put_null(&w);
        json_end_array(&w);
        json_put_key(&w, "b", 1);
        json_begin_object(&w);
        json_end_object(&w);
        json_put_key(&w, "c", 1);
        json_begin_array(&w);
        json_end_array(&w);
        json_put_key(&w, "d", 1);
        json_put_cstr(&w, "x");
        json_end_object(&w);
        cr_assert_eq(text_check(&out, NULL), FSDPCK_OK);
        cr_assert_str_eq(out.text, rows[i].text);
    }
}

/* As the reports of the program: each member on a line, arrays on one line except of lines. */
Test(json, writer_with_tabs, .fini = end)
{
    static const char text[] =
        "{\n\t\"a\":\t[1, {\n\t\t\t\"b\":\t[]\n\t\t}, {\n\t\t}],\n\t\"o\":\t{\n\t},\n"
        "\t\"lines\":\t[\n\t\t{\"n\":[1,2],\"o\":{}},\n\t\t{}],\n\t\"z\":\tnull\n}";
    begin(JSON_TABS);
    json_begin_object(&w);
    json_member_array(&w, "a");
    json_put_u64(&w, 1);
    json_begin_object(&w);
    json_member_u64s(&w, "b", NULL, 0);
    json_end_object(&w);
    json_begin_object(&w);
    json_end_object(&w);
    json_end_array(&w);
    json_member_object(&w, "o");
    json_end_object(&w);
    json_member_array(&w, "lines");
    json_begin_line(&w);
    json_member_u64s(&w, "n", (const uint64_t[]){1, 2}, 2);
    json_member_object(&w, "o");
    json_end_object(&w);
    json_end_line(&w);
    json_begin_line(&w);
    json_end_line(&w);
    json_end_array(&w);
    json_put_key(&w, "z", 1);
    json_put_null(&w);
    json_end_object(&w);
    cr_assert_eq(text_check(&out, NULL), FSDPCK_OK);
    cr_assert_str_eq(out.text, text);
    cr_assert_eq(walk(out.text, out.nbytes), FSDPCK_OK);
}

Test(json, writer_lines_with_spaces, .fini = end)
{
    begin(1);
    json_begin_array(&w);
    for (uint64_t i = 0; i < 2; i++) {
        json_begin_line(&w);
        json_member_u64(&w, "i", i);
        json_end_line(&w);
    }
    json_end_array(&w);
    cr_assert_str_eq(out.text, "[\n {\"i\":0},\n {\"i\":1}\n]");
}

Test(json, writer_members, .fini = end)
{
    begin(0);
    json_begin_object(&w);
    json_member_text(&w, "t", "x\0y", 3);
    json_member_string(&w, "s", "\"");
    json_member_string(&w, "omitted", NULL);
    json_member_u64(&w, "u", UINT64_MAX);
    json_member_i64(&w, "i", INT64_MIN);
    json_member_double(&w, "d", 0.5);
    json_member_bool(&w, "b", true);
    JSON_COUNTS(&w, {"p", 1}, {"q", UINT64_MAX});
    JSON_MEMBER_COUNTS(&w, "c", {"r", 2});
    json_end_object(&w);
    cr_assert_str_eq(out.text, "{\"t\":\"x\\u0000y\",\"s\":\"\\\"\",\"u\":18446744073709551615,"
                               "\"i\":-9223372036854775808,\"d\":0.5,\"b\":true,"
                               "\"p\":1,\"q\":18446744073709551615,\"c\":{\"r\":2}}");
}

/* Items of another writer; none at all leaves no comma. */
Test(json, writer_raw, .fini = end)
{
    begin(JSON_TABS);
    json_begin_array(&w);
    json_put_raw(&w, NULL, 0);
    json_put_raw(&w, "1, 2", 4);
    json_put_raw(&w, NULL, 0);
    json_put_u64(&w, 3);
    json_end_array(&w);
    cr_assert_str_eq(out.text, "[1, 2, 3]");
}

static void count_and_empty(text_buf *full)
{
    cr_assert_gt(full->nbytes, 1u << 16);
    cr_assert_leq(full->nbytes, (1u << 16) + 16, "emptied only after much more");
    full->nbytes = 0;
    full->limit_bytes++; /* counts the calls */
}

Test(json, writer_drains, .fini = end)
{
    enum { LIMIT = 1 << 20, ITEMS = 100000 };
    begin(0);
    out.limit_bytes = LIMIT;
    w.drain = count_and_empty;
    json_begin_array(&w);
    for (unsigned i = 0; i < ITEMS; i++)
        json_put_u64s(&w, (const uint64_t[]){123456789}, 1); /* 12 bytes with the comma */
    json_end_array(&w);
    cr_assert_eq(text_check(&out, NULL), FSDPCK_OK);
    cr_assert_eq(out.limit_bytes - LIMIT, 12 * ITEMS / (1 << 16));
}

static const char *quoted(const char *text, size_t nbytes)
{
    begin(0);
    json_put_string(&w, text, nbytes);
    return out.text;
}

Test(json, writer_strings, .fini = end)
{
    cr_assert_str_eq(quoted("a\"\\/\n\x01\x0B\x7F\0", 9),
                     "\"a\\\"\\\\/\\n\\u0001\\u000b\\u007f\\u0000\"");
    cr_assert_str_eq(quoted("\b\f\r\t", 4), "\"\\b\\f\\r\\t\"");
    cr_assert_str_eq(quoted("\xC3\xA9\xF0\x9F\x98\x80", 6), "\"\xC3\xA9\xF0\x9F\x98\x80\"");
    cr_assert_str_eq(quoted("\xFF\xC3x", 3), "\"\xEF\xBF\xBD\xEF\xBF\xBDx\"");
    cr_assert_str_eq(quoted("\xE2\x80\xAE\xF3\xA0\x80\x81", 7), "\"\\u202e\\udb40\\udc01\"",
                     "nothing may steer a terminal");
    cr_assert_str_eq(quoted(NULL, 0), "\"\"");
    begin(0);
    json_put_cstr(&w, NULL);
    cr_assert_str_eq(out.text, "null");
}

static const char *number(double v)
{
    begin(0);
    json_put_double(&w, v);
    return out.text;
}

Test(json, writer_doubles, .fini = end)
{
    cr_assert_str_eq(number(0.1), "0.1");
    cr_assert_str_eq(number(1), "1");
    cr_assert_str_eq(number(-2.5), "-2.5");
    cr_assert_str_eq(number(100), "100");
    cr_assert_str_eq(number(-1e15), "-1000000000000000");
    cr_assert_str_eq(number(1e16), "1e+16");
    cr_assert_str_eq(number(2.0 / 3), "0.6666666666666666", "as Python's repr");
    cr_assert_str_eq(number(-31.0 / 7), "-4.428571428571429");
    cr_assert_str_eq(number(-0.0), "-0");
    cr_assert_str_eq(number(5e-324), "5e-324");
    cr_assert_str_eq(number(INFINITY), "null");
    cr_assert_str_eq(number(-INFINITY), "null");
    cr_assert_str_eq(number(NAN), "null");
    static const double values[] = {1.0 / 3, DBL_MAX, DBL_MIN, 1e21, 123456789.125, 2e-7, -0.0};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const char *text = number(values[i]);
        cr_assert_eq(walk(text, strlen(text)), FSDPCK_OK, "%s", text);
        const double back = strtod(text, NULL);
        cr_assert_eq(memcmp(&back, &values[i], sizeof(back)), 0, "%s", text);
    }
}
