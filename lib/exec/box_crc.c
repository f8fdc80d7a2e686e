#include "exec/box_crc.h"

#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "state/box.h"

/* Rows with at least this many runs use tables. */
#define ROW_RUNS_MIN 48u

/* The runs of a box in its tensor. */
typedef struct runs {
    unsigned ndim;              /* dims that a run does not cover */
    uint64_t sizes[NDIM_MAX];   /* outermost first */
    uint64_t strides[NDIM_MAX]; /* bytes of the tensor */
    uint64_t run;               /* bytes */
    uint64_t base;              /* of the box's first byte in the tensor */
    uint64_t nbytes;            /* of the tensor */
} runs;

static void find_runs(const box_bytes *b, runs *r)
{
    uint64_t stride = b->itemsize_bytes;
    unsigned at = NDIM_MAX; /* filled from the end */
    bool covered = true;    /* the run covers all dims so far */
    r->run = b->itemsize_bytes;
    r->base = 0;
    for (unsigned d = b->ndim; d-- > 0;) {
        if (covered) {
            r->run = b->sizes[d] * stride;
            covered = b->sizes[d] == b->shape[d];
        } else if (b->sizes[d] > 1) {
            const bool joined = at < NDIM_MAX && r->strides[at] * r->sizes[at] == stride;
            at -= !joined;
            r->sizes[at] = joined ? r->sizes[at] * b->sizes[d] : b->sizes[d];
            r->strides[at] = joined ? r->strides[at] : stride;
        }
        r->base += b->offsets[d] * stride;
        stride *= b->shape[d];
    }
    r->nbytes = stride;
    r->ndim = NDIM_MAX - at;
    memmove(r->sizes, r->sizes + at, r->ndim * sizeof *r->sizes);
    memmove(r->strides, r->strides + at, r->ndim * sizeof *r->strides);
}

/* Where run `number` begins in the tensor; *left: runs of its row from it on. */
static uint64_t run_begin(const runs *r, uint64_t number, uint64_t *left)
{
    uint64_t at = r->base;
    *left = 1;
    for (unsigned d = r->ndim; d-- > 0;) {
        const uint64_t index = number % r->sizes[d];
        if (d + 1 == r->ndim)
            *left = r->sizes[d] - index;
        at += index * r->strides[d];
        number /= r->sizes[d];
    }
    return at;
}

/* Runs of at most this many bytes are summed word by word: calls for so few bytes take longer. */
#define WORDS_RUN_MAX 40u
/* Fewer words than this are one sum. */
#define SUMS_COUNT_MIN 1024u

/* Words at the same place of `count` runs. Each is (load << up) & mask. */
typedef struct word_column {
    const uint8_t *bytes;
    uint64_t run;
    uint64_t count;
    uint64_t mask;
    unsigned up;
} word_column;

static inline uint64_t word_at(const word_column *c, uint64_t i)
{
    return load_le64(c->bytes + i * c->run) << c->up & c->mask;
}

/* Sum of the words, each moved by the step from the next one. Four sums at a time: each waits for its last value. */
static uint64_t sum_words(const crc64_shifter *step, uint64_t step_nbytes, const word_column *c)
{
    const uint64_t quarter = c->count >= SUMS_COUNT_MIN ? c->count / 4 : 0;
    uint64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (uint64_t i = 0; i < quarter; i++) {
        s0 = crc64_shift_by(step, s0) ^ word_at(c, i);
        s1 = crc64_shift_by(step, s1) ^ word_at(c, quarter + i);
        s2 = crc64_shift_by(step, s2) ^ word_at(c, 2 * quarter + i);
        s3 = crc64_shift_by(step, s3) ^ word_at(c, 3 * quarter + i);
    }
    for (uint64_t i = 4 * quarter; i < c->count; i++)
        s3 = crc64_shift_by(step, s3) ^ word_at(c, i);
    if (quarter == 0)
        return s3;
    const uint64_t power = crc64_power(step_nbytes * quarter);
    const uint64_t last = crc64_power(step_nbytes * (c->count - 3 * quarter));
    const uint64_t first = crc64_multiply(crc64_multiply(s0, power) ^ s1, power) ^ s2;
    return crc64_multiply(first, last) ^ s3;
}

/* A run of at most 8 bytes as the word whose raw CRC, moved down by 8 bytes, it is. */
static uint64_t thin_word(const uint8_t *bytes, uint64_t nbytes)
{
    uint64_t word = 0;
    for (uint64_t i = 0; i < nbytes; i++)
        word |= (uint64_t)bytes[i] << 8 * (8 - nbytes + i);
    return word;
}

/* Runs of at most 8 bytes. */
static uint64_t thin_row_crc(const runs *r, const crc64_shifter *step, const uint8_t *bytes,
                             uint64_t count)
{
    const uint64_t after = 7 / r->run; /* runs without 8 bytes from their begin on */
    const uint64_t full = count > after ? count - after : 0;
    const word_column c = {bytes, r->run, full, UINT64_MAX, (unsigned)(8 * (8 - r->run))};
    uint64_t sum = sum_words(step, r->strides[r->ndim - 1], &c);
    for (uint64_t i = full; i < count; i++)
        sum = crc64_shift_by(step, sum) ^ thin_word(bytes + i * r->run, r->run);
    return crc64_shift(sum, 8);
}

/* Raw CRC of `count` runs of a row, the last one's end being the end of all. */
static uint64_t row_crc(const runs *r, const crc64_shifter *step, const uint8_t *bytes,
                        uint64_t count)
{
    const uint64_t run = r->run, rest = run % 8, step_nbytes = r->strides[r->ndim - 1];
    uint64_t sum = 0;
    if (run <= 8)
        return thin_row_crc(r, step, bytes, count);
    if (run > WORDS_RUN_MAX) {
        for (uint64_t i = 0; i < count; i++)
            sum = crc64_shift_by(step, sum) ^ crc64_raw(0, bytes + i * run, run);
        return sum;
    }
    for (uint64_t at = 0; at + 8 <= run; at += 8) {
        const word_column c = {bytes + at, run, count, UINT64_MAX, 0};
        sum ^= crc64_shift(sum_words(step, step_nbytes, &c), run - at);
    }
    if (rest == 0)
        return sum;
    const word_column c = {bytes + run - 8, run, count, UINT64_MAX << 8 * (8 - rest), 0};
    return sum ^ crc64_shift(sum_words(step, step_nbytes, &c), 8);
}

/* A shift distance that is used repeatedly. */
typedef struct known_move {
    uint64_t nbytes, power;
} known_move;

static uint64_t move_known(known_move *k, uint64_t raw, uint64_t nbytes)
{
    if (raw == 0)
        return 0;
    if (k->nbytes != nbytes)
        *k = (known_move){nbytes, crc64_power(nbytes)};
    return crc64_multiply(raw, k->power);
}

uint64_t box_crc(const box_bytes *b, uint64_t begin, uint64_t end, const uint8_t *bytes)
{
    runs r;
    crc64_shifter step;
    bool have_step = false;
    known_move in_row = {0}, to_row = {0};
    find_runs(b, &r);
    uint64_t sum = 0, summed_to = 0; /* of the tensor */
    for (uint64_t at = begin; at < end;) {
        uint64_t left = 1;
        const uint64_t skip = at % r.run;
        const uint64_t from = run_begin(&r, at / r.run, &left) + skip;
        const uint64_t whole = skip > 0 ? 0 : (end - at) / r.run < left ? (end - at) / r.run : left;
        uint64_t nbytes, to, crc;
        if (whole >= ROW_RUNS_MIN) {
            if (!have_step)
                crc64_shifter_init(&step, r.strides[r.ndim - 1]);
            have_step = true;
            nbytes = whole * r.run;
            to = from + (whole - 1) * r.strides[r.ndim - 1] + r.run;
            crc = row_crc(&r, &step, bytes, whole);
        } else {
            nbytes = r.run - skip < end - at ? r.run - skip : end - at;
            to = from + nbytes;
            crc = crc64_raw(0, bytes, nbytes);
        }
        const bool next = r.ndim > 0 && to - summed_to == r.strides[r.ndim - 1];
        sum = move_known(next ? &in_row : &to_row, sum, to - summed_to) ^ crc;
        summed_to = to;
        bytes += nbytes;
        at += nbytes;
    }
    return crc64_shift(sum, r.nbytes - summed_to);
}

bool box_is_run(const box_bytes *b, uint64_t begin, uint64_t end, uint64_t *after_nbytes)
{
    runs r;
    uint64_t left;
    find_runs(b, &r);
    if (begin / r.run != (end - 1) / r.run)
        return false;
    *after_nbytes =
        r.nbytes - (run_begin(&r, begin / r.run, &left) + begin % r.run) - (end - begin);
    return true;
}
