#include <criterion/criterion.h>
#include <string.h>

#include "layout/mesh_text.h"

static void expect_mesh(const char *given, const char *printed)
{
    mesh m;
    fsdpck_error err;
    text_buf out = {0};
    fsdpck_error_init(&err);
    cr_assert_eq(mesh_parse(given, &m, &err), FSDPCK_OK, "%s: %s", given, err.message);
    cr_expect_eq(mesh_check(&m, &err), FSDPCK_OK);
    mesh_print(&m, &out);
    cr_expect_str_eq(out.text, printed);
    text_release(&out);
}

Test(mesh_text, reads_and_prints)
{
    expect_mesh("fsdp=8", "fsdp=8");
    expect_mesh("dp_replicate=2,dp_shard=4,tp=2", "dp_replicate=2,dp_shard=4,tp=2");
    expect_mesh("ddp=1,fsdp=65534", "ddp=1,fsdp=65534");
    expect_mesh("dp_shard=4,cp=2", "dp_shard_cp=8");
    expect_mesh("fsdp=4,cp=2,tp=3", "fsdp_cp=8,tp=3");
    expect_mesh("cp=2,tp=3", "cp=2,tp=3");
    expect_mesh("dp_shard_cp=6", "dp_shard_cp=6");
}

static void expect_no_mesh(const char *given, const char *why)
{
    mesh m;
    fsdpck_error err;
    cr_expect_eq(mesh_parse(given, &m, &err), FSDPCK_USAGE, "%s", given);
    cr_expect(strstr(err.message, why) != NULL, "'%s': %s", given, err.message);
}

Test(mesh_text, refuses)
{
    expect_no_mesh("", "expected NAME=SIZE");
    expect_no_mesh("8", "expected NAME=SIZE");
    expect_no_mesh("=8", "expected NAME=SIZE");
    expect_no_mesh("fsdp=8,", "expected NAME=SIZE");
    expect_no_mesh("fsdp=0", "whole numbers");
    expect_no_mesh("fsdp=", "whole numbers");
    expect_no_mesh("fsdp=-1", "whole numbers");
    expect_no_mesh("fsdp=2x", "whole numbers");
    expect_no_mesh("fsdp=65535", "whole numbers");
    expect_no_mesh("fsdp=18446744073709551617", "whole numbers");
    expect_no_mesh("fsdp=300,tp=300", "65534 ranks");
    expect_no_mesh("fsdp=4,cp=65534", "65534 ranks");
    expect_no_mesh("pp=2", "does not shard tensors");
    expect_no_mesh("p=2", "unknown dim name");
    expect_no_mesh("a_name_that_is_longer_than_any_of_a_mesh_dim=2", "unknown dim name");
    expect_no_mesh("fsdp=2,dp_shard=2", "same role");
    expect_no_mesh("tp=2,tp=2", "same role");
    expect_no_mesh("dp_shard=2,cp=2,cp=2", "same role");
    expect_no_mesh("dp_shard=2,tp=2,cp=2", "directly follow");
}

static void expect_found(const char *given, const char *found)
{
    mesh m;
    fsdpck_error err;
    cr_expect_eq(mesh_parse(given, &m, &err), FSDPCK_USAGE, "%s", given);
    cr_expect_str_eq(err.found, found, "%s: %s", given, err.found);
}

Test(mesh_text, shows_what_is_wrong_alone)
{
    expect_found("replica=2,fsdp=2", "'replica'");
    expect_found("dp=0,tp=2", "'0'");
    expect_found("fsdp=2,pp=2,tp=2", "'pp'");
    expect_found("fsdp,tp=2", "'fsdp'");
    expect_found("tp=3,fsdp=2,dp=2,ep=2", "'dp=2'");
}

Test(mesh_text, checks_meshes_from_files)
{
    mesh m = {.ndim = 2, .sizes = {2, 3}};
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_OK);
    m.sizes[1] = 0;
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_BADINPUT);
    m.sizes[1] = UINT64_MAX;
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_BADINPUT);
    m.sizes[1] = 32768;
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_BADINPUT);
    m.sizes[1] = 3;
    memset(m.names[1], 'x', MESH_NAME_NBYTES);
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_BADINPUT);
    m = (mesh){.ndim = MESH_NDIM_MAX + 1};
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_BADINPUT);
    m = (mesh){0};
    cr_expect_eq(mesh_check(&m, NULL), FSDPCK_BADINPUT);
}

Test(mesh_text, ranks_are_row_major)
{
    const mesh m = {.ndim = 3, .sizes = {2, 3, 4}};
    uint64_t coord[MESH_NDIM_MAX];
    mesh_coord(&m, 17, coord);
    cr_expect(coord[0] == 1 && coord[1] == 1 && coord[2] == 1);
    for (uint64_t rank = 0; rank < 24; rank++) {
        mesh_coord(&m, rank, coord);
        cr_expect_eq(mesh_rank(&m, coord), rank);
    }
    cr_expect_eq(mesh_size(&m), 24);
}

Test(mesh_text, prints_without_names_and_escaped)
{
    mesh m = {.ndim = 2, .sizes = {2, 4}};
    text_buf out = {0};
    mesh_print(&m, &out);
    cr_expect_str_eq(out.text, "2x4");
    out.nbytes = 0;
    memcpy(m.names[0], "a\033[", 4);
    memcpy(m.names[1], "tp", 3);
    mesh_print(&m, &out);
    cr_expect_str_eq(out.text, "a\\x1B[=2,tp=4");
    text_release(&out);
}

Test(mesh_text, prints_placements)
{
    static const placement p[] = {{.kind = PLACEMENT_REPLICATE},
                                  {.kind = PLACEMENT_STRIDED_SHARD, .dim = 1, .split_factor = 2},
                                  {.kind = PLACEMENT_SHARD, .dim = 1},
                                  {.kind = PLACEMENT_PARTIAL}};
    text_buf out = {0};
    placements_print(p, 4, &out);
    cr_expect_str_eq(out.text, "[Replicate(), _StridedShard(1, 2), Shard(1), Partial()]");
    out.nbytes = 0;
    placements_print(p + 2, 1, &out);
    cr_expect_str_eq(out.text, "Shard(1)");
    text_release(&out);
}

Test(mesh_text, roles)
{
    mesh m = {.ndim = 1, .sizes = {4}, .names = {"anything"}};
    mesh_role roles[MESH_NDIM_MAX];
    cr_expect_eq(mesh_role_of("dp_replicate"), ROLE_REPLICATE);
    cr_expect_eq(mesh_role_of("dp"), ROLE_FSDP);
    cr_expect_eq(mesh_role_of("fsdp_cp"), ROLE_FSDP);
    cr_expect_eq(mesh_role_of("tp_cp"), ROLE_UNKNOWN);
    cr_expect_eq(mesh_role_of("cp"), ROLE_CP);
    mesh_roles(&m, roles);
    cr_expect_eq(roles[0], ROLE_FSDP);
    m.ndim = 2;
    mesh_roles(&m, roles);
    cr_expect_eq(roles[0], ROLE_UNKNOWN);
    cr_expect_eq(mesh_dim_of(&m, ROLE_TP), 2);
}
