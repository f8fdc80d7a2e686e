/* Any bytes as a file of torch.save, and as a blob of one tensor: an accepted file has every
 * element inside its record and a flat key for every tensor, and fast and slow paths agree. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/common/torch_archive.h"
#include "formats/pt/pt.h"
#include "tests/support/memory_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_place(const place *where, dtype d, unsigned ndim, const uint64_t *sizes,
                        size_t nbytes)
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
        !checked_range(where->offset_bytes - where->record_offset_bytes, last,
                       where->record_nbytes))
        abort();
}

static void check_tensors(const torch_archive *a, size_t nbytes)
{
    static const uint64_t none[1];

    for (size_t i = 0; i < a->tensors.count; i++) {
        const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, i);
        place where;
        if (torch_tensor_locate(a, t, &where, NULL) == FSDPCK_OK)
            check_place(&where, t->dtype, t->ndim, t->ndim > 0 ? torch_tensor_sizes(a, t) : none,
                        nbytes);
    }
}

/* pt_reader wants a path: one file for the life of the process. */
static char scratch[512];

static void remove_scratch(void)
{
    unlink(scratch);
}

static void write_scratch(const uint8_t *data, size_t nbytes)
{
    if (scratch[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        snprintf(scratch, sizeof(scratch), "%s/fuzz_pt.%ld", tmp != NULL ? tmp : "/tmp",
                 (long)getpid());
        atexit(remove_scratch);
    }
    FILE *f = fopen(scratch, "wb");
    if (f == NULL || fwrite(data, 1, nbytes, f) != nbytes || fclose(f) != 0)
        abort();
}

/* The reader end to end: a catalogue, and a place for each of its chunks. */
static void check_reader(const uint8_t *data, size_t nbytes, bool accepted)
{
    fsdpck_error err;
    catalogue cat;
    source src;
    budget b;
    void *self = NULL;

    write_scratch(data, nbytes);
    fsdpck_error_init(&err);
    budget_init(&b, 64 << 20, "metadata", NULL);
    catalogue_init(&cat, &b);
    const open_request req = {.path = scratch, .metadata = &b, .nthreads = 1};
    const fsdpck_status st = pt_reader.open(&req, &cat, &self, &err);
    if ((st == FSDPCK_OK && !accepted) || (st != FSDPCK_OK && err.message[0] == '\0'))
        abort();
    if (st == FSDPCK_OK)
        pt_reader.source(self, &cat, &src);
    for (uint64_t i = 0; st == FSDPCK_OK && i < catalogue_chunk_count(&cat); i++) {
        const cat_chunk *c = catalogue_chunk(&cat, i);
        const cat_tensor *t = catalogue_tensor(&cat, c->tensor);
        place where;
        if (src.locate(src.ctx, i, &where, NULL) != FSDPCK_OK)
            continue;
        check_place(&where, t->dtype, t->ndim, catalogue_shape(&cat, c->tensor), nbytes);
        if (c->place == LOCATION_ROWS &&
            (c->offset_bytes != where.offset_bytes || !where.rows || where.swap))
            abort();
    }
    if (st == FSDPCK_OK)
        pt_reader.close(self);
    catalogue_release(&cat);
    if (b.used_bytes != 0)
        abort();
}

static bool same_place(const place *a, const place *b)
{
    return a->offset_bytes == b->offset_bytes && a->record_nbytes == b->record_nbytes &&
           a->swap == b->swap && a->conj == b->conj && a->neg == b->neg && a->rows == b->rows;
}

/* root: the archive's tensor where the long way found exactly one. */
static void check_blob(const zip_input *in, const uint8_t *data, const torch_archive *a,
                       const torch_tensor *root)
{
    uint64_t sizes[NDIM_MAX];
    unsigned ndim;
    dtype d;
    place where, long_way;
    size_t need;

    const fsdpck_status st = torch_blob_locate(in, &d, &ndim, sizes, &where, NULL);
    if (st == FSDPCK_OK) {
        check_place(&where, d, ndim, sizes, in->nbytes);
        if (root == NULL || root->dtype != d || root->ndim != ndim ||
            torch_tensor_locate(a, root, &long_way, NULL) != FSDPCK_OK ||
            !same_place(&where, &long_way))
            abort();
    }
    if (torch_blob_locate_head(data, in->nbytes, &d, &ndim, sizes, &where, &need, NULL) ==
        FSDPCK_OK)
        check_place(&where, d, ndim, sizes, in->nbytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    memory_bytes m = {data, nbytes};
    const zip_input in = {.read = memory_bytes_read, .ctx = &m, .nbytes = nbytes};

    for (int opaque = 0; opaque < 2; opaque++) {
        const torch_tensor *root = NULL;
        torch_archive a;
        value_pool pool;
        budget b;
        budget_init(&b, 64 << 20, "metadata", NULL);
        value_pool_init(&pool, &b);
        const fsdpck_status st = torch_archive_open(&in, &b, &pool, opaque == 1, &a, NULL);
        if (st == FSDPCK_OK) {
            check_tensors(&a, nbytes);
            if (value_kind_of(a.root) == VALUE_TENSOR)
                root = VEC_AT(&a.tensors, const torch_tensor, value_tensor_index(a.root));
        }
        if (opaque == 0) {
            check_blob(&in, data, &a, root);
            if (st == FSDPCK_OK || nbytes % 8 == 0) /* it needs a file, which takes long */
                check_reader(data, nbytes, st == FSDPCK_OK);
        }
        torch_archive_release(&a);
        value_pool_release(&pool);
        if (b.used_bytes != 0)
            abort();
    }
    return 0;
}
