/* Reports weights that are not read: those in a different form in the same folder (a .bin beside
 * safetensors, rank files, a folder of shards or of a DCP save), and the other files of a set if one file is given. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/adapter_files.h"
#include "open/checkpoint.h"
#include "open/nested_folders.h"
#include "open/numbered_files.h"
#include "open/shard_gaps.h"
#include "open/single_rank_file.h"
#include "open/stated_files.h"
#include "open/weights_beside.h"
#include "open/weights_names.h"

/* accelerate saves the model in the other. */
static bool is_unread_folder(const fsdpck_checkpoint *c, const catalogue *read, const char *entry)
{
    path_kind kind;
    if ((!nested_folder_is_of_consolidation(entry) &&
         fnmatch("pytorch_model_fsdp_[0-9]", entry, 0) != 0) ||
        catalogue_has_folder(read, entry))
        return false;
    return path_probe(&c->probe.dir, entry, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

/* The reader of rank files reports them itself. */
static bool is_unread_rank(const fsdpck_checkpoint *c, const catalogue *read, const char *entry)
{
    return c->format != format_reader_of_pattern && checkpoint_is_rank_name(entry) &&
           !weights_beside_is_read(read, entry);
}

/* A file of several may be given by mistake, or because the others are lost. */
static void warn_file_of_set(const fsdpck_checkpoint *c)
{
    const char *name = text_file_name(c->path);
    const uint64_t stated = stated_file_count(name), of_format = format_file_count(name);
    const uint64_t files = stated > of_format && c->entered_from == NULL ? stated : of_format;
    bool known;
    if (files > 1)
        log_warn(&c->ctx->log, FSDPCK_FINDING_FILE_OF_SET, "",
                 "reading only '%s': by its name, it is one of %" PRIu64 " files", name, files);
    else if (files == 0 &&
             (format_is_rank_file(name, &known) || format_is_safetensors_rank(name)) &&
             !single_rank_file(NULL, c->path))
        log_warn(&c->ctx->log, FSDPCK_FINDING_FILE_OF_SET, "",
                 "reading only '%s': by its name, it is the file of one rank", name);
    else if (format_is_keras_shard(name))
        log_warn(&c->ctx->log, FSDPCK_FINDING_FILE_OF_SET, "",
                 "reading only '%s': by its name, it is one of several files of a Keras model",
                 name);
}

void checkpoint_warn_other_weights(fsdpck_checkpoint *c, const catalogue *read,
                                   checkpoint_open_fn open)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const char *first = NULL;
    uint64_t count = 0;
    strtab cut;
    numbered_files_warn(c, read, open);
    shard_gaps_warn(c, read);
    if (!c->probe.is_folder)
        warn_file_of_set(c);
    if (!c->probe.is_folder || catalogue_file_count(read) == 0)
        return;
    strtab_init(&cut, NULL);
    if (weights_beside_check(c, read, open, &cut, &what) == FSDPCK_BADINPUT)
        log_warn(&c->ctx->log, what.finding, what.next, "%s", what.message);
    for (size_t i = 0; i < c->probe.entry_count; i++) {
        const char *entry = c->probe.entries[i];
        if ((!is_unread_folder(c, read, entry) && !is_unread_rank(c, read, entry) &&
             !adapter_files_is_other(read, entry) &&
             (!checkpoint_is_weights_name(entry) || weights_beside_is_read(read, entry))) ||
            strtab_find(&cut, entry, strlen(entry)) != STRTAB_NONE)
            continue;
        first = first == NULL ? entry : first;
        count++;
    }
    strtab_release(&cut);
    if (count > 0)
        weights_beside_report(c, read, first, count);
}
