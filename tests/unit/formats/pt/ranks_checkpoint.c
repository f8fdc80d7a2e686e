#include "ranks_checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "layout/mesh_text.h"

static void count_warning(void *ctx, const log_line *line)
{
    if (line->level == LOG_WARNING)
        ++*(unsigned *)ctx;
}

static fsdpck_status look(probe_input *in, const char *path, fsdpck_error *err)
{
    *in = (probe_input){.path = path, .is_folder = true, .dir = FOLDER_CLOSED};
    RETURN_IF(folder_open(&in->dir, path, err));
    return folder_list(&in->dir, ".", &in->entries, &in->entry_count, err);
}

bool ranks_checkpoint_probes(const char *path)
{
    probe_input in;
    const char *near_miss = NULL;
    const bool taken = look(&in, path, NULL) == FSDPCK_OK && pt_ranks_reader.probe(&in, &near_miss);
    free(in.entries);
    folder_close(&in.dir);
    return taken;
}

fsdpck_status ranks_checkpoint_open(ranks_checkpoint *o, const char *path, fsdpck_error *err)
{
    budget_init(&o->owner, (uint64_t)128 << 20, "metadata", NULL);
    catalogue_init(&o->cat, &o->owner);
    RETURN_IF(look(&o->probe, path, err));
    const per_rank_rule rule = {.policy = o->per_rank};
    const open_request req = {.path = path,
                              .probe = &o->probe,
                              .metadata = &o->owner,
                              .log = {.fn = count_warning, .ctx = &o->warnings},
                              .nthreads = 1,
                              .expect_ranks = o->expect_ranks,
                              .rank_pattern = o->rank_pattern,
                              .copies = per_rank_copies(&rule),
                              .assume_tp_first = o->assume_tp_first};
    const fsdpck_status st = pt_ranks_reader.open(&req, &o->cat, &o->self, err);
    if (st == FSDPCK_OK)
        pt_ranks_reader.source(o->self, &o->cat, &o->src);
    return st;
}

void ranks_checkpoint_close(ranks_checkpoint *o)
{
    if (o->self != NULL)
        pt_ranks_reader.close(o->self);
    catalogue_release(&o->cat);
    free(o->probe.entries);
    folder_close(&o->probe.dir);
}

/* One chunk's elements into the whole tensor; `seen` tells which are there. */
static fsdpck_status store_chunk(ranks_checkpoint *o, uint64_t chunk, uint8_t *whole, uint8_t *seen,
                                 fsdpck_error *err)
{
    const cat_chunk *k = catalogue_chunk(&o->cat, chunk);
    const cat_tensor *t = catalogue_tensor(&o->cat, k->tensor);
    const uint64_t *shape = catalogue_shape(&o->cat, k->tensor);
    const size_t itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX], at[NDIM_MAX] = {0};
    place where;

    RETURN_IF(o->src.locate(o->src.ctx, chunk, &where, err));
    catalogue_chunk_box(&o->cat, chunk, offsets, sizes);
    box_row_major_strides(shape, t->ndim, strides);
    for (uint64_t left = box_nelems(sizes, t->ndim); left > 0; left--) {
        uint64_t from = 0, to = 0;
        uint8_t element[16];
        for (unsigned d = 0; d < t->ndim; d++) {
            from += at[d] * where.strides[d];
            to += (offsets[d] + at[d]) * strides[d];
        }
        RETURN_IF(o->src.read_at(o->src.ctx, where.file, where.offset_bytes + from * itemsize,
                                 element, itemsize, err));
        if (seen[to] && memcmp(whole + to * itemsize, element, itemsize) != 0)
            return error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_REPLICA_DIFFER,
                             "two chunks disagree");
        memcpy(whole + to * itemsize, element, itemsize);
        seen[to] = 1;
        for (unsigned d = t->ndim; d-- > 0 && ++at[d] == sizes[d];)
            at[d] = 0;
    }
    return FSDPCK_OK;
}

fsdpck_status ranks_digest(ranks_checkpoint *o, uint32_t tensor, char text[RANKS_DIGEST_BYTES],
                           fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&o->cat, tensor);
    const uint64_t *shape = catalogue_shape(&o->cat, tensor);
    const uint64_t nelems = catalogue_tensor_nelems(&o->cat, tensor);
    const uint64_t nbytes = catalogue_tensor_nbytes(&o->cat, tensor);
    uint8_t *whole = calloc(nbytes + 1, 1), *seen = calloc(nelems + 1, 1);
    char label[512];
    int n = snprintf(label, sizeof label, "%s[", dtype_get((dtype)t->dtype)->name);
    fsdpck_status st = FSDPCK_OK;

    for (uint64_t k = 0; st == FSDPCK_OK && k < t->nchunks; k++)
        if (catalogue_chunk(&o->cat, t->first_chunk + k)->place != LOCATION_EMPTY)
            st = store_chunk(o, t->first_chunk + k, whole, seen, err);
    for (uint64_t i = 0; st == FSDPCK_OK && i < nelems; i++)
        if (!seen[i])
            st = error_set(err, FSDPCK_BADINPUT, FSDPCK_FINDING_CHUNK_GAP,
                           "element %" PRIu64 " is missing", i);
    for (unsigned d = 0; d < t->ndim; d++)
        n +=
            snprintf(label + n, sizeof label - (size_t)n, "%s%" PRIu64, d > 0 ? "," : "", shape[d]);
    n += snprintf(label + n, sizeof label - (size_t)n, "]\n");
    uint64_t crc = crc64_update(0, label, (uint64_t)n);
    crc = crc64_update(crc, whole, nbytes);
    label[n - 1] = '\0';
    snprintf(text, RANKS_DIGEST_BYTES, "%016" PRIx64 "  %s  %s", crc, label,
             catalogue_name(&o->cat, t->name));
    free(whole);
    free(seen);
    return st;
}

uint32_t ranks_tensor_named(const ranks_checkpoint *o, const char *name)
{
    return catalogue_find(&o->cat, name, strlen(name));
}

size_t ranks_object_count_named(const ranks_checkpoint *o, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < catalogue_object_count(&o->cat); i++)
        n += strcmp(catalogue_name(&o->cat, catalogue_object(&o->cat, i)->name), name) == 0;
    return n;
}

const cat_object *ranks_object_named(const ranks_checkpoint *o, const char *name)
{
    for (size_t i = 0; i < catalogue_object_count(&o->cat); i++)
        if (strcmp(catalogue_name(&o->cat, catalogue_object(&o->cat, i)->name), name) == 0)
            return catalogue_object(&o->cat, i);
    return NULL;
}

const char *ranks_spec_text(const ranks_checkpoint *o, const char *tensor, char text[256])
{
    text_buf b = {0};
    const uint32_t index = ranks_tensor_named(o, tensor);
    const cat_spec *spec = index == CAT_NONE ? NULL : catalogue_spec(&o->cat, index);
    text[0] = '\0';
    if (spec == NULL)
        return text;
    const mesh *m = catalogue_mesh(&o->cat, spec->mesh);
    mesh_print(m, &b);
    text_puts(&b, " ");
    placements_print(spec->placements, m->ndim, &b);
    for (unsigned i = 0; i < m->ndim; i++)
        if (spec->absent_dims >> i & 1u)
            text_printf(&b, " - %s", m->names[i]);
    snprintf(text, 256, "%s", b.text);
    text_release(&b);
    return text;
}
