#include "model/unit_json.h"

#include <inttypes.h>
#include <string.h>

enum unit_key {
    UNIT_PREFIX,
    UNIT_FLAT_PARAM,
    UNIT_WORLD_SIZE,
    UNIT_ORIG,
    UNIT_STRATEGY,
    UNIT_DTYPE,
    UNIT_PARAM_DTYPE,
    UNIT_ALIGNMENT,
    UNIT_ROW_MAJOR,
    UNIT_TOTAL,
    UNIT_PARAMS,
    UNIT_SHARED,
    UNIT_KEYS
};

static const char *const unit_keys[UNIT_KEYS] = {
    "prefix", "flat_param",  "world_size",         "use_orig_params", "sharding_strategy",
    "dtype",  "param_dtype", "alignment_elements", "row_major",       "total_unpadded",
    "params", "shared",
};

enum param_key { PARAM_FQN, PARAM_SHAPE, PARAM_STRIDES, PARAM_KEYS };

static const char *const param_keys[PARAM_KEYS] = {"fqn", "shape", "strides"};

enum shared_key { SHARED_FQN, SHARED_SAME_AS, SHARED_KEYS };

static const char *const shared_keys[SHARED_KEYS] = {"fqn", "same_as"};

/* The keys of one object so far. */
typedef struct key_set {
    const char *const *keys;
    unsigned count;
    uint32_t seen;
} key_set;

/* Position of a value in the text, to be read later. */
typedef struct stretch {
    size_t offset_bytes, nbytes;
} stretch;

typedef struct unit_object {
    unit proto;
    text_buf prefix, flat_name;
    dtype compute;
    uint64_t total;
    stretch params, shared;
    const unit_defaults *defaults;
    uint32_t seen; /* 1 << unit_key */
} unit_object;

static fsdpck_status fail(fsdpck_error *err, fsdpck_finding_id finding, const char *message,
                          const char *key, size_t offset_bytes)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s '%s'", message, key),
                   (offset, offset_bytes));
}

/* The next token of an object: its end, or a new key of the set. */
static fsdpck_status next_key(json_reader *r, key_set *set, json_token *t, unsigned *key,
                              fsdpck_error *err)
{
    char shown[64];
    RETURN_IF(json_next(r, t, err));
    if (t->kind == JSON_OBJECT_END)
        return FSDPCK_OK;
    for (unsigned i = 0; i < set->count; i++) {
        if (!json_is(t, set->keys[i]))
            continue;
        if ((set->seen & (1u << i)) != 0)
            return fail(err, FSDPCK_FINDING_MODEL_KEY, "list of units has a duplicate key",
                        set->keys[i], t->offset_bytes);
        set->seen |= 1u << i;
        *key = i;
        return FSDPCK_OK;
    }
    return fail(err, FSDPCK_FINDING_MODEL_KEY, "list of units has an unknown key",
                escape_text(shown, sizeof shown, t->text, t->nbytes), t->offset_bytes);
}

static fsdpck_status need_key(const key_set *set, unsigned key, size_t offset_bytes,
                              fsdpck_error *err)
{
    if ((set->seen & (1u << key)) != 0)
        return FSDPCK_OK;
    return fail(err, FSDPCK_FINDING_MODEL_KEY, "list of units lacks the key", set->keys[key],
                offset_bytes);
}

static fsdpck_status wrong_kind(const char *key, const char *expected, const json_token *t,
                                fsdpck_error *err)
{
    fail(err, FSDPCK_FINDING_MODEL_KEY, "list of units has a wrong value for", key,
         t->offset_bytes);
    error_expected(err, "%s", expected);
    return FSDPCK_BADINPUT;
}

static fsdpck_status next_u64(json_reader *r, const char *key, uint64_t least, uint64_t most,
                              uint64_t *v, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_NUMBER || !t.is_u64 || t.u64 < least || t.u64 > most) {
        wrong_kind(key, "a whole number", &t, err);
        error_next(err, "give a number from %" PRIu64 " to %" PRIu64, least, most);
        return FSDPCK_BADINPUT;
    }
    *v = t.u64;
    return FSDPCK_OK;
}

static fsdpck_status next_bool(json_reader *r, const char *key, bool *v, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_TRUE && t.kind != JSON_FALSE)
        return wrong_kind(key, "true or false", &t, err);
    *v = t.kind == JSON_TRUE;
    return FSDPCK_OK;
}

static fsdpck_status next_string(json_reader *r, const char *key, json_token *t, fsdpck_error *err)
{
    RETURN_IF(json_next(r, t, err));
    return t->kind == JSON_STRING ? FSDPCK_OK : wrong_kind(key, "a string", t, err);
}

/* Reads into a reused buffer. */
static fsdpck_status next_text(json_reader *r, const char *key, text_buf *text, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(next_string(r, key, &t, err));
    text->nbytes = 0;
    text_append(text, t.text, t.nbytes);
    return text_check(text, err);
}

static fsdpck_status next_dtype(json_reader *r, const char *key, dtype *d, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(next_string(r, key, &t, err));
    *d = dtype_from_name(t.text, t.nbytes);
    if (*d == DTYPE_NONE || dtype_get(*d)->kind != DTYPE_IS_FLOAT)
        return wrong_kind(key, "a floating-point dtype of torch, such as float32", &t, err);
    return FSDPCK_OK;
}

static fsdpck_status next_strategy(json_reader *r, unit *proto, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(next_string(r, unit_keys[UNIT_STRATEGY], &t, err));
    for (uint8_t i = 0; i <= STRATEGY_HYBRID_SHARD_ZERO2; i++) {
        const char *name = sharding_strategy_name(i);
        if (!json_is(&t, name))
            continue;
        proto->strategy = i;
        proto->unsharded = i == STRATEGY_NO_SHARD;
        return FSDPCK_OK;
    }
    return wrong_kind(unit_keys[UNIT_STRATEGY], "a name of torch's ShardingStrategy", &t, err);
}

/* An array of at most NDIM_MAX numbers. */
static fsdpck_status next_sizes(json_reader *r, const char *key, uint64_t *sizes, unsigned *count,
                                fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_ARRAY)
        return wrong_kind(key, "an array of whole numbers", &t, err);
    for (*count = 0;; ++*count) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_NUMBER || !t.is_u64 || t.u64 > INT64_MAX)
            return wrong_kind(key, "whole numbers of at most 63 bits", &t, err);
        if (*count == NDIM_MAX)
            return fail(err, FSDPCK_FINDING_MODEL_SHAPE, "list of units has too many dims in", key,
                        t.offset_bytes);
        sizes[*count] = t.u64;
    }
}

/* Keeps the position of an array for the second pass. */
static fsdpck_status skip_array(json_reader *r, const char *key, stretch *where, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    if (t.kind != JSON_ARRAY)
        return wrong_kind(key, "an array of objects", &t, err);
    where->offset_bytes = t.offset_bytes;
    RETURN_IF(json_skip(r, &t, err));
    where->nbytes = r->at - where->offset_bytes;
    return FSDPCK_OK;
}

static fsdpck_status read_unit_value(json_reader *r, unsigned key, unit_object *o,
                                     fsdpck_error *err)
{
    const char *name = unit_keys[key];
    uint64_t v = 0;
    dtype d = DTYPE_NONE;
    switch ((enum unit_key)key) {
    case UNIT_PREFIX:
        return next_text(r, name, &o->prefix, err);
    case UNIT_FLAT_PARAM:
        return next_text(r, name, &o->flat_name, err);
    case UNIT_WORLD_SIZE:
        RETURN_IF(next_u64(r, name, 1, UINT32_MAX, &v, err));
        o->proto.world_size = (uint32_t)v;
        return FSDPCK_OK;
    case UNIT_ORIG:
        return next_bool(r, name, &o->proto.use_orig_params, err);
    case UNIT_STRATEGY:
        return next_strategy(r, &o->proto, err);
    case UNIT_DTYPE:
        RETURN_IF(next_dtype(r, name, &d, err));
        o->proto.dtype = (uint8_t)d;
        return FSDPCK_OK;
    case UNIT_PARAM_DTYPE:
        return next_dtype(r, name, &o->compute, err);
    case UNIT_ALIGNMENT:
        RETURN_IF(next_u64(r, name, 0, UINT32_MAX, &v, err));
        o->proto.alignment = (uint32_t)v;
        return FSDPCK_OK;
    case UNIT_ROW_MAJOR:
        return next_bool(r, name, &o->proto.row_major, err);
    case UNIT_TOTAL:
        return next_u64(r, name, 0, INT64_MAX, &o->total, err);
    case UNIT_PARAMS:
        return skip_array(r, name, &o->params, err);
    case UNIT_SHARED:
        return skip_array(r, name, &o->shared, err);
    case UNIT_KEYS:
        break;
    }
    return FAIL(err, INTERNAL, NONE, "a key of units without a reader");
}

static bool has(const unit_object *o, enum unit_key key)
{
    return (o->seen & (1u << key)) != 0;
}

/* First pass: everything except the parameters. */
static fsdpck_status read_scalars(json_reader *r, const json_token *start, unit_object *o,
                                  fsdpck_error *err)
{
    key_set set = {.keys = unit_keys, .count = UNIT_KEYS};
    json_token t;
    unsigned key = 0;
    for (;;) {
        RETURN_IF(next_key(r, &set, &t, &key, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        RETURN_IF(read_unit_value(r, key, o, err));
    }
    o->seen = set.seen;
    RETURN_IF(need_key(&set, UNIT_PARAMS, start->offset_bytes, err));
    if (o->proto.world_size == 0)
        return need_key(&set, UNIT_WORLD_SIZE, start->offset_bytes, err);
    if (!has(o, UNIT_FLAT_PARAM)) {
        o->flat_name.nbytes = 0;
        text_puts(&o->flat_name, o->defaults->flat_param ? "flat_param" : "_flat_param");
        RETURN_IF(text_check(&o->flat_name, err));
    }
    o->proto.compute = (uint8_t)o->compute;
    if (!has(o, UNIT_ROW_MAJOR))
        o->proto.row_major = o->defaults->row_major;
    if (has(o, UNIT_ALIGNMENT) || !o->proto.use_orig_params || o->defaults->no_alignment)
        return FSDPCK_OK;
    if (o->compute == DTYPE_NONE)
        o->compute = (dtype)o->proto.dtype;
    if (o->compute == DTYPE_NONE) {
        fail(err, FSDPCK_FINDING_MODEL_KEY, "list of units lacks the key",
             unit_keys[UNIT_ALIGNMENT], start->offset_bytes);
        error_next(err, "with use_orig_params give dtype, param_dtype or alignment_elements");
        return FSDPCK_BADINPUT;
    }
    o->proto.alignment = unit_alignment(o->compute);
    return FSDPCK_OK;
}

static fsdpck_status read_param(json_reader *r, size_t offset_bytes, text_buf *fqn, unit_list *l,
                                fsdpck_error *err)
{
    key_set set = {.keys = param_keys, .count = PARAM_KEYS};
    uint64_t shape[NDIM_MAX], strides[NDIM_MAX];
    unsigned ndim = 0;
    unsigned nstrides = 0;
    json_token t;
    for (;;) {
        unsigned key = 0;
        RETURN_IF(next_key(r, &set, &t, &key, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        if (key == PARAM_FQN)
            RETURN_IF(next_text(r, param_keys[key], fqn, err));
        else if (key == PARAM_SHAPE)
            RETURN_IF(next_sizes(r, param_keys[key], shape, &ndim, err));
        else
            RETURN_IF(next_sizes(r, param_keys[key], strides, &nstrides, err));
    }
    RETURN_IF(need_key(&set, PARAM_FQN, offset_bytes, err));
    RETURN_IF(need_key(&set, PARAM_SHAPE, offset_bytes, err));
    const bool strided = (set.seen & (1u << PARAM_STRIDES)) != 0;
    if (strided && nstrides != ndim)
        return FAIL_WITH(err, BADINPUT, MODEL_SHAPE,
                         ("number of strides differs from number of dims"), (tensor, fqn->text),
                         (expected, "%u stride%s", ndim, text_plural(ndim)),
                         (found, "%u", nstrides));
    return unit_list_add_param(l, fqn->text, fqn->nbytes, ndim, shape, strided ? strides : NULL,
                               err);
}

static fsdpck_status read_shared(json_reader *r, size_t offset_bytes, text_buf names[2],
                                 unit_list *l, fsdpck_error *err)
{
    key_set set = {.keys = shared_keys, .count = SHARED_KEYS};
    json_token t;
    for (;;) {
        unsigned key = 0;
        RETURN_IF(next_key(r, &set, &t, &key, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        RETURN_IF(next_text(r, shared_keys[key], &names[key], err));
    }
    RETURN_IF(need_key(&set, SHARED_FQN, offset_bytes, err));
    RETURN_IF(need_key(&set, SHARED_SAME_AS, offset_bytes, err));
    return unit_list_add_shared(l, names[SHARED_FQN].text, names[SHARED_FQN].nbytes,
                                names[SHARED_SAME_AS].text, names[SHARED_SAME_AS].nbytes, err);
}

/* Second pass over an array of objects: parameters, or shared names. */
static fsdpck_status read_objects(const json_reader *whole, const stretch *where, bool params,
                                  unit_list *l, fsdpck_error *err)
{
    text_buf names[2] = {{0}, {0}};
    json_reader r;
    json_token t = {0};
    /* Up to the array's end, so that offsets refer to the whole text. */
    json_reader_init(&r, whole->text, where->offset_bytes + where->nbytes, whole->finding);
    r.at = where->offset_bytes;
    fsdpck_status st = json_expect(&r, JSON_ARRAY, &t, err);
    while (st == FSDPCK_OK) {
        st = json_next(&r, &t, err);
        if (st != FSDPCK_OK || t.kind == JSON_ARRAY_END)
            break;
        if (t.kind != JSON_OBJECT)
            st = wrong_kind(unit_keys[params ? UNIT_PARAMS : UNIT_SHARED], "an object", &t, err);
        else if (params)
            st = read_param(&r, t.offset_bytes, &names[0], l, err);
        else
            st = read_shared(&r, t.offset_bytes, names, l, err);
    }
    if (st != FSDPCK_OK)
        error_offset(err, t.offset_bytes);
    text_release(&names[0]);
    text_release(&names[1]);
    json_reader_release(&r);
    return st;
}

static fsdpck_status read_unit(json_reader *r, const json_token *start, unit_object *o,
                               unit_list *l, fsdpck_error *err)
{
    RETURN_IF(read_scalars(r, start, o, err));
    RETURN_IF(unit_list_add(l, &o->proto, o->prefix.text, o->prefix.nbytes, o->flat_name.text,
                            o->flat_name.nbytes, err));
    RETURN_IF(read_objects(r, &o->params, true, l, err));
    if (has(o, UNIT_SHARED))
        RETURN_IF(read_objects(r, &o->shared, false, l, err));
    RETURN_IF(unit_list_close(l, err));
    const unit *u = unit_at(l, unit_count(l) - 1);
    if (!has(o, UNIT_TOTAL) || u->total == o->total)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, MODEL_TOTAL,
        ("parameters of the unit '%s' do not add up to its total", unit_name(l, u->prefix, NULL)),
        (expected, "total_unpadded %" PRIu64, u->total), (found, "%" PRIu64, o->total),
        (next, "check shapes, use_orig_params and alignment_elements (%" PRIu32 " here)",
         u->alignment));
}

unit_defaults unit_defaults_of(uint32_t world_size, uint32_t torch_major, uint32_t torch_minor)
{
    return (unit_defaults){.world_size = world_size,
                           .flat_param = torch_major < 2,
                           .no_alignment = torch_major < 2 || (torch_major == 2 && torch_minor < 1),
                           .row_major = torch_major < 2 || (torch_major == 2 && torch_minor < 6)};
}

fsdpck_status unit_json_read(json_reader *r, const unit_defaults *defaults, unit_list *l,
                             fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    unit_object o = {.defaults = defaults};
    json_token t;
    while (st == FSDPCK_OK) {
        GOTO_IF(json_next(r, &t, err), out);
        if (t.kind == JSON_ARRAY_END)
            break;
        if (t.kind != JSON_OBJECT) {
            st = wrong_kind("units", "an object", &t, err);
            break;
        }
        o.proto = (unit){.world_size = defaults->world_size};
        o.compute = DTYPE_NONE;
        o.prefix.nbytes = 0;
        st = read_unit(r, &t, &o, l, err);
        if (st != FSDPCK_OK)
            error_offset(err, t.offset_bytes);
    }
    if (st == FSDPCK_OK)
        st = unit_list_seal(l, err);
out:
    text_release(&o.prefix);
    text_release(&o.flat_name);
    return st;
}
