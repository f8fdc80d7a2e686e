#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks_checkpoint.h"
#include "text_lines.h"

static void expect_truth(const char *folder_path, bool assume_tp_first)
{
    ranks_checkpoint o = {.assume_tp_first = assume_tp_first};
    fsdpck_error err;
    char path[2200], text[RANKS_DIGEST_BYTES], *digests;
    size_t nbytes, named = 0;

    fsdpck_error_init(&err);
    snprintf(path, sizeof path, "%s.digests", folder_path);
    cr_assert_eq(file_read_whole(NULL, path, 1 << 20, &digests, &nbytes, &err), FSDPCK_OK);
    cr_expect(ranks_checkpoint_probes(folder_path), "%s", folder_path);
    cr_assert_eq(ranks_checkpoint_open(&o, folder_path, &err), FSDPCK_OK, "%s: %s: %s %s",
                 folder_path, fsdpck_finding_name(err.finding), err.message, err.tensor);
    for (uint32_t i = 0; i < catalogue_tensor_count(&o.cat); i++) {
        if (catalogue_tensor(&o.cat, i)->flags & CAT_TENSOR_IN_OBJECT)
            continue;
        named++;
        cr_expect_eq(ranks_digest(&o, i, text, &err), FSDPCK_OK, "%s: %s: %s", folder_path, text,
                     err.message);
        cr_expect(line_is_in(digests, text), "%s: %s", folder_path, text);
    }
    cr_expect_eq(named, count_lines(digests), "%s: %zu", folder_path, named);
    ranks_checkpoint_close(&o);
    free(digests);
    cr_expect_eq(o.owner.used_bytes, 0);
}

static size_t each_case(const char *release)
{
    char path[2048];
    size_t tried = 0;
    DIR *dir = opendir(release);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const size_t n = strlen(e->d_name);
        if (strncmp(e->d_name, "ranks-", 6) != 0 || n < 8 ||
            strcmp(e->d_name + n - 8, ".digests") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%.*s", release, (int)(n - 8), e->d_name);
        expect_truth(path, strstr(path, "wrong-order") != NULL);
        tried++;
    }
    if (dir != NULL)
        closedir(dir);
    return tried;
}

static const char *const releases[] = {"1.13.1", "2.1.2", "2.3.1",  "2.4.1",  "2.6.0",
                                       "2.8.0",  "2.9.1", "2.10.0", "2.13.0", "2.15.0"};

Test(ranks, fixtures_of_all_releases_hold_what_torch_says)
{
    const char *fixtures = getenv("FIXTURES");
    char release[1024];

    cr_assert_not_null(fixtures, "FIXTURES is not set");
    for (size_t i = 0; i < sizeof releases / sizeof releases[0]; i++) {
        snprintf(release, sizeof release, "%s/torch-%s", fixtures, releases[i]);
        cr_expect_gt(each_case(release), 0, "%s", release);
    }
}

static void open_fixture(ranks_checkpoint *o, const char *release, const char *name)
{
    char path[1024];
    fsdpck_error err;
    fsdpck_error_init(&err);
    snprintf(path, sizeof path, "%s/torch-%s/%s", getenv("FIXTURES"), release, name);
    cr_assert_eq(ranks_checkpoint_open(o, path, &err), FSDPCK_OK, "%s: %s", path, err.message);
}

Test(ranks, the_release_is_told_by_the_forms_of_meshes)
{
    static const struct {
        const char *release, *name, *version;
    } rows[] = {
        {"1.13.1", "ranks-sharded-tensor", "1.6 to 2.0"},
        {"2.1.2", "ranks-dtensor", "2.1"},
        {"2.3.1", "ranks-dtensor", "2.2 or 2.3"},
        {"2.4.1", "ranks-dtensor", "2.4"},
        {"2.6.0", "ranks-dtensor", "2.5 to 2.7"},
        {"2.8.0", "ranks-dtensor", "2.8 or 2.9"},
        {"2.9.1", "ranks-dtensor", "2.8 or 2.9"},
        {"2.10.0", "ranks-dtensor", "2.10"},
        {"2.13.0", "ranks-dtensor", "2.13 or 2.14"},
        {"2.15.0", "ranks-dtensor", "2.15 or newer"},
        {"2.15.0", "ranks-sharded-tensor", "2.15 or newer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ranks_checkpoint o = {0};
        open_fixture(&o, rows[i].release, rows[i].name);
        cr_expect_str_eq(o.cat.origin.torch_version, rows[i].version);
        cr_expect_str_eq(o.cat.origin.format, "pt-ranks");
        cr_expect_eq(o.cat.origin.world_size, 4);
        ranks_checkpoint_close(&o);
    }
}

Test(ranks, layouts_are_told_in_terms_of_the_whole_mesh)
{
    static const struct {
        const char *release, *name, *tensor, *spec;
    } rows[] = {
        {"2.15.0", "ranks-hsdp", "uneven.weight", "ddp=2,fsdp=2 [Replicate(), Shard(0)]"},
        {"2.15.0", "ranks-hsdp", "mask", ""},
        {"2.6.0", "ranks-tp", "0.weight", "dp=2,tp=2 [_StridedShard(0, 2), Shard(0)]"},
        {"2.10.0", "ranks-tp", "0.weight", "dp=2,tp=2 [_StridedShard(0, 2), Shard(0)]"},
        {"2.15.0", "ranks-tp", "0.weight", "dp=2,tp=2 [_StridedShard(0, 2), Shard(0)]"},
        {"2.15.0", "ranks-tp", "1.weight", "dp=2,tp=2 [Shard(0), Shard(1)]"},
        {"2.15.0", "ranks-tp", "2.weight", "dp=2,tp=2 [Shard(0), Replicate()] - tp"},
        {"2.15.0", "ranks-tp", "tp_only.0.weight", "dp=2,tp=2 [Replicate(), Shard(0)] - dp"},
        {"2.4.1", "ranks-dtensor", "slice", "dp=2,tp=2 [Replicate(), Shard(0)] - dp"},
        {"2.1.2", "ranks-dtensor", "columns", "4 Shard(1)"},
        {"2.15.0", "ranks-sharded-tensor", "columns", "fsdp=4 Shard(1)"},
        {"2.15.0", "ranks-hybrid", "weight", "ddp=2,fsdp=2 [Replicate(), Shard(0)]"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ranks_checkpoint o = {0};
        open_fixture(&o, rows[i].release, rows[i].name);
        cr_expect_str_eq(ranks_spec_text(&o, rows[i].tensor, text), rows[i].spec, "%s %s: %s",
                         rows[i].release, rows[i].tensor, text);
        ranks_checkpoint_close(&o);
    }
}

Test(ranks, a_trainers_folder_is_one_checkpoint)
{
    ranks_checkpoint o = {0};
    char text[256];

    open_fixture(&o, "2.15.0", "ranks-verl");
    cr_expect_str_eq(o.cat.origin.trainer, "verl");
    cr_expect_eq(o.warnings, 0);
    cr_assert_eq(o.cat.origin.rank_family_count, 3);
    cr_expect_str_eq(o.cat.origin.rank_families[2].key, "extra_state");
    cr_expect_str_eq(o.cat.origin.rank_families[2].pattern,
                     "extra_state_world_size_{W}_rank_{r}.pt");
    cr_expect_neq(ranks_tensor_named(&o, "model.uneven.weight"), CAT_NONE);
    cr_expect_str_eq(ranks_spec_text(&o, "optim.state.0.exp_avg", text), "fsdp=4 Shard(0)");
    const cat_tensor *t = catalogue_tensor(&o.cat, ranks_tensor_named(&o, "optim.state.0.exp_avg"));
    cr_assert_eq(value_count(&o.cat.pool, t->path), 4);
    cr_expect(value_is_str(&o.cat.pool, value_item(&o.cat.pool, t->path, 0), "optim"));
    cr_expect_eq(value_kind_of(value_item(&o.cat.pool, t->path, 2)), VALUE_BYTES, "an int key");
    cr_expect_not_null(ranks_object_named(&o, "optim.param_groups.0.lr"));
    ranks_checkpoint_close(&o);

    o = (ranks_checkpoint){0};
    open_fixture(&o, "2.15.0", "ranks-accelerate");
    cr_expect_str_eq(o.cat.origin.trainer, "accelerate");
    cr_expect_neq(ranks_tensor_named(&o, "optimizer.state.0.exp_avg"), CAT_NONE);
    ranks_checkpoint_close(&o);
}

Test(ranks, placements_of_torch_2_3_may_lie)
{
    ranks_checkpoint o = {0};
    char text[256];

    open_fixture(&o, "2.4.1", "ranks-wrong-order");
    cr_expect_eq(o.warnings, 1);
    cr_expect_not_null(strstr(o.cat.origin.note, "--assume fsdp2-tp-2.3"));
    cr_expect_str_eq(ranks_spec_text(&o, "0.weight", text), "dp=2,tp=2 [Shard(0), Shard(0)]");
    ranks_checkpoint_close(&o);

    o = (ranks_checkpoint){.assume_tp_first = true};
    open_fixture(&o, "2.4.1", "ranks-wrong-order");
    cr_expect_eq(o.warnings, 0);
    cr_expect_str_eq(ranks_spec_text(&o, "0.weight", text),
                     "dp=2,tp=2 [_StridedShard(0, 2), Shard(0)]");
    ranks_checkpoint_close(&o);
}
