#include <criterion/criterion.h>
#include <string.h>

#include "layout/layout.h"
#include "layout/slice.h"

static budget b;
static layout l;
static fsdpck_error err;

static void begin(const char *mesh_text)
{
    budget_init(&b, 1u << 20, "metadata", NULL);
    layout_init(&l, &b);
    fsdpck_error_init(&err);
    cr_assert_eq(mesh_parse(mesh_text, &l.mesh, &err), FSDPCK_OK);
}

static void end(void)
{
    layout_release(&l);
    cr_expect_eq(b.used_bytes, 0);
}

static void read_plan(const char *json)
{
    cr_assert_eq(layout_read_tp_plan(&l, json, strlen(json), &err), FSDPCK_OK, "%s", err.message);
}

static const uint64_t square[] = {8, 8};

static layout_tensor weight(const char *fqn)
{
    return (layout_tensor){.fqn = fqn, .dtype = DTYPE_FLOAT32, .ndim = 2, .shape = square};
}

static layout_tensor bias(const char *fqn)
{
    return (layout_tensor){.fqn = fqn, .dtype = DTYPE_BFLOAT16, .ndim = 1, .shape = square};
}

static void expect(layout_tensor t, const char *expected)
{
    placement p[MESH_NDIM_MAX];
    text_buf out = {0};
    cr_assert_eq(layout_get_placements(&l, &t, false, p, &err), FSDPCK_OK, "%s: %s", t.fqn,
                 err.message);
    placements_print(p, l.mesh.ndim, &out);
    cr_expect_str_eq(out.text, expected, "%s: %s, expected %s", t.fqn, out.text, expected);
    text_release(&out);
}

static void expect_refused(layout_tensor t, fsdpck_status st, const char *finding)
{
    placement p[MESH_NDIM_MAX];
    cr_expect_eq(layout_get_placements(&l, &t, false, p, &err), st);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding);
    cr_expect_str_eq(err.tensor, t.fqn);
}

Test(layout, fsdp_on_dim_0)
{
    begin("fsdp=4");
    expect(weight("a.weight"), "Shard(0)");
    expect(bias("a.bias"), "Shard(0)");
    layout_tensor t = weight("a.step");
    t.ndim = 0;
    expect(t, "Replicate()");
    t = weight("a.ids");
    t.dtype = DTYPE_INT64;
    expect(t, "Replicate()");
    static const uint64_t none[] = {0, 3};
    t = weight("a.none");
    t.shape = none;
    expect(t, "Replicate()");
    end();
}

Test(layout, hsdp_and_tp)
{
    begin("dp_replicate=2,dp_shard=2,tp=2");
    read_plan("{\"*.wq\": \"colwise\", \"*.wo\": \"rowwise\", \"*.norm\": \"replicate\","
              " \"*.w9.weight\": \"Shard(1)\", \"*\": \"Shard(1)\"}");
    expect(weight("l.0.wq.weight"), "[Replicate(), _StridedShard(0, 2), Shard(0)]");
    expect(bias("l.0.wq.bias"), "[Replicate(), _StridedShard(0, 2), Shard(0)]");
    expect(weight("l.0.wo.weight"), "[Replicate(), Shard(0), Shard(1)]");
    expect(bias("l.0.wo.bias"), "[Replicate(), Shard(0), Replicate()]");
    expect(bias("l.0.norm.weight"), "[Replicate(), Shard(0), Replicate()]");
    expect(weight("l.0.w9.weight"), "[Replicate(), Shard(0), Shard(1)]");
    expect_refused(bias("other"), FSDPCK_USAGE, "");
    cr_expect(strstr(err.message, "shards dim 1 of a tensor of 1 dim") != NULL);
    end();
}

Test(layout, tp_in_front_of_fsdp)
{
    begin("tp=2,dp_shard=4");
    read_plan("{\"*\": \"colwise\"}");
    expect(weight("a.weight"), "[Shard(0), Shard(0)]");
    end();
}

Test(layout, experts)
{
    begin("dp_shard=2,ep=2,tp=2");
    read_plan("{\"*.experts.w1\": [\"ep\", \"Shard(1)\"], \"*.experts.w2\": [\"ep\", \"Shard(0)\"],"
              " \"*.experts.w3\": \"ep:Shard(1)\", \"*.experts.w4\": \"ep\"}");
    expect(weight("l.experts.w1"), "[_StridedShard(0, 2), Shard(0), Shard(1)]");
    expect(weight("l.experts.w2"), "[_StridedShard(0, 4), Shard(0), Shard(0)]");
    expect(weight("l.experts.w3"), "[Shard(0), Shard(1), Replicate()]");
    expect(weight("l.experts.w4"), "[_StridedShard(0, 2), Shard(0), Replicate()]");
    expect(weight("l.dense"), "[Shard(0), Replicate(), Replicate()]");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK);
    end();
}

Test(layout, rules_by_name)
{
    begin("fsdp=4");
    cr_assert_eq(layout_add_rule(&l, LAYOUT_REPLICATE, "*.norm.*", 0, &err), FSDPCK_OK);
    cr_assert_eq(layout_add_shard_text(&l, "*.emb.*=1", &err), FSDPCK_OK);
    cr_assert_eq(layout_add_shard_text(&l, "*.q8=0", &err), FSDPCK_OK);
    cr_assert_eq(layout_add_shard_text(&l, "never=0", &err), FSDPCK_OK);
    expect(bias("a.norm.weight"), "Replicate()");
    expect(weight("a.emb.weight"), "Shard(1)");
    layout_tensor t = weight("a.q8");
    t.dtype = DTYPE_INT8;
    expect(t, "Shard(0)");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_USAGE);
    cr_expect(strstr(err.message, "'never'") != NULL);
    expect(weight("never"), "Shard(0)");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK);
    expect_refused(bias("a.emb.bias"), FSDPCK_USAGE, "");
    end();
}

/* Neither option wins in silence where both name a tensor. */
Test(layout, rules_find_both_names)
{
    begin("dp_shard=2,tp=2");
    layout_tensor q = weight("layers.0.wq.weight");
    layout_tensor o = weight("layers.0.wo.weight");
    q.outer_fqn = "model.layers.0.wq.weight";
    o.outer_fqn = "model.layers.0.wo.weight";
    cr_assert_eq(layout_add_shard_text(&l, "model.layers.*.wq.weight=1", &err), FSDPCK_OK);
    cr_assert_eq(layout_add_rule(&l, LAYOUT_REPLICATE, "layers.*.wo.weight", 0, &err), FSDPCK_OK);
    read_plan("{\"model.layers.0.wq\": \"colwise\", \"layers.0.wo\": \"rowwise\"}");
    expect(q, "[Shard(1), Shard(0)]");
    expect(o, "[Replicate(), Shard(1)]");
    cr_expect_eq(layout_absent_dims(&l, &q), 0);
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK, "%s", err.message);
    q.outer_fqn = NULL; /* a checkpoint of the model alone */
    expect(q, "[Shard(0), Replicate()]");
    cr_expect_eq(layout_absent_dims(&l, &q), 2);
}

Test(layout, shard_and_replicate_contradict)
{
    begin("fsdp=4");
    cr_assert_eq(layout_add_rule(&l, LAYOUT_REPLICATE, "a.*", 0, &err), FSDPCK_OK);
    cr_assert_eq(layout_add_shard_text(&l, "*.w=1", &err), FSDPCK_OK);
    cr_assert_eq(layout_add_shard_text(&l, "*=0", &err), FSDPCK_OK);
    expect(weight("b.w"), "Shard(1)"); /* of two --shard the first */
    expect(weight("b.v"), "Shard(0)");
    expect_refused(weight("a.w"), FSDPCK_USAGE, "");
    cr_expect_str_eq(err.message, "--shard '*.w=1' and --replicate 'a.*' both match a tensor");
    layout_tensor scalar = weight("a.step");
    scalar.ndim = 0;
    expect(scalar, "Replicate()"); /* nothing to cut: nothing to contradict */
    end();

    begin("fsdp=4"); /* in the other order too */
    cr_assert_eq(layout_add_shard_text(&l, "a.w=1", &err), FSDPCK_OK);
    cr_assert_eq(layout_add_rule(&l, LAYOUT_REPLICATE, "*", 0, &err), FSDPCK_OK);
    expect_refused(weight("a.w"), FSDPCK_USAGE, "");
    cr_expect_str_eq(err.message, "--shard 'a.w=1' and --replicate '*' both match a tensor");
    end();
}

Test(layout, shard_text_refused)
{
    static const char *const bad[] = {"a", "a=", "=1", "a=x", "a=64", "a=-1", "a=100", "a=1 "};
    begin("fsdp=4");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(layout_add_shard_text(&l, bad[i], &err), FSDPCK_USAGE, "%s", bad[i]);
    cr_expect_eq(layout_add_shard_text(&l, "a=b=63", &err), FSDPCK_OK);
    cr_expect_str_eq(VEC_AT(&l.rules, layout_rule, 0)->glob, "a=b");
    end();
}

/* fully_shard refuses uneven sizes on dims beside 0; formats need not. */
Test(layout, uneven_dims)
{
    static const uint64_t shape[] = {6, 9};
    placement p[MESH_NDIM_MAX];
    layout_tensor t = weight("w");
    t.shape = shape;
    begin("fsdp=4");
    expect(t, "Shard(0)");
    cr_assert_eq(layout_add_shard_text(&l, "w=1", &err), FSDPCK_OK);
    expect_refused(t, FSDPCK_UNSUPPORTED, "LAYOUT-UNEVEN");
    cr_expect_eq(layout_get_placements(&l, &t, true, p, &err), FSDPCK_OK);
    cr_expect(p[0].kind == PLACEMENT_SHARD && p[0].dim == 1);
    end();

    begin("fsdp=2,tp=2"); /* pieces of tp: 5 and 4 columns */
    read_plan("{\"w\": \"Shard(1)\"}");
    cr_assert_eq(layout_add_shard_text(&l, "w=1", &err), FSDPCK_OK);
    expect_refused(t, FSDPCK_UNSUPPORTED, "LAYOUT-UNEVEN");
    static const uint64_t odd_pieces[] = {6, 6}, even[] = {6, 12};
    t.shape = odd_pieces;
    expect_refused(t, FSDPCK_UNSUPPORTED, "LAYOUT-UNEVEN");
    t.shape = even;
    expect(t, "[_StridedShard(1, 2), Shard(1)]");
    end();
}

static const mesh source_2d = {.ndim = 2, .sizes = {2, 2}, .names = {"dp", "tp"}};
static const mesh source_unnamed = {.ndim = 2, .sizes = {2, 2}};

static layout_tensor held(const char *fqn, const mesh *m, const placement *p)
{
    layout_tensor t = weight(fqn);
    t.source_mesh = m;
    t.source = p;
    return t;
}

Test(layout, follows_the_source)
{
    static const placement
        strided[] = {{.kind = PLACEMENT_STRIDED_SHARD, .dim = 0, .split_factor = 2},
                     {.kind = PLACEMENT_SHARD}},
        columns[] = {{.kind = PLACEMENT_SHARD, .dim = 1}, {.kind = PLACEMENT_REPLICATE}},
        whole[] = {{.kind = PLACEMENT_REPLICATE}, {.kind = PLACEMENT_REPLICATE}},
        partial[] = {{.kind = PLACEMENT_REPLICATE}, {.kind = PLACEMENT_PARTIAL}},
        bad[] = {{.kind = PLACEMENT_SHARD, .dim = 2}, {.kind = PLACEMENT_REPLICATE}};
    begin("dp_replicate=2,dp_shard=4,tp=3");
    expect(held("a", &source_2d, strided), "[Replicate(), _StridedShard(0, 3), Shard(0)]");
    expect(held("a", &source_2d, columns), "[Replicate(), Shard(1), Replicate()]");
    expect(held("a", &source_2d, whole), "[Replicate(), Replicate(), Replicate()]");
    expect(held("a", &source_unnamed, strided), "[Replicate(), Shard(0), Replicate()]");
    expect_refused(held("a", &source_2d, partial), FSDPCK_UNSUPPORTED, "LAYOUT-PARTIAL");
    expect_refused(held("a", &source_2d, bad), FSDPCK_BADINPUT, "LAYOUT-DIM");
    layout_tensor t = weight("a");
    t.source_whole = true;
    expect(t, "[Replicate(), Replicate(), Replicate()]");
    t = held("ids", &source_2d, columns);
    t.dtype = DTYPE_INT64;
    expect(t, "[Replicate(), Shard(1), Replicate()]");
    read_plan("{\"a\": \"rowwise\"}"); /* a plan takes TP from the source */
    expect(held("a", &source_2d, strided), "[Replicate(), Shard(0), Shard(1)]");
    expect(held("b", &source_2d, strided), "[Replicate(), Shard(0), Replicate()]");
    end();
}

Test(layout, unnamed_mesh_is_kept_or_refused)
{
    static const placement strided[] = {
        {.kind = PLACEMENT_STRIDED_SHARD, .dim = 0, .split_factor = 2}, {.kind = PLACEMENT_SHARD}};
    begin("fsdp=4");
    l.mesh = source_unnamed;
    expect(held("a", &source_unnamed, strided), "[_StridedShard(0, 2), Shard(0)]");
    expect_refused(held("a", &source_2d, strided), FSDPCK_USAGE, "");
    end();
}

/* distribute_tensor cuts any dim unevenly: TP does, and a source may be so without FSDP. */
Test(layout, uneven_dims_that_fsdp_did_not_cut)
{
    static const uint64_t shape[] = {6, 9};
    static const mesh on4 = {.ndim = 1, .sizes = {4}}, on3 = {.ndim = 1, .sizes = {3}};
    static const placement columns[] = {{.kind = PLACEMENT_SHARD, .dim = 1}};
    layout_tensor t = held("w", &on4, columns);
    t.shape = shape;
    begin("fsdp=2");
    expect(t, "Shard(1)");
    t.source_mesh = &on3; /* even there: FSDP may have sharded it, and must again */
    expect_refused(t, FSDPCK_UNSUPPORTED, "LAYOUT-UNEVEN");
    end();

    begin("fsdp=3,tp=2"); /* TP: columns of 5 and 4 */
    read_plan("{\"w\": \"rowwise\"}");
    t.source = NULL;
    expect(t, "[Shard(0), Shard(1)]");
    end();
}

static void expect_bad_plan(const char *json)
{
    fsdpck_error_init(&err);
    cr_expect_eq(layout_read_tp_plan(&l, json, strlen(json), &err), FSDPCK_USAGE, "%s", json);
    cr_expect_eq(err.status, FSDPCK_USAGE);
    cr_expect_str_neq(err.message, "");
    cr_expect_str_eq(err.path, "plans/tp.json");
}

Test(layout, bad_plans)
{
    begin("fsdp=2,tp=2");
    l.tp_plan_path = "plans/tp.json";
    expect_bad_plan("");
    expect_bad_plan("[]");
    expect_bad_plan("{\"a\": 1}");
    expect_bad_plan("{\"a\": null}");
    expect_bad_plan("{\"a\": {}}");
    expect_bad_plan("{\"a\": [[\"ep\"]]}");
    expect_bad_plan("{\"a\": \"Colwise\"}");
    expect_bad_plan("{\"a\": \"Shard()\"}");
    expect_bad_plan("{\"a\": \"Shard(64)\"}");
    expect_bad_plan("{\"a\": \"Shard(1\"}");
    expect_bad_plan("{\"a\": \"Shard(-1)\"}");
    expect_bad_plan("{\"a\": \"ep:\"}");
    expect_bad_plan("{\"\": \"ep\"}");
    expect_bad_plan("{\"a\\u0000b\": \"ep\"}");
    expect_bad_plan("{\"a\": \"ep\", \"a\": \"colwise\"}");
    expect_bad_plan("{\"a\": \"ep\"} x");
    expect_bad_plan("{\"a\": \"ep\",}");
    end();
}

Test(layout, plan_for_a_dim_that_is_not_there)
{
    begin("fsdp=4");
    read_plan("{\"a\": \"colwise\"}");
    expect(weight("a"), "Shard(0)");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_USAGE);
    cr_expect(strstr(err.message, "mesh dim tp") != NULL);
    cr_expect_str_eq(err.path, "");
    l.tp_plan_path = "tp.json";
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_USAGE);
    cr_expect_str_eq(err.path, "tp.json");
    end();
}

/* A rule for a module is for those of its tensors that have the dim; one at least must. */
Test(layout, plan_for_a_tensor_dim_that_is_not_there)
{
    begin("fsdp=4,tp=2");
    read_plan("{\"a\": \"Shard(1)\", \"b\": \"Shard(2)\", \"c.w\": \"Shard(2)\"}");
    expect(weight("a.w"), "[Shard(0), Shard(1)]");
    expect(bias("a.b"), "[Shard(0), Replicate()]");
    expect(weight("b.w"), "[Shard(0), Replicate()]");
    expect_refused(weight("c.w"), FSDPCK_USAGE, "");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_USAGE);
    cr_expect_str_eq(err.message, "rule 'b' names dim 2, which none of its tensors has");
    end();
}

/* What a rule names is sharded whatever its dtype, and where it has no elements too; FSDP, which no
 * rule asks for, leaves it alone. */
Test(layout, rules_for_integers_and_empty_tensors)
{
    static const uint64_t empty[] = {0, 3};
    layout_tensor quantised = weight("q.weight"), none = weight("e.weight"),
                  scale = weight("s.scale");
    quantised.dtype = DTYPE_INT8;
    none.shape = empty;
    scale.ndim = 0;
    begin("fsdp=4,tp=2");
    read_plan("{\"q.weight\": \"Shard(1)\", \"e\": \"Shard(1)\"}");
    expect(quantised, "[Replicate(), Shard(1)]");
    expect(none, "[Replicate(), Shard(1)]");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK, "%s", err.message);
    end();

    begin("dp_shard=4,ep=2,tp=2");
    read_plan("{\"q\": [\"ep\", \"rowwise\"], \"*\": \"colwise\"}");
    cr_assert_eq(layout_add_shard_text(&l, "*=0", &err), FSDPCK_OK);
    expect(quantised, "[_StridedShard(0, 2), Shard(0), Shard(1)]");
    expect(none, "[_StridedShard(0, 2), Replicate(), Shard(0)]");
    expect(scale, "[Replicate(), Replicate(), Replicate()]");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK, "%s", err.message);
    end();

    begin("fsdp=4,tp=2");
    read_plan("{\"e.weight\": \"Shard(2)\"}");
    expect_refused(none, FSDPCK_USAGE, "");
    cr_expect_str_eq(err.message, "rule 'e.weight' shards dim 2 of a tensor of 2 dims");
    end();
}

static void expect_unfit(const char *plan, const char *shard)
{
    layout_tensor scale = weight("s.scale");
    scale.ndim = 0;
    begin("fsdp=4,tp=2");
    if (plan != NULL)
        read_plan(plan);
    if (shard != NULL)
        cr_assert_eq(layout_add_shard_text(&l, shard, &err), FSDPCK_OK);
    expect(scale, "[Replicate(), Replicate()]");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_USAGE);
    cr_expect_str_eq(err.message, "rule 's.scale' names dim 0, which none of its tensors has");
    end();
}

/* A rule for scalars alone would do nothing. */
Test(layout, rules_for_tensors_without_dims)
{
    expect_unfit("{\"s.scale\": \"Shard(0)\"}", NULL);
    expect_unfit(NULL, "s.scale=0");
    layout_tensor scale = weight("s.scale");
    scale.ndim = 0;
    begin("fsdp=4,tp=2");
    read_plan("{\"*\": \"colwise\"}"); /* of the remaining tensors, scalars */
    expect(scale, "[Replicate(), Replicate()]");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK, "%s", err.message);
    end();
}

/* Adafactor's row_var goes by its parameter's name, and has other dims. */
Test(layout, rules_are_not_for_odd_state)
{
    layout_tensor t = bias("w");
    t.odd_state = t.source_whole = true;
    begin("fsdp=4,tp=2");
    read_plan("{\"w\": \"Shard(1)\"}");
    expect(t, "[Replicate(), Replicate()]");
    expect(weight("w"), "[Shard(0), Shard(1)]");
    cr_expect_eq(layout_check_used(&l, &err), FSDPCK_OK);
    end();
}

/* What a dim sharded that the mesh does not have, FSDP shards. */
Test(layout, dims_that_are_given_up)
{
    static const mesh replicated = {.ndim = 1, .sizes = {4}, .names = {"ddp"}},
                      half = {.ndim = 2, .sizes = {2, 2}, .names = {"outer", "tp"}};
    static const placement by_tp[] = {{.kind = PLACEMENT_REPLICATE},
                                      {.kind = PLACEMENT_SHARD, .dim = 1}},
                           strided[] = {{.kind = PLACEMENT_STRIDED_SHARD,
                                         .dim = 1,
                                         .split_factor = 2},
                                        {.kind = PLACEMENT_SHARD, .dim = 1}},
                           whole[] = {{.kind = PLACEMENT_REPLICATE}, {.kind = PLACEMENT_REPLICATE}};
    begin("dp=4");
    expect(held("a", &source_2d, by_tp), "Shard(0)");
    expect(held("a", &source_2d, strided), "Shard(1)");
    expect(held("a", &source_2d, whole), "Replicate()");
    expect(held("a", &source_unnamed, by_tp), "Shard(1)");
    expect(held("a", &source_unnamed, whole), "Replicate()");
    expect(held("a", &replicated, whole), "Shard(0)");
    expect(held("a", &half, by_tp), "Shard(0)");
    end();
    begin("dp=4,tp=2");
    expect(held("a", &source_2d, by_tp), "[Replicate(), Shard(1)]");
    expect(held("a", &half, by_tp), "[Shard(0), Shard(1)]");
    end();
}

/* Of the source's dims alone: a rule is kept to, or refused. */
Test(layout, uneven_dims_that_are_moved)
{
    static const placement columns[] = {{.kind = PLACEMENT_SHARD, .dim = 1},
                                        {.kind = PLACEMENT_SHARD}};
    placement p[MESH_NDIM_MAX];
    begin("dp=3,tp=2");
    expect_refused(held("w", &source_2d, columns), FSDPCK_UNSUPPORTED, "LAYOUT-UNEVEN");
    l.moves_uneven = true;
    expect(held("w", &source_2d, columns), "[_StridedShard(0, 2), Shard(0)]");
    cr_expect_eq(l.moved, 1);
    layout_tensor t = held("w", &source_2d, columns);
    cr_expect_eq(layout_get_placements(&l, &t, true, p, &err), FSDPCK_OK);
    cr_expect_eq(p[0].dim, 1);
    cr_assert_eq(layout_add_shard_text(&l, "w=1", &err), FSDPCK_OK);
    expect_refused(held("w", &source_2d, columns), FSDPCK_UNSUPPORTED, "LAYOUT-UNEVEN");
    cr_expect_eq(l.moved, 1);
    end();
}

static layout_refit refit;

static void expect_scaled(const mesh *from, uint64_t world_size, const char *expected)
{
    mesh m;
    text_buf out = {0};
    const fsdpck_status st = layout_scale_mesh(from, world_size, true, &m, &refit, &err);
    if (st == FSDPCK_OK)
        mesh_print(&m, &out);
    cr_expect_str_eq(st == FSDPCK_OK ? out.text : err.message, expected, "%s: %s", expected,
                     out.text);
    text_release(&out);
}

/* Bit i of `lost`: dim i of the source. */
static void expect_refit(const mesh *from, uint64_t world_size, const char *expected, unsigned lost,
                         const char *keeper, bool is_exact)
{
    unsigned found = 0;
    text_buf out = {0};
    expect_scaled(from, world_size, expected);
    for (unsigned i = 0; i < refit.lost_count; i++)
        found |= 1u << refit.lost[i];
    cr_expect_eq(found, lost, "%s: lost %x", expected, found);
    mesh_print(&refit.keeper, &out);
    cr_expect_str_eq(out.text == NULL ? "" : out.text, keeper);
    cr_expect_eq(refit.is_exact, is_exact, "%s", expected);
    text_release(&out);
}

static const mesh hsdp = {.ndim = 2, .sizes = {2, 4}, .names = {"ddp", "fsdp"}};

Test(layout, scaled_meshes)
{
    static const mesh tp = {.ndim = 1, .sizes = {4}, .names = {"tp"}},
                      one = {.ndim = 1, .sizes = {4}},
                      pp = {.ndim = 1, .sizes = {4}, .names = {"pp"}},
                      single = {.ndim = 3, .sizes = {1, 4, 1}, .names = {"ddp", "fsdp", "tp"}};
    expect_scaled(NULL, 6, "fsdp=6");
    expect_refit(&hsdp, 8, "ddp=2,fsdp=4", 0, "", false);
    expect_refit(&source_2d, 6, "dp=3,tp=2", 0, "", false);
    expect_refit(&source_2d, 2, "dp=1,tp=2", 0, "", false);
    expect_refit(&tp, 8, "fsdp=2,tp=4", 0, "", false);
    expect_refit(&one, 6, "6", 0, "", false);
    expect_refit(&pp, 6, "pp=6", 0, "", false);
    expect_refit(&single, 3, "ddp=1,fsdp=3,tp=1", 0, "", false);
    expect_refit(&source_unnamed, 4, "2x2", 0, "", false);
    expect_scaled(NULL, 0, "0 ranks requested: 1 to 65534 are supported");
    expect_scaled(NULL, 65535, "65535 ranks requested: 1 to 65534 are supported");
}

/* Replicate dims, dims without names, and dims of model parallelism that do not divide. */
Test(layout, refitted_meshes)
{
    static const mesh tp = {.ndim = 1, .sizes = {4}, .names = {"tp"}},
                      ddp = {.ndim = 1, .sizes = {4}, .names = {"dp_replicate"}},
                      hybrid = {.ndim = 3,
                                .sizes = {2, 2, 2},
                                .names = {"dp_replicate", "dp_shard", "tp"}},
                      half = {.ndim = 2, .sizes = {2, 2}, .names = {"outer", "tp"}};
    expect_refit(&hsdp, 16, "fsdp=16", 1, "ddp=2,fsdp=8", true);
    expect_refit(&hsdp, 2, "fsdp=2", 1, "ddp=2,fsdp=1", true);
    expect_refit(&hsdp, 3, "fsdp=3", 1, "ddp=2,fsdp=2", false);
    cr_expect_eq(refit.step, 2);
    expect_refit(&hsdp, 1, "fsdp=1", 1, "ddp=2,fsdp=4", false);
    expect_refit(&tp, 3, "fsdp=3", 1, "tp=4", false);
    expect_refit(&tp, 2, "fsdp=2", 1, "tp=4", false);
    expect_refit(&ddp, 6, "fsdp=6", 1, "dp_replicate=4,fsdp=2", false);
    expect_refit(&ddp, 8, "fsdp=8", 1, "dp_replicate=4,fsdp=2", true);
    expect_refit(&hybrid, 4, "dp_shard=2,tp=2", 1, "dp_replicate=2,dp_shard=1,tp=2", true);
    expect_refit(&hybrid, 6, "dp_shard=3,tp=2", 1, "dp_replicate=2,dp_shard=2,tp=2", false);
    expect_refit(&hybrid, 9, "dp_shard=9", 5, "dp_replicate=2,dp_shard=3,tp=2", false);
    cr_expect_eq(refit.step, 4);
    expect_refit(&source_unnamed, 8, "fsdp=8", 3, "", false);
    cr_expect(refit.has_unknown);
    expect_refit(&half, 4, "outer=2,tp=2", 0, "", false);
    expect_refit(&half, 8, "fsdp=4,tp=2", 1, "", false);
    expect_refit(&half, 3, "fsdp=3", 3, "fsdp=2,tp=2", false);
    mesh m;
    cr_expect_eq(layout_scale_mesh(&half, 4, false, &m, &refit, &err), FSDPCK_OK);
    cr_expect_eq(m.sizes[0], 2);
    cr_expect_str_eq(m.names[0], "fsdp");
}

/* From the last dim to the first; a dim that does not divide does not keep others out. */
Test(layout, dims_of_model_parallelism_that_stay)
{
    static const mesh ep = {.ndim = 3, .sizes = {2, 2, 4}, .names = {"dp_shard", "ep", "tp"}},
                      cp = {.ndim = 4,
                            .sizes = {2, 2, 3, 2},
                            .names = {"pp", "dp_shard", "cp", "tp"}},
                      context = {.ndim = 2, .sizes = {2, 2}, .names = {"cp", "tp"}};
    expect_refit(&ep, 8, "dp_shard=1,ep=2,tp=4", 0, "", false);
    expect_refit(&ep, 4, "dp_shard=1,tp=4", 2, "dp_shard=2,ep=2,tp=4", false);
    expect_refit(&ep, 12, "dp_shard=3,tp=4", 2, "dp_shard=2,ep=2,tp=4", false);
    expect_refit(&ep, 6, "dp_shard=3,ep=2", 4, "dp_shard=2,ep=2,tp=4", false);
    expect_refit(&ep, 2, "dp_shard=1,ep=2", 4, "dp_shard=2,ep=2,tp=4", false);
    expect_refit(&ep, 5, "dp_shard=5", 6, "dp_shard=2,ep=2,tp=4", false);
    expect_refit(&cp, 12, "pp=2,dp_shard=1,cp=3,tp=2", 0, "", false);
    expect_refit(&cp, 6, "dp_shard=1,cp=3,tp=2", 1, "", false);
    expect_refit(&cp, 8, "pp=2,dp_shard=2,tp=2", 4, "dp_shard=2,cp=3,tp=2", false);
    expect_refit(&context, 8, "cp=4,tp=2", 0, "", false);
}
