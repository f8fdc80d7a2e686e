#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "formats/common/pt_flatten.h"
#include "formats/common/zip_stream.h"
#include "formats/pt/pt.h"
#include "formats/pt/pt_check_records.h"

typedef struct pt_file {
    file f;
    torch_archive archive;
    vec shared; /* uint32_t: a view of each CAT_TENSOR_STORAGE tensor; those come last */
} pt_file;

static bool named_so(const char *name)
{
    static const char *const suffixes[] = {".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar"};
    const size_t n = name == NULL ? 0 : strlen(name);

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        const size_t m = strlen(suffixes[i]);
        if (n > m && strcmp(name + n - m, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* Also accepts a file with such a name that no format recognizes, so that the error names its kind.
 */
static bool belongs_to_dcp(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && strcmp(dot, ".distcp") == 0;
}

static bool probe(const probe_input *in, const char **near_miss)
{
    /* Blobs of a DCP folder are such zips, but not one whole: that reader says where to look. */
    if (in->is_folder || belongs_to_dcp(in->name))
        return false;
    if (in->head_nbytes >= 4 && load_le32(in->head) == 0x04034b50u)
        return true;
    if (torch_is_legacy(in->head, in->head_nbytes))
        return true;
    if (in->head_nbytes >= 262 && memcmp(in->head + 257, "ustar", 5) == 0)
        return true;
    const char *other = torch_name_container(in->head, in->head_nbytes);
    if (other != NULL && near_miss != NULL)
        *near_miss = other;
    return named_so(in->name);
}

static fsdpck_status read_file(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    return file_read_at(ctx, offset_bytes, dst, nbytes, err);
}

/* --- the catalogue --- */

static void describe_origin(const torch_archive *a, catalogue *cat)
{
    static const char *const step_keys[] = {"global_step", "step", "iteration"};
    cat_origin *o = &cat->origin;
    value dict, v;

    snprintf(o->format, sizeof(o->format), "pt");
    o->types_keys = true;
    snprintf(o->torch_version, sizeof(o->torch_version), "%s", torch_archive_torch_version(a));
    if (!value_as_dict(&cat->pool, cat->root, &dict))
        return;
    if (value_dict_find(&cat->pool, dict, "pytorch-lightning_version", &v))
        snprintf(o->trainer, sizeof(o->trainer), "lightning");
    for (size_t i = 0; i < sizeof(step_keys) / sizeof(step_keys[0]) && o->step < 0; i++)
        if (value_dict_find(&cat->pool, dict, step_keys[i], &v) && value_kind_of(v) == VALUE_INT)
            o->step_is_recorded = value_as_i64(&cat->pool, v, &o->step);
}

/* A name that no flat key has. */
static void made_up_name(const strtab *taken, const char *kind, uint64_t *number, char *name,
                         size_t capacity)
{
    do
        snprintf(name, capacity, "(%s %" PRIu64 ")", kind, (*number)++);
    while (strtab_find(taken, name, strlen(name)) != STRTAB_NONE);
}

static fsdpck_status add_tensor(const torch_archive *a, catalogue *cat, uint32_t index,
                                const char *name, size_t name_nbytes, const pt_name *named,
                                fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, index);
    cat_chunk chunk = {.rank = UINT16_MAX, .place = LOCATION_STRIDED, .aux = index};
    static const uint64_t none[1];
    const uint64_t *sizes = t->ndim > 0 ? torch_tensor_sizes(a, t) : none;
    uint32_t tensor;

    if (t->meta)
        return FAIL_WITH(err, UNSUPPORTED, PT_TENSOR_KIND,
                         ("tensor on the meta device has no data"), (tensor, name));
    RETURN_IF(catalogue_add_tensor(cat, name, name_nbytes, t->dtype, t->ndim, sizes, &tensor, err));
    cat_tensor *ct = catalogue_tensor(cat, tensor);
    ct->path = named->path;
    ct->python = t->python;
    if (t->requires_grad)
        ct->flags |= CAT_TENSOR_REQUIRES_GRAD;
    if (named->inner)
        ct->flags |= CAT_TENSOR_IN_OBJECT | (value_is_none(named->path) ? 0 : CAT_TENSOR_NAMED);
    chunk.nbytes = catalogue_tensor_nbytes(cat, tensor);
    const torch_storage *s = VEC_AT(&a->storages, const torch_storage, t->storage);
    const bool known =
        s->entry == UINT32_MAX || VEC_AT(&a->zip.entries, const zip_entry, s->entry)->checked;
    if (known && !s->deflated) {
        place where;
        RETURN_IF(torch_tensor_locate(a, t, &where, err));
        chunk.offset_bytes = where.offset_bytes;
        if (where.rows && !where.swap && !where.conj && !where.neg)
            chunk.place = LOCATION_ROWS;
    }
    return catalogue_add_chunk(cat, tensor, zeros, sizes, &chunk, err);
}

static fsdpck_status add_tensors(const torch_archive *a, const pt_flat *f, catalogue *cat,
                                 fsdpck_error *err)
{
    static const pt_name nowhere = {.inner = true};
    uint64_t made_up = 0;
    char name[64];

    for (size_t i = 0; i < a->tensors.count; i++) {
        const pt_name *n = VEC_AT(&f->names, const pt_name, i);
        if (n->flat != STRTAB_NONE) {
            RETURN_IF(add_tensor(a, cat, (uint32_t)i, strtab_text(&f->flat, n->flat),
                                 strtab_nbytes(&f->flat, n->flat), n, err));
            continue;
        }
        made_up_name(&f->flat, "tensor of an object", &made_up, name, sizeof(name));
        RETURN_IF(add_tensor(a, cat, (uint32_t)i, name, strlen(name), &nowhere, err));
    }
    return FSDPCK_OK;
}

/* --- storages that several tensors view --- */

typedef struct viewed {
    uint32_t users;
    uint32_t first; /* of its views */
    uint8_t dtype;  /* of all its views, DTYPE_NONE if they differ */
} viewed;

static void count_views(const torch_archive *a, viewed *storages)
{
    for (size_t i = 0; i < a->tensors.count; i++) {
        const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, i);
        viewed *v = &storages[t->storage];
        if (v->users++ == 0) {
            v->first = (uint32_t)i;
            v->dtype = t->dtype;
        } else if (v->dtype != t->dtype) {
            v->dtype = DTYPE_NONE;
        }
    }
}

static bool is_shared(const viewed *v, const torch_storage *s)
{
    const unsigned itemsize = dtype_get((dtype)v->dtype)->itemsize_bytes;
    return v->users > 1 && v->dtype != DTYPE_NONE && s->nbytes > 0 && s->nbytes % itemsize == 0;
}

static fsdpck_status add_storage(pt_file *p, catalogue *cat, uint32_t storage, const viewed *v,
                                 uint32_t *tensor, fsdpck_error *err)
{
    static const uint64_t origin[1];
    const torch_storage *s = VEC_AT(&p->archive.storages, const torch_storage, storage);
    const dtype d = (dtype)v->dtype;
    const uint64_t nelems = s->nbytes / dtype_get(d)->itemsize_bytes;
    const cat_chunk chunk = {
        .rank = UINT16_MAX, .place = LOCATION_STRIDED, .aux = storage, .nbytes = s->nbytes};
    char name[64];

    uint64_t number = storage;
    made_up_name(&cat->names, "storage", &number, name, sizeof(name));
    RETURN_IF(catalogue_add_tensor(cat, name, strlen(name), d, 1, &nelems, tensor, err));
    catalogue_tensor(cat, *tensor)->flags |= CAT_TENSOR_STORAGE;
    RETURN_IF(vec_add(&p->shared, &(uint32_t){v->first}, err));
    return catalogue_add_chunk(cat, *tensor, origin, &nelems, &chunk, err);
}

/* A storage that several tensors view becomes a separate tensor, after all others; they refer to it
 * as their alias. A writer can thus keep the sharing. */
static fsdpck_status add_storages(pt_file *p, catalogue *cat, fsdpck_error *err)
{
    const torch_archive *a = &p->archive;
    const size_t count = a->storages.count;
    viewed *storages = budget_alloc(cat->owner, count * sizeof(*storages), err);
    uint32_t *made = budget_alloc(cat->owner, count * sizeof(*made), err);
    fsdpck_status st = storages == NULL || made == NULL ? FSDPCK_LIMIT : FSDPCK_OK;

    if (st == FSDPCK_OK)
        count_views(a, storages);
    for (uint32_t i = 0; st == FSDPCK_OK && i < count; i++) {
        made[i] = CAT_NONE;
        if (is_shared(&storages[i], VEC_AT(&a->storages, const torch_storage, i)))
            st = add_storage(p, cat, i, &storages[i], &made[i], err);
    }
    for (size_t i = 0; st == FSDPCK_OK && i < a->tensors.count; i++)
        catalogue_tensor(cat, i)->alias = made[VEC_AT(&a->tensors, const torch_tensor, i)->storage];
    if (storages != NULL)
        budget_free(cat->owner, storages, count * sizeof(*storages));
    if (made != NULL)
        budget_free(cat->owner, made, count * sizeof(*made));
    return st;
}

/* Storages that are larger than their used part. */
static fsdpck_status note_waste(const torch_archive *a, const open_request *req, fsdpck_error *err)
{
    const uint64_t nbytes = a->storages.count * sizeof(uint64_t);
    uint64_t wasted = 0;
    if (req->found == NULL || nbytes == 0)
        return FSDPCK_OK;
    uint64_t *used = budget_alloc(req->metadata, nbytes, err);
    if (used == NULL)
        return FSDPCK_LIMIT;
    memset(used, 0, nbytes);
    for (size_t i = 0; i < a->tensors.count; i++) {
        const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, i);
        if (!t->meta)
            used[t->storage] += box_nelems(t->ndim > 0 ? torch_tensor_sizes(a, t) : NULL, t->ndim) *
                                dtype_get((dtype)t->dtype)->itemsize_bytes;
    }
    for (size_t i = 0; i < a->storages.count; i++) {
        const uint64_t whole = VEC_AT(&a->storages, const torch_storage, i)->nbytes;
        wasted += used[i] > 0 && used[i] < whole ? whole - used[i] : 0;
    }
    budget_free(req->metadata, used, nbytes);
    if (wasted > 0)
        format_note(req->found, req->found_ctx, FSDPCK_FINDING_PT_WASTE, req->path, NULL,
                    "storages are larger than their tensors");
    return FSDPCK_OK;
}

static void report(const torch_archive *a, const open_request *req)
{
    const logger *log = &req->log;
    if (a->zip.any_deflated)
        format_note(
            req->found, req->found_ctx, FSDPCK_FINDING_ZIP_DEFLATED, req->path, NULL,
            "records are deflated: torch.load(mmap=True) uses the compressed bytes as data");
    if (a->zip.any_deflated)
        log_write(log, LOG_NOTE,
                  "zip has deflated records, which torch.load(mmap=True) cannot read");
    if (!a->is_legacy && a->zip.no_crc)
        log_write(log, LOG_NOTE, "zip has no checksums");
    if (a->duplicate_keys > 0)
        log_warn(log, FSDPCK_FINDING_PKL_DUPKEY, "",
                 "dict keys set twice: %" PRIu64 "; the last value of each is used",
                 a->duplicate_keys);
}

static fsdpck_status fill(pt_file *p, catalogue *cat, fsdpck_error *err)
{
    pt_flat f;

    cat->root = p->archive.root;
    pt_flat_init(&f, cat, &p->archive);
    f.keep_empty = true;
    fsdpck_status st = pt_flatten(&f, err);
    if (st == FSDPCK_OK)
        st = pt_flatten_inner(&f, err);
    if (st == FSDPCK_OK)
        st = add_tensors(&p->archive, &f, cat, err);
    pt_flat_release(&f);
    if (st == FSDPCK_OK)
        st = add_storages(p, cat, err);
    if (st == FSDPCK_OK)
        st = catalogue_seal(cat, err);
    return st;
}

static void close_file(void *self)
{
    pt_file *p = self;

    if (p == NULL)
        return;
    vec_release(&p->shared);
    torch_archive_release(&p->archive);
    file_abandon(&p->f);
    free(p);
}

static fsdpck_status open_file(const open_request *req, catalogue *cat, void **self,
                               fsdpck_error *err)
{
    const char *name = text_file_name(req->path);
    pt_file *p = calloc(1, sizeof(*p));
    uint32_t file_index;

    if (p == NULL)
        return error_set_nomem(err, sizeof(*p));
    p->f = FILE_CLOSED;
    p->shared = VEC_OF(uint32_t, req->metadata);
    fsdpck_status st =
        file_open_read(&p->f, NULL, req->path, req->no_follow ? FILE_NO_FOLLOW : 0, err);
    const zip_input in = {
        .read = read_file, .ctx = &p->f, .nbytes = st == FSDPCK_OK ? p->f.nbytes : 0};
    if (st == FSDPCK_OK)
        st = catalogue_add_file(cat, name, strlen(name), p->f.nbytes, CAT_NONE, &file_index, err);
    if (st == FSDPCK_OK)
        catalogue_file(cat, file_index)->identity = file_identify(&p->f);
    if (st == FSDPCK_OK)
        st =
            torch_archive_open(&in, req->metadata, &cat->pool, req->opaque_calls, &p->archive, err);
    if (st == FSDPCK_OK)
        st = fill(p, cat, err);
    if (st == FSDPCK_OK)
        st = note_waste(&p->archive, req, err);
    if (st != FSDPCK_OK) {
        error_path(err, req->path);
        close_file(p);
        return st;
    }
    describe_origin(&p->archive, cat);
    report(&p->archive, req);
    *self = p;
    return FSDPCK_OK;
}

/* --- the source --- */

/* Tensors have one chunk each, in the archive's order; the shared storages follow, each represented
 * by one of its views. NULL if there is no such chunk. */
static const torch_tensor *chunk_tensor(const pt_file *p, uint64_t chunk)
{
    const size_t count = p->archive.tensors.count;

    if (chunk >= count) {
        if (chunk - count >= p->shared.count)
            return NULL;
        chunk = *VEC_AT(&p->shared, const uint32_t, chunk - count);
    }
    return VEC_AT(&p->archive.tensors, const torch_tensor, chunk);
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const pt_file *p = ctx;
    const torch_tensor *t = chunk_tensor(p, chunk);

    if (t == NULL)
        return FAIL(err, INTERNAL, NONE, "no such chunk");
    RETURN_IF(torch_tensor_locate(&p->archive, t, where, err));
    if (chunk >= p->archive.tensors.count) {
        where->offset_bytes = where->record_offset_bytes;
        where->rows = true;
        where->strides[0] = 1; /* a storage has one dim, whatever the shape of its view */
        where->conj = false;
        where->neg = false;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t index, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const pt_file *p = ctx;

    (void)index;
    return file_read_at(&p->f, offset_bytes, dst, nbytes, err);
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err)
{
    pt_file *p = ctx;
    const torch_archive *a = &p->archive;

    *s = NULL;
    const torch_tensor *t = chunk_tensor(p, chunk);
    if (t == NULL)
        return FAIL(err, INTERNAL, NONE, "no such chunk");
    const torch_storage *storage = VEC_AT(&a->storages, const torch_storage, t->storage);
    if (!storage->deflated)
        return FAIL(err, INTERNAL, NONE, "record is not compressed");
    return zip_stream_open(&a->zip.in, VEC_AT(&a->zip.entries, const zip_entry, storage->entry),
                           storage->has_crc, s, err);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const pt_file *p = ctx;
    return file_check_unchanged(&p->f, err);
}

static void fill_source(void *self, catalogue *cat, source *src)
{
    *src = (source){.ctx = self,
                    .cat = cat,
                    .locate = locate,
                    .read_at = read_at,
                    .stream_open = stream_open,
                    .stream_read = zip_stream_read,
                    .stream_finish = zip_stream_finish,
                    .stream_close = zip_stream_close,
                    .check_unchanged = check_unchanged};
}

static fsdpck_status check_records(void *self, const record_check_request *request,
                                   record_check_result *result, fsdpck_error *err)
{
    const pt_file *p = self;

    if (!request->sums || p->archive.is_legacy)
        return FSDPCK_OK;
    return pt_check_records(&p->archive.zip, p->f.path, request, result, err);
}

const format_reader pt_reader = {
    .name = "pt",
    .description = "one torch.save file (.pt, .pth, .bin, .ckpt)",
    .probe = probe,
    .open = open_file,
    .source = fill_source,
    .check_records = check_records,
    .close = close_file,
    .id = FSDPCK_FORMAT_PT,
    .writer = &pt_writer,
};
