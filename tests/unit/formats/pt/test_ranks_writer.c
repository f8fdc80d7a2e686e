#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pt/pt.h"
#include "formats/pt/ranks_internal.h"
#include "ranks_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/sharded_target.h"
#include "tests/support/target_write.h"

static char scratch[SCRATCH_BYTES], other[SCRATCH_BYTES], path[SCRATCH_BYTES];
static budget owner;
static target t;
static fsdpck_error err;

static void setup(void)
{
    scratch_make(scratch);
    scratch_make(other);
    budget_init(&owner, 64 << 20, "target", NULL);
    target_init(&t, &owner);
}

static void teardown(void)
{
    target_release(&t);
    cr_expect_eq(owner.used_bytes, 0);
    scratch_remove(scratch);
    scratch_remove(other);
}

TestSuite(ranks_writer, .init = setup, .fini = teardown);

static const writer_options plain = {.device_type = "cpu"};

static value dict(void)
{
    value v;
    cr_assert_eq(value_new_dict(&t.cat.pool, &v, &err), FSDPCK_OK);
    return v;
}

static void put(value d, const char *key, value item)
{
    value k;
    cr_assert_eq(value_new_str(&t.cat.pool, key, strlen(key), &k, &err), FSDPCK_OK);
    cr_assert_eq(value_dict_put(&t.cat.pool, d, k, item, &err), FSDPCK_OK);
}

static value number(int64_t i)
{
    value v;
    cr_assert_eq(value_new_int(&t.cat.pool, i, &v, &err), FSDPCK_OK);
    return v;
}

static value tensor(const char *name, dtype d, unsigned ndim, const uint64_t *shape,
                    const char *cut)
{
    uint32_t index;
    cr_assert_eq(sharded_target_add(&t, name, d, ndim, shape, cut, true, &index, &err), FSDPCK_OK,
                 "%s", err.message);
    return value_of_tensor(index);
}

/* w (5,3) float32 cut on dim 0, col (4,4) bfloat16, ids (6) int64 on every rank, step. */
static value state(const char *row, const char *col)
{
    const value d = dict();
    put(d, "w", tensor("w", DTYPE_FLOAT32, 2, (uint64_t[]){5, 3}, row));
    put(d, "col", tensor("col", DTYPE_BFLOAT16, 2, (uint64_t[]){4, 4}, col));
    put(d, "ids", tensor("ids", DTYPE_INT64, 1, (uint64_t[]){6}, ""));
    put(d, "step", tensor("step", DTYPE_FLOAT32, 0, NULL, ""));
    put(d, "epoch", number(7));
    return d;
}

static void begin(const char *mesh_text)
{
    cr_assert_eq(sharded_target_begin(&t, mesh_text, &err), FSDPCK_OK, "%s", err.message);
}

static fsdpck_status layout(const writer_options *opt)
{
    const fsdpck_status st = catalogue_seal(&t.cat, &err);
    return st == FSDPCK_OK ? pt_ranks_writer.layout(&t, opt, &err) : st;
}

static void write_to(const char *dir, const writer_options *opt)
{
    cr_assert_eq(layout(opt), FSDPCK_OK, "%s %s", err.message, err.tensor);
    cr_assert_eq(target_write(&t, &pt_ranks_writer, dir, target_fill_index, NULL, &err), FSDPCK_OK,
                 "%s", err.message);
}

static char *read_file(const char *dir, const char *name, size_t *nbytes)
{
    char *bytes;
    scratch_path(path, dir, name);
    cr_assert_eq(file_read_whole(NULL, path, 1 << 20, &bytes, nbytes, &err), FSDPCK_OK, "%s: %s",
                 name, err.message);
    return bytes;
}

static bool holds(const char *dir, const char *name, const char *text)
{
    size_t nbytes;
    const size_t n = strlen(text);
    bool found = false;
    char *bytes = read_file(dir, name, &nbytes);
    for (size_t i = 0; i + n <= nbytes && !found; i++)
        found = memcmp(bytes + i, text, n) == 0;
    free(bytes);
    return found;
}

static bool exists(const char *name)
{
    for (size_t i = 0; i < catalogue_file_count(&t.cat); i++)
        if (strcmp(catalogue_name(&t.cat, catalogue_file(&t.cat, i)->path), name) == 0)
            return true;
    return false;
}

Test(ranks_writer, every_rank_has_a_file_of_its_own)
{
    begin("fsdp=4");
    t.root = state("0", "1");
    write_to(scratch, &plain);
    cr_expect_eq(scratch_count(scratch), 4);
    cr_expect(t.want_crc && t.is_folder);
    for (uint32_t r = 0; r < 4; r++) {
        char name[64];
        snprintf(name, sizeof name, "model_world_size_4_rank_%u.pt", r);
        cr_expect(exists(name), "%s", name);
        cr_expect_eq(catalogue_file(&t.cat, r)->rank, r);
        const cat_chunk *w = catalogue_chunk(&t.cat, r);
        cr_expect_eq(w->file, r);
        cr_expect_eq(w->place, r == 3 ? LOCATION_EMPTY : LOCATION_ROWS);
        cr_expect_eq(w->offset_bytes % 64, 0);
    }
}

/* A slice's mesh comes late, and has what no other file has. */
Test(ranks_writer, texts_around_a_slice_are_held_once)
{
    static const unsigned minors[] = {6, 8, 10, 15};
    for (int k = 0; k < 4; k++) {
        const writer_options opt = {.torch_minor = minors[k]};
        char name[16];
        begin("fsdp=32,tp=2");
        t.root = dict();
        for (int i = 0; i < 60; i++) {
            snprintf(name, sizeof name, "t%d", i);
            put(t.root, name,
                tensor(name, DTYPE_FLOAT32, 2, (uint64_t[]){128, 3}, i < 30 ? "a0" : "0-"));
        }
        cr_assert_eq(layout(&opt), FSDPCK_OK, "%s", err.message);
        cr_expect_gt(t.text.nbytes, 15000);
        cr_expect_lt(t.text.nbytes, 192 * 1024, "%zu", t.text.nbytes);
        target_release(&t);
        target_init(&t, &owner);
    }
}

static const char *const forms[][3] = {
    /* torch minor, what it has, what it has not */
    {"6", "_dim_group_infos", "_dim_group_names"}, {"8", "_dim_group_names", "_rank_map"},
    {"10", "_rank_map", "use_strided_shard"},      {"12", "use_strided_shard", "_FlatLayout"},
    {"15", "_FlatLayout", "_dim_group_infos"},     {"0", "_FlatLayout", "_dim_group_infos"},
};

Test(ranks_writer, the_pickle_is_of_the_generation_asked_for)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const writer_options opt = {.torch_minor = (unsigned)atoi(forms[i][0])};
        begin("ddp=2,fsdp=2");
        t.root = state("R0", "RR");
        write_to(scratch, &opt);
        cr_expect(holds(scratch, "model_world_size_4_rank_3.pt", forms[i][1]), "%s", forms[i][0]);
        cr_expect(!holds(scratch, "model_world_size_4_rank_3.pt", forms[i][2]), "%s", forms[i][0]);
        cr_expect(holds(scratch, "model_world_size_4_rank_3.pt", "cuda"), "%s", forms[i][0]);
        target_release(&t);
        target_init(&t, &owner);
    }
}

Test(ranks_writer, the_same_target_gives_the_same_bytes)
{
    for (int i = 0; i < 2; i++) {
        begin("fsdp=2,tp=2");
        t.root = state("R0", "a0");
        write_to(i == 0 ? scratch : other, &plain);
        target_release(&t);
        target_init(&t, &owner);
    }
    for (int r = 0; r < 4; r++) {
        char name[64];
        size_t n, m;
        snprintf(name, sizeof name, "model_world_size_4_rank_%d.pt", r);
        char *a = read_file(scratch, name, &n);
        char *b = read_file(other, name, &m);
        cr_expect(n == m && memcmp(a, b, n) == 0);
        free(a);
        free(b);
    }
}

Test(ranks_writer, texts_that_ranks_share_are_held_once)
{
    char name[16];
    begin("fsdp=64");
    t.root = dict();
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "t%d", i);
        put(t.root, name, tensor(name, DTYPE_FLOAT32, 2, (uint64_t[]){128, 3}, "0"));
    }
    cr_assert_eq(layout(&plain), FSDPCK_OK, "%s", err.message);
    /* One file has more than 15 kB of text, 64 of them more than a megabyte. */
    cr_expect_gt(t.text.nbytes, 15000);
    cr_expect_lt(t.text.nbytes, 128 * 1024, "%zu", t.text.nbytes);
}

/* Of 0, 1, 2 ... in each shape, by tests/fixtures/checkpoint_truth.py. */
static const char *const digests[] = {
    "a8fc6e5d344723d6  float32[5,3]  w",
    "4175fd2677e8d71a  bfloat16[4,4]  col",
    "420abe625ea3860a  int64[6]  ids",
    "1038e6ab53dd7a13  float32[]  step",
};

static void expect_opens(const char *const *specs)
{
    static const char *const names[] = {"w", "col", "ids", "step"};
    ranks_checkpoint o = {0};
    char text[RANKS_DIGEST_BYTES], spec[256];

    cr_assert_eq(ranks_checkpoint_open(&o, scratch, &err), FSDPCK_OK, "%s: %s %s",
                 fsdpck_finding_name(err.finding), err.message, err.found);
    for (size_t i = 0; i < 4; i++) {
        const uint32_t index = ranks_tensor_named(&o, names[i]);
        cr_assert_neq(index, CAT_NONE, "%s", names[i]);
        cr_assert_eq(ranks_digest(&o, index, text, &err), FSDPCK_OK, "%s", err.message);
        cr_expect_str_eq(text, digests[i]);
        cr_expect_str_eq(ranks_spec_text(&o, names[i], spec), i < 2 ? specs[i] : "");
    }
    ranks_checkpoint_close(&o);
}

Test(ranks_writer, the_reader_finds_what_was_written)
{
    static const unsigned minors[] = {6, 8, 10, 12, 15};
    static const struct {
        const char *mesh, *row, *col, *specs[2];
    } cases[] = {
        {"fsdp=4", "0", "1", {"fsdp=4 Shard(0)", "fsdp=4 Shard(1)"}},
        {"ddp=2,fsdp=2",
         "R0",
         "RR",
         {"ddp=2,fsdp=2 [Replicate(), Shard(0)]", "ddp=2,fsdp=2 [Replicate(), Replicate()]"}},
        {"fsdp=2,tp=2",
         "R0",
         "a0",
         {"fsdp=2,tp=2 [Replicate(), Shard(0)]", "fsdp=2,tp=2 [_StridedShard(0, 2), Shard(0)]"}},
        {"fsdp=2,tp=2",
         "0-",
         "a0",
         {"fsdp=2,tp=2 [Shard(0), Replicate()] - tp",
          "fsdp=2,tp=2 [_StridedShard(0, 2), Shard(0)]"}},
        {"ddp=2,fsdp=2,tp=2",
         "R0-",
         "RR1",
         {"ddp=2,fsdp=2,tp=2 [Replicate(), Shard(0), Replicate()] - tp",
          "ddp=2,fsdp=2,tp=2 [Replicate(), Replicate(), Shard(1)]"}},
    };
    for (size_t i = 0; i < 25; i++) {
        const writer_options opt = {.torch_minor = minors[i % 5]};
        begin(cases[i / 5].mesh);
        t.root = state(cases[i / 5].row, cases[i / 5].col);
        scratch_remove(scratch);
        scratch_make(scratch);
        write_to(scratch, &opt);
        expect_opens(cases[i / 5].specs);
        target_release(&t);
        target_init(&t, &owner);
    }
}

Test(ranks_writer, a_verl_folder_comes_back_as_its_families)
{
    size_t nbytes;
    begin("fsdp=2");
    strcpy(t.cat.origin.trainer, "verl");
    for (int r = 0; r < 2; r++) {
        value *root = vec_push(&t.rank_roots, &err);
        cr_assert_not_null(root);
    }
    const value model = dict();
    put(model, "w", tensor("w", DTYPE_FLOAT32, 1, (uint64_t[]){5}, "0"));
    for (int r = 0; r < 2; r++) {
        const value root = dict(), extra = dict();
        put(extra, r == 0 ? "rng_of_0" : "rng_of_1", number(r));
        put(root, "model", model);
        put(root, "extra_state", extra);
        *VEC_AT(&t.rank_roots, value, r) = root;
    }
    write_to(scratch, &plain);
    cr_expect_eq(scratch_count(scratch), 5);
    cr_expect(exists("model_world_size_2_rank_1.pt"));
    cr_expect(!exists("optim_world_size_2_rank_1.pt"));
    cr_expect(holds(scratch, "extra_state_world_size_2_rank_1.pt", "rng_of_1"));
    cr_expect(!holds(scratch, "extra_state_world_size_2_rank_1.pt", "rng_of_0"));
    cr_expect(!holds(scratch, "extra_state_world_size_2_rank_1.pt", "extra_state"));
    char *json = read_file(scratch, "fsdp_config.json", &nbytes);
    cr_expect_str_eq(json, "{\n    \"FSDP_version\": 2,\n    \"world_size\": 2\n}");
    free(json);
}

Test(ranks_writer, settings_keep_what_does_not_depend_on_the_ranks)
{
    static const struct {
        const char *text, *want; /* NULL: refused */
    } rows[] = {
        {"", "{\n    \"FSDP_version\": 2,\n    \"world_size\": 3\n}"},
        {"{}", "{\n    \"world_size\": 3\n}"},
        {"{\"world_size\": 8, \"FSDP_version\": 1}",
         "{\n    \"world_size\": 3,\n    \"FSDP_version\": 1\n}"},
        {"{\"world_size\": {\"a\": [1]}, \"b\": -1e5, \"world_size\": 2}",
         "{\n    \"world_size\": 3,\n    \"b\": -1e5\n}"},
        {"[1]", NULL},
        {"{\"world_size\": 8", NULL},
        {"{\"world_size\": 8} 1", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        text_buf made = {0};
        const fsdpck_status st = ranks_settings_put(rows[i].text, 3, &made, &err);
        cr_expect_eq(st, rows[i].want != NULL ? FSDPCK_OK : FSDPCK_BADINPUT, "%s", rows[i].text);
        if (rows[i].want != NULL)
            cr_expect_str_eq(made.text, rows[i].want);
        text_release(&made);
    }
}

Test(ranks_writer, settings_may_grow_when_they_are_spread_out)
{
    size_t nbytes;
    char *at = t.cat.origin.settings;
    begin("fsdp=2");
    strcpy(t.cat.origin.trainer, "verl");
    t.root = dict();
    put(t.root, "model", dict());
    at += sprintf(at, "{\"a\":[0");
    while (at - t.cat.origin.settings < 1000)
        at += sprintf(at, ",0");
    sprintf(at, "]}");
    write_to(scratch, &plain);
    char *json = read_file(scratch, "fsdp_config.json", &nbytes);
    cr_expect_gt(nbytes, 4000);
    free(json);
}

Test(ranks_writer, accelerate_names_its_files_so)
{
    begin("fsdp=2");
    strcpy(t.cat.origin.trainer, "accelerate");
    t.root = dict();
    const value model = dict(), optimizer = dict();
    put(model, "w", tensor("w", DTYPE_FLOAT32, 1, (uint64_t[]){5}, "0"));
    put(optimizer, "exp_avg", tensor("exp_avg", DTYPE_FLOAT32, 1, (uint64_t[]){5}, "0"));
    put(t.root, "model", model);
    put(t.root, "optimizer", optimizer);
    write_to(scratch, &plain);
    cr_expect_eq(scratch_count(scratch), 4);
    cr_expect(exists("pytorch_model_fsdp_0_rank1.bin"));
    cr_expect(exists("optimizer_0_rank0.bin"));
}

static void keep_family(const char *key, const char *pattern)
{
    cat_origin *o = &t.cat.origin;
    cat_rank_family *f = &o->rank_families[o->rank_family_count++];
    strcpy(f->key, key);
    strcpy(f->pattern, pattern);
}

Test(ranks_writer, one_kind_of_files_keeps_its_name_and_outer_keys)
{
    begin("fsdp=2");
    strcpy(t.cat.origin.trainer, "verl");
    keep_family("", "optim_world_size_{W}_rank_{r}.pt");
    t.root = dict();
    put(t.root, "optim", number(5));
    write_to(scratch, &plain);
    cr_expect_eq(scratch_count(scratch), 3);
    cr_expect(holds(scratch, "optim_world_size_2_rank_1.pt", "optim"));
}

Test(ranks_writer, several_kinds_of_files_keep_their_names)
{
    begin("fsdp=2");
    keep_family("a", "a_rank{r}.pt");
    keep_family("b", "b_{r}_of_{W}.pt");
    t.root = dict();
    put(t.root, "a", number(5));
    put(t.root, "b", number(6));
    write_to(scratch, &plain);
    cr_expect_eq(scratch_count(scratch), 4);
    cr_expect(exists("a_rank1.pt"));
    cr_expect(exists("b_1_of_2.pt"));
}

Test(ranks_writer, a_pattern_names_whole_states)
{
    const writer_options opt = {.rank_pattern = "m{W}-{r}of{W}.pt"};
    begin("fsdp=2");
    strcpy(t.cat.origin.trainer, "accelerate");
    t.root = dict();
    put(t.root, "model", dict());
    write_to(scratch, &opt);
    cr_expect(exists("m2-1of2.pt"));
    cr_expect_eq(scratch_count(scratch), 2);
}

static void expect_refused(const writer_options *opt, fsdpck_status status)
{
    begin("fsdp=2");
    t.root = dict();
    cr_expect_eq(layout(opt), status, "%s", err.message);
    target_release(&t);
    target_init(&t, &owner);
}

Test(ranks_writer, options_that_give_no_files_are_refused)
{
    expect_refused(&(writer_options){.rank_pattern = "model.pt"}, FSDPCK_USAGE);
    expect_refused(&(writer_options){.rank_pattern = "a/{r}.pt"}, FSDPCK_USAGE);
    expect_refused(&(writer_options){.rank_pattern = ""}, FSDPCK_USAGE);
    expect_refused(&(writer_options){.device_type = "cuda:0"}, FSDPCK_USAGE);
    expect_refused(&(writer_options){.torch_minor = 4}, FSDPCK_UNSUPPORTED);
    expect_refused(&(writer_options){.torch_minor = 16}, FSDPCK_UNSUPPORTED);
}

Test(ranks_writer, a_part_without_a_place_is_an_error)
{
    begin("fsdp=2");
    t.root = dict();
    (void)tensor("lost", DTYPE_FLOAT32, 1, (uint64_t[]){5}, "0");
    cr_expect_eq(layout(&plain), FSDPCK_INTERNAL);
    cr_expect_str_eq(err.tensor, "lost");
}
