#include "open/rekey_candidates.h"

#include <stdlib.h>
#include <string.h>

/* torch's batch norm counts its batches beside them. */
static bool has_counter(const catalogue *c, const char *name, size_t module_nbytes)
{
    text_buf counter = {.limit_bytes = UINT32_MAX};
    text_append(&counter, name, module_nbytes);
    text_puts(&counter, "num_batches_tracked");
    const uint32_t k =
        counter.failed ? CAT_NONE : catalogue_find((catalogue *)c, counter.text, counter.nbytes);
    text_release(&counter);
    return k != CAT_NONE && catalogue_tensor(c, k)->ndim == 0 &&
           dtype_get((dtype)catalogue_tensor(c, k)->dtype)->kind != DTYPE_IS_FLOAT;
}

/* Whether a module has the buffers of torch's batch norm: running_mean and running_var, vectors of
 * one shape, and its counter. Names alone may be those of parameters. */
static bool is_norm_buffer(const catalogue *c, const cat_tensor *t)
{
    static const char *const buffers[] = {"running_mean", "running_var"};
    const char *name = catalogue_name(c, t->name);
    const size_t nbytes = catalogue_name_nbytes(c, t->name);
    bool found = false;
    for (size_t i = 0; !found && t->ndim == 1 && i < 2; i++) {
        const size_t n = strlen(buffers[i]);
        if (nbytes < n || memcmp(name + nbytes - n, buffers[i], n) != 0 ||
            (nbytes > n && name[nbytes - n - 1] != '.'))
            continue;
        text_buf other = {.limit_bytes = UINT32_MAX};
        text_append(&other, name, nbytes - n);
        text_puts(&other, buffers[1 - i]);
        const uint32_t k =
            other.failed ? CAT_NONE : catalogue_find((catalogue *)c, other.text, other.nbytes);
        text_release(&other);
        if (k == CAT_NONE || !has_counter(c, name, nbytes - n))
            return false;
        const cat_tensor *o = catalogue_tensor(c, k);
        found =
            o->ndim == 1 && o->dtype == t->dtype &&
            *catalogue_shape(c, k) == *catalogue_shape(c, (uint64_t)(t - catalogue_tensor(c, 0)));
    }
    return found;
}

/* Integer tensors get no gradients. */
static bool is_trainable(const catalogue *c, const cat_tensor *t)
{
    const unsigned kind = dtype_get((dtype)t->dtype)->kind;
    return !(t->flags & (CAT_TENSOR_STORAGE | CAT_TENSOR_OF_RANK)) &&
           (kind == DTYPE_IS_FLOAT || kind == DTYPE_IS_COMPLEX) && !is_norm_buffer(c, t);
}

static int compare_saved(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->outside != b->outside)
        return a->outside ? 1 : -1;
    ORDER_BY(a->saved_at, b->saved_at);
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static int compare_alias(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    ORDER_BY(a->alias, b->alias);
    ORDER_BY(a->offset_bytes, b->offset_bytes);
    return compare_saved(left, right);
}

/* Whether two tensors of one shape at one offset have the same strides: not one transposed. */
static fsdpck_status same_strides(const fsdpck_checkpoint *c, const cat_tensor *a,
                                  const cat_tensor *b, uint32_t tensor, bool *same,
                                  fsdpck_error *err)
{
    const uint64_t *shape = catalogue_shape(&c->cat, tensor);
    place x, y;
    RETURN_IF(c->src.locate(c->src.ctx, a->first_chunk, &x, err));
    RETURN_IF(c->src.locate(c->src.ctx, b->first_chunk, &y, err));
    *same = x.rows == y.rows;
    for (unsigned i = 0; *same && !x.rows && i < a->ndim; i++)
        *same = shape[i] < 2 || x.strides[i] == y.strides[i];
    return FSDPCK_OK;
}

/* Marks tensors with the same elements as an earlier one. */
static fsdpck_status find_ties(const fsdpck_checkpoint *from, candidate *all, size_t count,
                               fsdpck_error *err)
{
    const catalogue *c = &from->cat;
    if (count > 1)
        qsort(all, count, sizeof *all, compare_alias);
    for (size_t i = 1; i < count; i++) {
        const cat_tensor *t = catalogue_tensor(c, all[i].tensor);
        const cat_tensor *before = catalogue_tensor(c, all[i - 1].tensor);
        all[i].tied = all[i].alias != CAT_NONE && all[i].alias == all[i - 1].alias &&
                      all[i].offset_bytes == all[i - 1].offset_bytes && t->dtype == before->dtype &&
                      shape_equal(catalogue_shape(c, all[i].tensor), t->ndim,
                                  catalogue_shape(c, all[i - 1].tensor), before->ndim);
        if (all[i].tied)
            RETURN_IF(same_strides(from, t, before, all[i].tensor, &all[i].tied, err));
        all[i].tied_to = all[i - 1].tied ? all[i - 1].tied_to : all[i - 1].tensor;
    }
    if (count > 1)
        qsort(all, count, sizeof *all, compare_saved);
    return FSDPCK_OK;
}

fsdpck_status candidates_list(const fsdpck_checkpoint *c, const checkpoint_parts *parts, vec *all,
                              fsdpck_error *err)
{
    for (uint32_t i = 0; i < parts->tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&c->cat, i);
        if (parts->tensor_part[i] == PART_OPTIMIZER || !is_trainable(&c->cat, t))
            continue;
        candidate *made = vec_push(all, err);
        if (made == NULL)
            return FSDPCK_LIMIT;
        *made =
            (candidate){.saved_at = t->saved_at,
                        .tensor = i,
                        .alias = t->alias,
                        .outside = parts->tensor_part[i] != PART_MODEL || candidate_is_nameless(t)};
        if (t->alias == CAT_NONE || t->nchunks != 1 || catalogue_tensor_nelems(&c->cat, i) == 0) {
            made->alias = CAT_NONE;
            continue;
        }
        place where;
        RETURN_IF(c->src.locate(c->src.ctx, t->first_chunk, &where, err));
        made->offset_bytes = where.offset_bytes;
    }
    return find_ties(c, all->items, all->count, err);
}
