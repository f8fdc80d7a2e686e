/* Files, or ends of files, that are missing and held only shards without elements. No tensor requires
 * them, and torch does not read them; other files may have been lost with them. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/text.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"

#define FILES_NAMED 8u

/* By file: its shards without elements. */
typedef struct empty_file {
    uint64_t end_bytes; /* of the last one */
    uint64_t lost;      /* those outside the file */
} empty_file;

static bool holds_empty(const dcp_folder *d)
{
    for (size_t i = 0; i < d->uses.count; i++)
        if ((*VEC_AT(&d->uses, const uint8_t, i) & DCP_USE_EMPTY) != 0)
            return true;
    return false;
}

static void count_lost(const dcp_folder *d, empty_file *files)
{
    const catalogue *cat = d->cat;
    for (uint64_t i = 0; i < catalogue_chunk_count(cat); i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        uint64_t end;
        if (c->place != LOCATION_EMPTY || c->file == CAT_NONE)
            continue;
        empty_file *f = &files[c->file];
        if (c->nbytes > 0 && checked_add(c->offset_bytes, c->nbytes, &end) &&
            end > catalogue_file(cat, c->file)->nbytes) {
            f->lost++;
            f->end_bytes = end > f->end_bytes ? end : f->end_bytes;
        }
    }
}

/* Appends the file to `names` if it, or its end, is missing. */
static fsdpck_status see_file(const dcp_folder *d, uint32_t file_id, const empty_file *f,
                              uint64_t *lost, text_buf *names, fsdpck_error *err)
{
    const uint64_t nbytes = catalogue_file(d->cat, file_id)->nbytes;
    const char *name = catalogue_name(d->cat, catalogue_file(d->cat, file_id)->path);
    path_kind kind = PATH_FILE;

    /* A file that is needed was checked with what it holds. */
    if (nbytes == 0 && (*VEC_AT(&d->uses, const uint8_t, file_id) & DCP_USE_NEEDED) == 0)
        RETURN_IF(path_probe(&d->dir, name, &kind, NULL, err));
    if (kind != PATH_ABSENT && f->lost == 0)
        return FSDPCK_OK;
    if ((*lost)++ >= FILES_NAMED)
        return FSDPCK_OK;
    text_printf(names, "%s'%s' ", *lost > 1 ? ", " : "", name);
    if (kind == PATH_ABSENT)
        text_puts(names, "(missing)");
    else
        text_printf(names, "(%" PRIu64 " of %" PRIu64 " bytes)", nbytes, f->end_bytes);
    return FSDPCK_OK;
}

fsdpck_status dcp_warn_of_empty_lost(dcp_folder *d, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(d->cat);
    text_buf names = {.limit_bytes = 16384};
    fsdpck_status st = FSDPCK_OK;
    uint64_t lost = 0;
    empty_file *files = budget_alloc(d->owner, nfiles * sizeof *files, err);

    if (files == NULL)
        return FSDPCK_LIMIT;
    if (holds_empty(d))
        count_lost(d, files);
    for (uint32_t i = 0; i < nfiles && st == FSDPCK_OK; i++)
        st = see_file(d, i, &files[i], &lost, &names, err);
    if (st == FSDPCK_OK && lost > 0)
        log_warn(&d->log, FSDPCK_FINDING_DCP_EMPTY_LOST, "",
                 "%" PRIu64
                 " file%s missing or incomplete, but only shards without elements are lost: "
                 "%s%s",
                 lost, lost == 1 ? " is" : "s are", names.text != NULL ? names.text : "",
                 lost > FILES_NAMED ? ", ..." : "");
    text_release(&names);
    budget_free(d->owner, files, nfiles * sizeof *files);
    return st;
}
