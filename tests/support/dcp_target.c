#include "tests/support/dcp_target.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"
#include "tests/support/memory_source.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"

void dcp_target_begin(dcp_target *d, const mesh *m)
{
    *d = (dcp_target){0};
    budget_init(&d->owner, UINT64_C(4) << 30, "metadata", NULL);
    target_init(&d->to, &d->owner);
    d->to.world_size = mesh_size(m);
    must(catalogue_add_mesh(&d->to.cat, m, &d->mesh_index, NULL) == FSDPCK_OK, "mesh");
}

static void add_chunk(dcp_target *d, uint32_t tensor, const uint64_t *offsets,
                      const uint64_t *sizes, uint64_t rank)
{
    const cat_chunk proto = {.file = CAT_NONE, .rank = (uint16_t)rank, .place = LOCATION_ROWS};
    must(catalogue_add_chunk(&d->to.cat, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK,
         "chunk");
}

static bool has_box(const dcp_target *d, uint64_t first, unsigned ndim, const uint64_t *offsets,
                    const uint64_t *sizes)
{
    uint64_t others[NDIM_MAX], other_sizes[NDIM_MAX];
    for (uint64_t k = first; k < catalogue_chunk_count(&d->to.cat); k++) {
        catalogue_chunk_box(&d->to.cat, k, others, other_sizes);
        if (box_equal(offsets, sizes, others, other_sizes, ndim))
            return true;
    }
    return false;
}

uint32_t dcp_target_add(dcp_target *d, const char *name, dtype type, unsigned ndim,
                        const uint64_t *shape, const placement *placements)
{
    catalogue *cat = &d->to.cat;
    const uint64_t first = catalogue_chunk_count(cat);
    uint64_t coord[MESH_NDIM_MAX], offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    uint32_t tensor;
    must(catalogue_add_tensor(cat, name, strlen(name), type, ndim, shape, &tensor, NULL) ==
             FSDPCK_OK,
         "tensor");
    if (placements == NULL) {
        add_chunk(d, tensor, offsets, shape, 0);
        return tensor;
    }
    const mesh *m = catalogue_mesh(cat, d->mesh_index);
    cat_spec spec = {.mesh = d->mesh_index};
    memcpy(spec.placements, placements, m->ndim * sizeof *placements);
    must(catalogue_add_spec(cat, &spec, &catalogue_tensor(cat, tensor)->spec, NULL) == FSDPCK_OK,
         "spec");
    for (uint64_t rank = 0; rank < d->to.world_size; rank++) {
        mesh_coord(m, rank, coord);
        must(shard_box(m, placements, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL) ==
                 FSDPCK_OK,
             "piece");
        if (!has_box(d, first, ndim, offsets, sizes))
            add_chunk(d, tensor, offsets, sizes, rank);
    }
    return tensor;
}

uint32_t dcp_target_add_inner(dcp_target *d, const char *name, dtype type, unsigned ndim,
                              const uint64_t *shape)
{
    const uint32_t tensor = dcp_target_add(d, name, type, ndim, shape, NULL);
    catalogue_tensor(&d->to.cat, tensor)->flags |= CAT_TENSOR_IN_OBJECT;
    return tensor;
}

uint32_t dcp_target_add_object(dcp_target *d, const char *name, value content)
{
    uint32_t object;
    must(catalogue_add_object(&d->to.cat, name, strlen(name), &object, NULL) == FSDPCK_OK,
         "object");
    cat_object *o = catalogue_object(&d->to.cat, object);
    o->loaded = 1;
    o->content = content;
    return object;
}

value dcp_target_path(dcp_target *d, const value *elements, size_t count)
{
    value v;
    must(value_new_from(&d->to.cat.pool, VALUE_TUPLE, elements, count, &v, NULL) == FSDPCK_OK,
         "path");
    return v;
}

value dcp_target_str(dcp_target *d, const char *text)
{
    value v;
    must(value_new_str(&d->to.cat.pool, text, strlen(text), &v, NULL) == FSDPCK_OK, "str");
    return v;
}

value dcp_target_int(dcp_target *d, int64_t i)
{
    value v;
    must(value_new_int(&d->to.cat.pool, i, &v, NULL) == FSDPCK_OK, "int");
    return v;
}

fsdpck_status dcp_target_lay_out(dcp_target *d, const writer_options *opt)
{
    fsdpck_error_init(&d->err);
    must(catalogue_seal(&d->to.cat, NULL) == FSDPCK_OK, "seal");
    return dcp_writer.layout(&d->to, opt, &d->err);
}

void dcp_target_element(const dcp_target *d, uint32_t tensor, uint64_t flat, uint8_t *bytes)
{
    const cat_tensor *t = catalogue_tensor(&d->to.cat, tensor);
    memory_element(catalogue_name(&d->to.cat, t->name), (dtype)t->dtype, flat, bytes);
    if (t->dtype == DTYPE_BOOL)
        bytes[0] &= 1;
}

/* --- saving --- */

typedef struct image {
    uint8_t *bytes;
    uint8_t *seen;
    uint64_t nbytes;
} image;

static void put(image *images, uint32_t file_index, uint64_t at, const void *bytes, uint64_t nbytes)
{
    image *im = &images[file_index];
    must(at <= im->nbytes && nbytes <= im->nbytes - at, "bytes behind the end of a file");
    for (uint64_t i = at; i < at + nbytes; i++)
        must(im->seen[i]++ == 0, "a byte is given twice");
    if (nbytes > 0)
        memcpy(im->bytes + at, bytes, nbytes);
}

static fsdpck_status put_sealed(void *ctx, const deferred_bytes *late, fsdpck_error *err)
{
    (void)err;
    put(ctx, late->file, late->offset_bytes, late->bytes, late->nbytes);
    return FSDPCK_OK;
}

static void put_constants(const target *t, image *images)
{
    for (size_t i = 0; i < t->literals.count; i++) {
        const target_constant *l = VEC_AT(&t->literals, const target_constant, i);
        must(i == 0 || l->file > l[-1].file ||
                 (l->file == l[-1].file && l->offset_bytes > l[-1].offset_bytes),
             "literals are not in order");
        must(l->nbytes > 0 && l->text_at + l->nbytes <= t->text.nbytes, "literal without text");
        put(images, l->file, l->offset_bytes, t->text.text + l->text_at, l->nbytes);
    }
}

static void put_chunk(const dcp_target *d, uint64_t chunk, image *images)
{
    const catalogue *cat = &d->to.cat;
    const cat_chunk *c = catalogue_chunk(cat, chunk);
    const cat_tensor *t = catalogue_tensor(cat, c->tensor);
    const size_t item = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX];
    catalogue_chunk_box(cat, chunk, offsets, sizes);
    const uint64_t nelems = box_nelems(sizes, t->ndim);
    must(c->place == (nelems > 0 ? LOCATION_ROWS : LOCATION_EMPTY), "place of a chunk");
    must(c->nbytes == nelems * item, "size of a chunk");
    box_row_major_strides(catalogue_shape(cat, c->tensor), t->ndim, strides);
    uint8_t *bytes = calloc(nelems + 1, item);
    for (uint64_t i = 0; i < nelems; i++) {
        uint64_t rest = i, flat = 0;
        for (unsigned k = t->ndim; k-- > 0;) {
            flat += (offsets[k] + rest % sizes[k]) * strides[k];
            rest /= sizes[k];
        }
        dcp_target_element(d, c->tensor, flat, bytes + i * item);
    }
    put(images, c->file, c->offset_bytes, bytes, c->nbytes);
    d->to.chunk_crc[chunk] = crc32_update(0, bytes, c->nbytes);
    free(bytes);
}

static void put_deferred(const target *t, image *images)
{
    for (size_t i = 0; i < t->lates.count; i++) {
        const target_deferred *l = VEC_AT(&t->lates, const target_deferred, i);
        uint8_t *bytes = malloc(l->nbytes);
        must(i == 0 || l->file > l[-1].file ||
                 (l->file == l[-1].file && l->offset_bytes > l[-1].offset_bytes),
             "late bytes are not in order");
        t->make_deferred(t, i, t->chunk_crc[l->chunk], bytes);
        put(images, l->file, l->offset_bytes, bytes, l->nbytes);
        free(bytes);
    }
}

void dcp_target_save(dcp_target *d, const char *dir)
{
    target *t = &d->to;
    const size_t nfiles = catalogue_file_count(&t->cat);
    image *images = calloc(nfiles, sizeof *images);
    for (size_t i = 0; i < nfiles; i++) {
        images[i].nbytes = catalogue_file(&t->cat, i)->nbytes;
        images[i].bytes = calloc(images[i].nbytes + 1, 1);
        images[i].seen = calloc(images[i].nbytes + 1, 1);
    }
    must(t->want_crc && t->is_folder, "what layout() says of the target");
    t->chunk_crc = calloc(catalogue_chunk_count(&t->cat) + 1, sizeof(uint32_t));
    put_constants(t, images);
    for (uint64_t k = 0; k < catalogue_chunk_count(&t->cat); k++)
        put_chunk(d, k, images);
    put_deferred(t, images);
    must(dcp_writer.seal(t, put_sealed, images, NULL) == FSDPCK_OK, "seal()");
    for (size_t i = 0; i < nfiles; i++) {
        for (uint64_t k = 0; k < images[i].nbytes; k++)
            must(images[i].seen[k] == 1, "a byte is given by nobody");
        scratch_write(dir, catalogue_name(&t->cat, catalogue_file(&t->cat, i)->path),
                      images[i].bytes, images[i].nbytes);
        free(images[i].bytes);
        free(images[i].seen);
    }
    free(images);
}

void dcp_target_end(dcp_target *d)
{
    target_release(&d->to);
    must(d->owner.used_bytes == 0, "bytes are still accounted for");
}
