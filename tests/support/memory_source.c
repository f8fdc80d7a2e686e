#include "tests/support/memory_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/crc.h"
#include "state/cast.h"
#include "tests/support/must.h"

struct source_stream {
    memory_source *m;
    const vec *record;
    uint64_t at;
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static bool is_added(const char *tensor, dtype type)
{
    return strncmp(tensor, "added", 5) == 0 && dtype_can_add(type);
}

/* Values that every dtype of is_added represents, read and written through float64. */
static void put_value(dtype type, double number, uint8_t *bytes)
{
    const float narrow = (float)number;
    if (type == DTYPE_FLOAT64)
        memcpy(bytes, &number, sizeof number);
    else if (type == DTYPE_FLOAT32)
        memcpy(bytes, &narrow, sizeof narrow);
    else
        cast_elements(DTYPE_FLOAT32, type, bytes, &narrow, 1);
}

static double get_value(dtype type, const uint8_t *bytes)
{
    double number;
    if (type == DTYPE_FLOAT64)
        memcpy(&number, bytes, sizeof number);
    else
        cast_elements(type, DTYPE_FLOAT64, &number, bytes, 1);
    return number;
}

void memory_element(const char *tensor, dtype type, uint64_t flat_index, uint8_t *bytes)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (const char *c = tensor; *c != '\0'; c++)
        h = mix(h + (uint8_t)*c);
    const uint64_t words[2] = {mix(h + flat_index), mix(h + flat_index + (1ull << 63))};
    const unsigned n = dtype_get(type)->itemsize_bytes;
    memcpy(bytes, words, n);
    if (is_added(tensor, type)) {
        put_value(type, (double)(words[0] % 256) / 64 - 2, bytes);
        return;
    }
    /* A clear bit in the exponent keeps floats finite. */
    if (type == DTYPE_BFLOAT16 || type == DTYPE_FLOAT32 || type == DTYPE_FLOAT16)
        bytes[n - 1] &= 0xBF;
}

static fsdpck_status locate(void *ctx, uint64_t chunk, place *where, fsdpck_error *err)
{
    memory_source *m = ctx;
    (void)err;
    *where = *VEC_AT(&m->places, place, catalogue_chunk(&m->cat, chunk)->aux);
    return FSDPCK_OK;
}

static fsdpck_status read_at(void *ctx, uint32_t file, uint64_t offset_bytes, void *dst,
                             uint64_t nbytes, fsdpck_error *err)
{
    memory_source *m = ctx;
    const uint64_t number = atomic_fetch_add(&m->reads, 1) + 1;
    atomic_fetch_add(&m->bytes_read, nbytes);
    must(file < m->file_count, "read of a file that is not there");
    must(checked_range(offset_bytes, nbytes, m->files[file].count), "read past the end of a file");
    if (number == m->fail_read)
        return error_set(err, FSDPCK_IO, FSDPCK_FINDING_NONE, "read failed as the test wants");
    memcpy(dst, (uint8_t *)m->files[file].items + offset_bytes, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status stream_open(void *ctx, uint64_t chunk, source_stream **s, fsdpck_error *err)
{
    memory_source *m = ctx;
    (void)err;
    *s = calloc(1, sizeof **s);
    must(*s != NULL, "no memory");
    (*s)->m = m;
    (*s)->record = VEC_AT(&m->records, vec, catalogue_chunk(&m->cat, chunk)->aux);
    const int open = atomic_fetch_add(&m->open_streams, 1) + 1;
    int most = atomic_load(&m->most_streams);
    while (open > most && !atomic_compare_exchange_weak(&m->most_streams, &most, open))
        ;
    const struct timespec pause = {.tv_nsec = 2000000};
    if (m->stream_nbytes > 0) /* others open theirs meanwhile, where they may */
        nanosleep(&pause, NULL);
    return FSDPCK_OK;
}

static uint64_t stream_nbytes(void *ctx, uint64_t chunk)
{
    const memory_source *m = ctx;
    (void)chunk;
    return m->stream_nbytes;
}

static fsdpck_status stream_read(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    (void)err;
    must(checked_range(s->at, nbytes, s->record->count), "read past the end of a stream");
    memcpy(dst, (uint8_t *)s->record->items + s->at, nbytes);
    s->at += nbytes;
    atomic_fetch_add(&s->m->decoded_bytes, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status stream_finish(source_stream *s, fsdpck_error *err)
{
    (void)s;
    (void)err;
    return FSDPCK_OK;
}

static void stream_close(source_stream *s)
{
    atomic_fetch_sub(&s->m->open_streams, 1);
    free(s);
}

static fsdpck_status read_box(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err)
{
    memory_source *m = ctx;
    const cat_chunk *k = catalogue_chunk(&m->cat, chunk);
    const cat_tensor *t = catalogue_tensor(&m->cat, k->tensor);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    const uint8_t *from = VEC_AT(&m->records, const vec, k->aux)->items;
    uint64_t chunk_sizes[NDIM_MAX], strides[NDIM_MAX];
    (void)err;
    must((uintptr_t)dst % itemsize == 0, "elements of a box are not aligned");
    catalogue_chunk_box(&m->cat, chunk, NULL, chunk_sizes);
    box_row_major_strides(chunk_sizes, t->ndim, strides);
    for (uint64_t i = 0; i < box_nelems(sizes, t->ndim); i++) {
        uint64_t at = 0, rest = i;
        for (unsigned d = t->ndim; d-- > 0; rest /= sizes[d]) {
            must(offsets[d] + sizes[d] <= chunk_sizes[d], "box beyond its chunk");
            at += (offsets[d] + rest % sizes[d]) * strides[d];
        }
        memcpy((uint8_t *)dst + i * itemsize, from + at * itemsize, itemsize);
    }
    atomic_fetch_add(&m->box_bytes, box_nelems(sizes, t->ndim) * itemsize);
    return FSDPCK_OK;
}

static fsdpck_status check_unchanged(void *ctx, fsdpck_error *err)
{
    const memory_source *m = ctx;
    return m->changed
               ? error_set(err, FSDPCK_CHANGED, FSDPCK_FINDING_NONE, "changed as the test wants")
               : FSDPCK_OK;
}

void memory_source_init(memory_source *m, uint32_t nfiles, budget *owner)
{
    memset(m, 0, sizeof *m);
    catalogue_init(&m->cat, owner);
    m->file_count = nfiles;
    m->files = calloc(nfiles, sizeof *m->files);
    must(m->files != NULL, "no memory");
    m->places = VEC_OF(place, NULL);
    m->records = VEC_OF(vec, NULL);
    for (uint32_t i = 0; i < nfiles; i++) {
        char name[32];
        uint32_t index;
        m->files[i] = VEC_OF(uint8_t, NULL);
        const int n = snprintf(name, sizeof name, "rank_%u.bin", i);
        must(catalogue_add_file(&m->cat, name, (size_t)n, 0, i, &index, NULL) == FSDPCK_OK, "file");
    }
    m->src = (source){.ctx = m,
                      .cat = &m->cat,
                      .locate = locate,
                      .read_at = read_at,
                      .stream_open = stream_open,
                      .stream_read = stream_read,
                      .stream_finish = stream_finish,
                      .stream_close = stream_close,
                      .stream_nbytes = stream_nbytes,
                      .check_unchanged = check_unchanged};
}

uint32_t memory_source_add_tensor(memory_source *m, const char *name, dtype type, unsigned ndim,
                                  const uint64_t *shape)
{
    uint32_t tensor;
    must(catalogue_add_tensor(&m->cat, name, strlen(name), type, ndim, shape, &tensor, NULL) ==
             FSDPCK_OK,
         "tensor");
    return tensor;
}

/* From logical to stored bytes: the inverse of what a reader of the chunk has to do. */
static void encode(uint8_t *bytes, dtype type, const memory_layout *layout)
{
    const dtype_info *info = dtype_get(type);
    const unsigned n = info->itemsize_bytes;
    if (layout->add != 0)
        put_value(type, get_value(type, bytes) - layout->add, bytes);
    if (layout->neg) {
        bytes[n - 1] ^= 0x80;
        if (info->kind == DTYPE_IS_COMPLEX)
            bytes[n / 2 - 1] ^= 0x80;
    }
    if (layout->conj && info->kind == DTYPE_IS_COMPLEX)
        bytes[n - 1] ^= 0x80;
    if (!layout->swap)
        return;
    for (unsigned at = 0; at < n; at += info->swap_nbytes) {
        for (unsigned i = 0; i < info->swap_nbytes / 2u; i++) {
            const uint8_t t = bytes[at + i];
            bytes[at + i] = bytes[at + info->swap_nbytes - 1 - i];
            bytes[at + info->swap_nbytes - 1 - i] = t;
        }
    }
}

/* Strides in elements of the stored order; returns the number of elements stored, pads included. */
static uint64_t choose_strides(unsigned ndim, const uint64_t *sizes, const memory_layout *layout,
                               uint64_t *strides)
{
    uint64_t stride = 1;
    if (layout->tilted) {
        must(ndim == 2, "tilted takes two dims");
        strides[0] = sizes[0] + 1;
        strides[1] = sizes[0];
        return (sizes[0] - 1) * strides[0] + (sizes[1] - 1) * strides[1] + 1;
    }
    for (unsigned i = ndim; i-- > 0;) {
        const unsigned d = layout->permuted ? layout->order[i] : i;
        strides[d] = stride;
        stride *= sizes[d];
        if (i == ndim - 1)
            stride += layout->pad_elems;
    }
    return stride;
}

static void store_elements(memory_source *m, uint32_t tensor, const uint64_t *offsets,
                           const uint64_t *sizes, const memory_layout *layout,
                           const uint64_t *strides, uint8_t *to)
{
    const cat_tensor *t = catalogue_tensor(&m->cat, tensor);
    const char *name = catalogue_name(&m->cat, t->name);
    const uint64_t n = box_nelems(sizes, t->ndim);
    uint64_t shape_strides[NDIM_MAX];
    box_row_major_strides(catalogue_shape(&m->cat, tensor), t->ndim, shape_strides);
    for (uint64_t flat = 0; flat < n; flat++) {
        uint64_t rest = flat;
        uint64_t global = 0;
        uint64_t at = 0;
        uint8_t bytes[16];
        for (unsigned d = t->ndim; d-- > 0;) {
            global += (offsets[d] + rest % sizes[d]) * shape_strides[d];
            at += rest % sizes[d] * strides[d];
            rest /= sizes[d];
        }
        memory_element(name, (dtype)t->dtype, global, bytes);
        if (layout->wrong && flat == n / 2)
            bytes[0] ^= 1;
        encode(bytes, (dtype)t->dtype, layout);
        memcpy(to + at * dtype_get((dtype)t->dtype)->itemsize_bytes, bytes,
               dtype_get((dtype)t->dtype)->itemsize_bytes);
    }
}

void memory_source_add_chunk(memory_source *m, uint32_t tensor, const uint64_t *offsets,
                             const uint64_t *sizes, const memory_layout *layout)
{
    const cat_tensor *t = catalogue_tensor(&m->cat, tensor);
    const uint64_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    const uint64_t n = box_nelems(sizes, t->ndim);
    place *where = vec_push(&m->places, NULL);
    vec *record = vec_push(&m->records, NULL);
    must(where != NULL && record != NULL, "no memory");
    *record = VEC_OF(uint8_t, NULL);
    const uint64_t stored = choose_strides(t->ndim, sizes, layout, where->strides) * itemsize;
    vec *to = layout->stream ? record : &m->files[layout->file];
    uint8_t *bytes = vec_push_n(to, layout->gap_nbytes + (n == 0 ? 0 : stored), NULL);
    must(bytes != NULL, "no memory");
    memset(bytes, 0xA5, layout->gap_nbytes + (n == 0 ? 0 : stored));
    bytes += layout->gap_nbytes;
    store_elements(m, tensor, offsets, sizes, layout, where->strides, bytes);
    where->file = layout->file;
    where->stream = layout->stream;
    where->boxes = layout->boxes;
    if (layout->boxes)
        m->src.read_box = read_box;
    where->swap = layout->swap;
    where->conj = layout->conj;
    where->neg = layout->neg;
    where->add = layout->add;
    where->rows = !layout->permuted && !layout->tilted && layout->pad_elems == 0;
    where->offset_bytes = (uint64_t)(bytes - (uint8_t *)to->items);
    where->record_offset_bytes = where->offset_bytes;
    where->record_nbytes = n == 0 ? 0 : stored;
    where->has_crc = layout->crc;
    where->crc32 = layout->crc ? crc32_update(0, bytes, where->record_nbytes) : 0;
    const cat_chunk proto = {.file = layout->file,
                             .aux = (uint32_t)(m->places.count - 1),
                             .rank = UINT16_MAX,
                             .place = LOCATION_BLOB,
                             .offset_bytes = where->offset_bytes,
                             .nbytes = n * itemsize};
    must(catalogue_add_chunk(&m->cat, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK, "chunk");
}

void memory_source_seal(memory_source *m)
{
    for (uint32_t i = 0; i < m->file_count; i++)
        catalogue_file(&m->cat, i)->nbytes = m->files[i].count;
    must(catalogue_seal(&m->cat, NULL) == FSDPCK_OK, "seal");
}

void memory_source_release(memory_source *m)
{
    must(atomic_load(&m->open_streams) == 0, "streams were left open");
    for (uint32_t i = 0; i < m->file_count; i++)
        vec_release(&m->files[i]);
    for (size_t i = 0; i < m->records.count; i++)
        vec_release(VEC_AT(&m->records, vec, i));
    free(m->files);
    vec_release(&m->places);
    vec_release(&m->records);
    catalogue_release(&m->cat);
}
