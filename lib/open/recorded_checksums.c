#include "open/recorded_checksums.h"

#include <stdlib.h>

#define MANIFEST "fsdpck-manifest.json" /* as lib/manifest writes it */

/* A format records checksums of all tensors or of none. The first ones may be empty or compressed. */
#define CHUNKS_TRIED 8u

static bool has_manifest(const fsdpck_checkpoint *c)
{
    path_kind kind = PATH_ABSENT;
    fsdpck_error ignored = FSDPCK_ERROR_INIT;
    if (c->probe.is_folder && probe_has_entry(&c->probe, MANIFEST))
        return true;
    if (c->entered_from == NULL || c->remote_files != NULL)
        return false;
    char *path = folder_path_join(c->entered_from, MANIFEST);
    if (path != NULL && path_probe(NULL, path, &kind, NULL, &ignored) != FSDPCK_OK)
        kind = PATH_ABSENT;
    free(path);
    return kind != PATH_ABSENT;
}

static bool files_have_checksums(const catalogue *cat, const source *src)
{
    const uint64_t count = catalogue_chunk_count(cat);
    for (uint64_t k = 0, tried = 0; k < count && tried < CHUNKS_TRIED; k++) {
        place where = {0};
        fsdpck_error ignored = FSDPCK_ERROR_INIT;
        if (catalogue_chunk(cat, k)->place == LOCATION_EMPTY)
            continue;
        tried++;
        if (src->locate(src->ctx, k, &where, &ignored) == FSDPCK_OK && where.has_crc &&
            !where.stream)
            return true;
    }
    return false;
}

/* Checkpoints that were read from files, not made of others. */
static bool is_recorded(const fsdpck_checkpoint *c)
{
    const bool adapted = c->adapter != NULL;
    return has_manifest(c) ||
           files_have_checksums(adapted ? &c->read : &c->cat, adapted ? &c->read_src : &c->src);
}

/* A checkpoint may be made of another, such as one with a tensor map of one that is dequantized. */
static bool made_of_recorded(const fsdpck_checkpoint *c)
{
    for (;; c = c->base) {
        for (size_t i = 0; i < c->beside_count; i++)
            if (c->beside[i] != NULL && is_recorded(c->beside[i]))
                return true;
        if (c->base == NULL)
            return is_recorded(c);
    }
}

bool checkpoint_has_checksums(const fsdpck_checkpoint *c)
{
    bool found = c->input_count == 0 && made_of_recorded(c);
    for (size_t i = 0; i < c->input_count && !found; i++)
        found = made_of_recorded(c->inputs[i]);
    return found;
}
