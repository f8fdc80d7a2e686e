#include <inttypes.h>
#include <stdio.h>

#include "formats/common/rank_assign.h"
#include "formats/safetensors/st.h"
#include "formats/safetensors/st_layout.h"

/* One file per rank, as HuggingFaceStorageWriter(save_distributed=True) of torch 2.9 to 2.15 writes
 * them without a mapping of names to files: every name is in file 1 of 1. Replicas are assigned to
 * ranks as in torch. The header is that of the safetensors library; torch's differs in some bytes
 * (it orders `__metadata__` at random). A rank without items has no file. Global sizes are not
 * stored: readers use the largest offset plus size. Each file therefore records the number of
 * files, so that the loss of one does not pass as a smaller model. */

static uint32_t rank_of_chunk(const target *t, uint64_t chunk)
{
    return catalogue_chunk(&t->cat, chunk)->file;
}

static fsdpck_status place_files(target *t, const rank_order *order, fsdpck_error *err)
{
    uint32_t file_count = 0;
    for (uint32_t r = 0; r < t->world_size; r++)
        file_count += order->first[r] < order->first[r + 1];
    for (uint32_t r = 0; r < t->world_size; r++) {
        const uint64_t begin = order->first[r];
        const uint64_t end = order->first[r + 1];
        char name[64];
        if (begin == end)
            continue;
        snprintf(name, sizeof name, "shard-%05" PRIu64 "-model-00001-of-00001.safetensors",
                 (uint64_t)r + 1);
        const st_shard shard = {.name = name, .rank = r, .file_count = file_count};
        RETURN_IF(st_layout_shard(t, &shard, order->items + begin, (size_t)(end - begin), err));
    }
    return FSDPCK_OK;
}

/* HuggingFaceStorageReader takes dtypes from safetensors.torch._TYPES. It reads the headers of all
 * files first, so that one code that is not there makes the whole folder unreadable. */
static fsdpck_status check_torch_reads(const target *t, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *ct = catalogue_tensor(&t->cat, tensor);
    if (ct->dtype != DTYPE_FLOAT8_E8M0FNU && ct->dtype != DTYPE_FLOAT4_E2M1FN_X2)
        return FSDPCK_OK;
    const char *name = catalogue_name(&t->cat, ct->name);
    return FAIL_WITH(err, UNSUPPORTED, KEY_DTYPE,
                     ("torch's HuggingFaceStorageReader cannot read %s tensors, nor any folder "
                      "that contains one",
                      dtype_get((dtype)ct->dtype)->name),
                     (tensor, name),
                     (next, "give --format dcp, or omit the tensor with --exclude '%s'", name));
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    rank_order order;

    t->is_folder = true;
    for (uint32_t i = 0; i < catalogue_tensor_count(&t->cat); i++) {
        RETURN_IF(st_layout_check_tensor(t, i, err));
        RETURN_IF(check_torch_reads(t, i, err));
    }
    RETURN_IF(rank_assign(t, opt->lowest_rank, err));
    RETURN_IF(rank_order_by(t, catalogue_chunk_count(&t->cat), rank_of_chunk, t->world_size, &order,
                            err));
    const fsdpck_status st = place_files(t, &order, err);
    rank_order_release(&order);
    return st;
}

const format_writer dcp_safetensors_writer = {
    .name = "dcp-safetensors",
    .records_tied = true,
    .description = "safetensors files of ranks, as torch's HuggingFaceStorageWriter writes them",
    .is_folder = true,
    .takes = STATE_NAMES_ONLY,
    .sharded = true,
    .ranks_only = true,
    .holds = st_layout_holds,
    .layout = layout,
    .id = FSDPCK_FORMAT_DCP_SAFETENSORS,
};
