/* Tensors cut over one mesh, cut again over another, then made whole: nothing may have changed.
 *
 * Bytes are numbers: tensors, meshes, placements. The plan's segments are carried out in memory, tile by
 * tile, from buffers of exactly the size that a file has. With a chunk taken away the plan must be
 * refused, if any of its elements is in no other chunk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/mesh_text.h"
#include "layout/shard_box.h"
#include "plan/segment.h"
#include "tests/support/must.h"

enum { TENSORS_MAX = 3, RANKS_MAX = 48, NELEMS_MAX = 1024, FILES_MAX = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

typedef struct reader {
    const uint8_t *data;
    size_t nbytes;
} reader;

/* A catalogue with the bytes of its files. */
typedef struct stage {
    target t;
    uint8_t *files[FILES_MAX];
    uint32_t file_count;
} stage;

static unsigned take(reader *r, unsigned below)
{
    if (r->nbytes == 0)
        return 0;
    r->nbytes--;
    return *r->data++ % below;
}

/* --- stages --- */

static void stage_init(stage *s, budget *b, uint32_t file_count)
{
    *s = (stage){.file_count = file_count};
    target_init(&s->t, b);
    for (uint32_t i = 0; i < file_count; i++) {
        char name[8];
        uint32_t index;
        const int n = snprintf(name, sizeof name, "f%u", i);
        must(catalogue_add_file(&s->t.cat, name, (size_t)n, 0, i, &index, NULL) == FSDPCK_OK,
             "file");
    }
}

static void add_tensor(stage *s, const char *name, dtype d, unsigned ndim, const uint64_t *shape)
{
    uint32_t index;
    must(catalogue_add_tensor(&s->t.cat, name, strlen(name), d, ndim, shape, &index, NULL) ==
             FSDPCK_OK,
         "tensor");
    uint32_t *from = vec_push(&s->t.from, NULL);
    must(from != NULL, "memory");
    *from = index;
}

static void add_chunk(stage *s, uint32_t tensor, const uint64_t *offsets, const uint64_t *sizes,
                      uint32_t file_index)
{
    const cat_chunk proto = {.file = file_index % s->file_count, .place = LOCATION_ROWS};
    must(catalogue_add_chunk(&s->t.cat, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK,
         "chunk");
}

static void copy_tensors(stage *s, const catalogue *like)
{
    for (size_t i = 0; i < catalogue_tensor_count(like); i++) {
        const cat_tensor *t = catalogue_tensor(like, i);
        add_tensor(s, catalogue_name(like, t->name), (dtype)t->dtype, t->ndim,
                   catalogue_shape(like, i));
    }
}

/* Chunks one after the other, with gaps; seals. */
static void place_chunks(stage *s, unsigned gap)
{
    catalogue *c = &s->t.cat;
    must(catalogue_seal(c, NULL) == FSDPCK_OK, "seal");
    for (uint64_t k = 0; k < catalogue_chunk_count(c); k++) {
        cat_chunk *chunk = catalogue_chunk(c, k);
        const cat_tensor *t = catalogue_tensor(c, chunk->tensor);
        uint64_t sizes[NDIM_MAX];
        if (chunk->place == LOCATION_EMPTY)
            continue;
        cat_file *f = catalogue_file(c, chunk->file);
        catalogue_chunk_box(c, k, NULL, sizes);
        chunk->offset_bytes = f->nbytes + gap;
        chunk->nbytes = box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
        f->nbytes = chunk->offset_bytes + chunk->nbytes;
    }
    for (uint32_t i = 0; i < s->file_count; i++) {
        s->files[i] = malloc(catalogue_file(c, i)->nbytes + (catalogue_file(c, i)->nbytes == 0));
        must(s->files[i] != NULL, "memory");
        memset(s->files[i], 0xEE, catalogue_file(c, i)->nbytes);
    }
}

static void stage_release(stage *s)
{
    for (uint32_t i = 0; i < s->file_count; i++)
        free(s->files[i]);
    target_release(&s->t);
}

/* --- elements --- */

static void element(uint32_t tensor, uint64_t flat, uint8_t *bytes, size_t nbytes)
{
    uint64_t z = (flat + 1) * 0x9E3779B97F4A7C15u + tensor * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 29)) * 0x94D049BB133111EBu;
    z ^= z >> 32;
    for (size_t i = 0; i < nbytes; i++)
        bytes[i] = (uint8_t)(z >> (8 * (i % 8)));
}

/* Writes what the elements of a chunk are, or compares. */
static void visit_chunk(const stage *s, uint64_t k, bool write)
{
    const catalogue *c = &s->t.cat;
    const cat_chunk *chunk = catalogue_chunk(c, k);
    const cat_tensor *t = catalogue_tensor(c, chunk->tensor);
    const size_t item = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX];
    if (chunk->place == LOCATION_EMPTY)
        return;
    catalogue_chunk_box(c, k, offsets, sizes);
    box_row_major_strides(catalogue_shape(c, chunk->tensor), t->ndim, strides);
    for (uint64_t i = 0; i < box_nelems(sizes, t->ndim); i++) {
        uint64_t rest = i, flat = 0;
        uint8_t bytes[16];
        for (unsigned d = t->ndim; d-- > 0;) {
            flat += (offsets[d] + rest % sizes[d]) * strides[d];
            rest /= sizes[d];
        }
        element(chunk->tensor, flat, bytes, item);
        uint8_t *at = s->files[chunk->file] + chunk->offset_bytes + i * item;
        if (write)
            memcpy(at, bytes, item);
        else
            must(memcmp(at, bytes, item) == 0, "an element is another one after the round trip");
    }
}

/* --- carrying out a plan --- */

static void run_segment(const stage *from, stage *to, const segment_walk *s, const cat_chunk *chunk,
                        size_t item)
{
    const catalogue *c = &from->t.cat;
    const cat_chunk *source = catalogue_chunk(c, s->src_chunk);
    uint64_t sizes[NDIM_MAX], strides[NDIM_MAX];
    catalogue_chunk_box(c, s->src_chunk, NULL, sizes);
    box_row_major_strides(sizes, s->ndim, strides);
    for (uint64_t i = 0; i < s->nelems; i++) {
        uint64_t rest = i, src = 0, dst = s->dst_first;
        for (unsigned d = s->ndim; d-- > 0;) {
            const uint64_t at = rest % s->sizes[d];
            src += (s->src_offsets[d] + at) * strides[d];
            dst += at * s->dst_strides[d];
            rest /= s->sizes[d];
        }
        must((src + 1) * item <= source->nbytes && (dst + 1) * item <= chunk->nbytes,
             "a segment reaches out of a chunk");
        memcpy(to->files[chunk->file] + chunk->offset_bytes + dst * item,
               from->files[source->file] + source->offset_bytes + src * item, item);
    }
}

static void run_part(const plan *p, const stage *from, stage *to, const range_part *part)
{
    const cat_chunk *chunk = catalogue_chunk(&to->t.cat, part->chunk);
    const cat_tensor *t = catalogue_tensor(&to->t.cat, chunk->tensor);
    segment_walk s;
    uint64_t nelems = 0;
    must(part->kind == RANGE_PART_CHUNK, "a literal out of nowhere");
    segment_walk_begin(&s, p, part->chunk, part->first_elem, part->end_elem);
    while (segment_walk_next(&s)) {
        run_segment(from, to, &s, chunk, dtype_get((dtype)t->dtype)->itemsize_bytes);
        nelems += s.nelems;
    }
    must(nelems == part->end_elem - part->first_elem, "segments do not fill their part once");
}

/* Every rank makes the plan again: its hash is equal, and differs for other options. */
static void check_hash(const stage *from, const stage *to, const plan *p, budget *b)
{
    const plan_options first = {.tile_nbytes = 4096, .replicas = REPLICAS_FIRST};
    const plan_options compare = {.tile_nbytes = 4096, .replicas = REPLICAS_COMPARE};
    plan *again, *other;
    plan_totals sums, others;
    must(plan_new(&from->t.cat, &to->t, &first, b, &again, NULL) == FSDPCK_OK &&
             plan_new(&from->t.cat, &to->t, &compare, b, &other, NULL) == FSDPCK_OK,
         "a plan cannot be made twice");
    plan_get_totals(p, &sums);
    plan_get_totals(other, &others);
    must(plan_hash(p) == plan_hash(again), "a plan has two hashes");
    must(plan_hash(p) != plan_hash(other), "two plans have one hash");
    must((others.read_amplification > sums.read_amplification) ==
             (others.replicas > 0 && others.source_bytes > 0),
         "replicas are compared for nothing");
    for (uint64_t k = 0; k < catalogue_chunk_count(&to->t.cat); k++)
        if (catalogue_chunk(&to->t.cat, k)->place == LOCATION_ROWS)
            must(!plan_has_alias(p, k), "a chunk has the place of another");
    plan_free(other);
    plan_free(again);
}

/* A target with a chunk that reaches into the next is refused. */
static void check_overlap(const stage *from, stage *to, budget *b)
{
    const plan_options o = {.tile_nbytes = 4096, .replicas = REPLICAS_FIRST};
    for (uint64_t k = 0; k < catalogue_chunk_count(&to->t.cat); k++) {
        cat_chunk *chunk = catalogue_chunk(&to->t.cat, k);
        const cat_chunk was = *chunk;
        fsdpck_error err;
        plan *p = NULL;
        if (chunk->place != LOCATION_ROWS)
            continue;
        fsdpck_error_init(&err);
        chunk->offset_bytes = catalogue_file(&to->t.cat, chunk->file)->nbytes;
        must(plan_new(&from->t.cat, &to->t, &o, b, &p, &err) == FSDPCK_INTERNAL,
             "a chunk past the end of its file is planned");
        chunk->offset_bytes = was.offset_bytes > 0 ? was.offset_bytes - 1 : 1;
        if (plan_new(&from->t.cat, &to->t, &o, b, &p, &err) == FSDPCK_OK)
            plan_free(p);
        else
            must(err.status == FSDPCK_INTERNAL, "a chunk at another place is refused otherwise");
        *chunk = was;
    }
}

/* False where the plan is refused. */
static bool reshard(const stage *from, stage *to, budget *b)
{
    const plan_options o = {.tile_nbytes = 4096, .replicas = REPLICAS_FIRST};
    plan *p;
    if (plan_new(&from->t.cat, &to->t, &o, b, &p, NULL) != FSDPCK_OK)
        return false;
    check_hash(from, to, p, b);
    check_overlap(from, to, b);
    for (uint64_t i = 0; i < plan_item_count(p); i++) {
        output_range range;
        range_walk w;
        range_part part;
        plan_get_item(p, i, &range);
        range_walk_begin(&w, p, &range);
        while (range_walk_next(&w, &part))
            run_part(p, from, to, &part);
    }
    plan_free(p);
    return true;
}

/* --- cutting --- */

static bool consume_mesh(reader *r, mesh *m)
{
    *m = (mesh){.ndim = 1 + take(r, 3)};
    for (unsigned i = 0; i < m->ndim; i++) {
        m->sizes[i] = 1 + take(r, 7);
        m->names[i][0] = (char)('a' + i);
    }
    return mesh_check(m, NULL) == FSDPCK_OK && mesh_size(m) <= RANKS_MAX;
}

/* Chunks of one tensor for all ranks; whole where the placements say nothing that can be. */
static void cut_tensor(reader *r, stage *s, uint32_t tensor, const mesh *m)
{
    const cat_tensor *t = catalogue_tensor(&s->t.cat, tensor);
    const unsigned ndim = t->ndim;
    uint64_t shape[NDIM_MAX], coord[MESH_NDIM_MAX], offsets[NDIM_MAX] = {0}, sizes[NDIM_MAX];
    placement p[MESH_NDIM_MAX] = {0};
    memcpy(shape, catalogue_shape(&s->t.cat, tensor), ndim * sizeof *shape);
    for (unsigned i = 0; i < m->ndim; i++) {
        p[i].kind = (uint8_t)take(r, 3);
        p[i].dim = (uint8_t)take(r, ndim + 1);
        p[i].split_factor = 1 + take(r, 8);
        if (p[i].dim >= ndim)
            p[i].kind = PLACEMENT_REPLICATE;
    }
    const bool twice = take(r, 2) == 1; /* replicas too */
    for (uint64_t rank = 0; rank < mesh_size(m); rank++) {
        mesh_coord(m, rank, coord);
        if (shard_box(m, p, ndim, shape, coord, SHARD_PHYSICAL, offsets, sizes, NULL) !=
            FSDPCK_OK) {
            must(rank == 0, "some ranks have a piece and others do not");
            memset(offsets, 0, sizeof offsets);
            add_chunk(s, tensor, offsets, shape, 0);
            return;
        }
        if (twice || shard_is_first_holder(m, p, coord))
            add_chunk(s, tensor, offsets, sizes, (uint32_t)rank);
    }
}

static bool make_placements(reader *r, stage *s, const catalogue *like, budget *b)
{
    mesh m;
    stage_init(s, b, 1 + take(r, FILES_MAX));
    copy_tensors(s, like);
    const bool fits = consume_mesh(r, &m);
    for (uint32_t i = 0; fits && i < catalogue_tensor_count(like); i++)
        cut_tensor(r, s, i, &m);
    if (fits)
        place_chunks(s, take(r, 70));
    return fits;
}

/* A copy of a stage without one chunk; whether an element is lost by that. */
static bool remove_part(const stage *from, stage *to, uint64_t missing, budget *b)
{
    const catalogue *c = &from->t.cat;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], o[NDIM_MAX], z[NDIM_MAX];
    const cat_chunk *gone = catalogue_chunk(c, missing);
    const unsigned ndim = catalogue_tensor(c, gone->tensor)->ndim;
    bool lost = gone->place != LOCATION_EMPTY;
    stage_init(to, b, from->file_count);
    copy_tensors(to, c);
    catalogue_chunk_box(c, missing, offsets, sizes);
    for (uint64_t k = 0; k < catalogue_chunk_count(c); k++) {
        const cat_chunk *chunk = catalogue_chunk(c, k);
        if (k == missing)
            continue;
        catalogue_chunk_box(c, k, o, z);
        add_chunk(to, chunk->tensor, o, z, chunk->file);
        if (chunk->tensor == gone->tensor && box_equal(o, z, offsets, sizes, ndim))
            lost = false;
    }
    place_chunks(to, 0);
    return lost;
}

static void make_tensors(reader *r, stage *whole, budget *b)
{
    static const dtype types[] = {DTYPE_UINT8, DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_COMPLEX128};
    const unsigned count = 1 + take(r, TENSORS_MAX);
    stage_init(whole, b, 1);
    for (unsigned i = 0; i < count; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        const dtype d = types[take(r, 4)];
        const unsigned ndim = take(r, 5);
        uint64_t shape[4], offsets[4] = {0};
        for (unsigned k = 0; k < ndim; k++)
            shape[k] = take(r, ndim < 3 ? 30 : 6);
        must(ndim == 0 || box_nelems(shape, ndim) <= NELEMS_MAX, "too large");
        add_tensor(whole, name, d, ndim, shape);
        add_chunk(whole, i, offsets, shape, 0);
    }
    place_chunks(whole, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    reader r = {data, nbytes};
    budget b;
    stage whole, first = {0}, second = {0}, last, holed;
    budget_init(&b, 1u << 26, "metadata", NULL);
    make_tensors(&r, &whole, &b);
    const catalogue *c = &whole.t.cat;
    if (make_placements(&r, &first, c, &b) && make_placements(&r, &second, c, &b)) {
        for (uint64_t k = 0; k < catalogue_chunk_count(&first.t.cat); k++)
            visit_chunk(&first, k, true);
        must(reshard(&first, &second, &b), "the first plan is refused");
        for (uint64_t k = 0; k < catalogue_chunk_count(&second.t.cat); k++)
            visit_chunk(&second, k, false);
        stage_init(&last, &b, 1);
        copy_tensors(&last, c);
        for (uint32_t i = 0; i < catalogue_tensor_count(c); i++) {
            static const uint64_t zeros[NDIM_MAX];
            add_chunk(&last, i, zeros, catalogue_shape(c, i), 0);
        }
        place_chunks(&last, 0);
        must(reshard(&second, &last, &b), "the second plan is refused");
        for (uint64_t k = 0; k < catalogue_chunk_count(&last.t.cat); k++)
            visit_chunk(&last, k, false);
        const uint64_t chunks = catalogue_chunk_count(&first.t.cat);
        const bool lost = remove_part(&first, &holed, take(&r, 255) % chunks, &b);
        must(reshard(&holed, &last, &b) == !lost,
             "a missing chunk goes unnoticed, or does not matter");
        stage_release(&holed);
        stage_release(&last);
    }
    stage_release(&first);
    if (second.file_count > 0)
        stage_release(&second);
    stage_release(&whole);
    must(b.used_bytes == 0, "memory kept");
    return 0;
}
