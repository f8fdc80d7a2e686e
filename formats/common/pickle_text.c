#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "formats/common/pickle_internal.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/common/pickle_skim.h"

/* Python refuses to read longer decimals too; converting them takes time that grows with the
 * square. */
enum { DIGITS_MOST = 4300, FLOAT_MOST = 400 };

/* UTF-8, with lone surrogates as three bytes each, which is how a pickler writes them. */
static bool is_text(const uint8_t *s, size_t nbytes)
{
    size_t i = 0;
    while (i < nbytes) {
        uint32_t c;
        if (nbytes - i >= 8 && (load_le64(s + i) & UINT64_C(0x8080808080808080)) == 0) {
            i += 8;
            continue;
        }
        if (s[i] < 0x80) {
            i++;
            continue;
        }
        const unsigned n = utf8_decode(s + i, nbytes - i, &c);
        const bool surrogate = nbytes - i >= 3 && s[i] == 0xED && s[i + 1] >= 0xA0 &&
                               s[i + 1] <= 0xBF && (s[i + 2] & 0xC0) == 0x80;
        if (n == 0 && !surrogate)
            return false;
        i += n > 0 ? n : 3;
    }
    return true;
}

fsdpck_status pickle_push_str(pickle_machine *m, const uint8_t *text, size_t nbytes,
                              fsdpck_error *err)
{
    value v;
    if (!is_text(text, nbytes))
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_STR, "string in the pickle is not UTF-8",
                                 err);
    RETURN_IF(value_new_str(m->pool, (const char *)text, nbytes, &v, err));
    return pickle_push_plain(m, v, err);
}

fsdpck_status pickle_push_python2_str(pickle_machine *m, const uint8_t *text, size_t nbytes,
                                      fsdpck_error *err)
{
    value v;
    if (is_text(text, nbytes))
        RETURN_IF(value_new_str(m->pool, (const char *)text, nbytes, &v, err));
    else
        RETURN_IF(value_new_bytes(m->pool, text, nbytes, &v, err));
    return pickle_push_plain(m, v, err);
}

static fsdpck_status push_symbol(pickle_machine *m, const char *module, size_t module_nbytes,
                                 const char *name, size_t name_nbytes, uint64_t mark,
                                 fsdpck_error *err)
{
    value v;
    if (module_nbytes == 0 || name_nbytes == 0 || memchr(module, '\0', module_nbytes) != NULL ||
        memchr(name, '\0', name_nbytes) != NULL ||
        !is_text((const uint8_t *)module, module_nbytes) ||
        !is_text((const uint8_t *)name, name_nbytes))
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_GLOBAL,
                                 "module or name of a symbol is not a valid name", err);
    RETURN_IF(value_new_symbol_of(m->pool, module, module_nbytes, name, name_nbytes, &v, err));
    return pickle_push(m, v, mark, 0, err);
}

/* The line at m->at; the first pass checked that it exists. */
static const char *next_line(pickle_machine *m, size_t *nbytes)
{
    const char *line = (const char *)m->in->bytes + m->at;
    if (!pickle_line(m->in, m->at, nbytes))
        *nbytes = 0;
    m->at += *nbytes + 1;
    return line;
}

fsdpck_status pickle_do_global(pickle_machine *m, fsdpck_error *err)
{
    size_t module_nbytes;
    size_t name_nbytes;
    const char *module = next_line(m, &module_nbytes);
    const char *name = next_line(m, &name_nbytes);
    return push_symbol(m, module, module_nbytes, name, name_nbytes, m->pool->cells.count, err);
}

/* Python names torch.channels_last by the first of torch's modules that imports torch:
 * 'torch._utils', 'torch.channels_last'. Protocol 2 cannot write that name. */
static bool is_of_torch(const char *module, size_t module_nbytes, const char *name,
                        size_t name_nbytes)
{
    return module_nbytes > 6 && memcmp(module, "torch.", 6) == 0 && name_nbytes > 6 &&
           memcmp(name, "torch.", 6) == 0 && memchr(name + 6, '.', name_nbytes - 6) == NULL;
}

fsdpck_status pickle_do_stack_global(pickle_machine *m, fsdpck_error *err)
{
    RETURN_IF(pickle_need(m, 2, err));
    const pickle_slot module = *pickle_top(m, 1);
    const pickle_slot name = *pickle_top(m, 0);
    if (value_kind_inline(module.v) != VALUE_STR || value_kind_inline(name.v) != VALUE_STR)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_GLOBAL,
                                 "module and name of a symbol are not strings", err);
    m->stack.count -= 2;
    size_t module_nbytes = 0;
    size_t name_nbytes = 0;
    const char *module_text = value_text(m->pool, module.v, &module_nbytes);
    const char *name_text = value_text(m->pool, name.v, &name_nbytes);
    if (is_of_torch(module_text, module_nbytes, name_text, name_nbytes))
        return push_symbol(m, "torch", 5, name_text + 6, name_nbytes - 6, module.mark, err);
    return push_symbol(m, module_text, module_nbytes, name_text, name_nbytes, module.mark, err);
}

/* Decimal digits as little-endian two's complement; nbytes suffices for a number with that many
 * digits. */
static void bytes_of_digits(const char *digits, size_t ndigits, bool negative, uint8_t *le,
                            size_t nbytes)
{
    memset(le, 0, nbytes);
    for (size_t i = 0; i < ndigits; i++) {
        unsigned carry = (unsigned)(digits[i] - '0');
        for (size_t k = 0; k < nbytes; k++) {
            carry += le[k] * 10u;
            le[k] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    unsigned carry = 1;
    for (size_t k = 0; negative && k < nbytes; k++) {
        carry += (uint8_t)~le[k];
        le[k] = (uint8_t)carry;
        carry >>= 8;
    }
}

static fsdpck_status push_decimal(pickle_machine *m, const char *text, size_t nbytes,
                                  fsdpck_error *err)
{
    const bool negative = nbytes > 0 && text[0] == '-';
    const size_t sign = negative || (nbytes > 0 && text[0] == '+') ? 1 : 0;
    const char *digits = text + sign;
    const size_t ndigits = nbytes - sign;
    bool good = ndigits > 0 && ndigits <= DIGITS_MOST;
    for (size_t i = 0; good && i < ndigits; i++)
        good = digits[i] >= '0' && digits[i] <= '9';
    if (!good)
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_INT, "number in the pickle is not decimal",
                                 err);
    uint8_t le[DIGITS_MOST / 2 + 2]; /* a digit takes less than half a byte */
    const size_t le_nbytes = ndigits / 2 + 2;
    bytes_of_digits(digits, ndigits, negative, le, le_nbytes);
    const uint64_t mark = m->pool->cells.count;
    value v;
    RETURN_IF(value_new_bigint(m->pool, le, le_nbytes, &v, err));
    return pickle_push(m, v, mark, 0, err);
}

/* strtod expects the decimal point of the locale. */
static bool parse_double(const char *text, size_t nbytes, double *d)
{
    const char *point = localeconv()->decimal_point;
    char copy[FLOAT_MOST + 32];
    size_t n = 0;
    if (nbytes == 0 || nbytes > FLOAT_MOST || strlen(point) > 16)
        return false;
    for (size_t i = 0; i < nbytes; i++) {
        const char c = text[i];
        if (c == '.' && memchr(text, '.', nbytes) == text + i) {
            memcpy(copy + n, point, strlen(point));
            n += strlen(point);
        } else if (strchr("+-0123456789eEnNaAiIfFtTyY", c) != NULL && c != '\0') {
            copy[n++] = c;
        } else {
            return false;
        }
    }
    copy[n] = '\0';
    char *end = NULL;
    *d = strtod(copy, &end);
    return end == copy + n;
}

static fsdpck_status push_float(pickle_machine *m, const char *text, size_t nbytes,
                                fsdpck_error *err)
{
    double d;
    value v;
    if (!parse_double(text, nbytes, &d))
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_INT,
                                 "number in the pickle is not a decimal fraction", err);
    const uint64_t mark = m->pool->cells.count;
    RETURN_IF(value_new_float(m->pool, d, &v, err));
    return pickle_push(m, v, mark, 0, err);
}

/* UTF-8 of a code point, lone surrogates included. */
static size_t put_utf8(uint8_t *dst, uint32_t c)
{
    if (c < 0x80) {
        dst[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (uint8_t)(0xC0 | (c >> 6));
        dst[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (uint8_t)(0xE0 | (c >> 12));
        dst[1] = (uint8_t)(0x80 | ((c >> 6) & 0x3F));
        dst[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    dst[0] = (uint8_t)(0xF0 | (c >> 18));
    dst[1] = (uint8_t)(0x80 | ((c >> 12) & 0x3F));
    dst[2] = (uint8_t)(0x80 | ((c >> 6) & 0x3F));
    dst[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

/* This number of hexadecimal digits. */
static bool parse_hex(const char *text, size_t ndigits, uint32_t *number)
{
    uint32_t n = 0;
    for (size_t i = 0; i < ndigits; i++) {
        static const char hex[] = "0123456789abcdef";
        const char lower = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] + 32) : text[i];
        const char *digit = lower != '\0' ? strchr(hex, lower) : NULL;
        if (digit == NULL)
            return false;
        n = n << 4 | (uint32_t)(digit - hex);
    }
    *number = n;
    return true;
}

/* UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX; any other backslash is literal. Produces at most
 * twice the bytes. */
static bool unescape_unicode(const char *text, size_t nbytes, uint8_t *dst, size_t *dst_nbytes)
{
    size_t n = 0;
    for (size_t i = 0; i < nbytes;) {
        uint32_t c = (uint8_t)text[i];
        const char kind = i + 1 < nbytes ? text[i + 1] : '\0';
        if (c != '\\' || kind == '\0') {
            n += put_utf8(dst + n, c);
            i += 1;
        } else if (kind != 'u' && kind != 'U') {
            n += put_utf8(dst + n, c);
            n += put_utf8(dst + n, (uint8_t)kind);
            i += 2;
        } else {
            const size_t ndigits = kind == 'u' ? 4 : 8;
            if (nbytes - i - 2 < ndigits || !parse_hex(text + i + 2, ndigits, &c) || c > 0x10FFFF)
                return false;
            n += put_utf8(dst + n, c);
            i += 2 + ndigits;
        }
    }
    *dst_nbytes = n;
    return true;
}

/* The byte of a one-letter escape; -1 if invalid. */
static int escaped_byte(char letter)
{
    static const char letters[] = "\\'\"abfnrtv";
    static const char bytes[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = letter != '\0' ? strchr(letters, letter) : NULL;
    return at != NULL ? (uint8_t)bytes[at - letters] : -1;
}

/* STRING: a quoted literal of Python 2. */
static bool unescape_string(const char *text, size_t nbytes, uint8_t *dst, size_t *dst_nbytes)
{
    if (nbytes < 2 || (text[0] != '\'' && text[0] != '"') || text[nbytes - 1] != text[0])
        return false;
    size_t n = 0;
    const size_t end = nbytes - 1;
    for (size_t i = 1; i < end;) {
        if (text[i] != '\\') {
            dst[n++] = (uint8_t)text[i++];
            continue;
        }
        i++;
        uint32_t c = 0;
        if (i == end)
            return false;
        if (text[i] == 'x') {
            if (end - i < 3 || !parse_hex(text + i + 1, 2, &c))
                return false;
            i += 3;
        } else if (text[i] >= '0' && text[i] <= '7') {
            for (int k = 0; k < 3 && i < end && text[i] >= '0' && text[i] <= '7'; k++)
                c = c * 8 + (uint32_t)(text[i++] - '0');
        } else if (escaped_byte(text[i]) >= 0) {
            c = (uint32_t)escaped_byte(text[i++]);
        } else {
            c = '\\';
        }
        dst[n++] = (uint8_t)c;
    }
    *dst_nbytes = n;
    return true;
}

static fsdpck_status push_escaped(pickle_machine *m, uint8_t op, const char *line, size_t nbytes,
                                  fsdpck_error *err)
{
    const uint64_t room = 2 * (uint64_t)nbytes + 4;
    size_t n = 0;
    uint8_t *plain = budget_alloc(m->pool->owner, room, err);
    if (plain == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st;
    if (op == OP_UNICODE)
        st = unescape_unicode(line, nbytes, plain, &n)
                 ? pickle_push_str(m, plain, n, err)
                 : pickle_fail_input(m, FSDPCK_FINDING_PKL_STR,
                                     "invalid escape in a string of the pickle", err);
    else
        st = unescape_string(line, nbytes, plain, &n)
                 ? pickle_push_python2_str(m, plain, n, err)
                 : pickle_fail_input(m, FSDPCK_FINDING_PKL_STR,
                                     "string in the pickle is not quoted correctly", err);
    budget_free(m->pool->owner, plain, room);
    return st;
}

fsdpck_status pickle_do_line(pickle_machine *m, uint8_t op, fsdpck_error *err)
{
    size_t nbytes = 0;
    const char *line = next_line(m, &nbytes);
    switch (op) {
    case OP_INT:
        if (nbytes == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
            return pickle_push_plain(m, value_of_bool(line[1] == '1'), err);
        return push_decimal(m, line, nbytes, err);
    case OP_LONG:
        return push_decimal(m, line, nbytes > 0 && line[nbytes - 1] == 'L' ? nbytes - 1 : nbytes,
                            err);
    case OP_FLOAT:
        return push_float(m, line, nbytes, err);
    case OP_STRING:
    case OP_UNICODE:
        return push_escaped(m, op, line, nbytes, err);
    case OP_PERSID:
        RETURN_IF(pickle_push_str(m, (const uint8_t *)line, nbytes, err));
        return pickle_do_persid(m, err);
    default: /* the first pass accepts nothing else */
        return pickle_fail_input(m, FSDPCK_FINDING_PKL_OPCODE, "unknown opcode in the pickle", err);
    }
}
