#include "lora/lora_extract.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lora/lora_internal.h"
#include "state/catalogue_copy.h"

struct lora_extract {
    const catalogue *base;
    source base_source;
    catalogue *out;
    source source;
    vec chunks; /* uint64_t: chunk of `base`, by cat_chunk.aux */
};

/* ---- the choice ---- */

/* PEFT saves the base weight of a targeted embedding with these names. */
static bool is_saved_embedding(const lora_set *set, const lora_module *m, const lora_config *config)
{
    static const char *const names[] = {"embed_tokens", "lm_head"};
    const char *path = lora_text(set, m->path);
    const size_t n = strlen(path);
    bool named = config == NULL;
    for (size_t i = 0; i < 2 && !named && !config->target_modules.is_regex; i++)
        named =
            strtab_find(&config->target_modules.texts, names[i], strlen(names[i])) != STRTAB_NONE;
    if (m->kind != LORA_EMBEDDING && m->kind != LORA_LINEAR)
        return false;
    for (size_t i = 0; i < 2 && named; i++)
        if (text_ends_with(path, n, names[i]) &&
            (n == strlen(names[i]) || path[n - strlen(names[i]) - 1] == '.'))
            return true;
    return false;
}

/* A state with the adapter alone has no other tensor of the base model than its trained biases. */
static uint32_t bias_of_tensors(const lora_set *set)
{
    uint32_t bias = LORA_BIAS_NONE;
    for (size_t i = 0; i < lora_tensor_count(set) && !set->has_base; i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const char *name = lora_text(set, t->saved);
        if (t->role != LORA_ROLE_BASE || !text_ends_with(name, strlen(name), ".bias"))
            continue;
        if (!text_ends_with(name, strlen(name), ".base_layer.bias"))
            return LORA_BIAS_ALL;
        bias = LORA_BIAS_ONLY;
    }
    return bias;
}

uint32_t lora_bias_of(const lora_set *set, const lora_config *config)
{
    return config != NULL ? config->bias : bias_of_tensors(set);
}

void lora_choose(const lora_set *set, const catalogue *c, uint32_t adapter,
                 const lora_config *config, bool *chosen)
{
    const uint32_t bias = lora_bias_of(set, config);
    bool has_tokens = config != NULL && config->has_tokens;
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        const char *name = lora_text(set, t->saved);
        chosen[i] = t->adapter == adapter || (bias == LORA_BIAS_ALL && t->role == LORA_ROLE_BASE &&
                                              text_ends_with(name, strlen(name), ".bias"));
        has_tokens = has_tokens || (chosen[i] && t->role == LORA_ROLE_TOKENS);
    }
    for (uint32_t i = 0; i < lora_module_count(set); i++) {
        const lora_module *m = lora_module_at(set, i);
        if (m->adapter == adapter && m->tokens != LORA_NONE &&
            lora_tokens_owner(set, c, config, i) != i)
            chosen[m->tokens] = false;
        if (bias == LORA_BIAS_ONLY && m->base_bias != LORA_NONE && m->kind != LORA_SAVED &&
            m->kind != LORA_TOKENS)
            chosen[m->base_bias] = true;
        if (m->adapter != adapter || has_tokens || !is_saved_embedding(set, m, config))
            continue;
        if (m->base_weight != LORA_NONE)
            chosen[m->base_weight] = true;
        if (m->base_bias != LORA_NONE)
            chosen[m->base_bias] = true;
    }
}

/* ---- the second catalogue ---- */

static fsdpck_status add_tensor(lora_extract *x, uint32_t tensor, const char *name, size_t nbytes,
                                fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(x->base, tensor);
    uint32_t made;
    RETURN_IF(catalogue_add_tensor(x->out, name, nbytes, (dtype)t->dtype, t->ndim,
                                   catalogue_shape(x->base, tensor), &made, err));
    cat_tensor *m = catalogue_tensor(x->out, made);
    m->flags = t->flags & ~(CAT_TENSOR_IN_OBJECT | CAT_TENSOR_NAMED);
    m->python = t->python;
    m->spec = t->spec;
    for (uint64_t i = t->first_chunk; i < t->first_chunk + t->nchunks; i++) {
        uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
        cat_chunk k = *catalogue_chunk(x->base, i);
        if (x->chunks.count == UINT32_MAX)
            return FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks");
        k.aux = (uint32_t)x->chunks.count;
        RETURN_IF(vec_add(&x->chunks, &i, err));
        catalogue_chunk_box(x->base, i, offsets, sizes);
        RETURN_IF(catalogue_add_chunk(x->out, made, offsets, sizes, &k, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status fill(lora_extract *x, const lora_set *set, const bool *chosen,
                          fsdpck_error *err)
{
    RETURN_IF(catalogue_copy_frame(x->out, x->base, err));
    for (size_t i = 0; i < lora_tensor_count(set); i++) {
        const lora_tensor *t = lora_tensor_at(set, i);
        if (chosen[i])
            RETURN_IF(add_tensor(x, t->tensor, strtab_text(&set->names, t->saved),
                                 strtab_nbytes(&set->names, t->saved), err));
        else
            RETURN_IF(catalogue_add_skipped(
                x->out, catalogue_name(x->base, catalogue_tensor(x->base, t->tensor)->name),
                catalogue_name_nbytes(x->base, catalogue_tensor(x->base, t->tensor)->name), false,
                catalogue_tensor_nbytes(x->base, t->tensor), VALUE_OF_NONE, err));
    }
    return catalogue_seal(x->out, err);
}

/* ---- the source ---- */

static uint64_t chunk_of(const lora_extract *x, uint64_t chunk)
{
    return *VEC_AT(&x->chunks, const uint64_t, catalogue_chunk(x->out, chunk)->aux);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const lora_extract *x = ctx;
    return x->base_source.locate(x->base_source.ctx, chunk_of(x, chunk), where, err);
}

static fsdpck_status check_empty(void *ctx, uint64_t chunk, fsdpck_error *err)
{
    const lora_extract *x = ctx;
    return x->base_source.check_empty(x->base_source.ctx, chunk_of(x, chunk), err);
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const lora_extract *x = ctx;
    return x->base_source.read_at(x->base_source.ctx, file, offset_bytes, dst, nbytes, err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err)
{
    const lora_extract *x = ctx;
    return x->base_source.stream_open(x->base_source.ctx, chunk_of(x, chunk), s, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const lora_extract *x = ctx;
    return x->base_source.stream_nbytes(x->base_source.ctx, chunk_of(x, chunk));
}

static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const lora_extract *x = ctx;
    return x->base_source.stream_checksum_of(x->base_source.ctx, chunk_of(x, chunk));
}

static fsdpck_status read_box(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    const lora_extract *x = ctx;
    const source *s = &x->base_source;
    return s->read_box(s->ctx, chunk_of(x, chunk), offsets, sizes, dst, err);
}

static const char *replica_of(void *ctx, uint64_t chunk)
{
    const lora_extract *x = ctx;
    return x->base_source.replica_of(x->base_source.ctx, chunk_of(x, chunk));
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const lora_extract *x = ctx;
    return x->base_source.check_unchanged(x->base_source.ctx, err);
}

static void set_source(lora_extract *x)
{
    const source *s = &x->base_source;
    x->source = *s;
    x->source.ctx = x;
    x->source.cat = x->out;
    x->source.locate = locate;
    x->source.read_at = read_at;
    x->source.check_empty = s->check_empty == NULL ? NULL : check_empty;
    x->source.stream_open = s->stream_open == NULL ? NULL : stream_open;
    x->source.read_box = s->read_box == NULL ? NULL : read_box;
    x->source.stream_nbytes = s->stream_nbytes == NULL ? NULL : stream_nbytes;
    x->source.stream_checksum_of = s->stream_checksum_of == NULL ? NULL : stream_checksum_of;
    x->source.replica_of = s->replica_of == NULL ? NULL : replica_of;
    x->source.check_unchanged = s->check_unchanged == NULL ? NULL : check_unchanged;
}

fsdpck_status lora_extract_new(const catalogue *base, const source *src, const lora_set *set,
                               const bool *chosen, catalogue *out, lora_extract **extract,
                               fsdpck_error *err)
{
    lora_extract *x = *extract = calloc(1, sizeof *x);
    if (x == NULL)
        return error_set_nomem(err, sizeof *x);
    *x = (lora_extract){.base = base, .base_source = *src, .out = out};
    x->chunks = VEC_OF(uint64_t, out->owner);
    set_source(x);
    const fsdpck_status st = fill(x, set, chosen, err);
    if (st != FSDPCK_OK) {
        lora_extract_free(x);
        *extract = NULL;
    }
    return st;
}

const source *lora_extract_source(const lora_extract *x)
{
    return &x->source;
}

void lora_extract_free(lora_extract *x)
{
    if (x == NULL)
        return;
    vec_release(&x->chunks);
    free(x);
}
