/* dcp_metadata.h: the `.metadata` pickle as compact records.
 *
 *     dcp_names names;                       // shared by all `.metadata` files of a folder
 *     dcp_names_init(&names, budget);
 *     dcp_metadata m;
 *     RETURN_IF(dcp_metadata_read(&in, &names, &cat->pool, opaque_calls, &m, err));
 *     ... m.items, m.entries, m.planner ...
 *     dcp_metadata_release(&m);
 *
 * A million chunks never become a tree: hooks of the pickle machine take torch.Size,
 * ChunkStorageMetadata, TensorStorageMetadata, TensorProperties, BytesStorageMetadata,
 * MetadataIndex and _StorageInfo as soon as they are complete. Classes are recognized only by name,
 * since releases moved them (torch.distributed._shard.checkpoint in 1.13, sharded_tensor.metadata
 * up to 2.2). What remains in the pool is small: planner_data, storage_meta, mcore_data.
 */
#ifndef FSDPCK_DCP_METADATA_H
#define FSDPCK_DCP_METADATA_H

#include "base/step_name.h"
#include "formats/common/pickle.h"
#include "formats/dcp/dcp_window.h"
#include "state/dtype.h"
#include "state/value.h"

#define DCP_NONE            UINT32_MAX
#define DCP_FILE_LIMIT      (1u << 24)
#define DCP_TRANSFORM_LIMIT 63u

/* Texts that outlive one `.metadata`; ids are dense. */
typedef struct dcp_names {
    strtab fqns;
    strtab paths;       /* relative_path; the id is the file's index in catalogue and file_set */
    const char *folder; /* folder of the paths in the current `.metadata`; NULL: the DCP folder */
    strtab transforms;  /* descriptors of one blob joined by newlines; id 0 is "none" */
} dcp_names;

fsdpck_status dcp_names_init(dcp_names *n, budget *owner, fsdpck_error *err) FSDPCK_MUST_CHECK;
void dcp_names_release(dcp_names *n);

/* One chunk of a tensor; positions of a torch.Size in dcp_metadata.dims, 0 if absent. */
typedef struct dcp_chunk {
    uint32_t offsets_at;
    uint32_t sizes_at;
} dcp_chunk;

/* Consecutive records in dcp_metadata.chunks; `next` is an index in .runs or DCP_NONE. */
typedef struct dcp_run {
    uint32_t first;
    uint32_t count;
    uint32_t next;
} dcp_run;

typedef struct dcp_chunk_list {
    uint32_t first_run;
    uint32_t last_run;
    uint32_t count;
} dcp_chunk_list;

typedef struct dcp_properties {
    value dtype_symbol;
    uint8_t dtype; /* DTYPE_NONE: unknown name, or not yet built */
} dcp_properties;

typedef struct dcp_tensor {
    uint32_t properties; /* DCP_NONE until it is built */
    uint32_t size_at;
    uint32_t list; /* in .lists, DCP_NONE: no chunks */
} dcp_tensor;

/* A key of state_dict_metadata. */
typedef struct dcp_item {
    uint32_t fqn;
    uint32_t tensor; /* DCP_NONE: a byte item */
} dcp_item;

/* A pair of storage_data: MetadataIndex and _StorageInfo. */
typedef struct dcp_entry {
    uint32_t fqn;        /* DCP_NONE until it is built */
    uint32_t offsets_at; /* 0 for byte items */
    uint32_t hint;       /* position in the tensor's chunks, DCP_NONE if not recorded */
    uint32_t file : 24;
    uint32_t transform : 6;
    uint32_t has_info : 1;
    uint32_t paired : 1;
    uint64_t offset_bytes;
    uint64_t nbytes;
} dcp_entry;

typedef struct dcp_metadata {
    budget *owner;
    vec dims;       /* uint32_t: see dcp_size_get */
    vec chunks;     /* dcp_chunk */
    vec runs;       /* dcp_run */
    vec lists;      /* dcp_chunk_list */
    vec properties; /* dcp_properties */
    vec tensors;    /* dcp_tensor */
    vec items;      /* dcp_item, in the order of the file */
    vec entries;    /* dcp_entry */
    value planner;  /* dict of flat key -> tuple, or None; in the pool */
    value mcore;    /* of Megatron-Core: dict of FQN -> dict, or None */

    /* Marks of the writer, for the origin. */
    bool has_storage_meta, has_modules, has_version, has_mcore_data;
    bool has_traces, has_new_paths; /* a path or an id of the save; paths of Python 3.13 */
    bool has_six_properties;        /* TensorProperties of 2.15 */
    bool old_package;               /* torch.distributed._shard.checkpoint: 1.13 */
    bool old_properties;            /* TensorProperties of sharded_tensor.metadata: up to 2.2 */
    bool has_step;                  /* in the path that the save was made to */
    step_name step;
    bool is_by_fsdpck; /* by fsdpck, in protocol 2: torch's own is 4 or newer */
} dcp_metadata;

/* Parses one whole `.metadata`. Errors: all of pickle.h; PKL-CALL (a call that torch never writes,
 * unless opaque_calls), PKL-GETATTR, PKL-TRAILING, DCP-META-TYPE (records of the wrong form),
 * DCP-PATH, CHUNK-BOUNDS. On failure *m is released. */
fsdpck_status dcp_metadata_read(const pickle_input *in, dcp_names *names, value_pool *pool,
                                bool opaque_calls, dcp_metadata *m,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same, from a file that is never in memory as a whole (dcp_condense.h), with the same records,
 * names and values. False: the file is not as torch writes it, or has an error; *m is released and
 * `names` is as before. */
bool dcp_metadata_read_condensed(const dcp_bytes *from, dcp_names *names, value_pool *pool,
                                 bool opaque_calls, dcp_metadata *m) FSDPCK_MUST_CHECK;
void dcp_metadata_release(dcp_metadata *m);

/* ndim of the torch.Size at `at`; `sizes` (NDIM_MAX, may be NULL) receives its items. */
unsigned dcp_size_get(const dcp_metadata *m, uint32_t at, uint64_t *sizes);
/* Items of dims that it takes. */
size_t dcp_size_nwords(const dcp_metadata *m, uint32_t at);
bool dcp_size_equal(const dcp_metadata *m, uint32_t a, uint32_t b);
bool dcp_size_is(const dcp_metadata *m, uint32_t at, const uint64_t *sizes, unsigned ndim);
fsdpck_status dcp_size_add(dcp_metadata *m, const uint64_t *sizes, unsigned ndim, uint32_t *at,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* An entry with nothing known; NULL: LIMIT. */
dcp_entry *dcp_entry_add(dcp_metadata *m, fsdpck_error *err);
/* Hash over the items, seeded. */
uint64_t dcp_size_hash(const dcp_metadata *m, uint32_t at, uint64_t seed);

/* Kind of callable of a pickled symbol (dcp_symbols.c). */
typedef enum dcp_symbol {
    DCP_SYMBOL_OTHER,
    DCP_SYMBOL_SIZE,
    DCP_SYMBOL_CHUNK,
    DCP_SYMBOL_TENSOR,
    DCP_SYMBOL_BYTES,
    DCP_SYMBOL_PROPERTIES,
    DCP_SYMBOL_INDEX,
    DCP_SYMBOL_INFO,
    DCP_SYMBOL_METADATA,
    DCP_SYMBOL_STORAGE_META,
    DCP_SYMBOL_GETATTR,
    DCP_SYMBOL_DATA /* calls that only build plain data: layouts, paths, collections */
} dcp_symbol;

dcp_symbol dcp_symbol_of(const value_pool *pool, value callee);

/* getattr(class, 'Name') as the symbol Class.Name, for the classes that torch writes this way;
 * otherwise PKL-GETATTR. */
fsdpck_status dcp_getattr(value_pool *pool, const value_call *call, value *symbol,
                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Checks a REDUCE of another class: OK if it may stay as a record, otherwise PKL-CALL, or
 * PKL-GLOBAL if it would run code. */
fsdpck_status dcp_call_check(const value_pool *pool, const value_call *call,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
