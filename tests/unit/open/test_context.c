#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "fsdpck_verify.h"
#include "open/checkpoint.h"

typedef struct log_record {
    unsigned warnings, others;
    fsdpck_context *ctx;
    char last[200];
} log_record;

/* A caller may read the list from its callback. */
static void record_log(void *arg, fsdpck_log_level level, const char *text)
{
    log_record *h = arg;
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    if (level == FSDPCK_LOG_WARNING) {
        h->warnings++;
        cr_expect(fsdpck_context_warning(h->ctx, 0, &w));
    } else {
        h->others++;
    }
    snprintf(h->last, sizeof h->last, "%s", text);
}

Test(context, warnings_are_kept_in_order)
{
    fsdpck_context *ctx = fsdpck_context_new();
    log_record h = {.ctx = ctx};
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    cr_assert_not_null(ctx);
    cr_expect_not(fsdpck_context_warning(ctx, 0, &w));
    /* Without a callback too. */
    log_warn(&ctx->log, FSDPCK_FINDING_ZIP_CRC, "do this", "file '%s'", "x\ny");
    fsdpck_context_set_log(ctx, record_log, &h);
    log_write(&ctx->log, LOG_NOTE, "a note");
    log_warn(&ctx->log, FSDPCK_FINDING_NONE, "", "second");
    cr_expect_eq(h.warnings, 1);
    cr_expect_eq(h.others, 1);
    cr_expect_str_eq(h.last, "second");
    cr_assert(fsdpck_context_warning(ctx, 0, &w));
    cr_expect_eq(w.finding, FSDPCK_FINDING_ZIP_CRC);
    cr_expect_str_eq(w.message, "file 'x\\x0Ay'");
    cr_expect_str_eq(w.next, "do this");
    cr_assert(fsdpck_context_warning(ctx, 1, &w));
    cr_expect_eq(w.finding, FSDPCK_FINDING_NONE);
    cr_expect_str_eq(w.message, "second");
    cr_expect_str_eq(w.next, "");
    cr_expect_not(fsdpck_context_warning(ctx, 2, &w));
    fsdpck_context_free(ctx);
}

Test(context, too_many_warnings_are_told_by_the_last)
{
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    cr_assert_not_null(ctx);
    for (unsigned i = 0; i < 999; i++)
        log_warn(&ctx->log, FSDPCK_FINDING_ZIP_CRC, "", "warning %u", i);
    cr_assert(fsdpck_context_warning(ctx, 998, &w));
    cr_expect_str_eq(w.message, "warning 998");
    cr_expect_not(fsdpck_context_warning(ctx, 999, &w));
    for (unsigned i = 999; i < 1200; i++)
        log_warn(&ctx->log, FSDPCK_FINDING_ZIP_CRC, "", "warning %u", i);
    cr_assert(fsdpck_context_warning(ctx, 999, &w));
    cr_expect_str_eq(w.message, "more warnings occurred than are listed");
    cr_expect_eq(w.finding, FSDPCK_FINDING_LIMIT_WARNINGS);
    cr_expect_not(fsdpck_context_warning(ctx, 1000, &w));
    fsdpck_context_free(ctx);
}

static void *warn(void *arg)
{
    fsdpck_context *ctx = arg;
    for (unsigned i = 0; i < 100; i++)
        log_warn(&ctx->log, FSDPCK_FINDING_ZIP_CRC, "", "warning %u", i);
    return NULL;
}

Test(context, warnings_come_from_any_thread)
{
    fsdpck_context *ctx = fsdpck_context_new();
    pthread_t threads[4];
    fsdpck_warning w = FSDPCK_INIT(fsdpck_warning);
    size_t count = 0;
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, warn, ctx), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    while (fsdpck_context_warning(ctx, count, &w))
        count++;
    cr_expect_eq(count, 400);
    fsdpck_context_free(ctx);
}

/* Of one error, until its path is opened again. */
Test(context, names_of_tensors_are_kept_for_their_error)
{
    static const char names[] = "a\0b\0c"; /* and its NUL */
    fsdpck_context *ctx = fsdpck_context_new();
    cr_assert_not_null(ctx);
    fsdpck_error keys, other;
    FAIL_WITH(&keys, BADINPUT, EXPORT_KEYS, ("3 tensors"), (path, "x\ny"), (tensor, "a"));
    FAIL_WITH(&other, BADINPUT, EXPORT_KEYS, ("3 tensors"), (path, "x\ny"), (tensor, "b"));
    text_buf all = {0};
    size_t cursor = 0;
    text_append(&all, names, sizeof names);
    named_tensors_keep(ctx, &keys, &all);
    cr_expect_null(all.text);
    cr_expect_null(fsdpck_context_named_tensor(ctx, &other, &cursor));
    cr_expect_str_eq(fsdpck_context_named_tensor(ctx, &keys, &cursor), "a");
    cr_expect_str_eq(fsdpck_context_named_tensor(ctx, &keys, &cursor), "b");
    cr_expect_str_eq(fsdpck_context_named_tensor(ctx, &keys, &cursor), "c");
    cr_expect_null(fsdpck_context_named_tensor(ctx, &keys, &cursor));
    cursor = 0;
    named_tensors_drop(ctx, "other");
    cr_expect_not_null(fsdpck_context_named_tensor(ctx, &keys, &cursor));
    cursor = 0;
    named_tensors_drop(ctx, "x\ny");
    cr_expect_null(fsdpck_context_named_tensor(ctx, &keys, &cursor));
    fsdpck_context_free(ctx);
}
