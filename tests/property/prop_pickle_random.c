/* Random pickles that are nearly all well formed: memo entries that are fetched within arguments of calls,
 * lists and objects that are filled through the memo or a copy, state that refers to itself. pickle_check
 * must hold for each.
 *
 *     prop_pickle_random [COUNT [SEED]] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/pickle_check.h"
#include "tests/support/random.h"

enum { STACK_MAX = 256, BYTES_MAX = 4096, MEMO_MAX = 6 };

/* Kinds of values on the stack, as far as they determine the next opcode. */
enum kind {
    ATOM = 'a',
    LIST = 'l',
    DICT = 'd',
    SET = 's',
    TUPLE = 't',
    CALL = 'c',
    SYMBOL = 'g',
    MARK = 'M'
};

typedef struct maker {
    uint64_t state;
    uint8_t bytes[BYTES_MAX];
    size_t nbytes;
    char stack[STACK_MAX];
    size_t count;
    char memo[MEMO_MAX]; /* kind of an entry, 0 where there is none */
} maker;

static uint32_t dice(maker *m, uint32_t sides)
{
    return (uint32_t)random_below(&m->state, sides);
}

static void put(maker *m, const void *bytes, size_t nbytes)
{
    memcpy(m->bytes + m->nbytes, bytes, nbytes);
    m->nbytes += nbytes;
}

static void op(maker *m, int byte)
{
    m->bytes[m->nbytes++] = (uint8_t)byte;
}

static void push(maker *m, enum kind kind)
{
    m->stack[m->count++] = (char)kind;
}

/* The i-th kind from the top; 0 below the last mark. */
static char top(const maker *m, size_t i)
{
    for (size_t k = 0; k < i && k < m->count; k++)
        if (m->stack[m->count - 1 - k] == MARK)
            return 0;
    return i < m->count ? m->stack[m->count - 1 - i] : 0;
}

/* How many values lie above the last mark; m->count where there is no mark. */
static size_t above_mark(const maker *m)
{
    size_t n = 0;
    while (n < m->count && top(m, n) != MARK)
        n++;
    return n;
}

static void take(maker *m, size_t n, int byte)
{
    op(m, byte);
    m->count -= n;
}

static void make_atom(maker *m)
{
    static const char *const texts[] = {"k", "n", "long text"};
    const uint8_t small[2] = {'K', (uint8_t)dice(m, 256)};
    uint8_t fraction[9] = {'G', 0x3F, 0xB9};
    const char *text = texts[dice(m, 3)];
    switch (dice(m, 3)) {
    case 0:
        put(m, small, 2);
        break;
    case 1:
        fraction[8] = (uint8_t)dice(m, 256);
        put(m, fraction, 9);
        break;
    default:
        op(m, 'U');
        op(m, (int)strlen(text));
        put(m, text, strlen(text));
        break;
    }
    push(m, ATOM);
}

/* A class, mostly with a mark for its arguments. The class's letter decides what the hooks do. */
static void make_symbol(maker *m)
{
    op(m, 'c');
    put(m, "m\n", 2);
    op(m, 'a' + (int)dice(m, 6));
    op(m, '\n');
    push(m, SYMBOL);
    if (dice(m, 3) > 0) {
        op(m, '(');
        push(m, MARK);
    }
}

static void make_new(maker *m)
{
    static const struct {
        char byte;
        enum kind kind;
    } made[] = {{']', LIST}, {'}', DICT}, {'(', MARK}, {')', TUPLE}, {'\x8f', SET}};
    const uint32_t i = dice(m, 5);
    op(m, made[i].byte);
    push(m, made[i].kind);
}

/* Closes the mark with an opcode that suits the values below it. */
static void close_mark(maker *m)
{
    const size_t n = above_mark(m);
    if (n == m->count)
        return;
    const char below = n + 1 < m->count ? m->stack[m->count - n - 2] : 0;
    if (below == SYMBOL) {
        take(m, n + 2, 't');
        op(m, dice(m, 2) ? 'R' : 0x81);
        push(m, CALL);
    } else if ((below == LIST || below == CALL) && dice(m, 2)) {
        take(m, n + 1, 'e');
    } else if ((below == DICT || below == CALL) && n % 2 == 0) {
        take(m, n + 1, 'u');
    } else if (below == SET) {
        take(m, n + 1, 0x90);
    } else {
        take(m, n + 1, 't');
        push(m, TUPLE);
    }
}

static void use_memo(maker *m)
{
    const uint32_t i = dice(m, MEMO_MAX);
    if (dice(m, 2)) {
        if (m->memo[i] == 0)
            return;
        op(m, 'h');
        op(m, (int)i);
        push(m, (enum kind)m->memo[i]);
    } else if (top(m, 0) != 0 && top(m, 0) != MARK) {
        op(m, 'q');
        op(m, (int)i);
        m->memo[i] = top(m, 0);
    }
}

/* Opcodes that take a fixed number of values. */
static void combine(maker *m)
{
    const size_t n = above_mark(m);
    switch (dice(m, 6)) {
    case 0:
        if (n >= 2) {
            take(m, 2, 0x86);
            push(m, TUPLE);
        }
        break;
    case 1:
        if (n >= 2 && (top(m, 1) == LIST || top(m, 1) == CALL))
            take(m, 1, 'a');
        break;
    case 2:
        if (n >= 3 && (top(m, 2) == DICT || top(m, 2) == CALL))
            take(m, 2, 's');
        break;
    case 3:
        if (n >= 2 && top(m, 1) == CALL)
            take(m, 1, 'b');
        break;
    case 4:
        if (n >= 1) {
            op(m, '2');
            push(m, (enum kind)top(m, 0));
        }
        break;
    default:
        if (n >= 2)
            take(m, 1, '0');
        break;
    }
}

static void make(maker *m)
{
    const uint32_t steps = 5 + dice(m, 150);
    for (uint32_t i = 0; i < steps; i++) {
        switch (dice(m, 8)) {
        case 0:
            make_atom(m);
            break;
        case 1:
            make_new(m);
            break;
        case 2:
            make_symbol(m);
            break;
        case 3:
        case 4:
            close_mark(m);
            break;
        case 5:
        case 6:
            use_memo(m);
            break;
        default:
            combine(m);
            break;
        }
    }
    while (above_mark(m) < m->count)
        close_mark(m);
    if (m->count == 0)
        make_atom(m);
    for (; m->count > 1; m->count--)
        op(m, 0x86);
    op(m, '.');
}

int main(int argc, char **argv)
{
    const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 5000;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t accepted = 0;
    for (uint64_t i = 0; i < count; i++) {
        maker m = {.state = (seed << 32) + i};
        (void)dice(&m, 2);
        make(&m);
        uint8_t *exact = malloc(m.nbytes); /* so that a sanitizer sees a read past the end */
        if (exact == NULL)
            return 1;
        memcpy(exact, m.bytes, m.nbytes);
        accepted += pickle_check(exact, m.nbytes);
        free(exact);
    }
    printf("%" PRIu64 " of %" PRIu64 " random pickles accepted\n", accepted, count);
    if (accepted < count / 2) {
        fprintf(stderr, "too few of them are well formed to prove anything\n");
        return 1;
    }
    return 0;
}
