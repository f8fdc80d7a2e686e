#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "state/value.h"
#include "state/value_cells.h"

/* Ints of more bytes are printed in hexadecimal. */
enum { DEPTH_MOST = 100, DECIMAL_NBYTES = 256 };

struct frame {
    value v;
    size_t next;
};

struct printer {
    const value_pool *p;
    text_buf *out;
    size_t end; /* the text is truncated beyond this out->nbytes */
    struct frame path[DEPTH_MOST];
    unsigned depth;
};

static void put_escaped(struct printer *pr, const char *text, size_t nbytes, bool utf8)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t i = 0; i < nbytes && pr->out->nbytes <= pr->end && !pr->out->failed;) {
        uint32_t c = 0;
        unsigned n = utf8 || s[i] < 0x80 ? utf8_decode(s + i, nbytes - i, &c) : 0;
        if (n == 0 || utf8_hidden(c)) {
            text_printf(pr->out, "\\x%02X", s[i]);
            n = 1;
        } else {
            if (c == '\'' || c == '\\')
                text_puts(pr->out, "\\");
            text_append(pr->out, s + i, n);
        }
        i += n;
    }
}

static void put_float(struct printer *pr, double d)
{
    if (isnan(d) || isinf(d)) {
        text_puts(pr->out, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    const size_t at = pr->out->nbytes;
    json_writer w;
    json_writer_init(&w, pr->out, 0);
    json_put_double(&w, d);
    if (!pr->out->failed && strpbrk(pr->out->text + at, ".eE") == NULL)
        text_puts(pr->out, ".0");
}

/* Byte i of the absolute value; `lowest` is the first byte that is not zero: below it a negation
 * changes nothing. */
static unsigned magnitude_byte(const uint8_t *le, size_t i, size_t lowest, bool negative)
{
    if (!negative || i < lowest)
        return le[i];
    return (i == lowest ? 0x100u - le[i] : ~(unsigned)le[i]) & 0xFF;
}

/* As Python's str() has it, in time that grows with the square of the length. */
static void put_decimal(struct printer *pr, const uint8_t *le, size_t n, size_t lowest,
                        bool negative)
{
    enum { DIGITS = 9, BASE = 1000000000 };
    uint32_t limbs[DECIMAL_NBYTES / 4] = {0};
    uint32_t parts[DECIMAL_NBYTES / 3]; /* of 9 digits, which is more than 3 bytes; lowest first */
    size_t count = (n + 3) / 4, nparts = 0;
    for (size_t i = 0; i < n; i++)
        limbs[i / 4] |= (uint32_t)magnitude_byte(le, i, lowest, negative) << 8 * (i % 4);
    while (count > 0) {
        uint64_t rest = 0;
        for (size_t i = count; i > 0; i--) {
            rest = rest << 32 | limbs[i - 1];
            limbs[i - 1] = (uint32_t)(rest / BASE);
            rest %= BASE;
        }
        parts[nparts++] = (uint32_t)rest;
        while (count > 0 && limbs[count - 1] == 0)
            count--;
    }
    text_printf(pr->out, "%s%" PRIu32, negative ? "-" : "", nparts > 0 ? parts[nparts - 1] : 0);
    for (size_t i = nparts; i > 1; i--)
        text_printf(pr->out, "%0*" PRIu32, DIGITS, parts[i - 2]);
}

/* Long ones in hexadecimal, which takes time in proportion to the length. */
static void put_bigint(struct printer *pr, value v)
{
    size_t n = 0;
    const uint8_t *le = (const uint8_t *)value_text(pr->p, v, &n);
    const bool negative = n > 0 && (le[n - 1] & 0x80);
    size_t lowest = 0;
    while (lowest < n && le[lowest] == 0)
        lowest++;
    if (n <= DECIMAL_NBYTES) {
        put_decimal(pr, le, n, lowest, negative);
        return;
    }
    text_puts(pr->out, negative ? "-0x" : "0x");
    for (size_t i = n; i > 0 && pr->out->nbytes <= pr->end && !pr->out->failed; i--)
        text_printf(pr->out, "%02x", magnitude_byte(le, i - 1, lowest, negative));
}

static void put_leaf(struct printer *pr, value v)
{
    size_t nbytes = 0;
    const char *text = value_text(pr->p, v, &nbytes);
    int64_t i = 0;
    double d = 0;
    switch (value_kind_inline(v)) {
    case VALUE_NONE:
        text_puts(pr->out, "None");
        break;
    case VALUE_BOOL:
        text_puts(pr->out, value_is_true(v) ? "True" : "False");
        break;
    case VALUE_INT:
        (void)value_as_i64(pr->p, v, &i);
        text_printf(pr->out, "%" PRId64, i);
        break;
    case VALUE_BIGINT:
        put_bigint(pr, v);
        break;
    case VALUE_FLOAT:
        (void)value_as_double(pr->p, v, &d);
        put_float(pr, d);
        break;
    case VALUE_STR:
    case VALUE_BYTES:
        text_puts(pr->out, value_kind_inline(v) == VALUE_STR ? "'" : "b'");
        put_escaped(pr, text, nbytes, value_kind_inline(v) == VALUE_STR);
        text_puts(pr->out, "'");
        break;
    case VALUE_SYMBOL:
        text = value_symbol_module(pr->p, v);
        put_escaped(pr, text, strlen(text), true);
        text_puts(pr->out, ".");
        text = value_symbol_name(pr->p, v);
        put_escaped(pr, text, strlen(text), true);
        break;
    case VALUE_TENSOR:
        text_printf(pr->out, "<tensor %" PRIu64 ">", value_tensor_index(v));
        break;
    default:
        text_printf(pr->out, "<note %" PRIu64 ">", value_host_note(v));
        break;
    }
}

typedef struct brackets {
    const char *open, *close;
} brackets;

/* Texts around the parts; open is NULL for values without parts. */
static brackets brackets_of(const value_pool *p, value v)
{
    switch (value_kind_inline(v)) {
    case VALUE_LIST:
        return (brackets){"[", "]"};
    case VALUE_TUPLE:
        return (brackets){"(", ")"};
    case VALUE_DICT:
        return (brackets){"{", "}"};
    case VALUE_SET:
        return value_count(p, v) > 0 ? (brackets){"{", "}"} : (brackets){"set(", ")"};
    case VALUE_FROZENSET:
        return value_count(p, v) > 0 ? (brackets){"frozenset({", "})"}
                                     : (brackets){"frozenset(", ")"};
    case VALUE_CALL:
        return value_call_of(p, v)->how == CALL_PERSID ? (brackets){"persistent_id(", ")"}
                                                       : (brackets){"", ""};
    default:
        return (brackets){NULL, ""};
    }
}

/* `of_call`: v is the arguments of a call. */
static const char *closing(const value_pool *p, value v, bool of_call)
{
    const bool comma = value_kind_inline(v) == VALUE_TUPLE && value_count(p, v) == 1 && !of_call;
    return comma ? ",)" : brackets_of(p, v).close;
}

/* Text before part i; *present is false for missing parts of a call. */
static const char *separator(const value_pool *p, value v, size_t i, bool *present)
{
    static const char *const before[VALUE_CALL_PARTS] = {
        "", "", " **", " += ", " += ", " |= ", " <- "};
    *present = true;
    const value_call *call = value_call_of(p, v);
    if (call != NULL) {
        const bool is_state = i == VALUE_CALL_PARTS - 1;
        *present = i == 1 || (is_state ? call->has_state : value_part(p, v, i) != VALUE_OF_NONE);
        return before[i];
    }
    if (i == 0)
        return "";
    return value_kind_inline(v) == VALUE_DICT && i % 2 == 1 ? ": " : ", ";
}

/* Whether the innermost value is the arguments of a call. */
static bool is_call_args(const struct printer *pr)
{
    if (pr->depth < 2)
        return false;
    const struct frame *outer = &pr->path[pr->depth - 2];
    return outer->next == 2 && value_kind_inline(outer->v) == VALUE_CALL &&
           value_call_of(pr->p, outer->v)->how != CALL_PERSID;
}

static void put_value(struct printer *pr, value v)
{
    const char *open = brackets_of(pr->p, v).open;
    if (open == NULL) {
        put_leaf(pr, v);
        return;
    }
    bool again = pr->depth == DEPTH_MOST;
    for (unsigned i = 0; i < pr->depth; i++)
        again = again || pr->path[i].v == v;
    if (again && value_part_count(pr->p, v) > 0) {
        text_puts(pr->out, "...");
        return;
    }
    text_puts(pr->out, open);
    if (again) {
        text_puts(pr->out, closing(pr->p, v, false));
        return;
    }
    pr->path[pr->depth++] = (struct frame){v, 0};
}

/* Truncates at a character boundary. */
static void cut(struct printer *pr)
{
    text_buf *out = pr->out;
    if (out->failed || out->nbytes <= pr->end)
        return;
    size_t at = pr->end;
    while (at > 0 && ((uint8_t)out->text[at] & 0xC0) == 0x80)
        at--;
    out->nbytes = at;
    out->text[at] = '\0';
    text_puts(out, "...");
}

void value_print(const value_pool *p, value v, size_t limit_bytes, text_buf *out)
{
    struct printer pr = {.p = p, .out = out};
    if (__builtin_add_overflow(out->nbytes, limit_bytes, &pr.end))
        pr.end = SIZE_MAX;
    put_value(&pr, v);
    while (pr.depth > 0 && out->nbytes <= pr.end && !out->failed) {
        struct frame *top = &pr.path[pr.depth - 1];
        if (top->next == value_part_count(p, top->v)) {
            text_puts(out, closing(p, top->v, is_call_args(&pr)));
            pr.depth--;
            continue;
        }
        const size_t i = top->next++;
        bool present = false;
        const char *before = separator(p, top->v, i, &present);
        if (!present)
            continue;
        text_puts(out, before);
        put_value(&pr, value_part(p, top->v, i));
    }
    cut(&pr);
}
