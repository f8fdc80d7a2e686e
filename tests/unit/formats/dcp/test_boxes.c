/* Checkpoints whose recorded boxes, or names, are not what they seem. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/formats/dcp/dcp_checkpoint.h"

static dcp_checkpoint o;

static void prepare(const char *fixture)
{
    static char path[4096];
    dcp_checkpoint_prepare(&o, fixture_path(path, sizeof path, fixture));
}

static void open_well(const char *fixture)
{
    cr_assert_eq(dcp_checkpoint_open(&o), FSDPCK_OK, "%s: %s %s", fixture,
                 fsdpck_finding_name(o.err.finding), o.err.message);
}

static void open_fixture(const char *fixture)
{
    prepare(fixture);
    open_well(fixture);
}

/* Tensors whose digest is the fixture's, of those that its list names. */
typedef struct tally {
    unsigned right, wrong, refused;
} tally;

static tally compare(const char *fixture)
{
    char path[4096], line[4096];
    tally t = {0};

    fixture_path(path, sizeof path - 16, fixture);
    strcat(path, ".digests");
    FILE *lines = fopen(path, "r");
    cr_assert_not_null(lines, "%s", path);
    while (fgets(line, sizeof line, lines) != NULL) {
        char digest[17], label[256];
        line[strcspn(line, "\n")] = '\0';
        const char *name = strrchr(line, ' ') + 1;
        const uint32_t tensor = catalogue_find(&o.cat, name, strlen(name));
        cr_assert_neq(tensor, CAT_NONE, "%s: %s", fixture, name);
        fsdpck_error_init(&o.err);
        if (dcp_checkpoint_digest(&o, tensor, digest, label) != FSDPCK_OK)
            t.refused++;
        else if (strncmp(digest, line, 16) == 0)
            t.right++;
        else
            t.wrong++;
    }
    fclose(lines);
    return t;
}

static fsdpck_status locate(const char *name)
{
    const uint32_t tensor = catalogue_find(&o.cat, name, strlen(name));
    fsdpck_status st = FSDPCK_OK;

    cr_assert_neq(tensor, CAT_NONE, "%s", name);
    const cat_tensor *t = catalogue_tensor(&o.cat, tensor);
    fsdpck_error_init(&o.err);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks && st == FSDPCK_OK; k++) {
        place where;
        if (catalogue_chunk(&o.cat, k)->place != LOCATION_EMPTY)
            st = o.src.locate(o.src.ctx, k, &where, &o.err);
    }
    return st;
}

static const char *log_of(void)
{
    return o.log.text != NULL ? o.log.text : "";
}

static const char *const wrong_boxes[] = {"torch-2.10.0/wrong-boxes9", "torch-2.15.0/wrong-boxes9",
                                          "torch-2.15.0/wrong-boxes7"};

Test(boxes, misfits_are_refused_with_the_way_out)
{
    for (size_t i = 0; i < sizeof wrong_boxes / sizeof *wrong_boxes; i++) {
        open_fixture(wrong_boxes[i]);
        const tally t = compare(wrong_boxes[i]);
        cr_expect_eq(t.refused, 2);
        cr_expect_eq(t.wrong, 0);
        cr_expect_eq(t.right, 4);
        cr_expect_eq(locate("model.bias.weight"), FSDPCK_BADINPUT);
        cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "DCP-PAYLOAD-SHAPE");
        cr_expect_str_eq(o.err.tensor, "model.bias.weight");
        cr_expect_str_eq(o.err.expected, "[1]");
        cr_expect_str_eq(o.err.found, "[0]");
        cr_expect(strstr(o.err.next, "--repair-strided") != NULL, "%s", o.err.next);
        cr_expect(strstr(o.err.next, "torch 2.10 to 2.15") != NULL, "%s", o.err.next);
        dcp_checkpoint_close(&o);
    }
}

Test(boxes, misfits_are_derived_from_the_blobs)
{
    for (size_t i = 0; i < sizeof wrong_boxes / sizeof *wrong_boxes; i++) {
        prepare(wrong_boxes[i]);
        o.request.repair_strided = true;
        open_well(wrong_boxes[i]);
        const tally t = compare(wrong_boxes[i]);
        cr_expect_eq(t.right, 6, "%s: %u right, %u wrong, %u refused", wrong_boxes[i], t.right,
                     t.wrong, t.refused);
        cr_expect(strstr(o.cat.origin.note, "boxes of 2 tensors") != NULL, "%s", o.cat.origin.note);
        cr_expect(strstr(log_of(), "boxes of 2 tensors") != NULL, "%s", log_of());
        dcp_checkpoint_close(&o);
    }
}

/* Ranks with empty boxes share a key, and one of them alone is written: the one that holds a row, or
 * the other. */
Test(boxes, whose_row_was_not_written_stay_refused)
{
    prepare("torch-2.15.0/wrong-boxes11");
    o.request.repair_strided = true;
    open_well("wrong-boxes11");
    cr_expect_eq(locate("vector.weight"), FSDPCK_OK, "%s", o.err.message);
    cr_expect_eq(locate("matrix.weight"), FSDPCK_BADINPUT);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "DCP-PAYLOAD-SHAPE");
    cr_expect(strstr(o.err.next, "the save lost part of this tensor") != NULL, "%s", o.err.next);
    cr_expect(strstr(log_of(), "'matrix.weight'") != NULL, "%s", log_of());
    cr_expect(strstr(o.cat.origin.note, "boxes of 1 tensor ") != NULL, "%s", o.cat.origin.note);
    dcp_checkpoint_close(&o);
}

Test(boxes, right_ones_stay_as_they_are)
{
    static const char *const fixtures[] = {
        "torch-2.8.0/dcp-tp-uneven9", "torch-2.8.0/dcp-tp-uneven7",   "torch-2.9.1/dcp-tp-uneven9",
        "torch-2.15.0/dcp-fsdp2",     "torch-2.15.0/dcp-ep-tp",       "torch-2.15.0/dcp-zstd",
        "torch-2.15.0/dcp-st-inside", "torch-2.15.0/dcp-nocollective"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        prepare(fixtures[i]);
        o.request.repair_strided = true;
        open_well(fixtures[i]);
        const tally t = compare(fixtures[i]);
        cr_expect_gt(t.right, 0);
        cr_expect_eq(t.wrong + t.refused, 0, "%s", fixtures[i]);
        cr_expect_str_eq(o.cat.origin.note, "");
        cr_expect(strstr(log_of(), "no boxes were derived") != NULL, "%s", log_of());
        dcp_checkpoint_close(&o);
    }
}

/* [Shard(0), _StridedShard(0, 2)]: half of the tensor is in no file. */
Test(boxes, what_was_never_written_stays_refused)
{
    for (int repair = 0; repair <= 1; repair++) {
        prepare("torch-2.8.0/wrong-lost");
        o.request.repair_strided = repair;
        open_well("wrong-lost");
        cr_expect_eq(locate("whole"), FSDPCK_OK);
        cr_expect_eq(locate("lost"), FSDPCK_BADINPUT);
        cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "DCP-PAYLOAD-SHAPE");
        cr_expect_str_eq(o.err.tensor, "lost");
        cr_expect(strstr(o.err.next, repair ? "the save lost part" : "never written") != NULL, "%s",
                  o.err.next);
        dcp_checkpoint_close(&o);
    }
}

Test(order, of_torch_2_3_is_a_possibility)
{
    static const struct {
        const char *fixture;
        bool warns;
        unsigned wrong;
    } cases[] = {{"torch-2.3.1/wrong-order", true, 2},   {"torch-2.3.1/dcp-fsdp1-tp", true, 0},
                 {"torch-2.6.0/dcp-fsdp1-tp", true, 0},  {"torch-2.6.0/dcp-tp", false, 0},
                 {"torch-2.6.0/dcp-hsdp-tp", false, 0},  {"torch-2.6.0/dcp-fsdp2", false, 0},
                 {"torch-2.4.1/dcp-fsdp2", false, 0},    {"torch-2.15.0/dcp-tp", false, 0},
                 {"torch-2.15.0/dcp-fsdp1-tp", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_fixture(cases[i].fixture);
        cr_expect_eq(strstr(log_of(), "--assume fsdp2-tp-2.3") != NULL, cases[i].warns, "%s: %s",
                     cases[i].fixture, log_of());
        cr_expect_eq(strstr(o.cat.origin.note, "--assume fsdp2-tp-2.3") != NULL, cases[i].warns);
        const tally t = compare(cases[i].fixture);
        cr_expect_eq(t.wrong, cases[i].wrong, "%s: %u wrong", cases[i].fixture, t.wrong);
        cr_expect_eq(t.refused, 0);
        dcp_checkpoint_close(&o);
    }
}

Test(order, of_torch_2_3_is_put_right_on_request)
{
    prepare("torch-2.3.1/wrong-order");
    o.request.assume_tp_first = true;
    open_well("wrong-order");
    const tally t = compare("torch-2.3.1/wrong-order");
    cr_expect_eq(t.right, 6, "%u right, %u wrong, %u refused", t.right, t.wrong, t.refused);
    cr_expect(strstr(o.cat.origin.note, "rows of 2 tensors") != NULL, "%s", o.cat.origin.note);
    cr_expect(strstr(o.cat.origin.note, "2 x 2") != NULL, "%s", o.cat.origin.note);
    dcp_checkpoint_close(&o);
}

/* FSDP1's rows that do not divide evenly match only the recorded boxes. */
Test(order, that_blobs_contradict_is_refused)
{
    prepare("torch-2.3.1/dcp-fsdp1-tp");
    o.request.assume_tp_first = true;
    open_well("dcp-fsdp1-tp");
    cr_expect_eq(locate("model.wide.weight"), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "DCP-TP-UNSURE");
    cr_expect_eq(locate("model.tall.weight"), FSDPCK_OK);
    cr_expect_eq(locate("model.norm.weight"), FSDPCK_OK);
    dcp_checkpoint_close(&o);
}

Test(order, is_not_assumed_of_other_releases)
{
    static const struct {
        const char *fixture;
        fsdpck_status status;
    } cases[] = {
        {"torch-2.15.0/dcp-tp", FSDPCK_USAGE},
        {"torch-2.8.0/dcp-tp", FSDPCK_USAGE},
        {"torch-2.1.2/dcp-sharded-tensor", FSDPCK_USAGE},
        {"torch-2.4.1/dcp-fsdp2", FSDPCK_UNSUPPORTED}}; /* no tensor parallelism in sight */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        prepare(cases[i].fixture);
        o.request.assume_tp_first = true;
        cr_expect_eq(dcp_checkpoint_open(&o), cases[i].status, "%s", cases[i].fixture);
        dcp_checkpoint_close(&o);
    }
}

static bool has_tensor(const char *name)
{
    return catalogue_find(&o.cat, name, strlen(name)) != CAT_NONE;
}

Test(leftovers, of_flat_parameters_are_left_out)
{
    static const char *const kept[] = {"model._flat_param",           "model.0._flat_param",
                                       "model.1.running_mean",        "model.1.running_var",
                                       "model.1.num_batches_tracked", "other"};
    open_fixture("torch-2.8.0/wrong-local");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        cr_expect(has_tensor(kept[i]), "%s", kept[i]);
        cr_expect_eq(locate(kept[i]), FSDPCK_OK, "%s", kept[i]);
    }
    cr_expect_eq(catalogue_tensor_count(&o.cat), sizeof kept / sizeof *kept);
    cr_expect_not(has_tensor("model.0.weight"));
    cr_expect(strstr(log_of(), "6 tensors are left out, the first 'model.") != NULL, "%s",
              log_of());
    dcp_checkpoint_close(&o);
}

Test(subclasses, quantised_are_refused_by_name)
{
    open_fixture("torch-2.15.0/wrong-quantised");
    cr_expect_eq(locate("scale"), FSDPCK_OK);
    cr_expect_eq(locate("model.0.weight"), FSDPCK_UNSUPPORTED);
    cr_expect_str_eq(fsdpck_finding_name(o.err.finding), "PT-TENSOR-KIND");
    cr_expect_str_eq(o.err.tensor, "model.0.weight");
    cr_expect(strstr(o.err.message, "Int8Tensor") != NULL, "%s", o.err.message);
    cr_expect(strstr(o.err.next, "dequantize") != NULL, "%s", o.err.next);
    dcp_checkpoint_close(&o);
}

Test(origin, counts_all_ranks_of_a_mesh)
{
    static const struct {
        const char *fixture;
        int64_t world_size;
    } cases[] = {{"torch-2.15.0/dcp-hsdp-optim", 4}, {"torch-2.15.0/dcp-tp", 4},
                 {"torch-2.15.0/dcp-hsdp-tp", 8},    {"torch-2.15.0/dcp-ep-tp", 8},
                 {"torch-2.15.0/dcp-shard-dim1", 4}, {"torch-2.6.0/dcp-hsdp-tp", 8},
                 {"torch-2.8.0/dcp-tp-uneven7", 6},  {"torch-2.8.0/dcp-hsdp-tp", 8},
                 {"torch-2.15.0/dcp-float8", 2},     {"torch-2.3.1/wrong-order", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_fixture(cases[i].fixture);
        cr_expect_eq(o.cat.origin.world_size, cases[i].world_size, "%s: %d", cases[i].fixture,
                     (int)o.cat.origin.world_size);
        dcp_checkpoint_close(&o);
    }
}
