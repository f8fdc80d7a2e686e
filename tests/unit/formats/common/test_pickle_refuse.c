/* Refused pickles, with finding and opcode. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "pickle_case.h"

#define reads_as(literal, printed) cr_assert_str_eq(OUTCOME(literal), printed)

Test(pickle_refuse, what_is_too_short)
{
    reads_as("", "PKL-TRUNCATED @0");
    reads_as("N", "PKL-TRUNCATED @0");
    reads_as("NK", "PKL-TRUNCATED @1");
    reads_as("J\x01\x02\x03.", "PKL-TRUNCATED @0");
    reads_as("I5", "PKL-TRUNCATED @0");
    reads_as("ca\nb.", "PKL-TRUNCATED @0");
    reads_as("\x80", "PKL-TRUNCATED @0");
    reads_as("h", "PKL-TRUNCATED @0");
    reads_as("Nj\x00\x00\x00", "PKL-TRUNCATED @1");
    reads_as("\x8c", "PKL-TRUNCATED @0");
    reads_as("\x8c\x05"
             "abc.",
             "PKL-TRUNCATED @0");
    reads_as("X\x05\x00\x00\x00"
             "abc.",
             "PKL-TRUNCATED @0");
    reads_as("G\x00\x00.", "PKL-TRUNCATED @0");
}

static size_t make_long_one(char *dst)
{
    const char frame[] = "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00";
    memcpy(dst, frame, 11);
    size_t n = 11;
    const char body[] = "}\x94(\x8c\x05"
                        "alpha\x94K\x01X\x04\x00\x00\x00"
                        "beta\x94"
                        "ca\nB\n)\x81\x94}\x8c\x01k\x94G\x3f\xf0\x00\x00\x00\x00\x00\x00sbu.";
    memcpy(dst + n, body, sizeof(body) - 1);
    n += sizeof(body) - 1;
    store_le64((uint8_t *)dst + 3, n - 11);
    return n;
}

Test(pickle_refuse, a_pickle_cut_anywhere)
{
    char whole[200];
    const size_t n = make_long_one(whole);
    cr_assert_str_eq(pickle_case_outcome(whole, n, NULL),
                     "{'alpha': 1, 'beta': a.B() <- {'k': 1.0}}");
    for (size_t cut = 0; cut < n; cut++)
        cr_assert(strncmp(pickle_case_outcome(whole, cut, NULL), "PKL-TRUNCATED", 13) == 0,
                  "cut at %zu: %s", cut, pickle_case_outcome(whole, cut, NULL));
}

Test(pickle_refuse, lengths_that_cannot_be)
{
    reads_as("\x8d\x00\x00\x00\x00\x00\x00\x00\x80.", "PKL-LENGTH @0");
    reads_as("\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "PKL-LENGTH @0");
    reads_as("N\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "PKL-LENGTH @1");
    reads_as("\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", "PKL-LENGTH @0");
    reads_as("X\xff\xff\xff\x7f.", "PKL-LENGTH @0");
    reads_as("X\xff\xff\xff\xff.", "PKL-LENGTH @0");
    reads_as("T\xff\xff\xff\xff.", "PKL-LENGTH @0");
    reads_as("\x8b\xff\xff\xff\xff.", "PKL-INT @0");
    reads_as("\x8b\xff\xff\xff\x7f.", "PKL-LENGTH @0");
}

Test(pickle_refuse, an_empty_or_short_stack)
{
    reads_as(".", "PKL-STACK @0");
    reads_as("NN\x87.", "PKL-STACK @2");
    reads_as("(NN\x87.", "PKL-STACK @3");
    reads_as("N(N\x86.", "PKL-STACK @3");
    reads_as("\x85.", "PKL-STACK @0");
    reads_as(")R.", "PKL-STACK @1");
    reads_as("}b.", "PKL-STACK @1");
    reads_as("NNs.", "PKL-STACK @2");
    reads_as("Na.", "PKL-STACK @1");
    reads_as(")\x81.", "PKL-STACK @1");
    reads_as("))\x92.", "PKL-STACK @2");
    reads_as("Q.", "PKL-STACK @0");
    reads_as("0.", "PKL-STACK @0");
    reads_as("2.", "PKL-STACK @0");
    reads_as("\x93.", "PKL-STACK @0");
    reads_as("(e.", "PKL-STACK @1");
    reads_as("(NNu.", "PKL-STACK @3");
    reads_as("(N\x90.", "PKL-STACK @2");
    reads_as("N((NNue.", "PKL-STACK @5");
}

Test(pickle_refuse, marks_that_do_not_match)
{
    reads_as("t.", "PKL-MARK @0");
    reads_as("}NNu.", "PKL-MARK @3");
    reads_as("]Ne.", "PKL-MARK @2");
    reads_as("1.", "PKL-MARK @0");
    reads_as("l.", "PKL-MARK @0");
    reads_as("d.", "PKL-MARK @0");
    reads_as("\x91.", "PKL-MARK @0");
    reads_as("N(.", "PKL-MARK @2");
    reads_as("NN.", "PKL-MARK @2");
}

Test(pickle_refuse, a_key_without_item)
{
    reads_as("}(NNNu.", "PKL-ODD @5");
    reads_as("(Nd.", "PKL-ODD @2");
}

Test(pickle_refuse, opcodes)
{
    static const uint8_t refused[] = {'i',  'o',  0x82, 0x83, 0x84, 0x97,
                                      0x98, 0x99, 0x00, 0xFF, 'Z'};
    for (size_t i = 0; i < sizeof(refused); i++) {
        const char pickle[] = {'N', (char)refused[i], 'a', '\n', 'b', '\n', '.'};
        cr_assert_str_eq(pickle_case_outcome(pickle, sizeof(pickle), NULL), "PKL-OPCODE @1",
                         "opcode 0x%02X", refused[i]);
    }
}

Test(pickle_refuse, protocols)
{
    reads_as("\x80\x00N.", "None");
    reads_as("\x80\x05N.", "None");
    reads_as("\x80\x06N.", "PKL-PROTO @0");
    reads_as("\x80\xffN.", "PKL-PROTO @0");
    reads_as("N\x80\x02.", "PKL-PROTO @1");
    reads_as("\x80\x02\x80\x02N.", "PKL-PROTO @2");
}

Test(pickle_refuse, frames)
{
    reads_as("\x80\x04N.", "None");
    reads_as("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.", "None");
    reads_as("\x95\x01\x00\x00\x00\x00\x00\x00\x00N\x95\x01\x00\x00\x00\x00\x00\x00\x00.", "None");
    reads_as("\x95\x01\x00\x00\x00\x00\x00\x00\x00NK\x01"
             "0.",
             "None");
    reads_as("\x95\x03\x00\x00\x00\x00\x00\x00\x00N.", "PKL-FRAME @0");
    reads_as("\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "PKL-FRAME @0");
    reads_as("\x95\x00\x00\x00\x00\x00\x00\x00\x00N.", "PKL-FRAME @0");
    reads_as("\x95\x01\x00\x00\x00\x00\x00\x00\x00K\x01.", "PKL-FRAME @9");
    reads_as("\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x95\x02\x00\x00\x00\x00\x00\x00\x00N.",
             "PKL-FRAME @9");
    reads_as("\x95\x02\x00\x00\x00\x00\x00\x00\x00.NN", "PKL-FRAME @9");
}

Test(pickle_refuse, what_follows_stop_is_the_callers_business)
{
    pickle_case c;
    pickle_case_read(&c, "K\x01.garbage", 10, NULL);
    cr_assert_eq(c.st, FSDPCK_OK);
    cr_assert_eq(c.used_nbytes, 3);
    pickle_case_release(&c);
    const pickle_input in = {.bytes = (const uint8_t *)"K\x01.N.", .nbytes = 5};
    size_t nbytes = 0;
    cr_assert_eq(pickle_skim(&in, &nbytes, NULL), FSDPCK_OK);
    cr_assert_eq(nbytes, 3);
}

static const char *repeated(const char *begin, const char *middle, size_t count, const char *end)
{
    text_buf b = {0};
    text_puts(&b, begin);
    for (size_t i = 0; i < count; i++)
        text_puts(&b, middle);
    text_puts(&b, end);
    const char *outcome = pickle_case_outcome(b.text, b.nbytes, NULL);
    text_release(&b);
    return outcome;
}

Test(pickle_refuse, nesting_without_end)
{
    cr_assert(strncmp(repeated("N", "\x85", 1000000, "."), "limit PKL-DEPTH", 15) == 0);
    cr_assert(strncmp(repeated("", "(", 1000000, "."), "limit PKL-DEPTH @1000", 21) == 0);
    text_buf lists = {0};
    for (int i = 0; i < 1000000; i++)
        text_puts(&lists, "]");
    for (int i = 0; i < 999999; i++)
        text_puts(&lists, "a");
    text_puts(&lists, ".");
    cr_assert(strncmp(pickle_case_outcome(lists.text, lists.nbytes, NULL), "limit PKL-DEPTH", 15) ==
              0);
    text_release(&lists);
    cr_assert_str_eq(repeated("ca\nB\n)R", "ca\nB\n)R2b", 1, "."), "PKL-MARK @16");
    cr_assert(strncmp(repeated("N", "\x85", 9999, "."), "((((", 4) == 0, "what is allowed");
}

/* 60 levels of (x, x): one cell a level, and a walk sees each once. */
static fsdpck_status count_visit(void *ctx, value v, fsdpck_error *err)
{
    (void)v;
    (void)err;
    ++*(size_t *)ctx;
    return FSDPCK_OK;
}

Test(pickle_refuse, shared_parts_are_not_expanded)
{
    text_buf b = {0};
    text_puts(&b, ")");
    for (int i = 0; i < 60; i++)
        text_puts(&b, "2\x86");
    text_puts(&b, ".");
    pickle_case c;
    pickle_case_read(&c, b.text, b.nbytes, NULL);
    cr_assert_eq(c.st, FSDPCK_OK);
    size_t visits = 0;
    cr_assert_eq(value_walk(&c.pool, c.root, count_visit, &visits, NULL), FSDPCK_OK);
    cr_assert_eq(visits, 62, "60 tuples and the two leaves of the last: %zu", visits);
    text_buf out = {0};
    cr_assert_eq(pickle_write(&c.pool, c.root, NULL, NULL, &out, NULL), FSDPCK_OK);
    cr_assert_lt(out.nbytes, 400);
    text_release(&out);
    pickle_case_release(&c);
    text_release(&b);
}

Test(pickle_refuse, more_than_the_budget)
{
    pickle_case c = {0};
    char pickle[] = "](KAKBKCKDKEKFe.";
    budget_init(&c.memory, 100, "metadata", "--metadata-limit");
    value_pool_init(&c.pool, &c.memory);
    const pickle_input in = {.bytes = (const uint8_t *)pickle, .nbytes = sizeof(pickle) - 1};
    const pickle_limits limits = PICKLE_LIMITS_DEFAULT;
    cr_assert_eq(pickle_read(&in, &limits, &c.pool, NULL, &c.root, &c.used_nbytes, &c.err),
                 FSDPCK_LIMIT);
    cr_assert(c.err.has_offset);
    pickle_case_release(&c);
}

Test(pickle_refuse, more_than_the_limits)
{
    pickle_case c = {0};
    budget_init(&c.memory, 1 << 20, "metadata", NULL);
    value_pool_init(&c.pool, &c.memory);
    const pickle_limits limits = {.max_depth = 2, .max_memo = 1, .max_stack = 10};
    const struct {
        const char *pickle;
        const char *finding;
    } cases[] = {{"(((ttt.", "PKL-DEPTH"},
                 {"(NNNNNNNNNNNNNNNNt.", "PKL-LIMIT"},
                 {"Nq\1(h\1q\2h\2t.", "PKL-LIMIT"},
                 {"((t(NNNt.", ""}};
    for (size_t i = 0; i < 4; i++) {
        const pickle_input in = {.bytes = (const uint8_t *)cases[i].pickle,
                                 .nbytes = strlen(cases[i].pickle)};
        const fsdpck_status st =
            pickle_read(&in, &limits, &c.pool, NULL, &c.root, &c.used_nbytes, &c.err);
        cr_assert_eq(st, i < 3 ? FSDPCK_LIMIT : FSDPCK_BADINPUT);
        if (i < 3)
            cr_assert_str_eq(fsdpck_finding_name(c.err.finding), cases[i].finding);
    }
    pickle_case_release(&c);
}
