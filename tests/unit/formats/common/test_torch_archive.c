#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "archive_case.h"
#include "base/bytes.h"
#include "formats/common/torch_archive.h"
#include "zip_builder.h"

static zip_builder z;
static opened o;

/* --- pickles by hand --- */

typedef struct claim {
    const char *function; /* of torch._utils */
    const char *class;    /* "torch\nFloatStorage" */
    const char *key;
    const char *location;
    int64_t nelems;
    int64_t offset;
    int64_t sizes[2];
    int64_t strides[2];
    const char *tail; /* opcodes after the hooks, such as a dtype */
} claim;

static const claim usual = {.function = "_rebuild_tensor_v2",
                            .class = "torch\nFloatStorage",
                            .key = "0",
                            .location = "cpu",
                            .nelems = 6,
                            .sizes = {2, 3},
                            .strides = {3, 1},
                            .tail = ""};

static void put_text(text_buf *b, const char *text)
{
    uint8_t n[5] = {'X'};

    store_le32(n + 1, (uint32_t)strlen(text));
    text_append(b, n, 5);
    text_puts(b, text);
}

static void put_int(text_buf *b, int64_t i)
{
    uint8_t n[10] = {0x8A, 8};

    store_le64(n + 2, (uint64_t)i);
    text_append(b, n, 10);
}

static void put_tensor(text_buf *b, const claim *c)
{
    text_printf(b, "ctorch._utils\n%s\n((", c->function);
    put_text(b, "storage");
    text_printf(b, "c%s\n", c->class);
    put_text(b, c->key);
    put_text(b, c->location);
    put_int(b, c->nelems);
    text_puts(b, "tQ");
    put_int(b, c->offset);
    put_int(b, c->sizes[0]);
    put_int(b, c->sizes[1]);
    text_puts(b, "\x86");
    put_int(b, c->strides[0]);
    put_int(b, c->strides[1]);
    text_puts(b, "\x86\x89"
                 "ccollections\nOrderedDict\n)R");
    text_puts(b, c->tail);
    text_puts(b, "tR");
}

/* An archive of one pickle and one storage of 24 bytes; records that are NULL are left out. */
static void make_archive(const text_buf *pickle, const char *byteorder, const char *version)
{
    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/data.pkl", pickle->text, pickle->nbytes);
    if (byteorder != NULL)
        zip_builder_add(&z, "archive/byteorder", byteorder, strlen(byteorder));
    zip_builder_add(&z, "archive/data/0", "aaaabbbbccccddddeeeeffff", 24);
    if (version != NULL)
        zip_builder_add(&z, "archive/version", version, strlen(version));
    zip_builder_end(&z);
}

static void make_tensor_of(const claim *c, const char *byteorder, const char *version)
{
    text_buf pickle = {0};
    text_append(&pickle, "\x80\2", 2);
    put_tensor(&pickle, c);
    text_puts(&pickle, ".");
    make_archive(&pickle, byteorder, version);
    text_release(&pickle);
}

static void make_tensor(const claim *c)
{
    make_tensor_of(c, "little", "3\n");
}

/* --- what both ways must say --- */

typedef struct located {
    fsdpck_status st;
    dtype d;
    unsigned ndim;
    uint64_t sizes[NDIM_MAX];
    place where;
    fsdpck_error err;
} located;

static located locate(void)
{
    located l = {0};
    const zip_input in = zip_builder_input(&z);

    fsdpck_error_init(&l.err);
    l.st = torch_blob_locate(&in, &l.d, &l.ndim, l.sizes, &l.where, &l.err);
    return l;
}

static located locate_head(void)
{
    located l = {0};
    size_t need;

    fsdpck_error_init(&l.err);
    l.st = torch_blob_locate_head((const uint8_t *)z.bytes.text, z.bytes.nbytes, &l.d, &l.ndim,
                                  l.sizes, &l.where, &need, &l.err);
    return l;
}

static void expect_finding(fsdpck_status status, const char *finding, const char *row)
{
    fsdpck_status st = open_made(&o, &z, false);

    cr_expect_eq(st, status, "%s: %d %s %s", row, st, fsdpck_finding_name(o.err.finding),
                 o.err.message);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), finding, "%s: %s", row, o.err.message);
    close_made(&o);
    const located l = locate();
    cr_expect_eq(l.st, status, "%s: blob: %d %s", row, l.st, fsdpck_finding_name(l.err.finding));
    cr_expect_str_eq(fsdpck_finding_name(l.err.finding), finding, "%s: blob", row);
    zip_builder_release(&z);
}

static void expect_claim(const claim *c, fsdpck_status status, const char *finding, const char *row)
{
    make_tensor(c);
    expect_finding(status, finding, row);
}

Test(torch_archive, one_tensor)
{
    place where;

    make_tensor(&usual);
    cr_assert_eq(open_made(&o, &z, false), FSDPCK_OK, "%s", o.err.message);
    cr_assert_eq(value_kind_of(o.a.root), VALUE_TENSOR);
    const torch_tensor *t = VEC_AT(&o.a.tensors, const torch_tensor, value_tensor_index(o.a.root));
    cr_assert_eq(t->dtype, DTYPE_FLOAT32);
    cr_assert_eq(torch_tensor_sizes(&o.a, t)[1], 3);
    cr_assert_eq(torch_tensor_locate(&o.a, t, &where, &o.err), FSDPCK_OK);
    cr_assert_eq(where.offset_bytes, z.data_at[2]);
    cr_assert(where.rows && where.has_crc && !where.swap && !where.stream);

    const located l = locate();
    cr_assert_eq(l.st, FSDPCK_OK);
    cr_assert_eq(z.nreads, 1);
    cr_assert_eq(l.where.offset_bytes, where.offset_bytes);
    cr_assert_eq(l.where.crc32, where.crc32);
    const located h = locate_head();
    cr_assert_eq(h.st, FSDPCK_OK, "%s", h.err.message);
    cr_assert_eq(h.where.offset_bytes, where.offset_bytes);
    cr_assert(h.where.stream);
    cr_assert_eq(h.ndim, 2);
    close_made(&o);
    zip_builder_release(&z);
}

Test(torch_archive, views)
{
    claim c = usual;

    c.offset = 1;
    c.sizes[0] = 2, c.sizes[1] = 2;
    c.strides[0] = 1, c.strides[1] = 2;
    make_tensor(&c);
    const located l = locate();
    cr_assert_eq(l.st, FSDPCK_OK, "%s", l.err.message);
    cr_assert_not(l.where.rows);
    cr_assert_eq(l.where.offset_bytes, z.data_at[2] + 4);
    cr_assert_eq(l.where.strides[1], 2);
    zip_builder_release(&z);

    c = usual;
    c.class = "torch.storage\nUntypedStorage";
    c.function = "_rebuild_tensor_v3";
    c.nelems = 24;
    c.sizes[0] = 4, c.sizes[1] = 3;
    c.tail = "ctorch\nuint16\n";
    make_tensor(&c);
    const located v3 = locate();
    cr_assert_eq(v3.st, FSDPCK_OK, "%s", v3.err.message);
    cr_assert_eq(v3.d, DTYPE_UINT16);
    zip_builder_release(&z);
}

Test(torch_archive, bounds)
{
    claim c = usual;

    c.offset = 1;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "last element past the storage");
    c.offset = -1;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "negative offset");
    c.offset = INT64_MAX;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "offset of 2^63");
    c = usual;
    c.sizes[0] = -2;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "negative size");
    c = usual;
    c.strides[0] = -3;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "negative stride");
    c = usual;
    c.sizes[0] = INT64_MAX, c.sizes[1] = INT64_MAX;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "product overflows");
    c = usual;
    c.strides[0] = INT64_MAX;
    expect_claim(&c, FSDPCK_BADINPUT, "TENSOR-BOUNDS", "stride past the storage");
    c = usual;
    c.sizes[0] = (int64_t)1 << 20, c.sizes[1] = (int64_t)1 << 20;
    c.strides[0] = 0, c.strides[1] = 0;
    expect_claim(&c, FSDPCK_LIMIT, "PT-EXPAND", "2^40 elements of one");
    c = usual;
    c.nelems = 5;
    c.sizes[0] = 1;
    expect_claim(&c, FSDPCK_BADINPUT, "PT-STORAGE-SIZE", "storage shorter than its record");
    c.nelems = 7;
    expect_claim(&c, FSDPCK_BADINPUT, "PT-STORAGE-SIZE", "storage longer than its record");
    c.nelems = INT64_MAX;
    expect_claim(&c, FSDPCK_BADINPUT, "PT-STORAGE-SIZE", "storage of 2^63 elements");
}

Test(torch_archive, storages)
{
    claim c = usual;

    c.key = "1";
    expect_claim(&c, FSDPCK_BADINPUT, "PT-PERSID", "no such record");
    c.key = "../version";
    expect_claim(&c, FSDPCK_BADINPUT, "PT-PERSID", "key with folders");
    c.key = "..";
    expect_claim(&c, FSDPCK_BADINPUT, "PT-PERSID", "key that is a folder");
    c = usual;
    c.class = "torch\nQInt8Storage";
    c.nelems = 24;
    expect_claim(&c, FSDPCK_UNSUPPORTED, "PT-TENSOR-KIND", "quantized storage");
    c = usual;
    c.function = "_rebuild_qtensor";
    expect_claim(&c, FSDPCK_UNSUPPORTED, "PT-TENSOR-KIND", "quantized tensor");
    c = usual;
    c.function = "_rebuild_tensor_v9";
    expect_claim(&c, FSDPCK_BADINPUT, "PKL-CALL", "unknown rebuild function");
}

Test(torch_archive, sparse_tensors_are_to_be_made_dense)
{
    claim c = usual;

    c.function = "_rebuild_sparse_tensor";
    make_tensor(&c);
    cr_assert_eq(open_made(&o, &z, false), FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(fsdpck_finding_name(o.err.finding), "PT-TENSOR-KIND");
    cr_assert_not_null(strstr(o.err.next, "to_dense()"), "%s", o.err.next);
    close_made(&o);
    zip_builder_release(&z);
}

Test(torch_archive, meta_tensors_have_no_place)
{
    claim c = usual;
    place where;

    c.location = "meta";
    make_tensor(&c);
    cr_assert_eq(open_made(&o, &z, false), FSDPCK_OK);
    const torch_tensor *t = VEC_AT(&o.a.tensors, const torch_tensor, 0);
    cr_assert(t->meta);
    cr_assert_eq(torch_tensor_locate(&o.a, t, &where, &o.err), FSDPCK_UNSUPPORTED);
    const located l = locate(), h = locate_head();
    cr_assert_eq(l.st, FSDPCK_UNSUPPORTED);
    cr_assert_eq(h.st, FSDPCK_UNSUPPORTED);
    close_made(&o);
    zip_builder_release(&z);
}

static void expect_opened(const char *opcodes, size_t nbytes, bool opaque, fsdpck_status status,
                          const char *finding)
{
    text_buf pickle = {0};

    text_append(&pickle, opcodes, nbytes);
    make_archive(&pickle, NULL, "3\n");
    const fsdpck_status st = open_made(&o, &z, opaque);
    cr_expect_eq(st, status, "%s: %d %s", opcodes + 2, st, o.err.message);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), finding, "%s: %s", opcodes + 2,
                     o.err.message);
    cr_expect(status == FSDPCK_OK || o.err.has_offset);
    close_made(&o);
    zip_builder_release(&z);
    text_release(&pickle);
}

static void expect_pickle(const char *opcodes, size_t nbytes, fsdpck_status status,
                          const char *finding)
{
    expect_opened(opcodes, nbytes, false, status, finding);
}

static void expect_kept(const char *opcodes, size_t nbytes, fsdpck_status status,
                        const char *finding)
{
    expect_opened(opcodes, nbytes, true, status, finding);
}

#define PICKLE(text) "\x80\2" text ".", sizeof("\x80\2" text ".") - 1

/* Whoever asks for opaque calls gets those that run nothing. */
Test(torch_archive, calls_that_run_code_are_not_kept)
{
    expect_kept(PICKLE("cmine\nmake\n)R"), FSDPCK_OK, "");
    expect_kept(PICKLE("cos\nsystem\nX\2\0\0\0ls\x85R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_kept(PICKLE("csubprocess\nPopen\nX\2\0\0\0ls\x85\x81"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_kept(PICKLE("c__builtin__\ngetattr\ncos\npath\nX\6\0\0\0system\x86R"), FSDPCK_BADINPUT,
                "PKL-GETATTR");
}

Test(torch_archive, calls)
{
    expect_pickle(PICKLE("cos\nsystem\nX\2\0\0\0ls\x85R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("cposix\nsystem\nX\2\0\0\0ls\x85R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("c__builtin__\neval\nX\2\0\0\0ls\x85R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("csubprocess\nPopen\nX\2\0\0\0ls\x85R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("csubprocess\nPopen\nX\2\0\0\0ls\x85\x81"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("cpip._internal\nmain\n)R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("ctorch\nload\nX\2\0\0\0ls\x85R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("ctorch.hub\nload\n)R"), FSDPCK_BADINPUT, "PKL-GLOBAL");
    expect_pickle(PICKLE("cmine\nmake\n)R"), FSDPCK_BADINPUT, "PKL-CALL");
    expect_pickle(PICKLE("ccollections\nOrderedDict \n)R"), FSDPCK_BADINPUT, "PKL-CALL");
    expect_pickle(PICKLE("ccollections\nordereddict\n)R"), FSDPCK_BADINPUT, "PKL-CALL");
    expect_pickle(PICKLE("c__builtin__\ngetattr\ncos\npath\nX\6\0\0\0system\x86R"), FSDPCK_BADINPUT,
                  "PKL-GETATTR");
    expect_pickle(PICKLE("c__builtin__\ngetattr\nK\1X\6\0\0\0system\x86R"), FSDPCK_BADINPUT,
                  "PKL-GETATTR");
    /* An enum member, as Python 3.11 and as others write it; an object of any class. */
    expect_pickle(PICKLE("c__builtin__\ngetattr\ncmine\nColor\nX\3\0\0\0RED\x86R"), FSDPCK_OK, "");
    expect_pickle(PICKLE("cmine\nColor\nX\3\0\0\0red\x85R"), FSDPCK_OK, "");
    expect_pickle(PICKLE("cmine\nThing\n)\x81}X\1\0\0\0aK\1sb"), FSDPCK_OK, "");
    expect_pickle(PICKLE("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                         "0X\3\0\0\0cpuK\6tQ"),
                  FSDPCK_UNSUPPORTED, "PT-TENSOR-KIND");
    expect_pickle(PICKLE("X\7\0\0\0storageQ"), FSDPCK_BADINPUT, "PT-PERSID");
    expect_pickle(PICKLE("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                         "0X\3\0\0\0cpuK\6tQ0"
                         "(X\7\0\0\0storagectorch\nHalfStorage\nX\1\0\0\0"
                         "0X\3\0\0\0cpuK\6tQ"),
                  FSDPCK_BADINPUT, "PT-PERSID");
    expect_pickle("\x80\2N.N.", 6, FSDPCK_BADINPUT, "PKL-TRAILING");
    expect_pickle("\x80\2N", 3, FSDPCK_BADINPUT, "PKL-TRUNCATED");
}

Test(torch_archive, opaque_calls_are_kept)
{
    text_buf pickle = {0};
    claim c = usual;

    text_append(&pickle, "\x80\2cmine\nmake\n(", 14);
    c.function = "_rebuild_qtensor";
    put_tensor(&pickle, &c);
    text_puts(&pickle, "tR.");
    make_archive(&pickle, NULL, "3\n");
    cr_assert_eq(open_made(&o, &z, true), FSDPCK_OK, "%s", o.err.message);
    const value_call *call = value_call_of(&o.pool, o.a.root);
    cr_assert_not_null(call);
    cr_assert(value_is_symbol(&o.pool, call->callee, "mine", "make"));
    cr_assert_eq(value_kind_of(value_item(&o.pool, call->args, 0)), VALUE_CALL);
    close_made(&o);
    zip_builder_release(&z);
    text_release(&pickle);
}

static void expect_records(const char *byteorder, const char *version, fsdpck_status status,
                           const char *finding)
{
    make_tensor_of(&usual, byteorder, version);
    expect_finding(status, finding, byteorder == NULL ? "no byteorder" : byteorder);
}

Test(torch_archive, marks)
{
    char large[1001];

    memset(large, 'x', 1000);
    large[1000] = '\0';
    expect_records(NULL, "3\n", FSDPCK_OK, "");
    expect_records("little", "3", FSDPCK_OK, "");
    expect_records("middle", "3\n", FSDPCK_BADINPUT, "PT-BYTEORDER");
    expect_records("", "3\n", FSDPCK_BADINPUT, "PT-BYTEORDER");
    expect_records(large, "3\n", FSDPCK_BADINPUT, "PT-BYTEORDER");
    expect_records("little", NULL, FSDPCK_BADINPUT, "PT-VERSION");
    expect_records("little", "", FSDPCK_BADINPUT, "PT-VERSION");
    expect_records("little", "99", FSDPCK_BADINPUT, "PT-VERSION");
    expect_records("little", large, FSDPCK_BADINPUT, "PT-VERSION");
}

Test(torch_archive, big_endian)
{
    make_tensor_of(&usual, "big", "3\n");
    const located l = locate(), h = locate_head();
    cr_assert_eq(l.st, FSDPCK_OK);
    cr_assert(l.where.swap);
    cr_assert_eq(h.st, FSDPCK_OK);
    cr_assert(h.where.swap);
    zip_builder_release(&z);
}

Test(torch_archive, other_containers)
{
    static const struct {
        const char *bytes;
        size_t nbytes;
        fsdpck_status status;
        const char *finding, *words;
    } rows[] = {
        {"", 0, FSDPCK_BADINPUT, "ZIP-EMPTY", "empty"},
        {"7z\xBC\xAF\x27\x1C------------------------------", 36, FSDPCK_BADINPUT, "PT-CONTAINER",
         "7z"},
        {"\x1F\x8B----------------------------------", 36, FSDPCK_BADINPUT, "PT-CONTAINER", "gzip"},
        {"\x89HDF\r\n\x1A\n----------------------------", 36, FSDPCK_BADINPUT, "PT-CONTAINER",
         "HDF5"},
        {"\20\0\0\0\0\0\0\0{\"a\":{}}---------------------", 36, FSDPCK_BADINPUT, "PT-CONTAINER",
         "safetensors"},
        {"\x80\4}.--------------------------------", 36, FSDPCK_BADINPUT, "PT-CONTAINER",
         "bare pickle"},
        {"x", 1, FSDPCK_BADINPUT, "PT-CONTAINER", "not a file that torch.save wrote"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        zip_builder_begin(&z);
        text_append(&z.bytes, rows[i].bytes, rows[i].nbytes);
        cr_expect_eq(open_made(&o, &z, false), rows[i].status);
        cr_expect_str_eq(fsdpck_finding_name(o.err.finding), rows[i].finding, "row %zu", i);
        cr_expect_not_null(strstr(o.err.message, rows[i].words), "%s", o.err.message);
        close_made(&o);
        zip_builder_release(&z);
    }
    /* torch.save that raised leaves only this. */
    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/byteorder", "little", 6);
    zip_builder_add(&z, "archive/version", "3\n", 2);
    zip_builder_end(&z);
    cr_expect_eq(open_made(&o, &z, false), FSDPCK_BADINPUT);
    cr_expect_not_null(strstr(o.err.message, "interrupted"));
    close_made(&o);
    zip_builder_release(&z);
    zip_builder_begin(&z);
    zip_builder_add(&z, "archive/DATA.PKL", "\x80\2N.", 4);
    zip_builder_add(&z, "archive/version", "3\n", 2);
    zip_builder_end(&z);
    cr_expect_eq(open_made(&o, &z, false), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "ZIP-CASE");
    close_made(&o);
    zip_builder_release(&z);
}

/* A head that is too short says how much more it needs, and never reads past its end. */
Test(torch_archive, heads_of_every_length)
{
    located l = {0};
    size_t need;

    make_tensor(&usual);
    for (size_t n = 0; n < z.bytes.nbytes; n++) {
        uint8_t *head = malloc(n + (n == 0));
        memcpy(head, z.bytes.text, n);
        l.st = torch_blob_locate_head(head, n, &l.d, &l.ndim, l.sizes, &l.where, &need, &l.err);
        if (n < z.data_at[2])
            cr_assert(l.st == FSDPCK_LIMIT && need > n, "%zu: %d %s", n, l.st, l.err.message);
        else
            cr_assert_eq(l.st, FSDPCK_OK, "%zu: %d %s", n, l.st, l.err.message);
        free(head);
    }
    zip_builder_release(&z);
}

/* Whatever byte is changed: what the fast way accepts, the long way accepts with the same
 * result. */
Test(torch_archive, fast_and_long_way_agree_on_every_changed_byte)
{
    make_tensor(&usual);
    for (size_t i = 0; i < z.bytes.nbytes; i++) {
        const uint8_t was = *zip_builder_at(&z, i);
        *zip_builder_at(&z, i) = (uint8_t)(was ^ (i % 2 == 0 ? 1 : 0x80));
        const located l = locate();
        const fsdpck_status st = open_made(&o, &z, false);
        cr_assert(l.st == st || st == FSDPCK_OK, "byte %zu: %d, %d", i, l.st, st);
        if (l.st == FSDPCK_OK) {
            place where;
            const torch_tensor *t = VEC_AT(&o.a.tensors, const torch_tensor, 0);
            cr_assert_eq(torch_tensor_locate(&o.a, t, &where, NULL), FSDPCK_OK);
            cr_assert_eq(where.offset_bytes, l.where.offset_bytes);
            cr_assert_eq(where.crc32, l.where.crc32);
        }
        close_made(&o);
        *zip_builder_at(&z, i) = was;
    }
    zip_builder_release(&z);
}
