#include "open/nested_folders.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/checkpoint.h"

static bool is_read_folder(const catalogue *read, const char *entry)
{
    const size_t n = strlen(entry);
    for (size_t i = 0; i < catalogue_file_count(read); i++) {
        const char *path = catalogue_name(read, catalogue_file(read, (uint32_t)i)->path);
        if (strncmp(path, entry, n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return true;
    }
    return false;
}

/* "global_step8", which transformers and DeepSpeed write below "checkpoint-8". */
static bool is_global_step(const char *name)
{
    static const char word[] = "global_step";
    const char *digits = name + sizeof word - 1;
    return strncmp(name, word, sizeof word - 1) == 0 && *digits != '\0' &&
           digits[strspn(digits, "0123456789")] == '\0';
}

/* 'checkpoint-500' beside the final weights of its run is no part of them. */
static bool is_step_of_run(const char *name)
{
    step_name s;
    step_name_read(name, strlen(name), &s);
    return step_name_has_word(&s) && !is_global_step(name);
}

/* The same weights before torch consolidated them: WEIGHTS-BESIDE names it. */
static bool is_of_consolidation(const char *name)
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

static fsdpck_status add_entry(nested_folders *l, const fsdpck_checkpoint *c, const char *entry,
                               fsdpck_error *err)
{
    const catalogue *read = c->adapter == NULL ? &c->cat : &c->read;
    path_kind kind;
    probe_input in;
    nested_folder f = {0};
    fsdpck_error why = FSDPCK_ERROR_INIT;
    if (entry[0] == '.' || is_step_of_run(entry) || is_of_consolidation(entry) ||
        is_read_folder(read, entry))
        return FSDPCK_OK;
    fsdpck_status is_there = path_probe(&c->probe.dir, entry, &kind, NULL, &why);
    if (is_there == FSDPCK_OK && kind != PATH_FOLDER)
        return FSDPCK_OK;
    f.path = folder_path_join(c->probe.path, entry);
    if (f.path == NULL)
        return error_set_nomem(err, strlen(entry));
    bool is = false;
    if (is_there == FSDPCK_OK && !is_system_folder(f.path)) {
        is_there = probe_gather(f.path, &in, &why);
        is = is_there == FSDPCK_OK && is_nested(&in, f.path, &f.has_reader);
        if (is_there == FSDPCK_OK)
            probe_release(&in);
    }
    if (is_there == FSDPCK_IO)
        note_unread(l, f.path, &why);
    const fsdpck_status st = is ? vec_add(&l->list, &f, err) : FSDPCK_OK;
    if (!is || st != FSDPCK_OK)
        free(f.path);
    return st;
}

fsdpck_status nested_folders_add(nested_folders *l, const fsdpck_checkpoint *c, fsdpck_error *err)
{
    for (size_t i = 0; c->probe.is_folder && i < c->probe.entry_count; i++)
        RETURN_IF(add_entry(l, c, c->probe.entries[i], err));
    return FSDPCK_OK;
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
