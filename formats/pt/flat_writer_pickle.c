#include "formats/pt/flat_writer_pickle.h"

#include "formats/common/torch_archive.h"

/* Values that a file contains once (pickle_put_from_memo). */
enum {
    FLAT_LAYOUT = 1,
    FLAT_DEVICE,
    FLAT_GROUP,
    FLAT_SPEC,
    FLAT_DEVICES = 256 /* and up: a _remote_device for each rank */
};

static const char api_module[] = "torch.distributed._shard.sharded_tensor.api";
static const char metadata_module[] = "torch.distributed._shard.sharded_tensor.metadata";

uint64_t flat_shard_nelems(const flat_shard *s, uint64_t rank)
{
    const uint64_t begin = rank * s->shard_size;
    if (begin >= s->total)
        return 0;
    return s->total - begin < s->shard_size ? s->total - begin : s->shard_size;
}

/* An object without its state. */
static void put_object(pickle_writer *w, const char *module, const char *name)
{
    pickle_put_global(w, module, name);
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
}

static void put_int_item(pickle_writer *w, const char *key, uint64_t i)
{
    pickle_put_word(w, key);
    pickle_put_int(w, (int64_t)i);
    pickle_put_setitem(w);
}

/* The call of a function with one word, from the memo from the second time on. */
static void put_call(pickle_writer *w, uint32_t memo, const char *module, const char *name,
                     const char *word)
{
    if (pickle_put_from_memo(w, memo))
        return;
    pickle_put_global(w, module, name);
    pickle_put_word(w, word);
    pickle_put_tuple(w, 1);
    pickle_put_reduce(w);
    pickle_put_to_memo(w, memo);
}

static void put_layout(pickle_writer *w)
{
    put_call(w, FLAT_LAYOUT, "torch.serialization", "_get_layout", "torch.strided");
}

static void put_device(pickle_writer *w)
{
    put_call(w, FLAT_DEVICE, "torch", "device", "cpu");
}

static void put_remote_device(pickle_writer *w, uint64_t rank)
{
    put_object(w, "torch.distributed.remote_device", "_remote_device");
    pickle_put_empty_dict(w);
    pickle_put_word(w, "_worker_name");
    pickle_put_none(w);
    pickle_put_setitem(w);
    put_int_item(w, "_rank", rank);
    pickle_put_word(w, "_device");
    put_device(w);
    pickle_put_setitem(w);
    pickle_put_build(w);
}

static void put_known_device(pickle_writer *w, uint64_t rank)
{
    if (pickle_put_from_memo(w, FLAT_DEVICES + rank))
        return;
    put_remote_device(w, rank);
    pickle_put_to_memo(w, FLAT_DEVICES + rank);
}

static void put_list_of_one(pickle_writer *w, const char *key, uint64_t i)
{
    pickle_put_word(w, key);
    pickle_put_empty_list(w);
    pickle_put_int(w, (int64_t)i);
    pickle_put_append(w);
    pickle_put_setitem(w);
}

/* ShardMetadata. `fresh`: with a separate device object, so that the memo is the same in the files
 * of all ranks, and their pickles differ only in the numbers of a rank. */
static void put_shard_metadata(pickle_writer *w, const flat_shard *s, uint64_t rank, bool fresh)
{
    put_object(w, "torch.distributed._shard.metadata", "ShardMetadata");
    pickle_put_none(w);
    pickle_put_empty_dict(w);
    put_list_of_one(w, "shard_offsets", rank * s->shard_size);
    put_list_of_one(w, "shard_sizes", flat_shard_nelems(s, rank));
    pickle_put_word(w, "placement");
    if (fresh)
        put_remote_device(w, rank);
    else
        put_known_device(w, rank);
    pickle_put_setitem(w);
    pickle_put_tuple(w, 2);
    pickle_put_build(w);
}

void flat_put_begin(pickle_writer *w, const flat_shard *s)
{
    const uint64_t one = 1;
    pickle_put_global(w, "torch._tensor", "_rebuild_from_type_v2");
    pickle_put_mark(w);
    pickle_put_global(w, "torch._utils", "_rebuild_wrapper_subclass");
    pickle_put_global(w, api_module, "ShardedTensor");
    pickle_put_mark(w);
    pickle_put_global(w, api_module, "ShardedTensor");
    pickle_put_global(w, "torch", dtype_get(s->dtype)->name);
    pickle_put_dims(w, 1, &s->total);
    pickle_put_dims(w, 1, &one);
    pickle_put_int(w, 0);
    put_layout(w);
    put_device(w);
    pickle_put_bool(w, true);
    pickle_put_tuple_marked(w);
    pickle_put_mark(w);
    pickle_put_empty_list(w);
}

void flat_put_local(pickle_writer *w, const flat_shard *s)
{
    const uint64_t nelems = flat_shard_nelems(s, s->rank), one = 1;
    if (nelems == 0)
        return;
    put_object(w, "torch.distributed._shard.sharded_tensor.shard", "Shard");
    pickle_put_none(w);
    pickle_put_empty_dict(w);
    pickle_put_word(w, "tensor");
    torch_put_tensor(w, s->key, s->dtype, 1, &nelems, &one, 0, nelems);
    pickle_put_setitem(w);
    pickle_put_word(w, "metadata");
    put_shard_metadata(w, s, s->rank, true);
    pickle_put_setitem(w);
    pickle_put_tuple(w, 2);
    pickle_put_build(w);
    pickle_put_append(w);
}

static void put_properties(pickle_writer *w, const flat_shard *s)
{
    put_object(w, metadata_module, "TensorProperties");
    pickle_put_mark(w);
    pickle_put_global(w, "torch", dtype_get(s->dtype)->name);
    put_layout(w);
    pickle_put_bool(w, true);
    pickle_put_global(w, metadata_module, "MEM_FORMAT_ENCODING");
    pickle_put_int(w, 0); /* TORCH_CONTIGUOUS_FORMAT */
    pickle_put_tuple(w, 1);
    pickle_put_reduce(w);
    pickle_put_bool(w, false);
    pickle_put_tuple_marked(w);
    pickle_put_build(w);
}

void flat_put_shards(pickle_writer *w, const flat_shard *s)
{
    put_object(w, metadata_module, "ShardedTensorMetadata");
    pickle_put_empty_dict(w);
    pickle_put_word(w, "shards_metadata");
    pickle_put_empty_list(w);
    for (uint64_t r = 0; r < s->world_size && flat_shard_nelems(s, r) > 0; r++) {
        put_shard_metadata(w, s, r, false);
        pickle_put_append(w);
    }
    pickle_put_setitem(w);
    pickle_put_word(w, "size");
    pickle_put_global(w, "torch", "Size");
    pickle_put_dims(w, 1, &s->total);
    pickle_put_tuple(w, 1);
    pickle_put_reduce(w);
    pickle_put_setitem(w);
    pickle_put_word(w, "tensor_properties");
    put_properties(w, s);
    pickle_put_setitem(w);
    pickle_put_build(w);
}

void flat_put_group(pickle_writer *w, const flat_shard *s)
{
    if (pickle_put_from_memo(w, FLAT_GROUP))
        return;
    pickle_put_global(w, "__builtin__", "getattr");
    pickle_put_global(w, api_module, "ShardedTensor");
    pickle_put_word(w, "ProcessGroupState");
    pickle_put_tuple(w, 2);
    pickle_put_reduce(w);
    pickle_put_tuple(w, 0);
    pickle_put_newobj(w);
    pickle_put_empty_dict(w);
    put_int_item(w, "local_rank", s->rank);
    put_int_item(w, "global_rank", s->rank);
    put_int_item(w, "local_world_size", s->world_size);
    put_int_item(w, "global_world_size", s->world_size);
    pickle_put_build(w);
    pickle_put_to_memo(w, FLAT_GROUP);
}

static void put_spec(pickle_writer *w, const flat_shard *s)
{
    if (pickle_put_from_memo(w, FLAT_SPEC))
        return;
    put_object(w, "torch.distributed._shard.sharding_spec.chunk_sharding_spec",
               "ChunkShardingSpec");
    pickle_put_empty_dict(w);
    put_int_item(w, "dim", 0);
    pickle_put_word(w, "placements");
    pickle_put_empty_list(w);
    for (uint64_t r = 0; r < s->world_size; r++) {
        put_known_device(w, r);
        pickle_put_append(w);
    }
    pickle_put_setitem(w);
    pickle_put_build(w);
    pickle_put_to_memo(w, FLAT_SPEC);
}

void flat_put_end(pickle_writer *w, const flat_shard *s)
{
    put_spec(w, s);
    pickle_put_bool(w, false);
    pickle_put_tuple_marked(w);
    pickle_put_tuple_marked(w);
    pickle_put_reduce(w);
}
