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
        catalogue_add_tensor(&c->base, name, strlen(name), DTYPE_FLOAT32, ndim, shape, &tensor,
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

static fsdpck_status read_map(map_case *c, tensor_map **m, fsdpck_error *err)
{
    RETURN_IF(map_read(c->text, c->text_nbytes, &c->memory, m, err));
    if (c->set != NULL)
        RETURN_IF(map_set_variable(*m, c->set, err));
    return c->config == NULL ? FSDPCK_OK : map_read_config(*m, c->config, c->config_nbytes, err);
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
    c->text = text;
    c->text_nbytes = nbytes;
    c->config = config;
    c->config_nbytes = config_nbytes;
    RETURN_IF(read_map(c, &c->map, err));
    RETURN_IF(map_adapter_new(c->map, &c->base, &c->src, c->inputs, c->count, &c->seen, &c->adapter,
                              err));
    return map_check_head_tensors(c->map, &c->seen, &c->base, c->inputs, c->count, err);
}

static void gather_chunk(const map_case *c, const catalogue *seen, const source *src,
                         uint32_t tensor, uint64_t chunk, uint32_t *numbers)
{
    const cat_tensor *t = catalogue_tensor(seen, tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], whole[NDIM_MAX], at[NDIM_MAX] = {0};
    place where;
    fsdpck_error err;
    fsdpck_error_init(&err);
    const fsdpck_status st = src->locate(src->ctx, chunk, &where, &err);
    must_be_ok(st, &err);
    catalogue_chunk_box(seen, chunk, offsets, sizes);
    if (where.rows)
        box_row_major_strides(sizes, t->ndim, where.strides);
    box_row_major_strides(catalogue_shape(seen, tensor), t->ndim, whole);
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

static uint64_t gather_tensor(const map_case *c, const catalogue *seen, const source *src,
                              uint32_t tensor, uint32_t *numbers, uint64_t capacity)
{
    const cat_tensor *t = catalogue_tensor(seen, tensor);
    const uint64_t count = catalogue_tensor_nelems(seen, tensor);
    must(count <= capacity, "more elements than room");
    memset(numbers, 0xff, count * sizeof *numbers);
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
        gather_chunk(c, seen, src, tensor, k, numbers);
    for (uint64_t i = 0; i < count; i++)
        must(numbers[i] != UINT32_MAX, "an element is not filled");
    return count;
}

uint64_t map_case_gather(const map_case *c, uint32_t tensor, uint32_t *numbers, uint64_t capacity)
{
    return gather_tensor(c, &c->seen, map_adapter_source(c->adapter), tensor, numbers, capacity);
}

fsdpck_status map_step_apply(map_step *s, map_case *c, const map_step *to, bool import,
                             fsdpck_error *err)
{
    static map_input inputs[16 * MAP_CASE_TENSORS_MAX];
    const map_adapter *before = to != NULL ? to->adapter : c->adapter;
    const catalogue *from = to != NULL ? &to->seen : before != NULL ? &c->seen : &c->base;
    const size_t count = catalogue_tensor_count(from);
    catalogue_init(&s->seen, &c->memory);
    s->begun = true;
    if (count > sizeof inputs / sizeof *inputs)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many tensors for this test");
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t name = catalogue_tensor(from, i)->name;
        inputs[i] = (map_input){.tensor = i,
                                .name = catalogue_name(from, name),
                                .nbytes = catalogue_name_nbytes(from, name)};
    }
    RETURN_IF(read_map(c, &s->map, err));
    if (import) {
        RETURN_IF(read_map(c, &s->forward, err));
        RETURN_IF(map_invert(s->map, s->forward, err));
    }
    return map_adapter_new(s->map, from, before != NULL ? map_adapter_source(before) : &c->src,
                           inputs, count, &s->seen, &s->adapter, err);
}

uint64_t map_step_gather(const map_step *s, const map_case *c, uint32_t tensor, uint32_t *numbers,
                         uint64_t capacity)
{
    return gather_tensor(c, &s->seen, map_adapter_source(s->adapter), tensor, numbers, capacity);
}

void map_step_release(map_step *s)
{
    map_adapter_free(s->adapter);
    map_free(s->map);
    map_free(s->forward);
    if (s->begun)
        catalogue_release(&s->seen);
    *s = (map_step){0};
}

void map_case_release(map_case *c)
{
    map_adapter_free(c->adapter);
    map_free(c->map);
    catalogue_release(&c->seen);
    catalogue_release(&c->base);
    must(c->memory.used_bytes == 0, "memory is not given back");
}
