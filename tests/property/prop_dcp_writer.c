/* Targets drawn at random through the DCP writer: every byte of every file is given exactly once,
 * the same target gives the same bytes, and the DCP reader finds every tensor, box and object. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/dcp_target.h"
#include "tests/support/scratch.h"

enum { ROUNDS = 60 };

static uint64_t draw_state;

static uint64_t draw(uint64_t below)
{
    draw_state += 0x9E3779B97F4A7C15u;
    uint64_t z = draw_state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

static void fail(uint64_t seed, const fsdpck_error *err)
{
    fprintf(stderr, "seed %llu: %s %s (%s), expected %s, found %s\n", (unsigned long long)seed,
            fsdpck_finding_name(err->finding), err->message, err->tensor, err->expected,
            err->found);
    abort();
}

static void draw_tensor(dcp_target *d, const mesh *m, unsigned number)
{
    uint64_t shape[4];
    placement p[MESH_NDIM_MAX] = {{0}};
    char name[64];
    const unsigned ndim = (unsigned)draw(4);
    for (unsigned i = 0; i < ndim; i++)
        shape[i] = draw(9);
    for (unsigned i = 0; i < m->ndim; i++)
        if (ndim > 0 && draw(3) > 0)
            p[i] = (placement){.kind = PLACEMENT_SHARD, .dim = (uint8_t)draw(ndim)};
    snprintf(name, sizeof name, "model.%u.%s", number, draw(2) ? "weight" : "w\xC3\xA9ight");
    const uint32_t tensor = dcp_target_add(d, name, (dtype)(1 + draw(DTYPE_COUNT - 1)), ndim, shape,
                                           draw(4) == 0 ? NULL : p);
    if (draw(2) == 0) {
        const value path[] = {dcp_target_str(d, "model"), dcp_target_int(d, number),
                              dcp_target_str(d, strrchr(name, '.') + 1)};
        catalogue_tensor(&d->to.cat, tensor)->path = dcp_target_path(d, path, 3);
    }
}

static void draw_object(dcp_target *d, unsigned number)
{
    char name[64];
    value items[3];
    size_t count = 0;
    snprintf(name, sizeof name, "optim.%u", number);
    items[count++] = dcp_target_int(d, (int64_t)draw(3));
    if (draw(2) == 0)
        items[count++] = dcp_target_str(d, "adamw");
    if (draw(3) == 0) {
        const uint64_t shape[] = {draw(5), 2};
        char inner[80];
        snprintf(inner, sizeof inner, "%s/0", name);
        items[count++] = value_of_tensor(dcp_target_add_inner(d, inner, DTYPE_BFLOAT16, 2, shape));
    }
    const uint32_t object = dcp_target_add_object(d, name, dcp_target_path(d, items, count));
    if (draw(3) == 0 && count == 1) {
        assert(value_new_bytes(&d->to.cat.pool, name, draw(9),
                               &catalogue_object(&d->to.cat, object)->content, NULL) == FSDPCK_OK);
        catalogue_object(&d->to.cat, object)->opaque = 1;
    }
}

/* Makes the target of a seed and saves it. */
static void save(dcp_target *d, uint64_t seed, const char *dir)
{
    draw_state = seed;
    mesh m = {.ndim = 1 + (unsigned)draw(3)};
    for (unsigned i = 0; i < m.ndim; i++)
        m.sizes[i] = 1 + draw(4);
    dcp_target_begin(d, &m);
    const unsigned tensors = (unsigned)draw(8), objects = (unsigned)draw(5);
    for (unsigned i = 0; i < tensors; i++)
        draw_tensor(d, &m, i);
    for (unsigned i = 0; i < objects; i++)
        draw_object(d, i);
    const uint64_t alignments[] = {0, 0, 64, 4096, 70001};
    const writer_options opt = {.align_nbytes = alignments[draw(5)]};
    if (dcp_target_lay_out(d, &opt) != FSDPCK_OK)
        fail(seed, &d->err);
    for (uint64_t k = 0; k < catalogue_chunk_count(&d->to.cat) && opt.align_nbytes > 0; k++) {
        const cat_chunk *c = catalogue_chunk(&d->to.cat, k);
        const cat_tensor *t = catalogue_tensor(&d->to.cat, c->tensor);
        assert(c->place == LOCATION_EMPTY || (t->flags & CAT_TENSOR_IN_OBJECT) ||
               c->offset_bytes % opt.align_nbytes == 0);
    }
    dcp_target_save(d, dir);
}

static void same_files(const dcp_target *d, const char *const dirs[2])
{
    for (size_t i = 0; i < catalogue_file_count(&d->to.cat); i++) {
        const char *name = catalogue_name(&d->to.cat, catalogue_file(&d->to.cat, i)->path);
        char path[SCRATCH_BYTES], *bytes[2];
        size_t nbytes[2];
        for (int k = 0; k < 2; k++) {
            scratch_path(path, dirs[k], name);
            assert(file_read_whole(NULL, path, 1u << 28, &bytes[k], &nbytes[k], NULL) == FSDPCK_OK);
        }
        assert(nbytes[0] == nbytes[1] && memcmp(bytes[0], bytes[1], nbytes[0]) == 0);
        free(bytes[0]);
        free(bytes[1]);
    }
}

static void compare_tensor(const dcp_target *d, uint32_t made, catalogue *cat, source *src,
                           uint64_t seed)
{
    const cat_tensor *t = catalogue_tensor(&d->to.cat, made);
    const char *name = catalogue_name(&d->to.cat, t->name);
    const uint32_t found = catalogue_find(cat, name, strlen(name));
    uint64_t offsets[2][NDIM_MAX], sizes[2][NDIM_MAX];
    uint8_t bytes[2][16];
    fsdpck_error err;
    assert(found != CAT_NONE && catalogue_tensor(cat, found)->nchunks == t->nchunks);
    const size_t item = dtype_get((dtype)t->dtype)->itemsize_bytes;
    for (uint64_t k = 0; k < t->nchunks; k++) {
        const uint64_t chunk = catalogue_tensor(cat, found)->first_chunk + k;
        place where;
        catalogue_chunk_box(&d->to.cat, t->first_chunk + k, offsets[0], sizes[0]);
        catalogue_chunk_box(cat, chunk, offsets[1], sizes[1]);
        assert(box_equal(offsets[0], sizes[0], offsets[1], sizes[1], t->ndim));
        if (box_nelems(sizes[0], t->ndim) == 0)
            continue;
        if (src->locate(src->ctx, chunk, &where, &err) != FSDPCK_OK)
            fail(seed, &err);
        assert(where.rows);
        /* The last element: its place depends on all sizes. */
        uint64_t flat = 0, stride = 1;
        for (unsigned i = t->ndim; i-- > 0;) {
            flat += (offsets[0][i] + sizes[0][i] - 1) * stride;
            stride *= catalogue_shape(&d->to.cat, made)[i];
        }
        dcp_target_element(d, made, flat, bytes[0]);
        if (src->read_at(src->ctx, where.file,
                         where.offset_bytes + (box_nelems(sizes[0], t->ndim) - 1) * item, bytes[1],
                         item, &err) != FSDPCK_OK)
            fail(seed, &err);
        assert(memcmp(bytes[0], bytes[1], item) == 0);
    }
}

static void compare_objects(const dcp_target *d, catalogue *cat, void *self, uint64_t seed)
{
    fsdpck_error err;
    assert(catalogue_object_count(cat) == catalogue_object_count(&d->to.cat));
    for (uint32_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *made = catalogue_object(&d->to.cat, i);
        if (dcp_reader.load_object(self, cat, i, &err) != FSDPCK_OK)
            fail(seed, &err);
        const cat_object *read = catalogue_object(cat, i);
        bool equal = false;
        value v = read->content;
        assert(read->opaque == made->opaque);
        /* Tensors have other numbers there. */
        const size_t last = value_count(&d->to.cat.pool, made->content) - 1;
        if (!made->opaque &&
            value_kind_of(value_item(&d->to.cat.pool, made->content, last)) == VALUE_TENSOR)
            assert(value_kind_of(value_item(&cat->pool, v, last)) == VALUE_TENSOR);
        else if (value_equal(&cat->pool, v, &d->to.cat.pool, made->content, &equal, &err) !=
                     FSDPCK_OK ||
                 !equal)
            fail(seed, &err);
    }
}

static void compare(const dcp_target *d, const char *dir, uint64_t seed)
{
    folder folder_of;
    char **names;
    size_t count;
    budget b;
    catalogue cat;
    source src;
    void *self;
    fsdpck_error err;
    fsdpck_error_init(&err);
    assert(folder_open(&folder_of, dir, NULL) == FSDPCK_OK);
    assert(folder_list(&folder_of, NULL, &names, &count, NULL) == FSDPCK_OK);
    const probe_input probe = {
        .path = dir, .is_folder = true, .dir = folder_of, .entries = names, .entry_count = count};
    budget_init(&b, UINT64_C(1) << 28, "metadata", NULL);
    catalogue_init(&cat, &b);
    const open_request req = {.path = dir, .probe = &probe, .metadata = &b, .nthreads = 2};
    if (dcp_reader.open(&req, &cat, &self, &err) != FSDPCK_OK)
        fail(seed, &err);
    dcp_reader.source(self, &cat, &src);
    for (uint32_t i = 0; i < catalogue_tensor_count(&d->to.cat); i++)
        if (!(catalogue_tensor(&d->to.cat, i)->flags & CAT_TENSOR_IN_OBJECT))
            compare_tensor(d, i, &cat, &src, seed);
    compare_objects(d, &cat, self, seed);
    dcp_reader.close(self);
    catalogue_release(&cat);
    assert(b.used_bytes == 0);
    free(names);
    folder_close(&folder_of);
}

static void round_of(uint64_t seed)
{
    char dirs[2][SCRATCH_BYTES];
    const char *const both[2] = {dirs[0], dirs[1]};
    dcp_target d[2];
    for (int k = 0; k < 2; k++) {
        scratch_make(dirs[k]);
        save(&d[k], seed, dirs[k]);
    }
    same_files(&d[0], both);
    compare(&d[0], dirs[0], seed);
    for (int k = 0; k < 2; k++) {
        dcp_target_end(&d[k]);
        scratch_remove(dirs[k]);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        round_of(strtoull(argv[1], NULL, 10));
        return 0;
    }
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        round_of(seed);
    return 0;
}
