#include <stdlib.h>
#include <string.h>

#include "transform.h"

void fsdpck_get_info(const fsdpck_checkpoint *c, fsdpck_info *info)
{
    const cat_origin *o = &c->cat.origin;
    memset(info, 0, sizeof *info);
    info->path = c->path;
    info->entered = c->entered;
    info->format = c->format->name;
    info->trainer = o->trainer;
    info->torch_version = o->torch_version;
    info->note = o->note;
    info->model_key = c->parts.model_key;
    info->step = o->step;
    info->world_size = o->world_size;
    info->mesh = c->mesh == NULL ? "" : c->mesh;
    info->cut_otherwise = c->cut_otherwise;
    info->objects = catalogue_object_count(&c->cat);
    info->files = catalogue_file_count(&c->cat);
    info->chunks = catalogue_chunk_count(&c->cat);
    info->tensors = c->parts.tensor_count;
    for (size_t i = 0; i < c->parts.tensor_count; i++) {
        const unsigned part = c->parts.tensor_part[i];
        const uint64_t nbytes = catalogue_tensor_nbytes(&c->cat, i);
        info->nelems += catalogue_tensor_nelems(&c->cat, i);
        info->nbytes += nbytes;
        info->part_tensors[part]++;
        info->part_nbytes[part] += nbytes;
    }
    for (size_t i = 0; i < c->parts.object_count; i++)
        info->part_objects[c->parts.object_part[i]]++;
}

void fsdpck_get_tensor(const fsdpck_checkpoint *c, uint64_t index, fsdpck_tensor *t)
{
    const cat_tensor *from = catalogue_tensor(&c->cat, index);
    const dtype_info *d = dtype_get((dtype)from->dtype);
    memset(t, 0, sizeof *t);
    t->name = catalogue_name(&c->cat, from->name);
    t->name_nbytes = catalogue_name_nbytes(&c->cat, from->name);
    t->dtype = d->name;
    t->itemsize_nbytes = d->itemsize_bytes;
    t->ndim = from->ndim;
    t->shape = catalogue_shape(&c->cat, index);
    t->nelems = catalogue_tensor_nelems(&c->cat, index);
    t->nbytes = catalogue_tensor_nbytes(&c->cat, index);
    t->first_chunk = from->first_chunk;
    t->nchunks = from->nchunks;
    t->part = index < c->parts.tensor_count ? (fsdpck_part)c->parts.tensor_part[index]
                                            : FSDPCK_PART_OTHER;
    t->alias = from->alias == CAT_NONE ? -1 : (int64_t)from->alias;
}

void fsdpck_get_chunk(const fsdpck_checkpoint *c, uint64_t index, fsdpck_chunk *out)
{
    const cat_chunk *k = catalogue_chunk(&c->cat, index);
    out->rank = k->rank == UINT16_MAX ? -1 : k->rank;
    out->file = NULL;
    if (k->place != PLACE_EMPTY)
        out->file = catalogue_name(&c->cat, catalogue_file(&c->cat, k->file)->path);
    out->offset_nbytes = k->offset_bytes;
    out->nbytes = k->nbytes;
    catalogue_chunk_box(&c->cat, index, out->offsets, out->sizes);
}

void fsdpck_get_object(const fsdpck_checkpoint *c, uint64_t index, fsdpck_object *o)
{
    const cat_object *from = catalogue_object(&c->cat, index);
    memset(o, 0, sizeof *o);
    o->name = catalogue_name(&c->cat, from->name);
    o->name_nbytes = catalogue_name_nbytes(&c->cat, from->name);
    o->part = (fsdpck_part)c->parts.object_part[index];
    o->nbytes = from->nbytes;
}

fsdpck_status fsdpck_print_object(fsdpck_checkpoint *c, uint64_t index, size_t limit_nbytes,
                                  char **text, fsdpck_error *err)
{
    *text = NULL;
    if (!catalogue_object(&c->cat, index)->loaded)
        RETURN_IF(c->format->load_object(c->self, &c->cat, (uint32_t)index, err));
    text_buf out = {0};
    value_print(&c->cat.pool, catalogue_object(&c->cat, index)->content, limit_nbytes, &out);
    const fsdpck_status st = text_check(&out, err);
    if (st != FSDPCK_OK) {
        text_release(&out);
        return st;
    }
    *text = out.text;
    return FSDPCK_OK;
}

/* ---- the layout that chunks imply ---- */

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Distinct offsets along one dim; `offsets` holds ndim for each of n chunks, `scratch` n values. */
static uint64_t distinct_offsets(const uint64_t *offsets, size_t n, unsigned ndim, unsigned dim,
                                 uint64_t *scratch)
{
    for (size_t i = 0; i < n; i++)
        scratch[i] = offsets[i * ndim + dim];
    qsort(scratch, n, sizeof *scratch, compare_u64);
    uint64_t count = n > 0;
    for (size_t i = 1; i < n; i++)
        count += scratch[i] != scratch[i - 1];
    return count;
}

static void describe_grid(const uint64_t *counts, unsigned ndim, uint64_t n, text_buf *out)
{
    uint64_t product = 1;
    unsigned cut = 0;
    for (unsigned d = 0; d < ndim; d++) {
        if (counts[d] > 1) {
            product *= counts[d];
            text_printf(out, "%sShard(%u)", cut++ == 0 ? "" : ", ", d);
        }
    }
    if (cut == 0) {
        text_printf(out, "whole, %llu copies", (unsigned long long)n);
        return;
    }
    text_puts(out, " on ");
    bool first = true;
    for (unsigned d = 0; d < ndim; d++) {
        if (counts[d] > 1) {
            text_printf(out, "%s%llu", first ? "" : "x", (unsigned long long)counts[d]);
            first = false;
        }
    }
    if (product < n && n % product == 0)
        text_printf(out, ", %llu copies", (unsigned long long)(n / product));
    else if (product != n)
        text_printf(out, ", irregular: %llu chunks", (unsigned long long)n);
}

static void describe(const fsdpck_checkpoint *c, uint64_t tensor, text_buf *out)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, tensor);
    const size_t n = t->nchunks;
    const unsigned ndim = t->ndim;
    if (n == 0) {
        text_puts(out, "no chunks");
        return;
    }
    if (n == 1) {
        uint64_t sizes[NDIM_MAX];
        catalogue_chunk_box(&c->cat, t->first_chunk, NULL, sizes);
        const bool whole = box_nelems(sizes, ndim) == catalogue_tensor_nelems(&c->cat, tensor);
        text_puts(out, whole ? "whole" : "partial: 1 chunk");
        return;
    }
    uint64_t *offsets = malloc(n * (ndim + 1) * sizeof *offsets);
    if (offsets == NULL)
        return;
    uint64_t counts[NDIM_MAX];
    for (size_t i = 0; i < n; i++)
        catalogue_chunk_box(&c->cat, t->first_chunk + i, offsets + i * ndim, NULL);
    for (unsigned d = 0; d < ndim; d++)
        counts[d] = distinct_offsets(offsets, n, ndim, d, offsets + n * ndim);
    describe_grid(counts, ndim, n, out);
    free(offsets);
}

void fsdpck_describe_chunks(const fsdpck_checkpoint *c, uint64_t tensor, char *text,
                            size_t capacity_nbytes)
{
    text_buf out = {0};
    describe(c, tensor, &out);
    if (capacity_nbytes > 0) {
        const size_t n = out.nbytes < capacity_nbytes - 1 ? out.nbytes : capacity_nbytes - 1;
        if (n > 0)
            memcpy(text, out.text, n);
        text[n] = '\0';
    }
    text_release(&out);
}
