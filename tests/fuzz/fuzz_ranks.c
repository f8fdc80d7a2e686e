/* Two rank files as one checkpoint: a length (4 bytes, little-endian), the first file, the second.
 * If the length extends past the end there is one file. An accepted input has every chunk inside
 * its file and every box inside its tensor, and all memory is freed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "formats/pt/pt.h"
#include "statedict/per_rank.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* pt_ranks_reader wants a folder: one for the life of the process. */
static char scratch[512];
static const char *const names[] = {"state_rank0.pt", "state_rank1.pt"};

static void path_of(char *path, size_t capacity, unsigned rank)
{
    snprintf(path, capacity, "%s/%s", scratch, names[rank]);
}

static void remove_scratch(void)
{
    char path[600];
    for (unsigned r = 0; r < 2; r++) {
        path_of(path, sizeof path, r);
        unlink(path);
    }
    rmdir(scratch);
}

static void write_rank(unsigned rank, const uint8_t *data, size_t nbytes)
{
    char path[600];
    path_of(path, sizeof path, rank);
    FILE *f = fopen(path, "wb");
    if (f == NULL || (nbytes > 0 && fwrite(data, 1, nbytes, f) != nbytes) || fclose(f) != 0)
        abort();
}

static void check_chunk(const catalogue *cat, const source *src, uint64_t chunk)
{
    const cat_chunk *k = catalogue_chunk(cat, chunk);
    const cat_tensor *t = catalogue_tensor(cat, k->tensor);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    uint64_t last = 0;
    place where;

    catalogue_chunk_box(cat, chunk, offsets, sizes);
    for (unsigned d = 0; d < t->ndim; d++)
        if (offsets[d] + sizes[d] > catalogue_shape(cat, k->tensor)[d])
            abort();
    if (k->place == LOCATION_EMPTY || src->locate(src->ctx, chunk, &where, NULL) != FSDPCK_OK)
        return;
    if (k->place == LOCATION_ROWS &&
        (k->offset_bytes != where.offset_bytes || !where.rows || where.swap || where.stream))
        abort();
    for (unsigned d = 0; d < t->ndim; d++)
        last += (sizes[d] - 1) * where.strides[d];
    last = where.offset_bytes + (last + 1) * dtype_get((dtype)t->dtype)->itemsize_bytes;
    if (!where.stream && last > catalogue_file(cat, where.file)->nbytes)
        abort();
}

static fsdpck_status no_host(void *ctx, value v, fsdpck_error *err)
{
    const catalogue *cat = ctx;
    (void)err;
    if (value_kind_of(v) == VALUE_HOST)
        abort();
    if (value_kind_of(v) == VALUE_TENSOR &&
        (value_tensor_index(v) >= catalogue_tensor_count(cat) ||
         !(catalogue_tensor(cat, value_tensor_index(v))->flags & CAT_TENSOR_IN_OBJECT)))
        abort();
    return FSDPCK_OK;
}

static void open_once(probe_input *in, size_t count, per_rank_policy per_rank, bool tp_first)
{
    fsdpck_error err;
    catalogue cat;
    source src;
    budget b;
    void *self = NULL;

    fsdpck_error_init(&err);
    budget_init(&b, 64 << 20, "metadata", NULL);
    catalogue_init(&cat, &b);
    in->entry_count = count;
    const per_rank_rule rule = {.policy = per_rank};
    const open_request req = {.path = scratch,
                              .probe = in,
                              .metadata = &b,
                              .nthreads = 1,
                              .expect_ranks = count,
                              .copies = per_rank_copies(&rule),
                              .assume_tp_first = tp_first};
    const fsdpck_status st = pt_ranks_reader.open(&req, &cat, &self, &err);
    if (st != FSDPCK_OK && err.message[0] == '\0')
        abort();
    if (st == FSDPCK_OK) {
        pt_ranks_reader.source(self, &cat, &src);
        for (uint64_t i = 0; i < catalogue_chunk_count(&cat); i++)
            check_chunk(&cat, &src, i);
        for (size_t i = 0; i < catalogue_object_count(&cat); i++)
            if (value_walk(&cat.pool, catalogue_object(&cat, i)->content, no_host, &cat, NULL) !=
                FSDPCK_OK)
                break;
        pt_ranks_reader.close(self);
    }
    catalogue_release(&cat);
    if (b.used_bytes != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char *entries[] = {(char *)(uintptr_t)names[0], (char *)(uintptr_t)names[1]};
    probe_input in = {.path = scratch, .is_folder = true, .entries = entries};
    size_t count = 2;

    if (scratch[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        snprintf(scratch, sizeof scratch, "%s/fuzz_ranks.%ld", tmp != NULL ? tmp : "/tmp",
                 (long)getpid());
        if (mkdir(scratch, 0700) != 0)
            abort();
        atexit(remove_scratch);
    }
    if (nbytes < 4)
        return 0;
    size_t first = load_le32(data);
    data += 4;
    nbytes -= 4;
    if (first > nbytes) {
        first = nbytes;
        count = 1;
    }
    write_rank(0, data, first);
    write_rank(1, data + first, nbytes - first);
    open_once(&in, count, PER_RANK_AUTO, false);
    open_once(&in, count, PER_RANK_KEEP, true);
    return 0;
}
