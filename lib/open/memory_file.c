#include "open/memory_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "open/memory_box.h"

#define NO_STRIDES SIZE_MAX

typedef struct held_box {
    uintptr_t address; /* of the first element */
    uint64_t nbytes;   /* from there to the end of the last one; 0: without elements */
    uint64_t offset;   /* in the file */
    size_t strides_at; /* in memory_file.strides */
    uint64_t chunk;    /* in the catalogue until it is sealed */
} held_box;

/* Bytes that are together in memory and in the file. */
typedef struct held_range {
    uintptr_t address;
    uint64_t begin, end; /* in the file */
} held_range;

void memory_file_init(memory_file *m, const fsdpck_context *ctx, catalogue *cat)
{
    *m = (memory_file){.ctx = ctx,
                       .cat = cat,
                       .boxes = VEC_OF(held_box, cat->owner),
                       .strides = VEC_OF(uint64_t, cat->owner),
                       .ranges = VEC_OF(held_range, cat->owner)};
    strtab_init(&m->names, cat->owner);
}

void memory_file_release(memory_file *m)
{
    strtab_release(&m->names);
    VEC_RELEASE_ALL(&m->boxes, &m->strides, &m->ranges);
}

/* ---- boxes ---- */

/* The tensor of this name, or a new one. */
static fsdpck_status find_tensor(memory_file *m, const fsdpck_memory_tensor *t, dtype type,
                                 uint32_t *tensor, fsdpck_error *err)
{
    const size_t known = strtab_count(&m->names);
    RETURN_IF(strtab_intern(&m->names, t->name, strlen(t->name), tensor, err));
    if (*tensor == known)
        return catalogue_add_tensor(m->cat, t->name, strlen(t->name), type, (unsigned)t->ndim,
                                    t->shape, tensor, err);
    const cat_tensor *of = catalogue_tensor(m->cat, *tensor);
    if (of->dtype != (uint8_t)type ||
        !shape_equal(t->shape, (unsigned)t->ndim, catalogue_shape(m->cat, *tensor), of->ndim))
        return FAIL_WITH(err, USAGE, NONE,
                         ("two entries of one tensor have different dtypes or shapes"),
                         (tensor, t->name));
    return FSDPCK_OK;
}

static fsdpck_status check_entry(const memory_file *m, const fsdpck_memory_tensor *t, dtype *type,
                                 fsdpck_error *err)
{
    if (t->name == NULL || t->name[0] == '\0')
        return FAIL(err, USAGE, NONE, "entry %zu of fsdpck_open_memory has no name",
                    m->boxes.count);
    if (t->dtype == NULL)
        return FAIL_WITH(err, USAGE, NONE, ("an entry has no dtype"), (tensor, t->name));
    *type = dtype_from_name(t->dtype, strlen(t->dtype));
    if (*type == DTYPE_NONE)
        return FAIL_WITH(err, USAGE, NONE, ("unknown dtype '%.40s'", t->dtype), (tensor, t->name));
    if (t->ndim > NDIM_MAX)
        return FAIL_WITH(err, USAGE, NONE, ("an entry has too many dims"), (tensor, t->name),
                         (expected, "at most %u", (unsigned)NDIM_MAX), (found, "%zu", t->ndim));
    if (t->ndim > 0 && t->shape == NULL)
        return FAIL_WITH(err, USAGE, NONE, ("an entry has no shape"), (tensor, t->name));
    return FSDPCK_OK;
}

/* Whether elements follow one another in row-major order. */
static bool is_rows(const fsdpck_load_tensor *t)
{
    uint64_t rows[NDIM_MAX];
    box_row_major_strides(t->sizes, (unsigned)t->ndim, rows);
    for (size_t d = 0; t->strides != NULL && d < t->ndim; d++)
        if (t->sizes[d] != 1 && t->strides[d] != rows[d])
            return false;
    return true;
}

fsdpck_status memory_file_add(memory_file *m, const fsdpck_memory_tensor *t, fsdpck_error *err)
{
    static const uint64_t none[1];
    fsdpck_load_tensor of = {.name = t->name,
                             .ndim = t->ndim,
                             .offsets = t->offsets,
                             .sizes = t->sizes,
                             .strides = t->strides,
                             .memory = (void *)(uintptr_t)t->memory,
                             .memory_nbytes = t->memory_nbytes};
    held_box box = {
        .address = (uintptr_t)t->memory, .strides_at = NO_STRIDES, .chunk = m->cat->chunks.count};
    dtype type = DTYPE_NONE;
    uint32_t tensor;
    RETURN_IF(check_entry(m, t, &type, err));
    RETURN_IF(find_tensor(m, t, type, &tensor, err));
    RETURN_IF(memory_box_check(&of, (unsigned)t->ndim, t->ndim > 0 ? t->shape : none, type,
                               &box.nbytes, err));
    cat_chunk chunk = {.rank = UINT16_MAX,
                       .aux = (uint32_t)m->boxes.count,
                       .place = LOCATION_ROWS,
                       .nbytes = box_nelems(of.sizes, (unsigned)of.ndim) *
                                 dtype_get(type)->itemsize_bytes};
    if (box.nbytes > UINTPTR_MAX - box.address)
        return FAIL_WITH(err, USAGE, NONE, ("an entry ends after the last address"),
                         (tensor, t->name));
    if (box.nbytes > 0 && !is_rows(&of)) {
        chunk.place = LOCATION_STRIDED;
        box.strides_at = m->strides.count;
        RETURN_IF(vec_add_n(&m->strides, of.strides, of.ndim, err));
    }
    RETURN_IF(vec_add(&m->boxes, &box, err));
    return catalogue_add_chunk(m->cat, tensor, of.offsets, of.sizes, &chunk, err);
}

/* ---- the file ---- */

static int compare_addresses(const void *a, const void *b)
{
    const held_box *const x = *(held_box *const *)a, *const y = *(held_box *const *)b;
    ORDER_BY(x->address, y->address);
    ORDER_BY(y->nbytes, x->nbytes);
    return 0;
}

/* Adds it to the last range if it begins inside, otherwise to a new one. Ranges that only touch may be different
 * allocations, which a GPU does not copy at once. */
static fsdpck_status place_box(memory_file *m, held_box *box, fsdpck_error *err)
{
    held_range *last = NULL;
    uint64_t end = 0;
    if (m->ranges.count > 0) {
        last = VEC_AT(&m->ranges, held_range, m->ranges.count - 1);
        end = last->end;
    }
    const bool inside = last != NULL && box->address - last->address < last->end - last->begin;
    box->offset = inside ? last->begin + (box->address - last->address) : end;
    if (!checked_add(box->offset, box->nbytes, &end) || end > INT64_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "total size of the tensors is too large");
    if (!inside)
        return vec_add(&m->ranges, &(held_range){box->address, box->offset, end}, err);
    last->end = end > last->end ? end : last->end;
    return FSDPCK_OK;
}

static fsdpck_status place_boxes(memory_file *m, held_box **sorted, uint64_t *nbytes,
                                 fsdpck_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < m->boxes.count; i++) {
        held_box *box = VEC_AT(&m->boxes, held_box, i);
        if (box->nbytes > 0)
            sorted[count++] = box;
    }
    qsort(sorted, count, sizeof *sorted, compare_addresses);
    for (size_t i = 0; i < count; i++) {
        RETURN_IF(place_box(m, sorted[i], err));
        catalogue_chunk(m->cat, sorted[i]->chunk)->offset_bytes = sorted[i]->offset;
    }
    *nbytes =
        m->ranges.count == 0 ? 0 : VEC_AT(&m->ranges, const held_range, m->ranges.count - 1)->end;
    return FSDPCK_OK;
}

fsdpck_status memory_file_seal(memory_file *m, fsdpck_error *err)
{
    static const char path[] = "(memory)";
    uint64_t nbytes = 0;
    uint32_t index;
    held_box **sorted = calloc(m->boxes.count + 1, sizeof *sorted);
    if (sorted == NULL)
        return error_set_nomem(err, m->boxes.count * sizeof *sorted);
    fsdpck_status st = place_boxes(m, sorted, &nbytes, err);
    free(sorted);
    if (st == FSDPCK_OK)
        st = catalogue_add_file(m->cat, path, strlen(path), nbytes, CAT_NONE, &index, err);
    return st == FSDPCK_OK ? catalogue_seal(m->cat, err) : st;
}

/* ---- the source ---- */

/* Each run locates chunks before it writes. Each rank of a group has its own memory: a run
 * of several would mix parts of them. */
static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    const memory_file *m = ctx;
    const cat_chunk *k = catalogue_chunk(m->cat, chunk);
    const held_box *box = VEC_AT(&m->boxes, const held_box, k->aux);
    const unsigned ndim = catalogue_tensor(m->cat, k->tensor)->ndim;
    if (m->ctx->group != NULL)
        return FAIL(err, USAGE, NONE,
                    "tensors in memory are of one process: detach the context from its group");
    *where = (place){.rows = box->strides_at == NO_STRIDES,
                     .offset_bytes = box->offset,
                     .record_offset_bytes = box->offset,
                     .record_nbytes = box->nbytes};
    for (unsigned d = 0; !where->rows && d < ndim; d++)
        where->strides[d] = *VEC_AT(&m->strides, const uint64_t, box->strides_at + d);
    return FSDPCK_OK;
}

/* The range with this byte. */
static size_t find_range(const memory_file *m, uint64_t offset)
{
    size_t low = 0, high = m->ranges.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (VEC_AT(&m->ranges, const held_range, middle)->begin <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static fsdpck_status copy_ranges(const memory_file *m, device_slot *slot, uint64_t offset,
                                 uint8_t *dst, uint64_t nbytes, fsdpck_error *err)
{
    for (size_t i = find_range(m, offset); nbytes > 0; i++) {
        const held_range *r = VEC_AT(&m->ranges, const held_range, i);
        const uint64_t rest = r->end - offset, n = rest < nbytes ? rest : nbytes;
        const uintptr_t address = r->address + (uintptr_t)(offset - r->begin);
        if (slot == NULL)
            memcpy(dst, (const void *)address, n);
        else
            RETURN_IF(device_slot_get(slot, dst, address, n, err));
        offset += n;
        dst += n;
        nbytes -= n;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t index, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    const memory_file *m = ctx;
    (void)index;
    if (!checked_range(offset_bytes, nbytes, catalogue_file(m->cat, 0)->nbytes))
        return FAIL(err, INTERNAL, NONE, "read after the end of the memory");
    if (m->copy == NULL)
        return copy_ranges(m, NULL, offset_bytes, dst, nbytes, err);
    device_slot *slot = device_copy_take(m->copy);
    const fsdpck_status st = copy_ranges(m, slot, offset_bytes, dst, nbytes, err);
    return device_copy_give(m->copy, slot, st, err);
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    (void)ctx;
    (void)err;
    return FSDPCK_OK;
}

source memory_file_get(memory_file *m)
{
    return (source){.ctx = m,
                    .cat = m->cat,
                    .locate = locate,
                    .read_at = read_at,
                    .check_unchanged = check_unchanged};
}
