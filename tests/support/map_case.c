#include "tests/support/map_case.h"

#include <string.h>

#include "tests/support/must.h"

#define ITEM_NBYTES 4u

static fsdpck_status case_locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(&((map_case *)ctx)->base, chunk);
    (void)err;
    *where = (place){.file = k->file, .rows = true, .offset_bytes = k->offset_bytes};
    return FSDPCK_OK;
}

void map_case_init(map_case *c)
{
    memset(c, 0, sizeof *c);
    budget_init(&c->memory, (uint64_t)64 << 20, "metadata", NULL);
    catalogue_init(&c->base, &c->memory);
    catalogue_init(&c->seen, &c->memory);
    must(catalogue_add_file(&c->base, "f", 1, UINT64_MAX / 2, CAT_NONE, &c->file, NULL) ==
             FSDPCK_OK,
         "a file");
    c->src = (source){.ctx = c, .cat = &c->base, .locate = case_locate};
}

bool map_case_add(map_case *c, const char *name, unsigned ndim, const uint64_t *shape,
                  uint64_t ranks)
{
    uint64_t offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    uint32_t tensor;
    if (c->count == MAP_CASE_TENSORS_MAX ||
        catalogue_add_tensor(&c->base, name, strlen(name), DTYPE_INT32, ndim, shape, &tensor,
                             NULL) != FSDPCK_OK)
        return false;
    const uint64_t rows = ndim == 0 ? 1 : shape[0];
    const uint64_t each = ranks == 0 ? rows : (rows + ranks - 1) / ranks;
    if (ndim > 0)
        memcpy(sizes, shape, ndim * sizeof *sizes);
    for (uint64_t begin = 0; begin < rows; begin += each) {
        if (ndim > 0) {
            offsets[0] = begin;
            sizes[0] = begin + each < rows ? each : rows - begin;
        }
        const uint64_t nelems = box_nelems(sizes, ndim);
        const cat_chunk k = {.file = c->file,
                             .rank = UINT16_MAX,
                             .place = LOCATION_ROWS,
                             .offset_bytes = c->elements * ITEM_NBYTES,
                             .nbytes = nelems * ITEM_NBYTES};
        if (catalogue_add_chunk(&c->base, tensor, offsets, sizes, &k, NULL) != FSDPCK_OK)
            return false;
        c->elements += nelems;
    }
    c->inputs[c->count++] = (map_input){.tensor = tensor};
    return true;
}

fsdpck_status map_case_apply(map_case *c, const char *text, size_t nbytes, const char *config,
                             size_t config_nbytes, fsdpck_error *err)
{
    RETURN_IF(catalogue_seal(&c->base, err));
    for (size_t i = 0; i < c->count; i++) {
        const uint32_t name = catalogue_tensor(&c->base, i)->name;
        c->inputs[i].name = catalogue_name(&c->base, name);
        c->inputs[i].nbytes = catalogue_name_nbytes(&c->base, name);
    }
    RETURN_IF(map_read(text, nbytes, &c->memory, &c->map, err));
    if (c->set != NULL)
        RETURN_IF(map_set_variable(c->map, c->set, err));
    if (config != NULL)
        RETURN_IF(map_read_config(c->map, config, config_nbytes, err));
    return map_adapter_new(c->map, &c->base, &c->src, c->inputs, c->count, &c->seen, &c->adapter,
                           err);
}

static void gather_chunk(const map_case *c, uint32_t tensor, uint64_t chunk, uint32_t *numbers)
{
    const cat_tensor *t = catalogue_tensor(&c->seen, tensor);
    const source *src = map_adapter_source(c->adapter);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], whole[NDIM_MAX], at[NDIM_MAX] = {0};
    place where;
    fsdpck_error err;
    fsdpck_error_init(&err);
    const fsdpck_status st = src->locate(src->ctx, chunk, &where, &err);
    must_be_ok(st, &err);
    catalogue_chunk_box(&c->seen, chunk, offsets, sizes);
    if (where.rows)
        box_row_major_strides(sizes, t->ndim, where.strides);
    box_row_major_strides(catalogue_shape(&c->seen, tensor), t->ndim, whole);
    for (uint64_t left = box_nelems(sizes, t->ndim); left > 0; left--) {
        uint64_t from = where.offset_bytes / ITEM_NBYTES, to = 0;
        for (unsigned d = 0; d < t->ndim; d++) {
            from += at[d] * where.strides[d];
            to += (offsets[d] + at[d]) * whole[d];
        }
        must(from < c->elements, "an element outside of the checkpoint");
        must(numbers[to] == UINT32_MAX, "an element is filled twice");
        numbers[to] = (uint32_t)from;
        for (unsigned d = t->ndim; d-- > 0 && ++at[d] == sizes[d];)
            at[d] = 0;
    }
}

uint64_t map_case_gather(const map_case *c, uint32_t tensor, uint32_t *numbers, uint64_t capacity)
{
    const cat_tensor *t = catalogue_tensor(&c->seen, tensor);
    const uint64_t count = catalogue_tensor_nelems(&c->seen, tensor);
    must(count <= capacity, "more elements than room");
    memset(numbers, 0xff, count * sizeof *numbers);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        gather_chunk(c, tensor, k, numbers);
    for (uint64_t i = 0; i < count; i++)
        must(numbers[i] != UINT32_MAX, "an element is not filled");
    return count;
}

void map_case_release(map_case *c)
{
    map_adapter_free(c->adapter);
    map_free(c->map);
    catalogue_release(&c->seen);
    catalogue_release(&c->base);
    must(c->memory.used_bytes == 0, "memory is not given back");
}
