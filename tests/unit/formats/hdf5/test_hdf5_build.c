#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/hdf5/hdf5_build.h"
#include "formats/hdf5/hdf5_record_writer.h"

#define FILE_NBYTES 10000u
#define NONE        UINT64_MAX

typedef struct told {
    int ends[2];
    hdf5_record_writer put;
    budget owner;
    catalogue cat;
    hdf5_file f;
    fsdpck_error err;
    bool is_checked_elsewhere;
    char said[1000]; /* warnings, with their findings, a line each */
} told;

static told t;

static void begin(void)
{
    t = (told){0};
    cr_assert_eq(pipe(t.ends), 0);
    t.put.fd = t.ends[1];
    budget_init(&t.owner, (uint64_t)16 << 20, "metadata", NULL);
    catalogue_init(&t.cat, &t.owner);
    hdf5_file_init(&t.f, &t.owner);
    fsdpck_error_init(&t.err);
    put_u32(&t.put, HDF5_PROTOCOL_VERSION);
    put_u64(&t.put, 0);
    put_record(&t.put, HDF5_HELLO);
}

static fsdpck_status read_pipe(void *ctx, void *dst, uint64_t nbytes, uint64_t *got,
                               fsdpck_error *err)
{
    (void)ctx;
    (void)err;
    for (*got = 0; *got < nbytes;) {
        const ssize_t n = read(t.ends[0], (char *)dst + *got, nbytes - *got);
        if (n <= 0)
            break;
        *got += (uint64_t)n;
    }
    return FSDPCK_OK;
}

static void receive(void *ctx, const log_line *line)
{
    (void)ctx;
    const size_t n = strlen(t.said);
    snprintf(t.said + n, sizeof t.said - n, "%s %s\n", fsdpck_finding_name(line->finding),
             line->text);
}

/* Builds from the collected records, and frees them. */
static void ends_as(fsdpck_status wanted, const char *finding)
{
    uint32_t index;
    const hdf5_input in = {.read = read_pipe,
                           .end_bytes = FILE_NBYTES,
                           .is_checked_elsewhere = t.is_checked_elsewhere,
                           .library = "HDF5 1.2.3",
                           .separator = ".",
                           .log = {receive, NULL}};
    cr_assert(put_finish(&t.put));
    close(t.ends[1]);
    cr_assert_eq(catalogue_add_file(&t.cat, "f", 1, FILE_NBYTES, CAT_NONE, &index, &t.err),
                 FSDPCK_OK);
    const fsdpck_status st = hdf5_build(&t.f, &in, &t.cat, &t.err);
    cr_assert_eq(st, wanted, "%d: %s", st, t.err.message);
    cr_assert_str_eq(fsdpck_finding_name(t.err.finding), finding);
    close(t.ends[0]);
}

static void release(void)
{
    hdf5_file_release(&t.f);
    catalogue_release(&t.cat);
    cr_assert_eq(t.owner.used_bytes, 0);
}

static void put_words(const char *text)
{
    put_text(&t.put, text, strlen(text));
}

static void end(uint64_t datasets)
{
    put_u64(&t.put, datasets);
    put_record(&t.put, HDF5_END);
}

/* An int32 dataset of rows x 3, up to its layout. */
static void put_shape(const char *name, uint64_t rows)
{
    hdf5_record_writer *p = &t.put;
    put_u64(p, 800);
    put_words(name);
    put_u8(p, HDF5_TYPE_INTEGER);
    put_u8(p, HDF5_ORDER_LE);
    put_u8(p, 1);
    put_u8(p, HDF5_NORM_OTHER);
    put_u32(p, 4);
    put_u32(p, 32);
    for (unsigned i = 0; i < 6; i++)
        put_u32(p, 0);
    put_u64(p, 0);
    put_u32(p, 0);
    put_u8(p, HDF5_SPACE_SIMPLE);
    put_u8(p, 2);
    put_u64(p, rows);
    put_u64(p, 3);
}

static void put_layout(unsigned layout, uint64_t offset, uint64_t stored, hdf5_fill fill)
{
    hdf5_record_writer *p = &t.put;
    put_u8(p, layout);
    put_u64(p, offset);
    put_u64(p, stored);
    put_u8(p, fill);
    put_u8(p, 0);
    put_u8(p, 0);
    put_u32(p, 0);
}

static void contiguous(const char *name, uint64_t rows, uint64_t offset, uint64_t stored)
{
    put_shape(name, rows);
    put_layout(HDF5_LAYOUT_CONTIGUOUS, offset, stored, HDF5_FILL_ZERO);
    put_record(&t.put, HDF5_DATASET);
}

/* Chunks of 2 x 3 without filters. */
static void chunked(uint64_t rows, uint64_t nchunks)
{
    put_shape("w", rows);
    put_layout(HDF5_LAYOUT_CHUNKED, NONE, 24 * nchunks, HDF5_FILL_ZERO);
    put_u8(&t.put, 0);
    put_u64(&t.put, 2);
    put_u64(&t.put, 3);
    put_u8(&t.put, 0);
    put_u64(&t.put, nchunks);
    put_record(&t.put, HDF5_DATASET);
}

static void put_chunk(uint64_t row, uint64_t offset, uint64_t nbytes)
{
    put_u64(&t.put, offset);
    put_u64(&t.put, nbytes);
    put_u32(&t.put, 0);
    put_u64(&t.put, row);
    put_u64(&t.put, 0);
}

Test(hdf5_build, what_is_told_well_is_taken)
{
    begin();
    contiguous("layers/0/w", 4, 1000, 48);
    put_u64(&t.put, 0);
    put_words("tied");
    put_record(&t.put, HDF5_LINK);
    chunked(5, 2);
    put_chunk(4, 2000, 24);
    put_chunk(0, 2024, 24);
    put_record(&t.put, HDF5_CHUNKS);
    end(2);
    ends_as(FSDPCK_OK, "");
    cr_assert_eq(catalogue_seal(&t.cat, &t.err), FSDPCK_OK);
    cr_assert_neq(catalogue_find(&t.cat, "layers.0.w", 10), CAT_NONE);
    const cat_tensor *tied = catalogue_tensor(&t.cat, catalogue_find(&t.cat, "tied", 4));
    cr_assert_eq(catalogue_chunk(&t.cat, tied->first_chunk)->offset_bytes, 1000);
    const cat_tensor *w = catalogue_tensor(&t.cat, catalogue_find(&t.cat, "w", 1));
    cr_assert_eq(w->nchunks, 3); /* the third was never written */
    cr_assert_eq(t.f.unwritten_nbytes, 24);
    /* Of the last chunk one row is in the dataset. */
    cr_assert_eq(catalogue_chunk(&t.cat, w->first_chunk)->nbytes, 12);
    release();
}

Test(hdf5_build, data_lie_inside_of_the_file_and_on_no_others)
{
    static const struct {
        uint64_t offset, stored;
        fsdpck_status st;
    } cases[] = {
        {FILE_NBYTES - 48, 48, FSDPCK_OK},
        {FILE_NBYTES - 47, 48, FSDPCK_BADINPUT},
        {NONE - 10, 48, FSDPCK_BADINPUT},
        {5000, 47, FSDPCK_BADINPUT},
        {1000, 48, FSDPCK_BADINPUT},
        {1047, 48, FSDPCK_BADINPUT},
        {1048, 48, FSDPCK_OK},
        {953, 48, FSDPCK_BADINPUT},
        {952, 48, FSDPCK_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin();
        contiguous("a", 4, 1000, 48);
        contiguous("b", 4, cases[i].offset, cases[i].stored);
        end(2);
        ends_as(cases[i].st, cases[i].st == FSDPCK_OK ? "" : "H5-CHUNK");
        release();
    }
}

Test(hdf5_build, each_chunk_is_there_once_and_of_the_grid)
{
    static const struct {
        uint64_t row, offset, nbytes;
        fsdpck_status st;
    } cases[] = {
        {2, 2000, 24, FSDPCK_OK},
        {0, 2000, 24, FSDPCK_BADINPUT},
        {1, 2000, 24, FSDPCK_BADINPUT},
        {4, 2000, 24, FSDPCK_BADINPUT},
        {2, 1023, 24, FSDPCK_BADINPUT},
        {2, 2000, 23, FSDPCK_BADINPUT},
        {2, FILE_NBYTES, 24, FSDPCK_BADINPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin();
        chunked(4, 2);
        put_chunk(0, 1000, 24);
        put_chunk(cases[i].row, cases[i].offset, cases[i].nbytes);
        put_record(&t.put, HDF5_CHUNKS);
        end(1);
        ends_as(cases[i].st, cases[i].st == FSDPCK_OK ? "" : "H5-CHUNK");
        release();
    }
}

Test(hdf5_build, chunks_are_as_many_as_was_said)
{
    for (unsigned told_ones = 0; told_ones < 4; told_ones++) {
        begin();
        chunked(6, 2);
        for (unsigned i = 0; i < told_ones; i++)
            put_chunk(2 * i, 1000 + 24 * i, 24);
        put_record(&t.put, HDF5_CHUNKS);
        end(1);
        ends_as(told_ones == 2 ? FSDPCK_OK : FSDPCK_BADINPUT, told_ones == 2  ? ""
                                                              : told_ones < 2 ? "H5-CHUNK"
                                                                              : "H5-DAMAGED");
        release();
    }
}

Test(hdf5_build, nothing_is_invented)
{
    begin();
    put_shape("w", 4);
    put_layout(HDF5_LAYOUT_CONTIGUOUS, NONE, 0, HDF5_FILL_UNDEFINED);
    put_record(&t.put, HDF5_DATASET);
    end(1);
    ends_as(FSDPCK_OK, "");
    const hdf5_dataset *d = VEC_AT(&t.f.datasets, const hdf5_dataset, 0);
    cr_assert_eq(d->unwritten_nbytes, 48);
    cr_assert_eq(catalogue_chunk(&t.cat, 0)->place, LOCATION_FILL);
    for (unsigned state = HDF5_FILL_UNDEFINED; state <= HDF5_FILL_VALUE; state++) {
        hdf5_dataset any = *d;
        any.fill_state = (uint8_t)state;
        t.f.fills = false;
        cr_assert(!hdf5_is_filled(&t.f, &any));
        t.f.fills = true;
        cr_assert_eq(hdf5_is_filled(&t.f, &any), state == HDF5_FILL_VALUE);
    }
    cr_assert_eq(hdf5_error_unwritten(&t.f, d, &t.err), FSDPCK_BADINPUT);
    cr_assert_str_eq(fsdpck_finding_name(t.err.finding), "H5-UNWRITTEN");
    cr_assert_neq(strstr(t.said, "H5-UNWRITTEN 1 dataset has 48 bytes"), NULL);
    release();
    begin();
    contiguous("w", (uint64_t)1 << 40, NONE, 0);
    end(1);
    ends_as(FSDPCK_LIMIT, "H5-SPARSE");
    release();
}

Test(hdf5_build, names_are_text)
{
    begin();
    contiguous("w\xff", 4, 1000, 48);
    end(1);
    ends_as(FSDPCK_BADINPUT, "H5-NAME");
    release();
}

static void left(hdf5_left why, const char *name)
{
    put_u8(&t.put, why);
    put_words(name);
    put_record(&t.put, HDF5_LEFT);
}

Test(hdf5_build, what_is_left_out_is_told_once_with_its_number)
{
    static const char *const texts[] = {"a", "b/c", "d", "e"};
    char longest[5000];
    begin();
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (unsigned i = 0; i < 4; i++)
        left(HDF5_LEFT_TEXT, texts[i]);
    left(HDF5_LEFT_NULL, "none");
    for (unsigned i = 0; i < 3; i++)
        left(HDF5_LEFT_DANGLING, longest);
    end(0);
    ends_as(FSDPCK_OK, "");
    const char *rest = strstr(t.said, "H5-DANGLING 3 soft links point to nothing: 'xxx");
    cr_assert_not_null(rest, "%s", t.said);
    cr_assert(strlen(rest) < 400 && strchr(rest, '\n') == rest + strlen(rest) - 1, "%s", rest);
    t.said[rest - t.said] = '\0';
    cr_assert_str_eq(t.said,
                     "H5-LEFT-OUT 4 datasets hold text and are left out: 'a', 'b/c', 'd', ...\n"
                     "H5-LEFT-OUT 1 dataset has a null dataspace and is left out: 'none'\n");
    cr_assert_eq(t.cat.origin.left_out, 8);
    cr_assert_str_eq(t.cat.origin.left_out_kinds,
                     "4 datasets of text, 1 dataset with a null dataspace, 3 links to nothing");
    release();
}

Test(hdf5_build, nobody_is_told_addresses_of_memory)
{
    static const char *const texts[][2] = {
        {"ran off the end of the buffer: current p = 0x55d9284b4b08, p_size = 40",
         "ran off the end of the buffer"},
        {"address = 0x30: not there", "address = 0x30: not there"},
        {"bad: very", "bad: very"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        begin();
        put_u8(&t.put, HDF5_FAIL_OBJECT);
        put_words("w");
        put_words(texts[i][0]);
        put_record(&t.put, HDF5_FAIL);
        ends_as(FSDPCK_BADINPUT, "H5-DAMAGED");
        cr_assert_str_eq(t.err.found, texts[i][1]);
        release();
    }
}

/* Where there are checksums a version that the library does not know is no damage. */
Test(hdf5_build, what_is_newer_is_told_from_damage)
{
    static const struct {
        bool is_checked_elsewhere;
        hdf5_fail why;
        const char *text;
        bool is_newer;
    } cases[] = {
        {true, HDF5_FAIL_OBJECT, "bad version number for datatype message", true},
        {true, HDF5_FAIL_OPEN, "bad version number for layout message", true},
        {true, HDF5_FAIL_OBJECT, "wrong version number in dataspace message", true},
        {false, HDF5_FAIL_OBJECT, "bad version number for datatype message", false},
        {true, HDF5_FAIL_OBJECT, "bad object header version number", false},
        {true, HDF5_FAIL_OBJECT, "unable to load layout message", false},
        {true, HDF5_FAIL_OBJECT, "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin();
        t.is_checked_elsewhere = cases[i].is_checked_elsewhere;
        put_u8(&t.put, cases[i].why);
        put_words("w");
        put_words(cases[i].text);
        put_record(&t.put, HDF5_FAIL);
        ends_as(cases[i].is_newer ? FSDPCK_UNSUPPORTED : FSDPCK_BADINPUT,
                cases[i].is_newer ? "H5-NEWER" : "H5-DAMAGED");
        cr_assert_str_eq(t.err.expected,
                         cases[i].is_newer ? "a file that HDF5 1.2.3 can read" : "");
        cr_assert_str_eq(t.err.found, cases[i].text);
        release();
    }
}

Test(hdf5_build, records_that_are_none)
{
    for (unsigned i = 0; i < 6; i++) {
        begin();
        contiguous("w", 4, 1000, 48);
        switch (i) {
        case 0:
            break; /* no END */
        case 1:
            end(2);
            break; /* of another number */
        case 2:
            put_record(&t.put, 99);
            break; /* of no kind */
        case 3:
            put_record(&t.put, HDF5_INLINE);
            break; /* of a contiguous one */
        case 4:
            put_u8(&t.put, 0);
            put_record(&t.put, HDF5_HELLO);
            break;
        default:
            put_u64(&t.put, 1); /* AGAIN with an unknown index */
            put_words("x");
            put_record(&t.put, HDF5_LINK);
        }
        ends_as(FSDPCK_BADINPUT, "H5-DAMAGED");
        release();
    }
}
