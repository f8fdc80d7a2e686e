#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "formats/safetensors/st.h"
#include "st_checkpoint.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_BYTES];
static st_checkpoint o;

static void setup(void)
{
    scratch_make(dir);
}

static void teardown(void)
{
    scratch_remove(dir);
}

TestSuite(hf_folder, .init = setup, .fini = teardown);

/* A file with tensors named by the letters of `names`, one byte each. */
static void put(const char *file_name, const char *names)
{
    char header[512] = "{";
    for (size_t i = 0; names[i] != '\0'; i++)
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                 i > 0 ? "," : "", names[i], i, i + 1);
    strcat(header, "}");
    write_safetensors(dir, file_name, header, strlen(names));
}

static void put_index(const char *text)
{
    scratch_write(dir, "model.safetensors.index.json", text, strlen(text));
}

static void expect_open(fsdpck_status status, const char *finding)
{
    o = (st_checkpoint){0};
    cr_expect_eq(st_checkpoint_open(&o, &hf_reader, dir), status, "%s", o.err.message);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), finding, "%s", o.err.message);
    st_checkpoint_close(&o);
}

#define MAP(pairs) "{\"metadata\":{\"total_size\":3},\"weight_map\":{" pairs "}}"

Test(hf_folder, index_and_files_agree)
{
    put("1.safetensors", "ab");
    put("2.safetensors", "c");
    put_index(MAP("\"c\":\"2.safetensors\",\"a\":\"1.safetensors\",\"b\":\"1.safetensors\""));
    expect_open(FSDPCK_OK, "");
    cr_expect_str_empty(o.log);
    put("3.safetensors", "d");
    expect_open(FSDPCK_OK, "");
    cr_expect_not_null(strstr(o.log, "IDX-EXTRA: '3.safetensors'"));
    put_index("{\"metadata\":{\"total_size\":4},\"weight_map\":{\"c\":\"2.safetensors\","
              "\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}}");
    expect_open(FSDPCK_OK, "");
    cr_expect_not_null(strstr(o.log, "IDX-TOTAL"));
}

Test(hf_folder, index_and_files_disagree)
{
    put("1.safetensors", "ab");
    put_index(MAP("\"a\":\"1.safetensors\",\"c\":\"2.safetensors\",\"d\":\"3.safetensors\""));
    expect_open(FSDPCK_BADINPUT, "FILE-MISSING");
    cr_expect_not_null(strstr(o.err.message, "2.safetensors, 3.safetensors"), "all are listed");
    put("2.safetensors", "x");
    put("3.safetensors", "d");
    expect_open(FSDPCK_BADINPUT, "IDX-TENSOR");
    cr_expect_str_eq(o.err.tensor, "c");
    put("2.safetensors", "ac");
    expect_open(FSDPCK_BADINPUT, "IDX-DUP");
    cr_expect_str_eq(o.err.tensor, "a");
    put("2.safetensors", "c");
    expect_open(FSDPCK_OK, "");
    cr_expect_not_null(strstr(o.log, "IDX-EXTRA"), "'b' is in no map");
}

Test(hf_folder, bad_indexes)
{
    static const struct {
        const char *text, *finding;
    } rows[] = {
        {MAP("\"a\":\"../1.safetensors\""), "IDX-PATH"},
        {MAP("\"a\":\"/etc/passwd\""), "IDX-PATH"},
        {MAP("\"a\":\"./1.safetensors\""), "IDX-PATH"},
        {MAP("\"a\":\"https://host/1.safetensors\""), "IDX-PATH"},
        {MAP("\"a\":\"\""), "IDX-PATH"},
        {MAP("\"a\":\"1.safetensors\\u0000x\""), "IDX-PATH"},
        {MAP("\"a\":7"), "IDX-JSON"},
        {MAP(""), "IDX-JSON"},
        {"{\"weight_map\":[]}", "IDX-JSON"},
        {"{\"metadata\":{}}", "IDX-JSON"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\"}} x", "IDX-JSON"},
        {"", "IDX-JSON"},
        {MAP("\"a\":\"1.safetensors\",\"\\u0061\":\"1.safetensors\""), "IDX-DUP"},
    };
    put("1.safetensors", "a");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_index(rows[i].text);
        expect_open(FSDPCK_BADINPUT, rows[i].finding);
        cr_expect_not_null(strstr(o.err.path, "index.json"), "%s", rows[i].text);
    }
}

Test(hf_folder, old_indexes_state_the_size_as_a_float)
{
    put("1.safetensors", "a");
    put_index("{\"metadata\":{\"total_size\":1.0,\"x\":[1]},\"more\":{},\"weight_map\":{\"a\":\"1."
              "safetensors\"}}");
    expect_open(FSDPCK_OK, "");
}

Test(hf_folder, without_an_index)
{
    put("model-00001-of-00003.safetensors", "a");
    put("model-00003-of-00003.safetensors", "c");
    put("consolidated.safetensors", "ac");
    expect_open(FSDPCK_BADINPUT, "FILE-MISSING");
    cr_expect_not_null(strstr(o.err.message, ": model-00002-of-00003.safetensors"));
    put("model-00002-of-00003.safetensors", "b");
    expect_open(FSDPCK_OK, "");
    cr_expect_not_null(strstr(o.log, "consolidated.safetensors"));
    put("model.safetensors", "xyz");
    o = (st_checkpoint){0};
    cr_assert_eq(st_checkpoint_open(&o, &hf_reader, dir), FSDPCK_OK);
    cr_expect_eq(catalogue_tensor_count(&o.cat), 3, "model.safetensors is read alone");
    cr_expect_neq(catalogue_find(&o.cat, "x", 1), CAT_NONE);
    st_checkpoint_close(&o);
}

Test(hf_folder, a_tensor_in_two_files)
{
    put("x.safetensors", "ab");
    put("y.safetensors", "bc");
    expect_open(FSDPCK_BADINPUT, "IDX-DUP");
    cr_expect_str_eq(o.err.tensor, "b");
    cr_expect_not_null(strstr(o.err.path, "y.safetensors"));
    cr_expect_not_null(strstr(o.err.found, "x.safetensors"));
}

Test(hf_folder, a_bad_header_names_its_file)
{
    put("x.safetensors", "ab");
    scratch_write(dir, "y.safetensors", "\x40\0\0\0\0\0\0\0{", 9);
    expect_open(FSDPCK_BADINPUT, "ST-HEADER-SIZE");
    cr_expect_not_null(strstr(o.err.path, "/y.safetensors"));
    scratch_write(dir, "y.safetensors", "", 0);
    expect_open(FSDPCK_BADINPUT, "FILE-SHORT");
}

Test(hf_folder, scalars_that_torch_consolidated_are_doubted)
{
    write_safetensors(dir, "model.safetensors",
                      "{\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1);
    expect_open(FSDPCK_OK, "");
    cr_expect_str_empty(o.log);
    scratch_write(dir, "sharded", "", 0);
    expect_open(FSDPCK_OK, "");
    cr_expect_not_null(strstr(o.log, "zeros"));
    write_safetensors(dir, "model.safetensors",
                      "{\"__metadata__\":{\"format\":\"pt\"},\"s\":{\"dtype\":\"U8\",\"shape\":[],"
                      "\"data_offsets\":[0,1]}}",
                      1);
    expect_open(FSDPCK_OK, "");
    cr_expect_str_empty(o.log, "not written by torch's consolidation");
}

Test(hf_folder, a_file_by_content_and_by_name)
{
    char path[SCRATCH_BYTES];
    put("weights", "a");
    cr_expect(st_checkpoint_probes(&safetensors_reader, scratch_path(path, dir, "weights")));
    scratch_write(dir, "broken.safetensors", "x", 1);
    cr_expect(
        st_checkpoint_probes(&safetensors_reader, scratch_path(path, dir, "broken.safetensors")));
    scratch_write(dir, "zip.safetensors", "PK\3\4....", 8);
    cr_expect_not(
        st_checkpoint_probes(&safetensors_reader, scratch_path(path, dir, "zip.safetensors")));
    scratch_write(dir, "text", "hello, this is no checkpoint", 28);
    cr_expect_not(st_checkpoint_probes(&safetensors_reader, scratch_path(path, dir, "text")));
    cr_expect_not(st_checkpoint_probes(&safetensors_reader, dir));
}
