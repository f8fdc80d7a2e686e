#include "formats/dcp/dcp_missing.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/text.h"
#include "formats/common/renamed_file.h"
#include "formats/dcp/dcp_lost.h"
#include "io/dead_link.h"

/* End of the last blob of a file, which is its size; 0: unknown. */
static uint64_t size_of_missing(const catalogue *cat, uint32_t file_id)
{
    uint64_t nbytes = 0, end;

    for (uint64_t i = 0; i < catalogue_chunk_count(cat); i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (c->place != LOCATION_EMPTY && c->file == file_id &&
            checked_add(c->offset_bytes, c->nbytes, &end) && end > nbytes)
            nbytes = end;
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        if (o->file == file_id && checked_add(o->offset_bytes, o->nbytes, &end) && end > nbytes)
            nbytes = end;
    }
    return nbytes;
}

static bool is_named(const void *ctx, const char *entry)
{
    const dcp_folder *d = ctx;
    return strtab_find(&d->names.paths, entry, strlen(entry)) != STRTAB_NONE;
}

/* other: a file with the size of the first missing one; link_to: its target; or NULL. */
static void set_next(const char *other, const char *first, const char *link_to, uint64_t missing,
                     fsdpck_error *err)
{
    if (other != NULL)
        error_next(
            err,
            "'%s' has the size of '%s': rename it back if it is that file; otherwise copy the "
            "missing file%s from where the checkpoint was written",
            other, first, text_plural(missing));
    else if (link_to != NULL)
        error_next(
            err,
            "'%s' is a link to '%s': restore the target, or copy the file in place of the link",
            first, link_to);
    else
        error_next(
            err,
            "copy the missing file%s from where the checkpoint was written (often all files of "
            "one node)",
            text_plural(missing));
}

fsdpck_status dcp_report_missing(dcp_folder *d, const open_request *req, const catalogue *cat,
                                 const dcp_file_state *states, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(cat);
    text_buf files = {.limit_bytes = 16384}, lost = {.limit_bytes = 65536};
    uint64_t missing = 0;
    uint32_t first_id = 0;
    const char *first = "";

    for (uint32_t i = 0; i < nfiles; i++) {
        const char *name = catalogue_name(cat, catalogue_file(cat, i)->path);
        if (!dcp_is_missing(states, i))
            continue;
        if (missing++ == 0) {
            first = name;
            first_id = i;
        } else {
            text_printf(&files, "%s'%s'", missing > 2 ? ", " : "", name);
        }
        log_missing_file(&d->log, d->dir.path, name);
    }
    if (missing == 0)
        return FSDPCK_OK;
    dcp_lost_describe(d, cat, states, CAT_NONE, &lost);
    const char *other = renamed_file_find(req->probe, size_of_missing(cat, first_id), is_named, d);
    char link_to[300];
    const bool is_dead = dead_link_target(&d->dir, first, link_to, sizeof link_to);
    if (missing > 1)
        FAIL(err, BADINPUT, FILE_MISSING, "%" PRIu64 " files are missing: '%s', %s", missing, first,
             files.text != NULL ? files.text : "");
    else if (is_dead)
        FAIL(err, BADINPUT, FILE_MISSING, "file '%s' is a link to '%s', which does not exist",
             first, link_to);
    else
        FAIL(err, BADINPUT, FILE_MISSING, "file '%s' is missing", first);
    error_path(err, d->dir.path);
    error_expected(err, "%zu file%s that the metadata names", nfiles, text_plural(nfiles));
    error_found(err, "%" PRIu64 " file%s missing: %s", missing, missing == 1 ? " is" : "s are",
                lost.text != NULL ? lost.text : "");
    set_next(other, first, is_dead ? link_to : NULL, missing, err);
    text_release(&files);
    text_release(&lost);
    return FSDPCK_BADINPUT;
}
