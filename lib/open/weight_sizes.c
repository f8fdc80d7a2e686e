/* Weights without their elements: placeholders of ZeRO 3, slices of FSDP1 under the names of parameters, and
 * tensors that contradict the sizes in config.json. */
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"
#include "model/weight_role.h"
#include "open/checkpoint.h"
#include "open/config_shapes.h"
#include "open/layer_gaps.h"
#include "open/model_view.h"
#include "open/weights_names.h"

/* Quantized ones are packed. */
static weight_role role_of(const catalogue *c, size_t tensor)
{
    const cat_tensor *t = catalogue_tensor(c, tensor);
    if (!dtype_can_add(t->dtype))
        return WEIGHT_OTHER;
    return weight_role_of(catalogue_name(c, t->name));
}

static bool is_empty(const catalogue *c, size_t tensor)
{
    for (unsigned d = 0; d < catalogue_tensor(c, tensor)->ndim; d++)
        if (catalogue_shape(c, tensor)[d] == 0)
            return true;
    return false;
}

static bool is_of_model(const fsdpck_checkpoint *c, size_t tensor)
{
    return tensor < c->parts.tensor_count && c->parts.tensor_part[tensor] == PART_MODEL;
}

bool checkpoint_has_placeholders(const fsdpck_checkpoint *c, uint64_t *empty, uint64_t *weights)
{
    bool sliced = false;
    *empty = *weights = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        if (!is_of_model(c, i) ||
            !text_ends_with(catalogue_name(&c->cat, t->name),
                            catalogue_name_nbytes(&c->cat, t->name), ".weight"))
            continue;
        ++*weights;
        *empty += is_empty(&c->cat, i);
        sliced = sliced || (t->ndim == 1 && role_of(&c->cat, i) == WEIGHT_TABLE);
    }
    return *empty > 0 && *weights > 1 && (sliced || *empty >= *weights - *empty);
}

void checkpoint_warn_placeholders(const fsdpck_checkpoint *c)
{
    uint64_t empty, weights;
    if (checkpoint_has_placeholders(c, &empty, &weights))
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_EMPTY,
                 "use a checkpoint with the values: save again with the gathered state dict",
                 "%" PRIu64 " of %" PRIu64
                 " weights have no elements: placeholders of ZeRO 3 or FSDP",
                 empty, weights);
}

/* --- config.json --- */

typedef enum size_verdict { SIZE_UNKNOWN, SIZE_AGREES, SIZE_DIFFERS, SIZE_IS_SLICE } size_verdict;

/* A resized vocabulary and a factorized embedding agree: one dim is as stated. */
static size_verdict judge(const catalogue *c, const model_config *config, size_t tensor)
{
    const uint64_t hidden = config->numbers[MODEL_HIDDEN_SIZE],
                   vocab = config->numbers[MODEL_VOCAB_SIZE];
    const weight_role role = role_of(c, tensor);
    const uint64_t *shape = catalogue_shape(c, tensor);
    const unsigned ndim = catalogue_tensor(c, tensor)->ndim;
    if (role == WEIGHT_OTHER || hidden == 0 || (role == WEIGHT_TABLE && vocab == 0))
        return SIZE_UNKNOWN;
    if (is_empty(c, tensor) || (role == WEIGHT_TABLE && ndim == 1))
        return SIZE_IS_SLICE;
    if (role == WEIGHT_NORM)
        return ndim == 1 && shape[0] == hidden ? SIZE_AGREES : SIZE_UNKNOWN;
    if (ndim != 2)
        return SIZE_UNKNOWN;
    return shape[1] == hidden || shape[0] == vocab ? SIZE_AGREES : SIZE_DIFFERS;
}

static fsdpck_status fail_size(const fsdpck_checkpoint *c, const model_config *config,
                               size_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, tensor);
    text_buf is = {0};
    for (unsigned d = 0; d < t->ndim; d++)
        text_printf(&is, "%s%" PRIu64, d == 0 ? "" : ", ", catalogue_shape(&c->cat, tensor)[d]);
    fsdpck_status st = text_check(&is, err);
    if (st == FSDPCK_OK) {
        st = FAIL_WITH(
            err, BADINPUT, EXPORT_CONFIG,
            ("'%s' of config.json contradicts the tensors", config->number_keys[MODEL_HIDDEN_SIZE]),
            (path_in, c->path, "config.json"), (tensor, catalogue_name(&c->cat, t->name)),
            (found, "shape [%s]", is.text == NULL ? "" : is.text),
            (next, "save the gathered state dict if the tensors are empty or slices; "
                   "otherwise use the config.json of this model"));
        if (role_of(&c->cat, tensor) == WEIGHT_NORM)
            error_expected(err, "shape [%" PRIu64 "]", config->numbers[MODEL_HIDDEN_SIZE]);
        else
            error_expected(err, "shape [%" PRIu64 ", %" PRIu64 "]",
                           config->numbers[MODEL_VOCAB_SIZE], config->numbers[MODEL_HIDDEN_SIZE]);
    }
    text_release(&is);
    return st;
}

/* Norms of other sizes are usual. Embeddings that differ are doubted only where no tensor has the stated ones. */
static fsdpck_status check_sizes(const fsdpck_checkpoint *c, const model_config *config,
                                 fsdpck_error *err)
{
    size_t differing = SIZE_MAX;
    bool agrees = false;
    for (size_t i = 0; i < catalogue_tensor_count(&c->cat); i++) {
        const size_verdict v = is_of_model(c, i) ? judge(&c->cat, config, i) : SIZE_UNKNOWN;
        if (v == SIZE_IS_SLICE)
            return fail_size(c, config, i, err);
        agrees = agrees || v == SIZE_AGREES;
        if (v == SIZE_DIFFERS && differing == SIZE_MAX)
            differing = i;
    }
    return agrees || differing == SIZE_MAX ? FSDPCK_OK : fail_size(c, config, differing, err);
}

/* An adapter under the name of a model. PEFT's own folders have its config, and other names. */
static bool is_adapter_only(const fsdpck_checkpoint *c)
{
    const size_t count = catalogue_tensor_count(&c->cat);
    path_kind kind = PATH_ABSENT;
    if (count == 0 || catalogue_file_count(&c->cat) == 0 ||
        !checkpoint_is_weights_name(text_file_name(
            c->probe.is_folder ? catalogue_name(&c->cat, catalogue_file(&c->cat, 0)->path)
                               : c->probe.path)) ||
        path_probe(&c->probe.dir, "adapter_config.json", &kind, NULL, NULL) != FSDPCK_OK)
        return false;
    return kind == PATH_ABSENT && adapters_count_tensors(&c->cat) == count;
}

/* Objects that are not loaded may have the tensors of a layer. */
static bool has_unread(const fsdpck_checkpoint *c)
{
    for (size_t i = 0; i < c->parts.object_count; i++)
        if (c->parts.object_part[i] == PART_MODEL && !catalogue_object(&c->cat, i)->loaded)
            return true;
    return false;
}

/* Weights as transformers saves them: a folder, or the one file of a folder. */
static bool is_export(const fsdpck_checkpoint *c)
{
    return c->probe.is_folder ? c->format->of_model : checkpoint_is_weights_name(c->probe.name);
}

/* A trainer's checkpoint has its own names, and may have a part of the model on purpose, as adapters are. */
static bool may_be_judged(const fsdpck_checkpoint *c, const model_view *v, bool has_adapters)
{
    return is_export(c) || (v->config.model_type[0] != '\0' && !has_unread(c) && !has_adapters &&
                            flat_params_count(&c->cat, NULL) == 0);
}

static fsdpck_status check_model(fsdpck_checkpoint *c, fsdpck_error *err)
{
    model_view v;
    RETURN_IF(model_view_open(&v, c, err));
    const bool has_adapters = adapters_are_likely(&v.cat);
    fsdpck_status st = FSDPCK_OK;
    if (v.config.text != NULL && is_export(c) && is_adapter_only(c)) {
        layer_gaps_warn_none(&v.config, &c->ctx->log);
    } else if (v.config.text != NULL && may_be_judged(c, &v, has_adapters)) {
        st = layer_gaps_warn(&v.cat, &v.config, is_export(c), &c->ctx->log, err);
        if (st == FSDPCK_OK && !has_adapters)
            config_shapes_warn(&v.cat, &v.config, &c->ctx->log);
        if (is_export(c))
            config_shapes_warn_dense(&v.cat, &v.config, c->path, &c->ctx->log);
    }
    model_view_release(&v);
    return st;
}

/* An unreadable config.json is reported where it is needed. */
static fsdpck_status check_config(fsdpck_checkpoint *c, fsdpck_error *err)
{
    model_config config;
    fsdpck_status st = model_config_read(&c->probe.dir, &config, NULL);
    if (st == FSDPCK_OK && config.text != NULL) {
        st = check_sizes(c, &config, err);
        if (st == FSDPCK_OK && c->format->of_model)
            st = checkpoint_warn_scales(c, &config, err);
    } else {
        st = FSDPCK_OK;
    }
    model_config_release(&config);
    return st;
}

fsdpck_status checkpoint_check_sizes(fsdpck_checkpoint *c, fsdpck_error *err)
{
    while (c->base != NULL && c->average == NULL)
        c = c->base;
    if (c->base != NULL)
        return FSDPCK_OK;
    if (c->probe.is_folder)
        RETURN_IF(check_config(c, err));
    return check_model(c, err);
}
