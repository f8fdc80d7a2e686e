/* `.metadata` read by the condensed reader: the same records as by the reader of whole files. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/dcp_pickle.h"
#include "tests/support/metadata_pair.h"

/* Opcodes after PROTO. */
static text_buf opcodes_of(const dcp_pickle *spec)
{
    text_buf made = {0};
    dcp_pickle_make(spec, &made);
    cr_assert(!made.failed && memcmp(made.text, "\x80\x04", 2) == 0);
    memmove(made.text, made.text + 2, made.nbytes - 2);
    made.nbytes -= 2;
    return made;
}

static bool read_framed(const text_buf *opcodes, size_t frame_nbytes, size_t window_nbytes,
                        unsigned nthreads)
{
    text_buf framed = {0};
    metadata_frames((const uint8_t *)opcodes->text, opcodes->nbytes, frame_nbytes, &framed);
    const bool done = metadata_pair_equal((const uint8_t *)framed.text, framed.nbytes,
                                          window_nbytes, nthreads, false);
    text_release(&framed);
    return done;
}

static const dcp_pickle small = {
    .ntensors = 3, .nranks = 4, .rows = 2, .cols = 5, .blob_nbytes = 100, .hints = 1};

Test(condense, any_window_and_frames)
{
    static const size_t frames[] = {0, 4097, 65536, 1 << 20};
    const dcp_pickle spec = {
        .ntensors = 7, .nranks = 2100, .rows = 40, .cols = 5, .blob_nbytes = 100000, .hints = 1};
    text_buf opcodes = opcodes_of(&spec);
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++)
        for (size_t window = 0; window < 40000; window += 9000 + window / 3)
            for (unsigned nthreads = 0; nthreads <= 4; nthreads += 2)
                cr_assert(read_framed(&opcodes, frames[i], window, nthreads),
                          "frames of %zu, window of %zu, %u threads", frames[i], window, nthreads);
    text_release(&opcodes);
}

Test(condense, hints_and_order)
{
    for (int reversed = 0; reversed < 2; reversed++) {
        for (int hints = 0; hints < 3; hints++) {
            dcp_pickle spec = small;
            spec.hints = hints;
            spec.reversed = reversed;
            text_buf opcodes = opcodes_of(&spec);
            for (size_t frame = 60; frame < 900; frame++)
                (void)read_framed(&opcodes, frame, 0, 1); /* too many frames are left alone */
            cr_assert(read_framed(&opcodes, 0, 0, 1));
            text_release(&opcodes);
        }
    }
}

static uint8_t *read_file(const char *path, size_t *nbytes)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    uint8_t *bytes = malloc(1 << 20);
    *nbytes = fread(bytes, 1, 1 << 20, f);
    cr_assert(feof(f));
    fclose(f);
    return bytes;
}

Test(condense, all_that_torch_wrote)
{
    const char *root = getenv("FIXTURES");
    char pattern[4096];
    glob_t found;
    cr_assert_not_null(root, "FIXTURES is not set");
    snprintf(pattern, sizeof pattern, "%s/torch-*/*/.metadata", root);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
    cr_assert_gt(found.gl_pathc, 50);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t nbytes;
        uint8_t *bytes = read_file(found.gl_pathv[i], &nbytes);
        cr_assert(metadata_pair_equal(bytes, nbytes, 0, 1, false), "%s", found.gl_pathv[i]);
        cr_assert(metadata_pair_equal(bytes, nbytes, 9000, 1, false), "%s", found.gl_pathv[i]);
        free(bytes);
    }
    globfree(&found);
}

/* Each is an error, or not as Python writes it. */
Test(condense, what_is_left_to_the_other_reader)
{
    text_buf opcodes = opcodes_of(&small), framed = {0};
    metadata_frames((const uint8_t *)opcodes.text, opcodes.nbytes, 0, &framed);
    text_append(&framed, "\0\0\0\0", 4);
    uint8_t *bytes = (uint8_t *)framed.text;
    const size_t nbytes = framed.nbytes - 4;
    cr_assert(metadata_pair_equal(bytes, nbytes, 0, 1, false));
    for (size_t n = 0; n < nbytes; n++)
        cr_assert(!metadata_pair_equal(bytes, n, 0, 1, false), "cut after %zu bytes", n);
    for (size_t n = 1; n <= 4; n++)
        cr_assert(!metadata_pair_equal(bytes, nbytes + n, 0, 1, false), "%zu bytes more", n);
    for (uint8_t protocol = 0; protocol < 8; protocol++) {
        bytes[1] = protocol;
        cr_assert_eq(metadata_pair_equal(bytes, nbytes, 0, 1, false),
                     protocol == 4 || protocol == 5);
    }
    bytes[1] = 4;
    bytes[3] ^= 1; /* the frame's length */
    cr_assert(!metadata_pair_equal(bytes, nbytes, 0, 1, false));
    text_release(&opcodes);
    text_release(&framed);
}

/* Threads match blocks before what precedes them is known: with a wrong byte somewhere, all threads
 * together accept the same files as one, with the same records. */
Test(condense, one_wrong_byte_and_threads)
{
    const dcp_pickle spec = {
        .ntensors = 3, .nranks = 300, .rows = 40, .cols = 5, .blob_nbytes = 100000, .hints = 1};
    text_buf opcodes = opcodes_of(&spec);
    size_t done = 0, left = 0;
    for (size_t at = 0, step = 1; at < opcodes.nbytes; at += step, step = step * 7 % 401) {
        const char was = opcodes.text[at];
        opcodes.text[at] = (char)(was ^ (1 << at % 8));
        const bool one = read_framed(&opcodes, 4097, 9000, 1);
        cr_assert_eq(read_framed(&opcodes, 4097, 9000, 3), one, "byte %zu", at);
        done += one;
        left += !one;
        opcodes.text[at] = was;
    }
    cr_assert(done > 100 && left > 100, "%zu read, %zu left to the other reader", done, left);
    text_release(&opcodes);
}

/* One byte of the opcodes, of any value: never another result than that of the other reader. */
Test(condense, one_wrong_byte)
{
    text_buf opcodes = opcodes_of(&small);
    size_t done = 0;
    for (size_t at = 0; at < opcodes.nbytes; at++) {
        const char was = opcodes.text[at];
        for (int bit = 0; bit < 8; bit++) {
            opcodes.text[at] = (char)(was ^ (1 << bit));
            done += read_framed(&opcodes, 0, 0, 1);
        }
        opcodes.text[at] = was;
    }
    cr_assert_gt(done, 100); /* numbers and names may have any value */
    text_release(&opcodes);
}
