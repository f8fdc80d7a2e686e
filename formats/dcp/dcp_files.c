/* dcp_files.c: checks that the files of the blobs exist, and that no other blob follows the last one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_flattened.h"
#include "formats/dcp/dcp_internal.h"
#include "formats/dcp/dcp_missing.h"

/* --- sizes --- */

typedef struct size_job {
    dcp_folder *d;
    const catalogue *cat;
    dcp_file_state *states;
    int64_t *mtimes_ns; /* INT64_MIN: unknown */
    bool no_follow;
} size_job;

static fsdpck_status probe_file(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    const size_job *s = ctx;
    dcp_file_state *state = &s->states[job];
    const char *name = catalogue_name(s->cat, catalogue_file(s->cat, job)->path);
    path_kind kind;
    uint64_t identity;
    (void)worker;

    RETURN_IF(
        path_identify(&s->d->dir, name, &kind, &state->nbytes, &identity, &s->mtimes_ns[job], err));
    state->kind = (uint8_t)kind;
    catalogue_file(s->cat, job)->identity = identity;
    if (kind == PATH_FILE)
        file_set_expect(&s->d->blobs, (uint32_t)job, state->nbytes, identity);
    /* Opening refuses links, and names folders and devices correctly. */
    if ((s->no_follow && kind == PATH_FILE) || kind == PATH_FOLDER || kind == PATH_OTHER)
        return file_set_nbytes(&s->d->blobs, (uint32_t)job, &state->nbytes, err);
    return FSDPCK_OK;
}

/* One pass over the chunks, for all later questions about what a file holds. */
static fsdpck_status find_uses(dcp_folder *d, const catalogue *cat, dcp_file_state *states,
                               fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(cat);
    d->uses.count = 0;
    uint8_t *uses = vec_push_n(&d->uses, nfiles, err);
    if (uses == NULL)
        return FSDPCK_LIMIT;
    memset(uses, 0, nfiles);
    for (uint64_t i = 0, n = catalogue_chunk_count(cat); i < n; i++) {
        const cat_chunk *c = catalogue_chunk(cat, i);
        if (c->place != LOCATION_EMPTY)
            uses[c->file] |= DCP_USE_NEEDED;
        else if (c->file != CAT_NONE)
            uses[c->file] |= DCP_USE_EMPTY;
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        uses[catalogue_object(cat, i)->file] |= DCP_USE_NEEDED;
    for (size_t i = 0; i < d->repeats.count; i++)
        uses[dcp_repeat_at(d, i)->file] |= DCP_USE_NEEDED;
    for (size_t i = 0; i < nfiles; i++)
        states[i].needed = (uses[i] & DCP_USE_NEEDED) != 0;
    return FSDPCK_OK;
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
                                  const dcp_file_state *states, fsdpck_error *err)
{
    const uint64_t nbytes = states[r->file].nbytes;
    if (dcp_is_missing(states, r->file) || checked_range(r->offset_bytes, r->nbytes, nbytes))
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
                                   const dcp_file_state *states, fsdpck_error *err)
{
    fsdpck_status failed = FSDPCK_OK;
    for (size_t i = 0; i < d->repeats.count; i++) {
        fsdpck_error what = FSDPCK_ERROR_INIT;
        const fsdpck_status st = check_repeat(d, dcp_repeat_at(d, i), states, &what);
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

static fsdpck_status check_ranges(dcp_folder *d, const open_request *req,
                                  const dcp_file_state *states, fsdpck_error *err)
{
    const size_t nfiles = catalogue_file_count(d->cat);
    uint8_t *missing = budget_alloc(d->owner, nfiles, err);
    if (missing == NULL)
        return FSDPCK_LIMIT;
    for (uint32_t f = 0; f < nfiles; f++)
        missing[f] = dcp_is_missing(states, f);
    const fsdpck_status st = dcp_ranges_check_files(d, d->cat, req, missing, err);
    budget_free(d->owner, missing, nfiles);
    return st;
}

fsdpck_status dcp_files_check(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    catalogue *cat = d->cat;
    const size_t nfiles = catalogue_file_count(cat);
    fsdpck_status st = FSDPCK_OK;
    dcp_file_state *states = budget_alloc(d->owner, nfiles * sizeof *states, err);
    int64_t *mtimes_ns =
        states == NULL ? NULL : budget_alloc(d->owner, nfiles * sizeof *mtimes_ns, err);

    if (mtimes_ns == NULL) {
        budget_free(d->owner, states, nfiles * sizeof *states);
        return FSDPCK_LIMIT;
    }
    GOTO_IF(find_uses(d, cat, states, err), out);
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
    fsdpck_error what = FSDPCK_ERROR_INIT;
    st = dcp_report_missing(d, req, cat, states, err);
    if (st != FSDPCK_OK && !open_request_tolerate(req, st, err) &&
        !open_request_report(req, st, err))
        goto out;
    const fsdpck_status ranges = check_ranges(d, req, states, &what);
    if (st == FSDPCK_OK && ranges != FSDPCK_OK) {
        st = ranges;
        if (err != NULL)
            *err = what;
    }
    if (open_request_tolerate(req, ranges, &what) || open_request_is_damaged(req))
        st = FSDPCK_OK;
    else if (st == FSDPCK_OK)
        st = check_repeats(d, req, states, err);
    if (st == FSDPCK_OK && !open_request_is_damaged(req))
        st = check_ends(d, req, err);
    if (st == FSDPCK_OK && !open_request_is_damaged(req))
        st = dcp_warn_of_newer(d, mtimes_ns, err);
out:
    budget_free(d->owner, mtimes_ns, nfiles * sizeof *mtimes_ns);
    budget_free(d->owner, states, nfiles * sizeof *states);
    return st;
}
