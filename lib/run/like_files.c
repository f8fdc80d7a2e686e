#include "run/like_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"
#include "open/layer_gaps.h"
#include "run/config_edit.h"
#include "run/model_modules.h"
#include "run/sidecar_cut.h"

#define CONFIG_NAME    "config.json"
#define TEMPLATES_NAME "additional_chat_templates"

typedef struct module_search {
    sidecars *s;
    strtab names; /* of Python files to be copied: "modeling_x" */
} module_search;

static fsdpck_status find_modules(module_search *m, const probe_input *in, fsdpck_error *err)
{
    return model_modules_find(&m->s->dir, in->entries, in->entry_count, &m->names, err);
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
                                                 (l->base->unquantized || is_recast(base, to))};
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
    return model_modules_is_of_model(name) ||
           (text_ends_with(name, n, ".py") &&
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
    if (copied)
        sidecar_warn_cut(&m->s->dir, name, log);
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
        st = layer_gaps_warn(to, &config, true, log, err);
    model_config_release(&config);
    return st;
}
