#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "formats/common/torch_archive_internal.h"
#include "state/catalogue.h"

/* A call that the pickle machine has just finished, and its replacement. */
typedef struct rebuild {
    torch_builder *b;
    value_pool *pool;
    const value_call *call;
    value *replacement;
    bool *replaced;
    fsdpck_error *err;
} rebuild;

static fsdpck_status set_to(const rebuild *r, value v)
{
    *r->replacement = v;
    *r->replaced = true;
    return FSDPCK_OK;
}

/* Kinds that fsdpck recognizes but does not read. If the caller keeps calls, the call stays without
 * its arguments, which contain storages. */
static fsdpck_status kind_unsupported(const rebuild *r, const char *what, const char *class_name)
{
    char shown[160];

    if (r->b->calls != TORCH_CALLS_REFUSE) {
        value_call bare = {.callee = r->call->callee, .how = CALL_REDUCE};
        value v;
        RETURN_IF(value_new_from(r->pool, VALUE_TUPLE, NULL, 0, &bare.args, r->err));
        RETURN_IF(value_new_call(r->pool, &bare, &v, r->err));
        return set_to(r, v);
    }
    return FAIL_WITH(
        r->err, UNSUPPORTED, PT_TENSOR_KIND,
        ("%s is not supported: '%s'", what,
         escape_text(shown, sizeof(shown), class_name, strlen(class_name))),
        (next, "%s",
         strncmp(what, "sparse", 6) == 0
             ? "make it dense with to_dense(), in the program that saves it"
             : "dequantize it, or convert it to plain tensors, in the program that saves it"));
}

static fsdpck_status args_bad(const rebuild *r, const char *what)
{
    return FAIL(r->err, BADINPUT, TENSOR_BOUNDS, "call that rebuilds a tensor has %s", what);
}

static value arg(const rebuild *r, value args, size_t i)
{
    return i < value_count(r->pool, args) ? value_item(r->pool, args, i) : VALUE_OF_NONE;
}

/* A tuple or list of sizes, or torch.Size of one. */
static fsdpck_status dims_from(const rebuild *r, value v, uint64_t *dims, unsigned *ndim)
{
    if (value_kind_of(v) == VALUE_CALL &&
        value_is_symbol_named(r->pool, value_call_of(r->pool, v)->callee, "Size"))
        v = arg(r, value_call_of(r->pool, v)->args, 0);
    if (value_kind_of(v) != VALUE_TUPLE && value_kind_of(v) != VALUE_LIST)
        return args_bad(r, "a shape or strides that are not a tuple");
    if (value_count(r->pool, v) > NDIM_MAX)
        return args_bad(r, "more than 64 dims");
    *ndim = (unsigned)value_count(r->pool, v);
    for (unsigned i = 0; i < *ndim; i++)
        if (!value_as_u64(r->pool, value_item(r->pool, v, i), &dims[i]))
            return args_bad(r, "an invalid size or stride");
    return FSDPCK_OK;
}

static fsdpck_status dtype_from(const rebuild *r, value v, dtype *d)
{
    if (value_kind_of(v) != VALUE_SYMBOL)
        return args_bad(r, "no dtype");
    const char *name = value_symbol_name(r->pool, v);
    *d = dtype_from_name(name, strlen(name));
    char shown[160];
    return *d != DTYPE_NONE ? FSDPCK_OK
                            : FAIL(r->err, UNSUPPORTED, PT_TENSOR_KIND, "unknown dtype '%s'",
                                   escape_text(shown, sizeof(shown), name, strlen(name)));
}

static fsdpck_status tensor_push(const rebuild *r, const declared_tensor *c, torch_tensor t,
                                 value *tensor)
{
    torch_archive *a = r->b->archive;

    t.dtype = (uint8_t)c->dtype;
    t.ndim = (uint8_t)c->ndim;
    t.offset_nelems = c->offset_nelems;
    t.dims_at = a->dims.count;
    RETURN_IF(vec_add_n(&a->dims, c->sizes, c->ndim, r->err));
    RETURN_IF(vec_add_n(&a->dims, c->strides, c->ndim, r->err));
    RETURN_IF(vec_add(&a->tensors, &t, r->err));
    *tensor = value_of_tensor(a->tensors.count - 1);
    return FSDPCK_OK;
}

/* {'conj': True, 'neg': True}: the bytes are those before conjugation or negation. */
static void lazy_bits(const rebuild *r, value metadata, torch_tensor *t)
{
    value bit;

    if (value_kind_of(metadata) != VALUE_DICT)
        return;
    t->conj = value_dict_find(r->pool, metadata, "conj", &bit) && value_is_true(bit);
    t->neg = value_dict_find(r->pool, metadata, "neg", &bit) && value_is_true(bit);
}

/* Whether a dict, or a call that makes one, is not empty: hooks. */
static bool has_items(const rebuild *r, value v)
{
    const value_call *call = value_call_of(r->pool, v);
    const value dict = call == NULL ? v : call->dict_items;
    if (value_kind_of(dict) == VALUE_DICT && value_count(r->pool, dict) > 0)
        return true;
    return call != NULL && value_count(r->pool, arg(r, call->args, 0)) > 0;
}

/* Of _rebuild_tensor (4 arguments), _v2 (6, 7) and _v3 (7, 8). */
static fsdpck_status plain_tensor(const rebuild *r, value args, unsigned version, value *tensor)
{
    const size_t count = value_count(r->pool, args);
    const value storage = arg(r, args, 0);
    declared_tensor c = {0};
    torch_tensor t = {0};
    unsigned nstrides;

    if (value_kind_of(args) != VALUE_TUPLE || count < (version == 1 ? 4 : 4 + version))
        return args_bad(r, "too few arguments");
    if (value_kind_of(storage) != VALUE_HOST)
        return args_bad(r, "no storage");
    const storage_ref ref = *VEC_AT(&r->b->refs, storage_ref, value_host_note(storage));
    const torch_storage *s = VEC_AT(&r->b->archive->storages, torch_storage, ref.storage);
    if (!value_as_u64(r->pool, arg(r, args, 1), &c.offset_nelems) ||
        !checked_add(c.offset_nelems, ref.offset_nelems, &c.offset_nelems))
        return args_bad(r, "an invalid storage offset");
    RETURN_IF(dims_from(r, arg(r, args, 2), c.sizes, &c.ndim));
    RETURN_IF(dims_from(r, arg(r, args, 3), c.strides, &nstrides));
    if (nstrides != c.ndim)
        return args_bad(r, "different numbers of strides and dims");
    c.dtype = s->dtype;
    if (version == 3)
        RETURN_IF(dtype_from(r, arg(r, args, 6), &c.dtype));
    c.storage_nbytes = s->nbytes;
    RETURN_IF(declared_tensor_check(&c, r->err));
    t.storage = ref.storage;
    t.meta = s->meta;
    t.requires_grad = version > 1 && value_kind_of(arg(r, args, 4)) == VALUE_BOOL &&
                      value_is_true(arg(r, args, 4));
    t.python = version > 1 && has_items(r, arg(r, args, 5)) ? CAT_PYTHON_ATTRIBUTES : 0;
    lazy_bits(r, arg(r, args, version == 3 ? 7 : 6), &t);
    return tensor_push(r, &c, t, tensor);
}

static fsdpck_status rebuild_plain(const rebuild *r, value args, unsigned version)
{
    value tensor;
    RETURN_IF(plain_tensor(r, args, version, &tensor));
    return set_to(r, tensor);
}

/* Attributes of a subclass: a dict, or (dict or None, dict of slots). */
static bool attribute(const rebuild *r, value state, const char *name, value *v)
{
    if (value_kind_of(state) == VALUE_DICT)
        return value_dict_find(r->pool, state, name, v);
    if (value_kind_of(state) != VALUE_TUPLE)
        return false;
    for (size_t i = 0; i < value_count(r->pool, state) && i < 2; i++) {
        const value part = value_item(r->pool, state, i);
        if (value_kind_of(part) == VALUE_DICT && value_dict_find(r->pool, part, name, v))
            return true;
    }
    return false;
}

static bool is_set(const rebuild *r, value state, const char *name)
{
    value bit;
    return attribute(r, state, name, &bit) && value_is_true(bit);
}

/* CAT_PYTHON_... of a tensor by its attributes: those of a Buffer, a Parameter of another class, a
 * tensor gathered by FSDP1, a DTensor, and others. */
static uint8_t python_of(const rebuild *r, value state)
{
    static const char *const own[] = {
        "_is_buffer",      "persistent",    "_is_param", "_has_been_cloned",
        "_fsdp_flattened", "_local_tensor", "_spec"};
    const bool pair = value_kind_of(state) == VALUE_TUPLE;
    unsigned found = (is_set(r, state, "_is_param") ? CAT_PYTHON_PARAMETER : 0) |
                     (is_set(r, state, "_is_buffer") ? CAT_PYTHON_BUFFER : 0);
    value ignored;

    for (size_t i = 0; i < (pair ? 2 : 1); i++) {
        const value part = pair ? arg(r, state, i) : state;
        if (value_kind_of(part) != VALUE_DICT)
            continue;
        size_t known = 0;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            known += value_dict_find(r->pool, part, own[k], &ignored);
        found |= value_count(r->pool, part) > known ? CAT_PYTHON_ATTRIBUTES : 0;
    }
    return (uint8_t)found;
}

/* A parameter becomes the tensor that it wraps. If that is of another kind (a DTensor), it keeps
 * that kind, and its local tensor is marked. */
static fsdpck_status rebuild_parameter(const rebuild *r, value args)
{
    const value data = arg(r, args, 0);
    value inner = data;

    if (value_kind_of(data) == VALUE_CALL) {
        const value state = arg(r, value_call_of(r->pool, data)->args, 3);
        if (!attribute(r, state, "_local_tensor", &inner))
            return set_to(r, data);
    } else if (value_kind_of(data) != VALUE_TENSOR) {
        return args_bad(r, "no data");
    }
    if (value_kind_of(inner) == VALUE_TENSOR) {
        torch_tensor *t = VEC_AT(&r->b->archive->tensors, torch_tensor, value_tensor_index(inner));
        t->python |= CAT_PYTHON_PARAMETER | python_of(r, arg(r, args, 3)) |
                     (has_items(r, arg(r, args, 2)) ? CAT_PYTHON_ATTRIBUTES : 0);
        t->requires_grad = value_is_true(arg(r, args, 1));
    }
    return set_to(r, data);
}

static fsdpck_status rebuild_meta(const rebuild *r, value args)
{
    declared_tensor c = {0};
    unsigned nstrides;
    value tensor;

    RETURN_IF(dtype_from(r, arg(r, args, 0), &c.dtype));
    RETURN_IF(dims_from(r, arg(r, args, 1), c.sizes, &c.ndim));
    RETURN_IF(dims_from(r, arg(r, args, 2), c.strides, &nstrides));
    c.storage_nbytes = INT64_MAX;
    if (nstrides != c.ndim)
        return args_bad(r, "different numbers of strides and dims");
    RETURN_IF(declared_tensor_check(&c, r->err));
    RETURN_IF(tensor_push(r, &c, (torch_tensor){.meta = true, .storage = UINT32_MAX}, &tensor));
    return set_to(r, tensor);
}

/* A wrapper whose `_tensor` is a plain tensor of the wrapper's own shape and dtype. */
static fsdpck_status rebuild_wrapper(const rebuild *r, const char *class_name, value args,
                                     value state)
{
    torch_archive *a = r->b->archive;
    uint64_t sizes[NDIM_MAX];
    unsigned ndim;
    dtype d;
    value inner;

    if (strcmp(class_name, "DTensor") == 0 || strcmp(class_name, "ShardedTensor") == 0) {
        if (!attribute(r, state, "_local_tensor", &inner) || value_kind_of(inner) != VALUE_TENSOR)
            return FSDPCK_OK;
        torch_tensor *local = VEC_AT(&a->tensors, torch_tensor, value_tensor_index(inner));
        local->python |= python_of(r, state);
        local->requires_grad = value_is_true(arg(r, args, 7));
        return FSDPCK_OK;
    }
    if (!attribute(r, state, "_tensor", &inner) || value_kind_of(inner) != VALUE_TENSOR)
        return kind_unsupported(r, "tensor subclass", class_name);
    RETURN_IF(dtype_from(r, arg(r, args, 1), &d));
    RETURN_IF(dims_from(r, arg(r, args, 2), sizes, &ndim));
    torch_tensor *t = VEC_AT(&a->tensors, torch_tensor, value_tensor_index(inner));
    if (t->dtype != d || !shape_equal(torch_tensor_sizes(a, t), t->ndim, sizes, ndim))
        return kind_unsupported(r, "tensor subclass", class_name);
    t->python |= CAT_PYTHON_ATTRIBUTES; /* its class */
    return set_to(r, inner);
}

/* (func, type, args, state): a tensor with Python attributes, a Buffer, or a subclass. */
static fsdpck_status rebuild_from_type(const rebuild *r, value args)
{
    const value func = arg(r, args, 0), type = arg(r, args, 1), inner = arg(r, args, 2),
                state = arg(r, args, 3);
    unsigned version = 0;

    if (value_kind_of(func) != VALUE_SYMBOL || value_kind_of(type) != VALUE_SYMBOL ||
        value_kind_of(inner) != VALUE_TUPLE)
        return args_bad(r, "arguments of the wrong kinds");
    const char *class_name = value_symbol_name(r->pool, type);
    if (value_is_symbol_named(r->pool, func, "_rebuild_wrapper_subclass"))
        return rebuild_wrapper(r, class_name, inner, state);
    if (value_is_symbol_named(r->pool, func, "_rebuild_tensor_v2"))
        version = 2;
    else if (value_is_symbol_named(r->pool, func, "_rebuild_tensor_v3"))
        version = 3;
    if (version == 0 || !(strcmp(class_name, "Tensor") == 0 ||
                          text_ends_with(class_name, strlen(class_name), "Parameter") ||
                          text_ends_with(class_name, strlen(class_name), "Buffer")))
        return kind_unsupported(r, "tensor subclass", class_name);
    RETURN_IF(rebuild_plain(r, inner, version));
    class_name = value_symbol_name(r->pool, type);
    torch_tensor *t =
        VEC_AT(&r->b->archive->tensors, torch_tensor, r->b->archive->tensors.count - 1);
    const bool is_own = strcmp(class_name, "Tensor") == 0 || strcmp(class_name, "Parameter") == 0 ||
                        strcmp(class_name, "Buffer") == 0;
    t->python |= python_of(r, state) | (is_own ? 0 : CAT_PYTHON_ATTRIBUTES);
    if (text_ends_with(class_name, strlen(class_name), "Parameter"))
        t->python |= CAT_PYTHON_PARAMETER;
    if (text_ends_with(class_name, strlen(class_name), "Buffer"))
        t->python |= CAT_PYTHON_BUFFER;
    return FSDPCK_OK;
}

/* (cpu tensor, dtype, device, requires_grad) of XLA and its like. */
static fsdpck_status rebuild_device(const rebuild *r, value args)
{
    const value data = arg(r, args, 0);
    dtype d;

    if (value_kind_of(data) != VALUE_TENSOR)
        return kind_unsupported(r, "tensor in a device's own format",
                                value_symbol_name(r->pool, r->call->callee));
    RETURN_IF(dtype_from(r, arg(r, args, 1), &d));
    if (VEC_AT(&r->b->archive->tensors, torch_tensor, value_tensor_index(data))->dtype != d)
        return kind_unsupported(r, "tensor with a device's own dtype",
                                value_symbol_name(r->pool, r->call->callee));
    return set_to(r, data);
}

static bool is_kept(const torch_builder *b, bool runs_code)
{
    return runs_code ? b->calls == TORCH_CALLS_KEEP_ALL : b->calls != TORCH_CALLS_REFUSE;
}

/* How Python 3.11 writes enum members and nested classes: the symbol Class.Name, unless it could be
 * a function that runs code. */
static fsdpck_status resolve_getattr(const rebuild *r)
{
    const value class = arg(r, r->call->args, 0);
    const bool runs_code = torch_callee_runs_code(r->pool, class);
    bool is_one = false;
    value symbol;

    RETURN_IF(pickle_getattr_symbol(r->pool, r->call, &symbol, &is_one, r->err));
    if (is_one && torch_name_is_class(value_symbol_name(r->pool, class)) && !runs_code)
        return set_to(r, symbol);
    return is_kept(r->b, runs_code)
               ? FSDPCK_OK
               : FAIL(r->err, BADINPUT, PKL_GETATTR,
                      "pickle reads an attribute of an object that is not a plain data class");
}

static fsdpck_status unknown_call(const rebuild *r)
{
    return is_kept(r->b, torch_callee_runs_code(r->pool, r->call->callee))
               ? FSDPCK_OK
               : torch_call_refuse(r->pool, r->call, r->err);
}

static const char *kind_of(const char *function)
{
    if (strncmp(function, "_rebuild_sparse", 15) == 0)
        return "sparse tensor";
    if (strcmp(function, "_rebuild_qtensor") == 0)
        return "quantized tensor";
    if (strcmp(function, "_rebuild_nested_tensor") == 0)
        return "nested tensor";
    return "kind of tensor";
}

static fsdpck_status rebuild_call(const rebuild *r)
{
    const value args = r->call->args;
    const char *name = value_kind_of(r->call->callee) == VALUE_SYMBOL
                           ? value_symbol_name(r->pool, r->call->callee)
                           : "";
    const char *module = name[0] != '\0' ? value_symbol_module(r->pool, r->call->callee) : "";

    if (strcmp(name, "getattr") == 0 &&
        (strcmp(module, "__builtin__") == 0 || strcmp(module, "builtins") == 0))
        return resolve_getattr(r);
    if (!torch_call_is_known(r->pool, r->call))
        return unknown_call(r);
    if (strncmp(module, "torch.", 6) != 0 || strncmp(name, "_rebuild_", 9) != 0)
        return FSDPCK_OK;
    if (strcmp(name, "_rebuild_tensor") == 0)
        return rebuild_plain(r, args, 1);
    if (strcmp(name, "_rebuild_tensor_v2") == 0)
        return rebuild_plain(r, args, 2);
    if (strcmp(name, "_rebuild_tensor_v3") == 0)
        return rebuild_plain(r, args, 3);
    if (strcmp(name, "_rebuild_parameter") == 0 ||
        strcmp(name, "_rebuild_parameter_with_state") == 0)
        return rebuild_parameter(r, args);
    if (strcmp(name, "_rebuild_from_type_v2") == 0)
        return rebuild_from_type(r, args);
    if (strcmp(name, "_rebuild_meta_tensor_no_storage") == 0)
        return rebuild_meta(r, args);
    if (strcmp(name, "_rebuild_device_tensor_from_cpu_tensor") == 0)
        return rebuild_device(r, args);
    return kind_unsupported(r, kind_of(name), name);
}

static fsdpck_status on_call(void *ctx, value_pool *pool, const value_call *call, bool built,
                             value *replacement, bool *replaced, fsdpck_error *err)
{
    torch_builder *b = ctx;
    const value_call copy = *call; /* new values may move the pool */
    const rebuild r = {.b = b,
                       .pool = pool,
                       .call = &copy,
                       .replacement = replacement,
                       .replaced = replaced,
                       .err = err};

    if (built)
        return FSDPCK_OK;
    if (copy.how == CALL_PERSID) {
        value v;
        RETURN_IF(torch_persid_resolve(b, pool, copy.args, &v, err));
        return set_to(&r, v);
    }
    if (copy.how == CALL_REDUCE) {
        RETURN_IF(pickle_plain_call(pool, &copy, replacement, replaced, err));
        return *replaced ? FSDPCK_OK : rebuild_call(&r);
    }
    if (torch_callee_runs_code(pool, copy.callee))
        return unknown_call(&r);
    return FSDPCK_OK;
}

static fsdpck_status on_duplicate_key(void *ctx, value_pool *pool, value dict, value key,
                                      fsdpck_error *err)
{
    torch_builder *b = ctx;

    (void)pool, (void)dict, (void)key, (void)err;
    b->archive->duplicate_keys++;
    return FSDPCK_OK;
}

pickle_hooks torch_builder_hooks(torch_builder *b)
{
    return (pickle_hooks){.ctx = b, .on_call = on_call, .on_duplicate_key = on_duplicate_key};
}

void torch_builder_init(torch_builder *b)
{
    strtab_init(&b->keys, b->archive->owner);
    b->refs = VEC_OF(storage_ref, b->archive->owner);
}

void torch_builder_release(torch_builder *b)
{
    strtab_release(&b->keys);
    vec_release(&b->refs);
}

static fsdpck_status visit(void *ctx, value v, fsdpck_error *err)
{
    (void)ctx;
    if (value_kind_of(v) != VALUE_HOST)
        return FSDPCK_OK;
    return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND,
                "file holds a storage that is not part of a tensor");
}

fsdpck_status torch_builder_finish(torch_builder *b, fsdpck_error *err)
{
    return value_walk(b->archive->pool, b->archive->root, visit, NULL, err);
}
