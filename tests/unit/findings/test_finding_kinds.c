#include <criterion/criterion.h>
#include <string.h>

#include "findings/finding_kinds.h"

Test(finding_kinds, rows_are_found_in_order)
{
    for (size_t i = 0; i < FINDING_KINDS; i++) {
        const finding_kind *k = finding_at(i);
        cr_expect_eq(finding_find(k->id), k, "%s", k->id);
        cr_expect(i == 0 || strcmp(finding_at(i - 1)->id, k->id) < 0, "%s", k->id);
        cr_expect_eq(finding_get(k->number), k, "%s", k->id);
        cr_expect_str_eq(fsdpck_finding_name(k->number), k->id);
        cr_expect(strlen(k->id) < 32, "%s", k->id);
        cr_expect_neq(k->severity, FINDING_IGNORE);
        /* Findings with a fixed severity are errors. */
        cr_expect(!finding_is_fixed(k) || k->severity == FINDING_ERROR, "%s", k->id);
    }
    cr_expect_null(finding_at(FINDING_KINDS));
    cr_expect_null(finding_find(""));
    cr_expect_null(finding_find("A"));
    cr_expect_null(finding_find("ZZZ"));
    cr_expect_null(finding_find("ZIP-CR"));
    cr_expect_null(finding_get(FSDPCK_FINDING_NONE));
    cr_expect_null(finding_get((fsdpck_finding_id)100000));
    cr_expect_str_eq(fsdpck_finding_name((fsdpck_finding_id)100000), "");
}

Test(finding_kinds, rules_start_as_the_table_says)
{
    finding_rules r;
    finding_rules_init(&r);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NUM_NAN, FINDING_ERROR), FINDING_WARNING);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NUM_ZERO, FINDING_ERROR), FINDING_NOTE);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_ZIP_CRC, FINDING_NOTE), FINDING_ERROR);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NONE, FINDING_NOTE), FINDING_NOTE);
}

Test(finding_kinds, rules_are_set_one_by_one)
{
    finding_rules r;
    finding_rules_init(&r);
    cr_assert_eq(finding_rules_set(&r, "NUM-NAN=error", NULL), FSDPCK_OK);
    cr_assert_eq(finding_rules_set(&r, "ZIP-CRC=ignore", NULL), FSDPCK_OK);
    cr_assert_eq(finding_rules_set(&r, "NUM-ZERO=warn", NULL), FSDPCK_OK);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NUM_NAN, FINDING_NOTE), FINDING_ERROR);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_ZIP_CRC, FINDING_NOTE), FINDING_IGNORE);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NUM_ZERO, FINDING_NOTE), FINDING_WARNING);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NUM_INF, FINDING_ERROR), FINDING_NOTE);
    cr_assert_eq(finding_rules_set(&r, "NUM-NAN=note", NULL), FSDPCK_OK, "the last one counts");
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_NUM_NAN, FINDING_ERROR), FINDING_NOTE);
}

Test(finding_kinds, former_ids_mean_the_finding_of_today)
{
    static const char *const former[] = {
#define FORMER(id, name) id,
#include "findings/former_ids.def"
#undef FORMER
    };
    for (size_t i = 0; i < sizeof former / sizeof *former; i++) {
        const finding_former *f = finding_former_find(former[i]);
        cr_assert_not_null(f, "%s", former[i]);
        cr_assert_not_null(finding_get(f->now), "%s", former[i]);
        cr_expect_eq(finding_find(former[i]), finding_get(f->now), "%s", former[i]);
        cr_expect_str_neq(finding_get(f->now)->id, former[i]);
        cr_expect(i == 0 || strcmp(former[i - 1], former[i]) < 0, "%s", former[i]);
    }
    for (size_t i = 0; i < FINDING_KINDS; i++)
        cr_expect_null(finding_former_find(finding_at(i)->id), "%s", finding_at(i)->id);
    finding_rules r;
    finding_rules_init(&r);
    cr_assert_eq(finding_rules_set(&r, "DCP-GAP=note", NULL), FSDPCK_OK);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_CHUNK_GAP, FINDING_ERROR), FINDING_NOTE);
    cr_assert_eq(finding_rules_set(&r, "CHUNK-GAP=warn", NULL), FSDPCK_OK);
    cr_expect_eq(finding_rules_get(&r, FSDPCK_FINDING_CHUNK_GAP, FINDING_ERROR), FINDING_WARNING);
}

static void expect_refused(const char *text, const char *words)
{
    finding_rules r;
    fsdpck_error err;
    fsdpck_error_init(&err);
    finding_rules_init(&r);
    cr_expect_eq(finding_rules_set(&r, text, &err), FSDPCK_USAGE, "%s", text);
    cr_expect(strstr(err.message, words) != NULL || strstr(err.next, words) != NULL, "%s: %s; %s",
              text, err.message, err.next);
    finding_rules untouched;
    finding_rules_init(&untouched);
    cr_expect_eq(memcmp(&r, &untouched, sizeof r), 0, "%s", text);
}

Test(finding_kinds, nonsense_is_refused)
{
    char longest[400];
    expect_refused("NUM-NAM=error", "use 'NUM-NAN' if");
    expect_refused("num-nan=error", "use 'NUM-NAN' if");
    expect_refused("DCP-OVERLAPS=error", "use 'CHUNK-OVERLAP' if");
    expect_refused("QUITE-ANOTHER=error", "choose an id");
    expect_refused("ZIP-DUPNAME=note", "'ZIP-DUPNAME' cannot be changed");
    expect_refused("ZIP-DUPNAME=error", "'ZIP-DUPNAME' cannot be changed");
    expect_refused("DCP-PATH=ignore", "'DCP-PATH' cannot be changed");
    expect_refused("NUM-NAN", "is not a finding with a severity");
    expect_refused("NUM-NAN=", "is not a finding with a severity");
    expect_refused("NUM-NAN=error ", "is not a finding with a severity");
    expect_refused("=error", "is not a finding with a severity");
    expect_refused("", "is not a finding with a severity");
    memset(longest, 'A', sizeof longest);
    memcpy(longest + 40, "=error", 7);
    expect_refused(longest, "choose an id");
    memset(longest, 'A', sizeof longest);
    memcpy(longest + sizeof longest - 7, "=error", 7);
    expect_refused(longest, "is not a finding with a severity");
}

Test(finding_kinds, failures_without_one_have_that_of_their_status)
{
    static const struct {
        fsdpck_status status;
        const char *id;
    } rows[] = {
        {FSDPCK_UNSUPPORTED, "SYS-UNSUPPORTED"},
        {FSDPCK_IO, "SYS-IO"},
        {FSDPCK_NOSPACE, "SYS-SPACE"},
        {FSDPCK_CHANGED, "SYS-CHANGED"},
        {FSDPCK_PEER, "SYS-PEER"},
        {FSDPCK_DEVICE, "SYS-DEVICE"},
        {FSDPCK_INTERNAL, "SYS-BUG"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_str_eq(fsdpck_finding_name(finding_of_status(rows[i].status)), rows[i].id);
        cr_expect_eq(finding_find(rows[i].id)->class, FINDING_SYSTEM, "%s", rows[i].id);
    }
    cr_expect_eq(finding_of_status(FSDPCK_OK), FSDPCK_FINDING_NONE);
    cr_expect_eq(finding_of_status(FSDPCK_FINDING), FSDPCK_FINDING_NONE);
    cr_expect_eq(finding_of_status(FSDPCK_USAGE), FSDPCK_FINDING_NONE);
    cr_expect_eq(finding_of_status(FSDPCK_EXISTS), FSDPCK_FINDING_NONE);
    cr_expect_eq(finding_of_status(FSDPCK_LIMIT), FSDPCK_FINDING_NONE, "limits name their own");
}
