#include <criterion/criterion.h>
#include <string.h>

#include "archive_case.h"
#include "formats/common/torch_archive.h"
#include "zip_builder.h"

#define MAGIC    "\x80\2\x8A\x0Al\xFC\x9C\x46\xF9\x20j\xA8P\x19."
#define PROTOCOL "\x80\2M\xE9\3."

/* A file of two storages, '70' of 6 and '8' of 2 floats, and an object given by its opcodes. */
static void make_stream(zip_builder *z, bool little_endian, const char *object,
                        size_t object_nbytes)
{
    uint8_t count[8] = {6};

    zip_builder_begin(z);
    text_append(&z->bytes, MAGIC, sizeof(MAGIC) - 1);
    text_append(&z->bytes, PROTOCOL, sizeof(PROTOCOL) - 1);
    text_append(&z->bytes, "\x80\2}X\15\0\0\0little_endian", 21);
    text_append(&z->bytes, little_endian ? "\x88s." : "\x89s.", 3);
    text_append(&z->bytes, object, object_nbytes);
    text_append(&z->bytes, "\x80\2](X\2\0\0\00070X\1\0\0\0008e.", 19);
    text_append(&z->bytes, count, 8);
    text_append(&z->bytes, "aaaabbbbccccddddeeeeffff", 24);
    count[0] = 2;
    text_append(&z->bytes, count, 8);
    text_append(&z->bytes, "gggghhhh", 8);
}

#define STORAGE(key_nbytes, key, nelems, view) \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX" key_nbytes key "X\3\0\0\0cpuK" nelems view "tQ"
#define REBUILD(storage, offset, size)                                                   \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "K" offset "K" size "\x85K\1\x85\x89" \
    "ccollections\nOrderedDict\n)RtR"

/* [3 elements from 1 on of a view of '70' that begins at 2, all of '8', a saved module's class] */
static const char usual[] =
    "\x80\2](" REBUILD(STORAGE("\2\0\0\0", "70", "\6", "X\1\0\0\0vK\2K\4\x87"), "\1", "\3")
        REBUILD(STORAGE("\1\0\0\0", "8", "\2", "N"), "\0",
                "\2") "(X\6\0\0\0modulecmine\nModule\nX\4\0\0\0fileX\4\0\0\0texttQe.";

static void expect_bad(zip_builder *z, fsdpck_status status, const char *finding)
{
    opened o;

    cr_expect_eq(open_made(&o, z, false), status, "%s", o.err.message);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), finding, "%s", o.err.message);
    close_made(&o);
    zip_builder_release(z);
}

Test(torch_legacy, views_of_storages)
{
    zip_builder z;
    opened o;
    place first, second;

    make_stream(&z, true, usual, sizeof(usual) - 1);
    const size_t end = z.bytes.nbytes;
    cr_assert_eq(open_made(&o, &z, false), FSDPCK_OK, "%s %s", fsdpck_finding_name(o.err.finding),
                 o.err.message);
    cr_assert(o.a.is_legacy);
    cr_assert_eq(o.a.tensors.count, 2);
    const torch_tensor *t = VEC_AT(&o.a.tensors, const torch_tensor, 0);
    cr_assert_eq(torch_tensor_locate(&o.a, t, &first, &o.err), FSDPCK_OK);
    cr_assert_eq(torch_tensor_locate(&o.a, t + 1, &second, &o.err), FSDPCK_OK);
    cr_expect_eq(memcmp(z.bytes.text + first.offset_bytes, "ddddeeeeffff", 12), 0);
    cr_expect_eq(second.offset_bytes, end - 8);
    cr_expect(value_is_symbol(&o.pool, value_item(&o.pool, o.a.root, 2), "mine", "Module"));
    close_made(&o);
    zip_builder_release(&z);
}

Test(torch_legacy, truncation_at_every_byte)
{
    zip_builder z;
    opened o;

    make_stream(&z, true, usual, sizeof(usual) - 1);
    const size_t whole = z.bytes.nbytes;
    for (size_t n = 0; n < whole; n++) {
        z.bytes.nbytes = n;
        cr_assert_eq(open_made(&o, &z, false), FSDPCK_BADINPUT, "cut at %zu", n);
        cr_assert_neq(fsdpck_finding_name(o.err.finding)[0], '\0', "cut at %zu", n);
        close_made(&o);
    }
    zip_builder_release(&z);
}

Test(torch_legacy, what_does_not_fit)
{
    static const char past_view[] =
        "\x80\2" REBUILD(STORAGE("\2\0\0\0", "70", "\6", "X\1\0\0\0vK\3K\4\x87"), "\0", "\1") ".";
    static const char past_storage[] = "\x80\2](" REBUILD(
        STORAGE("\2\0\0\0", "70", "\6", "X\1\0\0\0vK\2K\4\x87"), "\2", "\3") "e.";
    static const char one_only[] =
        "\x80\2" REBUILD(STORAGE("\2\0\0\0", "70", "\6", "N"), "\0", "\1") ".";
    zip_builder z;

    make_stream(&z, false, usual, sizeof(usual) - 1);
    expect_bad(&z, FSDPCK_UNSUPPORTED, "PT-BYTEORDER");
    make_stream(&z, true, past_view, sizeof(past_view) - 1);
    expect_bad(&z, FSDPCK_BADINPUT, "PT-PERSID");
    make_stream(&z, true, past_storage, sizeof(past_storage) - 1);
    expect_bad(&z, FSDPCK_BADINPUT, "TENSOR-BOUNDS");
    make_stream(&z, true, one_only, sizeof(one_only) - 1);
    expect_bad(&z, FSDPCK_BADINPUT, "PT-LEGACY");
    make_stream(&z, true, usual, sizeof(usual) - 1);
    text_puts(&z.bytes, "more");
    expect_bad(&z, FSDPCK_BADINPUT, "PT-LEGACY");
    make_stream(&z, true, usual, sizeof(usual) - 1);
    *zip_builder_at(&z, z.bytes.nbytes - 16) = 3;
    expect_bad(&z, FSDPCK_BADINPUT, "PT-STORAGE-SIZE");
}
