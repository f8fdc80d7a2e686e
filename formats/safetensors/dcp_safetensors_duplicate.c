/* The same shard in two files. torch and fsdpck write each shard once, even if ranks hold replicas.
 * One of the files is therefore a copy, or from another save. */
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/dcp_safetensors_check.h"

static int by_box(const void *a, const void *b)
{
    const shards_shard *x = a, *y = b;
    ORDER_BY(x->tensor, y->tensor);
    ORDER_BY(x->ndim, y->ndim);
    for (unsigned d = 0; d < x->ndim; d++) {
        ORDER_BY(x->offsets[d], y->offsets[d]);
        ORDER_BY(x->sizes[d], y->sizes[d]);
    }
    return 0;
}

static int by_box_and_file(const void *a, const void *b)
{
    const shards_shard *x = a, *y = b;
    const int order = by_box(a, b);
    return order != 0 ? order : x->file < y->file ? -1 : x->file > y->file;
}

static fsdpck_status error_duplicate(const shards_check_input *c, const shards_shard *first,
                                     const shards_shard *second, fsdpck_error *err)
{
    const char *name = st_files_name(c->files, first->file);
    const fsdpck_status st = FAIL(
        err, BADINPUT, ST_SHARD_MIXED,
        "two files contain the same shard: one is a copy of the other, or belongs to another save");
    st_files_error_path(c->files, second->file, err);
    error_tensor(err, strtab_text(&c->global->names, first->tensor));
    error_expected(err, "each shard in one file");
    error_found(err, "also in '%s'", name);
    error_next(err, "copy both files again from the machines that wrote them");
    return st;
}

/* Whether the shards of each tensor ascend, as those of ranks do in the order of their files: no two
 * are the same then. */
static fsdpck_status find_ascending(const shards_check_input *c, bool *ascending, fsdpck_error *err)
{
    const uint64_t nbytes = (uint64_t)strtab_count(&c->global->names) * sizeof(shards_shard);
    shards_shard *last = budget_alloc(c->req->metadata, nbytes, err);
    shards_shard shard;
    if (last == NULL)
        return FSDPCK_LIMIT;
    memset(last, 0, (size_t)nbytes);
    *ascending = true;
    for (size_t i = 0; *ascending && i < shards_global_count(c->global); i++) {
        shards_global_get(c->global, c->files, i, &shard);
        shards_shard *before = &last[shard.tensor];
        if (shard.nelems == 0)
            continue;
        *ascending = before->nelems == 0 || by_box(before, &shard) < 0;
        *before = shard;
    }
    budget_free(c->req->metadata, last, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status check_sorted(const shards_check_input *c, fsdpck_error *err)
{
    const size_t count = shards_global_count(c->global);
    const uint64_t nbytes = (uint64_t)count * sizeof(shards_shard);
    size_t held = 0;
    fsdpck_status st = FSDPCK_OK;
    shards_shard *all = budget_alloc(c->req->metadata, nbytes, err);
    if (all == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++) {
        shards_global_get(c->global, c->files, i, &all[held]);
        held += all[held].nelems > 0;
    }
    if (held > 1)
        qsort(all, held, sizeof *all, by_box_and_file);
    for (size_t i = 1; st == FSDPCK_OK && i < held; i++)
        if (by_box(&all[i - 1], &all[i]) == 0)
            st = error_duplicate(c, &all[i - 1], &all[i], err);
    budget_free(c->req->metadata, all, nbytes);
    return st;
}

fsdpck_status shards_check_duplicate(const shards_check_input *c, fsdpck_error *err)
{
    bool ascending;
    RETURN_IF(find_ascending(c, &ascending, err));
    return ascending ? FSDPCK_OK : check_sorted(c, err);
}
