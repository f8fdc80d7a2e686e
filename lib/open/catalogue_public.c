#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/struct_copy.h"
#include "open/checkpoint.h"
#include "open/step_manifest.h"
#include "open/trainer_name.h"
#include "statedict/unflatten.h"

static int64_t recorded_world_size(const fsdpck_checkpoint *c)
{
    step_manifest m;
    while (c->base != NULL)
        c = c->base;
    return step_manifest_read(&c->probe, &m) ? m.world_size : -1;
}

void fsdpck_get_info(const fsdpck_checkpoint *c, fsdpck_info *info)
{
    fsdpck_info all = {.struct_nbytes = sizeof all};
    const cat_origin *o = &c->cat.origin;
    all.path = c->path;
    all.entered = c->entered;
    all.format = c->format->name;
    all.format_id = c->format->id;
    all.trainer = checkpoint_trainer(c);
    all.torch_version = o->torch_version;
    all.note = o->note;
    all.model_key = c->parts.model_key;
    all.part_rule = c->parts.rule;
    all.step = o->step;
    all.step_source = o->step < 0           ? ""
                      : o->step_is_recorded ? "state in the files"
                                            : "name of the folder";
    all.world_size = o->world_size;
    all.mesh = c->mesh == NULL ? "" : c->mesh;
    all.sharded_otherwise = c->sharded_otherwise;
    all.order_suspect = o->order_suspect;
    all.boxes_suspect = o->boxes_suspect;
    all.flat_parameters = flat_params_count(&c->cat, NULL);
    all.model_path = c->model_path == NULL ? "" : c->model_path;
    all.map = c->map_name == NULL ? "" : c->map_name;
    all.map_variables = c->map_variables.text == NULL ? "" : c->map_variables.text;
    all.map_chosen_for = c->map_chosen_for;
    all.dequantized = c->dequantized;
    all.map_import = c->map_forward != NULL;
    const fsdpck_checkpoint *merged = checkpoint_merged(c);
    if (merged != NULL)
        all.merged = &merged->merged;
    size_t tied = 0;
    all.map_tied = c->mapper == NULL ? "" : map_adapter_tied(c->mapper, &tied);
    all.map_not_made = c->map_forward == NULL ? "" : map_dropped_names(c->map_forward);
    all.has_adapter = c->extract != NULL;
    all.adapter = c->lora_name == NULL ? "" : c->lora_name;
    all.adapter_config = c->lora_origin == NULL ? "" : c->lora_origin;
    all.left_out = o->left_out;
    all.left_out_kinds = o->left_out_kinds;
    all.objects = catalogue_object_count(&c->cat);
    all.files = catalogue_file_count(&c->cat);
    for (size_t i = 0; i < all.files; i++)
        all.file_nbytes += catalogue_file(&c->cat, i)->nbytes;
    all.chunks = catalogue_chunk_count(&c->cat);
    all.tensors = c->parts.tensor_count;
    for (size_t i = 0; i < c->parts.tensor_count; i++) {
        const unsigned part = c->parts.tensor_part[i];
        const uint64_t nbytes = catalogue_tensor_nbytes(&c->cat, i);
        all.nelems += catalogue_tensor_nelems(&c->cat, i);
        all.nbytes += nbytes;
        all.part_tensors[part]++;
        all.part_nelems[part] += catalogue_tensor_nelems(&c->cat, i);
        all.part_nbytes[part] += nbytes;
    }
    for (size_t i = 0; i < c->parts.object_count; i++)
        all.part_objects[c->parts.object_part[i]]++;
    all.recorded_world_size = recorded_world_size(c);
    struct_copy_out(info, &all, sizeof all);
}

void fsdpck_get_tensor(const fsdpck_checkpoint *c, uint64_t index, fsdpck_tensor *t)
{
    if (index >= c->parts.tensor_count) {
        struct_clear(t);
        return;
    }
    const cat_tensor *from = catalogue_tensor(&c->cat, index);
    const dtype_info *d = dtype_get((dtype)from->dtype);
    fsdpck_tensor all = {.struct_nbytes = sizeof all};
    all.name = catalogue_name(&c->cat, from->name);
    all.name_nbytes = catalogue_name_nbytes(&c->cat, from->name);
    all.dtype = d->name;
    all.itemsize_nbytes = d->itemsize_bytes;
    all.ndim = from->ndim;
    all.shape = catalogue_shape(&c->cat, index);
    all.nelems = catalogue_tensor_nelems(&c->cat, index);
    all.nbytes = catalogue_tensor_nbytes(&c->cat, index);
    all.first_chunk = from->first_chunk;
    all.nchunks = from->nchunks;
    all.part = (fsdpck_part)c->parts.tensor_part[index];
    all.alias = from->alias == CAT_NONE ? -1 : (int64_t)from->alias;
    struct_copy_out(t, &all, sizeof all);
}

static void fill_chunk(const fsdpck_checkpoint *c, uint64_t index, fsdpck_chunk *out)
{
    const cat_chunk *k = catalogue_chunk(&c->cat, index);
    out->rank = k->rank == UINT16_MAX ? -1 : k->rank;
    out->file = k->place != LOCATION_EMPTY
                    ? catalogue_name(&c->cat, catalogue_file(&c->cat, k->file)->path)
                    : NULL;
    out->offset_nbytes = k->offset_bytes;
    out->nbytes = k->nbytes;
    catalogue_chunk_box(&c->cat, index, out->offsets, out->sizes);
}

void fsdpck_get_chunk(const fsdpck_checkpoint *c, uint64_t index, fsdpck_chunk *out)
{
    if (index >= catalogue_chunk_count(&c->cat)) {
        struct_clear(out);
        return;
    }
    if (out->struct_nbytes == sizeof *out) {
        fill_chunk(c, index, out); /* a kilobyte is not copied a million times */
        return;
    }
    fsdpck_chunk all = {.struct_nbytes = sizeof all};
    fill_chunk(c, index, &all);
    struct_copy_out(out, &all, sizeof all);
}

void fsdpck_get_object(const fsdpck_checkpoint *c, uint64_t index, fsdpck_object *o)
{
    if (index >= c->parts.object_count) {
        struct_clear(o);
        return;
    }
    const cat_object *from = catalogue_object(&c->cat, index);
    fsdpck_object all = {.struct_nbytes = sizeof all};
    all.name = catalogue_name(&c->cat, from->name);
    all.name_nbytes = catalogue_name_nbytes(&c->cat, from->name);
    all.part = (fsdpck_part)c->parts.object_part[index];
    all.nbytes = from->nbytes;
    all.rank = from->rank == UINT16_MAX ? -1 : from->rank;
    struct_copy_out(o, &all, sizeof all);
}

fsdpck_status fsdpck_print_object(fsdpck_checkpoint *c, uint64_t index, size_t limit_nbytes,
                                  char **text, fsdpck_error *err)
{
    *text = NULL;
    if (index >= c->parts.object_count)
        return FAIL(err, USAGE, NONE, "checkpoint has no object %" PRIu64, index);
    if (!catalogue_object(&c->cat, index)->loaded)
        RETURN_IF(checkpoint_load_object(c, (uint32_t)index, err));
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

/* Summary of a tensor's chunks. Distinct offsets along each dim are counted for chunks with
 * elements; empty chunks are at the end of `empty_dim`. */
typedef struct grid {
    uint64_t counts[NDIM_MAX];
    unsigned ndim;
    uint64_t full, empty; /* chunks */
    unsigned empty_dim;   /* NDIM_MAX: none, or not clear */
} grid;

static void print_grid(const grid *g, const uint64_t *counts, text_buf *out)
{
    unsigned cut = 0;
    for (unsigned d = 0; d < g->ndim; d++)
        if (counts[d] > 1)
            text_printf(out, "%sShard(%u)", cut++ == 0 ? "" : ", ", d);
    cut = 0;
    for (unsigned d = 0; d < g->ndim; d++)
        if (counts[d] > 1)
            text_printf(out, "%s%llu", cut++ == 0 ? " on " : "x", (unsigned long long)counts[d]);
}

static void print_copies(uint64_t copies, text_buf *out)
{
    if (copies > 1)
        text_printf(out, ", %llu copies", (unsigned long long)copies);
}

/* The number of ranks, if the tensor has too few rows for all of them: those without a row stored no chunk. 0: not
 * known, or each rank has a chunk. */
static uint64_t ranks_with_empty(const fsdpck_checkpoint *c, const uint64_t *shape, const grid *g,
                                 uint64_t pieces)
{
    const uint64_t ranks = c->cat.origin.world_size > 0 ? (uint64_t)c->cat.origin.world_size : 0;
    const bool is_one_dim =
        c->mesh != NULL && strchr(c->mesh, '=') != NULL && strchr(c->mesh, ',') == NULL;
    unsigned dim = 0;
    if (!is_one_dim || g->empty > 0 || g->full != pieces || pieces >= ranks || pieces < 2)
        return 0;
    while (g->counts[dim] == 1)
        dim++;
    const uint64_t n = shape[dim], rows = (n + ranks - 1) / ranks;
    return g->counts[dim] == pieces && (n + rows - 1) / rows == pieces ? ranks : 0;
}

static void describe_grid(const fsdpck_checkpoint *c, const uint64_t *shape, const grid *g,
                          text_buf *out)
{
    uint64_t pieces = 1, counts[NDIM_MAX];
    for (unsigned d = 0; d < g->ndim; d++) {
        counts[d] = g->counts[d];
        pieces *= counts[d];
    }
    const uint64_t n = g->full + g->empty;
    const uint64_t copies = g->full > 0 && g->full % pieces == 0 ? g->full / pieces : 0;
    if (g->empty == 0 && pieces == 1) {
        text_printf(out, "whole, %llu copies", (unsigned long long)n);
        return;
    }
    const uint64_t ranks = ranks_with_empty(c, shape, g, pieces);
    const bool placed = g->empty_dim != NDIM_MAX;
    const uint64_t across = placed ? pieces / counts[g->empty_dim] : 1;
    if (copies == 0 || n % (copies * across) != 0 || (g->empty > 0 && !placed)) {
        print_grid(g, counts, out);
        text_printf(out, "%sirregular: %llu chunks", out->nbytes > 0 ? ", " : "",
                    (unsigned long long)n);
        return;
    }
    if (g->empty > 0)
        counts[g->empty_dim] = n / (copies * across);
    print_grid(g, counts, out);
    if (g->empty > 0)
        text_printf(out, " (%llu shard%s, %llu empty)", (unsigned long long)pieces,
                    pieces == 1 ? "" : "s", (unsigned long long)(g->empty / copies));
    if (ranks > 0)
        text_printf(out, " of %" PRIu64 " ranks", ranks);
    print_copies(copies, out);
}

/* The dim on which a box is empty; NDIM_MAX if there are several. */
static unsigned empty_dim_of(const uint64_t *sizes, unsigned ndim)
{
    unsigned dim = NDIM_MAX;
    for (unsigned d = 0; d < ndim; d++) {
        if (sizes[d] == 0 && dim != NDIM_MAX)
            return NDIM_MAX;
        if (sizes[d] == 0)
            dim = d;
    }
    return dim;
}

/* offsets: room for the offsets of all chunks, then one value per chunk. */
static void make_grid(const catalogue *cat, const cat_tensor *t, uint64_t *offsets, grid *g)
{
    const unsigned ndim = t->ndim;
    uint64_t *scratch = offsets + (uint64_t)t->nchunks * ndim;
    bool any = false;
    *g = (grid){.ndim = ndim, .empty_dim = NDIM_MAX};
    for (uint64_t i = 0; i < t->nchunks; i++) {
        uint64_t sizes[NDIM_MAX];
        catalogue_chunk_box(cat, t->first_chunk + i, offsets + g->full * ndim, sizes);
        if (box_nelems(sizes, ndim) > 0) {
            g->full++;
            continue;
        }
        const unsigned dim = empty_dim_of(sizes, ndim);
        g->empty_dim = any && dim != g->empty_dim ? NDIM_MAX : dim;
        any = true;
        g->empty++;
    }
    for (unsigned d = 0; d < ndim; d++)
        g->counts[d] = distinct_offsets(offsets, g->full, ndim, d, scratch);
}

static void describe(const fsdpck_checkpoint *c, uint64_t tensor, text_buf *out)
{
    const cat_tensor *t = catalogue_tensor(&c->cat, tensor);
    const size_t n = t->nchunks;
    if (n == 0) {
        text_puts(out, "no chunks");
        return;
    }
    if (n == 1) {
        uint64_t sizes[NDIM_MAX];
        catalogue_chunk_box(&c->cat, t->first_chunk, NULL, sizes);
        const bool whole = box_nelems(sizes, t->ndim) == catalogue_tensor_nelems(&c->cat, tensor);
        text_puts(out, whole ? "whole" : "partial: 1 chunk");
        return;
    }
    if (catalogue_tensor_nelems(&c->cat, tensor) == 0) {
        text_printf(out, "no elements, %zu chunks", n);
        return;
    }
    /* These are storage chunks, not shards of ranks. */
    if (c->cat.origin.world_size == 1) {
        text_printf(out, "%zu chunks", n);
        return;
    }
    uint64_t *offsets = malloc(n * (t->ndim + 1u) * sizeof *offsets);
    if (offsets == NULL)
        return;
    grid g;
    make_grid(&c->cat, t, offsets, &g);
    describe_grid(c, catalogue_shape(&c->cat, tensor), &g, out);
    free(offsets);
}

void fsdpck_describe_chunks(const fsdpck_checkpoint *c, uint64_t tensor, char *text,
                            size_t capacity_nbytes)
{
    text_buf out = {0};
    if (tensor < c->parts.tensor_count)
        describe(c, tensor, &out);
    if (capacity_nbytes > 0) {
        const size_t n = out.nbytes < capacity_nbytes - 1 ? out.nbytes : capacity_nbytes - 1;
        if (n > 0)
            memcpy(text, out.text, n);
        text[n] = '\0';
    }
    text_release(&out);
}
