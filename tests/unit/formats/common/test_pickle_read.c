#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "pickle_case.h"

#define reads_as(literal, printed) cr_assert_str_eq(OUTCOME(literal), printed)

Test(pickle_read, numbers)
{
    reads_as("K\x05.", "5");
    reads_as("M\xff\xff.", "65535");
    reads_as("J\xff\xff\xff\xff.", "-1");
    reads_as("\x8a\x00.", "0");
    reads_as("\x8a\x01\x80.", "-128");
    reads_as("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", "18446744073709551616");
    reads_as("\x8a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff.", "-2");
    reads_as("\x8b\x01\x00\x00\x00\x7f.", "127");
    reads_as("G\x3f\xf0\x00\x00\x00\x00\x00\x00.", "1.0");
    reads_as("G\x3f\xb9\x99\x99\x99\x99\x99\x9a.", "0.1");
    reads_as("G\x7f\xf0\x00\x00\x00\x00\x00\x00.", "inf");
    reads_as("(NI01\nI00\n\x88\x89t.", "(None, True, False, True, False)");
}

/* Texts from Python's str(). */
Test(pickle_read, big_numbers)
{
    reads_as("\x8b\x09\x00\x00\x00"
             "\x00\x00\x00\x00\x00\x00\x00\x00\x01"
             ".",
             "18446744073709551616");
    reads_as("\x8b\x09\x00\x00\x00"
             "\x00\x00\x00\x00\x00\x00\x00\x00\xff"
             ".",
             "-18446744073709551616");
    reads_as("\x8b\x0c\x00\x00\x00"
             "\x00\x00\x00\xe8\x3c\x80\xd0\x9f\x3c\x2e\x3b\x03"
             ".",
             "1000000000000000000000000000");
    reads_as("\x8b\x0c\x00\x00\x00"
             "\x00\x00\x00\x18\xc3\x7f\x2f\x60\xc3\xd1\xc4\xfc"
             ".",
             "-1000000000000000000000000000");
    reads_as("\x8b\x0d\x00\x00\x00"
             "\x00\x00\x00\x00\x00\x00\x00\x00\x00\xca\x9a\x3b\x00"
             ".",
             "18446744073709551616000000000");
    reads_as("\x8b\x09\x00\x00\x00"
             "\x00\x00\x00\x00\x00\x00\x00\x00\x80"
             ".",
             "-2361183241434822606848");
    reads_as("\x8b\x0e\x00\x00\x00"
             "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xaf\x01"
             ".",
             "34226566206162193840410986545151");
    static uint8_t longest[262] = {0x8B, 0x00, 0x01};
    static const char digits[] = /* 2**2047 - 1 */
        "1615850303565550365035743834433497598022205133485774201606517271376232"
        "7569433945446598600705761456731844358980460949009747059779575245460547"
        "5440761932241415603154386836504980458750988751948260533980288191920337"
        "8413839610932130987808091904716923808523529082292601815252144378794577"
        "0532904303776199561965192760957166694834171210342487393282284747428088"
        "0176631610290389028296655130963542301570751292964320885583629718018592"
        "3092867879917557615082295220184880661664361561356284235541010486257855"
        "0863465661734839271290328348967522998634176499319107762583194718667771"
        "801067716614802322659239302476074096777926805529798115327";
    memset(longest + 5, 0xFF, 256);
    longest[260] = 0x7F;
    longest[261] = '.';
    cr_assert_str_eq(pickle_case_outcome(longest, sizeof longest, NULL), digits);
}

Test(pickle_read, text_numbers)
{
    reads_as("I42\n.", "42");
    reads_as("I-7\n.", "-7");
    reads_as("L12345678901234567890L\n.", "12345678901234567890");
    reads_as("L-1L\n.", "-1");
    reads_as("L-18446744073709551616\n.", "-18446744073709551616");
    reads_as("F1.5\n.", "1.5");
    reads_as("F-1e300\n.", "-1e+300");
    reads_as("Fnan\n.", "nan");
    reads_as("Ix\n.", "PKL-INT @0");
    reads_as("I\n.", "PKL-INT @0");
    reads_as("L0x10L\n.", "PKL-INT @0");
    reads_as("F1.5.5\n.", "PKL-INT @0");
    reads_as("F\n.", "PKL-INT @0");
}

Test(pickle_read, integers_of_many_digits)
{
    char text[6000];
    memset(text, '9', sizeof(text));
    text[0] = 'L';
    memcpy(text + 4301, "\n.", 2);
    const char *outcome = pickle_case_outcome(text, 4303, NULL);
    cr_assert(strncmp(outcome, "0x", 2) == 0, "4300 digits: %s", outcome);
    memcpy(text + 4301, "9\n.", 3);
    cr_assert_str_eq(pickle_case_outcome(text, 4304, NULL), "PKL-INT @0");
}

Test(pickle_read, strings)
{
    reads_as("\x8c\x03"
             "abc.",
             "'abc'");
    reads_as("X\x02\x00\x00\x00\xc3\xa9.", "'\xc3\xa9'");
    reads_as("\x8d\x01\x00\x00\x00\x00\x00\x00\x00'.", "'\\''");
    reads_as("C\x03\x00\xff"
             "a.",
             "b'\\x00\\xFFa'");
    reads_as("B\x01\x00\x00\x00z.", "b'z'");
    reads_as("\x8e\x01\x00\x00\x00\x00\x00\x00\x00z.", "b'z'");
    reads_as("\x96\x01\x00\x00\x00\x00\x00\x00\x00z.", "builtins.bytearray(b'z')");
    reads_as("U\x02hi.", "'hi'");
    reads_as("T\x02\x00\x00\x00\xff\xfe.", "b'\\xFF\\xFE'");
    reads_as("S'it\\'s\\x41\\102\\n\\q'\n.", "'it\\'sAB\\x0A\\\\q'");
    reads_as("Va\\u00e9\\U0001F600\\\\u\xe9\n.", "'a\xc3\xa9\xf0\x9f\x98\x80\\\\\\\\u\xc3\xa9'");
    reads_as("X\x03\x00\x00\x00\xed\xa0\x80.", "'\\xED\\xA0\\x80'");
}

Test(pickle_read, broken_strings)
{
    reads_as("\x8c\x02\xff\xfe.", "PKL-STR @0");
    reads_as("X\x02\x00\x00\x00\xc0\x80.", "PKL-STR @0");
    reads_as("Va\\u00g0\n.", "PKL-STR @0");
    reads_as("V\\U00110000\n.", "PKL-STR @0");
    reads_as("Sabc\n.", "PKL-STR @0");
    reads_as("S'\n.", "PKL-STR @0");
    reads_as("S'\\x4'\n.", "PKL-STR @0");
    reads_as("S'\\'\n.", "PKL-STR @0");
}

Test(pickle_read, containers_keep_their_order)
{
    reads_as("(K\x02K\x01t.", "(2, 1)");
    reads_as("K\x01\x85.", "(1,)");
    reads_as("K\x01K\x02K\x03\x87.", "(1, 2, 3)");
    reads_as("(K\x02K\x01l.", "[2, 1]");
    reads_as("](K\x02K\x01"
             "eK\x03"
             "a.",
             "[2, 1, 3]");
    reads_as("(K\x02K\x01K\x01Nd.", "{2: 1, 1: None}");
    reads_as("}(U\x01zK\x01U\x01yK\x02uU\x01xNs.", "{'z': 1, 'y': 2, 'x': None}");
    reads_as("\x8f(K\x02K\x01\x90.", "{2, 1}");
    reads_as("(K\x02\x91.", "frozenset({2})");
    reads_as("(]}(tt.", "([], {}, ())");
}

Test(pickle_read, a_key_set_twice_keeps_its_place_and_its_last_item)
{
    reads_as("}(K\x01U\x01"
             "aK\x02U\x01"
             "bK\x01U\x01"
             "cu.",
             "{1: 'c', 2: 'b'}");
    reads_as("}(K\x01N\x88K\x02G\x3f\xf0\x00\x00\x00\x00\x00\x00K\x03u.", "{1: 3}");
    reads_as("}(NK\x01NK\x02u.", "{None: 2}");
}

Test(pickle_read, keys_set_twice_in_large_dicts)
{
    text_buf b = {0};
    text_puts(&b, "}(");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 300; i++)
            text_printf(&b, "I%d\nI%d\n", i, i + round);
    }
    text_puts(&b, "u.");
    pickle_case c;
    pickle_case_read(&c, b.text, b.nbytes, NULL);
    cr_assert_eq(c.st, FSDPCK_OK);
    cr_assert_eq(value_count(&c.pool, c.root), 300);
    for (size_t i = 0; i < 300; i++) {
        int64_t key = 0;
        int64_t item = 0;
        cr_assert(value_as_i64(&c.pool, value_key(&c.pool, c.root, i), &key));
        cr_assert(value_as_i64(&c.pool, value_item(&c.pool, c.root, i), &item));
        cr_assert_eq(key, (int64_t)i);
        cr_assert_eq(item, (int64_t)i + 1);
    }
    pickle_case_release(&c);
    text_release(&b);
}

Test(pickle_read, the_stack)
{
    reads_as("K\x01"
             "2\x86.",
             "(1, 1)");
    reads_as("K\x01K\x02"
             "0.",
             "1");
    reads_as("K\x01(K\x02K\x03"
             "1.",
             "1");
    reads_as("K\x01(0.", "1");
    reads_as("]2K\x01"
             "a.",
             "PKL-MARK @5");
}

Test(pickle_read, the_memo)
{
    reads_as("]q\x05h\x05\x86.", "([], [])");
    reads_as("]r\x05\x00\x00\x00j\x05\x00\x00\x00\x86.", "([], [])");
    reads_as("]p5\ng5\n\x86.", "([], [])");
    reads_as("(]\x94K\x01\x85\x94h\x01h\x00t.", "([], (1,), (1,), [])");
    reads_as("(Nq\x01h\x01K\x05q\x01h\x01t.", "(None, None, 5, 5)");
    reads_as("]q\x00h\x00"
             "a.",
             "[...]");
    reads_as("](K\x01K\x02"
             "eq\x00K\x03"
             "a0h\x00.",
             "[1, 2, 3]");
}

Test(pickle_read, the_memo_refuses)
{
    reads_as("h\x00.", "PKL-MEMO @0");
    reads_as("Nq\x00h\x01.", "PKL-MEMO @3");
    reads_as("h\x00Nq\x00.", "PKL-MEMO @0");
    reads_as("Nr\xff\xff\xff\xff.", "PKL-MEMO @1");
    reads_as("Nj\xff\xff\xff\xff.", "PKL-MEMO @1");
    reads_as("Np99999999999999999999\n.", "PKL-INT @1");
    reads_as("Npx\n.", "PKL-INT @1");
    reads_as("Nq\x00\x94.", "PKL-MEMO @4");
    reads_as("(q\x00N.", "PKL-STACK @1");
    reads_as("\x94.", "PKL-STACK @0");
}

Test(pickle_read, symbols_and_calls)
{
    reads_as("ctorch\nfloat32\n.", "torch.float32");
    reads_as("\x8c\x05torch\x8c\x04Size\x93.", "torch.Size");
    reads_as("ctorch\nSize\n(K\x01K\x02t\x85R.", "torch.Size((1, 2))");
    reads_as("ca\nB\n)\x81}U\x01xK\x01sb.", "a.B() <- {'x': 1}");
    reads_as("ca\nB\n)\x81K\x07"
             "b.",
             "a.B() <- 7");
    reads_as("ca\nB\n)}U\x01xK\x01s\x92.", "a.B() **{'x': 1}");
    reads_as("ca\nB\n)RK\x01"
             "aU\x01kK\x02s.",
             "a.B() += [1] += {'k': 2}");
    reads_as("ca\nB\n)R(K\x01\x90.", "a.B() |= {1}");
    reads_as("U\x03"
             "abcQ.",
             "persistent_id('abc')");
    reads_as("Pabc\n.", "persistent_id('abc')");
    reads_as("c__builtin__\ngetattr\nca\nB\nU\x01x\x86R)R.", "__builtin__.getattr(a.B, 'x')()");
}

Test(pickle_read, calls_that_cannot_be)
{
    reads_as("K\x01)R.", "PKL-CALL @3");
    reads_as("ca\nB\nK\x01R.", "PKL-CALL @7");
    reads_as("ca\nB\n]R.", "PKL-CALL @6");
    reads_as("ca\nB\n))\x92.", "PKL-CALL @7");
    reads_as("ca\nB\n}b.", "PKL-CALL @6");
    reads_as("]}b.", "PKL-CALL @2");
    reads_as("ca\nB\n)R}b}b.", "PKL-CALL @10");
    reads_as(")K\x01"
             "a.",
             "PKL-CALL @3");
    reads_as("]K\x01K\x01s.", "PKL-CALL @5");
    reads_as("](K\x01\x90.", "PKL-CALL @4");
}

Test(pickle_read, symbols_that_are_no_names)
{
    reads_as("ca\nb\0c\n.", "PKL-GLOBAL @0");
    reads_as("c\nb\n.", "PKL-GLOBAL @0");
    reads_as("ca\n\n.", "PKL-GLOBAL @0");
    reads_as("ca\nb\xff\n.", "PKL-GLOBAL @0");
    reads_as("\x8c\x01"
             "aK\x01\x93.",
             "PKL-GLOBAL @5");
    reads_as("NN\x93.", "PKL-GLOBAL @2");
    reads_as("\x8c\x02"
             "a\0\x8c\x01"
             "b\x93.",
             "PKL-GLOBAL @7");
}

/* Names that look alike stay different. */
Test(pickle_read, names_are_compared_exactly)
{
    pickle_case c;
    const char pickle[] = "(ctorch\nSize \nctorch\nsize\nctorch\nSi\xd1\x95"
                          "e\nctorch\nSize\nt.";
    pickle_case_read(&c, pickle, sizeof(pickle) - 1, NULL);
    cr_assert_eq(c.st, FSDPCK_OK);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_not(value_is_symbol_named(&c.pool, value_item(&c.pool, c.root, i), "Size"));
        cr_assert_not(value_is_symbol(&c.pool, value_item(&c.pool, c.root, i), "torch", "Size"));
    }
    cr_assert(value_is_symbol(&c.pool, value_item(&c.pool, c.root, 3), "torch", "Size"));
    cr_assert_not(value_is_symbol(&c.pool, value_item(&c.pool, c.root, 3), "torc", "Size"));
    pickle_case_release(&c);
}
