#include "open/layer_gaps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/layer_groups.h"

/* 'model.layers.3.mlp.up_proj.weight': stack 'model.layers.', number 3, and an id of 'mlp.up_proj.weight'. */
typedef struct layer_tensor {
    uint64_t layer;
    uint32_t suffix;
} layer_tensor;

typedef struct gap_search {
    const catalogue *c;
    const model_config *config;
    const layer_type *type; /* NULL: a model type that is not known */
    bool is_export;
    const logger *log;
    strtab stacks;       /* names up to the numbers */
    layer_groups groups; /* of the main stack */
    bool has_groups;     /* the stack that is searched is the main one, and layers may differ */
    const char *prefix;  /* of the stack that is searched */
    strtab suffixes;
    vec tensors; /* layer_tensor of the stack, sorted */
    uint64_t lost;
    text_buf first; /* name of the first lost tensor */
} gap_search;

/* The stack of most models of text. Only its models have ends of known names, and types that are not in the table. */
static const char layers_prefix[] = "model.layers.";

/* More stacks than models have are no layers. */
enum { STACKS_MAX = 8 };

/* ---- names of layers ---- */

/* Tensors that not all layers of a kind have: a buffer that older releases save in all layers or in one, and what a
 * quantized weight has beside it, as other layers keep theirs. */
static bool is_uneven(const model_config *config, const char *name)
{
    const char *last = strrchr(name, '.');
    if (strstr(name, "inv_freq") != NULL)
        return true;
    return config->is_quantized &&
           (text_begins(last, ".weight_") || strstr(name, ".weight.") != NULL ||
            text_ends_with(name, strlen(name), "_scale"));
}

/* T5 has biases of positions in the first layer alone, UMT5 in all; GPT-NeoX-Japanese has one bias in the last layer. */
static bool is_of_one_layer(const gap_search *s, uint32_t suffix)
{
    const char *name = strtab_text(&s->suffixes, suffix);
    size_t layers = 0;
    if (strstr(name, "relative_attention_bias") == NULL &&
        !text_ends_with(name, strlen(name), ".dense_bias"))
        return false;
    for (size_t i = 0; i < s->tensors.count; i++)
        layers += VEC_AT(&s->tensors, const layer_tensor, i)->suffix == suffix;
    return layers == 1;
}

/* ---- layers of a stack ---- */

/* Kinds of layers that are compared with each other: dense, of experts, with another attention. */
enum { KINDS_MAX = 16 };

typedef struct layer_kind {
    size_t at, count; /* in gap_search.tensors, of its first layer */
    size_t layers;
    uint64_t group; /* of layers that are compared */
} layer_kind;

static int compare_tensors(const void *x, const void *y)
{
    const layer_tensor *a = x, *b = y;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->suffix < b->suffix ? -1 : a->suffix > b->suffix;
}

static fsdpck_status add_tensor(gap_search *s, const char *name, fsdpck_error *err)
{
    const char *digits = name + strlen(s->prefix);
    const char *suffix = digits + strspn(digits, "0123456789") + 1;
    layer_tensor t = {0};
    for (; *digits != '.'; digits++)
        t.layer = t.layer * 10 + (uint64_t)(*digits - '0');
    RETURN_IF(strtab_intern(&s->suffixes, suffix, strlen(suffix), &t.suffix, err));
    return vec_add(&s->tensors, &t, err);
}

static const layer_tensor *tensor_at(const gap_search *s, size_t i)
{
    return VEC_AT(&s->tensors, const layer_tensor, i);
}

static layer_kind layer_from(const gap_search *s, size_t at)
{
    const uint64_t layer = tensor_at(s, at)->layer;
    layer_kind k = {at, 0, 0, s->has_groups ? layer_group(&s->groups, layer) : 0};
    while (at + k.count < s->tensors.count && tensor_at(s, at + k.count)->layer == layer)
        k.count++;
    return k;
}

/* Tensors of `of` that `in` lacks; SIZE_MAX if `in` has one that `of` lacks. *first: the suffix of one. */
static size_t count_lacking(const gap_search *s, const layer_kind *in, const layer_kind *of,
                            uint32_t *first)
{
    size_t i = 0, lacking = 0;
    for (size_t k = 0; k < of->count; k++) {
        const uint32_t wanted = tensor_at(s, of->at + k)->suffix;
        if (i < in->count && tensor_at(s, in->at + i)->suffix < wanted)
            return SIZE_MAX;
        if (i < in->count && tensor_at(s, in->at + i)->suffix == wanted)
            i++;
        else if (lacking++ == 0)
            *first = wanted;
    }
    return i < in->count ? SIZE_MAX : lacking;
}

static void add_lost(gap_search *s, uint64_t count, uint64_t layer, const char *suffix)
{
    if (s->lost == 0)
        text_printf(&s->first, "%s%" PRIu64 ".%s", s->prefix, layer, suffix);
    s->lost += count;
}

/* Some families, such as ModernBERT, normalize the embedding in place of the first layer's input. */
static bool is_first_norm(uint64_t layer, size_t lacking, const char *suffix)
{
    return layer == 0 && lacking == 1 && strstr(suffix, "norm") != NULL;
}

static size_t find_layer(const gap_search *s, uint64_t layer)
{
    size_t at = 0;
    while (at < s->tensors.count && tensor_at(s, at)->layer < layer)
        at++;
    return at;
}

/* The sets of names that layers from `begin` to `layers` have. KINDS_MAX + 1: more. */
static size_t find_kinds(const gap_search *s, uint64_t begin, uint64_t layers,
                         layer_kind kinds[KINDS_MAX])
{
    size_t count = 0;
    uint32_t first = 0;
    for (size_t at = find_layer(s, begin);
         at < s->tensors.count && tensor_at(s, at)->layer < layers;) {
        layer_kind k = layer_from(s, at);
        size_t i = 0;
        while (i < count &&
               (k.group != kinds[i].group || count_lacking(s, &k, &kinds[i], &first) != 0))
            i++;
        if (i == KINDS_MAX)
            return KINDS_MAX + 1;
        if (i == count)
            kinds[count++] = k;
        kinds[i].layers++;
        at += k.count;
    }
    return count;
}

/* Layers from `begin` to `layers` whose tensors are some of another layer's. Of models that are not known, two layers that
 * lack the same are another kind, and the first one is. */
static void compare_layers(gap_search *s, uint64_t begin, uint64_t layers, bool is_known)
{
    layer_kind kinds[KINDS_MAX];
    const size_t count = find_kinds(s, begin, layers, kinds);
    uint32_t first = 0;
    for (size_t k = 0; k < count && count <= KINDS_MAX; k++)
        for (size_t i = 0; i < count; i++) {
            const uint64_t layer = tensor_at(s, kinds[k].at)->layer;
            const size_t lacking = count_lacking(s, &kinds[k], &kinds[i], &first);
            if (kinds[i].group != kinds[k].group || lacking == 0 || lacking == SIZE_MAX ||
                (!is_known && (kinds[k].layers > 1 || layer == 0)) ||
                is_first_norm(layer, lacking, strtab_text(&s->suffixes, first)))
                continue;
            add_lost(s, lacking * kinds[k].layers, layer, strtab_text(&s->suffixes, first));
            break;
        }
}

/* Layers of LongCat-Flash have two of each, and it counts them twice. */
static bool has_sublayers(const gap_search *s)
{
    for (uint32_t i = 0; i < strtab_count(&s->suffixes); i++)
        if (text_begins(strtab_text(&s->suffixes, i), "self_attn.1."))
            return true;
    return false;
}

/* Layers without any tensor: below others, or the last ones. */
static void find_lost_layers(gap_search *s, uint64_t layers)
{
    uint64_t next = 0;
    for (size_t at = 0; at < s->tensors.count && next < layers;) {
        const layer_kind k = layer_from(s, at);
        const uint64_t layer = tensor_at(s, at)->layer;
        if (layer > next && next < layers)
            add_lost(s, (layer < layers ? layer : layers) - next, next, "*");
        next = layer + 1;
        at += k.count;
    }
    if (next < layers && !has_sublayers(s))
        add_lost(s, layers - next, next, "*");
}

/* Layers after the stated ones that are like one of them. Others, such as those of multi-token prediction, have more tensors. */
static uint64_t count_surplus(const gap_search *s, uint64_t layers)
{
    layer_kind kinds[KINDS_MAX];
    const size_t count = find_kinds(s, 0, layers, kinds);
    uint64_t surplus = 0;
    uint32_t first;
    for (size_t at = find_layer(s, layers); count <= KINDS_MAX && at < s->tensors.count;) {
        const layer_kind k = layer_from(s, at);
        bool is_like = false;
        for (size_t i = 0; i < count; i++)
            is_like = is_like || count_lacking(s, &k, &kinds[i], &first) == 0;
        surplus += is_like;
        at += k.count;
    }
    return surplus;
}

static void warn_surplus(const gap_search *s, uint64_t layers, uint64_t surplus)
{
    const char *key = s->config->number_keys[MODEL_HIDDEN_LAYERS];
    if (surplus > 0 && key != NULL && !s->config->has_auto_map)
        log_warn(s->log, FSDPCK_FINDING_EXPORT_CONFIG,
                 "use the config.json of this model, or correct it",
                 "config.json contradicts the tensors: '%s' is %" PRIu64 ", but '%s' has %" PRIu64
                 " more layer%s of the same kind; a loader omits %s",
                 key, layers, s->prefix, surplus, text_plural(surplus),
                 surplus == 1 ? "it" : "them");
}

/* OLMo's norms have no weights. */
static bool has_norms(const gap_search *s)
{
    for (uint32_t i = 0; i < strtab_count(&s->suffixes); i++)
        if (strstr(strtab_text(&s->suffixes, i), "norm") != NULL)
            return true;
    return false;
}

/* Tensors outside the layers, by parts of their names that families share. */
static void find_lost_ends(gap_search *s, model_ties ties)
{
    bool embedding = false, norm = false, head = false;
    for (size_t i = 0; i < catalogue_tensor_count(s->c); i++) {
        const cat_tensor *t = catalogue_tensor(s->c, i);
        const char *name = catalogue_name(s->c, t->name);
        const bool is_outside = text_begins(name, "model.") && !text_begins(name, layers_prefix);
        embedding = embedding || (is_outside && t->ndim == 2 && strstr(name, "embed") != NULL);
        norm = norm || (is_outside && strstr(name, "norm") != NULL);
        head = head || !text_begins(name, "model.");
    }
    const struct {
        bool lost;
        const char *name;
    } ends[] = {{!embedding, "model.embed_tokens.weight"},
                {!norm && has_norms(s), "model.norm.weight"},
                {!head && ties == MODEL_TIES_NO, "lm_head.weight"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends[i].lost && s->lost == 0)
            text_puts(&s->first, ends[i].name);
        s->lost += ends[i].lost;
    }
}

/* ---- weights of another model ---- */

/* Names of flat parameters tell no layer. */
static bool has_layers(const catalogue *c, const char *type)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const char *name = catalogue_name(c, catalogue_tensor(c, i)->name);
        if (layer_type_names(type, name) || strstr(name, "flat_param") != NULL)
            return true;
    }
    return catalogue_tensor_count(c) == 0;
}

/* A draft model of one layer may have another name for it. */
void layer_gaps_warn_none(const model_config *config, const logger *log)
{
    const uint64_t layers = config->numbers[MODEL_HIDDEN_LAYERS];
    if (layer_type_of(config->model_type) != NULL && layers > 1)
        log_warn(log, FSDPCK_FINDING_EXPORT_KEYS,
                 "check that weights and config.json are of one model",
                 "the weights have none of the %" PRIu64
                 " layers of the model that config.json describes ('%s'); a loader fills them with "
                 "random values",
                 layers, config->model_type);
}

/* Whether the part of a name before its first dot is that of transformers. */
static bool is_of_transformers(const gap_search *s, const char *name)
{
    const size_t n = strcspn(name, ".");
    return text_is(name, n, "model") || text_is(name, n, s->config->model_type);
}

static fsdpck_status find_stacks(gap_search *s, fsdpck_error *err)
{
    uint32_t id = 0;
    bool in_module = false;
    for (size_t i = 0; i < catalogue_tensor_count(s->c); i++) {
        const char *name = catalogue_name(s->c, catalogue_tensor(s->c, i)->name);
        const size_t length = layer_stack_length(name, &in_module);
        if (length > 0 && in_module && (s->is_export || is_of_transformers(s, name)))
            RETURN_IF(strtab_intern(&s->stacks, name, length, &id, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_stack(gap_search *s, const char *prefix, fsdpck_error *err)
{
    bool in_module = false;
    size_t kept = 0;
    s->prefix = prefix;
    s->tensors.count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(s->c); i++) {
        const char *name = catalogue_name(s->c, catalogue_tensor(s->c, i)->name);
        if (layer_stack_length(name, &in_module) == strlen(prefix) && text_begins(name, prefix) &&
            !is_uneven(s->config, name))
            RETURN_IF(add_tensor(s, name, err));
    }
    for (size_t i = 0; i < s->tensors.count; i++)
        if (!is_of_one_layer(s, tensor_at(s, i)->suffix))
            *VEC_AT(&s->tensors, layer_tensor, kept++) = *tensor_at(s, i);
    s->tensors.count = kept;
    if (s->tensors.count > 0)
        qsort(s->tensors.items, s->tensors.count, sizeof(layer_tensor), compare_tensors);
    return FSDPCK_OK;
}

/* is_main: the stack whose layers config.json counts. Of others that are not known, layers with the same names are judged. */
static void search_stack(gap_search *s, bool is_main)
{
    layer_kind kinds[KINDS_MAX];
    const bool is_usual = strcmp(s->prefix, layers_prefix) == 0;
    const bool is_even = s->type != NULL && s->type->lists[0] == NULL;
    const uint64_t layers = s->config->numbers[MODEL_HIDDEN_LAYERS];
    const uint64_t shared = s->config->numbers[MODEL_KV_SHARED_LAYERS];
    const uint64_t own = shared < layers ? layers - shared : layers;
    if (s->tensors.count == 0)
        return;
    uint64_t end = tensor_at(s, s->tensors.count - 1)->layer + 1;
    if (is_even && layer_stack_count(s->config, s->prefix) > end)
        end = layer_stack_count(s->config, s->prefix);
    s->has_groups = is_main && !is_even;
    if (is_main && (s->type != NULL || is_usual)) {
        compare_layers(s, 0, own, is_even || s->groups.has_lists);
        compare_layers(s, own, layers, is_even || s->groups.has_lists);
        find_lost_layers(s, layers);
        if (is_even)
            warn_surplus(s, layers, count_surplus(s, layers));
    } else if (is_even) {
        compare_layers(s, 0, end, true);
        find_lost_layers(s, end);
    } else if (find_kinds(s, 0, end, kinds) == 1) {
        find_lost_layers(s, end);
    }
    if (is_usual && s->is_export)
        find_lost_ends(s, s->config->ties);
}

static fsdpck_status search(gap_search *s, fsdpck_error *err)
{
    bool has_usual = false;
    RETURN_IF(find_stacks(s, err));
    const size_t count = strtab_count(&s->stacks);
    for (uint32_t i = 0; i < count; i++)
        has_usual = has_usual || strcmp(strtab_text(&s->stacks, i), layers_prefix) == 0;
    for (uint32_t i = 0; i < count && count <= STACKS_MAX; i++) {
        const char *prefix = strtab_text(&s->stacks, i);
        RETURN_IF(read_stack(s, prefix, err));
        search_stack(s, (s->type == NULL || !s->type->has_stacks) &&
                            (has_usual ? strcmp(prefix, layers_prefix) == 0 : count == 1));
    }
    if (s->lost > 0)
        log_warn(s->log, FSDPCK_FINDING_EXPORT_KEYS,
                 "find out whether the source has it; if the model needs none, ignore this warning",
                 "the model lacks tensors, by its config.json and its other layers: %" PRIu64
                 ", first '%s'; a loader fills them with random values",
                 s->lost, s->first.text == NULL ? "" : s->first.text);
    return FSDPCK_OK;
}

fsdpck_status layer_gaps_warn(const catalogue *c, const model_config *config, bool is_export,
                              const logger *log, fsdpck_error *err)
{
    gap_search s = {.c = c,
                    .config = config,
                    .type = layer_type_of(config->model_type),
                    .is_export = is_export,
                    .log = log,
                    .tensors = VEC_OF(layer_tensor, NULL)};
    const uint64_t layers = config->numbers[MODEL_HIDDEN_LAYERS];
    if (layers == 0 && (s.type == NULL || !s.type->has_stacks))
        return FSDPCK_OK;
    if (s.type != NULL && !has_layers(c, config->model_type)) {
        if (is_export)
            layer_gaps_warn_none(config, log);
        return FSDPCK_OK;
    }
    RETURN_IF(layer_groups_read(&s.groups, config, layers, s.type, err));
    strtab_init(&s.stacks, NULL);
    strtab_init(&s.suffixes, NULL);
    const fsdpck_status st = search(&s, err);
    strtab_release(&s.stacks);
    strtab_release(&s.suffixes);
    vec_release(&s.tensors);
    text_release(&s.first);
    layer_groups_release(&s.groups);
    return st;
}
