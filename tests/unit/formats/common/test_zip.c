#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "formats/common/zip.h"
#include "zip_builder.h"

static const char small[] = "0123456789";

static void make_usual(zip_builder *z)
{
    zip_builder_begin(z);
    zip_builder_add(z, "archive/data.pkl", "pickle", 6);
    zip_builder_add(z, "archive/data/0", small, 10);
    zip_builder_add(z, "archive/data/1", "", 0);
    zip_builder_add(z, "archive/version", "3\n", 2);
    zip_builder_end(z);
}

static fsdpck_status open_made(zip_builder *z, zip_archive *a, budget *b, fsdpck_error *err)
{
    const zip_input in = zip_builder_input(z);

    budget_init(b, 64 << 20, "zip", NULL);
    fsdpck_error_init(err);
    return zip_open(&in, b, a, err);
}

Test(zip, usual_archive_is_read_in_one_read)
{
    zip_builder z;
    zip_archive a;
    budget b;
    fsdpck_error err;
    uint8_t *bytes;
    uint64_t nbytes;

    make_usual(&z);
    cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_OK, "%s", err.message);
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
    zip_builder z;
    zip_archive a;
    budget b;
    fsdpck_error err;

    make_usual(&z);
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
                                 fsdpck_error *err)
{
    const sparse *s = ctx;
    (void)err;

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
    zip_archive a;
    budget b;
    fsdpck_error err;

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

static void expect_finding(zip_builder *z, fsdpck_status status, const char *finding,
                           const char *row)
{
    zip_archive a;
    budget b;
    fsdpck_error err;
    const fsdpck_status st = open_made(z, &a, &b, &err);

    cr_expect_eq(st, status, "%s: status %d, %s %s", row, st, fsdpck_finding_name(err.finding),
                 err.message);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding, "%s: %s", row, err.message);
    if (st == FSDPCK_OK)
        zip_release(&a);
    cr_expect_eq(b.used_bytes, 0, "%s: memory is left", row);
    zip_builder_release(z);
}

static void expect_bad(zip_builder *z, const char *finding, const char *row)
{
    expect_finding(z, FSDPCK_BADINPUT, finding, row);
}

Test(zip, truncation_at_every_byte)
{
    zip_builder z;
    zip_archive a;
    budget b;
    fsdpck_error err;

    make_usual(&z);
    const size_t whole = z.bytes.nbytes;
    for (size_t n = 0; n < whole; n++) {
        z.bytes.nbytes = n;
        cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_BADINPUT, "cut at %zu", n);
        cr_assert_str_eq(fsdpck_finding_name(err.finding), n < 22 ? "ZIP-EMPTY" : "ZIP-NOEND",
                         "cut at %zu", n);
    }
    zip_builder_release(&z);
}

Test(zip, ends)
{
    zip_builder z;

    zip_builder_begin(&z);
    text_append(&z.bytes, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    expect_bad(&z, "ZIP-EMPTY", "only an end record");

    make_usual(&z);
    char end[22];
    memcpy(end, z.bytes.text + z.bytes.nbytes - 22, 22);
    text_append(&z.bytes, end, 22);
    expect_bad(&z, "ZIP-AMBIGUOUS-END", "two end records");

    make_usual(&z);
    text_append(&z.bytes, "xyz", 3);
    expect_bad(&z, "ZIP-TRAILING", "bytes behind the end");

    make_usual(&z);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 2), 22);
    text_append(&z.bytes, end, 22);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 4);
    expect_bad(&z, "ZIP-AMBIGUOUS-END", "an end record in the comment");

    make_usual(&z);
    zip_builder_insert(&z, 0, 16, '#');
    expect_bad(&z, "ZIP-PREFIX", "bytes before the first record");
}

Test(zip, end_record_fields)
{
    zip_builder z;

    make_usual(&z);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 22 - 12), 0);
    expect_bad(&z, "ZIP64", "locator points elsewhere");

    make_usual(&z);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 3);
    expect_bad(&z, "ZIP64", "plain and zip64 count disagree");

    make_usual(&z);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 24), 5);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 32), 5);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 5);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 14), 5);
    expect_bad(&z, "ZIP-COUNT", "one entry too many");

    make_usual(&z);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 24), 3);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 32), 3);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 12), 3);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 14), 3);
    expect_bad(&z, "ZIP-COUNT", "one entry too few");

    make_usual(&z);
    store_le64(zip_builder_at(&z, z.bytes.nbytes - 98 + 48), UINT64_MAX - 10);
    store_le32(zip_builder_at(&z, z.bytes.nbytes - 6), UINT32_MAX);
    expect_bad(&z, "ZIP-DIR", "directory offset wraps");

    make_usual(&z);
    store_le16(zip_builder_at(&z, z.bytes.nbytes - 18), 1);
    expect_bad(&z, "ZIP-DISK", "several disks");
}

/* Changes both the local and the central field of entry i. */
static void change_flags(zip_builder *z, size_t i, uint16_t flags, bool local, bool central)
{
    if (local)
        store_le16(zip_builder_at(z, z->header_at[i] + 6), flags);
    if (central)
        store_le16(zip_builder_at(z, z->central_at[i] + 8), flags);
}

Test(zip, entry_fields)
{
    zip_builder z;

    make_usual(&z);
    change_flags(&z, 1, 0x0809, true, true);
    expect_bad(&z, "ZIP-FLAGS", "encrypted");
    make_usual(&z);
    change_flags(&z, 1, 0x0809, false, true);
    expect_bad(&z, "ZIP-FLAGS", "encrypted in the directory only");
    make_usual(&z);
    change_flags(&z, 1, 0x0809, true, false);
    expect_bad(&z, "ZIP-FLAGS", "encrypted in the local header only");

    make_usual(&z);
    store_le16(zip_builder_at(&z, z.central_at[1] + 10), 14);
    expect_finding(&z, FSDPCK_UNSUPPORTED, "ZIP-METHOD", "LZMA");
    make_usual(&z);
    store_le16(zip_builder_at(&z, z.header_at[1] + 8), 8);
    expect_bad(&z, "ZIP-LOCAL", "another method in the local header");

    make_usual(&z);
    store_le32(zip_builder_at(&z, z.central_at[1] + 20), 9);
    expect_bad(&z, "ZIP-SIZE", "stored size differs");
    make_usual(&z);
    store_le32(zip_builder_at(&z, z.central_at[1] + 24), UINT32_MAX);
    expect_bad(&z, "ZIP64", "size without its zip64 field");
    make_usual(&z);
    store_le16(zip_builder_at(&z, z.header_at[1] + 30 + 14 + 2), 0xFFFF);
    expect_bad(&z, "ZIP64", "extra field longer than its space");

    make_usual(&z);
    *zip_builder_at(&z, z.header_at[1] + 30) = 'A';
    expect_bad(&z, "ZIP-LOCAL-NAME", "another local name");
    make_usual(&z);
    *zip_builder_at(&z, z.data_at[1] + 10) = 'X';
    expect_bad(&z, "ZIP-DESCRIPTOR", "no descriptor");
    make_usual(&z);
    store_le32(zip_builder_at(&z, z.data_at[1] + 14), 1);
    expect_bad(&z, "ZIP-DESCRIPTOR", "CRC of the descriptor differs");
    make_usual(&z);
    store_le16(zip_builder_at(&z, z.central_at[1] + 34), 1);
    expect_bad(&z, "ZIP-DISK", "entry on another disk");
}

Test(zip, places)
{
    zip_builder z;

    make_usual(&z);
    store_le32(zip_builder_at(&z, z.central_at[1] + 42), (uint32_t)z.header_at[0]);
    expect_bad(&z, "ZIP-OVERLAP", "two entries on one header");

    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    text_append(&z.bytes, "hidden", 6);
    zip_builder_add(&z, "archive/version", "3\n", 2);
    zip_builder_end(&z);
    expect_bad(&z, "ZIP-GAP", "bytes between records");

    zip_builder_begin(&z);
    text_append(&z.bytes, "#!/bin/sh\n", 10);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    zip_builder_end(&z);
    expect_bad(&z, "ZIP-PREFIX", "a script before the first record");

    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    text_append(&z.bytes, "hidden", 6);
    zip_builder_end(&z);
    expect_bad(&z, "ZIP-GAP", "bytes before the directory");

    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", small, 10);
    store_le32((uint8_t *)z.directory.text + 20, 1000);
    store_le32((uint8_t *)z.directory.text + 24, 1000);
    zip_builder_end(&z);
    expect_bad(&z, "ZIP-OVERLAP", "record reaches into the directory");
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
    zip_builder z;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        zip_builder_begin(&z);
        zip_builder_add(&z, rows[i].first, small, 10);
        zip_builder_add(&z, rows[i].second, small, 10);
        zip_builder_end(&z);
        expect_bad(&z, rows[i].finding, rows[i].second);
    }
    make_usual(&z);
    *zip_builder_at(&z, z.central_at[1] + 46 + 9) = '\0';
    expect_bad(&z, "ZIP-NAME", "NUL in a name");
}

Test(zip, records_need_no_alignment_and_no_descriptor)
{
    zip_builder z;
    zip_archive a;
    budget b;
    fsdpck_error err;
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
    cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(zip_find(&a, "b")->data_offset_bytes, 33);
    zip_release(&a);
    store_le32(zip_builder_at(&z, 22), 11);
    expect_bad(&z, "ZIP-LOCAL", "local size differs");
}

Test(zip, crc)
{
    zip_builder z;
    zip_archive a;
    budget b;
    fsdpck_error err;
    uint8_t *bytes;
    uint64_t nbytes;

    make_usual(&z);
    *zip_builder_at(&z, z.data_at[1]) ^= 1;
    cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_OK);
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
    cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_OK, "%s", err.message);
    cr_assert(a.no_crc);
    cr_assert_eq(zip_read_entry(&a, zip_find(&a, "data/0"), 100, &bytes, &nbytes, &err), FSDPCK_OK);
    budget_free(&b, bytes, nbytes);
    zip_release(&a);
    zip_builder_release(&z);
}

/* Deflated record of 100,000 bytes whose headers claim another size, or whose bytes are damaged. */
static fsdpck_status read_deflated(size_t claimed, bool damage, uint64_t limit, fsdpck_error *err,
                                   bool *right)
{
    enum { N = 100000 };
    char *text = malloc(N);
    zip_builder z;
    zip_archive a;
    budget b;
    uint8_t *bytes;
    uint64_t nbytes;

    for (size_t i = 0; i < N; i++)
        text[i] = (char)((i * i) >> 7);
    zip_builder_begin(&z);
    zip_builder_add_deflated(&z, "archive/data/0", text, N, claimed);
    zip_builder_end(&z);
    if (damage)
        memset(zip_builder_at(&z, z.data_at[0] + 20), 0xFF, 30);
    fsdpck_status st = open_made(&z, &a, &b, err);
    if (st == FSDPCK_OK) {
        cr_assert(a.any_deflated);
        st = zip_read_entry(&a, zip_find(&a, "data/0"), limit, &bytes, &nbytes, err);
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
    fsdpck_error err;
    bool right = false;

    cr_assert_eq(read_deflated(100000, false, 1 << 20, &err, &right), FSDPCK_OK, "%s", err.message);
    cr_assert(right);
    cr_assert_eq(read_deflated(99999, false, 1 << 20, &err, &right), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-SIZE");
    cr_assert_eq(read_deflated(100001, false, 1 << 20, &err, &right), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-SIZE");
    cr_assert_eq(read_deflated(100000, false, 1000, &err, &right), FSDPCK_LIMIT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-BOMB");
    cr_assert_eq(read_deflated(UINT32_MAX - 1, false, 1 << 20, &err, &right), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-SIZE");
    cr_assert_eq(read_deflated(100000, true, 1 << 20, &err, &right), FSDPCK_BADINPUT);
}

/* Over ZIP_EAGER_ENTRIES local headers are read when their entry is. */
Test(zip, large_directories_are_checked_on_use)
{
    enum { N = ZIP_EAGER_ENTRIES + 1 };
    zip_builder z;
    zip_archive a;
    budget b;
    fsdpck_error err;
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
    cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_leq(z.nreads, 2);
    cr_assert_not(zip_find(&a, "data/7")->checked);
    cr_assert_eq(zip_entry_check(&a, zip_find(&a, "data/7"), &err), FSDPCK_OK);
    zip_release(&a);

    *zip_builder_at(&z, at[1] + 30 + 13) = '8';
    cr_assert_eq(open_made(&z, &a, &b, &err), FSDPCK_OK);
    cr_assert_eq(zip_entry_check(&a, zip_find(&a, "data/6"), &err), FSDPCK_OK);
    cr_assert_eq(zip_entry_check(&a, zip_find(&a, "data/7"), &err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), "ZIP-LOCAL-NAME");
    cr_assert_eq(err.offset_bytes, at[1]);
    zip_release(&a);
    zip_builder_release(&z);
}
