#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "formats/common/zip.h"
#include "zip_builder.h"

static const char small[] = "0123456789";

static zip_builder z;
static zip_archive a;
static budget b;
static fsdpck_error err;

static void make_usual(void)
{
    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", "pickle", 6);
    zip_builder_add(&z, "archive/data/0", small, 10);
    zip_builder_add(&z, "archive/data/1", "", 0);
    zip_builder_add(&z, "archive/version", "3\n", 2);
    zip_builder_end(&z);
}

static fsdpck_status open_made(void)
{
    const zip_input in = zip_builder_input(&z);
    budget_init(&b, 64 << 20, "zip", NULL);
    fsdpck_error_init(&err);
    return zip_open(&in, &b, &a, &err);
}

Test(zip, usual_archive_is_read_in_one_read)
{
    uint8_t *bytes;
    uint64_t nbytes;

    make_usual();
    cr_assert_eq(open_made(), FSDPCK_OK, "%s", err.message);
    cr_assert_str_eq(a.prefix, "archive");
    cr_assert_eq(a.entries.count, 4);
    const zip_entry *e = zip_find(&a, "data/0");
    cr_assert_not_null(e);
    cr_assert_eq(e->data_offset_bytes, z.data_at[1]);
    cr_assert_eq(zip_read_entry(&a, e, 100, &bytes, &nbytes, &err), FSDPCK_OK);
    cr_assert_eq(nbytes, 10);
    cr_assert_arr_eq(bytes, small, 10);
    budget_free(&b, bytes, nbytes);
    cr_assert_null(zip_find(&a, "data/2"));
    cr_assert_eq(z.nreads, 1);
    cr_assert_eq(zip_read_entry(&a, e, 9, &bytes, &nbytes, &err), FSDPCK_LIMIT);
    zip_release(&a);
    cr_assert_eq(b.used_bytes, 0);
    zip_builder_release(&z);
}

Test(zip, part_of_a_file_has_offsets_of_the_file)
{
    make_usual();
    const size_t nbytes = z.bytes.nbytes;
    zip_builder_insert(&z, 0, 100, 'x');
    zip_input in = zip_builder_input(&z);
    in.base_offset_bytes = 100;
    in.nbytes = nbytes;
    budget_init(&b, 1 << 20, "zip", NULL);
    cr_assert_eq(zip_open(&in, &b, &a, &err), FSDPCK_OK);
    cr_assert_eq(zip_find(&a, "data/0")->data_offset_bytes, 100 + z.data_at[1]);
    zip_release(&a);
    zip_builder_release(&z);
}

/* Offsets of files that torch wrote. */
Test(zip, layout_is_that_of_torch)
{
    const uint64_t large = ((uint64_t)1 << 32) + 100;

    cr_assert_eq(zip_data_offset(0, strlen("archive/data.pkl"), 150), 64);
    cr_assert_eq(zip_descriptor_nbytes(0, 150), 16);
    cr_assert_eq(zip_data_offset(230, strlen("archive/.format_version"), 1), 320);
    cr_assert_eq(zip_data_offset(337, strlen("archive/.storage_alignment"), 2), 448);
    cr_assert_eq(zip_data_offset(598, strlen("archive/data/0"), 12), 704);
    cr_assert_eq(zip_data_offset(470, strlen("big/data/0"), large), 576);
    cr_assert_eq(zip_descriptor_nbytes(470, large), 24);
    cr_assert_eq(zip_data_offset(4294967996u, strlen("big/data/1"), 12), 4294968064u);
    cr_assert_eq(zip_descriptor_nbytes(4294967996u, 12), 24);
    cr_assert_eq(zip_descriptor_nbytes(4294968100u, 0), 0);
}

/* An archive over 4 GiB; only its headers exist. */
typedef struct sparse {
    text_buf parts[4];
    uint64_t at[4];
} sparse;

static fsdpck_status read_sparse(void *ctx, uint64_t offset, void *dst, uint64_t nbytes,
                                 fsdpck_error *why)
{
    const sparse *s = ctx;
    (void)why;

    memset(dst, 0, nbytes);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < s->parts[i].nbytes; k++)
            if (s->at[i] + k >= offset && s->at[i] + k < offset + nbytes)
                ((char *)dst)[s->at[i] + k - offset] = s->parts[i].text[k];
    return FSDPCK_OK;
}

Test(zip, records_over_4_gib)
{
    static const uint64_t large = ((uint64_t)1 << 32) + 100;
    sparse s = {0};
    text_buf directory = {0};

    zip_put_local(&s.parts[0], 0, "big/data/0", 10, large);
    s.at[1] = s.parts[0].nbytes + large;
    zip_put_descriptor(&s.parts[1], 0, 7, large);
    const uint64_t second = s.at[1] + s.parts[1].nbytes;
    zip_put_local(&s.parts[1], second, "big/data/1", 10, 3);
    text_append(&s.parts[1], "abc", 3);
    zip_put_descriptor(&s.parts[1], second, crc32_update(0, "abc", 3), 3);
    const uint64_t third = s.at[1] + s.parts[1].nbytes;
    zip_put_local(&s.parts[1], third, "big/data/2", 10, 0);
    zip_put_central(&directory, 0, "big/data/0", 10, 7, large);
    zip_put_central(&directory, second, "big/data/1", 10, crc32_update(0, "abc", 3), 3);
    zip_put_central(&directory, third, "big/data/2", 10, 0, 0);
    s.at[2] = s.at[1] + s.parts[1].nbytes;
    text_append(&s.parts[2], directory.text, directory.nbytes);
    zip_put_end(&s.parts[2], s.at[2], directory.nbytes, 3);
    zip_input in = {.read = read_sparse, .ctx = &s, .nbytes = s.at[2] + s.parts[2].nbytes};
    budget_init(&b, 1 << 20, "zip", NULL);
    cr_assert_eq(zip_open(&in, &b, &a, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(zip_find(&a, "data/0")->nbytes, large);
    cr_assert_eq(zip_find(&a, "data/1")->data_offset_bytes, zip_data_offset(second, 10, 3));
    zip_release(&a);
    /* 2^32 +- 1 bytes of it are no archive. */
    for (uint64_t cut = ((uint64_t)1 << 32) - 1; cut <= ((uint64_t)1 << 32) + 1; cut++) {
        in.nbytes = cut;
        cr_assert_eq(zip_open(&in, &b, &a, &err), FSDPCK_BADINPUT);
        cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-NOEND");
    }
    text_release(&directory);
    for (size_t i = 0; i < 4; i++)
        text_release(&s.parts[i]);
}

/* --- one mistake each --- */

static void expect_finding(fsdpck_status status, const char *finding, const char *row)
{
    const fsdpck_status st = open_made();
    cr_expect_eq(st, status, "%s: status %d, %s %s", row, st, fsdpck_finding_name(err.finding),
                 err.message);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding, "%s: %s", row, err.message);
    if (st == FSDPCK_OK)
        zip_release(&a);
    cr_expect_eq(b.used_bytes, 0, "%s: memory is left", row);
    zip_builder_release(&z);
}

static void expect_bad(const char *finding, const char *row)
{
    expect_finding(FSDPCK_BADINPUT, finding, row);
}

Test(zip, truncation_at_every_byte)
{
    make_usual();
    const size_t whole = z.bytes.nbytes;
    for (size_t n = 0; n < whole; n++) {
        z.bytes.nbytes = n;
        cr_assert_eq(open_made(), FSDPCK_BADINPUT, "cut at %zu", n);
        cr_assert_str_eq(fsdpck_finding_name(err.finding), n < 22 ? "ZIP-EMPTY" : "ZIP-NOEND",
                         "cut at %zu", n);
    }
    zip_builder_release(&z);
}

Test(zip, ends)
{
    zip_builder_begin(&z);
    text_append(&z.bytes, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    expect_bad("ZIP-EMPTY", "only an end record");

    make_usual();
    char end[22];
    memcpy(end, z.bytes.text + z.bytes.nbytes - 22, 22);
    text_append(&z.bytes, end, 22);
    expect_bad("ZIP-AMBIGUOUS-END", "two end records");

    make_usual();
    text_append(&z.bytes, "xyz", 3);
    expect_bad("ZIP-TRAILING", "bytes behind the end");

    make_usual();
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 2), 22);
    text_append(&z.bytes, end, 22);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 4);
    expect_bad("ZIP-AMBIGUOUS-END", "an end record in the comment");

    make_usual();
    zip_builder_insert(&z, 0, 16, '#');
    expect_bad("ZIP-PREFIX", "bytes before the first record");
}

Test(zip, end_record_fields)
{
    make_usual();
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 24), 5);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 32), 5);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 5);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 14), 5);
    expect_bad("ZIP-COUNT", "one entry too many");

    make_usual();
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 24), 3);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 32), 3);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 3);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 14), 3);
    expect_bad("ZIP-COUNT", "one entry too few");

    make_usual();
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 48), UINT64_MAX - 10);
    store_le32(zip_builder_at(&z, z.bytes.nbytes - 6), UINT32_MAX);
    expect_bad("ZIP-DIR", "directory offset wraps");
}

/* Changes both the local and the central field of entry i. */
static void change_flags(size_t i, uint16_t flags, bool local, bool central)
{
    if (local)
        store_le16(zip_builder_at(&z, z.header_at[i] + 6), flags);
    if (central)
        store_le16(zip_builder_at(&z, z.central_at[i] + 8), flags);
}

Test(zip, entry_fields)
{
    make_usual();
    change_flags(1, 0x0809, true, true);
    expect_bad("ZIP-FLAGS", "encrypted");
    make_usual();
    change_flags(1, 0x0809, false, true);
    expect_bad("ZIP-FLAGS", "encrypted in the directory only");
    make_usual();
    change_flags(1, 0x0809, true, false);
    expect_bad("ZIP-FLAGS", "encrypted in the local header only");
}

/* One changed field: of the second entry, or before the end of the archive. */
Test(zip, fields)
{
    enum { IN_END, IN_CENTRAL, IN_HEADER, BEHIND_HEADER };
    static const struct {
        int in;
        size_t at;
        unsigned nbytes;
        uint64_t value;
        const char *finding, *what;
    } rows[] = {
        {IN_END, 34, 8, 0, "ZIP64", "locator points elsewhere"},
        {IN_END, 12, 2, 3, "ZIP64", "plain and zip64 count disagree"},
        {IN_END, 18, 2, 1, "ZIP-DISK", "several disks"},
        {IN_HEADER, 8, 2, 8, "ZIP-LOCAL", "another method in the local header"},
        {IN_CENTRAL, 20, 4, 9, "ZIP-SIZE", "stored size differs"},
        {IN_CENTRAL, 24, 4, UINT32_MAX, "ZIP64", "size without its zip64 field"},
        {IN_HEADER, 30 + 14 + 2, 2, 0xFFFF, "ZIP64", "extra field longer than its space"},
        {IN_HEADER, 30, 1, 'A', "ZIP-LOCAL-NAME", "another local name"},
        {BEHIND_HEADER, 10, 1, 'X', "ZIP-DESCRIPTOR", "no descriptor"},
        {BEHIND_HEADER, 14, 4, 1, "ZIP-DESCRIPTOR", "CRC of the descriptor differs"},
        {IN_CENTRAL, 34, 2, 1, "ZIP-DISK", "entry on another disk"},
        {IN_CENTRAL, 42, 4, 0, "ZIP-OVERLAP", "two entries on one header"},
        {IN_CENTRAL, 46 + 9, 1, '\0', "ZIP-NAME", "NUL in a name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_usual();
        const size_t bases[] = {[IN_CENTRAL] = z.central_at[1],
                                [IN_HEADER] = z.header_at[1],
                                [BEHIND_HEADER] = z.data_at[1]};
        const size_t at =
            rows[i].in == IN_END ? z.bytes.nbytes - rows[i].at : bases[rows[i].in] + rows[i].at;
        uint8_t value[8];
        store_le64(value, rows[i].value);
        memcpy(zip_builder_at(&z, at), value, rows[i].nbytes);
        expect_bad(rows[i].finding, rows[i].what);
    }
    make_usual();
    store_le16(zip_builder_at(&z, z.central_at[1] + 10), 14);
    expect_finding(FSDPCK_UNSUPPORTED, "ZIP-METHOD", "LZMA");
}

Test(zip, places)
{
    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    text_append(&z.bytes, "hidden", 6);
    zip_builder_add(&z, "archive/version", "3\n", 2);
    zip_builder_end(&z);
    expect_bad("ZIP-GAP", "bytes between records");

    zip_builder_begin(&z);
    text_append(&z.bytes, "#!/bin/sh\n", 10);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    zip_builder_end(&z);
    expect_bad("ZIP-PREFIX", "a script before the first record");

    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    text_append(&z.bytes, "hidden", 6);
    zip_builder_end(&z);
    expect_bad("ZIP-GAP", "bytes before the directory");

    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    store_le32((uint8_t *)z.directory.text + 20, 1000);
    store_le32((uint8_t *)z.directory.text + 24, 1000);
    zip_builder_end(&z);
    expect_bad("ZIP-OVERLAP", "record reaches into the directory");
}

Test(zip, names)
{
    static const struct {
        const char *first, *second, *finding;
    } rows[] = {
        {"archive/data.pkl", "archive/data.pkl", "ZIP-DUPNAME"},
        {"archive/data.pkl", "archive/DATA.pkl", "ZIP-CASE"},
        {"archive/Data.pkl", "archive/data.pkl", "ZIP-CASE"},
        {"archive/Data.pkl", "archive/dATA.pkl", "ZIP-CASE"},
        {"archive/data.pkl", "other/version", "ZIP-ROOT"},
        {"archive/data.pkl", "version", "ZIP-ROOT"},
        {"archive/data.pkl", "archive/../x", "ZIP-NAME"},
        {"archive/data.pkl", "/archive/x", "ZIP-NAME"},
        {"archive/data.pkl", "C:/archive/x", "ZIP-NAME"},
        {"archive/data.pkl", "archive\\x", "ZIP-NAME"},
        {"archive/data.pkl", "archive//x", "ZIP-NAME"},
        {"archive/data.pkl", "", "ZIP-NAME"},
        {"archive/data.pkl", "archive/\xC3(", "ZIP-NAME"},
        {"archive/data.pkl", "archive/folder/", "ZIP-NAME"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        zip_builder_begin(&z);
        zip_builder_add(&z, rows[i].first, small, 10);
        zip_builder_add(&z, rows[i].second, small, 10);
        zip_builder_end(&z);
        expect_bad(rows[i].finding, rows[i].second);
    }
}

Test(zip, records_need_no_alignment_and_no_descriptor)
{
    uint8_t local[30] = "PK\3\4";

    /* As Python's zipfile writes them. */
    zip_builder_begin(&z);
    const uint32_t crc = crc32_update(0, small, 10);
    store_le32(local + 14, crc);
    store_le32(local + 18, 10);
    store_le32(local + 22, 10);
    store_le16(local + 26, 3);
    text_append(&z.bytes, local, 30);
    text_append(&z.bytes, "a/b", 3);
    text_append(&z.bytes, small, 10);
    zip_put_central(&z.directory, 0, "a/b", 3, crc, 10);
    store_le16((uint8_t *)z.directory.text + 8, 0);
    z.count = 1;
    zip_builder_end(&z);
    cr_assert_eq(open_made(), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(zip_find(&a, "b")->data_offset_bytes, 33);
    zip_release(&a);
    store_le32(zip_builder_at(&z, 22), 11);
    expect_bad("ZIP-LOCAL", "local size differs");
}

Test(zip, crc)
{
    uint8_t *bytes;
    uint64_t nbytes;

    make_usual();
    *zip_builder_at(&z, z.data_at[1]) ^= 1;
    cr_assert_eq(open_made(), FSDPCK_OK);
    cr_assert_not(a.no_crc);
    cr_assert_eq(zip_read_entry(&a, zip_find(&a, "data/0"), 100, &bytes, &nbytes, &err),
                 FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-CRC");
    cr_assert_eq(err.offset_bytes, z.data_at[1]);
    zip_release(&a);
    zip_builder_release(&z);

    /* torch.serialization.set_crc32_options(False) */
    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data/0", small, 10);
    store_le32(zip_builder_at(&z, z.data_at[0] + 14), 0);
    store_le32((uint8_t *)z.directory.text + 16, 0);
    zip_builder_end(&z);
    cr_assert_eq(open_made(), FSDPCK_OK, "%s", err.message);
    cr_assert(a.no_crc);
    cr_assert_eq(zip_read_entry(&a, zip_find(&a, "data/0"), 100, &bytes, &nbytes, &err), FSDPCK_OK);
    budget_free(&b, bytes, nbytes);
    zip_release(&a);
    zip_builder_release(&z);
}

/* Deflated record of 100,000 bytes whose headers claim another size, or whose bytes are damaged. */
static fsdpck_status read_deflated(size_t claimed, bool damage, uint64_t limit, bool *right)
{
    enum { N = 100000 };
    char *text = malloc(N);
    uint8_t *bytes;
    uint64_t nbytes;

    for (size_t i = 0; i < N; i++)
        text[i] = (char)((i * i) >> 7);
    zip_builder_begin(&z);
    zip_builder_add_deflated(&z, "archive/data/0", text, N, claimed);
    zip_builder_end(&z);
    if (damage)
        memset(zip_builder_at(&z, z.data_at[0] + 20), 0xFF, 30);
    fsdpck_status st = open_made();
    if (st == FSDPCK_OK) {
        cr_assert(a.any_deflated);
        st = zip_read_entry(&a, zip_find(&a, "data/0"), limit, &bytes, &nbytes, &err);
        *right = st == FSDPCK_OK && nbytes == N && memcmp(bytes, text, N) == 0;
        if (st == FSDPCK_OK)
            budget_free(&b, bytes, nbytes);
        zip_release(&a);
    }
    cr_assert_eq(b.used_bytes, 0);
    zip_builder_release(&z);
    free(text);
    return st;
}

Test(zip, deflated_records)
{
    bool right = false;

    cr_assert_eq(read_deflated(100000, false, 1 << 20, &right), FSDPCK_OK, "%s", err.message);
    cr_assert(right);
    cr_assert_eq(read_deflated(99999, false, 1 << 20, &right), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-SIZE");
    cr_assert_eq(read_deflated(100001, false, 1 << 20, &right), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-SIZE");
    cr_assert_eq(read_deflated(100000, false, 1000, &right), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-BOMB");
    cr_assert_eq(read_deflated(UINT32_MAX - 1, false, 1 << 20, &right), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-SIZE");
    cr_assert_eq(read_deflated(100000, true, 1 << 20, &right), FSDPCK_BADINPUT);
}

/* Over ZIP_EAGER_ENTRIES local headers are read when their entry is. */
Test(zip, large_directories_are_checked_on_use)
{
    enum { N = ZIP_EAGER_ENTRIES + 1 };
    char name[40];
    size_t at[2] = {0};

    zip_builder_begin(&z);
    for (int i = 0; i < N; i++) {
        const size_t header_at = z.bytes.nbytes;
        const int n = snprintf(name, sizeof(name), "archive/data/%d", i);
        at[i == 7] = header_at;
        zip_put_local(&z.bytes, header_at, name, (size_t)n, 4);
        text_append(&z.bytes, &i, 4);
        zip_put_descriptor(&z.bytes, header_at, crc32_update(0, &i, 4), 4);
        zip_put_central(&z.directory, header_at, name, (size_t)n, crc32_update(0, &i, 4), 4);
    }
    const size_t directory_at = z.bytes.nbytes;
    text_append(&z.bytes, z.directory.text, z.directory.nbytes);
    zip_put_end(&z.bytes, directory_at, z.directory.nbytes, N);
    cr_assert_eq(open_made(), FSDPCK_OK, "%s", err.message);
    cr_assert_leq(z.nreads, 2);
    cr_assert_not(zip_find(&a, "data/7")->checked);
    cr_assert_eq(zip_entry_check(&a, zip_find(&a, "data/7"), &err), FSDPCK_OK);
    zip_release(&a);

    *zip_builder_at(&z, at[1] + 30 + 13) = '8';
    cr_assert_eq(open_made(), FSDPCK_OK);
    cr_assert_eq(zip_entry_check(&a, zip_find(&a, "data/6"), &err), FSDPCK_OK);
    cr_assert_eq(zip_entry_check(&a, zip_find(&a, "data/7"), &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-LOCAL-NAME");
    cr_assert_eq(err.offset_bytes, at[1]);
    zip_release(&a);
    zip_builder_release(&z);
}
