#include "open/lost_components.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "open/checkpoint.h"

/* model_index.json and modules.json have a few lines. */
#define INDEX_NBYTES_MAX (UINT64_C(1) << 20)

/* ---- folders that an index names ---- */

typedef struct named_parts {
    const probe_input *around;
    char first[256]; /* that is missing */
    uint64_t missing;
} named_parts;

/* name: of a folder directly below. */
static void take_part(named_parts *p, const char *name)
{
    if (name[0] == '\0' || strchr(name, '/') != NULL || probe_has_entry(p->around, name))
        return;
    if (p->missing++ == 0)
        snprintf(p->first, sizeof p->first, "%s", name);
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
            take_part(p, name);
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
    /* Saves nothing; git and the Hub do not keep its empty folder. */
    if (!text_ends_with(type, strlen(type), ".Normalize"))
        take_part(p, path);
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

typedef fsdpck_status (*read_index_fn)(json_reader *r, named_parts *p, fsdpck_error *err);

static void warn_missing(const probe_input *around, const char *index, read_index_fn read,
                         const logger *log)
{
    named_parts p = {.around = around};
    char *text = NULL, others[40] = "";
    size_t nbytes = 0;
    json_reader r;
    /* One that cannot be read is the pipeline's concern: no weights are lost by that. */
    if (!probe_has_entry(around, index) ||
        file_read_whole(&around->dir, index, INDEX_NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
        return;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_NONE);
    if (read(&r, &p, NULL) == FSDPCK_OK && p.missing > 0) {
        if (p.missing > 1)
            snprintf(others, sizeof others, " and %" PRIu64 " more", p.missing - 1);
        log_warn(log, FSDPCK_FINDING_WEIGHTS_LOST, "copy them from where they were saved",
                 "'%s/%s' names folders that are missing: '%s'%s", around->path, index, p.first,
                 others);
    }
    json_reader_release(&r);
    free(text);
}

/* ---- folders without weights ---- */

bool lost_components_open(const probe_input *around, const char *name, probe_input *in)
{
    char *path = folder_path_join(around->path, name);
    const bool is_open = path != NULL && probe_gather(path, in, NULL) == FSDPCK_OK;
    free(path);
    if (is_open && in->is_folder && probe_has_entry(in, "config.json"))
        return true;
    if (is_open)
        probe_release(in);
    return false;
}

/* Whether a folder has the config of a model, and no file that may have weights, nor a folder with such. */
static bool is_component_without_weights(const probe_input *around, const char *name)
{
    static const char *const ends[] = {".safetensors", ".bin",  ".pt",
                                       ".pth",         ".ckpt", ".index.json"};
    probe_input in;
    bool lacks = lost_components_open(around, name, &in);
    if (!lacks)
        return false;
    for (size_t i = 0; lacks && i < in.entry_count; i++)
        for (size_t k = 0; lacks && k < sizeof ends / sizeof *ends; k++)
            lacks = strcmp(in.entries[i], "config.json") == 0 ||
                    !text_ends_with(in.entries[i], strlen(in.entries[i]), ends[k]);
    probe_release(&in);
    return lacks;
}

/* Folder of a module of sentence-transformers that has weights, by its class: "2_Dense". */
static bool has_module_name(const char *name)
{
    static const char *const classes[] = {"_CNN", "_Dense", "_LayerNorm", "_LSTM",
                                          "_WeightedLayerPooling"};
    const size_t n = strspn(name, "0123456789");
    bool has = false;
    for (size_t i = 0; n > 0 && i < sizeof classes / sizeof *classes; i++)
        has = has || strcmp(name + n, classes[i]) == 0;
    return has;
}

static void warn_without_weights(const probe_input *around, const logger *log)
{
    const bool is_pipeline = probe_has_entry(around, "model_index.json");
    const bool has_modules = probe_has_entry(around, "modules.json");
    for (size_t i = 0; (is_pipeline || has_modules) && i < around->entry_count; i++)
        if ((is_pipeline || has_module_name(around->entries[i])) &&
            is_component_without_weights(around, around->entries[i]))
            log_warn(log, FSDPCK_FINDING_WEIGHTS_LOST, "copy them from where they were saved",
                     "'%s/%s' has the config of %s, but no weights", around->path,
                     around->entries[i],
                     is_pipeline ? "a model" : "a module of sentence-transformers");
}

void lost_components_warn(const probe_input *around, const logger *log)
{
    warn_missing(around, "model_index.json", read_model_index, log);
    warn_missing(around, "modules.json", read_modules, log);
    warn_without_weights(around, log);
}
