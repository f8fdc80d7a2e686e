#include "open/config_shapes.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "open/model_embedding.h"

/* More are read as this many: no product overflows. */
#define NUMBER_MAX (UINT64_C(1) << 24)

static const char advice[] = "use the config.json of this model, or correct it";

typedef enum has_norms { NORMS_NO, NORMS_YES, NORMS_MAYBE } has_norms;

/* Types with q_proj, k_proj and v_proj of heads, and gate_proj and up_proj of the intermediate size, in all layers. */
static const struct plain_type {
    const char *type;
    bool
        divides; /* without "head_dim", hidden_size is divided by the heads; others have a default */
    has_norms norms; /* q_norm, which a loader of another type omits or fills with ones */
} plain_types[] = {
    {"cohere", true, NORMS_MAYBE},     {"gemma", false, NORMS_NO},  {"gemma2", false, NORMS_NO},
    {"gemma3_text", false, NORMS_YES}, {"granite", true, NORMS_NO}, {"llama", true, NORMS_NO},
    {"mistral", true, NORMS_NO},       {"olmo", true, NORMS_NO},    {"olmo2", true, NORMS_YES},
    {"olmo3", true, NORMS_YES},        {"qwen2", true, NORMS_NO},   {"qwen3", false, NORMS_YES},
    {"smollm3", true, NORMS_NO},
};

typedef struct projection {
    const char *end; /* of its name */
    model_number number;
    bool of_heads; /* rows: number * head_dim */
} projection;

static const projection projections[] = {
    {".self_attn.q_proj.weight", MODEL_HEADS, true},
    {".self_attn.k_proj.weight", MODEL_KEY_HEADS, true},
    {".self_attn.v_proj.weight", MODEL_KEY_HEADS, true},
    {".mlp.gate_proj.weight", MODEL_INTERMEDIATE_SIZE, false},
    {".mlp.up_proj.weight", MODEL_INTERMEDIATE_SIZE, false},
};

static const struct plain_type *type_of(const model_config *config)
{
    for (size_t i = 0; i < sizeof plain_types / sizeof *plain_types; i++)
        if (strcmp(plain_types[i].type, config->model_type) == 0)
            return &plain_types[i];
    return NULL;
}

static uint64_t number_of(const model_config *config, model_number number)
{
    const uint64_t n = config->numbers[number];
    return n < NUMBER_MAX ? n : NUMBER_MAX;
}

static const char *name_of(const catalogue *c, size_t tensor)
{
    return catalogue_name(c, catalogue_tensor(c, tensor)->name);
}

static bool is_matrix(const catalogue *c, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    return t->ndim == 2 && dtype_can_add(t->dtype);
}

/* ---- the embedding ---- */

/* Other members of config.json, such as "word_embed_proj_dim" of OPT and "decoder_vocab_size" of Marian, may have its size. */
static bool is_of_other_size(const char *type)
{
    static const char *const types[] = {"kyutai_speech_to_text", "marian", "neomme", "opt"};
    return TEXT_IS_IN(type, strlen(type), types);
}

/* Returns whether there is a contradiction. */
static bool warn_embedding(const catalogue *c, const model_config *config, const logger *log)
{
    const uint64_t stated[] = {config->numbers[MODEL_VOCAB_SIZE],
                               config->numbers[MODEL_HIDDEN_SIZE]};
    const uint32_t e = model_embedding_find_named(c, config);
    if (e == CAT_NONE || stated[0] == 0 || stated[1] == 0 || !is_matrix(c, e) ||
        shape_equal(catalogue_shape(c, e), 2, stated, 2) || is_of_other_size(config->model_type))
        return false;
    log_warn(log, FSDPCK_FINDING_EXPORT_CONFIG, advice,
             "config.json contradicts the tensors: '%s' and '%s' are %" PRIu64 " and %" PRIu64
             ", but '%s' has shape [%" PRIu64 ", %" PRIu64 "]; a loader refuses it",
             config->number_keys[MODEL_VOCAB_SIZE], config->number_keys[MODEL_HIDDEN_SIZE],
             stated[0], stated[1], name_of(c, e), catalogue_shape(c, e)[0],
             catalogue_shape(c, e)[1]);
    return true;
}

/* ---- layers ---- */

/* Other stacks may be those of another model, such as a teacher. */
static bool is_in_layer(const char *name)
{
    return text_begins(name, "model.layers.") || text_begins(name, "layers.");
}

/* 0: not stated. */
static uint64_t rows_of(const struct plain_type *type, const model_config *config,
                        const projection *p)
{
    const uint64_t number = number_of(config, p->number), heads = number_of(config, MODEL_HEADS);
    uint64_t head_dim = number_of(config, MODEL_HEAD_DIM);
    if (!p->of_heads)
        return number;
    if (head_dim == 0 && type->divides && heads > 0)
        head_dim = number_of(config, MODEL_HIDDEN_SIZE) / heads;
    return number * head_dim;
}

static bool warn_projection(const struct plain_type *type, const catalogue *c, size_t tensor,
                            const model_config *config, const logger *log)
{
    const char *name = name_of(c, tensor);
    const uint64_t *shape = catalogue_shape(c, tensor);
    for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) {
        const projection *p = &projections[i];
        const uint64_t rows = rows_of(type, config, p);
        if (!text_ends_with(name, strlen(name), p->end) || rows == 0 || rows == shape[0])
            continue;
        log_warn(log, FSDPCK_FINDING_EXPORT_CONFIG, advice,
                 "config.json contradicts the tensors: by '%s'%s, '%s' has %" PRIu64
                 " rows, but its shape is [%" PRIu64 ", %" PRIu64 "]; a loader refuses it",
                 config->number_keys[p->number], p->of_heads ? " and the size of a head" : "", name,
                 rows, shape[0], shape[1]);
        return true;
    }
    return false;
}

static void warn_norms(const struct plain_type *type, const logger *log)
{
    log_warn(
        log, FSDPCK_FINDING_EXPORT_CONFIG, advice,
        type->norms == NORMS_YES
            ? "config.json contradicts the tensors: attention of type '%s' has q_norm, which no "
              "layer has; a loader fills it with other values"
            : "config.json contradicts the tensors: attention of type '%s' has no q_norm, which "
              "the layers have; a loader omits it",
        type->type);
}

static void warn_layers(const struct plain_type *type, const catalogue *c,
                        const model_config *config, const logger *log)
{
    bool has_projection = false, has_norm = false;
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const char *name = name_of(c, i);
        const size_t nbytes = strlen(name);
        if (!is_in_layer(name))
            continue;
        if (is_matrix(c, i) && warn_projection(type, c, i, config, log))
            return;
        has_projection = has_projection || text_ends_with(name, nbytes, ".self_attn.q_proj.weight");
        has_norm = has_norm || text_ends_with(name, nbytes, ".self_attn.q_norm.weight");
    }
    if (has_projection && type->norms != NORMS_MAYBE && has_norm != (type->norms == NORMS_YES))
        warn_norms(type, log);
}

void config_shapes_warn(const catalogue *c, const model_config *config, const logger *log)
{
    const struct plain_type *type = type_of(config);
    if (config->stated_ties.has_nested || config->has_auto_map || config->is_quantized)
        return;
    if (!warn_embedding(c, config, log) && type != NULL)
        warn_layers(type, c, config, log);
}

/* ---- modules of sentence-transformers ---- */

void config_shapes_warn_dense(const catalogue *c, const model_config *config, const char *path,
                              const logger *log)
{
    static const char weight[] = "linear.weight", bias[] = "linear.bias";
    const uint64_t stated[] = {config->numbers[MODEL_OUT_FEATURES],
                               config->numbers[MODEL_IN_FEATURES]};
    const uint32_t w = catalogue_find(c, weight, strlen(weight));
    if (config->model_type[0] != '\0' || stated[0] == 0 || stated[1] == 0)
        return;
    if (w == CAT_NONE && catalogue_find(c, bias, strlen(bias)) != CAT_NONE)
        log_warn(log, FSDPCK_FINDING_EXPORT_KEYS, "copy the weights from where they were saved",
                 "'%s': the module lacks '%s', beside '%s'; it cannot be loaded", path, weight,
                 bias);
    if (w != CAT_NONE && is_matrix(c, w) && !shape_equal(catalogue_shape(c, w), 2, stated, 2))
        log_warn(
            log, FSDPCK_FINDING_EXPORT_CONFIG, "use the config.json of this module",
            "'%s': 'out_features' and 'in_features' of config.json are %" PRIu64 " and %" PRIu64
            ", but '%s' has shape [%" PRIu64 ", %" PRIu64 "]; the module cannot be loaded",
            path, stated[0], stated[1], weight, catalogue_shape(c, w)[0], catalogue_shape(c, w)[1]);
}
