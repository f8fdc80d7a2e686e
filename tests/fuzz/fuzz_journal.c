/* fuzz_journal: journals of finished ranges from arbitrary bytes.
 *
 * The bytes are parsed as they are, and with right checksums. In an accepted journal each range is inside its file, in order,
 * and found again; cut anywhere, the journal has a part of the ranges. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "io/journal.h"
#include "tests/support/must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { FIXED_BYTES = 72, CUTS = 8 };

static void check_ranges(const journal *j)
{
    const journal_range *last = NULL;
    uint64_t sum = 0;
    for (size_t i = 0; i < j->ranges.count; i++) {
        const journal_range *r = VEC_AT(&j->ranges, const journal_range, i);
        const uint64_t end = r->offset_bytes + r->nbytes;
        must(r->file < j->header.outputs.count, "a range of a file that does not exist");
        must(end > r->offset_bytes && end <= *VEC_AT(&j->header.outputs, uint64_t, r->file),
             "a range outside its file");
        must(last == NULL || last->file < r->file || last->offset_bytes < r->offset_bytes ||
                 last->nbytes > r->nbytes,
             "ranges are out of order");
        must(journal_find(j, r->file, r->offset_bytes, end) == r, "a range is not found");
        must(journal_covers(j, r->file, r->offset_bytes, end), "a range does not cover itself");
        sum = sum + r->nbytes < sum ? UINT64_MAX : sum + r->nbytes;
        last = r;
    }
    must(sum == j->nbytes || j->nbytes == UINT64_MAX, "another sum of bytes");
}

static void parse(const uint8_t *data, size_t nbytes, bool is_cut)
{
    budget b;
    journal j;
    fsdpck_error err;
    size_t at;
    fsdpck_error_init(&err);
    budget_init(&b, 64u << 20, "metadata", NULL);
    const fsdpck_status st = journal_parse(&j, data, nbytes, &b, &err);
    if (st == FSDPCK_OK) {
        must(j.valid_nbytes + j.torn_nbytes == nbytes, "bytes are lost");
        must(journal_compare(&j.header, &j.header, &at) == JOURNAL_SAME, "differs from itself");
        check_ranges(&j);
    } else {
        must(st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT,
             "refused with another status");
    }
    const size_t valid = st == FSDPCK_OK ? (size_t)j.valid_nbytes : 0;
    journal_release(&j);
    must(b.used_bytes == 0, "budget was not given back");
    for (size_t i = 1; !is_cut && i <= CUTS && i < valid; i++)
        parse(data, valid - i * valid / (CUTS + 1), true);
}

/* The same bytes with right checksums, as far as they are a journal. */
static void repair(uint8_t *bytes, size_t nbytes)
{
    if (nbytes < FIXED_BYTES + 8)
        return;
    const uint64_t sources = load_le64(bytes + 56), outputs = load_le64(bytes + 64),
                   hashes = load_le64(bytes + 24);
    if (sources > nbytes / 16 || outputs > nbytes / 8 || hashes > nbytes / 8)
        return;
    size_t at = (size_t)(FIXED_BYTES + 16 * sources + 8 * (outputs + hashes));
    if (at + 8 > nbytes)
        return;
    const uint64_t seed = crc64_update(0, bytes, at);
    store_le64(bytes + at, seed);
    for (at += 8; nbytes - at >= JOURNAL_RECORD_BYTES; at += JOURNAL_RECORD_BYTES)
        store_le64(bytes + at + 32, crc64_update(seed, bytes + at, 32));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    uint8_t *copy = malloc(nbytes + 1);
    must(copy != NULL, "out of memory");
    parse(data, nbytes, false);
    if (nbytes > 0)
        memcpy(copy, data, nbytes);
    repair(copy, nbytes);
    parse(copy, nbytes, false);
    free(copy);
    return 0;
}
