/* The printed form and the hash of a plan. */
#include <inttypes.h>

#include "base/crc.h"
#include "base/text.h"
#include "plan/plan_internal.h"
#include "plan/segment.h"

static void print_name(text_buf *out, const catalogue *c, uint32_t name)
{
    char text[600];
    escape_text(text, sizeof text, catalogue_name(c, name), catalogue_name_nbytes(c, name));
    text_printf(out, "'%s'", text);
}

static void print_box(text_buf *out, const catalogue *c, uint64_t chunk)
{
    char text[400];
    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    catalogue_chunk_box(c, chunk, offsets, sizes);
    const unsigned ndim = catalogue_tensor(c, catalogue_chunk(c, chunk)->tensor)->ndim;
    text_puts(out, box_text(text, sizeof text, offsets, sizes, ndim));
}

static void print_chunk(const plan *p, const range_part *part, text_buf *out)
{
    const catalogue *to = &p->to->cat;
    const cat_chunk *k = catalogue_chunk(to, part->chunk);
    const cat_tensor *t = catalogue_tensor(to, k->tensor);
    const uint32_t source = plan_source_tensor(p, k->tensor);
    const cat_tensor *s = catalogue_tensor(p->from, source);
    text_printf(out, "  %" PRIu64 "+%" PRIu64 " ", k->offset_bytes, k->nbytes);
    print_name(out, to, t->name);
    text_printf(out, " %s ", dtype_get((dtype)t->dtype)->name);
    print_box(out, to, part->chunk);
    if (s->dtype != t->dtype)
        text_printf(out, " cast from %s", dtype_get((dtype)s->dtype)->name);
    text_puts(out, "\n");

    uint64_t offsets[NDIM_MAX];
    uint64_t sizes[NDIM_MAX];
    box_query q;
    catalogue_chunk_box(to, part->chunk, offsets, sizes);
    plan_query_begin(p, source, &q, offsets, sizes);
    while (box_query_next(&q)) {
        const cat_chunk *from = catalogue_chunk(p->from, q.chunk);
        text_puts(out, "    from ");
        print_name(out, p->from, catalogue_file(p->from, from->file)->path);
        text_puts(out, " ");
        print_box(out, p->from, q.chunk);
        text_puts(out, "\n");
    }
}

fsdpck_status plan_print(const plan *p, text_buf *out, fsdpck_error *err)
{
    static const char *const policies[] = {"crc", "compare", "first"};
    const catalogue *to = &p->to->cat;
    text_printf(out, "plan: %" PRIu64 " item%s of %" PRIu64 " bytes, replicas %s\n",
                plan_item_count(p), text_plural(plan_item_count(p)), p->opt.tile_nbytes,
                policies[p->opt.replicas]);
    for (uint64_t file = 0; file < p->file_count && !out->failed; file++) {
        const uint64_t nbytes = catalogue_file(to, file)->nbytes;
        text_puts(out, "file ");
        /* A single-file output has no names inside. */
        if (catalogue_name_nbytes(to, catalogue_file(to, file)->path) > 0) {
            print_name(out, to, catalogue_file(to, file)->path);
            text_puts(out, " ");
        }
        text_printf(out, "%" PRIu64 " bytes\n", nbytes);
        range_walk w;
        range_part part;
        range_walk_begin(&w, p, &(output_range){(uint32_t)file, 0, nbytes});
        while (!out->failed && range_walk_next(&w, &part)) {
            if (part.kind == RANGE_PART_CHUNK)
                print_chunk(p, &part, out);
            else
                text_printf(out, "  %" PRIu64 "+%" PRIu64 " %s\n", part.begin,
                            part.end - part.begin,
                            part.kind == RANGE_PART_CONSTANT ? "constant" : "checksum");
        }
    }
    return text_check(out, err);
}

static uint64_t hash_text(uint64_t h, const char *text, size_t nbytes)
{
    return crc64_update(crc64_add_u64(h, nbytes), text, nbytes);
}

/* Adds what a catalogue has of each aspect to its number; h[PLAN_SOURCE] and h[PLAN_READING] stay. */
static void hash_tensor(uint64_t h[PLAN_ASPECTS], const catalogue *c, size_t index)
{
    uint64_t dims[2 * NDIM_MAX];
    const cat_tensor *t = catalogue_tensor(c, index);
    uint64_t tensors = hash_text(h[PLAN_TENSORS], catalogue_name(c, t->name),
                                 catalogue_name_nbytes(c, t->name));
    tensors = crc64_add_u64(tensors, t->ndim);
    for (unsigned d = 0; d < t->ndim; d++)
        tensors = crc64_add_u64(tensors, catalogue_shape(c, index)[d]);
    h[PLAN_TENSORS] = tensors;
    h[PLAN_DTYPES] = crc64_add_u64(h[PLAN_DTYPES], (uint64_t)t->dtype);
    uint64_t boxes = crc64_add_u64(h[PLAN_BOXES], t->nchunks), files = h[PLAN_FILES];
    for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++) {
        const cat_chunk *chunk = catalogue_chunk(c, k);
        catalogue_chunk_box(c, k, dims, dims + t->ndim);
        files = crc64_add_u64(files, (uint64_t)chunk->place << 32 | chunk->file);
        files = crc64_add_u64(crc64_add_u64(files, chunk->offset_bytes), chunk->nbytes);
        for (unsigned d = 0; d < 2u * t->ndim; d++)
            boxes = crc64_add_u64(boxes, dims[d]);
    }
    h[PLAN_BOXES] = boxes;
    h[PLAN_FILES] = files;
}

static void hash_catalogue(uint64_t h[PLAN_ASPECTS], const catalogue *c)
{
    for (size_t i = 0; i < catalogue_file_count(c); i++) {
        const cat_file *f = catalogue_file(c, i);
        h[PLAN_FILES] = hash_text(h[PLAN_FILES], catalogue_name(c, f->path),
                                  catalogue_name_nbytes(c, f->path));
        h[PLAN_FILES] = crc64_add_u64(h[PLAN_FILES], f->nbytes);
    }
    for (size_t i = 0; i < catalogue_tensor_count(c); i++)
        hash_tensor(h, c, i);
}

static uint64_t combine(const uint64_t h[PLAN_ASPECTS])
{
    uint64_t all = 0;
    for (unsigned i = 0; i < PLAN_ASPECTS; i++)
        all = crc64_add_u64(all, h[i]);
    return all;
}

void plan_hashes(const plan *p, uint64_t h[PLAN_ASPECTS])
{
    uint64_t source[PLAN_ASPECTS] = {0};
    hash_catalogue(source, p->from);
    memset(h, 0, PLAN_ASPECTS * sizeof *h);
    h[PLAN_SOURCE] = combine(source);
    h[PLAN_READING] = crc64_add_u64(p->opt.tile_nbytes, (uint64_t)p->opt.replicas);
    hash_catalogue(h, &p->to->cat);
    for (size_t i = 0; i < p->to->from.count; i++)
        h[PLAN_TENSORS] = crc64_add_u64(h[PLAN_TENSORS], plan_source_tensor(p, (uint32_t)i));
    for (size_t i = 0; i < p->to->literals.count; i++) {
        const target_constant *l = VEC_AT(&p->to->literals, target_constant, i);
        const uint64_t at =
            crc64_add_u64(crc64_add_u64(h[PLAN_CONSTANTS], l->file), l->offset_bytes);
        h[PLAN_CONSTANTS] = hash_text(at, p->to->text.text + l->text_at, l->nbytes);
    }
    for (size_t i = 0; i < p->to->lates.count; i++) {
        const target_deferred *l = VEC_AT(&p->to->lates, target_deferred, i);
        uint64_t at = crc64_add_u64(h[PLAN_FILES], (uint64_t)l->nbytes << 32 | l->file);
        at = crc64_add_u64(at, l->offset_bytes);
        h[PLAN_FILES] = crc64_add_u64(at, l->chunk);
    }
}

uint64_t plan_hash(const plan *p)
{
    uint64_t h[PLAN_ASPECTS];
    plan_hashes(p, h);
    return combine(h);
}
