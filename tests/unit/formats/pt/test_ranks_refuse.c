#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc.h"
#include "ranks_checkpoint.h"
#include "tests/support/scratch.h"

static char scratch[SCRATCH_BYTES];

static void begin(void)
{
    scratch_make(scratch);
}

static void end(void)
{
    scratch_remove(scratch);
}

TestSuite(ranks_refuse, .init = begin, .fini = end);

static void copy_as(const char *release, const char *file_name, const char *as)
{
    char path[1024], *bytes;
    size_t nbytes;
    fsdpck_error err;
    snprintf(path, sizeof path, "%s/torch-%s/%s", getenv("FIXTURES"), release, file_name);
    cr_assert_eq(file_read_whole(NULL, path, 1 << 20, &bytes, &nbytes, &err), FSDPCK_OK, "%s",
                 path);
    scratch_write(scratch, as, bytes, nbytes);
    free(bytes);
}

static void copy_ranks(const char *release, const char *pattern, const char *as, unsigned from,
                       unsigned to)
{
    char name[256], renamed[256];
    for (unsigned r = from; r < to; r++) {
        snprintf(name, sizeof name, pattern, r); // NOLINT: the tests' own patterns
        snprintf(renamed, sizeof renamed, as, r);
        copy_as(release, name, renamed);
    }
}

static char *find(char *in, size_t nbytes, const char *what, size_t what_nbytes)
{
    for (size_t i = 0; i + what_nbytes <= nbytes; i++)
        if (memcmp(in + i, what, what_nbytes) == 0)
            return in + i;
    return NULL;
}

/* Changes one byte of data.pkl, the first `from` after `anchor`, and repairs the checksums. */
static void patch_pickle(const char *name, const char *anchor, size_t anchor_nbytes, char from,
                         char to)
{
    char path[SCRATCH_BYTES], *bytes;
    size_t nbytes;
    fsdpck_error err;
    cr_assert_eq(
        file_read_whole(NULL, scratch_path(path, scratch, name), 1 << 20, &bytes, &nbytes, &err),
        FSDPCK_OK);
    char *central = find(bytes, nbytes, "PK\1\2", 4);
    cr_assert_not_null(central);
    const size_t begin_at =
        30u + load_le16((uint8_t *)bytes + 26) + load_le16((uint8_t *)bytes + 28);
    const uint32_t pickle_nbytes = load_le32((uint8_t *)central + 24);
    char *pickle = bytes + begin_at;
    char *at = find(pickle, pickle_nbytes, anchor, anchor_nbytes);
    cr_assert_not_null(at, "no anchor in '%s'", name);
    at += anchor_nbytes;
    char *changed = memchr(at, from, 32);
    cr_assert_not_null(changed);
    *changed = to;
    const uint32_t crc = crc32_update(0, pickle, pickle_nbytes);
    for (unsigned i = 0; i < 4; i++) {
        const char byte = (char)(crc >> (8 * i));
        pickle[pickle_nbytes + 4 + i] = byte; /* descriptor */
        central[16 + i] = byte;
    }
    scratch_write(scratch, name, bytes, nbytes);
    free(bytes);
}

static void expect_refused(ranks_checkpoint o, fsdpck_status want, const char *finding,
                           const char *in_text)
{
    fsdpck_error err;
    char all[4096];
    fsdpck_error_init(&err);
    cr_expect_eq(ranks_checkpoint_open(&o, scratch, &err), want, "%s", err.message);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), finding);
    snprintf(all, sizeof all, "%s|%s|%s|%s|%s|%s", err.message, err.tensor, err.expected, err.found,
             err.next, err.path);
    cr_expect_not_null(strstr(all, in_text), "%s", all);
    ranks_checkpoint_close(&o);
    cr_expect_eq(o.owner.used_bytes, 0);
}

static const char state_name[] = "ranks-dtensor/state_rank%u.pt";
static const char verl_name[] = "ranks-verl/model_world_size_4_rank_%u.pt";

Test(ranks_refuse, missing_files_are_named)
{
    copy_ranks("2.15.0", state_name, "state_rank%u.pt", 0, 2);
    copy_ranks("2.15.0", state_name, "state_rank%u.pt", 3, 4);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "FILE-MISSING", "state_rank2.pt");
}

Test(ranks_refuse, the_last_rank_is_missed_because_every_file_tells_the_mesh)
{
    copy_ranks("2.15.0", state_name, "state_rank%u.pt", 0, 3);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "FILE-MISSING", "state_rank3.pt");
    copy_ranks("2.1.2", state_name, "state_rank%u.pt", 0, 3);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "FILE-MISSING", "state_rank3.pt");
}

Test(ranks_refuse, sharded_tensors_tell_who_is_missing)
{
    copy_ranks("1.13.1", "ranks-sharded-tensor/pytorch_model_fsdp_rank%u.bin",
               "pytorch_model_fsdp_rank%u.bin", 0, 3);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "FILE-MISSING",
                   "pytorch_model_fsdp_rank3.bin");
}

Test(ranks_refuse, a_family_that_lacks_a_rank)
{
    copy_ranks("2.15.0", verl_name, "model_world_size_4_rank_%u.pt", 0, 4);
    copy_ranks("2.15.0", "ranks-verl/optim_world_size_4_rank_%u.pt",
               "optim_world_size_4_rank_%u.pt", 0, 3);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "FILE-MISSING",
                   "optim_world_size_4_rank_3.pt");
}

Test(ranks_refuse, fewer_ranks_are_read_only_where_they_are_stated)
{
    static const char hsdp[] = "ranks-hsdp/model_world_size_4_rank_%u.pt";
    ranks_checkpoint o = {.expect_ranks = 2};
    char text[RANKS_DIGEST_BYTES];
    fsdpck_error err;

    copy_ranks("2.15.0", hsdp, "model_world_size_4_rank_%u.pt", 0, 2);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "FILE-MISSING",
                   "model_world_size_4_rank_2.pt, model_world_size_4_rank_3.pt");
    expect_refused((ranks_checkpoint){.expect_ranks = 3}, FSDPCK_BADINPUT, "FILE-MISSING",
                   "model_world_size_4_rank_2.pt");
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(ranks_digest(&o, ranks_tensor_named(&o, "uneven.weight"), text, &err), FSDPCK_OK);
    ranks_checkpoint_close(&o);
    copy_ranks("2.15.0", hsdp, "model_world_size_4_rank_%u.pt", 2, 4);
    expect_refused((ranks_checkpoint){.expect_ranks = 2}, FSDPCK_BADINPUT, "RANK-MIXED", "rank 3");
}

Test(ranks_refuse, a_copy_under_another_ranks_name)
{
    copy_ranks("2.15.0", state_name, "state_rank%u.pt", 0, 4);
    copy_as("2.15.0", "ranks-dtensor/state_rank1.pt", "state_rank2.pt");
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "RANK-DOUBLE",
                   "'state_rank1.pt' and 'state_rank2.pt'");
}

Test(ranks_refuse, files_of_two_saves)
{
    copy_ranks("2.15.0", verl_name, "model_world_size_4_rank_%u.pt", 0, 4);
    copy_as("2.15.0", "ranks-verl/model_world_size_4_rank_0.pt", "model_world_size_2_rank_0.pt");
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "RANK-MIXED",
                   "model_world_size_4_rank_0.pt");
    ranks_checkpoint o = {.rank_pattern = "model_world_size_4_rank_{r}.pt"};
    fsdpck_error err;
    cr_expect_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s", err.message);
    ranks_checkpoint_close(&o);
}

Test(ranks_refuse, two_files_disagree_on_a_shape)
{
    copy_ranks("2.15.0", state_name, "state_rank%u.pt", 0, 4);
    copy_as("2.1.2", "ranks-dtensor/state_rank2.pt", "state_rank2.pt");
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "RANK-DISAGREE",
                   "float32[5,3], as in 'state_rank0.pt'");
}

Test(ranks_refuse, two_files_disagree_on_placements)
{
    copy_ranks("2.15.0", verl_name, "model_world_size_4_rank_%u.pt", 0, 4);
    copy_as("2.15.0", "ranks-hsdp/model_world_size_4_rank_2.pt", "model_world_size_4_rank_2.pt");
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "RANK-DISAGREE",
                   "[Replicate(), Shard(0)]");
}

Test(ranks_refuse, a_local_tensor_that_its_placements_do_not_give)
{
    copy_ranks("2.15.0", state_name, "state_rank%u.pt", 0, 4);
    /* Rank 3 holds no rows; coordinate 0 would hold two. */
    patch_pickle("state_rank3.pt", "_coordinate_on_dim", 18, 3, 0);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "RANK-SHAPE", "[0,3]");
}

Test(ranks_refuse, a_shard_that_its_metadata_do_not_give)
{
    copy_ranks("2.15.0", "ranks-sharded-tensor/pytorch_model_fsdp_rank%u.bin",
               "pytorch_model_fsdp_rank%u.bin", 0, 4);
    patch_pickle("pytorch_model_fsdp_rank0.bin", "shard_sizes", 11, 2, 1);
    expect_refused((ranks_checkpoint){0}, FSDPCK_BADINPUT, "RANK-SHAPE",
                   "pytorch_model_fsdp_rank0.bin");
}

Test(ranks_refuse, sums_that_were_not_done)
{
    copy_ranks("2.15.0", "ranks-partial/state_rank%u.pt", "state_rank%u.pt", 0, 2);
    expect_refused((ranks_checkpoint){0}, FSDPCK_UNSUPPORTED, "LAYOUT-PARTIAL", "gradient");
    copy_ranks("2.1.2", "ranks-partial/state_rank%u.pt", "state_rank%u.pt", 0, 2);
    expect_refused((ranks_checkpoint){0}, FSDPCK_UNSUPPORTED, "LAYOUT-PARTIAL", "gradient");
}

Test(ranks_refuse, pieces_of_flat_parameters_only_where_they_are_asked_for)
{
    ranks_checkpoint o = {0};
    char text[RANKS_DIGEST_BYTES];
    fsdpck_error err;

    copy_ranks("2.15.0", "ranks-flat/model_world_size_2_rank_%u.pt",
               "model_world_size_2_rank_%u.pt", 0, 2);
    copy_ranks("2.15.0", "ranks-flat/optim_world_size_2_rank_%u.pt",
               "optim_world_size_2_rank_%u.pt", 0, 2);
    fsdpck_error_init(&err);
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_eq(o.warnings, 1);
    cr_expect_eq(ranks_digest(&o, ranks_tensor_named(&o, "model.weight"), text, &err), FSDPCK_OK);
    cr_expect_eq(ranks_digest(&o, ranks_tensor_named(&o, "optim.state.0.step"), text, &err),
                 FSDPCK_OK);
    const uint32_t flat = ranks_tensor_named(&o, "optim.state.0.exp_avg");
    cr_expect_eq(ranks_digest(&o, flat, text, &err), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(fsdpck_finding_name(err.finding), "RANK-FLAT");
    ranks_checkpoint_close(&o);

    o = (ranks_checkpoint){.per_rank = PER_RANK_KEEP};
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK);
    cr_expect_eq(ranks_tensor_named(&o, "optim.state.0.exp_avg"), CAT_NONE);
    for (unsigned r = 0; r < 2; r++) {
        snprintf(text, sizeof text, "optim.state.0.exp_avg.rank%u", r);
        cr_assert_neq(ranks_tensor_named(&o, text), CAT_NONE);
        cr_expect_eq(ranks_digest(&o, ranks_tensor_named(&o, text), text, &err), FSDPCK_OK);
    }
    ranks_checkpoint_close(&o);
    o = (ranks_checkpoint){.per_rank = PER_RANK_DROP};
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK);
    cr_expect_eq(ranks_tensor_named(&o, "optim.state.0.exp_avg"), CAT_NONE);
    cr_expect_eq(ranks_digest(&o, ranks_tensor_named(&o, "model.weight"), text, &err), FSDPCK_OK);
    ranks_checkpoint_close(&o);
}

static void copy_verl(void)
{
    static const char *const parts[] = {"model", "optim", "extra_state"};
    char from[128], to[128];
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "ranks-verl/%s_world_size_4_rank_%%u.pt", parts[i]);
        snprintf(to, sizeof to, "%s_world_size_4_rank_%%u.pt", parts[i]);
        copy_ranks("2.15.0", from, to, 0, 4);
    }
}

Test(ranks_refuse, what_differs_between_ranks_follows_the_users_word)
{
    fsdpck_error err;
    ranks_checkpoint o = {0};

    copy_verl();
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK);
    cr_expect_eq(ranks_object_count_named(&o, "extra_state.rng.random"), 4);
    cr_expect_eq(ranks_object_count_named(&o, "extra_state.rng.cpu"), 4, "a generator's state");
    cr_expect_eq(ranks_tensor_named(&o, "extra_state.rng.cpu"), CAT_NONE);
    cr_expect_eq(ranks_object_count_named(&o, "extra_state.lr_scheduler.last_epoch"), 1);
    cr_expect_eq(ranks_object_named(&o, "extra_state.lr_scheduler.last_epoch")->rank, UINT16_MAX);
    const cat_object *cpu = ranks_object_named(&o, "extra_state.rng.cpu") + 2;
    cr_expect_eq(cpu->rank, 2);
    cr_assert_eq(value_kind_of(cpu->content), VALUE_TENSOR);
    const uint64_t inner = value_tensor_index(cpu->content);
    const cat_tensor *t = catalogue_tensor(&o.cat, inner);
    cr_assert(t->flags & CAT_TENSOR_IN_OBJECT);
    uint8_t byte = 0;
    place where;
    cr_assert_eq(o.src.locate(o.src.ctx, t->first_chunk, &where, &err), FSDPCK_OK);
    cr_assert_eq(o.src.read_at(o.src.ctx, where.file, where.offset_bytes, &byte, 1, &err),
                 FSDPCK_OK);
    cr_expect_eq(byte, 2);
    ranks_checkpoint_close(&o);

    o = (ranks_checkpoint){.per_rank = PER_RANK_FIRST};
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK);
    cr_expect_eq(ranks_object_count_named(&o, "extra_state.rng.random"), 1);
    cr_expect_neq(ranks_tensor_named(&o, "extra_state.rng.cpu"), CAT_NONE);
    ranks_checkpoint_close(&o);
    o = (ranks_checkpoint){.per_rank = PER_RANK_DROP};
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK);
    cr_expect_eq(ranks_object_count_named(&o, "extra_state.rng.random"), 0);
    cr_expect_eq(ranks_object_count_named(&o, "extra_state.rng.cpu"), 0);
    cr_expect_eq(ranks_tensor_named(&o, "extra_state.rng.cpu"), CAT_NONE);
    ranks_checkpoint_close(&o);
    expect_refused((ranks_checkpoint){.per_rank = PER_RANK_ERROR}, FSDPCK_BADINPUT, "RANK-DIFFER",
                   "ranks 1, 2, 3");
}

Test(ranks_refuse, names_that_are_no_ranks)
{
    copy_as("2.15.0", "ranks-dtensor/state_rank0.pt", "lora_rank8.pt");
    copy_as("2.15.0", "ranks-dtensor/state_rank0.pt", "lora_rank16.pt");
    copy_as("2.15.0", "ranks-dtensor/state_rank0.pt", "mp_rank_00_model_states.pt");
    cr_expect_not(ranks_checkpoint_probes(scratch));
    /* Rank 4 alone shows that others are missing. */
    copy_as("2.15.0", "ranks-dtensor/state_rank0.pt", "model_rank4.pt");
    cr_expect(ranks_checkpoint_probes(scratch));
    /* One file of torch.save suffices: the one that is none is then named. */
    scratch_write(scratch, "model_rank0.pt", "no zip at all", 13);
    cr_expect(ranks_checkpoint_probes(scratch));
    scratch_write(scratch, "model_rank4.pt", "no zip at all", 13);
    cr_expect_not(ranks_checkpoint_probes(scratch));
    copy_as("2.15.0", "ranks-dtensor/state_rank0.pt", "model_rank0.pt");
    cr_expect(ranks_checkpoint_probes(scratch));
}

Test(ranks_refuse, patterns)
{
    fsdpck_error err;
    copy_ranks("2.15.0", state_name, "part-%u-of-4.ckpt", 0, 4);
    ranks_checkpoint o = {.rank_pattern = "part-{r}-of-{W}.ckpt"};
    cr_expect_not(ranks_checkpoint_probes(scratch));
    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s", err.message);
    cr_expect_neq(ranks_tensor_named(&o, "rows"), CAT_NONE);
    ranks_checkpoint_close(&o);
    expect_refused((ranks_checkpoint){.rank_pattern = "part-0"}, FSDPCK_USAGE, "", "{r}");
    expect_refused((ranks_checkpoint){.rank_pattern = "x{r}"}, FSDPCK_BADINPUT, "RANK-NONE",
                   "x{r}");
}
