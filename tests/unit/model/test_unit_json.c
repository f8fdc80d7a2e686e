#include <criterion/criterion.h>
#include <string.h>

#include "model/unit_json.h"
#include "unit_case.h"

TestSuite(unit_json, .init = setup, .fini = teardown);

static fsdpck_status read_list(const char *text, uint32_t world_size)
{
    json_reader r;
    json_token t;
    json_reader_init(&r, text, strlen(text), FSDPCK_FINDING_MODEL_JSON);
    fsdpck_status st = json_expect(&r, JSON_ARRAY, &t, &why);
    if (st == FSDPCK_OK)
        st = unit_json_read(&r, &(unit_defaults){.world_size = world_size}, &list, &why);
    json_reader_release(&r);
    return st;
}

static void expect_refused(const char *text, const char *finding)
{
    fsdpck_error_init(&why);
    cr_expect_eq(read_list(text, 4), FSDPCK_BADINPUT, "%s", text);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), finding, "%s: %s", text, why.message);
    unit_list_release(&list);
    unit_list_init(&list, &bytes);
}

Test(unit_json, the_example_of_the_manual)
{
    cr_assert_eq(
        read_list("[{\"prefix\": \"emb\", \"params\": [{\"fqn\": \"emb.weight\", \"shape\": [2]}]},"
                  "{\"prefix\": \"blk\", \"flat_param\": \"_flat_param\","
                  "\"world_size\": 4, \"use_orig_params\": true, \"dtype\": \"float32\","
                  "\"alignment_elements\": 4, \"params\": ["
                  "{\"fqn\": \"blk.a.weight\", \"shape\": [5, 3]},"
                  "{\"fqn\": \"blk.a.bias\", \"shape\": [5]},"
                  "{\"fqn\": \"blk.b.weight\", \"shape\": [3, 5]}],"
                  "\"shared\": [{\"fqn\": \"head.weight\", \"same_as\": \"emb.weight\"}],"
                  "\"total_unpadded\": 40}]",
                  2),
        FSDPCK_OK, "%s", why.message);
    cr_assert_eq(unit_count(&list), 2);
    const unit *u = unit_at(&list, 1);
    cr_expect_eq(u->total, 40);
    cr_expect_eq(u->shard_size, 10);
    cr_expect_eq(u->nparams, 3);
    cr_expect_eq(u->dtype, DTYPE_FLOAT32);
    cr_expect_str_eq(unit_name(&list, u->prefix, NULL), "blk");
    cr_expect_str_eq(unit_name(&list, unit_shared_at(&list, u, 0)->same_as, NULL), "emb.weight");
    u = unit_at(&list, 0);
    cr_expect_eq(u->world_size, 2, "of the document");
    cr_expect_eq(u->dtype, DTYPE_NONE);
    cr_expect_str_eq(unit_name(&list, u->flat_name, NULL), "_flat_param");
}

Test(unit_json, keys_come_in_any_order)
{
    cr_assert_eq(read_list("[{\"total_unpadded\": 24, \"shared\": [{\"same_as\": \"w\","
                           " \"fqn\": \"v\"}], \"params\": [{\"strides\": [1, 2], \"shape\":"
                           " [2, 3], \"fqn\": \"w\"}, {\"fqn\": \"x\", \"shape\": [9]}],"
                           " \"row_major\": true, \"param_dtype\": \"bfloat16\", \"dtype\":"
                           " \"float32\", \"use_orig_params\": true, \"world_size\": 8,"
                           " \"flat_param\": \"flat_param\"}]",
                           0),
                 FSDPCK_OK, "%s", why.message);
    const unit *u = unit_at(&list, 0);
    cr_expect_eq(u->alignment, 8);
    cr_expect_eq(u->total, 24);
    cr_expect_eq(unit_param_at(&list, u, 1)->offset, 8);
    cr_expect_not(unit_param_at(&list, u, 0)->permuted);
    cr_expect_str_eq(unit_name(&list, u->flat_name, NULL), "flat_param");
    cr_expect_str_eq(unit_name(&list, u->prefix, NULL), "");
}

Test(unit_json, no_alignment_is_torch_2_0)
{
    cr_assert_eq(read_list("[{\"use_orig_params\": true, \"alignment_elements\": 0, \"params\":"
                           " [{\"fqn\": \"w\", \"shape\": [5, 3]}, {\"fqn\": \"v\", \"shape\":"
                           " [20]}], \"total_unpadded\": 35}]",
                           4),
                 FSDPCK_OK, "%s", why.message);
}

Test(unit_json, no_shard)
{
    cr_assert_eq(read_list("[{\"sharding_strategy\": \"NO_SHARD\", \"params\": [{\"fqn\": \"w\","
                           " \"shape\": [5]}]}]",
                           4),
                 FSDPCK_OK, "%s", why.message);
    cr_expect_eq(unit_at(&list, 0)->shard_size, 5);
}

Test(unit_json, what_contradicts_is_refused)
{
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [5]}], \"total_unpadded\": 6}]",
                   "MODEL-TOTAL");
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [5], \"strides\": [1, 1]}]}]",
                   "MODEL-SHAPE");
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [5]}, {\"fqn\": \"w\", \"shape\":"
                   " [5]}]}]",
                   "MODEL-NAME-DUP");
    expect_refused("[{\"params\": []}, {\"params\": []}]", "MODEL-NAME-DUP");
    expect_refused("[{\"params\": [], \"shared\": [{\"fqn\": \"w\", \"same_as\": \"v\"}]}]",
                   "MODEL-TIE");
}

Test(unit_json, misspelt_and_missing_keys_are_refused)
{
    expect_refused("[{\"parameters\": []}]", "MODEL-KEY");
    expect_refused("[{}]", "MODEL-KEY");
    expect_refused("[{\"params\": [{\"fqn\": \"w\"}]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [{\"shape\": [5]}]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [5], \"size\": 5}]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"params\": []}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"shared\": [{\"fqn\": \"w\"}]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"use_orig_params\": true}]", "MODEL-KEY");
    expect_refused("[5]", "MODEL-KEY");
}

Test(unit_json, wrong_kinds_are_refused)
{
    expect_refused("[{\"params\": {}}]", "MODEL-KEY");
    expect_refused("[{\"params\": [5]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"world_size\": 0}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"world_size\": 4294967296}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"use_orig_params\": 1}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"dtype\": \"int64\"}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"sharding_strategy\": \"ZERO\"}]", "MODEL-KEY");
    expect_refused("[{\"params\": [], \"prefix\": null}]", "MODEL-KEY");
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [-5]}]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [5.5]}]}]", "MODEL-KEY");
    expect_refused("[{\"params\": [{\"fqn\": \"w\", \"shape\": [4294967296, 4294967296]}]}]",
                   "MODEL-SHAPE");
    expect_refused("[{\"params\": [}]", "MODEL-JSON");
}

Test(unit_json, the_world_size_is_said_somewhere)
{
    cr_expect_eq(read_list("[{\"params\": []}]", 0), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(why.finding), "MODEL-KEY");
}

Test(unit_json, an_error_says_where_it_is)
{
    cr_expect_eq(read_list("[{\"params\": [{\"fqn\": \"w\", \"shape\": [5], \"x\": 1}]}]", 4),
                 FSDPCK_BADINPUT);
    cr_expect(why.has_offset);
    cr_expect_eq(why.offset_bytes, 40);
    unit_list_release(&list);
    unit_list_init(&list, &bytes);
    fsdpck_error_init(&why);
    cr_expect_eq(read_list("[{\"params\": [{\"fqn\": \"w\", \"shape\": [4, 3],"
                           " \"strides\": [5, 1]}]}]",
                           4),
                 FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(why.tensor, "w");
    cr_expect(why.has_offset);
}

Test(unit_json, defaults_are_those_of_a_release)
{
    static const char text[] = "[{\"use_orig_params\": true, \"dtype\": \"float32\", \"params\": ["
                               "{\"fqn\": \"a\", \"shape\": [2, 3], \"strides\": [1, 2]}, "
                               "{\"fqn\": \"b\", \"shape\": [2]}]}]";
    static const struct {
        uint32_t major, minor;
        const char *flat_name;
        uint64_t offset;
        bool permuted;
    } releases[] = {
        {1, 13, "flat_param", 6, false},
        {2, 0, "_flat_param", 6, false},
        {2, 1, "_flat_param", 8, false},
        {2, 6, "_flat_param", 8, true},
    };
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        const unit_defaults d = unit_defaults_of(2, releases[i].major, releases[i].minor);
        json_reader r;
        json_token t;
        json_reader_init(&r, text, strlen(text), FSDPCK_FINDING_MODEL_JSON);
        cr_assert_eq(json_expect(&r, JSON_ARRAY, &t, &why), FSDPCK_OK);
        cr_assert_eq(unit_json_read(&r, &d, &list, &why), FSDPCK_OK, "%s", why.message);
        const unit *u = unit_at(&list, 0);
        cr_expect_str_eq(unit_name(&list, u->flat_name, NULL), releases[i].flat_name);
        cr_expect_eq(unit_param_at(&list, u, 1)->offset, releases[i].offset, "2.%u",
                     releases[i].minor);
        cr_expect_eq(unit_param_at(&list, u, 0)->permuted, releases[i].permuted);
        json_reader_release(&r);
        unit_list_release(&list);
        unit_list_init(&list, &bytes);
    }
}
