#include "tests/support/exec_harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "plan/plan.h"

#define MUST(condition)                                                                   \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: seed %" PRIu64 ": %s\n", __FILE__, __LINE__, w->seed, \
                    #condition);                                                          \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

exec_harness *exec_harness_new(uint32_t nfiles_in, uint32_t nfiles_out)
{
    exec_harness *w = calloc(1, sizeof *w);
    if (w == NULL)
        abort();
    budget_init(&w->metadata, 1u << 30, "metadata", NULL);
    memory_source_init(&w->source, nfiles_in, &w->metadata);
    target_init(&w->to, &w->metadata);
    w->nfiles = nfiles_out;
    for (uint32_t i = 0; i < nfiles_out; i++) {
        char name[16];
        uint32_t index;
        const int n = snprintf(name, sizeof name, "out%u", i);
        MUST(catalogue_add_file(&w->to.cat, name, (size_t)n, 0, CAT_NONE, &index, NULL) ==
             FSDPCK_OK);
    }
    return w;
}

uint32_t exec_harness_add_target(exec_harness *w, uint32_t source_tensor, const char *name,
                                 dtype type)
{
    uint32_t tensor;
    const cat_tensor *s = catalogue_tensor(&w->source.cat, source_tensor);
    MUST(catalogue_add_tensor(&w->to.cat, name, strlen(name), type, s->ndim,
                              catalogue_shape(&w->source.cat, source_tensor), &tensor,
                              NULL) == FSDPCK_OK);
    uint32_t *entry = vec_push(&w->to.from, NULL);
    MUST(entry != NULL);
    *entry = source_tensor;
    return tensor;
}

void exec_harness_add_chunk(exec_harness *w, uint32_t tensor, uint32_t file_index,
                            const uint64_t *offsets, const uint64_t *sizes)
{
    const cat_chunk proto = {.file = file_index, .place = LOCATION_ROWS};
    MUST(catalogue_add_chunk(&w->to.cat, tensor, offsets, sizes, &proto, NULL) == FSDPCK_OK);
}

void exec_harness_add_whole(exec_harness *w, uint32_t source_tensor, uint32_t file_index,
                            dtype type)
{
    static const uint64_t zeros[NDIM_MAX];
    const cat_tensor *s = catalogue_tensor(&w->source.cat, source_tensor);
    const uint32_t tensor =
        exec_harness_add_target(w, source_tensor, catalogue_name(&w->source.cat, s->name), type);
    exec_harness_add_chunk(w, tensor, file_index, zeros,
                           catalogue_shape(&w->source.cat, source_tensor));
}

static uint64_t chunk_nbytes(const catalogue *c, uint64_t chunk)
{
    uint64_t sizes[NDIM_MAX];
    const cat_tensor *t = catalogue_tensor(c, catalogue_chunk(c, chunk)->tensor);
    catalogue_chunk_box(c, chunk, NULL, sizes);
    return box_nelems(sizes, t->ndim) * dtype_get((dtype)t->dtype)->itemsize_bytes;
}

void exec_harness_place(exec_harness *w, uint64_t gap_nbytes)
{
    catalogue *c = &w->to.cat;
    for (uint64_t k = 0; k < catalogue_chunk_count(c); k++) {
        cat_chunk *chunk = catalogue_chunk(c, k);
        if (chunk->place == LOCATION_EMPTY)
            continue;
        cat_file *f = catalogue_file(c, chunk->file);
        chunk->offset_bytes = f->nbytes + gap_nbytes;
        chunk->nbytes = chunk_nbytes(c, k);
        f->nbytes = chunk->offset_bytes + chunk->nbytes;
    }
}

static void expect_chunk(exec_harness *w, uint64_t chunk)
{
    const catalogue *c = &w->to.cat;
    const cat_chunk *k = catalogue_chunk(c, chunk);
    const cat_tensor *t = catalogue_tensor(c, k->tensor);
    const uint32_t from = *VEC_AT(&w->to.from, uint32_t, k->tensor);
    const cat_tensor *s = catalogue_tensor(&w->source.cat, from);
    const char *name = catalogue_name(&w->source.cat, s->name);
    const unsigned itemsize = dtype_get((dtype)t->dtype)->itemsize_bytes;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], strides[NDIM_MAX];
    catalogue_chunk_box(c, chunk, offsets, sizes);
    box_row_major_strides(catalogue_shape(c, k->tensor), t->ndim, strides);
    for (uint64_t flat = 0; flat < box_nelems(sizes, t->ndim); flat++) {
        uint64_t rest = flat;
        uint64_t global = 0;
        uint8_t bytes[18] = {0};
        for (unsigned d = t->ndim; d-- > 0;) {
            global += (offsets[d] + rest % sizes[d]) * strides[d];
            rest /= sizes[d];
        }
        memory_element(name, (dtype)s->dtype, global, bytes + 2);
        /* bfloat16 is the upper half of a float32. */
        memcpy(w->image[k->file] + k->offset_bytes + flat * itemsize,
               s->dtype != t->dtype ? bytes : bytes + 2, itemsize);
    }
}

static void make_deferred(const target *t, size_t index, uint32_t crc32, uint8_t *dst)
{
    for (uint32_t i = 0; i < VEC_AT(&t->lates, const target_deferred, index)->nbytes; i++)
        dst[i] = (uint8_t)((crc32 >> i % 4 * 8) + i + index);
}

void exec_harness_add_deferred(exec_harness *w, uint32_t file_index, uint64_t offset_bytes,
                               uint32_t nbytes, uint64_t target_chunk)
{
    target_deferred *late = vec_push(&w->to.lates, NULL);
    MUST(late != NULL);
    *late = (target_deferred){
        .offset_bytes = offset_bytes, .chunk = target_chunk, .file = file_index, .nbytes = nbytes};
    w->to.make_deferred = make_deferred;
    w->to.want_crc = true;
}

static void expect_deferred(exec_harness *w)
{
    for (size_t i = 0; i < w->to.lates.count; i++) {
        const target_deferred *l = VEC_AT(&w->to.lates, target_deferred, i);
        const cat_chunk *k = catalogue_chunk(&w->to.cat, l->chunk);
        make_deferred(&w->to, i, crc32_update(0, w->image[k->file] + k->offset_bytes, k->nbytes),
                      w->image[l->file] + l->offset_bytes);
    }
}

void exec_harness_expect(exec_harness *w)
{
    for (uint32_t i = 0; i < w->nfiles; i++) {
        w->image[i] = calloc(1, catalogue_file(&w->to.cat, i)->nbytes + 1);
        MUST(w->image[i] != NULL);
    }
    for (size_t i = 0; i < w->to.literals.count; i++) {
        const target_constant *l = VEC_AT(&w->to.literals, target_constant, i);
        memcpy(w->image[l->file] + l->offset_bytes, w->to.text.text + l->text_at, l->nbytes);
    }
    for (uint64_t k = 0; k < catalogue_chunk_count(&w->to.cat); k++)
        if (catalogue_chunk(&w->to.cat, k)->place != LOCATION_EMPTY)
            expect_chunk(w, k);
    expect_deferred(w);
}

/* The raw CRC-64 of a tensor that is zeros but for this chunk's elements. */
static uint64_t expected_digest(const exec_harness *w, uint64_t k)
{
    const catalogue *cat = &w->to.cat;
    const cat_chunk *c = catalogue_chunk(cat, k);
    const cat_tensor *t = catalogue_tensor(cat, c->tensor);
    const uint64_t *shape = catalogue_shape(cat, c->tensor);
    const uint64_t item = dtype_get((dtype)t->dtype)->itemsize_bytes;
    const uint64_t nbytes = catalogue_tensor_nbytes(cat, c->tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], at[NDIM_MAX] = {0};
    uint8_t *whole = calloc(1, nbytes + 1);
    MUST(whole != NULL);
    catalogue_chunk_box(cat, k, offsets, sizes);
    for (uint64_t n = 0; n < c->nbytes; n += item) {
        uint64_t number = 0;
        for (unsigned d = 0; d < t->ndim; d++)
            number = number * shape[d] + offsets[d] + at[d];
        memcpy(whole + number * item, w->image[c->file] + c->offset_bytes + n, item);
        for (unsigned d = t->ndim; d-- > 0 && ++at[d] == sizes[d];)
            at[d] = 0;
    }
    const uint64_t crc = crc64_update(0, whole, nbytes) ^ crc64_zeros(nbytes);
    free(whole);
    return crc;
}

static void check_sums(const exec_harness *w)
{
    for (uint32_t i = 0; w->to.want_file_crc && i < w->nfiles; i++)
        MUST(target_file_crc(&w->to, i) ==
             crc64_update(0, w->image[i], catalogue_file(&w->to.cat, i)->nbytes));
    for (uint64_t k = 0; k < catalogue_chunk_count(&w->to.cat); k++)
        if (catalogue_chunk(&w->to.cat, k)->place != LOCATION_EMPTY)
            MUST(w->to.chunk_digest[k] == expected_digest(w, k));
}

static void check_output(const exec_harness *w, const char *path)
{
    for (uint32_t i = 0; i < w->nfiles; i++) {
        char name[128];
        char *text;
        size_t nbytes;
        (void)snprintf(name, sizeof name, "%s/out%u", path, i);
        MUST(file_read_whole(NULL, name, 1u << 30, &text, &nbytes, NULL) == FSDPCK_OK);
        MUST(nbytes == catalogue_file(&w->to.cat, i)->nbytes);
        for (size_t at = 0; at < nbytes; at++) {
            if ((uint8_t)text[at] == w->image[i][at])
                continue;
            fprintf(stderr, "seed %" PRIu64 ": file %u differs at byte %zu of %zu\n", w->seed, i,
                    at, nbytes);
            abort();
        }
        free(text);
        MUST(unlink(name) == 0);
    }
    MUST(rmdir(path) == 0);
    for (uint64_t k = 0; w->to.want_crc && k < catalogue_chunk_count(&w->to.cat); k++) {
        const cat_chunk *c = catalogue_chunk(&w->to.cat, k);
        if (c->place != LOCATION_EMPTY)
            MUST(w->to.chunk_crc[k] ==
                 crc32_update(0, w->image[c->file] + c->offset_bytes, c->nbytes));
    }
}

/* The same run with nothing written: digests of the chunks alone. */
static void check_digests(exec_harness *w, exec_request r)
{
    struct exec *x;
    const bool want_crc = w->to.want_crc;
    fsdpck_error err;
    if (w->to.lates.count > 0 || w->source.fail_read > 0)
        return;
    w->to.want_crc = false;
    w->to.want_file_crc = false;
    r.direct = EXEC_DIRECT_OFF;
    r.gpu_required = false; /* told to fail late, it may do so here */
    MUST(exec_resolve(&r, &x, &err) == FSDPCK_OK);
    MUST(exec_run(x, NULL, &err) == FSDPCK_OK);
    exec_free(x);
    check_sums(w);
    w->to.want_file_crc = true;
    w->to.want_crc = want_crc;
}

static fsdpck_status write_output(exec_harness *w, const exec_request *r, const char *path,
                                  fsdpck_error *err)
{
    struct exec *x;
    output out;
    w->to.want_digest = true;
    w->to.want_file_crc = true;
    RETURN_IF(exec_resolve(r, &x, err));
    fsdpck_status st = output_begin(&out, path, OUTPUT_FOLDER, OUTPUT_NO_SYNC, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < w->nfiles; i++) {
        char name[16];
        size_t index;
        (void)snprintf(name, sizeof name, "out%u", i);
        st = output_add(&out, name, catalogue_file(&w->to.cat, i)->nbytes,
                        r->direct != EXEC_DIRECT_OFF, &index, err);
        w->direct = st == FSDPCK_OK && output_is_direct(&out, index);
    }
    if (st == FSDPCK_OK)
        st = exec_run(x, &out, err);
    if (st == FSDPCK_OK)
        st = output_commit(&out, err);
    output_release(&out);
    exec_get_stats(x, &w->sums);
    exec_free(x);
    return st;
}

static exec_request make_request(exec_harness *w, const exec_harness_options *o, const plan *p)
{
    return (exec_request){.plan = p,
                          .source = &w->source.src,
                          .target = &w->to,
                          .nthreads = o->nthreads,
                          .memory_nbytes =
                              o->memory_nbytes > 0 ? o->memory_nbytes : EXEC_MEMORY_NBYTES_MIN,
                          .direct = o->direct,
                          .group = o->group,
                          .source_folder = o->source_folder,
                          .cancel = o->cancel,
                          .gpu = o->gpu,
                          .gpu_required = o->gpu_required,
                          .log = o->log,
                          .metadata = &w->metadata};
}

static fsdpck_status digest_all(exec_harness *w, const exec_request *r, fsdpck_error *err)
{
    struct exec *x = NULL;
    fsdpck_status st = group_agree(r->group, exec_resolve(r, &x, err), err);
    if (st == FSDPCK_OK)
        st = exec_assign_work(x, true, FSDPCK_OK, err);
    if (st == FSDPCK_OK)
        st = exec_run(x, NULL, err);
    if (st == FSDPCK_OK)
        exec_get_stats(x, &w->sums);
    exec_free(x);
    return st;
}

fsdpck_status exec_harness_digest(exec_harness *w, const exec_harness_options *o, fsdpck_error *err)
{
    plan *p;
    const plan_options opt = {.tile_nbytes = o->tile_nbytes, .replicas = o->replicas};
    RETURN_IF(plan_new(&w->source.cat, &w->to, &opt, &w->metadata, &p, err));
    const exec_request r = make_request(w, o, p);
    w->to.want_digest = true;
    const fsdpck_status st = digest_all(w, &r, err);
    if (st == FSDPCK_OK)
        check_sums(w);
    plan_free(p);
    return st;
}

fsdpck_status exec_harness_run(exec_harness *w, const exec_harness_options *o, fsdpck_error *err)
{
    char scratch[] = "/tmp/exec_harness.XXXXXX";
    char path[64];
    plan *p;
    const uint64_t used = w->metadata.used_bytes;
    const plan_options opt = {.tile_nbytes = o->tile_nbytes, .replicas = o->replicas};
    RETURN_IF(plan_new(&w->source.cat, &w->to, &opt, &w->metadata, &p, err));
    const exec_request r = make_request(w, o, p);
    MUST(mkdtemp(scratch) != NULL);
    (void)snprintf(path, sizeof path, "%s/out", scratch);
    const fsdpck_status st = write_output(w, &r, path, err);
    if (st == FSDPCK_OK)
        check_sums(w);
    if (st == FSDPCK_OK)
        check_digests(w, r);
    plan_free(p);
    MUST(w->metadata.used_bytes == used);
    if (st == FSDPCK_OK) {
        check_output(w, path);
        MUST(w->sums.workers > 0 && w->sums.buffer_nbytes <= r.memory_nbytes);
    }
    MUST(rmdir(scratch) == 0);
    return st;
}

void exec_harness_free(exec_harness *w)
{
    for (uint32_t i = 0; i < w->nfiles; i++)
        free(w->image[i]);
    target_release(&w->to);
    memory_source_release(&w->source);
    MUST(w->metadata.used_bytes == 0);
    free(w);
}
