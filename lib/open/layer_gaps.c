#include "open/layer_gaps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* 'model.layers.3.mlp.up_proj.weight': stack 'model.layers.', number 3, and an id of 'mlp.up_proj.weight'. */
typedef struct layer_tensor {
    uint64_t layer;
    uint32_t suffix;
} layer_tensor;

typedef struct gap_search {
    const catalogue *c;
    const model_config *config;
    const logger *log;
    strtab stacks;      /* names up to the numbers */
    const char *prefix; /* of the stack that is searched */
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

typedef struct layer_word {
    const char *type, *word;
    bool has_stacks; /* an encoder's and a decoder's */
} layer_word;

static const layer_word words[] = {
#define LAYERS(type, word) {type, word, false},
#define STACKS(type, word) {type, word, true},
#include "open/layer_words.def"
#undef STACKS
#undef LAYERS
};

/* The first row of a type, or NULL. */
static const layer_word *find_type(const char *type)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].type, type) == 0)
            return &words[i];
    return NULL;
}

static bool is_known_type(const char *type)
{
    return find_type(type) != NULL;
}

static bool has_stacks(const char *type)
{
    const layer_word *row = find_type(type);
    return row != NULL && row->has_stacks;
}

static bool is_layer_word(const char *part, size_t length)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == length && memcmp(part, words[i].word, length) == 0)
            return true;
    return false;
}

/* The length of 'model.layers.' in 'model.layers.3.mlp.up_proj.weight': the name up to the first number. 0 if it ends in
 * no word for layers, or a module without modules has the number, as in 'layers.0.weight'. */
static size_t stack_length(const char *name)
{
    for (const char *part = name, *end; (end = strchr(part, '.')) != NULL; part = end + 1) {
        const char *number = end + 1, *suffix = number + strspn(number, "0123456789");
        if (suffix == number || *suffix != '.')
            continue;
        return suffix - number <= 6 && is_layer_word(part, (size_t)(end - part)) &&
                       strchr(suffix + 1, '.') != NULL
                   ? (size_t)(number - name)
                   : 0;
    }
    return 0;
}

/* Tensors that not all layers of a kind have: a buffer that older releases save in all layers or in one; T5's biases of the
 * first layer; and what a quantized weight has beside it, as other layers keep theirs. */
static bool is_uneven(const model_config *config, const char *name)
{
    const char *last = strrchr(name, '.');
    if (strstr(name, "inv_freq") != NULL || strstr(name, "relative_attention_bias") != NULL)
        return true;
    return config->is_quantized &&
           (text_begins(last, ".weight_") || strstr(name, ".weight.") != NULL ||
            text_ends_with(name, strlen(name), "put_scale"));
}

/* ---- layers of a stack ---- */

/* Kinds of layers that are compared with each other: dense, of experts, with another attention. */
enum { KINDS_MAX = 16 };

typedef struct layer_kind {
    size_t at, count; /* in gap_search.tensors, of its first layer */
    size_t layers;
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
    layer_kind k = {at, 0, 0};
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
        while (i < count && count_lacking(s, &k, &kinds[i], &first) != 0)
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
            if (lacking == 0 || lacking == SIZE_MAX ||
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

static bool has_layer(const char *name, const char *type)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].type, type) == 0 && has_part(name, words[i].word))
            return true;
    return false;
}

/* Names of flat parameters tell no layer. */
static bool has_layers(const catalogue *c, const char *type)
{
    for (size_t i = 0; i < catalogue_tensor_count(c); i++) {
        const char *name = catalogue_name(c, catalogue_tensor(c, i)->name);
        if (has_layer(name, type) || strstr(name, "flat_param") != NULL)
            return true;
    }
    return catalogue_tensor_count(c) == 0;
}

/* A draft model of one layer may have another name for it. */
void layer_gaps_warn_none(const model_config *config, const logger *log)
{
    const uint64_t layers = config->numbers[MODEL_HIDDEN_LAYERS];
    if (is_known_type(config->model_type) && !has_stacks(config->model_type) && layers > 1)
        log_warn(log, FSDPCK_FINDING_EXPORT_KEYS,
                 "check that weights and config.json are of one model",
                 "the weights have none of the %" PRIu64
                 " layers of the model that config.json describes ('%s'); a loader fills them with "
                 "random values",
                 layers, config->model_type);
}

static fsdpck_status find_stacks(gap_search *s, fsdpck_error *err)
{
    uint32_t id = 0;
    for (size_t i = 0; i < catalogue_tensor_count(s->c); i++) {
        const char *name = catalogue_name(s->c, catalogue_tensor(s->c, i)->name);
        const size_t length = stack_length(name);
        if (length > 0)
            RETURN_IF(strtab_intern(&s->stacks, name, length, &id, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_stack(gap_search *s, const char *prefix, fsdpck_error *err)
{
    s->prefix = prefix;
    s->tensors.count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(s->c); i++) {
        const char *name = catalogue_name(s->c, catalogue_tensor(s->c, i)->name);
        if (stack_length(name) == strlen(prefix) && text_begins(name, prefix) &&
            !is_uneven(s->config, name))
            RETURN_IF(add_tensor(s, name, err));
    }
    if (s->tensors.count > 0)
        qsort(s->tensors.items, s->tensors.count, sizeof(layer_tensor), compare_tensors);
    return FSDPCK_OK;
}

/* The number of layers of an encoder or a decoder beside another stack; 0: not known. */
static uint64_t count_stated(const gap_search *s)
{
    const uint64_t *numbers = s->config->numbers;
    const size_t n = strlen(s->prefix);
    if (!has_stacks(s->config->model_type))
        return 0;
    return text_ends_with(s->prefix, n, "encoder.layers.")   ? numbers[MODEL_ENCODER_LAYERS]
           : text_ends_with(s->prefix, n, "decoder.layers.") ? numbers[MODEL_DECODER_LAYERS]
                                                             : 0;
}

/* is_main: the stack whose layers config.json counts. Of others that are not known, layers with the same names are judged. */
static void search_stack(gap_search *s, bool is_main)
{
    layer_kind kinds[KINDS_MAX];
    const bool is_known = is_known_type(s->config->model_type);
    const bool is_usual = strcmp(s->prefix, layers_prefix) == 0;
    const uint64_t layers = s->config->numbers[MODEL_HIDDEN_LAYERS];
    const uint64_t shared = s->config->numbers[MODEL_KV_SHARED_LAYERS];
    const uint64_t own = shared < layers ? layers - shared : layers;
    if (s->tensors.count == 0)
        return;
    uint64_t end = tensor_at(s, s->tensors.count - 1)->layer + 1;
    if (count_stated(s) > end)
        end = count_stated(s);
    if (is_main && (is_known || is_usual)) {
        compare_layers(s, 0, own, is_known);
        compare_layers(s, own, layers, is_known);
        find_lost_layers(s, layers);
    } else if (is_known) {
        compare_layers(s, 0, end, true);
        find_lost_layers(s, end);
    } else if (find_kinds(s, 0, end, kinds) == 1) {
        find_lost_layers(s, end);
    }
    if (is_usual)
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
        search_stack(s, !has_stacks(s->config->model_type) &&
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

fsdpck_status layer_gaps_warn(const catalogue *c, const model_config *config, const logger *log,
                              fsdpck_error *err)
{
    gap_search s = {.c = c, .config = config, .log = log, .tensors = VEC_OF(layer_tensor, NULL)};
    if (config->numbers[MODEL_HIDDEN_LAYERS] == 0 && !has_stacks(config->model_type))
        return FSDPCK_OK;
    if (is_known_type(config->model_type) && !has_layers(c, config->model_type)) {
        layer_gaps_warn_none(config, log);
        return FSDPCK_OK;
    }
    strtab_init(&s.stacks, NULL);
    strtab_init(&s.suffixes, NULL);
    const fsdpck_status st = search(&s, err);
    strtab_release(&s.stacks);
    strtab_release(&s.suffixes);
    vec_release(&s.tensors);
    text_release(&s.first);
    return st;
}
