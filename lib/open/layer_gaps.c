#include "open/layer_gaps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* 'model.layers.3.mlp.up_proj.weight': number 3, and an id of 'mlp.up_proj.weight'. */
typedef struct layer_tensor {
    uint64_t layer;
    uint32_t suffix;
} layer_tensor;

typedef struct gap_search {
    const catalogue *c;
    const logger *log;
    strtab suffixes;
    vec tensors; /* layer_tensor, sorted */
    uint64_t lost;
    text_buf first; /* name of the first lost tensor */
} gap_search;

static const char layers_prefix[] = "model.layers.";

/* Kinds of layers that are compared with each other: dense, of experts, with another attention. */
enum { KINDS_MAX = 16 };

typedef struct layer_kind {
    size_t at, count; /* in gap_search.tensors */
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
    const char *digits = name + sizeof layers_prefix - 1;
    const size_t n = strspn(digits, "0123456789");
    layer_tensor t = {0};
    if (n == 0 || n > 6 || digits[n] != '.')
        return FSDPCK_OK;
    for (size_t i = 0; i < n; i++)
        t.layer = t.layer * 10 + (uint64_t)(digits[i] - '0');
    RETURN_IF(strtab_intern(&s->suffixes, digits + n + 1, strlen(digits + n + 1), &t.suffix, err));
    return vec_add(&s->tensors, &t, err);
}

static const layer_tensor *tensor_at(const gap_search *s, size_t i)
{
    return VEC_AT(&s->tensors, const layer_tensor, i);
}

static layer_kind layer_from(const gap_search *s, size_t at)
{
    layer_kind k = {at, 0};
    while (at + k.count < s->tensors.count &&
           tensor_at(s, at + k.count)->layer == tensor_at(s, at)->layer)
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
        text_printf(&s->first, "%s%" PRIu64 ".%s", layers_prefix, layer, suffix);
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

/* Layers from `begin` to `layers` whose tensors are some of another layer's. */
static void compare_layers(gap_search *s, uint64_t begin, uint64_t layers)
{
    layer_kind kinds[KINDS_MAX];
    const size_t from = find_layer(s, begin);
    size_t count = 0;
    uint32_t first = 0;
    for (size_t at = from; at < s->tensors.count && tensor_at(s, at)->layer < layers;) {
        const layer_kind k = layer_from(s, at);
        size_t i = 0;
        while (i < count && count_lacking(s, &k, &kinds[i], &first) != 0)
            i++;
        if (i == count && count == KINDS_MAX)
            return; /* each layer is different */
        if (i == count)
            kinds[count++] = k;
        at += k.count;
    }
    for (size_t at = from; at < s->tensors.count && tensor_at(s, at)->layer < layers;) {
        const layer_kind k = layer_from(s, at);
        for (size_t i = 0; i < count; i++) {
            const size_t lacking = count_lacking(s, &k, &kinds[i], &first);
            if (lacking == 0 || lacking == SIZE_MAX ||
                is_first_norm(tensor_at(s, at)->layer, lacking, strtab_text(&s->suffixes, first)))
                continue;
            add_lost(s, lacking, tensor_at(s, at)->layer, strtab_text(&s->suffixes, first));
            break;
        }
        at += k.count;
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

typedef struct layer_word {
    const char *type, *word;
} layer_word;

static const layer_word words[] = {
#define LAYERS(type, word) {type, word},
#include "open/layer_words.def"
#undef LAYERS
};

static const char *word_of_type(const char *type)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].type, type) == 0)
            return words[i].word;
    return NULL;
}

static bool has_part(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (;; name++) {
        if (strncmp(name, word, n) == 0 && (name[n] == '.' || name[n] == '\0'))
            return true;
        name = strchr(name, '.');
        if (name == NULL)
            return false;
    }
}

/* Names of flat parameters tell no layer. */
static bool has_layers(const catalogue *c, const char *word)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const char *name = catalogue_name(c, catalogue_tensor(c, i)->name);
        if (has_part(name, word) || strstr(name, "flat_param") != NULL)
            return true;
    }
    return catalogue_tensor_count(c) == 0;
}

/* A draft model of one layer may have another name for it. */
void layer_gaps_warn_none(const model_config *config, const logger *log)
{
    const uint64_t layers = config->numbers[MODEL_HIDDEN_LAYERS];
    if (word_of_type(config->model_type) != NULL && layers > 1)
        log_warn(log, FSDPCK_FINDING_EXPORT_KEYS,
                 "check that weights and config.json are of one model",
                 "the weights have none of the %" PRIu64
                 " layers of the model that config.json describes ('%s'); a loader fills them with "
                 "random values",
                 layers, config->model_type);
}

static fsdpck_status search(gap_search *s, const model_config *config, fsdpck_error *err)
{
    for (size_t i = 0; i < catalogue_tensor_count(s->c); i++) {
        const char *name = catalogue_name(s->c, catalogue_tensor(s->c, i)->name);
        /* Older releases save this buffer, in all layers or in one. */
        if (text_begins(name, layers_prefix) && strstr(name, "inv_freq") == NULL)
            RETURN_IF(add_tensor(s, name, err));
    }
    if (s->tensors.count == 0)
        return FSDPCK_OK;
    qsort(s->tensors.items, s->tensors.count, sizeof(layer_tensor), compare_tensors);
    const uint64_t layers = config->numbers[MODEL_HIDDEN_LAYERS];
    const uint64_t shared = config->numbers[MODEL_KV_SHARED_LAYERS];
    const uint64_t own = shared < layers ? layers - shared : layers;
    compare_layers(s, 0, own);
    compare_layers(s, own, layers);
    find_lost_layers(s, layers);
    find_lost_ends(s, config->ties);
    if (s->lost > 0)
        log_warn(s->log, FSDPCK_FINDING_EXPORT_KEYS,
                 "find out whether the source has it; if the model needs none, ignore this warning",
                 "the model lacks tensors, by its config.json and its other layers: %" PRIu64
                 ", first '%s'; a loader fills them with random values",
                 s->lost, s->first.text == NULL ? "" : s->first.text);
    return FSDPCK_OK;
}

fsdpck_status layer_gaps_warn(const catalogue *c, const model_config *config, const logger *log,
                              fsdpck_error *err)
{
    gap_search s = {.c = c, .log = log, .tensors = VEC_OF(layer_tensor, NULL)};
    if (config->numbers[MODEL_HIDDEN_LAYERS] == 0)
        return FSDPCK_OK;
    const char *word = word_of_type(config->model_type);
    if (word != NULL && !has_layers(c, word)) {
        layer_gaps_warn_none(config, log);
        return FSDPCK_OK;
    }
    strtab_init(&s.suffixes, NULL);
    const fsdpck_status st = search(&s, config, err);
    strtab_release(&s.suffixes);
    vec_release(&s.tensors);
    text_release(&s.first);
    return st;
}
