#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "pickle_case.h"

/* A reader that replaces calls of classes whose name begins with H by notes 1, 2, ... */
typedef struct reader {
    uint64_t notes;
    bool at_build; /* replace at BUILD, not before */
    bool take_items;
    uint64_t built;     /* notes that got state */
    uint64_t state_sum; /* of the numbers in all states */
    uint64_t pairs;
    uint64_t items;
    uint64_t most_cells;
    uint64_t duplicates;
} reader;

static void state_total(reader *r, const value_pool *pool, value state)
{
    uint64_t n = 0;
    for (size_t i = 0; i < value_count(pool, state); i++)
        r->state_sum += value_as_u64(pool, value_item(pool, state, i), &n) ? n : 0;
}

static fsdpck_status on_call(void *ctx, value_pool *pool, const value_call *call, bool built,
                             value *replacement, bool *replaced, fsdpck_error *err)
{
    reader *r = ctx;
    (void)err;
    if (pool->cells.count > r->most_cells)
        r->most_cells = pool->cells.count;
    if (value_symbol_name(pool, call->callee)[0] != 'H' || built != r->at_build)
        return FSDPCK_OK;
    if (built)
        state_total(r, pool, call->state);
    *replacement = value_of_host(++r->notes);
    *replaced = true;
    return FSDPCK_OK;
}

static fsdpck_status on_build_host(void *ctx, value_pool *pool, value host, value state,
                                   fsdpck_error *err)
{
    reader *r = ctx;
    (void)err;
    cr_assert_eq(value_kind_of(host), VALUE_HOST);
    r->built++;
    state_total(r, pool, state);
    return FSDPCK_OK;
}

static fsdpck_status on_pair(void *ctx, value_pool *pool, value key, value item, bool *taken,
                             fsdpck_error *err)
{
    reader *r = ctx;
    (void)pool;
    (void)err;
    cr_assert(value_kind_of(key) == VALUE_HOST || value_kind_of(item) == VALUE_HOST);
    *taken = value_kind_of(key) == VALUE_HOST;
    r->pairs += *taken;
    return FSDPCK_OK;
}

static fsdpck_status on_items(void *ctx, value_pool *pool, const value *items, size_t count,
                              uint64_t *list_note, bool *taken, fsdpck_error *err)
{
    reader *r = ctx;
    (void)pool;
    (void)err;
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(value_kind_of(items[i]), VALUE_HOST);
    *taken = r->take_items;
    if (*taken)
        *list_note += count;
    r->items += count;
    return FSDPCK_OK;
}

static fsdpck_status on_duplicate_key(void *ctx, value_pool *pool, value dict, value key,
                                      fsdpck_error *err)
{
    reader *r = ctx;
    (void)err;
    cr_assert_eq(value_kind_of(dict), VALUE_DICT);
    cr_assert(value_is_str(pool, key, "k"));
    r->duplicates++;
    return FSDPCK_OK;
}

static pickle_hooks hooks_of(reader *r)
{
    return (pickle_hooks){.ctx = r,
                          .on_call = on_call,
                          .on_build_host = on_build_host,
                          .on_pair = on_pair,
                          .on_items = on_items,
                          .on_duplicate_key = on_duplicate_key};
}

#define READ(c, r, literal)                                        \
    do {                                                           \
        const pickle_hooks hooks = hooks_of(r);                    \
        pickle_case_read(c, literal, sizeof(literal) - 1, &hooks); \
        cr_assert_eq((c)->st, FSDPCK_OK, "%s", (c)->err.message);  \
    } while (0)

/* A class H, and an object of it with the state {'n': 5}. */
#define H      "cm\nH\n"
#define OBJECT H ")\x81}U\x01nK\x05sb"

Test(pickle_hooks, calls_are_replaced_when_made)
{
    pickle_case c;
    reader r = {0};
    READ(&c, &r, "(" OBJECT H "(K\x01K\x02tRt.");
    cr_assert_str_eq(c.text.text, "(<note 1>, <note 2>)");
    cr_assert_eq(r.built, 1);
    cr_assert_eq(r.state_sum, 5);
    pickle_case_release(&c);
}

Test(pickle_hooks, calls_are_replaced_when_built)
{
    pickle_case c;
    reader r = {.at_build = true};
    READ(&c, &r, "(" OBJECT H "(K\x01K\x02tRt.");
    cr_assert_str_eq(c.text.text, "(<note 1>, m.H(1, 2))");
    cr_assert_eq(r.state_sum, 5);
    pickle_case_release(&c);
}

Test(pickle_hooks, the_memo_has_the_note_too)
{
    pickle_case c;
    reader early = {0};
    READ(&c, &early, "(" H ")\x81q\x01}U\x01nK\x05sbh\x01t.");
    cr_assert_str_eq(c.text.text, "(<note 1>, <note 1>)");
    pickle_case_release(&c);
    reader late = {.at_build = true};
    READ(&c, &late, "(" H ")\x81q\x01}U\x01nK\x05sbh\x01t.");
    cr_assert_str_eq(c.text.text, "(<note 1>, <note 1>)");
    pickle_case_release(&c);
    reader twice = {.at_build = true};
    READ(&c, &twice,
         "(" H ")\x81"
         "2}b}U\x01nK\x05sbt.");
    cr_assert_eq(twice.built, 1, "the second state goes to the note");
    pickle_case_release(&c);
}

Test(pickle_hooks, memory_of_replaced_calls_is_reused)
{
    text_buf b = {0};
    text_puts(&b, "(");
    for (int i = 0; i < 900; i++)
        text_append(&b, OBJECT, sizeof(OBJECT) - 1);
    text_puts(&b, "t.");
    pickle_case c;
    reader r = {0};
    const pickle_hooks hooks = hooks_of(&r);
    pickle_case_read(&c, b.text, b.nbytes, &hooks);
    cr_assert_eq(c.st, FSDPCK_OK);
    cr_assert_eq(r.state_sum, 900 * 5);
    cr_assert_lt(r.most_cells, 20, "%zu cells", (size_t)r.most_cells);
    pickle_case_release(&c);
    text_release(&b);
}

/* Parts of replaced calls that the memo needs, or that were changed through it, must stay whole
 * although the pool is rewound around them. Each line keeps something through a replaced call and
 * uses it later, after other values have been made. */
Test(pickle_hooks, what_the_memo_needs_stays)
{
    static const struct {
        const char *pickle;
        const char *printed;
    } cases[] = {
        /* a tuple inside the arguments */
        {"(" H "(K\1K\2\x86q\1K\3tR(K\7K\10K\11th\1t.", "(<note 1>, (7, 8, 9), (1, 2))"},
        /* a list that is filled after it was memoised */
        {"(" H "(]q\1(K\1K\2K\3etR(K\7K\10K\11th\1t.", "(<note 1>, (7, 8, 9), [1, 2, 3])"},
        /* a list from before, filled inside the arguments */
        {"(]q\1" H "(h\1(K\1K\2K\3etR(K\7K\10K\11tt.", "([1, 2, 3], <note 1>, (7, 8, 9))"},
        {"(]q\1" H "(h\1(K\1K\2K\3e0NtR(K\7K\10K\11tt.", "([1, 2, 3], <note 1>, (7, 8, 9))"},
        /* the same through DUP: the copy lies under the arguments */
        {"(]"
         "2"
         "(K\1K\2K\3e(K\7K\10tt.",
         "([1, 2, 3], [1, 2, 3], (7, 8))"},
        /* a call that gets its state inside the arguments of another */
        {"(ca\nB\n)\x81q\1" H "(h\1}U\1kK\5sbtR(K\7K\10K\11tt.",
         "(a.B() <- {'k': 5}, <note 1>, (7, 8, 9))"},
        /* a call that gets items inside the arguments of another */
        {"(ca\nB\n)Rq\1" H "(h\1U\1kK\5sh\1K\4atR(K\7K\10K\11tt.",
         "(a.B() += [4] += {'k': 5}, <note 1>, (7, 8, 9))"},
        /* a wide number */
        {"(" H "(G\x3f\xb9\x99\x99\x99\x99\x99\x9aq\1tRI7\n(K\7K\10K\11th\1t.",
         "(<note 1>, 7, (7, 8, 9), 0.1)"},
        /* a dict with a key set twice, kept; another one dropped */
        {"(" H "(}q\1(U\1kK\1U\1kK\2utR" H "(}(U\1kK\1U\1kK\2utR(K\7K\10K\11th\1t.",
         "(<note 1>, <note 2>, (7, 8, 9), {'k': 2})"},
        /* state of a note, kept by the memo */
        {"(" H ")\x81}q\1U\1nK\5sb(K\7K\10K\11th\1t.", "(<note 1>, (7, 8, 9), {'n': 5})"},
        /* a list that grows around replaced calls */
        {"](K\1" H ")RK\2e(K\3" H "(K\1K\2tRK\4eK\5a.", "[1, <note 1>, 2, 3, <note 2>, 4, 5]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        /* The literals hold no NUL. */
        reader r = {0};
        const pickle_hooks hooks = hooks_of(&r);
        pickle_case c;
        pickle_case_read(&c, cases[i].pickle, strlen(cases[i].pickle), &hooks);
        cr_assert_eq(c.st, FSDPCK_OK, "case %zu: %s", i, c.err.message);
        cr_assert_str_eq(c.text.text, cases[i].printed, "case %zu: %s", i, c.text.text);
        pickle_case_release(&c);
    }
}

/* A copy by DUP gets an item, then is replaced; what it was a copy of still has the item. */
Test(pickle_hooks, what_a_copy_was_given_stays)
{
    pickle_case c;
    reader r = {.at_build = true};
    READ(&c, &r,
         "(" H ")R2K\x01"
         "a}b(K\x07K\x08K\x09K\x0aK\x0btt.");
    cr_assert_str_eq(c.text.text, "(m.H() += [1], <note 1>, (7, 8, 9, 10, 11))");
    pickle_case_release(&c);
}

Test(pickle_hooks, pairs_need_not_be_stored)
{
    pickle_case c;
    reader r = {0};
    READ(&c, &r,
         "}(" H ")RK\x01U\x01"
         "aK\x02" H ")R" H ")RU\x01"
         "b" H ")RuU\x01"
         "cK\x03s.");
    cr_assert_str_eq(c.text.text, "{'a': 2, 'b': <note 4>, 'c': 3}");
    cr_assert_eq(r.pairs, 2);
    pickle_case_release(&c);
}

Test(pickle_hooks, items_need_not_be_stored)
{
    pickle_case c;
    reader r = {.take_items = true};
    READ(&c, &r, "](" H ")R" H ")Re" H ")Ra(K\x01" H ")Re.");
    cr_assert_str_eq(c.text.text, "[1, <note 4>]");
    cr_assert_eq(value_list_note(&c.pool, c.root), 3);
    cr_assert_eq(r.items, 3, "only batches of notes alone are offered");
    pickle_case_release(&c);
    reader keeps = {.take_items = false};
    READ(&c, &keeps, "](" H ")R" H ")Re.");
    cr_assert_str_eq(c.text.text, "[<note 1>, <note 2>]");
    cr_assert_eq(value_list_note(&c.pool, c.root), 0);
    cr_assert_eq(value_list_note(&c.pool, VALUE_OF_NONE), 0);
    pickle_case_release(&c);
}

Test(pickle_hooks, keys_set_twice_are_told)
{
    pickle_case c;
    reader r = {0};
    READ(&c, &r, "(}(U\x01kK\x01U\x01kK\x02U\x01kK\x03u}U\x01kK\x01st.");
    cr_assert_eq(r.duplicates, 2);
    cr_assert_str_eq(c.text.text, "({'k': 3}, {'k': 1})");
    pickle_case_release(&c);
}

static fsdpck_status refuse(void *ctx, value_pool *pool, const value_call *call, bool built,
                            value *replacement, bool *replaced, fsdpck_error *err)
{
    (void)ctx;
    (void)pool;
    (void)call;
    (void)built;
    (void)replacement;
    (void)replaced;
    return error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_PKL_CALL, "no");
}

Test(pickle_hooks, a_refusal_carries_the_offset)
{
    const pickle_hooks hooks = {.on_call = refuse};
    cr_assert_str_eq(pickle_case_outcome("NN\x86"
                                         "0ca\nB\n)R.",
                                         12, &hooks),
                     "PKL-CALL @10");
    const pickle_hooks none = {0};
    cr_assert_str_eq(pickle_case_outcome("ca\nB\n)R}b.", 10, &none), "a.B() <- {}");
}

Test(pickle_hooks, plain_calls)
{
    cr_assert_str_eq(PLAIN_OUTCOME("c_codecs\nencode\nX\x03\x00\x00\x00"
                                   "a\xc3\xbfU\x06latin1\x86R."),
                     "b'a\\xFF'");
    cr_assert_str_eq(
        PLAIN_OUTCOME("c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacU\x06latin1\x86R."),
        "_codecs.encode('\xe2\x82\xac', 'latin1')");
    cr_assert_str_eq(PLAIN_OUTCOME("c_codecs\nencode\nU\x01xU\x04utf8\x86R."),
                     "_codecs.encode('x', 'utf8')");
    cr_assert_str_eq(PLAIN_OUTCOME("c__builtin__\nset\n](K\x02K\x01"
                                   "e\x85R."),
                     "{2, 1}");
    cr_assert_str_eq(PLAIN_OUTCOME("cbuiltins\nfrozenset\n](K\x02K\x01"
                                   "e\x85R."),
                     "frozenset({2, 1})");
    cr_assert_str_eq(PLAIN_OUTCOME("cbuiltins\nset\nK\x01\x85R."), "builtins.set(1)");
    cr_assert_str_eq(PLAIN_OUTCOME("c__builtin__\nbytes\n)R."), "b''");
    cr_assert_str_eq(PLAIN_OUTCOME("cother\nset\n]\x85R."), "other.set([])");
    cr_assert_str_eq(PLAIN_OUTCOME("c__builtin__\ngetattr\nca\nB\nU\x01"
                                   "C\x86R."),
                     "a.B.C");
    cr_assert_str_eq(PLAIN_OUTCOME("c__builtin__\ngetattr\nK\x01U\x01"
                                   "C\x86R."),
                     "__builtin__.getattr(1, 'C')");
    cr_assert_str_eq(PLAIN_OUTCOME("c__builtin__\ngetattr\nca\nB\nU\x02"
                                   "C\0\x86R."),
                     "__builtin__.getattr(a.B, 'C\\x00')");
}
