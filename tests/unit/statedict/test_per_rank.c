#include <criterion/criterion.h>

#include "statedict/per_rank.h"

enum { POLICIES = PER_RANK_ERROR + 1 };

/* The uses by policy: auto, keep, first, drop, error. */
typedef struct row {
    rank_copies copies;
    rank_copies_use uses[POLICIES];
} row;

static void expect_row(const row *r, size_t at, bool unflattens)
{
    for (int policy = 0; policy < POLICIES; policy++) {
        const per_rank_rule rule = {.policy = (per_rank_policy)policy, .unflattens = unflattens};
        const rank_copies_rule asked = per_rank_copies(&rule);
        cr_expect_eq(asked.compares, policy != PER_RANK_AUTO);
        cr_expect_eq(asked.use(asked.ctx, &r->copies), r->uses[policy], "row %zu, policy %d: %d",
                     at, policy, (int)asked.use(asked.ctx, &r->copies));
    }
}

#define USES(AUTO, KEEP, FIRST, DROP, ERROR)                                             \
    {                                                                                    \
        RANK_COPIES_##AUTO, RANK_COPIES_##KEEP, RANK_COPIES_##FIRST, RANK_COPIES_##DROP, \
            RANK_COPIES_##ERROR                                                          \
    }
#define FOR_MODEL_ALWAYS USES(FOR_MODEL, FOR_MODEL, FOR_MODEL, FOR_MODEL, FOR_MODEL)

Test(per_rank, the_policy_decides_where_copies_differ_or_some_ranks_have_none)
{
    static const row rows[] = {
        {{.name = "a"}, USES(JOIN, JOIN, JOIN, JOIN, JOIN)},
        {{.name = "a", .differ = true}, USES(JOIN, EACH, FIRST, OMIT, REFUSE)},
        {{.name = "a", .differ = true, .in_rng = true}, USES(OBJECTS, EACH, FIRST, OMIT, REFUSE)},
        {{.name = "a", .differ = true, .is_single = true},
         USES(OBJECTS, EACH, FIRST, OMIT, REFUSE)},
        {{.name = "a", .on_some_ranks = true}, USES(JOIN, EACH, JOIN, OMIT, REFUSE)},
        {{.name = "a", .of_stages = true}, USES(JOIN, EACH, JOIN, JOIN, JOIN)},
        {{.name = "a", .is_object = true}, USES(JOIN, JOIN, JOIN, JOIN, JOIN)},
        {{.name = "a", .is_object = true, .differ = true},
         USES(OBJECTS, EACH, FIRST, OMIT, REFUSE)},
        {{.name = "a", .is_object = true, .on_some_ranks = true},
         USES(JOIN, EACH, JOIN, OMIT, REFUSE)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_row(&rows[i], i, false);
}

Test(per_rank, shards_of_flat_parameters_are_never_joined)
{
    static const row rows[] = {
        {{.name = "a", .is_1dim = true, .in_optimizer = true, .may_be_shard = true},
         USES(JOIN, JOIN, JOIN, JOIN, JOIN)},
        {{.name = "a", .is_1dim = true, .may_be_shard = true, .is_shard = true},
         USES(FLAT, EACH, FLAT, FLAT, FLAT)},
        {{.name = "a",
          .is_1dim = true,
          .may_be_shard = true,
          .is_shard = true,
          .may_be_copy = true},
         USES(FLAT, EACH, JOIN, FLAT, FLAT)},
        {{.name = "a", .is_1dim = true, .may_be_shard = true, .is_shard = true, .differ = true},
         USES(FLAT, EACH, FLAT, OMIT, FLAT)},
        {{.name = "a", .is_1dim = true, .differ = true, .beside_flat = true},
         USES(OMIT_SHARD, OMIT_SHARD, OMIT_SHARD, OMIT_SHARD, OMIT_SHARD)},
        {{.name = "a", .differ = true, .beside_flat = true, .owns_records = true},
         USES(OMIT_SHARD, EACH, OMIT_SHARD, OMIT_SHARD, OMIT_SHARD)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_row(&rows[i], i, false);
}

Test(per_rank, unflattening_gets_each_possible_shard)
{
    static const row rows[] = {
        {{.name = "a.flat_param", .is_1dim = true}, FOR_MODEL_ALWAYS},
        {{.name = "a._flat_param", .is_1dim = true}, FOR_MODEL_ALWAYS},
        {{.name = "flat_param_3", .is_1dim = true}, FOR_MODEL_ALWAYS},
        {{.name = "a", .is_1dim = true, .may_be_shard = true}, FOR_MODEL_ALWAYS},
        {{.name = "a", .is_1dim = true, .differ = true, .beside_flat = true}, FOR_MODEL_ALWAYS},
        {{.name = "a", .differ = true, .in_optimizer = true}, FOR_MODEL_ALWAYS},
        {{.name = "a.flat_param", .differ = true}, USES(JOIN, EACH, FIRST, OMIT, REFUSE)},
        {{.name = "a.flat_params", .is_1dim = true}, USES(JOIN, JOIN, JOIN, JOIN, JOIN)},
        {{.name = "a", .differ = true, .in_optimizer = true, .in_rng = true},
         USES(OBJECTS, EACH, FIRST, OMIT, REFUSE)},
        {{.name = "flat_param", .is_1dim = true, .is_object = true, .differ = true},
         USES(OBJECTS, EACH, FIRST, OMIT, REFUSE)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_row(&rows[i], i, true);
}
