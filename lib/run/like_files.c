#include "run/like_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"
#include "open/layer_gaps.h"
#include "run/config_edit.h"

#define CONFIG_NAME    "config.json"
#define TEMPLATES_NAME "additional_chat_templates"
/* Real settings and modules have some 100 KB. */
#define SETTINGS_NBYTES_MAX (UINT64_C(4) << 20)

static bool is_of_model(const char *name)
{
    static const char *const names[] = {
        CONFIG_NAME,
        "generation_config.json",
        /* tokenizers */
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "tekken.json",
        "tiktoken.model",
        "spiece.model",
        "spm.model",
        "spm_char.model",
        "sentencepiece.model",
        "sentencepiece.bpe.model",
        "source.spm",
        "target.spm",
        "vocab.json",
        "vocab.txt",
        "vocab-src.json",
        "vocab-tgt.json",
        "target_vocab.json",
        "entity_vocab.json",
        "emoji.json",
        "byte_maps.json",
        "word_shape.json",
        "word_pronunciation.json",
        "dict.txt",
        "bpe.codes",
        "prophetnet.tokenizer",
        "merges.txt",
        "normalizer.json",
        "added_tokens.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "chat_template.json",
        /* images, video, audio */
        "preprocessor_config.json",
        "processor_config.json",
        "audio_tokenizer_config.json",
        "image_processor_config.json",
        "video_preprocessor_config.json",
        "feature_extractor_config.json",
    };
    return TEXT_IS_IN(name, strlen(name), names) || sidecars_is_versioned_tokenizer(name) ||
           text_ends_with(name, strlen(name), ".tiktoken");
}

/* --- Python files --- */

typedef struct module_search {
    sidecars *s;
    strtab names; /* "modeling_x": to be copied, in the order in which they were found */
} module_search;

/* A whole file of the folder, which the caller frees. *text is NULL if it cannot be read, or is larger
 * than those that matter. */
static fsdpck_status read_small(const sidecars *s, const char *name, char **text, size_t *nbytes,
                                fsdpck_error *err)
{
    file f = FILE_CLOSED;
    *text = NULL;
    if (model_file_open(&s->dir, name, CACHE_LINKS, &f, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    fsdpck_status st = FSDPCK_OK;
    if (f.nbytes <= SETTINGS_NBYTES_MAX) {
        *nbytes = f.nbytes;
        *text = malloc(*nbytes + 1);
        st = *text == NULL ? error_set_nomem(err, *nbytes + 1)
                           : file_read_at(&f, 0, *text, *nbytes, err);
        if (st == FSDPCK_OK)
            (*text)[*nbytes] = '\0';
    }
    file_abandon(&f);
    return st;
}

/* "modeling_x.Class". A class of another repository, "owner/name--modeling_x.Class", is none of the
 * folder. */
static fsdpck_status add_class(module_search *m, const json_token *t, fsdpck_error *err)
{
    uint32_t id;
    const char *dot = t->kind == JSON_STRING ? memchr(t->text, '.', t->nbytes) : NULL;
    if (dot == NULL || dot == t->text || memchr(t->text, '/', t->nbytes) != NULL)
        return FSDPCK_OK;
    return strtab_intern(&m->names, t->text, (size_t)(dot - t->text), &id, err);
}

/* The classes in `auto_map` at the top: texts, also in lists. */
static fsdpck_status find_classes(module_search *m, json_reader *r, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            return FSDPCK_OK;
        const bool is_map = json_is(&t, "auto_map");
        RETURN_IF(json_next(r, &t, err));
        const unsigned outside = r->depth - (t.kind == JSON_OBJECT || t.kind == JSON_ARRAY);
        if (!is_map)
            RETURN_IF(json_skip(r, &t, err));
        while (is_map && r->depth > outside) {
            RETURN_IF(json_next(r, &t, err));
            RETURN_IF(add_class(m, &t, err));
        }
    }
}

/* An unreadable settings file names no class. */
static fsdpck_status search_settings(module_search *m, const char *name, fsdpck_error *err)
{
    char *text;
    size_t nbytes;
    json_reader r;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    RETURN_IF(read_small(m->s, name, &text, &nbytes, err));
    if (text == NULL)
        return FSDPCK_OK;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_MAP_CONFIG);
    r.takes_python_numbers = true;
    const fsdpck_status st = find_classes(m, &r, &local);
    json_reader_release(&r);
    free(text);
    if (st != FSDPCK_LIMIT)
        return FSDPCK_OK;
    if (err != NULL)
        *err = local;
    return st;
}

/* "from .NAME import" and "import .NAME", as transformers finds the imports of a module. */
static fsdpck_status add_import(module_search *m, const char *line, size_t nbytes,
                                fsdpck_error *err)
{
    static const char *const words[] = {"from", "import"};
    uint32_t id;
    size_t at = 0;
    while (at < nbytes && (line[at] == ' ' || line[at] == '\t'))
        at++;
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(words[i]);
        if (nbytes - at <= n || memcmp(line + at, words[i], n) != 0)
            continue;
        size_t begin = at + n;
        while (begin < nbytes && (line[begin] == ' ' || line[begin] == '\t'))
            begin++;
        if (begin == at + n || begin == nbytes || line[begin++] != '.')
            continue;
        size_t end = begin;
        while (end < nbytes && strchr(" \t\r.,;#", line[end]) == NULL)
            end++;
        if (end > begin)
            return strtab_intern(&m->names, line + begin, end - begin, &id, err);
    }
    return FSDPCK_OK;
}

static fsdpck_status search_module(module_search *m, const char *name, fsdpck_error *err)
{
    char *text;
    size_t nbytes;
    RETURN_IF(read_small(m->s, name, &text, &nbytes, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t at = 0; text != NULL && st == FSDPCK_OK && at < nbytes;) {
        const char *end = memchr(text + at, '\n', nbytes - at);
        const size_t length = end == NULL ? nbytes - at : (size_t)(end - (text + at));
        st = add_import(m, text + at, length, err);
        at += length + 1;
    }
    free(text);
    return st;
}

/* The names of all Python files to be copied. */
static fsdpck_status find_modules(module_search *m, const probe_input *in, fsdpck_error *err)
{
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < in->entry_count; i++)
        if (is_of_model(in->entries[i]) &&
            text_ends_with(in->entries[i], strlen(in->entries[i]), "config.json"))
            st = search_settings(m, in->entries[i], err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&m->names); i++) {
        name.nbytes = 0;
        text_append(&name, strtab_text(&m->names, i), strtab_nbytes(&m->names, i));
        text_puts(&name, ".py");
        st = text_check(&name, err);
        if (st == FSDPCK_OK && probe_has_entry(in, name.text))
            st = search_module(m, name.text, err);
    }
    text_release(&name);
    return st;
}

/* --- the list --- */

/* Whether quantized weights are not those of the folder any more. */
static bool is_recast(const catalogue *base, const catalogue *to)
{
    for (size_t i = 0; i < catalogue_tensor_count(to); i++) {
        const cat_tensor *t = catalogue_tensor(to, i);
        const uint32_t k =
            catalogue_find(base, catalogue_name(to, t->name), catalogue_name_nbytes(to, t->name));
        if (k == CAT_NONE)
            continue;
        const dtype was = (dtype)catalogue_tensor(base, k)->dtype;
        if (t->dtype != was && !like_output_is_castable(was))
            return true;
    }
    return false;
}

/* The tensor of the output with the name of one of the folder, or CAT_NONE. */
static uint32_t find_same(const like_output *l, const catalogue *to, uint32_t tensor)
{
    const cat_tensor *b = catalogue_tensor(&l->base->cat, tensor);
    return catalogue_find(to, catalogue_name(&l->base->cat, b->name),
                          catalogue_name_nbytes(&l->base->cat, b->name));
}

/* Tensors that replace quantized ones, and have another dtype than most elements of the others. */
static void warn_mixed(const like_output *l, const catalogue *to, const logger *log)
{
    const uint32_t in_base = (uint32_t)catalogue_tensor_count(&l->base->cat);
    uint64_t count = 0, nelems[DTYPE_COUNT] = {0};
    dtype rest = DTYPE_COUNT, kept = DTYPE_COUNT;
    for (uint32_t i = 0; i < in_base; i++) {
        const uint32_t k = find_same(l, to, i);
        const dtype d = k == CAT_NONE ? DTYPE_COUNT : (dtype)catalogue_tensor(to, k)->dtype;
        if (k == CAT_NONE || !like_output_is_castable(d) || like_output_is_dequantized(l, to, i))
            continue;
        nelems[d] += catalogue_tensor_nelems(to, k);
        rest = rest == DTYPE_COUNT || nelems[d] > nelems[rest] ? d : rest;
    }
    for (uint32_t i = 0; rest != DTYPE_COUNT && i < in_base; i++) {
        if (!like_output_is_dequantized(l, to, i))
            continue;
        const dtype d = (dtype)catalogue_tensor(to, find_same(l, to, i))->dtype;
        if (d != rest && count++ == 0)
            kept = d;
    }
    if (count == 0)
        return;
    char next[80];
    snprintf(next, sizeof next, "to cast them, give --dtype %s", dtype_get(rest)->name);
    log_warn(log, FSDPCK_FINDING_EXPORT_DTYPE, next,
             "%" PRIu64 " tensor%s replace%s quantized ones of the folder of --like and keep%s %s; "
             "config.json has no 'quantization_config' now",
             count, text_plural(count), count == 1 ? "s" : "", count == 1 ? "s" : "",
             dtype_get(kept)->name);
}

static fsdpck_status edit_config(sidecars *s, const like_output *l, const catalogue *to,
                                 const logger *log, fsdpck_error *err)
{
    text_buf text = {0};
    const catalogue *base = &l->base->cat;
    const dtype usual = like_output_usual(to);
    const config_change change = {.dtype = usual == l->usual ? NULL : dtype_get(usual)->name,
                                  .was = dtype_get(l->usual)->name,
                                  .unquantized = l->config.is_quantized &&
                                                 (l->base->dequantized > 0 || is_recast(base, to))};
    fsdpck_status st = config_edit(l->config.text, l->config.nbytes, &change, &text, err);
    if (st == FSDPCK_OK)
        st = sidecars_add_text(s, CONFIG_NAME, &text, err);
    if (st == FSDPCK_OK)
        warn_mixed(l, to, log);
    text_release(&text);
    return st;
}

/* Whether a file of the folder is copied: its kind. */
static bool is_wanted(const module_search *m, const char *name)
{
    const size_t n = strlen(name);
    return is_of_model(name) || (text_ends_with(name, n, ".py") &&
                                 strtab_find(&m->names, name, n - strlen(".py")) != STRTAB_NONE);
}

static fsdpck_status add_file(module_search *m, const char *name, const char *of, const logger *log,
                              fsdpck_error *err)
{
    const bool wanted = is_wanted(m, name);
    bool copied = false;
    RETURN_IF(sidecars_add_file(m->s, name, wanted, &copied, err));
    if (wanted && !copied)
        log_warn(log, FSDPCK_FINDING_SIDE_UNREAD, "copy it to the output",
                 "'%s' in the folder of %s is not copied: it is a link to another place, no "
                 "regular file, or too large",
                 name, of);
    return FSDPCK_OK;
}

/* Further templates: additional_chat_templates/rag.jinja. */
static fsdpck_status add_templates(module_search *m, const char *of, const logger *log,
                                   fsdpck_error *err)
{
    folder dir = FOLDER_CLOSED;
    char **names = NULL;
    size_t count = 0;
    if (folder_open_inside(&dir, &m->s->dir, TEMPLATES_NAME, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    fsdpck_status st = folder_list(&dir, NULL, &names, &count, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        bool copied = false;
        if (!text_ends_with(names[i], strlen(names[i]), ".jinja"))
            continue;
        st = sidecars_add_inside(m->s, &dir, TEMPLATES_NAME, names[i], &copied, err);
        if (st == FSDPCK_OK && !copied)
            log_warn(log, FSDPCK_FINDING_SIDE_UNREAD, "copy it to the output",
                     "'%s/%s' in the folder of %s is not copied: it is a link to another place, no "
                     "regular file, or too "
                     "large",
                     TEMPLATES_NAME, names[i], of);
    }
    free(names);
    folder_close(&dir);
    return st;
}

static fsdpck_status add_files(module_search *m, const like_output *l, const catalogue *to,
                               const logger *log, fsdpck_error *err)
{
    const probe_input *in = &l->base->probe;
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *name = in->entries[i];
        if (name[0] == '.' || sidecars_is_weights(name) || strcmp(name, MANIFEST_NAME) == 0)
            continue;
        if (strcmp(name, CONFIG_NAME) == 0 && l->config.text != NULL) {
            RETURN_IF(edit_config(m->s, l, to, log, err));
            continue;
        }
        if (strcmp(name, TEMPLATES_NAME) == 0)
            RETURN_IF(add_templates(m, "--like", log, err));
        else
            RETURN_IF(add_file(m, name, "--like", log, err));
    }
    return FSDPCK_OK;
}

fsdpck_status like_files_find(sidecars *s, const like_output *l, const catalogue *to,
                              const logger *log, fsdpck_error *err)
{
    module_search m = {.s = s};
    sidecars_init(s, true);
    s->of_like = true;
    RETURN_IF(folder_open_same(&s->dir, &l->base->probe.dir, l->base->path, err));
    strtab_init(&m.names, NULL);
    fsdpck_status st = find_modules(&m, &l->base->probe, err);
    if (st == FSDPCK_OK)
        st = add_files(&m, l, to, log, err);
    strtab_release(&m.names);
    return st;
}

static fsdpck_status add_names(const module_search *m, const probe_input *in, strtab *names,
                               fsdpck_error *err)
{
    uint32_t id;
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *name = in->entries[i];
        if (is_wanted(m, name) && strcmp(name, CONFIG_NAME) != 0)
            RETURN_IF(strtab_intern(names, name, strlen(name), &id, err));
    }
    return FSDPCK_OK;
}

fsdpck_status like_files_names(const like_output *l, strtab *names, fsdpck_error *err)
{
    sidecars s;
    module_search m = {.s = &s};
    sidecars_init(&s, true);
    RETURN_IF(folder_open_same(&s.dir, &l->base->probe.dir, l->base->path, err));
    strtab_init(&m.names, NULL);
    fsdpck_status st = find_modules(&m, &l->base->probe, err);
    if (st == FSDPCK_OK)
        st = add_names(&m, &l->base->probe, names, err);
    strtab_release(&m.names);
    sidecars_release(&s);
    return st;
}

/* --- the folder of --config --- */

/* Whether a tensor is stored quantized. *dtype: of most floating elements; NULL: there are none. */
static bool is_output_quantized(const catalogue *to, const char **name)
{
    bool quantized = false;
    *name = NULL;
    for (size_t i = 0; i < catalogue_tensor_count(to); i++) {
        const dtype d = (dtype)catalogue_tensor(to, i)->dtype;
        if (like_output_is_castable(d))
            *name = dtype_get(like_output_usual(to))->name;
        else
            quantized |= dtype_get(d)->itemsize_bytes == 1 && d != DTYPE_BOOL;
    }
    return quantized;
}

static fsdpck_status add_config(sidecars *s, const model_config *config, const catalogue *to,
                                fsdpck_error *err)
{
    const char *usual;
    text_buf text = {0};
    config_change change = {.was = config->dtype};
    change.unquantized = !is_output_quantized(to, &usual) && config->is_quantized;
    if (usual != NULL && strcmp(usual, config->dtype) != 0)
        change.dtype = usual;
    fsdpck_status st = config_edit(config->text, config->nbytes, &change, &text, err);
    if (st == FSDPCK_OK)
        st = sidecars_add_text(s, CONFIG_NAME, &text, err);
    text_release(&text);
    return st;
}

/* Those of the folder that are copied, in their order; config.json among them. */
static fsdpck_status add_folder(sidecars *s, const char *path, const model_config *config,
                                const catalogue *to, const logger *log, fsdpck_error *err)
{
    module_search m = {.s = s};
    probe_input in = {.path = path, .is_folder = true};
    sidecars_release(s);
    sidecars_init(s, true);
    RETURN_IF(folder_open_parent(&s->dir, path, err));
    RETURN_IF(folder_list(&s->dir, NULL, &in.entries, &in.entry_count, err));
    strtab_init(&m.names, NULL);
    fsdpck_status st = find_modules(&m, &in, err);
    for (size_t i = 0; st == FSDPCK_OK && i < in.entry_count; i++) {
        if (strcmp(in.entries[i], CONFIG_NAME) == 0)
            st = add_config(s, config, to, err);
        else if (strcmp(in.entries[i], TEMPLATES_NAME) == 0)
            st = add_templates(&m, "--config", log, err);
        else if (is_wanted(&m, in.entries[i]))
            st = add_file(&m, in.entries[i], "--config", log, err);
    }
    strtab_release(&m.names);
    free(in.entries);
    return st;
}

fsdpck_status like_files_of_config(sidecars *s, const char *path, const catalogue *to,
                                   const logger *log, fsdpck_error *err)
{
    model_config config;
    bool has_files = false;
    if (sidecars_has(s, CONFIG_NAME))
        return FSDPCK_OK;
    for (size_t i = 0; i < s->files.count; i++)
        has_files |= VEC_AT(&s->files, const sidecar, i)->copied;
    fsdpck_status st = model_config_read_file(path, &config, err);
    if (st == FSDPCK_OK && config.model_type[0] == '\0')
        log_write(log, LOG_DETAIL, "'%s' has no model_type: it is not copied", path);
    else if (st == FSDPCK_OK && !has_files && strcmp(text_file_name(path), CONFIG_NAME) == 0)
        st = add_folder(s, path, &config, to, log, err);
    else if (st == FSDPCK_OK)
        st = add_config(s, &config, to, err);
    if (st == FSDPCK_OK && config.model_type[0] != '\0')
        st = layer_gaps_warn(to, &config, log, err);
    model_config_release(&config);
    return st;
}
