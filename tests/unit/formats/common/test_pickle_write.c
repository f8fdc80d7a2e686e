#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "pickle_case.h"

/* Reads (with the plain calls as values) and writes again, byte for byte. */
static void rewrites(const char *pickle, size_t nbytes, const char *expected,
                     size_t expected_nbytes, int line)
{
    pickle_case c;
    text_buf out = {0};
    pickle_case_read(&c, pickle, nbytes, &pickle_plain_hooks);
    cr_assert_eq(c.st, FSDPCK_OK, "line %d: %s", line, c.err.message);
    cr_assert_eq(pickle_write(&c.pool, c.root, NULL, NULL, &out, &c.err), FSDPCK_OK, "line %d: %s",
                 line, c.err.message);
    cr_assert_eq(out.nbytes, expected_nbytes, "line %d: %zu bytes", line, out.nbytes);
    cr_assert_eq(memcmp(out.text, expected, expected_nbytes), 0, "line %d", line);
    text_release(&out);
    pickle_case_release(&c);
}

#define REWRITES(in, out) rewrites(in, sizeof(in) - 1, out, sizeof(out) - 1, __LINE__)
/* What Python's pickler wrote as protocol 2. */
#define STAYS(literal) REWRITES(literal, literal)

Test(pickle_write, numbers)
{
    STAYS("\x80\x02(K\xffM\x00\x01M\xff\xffJ\x00\x00\x01\x00J\xff\xff\xff\xfftq\x00.");
    STAYS("\x80\x02("
          "\x8a\x05\x00\x00\x00\x80\x00\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\x00\x00\x00"
          "\x00\x00"
          "\x00\x00\x80\x00Ntq\x00.");
    STAYS(
        "\x80\x02G\x3f\xb9\x99\x99\x99\x99\x99\x9aG\xff\xf0\x00\x00\x00\x00\x00\x00\x88\x87q\x00.");
}

Test(pickle_write, texts_once)
{
    REWRITES("\x80\x04\x8c\x02hi\x8c\x02hi\x86.",
             "\x80\x02X\x02\x00\x00\x00hiq\x00h\x00\x86q\x01.");
}

Test(pickle_write, containers)
{
    STAYS("\x80\x02]q\x00(K\x01]q\x01}q\x02)e.");
    STAYS("\x80\x02}q\x00X\x01\x00\x00\x00"
          "aq\x01]q\x02K\x01"
          "as.");
    STAYS("\x80\x02}q\x00(X\x01\x00\x00\x00"
          "aq\x01K\x01X\x01\x00\x00\x00"
          "bq\x02h\x01u.");
    STAYS("\x80\x02K\x01\x85q\x00.");
}

Test(pickle_write, sets_and_bytes_as_protocol_2_has_them)
{
    REWRITES("\x8f(K\x01K\x02\x90.", "\x80\x02"
                                     "c__builtin__\nset\nq\x00]q\x01(K\x01K\x02"
                                     "e\x85q\x02Rq\x03.");
    REWRITES("(K\x01\x91.", "\x80\x02"
                            "c__builtin__\nfrozenset\nq\x00]q\x01K\x01"
                            "a\x85q\x02Rq\x03.");
    REWRITES("C\x02"
             "a\xff.",
             "\x80\x02"
             "c_codecs\nencode\nq\x00X\x03\x00\x00\x00"
             "a\xc3\xbfq\x01X\x06\x00\x00\x00latin1q\x02\x86q\x03Rq\x04.");
    REWRITES("C\x00.", "\x80\x02"
                       "c__builtin__\nbytes\nq\x00)Rq\x01.");
}

Test(pickle_write, symbols_by_their_old_names)
{
    REWRITES("\x8c\x08"
             "builtins\x8c\x03len\x93.",
             "\x80\x02"
             "c__builtin__\nlen\nq\x00.");
    REWRITES("\x8c\x08"
             "builtins\x8c\x03int\x93.",
             "\x80\x02"
             "c__builtin__\nlong\nq\x00.");
    REWRITES("\x8c\x07"
             "copyreg\x8c\x01x\x93.",
             "\x80\x02"
             "ccopy_reg\nx\nq\x00.");
    REWRITES("\x8c\x08"
             "builtins\x8c\x0cTimeoutError\x93.",
             "\x80\x02"
             "c__builtin__\nTimeoutError\nq\x00.");
    REWRITES("\x8c\x01m\x8c\x03"
             "A.B\x93.",
             "\x80\x02"
             "c__builtin__\ngetattr\nq\x00"
             "cm\nA\nq\x01X\x01\x00\x00\x00"
             "Bq\x02\x86q\x03Rq\x04.");
    REWRITES("\x8c\x01m\x8c\x02..\x93.", "\x80\x02"
                                         "cm\n..\nq\x00.");
}

Test(pickle_write, calls_as_they_came)
{
    STAYS("\x80\x02"
          "ccollections\nOrderedDict\nq\x00)Rq\x01X\x01\x00\x00\x00"
          "aq\x02K\x01s.");
    STAYS("\x80\x02"
          "ccollections\ndeque\nq\x00)Rq\x01(K\x01K\x02"
          "e.");
    STAYS("\x80\x02"
          "ca\nB\nq\x00)\x81q\x01}q\x02X\x01\x00\x00\x00kq\x03h\x01sb.");
    STAYS("\x80\x02"
          "ca\nB\nq\x00)\x81q\x01Nb.");
    STAYS("\x80\x02(X\x07\x00\x00\x00storageq\x00K\x01K\x02K\x03tq\x01Q.");
    REWRITES("ca\nB\nK\x01\x85}X\x01\x00\x00\x00kK\x02s\x92.",
             "\x80\x02"
             "ccopy_reg\n__newobj_ex__\nq\x00"
             "ca\nB\nq\x01K\x01\x85q\x02}q\x03X\x01\x00\x00\x00kq\x04K\x02s\x87q\x05Rq\x06.");
}

Test(pickle_write, shared_and_recursive_values)
{
    STAYS("\x80\x02]q\x00h\x00"
          "a.");
    STAYS("\x80\x02]q\x00(K\x01\x85q\x01h\x01h\x01"
          "e.");
    /* tuples that contain themselves, as Python writes them */
    STAYS("\x80\x02]q\x00h\x00\x85q\x01"
          "a0h\x01.");
}

Test(pickle_write, a_tuple_in_itself)
{
    pickle_case c;
    text_buf out = {0};
    const char pickle[] = "(]q\x00K\x01K\x02K\x03tq\x01h\x00h\x01"
                          "a0.";
    pickle_case_read(&c, pickle, sizeof(pickle) - 1, NULL);
    cr_assert_eq(c.st, FSDPCK_OK, "%s", c.err.message);
    cr_assert_eq(pickle_write(&c.pool, c.root, NULL, NULL, &out, NULL), FSDPCK_OK);
    const char expected[] = "\x80\x02(]q\x00(h\x00K\x01K\x02K\x03tq\x01"
                            "aK\x01K\x02K\x03"
                            "1h\x01.";
    cr_assert_eq(out.nbytes, sizeof(expected) - 1);
    cr_assert_eq(memcmp(out.text, expected, out.nbytes), 0);
    text_release(&out);
    pickle_case_release(&c);
}

Test(pickle_write, many_items_go_in_batches)
{
    text_buf in = {0};
    text_puts(&in, "](");
    for (int i = 0; i < 2001; i++)
        text_puts(&in, "N");
    text_puts(&in, "e.");
    pickle_case c;
    text_buf out = {0};
    pickle_case_read(&c, in.text, in.nbytes, NULL);
    cr_assert_eq(pickle_write(&c.pool, c.root, NULL, NULL, &out, NULL), FSDPCK_OK);
    /* PROTO 2 ] q 0, two batches with mark and APPENDS, one item with APPEND, STOP */
    cr_assert_eq(out.nbytes, 2 + 1 + 2 + 2 * (1000 + 2) + 2 + 1);
    cr_assert_str_eq(out.text + out.nbytes - 3, "Na.");
    text_release(&out);
    pickle_case_release(&c);
    text_release(&in);
}

static fsdpck_status put_tensor(void *ctx, pickle_writer *w, uint64_t tensor_index,
                                fsdpck_error *err)
{
    (void)ctx;
    if (tensor_index == 9)
        return error_set(err, FSDPCK_UNSUPPORTED, FSDPCK_FINDING_NONE, "no tensor 9");
    pickle_put_global(w, "torch", "Tensor");
    pickle_put_mark(w);
    pickle_put_str(w, "storage", 7);
    pickle_put_int(w, (int64_t)tensor_index);
    pickle_put_bool(w, true);
    pickle_put_none(w);
    pickle_put_tuple_marked(w);
    pickle_put_persid(w);
    pickle_put_tuple(w, 1);
    pickle_put_reduce(w);
    pickle_put_empty_dict(w);
    pickle_put_str(w, "k", 1);
    pickle_put_int(w, 1);
    pickle_put_setitem(w);
    pickle_put_build(w);
    return FSDPCK_OK;
}

Test(pickle_write, tensors_by_the_callers_function)
{
    pickle_case c = {0};
    text_buf out = {0};
    budget_init(&c.memory, 1 << 20, "metadata", NULL);
    value_pool_init(&c.pool, &c.memory);
    const value items[] = {value_of_tensor(5), value_of_tensor(5)};
    cr_assert_eq(value_new_from(&c.pool, VALUE_TUPLE, items, 2, &c.root, NULL), FSDPCK_OK);
    cr_assert_eq(pickle_write(&c.pool, c.root, put_tensor, NULL, &out, NULL), FSDPCK_OK);
    const char expected[] =
        "\x80\x02"
        "ctorch\nTensor\nq\x00(X\x07\x00\x00\x00storageq\x01K\x05\x88Ntq\x02Q\x85q\x03R}q\x04"
        "X\x01\x00\x00\x00kq\x05K\x01sbq\x06h\x06\x86q\x07.";
    cr_assert_eq(out.nbytes, sizeof(expected) - 1);
    cr_assert_eq(memcmp(out.text, expected, out.nbytes), 0);
    text_release(&out);
    cr_assert_eq(pickle_write(&c.pool, c.root, NULL, NULL, &out, &c.err), FSDPCK_UNSUPPORTED);
    text_release(&out);
    cr_assert_eq(pickle_write(&c.pool, value_of_tensor(9), put_tensor, NULL, &out, &c.err),
                 FSDPCK_UNSUPPORTED);
    cr_assert_str_eq(c.err.message, "no tensor 9");
    text_release(&out);
    cr_assert_eq(pickle_write(&c.pool, value_of_host(1), put_tensor, NULL, &out, &c.err),
                 FSDPCK_INTERNAL);
    text_release(&out);
    pickle_case_release(&c);
}

static fsdpck_status write_literal(const char *pickle, size_t nbytes, size_t limit_bytes)
{
    pickle_case c;
    text_buf out = {.limit_bytes = limit_bytes};
    pickle_case_read(&c, pickle, nbytes, NULL);
    cr_assert_eq(c.st, FSDPCK_OK, "%s", c.err.message);
    const fsdpck_status st = pickle_write(&c.pool, c.root, NULL, NULL, &out, &c.err);
    text_release(&out);
    pickle_case_release(&c);
    return st;
}

#define WRITE(literal, limit) write_literal(literal, sizeof(literal) - 1, limit)

Test(pickle_write, what_cannot_be_written)
{
    cr_assert_eq(WRITE("\x8fq\x00(h\x00\x85\x90.", 0), FSDPCK_UNSUPPORTED,
                 "a set that holds itself");
    cr_assert_eq(WRITE("ca\nB\n)R(K\x01\x90.", 0), FSDPCK_UNSUPPORTED, "set items of a call");
    cr_assert_eq(WRITE("\x8c\x02"
                       "a\n\x8c\x01"
                       "b\x93.",
                       0),
                 FSDPCK_UNSUPPORTED, "a newline in a name");
    cr_assert_eq(WRITE("](K\x01K\x02K\x03"
                       "e.",
                       8),
                 FSDPCK_LIMIT, "a limit on the text");
}

/* A tuple of the same ints, by one call each and by one call for all of them. */
typedef struct int_run {
    uint64_t first, count, step;
} int_run;

static const int_run int_runs[] = {{0, 0, 1},       {0, 1, 1},       {0, 3000, 1},
                                   {250, 10, 1},    {65530, 10, 1},  {0, 40, 7000},
                                   {255, 2, 65280}, {70000, 300, 3}, {1, 5, UINT64_C(1) << 32}};

static fsdpck_status put_runs(void *ctx, pickle_writer *w, uint64_t tensor_index, fsdpck_error *err)
{
    const bool at_once = *(const bool *)ctx;
    const int_run *run = &int_runs[tensor_index];
    (void)err;
    pickle_put_mark(w);
    if (at_once)
        pickle_put_ints(w, run->first, run->count, run->step);
    for (uint64_t i = 0; !at_once && i < run->count; i++)
        pickle_put_int(w, (int64_t)(run->first + i * run->step));
    pickle_put_tuple_marked(w);
    return FSDPCK_OK;
}

Test(pickle_write, runs_of_ints_are_the_same_ints)
{
    for (size_t i = 0; i < sizeof int_runs / sizeof *int_runs; i++) {
        value_pool pool;
        text_buf one = {0}, all = {0};
        bool at_once = false;
        value_pool_init(&pool, NULL);
        cr_assert_eq(pickle_write(&pool, value_of_tensor(i), put_runs, &at_once, &one, NULL),
                     FSDPCK_OK);
        at_once = true;
        cr_assert_eq(pickle_write(&pool, value_of_tensor(i), put_runs, &at_once, &all, NULL),
                     FSDPCK_OK);
        cr_assert_eq(one.nbytes, all.nbytes, "run %zu", i);
        cr_assert_eq(memcmp(one.text, all.text, one.nbytes), 0, "run %zu", i);
        text_release(&one);
        text_release(&all);
        value_pool_release(&pool);
    }
}
