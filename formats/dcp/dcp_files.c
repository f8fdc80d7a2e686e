/* dcp_files.c: checks that the files of the blobs exist, and that no other blob follows the last one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/common/renamed_file.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "io/path_stamp.h"

/* --- sizes --- */

typedef struct file_state {
    uint64_t nbytes;
    uint8_t needed;
    uint8_t kind; /* path_kind */
} file_state;

typedef struct size_job {
    dcp_folder *d;
    const catalogue *cat;
    file_state *states;
    int64_t *mtimes_ns; /* INT64_MIN: unknown */
    bool no_follow;
} size_job;

static fsdpck_status probe_file(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const size_job *s = ctx;
    file_state *state = &s->states[job];
    const char *name = catalogue_name(s->cat, catalogue_file(s->cat, job)->path);
    path_stamp stamp;
    path_kind kind;
    uint64_t identity;
    (void)worker;

    RETURN_IF(path_identify(&s->d->dir, name, &kind, &state->nbytes, &identity, err));
    s->mtimes_ns[job] =
        path_stamp_get(&stamp, &s->d->dir, name, NULL) == FSDPCK_OK && stamp.kind == PATH_FILE
            ? stamp.mtime_ns
            : INT64_MIN;
    state->kind = (uint8_t)kind;
    if (kind == PATH_FILE)
        file_set_expect(&s->d->blobs, (uint32_t)job, state->nbytes, identity);
    /* Opening refuses links, and names folders and devices correctly. */
    if ((s->no_follow && kind == PATH_FILE) || kind == PATH_FOLDER || kind == PATH_OTHER)
        return file_set_nbytes(&s->d->blobs, (uint32_t)job, &state->nbytes, err);
    return FSDPCK_OK;
}

static const dcp_repeat *repeat_at(const dcp_folder *d, size_t i)
{
    return VEC_AT(&d->repeats, const dcp_repeat, i);
}

static void mark_needed(const dcp_folder *d, const catalogue *cat, file_state *states)
{
    for (uint64_t i = 0; i < catalogue_chunk_count(cat); i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (c->place != LOCATION_EMPTY)
            states[c->file].needed = 1;
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        states[catalogue_object(cat, i)->file].needed = 1;
    for (size_t i = 0; i < d->repeats.count; i++)
        states[repeat_at(d, i)->file].needed = 1;
}

static bool is_missing(const file_state *states, uint32_t file_id)
{
    return states[file_id].needed && states[file_id].kind == PATH_ABSENT;
}

/* Appends the names of up to ten items in missing files to `text`; returns the total number. */
static uint64_t list_lost(const dcp_folder *d, const catalogue *cat, const file_state *states,
                          text_buf *text)
{
    uint64_t lost = 0;
    uint32_t last = CAT_NONE;

    for (uint64_t i = 0; i < catalogue_chunk_count(cat); i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (c->place == LOCATION_EMPTY || c->tensor == last || !is_missing(states, c->file))
            continue;
        last = c->tensor;
        if (lost++ < 10)
            text_printf(text, "%s'%s'", lost > 1 ? ", " : "",
                        catalogue_name(cat, catalogue_tensor(cat, c->tensor)->name));
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        if (is_missing(states, o->file) && lost++ < 10)
            text_printf(text, "%s'%s'", lost > 1 ? ", " : "", catalogue_name(cat, o->name));
    }
    for (size_t i = 0; i < d->repeats.count; i++)
        if (is_missing(states, repeat_at(d, i)->file) && lost++ < 10)
            text_printf(text, "%s'%s'", lost > 1 ? ", " : "",
                        dcp_object_name(cat, repeat_at(d, i)->object));
    return lost;
}

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

static fsdpck_status report_missing(dcp_folder *d, const open_request *req, const catalogue *cat,
                                    const file_state *states, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(cat);
    text_buf files = {.limit_bytes = 16384}, lost = {.limit_bytes = 65536};
    uint64_t missing = 0;
    uint32_t first_id = 0;
    const char *first = "";

    for (uint32_t i = 0; i < nfiles; i++) {
        const char *name = catalogue_name(cat, catalogue_file(cat, i)->path);
        if (!is_missing(states, i))
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
    const uint64_t nlost = list_lost(d, cat, states, &lost);
    const char *other = renamed_file_find(req->probe, size_of_missing(cat, first_id), is_named, d);
    if (missing == 1)
        FAIL(err, BADINPUT, FILE_MISSING, "file '%s' is missing", first);
    else
        FAIL(err, BADINPUT, FILE_MISSING, "%" PRIu64 " files are missing: '%s', %s", missing, first,
             files.text != NULL ? files.text : "");
    error_path(err, d->dir.path);
    error_expected(err, "%zu file%s that the metadata names", nfiles, text_plural(nfiles));
    error_found(err, "%" PRIu64 " missing", missing);
    error_next(err,
               "%s%s%s%s%scopy the missing file%s from where the checkpoint was written (often all "
               "files of one node); tensors and objects with missing parts (%" PRIu64 "): %s%s",
               other != NULL ? "'" : "", other != NULL ? other : "",
               other != NULL ? "' has the size of '" : "", other != NULL ? first : "",
               other != NULL ? "': rename it back if it is that file; otherwise " : "",
               text_plural(missing), nlost, lost.text != NULL ? lost.text : "",
               nlost > 10 ? ", ..." : "");
    text_release(&files);
    text_release(&lost);
    return FSDPCK_BADINPUT;
}

/* --- ends --- */

/* Files are filled to their end. If another blob follows the last one in the metadata, the file is
 * from a different save: a newer one that did not write its metadata, or a second one into the same
 * file. */
static fsdpck_status check_end(dcp_folder *d, uint32_t file_id, fsdpck_error *err)
{
    static const uint8_t zstd[] = {0x28, 0xB5, 0x2F, 0xFD};
    const uint64_t nbytes = catalogue_file(d->cat, file_id)->nbytes;
    const uint64_t end = *VEC_AT(&d->ends, const uint64_t, file_id);
    uint8_t head[4];

    if (end == 0 || end >= nbytes || nbytes - end < sizeof head)
        return FSDPCK_OK;
    RETURN_IF(file_set_read_at(&d->blobs, file_id, end, head, sizeof head, err));
    if (memcmp(head, "PK\3\4", 4) != 0 && memcmp(head, zstd, 4) != 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, DCP_MIXED,
        ("file holds more blobs than the metadata lists: it is from another save"),
        (path_in, d->dir.path, catalogue_name(d->cat, catalogue_file(d->cat, file_id)->path)),
        (offset, end), (expected, "%" PRIu64 " bytes", end), (found, "%" PRIu64 " bytes", nbytes),
        (next, "a newer save may have been interrupted before it wrote '.metadata': use another "
               "checkpoint, or find the file that belongs to this one"));
}

static fsdpck_status check_ends(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    fsdpck_status failed = FSDPCK_OK;
    const size_t nfiles = catalogue_file_count(d->cat);
    for (uint32_t i = 0; i < nfiles && i < d->ends.count; i++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = check_end(d, i, &what);
        if (st == FSDPCK_OK)
            continue;
        if (err != NULL && failed == FSDPCK_OK)
            *err = what;
        failed = failed == FSDPCK_OK ? st : failed;
        if (!open_request_report(req, st, &what))
            return st;
    }
    return failed;
}

static fsdpck_status check_repeat(const dcp_folder *d, const dcp_repeat *r,
                                  const file_state *states, fsdpck_error *err)
{
    const uint64_t nbytes = states[r->file].nbytes;
    if (is_missing(states, r->file) || checked_range(r->offset_bytes, r->nbytes, nbytes))
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, FILE_SHORT, ("file ends before the end of its blobs"),
        (tensor, dcp_object_name(d->cat, r->object)),
        (path_in, d->dir.path, catalogue_name(d->cat, catalogue_file(d->cat, r->file)->path)),
        (expected, "%" PRIu64 " bytes at offset %" PRIu64, r->nbytes, r->offset_bytes),
        (found, "a file of %" PRIu64 " bytes", nbytes));
}

/* The values of other ranks, of objects that several ranks have. */
static fsdpck_status check_repeats(const dcp_folder *d, const open_request *req,
                                   const file_state *states, fsdpck_error *err)
{
    fsdpck_status failed = FSDPCK_OK;
    for (size_t i = 0; i < d->repeats.count; i++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = check_repeat(d, repeat_at(d, i), states, &what);
        if (st == FSDPCK_OK)
            continue;
        if (err != NULL && failed == FSDPCK_OK)
            *err = what;
        failed = st;
        if (!open_request_report(req, st, &what))
            return st;
    }
    return failed;
}

/* --- all --- */

static fsdpck_status check_ranges(dcp_folder *d, const open_request *req, const file_state *states,
                                  fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(d->cat);
    uint8_t *missing = budget_alloc(d->owner, nfiles, err);
    if (missing == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t f = 0; f < nfiles; f++)
        missing[f] = is_missing(states, f);
    const fsdpck_status st = dcp_ranges_check_files(d, d->cat, req, missing, err);
    budget_free(d->owner, missing, nfiles);
    return st;
}

fsdpck_status dcp_files_check(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    catalogue *cat = d->cat;
    const size_t nfiles = catalogue_file_count(cat);
    fsdpck_status st = FSDPCK_OK;
    file_state *states = budget_alloc(d->owner, nfiles * sizeof *states, err);
    int64_t *mtimes_ns =
        states == NULL ? NULL : budget_alloc(d->owner, nfiles * sizeof *mtimes_ns, err);

    if (mtimes_ns == NULL) {
        budget_free(d->owner, states, nfiles * sizeof *states);
        return FSDPCK_LIMIT;
    }
    mark_needed(d, cat, states);
    for (size_t i = 0; i < nfiles; i++) {
        uint32_t index;
        GOTO_IF(
            file_set_add(&d->blobs, catalogue_name(cat, catalogue_file(cat, i)->path), &index, err),
            out);
    }
    size_job job = {
        .d = d, .cat = cat, .states = states, .mtimes_ns = mtimes_ns, .no_follow = req->no_follow};
    GOTO_IF(pool_run(req->nthreads, nfiles, probe_file, &job, req->cancel, err), out);
    for (size_t i = 0; i < nfiles; i++)
        catalogue_file(cat, i)->nbytes = states[i].nbytes;
    st = report_missing(d, req, cat, states, err);
    if (st != FSDPCK_OK && !open_request_report(req, st, err))
        goto out;
    fsdpck_error what = FSDPCK_ERROR_INIT;
    const fsdpck_status ranges = check_ranges(d, req, states, &what);
    if (st == FSDPCK_OK && ranges != FSDPCK_OK) {
        st = ranges;
        if (err != NULL)
            *err = what;
    }
    if (st == FSDPCK_OK)
        st = check_repeats(d, req, states, err);
    if (st == FSDPCK_OK)
        st = check_ends(d, req, err);
    if (st == FSDPCK_OK)
        st = dcp_warn_of_newer(d, mtimes_ns, err);
out:
    budget_free(d->owner, mtimes_ns, nfiles * sizeof *mtimes_ns);
    budget_free(d->owner, states, nfiles * sizeof *states);
    return st;
}
