#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/text.h"
#include "formats/hdf5/hdf5.h"
#include "formats/hdf5/hdf5_build.h"
#include "formats/hdf5/hdf5_child.h"
#include "formats/hdf5/hdf5_decode.h"
#include "formats/hdf5/hdf5_lock.h"
#include "formats/hdf5/hdf5_superblock.h"

/* Memory limit of the child: libhdf5's caches are a few MiB, chunk tables grow with the file. */
#define CHILD_MEMORY_NBYTES  ((uint64_t)1 << 30)
#define CHILD_SECONDS        6u
#define CHILD_NBYTES_SECOND  ((uint64_t)1 << 20) /* of the file, for each second more */
#define CHILD_SECONDS_MAX    600u
#define CHILD_SILENT_SECONDS 60u

/* Measured memory of libhdf5: minimum, cache, and object data relative to the size of a file with
 * only small objects; plus a half. */
#define LIBRARY_NBYTES      ((uint64_t)2 << 20)
#define CACHE_RATIO         32u
#define CACHE_NBYTES_MOST   ((uint64_t)48 << 20)
#define LIBRARY_RATIO       2u
#define LIBRARY_NBYTES_MOST ((uint64_t)64 << 20)

typedef struct reader {
    file in;
    hdf5_file known;
    catalogue *cat;
    budget *owner;
} reader;

/* ---- probe ---- */

/* Files that may begin with a user block: MATLAB's and those with the usual HDF5 suffixes. */
static bool has_suffix(const char *name)
{
    static const char *const suffixes[] = {".h5", ".hdf5", ".hdf", ".he5", ".mat"};
    const char *dot = name == NULL ? NULL : strrchr(name, '.');
    return dot != NULL && TEXT_IS_IN(dot, strlen(dot), suffixes);
}

static bool probe(const probe_input *in, const char **near_miss)
{
    file f = FILE_CLOSED;
    uint64_t at;
    if (in->is_folder)
        return false;
    if (in->head_nbytes >= 8 && memcmp(in->head, "\x89HDF\r\n\x1a\n", 8) == 0)
        return true;
    if (!has_suffix(in->name) || in->head_nbytes < sizeof in->head ||
        file_open_read(&f, &in->dir, in->name, 0, NULL) != FSDPCK_OK)
        return false;
    const bool found = hdf5_superblock_find(&f, &at);
    file_abandon(&f);
    if (!found)
        *near_miss = "named as an HDF5 file, but has no HDF5 signature";
    return found;
}

/* ---- open ---- */

static void close_hdf5(void *self)
{
    reader *r = self;
    if (r == NULL)
        return;
    file_abandon(&r->in);
    hdf5_file_release(&r->known);
    free(r);
}

static fsdpck_status read_child(void *ctx, void *dst, uint64_t nbytes, uint64_t *got,
                                fsdpck_error *err)
{
    return child_read(ctx, dst, nbytes, got, err);
}

/* Reason why its report ended. */
static fsdpck_status explain(child_fate fate, fsdpck_status st, fsdpck_error *err)
{
    if (fate == CHILD_OUT_OF_TIME) {
        st = FAIL_WITH(
            err, LIMIT, LIMIT_SIZE, ("HDF5 library takes too long to read the file"),
            (next, "rewrite the file with h5repack; for a large file, use larger chunks"));
    } else if (fate == CHILD_CRASHED) {
        st = FAIL_WITH(err, BADINPUT, H5_DAMAGED,
                       ("HDF5 library crashed on the file, in a separate process"),
                       (next, "use the file only if you trust its source"));
    } else if (fate == CHILD_FAILED) {
        st = FAIL_WITH(err, LIMIT, LIMIT_MEMORY, ("not enough memory to read the HDF5 file"),
                       (next, "raise the limits of the process (ulimit -a), or split the file"));
    }
    return st;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* libhdf5 does not survive a failed allocation, or takes it for damage: so the memory for a file of
 * this size is reserved before. The forked copy has the same limits as this process. */
static fsdpck_status check_memory(const file *f, fsdpck_error *err)
{
    const uint64_t small = least_of(f->nbytes, LIBRARY_NBYTES_MOST);
    const uint64_t nbytes = LIBRARY_NBYTES + least_of(CACHE_RATIO * small, CACHE_NBYTES_MOST) +
                            least_of(LIBRARY_RATIO * small, LIBRARY_NBYTES_MOST);
    void *p = budget_alloc(NULL, nbytes, err);
    if (p == NULL)
        return FSDPCK_LIMIT;
    budget_free(NULL, p, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status ask_child(reader *r, const open_request *req, const hdf5_superblock *super,
                               fsdpck_error *err)
{
    const uint64_t seconds = CHILD_SECONDS + r->in.nbytes / CHILD_NBYTES_SECOND;
    const child_limits limits = {
        .memory_nbytes = CHILD_MEMORY_NBYTES,
        .cpu_seconds = seconds < CHILD_SECONDS_MAX ? (unsigned)seconds : CHILD_SECONDS_MAX,
        .silent_seconds = CHILD_SILENT_SECONDS,
    };
    child c;
    const hdf5_input in = {
        .read = read_child,
        .ctx = &c,
        .end_bytes = super->end_bytes,
        .is_checked_elsewhere = super->version >= 2,
        .library = hdf5_built_state(),
        .separator = req->hdf5_separator != NULL ? req->hdf5_separator : ".",
        .fills = req->hdf5_fill,
        .tell = req->found != NULL ? req : NULL,
        .log = req->log,
    };
    RETURN_IF(check_memory(&r->in, err));
    hdf5_lock();
    fsdpck_status st = child_start(&c, &limits, hdf5_child_run, NULL, r->in.fd, req->cancel, err);
    hdf5_unlock();
    if (st != FSDPCK_OK)
        return st;
    st = hdf5_build(&r->known, &in, r->cat, err);
    const child_fate fate = child_end(&c);
    /* An invalid record also ends it. */
    return st == FSDPCK_BADINPUT && c.ended ? explain(fate, st, err) : st;
}

/* Tensors of one name have two paths, or the same attribute. */
static void advise_on_names(const reader *r, const open_request *req, fsdpck_error *err)
{
    if (err == NULL || err->finding != FSDPCK_FINDING_KEY_DUP)
        return;
    if (r->known.is_named)
        error_next(err, "correct or remove the attribute 'fqn' of one of them: del "
                        "file['NAME'].attrs['fqn'] in h5py");
    else if (req->hdf5_separator == NULL || strcmp(req->hdf5_separator, "/") != 0)
        error_next(err, "keep the slashes of the paths in the names: --hdf5-sep=/");
}

static fsdpck_status fill(reader *r, const open_request *req, fsdpck_error *err)
{
    const char *name = text_file_name(req->path);
    hdf5_superblock super;
    uint32_t index;
    RETURN_IF(hdf5_superblock_read(&r->in, &super, err));
    RETURN_IF(catalogue_add_file(r->cat, name, strlen(name), r->in.nbytes, CAT_NONE, &index, err));
    catalogue_file(r->cat, index)->identity = file_identify(&r->in);
    RETURN_IF(ask_child(r, req, &super, err));
    if (r->known.status != FSDPCK_OK) {
        if (err != NULL)
            *err = r->known.skipped;
        return r->known.status;
    }
    const fsdpck_status st = catalogue_seal(r->cat, err);
    if (st != FSDPCK_OK) {
        advise_on_names(r, req, err);
        return st;
    }
    /* Its chunks are a storage layout, not shards of ranks. */
    r->cat->origin.world_size = 1;
    snprintf(r->cat->origin.format, sizeof r->cat->origin.format, "hdf5");
    return FSDPCK_OK;
}

static fsdpck_status not_built(fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, NONE, ("built without HDF5"),
                     (next, "build fsdpck where libhdf5 is installed: -DFSDPCK_WITH_HDF5=ON"));
}

static fsdpck_status open_hdf5(const open_request *req, catalogue *cat, void **self,
                               fsdpck_error *err)
{
    if (!hdf5_child_built())
        return not_built(err);
    reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set_nomem(err, sizeof *r);
    r->in = FILE_CLOSED;
    r->cat = cat;
    r->owner = req->metadata;
    hdf5_file_init(&r->known, req->metadata);
    fsdpck_status st =
        file_open_read(&r->in, NULL, req->path, req->no_follow ? FILE_NO_FOLLOW : 0, err);
    if (st == FSDPCK_OK)
        st = fill(r, req, err);
    if (st == FSDPCK_OK)
        *self = r;
    else
        close_hdf5(r);
    return st;
}

/* ---- source ---- */

static const hdf5_chunk *chunk_of(const reader *r, uint64_t chunk)
{
    return VEC_AT(&r->known.chunks, const hdf5_chunk, catalogue_chunk(r->cat, chunk)->aux);
}

static const hdf5_dataset *dataset_of(const reader *r, const hdf5_chunk *c)
{
    return VEC_AT(&r->known.datasets, const hdf5_dataset, c->dataset);
}

/* Whether its elements have no value. An error that opening reported is not repeated: nothing is
 * written, and the rest is checked. */
static bool is_refused(const reader *r, const hdf5_chunk *c)
{
    return c->kind == HDF5_UNWRITTEN && !r->known.tells &&
           !hdf5_is_filled(&r->known, dataset_of(r, c));
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const reader *r = ctx;
    const hdf5_chunk *c = chunk_of(r, chunk);
    const hdf5_dataset *d = dataset_of(r, c);
    const cat_chunk *k = catalogue_chunk(r->cat, chunk);
    uint64_t sizes[NDIM_MAX];
    if (is_refused(r, c) && c->first)
        return hdf5_error_unwritten(&r->known, d, err);
    catalogue_chunk_box(r->cat, chunk, NULL, sizes);
    *where = (place){.file = k->file, .swap = d->swap, .offset_bytes = k->offset_bytes};
    where->stream = c->kind != HDF5_ROWS && c->kind != HDF5_GRID;
    if (where->stream)
        where->offset_bytes = 0;
    where->rows = c->kind != HDF5_GRID && c->kind != HDF5_CODED;
    const bool in_grid = !where->rows;
    box_row_major_strides(in_grid ? VEC_AT(&r->known.sizes, const uint64_t, d->chunk_at) : sizes,
                          d->ndim, where->strides);
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t file_id, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const reader *r = ctx;
    (void)file_id;
    return file_read_at(&r->in, offset_bytes, dst, nbytes, err);
}

static fsdpck_status decode(const reader *r, const hdf5_chunk *c, const cat_chunk *k,
                            source_stream **s, fsdpck_error *err)
{
    uint8_t *stored = malloc(k->nbytes);
    if (stored == NULL)
        return error_set_nomem(err, k->nbytes);
    const fsdpck_status st = file_read_at(&r->in, k->offset_bytes, stored, k->nbytes, err);
    if (st != FSDPCK_OK) {
        free(stored);
        return st;
    }
    return hdf5_stream_decode(dataset_of(r, c), c->mask, stored, k->nbytes, k->offset_bytes, s,
                              err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err)
{
    const reader *r = ctx;
    const hdf5_chunk *c = chunk_of(r, chunk);
    *s = NULL;
    if (c->kind == HDF5_CODED)
        return decode(r, c, catalogue_chunk(r->cat, chunk), s, err);
    if (is_refused(r, c))
        return hdf5_error_unwritten(&r->known, dataset_of(r, c), err);
    if (c->kind == HDF5_UNWRITTEN)
        return hdf5_stream_fill(dataset_of(r, c), s, err);
    return hdf5_stream_of(VEC_AT(&r->known.inlined, const uint8_t, c->table_at),
                          r->known.inlined.count - c->table_at, s, err);
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const reader *r = ctx;
    const cat_chunk *k = catalogue_chunk(r->cat, chunk);
    if (k->place == LOCATION_EMPTY)
        return 0;
    const hdf5_chunk *c = chunk_of(r, chunk);
    return c->kind == HDF5_CODED ? hdf5_stream_nbytes(dataset_of(r, c), k->nbytes) : 0;
}

/* Deflate's checksum counts. Compact datasets have none in most files. */
static stream_checksum stream_checksum_of(void *ctx, uint64_t chunk)
{
    const reader *r = ctx;
    const hdf5_chunk *c = chunk_of(r, chunk);
    const hdf5_dataset *d = dataset_of(r, c);
    if (c->kind == HDF5_UNWRITTEN)
        return STREAM_CHECKSUM_UNKNOWN;
    for (unsigned i = 0; c->kind == HDF5_CODED && i < d->ncoders; i++)
        if (d->coders[i] != HDF5_SHUFFLE && !(c->mask >> i & 1u))
            return STREAM_CHECKSUMMED;
    return STREAM_NO_CHECKSUM;
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const reader *r = ctx;
    return file_check_unchanged(&r->in, err);
}

static void source_hdf5(void *self, catalogue *cat, source *src)
{
    reader *r = self;
    r->cat = cat;
    *src = (source){
        .ctx = r,
        .cat = cat,
        .locate = locate,
        .read_at = read_at,
        .stream_open = stream_open,
        .stream_read = hdf5_stream_read,
        .stream_finish = hdf5_stream_finish,
        .stream_close = hdf5_stream_close,
        .stream_nbytes = stream_nbytes,
        .stream_checksum_of = stream_checksum_of,
        .check_unchanged = check_unchanged,
    };
}

const format_reader hdf5_reader = {
    .name = "hdf5",
    .description = "one HDF5 file",
    .probe = probe,
    .open = open_hdf5,
    .source = source_hdf5,
    .close = close_hdf5,
    .id = FSDPCK_FORMAT_HDF5,
    .writer = &hdf5_writer,
    .library = hdf5_built_state,
    .objects_as_json = true,
};
