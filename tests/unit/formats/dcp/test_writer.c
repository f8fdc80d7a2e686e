/* What dcp_writer lays out, read back by dcp_reader: tensors element by element, objects, boxes,
 * which rank has what, alignment. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "tests/support/dcp_target.h"
#include "tests/support/scratch.h"
#include "tests/unit/formats/dcp/dcp_checkpoint.h"

static char scratch[SCRATCH_BYTES];
static dcp_target d;
static dcp_checkpoint o;
static const mesh ranks4 = {.ndim = 1, .sizes = {4}};
static const mesh alone = {.ndim = 1, .sizes = {1}};
static const mesh hsdp = {.ndim = 2, .sizes = {2, 2}, .names = {"dp_replicate", "dp_shard"}};
static const placement shard0 = {.kind = PLACEMENT_SHARD, .dim = 0};
static const placement shard1 = {.kind = PLACEMENT_SHARD, .dim = 1};
static const placement hsdp_shard[] = {{.kind = PLACEMENT_REPLICATE}, {.kind = PLACEMENT_SHARD}};

static void begin(void)
{
    scratch_make(scratch);
}

static void end(void)
{
    scratch_remove(scratch);
}

TestSuite(writer, .init = begin, .fini = end);

static void save(const writer_options *opt)
{
    cr_assert_eq(dcp_target_lay_out(&d, opt), FSDPCK_OK, "%s: %s", d.err.tensor, d.err.message);
    dcp_target_save(&d, scratch);
}

/* The digest that the tensor must have. */
static void true_digest(uint32_t tensor, char digest[17])
{
    const cat_tensor *t = catalogue_tensor(&d.to.cat, tensor);
    const size_t item = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint8_t bytes[16];
    text_buf text = {0};
    text_printf(&text, "%s[", dtype_get((dtype)t->dtype)->name);
    for (unsigned k = 0; k < t->ndim; k++)
        text_printf(&text, "%s%" PRIu64, k > 0 ? "," : "", catalogue_shape(&d.to.cat, tensor)[k]);
    text_puts(&text, "]\n");
    uint64_t crc = crc64_update(0, text.text, text.nbytes);
    for (uint64_t i = 0; i < catalogue_tensor_nelems(&d.to.cat, tensor); i++) {
        dcp_target_element(&d, tensor, i, bytes);
        crc = crc64_update(crc, bytes, item);
    }
    snprintf(digest, 17, "%016" PRIx64, crc);
    text_release(&text);
}

/* Opens the saved folder and compares all tensors and the boxes of their chunks. */
static void open_and_compare(void)
{
    uint64_t at[2][NDIM_MAX], sizes[2][NDIM_MAX];
    char digest[17], want[17], label[256];
    cr_assert_eq(dcp_checkpoint_open_path(&o, scratch), FSDPCK_OK, "%s %s (%s, %s)",
                 fsdpck_finding_name(o.err.finding), o.err.message, o.err.expected, o.err.found);
    for (uint32_t i = 0; i < catalogue_object_count(&o.cat); i++)
        cr_assert_eq(dcp_reader.load_object(o.self, &o.cat, i, &o.err), FSDPCK_OK, "%s: %s %s",
                     o.err.tensor, fsdpck_finding_name(o.err.finding), o.err.message);
    for (uint32_t i = 0; i < catalogue_tensor_count(&d.to.cat); i++) {
        const cat_tensor *t = catalogue_tensor(&d.to.cat, i);
        const char *name = catalogue_name(&d.to.cat, t->name);
        if (t->flags & CAT_TENSOR_IN_OBJECT)
            continue;
        const uint32_t found = catalogue_find(&o.cat, name, strlen(name));
        cr_assert_neq(found, CAT_NONE, "no tensor '%s'", name);
        cr_assert_eq(dcp_checkpoint_digest(&o, found, digest, label), FSDPCK_OK,
                     "%s: %s %s (%s, %s)", name, fsdpck_finding_name(o.err.finding), o.err.message,
                     o.err.expected, o.err.found);
        true_digest(i, want);
        cr_expect_str_eq(digest, want, "%s: %s", name, label);
        const cat_tensor *read = catalogue_tensor(&o.cat, found);
        cr_assert_eq(read->nchunks, t->nchunks, "%s", name);
        for (uint64_t k = 0; k < t->nchunks; k++) {
            catalogue_chunk_box(&d.to.cat, t->first_chunk + k, at[0], sizes[0]);
            catalogue_chunk_box(&o.cat, read->first_chunk + k, at[1], sizes[1]);
            cr_expect(box_equal(at[0], sizes[0], at[1], sizes[1], t->ndim), "%s", name);
        }
    }
}

static void write_and_compare(const writer_options *opt)
{
    save(opt);
    open_and_compare();
    dcp_checkpoint_close(&o);
    dcp_target_end(&d);
}

Test(writer, every_dtype_and_rank_count)
{
    const uint64_t shape[] = {5, 3};
    char name[64];
    const mesh meshes[] = {alone, ranks4};
    for (size_t m = 0; m < 2; m++) {
        dcp_target_begin(&d, &meshes[m]);
        for (unsigned type = 1; type < DTYPE_COUNT; type++) {
            snprintf(name, sizeof name, "t.%s", dtype_get((dtype)type)->name);
            dcp_target_add(&d, name, (dtype)type, 2, shape, type % 2 ? &shard0 : NULL);
        }
        cr_assert_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_OK);
        cr_expect_eq(catalogue_file_count(&d.to.cat), d.to.world_size + 1);
        dcp_target_save(&d, scratch);
        open_and_compare();
        cr_expect_eq(o.cat.origin.world_size, (int64_t)d.to.world_size);
        dcp_checkpoint_close(&o);
        dcp_target_end(&d);
    }
}

Test(writer, awkward_shapes)
{
    const uint64_t shapes[][6] = {{0}, {1}, {6}, {5, 3}, {0, 3}, {3, 0}, {2, 1, 3, 1, 2, 2}};
    const unsigned ndims[] = {0, 1, 1, 2, 2, 2, 6};
    char name[32];
    dcp_target_begin(&d, &ranks4);
    for (unsigned i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "cut%u", i);
        dcp_target_add(&d, name, DTYPE_FLOAT32, ndims[i], shapes[i], ndims[i] > 0 ? &shard0 : NULL);
        snprintf(name, sizeof name, "cut%u.columns", i);
        dcp_target_add(&d, name, DTYPE_INT16, ndims[i], shapes[i], ndims[i] > 1 ? &shard1 : NULL);
        snprintf(name, sizeof name, "whole%u", i);
        dcp_target_add(&d, name, DTYPE_BFLOAT16, ndims[i], shapes[i], NULL);
    }
    write_and_compare(&(writer_options){0});
}

Test(writer, empty_chunks_are_blobs_at_the_end_of_the_dim)
{
    const uint64_t shape[] = {5, 3};
    uint64_t at[2], sizes[2];
    dcp_target_begin(&d, &ranks4);
    const uint32_t t = dcp_target_add(&d, "w", DTYPE_FLOAT32, 2, shape, &shard0);
    cr_assert_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_OK);
    const cat_tensor *w = catalogue_tensor(&d.to.cat, t);
    cr_assert_eq(w->nchunks, 4);
    catalogue_chunk_box(&d.to.cat, w->first_chunk + 3, at, sizes);
    cr_expect_eq(at[0], 5);
    cr_expect_eq(sizes[0], 0);
    const cat_chunk *empty = catalogue_chunk(&d.to.cat, w->first_chunk + 3);
    cr_expect_eq(empty->place, LOCATION_EMPTY);
    cr_expect_eq(empty->file, 3);
    cr_expect_gt(catalogue_file(&d.to.cat, 3)->nbytes, 1000);
    dcp_target_save(&d, scratch);
    dcp_target_end(&d);
}

/* Bytes of one blob as torch.save of 2.7 and newer writes it, less its serialization_id. */
Test(writer, a_blob_has_the_layout_of_torch)
{
    const uint64_t shape[] = {3};
    dcp_target_begin(&d, &alone);
    dcp_target_add(&d, "w", DTYPE_FLOAT32, 1, shape, NULL);
    save(&(writer_options){0});
    cr_expect_eq(catalogue_chunk(&d.to.cat, 0)->offset_bytes, 704);
    /* torch's 1577, less a record that begins at 850 instead of the directory at 1016, and its
     * directory entry. */
    cr_expect_eq(catalogue_file(&d.to.cat, 0)->nbytes, 1577 - (1016 - 850) - (46 + 30));
    dcp_target_end(&d);
}

Test(writer, alignment_is_of_the_file)
{
    static const uint64_t alignments[] = {64, 512, 4096, 100000};
    const uint64_t shape[] = {7, 11};
    for (size_t i = 0; i < 4; i++) {
        char name[32];
        dcp_target_begin(&d, &ranks4);
        for (unsigned k = 0; k < 5; k++) {
            snprintf(name, sizeof name, "w%u", k);
            dcp_target_add(&d, name, DTYPE_FLOAT32, 2, shape, &shard0);
        }
        save(&(writer_options){.align_nbytes = alignments[i]});
        for (uint64_t k = 0; k < catalogue_chunk_count(&d.to.cat); k++)
            cr_expect_eq(catalogue_chunk(&d.to.cat, k)->offset_bytes % alignments[i], 0);
        open_and_compare();
        dcp_checkpoint_close(&o);
        dcp_target_end(&d);
    }
}

Test(writer, an_absurd_alignment_is_refused)
{
    dcp_target_begin(&d, &alone);
    cr_expect_eq(dcp_target_lay_out(&d, &(writer_options){.align_nbytes = UINT64_C(1) << 40}),
                 FSDPCK_USAGE);
    dcp_target_end(&d);
}

/* --- ranks and their files --- */

static uint32_t file_of(uint32_t tensor, uint64_t chunk)
{
    return catalogue_chunk(&d.to.cat, catalogue_tensor(&d.to.cat, tensor)->first_chunk + chunk)
        ->file;
}

/* The example of a real save on 2 x 2 ranks: l1.weight (5, 3), then emb (10, 4). */
Test(writer, replicas_are_spread_as_torch_spreads_them)
{
    const uint64_t l1[] = {5, 3}, emb[] = {10, 4};
    dcp_target_begin(&d, &hsdp);
    const uint32_t a = dcp_target_add(&d, "l1.weight", DTYPE_FLOAT32, 2, l1, hsdp_shard);
    const uint32_t b = dcp_target_add(&d, "emb", DTYPE_FLOAT32, 2, emb, hsdp_shard);
    cr_assert_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_OK);
    cr_expect_eq(file_of(a, 0), 0);
    cr_expect_eq(file_of(a, 1), 1);
    cr_expect_eq(file_of(b, 0), 2);
    cr_expect_eq(file_of(b, 1), 3);
    dcp_target_save(&d, scratch);
    dcp_target_end(&d);
}

Test(writer, replicated_tensors_go_to_the_least_loaded)
{
    const uint64_t big[] = {100}, small[] = {10};
    dcp_target_begin(&d, &ranks4);
    const uint32_t a = dcp_target_add(&d, "a", DTYPE_FLOAT32, 1, big, NULL);
    const uint32_t b = dcp_target_add(&d, "b", DTYPE_FLOAT32, 1, small, NULL);
    const uint32_t c = dcp_target_add(&d, "c", DTYPE_FLOAT32, 1, big, NULL);
    const uint32_t e = dcp_target_add(&d, "e", DTYPE_FLOAT32, 1, big, NULL);
    const uint32_t f = dcp_target_add(&d, "f", DTYPE_FLOAT32, 1, small, NULL);
    const uint32_t object = dcp_target_add_object(&d, "o", dcp_target_int(&d, 1));
    cr_assert_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_OK);
    cr_expect_eq(file_of(a, 0), 0);
    cr_expect_eq(file_of(b, 0), 1);
    cr_expect_eq(file_of(c, 0), 2);
    cr_expect_eq(file_of(e, 0), 3);
    cr_expect_eq(file_of(f, 0), 1);
    cr_expect_eq(catalogue_object(&d.to.cat, object)->file, 1);
    dcp_target_save(&d, scratch);
    dcp_target_end(&d);
}

Test(writer, a_rank_without_items_has_an_empty_file)
{
    const uint64_t shape[] = {4};
    dcp_target_begin(&d, &ranks4);
    dcp_target_add(&d, "w", DTYPE_FLOAT32, 1, shape, NULL);
    save(&(writer_options){0});
    cr_expect_gt(catalogue_file(&d.to.cat, 0)->nbytes, 0);
    for (size_t i = 1; i < 4; i++)
        cr_expect_eq(catalogue_file(&d.to.cat, i)->nbytes, 0);
    cr_expect_eq(scratch_count(scratch), 5);
    dcp_target_end(&d);
}

/* --- objects --- */

static value settings(void)
{
    value dict;
    cr_assert_eq(value_new_dict(&d.to.cat.pool, &dict, NULL), FSDPCK_OK);
    cr_assert_eq(
        value_dict_put(&d.to.cat.pool, dict, dcp_target_str(&d, "lr"), dcp_target_int(&d, 3), NULL),
        FSDPCK_OK);
    return dict;
}

Test(writer, objects_and_paths_come_back)
{
    const uint64_t shape[] = {4, 2};
    bool equal = false;
    dcp_target_begin(&d, &ranks4);
    const uint32_t w = dcp_target_add(&d, "optim.groups.1.w", DTYPE_FLOAT32, 2, shape, &shard0);
    const value path[] = {dcp_target_str(&d, "optim"), dcp_target_str(&d, "groups"),
                          dcp_target_int(&d, 1), dcp_target_str(&d, "w")};
    catalogue_tensor(&d.to.cat, w)->path = dcp_target_path(&d, path, 4);
    dcp_target_add_object(&d, "optim.a", settings());
    dcp_target_add_object(&d, "optim.b", settings());
    dcp_target_add_object(&d, "nothing", VALUE_OF_NONE);
    dcp_target_add_object(&d, "step", dcp_target_int(&d, 1000000));
    save(&(writer_options){0});
    open_and_compare();
    cr_assert_eq(catalogue_object_count(&o.cat), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const cat_object *read = catalogue_object(&o.cat, i);
        const cat_object *made = catalogue_object(&d.to.cat, i);
        cr_expect_str_eq(catalogue_name(&o.cat, read->name), catalogue_name(&d.to.cat, made->name));
        cr_assert(!read->opaque);
        cr_assert_eq(
            value_equal(&o.cat.pool, read->content, &d.to.cat.pool, made->content, &equal, NULL),
            FSDPCK_OK);
        cr_expect(equal, "object %u", i);
    }
    const uint32_t found = catalogue_find(&o.cat, "optim.groups.1.w", 16);
    cr_assert_eq(value_equal(&o.cat.pool, catalogue_tensor(&o.cat, found)->path, &d.to.cat.pool,
                             catalogue_tensor(&d.to.cat, w)->path, &equal, NULL),
                 FSDPCK_OK);
    cr_expect(equal);
    dcp_checkpoint_close(&o);
    dcp_target_end(&d);
}

Test(writer, opaque_objects_keep_their_bytes)
{
    static const char bytes[] = "not a zip\0at all";
    value v;
    char path[SCRATCH_BYTES], *read;
    size_t nbytes;
    dcp_target_begin(&d, &alone);
    cr_assert_eq(value_new_bytes(&d.to.cat.pool, bytes, sizeof bytes, &v, NULL), FSDPCK_OK);
    const uint32_t object = dcp_target_add_object(&d, "raw", v);
    catalogue_object(&d.to.cat, object)->opaque = 1;
    save(&(writer_options){0});
    scratch_path(path, scratch, "__0_0.distcp");
    cr_assert_eq(file_read_whole(NULL, path, 1000, &read, &nbytes, NULL), FSDPCK_OK);
    cr_expect_eq(nbytes, sizeof bytes);
    cr_expect_arr_eq(read, bytes, sizeof bytes);
    free(read);
    dcp_target_end(&d);
}

Test(writer, tensors_inside_objects)
{
    const uint64_t shape[] = {3}, none[] = {0, 2};
    dcp_target_begin(&d, &ranks4);
    dcp_target_add(&d, "w", DTYPE_FLOAT32, 1, shape, &shard0);
    const uint32_t a = dcp_target_add_inner(&d, "pair/a", DTYPE_INT64, 1, shape);
    const uint32_t b = dcp_target_add_inner(&d, "pair/b", DTYPE_FLOAT8_E5M2, 2, none);
    const uint32_t c = dcp_target_add_inner(&d, "pair/c", DTYPE_BFLOAT16, 1, shape);
    /* Storages are numbered as the pickle names them, each once. */
    const value items[] = {value_of_tensor(c), value_of_tensor(a), value_of_tensor(c),
                           value_of_tensor(b)};
    dcp_target_add_object(&d, "pair", dcp_target_path(&d, items, 4));
    dcp_target_add_object(&d, "after", dcp_target_int(&d, 7));
    save(&(writer_options){.align_nbytes = 4096});
    open_and_compare();
    /* Each place has a name: the second of c is one more. */
    const uint32_t made[] = {c, a, b, c};
    const char *const names[] = {"pair.0", "pair.1", "pair.3", "pair.2"};
    cr_assert_eq(catalogue_tensor_count(&o.cat), 5);
    for (uint32_t i = 0; i < 4; i++) {
        const cat_tensor *t = catalogue_tensor(&o.cat, 1 + i);
        cr_expect_str_eq(catalogue_name(&o.cat, t->name), names[i]);
        cr_expect_eq(t->flags, CAT_TENSOR_IN_OBJECT | CAT_TENSOR_NAMED);
        char digest[17], want[17], label[256];
        cr_assert_eq(dcp_checkpoint_digest(&o, 1 + i, digest, label), FSDPCK_OK, "%s",
                     o.err.message);
        true_digest(made[i], want);
        cr_expect_str_eq(digest, want, "%s", label);
    }
    dcp_checkpoint_close(&o);
    dcp_target_end(&d);
}

Test(writer, a_tensor_of_two_objects_is_refused)
{
    const uint64_t shape[] = {3};
    dcp_target_begin(&d, &alone);
    const value item = value_of_tensor(dcp_target_add_inner(&d, "x", DTYPE_INT64, 1, shape));
    dcp_target_add_object(&d, "one", dcp_target_path(&d, &item, 1));
    dcp_target_add_object(&d, "two", dcp_target_path(&d, &item, 1));
    cr_expect_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(d.err.tensor, "two");
    dcp_target_end(&d);
}

Test(writer, two_entries_of_one_name_are_refused)
{
    const uint64_t shape[] = {3};
    dcp_target_begin(&d, &alone);
    dcp_target_add(&d, "a.b", DTYPE_INT64, 1, shape, NULL);
    dcp_target_add_object(&d, "a.b", VALUE_OF_NONE);
    cr_expect_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(fsdpck_finding_name(d.err.finding), "KEY-DUP");
    dcp_target_end(&d);
}

/* --- large ones, laid out only --- */

/* Over 4 GiB: zip64 in the records after the data, and 8-byte numbers in .metadata. */
Test(writer, large_blobs_take_zip64)
{
    const uint64_t large[] = {UINT64_C(1) << 32}, small[] = {3};
    dcp_target_begin(&d, &alone);
    dcp_target_add(&d, "large", DTYPE_FLOAT32, 1, large, NULL);
    dcp_target_add(&d, "small", DTYPE_FLOAT32, 1, small, NULL);
    cr_assert_eq(dcp_target_lay_out(&d, &(writer_options){0}), FSDPCK_OK);
    const target_deferred *late = VEC_AT(&d.to.lates, const target_deferred, 0);
    uint8_t *tail = malloc(late->nbytes);
    d.to.make_deferred(&d.to, 0, 0x12345678, tail);
    static const uint8_t descriptor[] = {'P', 'K', 7, 8, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 4};
    cr_expect_arr_eq(tail, descriptor, sizeof descriptor);
    /* The version record begins past 4 GiB: its local header has a zip64 field of 12 bytes. */
    static const uint8_t version[] = {'P', 'K', 3, 4};
    cr_expect_arr_eq(tail + 24, version, sizeof version);
    cr_expect_eq(tail[24 + 30 + 15], 1);
    cr_expect_eq(late[1].nbytes < late[0].nbytes, true);
    cr_expect_eq(catalogue_chunk(&d.to.cat, 1)->offset_bytes,
                 late[0].offset_bytes + late[0].nbytes + 704);
    free(tail);
    dcp_target_end(&d);
}
