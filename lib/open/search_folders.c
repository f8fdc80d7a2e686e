/* Searches for checkpoints below a folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/checkpoint.h"
#include "open/folder_set.h"
#include "open/foreign_folders.h"
#include "open/search_state.h"
#include "open/state_files.h"

typedef struct search {
    char *paths[SEARCH_ENTRIES_MAX]; /* queue of folders and files still to search */
    size_t head, tail;
    folder_set searched; /* with the folder that the user gave */
    search_result *found;
} search;

char *folder_path_join(const char *folder_path, const char *name)
{
    const size_t n = strlen(folder_path);
    const char *between = n > 0 && folder_path[n - 1] == '/' ? "" : "/";
    const size_t capacity = n + strlen(name) + 2;
    char *joined = malloc(capacity);
    if (joined != NULL)
        snprintf(joined, capacity, "%s%s%s", folder_path, between, name);
    return joined;
}

const char *checkpoint_path_below(const char *path, const char *above)
{
    const size_t n =
        strcmp(above, ".") == 0 && path[0] != '.' && path[0] != '/' ? 0 : strlen(above);
    if (strncmp(path, above, n) != 0 || (n > 0 && above[n - 1] != '/' && path[n] != '/'))
        return NULL;
    path += n;
    return path + strspn(path, "/");
}

size_t weights_stem_nbytes(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".pt",   ".pth",     ".bin",   ".ckpt",
                                           ".h5",          ".hdf5", ".pth.tar", ".pt.tar"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const size_t k = strlen(suffixes[i]);
        if (n > k && strcmp(name + n - k, suffixes[i]) == 0)
            return n - k;
    }
    return n;
}

static bool looks_like_weights(const char *name)
{
    return name[weights_stem_nbytes(name)] != '\0';
}

static void keep_error(search_result *found, fsdpck_status st, const fsdpck_error *why)
{
    if (found->unread || (st != FSDPCK_IO && st != FSDPCK_LIMIT))
        return;
    found->unread = true;
    found->why = *why;
}

bool is_system_folder(const char *path)
{
    static const char *const roots[] = {"/proc", "/sys"};
    char *real = realpath(path, NULL);
    /* Folders inside /dev, such as /dev/shm, contain ordinary files. */
    bool is = real != NULL && strcmp(real, "/dev") == 0;
    for (size_t i = 0; real != NULL && i < sizeof roots / sizeof roots[0]; i++) {
        const size_t n = strlen(roots[i]);
        is = is || (strncmp(real, roots[i], n) == 0 && (real[n] == '/' || real[n] == '\0'));
    }
    free(real);
    return is;
}

/* "optimizer_0", or "optimizer". */
static bool is_numbered(const char *name, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(name, word, n) != 0)
        return false;
    return name[n] == '\0' || (name[n] == '_' && name[n + 1] != '\0' &&
                               name[n + 1 + strspn(name + n + 1, "0123456789")] == '\0');
}

static bool is_empty(const probe_input *in)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        if (in->entries[i][0] != '.')
            return false;
    }
    return true;
}

/* Names that accelerate and verl give. */
static bool is_trainer_part(const char *name)
{
    return strcmp(name, "actor") == 0 || strcmp(name, "critic") == 0 ||
           is_numbered(name, "pytorch_model_fsdp") || is_numbered(name, "optimizer");
}

bool search_is_part_name(const char *name)
{
    static const char *const others[] = {"model",      "models",      "model_state",
                                         "optim",      "optim_state", "optimizer_state",
                                         "optimizers", "weights",     "ema"};
    bool is_other = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is_other = is_other || is_numbered(name, others[i]);
    return is_other || is_trainer_part(name);
}

bool search_is_part_beside_model(const char *name)
{
    return is_numbered(name, "ema") || strcmp(name, "critic") == 0;
}

/* Models beside each other, as trainers of reinforcement learning, of diffusers and of several models name them. */
static bool is_model_name(const char *name)
{
    static const char *const names[] = {"policy",    "value",         "reward",    "reward_model",
                                        "generator", "discriminator", "teacher",   "student",
                                        "unet",      "transformer",   "controlnet"};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is = is || is_numbered(name, names[i]);
    return is;
}

/* A folder of these names that accelerate or verl makes holds a checkpoint. One that other scripts make
 * may hold something else, such as a model's configuration: only an empty one is a part. */
bool search_is_part(const probe_input *in, const char *path)
{
    const char *name = text_file_name(path);
    return is_trainer_part(name) ||
           (search_is_part_name(name) && (is_empty(in) || probe_has_entry(in, ".hf_metadata"))) ||
           (is_model_name(name) && is_empty(in));
}

/* A file of a trainer's state leaves its slot to a checkpoint. */
static void add_found(search_result *found, char *path)
{
    const bool is_state = trainer_state_is_file(path);
    size_t at = found->count;
    if (at == SEARCH_RESULTS_MAX && !is_state)
        for (at = 0; at < SEARCH_RESULTS_MAX && !trainer_state_is_file(found->paths[at]);)
            at++;
    if (at == SEARCH_RESULTS_MAX) {
        *(is_state ? &found->more_state : &found->more) += 1;
        free(path);
        return;
    }
    if (at < found->count) {
        free(found->paths[at]);
        found->more_state++;
    } else {
        found->count++;
    }
    found->paths[at] = path;
}

/* The files inside are not checkpoints of their own. */
static bool found_foreign(search_result *found, const probe_input *in)
{
    const foreign_kind *kind = foreign_folder_kind(in);
    if (kind == NULL)
        return false;
    if (found->foreign_path == NULL)
        found->foreign_path = strdup(in->path);
    if (found->foreign == NULL && found->foreign_path != NULL)
        found->foreign = kind;
    return true;
}

/* Packages of Python and JavaScript contain thousands of folders, and no checkpoints of the user. */
bool search_is_of_packages(const char *name)
{
    static const char *const names[] = {"site-packages", "dist-packages", "node_modules",
                                        "__pycache__"};
    return TEXT_IS_IN(name, strlen(name), names);
}

/* Remembers the folder otherwise. */
static bool is_searched(search *s, const folder *dir)
{
    folder_id id;
    bool is_new = true;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    if (folder_identify(dir, &id))
        keep_error(s->found, folder_set_add(&s->searched, &id, &is_new, &why), &why);
    return !is_new;
}

static void add_entries(search *s, const probe_input *in)
{
    for (size_t i = 0; i < in->entry_count; i++) {
        fsdpck_error why = FSDPCK_ERROR_INIT;
        path_kind kind;
        if (in->entries[i][0] == '.')
            continue;
        const fsdpck_status st = path_probe(&in->dir, in->entries[i], &kind, NULL, &why);
        if (st != FSDPCK_OK) {
            keep_error(s->found, st, &why);
            continue;
        }
        if (!(kind == PATH_FOLDER && !search_is_of_packages(in->entries[i])) &&
            !(kind == PATH_FILE && looks_like_weights(in->entries[i])))
            continue;
        char *child =
            s->tail == SEARCH_ENTRIES_MAX ? NULL : folder_path_join(in->path, in->entries[i]);
        if (child != NULL)
            s->paths[s->tail++] = child;
        else
            s->found->is_limited = true;
    }
}

/* is_first: the folder that the user gave. Takes `path`. */
static void visit(search *s, char *path, bool is_first)
{
    probe_input in;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    if (is_system_folder(path)) {
        free(path);
        return;
    }
    fsdpck_status st = probe_gather(path, &in, &why);
    if (st != FSDPCK_OK) {
        keep_error(s->found, st, &why);
        free(path);
        return;
    }
    if (!is_first && probe_readers(&in, NULL) != NULL) {
        add_found(s->found, path);
        probe_release(&in);
        return;
    }
    if (in.is_folder && !is_searched(s, &in.dir) && (is_first || !found_foreign(s->found, &in))) {
        if (!is_first && search_is_part(&in, path) && s->found->part_count < SEARCH_RESULTS_MAX) {
            char *part = strdup(path);
            if (part != NULL)
                s->found->parts[s->found->part_count++] = part;
        }
        add_entries(s, &in);
    }
    probe_release(&in);
    free(path);
}

fsdpck_status search_folders(const char *path, search_result *found, fsdpck_error *err)
{
    search *s = calloc(1, sizeof *s);
    char *first = strdup(path);
    *found = (search_result){0};
    if (s == NULL || first == NULL) {
        free(s);
        free(first);
        return error_set_nomem(err, sizeof *s);
    }
    s->found = found;
    folder_set_init(&s->searched);
    visit(s, first, true);
    while (s->head < s->tail)
        visit(s, s->paths[s->head++], false);
    folder_set_release(&s->searched);
    free(s);
    search_omit_state(found);
    return FSDPCK_OK;
}

/* The text around the number at `at`: whether all names differ only in this number, and one is
 * 0. */
static bool differ_only_there(const search_result *found, size_t at, size_t digits)
{
    const char *first = found->paths[0];
    const char *rest = first + at + digits;
    bool has_zero = false;
    for (size_t i = 0; i < found->count; i++) {
        const char *path = found->paths[i];
        if (strncmp(path, first, at) != 0)
            return false;
        const size_t n = strspn(path + at, "0123456789");
        has_zero = has_zero || (n > 0 && strspn(path + at, "0") == n);
        if (n == 0 || strcmp(path + at + n, rest) != 0)
            return false;
    }
    return has_zero;
}

/* Only torch writes one file per rank. */
static bool is_hdf5(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && (strcmp(dot, ".h5") == 0 || strcmp(dot, ".hdf5") == 0);
}

bool search_rank_pattern(const search_result *found, text_buf *pattern)
{
    path_kind kind;
    if (found->count < 2 || path_probe(NULL, found->paths[0], &kind, NULL, NULL) != FSDPCK_OK ||
        kind != PATH_FILE || is_hdf5(found->paths[0]))
        return false;
    const char *first = found->paths[0];
    const char *slash = strrchr(first, '/');
    const size_t name_at = slash == NULL ? 0 : (size_t)(slash - first) + 1;
    for (size_t at = name_at; first[at] != '\0';) {
        const size_t digits = strspn(first + at, "0123456789");
        if (digits > 0 && differ_only_there(found, at, digits)) {
            text_append(pattern, first + name_at, at - name_at);
            text_printf(pattern, "{r}%s", first + at + digits);
            return true;
        }
        at += digits > 0 ? digits : 1;
    }
    return false;
}

/* In the same folder, or below. */
static bool is_sibling(const char *path, const char *part)
{
    const char *slash = strrchr(part, '/');
    const size_t n = slash == NULL ? 0 : (size_t)(slash - part) + 1;
    return strncmp(path, part, n) == 0;
}

static bool is_inside(const char *path, const char *part)
{
    const size_t n = strlen(part);
    return strncmp(path, part, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

fsdpck_status search_check_parts(const search_result *found, fsdpck_error *err)
{
    if (found->count == 0 && found->foreign != NULL)
        return foreign_folder_fail(found->foreign, found->foreign_path, err);
    for (size_t i = 0; i < found->part_count && found->more == 0; i++) {
        const char *part = found->parts[i];
        bool any = false, beside = false;
        for (size_t k = 0; k < found->count; k++) {
            any = any || is_inside(found->paths[k], part);
            beside = beside || is_sibling(found->paths[k], part);
        }
        if (any || !beside)
            continue;
        return FAIL_WITH(
            err, BADINPUT, SAVE_INCOMPLETE,
            ("folder of one part contains no checkpoint: the save did not complete, or its files "
             "were lost"),
            (path, part),
            (next, "use an older checkpoint, or give the folder of the part that exists"));
    }
    return FSDPCK_OK;
}

void search_result_release(search_result *found)
{
    for (size_t i = 0; i < found->part_count; i++)
        free(found->parts[i]);
    for (size_t i = 0; i < found->count; i++)
        free(found->paths[i]);
    free(found->foreign_path);
    *found = (search_result){0};
}
