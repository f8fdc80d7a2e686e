#include "open/memory_box.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/status.h"
#include "state/box.h"

static const uint64_t zeros[NDIM_MAX];

static fsdpck_status bad(const fsdpck_load_tensor *t, fsdpck_error *err, const char *message)
{
    return FAIL_WITH(err, USAGE, NONE, ("%s", message), (tensor, t->name));
}

/* The whole tensor, or the caller's box inside of it. */
static fsdpck_status check_box(fsdpck_load_tensor *t, unsigned ndim, const uint64_t *shape,
                               fsdpck_error *err)
{
    if (t->sizes == NULL) {
        if (t->offsets != NULL || (t->ndim != 0 && t->ndim != ndim))
            return bad(t, err, "an entry with offsets or another number of dims requires sizes");
        t->ndim = ndim;
        t->sizes = shape;
    }
    if (t->offsets == NULL)
        t->offsets = zeros;
    if (t->ndim != ndim)
        return FAIL_WITH(err, USAGE, NONE, ("the box has another number of dims than the tensor"),
                         (tensor, t->name), (expected, "%u dims", ndim), (found, "%zu", t->ndim));
    for (unsigned d = 0; d < ndim; d++)
        if (t->offsets[d] > shape[d] || t->sizes[d] > shape[d] - t->offsets[d])
            return FAIL_WITH(err, USAGE, NONE, ("the box is not inside of the tensor"),
                             (tensor, t->name),
                             (expected, "at most %" PRIu64 " in dim %u", shape[d], d),
                             (found, "%" PRIu64 " + %" PRIu64, t->offsets[d], t->sizes[d]));
    return FSDPCK_OK;
}

static bool memory_span(const fsdpck_load_tensor *t, uint64_t itemsize, uint64_t *nbytes)
{
    uint64_t last = 0, part;
    for (size_t d = 0; d < t->ndim; d++)
        if (!checked_mul(t->sizes[d] - 1, t->strides[d], &part) || !checked_add(last, part, &last))
            return false;
    return checked_mul(last, itemsize, &last) && checked_add(last, itemsize, nbytes);
}

static fsdpck_status check_memory(const fsdpck_load_tensor *t, uint64_t itemsize, uint64_t *nbytes,
                                  fsdpck_error *err)
{
    *nbytes =
        box_nelems(t->sizes, (unsigned)t->ndim) * itemsize; /* at most the tensor's: 63 bits */
    if (*nbytes == 0)
        return FSDPCK_OK;
    if (t->strides != NULL && !memory_span(t, itemsize, nbytes))
        return bad(t, err, "the strides exceed 64 bits");
    if (t->memory == NULL)
        return bad(t, err, "an entry has no memory");
    if (t->memory_nbytes < *nbytes)
        return FAIL_WITH(err, USAGE, NONE, ("too little memory for the box"), (tensor, t->name),
                         (expected, "%" PRIu64 " bytes", *nbytes),
                         (found, "%" PRIu64, t->memory_nbytes));
    return FSDPCK_OK;
}

fsdpck_status memory_box_check(fsdpck_load_tensor *t, unsigned ndim, const uint64_t *shape,
                               dtype type, uint64_t *nbytes, fsdpck_error *err)
{
    RETURN_IF(check_box(t, ndim, shape, err));
    return check_memory(t, dtype_get(type)->itemsize_bytes, nbytes, err);
}
