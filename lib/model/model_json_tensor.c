#include "model/model_json.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"

#define BIT(key) (1u << (key))

static const key_rule param_rules[] = {
    [TENSOR_NAME] = KEY_WORD("name", raw_tensor, name),
    [TENSOR_SHAPE] = {.name = "shape", .kinds = ACCEPT(JSON_ARRAY)},
    [TENSOR_DTYPE] = KEY_DTYPE("dtype", raw_tensor, dtype),
    [TENSOR_STRIDES] = {.name = "strides", .kinds = ACCEPT(JSON_ARRAY)},
    [TENSOR_REQUIRES_GRAD] = KEY_BOOL("requires_grad", raw_tensor, requires_grad),
    [TENSOR_IGNORED] = KEY_BOOL("ignored", raw_tensor, ignored),
    [TENSOR_SAME_AS] = KEY_WORD("same_as", raw_tensor, same_as),
    [TENSOR_SHARD_DIM] = KEY_DIM("shard_dim", raw_tensor, shard_dim),
    [TENSOR_ALL_GATHER] = {.name = "all_gather", .kinds = ACCEPT(JSON_ARRAY)},
    [TENSOR_FLATTENED] = KEY_BOOL("flattened", raw_tensor, flattened),
};

/* The same positions as tensor_key, except the last. */
static const key_rule buffer_rules[] = {
    [TENSOR_NAME] = KEY_WORD("name", raw_tensor, name),
    [TENSOR_SHAPE] = {.name = "shape", .kinds = ACCEPT(JSON_ARRAY)},
    [TENSOR_DTYPE] = KEY_DTYPE("dtype", raw_tensor, dtype),
    [TENSOR_DTYPE + 1] = KEY_BOOL("persistent", raw_tensor, persistent),
};

typedef enum input_key { INPUT_DTYPE, INPUT_SHAPE, INPUT_KEYS } input_key;

static const key_rule input_rules[INPUT_KEYS] = {
    [INPUT_DTYPE] = KEY_DTYPE("dtype", raw_input, dtype),
    [INPUT_SHAPE] = {.name = "shape", .kinds = ACCEPT(JSON_ARRAY)},
};

static fsdpck_status refuse_inputs(size_t offset_bytes, const char *found, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("'all_gather' is not a list of inputs"),
                     (offset, offset_bytes),
                     (expected, "[{\"dtype\": ..., \"shape\": [...]}, ...]"), (found, "%s", found));
}

static fsdpck_status read_input(model_reader *r, size_t offset_bytes, fsdpck_error *err)
{
    unsigned seen = 0;
    raw_input input = {0};
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(model_next_key(r, "'all_gather'", input_rules, INPUT_KEYS, &input, &seen, &key,
                                 &value, err));
        if (key < 0)
            break;
        RETURN_IF(model_get_sizes(r, &input.shape_at, &input.ndim, err));
    }
    if (seen != (BIT(INPUT_DTYPE) | BIT(INPUT_SHAPE)))
        return refuse_inputs(offset_bytes, "an input without dtype or shape", err);
    return vec_add(&r->inputs, &input, err);
}

static fsdpck_status read_inputs(model_reader *r, raw_tensor *raw, const json_token *value,
                                 fsdpck_error *err)
{
    const size_t offset_bytes = value->offset_bytes;
    raw->first_input = (uint32_t)r->inputs.count;
    for (;;) {
        json_token t;
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            break;
        if (t.kind != JSON_OBJECT)
            return refuse_inputs(t.offset_bytes, "a different type", err);
        RETURN_IF(read_input(r, t.offset_bytes, err));
        raw->ninputs++;
    }
    return raw->ninputs > 0 ? FSDPCK_OK : refuse_inputs(offset_bytes, "an empty list", err);
}

/* Checks that all required keys are present. */
static fsdpck_status check_whole(const raw_tensor *raw, const char *what, fsdpck_error *err)
{
    const char *missing = NULL;
    if (!(raw->seen & BIT(TENSOR_NAME)))
        missing = "name";
    else if (!(raw->seen & (BIT(TENSOR_SHAPE) | BIT(TENSOR_SAME_AS))))
        missing = "shape";
    else if (!(raw->seen & (BIT(TENSOR_DTYPE) | BIT(TENSOR_SAME_AS))))
        missing = "dtype";
    if (missing != NULL)
        return FAIL_WITH(err, BADINPUT, MODEL_KEY, ("%s has no '%s'", what, missing),
                         (offset, raw->offset_bytes), (expected, "'%s'", missing),
                         (found, "no such key"));
    if (raw->seen & BIT(TENSOR_STRIDES) &&
        (!(raw->seen & BIT(TENSOR_SHAPE)) || raw->nstrides != raw->ndim))
        return FAIL_WITH(
            err, BADINPUT, MODEL_SHAPE, ("%s has a wrong number of strides", what),
            (offset, raw->offset_bytes),
            (expected, "%u stride%s, one for each size", raw->ndim, text_plural(raw->ndim)),
            (found, "%u", raw->nstrides));
    return FSDPCK_OK;
}

static fsdpck_status read_tensor(model_reader *r, bool buffer, raw_tensor *raw, fsdpck_error *err)
{
    const char *what = buffer ? "buffer" : "parameter";
    const key_rule *rules = buffer ? buffer_rules : param_rules;
    const unsigned nrules =
        buffer ? sizeof buffer_rules / sizeof *rules : sizeof param_rules / sizeof *rules;
    for (;;) {
        int key;
        json_token value;
        RETURN_IF(model_next_key(r, what, rules, nrules, raw, &raw->seen, &key, &value, err));
        if (key < 0)
            break;
        if (key == TENSOR_SHAPE)
            RETURN_IF(model_get_sizes(r, &raw->shape_at, &raw->ndim, err));
        else if (key == TENSOR_STRIDES)
            RETURN_IF(model_get_sizes(r, &raw->strides_at, &raw->nstrides, err));
        else
            RETURN_IF(read_inputs(r, raw, &value, err));
    }
    if (buffer)
        raw->seen &= BIT(TENSOR_NAME) | BIT(TENSOR_SHAPE) | BIT(TENSOR_DTYPE);
    RETURN_IF(text_check(&r->words, err));
    return check_whole(raw, what, err);
}

fsdpck_status model_read_tensors(model_reader *r, bool buffers, fsdpck_error *err)
{
    for (;;) {
        json_token t;
        RETURN_IF(json_next(&r->json, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_OBJECT)
            return FAIL_WITH(err, BADINPUT, MODEL_KEY,
                             ("list of tensors contains an item that is not an object"),
                             (offset, t.offset_bytes), (expected, "an object for each tensor"),
                             (found, "a different type"));
        raw_tensor raw = {.requires_grad = true,
                          .persistent = true,
                          .shard_dim = UINT8_MAX,
                          .offset_bytes = t.offset_bytes};
        const fsdpck_status st = read_tensor(r, buffers, &raw, err);
        if (st != FSDPCK_OK) {
            if (raw.seen & BIT(TENSOR_NAME) && !r->words.failed)
                error_tensor(err, model_word(r, &raw.name));
            return st;
        }
        RETURN_IF(vec_add(buffers ? &r->buffers : &r->params, &raw, err));
    }
}

/* Checks the name of a tensor in its module: torch accepts neither dots nor an empty name. */
static fsdpck_status build_fqn(model_reader *r, uint32_t module, const raw_tensor *raw,
                               fsdpck_error *err)
{
    const char *local = model_word(r, &raw->name);
    size_t path_nbytes;
    const char *path = model_state_path(r->m, model_module_at(r->m, module), &path_nbytes);
    r->fqn.nbytes = 0;
    text_append(&r->fqn, path, path_nbytes);
    if (path_nbytes > 0)
        text_append(&r->fqn, ".", 1);
    text_append(&r->fqn, local, raw->name.nbytes);
    RETURN_IF(text_check(&r->fqn, err));
    if (raw->name.nbytes > 0 && memchr(local, '.', raw->name.nbytes) == NULL)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MODEL_NAME, ("invalid tensor name"),
                     (offset, raw->name.offset_bytes), (tensor, r->fqn.text),
                     (expected, "a name in its module, without dots"),
                     (found, raw->name.nbytes == 0 ? "an empty name" : "a dot"));
}

static const uint64_t *numbers_at(const model_reader *r, uint32_t at)
{
    static const uint64_t none;
    return r->numbers.count == 0 ? &none : VEC_AT(&r->numbers, const uint64_t, at);
}

/* Counts elements of a parameter, and of all so far. */
static fsdpck_status count_elements(model_reader *r, const raw_tensor *raw, bool parameter,
                                    fsdpck_error *err)
{
    uint64_t nelems;
    uint64_t total = 0;
    if (checked_product(numbers_at(r, raw->shape_at), raw->ndim, &nelems) && nelems <= INT64_MAX &&
        (!parameter || (checked_add(r->m->nelems, nelems, &total) && total <= INT64_MAX))) {
        if (parameter)
            r->m->nelems = total;
        return FSDPCK_OK;
    }
    return FAIL_WITH(err, BADINPUT, MODEL_SHAPE, ("sizes do not fit 63 bits"),
                     (offset, raw->offset_bytes),
                     (expected, "at most %" PRId64 " elements in all", INT64_MAX), (found, "more"));
}

static fsdpck_status refuse_tie(const raw_tensor *raw, const char *expected, const char *found,
                                fsdpck_error *err)
{
    return FAIL_WITH(
        err, BADINPUT, MODEL_TIE, ("parameter does not match the one that its 'same_as' names"),
        (offset, raw->same_as.offset_bytes), (expected, "%s", expected), (found, "%s", found));
}

/* Checks that the stated properties of a tied parameter agree with the first one. */
static fsdpck_status tie(model_reader *r, const raw_tensor *raw, model_param *p, fsdpck_error *err)
{
    char shown[128];
    const char *name = model_word(r, &raw->same_as);
    escape_text(shown, sizeof shown, name, raw->same_as.nbytes);
    uint32_t first = model_find_param(r->m, name, raw->same_as.nbytes);
    if (first == MODEL_NONE)
        return refuse_tie(raw, "the full name of an earlier parameter", shown, err);
    first = model_param_first(r->m, first);
    const model_param *f = model_param_at(r->m, first);
    if (raw->seen & BIT(TENSOR_DTYPE) && raw->dtype != f->dtype)
        return refuse_tie(raw, dtype_get(f->dtype)->name, dtype_get(raw->dtype)->name, err);
    if (raw->seen & BIT(TENSOR_SHAPE) &&
        (raw->ndim != f->ndim ||
         memcmp(numbers_at(r, raw->shape_at), model_shape(r->m, f->shape_at),
                f->ndim * sizeof(uint64_t)) != 0))
        return refuse_tie(raw, "the same shape", "another shape", err);
    p->same_as = first;
    p->dtype = f->dtype;
    p->ndim = f->ndim;
    p->strided = f->strided;
    p->shape_at = f->shape_at;
    return FSDPCK_OK;
}

/* Adds the inputs of the next parameter. */
static fsdpck_status add_inputs(model_reader *r, const raw_tensor *raw, fsdpck_error *err)
{
    model *m = r->m;
    if (raw->ninputs > 0 && raw->seen & BIT(TENSOR_SAME_AS))
        return refuse_inputs(raw->offset_bytes, "one on a name with 'same_as'", err);
    for (uint32_t i = 0; i < raw->ninputs; i++) {
        const raw_input *from = VEC_AT(&r->inputs, const raw_input, raw->first_input + i);
        const raw_tensor sizes = {
            .ndim = from->ndim, .shape_at = from->shape_at, .offset_bytes = raw->offset_bytes};
        RETURN_IF(count_elements(r, &sizes, false, err));
        const model_input input = {.param = (uint32_t)m->params.count,
                                   .dtype = from->dtype,
                                   .ndim = from->ndim,
                                   .shape_at = m->dims.count};
        RETURN_IF(vec_add(&m->inputs, &input, err));
        RETURN_IF(vec_add_n(&m->dims, numbers_at(r, from->shape_at), from->ndim, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status add_param(model_reader *r, uint32_t module, const raw_tensor *raw,
                               fsdpck_error *err)
{
    model *m = r->m;
    model_param p = {.module = module,
                     .same_as = MODEL_NONE,
                     .same_slot = MODEL_NONE,
                     .next_name = MODEL_NONE,
                     .dtype = raw->dtype,
                     .ndim = raw->ndim,
                     .requires_grad = raw->requires_grad,
                     .ignored = raw->ignored,
                     .flattened = raw->flattened,
                     .strided = (raw->seen & BIT(TENSOR_STRIDES)) != 0,
                     .shard_dim = raw->shard_dim};
    if (raw->seen & BIT(TENSOR_SAME_AS)) {
        RETURN_IF(tie(r, raw, &p, err));
    } else {
        p.shape_at = m->dims.count;
        RETURN_IF(count_elements(r, raw, true, err));
        RETURN_IF(vec_add_n(&m->dims, numbers_at(r, raw->shape_at), raw->ndim, err));
        if (p.strided)
            RETURN_IF(vec_add_n(&m->dims, numbers_at(r, raw->strides_at), raw->ndim, err));
    }
    RETURN_IF(add_inputs(r, raw, err));
    if (p.shard_dim != UINT8_MAX && p.shard_dim >= p.ndim)
        return FAIL_WITH(err, BADINPUT, MODEL_SHAPE, ("'shard_dim' is not a dim of its parameter"),
                         (offset, raw->offset_bytes), (expected, "less than %u", p.ndim),
                         (found, "%u%s", p.shard_dim, p.shard_dim == NDIM_MAX ? " or more" : ""));
    return model_add_param(r, module, &p, err);
}

static fsdpck_status add_buffer(model_reader *r, uint32_t module, const raw_tensor *raw,
                                fsdpck_error *err)
{
    model *m = r->m;
    model_buffer b = {.module = module,
                      .same_as = MODEL_NONE,
                      .dtype = raw->dtype,
                      .ndim = raw->ndim,
                      .persistent = raw->persistent,
                      .shape_at = m->dims.count};
    RETURN_IF(count_elements(r, raw, false, err));
    RETURN_IF(vec_add_n(&m->dims, numbers_at(r, raw->shape_at), raw->ndim, err));
    RETURN_IF(model_add_name(m, r->fqn.text, r->fqn.nbytes, MODEL_USE_BUFFER, m->buffers.count,
                             &b.name, err));
    RETURN_IF(model_add_walk_name(r, module, MODEL_USE_BUFFER, m->buffers.count, b.name, err));
    return vec_add(&m->buffers, &b, err);
}

fsdpck_status model_add_tensors(model_reader *r, uint32_t module, fsdpck_error *err)
{
    for (size_t i = 0; i < r->params.count + r->buffers.count; i++) {
        const bool buffer = i >= r->params.count;
        const raw_tensor *raw = buffer ? VEC_AT(&r->buffers, raw_tensor, i - r->params.count)
                                       : VEC_AT(&r->params, raw_tensor, i);
        fsdpck_status st = build_fqn(r, module, raw, err);
        if (st == FSDPCK_OK)
            st = buffer ? add_buffer(r, module, raw, err) : add_param(r, module, raw, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, r->fqn.text);
            if (st == FSDPCK_BADINPUT)
                error_offset(err, raw->offset_bytes);
            return st;
        }
    }
    return FSDPCK_OK;
}
