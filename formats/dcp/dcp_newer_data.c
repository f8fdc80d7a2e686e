/* Data files that are newer than the metadata that names them. A save replaces data files first and its
 * metadata last, under the same names: if it is interrupted, the older metadata describes a mixture of
 * both saves, which no size or checksum shows. Without collectives each rank writes its metadata after its data,
 * and the ranks that the newer save did not reach keep older metadata. A copy without times is newer too, file by
 * file: each is written within the time that its bytes take. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/dcp/dcp_internal.h"
#include "io/path_stamp.h"

#define NS_PER_S    UINT64_C(1000000000)
#define FILES_NAMED 8u

/* A pause between two files of one save or copy, without the time of their bytes. */
#define PAUSE_NS (60 * NS_PER_S)
/* Copies are faster: 10 MB/s. */
#define NS_PER_BYTE 100u

typedef struct dated_file {
    int64_t mtime_ns;
    uint64_t nbytes;
    uint32_t file;
} dated_file;

/* The oldest metadata that names the files of a folder. */
typedef struct dated_metadata {
    text_buf path; /* "": none */
    int64_t mtime_ns;
} dated_metadata;

static int compare_dates(const void *a, const void *b)
{
    const dated_file *x = a, *y = b;
    ORDER_BY(x->mtime_ns, y->mtime_ns);
    return x->file < y->file ? -1 : x->file > y->file;
}

bool dcp_is_newer(int64_t mtime_ns, int64_t than_ns, uint64_t nbytes)
{
    if (mtime_ns <= than_ns)
        return false;
    const uint64_t later_ns = (uint64_t)mtime_ns - (uint64_t)than_ns;
    return later_ns > PAUSE_NS && (later_ns - PAUSE_NS) / NS_PER_BYTE > nbytes;
}

static void warn_newer(const dcp_folder *d, const dated_file *newer, size_t count, size_t all,
                       const char *metadata, uint64_t later_ns)
{
    text_buf names = {.limit_bytes = 4096};
    for (size_t i = 0; i < count && i < FILES_NAMED; i++)
        text_printf(&names, "%s'%s'", i > 0 ? ", " : "",
                    catalogue_name(d->cat, catalogue_file(d->cat, newer[i].file)->path));
    log_warn(&d->log, FSDPCK_FINDING_DCP_NEWER, "",
             "%zu of %zu data file%s %s newer than '%s' by %" PRIu64
             " s or more, as after a save that was interrupted: %s%s",
             count, all, text_plural(all), count == 1 ? "is" : "are", metadata, later_ns / NS_PER_S,
             names.text != NULL ? names.text : "", count > FILES_NAMED ? ", ..." : "");
    text_release(&names);
}

static fsdpck_status note_metadata(const dcp_folder *d, const char *path, dated_metadata *oldest,
                                   fsdpck_error *err)
{
    path_stamp stamp;
    if (path_stamp_get(&stamp, &d->dir, path, NULL) != FSDPCK_OK || stamp.kind != PATH_FILE ||
        (oldest->path.nbytes > 0 && stamp.mtime_ns >= oldest->mtime_ns))
        return FSDPCK_OK;
    oldest->path.nbytes = 0;
    oldest->mtime_ns = stamp.mtime_ns;
    text_puts(&oldest->path, path);
    return text_check(&oldest->path, err);
}

/* `folder_path` is "", or ends with '/'. The files are in the order of their names. */
static fsdpck_status find_metadata(const dcp_folder *d, const char *folder_path,
                                   const dated_file *files, size_t count, dated_metadata *oldest,
                                   fsdpck_error *err)
{
    text_buf path = {.limit_bytes = 8192};
    uint32_t before = CAT_NONE;
    text_printf(&path, "%s.metadata", folder_path);
    fsdpck_status st = text_check(&path, err);
    if (st == FSDPCK_OK)
        st = note_metadata(d, path.text, oldest, err);
    const bool is_by_rank = oldest->path.nbytes == 0;
    for (size_t i = 0; is_by_rank && i < count && st == FSDPCK_OK; i++) {
        const uint32_t rank = catalogue_file(d->cat, files[i].file)->rank;
        if (rank == CAT_NONE || rank == before)
            continue;
        before = rank;
        path.nbytes = 0;
        text_printf(&path, "%s__%" PRIu32 ".metadata", folder_path, rank);
        st = text_check(&path, err);
        if (st == FSDPCK_OK)
            st = note_metadata(d, path.text, oldest, err);
    }
    text_release(&path);
    return st;
}

/* Files of one folder, all with a known time. */
static fsdpck_status see_folder(const dcp_folder *d, dated_file *files, size_t count,
                                const char *folder_path, fsdpck_error *err)
{
    dated_metadata oldest = {.path = {.limit_bytes = 8192}};
    const fsdpck_status st = find_metadata(d, folder_path, files, count, &oldest, err);
    int64_t before_ns = oldest.mtime_ns;
    const bool is_known = st == FSDPCK_OK && oldest.path.nbytes > 0;
    if (is_known)
        qsort(files, count, sizeof *files, compare_dates);
    for (size_t i = 0; is_known && i < count; i++) {
        if (dcp_is_newer(files[i].mtime_ns, before_ns, files[i].nbytes)) {
            warn_newer(d, &files[i], count - i, count, oldest.path.text,
                       (uint64_t)files[i].mtime_ns - (uint64_t)oldest.mtime_ns);
            break;
        }
        before_ns = files[i].mtime_ns > before_ns ? files[i].mtime_ns : before_ns;
    }
    text_release(&oldest.path);
    return st;
}

/* Bytes of the path before its name. */
static size_t folder_nbytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash + 1 - path);
}

static fsdpck_status see_all(const dcp_folder *d, const int64_t *mtimes_ns, dated_file *files,
                             fsdpck_error *err)
{
    const catalogue *cat = d->cat;
    const size_t nfiles = catalogue_file_count(cat);
    text_buf folder_path = {.limit_bytes = 8192};
    fsdpck_status st = FSDPCK_OK;

    for (size_t at = 0, next; at < nfiles && st == FSDPCK_OK; at = next) {
        const char *first = catalogue_name(cat, catalogue_file(cat, at)->path);
        const size_t nbytes = folder_nbytes(first);
        size_t count = 0;
        for (next = at; next < nfiles; next++) {
            const cat_file *f = catalogue_file(cat, next);
            const char *path = catalogue_name(cat, f->path);
            if (!text_equal(path, folder_nbytes(path), first, nbytes))
                break;
            if (mtimes_ns[next] != INT64_MIN)
                files[count++] = (dated_file){mtimes_ns[next], f->nbytes, (uint32_t)next};
        }
        folder_path.nbytes = 0;
        text_append(&folder_path, first, nbytes);
        st = text_check(&folder_path, err);
        if (st == FSDPCK_OK && count > 0)
            st = see_folder(d, files, count, folder_path.text, err);
    }
    text_release(&folder_path);
    return st;
}

fsdpck_status dcp_warn_of_newer(const dcp_folder *d, const int64_t *mtimes_ns, fsdpck_error *err)
{
    const uint64_t nbytes = catalogue_file_count(d->cat) * sizeof(dated_file);
    dated_file *files = budget_alloc(d->owner, nbytes, err);
    if (files == NULL)
        return FSDPCK_LIMIT;
    const fsdpck_status st = see_all(d, mtimes_ns, files, err);
    budget_free(d->owner, files, nbytes);
    return st;
}
