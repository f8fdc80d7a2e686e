#include "formats/safetensors/st_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"
#include "formats/safetensors/st_text.h"

typedef struct ordered {
    const char *name;
    size_t name_nbytes;
    uint32_t tensor;
    uint8_t rank;
} ordered;

bool st_layout_holds(dtype d)
{
    return dtype_get(d)->safetensors != NULL;
}

static bool name_is_utf8(const char *name, size_t nbytes)
{
    for (size_t at = 0; at < nbytes;) {
        uint32_t c;
        const unsigned n = utf8_decode((const uint8_t *)name + at, nbytes - at, &c);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

static fsdpck_status refuse(const target *t, uint32_t tensor, const char *what, fsdpck_error *err)
{
    const fsdpck_status st = error_set(err, FSDPCK_UNSUPPORTED, "", "%s", what);
    error_tensor(err, catalogue_name(&t->cat, catalogue_tensor(&t->cat, tensor)->name));
    return st;
}

fsdpck_status st_layout_check(const target *t, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &t->cat;
    const cat_tensor *ct = catalogue_tensor(cat, tensor);
    const char *name = catalogue_name(cat, ct->name);
    const size_t name_nbytes = catalogue_name_nbytes(cat, ct->name);
    if (!st_layout_holds((dtype)ct->dtype)) {
        const fsdpck_status st = refuse(t, tensor, "safetensors has no such dtype", err);
        error_found(err, "%s", dtype_get((dtype)ct->dtype)->name);
        error_next(err, "leave it out (--exclude), or write another format (--format pt, dcp)");
        return st;
    }
    /* Half bytes are counted by doubling the last dim, so there must be one. */
    if (ct->dtype == DTYPE_FLOAT4_E2M1FN_X2 && ct->ndim == 0)
        return refuse(t, tensor, "safetensors cannot hold a 0-dim tensor of float4", err);
    if (!name_is_utf8(name, name_nbytes))
        return refuse(t, tensor, "safetensors cannot hold a name that is not UTF-8", err);
    if (name_nbytes == strlen("__metadata__") && memcmp(name, "__metadata__", name_nbytes) == 0)
        return refuse(t, tensor, "safetensors cannot hold a tensor named '__metadata__'", err);
    const uint64_t nelems = catalogue_tensor_nelems(cat, tensor);
    if (nelems == 0)
        return FSDPCK_OK;
    uint64_t sizes[NDIM_MAX];
    if (ct->nchunks == 1)
        catalogue_chunk_box(cat, ct->first_chunk, NULL, sizes);
    if (ct->nchunks != 1 || box_nelems(sizes, ct->ndim) != nelems)
        return refuse(t, tensor, "safetensors holds whole tensors, not parts of them", err);
    return FSDPCK_OK;
}

static int by_rank_and_name(const void *a, const void *b)
{
    const ordered *x = a;
    const ordered *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    const size_t shorter = x->name_nbytes < y->name_nbytes ? x->name_nbytes : y->name_nbytes;
    const int diff = memcmp(x->name, y->name, shorter);
    if (diff != 0)
        return diff;
    return x->name_nbytes < y->name_nbytes ? -1 : x->name_nbytes > y->name_nbytes;
}

/* Header, and each chunk's offset from the beginning of the data. */
static fsdpck_status lay_out(target *t, const ordered *list, size_t count, text_buf *header,
                             uint64_t *data_nbytes, fsdpck_error *err)
{
    catalogue *cat = &t->cat;
    st_text w;
    uint64_t at = 0;
    st_text_begin(&w, header);
    for (size_t i = 0; i < count; i++) {
        const cat_tensor *ct = catalogue_tensor(cat, list[i].tensor);
        const uint64_t nbytes = catalogue_tensor_nbytes(cat, list[i].tensor);
        uint64_t end;
        if (!checked_add(at, nbytes, &end) || end > INT64_MAX)
            return refuse(t, list[i].tensor, "tensors are too many for one file", err);
        st_text_put(&w, list[i].name, list[i].name_nbytes, (dtype)ct->dtype, ct->ndim,
                    catalogue_shape(cat, list[i].tensor), at, end);
        for (uint32_t k = 0; k < ct->nchunks; k++) {
            cat_chunk *chunk = catalogue_chunk(cat, ct->first_chunk + k);
            chunk->offset_bytes = at;
            chunk->nbytes = nbytes;
            chunk->place = nbytes > 0 ? PLACE_ROWS : PLACE_EMPTY;
        }
        at = end;
    }
    *data_nbytes = at;
    return st_text_end(&w, err);
}

static fsdpck_status place_file(target *t, const char *name, const ordered *list, size_t count,
                                fsdpck_error *err)
{
    text_buf header = {.limit_bytes = SIZE_MAX / 2};
    uint64_t data_nbytes = 0;
    uint32_t index = 0;
    fsdpck_status st;
    GOTO_IF(lay_out(t, list, count, &header, &data_nbytes, err), out);
    /* From here on the names in the list may have moved. */
    GOTO_IF(catalogue_add_file(&t->cat, name, strlen(name), header.nbytes + data_nbytes, CAT_NONE,
                               &index, err),
            out);
    GOTO_IF(target_add_literal(t, index, 0, header.text, header.nbytes, err), out);
    for (size_t i = 0; i < count; i++) {
        const cat_tensor *ct = catalogue_tensor(&t->cat, list[i].tensor);
        for (uint32_t k = 0; k < ct->nchunks; k++) {
            cat_chunk *chunk = catalogue_chunk(&t->cat, ct->first_chunk + k);
            chunk->file = index;
            chunk->offset_bytes += header.nbytes;
        }
    }
out:
    text_release(&header);
    return st;
}

fsdpck_status st_layout_file(target *t, const char *name, const uint32_t *tensors, size_t count,
                             fsdpck_error *err)
{
    budget *owner = t->cat.owner;
    ordered *list = budget_alloc(owner, count * sizeof *list, err);
    if (list == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        const cat_tensor *ct = catalogue_tensor(&t->cat, tensors[i]);
        list[i] = (ordered){
            .name = catalogue_name(&t->cat, ct->name),
            .name_nbytes = catalogue_name_nbytes(&t->cat, ct->name),
            .tensor = tensors[i],
            .rank = dtype_get((dtype)ct->dtype)->safetensors_rank,
        };
    }
    qsort(list, count, sizeof *list, by_rank_and_name);
    const fsdpck_status st = place_file(t, name, list, count, err);
    budget_free(owner, list, count * sizeof *list);
    return st;
}
