#include "run/sidecars.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/unfinished_file.h"
#include "manifest/manifest.h"
#include "open/side_folder.h"
#include "open/state_files.h"
#include "run/config_edit.h"
#include "run/sidecar_cut.h"

#define COPY_NBYTES             ((size_t)1 << 20)
#define SIDECAR_PATH_NBYTES_MAX 4096u
#define INSIDE_NBYTES_MAX       (UINT64_C(1) << 20)

bool sidecars_is_weights(const char *path)
{
    static const char *const suffixes[] = {".distcp", ".index.json", ".weights.json"};
    static const char of_variant[] = ".safetensors.index."; /* model.safetensors.index.fp16.json */
    const char *name = text_file_name(path);
    const size_t n = strlen(name);
    if (name[weights_stem_nbytes(name)] != '\0' || strstr(name, of_variant) != NULL)
        return true;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t k = strlen(suffixes[i]);
        if (n > k && strcmp(name + n - k, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* A regular file, or a link to one in the cache; not open where it is anything else. */
static fsdpck_status open_plain(const sidecars *s, const char *name, file *f, fsdpck_error *err)
{
    return model_file_open(&s->dir, name, s->flat ? CACHE_LINKS : CACHE_LINKS_NONE, f, err);
}

/* True only for a file that may be copied. */
static bool is_plain_file(const sidecars *s, const char *name, uint64_t *nbytes)
{
    file f = FILE_CLOSED;
    if (open_plain(s, name, &f, NULL) != FSDPCK_OK)
        return false;
    *nbytes = f.nbytes;
    file_abandon(&f);
    return true;
}

/* folder_name "": of the checkpoint's own folder. */
static fsdpck_status add_name(sidecars *s, const char *folder_name, const char *name,
                              fsdpck_error *err)
{
    sidecar *file_of = vec_push(&s->files, err);
    if (file_of == NULL)
        return FSDPCK_LIMIT;
    *file_of = (sidecar){0};
    const size_t nbytes = strlen(folder_name) + strlen(name) + 2;
    file_of->path = malloc(nbytes);
    if (file_of->path == NULL)
        return error_set_nomem(err, nbytes);
    snprintf(file_of->path, nbytes, "%s%s%s", folder_name, folder_name[0] == '\0' ? "" : "/", name);
    return FSDPCK_OK;
}

static const char *name_of(const sidecar *f)
{
    return text_file_name(f->path);
}

const char *sidecars_output(const sidecars *s, const sidecar *f)
{
    return s->flat && !f->inside ? name_of(f) : f->path;
}

bool sidecars_is_versioned_tokenizer(const char *name)
{
    static const char prefix[] = "tokenizer.model.v";
    return text_begins(name, prefix) && name[strlen(prefix)] >= '0' && name[strlen(prefix)] <= '9';
}

/* Kinds of files that belong to a model: settings, tokenizer, templates, modules, texts. */
static bool is_of_kind(const char *name)
{
    static const char *const suffixes[] = {
        ".json", ".jinja", ".py",   ".txt", ".model",  ".tiktoken", ".bpe",      ".spm",
        ".yaml", ".yml",   ".toml", ".md",  ".tekken", ".codes",    ".tokenizer"};
    static const char *const texts[] = {"LICENSE", "LICENCE", "COPYING", "NOTICE", "README"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (text_ends_with(name, strlen(name), suffixes[i]))
            return true;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(name, texts[i]) == 0)
            return true;
    return sidecars_is_versioned_tokenizer(name);
}

/* A manifest cannot contain other names. */
static bool is_utf8(const char *name)
{
    const size_t nbytes = strlen(name);
    uint32_t c;
    for (size_t at = 0; at < nbytes;) {
        const unsigned n = utf8_decode((const uint8_t *)name + at, nbytes - at, &c);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

/* Of NeMo Automodel, for its own consolidation. */
static bool is_of_shards(const char *name)
{
    return strcmp(name, "fqn_to_file_index_mapping.json") == 0 ||
           strcmp(name, "fqn_to_dtype_mapping.json") == 0;
}

/* Marks file `index` as copied if it is a complete regular file of a model, within the limits. */
static bool choose_file(sidecars *s, size_t index)
{
    sidecar *f = VEC_AT(&s->files, sidecar, index);
    char control[SIDECAR_PATH_NBYTES_MAX];
    /* With trainer_state.json and without the optimizer, which is not copied, a Trainer would resume from nothing. */
    if (name_of(f)[0] == '.' || sidecars_is_weights(name_of(f)) || !is_of_kind(name_of(f)) ||
        strcmp(name_of(f), TRAINER_STATE_JSON) == 0 || !is_utf8(name_of(f)) ||
        (s->flat && is_of_shards(name_of(f))) || index >= SIDECARS_MAX_COUNT ||
        !is_plain_file(s, name_of(f), &f->nbytes) ||
        unfinished_has_control(&s->dir, name_of(f), control, sizeof control))
        return false;
    f->copied = f->nbytes <= SIDECAR_NBYTES_MAX && f->nbytes <= SIDECARS_NBYTES_MAX - s->nbytes;
    s->nbytes += f->copied ? f->nbytes : 0;
    return f->copied;
}

static fsdpck_status set_text(sidecars *s, sidecar *f, const text_buf *text, fsdpck_error *err)
{
    f->text = malloc(text->nbytes + 1);
    if (f->text == NULL)
        return error_set_nomem(err, text->nbytes + 1);
    memcpy(f->text, text->text, text->nbytes);
    s->nbytes += text->nbytes - (f->copied ? f->nbytes : 0);
    f->nbytes = text->nbytes;
    f->copied = true;
    return FSDPCK_OK;
}

void sidecars_init(sidecars *s, bool flat)
{
    *s = (sidecars){.dir = FOLDER_CLOSED, .files = VEC_OF(sidecar, NULL), .flat = flat};
}

fsdpck_status sidecars_add_file(sidecars *s, const char *name, bool wanted, bool *copied,
                                fsdpck_error *err)
{
    RETURN_IF(add_name(s, "", name, err));
    *copied = wanted && choose_file(s, s->files.count - 1);
    return FSDPCK_OK;
}

fsdpck_status sidecars_add_text(sidecars *s, const char *name, const text_buf *text,
                                fsdpck_error *err)
{
    RETURN_IF(add_name(s, "", name, err));
    return set_text(s, VEC_AT(&s->files, sidecar, s->files.count - 1), text, err);
}

fsdpck_status sidecars_add_inside(sidecars *s, const folder *dir, const char *folder_name,
                                  const char *name, bool *copied, fsdpck_error *err)
{
    file f = FILE_CLOSED;
    text_buf text = {0};
    fsdpck_status st = FSDPCK_OK;
    *copied = false;
    RETURN_IF(add_name(s, folder_name, name, err));
    sidecar *added = VEC_AT(&s->files, sidecar, s->files.count - 1);
    added->inside = true;
    if (!is_utf8(name) || s->files.count > SIDECARS_MAX_COUNT ||
        model_file_open(dir, name, s->flat ? CACHE_LINKS_INSIDE : CACHE_LINKS_NONE, &f, NULL) !=
            FSDPCK_OK)
        return FSDPCK_OK;
    if (f.nbytes > 0 && f.nbytes <= INSIDE_NBYTES_MAX &&
        f.nbytes <= SIDECARS_NBYTES_MAX - s->nbytes) {
        text.text = malloc(f.nbytes);
        text.nbytes = f.nbytes;
        st = text.text == NULL ? error_set_nomem(err, f.nbytes)
                               : file_read_at(&f, 0, text.text, f.nbytes, err);
        if (st == FSDPCK_OK)
            st = set_text(s, added, &text, err);
        *copied = st == FSDPCK_OK;
        free(text.text);
    }
    file_abandon(&f);
    return st;
}

fsdpck_status sidecars_add_state(sidecars *s, const fsdpck_checkpoint *src, const char *name,
                                 bool *copied, fsdpck_error *err)
{
    *copied = false;
    RETURN_IF(folder_open_same(&s->dir, &src->probe.dir, src->path, err));
    RETURN_IF(add_name(s, "", name, err));
    sidecar *f = VEC_AT(&s->files, sidecar, s->files.count - 1);
    if (!is_plain_file(s, name, &f->nbytes) || f->nbytes > SIDECAR_NBYTES_MAX)
        return FSDPCK_OK;
    s->nbytes += f->nbytes;
    f->copied = *copied = true;
    return FSDPCK_OK;
}

static bool is_empty_data(const sidecars *s, const char *name)
{
    const size_t n = strlen(name), k = strlen(".distcp");
    path_kind kind;
    uint64_t nbytes;
    return n > k && strcmp(name + n - k, ".distcp") == 0 &&
           path_probe(&s->dir, name, &kind, &nbytes, NULL) == FSDPCK_OK && nbytes == 0;
}

/* PEFT's file of an adapter, of any kind. */
static bool reads_adapter(const fsdpck_checkpoint *src)
{
    while (src->base != NULL)
        src = src->base;
    const catalogue *read = src->adapter == NULL ? &src->cat : &src->read;
    for (size_t i = 0; i < catalogue_file_count(read); i++)
        if (text_begins(catalogue_name(read, catalogue_file(read, i)->path), "adapter_model."))
            return true;
    return false;
}

/* transformers takes a folder with this file for that of an adapter, loads the base model that it names in place of the
 * weights, and then the adapter, or applies a merged one again. */
static bool is_of_adapter(const fsdpck_checkpoint *src, const char *name)
{
    return strcmp(name, "adapter_config.json") == 0 &&
           (checkpoint_merged(src) != NULL ||
            !(adapters_are_likely(&src->cat) || reads_adapter(src)));
}

/* What a trainer wrote about one run is not that of an average. */
static bool is_of_run(const fsdpck_checkpoint *src, const char *name)
{
    static const char *const names[] = {"trainer_state.json", "train_results.json",
                                        "eval_results.json", "all_results.json"};
    while (src != NULL && src->average == NULL)
        src = src->base;
    return src != NULL && src->average_rule.count > 1 && TEXT_IS_IN(name, strlen(name), names);
}

/* NULL: other rules decide. */
static const char *why_unread(const sidecars *s, const char *name)
{
    path_kind kind;
    file f = FILE_CLOSED;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    if (path_is_dangling(&s->dir, name))
        return "it is a link to a file that does not exist";
    if (path_probe(&s->dir, name, &kind, NULL, NULL) != FSDPCK_OK)
        return NULL;
    if (kind == PATH_FOLDER)
        return model_json_has_name(name) ? "it is a folder" : NULL;
    if (kind != PATH_FILE)
        return NULL;
    const fsdpck_status st = file_open_read(&f, &s->dir, name, 0, &why);
    file_abandon(&f);
    return st == FSDPCK_IO && why.sys_errno == EACCES ? "it may not be read" : NULL;
}

static void warn_of_name(const sidecars *s, const logger *log, const char *name)
{
    char text[256];
    if (!is_of_kind(name))
        return;
    if (!is_utf8(name))
        log_warn(log, FSDPCK_FINDING_SIDE_UNREAD, "rename the file, or copy it yourself",
                 "'%s' is not copied: its name is not UTF-8",
                 escape_text(text, sizeof text, name, strlen(name)));
    else if (why_unread(s, name) != NULL)
        log_warn(log, FSDPCK_FINDING_SIDE_UNREAD, "copy the file from where it was written",
                 "'%s' is not copied: %s", escape_text(text, sizeof text, name, strlen(name)),
                 why_unread(s, name));
    else if (unfinished_is_pointer(&s->dir, name))
        log_warn(log, FSDPCK_FINDING_SIDE_UNREAD, "fetch the file with git lfs pull",
                 "'%s' is a git-lfs pointer, not the file itself, and is copied as it is",
                 escape_text(text, sizeof text, name, strlen(name)));
}

fsdpck_status sidecars_find(sidecars *s, const fsdpck_checkpoint *src, sidecars_policy policy,
                            fsdpck_error *err)
{
    const char *folder_name = src->cat.origin.side_folder;
    const bool has_own = src->probe.is_folder && (folder_name[0] != '\0' || src->format->of_model);
    sidecars_init(s, policy == SIDECARS_FLAT);
    if (!has_own && src->entered_from == NULL)
        return FSDPCK_OK;
    if (folder_name[0] == '\0' && policy != SIDECARS_FLAT)
        return FSDPCK_OK;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    if (side_folder_open(src, &s->dir, &local) != FSDPCK_OK) {
        log_warn(&src->ctx->log, FSDPCK_FINDING_SIDE_UNREAD, "", "'%s' is not copied: %s",
                 folder_name, local.message);
        return FSDPCK_OK;
    }
    char **names;
    size_t count;
    RETURN_IF(folder_list(&s->dir, NULL, &names, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        /* The output has its own manifest. Data files of ranks without data are not sidecars. */
        if (strcmp(names[i], MANIFEST_NAME) != 0 && !is_empty_data(s, names[i]))
            st = add_name(s, folder_name, names[i], err);
    free(names);
    for (size_t i = 0; st == FSDPCK_OK && policy != SIDECARS_NAMED && i < s->files.count; i++) {
        const char *name = name_of(VEC_AT(&s->files, const sidecar, i));
        if (!is_of_adapter(src, name) && !is_of_run(src, name) && choose_file(s, i))
            sidecar_warn_cut(&s->dir, name, &src->ctx->log);
        warn_of_name(s, &src->ctx->log, name);
    }
    return st;
}

static sidecar *find_config(const sidecars *s)
{
    for (size_t i = 0; i < s->files.count; i++) {
        sidecar *f = VEC_AT(&s->files, sidecar, i);
        if (f->copied && strcmp(name_of(f), "config.json") == 0)
            return f;
    }
    return NULL;
}

void sidecars_get_library(const sidecars *s, bool *found, bool *of_diffusers)
{
    model_config config = {0};
    const sidecar *f = find_config(s);
    *found = f != NULL;
    *of_diffusers = false;
    if (f == NULL)
        return;
    const fsdpck_status st = f->text != NULL
                                 ? model_config_read_text(f->text, (size_t)f->nbytes, &config, NULL)
                                 : model_config_read(&s->dir, &config, NULL);
    *of_diffusers = st == FSDPCK_OK && config.has_class_name && config.has_diffusers_version;
    model_config_release(&config);
}

fsdpck_status sidecars_edit_config(sidecars *s, const char *to, bool unquantize, fsdpck_error *err)
{
    model_config config;
    text_buf text = {0};
    sidecar *f = find_config(s);
    if (f == NULL || f->text != NULL)
        return FSDPCK_OK;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    fsdpck_status st = model_config_read(&s->dir, &config, &local);
    if (st == FSDPCK_BADINPUT && !unquantize) { /* copied as it is */
        model_config_release(&config);
        return FSDPCK_OK;
    }
    if (st != FSDPCK_OK && err != NULL)
        *err = local;
    const bool recast =
        st == FSDPCK_OK && to != NULL && config.dtype[0] != '\0' && strcmp(config.dtype, to) != 0;
    const config_change change = {.dtype = recast ? to : NULL,
                                  .was = config.dtype,
                                  .unquantized = unquantize && config.is_quantized};
    if (st == FSDPCK_OK && (recast || change.unquantized)) {
        st = config_edit(config.text, config.nbytes, &change, &text, err);
        if (st == FSDPCK_OK)
            st = set_text(s, f, &text, err);
    }
    text_release(&text);
    model_config_release(&config);
    return st;
}

bool sidecars_has(const sidecars *s, const char *path)
{
    for (size_t i = 0; i < s->files.count; i++) {
        const sidecar *f = VEC_AT(&s->files, const sidecar, i);
        if (f->copied && strcmp(sidecars_output(s, f), path) == 0)
            return true;
    }
    return false;
}

fsdpck_status sidecars_add(sidecars *s, output *out, fsdpck_error *err)
{
    for (size_t i = 0; i < s->files.count; i++) {
        sidecar *f = VEC_AT(&s->files, sidecar, i);
        if (f->copied)
            RETURN_IF(output_add(out, sidecars_output(s, f), f->nbytes, false, &f->index, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status changed(const char *path, uint64_t expected, uint64_t found, fsdpck_error *err)
{
    return FAIL_WITH(err, CHANGED, NONE, ("file changed while the checkpoint was read"),
                     (path, path), (expected, "%" PRIu64 " bytes", expected),
                     (found, "%" PRIu64 " bytes", found));
}

static fsdpck_status copy_file(const sidecars *s, sidecar *f, output *out, uint8_t *buffer,
                               fsdpck_error *err)
{
    file in = FILE_CLOSED;
    if (f->text != NULL) {
        f->crc64 = crc64_update(f->crc64, f->text, f->nbytes);
        return output_write_at(out, f->index, 0, f->text, f->nbytes, err);
    }
    RETURN_IF(open_plain(s, name_of(f), &in, err));
    fsdpck_status st = FSDPCK_OK;
    if (in.nbytes != f->nbytes)
        st = changed(in.path, f->nbytes, in.nbytes, err);
    for (uint64_t at = 0; st == FSDPCK_OK && at < f->nbytes; at += COPY_NBYTES) {
        const uint64_t n = f->nbytes - at < COPY_NBYTES ? f->nbytes - at : COPY_NBYTES;
        st = file_read_at(&in, at, buffer, n, err);
        f->crc64 = crc64_update(f->crc64, buffer, n);
        if (st == FSDPCK_OK)
            st = output_write_at(out, f->index, at, buffer, n, err);
    }
    if (st == FSDPCK_OK)
        st = file_check_unchanged(&in, err);
    file_abandon(&in);
    return st;
}

fsdpck_status sidecars_copy(sidecars *s, output *out, const cancel_token *cancel, fsdpck_error *err)
{
    uint8_t *buffer = malloc(COPY_NBYTES);
    if (buffer == NULL)
        return error_set_nomem(err, COPY_NBYTES);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < s->files.count; i++) {
        sidecar *f = VEC_AT(&s->files, sidecar, i);
        if (!f->copied)
            continue;
        st = cancel_check(cancel, err);
        if (st == FSDPCK_OK)
            st = copy_file(s, f, out, buffer, err);
    }
    free(buffer);
    return st;
}

void sidecars_release(sidecars *s)
{
    for (size_t i = 0; i < s->files.count; i++) {
        free(VEC_AT(&s->files, sidecar, i)->path);
        free(VEC_AT(&s->files, sidecar, i)->text);
    }
    vec_release(&s->files);
    folder_close(&s->dir);
}
