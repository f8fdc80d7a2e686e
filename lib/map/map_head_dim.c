/* map_head_dim.c: the rows of a head, by other things than numbers of heads: config.json, the arguments of the
 * training, params.json, and tensors. Numbers of heads that are all wrong by one factor divide the rows too. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "map/map_adapter.h"
#include "map/map_internal.h"

static const char heads_key[] = "num_attention_heads", kv_heads_key[] = "num_key_value_heads";

static bool has_key(const tensor_map *m, const map_variable_def *v, const char *name)
{
    for (uint32_t i = 0; i < v->nkeys; i++) {
        const uint32_t key = *VEC_AT(&m->keys, const uint32_t, v->first_key + i);
        if (strtab_is(&m->texts, key, name, strlen(name)))
            return true;
    }
    return false;
}

bool map_counts_heads(const tensor_map *m, const map_variable_def *v)
{
    return v->is_set && (has_key(m, v, heads_key) || has_key(m, v, kv_heads_key));
}

/* Models with the head_dim hidden_size / num_attention_heads where config.json lacks it; others, such as
 * qwen3 and gemma, have a constant. */
static bool divides_hidden_size(const char *model_type)
{
    static const char *const types[] = {"llama", "mistral",   "mixtral",  "phi3",
                                        "qwen2", "qwen2_moe", "qwen3_moe"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i], model_type) == 0)
            return true;
    return false;
}

uint64_t map_head_dim(const tensor_map *m, const char **from)
{
    const bool at_top = m->top.hidden_size > 0;
    const map_config_sizes *sizes = at_top ? &m->top : &m->nested;
    const uint64_t hidden = sizes->hidden_size, heads = sizes->num_attention_heads;
    *from = "'head_dim' of config.json";
    if (m->head_dim > 0)
        return m->head_dim;
    if (m->head_rows > 0) {
        *from = m->head_rows_from;
        return m->head_rows;
    }
    if (heads == 0 || hidden % heads != 0 ||
        !divides_hidden_size(at_top ? m->model_type : m->nested_model_type))
        return 0;
    *from = "'hidden_size' / 'num_attention_heads' of config.json";
    return hidden / heads;
}

/* --- tensors --- */

/* A tensor that shows the rows of a head. */
typedef struct head_witness {
    const char *name; /* NULL: none */
    uint64_t rows;
} head_witness;

static uint64_t heads_of(const tensor_map *m, const char *first_key)
{
    for (size_t i = 0; i < m->variables.count; i++) {
        const map_variable_def *v = VEC_AT(&m->variables, const map_variable_def, i);
        if (v->is_set && v->nkeys > 0 &&
            strtab_is(&m->texts, *VEC_AT(&m->keys, const uint32_t, v->first_key), first_key,
                      strlen(first_key)))
            return v->value;
    }
    return 0;
}

/* Only such maps are known to rotate all rows of a head. */
static bool rotates(const tensor_map *m)
{
    for (size_t i = 0; i < m->ops.count; i++) {
        const map_op_kind kind = VEC_AT(&m->ops, const map_op, i)->kind;
        if (kind == MAP_OP_ROPE || kind == MAP_OP_UNROPE)
            return true;
    }
    return false;
}

/* Frequencies of pairs of rows, or cosines and sines of them for each position as complex numbers. */
static bool is_rotary(const catalogue *cat, uint32_t tensor, const char *name, size_t nbytes)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    if (text_ends_with(name, nbytes, "rotary_emb.inv_freq") ||
        text_ends_with(name, nbytes, "rope.freqs"))
        return t->ndim == 1;
    return t->ndim == 2 && text_ends_with(name, nbytes, "freqs_cis") &&
           dtype_get((dtype)t->dtype)->kind == DTYPE_IS_COMPLEX;
}

static head_witness find_rotary(const catalogue *cat, const map_input *inputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const cat_tensor *t = catalogue_tensor(cat, inputs[i].tensor);
        uint64_t rows;
        if (is_rotary(cat, inputs[i].tensor, inputs[i].name, inputs[i].nbytes) &&
            checked_mul(2, catalogue_shape(cat, inputs[i].tensor)[t->ndim - 1], &rows))
            return (head_witness){inputs[i].name, rows};
    }
    return (head_witness){0};
}

/* "layers.0.self_attn.q_norm.weight" beside "layers.0.self_attn.q_proj.weight"; a norm of all heads at once
 * shows nothing. */
static fsdpck_status find_norm(const catalogue *model, const char *projection, text_buf *name,
                               head_witness *norm, fsdpck_error *err)
{
    static const char end[] = "proj.weight";
    *norm = (head_witness){0};
    name->nbytes = 0;
    text_append(name, projection, strlen(projection) - strlen(end));
    text_puts(name, "norm.weight");
    RETURN_IF(text_check(name, err));
    const uint32_t i = catalogue_find(model, name->text, name->nbytes);
    if (i != CAT_NONE && catalogue_tensor(model, i)->ndim == 1)
        *norm = (head_witness){name->text, catalogue_shape(model, i)[0]};
    return FSDPCK_OK;
}

static fsdpck_status compare(const head_witness *w, const char *projection, uint64_t rows,
                             uint64_t heads, fsdpck_error *err)
{
    if (w->name == NULL || w->rows == rows / heads || w->rows == rows)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, MAP_SHAPE,
                     ("'%s' implies %" PRIu64 " row%s for each head, but '%s' has %" PRIu64,
                      w->name, w->rows, text_plural(w->rows), projection, rows / heads),
                     (tensor, projection),
                     (expected, "%" PRIu64 " row%s for each head", w->rows, text_plural(w->rows)),
                     (found, "%" PRIu64 " row%s and %" PRIu64 " head%s", rows, text_plural(rows),
                      heads, text_plural(heads)),
                     (next, "check the numbers of heads: give the config.json of this model with "
                            "--config, or the numbers with --map-set"));
}

fsdpck_status map_check_head_tensors(const tensor_map *m, const catalogue *model,
                                     const catalogue *base, const map_input *inputs, size_t count,
                                     fsdpck_error *err)
{
    static const char query[] = ".self_attn.q_proj.weight", key[] = ".self_attn.k_proj.weight";
    const uint64_t q_heads = heads_of(m, heads_key), k_heads = heads_of(m, kv_heads_key);
    const head_witness rotary = rotates(m) ? find_rotary(base, inputs, count) : (head_witness){0};
    text_buf other = {.limit_bytes = 1 << 16};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; i < catalogue_tensor_count(model) && st == FSDPCK_OK; i++) {
        const cat_tensor *t = catalogue_tensor(model, i);
        const char *name = catalogue_name(model, t->name);
        const size_t nbytes = catalogue_name_nbytes(model, t->name);
        const uint64_t heads = text_ends_with(name, nbytes, query) ? q_heads
                               : text_ends_with(name, nbytes, key) ? k_heads
                                                                   : 0;
        head_witness norm;
        if (heads == 0 || t->ndim != 2 || catalogue_shape(model, i)[0] % heads != 0)
            continue;
        st = compare(&rotary, name, catalogue_shape(model, i)[0], heads, err);
        if (st == FSDPCK_OK)
            st = find_norm(model, name, &other, &norm, err);
        if (st == FSDPCK_OK)
            st = compare(&norm, name, catalogue_shape(model, i)[0], heads, err);
    }
    text_release(&other);
    return st;
}
