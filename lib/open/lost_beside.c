#include "open/lost_beside.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "io/unfinished_file.h"
#include "open/lost_components.h"
#include "open/model_config.h"

enum { ENTRIES_MAX = 1000 };

/* ---- adapters ---- */

/* Whether a folder has the config of an adapter, and no weights. */
static bool is_adapter_without_weights(const folder *dir, const char *name)
{
    static const char *const weights[] = {"adapter_model.safetensors", "adapter_model.bin"};
    path_kind kind;
    bool lacks = false;
    char *config = folder_path_join(name, "adapter_config.json");
    if (config != NULL)
        lacks = path_probe(dir, config, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
    free(config);
    for (size_t i = 0; lacks && i < sizeof weights / sizeof *weights; i++) {
        char *path = folder_path_join(name, weights[i]);
        lacks = path != NULL && path_probe(dir, path, &kind, NULL, NULL) == FSDPCK_OK &&
                kind == PATH_ABSENT;
        free(path);
    }
    return lacks;
}

/* PEFT saves each adapter of a model but "default" in a folder of its own. */
static void warn_adapters(const fsdpck_checkpoint *c, const probe_input *in)
{
    for (size_t i = 0; i < in->entry_count && i < ENTRIES_MAX; i++) {
        if (!is_adapter_without_weights(&in->dir, in->entries[i]))
            continue;
        log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_LOST,
                 "copy adapter_model.safetensors from where it was saved, or remove the folder",
                 "'%s/%s' has the config of an adapter, but no weights", in->path, in->entries[i]);
        return;
    }
}

/* ---- models side by side ---- */

/* What no loader reads: a file that is still downloaded, or was put aside. */
static bool is_put_aside(const probe_input *in, const char *name)
{
    static const char *const ends[] = {".incomplete", ".partial", ".tmp", ".bak", ".old", ".orig"};
    bool is = unfinished_stem_nbytes(&in->dir, name) > 0;
    for (size_t i = 0; !is && i < sizeof ends / sizeof *ends; i++)
        is = text_ends_with(name, strlen(name), ends[i]);
    return is;
}

/* An entry of a folder that neither is weights nor contains them. */
static bool is_settings(const probe_input *in, const char *name)
{
    static const char *const ends[] = {".json", ".jinja", ".md", ".model", ".py", ".txt"};
    path_kind kind;
    bool is = name[0] == '.' || is_put_aside(in, name);
    for (size_t i = 0; !is && i < sizeof ends / sizeof *ends; i++)
        is = text_ends_with(name, strlen(name), ends[i]);
    return is && path_probe(&in->dir, name, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FILE;
}

/* Whether a folder has the config of a model of transformers or diffusers, and nothing but such files. */
static bool is_model_without_weights(const probe_input *around, const char *name)
{
    probe_input in;
    model_config config = {0};
    bool lacks = lost_components_open(around, name, &in);
    if (!lacks)
        return false;
    for (size_t i = 0; lacks && i < in.entry_count; i++)
        lacks = is_settings(&in, in.entries[i]);
    lacks = lacks && model_config_read(&in.dir, &config, NULL) == FSDPCK_OK &&
            (config.model_type[0] != '\0' || config.has_class_name);
    model_config_release(&config);
    probe_release(&in);
    return lacks;
}

void lost_beside_warn_models(const probe_input *around, const logger *log)
{
    const bool is_pipeline = probe_has_entry(around, "model_index.json"); /* of diffusers */
    for (size_t i = 0; !is_pipeline && i < around->entry_count && i < ENTRIES_MAX; i++)
        if (around->entries[i][0] != '.' && is_model_without_weights(around, around->entries[i]))
            log_warn(
                log, FSDPCK_FINDING_WEIGHTS_LOST,
                "copy them from where they were saved, or remove the folder",
                "'%s/%s' has the config of a model, but no weights; models beside it have both",
                around->path, around->entries[i]);
}

bool lost_beside_is_model(const char *path, const char *around)
{
    const size_t n = strlen(around), above = strlen(path) - strlen(text_file_name(path));
    probe_input in;
    const size_t end = n + (n > 0 && around[n - 1] != '/'); /* with the '/' */
    if (strncmp(path, around, n) != 0 || above != end || probe_gather(path, &in, NULL) != FSDPCK_OK)
        return false;
    const bool is = in.is_folder && probe_has_entry(&in, "config.json");
    probe_release(&in);
    return is;
}

/* ---- the cache of the Hub: models--ORG--NAME/refs/main and snapshots/REVISION ---- */

/* A commit has 40 digits. */
#define REVISION_NBYTES_MAX 256u

/* The revision that loaders read. NULL: unknown, or no folder of the cache. To be freed. */
static char *read_main_revision(const char *snapshots)
{
    char *path = folder_path_join(snapshots, "../refs/main"), *text = NULL;
    size_t nbytes = 0;
    if (path != NULL && strcmp(text_file_name(snapshots), "snapshots") == 0 &&
        file_read_whole(NULL, path, REVISION_NBYTES_MAX, &text, &nbytes, NULL) == FSDPCK_OK)
        text[strcspn(text, "\r\n")] = '\0';
    free(path);
    return text;
}

/* ---- all ---- */

/* name: of the checkpoint that is read, or of a folder that contains it. Other revisions of a cache may have no weights. */
static void warn_around(const fsdpck_checkpoint *c, const char *around, const char *name,
                        bool has_adapters, checkpoint_open_fn open)
{
    probe_input in;
    const logger *log = &c->ctx->log;
    char *revision = read_main_revision(around);
    if (probe_gather(around, &in, NULL) == FSDPCK_OK) {
        if (has_adapters)
            warn_adapters(c, &in);
        lost_components_warn(&in, c->ctx, open);
        if (revision == NULL && c->probe.is_folder && probe_has_entry(&c->probe, "config.json"))
            lost_beside_warn_models(&in, log);
        probe_release(&in);
    }
    if (revision != NULL && strcmp(revision, name) != 0)
        log_warn(log, FSDPCK_FINDING_WEIGHTS_LOST,
                 "download it again, or give the path of the other revision",
                 "'%s': 'refs/main' is revision '%s', in which no checkpoint was found; that of "
                 "'%s' is read",
                 around, revision, name);
    free(revision);
}

void lost_beside_warn(const fsdpck_checkpoint *c, bool has_adapters, checkpoint_open_fn open)
{
    char *path = c->entered_from == NULL ? NULL : strdup(c->probe.path);
    if (c->probe.is_folder) {
        if (has_adapters)
            warn_adapters(c, &c->probe);
        lost_components_warn(&c->probe, c->ctx, open);
    }
    /* Each folder around, up to the one that was given. */
    for (char *slash = path; slash != NULL;) {
        const char *below = checkpoint_path_below(path, c->entered_from);
        slash = below == NULL || below[0] == '\0' ? NULL : strrchr(path, '/');
        if (slash == NULL)
            break;
        *slash = '\0';
        warn_around(c, path, slash + 1, has_adapters, open);
    }
    free(path);
}
