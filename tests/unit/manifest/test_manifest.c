#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "manifest/manifest.h"

static const char head[] =
    "{\"schema\":\"fsdpck-manifest\",\"version\":1,\"checksum\":\"crc64-xz\",";
/* Of an empty list. */
static const char empty[] = "\"digest\":\"0000000000000000\",\"files\":[],\"tensors\":[]}";

static fsdpck_status read_text(const char *text, fsdpck_error *err)
{
    manifest m;
    fsdpck_error_init(err);
    manifest_init(&m, NULL);
    const fsdpck_status st = manifest_read(&m, text, strlen(text), err);
    manifest_release(&m);
    return st;
}

static void expect(fsdpck_status want, const char *finding, const char *format, const char *middle)
{
    char text[2000];
    fsdpck_error err;
    snprintf(text, sizeof text, format, middle);
    const fsdpck_status st = read_text(text, &err);
    cr_assert_eq(st, want, "%s: status %d, %s", text, st, err.message);
    cr_assert_str_eq(fsdpck_finding_name(err.finding), finding, "%s: %s", text, err.message);
}

static void fill(manifest *m)
{
    const uint64_t shape[] = {2, 3};
    manifest_file *f;
    manifest_init(m, NULL);
    cr_assert_eq(manifest_add_file(m, "sub/b.pt", 8, UINT64_MAX, &f, NULL), FSDPCK_OK);
    f->crc64 = 1;
    cr_assert_eq(manifest_add_file(m, "a \"q\".pt", 8, 0, &f, NULL), FSDPCK_OK);
    f->has_sha256 = true;
    memset(f->sha256, 0xAB, sizeof f->sha256);
    cr_assert_eq(
        manifest_add_tensor(m, "w", 1, DTYPE_BFLOAT16, 2, shape, 0xFEDCBA9876543210u, NULL),
        FSDPCK_OK);
    cr_assert_eq(manifest_add_tensor(m, "", 0, DTYPE_INT64, 0, NULL, 0, NULL), FSDPCK_OK);
    cr_assert_eq(manifest_add_tensor(m, "n\0u\xFFl", 5, DTYPE_INT64, 0, NULL, 5, NULL), FSDPCK_OK);
}

Test(manifest, what_is_written_is_read)
{
    manifest m, back;
    text_buf text = {0}, again = {0};
    fsdpck_error err;
    fill(&m);
    cr_assert_eq(manifest_write(&m, &text, NULL), FSDPCK_OK);
    cr_assert(manifest_is_likely(text.text, text.nbytes));
    manifest_init(&back, NULL);
    cr_assert_eq(manifest_read(&back, text.text, text.nbytes, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(manifest_write(&back, &again, NULL), FSDPCK_OK);
    cr_assert_str_eq(text.text, again.text);
    cr_assert_eq(back.files.count, 2);
    const size_t a = manifest_find_file(&back, "a \"q\".pt", 8);
    const size_t b = manifest_find_file(&back, "sub/b.pt", 8);
    cr_assert(a == 0 && b == 1);
    cr_assert_eq(VEC_AT(&back.files, manifest_file, b)->nbytes, UINT64_MAX);
    cr_assert_eq(VEC_AT(&back.files, manifest_file, a)->sha256[31], 0xAB);
    cr_assert_not(VEC_AT(&back.files, manifest_file, b)->has_sha256);
    const size_t w = manifest_find_tensor(&back, "w", 1);
    const manifest_tensor *t = VEC_AT(&back.tensors, manifest_tensor, w);
    cr_assert_eq(t->digest, 0xFEDCBA9876543210u);
    cr_assert(t->ndim == 2 && manifest_shape(&back, t)[1] == 3);
    cr_assert_neq(manifest_find_tensor(&back, "n\0u\xFFl", 5), SIZE_MAX);
    cr_assert_eq(manifest_find_tensor(&back, "n", 1), SIZE_MAX);
    text_release(&text);
    text_release(&again);
    manifest_release(&m);
    manifest_release(&back);
}

Test(manifest, digest_of_the_list)
{
    static const char lines[] = "0000000000000007  float32[]  a\n0000000000000009  float32[4]  b\n";
    const uint64_t shape[] = {4};
    manifest m;
    uint64_t sum;
    manifest_init(&m, NULL);
    cr_assert_eq(manifest_add_tensor(&m, "b", 1, DTYPE_FLOAT32, 1, shape, 9, NULL), FSDPCK_OK);
    cr_assert_eq(manifest_add_tensor(&m, "a", 1, DTYPE_FLOAT32, 0, NULL, 7, NULL), FSDPCK_OK);
    cr_assert_eq(manifest_digest(&m, &sum, NULL), FSDPCK_OK);
    cr_assert_eq(sum, crc64_update(0, lines, sizeof lines - 1));
    manifest_release(&m);
}

Test(manifest, heads)
{
    char text[400];
    snprintf(text, sizeof text, "%s%s", head, empty);
    expect(FSDPCK_OK, "", "%s", text);
    snprintf(text, sizeof text, "%s\"later\":{\"x\":[1]},%s\r\n", head, empty);
    expect(FSDPCK_OK, "", "%s", text);
    const char *const form = "{\"schema\":\"fsdpck-manifest\",%s\"files\":[],\"tensors\":[],"
                             "\"digest\":\"0000000000000000\"}";
    expect(FSDPCK_BADINPUT, "MAN-VERSION", form, "\"checksum\":\"crc64-xz\",");
    expect(FSDPCK_BADINPUT, "MAN-VERSION", form, "\"version\":0,\"checksum\":\"crc64-xz\",");
    expect(FSDPCK_BADINPUT, "MAN-VERSION", form, "\"version\":1.0,\"checksum\":\"crc64-xz\",");
    expect(FSDPCK_UNSUPPORTED, "MAN-VERSION", form, "\"version\":2,\"checksum\":\"crc64-xz\",");
    expect(FSDPCK_UNSUPPORTED, "MAN-VERSION", form, "\"version\":2,");
    expect(FSDPCK_UNSUPPORTED, "MAN-ALG", form, "\"version\":1,\"checksum\":\"md5\",");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form, "\"version\":1,");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form, "\"version\":1,\"version\":1,");
    expect(FSDPCK_BADINPUT, "MAN-JSON", "{\"version\":1,\"checksum\":\"crc64-xz\",%s", empty);
    expect(FSDPCK_BADINPUT, "MAN-JSON", "%s", "");
    expect(FSDPCK_BADINPUT, "MAN-JSON", "%s", "[]");
    snprintf(text, sizeof text, "%s%s{}", head, empty);
    expect(FSDPCK_BADINPUT, "MAN-JSON", "%s", text);
    snprintf(text, sizeof text, "%s\"digest\":\"0000000000000000\",\"files\":[]}", head);
    expect(FSDPCK_BADINPUT, "MAN-JSON", "%s", text);
    snprintf(text, sizeof text, "%s\"digest\":\"0000000000000001\",\"files\":[],\"tensors\":[]}",
             head);
    expect(FSDPCK_BADINPUT, "MAN-HASH", "%s", text);
}

Test(manifest, files)
{
    const char *const form =
        "{\"schema\":\"fsdpck-manifest\",\"version\":1,\"checksum\":\"crc64-xz\","
        "\"digest\":\"0000000000000000\",\"tensors\":[],\"files\":[%s]}";
    expect(FSDPCK_OK, "", form, "{\"name\":\"a\",\"nbytes\":1,\"crc64\":\"00000000000000fF\"}");
    expect(FSDPCK_OK, "", form,
           "{\"name\":\"a\",\"nbytes\":1,\"blake3\":\"x\",\"crc64\":\"00000000000000fF\"}");
    static const char *const paths[] = {"../a", "/a", "", "a/../b", "a//b", "a/..", "a\\u0000b"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char entry[200];
        snprintf(entry, sizeof entry,
                 "{\"name\":\"%s\",\"nbytes\":1,\"crc64\":\"00000000000000ff\"}", paths[i]);
        expect(FSDPCK_BADINPUT, "MAN-PATH", form, entry);
    }
    expect(FSDPCK_BADINPUT, "MAN-DUP", form,
           "{\"name\":\"a\",\"nbytes\":1,\"crc64\":\"00000000000000ff\"},"
           "{\"name\":\"\\u0061\",\"nbytes\":2,\"crc64\":\"00000000000000ff\"}");
    expect(FSDPCK_BADINPUT, "MAN-ALG", form, "{\"name\":\"a\",\"nbytes\":1,\"crc64\":\"ff\"}");
    expect(FSDPCK_BADINPUT, "MAN-ALG", form,
           "{\"name\":\"a\",\"nbytes\":1,\"crc64\":\"000000000000000g\"}");
    expect(FSDPCK_BADINPUT, "MAN-ALG", form,
           "{\"name\":\"a\",\"nbytes\":1,\"crc64\":\"0000000000000000\",\"sha256\":\"00\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form, "{\"name\":\"a\",\"nbytes\":1}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form,
           "{\"name\":\"a\",\"nbytes\":-1,\"crc64\":\"0000000000000000\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form,
           "{\"name\":\"a\",\"nbytes\":18446744073709551616,\"crc64\":\"0000000000000000\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form,
           "{\"name\":\"a\",\"name\":\"b\",\"nbytes\":1,\"crc64\":\"0000000000000000\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form, "7");
}

Test(manifest, tensors)
{
    const char *const form =
        "{\"schema\":\"fsdpck-manifest\",\"version\":1,\"checksum\":\"crc64-xz\","
        "\"digest\":\"0000000000000000\",\"files\":[],\"tensors\":[%s]}";
    /* Read as far as the digest of the list. */
    expect(FSDPCK_BADINPUT, "MAN-HASH", form,
           "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[],\"digest\":\"0000000000000000\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form,
           "{\"name\":\"a\",\"dtype\":\"float33\",\"shape\":[],\"digest\":\"0000000000000000\"}");
    expect(
        FSDPCK_BADINPUT, "MAN-JSON", form,
        "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[1.5],\"digest\":\"0000000000000000\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form,
           "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[]}");
    expect(FSDPCK_BADINPUT, "MAN-ALG", form,
           "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[],\"digest\":\"0\"}");
    expect(FSDPCK_BADINPUT, "MAN-DUP", form,
           "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[],\"digest\":\"0000000000000000\"},"
           "{\"name\":\"a\",\"dtype\":\"float16\",\"shape\":[],\"digest\":\"0000000000000000\"}");
    char entry[600] = "{\"name\":\"a\",\"dtype\":\"float32\",\"shape\":[1";
    for (unsigned i = 0; i < 64; i++)
        strcat(entry, ",1");
    strcat(entry, "],\"digest\":\"0000000000000000\"}");
    expect(FSDPCK_BADINPUT, "MAN-JSON", form, entry);
}
