#include "open/nested_folders.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/checkpoint.h"
#include "open/search_state.h"
#include "open/state_list.h"

/* "global_step8", which transformers and DeepSpeed write below "checkpoint-8". */
static bool is_global_step(const char *name)
{
    static const char word[] = "global_step";
    const char *digits = name + sizeof word - 1;
    return strncmp(name, word, sizeof word - 1) == 0 && *digits != '\0' &&
           digits[strspn(digits, "0123456789")] == '\0';
}

bool nested_folder_is_step(const char *name)
{
    step_name s;
    step_name_read(name, strlen(name), &s);
    return step_name_has_word(&s) && !is_global_step(name);
}

bool nested_folder_is_of_consolidation(const char *name)
{
    return strcmp(name, "sharded") == 0;
}

static bool is_nested(const probe_input *in, const char *path, bool *has_reader)
{
    const char *name = text_file_name(path);
    *has_reader = probe_readers(in, NULL) != NULL;
    return in->is_folder && (*has_reader || is_global_step(name) || search_is_part(in, path));
}

static void note_unread(nested_folders *l, const char *path, const fsdpck_error *why)
{
    if (l->unread++ > 0)
        return;
    l->first_unread = *why;
    error_path(&l->first_unread, path);
}

/* Takes `path`, which may be NULL. is_there, why: the result of looking for it. */
static fsdpck_status add_path(nested_folders *l, char *path, bool is_state, bool of_trainer,
                              fsdpck_status is_there, fsdpck_error *why, fsdpck_error *err)
{
    nested_folder f = {.path = path, .is_state = is_state, .of_trainer = of_trainer};
    probe_input in;
    bool is = false;
    if (path == NULL)
        return error_set_nomem(err, PATH_MAX);
    f.of_consolidation = nested_folder_is_of_consolidation(text_file_name(path));
    if (is_there == FSDPCK_OK && !is_system_folder(path)) {
        is_there = probe_gather(path, &in, why);
        is = is_there == FSDPCK_OK && is_nested(&in, path, &f.has_reader);
        if (is_there == FSDPCK_OK)
            probe_release(&in);
    }
    if (is_there == FSDPCK_IO)
        note_unread(l, path, why);
    const fsdpck_status st = is ? vec_add(&l->list, &f, err) : FSDPCK_OK;
    if (!is || st != FSDPCK_OK)
        free(path);
    return st;
}

static fsdpck_status add_entry(nested_folders *l, const fsdpck_checkpoint *c, const char *entry,
                               fsdpck_error *err)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    path_kind kind;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    if (entry[0] == '.' || nested_folder_is_step(entry) || catalogue_has_path(read, entry))
        return FSDPCK_OK;
    const fsdpck_status is_there = path_probe(&c->probe.dir, entry, &kind, NULL, &why);
    if (is_there == FSDPCK_OK && kind != PATH_FOLDER)
        return FSDPCK_OK;
    return add_path(l, folder_path_join(c->probe.path, entry),
                    state_list_has_folder(&c->probe, entry), false, is_there, &why, err);
}

static bool is_absent(const char *path)
{
    path_kind kind;
    return path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_ABSENT;
}

/* Folders beside the weights: in the folder `levels` above them, with the rest of the path inside. */
static fsdpck_status add_beside(nested_folders *l, const char *weights, const char *inside,
                                unsigned levels, fsdpck_error *err)
{
    fsdpck_error why = FSDPCK_ERROR_INIT;
    size_t nbytes = strlen(weights);
    for (unsigned i = 0; i < levels; i++)
        while (nbytes > 0 && weights[--nbytes] != '/') {
        }
    char *above = strndup(weights, nbytes);
    probe_input in;
    if (above == NULL)
        return error_set_nomem(err, nbytes);
    fsdpck_status st = FSDPCK_OK;
    if (nbytes > 0 && probe_gather(above, &in, NULL) == FSDPCK_OK) {
        for (size_t i = 0; st == FSDPCK_OK && i < in.entry_count; i++) {
            char *entry = folder_path_join(in.entries[i], inside);
            char *path = entry == NULL
                             ? NULL
                             : folder_path_join(above, inside[0] == '\0' ? in.entries[i] : entry);
            free(entry);
            if (path != NULL && (!search_is_state_folder(weights, path) || is_absent(path)))
                free(path);
            else
                st = add_path(l, path, state_list_has_folder(&in, in.entries[i]), true, FSDPCK_OK,
                              &why, err);
        }
        probe_release(&in);
    }
    free(above);
    return st;
}

fsdpck_status nested_folders_add(nested_folders *l, const fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (size_t i = 0; c->probe.is_folder && i < c->probe.entry_count; i++)
        RETURN_IF(add_entry(l, c, c->probe.entries[i], err));
    if (!c->entered || !c->probe.is_folder || c->remote_files != NULL)
        return FSDPCK_OK;
    RETURN_IF(add_beside(l, c->probe.path, "", 1, err));
    return add_beside(l, c->probe.path, "dist_ckpt", 2, err);
}

void nested_folders_init(nested_folders *l)
{
    *l = (nested_folders){.list = VEC_OF(nested_folder, NULL)};
}

void nested_folders_warn_unread(const nested_folders *l, const logger *log)
{
    if (l->unread > 0)
        log_warn(log, FSDPCK_FINDING_SIDE_UNREAD,
                 "make it readable: it may be a part of the checkpoint that is lost or not checked",
                 "%" PRIu64 " entr%s beside the weights cannot be read, such as '%s': %s",
                 l->unread, l->unread == 1 ? "y" : "ies", l->first_unread.path,
                 l->first_unread.message);
}

void nested_folders_release(nested_folders *l)
{
    for (size_t i = 0; i < l->list.count; i++)
        free(VEC_AT(&l->list, nested_folder, i)->path);
    vec_release(&l->list);
}
