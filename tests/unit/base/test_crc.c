#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"

/* One bit at a time, as the definition reads. */
static uint64_t bitwise(uint64_t crc, const uint8_t *p, size_t n, uint64_t polynomial,
                        uint64_t ones)
{
    crc ^= ones;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
    }
    return crc ^ ones;
}

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (uint8_t)(seed >> 24);
    }
}

Test(crc, check_values)
{
    cr_assert_eq(crc32_update(0, "123456789", 9), 0xCBF43926u);
    cr_assert_eq(crc64_update(0, "123456789", 9), UINT64_C(0x995DC9BBDF1939FA));
    cr_assert_eq(crc32_update(7, NULL, 0), 7);
    cr_assert_eq(crc64_update(7, NULL, 0), 7);
}

Test(crc, agree_with_the_definition_at_any_length_and_alignment)
{
    uint8_t b[700];
    fill(b, sizeof(b), 1);
    for (size_t begin = 0; begin < 17; begin++) {
        for (size_t n = 0; n < 600; n += 1 + n / 7) {
            cr_assert_eq(crc32_update(5, b + begin, n),
                         bitwise(5, b + begin, n, 0xEDB88320, UINT32_MAX));
            cr_assert_eq(crc64_update(5, b + begin, n),
                         bitwise(5, b + begin, n, UINT64_C(0xC96C5795D7870F42), UINT64_MAX));
        }
    }
}

Test(crc, zeros_are_those_of_so_many_bytes)
{
    uint8_t b[5000] = {0};
    for (size_t n = 0; n <= sizeof b; n += 1 + n / 9) {
        cr_assert_eq(crc32_zeros(n), crc32_update(0, b, n));
        cr_assert_eq(crc64_zeros(n), crc64_update(0, b, n));
    }
}

/* Stretches with holes, which others fill, add up to the CRC of the whole. */
Test(crc, elements_may_come_in_any_order)
{
    enum { N = 3000, ELEMENT = 4 };
    uint8_t whole[N], part[N];
    fill(whole, N, 5);
    uint64_t sum = crc64_zeros(N);
    for (size_t first = 0; first < 3; first++) {
        memset(part, 0, N);
        for (size_t at = first * ELEMENT; at + ELEMENT <= N; at += (size_t)3 * ELEMENT)
            memcpy(part + at, whole + at, ELEMENT);
        const size_t begin = first * ELEMENT, end = N - 100 * first;
        sum ^= crc64_join(crc64_update(0, part + begin, end - begin) ^ crc64_zeros(end - begin), 0,
                          N - end);
        sum ^= crc64_join(crc64_update(0, part + end, N - end) ^ crc64_zeros(N - end), 0, 0);
    }
    cr_assert_eq(sum, crc64_update(0, whole, N));
}

Test(crc, join_is_the_crc_of_both)
{
    enum { MOST = 70000 };
    uint8_t *b = malloc(MOST);
    fill(b, MOST, 2);
    for (size_t n = 0; n <= MOST; n += 1 + n / 3) {
        const size_t cuts[] = {0, n / 3, n / 2, n > 0 ? n - 1 : 0, n};
        for (size_t i = 0; i < 5; i++) {
            const size_t a = cuts[i];
            cr_assert_eq(crc32_join(crc32_update(0, b, a), crc32_update(0, b + a, n - a), n - a),
                         crc32_update(0, b, n));
            cr_assert_eq(crc64_join(crc64_update(0, b, a), crc64_update(0, b + a, n - a), n - a),
                         crc64_update(0, b, n));
        }
    }
    free(b);
}

/* What zlib's crc32_combine gives for lengths that no test can sum. */
Test(crc, join_over_long_lengths)
{
    static const struct {
        uint64_t nbytes_b;
        uint32_t joined;
    } rows[] = {
        {0, 0x88888888},
        {1, 0xC47013A8},
        {9, 0x50BC67AD},
        {4096, 0x43C8229E},
        {(1 << 20) + 1, 0x51CF46B1},
        {(UINT64_C(1) << 32) + 12345, 0xADA8BBB7},
        {(UINT64_C(1) << 40) - 1, 0x68E1669A},
        {(UINT64_C(1) << 62) + 7, 0xB044A3CD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_assert_eq(crc32_join(0x12345678, 0x9ABCDEF0, rows[i].nbytes_b), rows[i].joined,
                     "row %zu", i);
}

Test(crc, joins_in_any_grouping)
{
    const uint64_t n = UINT64_C(0x123456789ABC);
    const uint64_t a = 11, b = 22, c = 33;
    cr_assert_eq(crc64_join(crc64_join(a, b, n), c, 2 * n),
                 crc64_join(a, crc64_join(b, c, 2 * n), 3 * n));
}

Test(crc, raw_parts_move_to_their_places)
{
    enum { N = 5000 };
    uint8_t b[N];
    static crc64_shifter mover;
    fill(b, N, 9);
    for (size_t begin = 0; begin < N; begin = 3 * begin + 1)
        for (size_t end = begin; end < N; end += 1 + end / 2) {
            uint64_t sum = crc64_zeros(N);
            sum ^= crc64_shift(crc64_raw(0, b, begin), N - begin);
            const uint64_t raw = crc64_raw(0, b + begin, end - begin);
            crc64_shifter_init(&mover, N - end);
            cr_assert_eq(crc64_shift_by(&mover, raw), crc64_shift(raw, N - end));
            cr_assert_eq(crc64_multiply(raw, crc64_power(N - end)), crc64_shift(raw, N - end));
            sum ^= crc64_shift_by(&mover, raw) ^ crc64_raw(0, b + end, N - end);
            cr_assert_eq(sum, crc64_update(0, b, N));
        }
}
