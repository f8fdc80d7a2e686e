/* The worked tables of torch's sharding arithmetic (torch 2.6, 2.14 and 2.15 gave these numbers). */
#include <criterion/criterion.h>
#include <string.h>

#include "layout/mesh_text.h"
#include "layout/shard_box.h"
#include "placement_words.h"

/* One dim, all ranks in order: "size@offset", blanks between. */
typedef struct line_case {
    uint64_t n;
    mesh mesh;
    placement placements[3];
    const char *expected;
} line_case;

#define MESH1(a)                   \
    {                              \
        .ndim = 1, .sizes = {(a) } \
    }
#define MESH2(a, b)                     \
    {                                   \
        .ndim = 2, .sizes = {(a), (b) } \
    }
#define MESH3(a, b, c)                       \
    {                                        \
        .ndim = 3, .sizes = {(a), (b), (c) } \
    }

static const line_case both_rules[] = {
    {10, MESH1(4), {S(0)}, "3@0 3@3 3@6 1@9"},
    {2, MESH2(2, 4), {S(0), S(0)}, "1@0 0@2 0@2 0@2 1@1 0@2 0@2 0@2"},
    {10, MESH2(2, 2), {S(0), S(0)}, "3@0 2@3 3@5 2@8"},
    {8, MESH2(2, 2), {SS(0, 2), S(0)}, "2@0 2@4 2@2 2@6"},
    {10, MESH2(2, 2), {SS(0, 2), S(0)}, "3@0 3@5 2@3 2@8"},
    {7, MESH2(2, 2), {SS(0, 2), S(0)}, "2@0 2@4 2@2 1@6"},
    {11, MESH2(2, 3), {SS(0, 3), S(0)}, "2@0 2@4 2@8 2@2 2@6 1@10"},
    {11, MESH2(3, 2), {SS(0, 2), S(0)}, "2@0 2@6 2@2 2@8 2@4 1@10"},
    {12, MESH3(2, 2, 2), {R, SS(0, 2), S(0)}, "3@0 3@6 3@3 3@9 3@0 3@6 3@3 3@9"},
    {16, MESH3(2, 2, 2), {SS(0, 4), S(0), S(0)}, "2@0 2@4 2@8 2@12 2@2 2@6 2@10 2@14"},
    {6, MESH1(4), {S(0)}, "2@0 2@2 2@4 0@6"},
    {5, MESH1(4), {S(0)}, "2@0 2@2 1@4 0@5"},
    {0, MESH2(2, 2), {SS(0, 2), S(0)}, "0@0 0@0 0@0 0@0"},
    {9, MESH1(2), {R}, "9@0 9@0"},
};

static void print_line(const line_case *c, shard_rule rule, text_buf *out)
{
    uint64_t coord[MESH_NDIM_MAX], offset, size;
    for (uint64_t rank = 0; rank < mesh_size(&c->mesh); rank++) {
        mesh_coord(&c->mesh, rank, coord);
        cr_assert_eq(
            shard_box(&c->mesh, c->placements, 1, &c->n, coord, rule, &offset, &size, NULL),
            FSDPCK_OK, "rank %d of %s", (int)rank, c->expected);
        text_printf(out, "%s%llu@%llu", rank > 0 ? " " : "", (unsigned long long)size,
                    (unsigned long long)offset);
    }
}

static void expect_line(const line_case *c, shard_rule rule)
{
    text_buf out = {0};
    print_line(c, rule, &out);
    cr_expect_str_eq(out.text, c->expected, "rule %d gives %s, expected %s", (int)rule, out.text,
                     c->expected);
    text_release(&out);
}

Test(piece, worked_tables)
{
    for (size_t i = 0; i < sizeof both_rules / sizeof *both_rules; i++) {
        expect_line(&both_rules[i], SHARD_RECORDED);
        expect_line(&both_rules[i], SHARD_PHYSICAL);
    }
}

Test(piece, two_dims)
{
    static const mesh m = MESH2(2, 2);
    static const placement both[] = {S(0), S(1)}, columns[] = {S(1), S(1)};
    static const uint64_t square[] = {5, 5}, wide[] = {2, 5};
    static const uint64_t expected[4][4] = {{0, 0, 3, 3}, {0, 3, 3, 2}, {3, 0, 2, 3}, {3, 3, 2, 2}};
    static const uint64_t expected_columns[4][2] = {{0, 2}, {2, 1}, {3, 1}, {4, 1}};
    for (uint64_t rank = 0; rank < 4; rank++) {
        uint64_t coord[MESH_NDIM_MAX], offsets[2], sizes[2];
        mesh_coord(&m, rank, coord);
        cr_assert_eq(shard_box(&m, both, 2, square, coord, SHARD_PHYSICAL, offsets, sizes, NULL),
                     FSDPCK_OK);
        cr_expect(offsets[0] == expected[rank][0] && offsets[1] == expected[rank][1]);
        cr_expect(sizes[0] == expected[rank][2] && sizes[1] == expected[rank][3]);
        cr_assert_eq(shard_box(&m, columns, 2, wide, coord, SHARD_RECORDED, offsets, sizes, NULL),
                     FSDPCK_OK);
        cr_expect(offsets[0] == 0 && sizes[0] == 2);
        cr_expect_eq(offsets[1], expected_columns[rank][0]);
        cr_expect_eq(sizes[1], expected_columns[rank][1]);
    }
}

static void expect_list(uint64_t n, uint64_t m_size, uint32_t factor, uint64_t rank,
                        const char *expected)
{
    const mesh m = MESH1(m_size);
    const placement p[] = {SS(0, factor)};
    shard_indices l;
    text_buf out = {0};
    shard_indices_init(&l, &m, p, 0, n, &rank);
    for (uint64_t j = 0; j < l.count; j++)
        text_printf(&out, "%s%llu", j > 0 ? "," : "", (unsigned long long)shard_indices_at(&l, j));
    cr_expect_str_eq(out.text, expected);
    cr_expect_not(shard_indices_is_run(&l));
    text_release(&out);
}

Test(piece, index_lists)
{
    expect_list(8, 2, 2, 0, "0,1,4,5");
    expect_list(8, 2, 2, 1, "2,3,6,7");
    expect_list(10, 2, 2, 0, "0,1,2,5,6,7");
    expect_list(10, 2, 2, 1, "3,4,8,9");
    expect_list(11, 2, 3, 0, "0,1,4,5,8,9");
    expect_list(11, 2, 3, 1, "2,3,6,7,10");
    expect_list(11, 3, 2, 0, "0,1,6,7");
    expect_list(11, 3, 2, 1, "2,3,8,9");
    expect_list(11, 3, 2, 2, "4,5,10");
}

/* No order makes [Shard(0), _StridedShard(0, 2)]; torch records the first index and the count of
 * lists with gaps (2@0, 2@1, 2@4, 2@5). */
Test(piece, not_decodable)
{
    static const mesh m = MESH2(2, 2);
    static const placement p[] = {S(0), SS(0, 2)};
    static const uint64_t n = 8;
    static const uint64_t lists[4][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}};
    for (uint64_t rank = 0; rank < 4; rank++) {
        uint64_t coord[MESH_NDIM_MAX], offset, size;
        shard_indices l;
        fsdpck_error err;
        mesh_coord(&m, rank, coord);
        cr_expect_eq(shard_box(&m, p, 1, &n, coord, SHARD_PHYSICAL, &offset, &size, &err),
                     FSDPCK_UNSUPPORTED);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), "LAYOUT-ORDER");
        cr_expect_eq(shard_box(&m, p, 1, &n, coord, SHARD_RECORDED, &offset, &size, &err),
                     FSDPCK_UNSUPPORTED);
        cr_expect_str_eq(fsdpck_finding_name(err.finding), "LAYOUT-RUN");
        shard_indices_init(&l, &m, p, 0, n, coord);
        cr_expect_eq(l.count, 2);
        cr_expect_eq(shard_indices_at(&l, 0), lists[rank][0]);
        cr_expect_eq(shard_indices_at(&l, 1), lists[rank][1]);
    }
}

/* Whether torch's record of FSDP2 with TP on one dim is wrong about the data. */
static bool disagree(uint64_t n, uint64_t fsdp, uint64_t tp)
{
    const mesh m = MESH2(fsdp, tp);
    const placement p[] = {SS(0, (uint32_t)tp), S(0)};
    for (uint64_t rank = 0; rank < fsdp * tp; rank++) {
        uint64_t coord[MESH_NDIM_MAX], a[2], b[2];
        mesh_coord(&m, rank, coord);
        if (shard_box(&m, p, 1, &n, coord, SHARD_RECORDED, &a[0], &a[1], NULL) != FSDPCK_OK)
            return true;
        cr_assert_eq(shard_box(&m, p, 1, &n, coord, SHARD_PHYSICAL, &b[0], &b[1], NULL), FSDPCK_OK);
        if (a[0] != b[0] || a[1] != b[1])
            return true;
    }
    return false;
}

/* The smallest, in the order of n. */
static void expect_disagreements(uint64_t most, bool powers, const uint64_t (*expected)[3],
                                 size_t count)
{
    size_t found = 0;
    for (uint64_t n = 1; found < count; n++) {
        for (uint64_t fsdp = 2; fsdp <= most; fsdp++) {
            for (uint64_t tp = 2; tp <= most && found < count; tp++) {
                if (powers && ((fsdp & (fsdp - 1)) != 0 || (tp & (tp - 1)) != 0))
                    continue;
                if (!disagree(n, fsdp, tp))
                    continue;
                cr_expect(n == expected[found][0] && fsdp == expected[found][1] &&
                              tp == expected[found][2],
                          "%d: (%d,%d,%d)", (int)found, (int)n, (int)fsdp, (int)tp);
                found++;
            }
        }
    }
}

Test(piece, where_the_record_is_wrong)
{
    static const uint64_t all[][3] = {{7, 3, 2},  {9, 4, 2},  {11, 3, 3},
                                      {13, 3, 2}, {14, 4, 3}, {15, 3, 4}};
    static const uint64_t powers[][3] = {{9, 4, 2}, {17, 4, 2}, {17, 8, 2}, {19, 4, 4}, {22, 4, 4}};
    expect_disagreements(4, false, all, sizeof all / sizeof *all);
    expect_disagreements(8, true, powers, sizeof powers / sizeof *powers);
}

/* torch 2.14, a bias of 9 on (4, 2): rank (3,0) records 1@8 and holds nothing, (3,1) the reverse. */
Test(piece, nine_on_four_by_two)
{
    static const line_case recorded = {
        9, MESH2(4, 2), {SS(0, 2), S(0)}, "2@0 1@5 2@2 1@6 1@4 1@7 1@8 0@9"};
    static const line_case physical = {
        9, MESH2(4, 2), {SS(0, 2), S(0)}, "2@0 1@5 2@2 1@6 1@4 1@7 0@9 1@8"};
    expect_line(&recorded, SHARD_RECORDED);
    expect_line(&physical, SHARD_PHYSICAL);
}

static void expect_order(const mesh *m, const placement *p, const char *expected)
{
    unsigned order[MESH_NDIM_MAX];
    unsigned count = 0;
    char text[MESH_NDIM_MAX + 1] = {0};
    cr_assert(shard_cut_order(m, p, 0, order, &count));
    for (unsigned i = 0; i < count; i++)
        text[i] = (char)('0' + order[i]);
    cr_expect_str_eq(text, expected);
}

Test(piece, orders)
{
    static const mesh two = MESH2(2, 2), three = MESH3(4, 3, 2), cube = MESH3(2, 2, 2);
    static const placement fsdp_tp[] = {SS(0, 2), S(0)}, mixed[] = {SS(0, 2), SS(0, 2), S(0)},
                           ep_tp[] = {SS(0, 4), S(0), S(0)}, plain[] = {S(0), S(0)},
                           none[] = {S(0), SS(0, 2)}, odd[] = {SS(0, 3), S(0)};
    unsigned order[MESH_NDIM_MAX];
    unsigned count;
    expect_order(&two, fsdp_tp, "10");
    expect_order(&two, plain, "01");
    expect_order(&three, mixed, "201");
    expect_order(&cube, ep_tp, "120");
    cr_expect_not(shard_cut_order(&two, none, 0, order, &count));
    cr_expect_not(shard_cut_order(&two, odd, 0, order, &count));
}

Test(piece, orders_written)
{
    static const mesh three = MESH3(4, 3, 2), cube = MESH3(2, 2, 2);
    static const unsigned tp_fsdp_last[] = {2, 0, 1}, ep_tp_dp[] = {1, 2, 0};
    static const struct {
        placement given[3], expected[3];
    } fsdp_last[] = {
        {{S(0), S(0), S(0)}, {SS(0, 4), S(0), S(0)}}, {{S(0), S(0), S(1)}, {SS(0, 2), S(0), S(1)}},
        {{S(0), S(0), R}, {SS(0, 2), S(0), R}},       {{S(0), S(1), S(0)}, {SS(0, 2), S(1), S(0)}},
        {{S(1), S(0), S(0)}, {S(1), S(0), S(0)}},     {{R, S(0), S(0)}, {R, S(0), S(0)}},
    };
    placement p[3] = {S(0), S(0), S(0)};
    static const placement expected[3] = {SS(0, 2), SS(0, 2), S(0)};
    placements_set_strided(&three, tp_fsdp_last, p);
    for (unsigned i = 0; i < 3; i++)
        cr_expect(p[i].kind == expected[i].kind && p[i].split_factor == expected[i].split_factor);
    for (size_t k = 0; k < sizeof fsdp_last / sizeof *fsdp_last; k++) {
        memcpy(p, fsdp_last[k].given, sizeof p);
        placements_set_strided(&cube, ep_tp_dp, p);
        for (unsigned i = 0; i < 3; i++)
            cr_expect(p[i].kind == fsdp_last[k].expected[i].kind &&
                          p[i].dim == fsdp_last[k].expected[i].dim &&
                          p[i].split_factor == fsdp_last[k].expected[i].split_factor,
                      "case %d, mesh dim %u", (int)k, i);
    }
}

/* Expert parallel, TP and FSDP on one dim: ep cuts first, then tp, then dp. */
Test(piece, ep_tp_fsdp)
{
    static const line_case nine = {
        9, MESH3(2, 2, 2), {SS(0, 4), S(0), S(0)}, "2@0 1@3 1@5 1@7 1@2 1@4 1@6 1@8"};
    static const line_case eleven = {
        11, MESH3(2, 2, 2), {SS(0, 4), S(0), S(0)}, "2@0 2@3 2@6 1@9 1@2 1@5 1@8 1@10"};
    expect_line(&nine, SHARD_PHYSICAL);
    expect_line(&eleven, SHARD_PHYSICAL);
    expect_line(&eleven, SHARD_RECORDED); /* 11 is saved right, 9 and 13 are refused */
}

static const char *refusal(const mesh *m, const placement *p, const uint64_t *coord)
{
    static fsdpck_error err;
    static const uint64_t shape[] = {8, 8};
    uint64_t offsets[2], sizes[2];
    const fsdpck_status st = shard_box(m, p, 2, shape, coord, SHARD_PHYSICAL, offsets, sizes, &err);
    return st == FSDPCK_OK ? "" : fsdpck_finding_name(err.finding);
}

Test(piece, refusals)
{
    static const mesh m = MESH2(2, 2);
    static const uint64_t coord[] = {1, 1}, outside[] = {0, 2};
    static const placement partial[] = {R, {.kind = PLACEMENT_PARTIAL}}, dim[] = {S(2), R},
                           zero[] = {SS(0, 0), S(0)}, kind[] = {{.kind = 9}, R},
                           good[] = {S(0), S(1)};
    cr_expect_str_eq(refusal(&m, partial, coord), "LAYOUT-PARTIAL");
    cr_expect_str_eq(refusal(&m, dim, coord), "LAYOUT-DIM");
    cr_expect_str_eq(refusal(&m, zero, coord), "LAYOUT-SPLIT");
    cr_expect_str_eq(refusal(&m, kind, coord), "LAYOUT-KIND");
    cr_expect_str_eq(refusal(&m, good, outside), "LAYOUT-COORD");
    cr_expect_str_eq(refusal(&m, good, coord), "");
}

/* Sizes near the end of 64 bits, and split factors as large as can be: no wrap, no time. */
Test(piece, huge)
{
    static const mesh m = MESH2(4, 65536);
    static const placement p[] = {SS(0, 65536), S(0)}, all[] = {SS(0, UINT32_MAX), R};
    const uint64_t n = (uint64_t)1 << 62;
    uint64_t coord[] = {3, 65535}, offset, size;
    cr_assert_eq(shard_box(&m, p, 1, &n, coord, SHARD_RECORDED, &offset, &size, NULL), FSDPCK_OK);
    cr_expect_eq(size, (uint64_t)1 << 44);
    cr_expect_eq(offset, n - size);
    cr_assert_eq(shard_box(&m, p, 1, &n, coord, SHARD_PHYSICAL, &offset, &size, NULL), FSDPCK_OK);
    cr_expect_eq(offset, n - size);
    cr_expect_eq(shard_box(&m, all, 1, &n, coord, SHARD_RECORDED, &offset, &size, NULL),
                 FSDPCK_UNSUPPORTED);
}

/* As many ranks as a count of all of them finds. */
Test(piece, filled_ranks)
{
    static const mesh m1 = {.ndim = 1, .sizes = {5}}, m2 = MESH2(4, 3), m3 = MESH3(2, 3, 2);
    static const struct {
        const mesh *m;
        placement p[3];
    } cases[] = {
        {&m1, {S(0)}},
        {&m2, {S(0), S(0)}},
        {&m2, {SS(0, 3), S(0)}},
        {&m2, {R, S(1)}},
        {&m2, {S(1), S(0)}},
        {&m3, {R, SS(0, 2), S(0)}},
        {&m3, {S(0), S(1), R}},
        {&m3, {SS(0, 6), SS(0, 2), S(0)}},
        {&m3, {SS(1, 2), S(0), S(1)}},
        {&m3, {R, R, R}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const mesh *m = cases[k].m;
        for (uint64_t n = 1; n <= 26; n++) {
            const uint64_t shape[] = {n, 27 - n};
            uint64_t filled = 0;
            for (uint64_t rank = 0; rank < mesh_size(m); rank++) {
                uint64_t coord[MESH_NDIM_MAX], offsets[2], sizes[2];
                mesh_coord(m, rank, coord);
                cr_assert_eq(
                    shard_box(m, cases[k].p, 2, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL),
                    FSDPCK_OK);
                filled += sizes[0] > 0 && sizes[1] > 0;
            }
            cr_expect_eq(shard_nonempty_ranks(m, cases[k].p, 2, shape), filled, "case %zu, n %d", k,
                         (int)n);
        }
    }
}

Test(piece, holders)
{
    static const mesh m = MESH3(2, 2, 2);
    static const placement p[] = {R, S(0), R};
    static const uint64_t expected[] = {2, 3, 6, 7};
    uint64_t coord[MESH_NDIM_MAX], rank;
    size_t count = 0;
    shard_holders h;
    mesh_coord(&m, 7, coord);
    for (shard_holders_begin(&h, &m, p, coord); shard_holders_next(&h, &rank);)
        cr_expect(count < 4 && rank == expected[count++]);
    cr_expect_eq(count, 4);
    cr_expect_eq(piece_count(&m, p), 2);
    for (rank = 0; rank < 8; rank++) {
        mesh_coord(&m, rank, coord);
        cr_expect_eq(shard_is_first_holder(&m, p, coord), rank == 0 || rank == 2);
    }
}
