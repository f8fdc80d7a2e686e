/* Any bytes as a file of torch.save, and as a blob of one tensor: what is accepted has every element inside of
 * its record, a flat key for every tensor, and the fast ways say what the long way says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pt/pt_flatten.h"
#include "formats/shared/torch_archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

typedef struct memory {
    const uint8_t *bytes;
    size_t nbytes;
} memory;

static fsdpck_status read_memory(void *ctx, uint64_t offset, void *dst, uint64_t nbytes, fsdpck_error *err)
{
    const memory *m = ctx;

    (void)err;
    if (!checked_range(offset, nbytes, m->nbytes))
        abort();
    if (nbytes > 0)
        memcpy(dst, m->bytes + offset, nbytes);
    return FSDPCK_OK;
}

static void check_place(const place *where, dtype d, unsigned ndim, const uint64_t *sizes, size_t nbytes)
{
    const uint64_t itemsize = dtype_get(d)->itemsize_bytes;
    uint64_t last = 0;

    if (where->offset_bytes < where->record_offset_bytes)
        abort();
    if (!where->stream && !checked_range(where->record_offset_bytes, where->record_nbytes, nbytes))
        abort();
    if (box_nelems(sizes, ndim) == 0)
        return;
    for (unsigned i = 0; i < ndim; i++)
        if (!checked_mul_add(sizes[i] - 1, where->strides[i], last, &last))
            abort();
    if (!checked_mul_add(last, itemsize, itemsize, &last) ||
        !checked_range(where->offset_bytes - where->record_offset_bytes, last, where->record_nbytes))
        abort();
}

static void check_tensors(const torch_archive *a, size_t nbytes)
{
    static const uint64_t none[1];

    for (size_t i = 0; i < a->tensors.count; i++) {
        const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, i);
        place where;
        if (torch_tensor_place(a, t, &where, NULL) == FSDPCK_OK)
            check_place(&where, t->dtype, t->ndim, t->ndim > 0 ? torch_tensor_sizes(a, t) : none, nbytes);
    }
}

static void check_flat(catalogue *cat, torch_archive *a)
{
    pt_flat f;
    fsdpck_error err;

    fsdpck_error_init(&err);
    pt_flat_init(&f, cat, a);
    const fsdpck_status st = pt_flatten(&f, &err);
    if (st != FSDPCK_OK && err.message[0] == '\0')
        abort();
    if (st == FSDPCK_OK && f.names.count != a->tensors.count)
        abort();
    pt_flat_release(&f);
}

static bool same_place(const place *a, const place *b)
{
    return a->offset_bytes == b->offset_bytes && a->record_nbytes == b->record_nbytes && a->swap == b->swap &&
           a->conj == b->conj && a->neg == b->neg && a->rows == b->rows;
}

/* root: the archive's tensor where the long way found exactly one. */
static void check_blob(const zip_input *in, const uint8_t *data, const torch_archive *a, const torch_tensor *root)
{
    uint64_t sizes[NDIM_MAX];
    unsigned ndim;
    dtype d;
    place where, long_way;
    size_t need;

    const fsdpck_status st = torch_blob_locate(in, &d, &ndim, sizes, &where, NULL);
    if (st == FSDPCK_OK) {
        check_place(&where, d, ndim, sizes, in->nbytes);
        if (root == NULL || root->dtype != d || root->ndim != ndim || torch_tensor_place(a, root, &long_way, NULL) != FSDPCK_OK ||
            !same_place(&where, &long_way))
            abort();
    }
    if (torch_blob_locate_head(data, in->nbytes, &d, &ndim, sizes, &where, &need, NULL) == FSDPCK_OK)
        check_place(&where, d, ndim, sizes, in->nbytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    memory m = {data, nbytes};
    const zip_input in = {.read = read_memory, .ctx = &m, .nbytes = nbytes};
    const torch_tensor *root = NULL;
    torch_archive a;
    catalogue cat;
    budget b;

    for (int opaque = 0; opaque < 2; opaque++) {
        budget_init(&b, 64 << 20, "metadata", NULL);
        catalogue_init(&cat, &b);
        const fsdpck_status st = torch_archive_open(&in, &b, &cat.pool, opaque == 1, &a, NULL);
        if (st == FSDPCK_OK) {
            check_tensors(&a, nbytes);
            root = value_kind_of(a.root) == VALUE_TENSOR ? VEC_AT(&a.tensors, const torch_tensor, value_tensor_index(a.root)) : NULL;
        }
        if (opaque == 0)
            check_blob(&in, data, &a, st == FSDPCK_OK ? root : NULL);
        if (st == FSDPCK_OK)
            check_flat(&cat, &a);
        torch_archive_release(&a);
        catalogue_release(&cat);
        if (b.used_bytes != 0)
            abort();
    }
    return 0;
}
