#include "verify/trainer_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "io/saved_names.h"
#include "io/unfinished_file.h"
#include "manifest/manifest.h"
#include "open/megatron_config.h"
#include "open/numbered_files.h"
#include "open/search_state.h"
#include "open/state_files.h"
#include "open/state_list.h"
#include "open/weights_names.h"

/* Folders inside whose JSON files are read. A folder of very many entries holds no such parts. */
enum { COMPONENTS_MAX = 64, COMPONENT_DEPTH = 2, COMPONENT_ENTRIES_MAX = 4096 };

typedef enum state_ends {
    ENDS_UNKNOWN,
    ENDS_ZIP,       /* with its end record; torch.save writes no comment after it */
    ENDS_ZIP_CUT,   /* without it */
    ENDS_PICKLE,    /* of pickle.dump, with its last opcode */
    ENDS_PICKLE_CUT /* without it */
} state_ends;

static state_ends ends_of(const uint8_t *head, const uint8_t *end, size_t end_nbytes)
{
    static const uint8_t legacy[] = {0x80, 2, 0x8a, 0x0a}; /* torch.save: more than one pickle */
    if (memcmp(head, "PK\3\4", 4) == 0)
        return memcmp(end, "PK\5\6", 4) == 0 ? ENDS_ZIP : ENDS_ZIP_CUT;
    if (head[0] != 0x80 || head[1] < 2 || head[1] > 5 || memcmp(head, legacy, sizeof legacy) == 0)
        return ENDS_UNKNOWN;
    return end[end_nbytes - 1] == '.' ? ENDS_PICKLE : ENDS_PICKLE_CUT;
}

static state_ends read_ends(const probe_input *in, const char *entry)
{
    enum { END_NBYTES = 22 }; /* of a zip's end record */
    uint8_t head[4], end[END_NBYTES];
    file f = FILE_CLOSED;
    if (file_open_read(&f, &in->dir, entry, 0, NULL) != FSDPCK_OK)
        return ENDS_UNKNOWN;
    const bool is_read =
        f.nbytes >= END_NBYTES && file_read_at(&f, 0, head, sizeof head, NULL) == FSDPCK_OK &&
        file_read_at(&f, f.nbytes - END_NBYTES, end, sizeof end, NULL) == FSDPCK_OK;
    file_abandon(&f);
    return is_read ? ends_of(head, end, sizeof end) : ENDS_UNKNOWN;
}

static fsdpck_status check_json(const probe_input *in, const char *entry, fsdpck_error *err)
{
    char *text = NULL;
    size_t nbytes;
    const fsdpck_status st = trainer_state_read_json(in, entry, &text, &nbytes, err);
    free(text);
    return st == FSDPCK_LIMIT ? FSDPCK_OK : st;
}

/* Under any name, unless it is large. The manifest and the files of Megatron-Core have checks of their own. */
static bool is_other_json(const char *entry)
{
    static const char *const checked[] = {MANIFEST_NAME, MEGATRON_CONFIG_FILE, "integrity.json"};
    return text_ends_with(entry, strlen(entry), ".json") && !trainer_state_is_json(entry) &&
           !model_json_has_name(entry) && !TEXT_IS_IN(entry, strlen(entry), checked);
}

/* "config.json", "scheduler_config.json" */
static bool is_config_json(const char *name)
{
    return !trainer_state_is_json(name) &&
           (model_json_has_name(name) || text_ends_with(name, strlen(name), "_config.json"));
}

bool trainer_state_is_of_model(const char *entry)
{
    return strchr(entry, '/') == NULL ? model_json_has_name(entry) || tokenizer_file_has_name(entry)
                                      : is_config_json(text_file_name(entry));
}

/* Empty, zeros (what a crash of the machine leaves), or an object or a list without an end. */
static bool is_json_cut(const probe_input *in, const char *entry)
{
    enum { NBYTES_MAX = 4 << 20 };
    char *text = NULL;
    size_t nbytes, at = 0;
    if (file_read_whole(&in->dir, entry, NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
        return false;
    while (at < nbytes && memchr(" \t\r\n", text[at], 4) != NULL)
        at++;
    const bool opens = at < nbytes && (text[at] == '{' || text[at] == '[');
    const bool is_cut =
        at == nbytes || text[at] == '\0' || (opens && !json_text_has_end(text, nbytes));
    free(text);
    return is_cut;
}

static bool is_empty_folder(const probe_input *in, const char *entry)
{
    char **names = NULL;
    size_t count = 0;
    const bool is_read = folder_list(&in->dir, entry, &names, &count, NULL) == FSDPCK_OK;
    free(names);
    return is_read && count == 0;
}

const char *trainer_state_broken(const probe_input *in, const char *entry)
{
    const bool of_tokenizer = tokenizer_file_has_name(entry);
    const bool is_json = text_ends_with(entry, strlen(entry), ".json");
    path_kind kind;
    if (entry[0] == '.' || !(of_tokenizer || is_json || trainer_state_has_name(entry)))
        return NULL;
    if (path_is_dangling(&in->dir, entry))
        return "it is a link to a file that does not exist";
    if (path_probe(&in->dir, entry, &kind, NULL, NULL) != FSDPCK_OK)
        return NULL;
    if (kind == PATH_FOLDER && is_empty_folder(in, entry)) /* of a mount without its file */
        return "it is an empty folder";
    if (!of_tokenizer || kind != PATH_FILE)
        return NULL;
    return unfinished_is_pointer(&in->dir, entry) ? "it is a git-lfs pointer, not the file itself"
                                                  : tokenizer_file_damage(&in->dir, entry);
}

fsdpck_status trainer_state_check(fsdpck_context *ctx, const probe_input *in, const char *entry,
                                  bool ends_only, fsdpck_error *err)
{
    const logger log = ctx->log;
    fsdpck_checkpoint *c = NULL;
    path_kind kind;
    const char *broken = trainer_state_broken(in, entry);
    if (broken != NULL)
        return FAIL(err, BADINPUT, NONE, "%s", broken);
    if (path_probe(&in->dir, entry, &kind, NULL, NULL) == FSDPCK_OK && kind != PATH_FILE)
        return FSDPCK_OK;
    if (trainer_state_is_json(entry) || model_json_has_name(entry))
        return check_json(in, entry, err);
    if (is_other_json(entry))
        return FAIL(err, BADINPUT, NONE, "JSON is empty or has no end: the file was truncated");
    const state_ends ends = read_ends(in, entry);
    if (ends == ENDS_PICKLE || (ends_only && ends == ENDS_ZIP))
        return FSDPCK_OK;
    if (ends == ENDS_PICKLE_CUT)
        return FAIL(err, BADINPUT, NONE, "pickle has no end: the file was truncated");
    char *path = folder_path_join(in->path, entry);
    if (path == NULL)
        return error_set_nomem(err, strlen(entry));
    ctx->log = (logger){0};
    const fsdpck_status st = checkpoint_open(ctx, path, NULL, NULL, NULL, &c, err);
    fsdpck_close(c);
    ctx->log = log;
    free(path);
    return st == FSDPCK_UNSUPPORTED || st == FSDPCK_LIMIT ? FSDPCK_OK : st;
}

static fsdpck_status fail_damaged(const probe_input *in, const char *entry, const fsdpck_error *why,
                                  fsdpck_error *err)
{
    const bool of_model = trainer_state_is_of_model(entry);
    return FAIL_WITH(err, BADINPUT, SIDE_UNREAD,
                     ("file '%s' of the %s cannot be read: %s", entry,
                      of_model ? "model" : "trainer's state", why->message),
                     (path, in->path),
                     (next, "copy the file again: %s",
                      of_model ? "a loader of the model needs it"
                               : "a run that resumes from this folder needs it"));
}

static bool has_torch_suffix(const char *name)
{
    static const char *const suffixes[] = {".pt",   ".pth",     ".bin",   ".pkl",
                                           ".ckpt", ".pth.tar", ".pt.tar"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (text_ends_with(name, strlen(name), suffixes[i]))
            return true;
    return false;
}

/* Under any name, what torch.save or pickle.dump may have written; the readers of weights report other weights. */
static bool may_be_saved(const probe_input *in, const char *entry, uint64_t *nbytes)
{
    path_kind kind;
    bool known;
    return has_torch_suffix(entry) && entry[0] != '.' && format_file_count(entry) == 0 &&
           !checkpoint_is_weights_name(entry) && !(format_is_rank_file(entry, &known) && known) &&
           path_probe(&in->dir, entry, &kind, nbytes, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

static bool is_locked(const probe_input *in, const char *entry)
{
    uint64_t nbytes;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    file f = FILE_CLOSED;
    if (!may_be_saved(in, entry, &nbytes) && !is_other_json(entry))
        return false;
    const fsdpck_status st = file_open_read(&f, &in->dir, entry, 0, &why);
    file_abandon(&f);
    return st == FSDPCK_IO && why.sys_errno == EACCES;
}

/* Empty, without the end that its kind has, or one that cannot be read. */
static bool is_incomplete(const probe_input *in, const char *entry)
{
    uint64_t nbytes;
    if (trainer_state_broken(in, entry) != NULL || is_locked(in, entry))
        return true;
    if (is_other_json(entry) &&
        (entry[0] != '.' || strcmp(entry, ".metadata.json") == 0)) /* OLMo-core */
        return is_json_cut(in, entry);
    if (!may_be_saved(in, entry, &nbytes))
        return false;
    const state_ends ends = nbytes == 0 ? ENDS_UNKNOWN : read_ends(in, entry);
    return nbytes == 0 || ends == ENDS_ZIP_CUT ||
           (ends == ENDS_PICKLE_CUT &&
            !text_ends_with(entry, strlen(entry), ".bin")); /* any data */
}

bool trainer_state_is_saved(fsdpck_context *ctx, const probe_input *in, const char *entry)
{
    uint64_t nbytes;
    fsdpck_checkpoint *c = NULL;
    const logger log = ctx->log;
    if (!may_be_saved(in, entry, &nbytes) || read_ends(in, entry) != ENDS_ZIP)
        return false;
    char *path = folder_path_join(in->path, entry);
    ctx->log = (logger){0};
    const bool is_saved =
        path != NULL && checkpoint_open(ctx, path, NULL, NULL, NULL, &c, NULL) == FSDPCK_OK;
    fsdpck_close(c);
    ctx->log = log;
    free(path);
    return is_saved;
}

/* A part of the model, such as 1_Pooling/ of sentence-transformers, with its config.json. Not another step. */
static bool is_component(const probe_input *in, const char *path)
{
    const char *name = text_file_name(path);
    path_kind kind;
    step_name s;
    step_name_read(name, strlen(name), &s);
    return name[0] != '.' && s.mark == STEP_UNMARKED && !step_name_has_word(&s) &&
           !search_is_of_packages(name) &&
           path_probe(&in->dir, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

/* Takes `path`. side: all JSON files of the folder are the trainer's. */
static fsdpck_status add_inside(const probe_input *in, char *path, bool side, strtab *folders,
                                strtab *names, fsdpck_error *err)
{
    uint32_t id;
    if (path == NULL)
        return error_set_nomem(err, 1);
    fsdpck_status st = FSDPCK_OK;
    const size_t n = strlen(path);
    if ((side ? text_ends_with(path, n, ".json") : is_config_json(text_file_name(path))) &&
        is_json_cut(in, path))
        st = strtab_intern(names, path, n, &id, err);
    else if (folders != NULL && strtab_count(folders) < COMPONENTS_MAX &&
             text_path_depth(path) <= COMPONENT_DEPTH && is_component(in, path))
        st = strtab_intern(folders, path, n, &id, err);
    free(path);
    return st;
}

/* Adds the JSON files in a folder inside that have no end. */
static fsdpck_status add_cut_json(const probe_input *in, const char *inside, bool side,
                                  strtab *folders, strtab *names, fsdpck_error *err)
{
    char **entries = NULL;
    size_t count = 0;
    fsdpck_status st = FSDPCK_OK;
    if (folder_list(&in->dir, inside, &entries, &count, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = add_inside(in, folder_path_join(inside, entries[i]), side, folders, names, err);
    free(entries);
    return st;
}

static fsdpck_status add_of_components(const probe_input *in, strtab *names, fsdpck_error *err)
{
    strtab folders;
    uint32_t id;
    strtab_init(&folders, NULL);
    fsdpck_status st = FSDPCK_OK;
    const size_t count = in->entry_count <= COMPONENT_ENTRIES_MAX ? in->entry_count : 0;
    for (size_t i = 0; st == FSDPCK_OK && in->is_folder && i < count; i++)
        if (strtab_count(&folders) < COMPONENTS_MAX && is_component(in, in->entries[i]))
            st = strtab_intern(&folders, in->entries[i], strlen(in->entries[i]), &id, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&folders); i++) {
        char *inside = strdup(strtab_text(&folders, i)); /* adding to the table moves its texts */
        st = inside == NULL ? error_set_nomem(err, 1)
                            : add_cut_json(in, inside, false, &folders, names, err);
        free(inside);
    }
    strtab_release(&folders);
    return st;
}

static fsdpck_status add_incomplete(const probe_input *in, strtab *names, fsdpck_error *err)
{
    uint32_t id;
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++)
        if (is_incomplete(in, in->entries[i]))
            RETURN_IF(strtab_intern(names, in->entries[i], strlen(in->entries[i]), &id, err));
    return FSDPCK_OK;
}

fsdpck_status trainer_state_names(const probe_input *in, const catalogue *read, strtab *names,
                                  fsdpck_error *err)
{
    strtab all;
    uint32_t id;
    strtab_init(&all, NULL);
    fsdpck_status st = state_list_read(in, &all, err);
    for (size_t i = 0; st == FSDPCK_OK && in->is_folder && i < in->entry_count; i++)
        if (trainer_state_is_json(in->entries[i]) || model_json_has_name(in->entries[i]) ||
            numbered_file_is_model(in->entries[i]))
            st = strtab_intern(&all, in->entries[i], strlen(in->entries[i]), &id, err);
    if (st == FSDPCK_OK)
        st = add_incomplete(in, &all, err);
    if (st == FSDPCK_OK)
        st = add_of_components(in, &all, err);
    /* huggingface/ of verl and .hf_metadata/ of NeMo Automodel, with config.json and tokenizers */
    if (st == FSDPCK_OK && read != NULL && read->origin.side_folder[0] != '\0')
        st = add_cut_json(in, read->origin.side_folder, true, NULL, &all, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&all); i++)
        if (read == NULL || !catalogue_has_file(read, strtab_text(&all, i)))
            st = strtab_intern(names, strtab_text(&all, i), strtab_nbytes(&all, i), &id, err);
    strtab_release(&all);
    return st;
}

static saved_kind kind_of_name(const char *name)
{
    return numbered_file_is_of_rank(name) ? SAVED_OF_RANK
           : trainer_state_has_name(name) ? SAVED_OF_STATE
                                          : SAVED_ANY;
}

/* With the weights, which are not among the names. The reader of rank files compares theirs. */
fsdpck_status trainer_state_warn_exchanged(const probe_input *in, const catalogue *read,
                                           const strtab *names, const logger *log,
                                           fsdpck_error *err)
{
    strtab all;
    uint32_t id;
    size_t n = 0;
    strtab_init(&all, NULL);
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(names); i++)
        st = strtab_intern(&all, strtab_text(names, i), strtab_nbytes(names, i), &id, err);
    for (size_t i = 0; st == FSDPCK_OK && in->is_folder && i < in->entry_count; i++)
        if (read == NULL || !numbered_file_is_of_rank(in->entries[i]) ||
            !catalogue_has_file(read, in->entries[i]))
            st = strtab_intern(&all, in->entries[i], strlen(in->entries[i]), &id, err);
    saved_name *list = st == FSDPCK_OK ? calloc(strtab_count(&all) + 1, sizeof *list) : NULL;
    if (st == FSDPCK_OK && list == NULL)
        st = error_set_nomem(err, strtab_count(&all) * sizeof *list);
    for (uint32_t i = 0; list != NULL && i < strtab_count(&all); i++) {
        const char *path = strtab_text(&all, i);
        if (has_torch_suffix(path))
            list[n++] = (saved_name){path, saved_name_read(&in->dir, path),
                                     kind_of_name(text_file_name(path))};
    }
    if (list != NULL)
        saved_names_warn(list, n, in->path, log);
    for (size_t i = 0; i < n; i++)
        free((char *)list[i].saved_as);
    free(list);
    strtab_release(&all);
    return st;
}

static fsdpck_status check_name(fsdpck_context *ctx, const probe_input *in, const char *name,
                                bool ends_only, fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    const fsdpck_status st = trainer_state_check(ctx, in, name, ends_only, &why);
    if (st == FSDPCK_BADINPUT)
        return fail_damaged(in, name, &why, err);
    if (st != FSDPCK_OK && err != NULL)
        *err = why;
    return st;
}

/* What the reader of the weights reads too, it warns of, and reads the weights without it. */
static fsdpck_status check_read(fsdpck_context *ctx, const probe_input *in, const catalogue *read,
                                bool ends_only, fsdpck_error *err)
{
    return read != NULL && catalogue_has_file(read, LIGHTNING_STATE)
               ? check_name(ctx, in, LIGHTNING_STATE, ends_only, err)
               : FSDPCK_OK;
}

fsdpck_status trainer_state_check_folder(fsdpck_context *ctx, const probe_input *in,
                                         const catalogue *read, bool ends_only, fsdpck_error *err)
{
    strtab names;
    strtab_init(&names, NULL);
    fsdpck_status st = trainer_state_names(in, read, &names, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&names); i++)
        st = check_name(ctx, in, strtab_text(&names, i), ends_only, err);
    if (st == FSDPCK_OK)
        st = trainer_state_warn_exchanged(in, read, &names, &ctx->log, err);
    strtab_release(&names);
    return st == FSDPCK_OK ? check_read(ctx, in, read, ends_only, err) : st;
}
