/* load.c: fsdpck_load: a run whose output is memory of the caller. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/struct_copy.h"
#include "open/memory_box.h"
#include "run/average_inputs_check.h"
#include "run/digest_run.h"
#include "run/load_internal.h"
#include "run/load_places.h"
#include "run/lost_values.h"
#include "run/manifest_files.h"
#include "run/run.h"

/* Where elements of an entry begin in the output. */
#define ENTRY_ALIGN 64u

/* An entry, and the selected tensor with its name. */
typedef struct entry {
    fsdpck_load_tensor t;
    uint32_t tensor;
    size_t number; /* of the caller's array */
    const uint64_t *shape;
    dtype dtype;
} entry;

typedef struct load {
    run run;
    entry *entries; /* by tensor, then by number */
    size_t count;
    load_places places;
} load;

/* ---- checks of an entry ---- */

static fsdpck_status bad(const entry *e, fsdpck_error *err, const char *message)
{
    return FAIL_WITH(err, USAGE, NONE, ("%s", message), (tensor, e->t.name));
}

static fsdpck_status choose_dtype(const catalogue *selected, entry *e, fsdpck_error *err)
{
    e->dtype = (dtype)catalogue_tensor(selected, e->tensor)->dtype;
    if (e->t.dtype == NULL)
        return FSDPCK_OK;
    const dtype wanted = dtype_from_name(e->t.dtype, strlen(e->t.dtype));
    if (wanted == DTYPE_NONE)
        return FAIL_WITH(err, USAGE, NONE, ("unknown dtype '%.40s'", e->t.dtype),
                         (tensor, e->t.name));
    e->dtype = wanted;
    return FSDPCK_OK;
}

static fsdpck_status check_entry(const catalogue *selected, entry *e, fsdpck_error *err)
{
    uint64_t nbytes;
    if (e->t.name == NULL)
        return FAIL(err, USAGE, NONE, "entry %zu of fsdpck_load has no name", e->number);
    e->tensor = catalogue_find(selected, e->t.name, strlen(e->t.name));
    if (e->tensor == CAT_NONE)
        return FAIL_WITH(
            err, USAGE, NONE, ("the selection has no tensor of this name"), (tensor, e->t.name),
            (found, "%zu tensors", catalogue_tensor_count(selected)),
            (next, "names are those of a consolidated safetensors file with the same selection"));
    RETURN_IF(choose_dtype(selected, e, err));
    e->shape = catalogue_shape(selected, e->tensor);
    return memory_box_check(&e->t, catalogue_tensor(selected, e->tensor)->ndim, e->shape, e->dtype,
                            &nbytes, err);
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    ORDER_BY(x->tensor, y->tensor);
    ORDER_BY(x->number, y->number);
    return 0;
}

static fsdpck_status take_entries(load *l, const fsdpck_load_tensor *tensors, size_t count,
                                  fsdpck_error *err)
{
    const char *at = (const char *)tensors; /* the caller's structs may be shorter or longer */
    l->entries = calloc(count + 1, sizeof *l->entries);
    if (l->entries == NULL)
        return error_set_nomem(err, count * sizeof *l->entries);
    for (l->count = 0; l->count < count; l->count++) {
        entry *e = &l->entries[l->count];
        e->number = l->count;
        RETURN_IF(STRUCT_COPY_IN(&e->t, (const fsdpck_load_tensor *)at, fsdpck_load_tensor, err));
        at += tensors->struct_nbytes;
        RETURN_IF(check_entry(&l->run.to.cat, e, err));
    }
    qsort(l->entries, count, sizeof *l->entries, compare_entries);
    return FSDPCK_OK;
}

/* ---- the target ---- */

static fsdpck_status add_tensor(const load *l, target *to, const entry *e, uint32_t *tensor,
                                fsdpck_error *err)
{
    RETURN_IF(catalogue_add_tensor(&to->cat, e->t.name, strlen(e->t.name), e->dtype,
                                   (unsigned)e->t.ndim, e->shape, tensor, err));
    return vec_add(&to->from, VEC_AT(&l->run.to.from, const uint32_t, e->tensor), err);
}

static fsdpck_status add_box(load *l, target *to, const entry *e, uint32_t tensor, uint64_t *at,
                             fsdpck_error *err)
{
    const uint64_t itemsize = dtype_get(e->dtype)->itemsize_bytes;
    const uint64_t nbytes = box_nelems(e->t.sizes, (unsigned)e->t.ndim) * itemsize;
    const cat_chunk proto = {
        .offset_bytes = *at, .nbytes = nbytes, .rank = 0, .place = LOCATION_ROWS};
    uint64_t end;
    if (!checked_add(*at, nbytes, &end) || end > INT64_MAX - ENTRY_ALIGN)
        return FAIL(err, LIMIT, LIMIT_COUNT, "total size of the tensors is too large");
    RETURN_IF(catalogue_add_chunk(&to->cat, tensor, e->t.offsets, e->t.sizes, &proto, err));
    RETURN_IF(load_places_add(&l->places, &e->t, *at, nbytes, itemsize, err));
    *at = (end + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
    return FSDPCK_OK;
}

/* One tensor for all entries with its name, with a chunk for each. */
static fsdpck_status build_target(load *l, target *to, fsdpck_error *err)
{
    uint64_t at = 0;
    uint32_t tensor = 0, index;
    for (size_t i = 0; i < l->count; i++) {
        const entry *e = &l->entries[i];
        const bool again = i > 0 && e[-1].tensor == e->tensor;
        if (again && e[-1].dtype != e->dtype)
            return bad(e, err, "two entries of one tensor have different dtypes");
        if (!again)
            RETURN_IF(add_tensor(l, to, e, &tensor, err));
        RETURN_IF(add_box(l, to, e, tensor, &at, err));
    }
    to->world_size = 1;
    RETURN_IF(catalogue_add_file(&to->cat, "", 0, at, CAT_NONE, &index, err));
    return catalogue_seal(&to->cat, err);
}

/* ---- the run ---- */

static fsdpck_status prepare(load *l, const fsdpck_load_tensor *tensors, size_t count,
                             fsdpck_error *err)
{
    run *r = &l->run;
    target to;
    r->writer = &digest_writer;
    r->opt.output.direct = FSDPCK_OFF;
    RETURN_IF(run_check_engine(r, err));
    RETURN_IF(run_select(r, err));
    RETURN_IF(take_entries(l, tensors, count, err));
    RETURN_IF(manifest_files_check_lost(r, err));
    target_init(&to, &r->src->metadata);
    const fsdpck_status st = build_target(l, &to, err);
    if (st != FSDPCK_OK) {
        target_release(&to);
        return st;
    }
    target_release(&r->to);
    r->to = to;
    RETURN_IF(checkpoint_check_flat(r->src, &r->to.cat, err));
    if (r->opt.select.part != (int)FSDPCK_PART_OPTIMIZER) {
        RETURN_IF(checkpoint_check_lost(r->src, true, err));
        RETURN_IF(checkpoint_check_sizes(r->src, err));
    }
    return run_make_plan(r, err);
}

static fsdpck_status run_load(load *l, const fsdpck_load_tensor *tensors, size_t count,
                              fsdpck_error *err)
{
    run *r = &l->run;
    if (r->ctx->group != NULL)
        return FAIL(err, USAGE, NONE,
                    "fsdpck_load does not work in a group: detach the context first");
    RETURN_IF(prepare(l, tensors, count, err));
    RETURN_IF(average_inputs_check(r, err));
    RETURN_IF(lost_values_check(r, err));
    RETURN_IF(run_resolve(r, err));
    RETURN_IF(exec_assign_work(r->exec, true, FSDPCK_OK, err));
    output_in_memory(&r->out, &(output_memory){load_places_write, load_places_read, &l->places});
    return exec_run(r->exec, &r->out, err);
}

fsdpck_status load_with_gpu(fsdpck_context *ctx, fsdpck_checkpoint *ckpt,
                            const fsdpck_load_tensor *tensors, size_t count,
                            const fsdpck_load_options *options, gpu *g, fsdpck_error *err)
{
    fsdpck_load_options given = FSDPCK_INIT(fsdpck_load_options);
    run_options o;
    RETURN_IF(STRUCT_COPY_IN(&given, options, fsdpck_load_options, err));
    RETURN_IF(run_options_of_load(&o, &given, err));
    load l = {0};
    device_copy *copy = NULL;
    run_init(&l.run, ctx, ckpt, &o);
    l.run.dst = "";
    load_places_init(&l.places, &ckpt->metadata);
    fsdpck_status st = FSDPCK_OK;
    if (g != NULL)
        st = device_copy_new(g, thread_count(o.work.threads), &copy, err);
    l.places.copy = copy;
    if (st == FSDPCK_OK)
        st = run_load(&l, tensors, count, err);
    progress_phase(&ctx->progress, NULL, 0);
    run_release(&l.run);
    device_copy_free(copy);
    load_places_release(&l.places);
    free(l.entries);
    return st;
}

fsdpck_status fsdpck_load(fsdpck_context *ctx, fsdpck_checkpoint *ckpt,
                          const fsdpck_load_tensor *tensors, size_t count,
                          const fsdpck_load_options *options, fsdpck_error *err)
{
    fsdpck_load_options given = FSDPCK_INIT(fsdpck_load_options);
    gpu *g = NULL;
    RETURN_IF(STRUCT_COPY_IN(&given, options, fsdpck_load_options, err));
    if (given.memory == FSDPCK_MEMORY_GPU)
        RETURN_IF(exec_open_gpu_at(given.device, &g, err));
    const fsdpck_status st = load_with_gpu(ctx, ckpt, tensors, count, options, g, err);
    exec_close_gpu(g);
    return st;
}
