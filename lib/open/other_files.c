#include "open/other_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/adapter_files.h"
#include "open/nested_folders.h"
#include "open/state_files.h"
#include "open/weights_names.h"

enum { FILES_MOST = 1000, LIST_NBYTES = 400 };

static bool has_suffix(const char *name)
{
    static const char *const suffixes[] = {".pt",      ".pth",    ".bin",  ".pkl",  ".pickle",
                                           ".ckpt",    ".h5",     ".hdf5", ".npz",  ".npy",
                                           ".pth.tar", ".pt.tar", ".gguf", ".onnx", ".msgpack"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (n > strlen(suffixes[i]) && text_ends_with(name, n, suffixes[i]))
            return true;
    return false;
}

static bool is_listed(const fsdpck_checkpoint *c, const char *path)
{
    for (size_t i = 0; i < c->state_files.count; i++)
        if (strcmp(VEC_AT(&c->state_files, const found_state_file, i)->path, path) == 0)
            return true;
    return false;
}

/* Takes `path`. name_nbytes: of the end that is its name. */
static fsdpck_status add_path(fsdpck_checkpoint *c, char *path, size_t name_nbytes,
                              fsdpck_error *err)
{
    path_kind kind;
    found_state_file f = {.path = path};
    if (path == NULL)
        return error_set_nomem(err, name_nbytes);
    fsdpck_status st = FSDPCK_OK;
    const bool is = !is_listed(c, path) &&
                    path_probe(NULL, path, &kind, &f.nbytes, NULL) == FSDPCK_OK &&
                    kind == PATH_FILE;
    if (is && c->other_files.count == FILES_MOST)
        c->other_files_more++;
    f.name = path + strlen(path) - name_nbytes;
    if (is && c->other_files.count < FILES_MOST) {
        st = vec_add(&c->other_files, &f, err);
        path = st == FSDPCK_OK ? NULL : path;
    }
    free(path);
    return st;
}

/* Of the folder `in`, which is that of the weights or above it. */
static fsdpck_status add_entry(fsdpck_checkpoint *c, const probe_input *in, const char *entry,
                               fsdpck_error *err)
{
    if (entry[0] == '.' || !has_suffix(entry) || state_file_is_read(c, in, entry) ||
        checkpoint_is_weights_name(entry) || checkpoint_is_rank_name(entry))
        return FSDPCK_OK;
    return add_path(c, folder_path_join(in->path, entry), strlen(entry), err);
}

/* A folder that is a checkpoint of its own is named by its path. */
static fsdpck_status add_below(fsdpck_checkpoint *c, const char *folder_name, fsdpck_error *err)
{
    probe_input in;
    char *path = folder_path_join(c->probe.path, folder_name);
    fsdpck_status st = path == NULL ? error_set_nomem(err, strlen(folder_name)) : FSDPCK_OK;
    const bool is_open = st == FSDPCK_OK && probe_gather(path, &in, NULL) == FSDPCK_OK;
    free(path);
    if (!is_open)
        return st;
    const bool is_nested = !in.is_folder || probe_readers(&in, NULL) != NULL;
    for (size_t i = 0; st == FSDPCK_OK && !is_nested && i < in.entry_count; i++) {
        const char *entry = in.entries[i];
        if (entry[0] != '.' && has_suffix(entry))
            st = add_path(c, folder_path_join(in.path, entry),
                          strlen(folder_name) + 1 + strlen(entry), err);
    }
    probe_release(&in);
    return st;
}

static fsdpck_status add_folders(fsdpck_checkpoint *c, fsdpck_error *err)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    for (size_t i = 0; c->probe.is_folder && i < c->probe.entry_count; i++) {
        const char *entry = c->probe.entries[i];
        path_kind kind;
        if (entry[0] == '.' || has_suffix(entry) || nested_folder_is_step(entry) ||
            catalogue_has_path(read, entry) ||
            path_probe(&c->probe.dir, entry, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FOLDER)
            continue;
        RETURN_IF(add_below(c, entry, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status add_files(fsdpck_checkpoint *c, const probe_input *in, fsdpck_error *err)
{
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++)
        RETURN_IF(add_entry(c, in, in->entries[i], err));
    return FSDPCK_OK;
}

fsdpck_status other_files_list(fsdpck_checkpoint *c, fsdpck_error *err)
{
    probe_input above;
    if (c->other_files_known || c->remote_files != NULL)
        return FSDPCK_OK;
    c->other_files_known = true;
    RETURN_IF(trainer_state_list(c, err));
    RETURN_IF(add_files(c, &c->probe, err));
    RETURN_IF(add_folders(c, err));
    if (c->entered_from == NULL || probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const fsdpck_status st = add_files(c, &above, err);
    probe_release(&above);
    return st;
}

/* Directly beside the weights: tensors in folders below are of a trainer's state. Opening is collective, so ranks of a
 * group, which may have other files on their hosts, decide by the name. */
static bool has_tensors(fsdpck_checkpoint *of, const found_state_file *f)
{
    fsdpck_checkpoint *c = NULL;
    if (of->ctx->group != NULL)
        return strchr(f->name, '/') == NULL;
    const bool has = strchr(f->name, '/') == NULL &&
                     state_file_open(of, f, &c, NULL) == FSDPCK_OK &&
                     catalogue_tensor_count(&c->cat) > 0;
    fsdpck_close(c);
    return has;
}

static fsdpck_status warn_adapter(fsdpck_checkpoint *adapter, fsdpck_error *err)
{
    text_buf names = {.limit_bytes = LIST_NBYTES};
    uint64_t count = 0;
    char name[256];
    RETURN_IF(other_files_list(adapter, err));
    for (size_t i = 0; i < adapter->other_files.count; i++) {
        const found_state_file *f = VEC_AT(&adapter->other_files, const found_state_file, i);
        if (adapter_files_is_other(&adapter->cat, f->name) || !has_tensors(adapter, f))
            continue;
        count++;
        text_printf(&names, "%s'%s'", names.nbytes > 0 ? ", " : "",
                    escape_text(name, sizeof name, f->name, strlen(f->name)));
    }
    if (count > 0)
        log_warn(&adapter->ctx->log, FSDPCK_FINDING_LORA_BESIDE, "",
                 "%" PRIu64 " file%s beside the adapter in '%s' %s not merged: %s%s", count,
                 text_plural(count), adapter->path, count == 1 ? "is" : "are",
                 names.text == NULL ? "" : names.text, names.failed ? ", ..." : "");
    text_release(&names);
    return FSDPCK_OK;
}

fsdpck_status other_files_warn_adapters(const fsdpck_checkpoint *c, fsdpck_error *err)
{
    const fsdpck_checkpoint *merged = checkpoint_merged(c);
    for (size_t i = 0; merged != NULL && i < merged->beside_count; i++)
        if (merged->beside[i] != NULL)
            RETURN_IF(warn_adapter(merged->beside[i], err));
    return FSDPCK_OK;
}
