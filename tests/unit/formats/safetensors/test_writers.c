#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "formats/common/st_header.h"
#include "formats/safetensors/st.h"
#include "formats/safetensors/st_header_writer.h"
#include "st_checkpoint.h"
#include "tests/support/target_case.h"

TestSuite(writers, .init = setup, .fini = teardown);

static fsdpck_status lay_out(const format_writer *writer, uint64_t max_shard_nbytes)
{
    const writer_options opt = {.max_shard_nbytes = max_shard_nbytes};
    if (!t.cat.sealed)
        cr_assert_eq(catalogue_seal(&t.cat, &err), FSDPCK_OK, "%s", err.message);
    return writer->layout(&t, &opt, &err);
}

static const char *file_path(size_t i)
{
    return catalogue_name(&t.cat, catalogue_file(&t.cat, i)->path);
}

/* Text of the literal of a file; there is one a file. */
static const char *literal(size_t i, uint64_t *nbytes)
{
    const target_constant *lit = VEC_AT(&t.literals, const target_constant, i);
    cr_assert_eq(lit->file, i);
    cr_assert_eq(lit->offset_bytes, 0);
    *nbytes = lit->nbytes;
    return t.text.text + lit->text_at;
}

/* The same tensors, in another order, give the bytes that the safetensors library gave. */
Test(writers, bytes_of_the_official_library)
{
    st_checkpoint o = {0};
    cr_assert_eq(
        st_checkpoint_open(&o, &safetensors_reader, fixture("st-official/model.safetensors")),
        FSDPCK_OK);
    for (size_t i = catalogue_tensor_count(&o.cat); i-- > 0;) {
        const cat_tensor *ct = catalogue_tensor(&o.cat, i);
        add(catalogue_name(&o.cat, ct->name), (dtype)ct->dtype, ct->ndim,
            catalogue_shape(&o.cat, i));
    }
    cr_assert_eq(lay_out(&safetensors_writer, 0), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(catalogue_file_count(&t.cat), 1);
    cr_expect_str_eq(file_path(0), "");
    cr_expect_eq(catalogue_file(&t.cat, 0)->nbytes, o.probe.nbytes);
    uint64_t n;
    const char *head = literal(0, &n);
    char *official = calloc(1, n + 1);
    cr_assert_eq(o.src.read_at(o.src.ctx, 0, 0, official, n, &o.err), FSDPCK_OK);
    cr_expect_arr_eq(head, official, n, "\n%.*s\n%.*s", (int)n - 8, head + 8, (int)n - 8,
                     official + 8);
    free(official);
    for (size_t i = 0; i < catalogue_tensor_count(&o.cat); i++) {
        const cat_tensor *ct = catalogue_tensor(&o.cat, i);
        const char *name = catalogue_name(&o.cat, ct->name);
        const cat_tensor *mine =
            catalogue_tensor(&t.cat, catalogue_find(&t.cat, name, strlen(name)));
        const cat_chunk *a = catalogue_chunk(&o.cat, ct->first_chunk);
        const cat_chunk *b = catalogue_chunk(&t.cat, mine->first_chunk);
        cr_expect(a->offset_bytes == b->offset_bytes && a->nbytes == b->nbytes &&
                      a->place == b->place,
                  "%s", name);
    }
    st_checkpoint_close(&o);
}

static void expect_file_of(const char *name, const char *path)
{
    const cat_tensor *ct = catalogue_tensor(&t.cat, catalogue_find(&t.cat, name, strlen(name)));
    cr_expect_str_eq(file_path(catalogue_chunk(&t.cat, ct->first_chunk)->file), path, "%s", name);
}

/* huggingface_hub's rule: a tensor that is too large gets the next number at once, the open file
 * when it closes. */
Test(writers, hf_splits_as_the_hub_does)
{
    add_bytes("a", 40);
    add_bytes("b", 60);
    add_bytes("huge", 101);
    add_bytes("c", 0);
    add_bytes("d", 1);
    add_bytes("e", 99);
    cr_assert_eq(lay_out(&hf_writer, 100), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(catalogue_file_count(&t.cat), 4);
    cr_expect(t.is_folder);
    expect_file_of("huge", "model-00001-of-00003.safetensors");
    expect_file_of("a", "model-00002-of-00003.safetensors");
    expect_file_of("b", "model-00002-of-00003.safetensors");
    expect_file_of("c", "model-00002-of-00003.safetensors");
    expect_file_of("d", "model-00003-of-00003.safetensors");
    expect_file_of("e", "model-00003-of-00003.safetensors");
    uint64_t n;
    cr_expect_str_eq(file_path(3), "model.safetensors.index.json");
    const char *index = literal(3, &n);
    static const char want[] = "{\n"
                               "  \"metadata\": {\n"
                               "    \"total_size\": 301\n"
                               "  },\n"
                               "  \"weight_map\": {\n"
                               "    \"a\": \"model-00002-of-00003.safetensors\",\n"
                               "    \"b\": \"model-00002-of-00003.safetensors\",\n"
                               "    \"c\": \"model-00002-of-00003.safetensors\",\n"
                               "    \"d\": \"model-00003-of-00003.safetensors\",\n"
                               "    \"e\": \"model-00003-of-00003.safetensors\",\n"
                               "    \"huge\": \"model-00001-of-00003.safetensors\"\n"
                               "  }\n"
                               "}\n";
    cr_assert_eq(n, strlen(want));
    cr_expect_arr_eq(index, want, n, "%.*s", (int)n, index);
}

Test(writers, hf_in_one_file_has_no_index)
{
    add_bytes("a", 40);
    add_bytes("b", 60);
    cr_assert_eq(lay_out(&hf_writer, 100), FSDPCK_OK);
    cr_assert_eq(catalogue_file_count(&t.cat), 1);
    cr_expect_str_eq(file_path(0), "model.safetensors");
}

Test(writers, no_tensors_at_all)
{
    cr_assert_eq(lay_out(&hf_writer, 100), FSDPCK_OK);
    uint64_t n;
    const char *head = literal(0, &n);
    static const char want[] = "{\"__metadata__\":{\"format\":\"pt\"}}";
    cr_expect_eq(n % 8, 0);
    cr_expect_eq(memcmp(head + 8, want, strlen(want)), 0);
    cr_expect_eq(catalogue_file(&t.cat, 0)->nbytes, n);
}

/* A name that needs escapes, and F4's doubled dim, survive the way through the header. */
Test(writers, headers_read_back)
{
    const uint64_t shape[] = {3, 5};
    static const uint64_t none[] = {0, 7};
    add("quote\" back\\ tab\t \xC3\xA9 \xF0\x9F\x98\x80", DTYPE_FLOAT4_E2M1FN_X2, 2, shape);
    add("", DTYPE_INT64, 0, NULL);
    add("empty", DTYPE_FLOAT32, 2, none);
    cr_assert_eq(lay_out(&safetensors_writer, 0), FSDPCK_OK, "%s", err.message);
    uint64_t n;
    const char *head = literal(0, &n);
    st_header h;
    cr_expect_eq(load_le64((const uint8_t *)head), n - 8);
    cr_expect_eq(n % 8, 0);
    cr_assert_eq(st_header_parse(head + 8, n - 8, 8, 15 + 8, &owner, &h, &err), FSDPCK_OK, "%s",
                 err.message);
    cr_assert_eq(h.entries.count, 3);
    for (size_t i = 0; i < 3; i++) {
        const st_entry *e = VEC_AT(&h.entries, const st_entry, i);
        size_t nbytes;
        const char *name = st_header_name(&h, e, &nbytes);
        const uint32_t tensor = catalogue_find(&t.cat, name, nbytes);
        cr_assert_neq(tensor, CAT_NONE, "'%s'", name);
        const cat_tensor *ct = catalogue_tensor(&t.cat, tensor);
        cr_expect_eq(e->dtype, ct->dtype);
        cr_assert_eq(e->ndim, ct->ndim);
        for (unsigned d = 0; d < e->ndim; d++)
            cr_expect_eq(st_header_shape(&h, e)[d], catalogue_shape(&t.cat, tensor)[d]);
        cr_expect_eq(catalogue_chunk(&t.cat, ct->first_chunk)->offset_bytes, n + e->begin_bytes);
    }
    st_header_release(&h);
}

static void expect_refused(const char *what)
{
    cr_expect_eq(lay_out(&safetensors_writer, 0), FSDPCK_UNSUPPORTED, "%s", what);
    cr_expect_eq(lay_out(&hf_writer, 0), FSDPCK_UNSUPPORTED, "%s", what);
    cr_expect_eq(catalogue_file_count(&t.cat), 0);
    teardown();
    setup();
}

Test(writers, what_safetensors_cannot_hold)
{
    const uint64_t shape[] = {2};
    cr_expect(safetensors_writer.holds(DTYPE_BFLOAT16));
    cr_expect_not(safetensors_writer.holds(DTYPE_COMPLEX128));
    cr_expect_not(hf_writer.holds(DTYPE_BITS8));
    add("c", DTYPE_COMPLEX32, 1, shape);
    expect_refused("dtype");
    add("__metadata__", DTYPE_INT8, 1, shape);
    expect_refused("name of the metadata");
    add("\xED\xA0\x80", DTYPE_INT8, 1, shape);
    expect_refused("lone surrogate");
    uint32_t tensor;
    const uint64_t half[] = {1};
    const cat_chunk proto = {.place = LOCATION_ROWS};
    cr_assert_eq(catalogue_add_tensor(&t.cat, "p", 1, DTYPE_INT8, 1, shape, &tensor, &err),
                 FSDPCK_OK);
    cr_assert_eq(catalogue_add_chunk(&t.cat, tensor, half, half, &proto, &err), FSDPCK_OK);
    expect_refused("a part of a tensor");
}
