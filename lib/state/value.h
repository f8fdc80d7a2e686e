/* value.h: objects that are not tensors, as a neutral tree; nothing is ever executed.
 *
 * A `value` is a 64-bit handle into one value_pool (small values are stored in the handle). Kinds:
 * none, bool, int (any size), float, str, bytes, list, tuple, dict, set, symbol (module and name
 * from a pickle), call (a symbol or value applied to arguments, optionally with state and items set
 * afterwards), tensor (an index into the catalogue), host (private to the active reader; never left
 * in a catalogue).
 *
 * Order is preserved everywhere. Values may be shared and may form cycles (by a pickle's memo): a
 * walker must not recurse and must bound its steps, see value_walk.
 *
 *     value_pool pool;
 *     value_pool_init(&pool, &budget);
 *     value d;
 *     RETURN_IF(value_new_dict(&pool, &d, err));
 *     RETURN_IF(value_dict_put(&pool, d, key, item, err));
 *     for (size_t i = 0; i < value_count(&pool, d); i++)
 *         use(value_key(&pool, d, i), value_item(&pool, d, i));
 *     value_pool_release(&pool);
 */
#ifndef FSDPCK_STATE_VALUE_H
#define FSDPCK_STATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"

typedef uint64_t value;

typedef enum value_kind {
    VALUE_NONE = 0,
    VALUE_BOOL,
    VALUE_INT,    /* fits int64 */
    VALUE_BIGINT, /* little-endian two's complement bytes */
    VALUE_FLOAT,
    VALUE_STR, /* bytes as in the pickle: UTF-8, possibly with lone surrogates */
    VALUE_BYTES,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT, /* pairs in order; a key that is set twice keeps its first position and its last
                 * item */
    VALUE_SET,
    VALUE_FROZENSET,
    VALUE_SYMBOL,
    VALUE_CALL,
    VALUE_TENSOR,
    VALUE_HOST
} value_kind;

/* The None value is 0, so zeroed memory is None. */
#define VALUE_OF_NONE ((value)0)

/* Origin of a call, so that it can be written back unchanged. */
typedef enum value_call_how {
    CALL_REDUCE,    /* callee(*args) */
    CALL_NEWOBJ,    /* callee.__new__(callee, *args) */
    CALL_NEWOBJ_EX, /* the same with kwargs */
    CALL_PERSID     /* persistent id `args`; callee None */
} value_call_how;

typedef struct value_call {
    value callee;     /* None for CALL_PERSID */
    value args;       /* usually a tuple */
    value kwargs;     /* dict or None */
    value state;      /* of BUILD; only valid with has_state */
    value list_items; /* list of items from APPEND, or None */
    value dict_items; /* dict of pairs from SETITEM, or None */
    value set_items;  /* set of items from ADDITEMS, or None */
    uint8_t how;      /* value_call_how */
    uint8_t has_state;
    uint8_t forwarded; /* private to the pickle machine: the memo must use `state` instead */
} value_call;

/* Values that do not fit a handle are in `cells`, 8 bytes each (value_cells.h). Texts are interned:
 * equal texts, bytes, symbols and big ints of one pool have equal handles. */
typedef struct value_pool {
    strtab strings; /* str, bytes, big ints, symbols */
    vec cells;
    budget *owner;
} value_pool;

void value_pool_init(value_pool *p, budget *owner);
void value_pool_release(value_pool *p);

/* --- constructors --- */
value value_of_bool(bool b);
value value_of_tensor(uint64_t tensor_index);
value value_of_host(uint64_t note); /* note < 2^56 */
fsdpck_status value_new_int(value_pool *p, int64_t i, value *v,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_bigint(value_pool *p, const uint8_t *le, size_t nbytes, value *v,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_float(value_pool *p, double d, value *v,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_str(value_pool *p, const char *text, size_t nbytes, value *v,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_bytes(value_pool *p, const void *bytes, size_t nbytes, value *v,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_symbol_of(value_pool *p, const char *module, size_t module_nbytes,
                                  const char *name, size_t name_nbytes, value *v,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_list(value_pool *p, value *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_set(value_pool *p, value *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_dict(value_pool *p, value *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* TUPLE or FROZENSET (or LIST, SET) from items, which must not be in the pool itself. */
fsdpck_status value_new_from(value_pool *p, value_kind kind, const value *items, size_t count,
                             value *v, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status value_new_call(value_pool *p, const value_call *call, value *v,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;
/* LIST or SET. */
fsdpck_status value_append(value_pool *p, value v, value item, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Appends a pair without checking for an equal key. */
fsdpck_status value_dict_put(value_pool *p, value dict, value key, value item,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

/* --- queries --- */
value_kind value_kind_of(value v);
bool value_is_none(value v);
bool value_is_true(value v);
/* False if it is not an INT (a BOOL is accepted, as in Python). */
bool value_as_i64(const value_pool *p, value v, int64_t *i);
/* INT that is >= 0. */
bool value_as_u64(const value_pool *p, value v, uint64_t *u);
/* FLOAT, or INT converted. */
bool value_as_double(const value_pool *p, value v, double *d);
uint64_t value_tensor_index(value v); /* TENSOR */
uint64_t value_host_note(value v);    /* HOST */
/* STR, BYTES, BIGINT: borrowed until the pool grows; NULL for other kinds. */
const char *value_text(const value_pool *p, value v, size_t *nbytes);
bool value_is_str(const value_pool *p, value v, const char *text);
/* SYMBOL: borrowed NUL-terminated texts ("" for other kinds); from a pickle they contain no NUL. */
const char *value_symbol_module(const value_pool *p, value v);
const char *value_symbol_name(const value_pool *p, value v);
/* Whether v is a SYMBOL with this name, in any module (torch moves classes between modules). */
bool value_is_symbol_named(const value_pool *p, value v, const char *name);
/* Both, exactly. */
bool value_is_symbol(const value_pool *p, value v, const char *module, const char *name);
/* Items of LIST, TUPLE, SET, FROZENSET; pairs of DICT; 0 for other kinds. */
size_t value_count(const value_pool *p, value v);
value value_item(const value_pool *p, value v, size_t i); /* item, or the pair's item */
value value_key(const value_pool *p, value v, size_t i);  /* None if i is out of range */
/* All items at once, those of a DICT as key, item, key, item ...: borrowed until the pool grows or
 * the value changes. *count is in handles, hence twice the pairs; NULL and 0 if empty. For tight
 * loops. */
const value *value_items(const value_pool *p, value v, size_t *count);
/* Equal as Python dict keys: texts, numbers of any kind (1 == True == 1.0), None; containers and
 * calls only if they are the same value. */
bool value_keys_equal(const value_pool *p, value a, value b);
/* Finds a str key (linear; the last equal key wins); false if it is missing. */
bool value_dict_find(const value_pool *p, value dict, const char *key, value *item);
/* Replaces item i (LIST, DICT, TUPLE) for all users of the value. */
void value_set_item(value_pool *p, value v, size_t i, value item);
/* Replaces the key of a DICT's i-th pair. */
void value_set_key(value_pool *p, value dict, size_t i, value key);
/* CALL: borrowed until the pool grows, writable in place; NULL for other kinds. */
value_call *value_call_of(const value_pool *p, value v);

/* Returns the DICT of a value that Python code treats as a dict: DICT itself, or a CALL of
 * OrderedDict, defaultdict, Counter, dict (its dict_items; else the dict or the list of pairs in
 * its arguments, as in Python 2 and Counter; else a new empty dict). False for other values, or if
 * out of memory. */
bool value_as_dict(value_pool *p, value v, value *dict);

/* Visits v and all values below it, parents before children, in order, without recursion:
 * containers and calls once each (shared parts once, safe with cycles), other values at each
 * occurrence. Of a call it visits callee, args, kwargs, list_items, dict_items, set_items and
 * state. The callback may stop the walk with a status other than OK, and must not grow the pool. */
typedef fsdpck_status (*value_visit_fn)(void *ctx, value v, fsdpck_error *err);
fsdpck_status value_walk(const value_pool *p, value root, value_visit_fn fn, void *ctx,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Deep copy into another pool; preserves sharing and cycles. Tensor indices are mapped by
 * tensor_map (NULL: unchanged); an index mapped to UINT64_MAX becomes None. */
fsdpck_status value_copy(const value_pool *from, value v, value_pool *to,
                         const uint64_t *tensor_map, value *copy,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;

struct value_map;
/* The same with existing copies: `made` maps containers and calls of `from` to their copies in
 * `to`; new copies are added. */
fsdpck_status value_copy_shared(const value_pool *from, value v, value_pool *to,
                                const uint64_t *tensor_map, struct value_map *made, value *copy,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether two values have the same structure: kinds, contents, order, and origin of calls; sharing
 * is not compared. Symbols are equal if Python 3 maps their names to one (builtins, __builtin__).
 * Pairs of an OrderedDict and its like may be items or an argument of the call, see value_as_dict.
 * An INT and a BIGINT, 1 and 1.0, 0.0 and -0.0 differ; a NaN equals itself. *equal
 * is set only if OK is returned (LIMIT: memory). */
fsdpck_status value_equal(const value_pool *p, value a, const value_pool *q, value b, bool *equal,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same, but a tuple equals a list of equal items: JSON has only arrays. */
fsdpck_status value_equal_in_json(const value_pool *p, value a, const value_pool *q, value b,
                                  bool *equal, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* One line for people ("{'lr': 0.001, ...}"), escaped, cut to limit_bytes (at most 3 more) with
 * "..."; ints of more than 2,048 bits are hexadecimal, nesting deeper than 100 and whatever contains itself print as "...". Check out->failed. */
void value_print(const value_pool *p, value v, size_t limit_bytes, text_buf *out);

#endif
