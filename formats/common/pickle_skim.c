#include "formats/common/pickle_skim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "formats/common/pickle_opcodes.h"

struct skim {
    const pickle_input *in;
    pickle_memo *memo;
    size_t at;                  /* next byte */
    size_t op_at;               /* opcode being read */
    size_t limit;               /* end of the frame, or of the bytes */
    uint64_t memo_limit;        /* memo indices are below it */
    size_t ngaps;               /* found so far */
    size_t long_frame_at;       /* FRAME opcode whose length exceeds the pickle */
    uint64_t long_frame_nbytes; /* its length; 0: none */
    bool in_frame;
    bool memoizes; /* MEMOIZE occurred */
    bool numbers;  /* PUT or BINPUT occurred */
    bool stopped;
};

fsdpck_status pickle_error(const pickle_input *in, size_t at, fsdpck_status st,
                           fsdpck_finding_id finding, fsdpck_error *err, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return FAIL_AS(err, st, finding, ("%s", text), (offset, in->file_offset_bytes + at));
}

static fsdpck_status bad(const struct skim *s, fsdpck_finding_id finding, const char *text,
                         fsdpck_error *err)
{
    return pickle_error(s->in, s->op_at, FSDPCK_BADINPUT, finding, err, "%s", text);
}

static fsdpck_status truncated(const struct skim *s, fsdpck_error *err)
{
    const fsdpck_status st = bad(s, FSDPCK_FINDING_PKL_TRUNCATED, "pickle ends before STOP", err);
    error_next(err,
               "the file was truncated, or its writer was interrupted: copy or write it again");
    return st;
}

bool pickle_line(const pickle_input *in, size_t at, size_t *nbytes)
{
    const uint8_t *begin = in->bytes + at;
    const uint8_t *end = at < in->nbytes ? memchr(begin, '\n', in->nbytes - at) : NULL;
    if (end == NULL)
        return false;
    *nbytes = (size_t)(end - begin);
    return true;
}

bool pickle_decimal(const uint8_t *text, size_t nbytes, uint64_t *number)
{
    uint64_t n = 0;
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9' ||
            !checked_mul_add(n, 10, (uint64_t)(text[i] - '0'), &n))
            return false;
    }
    *number = n;
    return nbytes > 0;
}

static fsdpck_status skim_lines(struct skim *s, unsigned count, fsdpck_error *err)
{
    size_t nbytes = 0;
    for (; count > 0; count--) {
        if (!pickle_line(s->in, s->at, &nbytes))
            return truncated(s, err);
        s->at += nbytes + 1;
    }
    return FSDPCK_OK;
}

/* A length of `width` bytes and that many bytes after it. */
static fsdpck_status skim_counted(struct skim *s, unsigned width, fsdpck_error *err)
{
    const size_t left = s->in->nbytes - s->at;
    if (left < width)
        return truncated(s, err);
    const uint8_t *p = s->in->bytes + s->at;
    const uint64_t nbytes = width == 1 ? p[0] : width == 4 ? load_le32(p) : load_le64(p);
    const uint8_t op = s->in->bytes[s->op_at];
    if ((op == OP_LONG4 || op == OP_BINSTRING) && nbytes > INT32_MAX)
        return bad(s, op == OP_LONG4 ? FSDPCK_FINDING_PKL_INT : FSDPCK_FINDING_PKL_LENGTH,
                   "negative length in the pickle", err);
    if (nbytes > s->in->nbytes) {
        const fsdpck_status st =
            bad(s, FSDPCK_FINDING_PKL_LENGTH, "length exceeds the size of the pickle", err);
        error_expected(err, "at most %zu bytes", left - width);
        error_found(err, "%" PRIu64 " bytes", nbytes);
        return st;
    }
    if (nbytes > left - width)
        return truncated(s, err);
    s->at += width + (size_t)nbytes;
    return FSDPCK_OK;
}

/* A frame that is too long is a separate error only if STOP follows; otherwise the pickle is
 * truncated. */
static fsdpck_status skim_frame(struct skim *s, fsdpck_error *err)
{
    if (s->in_frame)
        return bad(s, FSDPCK_FINDING_PKL_FRAME, "frame begins inside another frame", err);
    if (s->in->nbytes - s->at < 8)
        return truncated(s, err);
    const uint64_t nbytes = load_le64(s->in->bytes + s->at);
    s->at += 8;
    if (nbytes == 0)
        return bad(s, FSDPCK_FINDING_PKL_FRAME, "empty frame in the pickle", err);
    s->in_frame = true;
    if (nbytes <= s->in->nbytes - s->at) {
        s->limit = s->at + (size_t)nbytes;
    } else {
        s->long_frame_at = s->op_at;
        s->long_frame_nbytes = nbytes;
    }
    return FSDPCK_OK;
}

/* Once STOP was found. */
static fsdpck_status check_frames(struct skim *s, fsdpck_error *err)
{
    if (s->long_frame_nbytes > 0) {
        s->op_at = s->long_frame_at;
        const fsdpck_status st =
            bad(s, FSDPCK_FINDING_PKL_FRAME, "frame is longer than the rest of the pickle", err);
        error_expected(err, "at most %zu bytes", s->in->nbytes - s->op_at - 9);
        error_found(err, "%" PRIu64 " bytes", s->long_frame_nbytes);
        return st;
    }
    if (s->in_frame && s->at < s->limit)
        return bad(s, FSDPCK_FINDING_PKL_FRAME, "frame continues after STOP", err);
    return FSDPCK_OK;
}

static fsdpck_status skim_proto(struct skim *s, fsdpck_error *err)
{
    if (s->op_at != 0)
        return bad(s, FSDPCK_FINDING_PKL_PROTO, "opcode PROTO is not at the start of the pickle",
                   err);
    if (s->at == s->in->nbytes)
        return truncated(s, err);
    const uint8_t protocol = s->in->bytes[s->at++];
    if (protocol <= PICKLE_PROTOCOL_MAX)
        return FSDPCK_OK;
    const fsdpck_status st = bad(s, FSDPCK_FINDING_PKL_PROTO, "unknown pickle protocol", err);
    error_expected(err, "0 to %d", PICKLE_PROTOCOL_MAX);
    error_found(err, "%u", protocol);
    return st;
}

/* A pickler numbers its entries from 0, and each needs an opcode. */
static fsdpck_status check_index(const struct skim *s, uint64_t index, fsdpck_error *err)
{
    if (index < s->memo_limit)
        return FSDPCK_OK;
    const fsdpck_status st =
        bad(s, FSDPCK_FINDING_PKL_MEMO, "memo index exceeds the size of the pickle", err);
    error_expected(err, "less than %" PRIu64, s->memo_limit);
    error_found(err, "%" PRIu64, index);
    return st;
}

static inline fsdpck_status skim_fetch(struct skim *s, uint64_t index, fsdpck_error *err)
{
    if (index >= s->memo_limit)
        return check_index(s, index, err);
    return s->memo != NULL ? pickle_memo_mark(s->memo, index, err) : FSDPCK_OK;
}

static fsdpck_status skim_index(struct skim *s, unsigned width, bool fetch, fsdpck_error *err)
{
    uint64_t index = 0;
    const uint8_t *p = s->in->bytes + s->at;
    if (width == 0) {
        size_t nbytes = 0;
        if (!pickle_line(s->in, s->at, &nbytes))
            return truncated(s, err);
        if (!pickle_decimal(p, nbytes, &index))
            return bad(s, FSDPCK_FINDING_PKL_INT, "memo index is not a number", err);
        s->at += nbytes + 1;
    } else {
        if (s->in->nbytes - s->at < width)
            return truncated(s, err);
        index = width == 1 ? p[0] : load_le32(p);
        s->at += width;
    }
    if (fetch)
        return skim_fetch(s, index, err);
    s->numbers = true;
    return check_index(s, index, err);
}

static fsdpck_status skim_refused(const struct skim *s, uint8_t op, fsdpck_error *err)
{
    const char *name = NULL;
    switch (op) {
    case OP_INST:
        name = "INST";
        break;
    case OP_OBJ:
        name = "OBJ";
        break;
    case OP_EXT1:
    case OP_EXT2:
    case OP_EXT4:
        name = "EXT";
        break;
    case OP_NEXT_BUFFER:
        name = "NEXT_BUFFER";
        break;
    case OP_READONLY_BUFFER:
        name = "READONLY_BUFFER";
        break;
    default:
        return pickle_error(s->in, s->op_at, FSDPCK_BADINPUT, FSDPCK_FINDING_PKL_OPCODE, err,
                            "pickle has an unknown opcode, 0x%02X", op);
    }
    return pickle_error(s->in, s->op_at, FSDPCK_BADINPUT, FSDPCK_FINDING_PKL_OPCODE, err,
                        "pickle uses the opcode %s, which checkpoints do not need", name);
}

/* Opcodes that are rare, or have more than a fixed number of argument bytes. */
static fsdpck_status skim_other(struct skim *s, uint8_t op, fsdpck_error *err)
{
    switch (op) {
    case OP_STOP:
        s->stopped = true;
        return FSDPCK_OK;
    case OP_PROTO:
        return skim_proto(s, err);
    case OP_FRAME:
        return skim_frame(s, err);
    case OP_LONG1:
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINBYTES:
        return skim_counted(s, 1, err);
    case OP_LONG4:
    case OP_BINSTRING:
    case OP_BINUNICODE:
    case OP_BINBYTES:
        return skim_counted(s, 4, err);
    case OP_BINUNICODE8:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return skim_counted(s, 8, err);
    case OP_GLOBAL:
        return skim_lines(s, 2, err);
    case OP_INT:
    case OP_LONG:
    case OP_FLOAT:
    case OP_STRING:
    case OP_UNICODE:
    case OP_PERSID:
        return skim_lines(s, 1, err);
    case OP_GET:
        return skim_index(s, 0, true, err);
    case OP_PUT:
        return skim_index(s, 0, false, err);
    case OP_BINPUT:
        return skim_index(s, 1, false, err);
    case OP_LONG_BINPUT:
        return skim_index(s, 4, false, err);
    case OP_BINGET:
        return skim_index(s, 1, true, err);
    case OP_LONG_BINGET:
        return skim_index(s, 4, true, err);
    case OP_GAP:
        if (s->in->gaps != NULL && s->ngaps++ < s->in->gaps->gaps.count)
            return FSDPCK_OK;
        return skim_refused(s, op, err);
    default:
        return skim_refused(s, op, err);
    }
}

/* Opcodes without argument, except STOP and the refused ones. */
static const bool one_byte[256] = {
    [OP_MARK] = true,        [OP_POP] = true,        [OP_POP_MARK] = true,   [OP_DUP] = true,
    [OP_NONE] = true,        [OP_BINPERSID] = true,  [OP_REDUCE] = true,     [OP_APPEND] = true,
    [OP_BUILD] = true,       [OP_DICT] = true,       [OP_EMPTY_DICT] = true, [OP_APPENDS] = true,
    [OP_LIST] = true,        [OP_EMPTY_LIST] = true, [OP_SETITEM] = true,    [OP_TUPLE] = true,
    [OP_EMPTY_TUPLE] = true, [OP_SETITEMS] = true,   [OP_NEWOBJ] = true,     [OP_TUPLE1] = true,
    [OP_TUPLE2] = true,      [OP_TUPLE3] = true,     [OP_NEWTRUE] = true,    [OP_NEWFALSE] = true,
    [OP_EMPTY_SET] = true,   [OP_ADDITEMS] = true,   [OP_FROZENSET] = true,  [OP_NEWOBJ_EX] = true,
    [OP_STACK_GLOBAL] = true};

/* Opcodes up to the end of the frame (or of the bytes). Branches, not a table of lengths, find the
 * next opcode: a processor that predicts them need not wait for the length of the current one. */
static fsdpck_status skim_run(struct skim *s, fsdpck_error *err)
{
    const uint8_t *const bytes = s->in->bytes;
    const size_t nbytes = s->in->nbytes;
    size_t limit = s->limit;
    size_t at = s->at;
    size_t op_at = at;
    while (at < limit && !s->stopped) {
        const uint8_t op = bytes[at];
        op_at = at;
        if (one_byte[op]) {
            at += 1;
        } else if (op == OP_MEMOIZE) {
            s->memoizes = true;
            at += 1;
        } else if ((op == OP_BINGET && nbytes - at >= 2) ||
                   (op == OP_LONG_BINGET && nbytes - at >= 5)) {
            const uint32_t index = op == OP_BINGET ? bytes[at + 1] : load_le32(bytes + at + 1);
            s->op_at = at;
            RETURN_IF(skim_fetch(s, index, err));
            at += op == OP_BINGET ? 2 : 5;
        } else if (op == OP_BININT1) { /* the caller checks for the end */
            at += 2;
        } else if (op == OP_BININT2) {
            at += 3;
        } else if (op == OP_BININT) {
            at += 5;
        } else if (op == OP_BINFLOAT) {
            at += 9;
        } else if (op == OP_SHORT_BINUNICODE && nbytes - at >= 2) {
            at += 2u + bytes[at + 1];
        } else {
            s->op_at = at;
            s->at = at + 1;
            RETURN_IF(skim_other(s, op, err));
            at = s->at;
            limit = s->limit;
        }
    }
    s->op_at = op_at;
    s->at = at;
    return FSDPCK_OK;
}

fsdpck_status pickle_skim_all(const pickle_input *in, pickle_memo *memo, size_t *nbytes,
                              fsdpck_error *err)
{
    struct skim s = {.in = in,
                     .memo = memo,
                     .limit = in->nbytes,
                     .memo_limit = in->gaps != NULL ? in->gaps->whole_nbytes : in->nbytes};
    while (!s.stopped) {
        RETURN_IF(skim_run(&s, err));
        if (s.at > in->nbytes || (s.at == in->nbytes && !s.stopped))
            return truncated(&s, err);
        if (s.at > s.limit)
            return bad(&s, FSDPCK_FINDING_PKL_FRAME, "opcode crosses the end of its frame", err);
        if (!s.stopped) {
            s.limit = in->nbytes;
            s.in_frame = false;
        }
    }
    RETURN_IF(check_frames(&s, err));
    if (s.memoizes && s.numbers)
        return bad(&s, FSDPCK_FINDING_PKL_MEMO, "pickle mixes MEMOIZE with numbered memo entries",
                   err);
    *nbytes = s.at;
    return FSDPCK_OK;
}

fsdpck_status pickle_skim(const pickle_input *in, size_t *nbytes, fsdpck_error *err)
{
    return pickle_skim_all(in, NULL, nbytes, err);
}
