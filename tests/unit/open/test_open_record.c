#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "open/open_record.h"

/* The reports, as text. */
typedef struct heard {
    text_buf text;
} heard;

static void hear_line(void *ctx, const log_line *line)
{
    heard *h = ctx;
    text_printf(&h->text, "%d %d '%s' '%s' %s %s\n", (int)line->level, (int)line->finding,
                line->text, line->next, line->folder != NULL ? line->folder : "-",
                line->missing != NULL ? line->missing : "-");
}

static void hear_finding(void *ctx, format_severity severity, const fsdpck_error *what)
{
    heard *h = ctx;
    text_printf(&h->text, "%d %s: %s, byte %d\n", (int)severity, what->path, what->message,
                (int)what->offset_bytes);
}

static void record_line(void *ctx, const log_line *line)
{
    open_record_line(ctx, line);
}

static void report_all(open_record *r)
{
    const logger log = {record_line, r};
    fsdpck_error what = FSDPCK_ERROR_INIT;
    log_write(&log, LOG_NOTE, "note %d", 1);
    log_warn(&log, FSDPCK_FINDING_DCP_STALE, "do this", "warning");
    log_missing_file(&log, "folder", "a 'name'");
    strcpy(what.path, "file");
    strcpy(what.message, "is damaged");
    what.offset_bytes = 7;
    open_record_found(r, FORMAT_WARNING, &what);
    log_write(&log, LOG_DETAIL, "end");
}

Test(open_record, another_rank_reports_the_same)
{
    heard here = {0}, there = {0};
    open_record r;
    open_record_init(&r, hear_finding, &here);
    report_all(&r);
    cr_expect_not(r.lost);
    cr_expect_str_eq(here.text.text, "1 file: is damaged, byte 7\n", "also reported here");
    const logger log = {hear_line, &there};
    cr_assert_eq(open_record_replay(&r.bytes, &log, hear_finding, &there, NULL), FSDPCK_OK);
    char want[512];
    snprintf(want, sizeof want,
             "2 0 'note 1' '' - -\n1 %d 'warning' 'do this' - -\n"
             "3 0 'missing file 'a 'name''' '' folder a 'name'\n1 file: is damaged, byte 7\n"
             "3 0 'end' '' - -\n",
             (int)FSDPCK_FINDING_DCP_STALE);
    cr_expect_str_eq(there.text.text, want);
    open_record_release(&r);
    text_release(&here.text);
    text_release(&there.text);
}

Test(open_record, cut_records_are_refused)
{
    heard h = {0};
    const logger log = {hear_line, &h};
    open_record r;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    open_record_init(&r, hear_finding, &h);
    report_all(&r);
    const size_t nbytes = r.bytes.count;
    unsigned refused = 0;
    for (size_t n = 1; n < nbytes; n++) {
        vec cut = r.bytes;
        cut.count = n;
        refused += open_record_replay(&cut, &log, hear_finding, &h, &err) == FSDPCK_INTERNAL;
    }
    cr_expect_eq(refused, nbytes - 5, "all but those that end after a message");
    vec cut = r.bytes;
    cr_expect_eq(open_record_replay(&cut, &log, NULL, NULL, &err), FSDPCK_INTERNAL,
                 "a finding for a rank that asked for none");
    open_record_release(&r);
    text_release(&h.text);
}
