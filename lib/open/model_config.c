#include "open/model_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

#define CONFIG_NAME "config.json"

/* A link of the Hugging Face cache: "../../blobs/HASH", and "../../../blobs/HASH" in a folder of the snapshot. Other
 * links may point to any file, which would then be published with the model. */
static bool is_cache_link(const folder *dir, const char *name, cache_links links)
{
    static const char up[] = "../", blobs[] = "../../blobs/";
    char to[256];
    const ssize_t n = readlinkat(dir->fd, name, to, sizeof to - 1);
    if (n < 0)
        return false;
    to[n] = '\0';
    const bool is_deep = links == CACHE_LINKS_INSIDE;
    if (is_deep && strncmp(to, up, strlen(up)) != 0)
        return false;
    const char *const rest = is_deep ? to + strlen(up) : to, *const hash = rest + strlen(blobs);
    return strncmp(rest, blobs, strlen(blobs)) == 0 && *hash != '\0' && *hash != '.' &&
           strchr(hash, '/') == NULL;
}

fsdpck_status model_file_open(const folder *dir, const char *name, cache_links links, file *f,
                              fsdpck_error *err)
{
    const bool follow = links != CACHE_LINKS_NONE && is_cache_link(dir, name, links);
    return file_open_read(f, dir, name, follow ? 0 : FILE_NO_FOLLOW, err);
}

#define NUMBER_KEYS_MAX 4

/* The first ones have precedence. */
static const char *const number_keys[MODEL_NUMBERS][NUMBER_KEYS_MAX] = {
    [MODEL_VOCAB_SIZE] = {"vocab_size"},
    [MODEL_HIDDEN_SIZE] = {"hidden_size", "n_embd", "d_model", "dim"},
    [MODEL_HIDDEN_LAYERS] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
    [MODEL_KV_SHARED_LAYERS] = {"num_kv_shared_layers"},
    [MODEL_ENCODER_LAYERS] = {"encoder_layers", "encoder_num_hidden_layers"},
    [MODEL_DECODER_LAYERS] = {"decoder_layers", "decoder_num_hidden_layers", "num_decoder_layers"},
    [MODEL_SPEECH_LAYERS] = {"speech_encoder_layers"},
    [MODEL_UNIT_ENCODER_LAYERS] = {"t2u_encoder_layers"},
    [MODEL_UNIT_DECODER_LAYERS] = {"t2u_decoder_layers"},
    [MODEL_STACK_LAYERS] = {"num_layers_per_stack"},
    [MODEL_INTERMEDIATE_SIZE] = {"intermediate_size"},
    [MODEL_HEADS] = {"num_attention_heads"},
    [MODEL_KEY_HEADS] = {"num_key_value_heads"},
    [MODEL_HEAD_DIM] = {"head_dim"},
    [MODEL_IN_FEATURES] = {"in_features"},
    [MODEL_OUT_FEATURES] = {"out_features"},
};

static const char layer_kinds_key[] = "layers_block_type";

/* The place of a key among those of a number, NUMBER_KEYS_MAX if it is none of them. */
static size_t key_rank(model_number number, const char *key)
{
    for (size_t k = 0; k < NUMBER_KEYS_MAX && number_keys[number][k] != NULL; k++)
        if (strcmp(key, number_keys[number][k]) == 0)
            return k;
    return NUMBER_KEYS_MAX;
}

/* Of members that both objects may have, those at the top count. */
static void take_number(model_config *c, bool nested, const char *key, const json_token *t)
{
    for (model_number i = 0; i < MODEL_NUMBERS; i++) {
        const size_t k = key_rank(i, key), rank = k + (nested ? NUMBER_KEYS_MAX : 0);
        if (k == NUMBER_KEYS_MAX || t->kind != JSON_NUMBER || !t->is_u64 ||
            (c->number_keys[i] != NULL && rank >= c->number_ranks[i]))
            continue;
        c->numbers[i] = t->u64;
        c->number_keys[i] = number_keys[i][k];
        c->number_ranks[i] = rank;
    }
}

/* A member at the top or, if nested, in text_config; those at the top have precedence. */
static void take_member(model_config *c, bool nested, const char *key, const json_token *t)
{
    model_ties_take(&c->stated_ties, nested, key, strlen(key), t);
    if (!nested && strcmp(key, "model_type") == 0 && t->kind == JSON_STRING &&
        t->nbytes < sizeof c->model_type && memchr(t->text, '\0', t->nbytes) == NULL)
        snprintf(c->model_type, sizeof c->model_type, "%.*s", (int)t->nbytes, t->text);
    if ((strcmp(key, "dtype") == 0 || strcmp(key, "torch_dtype") == 0) && t->kind == JSON_STRING &&
        t->nbytes < sizeof c->dtype && (!nested || c->dtype[0] == '\0'))
        snprintf(c->dtype, sizeof c->dtype, "%.*s", (int)t->nbytes, t->text);
    take_number(c, nested, key, t);
    if (!nested && strcmp(key, "_class_name") == 0)
        c->has_class_name = t->kind == JSON_STRING;
    if (!nested && strcmp(key, "_diffusers_version") == 0)
        c->has_diffusers_version = t->kind == JSON_STRING;
    if (!nested && strcmp(key, "tune_mm_mlp_adapter") == 0)
        c->has_only_projector = t->kind == JSON_TRUE;
    if (!nested && strcmp(key, "auto_map") == 0)
        c->has_auto_map = t->kind != JSON_NULL;
    if (!nested && strcmp(key, "quantization_config") == 0)
        c->is_quantized = t->kind != JSON_NULL;
}

/* The value of weight_block_size: two numbers. */
static fsdpck_status read_block(model_config *c, json_reader *r, json_token *t, fsdpck_error *err)
{
    size_t count = 0;
    c->block[0] = c->block[1] = 0;
    c->bad_block = false;
    if (t->kind == JSON_NULL)
        return FSDPCK_OK;
    c->bad_block = t->kind != JSON_ARRAY;
    if (c->bad_block)
        return json_skip(r, t, err);
    RETURN_IF(json_next(r, t, err));
    for (; t->kind != JSON_ARRAY_END; count++) {
        c->bad_block =
            c->bad_block || count == 2 || t->kind != JSON_NUMBER || !t->is_u64 || t->u64 == 0;
        if (!c->bad_block)
            c->block[count] = t->u64;
        RETURN_IF(json_skip(r, t, err));
        RETURN_IF(json_next(r, t, err));
    }
    c->bad_block = c->bad_block || count != 2;
    return FSDPCK_OK;
}

/* The members of quantization_config. */
static fsdpck_status read_quantization(model_config *c, json_reader *r, bool nested,
                                       fsdpck_error *err)
{
    const bool known = nested && (c->block[0] != 0 || c->bad_block);
    json_token t;
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const bool is_block = !known && json_is(&t, "weight_block_size");
        RETURN_IF(json_next(r, &t, err));
        if (is_block)
            RETURN_IF(read_block(c, r, &t, err));
        else
            RETURN_IF(json_skip(r, &t, err));
    }
}

/* NemotronH states no number of layers: the kinds of its layers, which are counted. */
static fsdpck_status count_layers(model_config *c, json_reader *r, fsdpck_error *err)
{
    uint64_t count = 0;
    json_token t;
    RETURN_IF(json_next(r, &t, err));
    for (; t.kind != JSON_ARRAY_END; count++) {
        RETURN_IF(json_skip(r, &t, err));
        RETURN_IF(json_next(r, &t, err));
    }
    if (c->number_keys[MODEL_HIDDEN_LAYERS] == NULL) {
        c->numbers[MODEL_HIDDEN_LAYERS] = count;
        c->number_keys[MODEL_HIDDEN_LAYERS] = layer_kinds_key;
        c->number_ranks[MODEL_HIDDEN_LAYERS] = SIZE_MAX;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_members(model_config *c, json_reader *r, fsdpck_error *err)
{
    json_token t;
    char key[32];
    bool nested = false;
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END && !nested)
            return json_expect(r, JSON_END, &t, err);
        if (t.kind == JSON_OBJECT_END) {
            nested = false;
            continue;
        }
        snprintf(key, sizeof key, "%.*s", (int)(t.nbytes < sizeof key ? t.nbytes : 0), t.text);
        RETURN_IF(json_next(r, &t, err));
        if (!nested && strcmp(key, "text_config") == 0 && t.kind == JSON_OBJECT) {
            nested = c->stated_ties.has_nested = true;
            continue;
        }
        take_member(c, nested, key, &t);
        if (strcmp(key, "quantization_config") == 0 && t.kind == JSON_OBJECT)
            RETURN_IF(read_quantization(c, r, nested, err));
        else if (strcmp(key, layer_kinds_key) == 0 && t.kind == JSON_ARRAY)
            RETURN_IF(count_layers(c, r, err));
        else
            RETURN_IF(json_skip(r, &t, err));
    }
}

static fsdpck_status parse(model_config *c, fsdpck_error *err)
{
    json_reader r;
    json_token t;
    json_reader_init(&r, c->text, c->nbytes, FSDPCK_FINDING_MAP_CONFIG);
    r.takes_python_numbers = true;
    fsdpck_status st = json_expect(&r, JSON_OBJECT, &t, err);
    if (st == FSDPCK_OK)
        st = read_members(c, &r, err);
    json_reader_release(&r);
    c->ties = model_ties_of(&c->stated_ties, &c->ties_by_default);
    return st;
}

static fsdpck_status read_text(const file *f, model_config *c, fsdpck_error *err)
{
    if (f->nbytes > MODEL_CONFIG_NBYTES_MAX)
        return FAIL(err, LIMIT, LIMIT_SIZE, "file is larger than 16 MiB");
    c->nbytes = f->nbytes;
    c->text = malloc(c->nbytes + 1);
    if (c->text == NULL)
        return error_set_nomem(err, c->nbytes + 1);
    c->text[c->nbytes] = '\0';
    RETURN_IF(file_read_at(f, 0, c->text, c->nbytes, err));
    return parse(c, err);
}

fsdpck_status model_config_read(const folder *dir, model_config *config, fsdpck_error *err)
{
    path_kind kind;
    file f = FILE_CLOSED;
    *config = (model_config){0};
    RETURN_IF(path_probe(dir, CONFIG_NAME, &kind, NULL, err));
    if (kind == PATH_ABSENT)
        return FSDPCK_OK;
    RETURN_IF(model_file_open(dir, CONFIG_NAME, CACHE_LINKS, &f, err));
    const fsdpck_status st = read_text(&f, config, err);
    if (st != FSDPCK_OK)
        error_path(err, f.path);
    file_abandon(&f);
    return st;
}

fsdpck_status model_config_read_file(const char *path, model_config *config, fsdpck_error *err)
{
    *config = (model_config){0};
    fsdpck_status st =
        file_read_whole(NULL, path, MODEL_CONFIG_NBYTES_MAX, &config->text, &config->nbytes, err);
    if (st == FSDPCK_OK)
        st = parse(config, err);
    if (st != FSDPCK_OK)
        error_path(err, path);
    return st;
}

fsdpck_status model_config_read_text(const char *text, size_t nbytes, model_config *config,
                                     fsdpck_error *err)
{
    *config = (model_config){.text = malloc(nbytes + 1), .nbytes = nbytes};
    if (config->text == NULL)
        return error_set_nomem(err, nbytes + 1);
    memcpy(config->text, text, nbytes);
    config->text[nbytes] = '\0';
    return parse(config, err);
}

void model_config_release(model_config *config)
{
    free(config->text);
    *config = (model_config){0};
}
