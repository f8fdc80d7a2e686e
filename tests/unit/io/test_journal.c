#include "io/journal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/scratch.h"

/* 72 bytes, two sources, two outputs, three hashes, the CRC */
enum { HEADER_BYTES = 72 + 2 * 16 + 2 * 8 + 3 * 8 + 8, RANGES = 3 };

static char dir[SCRATCH_BYTES];
static folder parent;
static journal_header header;
static journal j;
static fsdpck_error err;

static void begin(void)
{
    scratch_make(dir);
    cr_assert_eq(folder_open(&parent, dir, &err), FSDPCK_OK);
    journal_header_init(&header, NULL);
    header.program = 1;
    header.partial_ino = 3;
    const journal_source sources[] = {{100, 11}, {200, 12}};
    const uint64_t outputs[] = {1000, 5000}, hashes[] = {31, 32, 33};
    cr_assert_eq(vec_add_n(&header.sources, sources, 2, &err), FSDPCK_OK);
    cr_assert_eq(vec_add_n(&header.outputs, outputs, 2, &err), FSDPCK_OK);
    cr_assert_eq(vec_add_n(&header.plan, hashes, 3, &err), FSDPCK_OK);
}

static void end(void)
{
    journal_header_release(&header);
    folder_close(&parent);
    scratch_remove(dir);
}

TestSuite(journal, .init = begin, .fini = end);

static const journal_range ranges[RANGES] = {
    {.file = 1, .offset_bytes = 4096, .nbytes = 904, .crc64 = 77},
    {.file = 0, .offset_bytes = 0, .nbytes = 1000, .crc64 = 88, .count = 9},
    {.file = 1, .offset_bytes = 0, .nbytes = 4096, .crc64 = 99},
};

static uint8_t *make(size_t *nbytes)
{
    journal_writer *w;
    journal_lock lock;
    char *text;
    cr_assert_eq(journal_create(&w, &parent, "j", &header, &lock, &err), FSDPCK_OK);
    cr_assert_eq(lock, JOURNAL_LOCKED);
    for (size_t i = 0; i < RANGES; i++)
        journal_add(w, &ranges[i]);
    cr_assert_eq(journal_added(w), RANGES);
    journal_close(w);
    cr_assert_eq(file_read_whole(&parent, "j", 1 << 20, &text, nbytes, &err), FSDPCK_OK);
    cr_assert_eq(*nbytes, HEADER_BYTES + RANGES * JOURNAL_RECORD_BYTES);
    return (uint8_t *)text;
}

Test(journal, ranges_are_found_by_place)
{
    size_t nbytes, at;
    free(make(&nbytes));
    cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK, "%s", err.message);
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_SAME);
    cr_assert_eq(j.ranges.count, RANGES);
    cr_assert_eq(j.nbytes, 904 + 1000 + 4096);
    cr_assert_eq(j.torn_nbytes, 0);
    cr_assert(journal_covers(&j, 1, 0, 5000));
    cr_assert(journal_covers(&j, 1, 4096, 5000));
    cr_assert(journal_covers(&j, 0, 0, 1000));
    cr_assert(!journal_covers(&j, 0, 0, 999));
    cr_assert(!journal_covers(&j, 1, 1, 4096));
    cr_assert(!journal_covers(&j, 2, 0, 1));
    cr_assert_eq(journal_find(&j, 0, 0, 1000)->count, 9);
    cr_assert_eq(journal_find(&j, 1, 0, 5000)->crc64, 99);
    journal_release(&j);
}

Test(journal, the_last_record_of_a_range_counts)
{
    journal_writer *w;
    journal_lock lock;
    journal_range again = ranges[1];
    size_t nbytes;
    free(make(&nbytes));
    cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK);
    cr_assert_eq(journal_open(&w, &parent, "j", &lock, &err), FSDPCK_OK);
    cr_assert_eq(journal_continue(w, &j, &err), FSDPCK_OK);
    again.crc64 = 5;
    journal_add(w, &again);
    journal_close(w);
    journal_release(&j);
    cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK);
    cr_assert_eq(j.ranges.count, RANGES);
    cr_assert_eq(j.nbytes, 904 + 1000 + 4096);
    cr_assert_eq(journal_find(&j, 0, 0, 1000)->crc64, 5);
    journal_release(&j);
}

/* A kill, a full disk or a crash cuts the file anywhere. */
Test(journal, cut_at_every_byte)
{
    size_t nbytes;
    uint8_t *bytes = make(&nbytes);
    for (size_t n = 0; n < nbytes; n++) {
        uint8_t *part = malloc(n + 1);
        memcpy(part, bytes, n);
        const fsdpck_status st = journal_parse(&j, part, n, NULL, &err);
        if (n < HEADER_BYTES) {
            cr_assert_eq(st, FSDPCK_BADINPUT, "%zu bytes", n);
        } else {
            const size_t records = (n - HEADER_BYTES) / JOURNAL_RECORD_BYTES;
            cr_assert_eq(st, FSDPCK_OK, "%zu bytes", n);
            cr_assert_eq(j.ranges.count, records, "%zu bytes", n);
            cr_assert_eq(j.torn_nbytes, (n - HEADER_BYTES) % JOURNAL_RECORD_BYTES);
        }
        journal_release(&j);
        free(part);
    }
    free(bytes);
}

Test(journal, a_changed_byte_ends_it)
{
    size_t nbytes;
    uint8_t *bytes = make(&nbytes);
    for (size_t n = 0; n < nbytes; n++) {
        bytes[n] ^= 0x10;
        const fsdpck_status st = journal_parse(&j, bytes, nbytes, NULL, &err);
        bytes[n] ^= 0x10;
        if (n < HEADER_BYTES) {
            cr_assert_neq(st, FSDPCK_OK, "byte %zu", n);
        } else {
            cr_assert_eq(st, FSDPCK_OK, "byte %zu", n);
            cr_assert_eq(j.ranges.count, (n - HEADER_BYTES) / JOURNAL_RECORD_BYTES, "byte %zu", n);
        }
        journal_release(&j);
    }
    free(bytes);
}

Test(journal, the_torn_end_is_cut_off)
{
    journal_writer *w;
    journal_lock lock;
    size_t nbytes;
    char *text;
    uint8_t *bytes = make(&nbytes);
    cr_assert_eq(truncate(scratch_path((char[SCRATCH_BYTES]){0}, dir, "j"), (off_t)nbytes - 1), 0);
    cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK);
    cr_assert_eq(j.torn_nbytes, JOURNAL_RECORD_BYTES - 1);
    cr_assert_eq(journal_open(&w, &parent, "j", &lock, &err), FSDPCK_OK);
    cr_assert_eq(journal_continue(w, &j, &err), FSDPCK_OK);
    journal_add(w, &ranges[2]);
    journal_close(w);
    journal_release(&j);
    cr_assert_eq(file_read_whole(&parent, "j", 1 << 20, &text, &nbytes, &err), FSDPCK_OK);
    cr_assert(memcmp(text, bytes, nbytes) == 0);
    free(text);
    free(bytes);
}

Test(journal, records_of_another_journal_are_not_accepted)
{
    size_t nbytes;
    uint8_t *first = make(&nbytes);
    cr_assert_eq(unlink(scratch_path((char[SCRATCH_BYTES]){0}, dir, "j")), 0);
    *VEC_AT(&header.plan, uint64_t, 0) = 4;
    uint8_t *second = make(&nbytes);
    memcpy(second + HEADER_BYTES, first + HEADER_BYTES, nbytes - HEADER_BYTES);
    cr_assert_eq(journal_parse(&j, second, nbytes, NULL, &err), FSDPCK_OK);
    cr_assert_eq(j.ranges.count, 0);
    journal_release(&j);
    free(first);
    free(second);
}

Test(journal, newer_version)
{
    size_t nbytes;
    uint8_t *bytes = make(&nbytes);
    bytes[8] = JOURNAL_VERSION + 1;
    cr_assert_eq(journal_parse(&j, bytes, nbytes, NULL, &err), FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(err.message, "the journal has the newer version 3");
    journal_release(&j);
    free(bytes);
}

/* A record whose CRC is right, but whose range is outside its file. */
Test(journal, range_outside_its_file)
{
    static const journal_range outside[] = {
        {.file = 2, .offset_bytes = 0, .nbytes = 1},
        {.file = 0, .offset_bytes = 1000, .nbytes = 1},
        {.file = 0, .offset_bytes = UINT64_MAX, .nbytes = 2},
        {.file = 0, .offset_bytes = 0, .nbytes = 0},
    };
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        journal_writer *w;
        journal_lock lock;
        cr_assert_eq(journal_create(&w, &parent, "j", &header, &lock, &err), FSDPCK_OK);
        journal_add(w, &outside[i]);
        journal_add(w, &ranges[0]);
        journal_close(w);
        cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK);
        cr_assert_eq(j.ranges.count, 0, "range %zu", i);
        cr_assert_eq(j.torn_nbytes, 2 * JOURNAL_RECORD_BYTES);
        journal_release(&j);
        cr_assert_eq(unlink(scratch_path((char[SCRATCH_BYTES]){0}, dir, "j")), 0);
    }
}

Test(journal, differences_are_named_in_order)
{
    size_t nbytes, at;
    free(make(&nbytes));
    cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK);
    ++*VEC_AT(&header.outputs, uint64_t, 0);
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PLAN);
    cr_assert_eq(at, 3);
    ++*VEC_AT(&header.plan, uint64_t, 2);
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PLAN);
    cr_assert_eq(at, 2);
    ++*VEC_AT(&header.plan, uint64_t, 1);
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PLAN);
    cr_assert_eq(at, 1);
    header.plan.count = 2;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PLAN);
    header.plan.count = 1;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PLAN);
    cr_assert_eq(at, 1);
    VEC_AT(&header.sources, journal_source, 1)->identity++;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_SOURCE);
    cr_assert_eq(at, 1);
    VEC_AT(&header.sources, journal_source, 0)->nbytes++;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_SOURCE);
    cr_assert_eq(at, 0);
    header.sources.count--;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_SOURCE_COUNT);
    header.ranks = 2;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_RANKS);
    header.program++;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PROGRAM);
    header.partial_ino++;
    cr_assert_eq(journal_compare(&j.header, &header, &at), JOURNAL_PARTIAL);
    journal_release(&j);
}

/* A file is read in pieces: ranges of several, and the memory of none beyond the budget. */
Test(journal, a_long_file_is_read_in_pieces)
{
    enum { MANY = 10000 };
    journal_writer *w;
    journal_lock lock;
    budget b;
    char path[SCRATCH_BYTES];
    *VEC_AT(&header.outputs, uint64_t, 1) = UINT64_C(4096) * MANY;
    cr_assert_eq(journal_create(&w, &parent, "j", &header, &lock, &err), FSDPCK_OK);
    for (uint64_t i = 0; i < MANY; i++)
        journal_add(w, &(journal_range){.file = 1, .offset_bytes = (MANY - 1 - i) * 4096,
                                        .nbytes = 4096, .crc64 = i});
    journal_close(w);
    budget_init(&b, 1 << 20, "metadata", NULL);
    cr_assert_eq(journal_read(&j, &parent, "j", &b, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(j.ranges.count, MANY);
    cr_expect_eq(j.torn_nbytes, 0);
    cr_expect(journal_covers(&j, 1, 0, UINT64_C(4096) * MANY));
    cr_expect_eq(journal_find(&j, 1, 0, 4096)->crc64, MANY - 1);
    journal_release(&j);
    cr_expect_eq(b.used_bytes, 0);
    /* A budget that is too small is an error, and nothing else. */
    budget_init(&b, 1 << 18, "metadata", NULL);
    cr_expect_eq(journal_read(&j, &parent, "j", &b, &err), FSDPCK_LIMIT);
    journal_release(&j);
    cr_expect_eq(b.used_bytes, 0);
    /* Torn in the second piece. */
    cr_assert_eq(truncate(scratch_path(path, dir, "j"),
                          HEADER_BYTES + 5000 * JOURNAL_RECORD_BYTES + 13), 0);
    cr_assert_eq(journal_read(&j, &parent, "j", NULL, &err), FSDPCK_OK);
    cr_expect_eq(j.ranges.count, 5000);
    cr_expect_eq(j.torn_nbytes, 13);
    journal_release(&j);
}

Test(journal, older_version)
{
    size_t nbytes;
    uint8_t *bytes = make(&nbytes);
    bytes[8] = 1;
    cr_assert_eq(journal_parse(&j, bytes, nbytes, NULL, &err), FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(err.message, "the journal has the older version 1");
    journal_release(&j);
    free(bytes);
}

Test(journal, is_one_by_its_first_bytes)
{
    size_t nbytes;
    free(make(&nbytes));
    scratch_write(dir, "empty", "", 0);
    scratch_write(dir, "cut", "fsdpc", 5);
    scratch_write(dir, "text", "fsdpck is a program", 19);
    cr_expect(journal_is(&parent, "j"));
    cr_expect(journal_is(&parent, "empty"));
    cr_expect(journal_is(&parent, "cut"));
    cr_expect(!journal_is(&parent, "text"));
    cr_expect(!journal_is(&parent, "absent"));
}

Test(journal, a_writer_holds_its_file)
{
    journal_writer *w, *second;
    journal_lock lock;
    cr_assert_eq(journal_create(&w, &parent, "j", &header, &lock, &err), FSDPCK_OK);
    cr_assert_eq(journal_open(&second, &parent, "j", &lock, &err), FSDPCK_OK);
    cr_assert_eq(lock, JOURNAL_BUSY);
    cr_assert_null(second);
    journal_close(w);
    cr_assert_eq(journal_open(&second, &parent, "j", &lock, &err), FSDPCK_OK);
    cr_assert_eq(lock, JOURNAL_LOCKED);
    journal_close(second);
}
