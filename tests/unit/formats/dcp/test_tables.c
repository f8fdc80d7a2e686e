/* test_tables.c: a folder opened with the tables of another rank is the folder that rank opened. */
#include <criterion/criterion.h>
#include <string.h>

#include "dcp_checkpoint.h"
#include "state/catalogue_tables.h"

static fsdpck_error err;

/* Reads the tensor's first chunk as a plan would. */
static void expect_same_place(const dcp_checkpoint *a, const dcp_checkpoint *b, uint64_t chunk)
{
    place x = {0}, y = {0};
    fsdpck_error other = FSDPCK_ERROR_INIT;
    const fsdpck_status want = a->src.locate(a->src.ctx, chunk, &x, &err);
    cr_expect_eq(b->src.locate(b->src.ctx, chunk, &y, &other), want, "%s", other.message);
    cr_expect(want != FSDPCK_OK || (x.file == y.file && x.offset_bytes == y.offset_bytes &&
                                    x.rows == y.rows && x.stream == y.stream));
}

static void expect_same(const char *name)
{
    char path[4096];
    dcp_checkpoint a, b;
    table_file f;
    table_file_address address;
    dcp_checkpoint_prepare(&b, fixture_path(path, sizeof path, name));
    cr_assert_eq(dcp_checkpoint_open_path(&a, path), FSDPCK_OK, "%s", a.err.message);
    cr_assert_eq(table_file_create(&f, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_tables(&a.cat, &f, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(dcp_reader.tables(a.self, &f, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(table_file_finish(&f, &address, &err), FSDPCK_OK);
    cr_assert_eq(table_file_map(&f, NULL, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_tables(&b.cat, &f, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(dcp_reader.open_tables(&b.request, &b.cat, &f, &b.self, &err), FSDPCK_OK, "%s",
                 err.message);
    b.is_open = true;
    dcp_reader.source(b.self, &b.cat, &b.src);
    cr_expect_eq(b.src.check_unchanged(b.src.ctx, &err), FSDPCK_OK);
    cr_assert_eq(catalogue_chunk_count(&a.cat), catalogue_chunk_count(&b.cat));
    cr_assert_gt(catalogue_chunk_count(&a.cat), 0);
    for (uint64_t k = 0; k < catalogue_chunk_count(&a.cat); k++)
        if (catalogue_chunk(&a.cat, k)->place != LOCATION_EMPTY)
            expect_same_place(&a, &b, k);
    for (uint32_t i = 0; i < catalogue_object_count(&a.cat); i++)
        cr_expect_eq(dcp_reader.load_object(b.self, &b.cat, i, &err), FSDPCK_OK, "%s", err.message);
    for (uint32_t t = 0; t < catalogue_tensor_count(&a.cat); t++) {
        char want[17], got[17], label[256];
        if (dcp_checkpoint_digest(&a, t, want, label) == FSDPCK_OK) {
            cr_assert_eq(dcp_checkpoint_digest(&b, t, got, label), FSDPCK_OK, "%s", b.err.message);
            cr_expect_str_eq(got, want, "%s: %s", name, label);
        }
    }
    dcp_checkpoint_close(&b);
    dcp_checkpoint_close(&a);
    table_file_release(&f);
}

Test(dcp_tables, of_another_rank)
{
    static const char *const names[] = {"torch-2.15.0/dcp-fsdp2", "torch-2.15.0/dcp-nocollective",
                                        "torch-2.15.0/dcp-st-inside", "torch-2.15.0/dcp-zstd",
                                        "megatron/flattened"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_same(names[i]);
}
