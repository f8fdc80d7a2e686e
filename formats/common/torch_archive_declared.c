#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "formats/common/torch_archive_internal.h"

/* Views that repeat elements (stride 0) are legal; beyond this a few bytes would produce an
 * excessively large output. */
static const uint64_t EXPANDED_NBYTES_LIMIT = (uint64_t)64 << 30;

fsdpck_status torch_storage_nbytes(dtype d, uint64_t nelems, uint64_t *nbytes, fsdpck_error *err)
{
    if (checked_mul(nelems, dtype_get(d)->itemsize_bytes, nbytes) && *nbytes <= INT64_MAX)
        return FSDPCK_OK;
    return FAIL(err, BADINPUT, PT_STORAGE_SIZE, "storage of %" PRIu64 " elements is too large",
                nelems);
}

static fsdpck_status bounds_failed(const declared_tensor *c, const char *what, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, TENSOR_BOUNDS, ("%s", what),
                     (found, "%u dim%s, storage offset %" PRIu64 ", storage of %" PRIu64 " bytes",
                      c->ndim, text_plural(c->ndim), c->offset_nelems, c->storage_nbytes));
}

fsdpck_status declared_tensor_check(const declared_tensor *c, fsdpck_error *err)
{
    const uint64_t itemsize = dtype_get(c->dtype)->itemsize_bytes;
    uint64_t nelems, nbytes, end;
    uint64_t last = c->offset_nelems;

    if (!checked_product(c->sizes, c->ndim, &nelems) || !checked_mul(nelems, itemsize, &nbytes) ||
        nbytes > INT64_MAX)
        return bounds_failed(c, "shape of a tensor is too large", err);
    if (nelems == 0)
        return FSDPCK_OK;
    for (unsigned i = 0; i < c->ndim; i++)
        if (!checked_mul_add(c->sizes[i] - 1, c->strides[i], last, &last))
            return bounds_failed(c, "strides of a tensor reach past its storage", err);
    if (!checked_add(last, 1, &end) || !checked_mul(end, itemsize, &end) || end > c->storage_nbytes)
        return bounds_failed(c, "tensor reaches past its storage", err);
    if (nbytes > EXPANDED_NBYTES_LIMIT && nbytes / 1024 > c->storage_nbytes)
        return FAIL_WITH(
            err, LIMIT, PT_EXPAND, ("tensor repeats the elements of a tiny storage too often"),
            (expected, "at most %" PRIu64 " bytes", EXPANDED_NBYTES_LIMIT),
            (found, "%" PRIu64 " bytes from a storage of %" PRIu64, nbytes, c->storage_nbytes));
    return FSDPCK_OK;
}

void declared_tensor_locate(const declared_tensor *c, bool big_endian, place *where)
{
    uint64_t row_major[NDIM_MAX];
    const dtype_info *info = dtype_get(c->dtype);

    box_row_major_strides(c->sizes, c->ndim, row_major);
    where->rows = true;
    for (unsigned i = 0; i < c->ndim; i++) {
        where->strides[i] = c->strides[i];
        if (c->sizes[i] != 1 && c->strides[i] != row_major[i])
            where->rows = false;
    }
    where->swap = big_endian && info->swap_nbytes > 1;
    where->offset_bytes = where->record_offset_bytes + c->offset_nelems * info->itemsize_bytes;
    if (box_nelems(c->sizes, c->ndim) == 0)
        where->offset_bytes = where->record_offset_bytes;
    if (where->rows)
        memcpy(where->strides, row_major, c->ndim * sizeof(uint64_t));
}

fsdpck_status torch_byteorder_parse(const uint8_t *bytes, uint64_t nbytes, bool *big_endian,
                                    fsdpck_error *err)
{
    *big_endian = nbytes == 3 && memcmp(bytes, "big", 3) == 0;
    if (*big_endian || (nbytes == 6 && memcmp(bytes, "little", 6) == 0))
        return FSDPCK_OK;
    char shown[32];
    return FAIL_WITH(
        err, BADINPUT, PT_BYTEORDER, ("record 'byteorder' is invalid"),
        (expected, "'little' or 'big'"),
        (found, "'%s'",
         escape_text(shown, sizeof(shown), (const char *)bytes, nbytes < 16 ? nbytes : 16)));
}

/* torch.save writes "3\n"; torch.package and TorchScript up to 10. */
fsdpck_status torch_version_check(const uint8_t *bytes, uint64_t nbytes, fsdpck_error *err)
{
    unsigned version = 0;
    uint64_t i = 0;

    for (; i < nbytes && i < 2 && bytes[i] >= '0' && bytes[i] <= '9'; i++)
        version = version * 10 + (unsigned)(bytes[i] - '0');
    if (i < nbytes && bytes[i] == '\n')
        i++;
    if (i == nbytes && version >= 1 && version <= 10)
        return FSDPCK_OK;
    char shown[32];
    return FAIL_WITH(
        err, BADINPUT, PT_VERSION, ("record 'version' contains an unknown version"),
        (expected, "1 to 10"),
        (found, "'%s'",
         escape_text(shown, sizeof(shown), (const char *)bytes, nbytes < 16 ? nbytes : 16)));
}

const uint64_t *torch_tensor_sizes(const torch_archive *a, const torch_tensor *t)
{
    return VEC_AT(&a->dims, const uint64_t, t->dims_at);
}

const uint64_t *torch_tensor_strides(const torch_archive *a, const torch_tensor *t)
{
    return VEC_AT(&a->dims, const uint64_t, t->dims_at + t->ndim);
}
