#include "formats/safetensors/st_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "formats/safetensors/st_layout.h"

typedef struct opened {
    uint64_t nbytes;
    st_header header;
    bool is_bad, has_header;
} opened;

struct st_files {
    folder dir; /* closed for a single file */
    file_set files;
    vec opened; /* opened */
    cat_metadata metadata;
    cat_metadata index_metadata;
    budget *owner;
    const cancel_token *cancel;
    unsigned nthreads;
    const open_request *req; /* while headers are read */
    catalogue *cat;
    st_lost_fn describe_lost; /* may be NULL */
    const void *lost_ctx;
};

static const folder *dir_of(const st_files *s)
{
    return s->dir.path != NULL ? &s->dir : NULL;
}

fsdpck_status st_files_open(const open_request *req, st_files **out, fsdpck_error *err)
{
    st_files *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set_nomem(err, sizeof *s);
    s->dir = FOLDER_CLOSED;
    s->opened = VEC_OF(opened, req->metadata);
    s->owner = req->metadata;
    cat_metadata_init(&s->metadata, req->metadata);
    s->cancel = req->cancel;
    s->nthreads = req->nthreads;
    s->req = req;
    fsdpck_status st = FSDPCK_OK;
    if (req->probe->is_folder)
        st = open_request_folder(req, &s->dir, err);
    if (st == FSDPCK_OK)
        st = file_set_init(&s->files, dir_of(s), 0, req->no_follow ? FILE_NO_FOLLOW : 0, err);
    if (st != FSDPCK_OK)
        st_files_close(s);
    else
        *out = s;
    return st;
}

void st_files_close(void *self)
{
    st_files *s = self;
    if (s == NULL)
        return;
    st_files_drop_headers(s);
    cat_metadata_release(&s->metadata);
    cat_metadata_release(&s->index_metadata);
    vec_release(&s->opened);
    file_set_release(&s->files);
    folder_close(&s->dir);
    free(s);
}

fsdpck_status st_files_add(st_files *s, const char *name, fsdpck_error *err)
{
    uint32_t index;
    RETURN_IF(file_set_add(&s->files, name, &index, err));
    return vec_push(&s->opened, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
}

size_t st_files_count(const st_files *s)
{
    return s->opened.count;
}

unsigned st_files_threads(const st_files *s)
{
    return s->nthreads > 0 ? s->nthreads : 1;
}

fsdpck_status st_files_run(const st_files *s, uint64_t njobs, pool_job_fn fn, void *ctx,
                           fsdpck_error *err)
{
    return pool_run(s->nthreads, njobs, fn, ctx, s->cancel, err);
}

const st_header *st_files_header(const st_files *s, size_t i)
{
    return &VEC_AT(&s->opened, opened, i)->header;
}

uint64_t st_files_nbytes(const st_files *s, size_t i)
{
    return VEC_AT(&s->opened, opened, i)->nbytes;
}

uint64_t st_files_identity(const st_files *s, size_t i)
{
    return file_set_identity((file_set *)&s->files, (uint32_t)i);
}

const char *st_files_name(const st_files *s, size_t i)
{
    /* The set locks itself for the query, which does not change its visible state. */
    return file_set_path((file_set *)&s->files, (uint32_t)i);
}

void st_files_error_path(const st_files *s, size_t i, fsdpck_error *err)
{
    char path[1024];
    const folder *dir = dir_of(s);
    snprintf(path, sizeof path, "%s%s%s", dir != NULL ? dir->path : "", dir != NULL ? "/" : "",
             st_files_name(s, i));
    error_path(err, path);
}

typedef struct reading {
    st_files *s;
    uint32_t file;
} reading;

static fsdpck_status read_file(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    const reading *r = ctx;
    return file_set_read_at(&r->s->files, r->file, offset_bytes, dst, nbytes, err);
}

static fsdpck_status read_one(st_files *s, uint64_t job, bool may_end_early, st_header *h,
                              fsdpck_error *err)
{
    opened *o = VEC_AT(&s->opened, opened, job);
    reading r = {.s = s, .file = (uint32_t)job};
    fsdpck_status st = file_set_nbytes(&s->files, r.file, &o->nbytes, err);
    if (st == FSDPCK_OK) {
        const st_input in = {
            .read = read_file, .ctx = &r, .nbytes = o->nbytes, .may_end_early = may_end_early};
        st = st_header_read(&in, s->owner, h, err);
    }
    if (st != FSDPCK_OK)
        st_files_error_path(s, (size_t)job, err);
    return st;
}

/* A damaged file is no failure yet; its header is read if the file is only cut. */
static fsdpck_status read_header(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    st_files *s = ctx;
    opened *o = VEC_AT(&s->opened, opened, job);
    fsdpck_error what = FSDPCK_ERROR_INIT;
    (void)worker;

    fsdpck_status st = read_one(s, job, false, &o->header, &what);
    o->is_bad = st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED;
    if (o->is_bad)
        o->has_header = read_one(s, job, true, &o->header, NULL) == FSDPCK_OK;
    else
        o->has_header = st == FSDPCK_OK;
    if (o->is_bad || st == FSDPCK_OK)
        return FSDPCK_OK;
    if (err != NULL)
        *err = what;
    return st;
}

/* Adds the tensors that a cut file costs. */
static void describe_lost(const st_files *s, size_t i, fsdpck_error *what)
{
    text_buf lost = {.limit_bytes = 65536};
    char found[sizeof what->found];
    if (s->describe_lost == NULL || (what->finding != FSDPCK_FINDING_FILE_SHORT &&
                                     what->finding != FSDPCK_FINDING_ST_HEADER_SIZE))
        return;
    s->describe_lost(s, s->lost_ctx, i, &lost);
    snprintf(found, sizeof found, "%s", what->found);
    if (lost.nbytes > 0 && !lost.failed) {
        what->found[0] = '\0';
        error_found(what, "%s: %s", found, lost.text);
    }
    text_release(&lost);
}

/* Reports a damaged file. OK: only data are lost, and the request tolerates it. */
static fsdpck_status report_bad(st_files *s, size_t i, fsdpck_error *err)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    st_header again = {0};
    const fsdpck_status st = read_one(s, i, false, &again, &what);
    if (st == FSDPCK_OK) { /* it has changed */
        st_header_release(&VEC_AT(&s->opened, opened, i)->header);
        VEC_AT(&s->opened, opened, i)->header = again;
        return FSDPCK_OK;
    }
    describe_lost(s, i, &what);
    (void)open_request_report(s->req, st, &what);
    if (what.finding == FSDPCK_FINDING_FILE_SHORT && VEC_AT(&s->opened, opened, i)->has_header &&
        open_request_tolerate(s->req, st, &what))
        return FSDPCK_OK;
    if (err != NULL)
        *err = what;
    return st;
}

fsdpck_status st_files_read_damaged(st_files *s, fsdpck_error *err)
{
    return pool_run(s->nthreads, s->opened.count, read_header, s, s->cancel, err);
}

bool st_files_has_header(const st_files *s, size_t i)
{
    return VEC_AT(&s->opened, opened, i)->has_header;
}

void st_files_describe_lost(st_files *s, st_lost_fn fn, const void *ctx)
{
    s->describe_lost = fn;
    s->lost_ctx = ctx;
}

/* Reports all damaged files, and returns the first. */
fsdpck_status st_files_read_headers(st_files *s, fsdpck_error *err)
{
    fsdpck_status st = st_files_read_damaged(s, err);
    const bool read = st == FSDPCK_OK;
    for (size_t i = 0; read && i < s->opened.count; i++) {
        if (!VEC_AT(&s->opened, opened, i)->is_bad)
            continue;
        const fsdpck_status one = report_bad(s, i, st == FSDPCK_OK ? err : NULL);
        st = st == FSDPCK_OK ? one : st;
    }
    s->req = NULL;
    s->describe_lost = NULL;
    return st;
}

void st_files_warn_extra_fields(const st_files *s, const logger *log)
{
    for (size_t i = 0; i < s->opened.count; i++) {
        const uint64_t n = st_files_header(s, i)->extra_fields;
        if (n > 0)
            log_warn(log, FSDPCK_FINDING_ST_FIELD, "",
                     "%" PRIu64 " unknown field%s in the header of '%s'", n, text_plural(n),
                     st_files_name(s, i));
    }
}

void st_files_note_unpadded(const st_files *s, const open_request *req)
{
    for (size_t i = 0; i < s->opened.count; i++) {
        const st_header *h = st_files_header(s, i);
        if (h->data_offset_bytes % 8 == 0 || h->entries.count == 0)
            continue;
        format_note(req->found, req->found_ctx, FSDPCK_FINDING_ST_UNPADDED, req->path,
                    req->probe->is_folder ? st_files_name(s, i) : NULL,
                    "data of the file does not begin at a multiple of 8 bytes");
        return;
    }
}

static bool is_stored(const st_files *s, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < s->opened.count; i++)
        if (strtab_find(&st_files_header(s, i)->names, name, nbytes) != STRTAB_NONE)
            return true;
    return false;
}

/* Whether a text of a file's `__metadata__` is the name of a tensor there, and its key that of a tensor in no file. */
static bool is_tie(const st_files *s, const st_header *h, uint32_t key)
{
    const uint32_t id = *VEC_AT(&h->metadata, const uint32_t, key);
    return strtab_find(&h->names, strtab_text(&h->metadata_texts, id),
                       strtab_nbytes(&h->metadata_texts, id)) != STRTAB_NONE &&
           !is_stored(s, strtab_text(&h->metadata_keys, key),
                      strtab_nbytes(&h->metadata_keys, key));
}

void st_files_warn_tied(const st_files *s, const logger *log)
{
    const char *tied = NULL, *stored = NULL;
    uint64_t count = 0;
    char more[40] = "";
    for (size_t i = 0; i < s->opened.count; i++) {
        const st_header *h = st_files_header(s, i);
        for (uint32_t key = 0; key < h->metadata.count; key++) {
            const uint32_t id = *VEC_AT(&h->metadata, const uint32_t, key);
            const char *text = strtab_text(&h->metadata_texts, id);
            const char *name = strtab_text(&h->metadata_keys, key);
            if (!is_tie(s, h, key))
                continue;
            tied = count == 0 ? name : tied;
            stored = count == 0 ? text : stored;
            count++;
        }
    }
    if (count == 0)
        return;
    if (count > 1)
        snprintf(more, sizeof more, ", and %" PRIu64 " more such", count - 1);
    log_warn(log, FSDPCK_FINDING_ST_TIED,
             "to restore the names, give --model FILE, or tie them again after loading",
             "'__metadata__' records '%s' as tied to '%s'%s; only stored names are read", tied,
             stored, more);
}

/* Texts about the files' own shards, which a writer makes itself. */
static bool is_about_shards(const char *key, size_t nbytes)
{
    static const char *const keys[] = {"DCP_VERSION", "DCP_SHARDING_INFO", ST_SHARD_COUNT,
                                       ST_WORLD_SIZE};
    return TEXT_IS_IN(key, nbytes, keys);
}

static fsdpck_status keep_of_file(st_files *s, const st_header *h, fsdpck_error *err)
{
    for (uint32_t key = 0; key < h->metadata.count; key++) {
        const char *name = strtab_text(&h->metadata_keys, key);
        const size_t nbytes = strtab_nbytes(&h->metadata_keys, key);
        const uint32_t text = *VEC_AT(&h->metadata, const uint32_t, key);
        if (!is_about_shards(name, nbytes))
            RETURN_IF(cat_metadata_add(&s->metadata, name, nbytes,
                                       strtab_text(&h->metadata_texts, text),
                                       strtab_nbytes(&h->metadata_texts, text), err));
        if (is_tie(s, h, key))
            RETURN_IF(cat_metadata_add_tie(&s->metadata, name, nbytes, err));
    }
    return FSDPCK_OK;
}

fsdpck_status st_files_keep_metadata(st_files *s, cat_origin *origin, fsdpck_error *err)
{
    for (size_t i = 0; i < s->opened.count; i++)
        RETURN_IF(keep_of_file(s, st_files_header(s, i), err));
    origin->metadata = cat_metadata_count(&s->metadata) > 0 ? &s->metadata : NULL;
    return FSDPCK_OK;
}

void st_files_keep_index(st_files *s, cat_metadata *of_index, catalogue *cat)
{
    if (cat_metadata_count(of_index) == 0)
        return;
    s->index_metadata = *of_index;
    *of_index = (cat_metadata){0};
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++)
        s->index_metadata.nelems += catalogue_tensor_nelems(cat, i);
    cat->origin.index_metadata = &s->index_metadata;
}

void st_files_drop_headers(st_files *s)
{
    for (size_t i = 0; i < s->opened.count; i++) {
        opened *o = VEC_AT(&s->opened, opened, i);
        st_header_release(&o->header);
        o->header = (st_header){0};
    }
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const st_files *s = ctx;
    const cat_chunk *k = catalogue_chunk(s->cat, chunk);
    if (k->place != LOCATION_ROWS)
        return FAIL(err, INTERNAL, NONE, "chunk has no bytes to locate");
    uint64_t sizes[NDIM_MAX];
    *where = (place){
        .file = k->file,
        .rows = true,
        .offset_bytes = k->offset_bytes,
        .record_offset_bytes = k->offset_bytes,
        .record_nbytes = k->nbytes,
    };
    catalogue_chunk_box(s->cat, chunk, NULL, sizes);
    box_row_major_strides(sizes, catalogue_tensor(s->cat, k->tensor)->ndim, where->strides);
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t index, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    st_files *s = ctx;
    return file_set_read_at(&s->files, index, offset_bytes, dst, nbytes, err);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    st_files *s = ctx;
    return file_set_check_unchanged(&s->files, err);
}

void st_files_source(void *self, catalogue *cat, source *src)
{
    st_files *s = self;
    s->cat = cat;
    *src = (source){
        .ctx = s,
        .cat = cat,
        .locate = locate,
        .read_at = read_at,
        .check_unchanged = check_unchanged,
    };
}

fsdpck_status st_files_add_tensor(const st_files *s, size_t index, const st_entry *e,
                                  catalogue *cat, fsdpck_error *err)
{
    size_t nbytes;
    const char *name = st_header_name(st_files_header(s, index), e, &nbytes);
    return st_files_add_named(s, index, e, name, nbytes, cat, err);
}

fsdpck_status st_files_add_named(const st_files *s, size_t index, const st_entry *e,
                                 const char *name, size_t name_nbytes, catalogue *cat,
                                 fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const st_header *h = st_files_header(s, index);
    const uint64_t *shape = st_header_shape(h, e);
    const cat_chunk proto = {
        .file = (uint32_t)index,
        .aux = CAT_NONE,
        .rank = UINT16_MAX,
        .place = LOCATION_ROWS,
        .offset_bytes = h->data_offset_bytes + e->begin_bytes,
        .nbytes = e->end_bytes - e->begin_bytes,
    };
    uint32_t tensor;
    fsdpck_status st =
        catalogue_add_tensor(cat, name, name_nbytes, (dtype)e->dtype, e->ndim, shape, &tensor, err);
    if (st == FSDPCK_OK)
        st = catalogue_add_chunk(cat, tensor, zeros, shape, &proto, err);
    if (st != FSDPCK_OK)
        st_files_error_path(s, index, err);
    return st;
}
