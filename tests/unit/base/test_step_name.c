/* Names as trainers write them, with the step that each trainer means. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "base/step_name.h"

typedef struct name_case {
    const char *name;
    step_kind kind;
    uint64_t step;
} name_case;

static const name_case cases[] = {
    /* Lightning: {epoch}, {step} and metrics; -v1 where the name existed */
    {"sample-mnist-epoch=02-val_loss=0.92", STEP_EPOCH, 2},
    {"sample-mnist-epoch=10-val_loss=0.32", STEP_EPOCH, 10},
    {"step=1000-train_loss=2.513", STEP_STEP, 1000},
    {"step=2000-train_loss=1.998", STEP_STEP, 2000},
    {"step=3000-train_loss=2.004", STEP_STEP, 3000},
    {"epoch=1-step=200", STEP_STEP, 200},
    {"epoch=4-step=500-v1", STEP_STEP, 500},
    {"epoch=3-step=7", STEP_STEP, 7},
    {"step=100-val_loss=-2.5", STEP_STEP, 100},
    {"eval_loss=0.5-step=100", STEP_STEP, 100},
    {"whisper-step=0500-wer=12.5", STEP_STEP, 500},
    {"1000-1.998", STEP_NUMBER, 1000},
    /* NeMo */
    {"megatron_gpt--val_loss=2.35-step=1000-consumed_samples=8000.0", STEP_STEP, 1000},
    {"megatron_gpt--val_loss=2.10-step=2000-consumed_samples=16000.0-last", STEP_STEP, 2000},
    /* Keras */
    {"weights.05-0.91", STEP_NUMBER, 5},
    {"weights.12-0.32", STEP_NUMBER, 12},
    {"weights.12-1e-05", STEP_NUMBER, 12},
    /* loops by hand */
    {"step100_seed42", STEP_STEP, 100},
    {"step200_seed7", STEP_STEP, 200},
    {"model_fp16_300", STEP_NUMBER, 300},
    {"llama-3.1-8b-step100", STEP_STEP, 100},
    {"rl_model_100000_steps", STEP_NUMBER, 100000},
    {"epoch1step200", STEP_STEP, 200},
    {"resnet50_epoch_3", STEP_EPOCH, 3},
    {"epoch_2_batch_700", STEP_EPOCH, 2},
    /* Composer: {epoch}, and batches since the begin of the run */
    {"ep0-ba10", STEP_STEP, 10},
    {"ep2-ba4200-rank0", STEP_STEP, 4200},
    {"ep3", STEP_EPOCH, 3},
    {"batch_700", STEP_BATCH, 700},
    {"ckpt_500", STEP_CHECKPOINT, 500},
    {"GlobalStep_9", STEP_STEP, 9},
    /* transformers, verl, DeepSpeed, Megatron-LM, fairseq */
    {"checkpoint-500", STEP_CHECKPOINT, 500},
    {"global_step_1000", STEP_STEP, 1000},
    {"global_step1000", STEP_STEP, 1000},
    {"iter_0001000", STEP_STEP, 1000},
    {"checkpoint_1_5000", STEP_CHECKPOINT, 1},
    {"1000", STEP_NUMBER, 1000},
    {"big8", STEP_NUMBER, 8},
    /* distil-whisper: {step} and {epoch} */
    {"checkpoint-500-epoch-3", STEP_CHECKPOINT, 500},
    {"checkpoint-2-epoch-3", STEP_EPOCH, 3},
    /* Python's f"{step:,}"; not a decimal comma, nor a list */
    {"step-1,000", STEP_STEP, 1000},
    {"step=12,345,678-v1", STEP_STEP, 12345678},
    {"1,000", STEP_NUMBER, 1000},
    {"step_5,epoch=1", STEP_STEP, 5},
    {"optimizer_1000", STEP_NUMBER, 1000},
    /* no step */
    {"last", STEP_NONE, 0},
    {"last-v1", STEP_NONE, 0},
    {"seed7", STEP_NONE, 0},
    {"loss=3", STEP_NONE, 0},
    {"llama-3.1-8b", STEP_NONE, 0},
    {"writer", STEP_NONE, 0},
    {"step_10k", STEP_NONE, 0},
    {"step-1e3", STEP_NONE, 0},
    {"step-1,000.5", STEP_NONE, 0},
    {"step=1.5", STEP_NONE, 0},
    {"", STEP_NONE, 0},
    /* unknown */
    {"2024-05-01_12-00-00", STEP_UNKNOWN, 0},
    {"resnet50_3", STEP_UNKNOWN, 0},
    {"step_1-step_2", STEP_UNKNOWN, 0},
    {"0,912", STEP_UNKNOWN, 0},
    {"1,0000", STEP_UNKNOWN, 0},
};

static step_name read_of(const char *name)
{
    step_name s;
    step_name_read(name, strlen(name), &s);
    return s;
}

Test(step_name, reads_names)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const step_name s = read_of(cases[i].name);
        cr_expect_eq(s.kind, cases[i].kind, "%s: kind %d", cases[i].name, (int)s.kind);
        cr_expect_eq(s.step, cases[i].step, "%s: step %" PRIu64, cases[i].name, s.step);
    }
}

Test(step_name, orders_names_as_they_were_written)
{
    static const char *const ordered[][2] = {
        {"epoch=4-step=500", "epoch=4-step=500-v1"},
        {"epoch=4-step=500-v2", "epoch=4-step=500-v10"},
        {"epoch=1-step=200", "epoch=4-step=500-v1"},
        {"checkpoint_1_5000", "checkpoint_1_10000"},
        {"checkpoint_1_10000", "checkpoint_2_7"},
        {"epoch_2_batch_700", "epoch_2_batch_1200"},
        {"epoch_2_batch_1200", "epoch_3_batch_10"},
        {"step100_seed42", "step200_seed7"},
        {"weights.05-0.91", "weights.12-0.32"},
        {"step_5", "step_99999999999999999999999"},
    };
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++) {
        const step_name a = read_of(ordered[i][0]), b = read_of(ordered[i][1]);
        cr_expect_lt(step_name_compare(&a, &b), 0, "%s", ordered[i][0]);
        cr_expect_gt(step_name_compare(&b, &a), 0, "%s", ordered[i][0]);
        cr_expect_eq(step_name_compare(&a, &a), 0);
    }
}

Test(step_name, reads_marks)
{
    static const struct {
        const char *name;
        step_mark mark;
    } marks[] = {
        {"checkpoint-1000", STEP_UNMARKED},
        {"tmp-checkpoint-1000", STEP_UNFINISHED},
        {"_delete_checkpoint-1000", STEP_UNFINISHED},
        {"old_checkpoint-2000", STEP_UNFINISHED},
        {"step-100.incomplete", STEP_UNFINISHED},
        {"step-100.tmp", STEP_UNFINISHED},
        {"goldfish_1000", STEP_UNMARKED},
        {"eval_1000", STEP_EVALUATION},
        {"checkpoint-1000-eval", STEP_EVALUATION},
        {"eval_loss=0.5-step=100", STEP_UNMARKED},
        {"model_eval_loss_step_100", STEP_UNMARKED},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        cr_expect_eq(read_of(marks[i].name).mark, marks[i].mark, "%s", marks[i].name);
}

Test(step_name, has_place_and_size_of_the_number)
{
    const step_name s = read_of("iter_0001000");
    cr_assert_eq(s.begin, 5);
    cr_assert_eq(s.end, 12);
    const step_name large = read_of("step_18446744073709551616");
    cr_assert(large.is_too_large);
    cr_assert_eq(large.step, UINT64_MAX);
    cr_assert_not(read_of("step_18446744073709551615").is_too_large);
}

Test(step_name, compares_kinds)
{
    const step_name step = read_of("step_5"), ckpt = read_of("checkpoint-5"),
                    epoch = read_of("epoch=5"), number = read_of("5");
    cr_assert(step_name_same_kind(&step, &ckpt));
    cr_assert_not(step_name_same_kind(&step, &epoch));
    cr_assert_not(step_name_same_kind(&step, &number));
    cr_assert(step_name_has_word(&ckpt));
    cr_assert_not(step_name_has_word(&number));
    const step_name both = read_of("epoch=1-step=200");
    cr_assert(both.has_epoch);
    cr_assert_eq(both.epoch, 1);
}

/* f"{step:_}", or an epoch and a step: the name does not tell. */
Test(step_name, may_be_grouped)
{
    static const char *const grouped[] = {"step_1_000", "step 12 345 678", "step_999_000.pt"};
    static const char *const others[] = {"step_1_0000", "step_1_00",  "step_0_100",
                                         "step_1000",   "step-1-000", "step_1234_000"};
    for (size_t i = 0; i < sizeof grouped / sizeof *grouped; i++) {
        const step_name s = read_of(grouped[i]);
        cr_expect(step_name_is_grouped(grouped[i], strlen(grouped[i]), &s), "%s", grouped[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const step_name s = read_of(others[i]);
        cr_expect_not(step_name_is_grouped(others[i], strlen(others[i]), &s), "%s", others[i]);
    }
}
