/* pickle.h: reading and writing Python pickles as a closed language; nothing is executed.
 *
 * The machine runs the opcodes of protocols 0 to 5 over bytes in memory. GLOBAL only makes a
 * symbol; REDUCE, NEWOBJ, BUILD and persistent ids only make call records (value.h). The format
 * that reads the values interprets them. INST, OBJ, EXT*, out-of-band buffers and unknown opcodes
 * are errors.
 *
 *     pickle_limits lim = PICKLE_LIMITS_DEFAULT;
 *     pickle_input in = {.bytes = b, .nbytes = n, .file_offset_bytes = where_b_lies_in_the_file};
 *     RETURN_IF(pickle_read(&in, &lim, &pool, NULL, &root, &consumed, err));
 *
 * Large regular pickles (a .metadata of a million chunks) never become a tree: `pickle_hooks` run
 * at every finished call. A hook may store a compact record and replace the call with a HOST note
 * (value_of_host); lists and dicts of such notes need not be stored either. A first pass over the
 * opcodes finds the memo entries that are fetched; only those are kept. The memory of a replaced
 * value is reused at once.
 *
 * A dict that gets a key twice keeps the key's first place and its last item, as Python's does.
 * (Equal means value_keys_equal: keys that are tuples or calls are never equal but to themselves.)
 *
 * Errors, all with the offset of the opcode in the file. BADINPUT: PKL-TRUNCATED (ends before
 * STOP), PKL-LENGTH (negative, or larger than the whole pickle), PKL-INT (not a number), PKL-STR
 * (not UTF-8), PKL-STACK (too few values), PKL-MARK (a missing or extra mark, or more than one
 * value at STOP), PKL-MEMO, PKL-ODD (a key without its item), PKL-OPCODE (unknown or not allowed),
 * PKL-PROTO, PKL-FRAME, PKL-GLOBAL (a symbol whose names are not strings), PKL-CALL (an invalid
 * call, state or item). LIMIT: PKL-DEPTH (over 1,000 open marks, or containers nested over 10,000
 * deep), PKL-LIMIT.
 */
#ifndef FSDPCK_FORMATS_COMMON_PICKLE_H
#define FSDPCK_FORMATS_COMMON_PICKLE_H

#include "base/alloc.h"
#include "formats/common/pickle_memo.h"
#include "state/value.h"

/* Parts that the caller has read itself and left out of the bytes, each of whole items of a list or
 * whole pairs of a dict, between MARK and APPENDS or SETITEMS. PICKLE_GAP stands for each. The
 * machine gives them to on_gap; it fails, without a message for users, wherever a gap could have
 * another meaning than the opcodes that were left out. */
#define PICKLE_GAP 0xFF

typedef struct pickle_gap {
    uint64_t memoized; /* MEMOIZE opcodes in it */
    bool pairs;
} pickle_gap;

typedef struct pickle_gaps {
    vec gaps;              /* pickle_gap */
    vec fetched;           /* uint64_t: memo entries that they fetch */
    uint64_t whole_nbytes; /* of the pickle with them */
} pickle_gaps;

typedef struct pickle_input {
    const uint8_t *bytes;
    size_t nbytes;
    uint64_t file_offset_bytes; /* for messages */
    const pickle_gaps *gaps;    /* NULL: none */
} pickle_input;

typedef struct pickle_limits {
    uint64_t max_depth; /* open marks */
    uint64_t max_memo;  /* entries that are fetched */
    uint64_t max_stack; /* values */
} pickle_limits;

#define PICKLE_LIMITS_DEFAULT \
    ((pickle_limits){.max_depth = 1000, .max_memo = 1u << 28, .max_stack = 1u << 28})

/* All members but ctx may be NULL. The arguments of a hook are valid only during the call; `call`
 * points to a copy. When a call has been replaced by a value without cells (HOST, TENSOR, str,
 * symbol, small numbers), or on_build_host took BUILD, all parts of the call are released
 * afterwards; only handles of str, bytes and symbols stay valid. Hooks may create values in the
 * pool; those are released too, unless they are part of the replacement. Hooks must not change
 * existing values. */
typedef struct pickle_hooks {
    void *ctx;
    /* Runs for each call: with `built` false at REDUCE, NEWOBJ and persistent ids, with true at
     * BUILD (call->state is set; calls that were replaced before go to on_build_host). *replacement
     * takes the call's place everywhere, also in the memo, where *replaced is set to true. */
    fsdpck_status (*on_call)(void *ctx, value_pool *pool, const value_call *call, bool built,
                             value *replacement, bool *replaced, fsdpck_error *err);
    /* BUILD on a HOST or TENSOR value. NULL: that is PKL-CALL. */
    fsdpck_status (*on_build_host)(void *ctx, value_pool *pool, value host, value state,
                                   fsdpck_error *err);
    /* A pair whose key or item is HOST is about to enter a dict (or the dict_items of a call);
     * *taken true: it is not stored. */
    fsdpck_status (*on_pair)(void *ctx, value_pool *pool, value key, value item, bool *taken,
                             fsdpck_error *err);
    /* Items, all HOST, are about to enter a list, batch by batch (the pickler's batches have
     * 1,000); *taken true: they are not stored. *list_note (0 at first) is kept with the list:
     * value_list_note(). A list may have both a note and stored items. */
    fsdpck_status (*on_items)(void *ctx, value_pool *pool, const value *items, size_t count,
                              uint64_t *list_note, bool *taken, fsdpck_error *err);
    /* A dict had this key before; the later item has replaced the earlier one. Runs after the last
     * opcode. */
    fsdpck_status (*on_duplicate_key)(void *ctx, value_pool *pool, value dict, value key,
                                      fsdpck_error *err);
    /* The items or pairs of a gap enter a list (with its note, as in on_items) or a dict. `first_memo`
     * is the first memo entry that was left out: all before it are stored. */
    fsdpck_status (*on_gap)(void *ctx, value_pool *pool, const pickle_memo *memo, size_t gap,
                            uint64_t first_memo, uint64_t *list_note, fsdpck_error *err);
    /* The value, without cells, of the k-th memo entry in a gap. */
    fsdpck_status (*on_gap_memo)(void *ctx, value_pool *pool, size_t gap, uint64_t k, value *v,
                                 fsdpck_error *err);
} pickle_hooks;

/* For an on_call hook, with built false: converts calls with which old protocols write plain data.
 * _codecs.encode(text, 'latin1') is bytes, set([...]) and frozenset([...]) are sets, bytes() is
 * b''. *replaced is unchanged for all other calls. */
fsdpck_status pickle_plain_call(value_pool *pool, const value_call *call, value *replacement,
                                bool *replaced, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* getattr(symbol, 'Name') is the symbol `Class.Name`: whether a call has that shape, and the
 * symbol. The caller decides for which classes this is valid. *is_one false: *symbol is untouched.
 */
fsdpck_status pickle_getattr_symbol(value_pool *pool, const value_call *call, value *symbol,
                                    bool *is_one, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The note that on_items stored with a list; 0 if none. */
uint64_t value_list_note(const value_pool *p, value list);

/* Reads one pickle up to its STOP. *consumed_nbytes includes STOP; the caller decides whether more
 * bytes may follow. `hooks` may be NULL. */
fsdpck_status pickle_read(const pickle_input *in, const pickle_limits *limits, value_pool *pool,
                          const pickle_hooks *hooks, value *root, size_t *consumed_nbytes,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Length of the pickle that begins at bytes[0], without building anything; for streams that hold
 * several. */
fsdpck_status pickle_skim(const pickle_input *in, size_t *nbytes,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Writes a TENSOR leaf: the callback appends the opcodes (pickle_put_* below). */
typedef struct pickle_writer pickle_writer;
typedef fsdpck_status (*pickle_tensor_fn)(void *ctx, pickle_writer *w, uint64_t tensor_index,
                                          fsdpck_error *err);

/* Writes `root` as protocol 2, as Python's pickler and torch.save do: memo for shared parts, cycles
 * and symbols; module names of protocol 2 (builtins -> __builtin__), bytes as _codecs.encode(...,
 * 'latin1'), sets as set([...]), NEWOBJ_EX as copyreg.__newobj_ex__. Iterative. UNSUPPORTED: a set
 * that contains itself, a HOST value, TENSOR where tensor_fn is NULL. Set limit_bytes of `out` if 1
 * GiB is not the right limit. */
fsdpck_status pickle_write(const value_pool *pool, value root, pickle_tensor_fn tensor_fn,
                           void *ctx, text_buf *out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* For pickle_tensor_fn. */
void pickle_put_mark(pickle_writer *w);
void pickle_put_tuple(pickle_writer *w,
                      unsigned count); /* 0..3: no mark; otherwise pops to the mark */
void pickle_put_tuple_marked(pickle_writer *w);
/* A tuple of any length: around its items. */
void pickle_put_tuple_begin(pickle_writer *w, uint64_t count);
void pickle_put_tuple_end(pickle_writer *w, uint64_t count);
/* A tuple of ints. */
void pickle_put_dims(pickle_writer *w, unsigned ndim, const uint64_t *dims);
void pickle_put_int(pickle_writer *w, int64_t i);
/* first, first + step, ...: the opcodes of pickle_put_int, much faster; all below 2^63. */
void pickle_put_ints(pickle_writer *w, uint64_t first, uint64_t count, uint64_t step);
void pickle_put_bool(pickle_writer *w, bool b);
void pickle_put_none(pickle_writer *w);
void pickle_put_str(pickle_writer *w, const char *text,
                    size_t nbytes); /* memoised: equal texts once */
/* Not memoised. The bytes after it are then equal in pickles that differ only in this text. */
void pickle_put_text(pickle_writer *w, const char *text, size_t nbytes);
void pickle_put_word(pickle_writer *w, const char *text); /* pickle_put_str to its NUL */
void pickle_put_global(pickle_writer *w, const char *module, const char *name); /* memoised */
void pickle_put_persid(pickle_writer *w);
void pickle_put_reduce(pickle_writer *w);
void pickle_put_build(pickle_writer *w);
void pickle_put_newobj(pickle_writer *w); /* cls.__new__(cls, *args) of the two on the stack */
void pickle_put_empty_dict(pickle_writer *w);
void pickle_put_setitem(pickle_writer *w);
void pickle_put_empty_list(pickle_writer *w);
void pickle_put_append(pickle_writer *w);
/* Objects that a callback writes several times, under its own numbers (below 2^56). The first call
 * writes and memoises the object; later calls fetch it:
 *
 *     if (!pickle_put_from_memo(w, 7)) {
 *         ... opcodes that make the object
 *         pickle_put_to_memo(w, 7);
 *     } */
bool pickle_put_from_memo(pickle_writer *w, uint64_t number);
void pickle_put_to_memo(pickle_writer *w, uint64_t number);

#endif
