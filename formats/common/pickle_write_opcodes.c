#include <string.h>

#include "base/bytes.h"
#include "formats/common/pickle_opcodes.h"
#include "formats/common/pickle_write_internal.h"
#include "state/python_names.h"
#include "state/value_cells.h"

/* Kinds for memo keys of texts that the pool does not have, and of a callback's objects; no value
 * has them. */
enum { EXTRA_STR = 0x40, EXTRA_SYMBOL = 0x41, EXTRA_OBJECT = 0x42 };

enum { INTS_AT_ONCE = 1024 };

void pickle_fail(pickle_writer *w, fsdpck_status st, const char *text)
{
    if (w->st == FSDPCK_OK)
        w->st = error_set(w->err, st, FSDPCK_FINDING_NONE, "%s", text);
}

void pickle_put_bytes(pickle_writer *w, const void *bytes, size_t nbytes)
{
    if (w->st == FSDPCK_OK)
        text_append(w->out, bytes, nbytes);
}

void pickle_put_op(pickle_writer *w, int op)
{
    const uint8_t byte = (uint8_t)op;
    pickle_put_bytes(w, &byte, 1);
}

/* An opcode with a number after it: one byte if it fits, otherwise four. */
static void put_short_or_long(pickle_writer *w, int short_op, int long_op, uint32_t number)
{
    uint8_t bytes[5] = {(uint8_t)short_op, (uint8_t)number};
    if (number <= UINT8_MAX) {
        pickle_put_bytes(w, bytes, 2);
        return;
    }
    bytes[0] = (uint8_t)long_op;
    store_le32(bytes + 1, number);
    pickle_put_bytes(w, bytes, 5);
}

uint64_t *pickle_note_of(pickle_writer *w, value v)
{
    if (w->st != FSDPCK_OK)
        return NULL;
    uint64_t *note = value_map_put(&w->memo, v, NULL, w->err);
    if (note == NULL)
        w->st = FSDPCK_LIMIT;
    return note;
}

bool pickle_put_known(pickle_writer *w, value v)
{
    const uint64_t *note = value_map_find(&w->memo, v);
    const uint32_t entry = note != NULL ? (uint32_t)*note : 0;
    if (entry == 0)
        return false;
    put_short_or_long(w, OP_BINGET, OP_LONG_BINGET, entry - 1);
    return true;
}

void pickle_put_memo_unused(pickle_writer *w)
{
    if (w->nmemo == UINT32_MAX) {
        pickle_fail(w, FSDPCK_UNSUPPORTED, "too many objects for one pickle");
        return;
    }
    put_short_or_long(w, OP_BINPUT, OP_LONG_BINPUT, w->nmemo++);
}

void pickle_put_memo(pickle_writer *w, value v)
{
    uint64_t *note = pickle_note_of(w, v);
    pickle_put_memo_unused(w);
    if (note != NULL)
        *note = (*note & ~(PICKLE_BEGUN_ONCE - 1)) | w->nmemo;
}

void pickle_put_mark(pickle_writer *w)
{
    pickle_put_op(w, OP_MARK);
}

void pickle_put_tuple(pickle_writer *w, unsigned count)
{
    static const uint8_t ops[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    pickle_put_op(w, count <= 3 ? ops[count] : OP_TUPLE);
    if (count > 0)
        pickle_put_memo_unused(w);
}

void pickle_put_tuple_marked(pickle_writer *w)
{
    pickle_put_op(w, OP_TUPLE);
    pickle_put_memo_unused(w);
}

void pickle_put_tuple_begin(pickle_writer *w, uint64_t count)
{
    if (count > 3)
        pickle_put_mark(w);
}

void pickle_put_tuple_end(pickle_writer *w, uint64_t count)
{
    if (count > 3)
        pickle_put_tuple_marked(w);
    else
        pickle_put_tuple(w, (unsigned)count);
}

void pickle_put_dims(pickle_writer *w, unsigned ndim, const uint64_t *dims)
{
    pickle_put_tuple_begin(w, ndim);
    for (unsigned i = 0; i < ndim; i++)
        pickle_put_int(w, (int64_t)dims[i]);
    pickle_put_tuple_end(w, ndim);
}

void pickle_put_bigint(pickle_writer *w, const uint8_t *le, size_t nbytes)
{
    uint8_t head[5] = {OP_LONG1, (uint8_t)nbytes};
    if (nbytes > INT32_MAX) {
        pickle_fail(w, FSDPCK_UNSUPPORTED, "integer is too large for a pickle");
        return;
    }
    if (nbytes > UINT8_MAX) {
        head[0] = OP_LONG4;
        store_le32(head + 1, (uint32_t)nbytes);
    }
    pickle_put_bytes(w, head, nbytes > UINT8_MAX ? 5 : 2);
    pickle_put_bytes(w, le, nbytes);
}

void pickle_put_int(pickle_writer *w, int64_t i)
{
    uint8_t bytes[8];
    store_le64(bytes, (uint64_t)i);
    if (i >= 0 && i <= UINT16_MAX) {
        pickle_put_op(w, i <= UINT8_MAX ? OP_BININT1 : OP_BININT2);
        pickle_put_bytes(w, bytes, i <= UINT8_MAX ? 1 : 2);
        return;
    }
    if (i >= INT32_MIN && i <= INT32_MAX) {
        pickle_put_op(w, OP_BININT);
        pickle_put_bytes(w, bytes, 4);
        return;
    }
    size_t nbytes = 8;
    while (nbytes > 1 && bytes[nbytes - 1] == (bytes[nbytes - 2] & 0x80 ? 0xFF : 0))
        nbytes--;
    pickle_put_bigint(w, bytes, nbytes);
}

void pickle_put_ints(pickle_writer *w, uint64_t first, uint64_t count, uint64_t step)
{
    uint8_t bytes[INTS_AT_ONCE * 3];
    uint64_t i = 0, number = first;
    while (i < count && number <= UINT16_MAX) {
        size_t used = 0;
        for (; used + 3 <= sizeof bytes && i < count && number <= UINT16_MAX; i++, number += step) {
            const bool is_short = number <= UINT8_MAX;
            bytes[used++] = is_short ? OP_BININT1 : OP_BININT2;
            bytes[used++] = (uint8_t)number;
            if (!is_short)
                bytes[used++] = (uint8_t)(number >> 8);
        }
        pickle_put_bytes(w, bytes, used);
    }
    for (; i < count; i++, number += step)
        pickle_put_int(w, (int64_t)number);
}

void pickle_put_bool(pickle_writer *w, bool b)
{
    pickle_put_op(w, b ? OP_NEWTRUE : OP_NEWFALSE);
}

void pickle_put_none(pickle_writer *w)
{
    pickle_put_op(w, OP_NONE);
}

void pickle_put_double(pickle_writer *w, double d)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &d, sizeof(bits));
    store_be64(bytes, bits);
    pickle_put_op(w, OP_BINFLOAT);
    pickle_put_bytes(w, bytes, sizeof(bytes));
}

static void put_text_head(pickle_writer *w, size_t nbytes)
{
    uint8_t head[5] = {OP_BINUNICODE};
    if (nbytes > UINT32_MAX) {
        pickle_fail(w, FSDPCK_UNSUPPORTED, "string is too long for pickle protocol 2");
        return;
    }
    store_le32(head + 1, (uint32_t)nbytes);
    pickle_put_bytes(w, head, sizeof(head));
}

void pickle_put_text(pickle_writer *w, const char *text, size_t nbytes)
{
    put_text_head(w, nbytes);
    pickle_put_bytes(w, text, nbytes);
}

/* bytes -> the text whose code points they are. */
void pickle_put_latin1(pickle_writer *w, const uint8_t *bytes, size_t nbytes)
{
    size_t high = 0;
    for (size_t i = 0; i < nbytes; i++)
        high += bytes[i] >> 7;
    put_text_head(w, nbytes + high);
    for (size_t i = 0; i < nbytes;) {
        size_t plain = i;
        while (plain < nbytes && bytes[plain] < 0x80)
            plain++;
        pickle_put_bytes(w, bytes + i, plain - i);
        i = plain;
        if (i < nbytes) {
            const uint8_t two[2] = {(uint8_t)(0xC0 | bytes[i] >> 6),
                                    (uint8_t)(0x80 | (bytes[i] & 0x3F))};
            pickle_put_bytes(w, two, 2);
            i++;
        }
    }
}

/* The memo key of a text: the value of the pool with this text, so that both count as one;
 * otherwise a separate one. */
static value key_of(pickle_writer *w, value_kind kind, value_kind extra_kind, const char *text,
                    size_t nbytes)
{
    uint32_t id = strtab_find(&w->pool->strings, text, nbytes);
    if (id != STRTAB_NONE)
        return value_make(kind, id);
    if (w->st == FSDPCK_OK)
        w->st = strtab_intern(&w->extra, text, nbytes, &id, w->err);
    return value_make(extra_kind, id);
}

void pickle_put_str(pickle_writer *w, const char *text, size_t nbytes)
{
    const value key = key_of(w, VALUE_STR, (value_kind)EXTRA_STR, text, nbytes);
    if (pickle_put_known(w, key))
        return;
    pickle_put_text(w, text, nbytes);
    pickle_put_memo(w, key);
}

/* A dotted name is written as getattr(getattr(Class, 'Inner'), 'Name'), as protocol 2 requires. */
static void put_dotted(pickle_writer *w, const char *module, const char *name)
{
    size_t ndots = 0;
    for (const char *s = name; *s != '\0'; s++)
        ndots += *s == '.';
    for (size_t i = 0; i < ndots; i++)
        pickle_put_global(w, "builtins", "getattr");
    const size_t nfirst = strcspn(name, ".");
    text_buf first = {.limit_bytes = nfirst + 1};
    text_append(&first, name, nfirst);
    if (first.failed)
        pickle_fail(w, FSDPCK_LIMIT, "out of memory");
    else
        pickle_put_global(w, module, first.text);
    text_release(&first);
    for (const char *s = name + nfirst; *s == '.';) {
        const size_t n = strcspn(s + 1, ".");
        pickle_put_str(w, s + 1, n);
        pickle_put_tuple(w, 2);
        pickle_put_reduce(w);
        s += 1 + n;
        if (*s == '.')
            pickle_put_memo_unused(w);
    }
}

static bool has_empty_part(const char *name)
{
    const size_t n = strlen(name);
    return n == 0 || name[0] == '.' || name[n - 1] == '.' || strstr(name, "..") != NULL;
}

void pickle_put_word(pickle_writer *w, const char *text)
{
    pickle_put_str(w, text, strlen(text));
}

void pickle_put_global(pickle_writer *w, const char *module, const char *name)
{
    /* As the pool joins the two (value_cells.h). */
    text_buf joined = {.limit_bytes = 1u << 16};
    uint8_t head[4];
    store_le32(head, (uint32_t)strlen(module));
    text_append(&joined, head, sizeof(head));
    text_append(&joined, module, strlen(module) + 1);
    text_append(&joined, name, strlen(name));
    if (joined.failed) {
        pickle_fail(w, FSDPCK_LIMIT, "the name of a symbol is too long");
        text_release(&joined);
        return;
    }
    const value key = key_of(w, VALUE_SYMBOL, (value_kind)EXTRA_SYMBOL, joined.text, joined.nbytes);
    text_release(&joined);
    if (pickle_put_known(w, key))
        return;
    if (strchr(module, '\n') != NULL || strchr(name, '\n') != NULL) {
        pickle_fail(w, FSDPCK_UNSUPPORTED, "name of a symbol contains a newline");
        return;
    }
    if (strchr(name, '.') != NULL && !has_empty_part(name)) {
        put_dotted(w, module, name);
    } else {
        python2_names(&module, &name);
        pickle_put_op(w, OP_GLOBAL);
        pickle_put_bytes(w, module, strlen(module));
        pickle_put_op(w, '\n');
        pickle_put_bytes(w, name, strlen(name));
        pickle_put_op(w, '\n');
    }
    pickle_put_memo(w, key);
}

void pickle_put_persid(pickle_writer *w)
{
    pickle_put_op(w, OP_BINPERSID);
}

void pickle_put_reduce(pickle_writer *w)
{
    pickle_put_op(w, OP_REDUCE);
}

void pickle_put_build(pickle_writer *w)
{
    pickle_put_op(w, OP_BUILD);
}

void pickle_put_empty_dict(pickle_writer *w)
{
    pickle_put_op(w, OP_EMPTY_DICT);
    pickle_put_memo_unused(w);
}

void pickle_put_setitem(pickle_writer *w)
{
    pickle_put_op(w, OP_SETITEM);
}

void pickle_put_newobj(pickle_writer *w)
{
    pickle_put_op(w, OP_NEWOBJ);
}

void pickle_put_empty_list(pickle_writer *w)
{
    pickle_put_op(w, OP_EMPTY_LIST);
    pickle_put_memo_unused(w);
}

void pickle_put_append(pickle_writer *w)
{
    pickle_put_op(w, OP_APPEND);
}

bool pickle_put_from_memo(pickle_writer *w, uint64_t number)
{
    return pickle_put_known(w, value_make((value_kind)EXTRA_OBJECT, number));
}

void pickle_put_to_memo(pickle_writer *w, uint64_t number)
{
    pickle_put_memo(w, value_make((value_kind)EXTRA_OBJECT, number));
}
