#include "open/lost_components.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "open/checkpoint.h"
#include "open/state_files.h"

/* These indexes have a few lines. */
#define INDEX_NBYTES_MAX (UINT64_C(1) << 20)

/* ---- folders that an index names ---- */

typedef struct named_parts {
    fsdpck_context *ctx;
    checkpoint_open_fn open;
    const probe_input *around;
    char first[256]; /* that is missing or empty */
    uint64_t missing;
    char first_bare[256]; /* a module without weights: its class */
    char bare_folder[256];
    uint64_t bare;
    char first_unset[256]; /* a module without its settings: their path */
    uint64_t unset;
} named_parts;

static bool open_below(const probe_input *around, const char *name, probe_input *in)
{
    char *path = folder_path_join(around->path, name);
    const bool is_open = path != NULL && probe_gather(path, in, NULL) == FSDPCK_OK;
    free(path);
    return is_open;
}

static bool is_empty_folder(const probe_input *around, const char *name)
{
    probe_input in;
    if (!open_below(around, name, &in))
        return false;
    const bool is = in.is_folder && in.entry_count == 0;
    probe_release(&in);
    return is;
}

/* name: of a folder directly below; "" or ".": this one. may_be_empty: the part may write nothing. */
static void take_part(named_parts *p, const char *name, bool may_be_empty)
{
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strchr(name, '/') != NULL ||
        (probe_has_entry(p->around, name) && (may_be_empty || !is_empty_folder(p->around, name))))
        return;
    if (p->missing++ == 0)
        snprintf(p->first, sizeof p->first, "%s", name);
}

/* Files of weights, of any name; not those of a trainer, which has its own beside a module in the folder of the model. */
static bool has_weights_file(const probe_input *in)
{
    static const char *const ends[] = {".safetensors", ".bin",  ".pt",
                                       ".pth",         ".ckpt", ".index.json"};
    bool has = false;
    for (size_t i = 0; !has && i < in->entry_count; i++)
        for (size_t k = 0; !has && k < sizeof ends / sizeof *ends; k++)
            has = text_ends_with(in->entries[i], strlen(in->entries[i]), ends[k]) &&
                  !trainer_state_has_name(in->entries[i]);
    return has;
}

/* Modules of sentence-transformers that have weights, and save them as one file in every version. */
static bool has_class_weights(const char *name)
{
    static const char *const classes[] = {"CNN",
                                          "Dense",
                                          "LayerNorm",
                                          "LSTM",
                                          "SparseAutoEncoder",
                                          "StaticEmbedding",
                                          "WeightedLayerPooling"};
    return text_is_one_of(name, strlen(name), classes, sizeof classes / sizeof *classes);
}

/* Modules of sentence-transformers that cannot be loaded without their config.json, in any version. */
static bool has_class_config(const char *name)
{
    static const char *const classes[] = {"BoW",
                                          "Dense",
                                          "LayerNorm",
                                          "Pooling",
                                          "SparseAutoEncoder",
                                          "Transformer",
                                          "WeightedLayerPooling"};
    return text_is_one_of(name, strlen(name), classes, sizeof classes / sizeof *classes);
}

/* The folder of a module, which has files. path: "" if it is that of the model. */
static void take_folder(named_parts *p, const probe_input *in, const char *path, const char *class)
{
    if (has_class_weights(class) && !has_weights_file(in) && p->bare++ == 0) {
        snprintf(p->first_bare, sizeof p->first_bare, "%s", class);
        snprintf(p->bare_folder, sizeof p->bare_folder, "%s", path);
    }
    /* A Transformer may be an adapter of PEFT. */
    if (has_class_config(class) && !probe_has_entry(in, "config.json") &&
        !probe_has_entry(in, "adapter_config.json") && p->unset++ == 0)
        snprintf(p->first_unset, sizeof p->first_unset, "%s%sconfig.json", path,
                 path[0] == '\0' ? "" : "/");
}

/* Its weights, in a folder of its own, by each rank alone. Unreadable ones are reported where they are read. */
static void check_dense(const named_parts *p, const probe_input *in)
{
    fsdpck_context *ctx = p->ctx;
    group *const together = ctx->group;
    const logger log = ctx->log;
    fsdpck_checkpoint *c = NULL;
    fsdpck_error ignored = FSDPCK_ERROR_INIT;
    ctx->group = NULL;
    ctx->log = (logger){0};
    fsdpck_status st = p->open(ctx, in->path, NULL, NULL, NULL, &c, &ignored);
    ctx->log = log;
    if (st == FSDPCK_OK)
        st = checkpoint_check_sizes(c, &ignored);
    fsdpck_close(c);
    ctx->group = together;
}

/* path: as modules.json has it. type: "sentence_transformers.models.Dense". */
static void take_module(named_parts *p, const char *path, const char *type)
{
    const char *dot = strrchr(type, '.');
    const char *class = dot == NULL ? type : dot + 1;
    const bool is_here = path[0] == '\0' || strcmp(path, ".") == 0;
    const bool is_own = text_begins(type, "sentence_transformers.");
    probe_input in;
    /* Saves nothing; git and the Hub do not keep its empty folder. */
    if (strcmp(class, "Normalize") == 0)
        return;
    take_part(p, path, !is_own);
    if (is_here)
        take_folder(p, p->around, "", is_own ? class : "");
    if (is_here || strchr(path, '/') != NULL || !open_below(p->around, path, &in))
        return;
    if (in.is_folder && in.entry_count > 0)
        take_folder(p, &in, path, is_own || has_class_weights(class) ? class : "");
    if (in.is_folder && is_own && strcmp(class, "Dense") == 0 && has_weights_file(&in))
        check_dense(p, &in);
    probe_release(&in);
}

/* A string as a text of C; false: none, or too long. */
static bool copy_text(const json_token *t, char *text, size_t capacity)
{
    if (t->kind != JSON_STRING && t->kind != JSON_KEY)
        return false;
    if (t->nbytes >= capacity || memchr(t->text, '\0', t->nbytes) != NULL)
        return false;
    memcpy(text, t->text, t->nbytes);
    text[t->nbytes] = '\0';
    return true;
}

/* ["diffusers", "AutoencoderKL"], or [null, null] for a component that the pipeline does without. */
static fsdpck_status read_class(json_reader *r, bool *has_class, fsdpck_error *err)
{
    json_token t;
    size_t strings = 0, items = 0;
    RETURN_IF(json_next(r, &t, err));
    while (t.kind != JSON_ARRAY_END) {
        items++;
        strings += t.kind == JSON_STRING;
        RETURN_IF(json_skip(r, &t, err));
        RETURN_IF(json_next(r, &t, err));
    }
    *has_class = items == 2 && strings == 2;
    return FSDPCK_OK;
}

/* {"_class_name": "StableDiffusionPipeline", "vae": ["diffusers", "AutoencoderKL"], ...} */
static fsdpck_status read_model_index(json_reader *r, named_parts *p, fsdpck_error *err)
{
    json_token t;
    char name[256];
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(r, JSON_END, &t, err);
        const bool is_part = copy_text(&t, name, sizeof name) && name[0] != '_';
        bool has_class = false;
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY)
            RETURN_IF(read_class(r, &has_class, err));
        else
            RETURN_IF(json_skip(r, &t, err));
        if (is_part && has_class)
            take_part(p, name, false);
    }
}

/* {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"} */
static fsdpck_status read_module(json_reader *r, named_parts *p, fsdpck_error *err)
{
    json_token t;
    char key[256], path[256] = "", type[256] = "";
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        if (!copy_text(&t, key, sizeof key))
            key[0] = '\0';
        RETURN_IF(json_next(r, &t, err));
        if (strcmp(key, "path") == 0)
            (void)copy_text(&t, path, sizeof path);
        else if (strcmp(key, "type") == 0)
            (void)copy_text(&t, type, sizeof type);
        RETURN_IF(json_skip(r, &t, err));
    }
    take_module(p, path, type);
    return FSDPCK_OK;
}

static fsdpck_status read_modules(json_reader *r, named_parts *p, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_ARRAY, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return json_expect(r, JSON_END, &t, err);
        if (t.kind == JSON_OBJECT)
            RETURN_IF(read_module(r, p, err));
        else
            RETURN_IF(json_skip(r, &t, err));
    }
}

/* {"document_2_Dense": "sentence_transformers.models.Dense", ...} */
static fsdpck_status read_types(json_reader *r, named_parts *p, fsdpck_error *err)
{
    json_token t;
    char name[256], type[256];
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const bool has_name = copy_text(&t, name, sizeof name);
        RETURN_IF(json_next(r, &t, err));
        if (has_name && name[0] != '\0' && copy_text(&t, type, sizeof type))
            take_module(p, name, type);
        RETURN_IF(json_skip(r, &t, err));
    }
}

/* {"types": {...}, "structure": {"query": ["query_0_Transformer"], ...}, ...} */
static fsdpck_status read_router(json_reader *r, named_parts *p, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return json_expect(r, JSON_END, &t, err);
        const bool is_types = text_is(t.text, t.nbytes, "types");
        RETURN_IF(json_next(r, &t, err));
        if (is_types && t.kind == JSON_OBJECT)
            RETURN_IF(read_types(r, p, err));
        else
            RETURN_IF(json_skip(r, &t, err));
    }
}

typedef fsdpck_status (*read_index_fn)(json_reader *r, named_parts *p, fsdpck_error *err);

static void put_others(char *text, size_t capacity, uint64_t count)
{
    text[0] = '\0';
    if (count > 1)
        snprintf(text, capacity, " and %" PRIu64 " more", count - 1);
}

static void warn_parts(const named_parts *p, const char *index, const logger *log)
{
    static const char next[] = "copy them from where they were saved";
    const bool has_folder = p->bare_folder[0] != '\0';
    char others[40];
    put_others(others, sizeof others, p->missing);
    if (p->missing > 0)
        log_warn(log, FSDPCK_FINDING_WEIGHTS_LOST, next,
                 "'%s/%s' names folders that are missing or empty: '%s'%s", p->around->path, index,
                 p->first, others);
    put_others(others, sizeof others, p->bare);
    if (p->bare > 0)
        log_warn(log, FSDPCK_FINDING_WEIGHTS_LOST, next,
                 "'%s/%s' names modules that have no weights: %s%s%s%s%s", p->around->path, index,
                 p->first_bare, has_folder ? " ('" : "", p->bare_folder, has_folder ? "')" : "",
                 others);
    put_others(others, sizeof others, p->unset);
    if (p->unset > 0)
        log_warn(log, FSDPCK_FINDING_CONFIG_LOST, "",
                 "'%s/%s' names modules that have no settings: '%s' is missing%s", p->around->path,
                 index, p->first_unset, others);
}

static void warn_missing(const probe_input *around, const char *index, read_index_fn read,
                         fsdpck_context *ctx, checkpoint_open_fn open)
{
    named_parts p = {.ctx = ctx, .open = open, .around = around};
    char *text = NULL;
    size_t nbytes = 0;
    json_reader r;
    /* One that cannot be read is the pipeline's concern: no weights are lost by that. */
    if (!probe_has_entry(around, index) ||
        file_read_whole(&around->dir, index, INDEX_NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
        return;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    if (read(&r, &p, NULL) == FSDPCK_OK)
        warn_parts(&p, index, &ctx->log);
    json_reader_release(&r);
    free(text);
}

/* ---- folders without weights ---- */

bool lost_components_open(const probe_input *around, const char *name, probe_input *in)
{
    const bool is_open = open_below(around, name, in);
    if (is_open && in->is_folder && probe_has_entry(in, "config.json"))
        return true;
    if (is_open)
        probe_release(in);
    return false;
}

/* Whether a folder has the config of a model, and no file that may have weights, nor a folder with such. */
static bool is_component_without_weights(const probe_input *around, const char *name)
{
    probe_input in;
    if (!lost_components_open(around, name, &in))
        return false;
    const bool lacks = !has_weights_file(&in);
    probe_release(&in);
    return lacks;
}

static void warn_without_weights(const probe_input *around, const logger *log)
{
    const bool is_pipeline = probe_has_entry(around, "model_index.json");
    for (size_t i = 0; is_pipeline && i < around->entry_count; i++)
        if (is_component_without_weights(around, around->entries[i]))
            log_warn(log, FSDPCK_FINDING_WEIGHTS_LOST, "copy them from where they were saved",
                     "'%s/%s' has the config of a model, but no weights", around->path,
                     around->entries[i]);
}

/* ---- settings ---- */

/* save_pretrained of transformers writes both; nn.Modules that the Trainer saves have neither. */
static bool lacks_config(const probe_input *in)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json",
                                          "pytorch_model.bin", "pytorch_model.bin.index.json"};
    bool has_weights = false;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        has_weights = has_weights || probe_has_entry(in, weights[i]);
    return has_weights && probe_has_entry(in, "generation_config.json") &&
           !probe_has_entry(in, "config.json") && !probe_has_entry(in, "adapter_config.json");
}

static void warn_settings(const probe_input *in, const logger *log)
{
    if (lacks_config(in))
        log_warn(log, FSDPCK_FINDING_CONFIG_LOST, "",
                 "'%s' has the weights and the generation_config.json of a model, but no "
                 "config.json",
                 in->path);
    if (probe_has_entry(in, "config_sentence_transformers.json") &&
        !probe_has_entry(in, "modules.json"))
        log_warn(log, FSDPCK_FINDING_CONFIG_LOST, "",
                 "'%s' has config_sentence_transformers.json, but no modules.json: "
                 "sentence-transformers then takes the mean of all tokens, and no further module",
                 in->path);
}

void lost_components_warn(const probe_input *around, fsdpck_context *ctx, checkpoint_open_fn open)
{
    warn_missing(around, "model_index.json", read_model_index, ctx, open);
    warn_missing(around, "modules.json", read_modules, ctx, open);
    warn_missing(around, "router_config.json", read_router, ctx, open);
    warn_without_weights(around, &ctx->log);
    warn_settings(around, &ctx->log);
}
