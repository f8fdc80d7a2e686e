#include "formats/safetensors/st_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "base/utf8.h"
#include "formats/safetensors/st_header_writer.h"

/* A tensor, or a part of one, that goes into a file. */
typedef struct ordered {
    const char *name;
    size_t name_nbytes;
    uint64_t first_chunk;
    uint32_t nchunks; /* 1; of a tensor without elements any number */
    uint32_t tensor;
    uint8_t rank; /* of the dtype */
} ordered;

typedef struct st_file {
    const char *name;
    ordered *list;
    size_t count;
    const st_shard *shard; /* NULL: whole tensors */
} st_file;

bool st_layout_holds(dtype d)
{
    return dtype_get(d)->safetensors != NULL;
}

static fsdpck_status refuse_with(const target *t, uint32_t tensor, const char *what,
                                 const char *next, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, NONE, ("%s", what),
                     (tensor, catalogue_name(&t->cat, catalogue_tensor(&t->cat, tensor)->name)),
                     (next, "%s", next));
}

static fsdpck_status refuse(const target *t, uint32_t tensor, const char *what, fsdpck_error *err)
{
    return refuse_with(t, tensor, what,
                       "omit it with --exclude, or write another format (--format pt, dcp)", err);
}

static fsdpck_status refuse_name(const target *t, uint32_t tensor, const char *what,
                                 fsdpck_error *err)
{
    return refuse_with(t, tensor, what,
                       "rename it (--rename), omit it with --exclude, or write a format that "
                       "holds such names (--format pt, dcp)",
                       err);
}

fsdpck_status st_layout_check_tensor(const target *t, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &t->cat;
    const cat_tensor *ct = catalogue_tensor(cat, tensor);
    const char *name = catalogue_name(cat, ct->name);
    const size_t name_nbytes = catalogue_name_nbytes(cat, ct->name);
    if (!st_layout_holds((dtype)ct->dtype)) {
        const fsdpck_status st = refuse(t, tensor, "safetensors does not support this dtype", err);
        error_found(err, "%s", dtype_get((dtype)ct->dtype)->name);
        return st;
    }
    /* The last dim counts packed floats, so there must be one. */
    if (dtype_get((dtype)ct->dtype)->packing > 1 && ct->ndim == 0)
        return refuse(t, tensor, "safetensors cannot hold a 0-dim tensor of float4", err);
    if (!utf8_is_text(name, name_nbytes))
        return refuse_name(t, tensor, "safetensors cannot hold a name that is not UTF-8", err);
    if (name_nbytes == strlen("__metadata__") && memcmp(name, "__metadata__", name_nbytes) == 0)
        return refuse_name(t, tensor, "safetensors cannot hold a tensor named '__metadata__'", err);
    return FSDPCK_OK;
}

fsdpck_status st_layout_check(const target *t, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &t->cat;
    const cat_tensor *ct = catalogue_tensor(cat, tensor);

    RETURN_IF(st_layout_check_tensor(t, tensor, err));
    const uint64_t nelems = catalogue_tensor_nelems(cat, tensor);
    if (nelems == 0)
        return FSDPCK_OK;
    uint64_t sizes[NDIM_MAX];
    if (ct->nchunks == 1)
        catalogue_chunk_box(cat, ct->first_chunk, NULL, sizes);
    if (ct->nchunks != 1 || box_nelems(sizes, ct->ndim) != nelems)
        return refuse(t, tensor, "safetensors can hold only whole tensors", err);
    return FSDPCK_OK;
}

static int by_rank_and_name(const void *a, const void *b)
{
    const ordered *x = a;
    const ordered *y = b;
    ORDER_BY(y->rank, x->rank);
    return text_order(x->name, x->name_nbytes, y->name, y->name_nbytes);
}

/* {"w":{"saved_offsets":[3,0]},...}, in the order of the data. */
static void put_sharding_info(const catalogue *cat, const st_file *f, text_buf *info)
{
    uint64_t offsets[NDIM_MAX];
    json_writer w;
    json_writer_init(&w, info, 0);
    json_begin_object(&w);
    for (size_t i = 0; i < f->count; i++) {
        const ordered *o = &f->list[i];
        json_put_key(&w, o->name, o->name_nbytes);
        json_begin_object(&w);
        catalogue_chunk_box(cat, o->first_chunk, offsets, NULL);
        json_member_u64s(&w, "saved_offsets", offsets, catalogue_tensor(cat, o->tensor)->ndim);
        json_end_object(&w);
    }
    json_end_object(&w);
}

static void put_number(st_header_writer *w, const char *key, uint64_t n)
{
    char digits[24];
    const int count = snprintf(digits, sizeof digits, "%" PRIu64, n);
    st_header_write_metadata(w, key, digits, (size_t)count);
}

static ordered item_of(const target *t, uint32_t tensor)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    return (ordered){
        .name = catalogue_name(&t->cat, ct->name),
        .name_nbytes = catalogue_name_nbytes(&t->cat, ct->name),
        .first_chunk = ct->first_chunk,
        .nchunks = ct->nchunks,
        .tensor = tensor,
        .rank = dtype_get((dtype)ct->dtype)->safetensors_rank,
    };
}

/* Names whose tensor is stored under another name of this file, as recorded by
 * safetensors.torch.save_model. */
static void put_dropped(const target *t, const st_file *f, st_header_writer *w)
{
    const catalogue *cat = &t->cat;
    for (size_t i = 0; i < t->dropped.count; i++) {
        const target_dropped *d = VEC_AT(&t->dropped, const target_dropped, i);
        const ordered kept = item_of(t, d->tensor);
        const char *name = catalogue_name(cat, d->name);
        if (bsearch(&kept, f->list, f->count, sizeof *f->list, by_rank_and_name) != NULL &&
            strcmp(name, "format") != 0)
            st_header_write_metadata(w, name, kept.name, kept.name_nbytes);
    }
}

/* --- `__metadata__` of the source --- */

/* The writer records this tie itself. */
static bool is_dropped(const target *t, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&t->cat.names, name, nbytes);
    for (size_t i = 0; id != STRTAB_NONE && i < t->dropped.count; i++)
        if (VEC_AT(&t->dropped, const target_dropped, i)->name == id)
            return true;
    return false;
}

static bool has_tensor(const catalogue *cat, const char *name, size_t nbytes)
{
    const uint32_t id = strtab_find(&cat->names, name, nbytes);
    for (size_t i = 0; id != STRTAB_NONE && i < catalogue_tensor_count(cat); i++)
        if (catalogue_tensor(cat, i)->name == id)
            return true;
    return false;
}

/* A tie of the source whose names are not those of the output: renamed, not selected, or stored. */
static bool is_stale(const target *t, const cat_metadata *m, uint32_t key)
{
    size_t nbytes, text_nbytes;
    const char *name = cat_metadata_key(m, key, &nbytes);
    const char *text = cat_metadata_text(m, key, &text_nbytes);
    return cat_metadata_is_tie(m, key) &&
           (!has_tensor(&t->cat, text, text_nbytes) || has_tensor(&t->cat, name, nbytes));
}

static void put_source_metadata(const target *t, st_header_writer *w)
{
    const cat_metadata *m = t->cat.origin.metadata;
    for (uint32_t key = 0; m != NULL && key < cat_metadata_count(m); key++) {
        size_t nbytes, text_nbytes;
        const char *name = cat_metadata_key(m, key, &nbytes);
        const char *text = cat_metadata_text(m, key, &text_nbytes);
        if (text != NULL && !text_is(name, nbytes, "format") && !is_dropped(t, name, nbytes) &&
            !is_stale(t, m, key))
            st_header_write_pair(w, name, nbytes, text, text_nbytes);
    }
}

/* "format" is "pt" unless the source has another one. */
static void begin_header(const target *t, st_header_writer *w, text_buf *header)
{
    const cat_metadata *m = t->cat.origin.metadata;
    const uint32_t key =
        m == NULL ? STRTAB_NONE : strtab_find(&m->keys, "format", strlen("format"));
    size_t nbytes = 0;
    const char *text = key == STRTAB_NONE ? NULL : cat_metadata_text(m, key, &nbytes);
    if (text == NULL)
        st_header_write_begin(w, header);
    else
        st_header_write_begin_as(w, header, text, nbytes);
}

static fsdpck_status put_metadata(const target *t, const st_file *f, st_header_writer *w,
                                  fsdpck_error *err)
{
    text_buf info = {.limit_bytes = SIZE_MAX / 2};
    put_dropped(t, f, w);
    put_source_metadata(t, w);
    if (f->shard == NULL)
        return FSDPCK_OK;
    put_sharding_info(&t->cat, f, &info);
    const fsdpck_status st = text_check(&info, err);
    if (st == FSDPCK_OK) {
        st_header_write_metadata(w, "DCP_VERSION", "1.0", strlen("1.0"));
        st_header_write_metadata(w, "DCP_SHARDING_INFO", info.text, info.nbytes);
        put_number(w, ST_SHARD_COUNT, f->shard->file_count);
        put_number(w, ST_WORLD_SIZE, t->world_size);
    }
    text_release(&info);
    return st;
}

/* Header, and each chunk's offset from the beginning of the data. */
static fsdpck_status lay_out(target *t, const st_file *f, text_buf *header, uint64_t *data_nbytes,
                             fsdpck_error *err)
{
    catalogue *cat = &t->cat;
    uint64_t sizes[NDIM_MAX];
    st_header_writer w;
    uint64_t at = 0;
    begin_header(t, &w, header);
    RETURN_IF(put_metadata(t, f, &w, err));
    for (size_t i = 0; i < f->count; i++) {
        const ordered *o = &f->list[i];
        const cat_tensor *ct = catalogue_tensor(cat, o->tensor);
        const uint64_t *shape = catalogue_shape(cat, o->tensor);
        uint64_t end;
        if (f->shard != NULL) {
            catalogue_chunk_box(cat, o->first_chunk, NULL, sizes);
            shape = sizes;
        }
        const uint64_t nbytes =
            box_nelems(shape, ct->ndim) * dtype_get((dtype)ct->dtype)->itemsize_bytes;
        if (!checked_add(at, nbytes, &end) || end > INT64_MAX)
            return refuse(t, o->tensor, "too many tensors for one file", err);
        st_header_write_tensor(&w, o->name, o->name_nbytes, (dtype)ct->dtype, ct->ndim, shape, at,
                               end);
        for (uint32_t k = 0; k < o->nchunks; k++) {
            cat_chunk *chunk = catalogue_chunk(cat, o->first_chunk + k);
            chunk->offset_bytes = at;
            chunk->nbytes = nbytes;
            chunk->place = nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
        }
        at = end;
    }
    *data_nbytes = at;
    return st_header_write_end(&w, err);
}

static fsdpck_status place_file(target *t, const st_file *f, fsdpck_error *err)
{
    text_buf header = {.limit_bytes = SIZE_MAX / 2};
    uint64_t data_nbytes = 0;
    uint32_t index = 0;
    fsdpck_status st;
    GOTO_IF(lay_out(t, f, &header, &data_nbytes, err), out);
    /* From here on the names in the list may have moved. */
    GOTO_IF(catalogue_add_file(&t->cat, f->name, strlen(f->name), header.nbytes + data_nbytes,
                               f->shard != NULL ? f->shard->rank : CAT_NONE, &index, err),
            out);
    GOTO_IF(target_add_constant(t, index, 0, header.text, header.nbytes, err), out);
    for (size_t i = 0; i < f->count; i++) {
        for (uint32_t k = 0; k < f->list[i].nchunks; k++) {
            cat_chunk *chunk = catalogue_chunk(&t->cat, f->list[i].first_chunk + k);
            chunk->file = index;
            chunk->offset_bytes += header.nbytes;
        }
    }
out:
    text_release(&header);
    return st;
}

static fsdpck_status layout_file(target *t, const char *name, const uint32_t *tensors, size_t count,
                                 bool in_order, fsdpck_error *err)
{
    budget *owner = t->cat.owner;
    ordered *list = budget_alloc(owner, count * sizeof *list, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++)
        list[i] = item_of(t, tensors[i]);
    if (!in_order)
        qsort(list, count, sizeof *list, by_rank_and_name);
    const fsdpck_status st =
        place_file(t, &(st_file){.name = name, .list = list, .count = count}, err);
    budget_free(owner, list, count * sizeof *list);
    return st;
}

fsdpck_status st_layout_file(target *t, const char *name, const uint32_t *tensors, size_t count,
                             fsdpck_error *err)
{
    return layout_file(t, name, tensors, count, false, err);
}

fsdpck_status st_layout_file_in_order(target *t, const char *name, const uint32_t *tensors,
                                      size_t count, fsdpck_error *err)
{
    return layout_file(t, name, tensors, count, true, err);
}

fsdpck_status st_layout_shard(target *t, const st_shard *shard, const uint32_t *chunks,
                              size_t count, fsdpck_error *err)
{
    budget *owner = t->cat.owner;
    const st_file f = {.name = shard->name,
                       .list = budget_alloc(owner, count * sizeof(ordered), err),
                       .count = count,
                       .shard = shard};
    if (f.list == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        f.list[i] = item_of(t, catalogue_chunk(&t->cat, chunks[i])->tensor);
        f.list[i].first_chunk = chunks[i];
        f.list[i].nchunks = 1;
    }
    qsort(f.list, count, sizeof(ordered), by_rank_and_name);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 1; i < count && st == FSDPCK_OK; i++)
        if (f.list[i].tensor == f.list[i - 1].tensor)
            st = refuse(t, f.list[i].tensor, "rank has two shards of a tensor", err);
    if (st == FSDPCK_OK)
        st = place_file(t, &f, err);
    budget_free(owner, f.list, count * sizeof(ordered));
    return st;
}
