#include "run/model_modules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "open/model_config.h"
#include "run/sidecars.h"

/* Real settings and modules have some 100 KB. */
#define SETTINGS_NBYTES_MAX (UINT64_C(4) << 20)
#define NAMED_MAX           5u

bool model_modules_is_of_model(const char *name)
{
    static const char *const names[] = {
        "config.json",
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

typedef struct module_search {
    const folder *dir;
    strtab *names; /* "modeling_x", in the order in which they were found */
} module_search;

static bool has_entry(char *const *entries, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i], name) == 0)
            return true;
    return false;
}

/* A whole file of the folder, which the caller frees. *text is NULL if it cannot be read, or is larger
 * than those that matter. */
static fsdpck_status read_small(const folder *dir, const char *name, char **text, size_t *nbytes,
                                fsdpck_error *err)
{
    file f = FILE_CLOSED;
    *text = NULL;
    if (model_file_open(dir, name, CACHE_LINKS, &f, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    fsdpck_status st = FSDPCK_OK;
    if (f.nbytes <= SETTINGS_NBYTES_MAX) {
        *nbytes = f.nbytes;
        *text = malloc(*nbytes + 1);
        st = *text == NULL ? error_set_nomem(err, *nbytes + 1)
                           : file_read_at(&f, 0, *text, *nbytes, err);
        if (st == FSDPCK_OK) {
            (*text)[*nbytes] = '\0';
        } else {
            free(*text);
            *text = NULL;
        }
    }
    file_abandon(&f);
    return st;
}

static bool is_of_repository(const char *text, size_t nbytes)
{
    for (size_t i = 0; i + 1 < nbytes; i++)
        if (text[i] == '-' && text[i + 1] == '-')
            return true;
    return false;
}

/* "modeling_x.Class". A class of another repository, "owner/name--modeling_x.Class", is none of the
 * folder. */
static fsdpck_status add_class(const module_search *m, const json_token *t, fsdpck_error *err)
{
    uint32_t id;
    const char *dot = t->kind == JSON_STRING ? memchr(t->text, '.', t->nbytes) : NULL;
    if (dot == NULL || dot == t->text || memchr(t->text, '/', t->nbytes) != NULL ||
        is_of_repository(t->text, (size_t)(dot - t->text)))
        return FSDPCK_OK;
    return strtab_intern(m->names, t->text, (size_t)(dot - t->text), &id, err);
}

/* The classes in `auto_map` at the top: texts, also in lists. */
static fsdpck_status find_classes(const module_search *m, json_reader *r, fsdpck_error *err)
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
static fsdpck_status search_settings(const module_search *m, const char *name, fsdpck_error *err)
{
    char *text;
    size_t nbytes;
    json_reader r;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    RETURN_IF(read_small(m->dir, name, &text, &nbytes, err));
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
static fsdpck_status add_import(const module_search *m, const char *line, size_t nbytes,
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
        /* A folder is not loaded: transformers takes "x.y" for the name of one file. */
        if (end > begin && (end == nbytes || line[end] != '.'))
            return strtab_intern(m->names, line + begin, end - begin, &id, err);
    }
    return FSDPCK_OK;
}

static fsdpck_status search_module(const module_search *m, const char *name, fsdpck_error *err)
{
    char *text;
    size_t nbytes;
    RETURN_IF(read_small(m->dir, name, &text, &nbytes, err));
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

fsdpck_status model_modules_find(const folder *dir, char *const *entries, size_t count,
                                 strtab *names, fsdpck_error *err)
{
    const module_search m = {.dir = dir, .names = names};
    text_buf name = {0};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        if (model_modules_is_of_model(entries[i]) &&
            text_ends_with(entries[i], strlen(entries[i]), "config.json"))
            st = search_settings(&m, entries[i], err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(names); i++) {
        name.nbytes = 0;
        text_append(&name, strtab_text(names, i), strtab_nbytes(names, i));
        text_puts(&name, ".py");
        st = text_check(&name, err);
        if (st == FSDPCK_OK && has_entry(entries, count, name.text))
            st = search_module(&m, name.text, err);
    }
    text_release(&name);
    return st;
}

/* --- lost ones --- */

static bool is_lost(char *const *entries, size_t count, const char *name)
{
    char with_suffix[256];
    const int n = snprintf(with_suffix, sizeof with_suffix, "%s.py", name);
    return n > 0 && (size_t)n < sizeof with_suffix && !has_entry(entries, count, with_suffix);
}

fsdpck_status model_modules_lost(const folder *dir, text_buf *list, uint64_t *lost,
                                 fsdpck_error *err)
{
    char **entries = NULL;
    size_t count = 0;
    strtab names;
    strtab_init(&names, NULL);
    *lost = 0;
    fsdpck_status st = folder_list(dir, NULL, &entries, &count, err);
    if (st == FSDPCK_OK)
        st = model_modules_find(dir, entries, count, &names, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&names); i++) {
        char text[256];
        const char *name = strtab_text(&names, i);
        if (!is_lost(entries, count, name))
            continue;
        if (*lost < NAMED_MAX)
            text_printf(list, "%s'%s.py'", *lost > 0 ? ", " : "",
                        escape_text(text, sizeof text, name, strtab_nbytes(&names, i)));
        ++*lost;
    }
    if (*lost > NAMED_MAX)
        text_printf(list, ", and %" PRIu64 " more", *lost - NAMED_MAX);
    free(entries);
    strtab_release(&names);
    return st == FSDPCK_OK ? text_check(list, err) : st;
}
