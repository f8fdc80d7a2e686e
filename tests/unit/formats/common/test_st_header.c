#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/st_header.h"

#define W "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static budget owner;
static fsdpck_error err;

static fsdpck_status parse_text(const char *text, size_t nbytes, uint64_t data_nbytes)
{
    st_header h;
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    fsdpck_error_init(&err);
    const fsdpck_status st = st_header_parse(text, nbytes, 8, data_nbytes, &owner, &h, &err);
    if (st == FSDPCK_OK)
        st_header_release(&h);
    cr_expect_eq(owner.used_bytes, 0, "%.60s: memory is given back", text);
    return st;
}

typedef struct row {
    const char *text;
    uint64_t data_nbytes;
    fsdpck_status status;
    const char *finding;
} row;

static void check_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const fsdpck_status st =
            parse_text(rows[i].text, strlen(rows[i].text), rows[i].data_nbytes);
        cr_expect_eq(st, rows[i].status, "%s: %s", rows[i].text, err.message);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), rows[i].finding, "%s: %s", rows[i].text,
                         err.message);
    }
}

#define CHECK(rows)   check_rows(rows, sizeof rows / sizeof rows[0])
#define BAD           FSDPCK_BADINPUT
#define ENTRY(fields) "{\"w\":{" fields "}}"
#define SHAPED(dtype, shape, offsets) \
    ENTRY("\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets)

Test(st_header, text)
{
    static const row rows[] = {
        {"{" W "}", 8, FSDPCK_OK, ""},
        {"{" W "}      ", 8, FSDPCK_OK, ""},
        {" {" W "}", 8, BAD, "ST-JSON"},
        {"\n{" W "}", 8, BAD, "ST-JSON"},
        {"{" W "}\n", 8, BAD, "ST-JSON"},
        {"{" W "}PK", 8, BAD, "ST-JSON"},
        {"{" W "}{}", 8, BAD, "ST-JSON"},
        {"{" W ",}", 8, BAD, "ST-JSON"},
        {"{/**/" W "}", 8, BAD, "ST-JSON"},
        {"{'w':{}}", 0, BAD, "ST-JSON"},
        {"{\"w\xFF\":{}}", 0, BAD, "ST-UTF8"},
        {"{\"w\xC0\x80\":{}}", 0, BAD, "ST-UTF8"},
        {"{\"w\xED\xA0\x80\":{}}", 0, BAD, "ST-UTF8"},
        {"\xEF\xBB\xBF{}", 0, BAD, "ST-UTF8"},
        {"{", 0, BAD, "ST-JSON"},
        {"[]", 0, BAD, "ST-JSON"},
        {"{}", 0, FSDPCK_OK, ""},
    };
    CHECK(rows);
    cr_expect_eq(parse_text("{\"a\0b\":{}}", 10, 0), BAD);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "ST-UTF8");
    cr_expect_eq(err.offset_bytes, 8 + 3);
    char deep[4096];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"w\":", 5);
    cr_expect_eq(parse_text(deep, sizeof deep, 0), BAD);
}

Test(st_header, duplicates_and_metadata)
{
    static const row rows[] = {
        {"{" W "," W "}", 8, BAD, "ST-DUPKEY"},
        {"{" W ",\"\\u0077\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", 8, BAD,
         "ST-DUPKEY"},
        {ENTRY("\"dtype\":\"U8\",\"dtype\":\"U8\""), 0, BAD, "ST-DUPKEY"},
        {"{\"__metadata__\":{\"a\":\"b\"}," W "}", 8, FSDPCK_OK, ""},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, BAD, "ST-META"},
        {"{\"__metadata__\":{\"a\":1}}", 0, BAD, "ST-META"},
        {"{\"__metadata__\":{\"a\":{}}}", 0, BAD, "ST-META"},
        {"{\"__metadata__\":[]}", 0, BAD, "ST-META"},
        {"{\"__metadata__\":{\"a\":\"x\",\"\\u0061\":\"y\"}}", 0, BAD, "ST-META"},
    };
    CHECK(rows);
    (void)parse_text(rows[0].text, strlen(rows[0].text), 8);
    cr_expect_not_null(strstr(err.found, "float32 with 1 dim"), "both definitions: %s", err.found);
}

Test(st_header, numbers)
{
    static const row rows[] = {
        {SHAPED("U8", "[1.0]", "[0,1]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[1e0]", "[0,1]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[-0]", "[0,0]"), 0, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[01]", "[0,1]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[+1]", "[0,1]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[1]", "[0,01]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[1]", "[0,-1]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[18446744073709551616]", "[0,1]"), 1, BAD, "ST-NUMBER"},
        {SHAPED("U8", "[9007199254740993]", "[0,9007199254740992]"), 1, BAD, "ST-LENGTH"},
        {SHAPED("U8", "[9007199254740993]", "[0,9007199254740993]"), 1, BAD, "FILE-SHORT"},
        {SHAPED("U8", "[NaN]", "[0,1]"), 1, BAD, "ST-JSON"},
        {SHAPED("U8", "[-1]", "[0,1]"), 1, BAD, "ST-SHAPE"},
        {SHAPED("U8", "[true]", "[0,1]"), 1, BAD, "ST-ENTRY"},
    };
    CHECK(rows);
    char text[1024] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[";
    const size_t n = strlen(text);
    memset(text + n, '9', 400);
    strcpy(text + n + 400, "],\"data_offsets\":[0,1]}}");
    cr_expect_eq(parse_text(text, strlen(text), 1), BAD);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "ST-NUMBER");
}

Test(st_header, shapes)
{
    static const row rows[] = {
        {SHAPED("U8", "[4294967296,4294967296]", "[0,0]"), 0, BAD, "ST-SHAPE"},
        {SHAPED("F32", "[4611686018427387904]", "[0,0]"), 0, BAD, "ST-SHAPE"},
        {SHAPED("U8", "[9223372036854775808]", "[0,0]"), 0, BAD, "ST-SHAPE"},
        {SHAPED("U8", "[0,9223372036854775807]", "[0,0]"), 0, FSDPCK_OK, ""},
        {SHAPED("U8", "[]", "[0,1]"), 1, FSDPCK_OK, ""},
    };
    CHECK(rows);
    char text[1024] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[1";
    for (int i = 0; i < 64; i++)
        strcat(text, ",1");
    strcat(text, "],\"data_offsets\":[0,1]}}");
    cr_expect_eq(parse_text(text, strlen(text), 1), FSDPCK_LIMIT);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "ST-SHAPE");
}

#define TWO(a, b)                                                     \
    "{\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a "}," \
    "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" b "}}"

Test(st_header, offsets)
{
    static const row rows[] = {
        {TWO("[0,4]", "[4,8]"), 8, FSDPCK_OK, ""},
        {TWO("[4,8]", "[0,4]"), 8, FSDPCK_OK, ""},
        {TWO("[1,5]", "[5,9]"), 9, BAD, "ST-OFFSET"},
        {TWO("[0,4]", "[5,9]"), 9, BAD, "ST-OFFSET"},
        {TWO("[0,4]", "[3,7]"), 7, BAD, "ST-OFFSET"},
        {TWO("[0,4]", "[0,4]"), 4, BAD, "ST-OFFSET"},
        {TWO("[4,0]", "[4,8]"), 8, BAD, "ST-OFFSET"},
        {TWO("[0,4]", "[4,8]"), 9, BAD, "ST-TRAILING"},
        {TWO("[0,4]", "[4,8]"), 7, BAD, "FILE-SHORT"},
        {TWO("[0,4]", "[4,9]"), 9, BAD, "ST-LENGTH"},
        {"{}", 1, BAD, "ST-TRAILING"},
        {SHAPED("U8", "[0]", "[5,5]"), 0, BAD, "ST-OFFSET"},
        {"{\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"f\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]}," W "}",
         8, FSDPCK_OK, ""},
    };
    CHECK(rows);
}

Test(st_header, dtypes_and_fields)
{
    static const row rows[] = {
        {SHAPED("F6_E2M3", "[4]", "[0,3]"), 3, FSDPCK_UNSUPPORTED, "ST-DTYPE"},
        {SHAPED("f32", "[1]", "[0,4]"), 4, BAD, "ST-DTYPE"},
        {SHAPED("F4", "[3]", "[0,2]"), 2, BAD, "ST-DTYPE"},
        {SHAPED("F4", "[4,3]", "[0,6]"), 6, FSDPCK_UNSUPPORTED, "ST-SHAPE"},
        {SHAPED("F4", "[]", "[0,1]"), 1, BAD, "ST-DTYPE"},
        {ENTRY("\"shape\":[],\"data_offsets\":[0,1]"), 1, BAD, "ST-ENTRY"},
        {ENTRY("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), 1, BAD, "ST-ENTRY"},
        {ENTRY("\"dtype\":\"U8\",\"shape\":[1]"), 1, BAD, "ST-ENTRY"},
        {SHAPED("U8", "[1]", "[1]"), 1, BAD, "ST-ENTRY"},
        {SHAPED("U8", "[1]", "[0,1,1]"), 1, BAD, "ST-ENTRY"},
        {SHAPED("U8", "3", "[0,1]"), 1, BAD, "ST-ENTRY"},
        {"{\"w\":[]}", 0, BAD, "ST-ENTRY"},
        {ENTRY("\"dtype\":7"), 0, BAD, "ST-ENTRY"},
    };
    CHECK(rows);
    (void)parse_text(rows[0].text, strlen(rows[0].text), 3);
    cr_expect_str_eq(err.found, "'F6_E2M3'");
    cr_expect_str_eq(err.tensor, "w");
}

Test(st_header, what_is_read_comes_out)
{
    static const char text[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"k\\u0000\":\"\"},"
        "\"b\":{\"x\":[{}],\"data_offsets\":[8,11],\"shape\":[3,2],\"dtype\":\"F4\"},"
        "\"a\\u0000\\u00e9\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ";
    st_header h;
    budget_init(&owner, 1u << 20, "metadata", NULL);
    cr_assert_eq(st_header_parse(text, strlen(text), 100, 11, &owner, &h, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_assert_eq(h.entries.count, 2);
    const st_entry *e = h.entries.items;
    size_t n;
    const char *name = st_header_name(&h, &e[0], &n);
    cr_assert_eq(n, 4);
    cr_expect_arr_eq(name, "a\0\xC3\xA9", 4);
    cr_expect_eq(e[0].dtype, DTYPE_FLOAT32);
    cr_expect_str_eq(st_header_name(&h, &e[1], &n), "b");
    cr_expect_eq(e[1].begin_bytes, 8);
    cr_expect(st_header_shape(&h, &e[1])[0] == 3 && st_header_shape(&h, &e[1])[1] == 1,
              "torch counts two F4 as one");
    cr_expect_str_eq(st_header_metadata(&h, "format", &n), "pt");
    cr_expect_null(st_header_metadata(&h, "none", &n));
    cr_expect_eq(h.data_offset_bytes, 100 + strlen(text));
    cr_expect_eq(h.extra_fields, 1);
    st_header_release(&h);
}

/* --- from a file --- */

typedef struct memory_file {
    const uint8_t *bytes;
    uint64_t nbytes;
    unsigned reads;
} memory_file;

static fsdpck_status read_memory(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                                 fsdpck_error *e)
{
    memory_file *m = ctx;
    (void)e;
    m->reads++;
    cr_assert(offset_bytes <= m->nbytes && nbytes <= m->nbytes - offset_bytes, "read past the end");
    memcpy(dst, m->bytes + offset_bytes, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status read_bytes(memory_file *m, uint64_t base)
{
    st_header h;
    const st_input in = {
        .read = read_memory, .ctx = m, .base_offset_bytes = base, .nbytes = m->nbytes - base};
    budget_init(&owner, (uint64_t)1 << 30, "metadata", NULL);
    fsdpck_error_init(&err);
    m->reads = 0;
    const fsdpck_status st = st_header_read(&in, &owner, &h, &err);
    if (st == FSDPCK_OK)
        st_header_release(&h);
    cr_expect_eq(owner.used_bytes, 0);
    return st;
}

Test(st_header, impossible_lengths)
{
    static const uint64_t lengths[] = {
        0, 1, 5, 24, 100000001, (uint64_t)1 << 31, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7};
    uint8_t bytes[32] = {0};
    memory_file m = {.bytes = bytes, .nbytes = sizeof bytes};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        store_le64(bytes, lengths[i]);
        cr_expect_eq(read_bytes(&m, 0), BAD);
        if (lengths[i] < 2 || lengths[i] > 24)
            cr_expect_str_eq(fsdpck_finding_name(err.finding), "ST-HEADER-SIZE");
    }
    for (m.nbytes = 0; m.nbytes < 8; m.nbytes++) {
        cr_expect_eq(read_bytes(&m, 0), BAD);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), "FILE-SHORT");
        cr_expect_eq(m.reads, 0);
    }
}

Test(st_header, a_small_header_takes_one_read_and_a_large_one_two)
{
    static const char text[] = "{" W "}";
    const size_t large = 300000;
    uint8_t *bytes = calloc(1, 16 + large + 8);
    memory_file m = {.bytes = bytes, .nbytes = 8 + strlen(text) + 8};
    store_le64(bytes, strlen(text));
    memcpy(bytes + 8, text, strlen(text));
    cr_expect_eq(read_bytes(&m, 0), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(m.reads, 1);

    store_le64(bytes, large);
    memset(bytes + 8, ' ', large);
    memcpy(bytes + 8, text, strlen(text));
    m.nbytes = 8 + large + 8;
    cr_expect_eq(read_bytes(&m, 0), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(m.reads, 2);

    memmove(bytes + 8, bytes, 8 + large + 8); /* as the tail of another file */
    m.nbytes += 8;
    cr_expect_eq(read_bytes(&m, 8), FSDPCK_OK, "%s", err.message);
    bytes[16] = 'x';
    cr_expect_eq(read_bytes(&m, 8), BAD);
    cr_expect_eq(err.offset_bytes, 16, "offsets are the file's");
    free(bytes);
}

Test(st_header, the_largest_header_is_accepted_and_one_byte_more_is_not)
{
    const uint64_t most = ST_HEADER_NBYTES_MAX;
    uint8_t *bytes = malloc(8 + most + 9);
    memory_file m = {.bytes = bytes, .nbytes = 8 + most + 8};
    memset(bytes + 8, ' ', most + 9);
    memcpy(bytes + 8, "{" W "}", strlen("{" W "}"));
    store_le64(bytes, most);
    cr_expect_eq(read_bytes(&m, 0), FSDPCK_OK, "%s", err.message);
    store_le64(bytes, most + 1);
    m.nbytes++;
    cr_expect_eq(read_bytes(&m, 0), BAD);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "ST-HEADER-SIZE");
    free(bytes);
}

Test(st_header, many_tensors, .timeout = 20)
{
    const unsigned count = 200000;
    text_buf text = {0};
    text_puts(&text, "{");
    for (unsigned i = 0; i < count; i++) /* in reverse, so that the entries must be sorted */
        text_printf(&text,
                    "%s\"model.layers.%u.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
                    "[%u,%u]}",
                    i > 0 ? "," : "", i, count - 1 - i, count - i);
    text_puts(&text, "}");
    cr_expect_eq(parse_text(text.text, text.nbytes, count), FSDPCK_OK, "%s", err.message);
    text_release(&text);
}
