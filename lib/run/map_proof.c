#include "run/map_proof.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "open/checkpoint.h"
#include "plan/coverage.h"

typedef struct map_proof {
    fsdpck_checkpoint *base;     /* the folder */
    fsdpck_checkpoint *imported; /* of base; owns it */
    fsdpck_checkpoint *again;    /* the export of imported; owns it */
    map_proof_result *found;
} map_proof;

static fsdpck_status fail_proof(const char *name, const char *found, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, MAP_PROOF,
                     ("import by the map, then export, does not give '%s' back", name),
                     (tensor, name), (expected, "the same tensor"), (found, "%s", found));
}

/* --- one chunk --- */

static fsdpck_status locate_chunk(const fsdpck_checkpoint *c, uint64_t chunk, uint64_t *offsets,
                                  uint64_t *sizes, place *where, fsdpck_error *err)
{
    RETURN_IF(c->src.locate(c->src.ctx, chunk, where, err));
    catalogue_chunk_box(&c->cat, chunk, offsets, sizes);
    if (where->rows)
        box_row_major_strides(
            sizes, catalogue_tensor(&c->cat, catalogue_chunk(&c->cat, chunk)->tensor)->ndim,
            where->strides);
    return FSDPCK_OK;
}

/* Whether import and export add to the elements of a chunk of the result. The sums must be zero. */
static bool is_rounded(const map_proof *x, uint64_t chunk)
{
    return map_adapter_added(x->again->mapper, chunk) != 0 ||
           map_adapter_added(x->imported->mapper, map_adapter_chunk(x->again->mapper, chunk)) != 0;
}

/* Whether a chunk of the result is a box of the chunk that it was made of, at its own place. */
static fsdpck_status compare_chunk(const map_proof *x, uint32_t tensor, uint64_t chunk, bool *same,
                                   fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(&x->base->cat, tensor);
    const uint64_t of =
        map_adapter_chunk(x->imported->mapper, map_adapter_chunk(x->again->mapper, chunk));
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], base_offsets[NDIM_MAX], base_sizes[NDIM_MAX];
    place a = {0}, b = {0};
    *same = catalogue_chunk(&x->base->cat, of)->tensor == tensor;
    if (!*same || catalogue_chunk(&x->base->cat, of)->place == LOCATION_EMPTY)
        return FSDPCK_OK;
    RETURN_IF(locate_chunk(x->again, chunk, offsets, sizes, &a, err));
    RETURN_IF(locate_chunk(x->base, of, base_offsets, base_sizes, &b, err));
    uint64_t at = b.offset_bytes;
    for (unsigned d = 0; d < t->ndim; d++) {
        uint64_t step;
        *same = *same && offsets[d] >= base_offsets[d] &&
                offsets[d] + sizes[d] <= base_offsets[d] + base_sizes[d] &&
                (sizes[d] == 1 || a.strides[d] == b.strides[d]) &&
                checked_mul(b.strides[d], dtype_get((dtype)t->dtype)->itemsize_bytes, &step) &&
                checked_mul_add(offsets[d] - base_offsets[d], step, at, &at);
    }
    *same = *same && a.file == b.file && a.offset_bytes == at && a.stream == b.stream &&
            a.swap == b.swap && a.conj == b.conj && a.neg == b.neg && a.add == b.add;
    return FSDPCK_OK;
}

/* --- one tensor --- */

static fsdpck_status compare_tensor(map_proof *x, const map_input *in, fsdpck_error *err)
{
    const catalogue *again = &x->again->cat;
    const uint32_t made = catalogue_find(again, in->name, in->nbytes);
    if (made == CAT_NONE)
        return fail_proof(in->name, "no tensor of this name", err);
    const cat_tensor *a = catalogue_tensor(again, made),
                     *b = catalogue_tensor(&x->base->cat, in->tensor);
    if (a->dtype != b->dtype)
        return fail_proof(in->name, "another dtype", err);
    if (!shape_equal(catalogue_shape(again, made), a->ndim,
                     catalogue_shape(&x->base->cat, in->tensor), b->ndim))
        return fail_proof(in->name, "another shape", err);
    bool rounded = false;
    for (uint64_t k = a->first_chunk; k < a->first_chunk + a->nchunks; k++) {
        bool same;
        RETURN_IF(compare_chunk(x, in->tensor, k, &same, err));
        if (!same)
            return fail_proof(in->name, "elements in another order, or of another tensor", err);
        rounded = rounded || is_rounded(x, k);
    }
    struct coverage_report report;
    x->found->tensors++;
    x->found->rounded += rounded;
    RETURN_IF(coverage_check(again, made, &x->again->metadata, &report, err));
    return coverage_is_complete(&report) ? FSDPCK_OK : coverage_error(again, made, &report, err);
}

/* Whether the map ignores the tensor on import. */
static bool is_ignored(const map_proof *x, const map_input *in)
{
    const catalogue *c = &x->imported->cat;
    const uint32_t id = strtab_find(&c->names, in->name, in->nbytes);
    for (size_t i = 0; id != STRTAB_NONE && i < c->passed_over.count; i++) {
        const cat_skipped *s = VEC_AT(&c->passed_over, const cat_skipped, i);
        if (s->name == id && !s->is_object)
            return true;
    }
    return false;
}

/* Tied tensors that import added come back as well. */
static fsdpck_status compare_all(map_proof *x, const map_inputs *l, fsdpck_error *err)
{
    const size_t count = x->again->parts.tensor_count;
    size_t tied;
    map_adapter_tied(x->imported->mapper, &tied);
    for (size_t i = 0; i < l->inputs.count; i++) {
        const map_input *in = VEC_AT(&l->inputs, const map_input, i);
        if (is_ignored(x, in))
            continue;
        RETURN_IF(compare_tensor(x, in, err));
    }
    if (count > x->found->tensors + tied)
        return FAIL(err, BADINPUT, MAP_PROOF,
                    "import by the map, then export, gives %zu tensor%s instead of %" PRIu64, count,
                    text_plural(count), x->found->tensors);
    return FSDPCK_OK;
}

/* --- both directions --- */

static fsdpck_status open_both(fsdpck_context *ctx, const char *path, const fsdpck_open_options *o,
                               map_proof *x, fsdpck_error *err)
{
    fsdpck_open_options there = *o, back = *o;
    there.map_import = 1;
    there.like = NULL;
    RETURN_IF(fsdpck_open(ctx, path, &there, &x->imported, err));
    x->base = x->imported->base;
    if (!checkpoint_check_model(x->imported, &x->found->model))
        error_path(&x->found->model, path);
    back.map_import = 0;
    back.like = x->base;
    return checkpoint_map(x->imported, &back, &x->again, err);
}

fsdpck_status map_prove(const char *path, const fsdpck_open_options *o, map_proof_result *found,
                        fsdpck_error *err)
{
    map_proof x = {.found = found};
    map_inputs l;
    fsdpck_context *ctx = fsdpck_context_new();
    *found = (map_proof_result){0};
    if (ctx == NULL)
        return error_set_nomem(err, 1);
    fsdpck_status st = open_both(ctx, path, o, &x, err);
    if (st == FSDPCK_OK) {
        st = map_inputs_list(x.base, &l, err);
        if (st == FSDPCK_OK)
            st = compare_all(&x, &l, err);
        map_inputs_release(&l);
    }
    if (st != FSDPCK_OK)
        error_path(err, path);
    fsdpck_close(x.again != NULL ? x.again : x.imported);
    fsdpck_context_free(ctx);
    return st;
}
