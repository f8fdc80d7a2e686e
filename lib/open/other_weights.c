/* Reports weights in a different form in the same folder: a .bin beside safetensors, rank
 * files, torch's `sharded`. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "open/checkpoint.h"

/* Recognized by the file names of transformers, torch and Meta. */
static bool is_weights_name(const char *name)
{
    static const char *const globs[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model-*-of-*.bin",
                                        "consolidated*.pth", "consolidated*.safetensors"};
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

static bool is_safetensors(const char *name)
{
    return strstr(name, ".safetensors") != NULL;
}

/* One of the files that were read, or that the safetensors reader reports itself. */
static bool is_read(const catalogue *c, const char *entry)
{
    for (size_t i = 0; i < catalogue_file_count(c); i++) {
        const char *path = catalogue_name(c, catalogue_file(c, (uint32_t)i)->path);
        if (strcmp(path, entry) == 0 || (is_safetensors(path) && is_safetensors(entry)))
            return true;
    }
    return false;
}

/* torch keeps the shards there that it consolidated (HuggingFaceStorageWriter). */
static bool is_shards_folder(const catalogue *c, const char *entry)
{
    return strcmp(entry, "sharded") == 0 && is_read(c, "model.safetensors");
}

/* The reader of rank files reports them itself. */
static bool is_unread_rank(const fsdpck_checkpoint *c, const char *entry)
{
    return c->format != format_reader_of_pattern && format_is_rank_file(entry);
}

static void put_next(char *next, size_t capacity, const char *first)
{
    const bool plain = strcspn(first, " '\"\\\n\t") == strlen(first) && strlen(first) < 300;
    if (format_is_rank_file(first))
        snprintf(next, capacity, "to read the rank files instead, give --source-format %s",
                 format_reader_of_pattern->name);
    else
        snprintf(next, capacity, "compare them: fsdpck diff DIR DIR/%s", plain ? first : "NAME");
}

void checkpoint_warn_other_weights(const fsdpck_checkpoint *c, const catalogue *read)
{
    const char *first = NULL;
    char next[400];
    uint64_t count = 0;
    if (!c->probe.is_folder || catalogue_file_count(read) == 0)
        return;
    for (size_t i = 0; i < c->probe.entry_count; i++) {
        const char *entry = c->probe.entries[i];
        if (!is_shards_folder(read, entry) && !is_unread_rank(c, entry) &&
            (!is_weights_name(entry) || is_read(read, entry)))
            continue;
        first = first == NULL ? entry : first;
        count++;
    }
    if (count == 0)
        return;
    put_next(next, sizeof next, first);
    const size_t files = catalogue_file_count(read);
    char more[40] = "", others[40] = "";
    if (files > 1)
        snprintf(more, sizeof more, " and %zu more", files - 1);
    if (count > 1)
        snprintf(others, sizeof others, " and %llu more", (unsigned long long)(count - 1));
    log_warn(&c->ctx->log, FSDPCK_FINDING_WEIGHTS_BESIDE, next,
             "reading '%s'%s; ignoring '%s'%s beside it",
             catalogue_name(read, catalogue_file(read, 0)->path), more, first, others);
}
