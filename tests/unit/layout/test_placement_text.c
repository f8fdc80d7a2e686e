#include <criterion/criterion.h>

#include "layout/placement_text.h"

Test(placement_text, torchs_own_forms)
{
    static const char *const texts[] = {
        "[Replicate(), Shard(0), _StridedShard(1, 2)]",
        "(Replicate(), Shard(dim=0), _StridedShard(dim=1, split_factor=2))",
        "R, S(0), _S(1, 2)",
        " [ Replicate() ,Shard( 0 ), _StridedShard(dim=1, sf=2) ] ",
    };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        placement p[MESH_NDIM_MAX];
        fsdpck_error err;
        cr_assert_eq(placements_parse(texts[i], 3, p, &err), FSDPCK_OK, "%s: %s, found %s",
                     texts[i], err.message, err.found);
        cr_expect_eq(p[0].kind, PLACEMENT_REPLICATE);
        cr_expect(p[1].kind == PLACEMENT_SHARD && p[1].dim == 0);
        cr_expect(p[2].kind == PLACEMENT_STRIDED_SHARD && p[2].dim == 1 && p[2].split_factor == 2);
        cr_expect_eq(p[3].kind, PLACEMENT_REPLICATE);
    }
    placement p[MESH_NDIM_MAX];
    cr_expect_eq(placements_parse("(Shard(dim=3),)", 1, p, NULL), FSDPCK_OK);
    cr_expect_eq(p[0].dim, 3);
}

Test(placement_text, anything_else_is_refused)
{
    static const char *const texts[] = {
        "",
        "Shard",
        "Shard()",
        "Shard(0",
        "Shard(64)",
        "Shard(-1)",
        "Partial()",
        "[Shard(0)",
        "Shard(0)]",
        "Shard(0), Shard(1)",
        "Shard(0) x",
        "_StridedShard(0)",
        "_StridedShard(0, 0)",
        "_StridedShard(0, 4294967296)",
        "Shard(99999999999999999999)",
    };
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        placement p[MESH_NDIM_MAX];
        fsdpck_error err;
        cr_expect_eq(placements_parse(texts[i], 1, p, &err), FSDPCK_USAGE, "'%s'", texts[i]);
    }
}
