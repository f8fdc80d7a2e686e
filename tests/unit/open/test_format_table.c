#include <criterion/criterion.h>

#include "formats/format.h"

Test(format_table, ids_are_of_one_format)
{
    for (size_t i = 0; format_readers[i] != NULL; i++) {
        const format_reader *r = format_readers[i];
        cr_expect_neq(r->id, FSDPCK_FORMAT_NONE, "%s", r->name);
        cr_expect_eq(format_reader_named(r->name), r, "%s", r->name);
        for (size_t k = 0; k < i; k++)
            cr_expect_neq(format_readers[k]->id, r->id, "%s", r->name);
    }
    for (size_t i = 0; format_writers[i] != NULL; i++) {
        const format_writer *w = format_writers[i];
        cr_expect_neq(w->id, FSDPCK_FORMAT_NONE, "%s", w->name);
        cr_expect_eq(format_writer_named(w->name), w, "%s", w->name);
        for (size_t k = 0; k < i; k++)
            cr_expect_neq(format_writers[k]->id, w->id, "%s", w->name);
    }
    cr_expect_null(format_reader_named("fsdp1"));
    cr_expect_null(format_writer_named("hf-bin"));
    cr_expect_null(format_writer_named(""));
}

/* A reader leads to the writer of its format, by id and by name. */
Test(format_table, readers_and_writers_are_pairs)
{
    for (size_t i = 0; format_readers[i] != NULL; i++) {
        const format_reader *r = format_readers[i];
        cr_expect_eq(r->writer, format_writer_named(r->name), "%s", r->name);
        cr_expect(r->writer == NULL || r->writer->id == r->id, "%s", r->name);
    }
}

/* Each option has a writer that --format can name. */
Test(format_table, options_have_a_writer)
{
    static const unsigned options[] = {WRITER_ALIGN, WRITER_RANK_PATTERN, WRITER_DEVICE_TYPE,
                                       WRITER_TORCH, WRITER_HDF5_GROUPS,  WRITER_MAX_SHARD,
                                       WRITER_LIKE};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        unsigned writers = 0;
        for (size_t k = 0; format_writers[k] != NULL; k++)
            writers += (format_writers[k]->options & options[i]) != 0;
        cr_expect(writers > 0, "%u", options[i]);
    }
}
