#include "verify/step_inventory.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "manifest/manifest.h"
#include "open/checkpoint.h"

/* Limits of a candidate. */
enum { FOLDERS_MAX = 1024, DEPTH_MAX = 16, FILES_MAX = 1 << 16 };

static const char digits[] = "0123456789";

void step_inventory_init(step_inventory *s)
{
    *s = (step_inventory){.pattern_of = VEC_OF(uint32_t, NULL), .counts = VEC_OF(uint32_t, NULL)};
    strtab_init(&s->names, NULL);
    strtab_init(&s->patterns, NULL);
}

void step_inventory_release(step_inventory *s)
{
    strtab_release(&s->names);
    strtab_release(&s->patterns);
    VEC_RELEASE_ALL(&s->pattern_of, &s->counts);
}

uint32_t step_inventory_count(const step_inventory *s, const char *pattern, size_t nbytes)
{
    const uint32_t id = strtab_find(&s->patterns, pattern, nbytes);
    return id == STRTAB_NONE ? 0 : *VEC_AT(&s->counts, const uint32_t, id);
}

/* ---- names ---- */

static bool is_of_metadata(const char *name)
{
    return text_ends_with(name, strlen(name), ".distcp");
}

/* Of a component, "global_step8" of step 8 is "global_step#". */
static void append_component(const char *text, size_t nbytes, const step_name *of, bool is_first,
                             text_buf *out)
{
    char component[256] = "";
    step_name s;
    if (nbytes < sizeof component)
        memcpy(component, text, nbytes);
    component[nbytes < sizeof component ? nbytes : 0] = '\0';
    step_name_read(component, weights_stem_nbytes(component), &s);
    const bool is_number =
        s.end > s.begin && s.step == of->step && (is_first || step_name_has_word(&s));
    if (!is_number) {
        text_append(out, text, nbytes);
        return;
    }
    text_append(out, text, s.begin);
    text_append(out, &(const char){STEP_INVENTORY_NUMBER}, 1);
    text_append(out, text + s.end, nbytes - s.end);
}

static void append_name(const char *path, const step_name *of, text_buf *out)
{
    for (const char *at = path; *at != '\0';) {
        const size_t n = strcspn(at, "/");
        append_component(at, n, of, at == path, out);
        at += n;
        if (*at == '/') {
            text_puts(out, "/");
            at++;
        }
    }
}

/* Shards of one model count as the model: "model-00001-of-00002" is "model". */
static void append_pattern(const char *name, size_t nbytes, text_buf *out)
{
    static const char of[] = "-#-of-#";
    for (size_t i = 0; i < nbytes;) {
        const size_t n = name[i] == STEP_INVENTORY_NUMBER ? 1 : strspn(name + i, digits);
        text_append(out, n > 0 ? "#" : name + i, 1);
        i += n > 0 ? n : 1;
    }
    char *at = out->text == NULL ? NULL : strstr(out->text, of);
    if (at == NULL)
        return;
    memmove(at, at + sizeof of - 1, strlen(at + sizeof of - 1) + 1);
    out->nbytes -= sizeof of - 1;
}

static fsdpck_status add_pattern(step_inventory *s, const text_buf *pattern, uint32_t *id,
                                 fsdpck_error *err)
{
    RETURN_IF(strtab_intern(&s->patterns, pattern->text, pattern->nbytes, id, err));
    return *id < s->counts.count ? FSDPCK_OK : vec_add(&s->counts, &(uint32_t){0}, err);
}

static fsdpck_status add_name(step_inventory *s, const text_buf *name, const text_buf *pattern,
                              fsdpck_error *err)
{
    uint32_t id, pattern_id;
    RETURN_IF(add_pattern(s, pattern, &pattern_id, err));
    RETURN_IF(strtab_intern(&s->names, name->text, name->nbytes, &id, err));
    if (id < s->pattern_of.count)
        return FSDPCK_OK;
    ++*VEC_AT(&s->counts, uint32_t, pattern_id);
    return vec_add(&s->pattern_of, &pattern_id, err);
}

/* One for all files of a pattern in a folder. */
static void merge_files(text_buf *name, const text_buf *pattern)
{
    const char *slash = strrchr(name->text, '/');
    name->nbytes = slash == NULL ? 0 : (size_t)(slash - name->text) + 1;
    text_puts(name, text_file_name(pattern->text));
}

/* The name of a file in its step, and its pattern; to be released also after a failure. */
static fsdpck_status describe_path(const char *path, const step_name *of, text_buf *name,
                                   text_buf *pattern, fsdpck_error *err)
{
    append_name(path, of, name);
    if (!name->failed && name->text != NULL)
        append_pattern(name->text, name->nbytes, pattern);
    RETURN_IF(text_check(name, err));
    return text_check(pattern, err);
}

/* Of files that the metadata states: what steps have in common, but no name that one may lack. */
static fsdpck_status add_shared_pattern(step_inventory *s, const char *path, const step_name *of,
                                        fsdpck_error *err)
{
    text_buf name = {0}, pattern = {0};
    uint32_t id;
    fsdpck_status st = describe_path(path, of, &name, &pattern, err);
    if (st == FSDPCK_OK && pattern.nbytes > 0)
        st = add_pattern(s, &pattern, &id, err);
    if (st == FSDPCK_OK && pattern.nbytes > 0)
        *VEC_AT(&s->counts, uint32_t, id) = 1;
    text_release(&name);
    text_release(&pattern);
    return st;
}

/* counted: otherwise files of this pattern are one. */
static fsdpck_status add_path(step_inventory *s, const char *path, const step_name *of,
                              bool counted, fsdpck_error *err)
{
    text_buf name = {0}, pattern = {0};
    fsdpck_status st = describe_path(path, of, &name, &pattern, err);
    if (st == FSDPCK_OK && name.nbytes > 0 && !counted) {
        merge_files(&name, &pattern);
        st = text_check(&name, err);
    }
    if (st == FSDPCK_OK && name.nbytes > 0)
        st = add_name(s, &name, &pattern, err);
    text_release(&name);
    text_release(&pattern);
    return st;
}

/* The folders that lead to it, then the file. A file of DCP is stated by the metadata. */
static fsdpck_status add_file(step_inventory *s, const char *path, const step_name *of,
                              bool counted, fsdpck_error *err)
{
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        char *above = strndup(path, (size_t)(at - path) + 1);
        if (above == NULL)
            return error_set_nomem(err, strlen(path));
        const fsdpck_status st = add_path(s, above, of, true, err);
        free(above);
        RETURN_IF(st);
    }
    return is_of_metadata(path) ? add_shared_pattern(s, path, of, err)
                                : add_path(s, path, of, counted, err);
}

/* ---- folders ---- */

/* Settings, which a trainer writes with each step, such as config.json and tokenizer.model, and an index. Results of an evaluation belong to
 * some steps. */
static bool is_settings(const char *name)
{
    static const char *const ends[] = {".json",  ".yaml",     ".yml",      ".model",
                                       ".jinja", "vocab.txt", "merges.txt"};
    static const char *const others[] = {"result", "metric", "eval", "predict", "log"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i]) != NULL)
            return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends_with(name, strlen(name), ends[i]))
            return strcmp(name, MANIFEST_NAME) != 0;
    return false;
}

static bool is_weights(const char *name, bool *counted)
{
    const size_t n = strlen(name);
    *counted = format_file_count(name) == 0 || format_is_shard_of_rank(name);
    return is_of_metadata(name) || weights_stem_nbytes(name) < n ||
           text_ends_with(name, n, ".pkl") || is_settings(name);
}

typedef struct inventory_walk {
    step_inventory *s;
    const step_name *of;
    folder dir;     /* of the candidate */
    char *base;     /* its name */
    strtab folders; /* below it, in the order of the search; "": itself */
    size_t files;
} inventory_walk;

/* A whole model in one file needs no index, as numbered files do. */
static bool has_no_index(const char *path)
{
    const size_t n = strlen(path);
    return text_ends_with(path, n, ".safetensors") || text_ends_with(path, n, ".bin");
}

static fsdpck_status add_missing_index(inventory_walk *w, const char *path, fsdpck_error *err)
{
    text_buf index = {0};
    text_printf(&index, "%s.index.json", path);
    fsdpck_status st = text_check(&index, err);
    if (st == FSDPCK_OK)
        st = add_shared_pattern(w->s, index.text, w->of, err);
    text_release(&index);
    return st;
}

static fsdpck_status add_entry(inventory_walk *w, const char *path, fsdpck_error *err)
{
    path_kind kind;
    bool counted;
    uint32_t id;
    if (text_file_name(path)[0] == '.' || path_probe(&w->dir, path, &kind, NULL, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    if (kind == PATH_FOLDER)
        return strtab_count(&w->folders) >= FOLDERS_MAX || text_path_depth(path) > DEPTH_MAX
                   ? FSDPCK_OK
                   : strtab_intern(&w->folders, path, strlen(path), &id, err);
    if (kind != PATH_FILE || !is_weights(text_file_name(path), &counted) || w->files++ > FILES_MAX)
        return FSDPCK_OK;
    char *joined = folder_path_join(w->base, path);
    if (joined == NULL)
        return error_set_nomem(err, strlen(path));
    fsdpck_status st = add_file(w->s, joined, w->of, counted, err);
    if (st == FSDPCK_OK && counted && has_no_index(path))
        st = add_missing_index(w, joined, err);
    free(joined);
    return st;
}

static fsdpck_status add_entries(inventory_walk *w, const char *sub, fsdpck_error *err)
{
    char **entries = NULL;
    size_t count = 0;
    fsdpck_status st = FSDPCK_OK;
    if (folder_list(&w->dir, sub[0] == '\0' ? NULL : sub, &entries, &count, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        char *path = sub[0] == '\0' ? strdup(entries[i]) : folder_path_join(sub, entries[i]);
        st = path == NULL ? error_set_nomem(err, strlen(entries[i])) : add_entry(w, path, err);
        free(path);
    }
    free(entries);
    return st;
}

static fsdpck_status add_folder(inventory_walk *w, fsdpck_error *err)
{
    uint32_t id;
    fsdpck_status st = strtab_intern(&w->folders, "", 0, &id, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&w->folders); i++) {
        char *sub = strdup(strtab_text(&w->folders, i)); /* adding to the table moves its texts */
        st = sub == NULL ? error_set_nomem(err, 1) : add_entries(w, sub, err);
        free(sub);
    }
    return st;
}

fsdpck_status step_inventory_add(step_inventory *s, const char *path, const char *as,
                                 const step_name *name, fsdpck_error *err)
{
    path_kind kind;
    bool counted;
    const char *base = text_file_name(path);
    inventory_walk w = {.s = s, .of = name, .dir = FOLDER_CLOSED};
    RETURN_IF(path_probe(NULL, path, &kind, NULL, err));
    if (kind == PATH_FILE && is_weights(base, &counted))
        return add_path(s, base, name, counted, err);
    if (kind != PATH_FOLDER)
        return FSDPCK_OK;
    RETURN_IF(folder_open(&w.dir, path, err));
    strtab_init(&w.folders, NULL);
    w.base = strdup(as != NULL ? as : base);
    const fsdpck_status st =
        w.base == NULL ? error_set_nomem(err, strlen(base)) : add_folder(&w, err);
    free(w.base);
    strtab_release(&w.folders);
    folder_close(&w.dir);
    return st;
}
