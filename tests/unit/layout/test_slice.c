#include <criterion/criterion.h>
#include <string.h>

#include "layout/slice.h"

static budget owner;
static layout l;
static fsdpck_error err;

static void setup(void)
{
    budget_init(&owner, 1 << 20, "layout", NULL);
    layout_init(&l, &owner);
    cr_assert_eq(mesh_parse("dp_replicate=2,dp_shard=2,tp=2", &l.mesh, &err), FSDPCK_OK);
}

static void teardown(void)
{
    layout_release(&l);
    cr_expect_eq(owner.used_bytes, 0);
}

TestSuite(slice, .init = setup, .fini = teardown);

static const uint64_t shape[] = {8, 4};

static uint8_t source_absent;

static uint8_t absent(const char *fqn, const mesh *source_mesh)
{
    static const placement none[MESH_NDIM_MAX];
    const layout_tensor t = {.fqn = fqn,
                             .dtype = DTYPE_FLOAT32,
                             .ndim = 2,
                             .shape = shape,
                             .source_mesh = source_mesh,
                             .source = source_mesh == NULL ? NULL : none,
                             .source_absent_dims = source_absent};
    return layout_absent_dims(&l, &t);
}

static void plan(const char *json)
{
    cr_assert_eq(layout_read_tp_plan(&l, json, strlen(json), &err), FSDPCK_OK, "%s", err.message);
}

Test(slice, a_plan_puts_what_it_names_on_the_whole_mesh)
{
    plan("{\"*.wq\": \"colwise\", \"norm\": \"replicate\"}");
    cr_expect_eq(absent("layers.0.wq.weight", NULL), 0);
    cr_expect_eq(absent("layers.0.wq", NULL), 0);
    cr_expect_eq(absent("norm.weight", NULL), 0);
    cr_expect_eq(absent("layers.0.wk.weight", NULL), 4);
    cr_expect_eq(absent("embedding", NULL), 4);
    cr_expect_eq(VEC_AT(&l.rules, const layout_rule, 0)->matched, 0);
}

Test(slice, a_plan_outweighs_the_source)
{
    plan("{\"wq\": \"colwise\"}");
    cr_expect_eq(absent("norm.weight", &l.mesh), 4);
}

Test(slice, without_a_plan_the_source_says)
{
    mesh slice;
    cr_assert_eq(mesh_parse("dp_shard=4", &slice, &err), FSDPCK_OK);
    cr_expect_eq(absent("norm.weight", &l.mesh), 0);
    cr_expect_eq(absent("norm.weight", &slice), 4);
    cr_expect_eq(absent("norm.weight", NULL), 4);
    source_absent = 5;
    cr_expect_eq(absent("norm.weight", &l.mesh), 5);
}

Test(slice, rules_of_ep_say_nothing_of_tp)
{
    cr_assert_eq(mesh_parse("dp_shard=2,ep=2,tp=2", &l.mesh, &err), FSDPCK_OK);
    plan("{\"experts\": \"ep\", \"wq\": \"colwise\", \"both\": [\"ep\", \"Shard(1)\"]}");
    cr_expect_eq(absent("experts.w1", NULL), 4);
    cr_expect_eq(absent("wq.weight", NULL), 2);
    cr_expect_eq(absent("both.w2", NULL), 0);
    cr_expect_eq(absent("norm.weight", NULL), 6);
}

Test(slice, nothing_is_left_beside_tp_alone)
{
    cr_assert_eq(mesh_parse("tp=4", &l.mesh, &err), FSDPCK_OK);
    plan("{\"wq\": \"colwise\"}");
    cr_expect_eq(absent("norm.weight", NULL), 1);
    cr_expect_eq(absent("wq.weight", NULL), 0);
}

Test(slice, names_that_say_nothing_keep_the_whole_mesh)
{
    l.mesh = (mesh){.ndim = 2, .sizes = {2, 2}, .names = {"x", "tp"}};
    cr_expect_eq(absent("norm.weight", NULL), 0);
}

Test(slice, a_slice_keeps_the_order_of_its_dims)
{
    const cat_spec spec = {.absent_dims = 2,
                           .placements = {{0}, {0}, {.kind = PLACEMENT_SHARD, .dim = 1}}};
    mesh_slice s;
    mesh_slice_of(&l.mesh, &spec, &s);
    cr_assert_eq(s.m.ndim, 2);
    cr_expect_str_eq(s.m.names[0], "dp_replicate");
    cr_expect_str_eq(s.m.names[1], "tp");
    cr_expect_eq(s.dims[0], 0);
    cr_expect_eq(s.dims[1], 2);
    cr_expect_eq(s.placements[0].kind, PLACEMENT_REPLICATE);
    cr_expect_eq(s.placements[1].kind, PLACEMENT_SHARD);
    cr_expect_eq(s.placements[1].dim, 1);

    cat_spec own = {0}, back = {0};
    memcpy(own.placements, s.placements, sizeof own.placements);
    cr_expect(mesh_slice_widen(&l.mesh, &s.m, &own, &back));
    cr_expect_eq(back.absent_dims, 2);
    cr_expect_eq(memcmp(back.placements, spec.placements, sizeof back.placements), 0);
}

Test(slice, a_mesh_of_other_dims_is_no_slice)
{
    static const cat_spec none;
    cat_spec spec = {0};
    mesh other = {.ndim = 1, .sizes = {4}, .names = {"dp_shard"}};
    cr_expect(!mesh_slice_widen(&l.mesh, &other, &none, &spec));
    other = (mesh){.ndim = 2, .sizes = {2, 2}, .names = {"tp", "dp_shard"}};
    cr_expect(!mesh_slice_widen(&l.mesh, &other, &none, &spec));
}
