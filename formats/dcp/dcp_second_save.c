/* Metadata of two saves in one folder: `.metadata`, and `__{rank}.metadata` of a save without
 * collectives. torch writes one kind per save, and both saves use the same names of data files, so
 * the older metadata may describe bytes that the newer save replaced. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "formats/dcp/dcp_catalogue.h"
#include "formats/dcp/dcp_internal.h"
#include "io/path_stamp.h"

#define NAMED 4u

/* A blob in `.metadata`. */
typedef struct blob_record {
    uint32_t file;
    uint32_t fqn;
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint64_t box; /* hash of the offsets in the tensor */
} blob_record;

typedef struct second_save {
    dcp_folder *d;
    const open_request *req;
    dcp_names names;
    value_pool pool;
    vec records; /* blob_record, sorted */
} second_save;

static int compare_records(const void *a, const void *b)
{
    const blob_record *x = a, *y = b;
    ORDER_BY(x->file, y->file);
    ORDER_BY(x->offset_bytes, y->offset_bytes);
    ORDER_BY(x->nbytes, y->nbytes);
    ORDER_BY(x->fqn, y->fqn);
    return x->box < y->box ? -1 : x->box > y->box;
}

static blob_record record_of(const dcp_metadata *m, const dcp_entry *e)
{
    return (blob_record){e->file, e->fqn, e->offset_bytes, e->nbytes,
                         dcp_size_hash(m, e->offsets_at, 1)};
}

static fsdpck_status read_first(second_save *s, fsdpck_error *err)
{
    dcp_metadata m;
    fsdpck_status st = FSDPCK_OK;
    RETURN_IF(dcp_metadata_read_file(s->d, s->req, ".metadata", &s->names, &s->pool, &m, err));
    for (size_t i = 0; i < m.entries.count && st == FSDPCK_OK; i++) {
        const dcp_entry *e = VEC_AT(&m.entries, dcp_entry, i);
        const blob_record r = record_of(&m, e);
        if (e->paired && e->nbytes > 0)
            st = vec_add(&s->records, &r, err);
    }
    dcp_metadata_release(&m);
    if (st == FSDPCK_OK && s->records.count > 1)
        qsort(s->records.items, s->records.count, sizeof(blob_record), compare_records);
    return st;
}

/* Whether `.metadata` has something else at these bytes. */
static bool contradicts(const second_save *s, const blob_record *r)
{
    const blob_record *all = s->records.items;
    size_t low = 0, high = s->records.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_records(&all[middle], r) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const blob_record *next = low < s->records.count ? &all[low] : NULL;
    const blob_record *before = low > 0 ? &all[low - 1] : NULL;
    if (next != NULL && compare_records(next, r) == 0)
        return false;
    return (next != NULL && next->file == r->file &&
            next->offset_bytes - r->offset_bytes < r->nbytes) ||
           (before != NULL && before->file == r->file &&
            r->offset_bytes - before->offset_bytes < before->nbytes);
}

static fsdpck_status compare(second_save *s, const char *name, fsdpck_error *err)
{
    dcp_metadata m;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    const fsdpck_status st =
        dcp_metadata_read_file(s->d, s->req, name, &s->names, &s->pool, &m, &local);
    /* torch does not read it either. */
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED)
        return FSDPCK_OK;
    if (st != FSDPCK_OK) {
        if (err != NULL)
            *err = local;
        return st;
    }
    uint64_t others = 0;
    for (size_t i = 0; i < m.entries.count; i++) {
        const dcp_entry *e = VEC_AT(&m.entries, dcp_entry, i);
        const blob_record r = record_of(&m, e);
        others += e->paired && e->nbytes > 0 && contradicts(s, &r);
    }
    const size_t blobs = m.entries.count;
    dcp_metadata_release(&m);
    if (others == 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, RANK_MIXED,
        ("folder holds metadata of two saves, which contradict each other: '.metadata' and '%s'",
         name),
        (path, s->req->path), (expected, "metadata of one save"),
        (found, "blobs in '%s' that overlap other blobs in '.metadata': %" PRIu64 " of %zu", name,
         others, blobs),
        (next, "if the save without collectives is newer, remove '.metadata'; otherwise remove "
               "'__{rank}.metadata'"));
}

/* Whether the save without collectives is the newer one. */
static bool is_newer(const second_save *s, const char *name)
{
    path_stamp own, first;
    return path_stamp_get(&own, &s->d->dir, name, NULL) == FSDPCK_OK && own.kind == PATH_FILE &&
           path_stamp_get(&first, &s->d->dir, ".metadata", NULL) == FSDPCK_OK &&
           first.kind == PATH_FILE && dcp_is_newer(own.mtime_ns, first.mtime_ns, own.nbytes);
}

static fsdpck_status compare_all(second_save *s, fsdpck_error *err)
{
    const probe_input *in = s->req->probe;
    text_buf list = {.limit_bytes = 512};
    uint64_t count = 0, newer = 0;
    fsdpck_status st = read_first(s, err);
    for (size_t i = 0; i < in->entry_count && st == FSDPCK_OK; i++) {
        if (dcp_rank_of_metadata(in->entries[i]) == CAT_NONE)
            continue;
        st = cancel_check(s->req->cancel, err);
        if (st == FSDPCK_OK)
            st = compare(s, in->entries[i], err);
        newer += is_newer(s, in->entries[i]);
        if (count++ < NAMED)
            text_printf(&list, "%s%s", count > 1 ? ", " : "", in->entries[i]);
    }
    if (st == FSDPCK_OK)
        log_warn(&s->d->log, FSDPCK_FINDING_DCP_STALE,
                 newer == 0 ? "verify this save, then remove the other files"
                            : "they are newer: if all ranks completed that save, remove "
                              "'.metadata'; otherwise use an earlier checkpoint",
                 "reading '.metadata'; %" PRIu64 " metadata file%s left from another save: %s%s",
                 count, count == 1 ? " is" : "s are", list.text != NULL ? list.text : "",
                 count > NAMED ? ", ..." : "");
    text_release(&list);
    return st;
}

fsdpck_status dcp_second_save_check(dcp_folder *d, const open_request *req, fsdpck_error *err)
{
    second_save s = {.d = d, .req = req, .records = VEC_OF(blob_record, d->owner)};
    bool any = false;
    for (size_t i = 0; i < req->probe->entry_count && !any; i++)
        any = dcp_rank_of_metadata(req->probe->entries[i]) != CAT_NONE;
    if (!any)
        return FSDPCK_OK;
    value_pool_init(&s.pool, d->owner);
    fsdpck_status st = dcp_names_init(&s.names, d->owner, err);
    if (st == FSDPCK_OK) {
        st = compare_all(&s, err);
        dcp_names_release(&s.names);
    }
    value_pool_release(&s.pool);
    VEC_RELEASE_ALL(&s.records);
    return st;
}
