#include "formats/hdf5/hdf5_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/hdf5/hdf5_build_internal.h"
#include "formats/hdf5/hdf5_objects.h"
#include "formats/hdf5/hdf5_write_internal.h"

/* Bytes of a record read at a time. */
#define PIECE_NBYTES ((size_t)64 << 10)

/* Names listed of items that are left out. */
#define NAMES_SHOWN       3u
#define NAME_SHOWN_NBYTES 100u

/* ---- FAIL, LEFT, HELLO ---- */

static const struct failure {
    fsdpck_status status;
    fsdpck_finding_id finding;
    const char *message, *next;
} failures[HDF5_FAIL_END] = {
    [HDF5_FAIL_OPEN] = {FSDPCK_BADINPUT, FSDPCK_FINDING_H5_DAMAGED,
                        "HDF5 library cannot open the file", "use another copy of it"},
    [HDF5_FAIL_OBJECT] = {FSDPCK_BADINPUT, FSDPCK_FINDING_H5_DAMAGED,
                          "HDF5 library cannot read an object", "use another copy of the file"},
    [HDF5_FAIL_EXTERNAL_LINK] =
        {FSDPCK_BADINPUT, FSDPCK_FINDING_H5_LINK, "link points to another file",
         "copy its target into this file and delete the link: h5copy, del file['NAME'] in h5py"},
    [HDF5_FAIL_LINK_LOOP] = {FSDPCK_BADINPUT, FSDPCK_FINDING_H5_LINK, "soft link points to itself",
                             "remove the link: del file['NAME'] in h5py"},
    [HDF5_FAIL_LINK_KIND] = {FSDPCK_UNSUPPORTED, FSDPCK_FINDING_H5_LINK, "user-defined link",
                             "rewrite the file with h5repack, which omits the link"},
    [HDF5_FAIL_EXTERNAL] =
        {FSDPCK_BADINPUT, FSDPCK_FINDING_H5_EXTERNAL, "data of a dataset is stored in other files",
         "if you trust the other files, combine all files into one with h5repack"},
    [HDF5_FAIL_VIRTUAL] = {FSDPCK_BADINPUT, FSDPCK_FINDING_H5_VIRTUAL,
                           "virtual dataset, built from other datasets",
                           "if you trust its source files, convert the dataset to a real one with "
                           "h5repack -l CONTI, run in their folder"},
    [HDF5_FAIL_DEPTH] = {FSDPCK_LIMIT, FSDPCK_FINDING_H5_DEPTH, "groups are nested too deeply",
                         "move the datasets to a higher group"},
    [HDF5_FAIL_COUNT] = {FSDPCK_LIMIT, FSDPCK_FINDING_LIMIT_COUNT, "too many links",
                         "split the file"},
    [HDF5_FAIL_MEMORY] = {FSDPCK_LIMIT, FSDPCK_FINDING_LIMIT_MEMORY,
                          "not enough memory to read the HDF5 file", "split the file"},
    [HDF5_FAIL_NAME] = {FSDPCK_LIMIT, FSDPCK_FINDING_H5_DEPTH,
                        "name of a group or dataset is too long", "rename it: h5py's file.move"},
};

/* Parts of an object's description have their own versions, which newer libraries raise. If they
 * have a checksum, an unknown version is not damage. The version of the "object header", which
 * contains the checksum, is checked first. */
static bool is_newer(const hdf5_builder *b, unsigned why, const char *text)
{
    static const char last[] = " message";
    const size_t n = strlen(text), nlast = sizeof last - 1;
    return b->in->is_checked_elsewhere && (why == HDF5_FAIL_OPEN || why == HDF5_FAIL_OBJECT) &&
           n > nlast && strcmp(text + n - nlast, last) == 0 &&
           strstr(text, " version number ") != NULL;
}

/* "ran off the end of the buffer: current p = 0x55..., ..." differs each time. */
static const char *without_addresses(char *text)
{
    char *address = strstr(text, " = 0x");
    char *colon = address == NULL ? NULL : strchr(text, ':');
    if (colon != NULL && colon < address)
        *colon = '\0';
    return text;
}

static const struct failure newer = {
    FSDPCK_UNSUPPORTED, FSDPCK_FINDING_H5_NEWER,
    "file was written by a newer HDF5 than this build's",
    "write it with libver='v110' in h5py, or build fsdpck with a newer HDF5"};

static fsdpck_status read_fail(const hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    const unsigned why = get_u8(g);
    const uint32_t name_nbytes = get_u32(g);
    const uint8_t *name = get_bytes(g, name_nbytes);
    const uint32_t text_nbytes = get_u32(g);
    const uint8_t *text = get_bytes(g, text_nbytes);
    char shown[400];
    if (g->failed || why >= HDF5_FAIL_END)
        return hdf5_bad_record(err);
    escape_text(shown, sizeof shown, (const char *)text, text_nbytes);
    const bool is_new = is_newer(b, why, shown);
    const struct failure *f = is_new ? &newer : &failures[why];
    const fsdpck_status st = error_set(err, f->status, f->finding, "%s", f->message);
    if (name_nbytes > 0)
        error_tensor(err, escape_text(shown, sizeof shown, (const char *)name, name_nbytes));
    if (text_nbytes > 0)
        error_found(
            err, "%s",
            without_addresses(escape_text(shown, sizeof shown, (const char *)text, text_nbytes)));
    if (is_new && b->in->library != NULL)
        error_expected(err, "a file that %s can read", b->in->library);
    if (why == HDF5_FAIL_DEPTH)
        error_expected(err, "at most %u nested groups", HDF5_DEPTH_MAX - 1);
    if (why == HDF5_FAIL_NAME)
        error_expected(err, "at most %u bytes, including the names of its groups",
                       HDF5_NAME_NBYTES_MAX);
    error_next(err, "%s", f->next);
    return st;
}

static fsdpck_status read_left(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    const unsigned why = get_u8(g);
    char shown[NAME_SHOWN_NBYTES];
    const uint32_t n = get_u32(g);
    const uint8_t *name = get_bytes(g, n);
    if (g->failed || why >= HDF5_LEFT_COUNT)
        return hdf5_bad_record(err);
    hdf5_left_out *left = &b->left[why];
    const size_t at = strlen(left->names);
    if (left->count < NAMES_SHOWN)
        snprintf(left->names + at, sizeof left->names - at, "%s'%s'", at > 0 ? ", " : "",
                 escape_text(shown, sizeof shown, (const char *)name, n));
    left->count++;
    return FSDPCK_OK;
}

static const struct left_words {
    fsdpck_finding_id finding;
    const char *next, *what, *one, *many;
    const char *kind, *kinds; /* for inspect */
} left_words[HDF5_LEFT_COUNT] = {
    [HDF5_LEFT_TEXT] = {FSDPCK_FINDING_H5_LEFT_OUT,
                        "ignore this unless it should have been a tensor", "dataset",
                        "holds text and is left out", "hold text and are left out",
                        "dataset of text", "datasets of text"},
    [HDF5_LEFT_NULL] = {FSDPCK_FINDING_H5_LEFT_OUT,
                        "ignore this unless it should have been a tensor", "dataset",
                        "has a null dataspace and is left out",
                        "have a null dataspace and are left out", "dataset with a null dataspace",
                        "datasets with a null dataspace"},
    [HDF5_LEFT_GROUP] = {FSDPCK_FINDING_H5_LEFT_OUT,
                         "ignore this: its contents are read under the first name",
                         "additional name", "of a group is left out", "of groups are left out",
                         "additional name of a group", "additional names of groups"},
    [HDF5_LEFT_DANGLING] = {FSDPCK_FINDING_H5_DANGLING, "remove the link, or restore its target",
                            "soft link", "points to nothing", "point to nothing", "link to nothing",
                            "links to nothing"},
    [HDF5_LEFT_EMPTY] = {FSDPCK_FINDING_H5_LEFT_OUT,
                         "ignore this unless a program requires the group", "group",
                         "is empty and is left out", "are empty and are left out", "empty group",
                         "empty groups"},
    [HDF5_LEFT_ATTRIBUTE] = {FSDPCK_FINDING_H5_ATTRIBUTES, "", "attribute",
                             "is not read, compared or written",
                             "are not read, compared or written", "attribute", "attributes"},
};

static void report_left(hdf5_builder *b)
{
    cat_origin *o = &b->cat->origin;
    for (unsigned i = 0; i < HDF5_LEFT_COUNT; i++) {
        const hdf5_left_out *left = &b->left[i];
        const struct left_words *w = &left_words[i];
        const size_t at = strlen(o->left_out_kinds);
        if (left->count == 0)
            continue;
        log_warn(&b->in->log, w->finding, w->next, "%" PRIu64 " %s%s %s: %s%s", left->count,
                 w->what, left->count == 1 ? "" : "s", left->count == 1 ? w->one : w->many,
                 left->names, left->count > NAMES_SHOWN ? ", ..." : "");
        o->left_out += left->count;
        snprintf(o->left_out_kinds + at, sizeof o->left_out_kinds - at, "%s%" PRIu64 " %s",
                 at > 0 ? ", " : "", left->count, left->count == 1 ? w->kind : w->kinds);
    }
}

static fsdpck_status read_hello(hdf5_record_reader *g, fsdpck_error *err)
{
    const uint32_t version = get_u32(g);
    (void)get_u64(g);
    return g->failed || version != HDF5_PROTOCOL_VERSION ? hdf5_bad_record(err) : FSDPCK_OK;
}

/* ---- records ---- */

static fsdpck_status read_end(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    if (get_u64(g) != b->done.count || g->failed)
        return hdf5_bad_record(err);
    b->ended = true;
    return FSDPCK_OK;
}

/* Objects other than tensors, in files of fsdpck: "format" precedes "objects". */
static fsdpck_status read_attribute(hdf5_builder *b, hdf5_record_reader *g, fsdpck_error *err)
{
    const uint32_t n = get_u32(g);
    const char *name = (const char *)get_bytes(g, n);
    const size_t nbytes = g->left;
    const char *text = (const char *)get_bytes(g, nbytes);
    if (g->failed)
        return hdf5_bad_record(err);
    if (text_is(name, n, "format"))
        b->is_by_fsdpck = text_is(text, nbytes, HDF5_FORMAT_NAME);
    if (!b->is_by_fsdpck || !text_is(name, n, HDF5_OBJECTS_ATTRIBUTE))
        return FSDPCK_OK;
    if (b->has_objects)
        return hdf5_bad_record(err);
    b->has_objects = true;
    return hdf5_objects_read(b->cat, text, nbytes, FSDPCK_FINDING_H5_OBJECTS, err);
}

static fsdpck_status read_record(hdf5_builder *b, uint32_t kind, hdf5_record_reader *g,
                                 fsdpck_error *err)
{
    /* FAIL may occur inside a dataset. */
    if (kind != HDF5_CHUNKS && kind != HDF5_INLINE && kind != HDF5_FAIL && b->told.open)
        RETURN_IF(hdf5_finish_dataset(b, err));
    switch (kind) {
    case HDF5_HELLO:
        RETURN_IF(read_hello(g, err));
        break;
    case HDF5_DATASET:
        RETURN_IF(hdf5_add_dataset(b, g, err));
        break;
    case HDF5_INLINE:
        RETURN_IF(hdf5_add_inline(b, g, err));
        break;
    case HDF5_CHUNKS:
        RETURN_IF(hdf5_add_chunks(b, g, err));
        break;
    case HDF5_LINK:
        RETURN_IF(hdf5_add_link(b, g, err));
        break;
    case HDF5_LEFT:
        RETURN_IF(read_left(b, g, err));
        break;
    case HDF5_ATTR:
        RETURN_IF(read_attribute(b, g, err));
        break;
    case HDF5_FAIL:
        return read_fail(b, g, err);
    case HDF5_END:
        RETURN_IF(read_end(b, g, err));
        break;
    default:
        return hdf5_bad_record(err);
    }
    return g->failed || g->left > 0 ? hdf5_bad_record(err) : FSDPCK_OK;
}

static fsdpck_status read_all(const hdf5_input *in, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    uint64_t got;
    RETURN_IF(in->read(in->ctx, dst, nbytes, &got, err));
    if (got == nbytes)
        return FSDPCK_OK;
    return FAIL(err, BADINPUT, H5_DAMAGED, "HDF5 reader process ended before it finished");
}

/* In parts, so that a large declared length allocates no memory. */
static fsdpck_status read_payload(const hdf5_input *in, vec *bytes, uint32_t nbytes,
                                  fsdpck_error *err)
{
    bytes->count = 0;
    while (bytes->count < nbytes) {
        const size_t left = nbytes - bytes->count;
        const size_t some = left < PIECE_NBYTES ? left : PIECE_NBYTES;
        uint8_t *piece = vec_push_n(bytes, some, err);
        if (piece == NULL)
            return FSDPCK_LIMIT;
        RETURN_IF(read_all(in, piece, some, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_records(hdf5_builder *b, fsdpck_error *err)
{
    vec payload = VEC_OF(uint8_t, b->f->owner);
    uint8_t head[HDF5_HEAD_NBYTES];
    fsdpck_status st = FSDPCK_OK;
    while (st == FSDPCK_OK && !b->ended) {
        GOTO_IF(read_all(b->in, head, sizeof head, err), out);
        const uint32_t n = load_le32(head + 4);
        if (n > HDF5_RECORD_NBYTES_MAX)
            GOTO_IF(hdf5_bad_record(err), out);
        GOTO_IF(read_payload(b->in, &payload, n, err), out);
        hdf5_record_reader g = {payload.items, n, false};
        st = read_record(b, load_le32(head), &g, err);
    }
out:
    vec_release(&payload);
    return st;
}

/* ---- locations ---- */

static int compare_places(const void *left, const void *right)
{
    const hdf5_extent *a = left, *c = right;
    ORDER_BY(a->offset_bytes, c->offset_bytes);
    return a->tensor < c->tensor ? -1 : a->tensor > c->tensor;
}

static fsdpck_status check_overlaps(hdf5_builder *b, fsdpck_error *err)
{
    hdf5_extent *e = b->extents.items;
    if (b->extents.count > 1)
        qsort(e, b->extents.count, sizeof *e, compare_places);
    for (size_t i = 1; i < b->extents.count; i++) {
        if (e[i].offset_bytes - e[i - 1].offset_bytes >= e[i - 1].nbytes)
            continue;
        return FAIL_WITH(
            err, BADINPUT, H5_CHUNK, ("two regions of data overlap in the file"),
            (tensor, catalogue_name(b->cat, catalogue_tensor(b->cat, e[i].tensor)->name)),
            (offset, e[i].offset_bytes),
            (expected, "an offset of %" PRIu64 " or more: '%s' ends there",
             e[i - 1].offset_bytes + e[i - 1].nbytes,
             catalogue_name(b->cat, catalogue_tensor(b->cat, e[i - 1].tensor)->name)));
    }
    return FSDPCK_OK;
}

static void warn_unwritten(const hdf5_builder *b)
{
    const hdf5_file *f = b->f;
    if (f->refused_datasets > 0 && !f->tells)
        log_warn(&b->in->log, FSDPCK_FINDING_H5_UNWRITTEN,
                 f->may_fill ? "use an earlier file, or accept the fill values with --hdf5-fill"
                             : "use an earlier file",
                 "%" PRIu64 " dataset%s %" PRIu64 " bytes that were never written",
                 f->refused_datasets, f->refused_datasets == 1 ? " has" : "s have",
                 f->refused_nbytes);
    if (f->filled_datasets > 0)
        log_warn(&b->in->log, FSDPCK_FINDING_H5_FILLED, "",
                 "%" PRIu64 " dataset%s %" PRIu64
                 " bytes that were never written; --hdf5-fill uses the file's fill value",
                 f->filled_datasets, f->filled_datasets == 1 ? " has" : "s have", f->filled_nbytes);
}

fsdpck_status hdf5_build(hdf5_file *f, const hdf5_input *in, catalogue *cat, fsdpck_error *err)
{
    hdf5_builder b = {
        .f = f,
        .in = in,
        .cat = cat,
        .done = VEC_OF(hdf5_done, f->owner),
        .extents = VEC_OF(hdf5_extent, f->owner),
        .name = {.limit_bytes = 4 * HDF5_NAME_NBYTES_MAX},
    };
    f->fills = in->fills;
    f->tells = in->tell != NULL;
    fsdpck_status st = read_records(&b, err);
    if (st == FSDPCK_OK)
        st = check_overlaps(&b, err);
    if (st == FSDPCK_OK) {
        report_left(&b);
        warn_unwritten(&b);
    }
    hdf5_open_dataset_release(&b);
    VEC_RELEASE_ALL(&b.done, &b.extents);
    text_release(&b.name);
    return st;
}
