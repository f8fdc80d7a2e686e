#include <criterion/criterion.h>
#include <string.h>

#include "layout/mesh_infer.h"
#include "placement_words.h"

static budget b;
static catalogue c;

static void setup(void)
{
    uint32_t file;
    budget_init(&b, 1u << 26, "metadata", NULL);
    catalogue_init(&c, &b);
    cr_assert_eq(catalogue_add_file(&c, "f", 1, 0, 0, &file, NULL), FSDPCK_OK);
}

static void teardown(void)
{
    catalogue_release(&c);
    cr_expect_eq(b.used_bytes, 0);
}

TestSuite(explain, .init = setup, .fini = teardown);

static const char *next_name; /* NULL: a letter */

static uint32_t add_tensor(uint64_t rows, uint64_t columns)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    const char *name = next_name == NULL ? names[catalogue_tensor_count(&c)] : next_name;
    const uint64_t shape[] = {rows, columns};
    uint32_t tensor;
    next_name = NULL;
    cr_assert_eq(catalogue_add_tensor(&c, name, strlen(name), DTYPE_FLOAT32, columns == 0 ? 1 : 2,
                                      shape, &tensor, NULL),
                 FSDPCK_OK);
    return tensor;
}

static void add_box(uint32_t tensor, uint64_t row, uint64_t column, uint64_t rows, uint64_t columns)
{
    const uint64_t offsets[] = {row, column}, sizes[] = {rows, columns};
    const cat_chunk proto = {.place = LOCATION_ROWS};
    cr_assert_eq(catalogue_add_chunk(&c, tensor, offsets, sizes, &proto, NULL), FSDPCK_OK);
}

/* What the ranks of a mesh hold; empty boxes only where `empties`. */
static void add_cut(const mesh *m, const placement *p, uint64_t rows, uint64_t columns,
                    bool empties)
{
    const uint32_t tensor = add_tensor(rows, columns);
    const unsigned ndim = columns == 0 ? 1 : 2;
    const uint64_t shape[] = {rows, columns};
    for (uint64_t rank = 0; rank < mesh_size(m); rank++) {
        uint64_t coord[MESH_NDIM_MAX], offsets[2] = {0}, sizes[2] = {0};
        mesh_coord(m, rank, coord);
        cr_assert_eq(shard_box(m, p, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL),
                     FSDPCK_OK);
        if (empties || box_nelems(sizes, ndim) > 0)
            add_box(tensor, offsets[0], offsets[1], sizes[0], sizes[1]);
    }
}

static void expect(uint64_t world_size, const char *mesh_expected, const char *const *placements)
{
    explain x;
    mesh m;
    bool found;
    uint64_t otherwise = 0;
    text_buf out = {0};
    cr_assert_eq(catalogue_seal(&c, NULL), FSDPCK_OK);
    mesh_infer_init(&x, world_size, &b);
    cr_assert_eq(mesh_infer_add(&x, &c, 2, NULL, NULL), FSDPCK_OK);
    cr_assert_eq(mesh_infer_solve(&x, &m, &found, NULL), FSDPCK_OK);
    cr_expect_eq(found, placements != NULL);
    mesh_print(&m, &out);
    cr_expect_str_eq(out.text, mesh_expected);
    for (size_t i = 0; i < catalogue_tensor_count(&c) && placements != NULL; i++) {
        placement p[MESH_NDIM_MAX];
        cr_expect_eq(mesh_infer_tensor(&x, i, &m, p), placements[i] != NULL, "tensor %d", (int)i);
        otherwise += placements[i] == NULL;
        if (placements[i] == NULL)
            continue;
        out.nbytes = 0;
        placements_print(p, m.ndim, &out);
        cr_expect_str_eq(out.text, placements[i], "tensor %d: %s", (int)i, out.text);
    }
    cr_expect_eq(x.otherwise, otherwise);
    text_release(&out);
    mesh_infer_release(&x);
}

#define EXPECT(world_size, mesh_expected, ...) \
    expect(world_size, mesh_expected, (const char *const[]){__VA_ARGS__})
#define P(...) ((const placement[MESH_NDIM_MAX]){__VA_ARGS__})

static const mesh m4 = {.ndim = 1, .sizes = {4}}, m2x4 = {.ndim = 2, .sizes = {2, 4}},
                  m3x2 = {.ndim = 2, .sizes = {3, 2}}, m2x2 = {.ndim = 2, .sizes = {2, 2}},
                  m2x2x2 = {.ndim = 3, .sizes = {2, 2, 2}};

Test(explain, one_dim)
{
    add_cut(&m4, P(S(0)), 10, 3, true);
    add_cut(&m4, P(S(1)), 3, 8, true);
    add_box(add_tensor(5, 5), 0, 0, 5, 5);
    add_cut(&m4, P(S(0)), 2, 0, false); /* 2 of 4 ranks hold something; the rest is not told */
    add_cut(&m4, P(S(0)), 1, 0, true);  /* whole, but empty boxes tell of other ranks */
    EXPECT(4, "fsdp=4", "Shard(0)", "Shard(1)", "Replicate()", "Shard(0)", "Shard(0)");
}

Test(explain, world_size_not_known)
{
    add_cut(&m4, P(S(0)), 10, 3, true);
    EXPECT(0, "fsdp=4", "Shard(0)");
}

Test(explain, hsdp)
{
    add_cut(&m2x4, P(R, S(0)), 10, 3, true); /* each box twice */
    add_cut(&m4, P(S(0)), 16, 0, true);      /* each box once */
    EXPECT(8, "dp_replicate=2,dp_shard=4", "[Replicate(), Shard(0)]", "[Replicate(), Shard(0)]");
}

Test(explain, fsdp_and_tp)
{
    add_cut(&m3x2, P(SS(0, 2), S(0)), 12, 4, true);
    add_cut(&m3x2, P(S(0), S(1)), 12, 5, true);
    add_cut(&m3x2, P(S(0), R), 7, 0, true);
    add_cut(&m3x2, P(SS(0, 2), S(0)), 7, 0, true); /* the data of a D1 case, as 2.8 and 2.9 write */
    EXPECT(6, "dp_shard=3,tp=2", "[_StridedShard(0, 2), Shard(0)]", "[Shard(0), Shard(1)]",
           "[Shard(0), Replicate()]", "[_StridedShard(0, 2), Shard(0)]");
}

/* FSDP1 with TP cuts left to right. */
Test(explain, left_to_right)
{
    add_cut(&m3x2, P(S(0), S(0)), 7, 0, true);
    add_cut(&m3x2, P(S(0), S(1)), 12, 5, true);
    EXPECT(6, "dp_shard=3,tp=2", "[Shard(0), Shard(0)]", "[Shard(0), Shard(1)]");
}

Test(explain, equal_sizes_of_fsdp_and_tp)
{
    add_cut(&m2x2, P(S(0), S(1)), 6, 6, false);
    add_cut(&m2x2, P(S(0), R), 6, 0, false);
    EXPECT(4, "dp_shard=2,tp=2", "[Shard(0), Shard(1)]", "[Shard(0), Replicate()]");
}

Test(explain, hsdp_and_tp)
{
    add_cut(&m2x2x2, P(R, S(0), S(1)), 6, 6, true);
    add_cut(&m2x2x2, P(R, SS(0, 2), S(0)), 11, 0, true);
    EXPECT(8, "dp_replicate=2,dp_shard=2,tp=2", "[Replicate(), Shard(0), Shard(1)]",
           "[Replicate(), _StridedShard(0, 2), Shard(0)]");
}

/* One tensor that no mesh makes, and one of another mesh, do not hide that of the others. */
Test(explain, most_tensors)
{
    const uint32_t tensor = add_tensor(6, 0);
    add_box(tensor, 0, 0, 1, 0);
    add_box(tensor, 1, 0, 5, 0);
    add_cut(&m4, P(S(0)), 10, 3, true);
    add_cut(&m4, P(S(1)), 3, 8, true);
    add_cut(&m3x2, P(S(0), S(1)), 9, 2, false);
    add_cut(&m4, P(S(0)), 9, 0, false);
    EXPECT(4, "fsdp=4", NULL, "Shard(0)", "Shard(1)", NULL, "Shard(0)");
}

/* Half of the sharded tensors is not a majority; whole tensors do not count. */
Test(explain, half_is_not_most)
{
    const uint32_t tensor = add_tensor(6, 0);
    add_box(tensor, 0, 0, 1, 0);
    add_box(tensor, 1, 0, 5, 0);
    add_cut(&m4, P(S(0)), 10, 3, true);
    add_box(add_tensor(5, 5), 0, 0, 5, 5);
    expect(4, "fsdp=4", NULL);
}

/* fully_shard cuts all that it manages: a mesh that leaves "plain" to TP is not it. */
Test(explain, experts_with_tp)
{
    next_name = "l.experts.w";
    add_cut(&m2x2x2, P(SS(0, 2), S(0), R), 8, 4, true);
    add_cut(&m2x2x2, P(SS(0, 2), S(0), S(1)), 8, 4, true);
    add_cut(&m2x2x2, P(S(0), R, R), 6, 2, true);
    EXPECT(8, "dp_shard=2,ep=2,tp=2", "[_StridedShard(0, 2), Shard(0), Replicate()]",
           "[_StridedShard(0, 2), Shard(0), Shard(1)]", "[Shard(0), Replicate(), Replicate()]");
}

/* As torchtitan does: dense parameters over both dims as over one; experts by ep, then by FSDP. */
Test(explain, experts_without_tp)
{
    static const mesh m6 = {.ndim = 1, .sizes = {6}};
    next_name = "l.experts.w";
    add_cut(&m3x2, P(SS(0, 2), S(0)), 10, 4, true);
    add_cut(&m6, P(S(0)), 18, 3, true);
    EXPECT(6, "dp_shard=3,ep=2", "[_StridedShard(0, 2), Shard(0)]",
           "[_StridedShard(0, 2), Shard(0)]");
}

/* One expert a tensor, or columns cut by the second dim: that is TP. */
Test(explain, experts_under_tp)
{
    next_name = "l.experts.w";
    add_cut(&m3x2, P(S(0), S(1)), 12, 4, true);
    next_name = "l.experts.0.w";
    add_cut(&m3x2, P(SS(0, 2), S(0)), 12, 4, true);
    EXPECT(6, "dp_shard=3,tp=2", "[Shard(0), Shard(1)]", "[_StridedShard(0, 2), Shard(0)]");
}

Test(explain, a_hole)
{
    const uint32_t tensor = add_tensor(4, 4);
    add_box(tensor, 0, 0, 2, 2);
    add_box(tensor, 0, 2, 2, 2);
    add_box(tensor, 2, 0, 2, 2);
    expect(4, "fsdp=4", NULL);
}

Test(explain, a_hole_and_a_replica)
{
    const uint32_t tensor = add_tensor(4, 4);
    add_box(tensor, 0, 0, 2, 2);
    add_box(tensor, 0, 2, 2, 2);
    add_box(tensor, 2, 0, 2, 2);
    add_box(tensor, 2, 0, 2, 2);
    expect(4, "fsdp=4", NULL);
}

/* Empty boxes beside a whole one of more than one row say nothing. */
Test(explain, whole_with_empty_boxes)
{
    const uint32_t tensor = add_tensor(5, 5);
    add_box(tensor, 0, 0, 5, 5);
    add_box(tensor, 5, 0, 0, 5);
    EXPECT(4, "fsdp=4", "Replicate()");
}

Test(explain, no_grid)
{
    const uint32_t tensor = add_tensor(4, 4);
    add_box(tensor, 0, 0, 2, 4);
    add_box(tensor, 2, 0, 2, 2);
    add_box(tensor, 2, 2, 2, 2);
    expect(3, "fsdp=3", NULL);
}

Test(explain, an_overlap)
{
    const uint32_t tensor = add_tensor(6, 0);
    add_box(tensor, 0, 0, 4, 0);
    add_box(tensor, 3, 0, 3, 0);
    expect(2, "fsdp=2", NULL);
}

Test(explain, cuts_of_no_mesh)
{
    const uint32_t tensor = add_tensor(6, 0);
    add_box(tensor, 0, 0, 1, 0);
    add_box(tensor, 1, 0, 5, 0);
    expect(2, "fsdp=2", NULL);
}

Test(explain, more_boxes_than_ranks)
{
    add_cut(&m4, P(S(0)), 8, 0, true);
    expect(2, "fsdp=2", NULL);
}

/* Several threads begin only with more than 16,384 boxes. */
Test(explain, threads_agree)
{
    const mesh m64x64 = {.ndim = 2, .sizes = {64, 64}};
    for (unsigned i = 0; i < 5; i++)
        add_cut(&m64x64, i == 3 ? P(S(1), S(0)) : P(S(0), S(1)), 128 + 64 * (i % 2), 256, true);
    cr_assert_eq(catalogue_seal(&c, NULL), FSDPCK_OK);
    cr_assert_geq(catalogue_threads(&c, 4), 2);
    explain one, four;
    mesh_infer_init(&one, 4096, &b);
    mesh_infer_init(&four, 4096, &b);
    cr_assert_eq(mesh_infer_add(&one, &c, 1, NULL, NULL), FSDPCK_OK);
    cr_assert_eq(mesh_infer_add(&four, &c, 4, NULL, NULL), FSDPCK_OK);
    cr_expect_eq(one.patterns.count, 3);
    cr_expect_eq(four.patterns.count, 3);
    for (size_t i = 0; i < 5; i++)
        cr_expect_eq(*VEC_AT(&one.by_tensor, uint32_t, i), *VEC_AT(&four.by_tensor, uint32_t, i));
    mesh_infer_release(&one);
    mesh_infer_release(&four);
}

/* Tensors alike share a pattern, however many. */
Test(explain, patterns_are_shared)
{
    for (unsigned i = 0; i < 5; i++)
        add_cut(&m4, P(S(0)), 8, i % 2 == 0 ? 3 : 4, true);
    cr_assert_eq(catalogue_seal(&c, NULL), FSDPCK_OK);
    explain x;
    mesh_infer_init(&x, 4, &b);
    cr_assert_eq(mesh_infer_add(&x, &c, 1, NULL, NULL), FSDPCK_OK);
    cr_expect_eq(x.patterns.count, 2);
    mesh_infer_release(&x);
}
