/* target.h: the output of a run: the target catalogue, and the data that a format writer adds to
 * it.
 *
 * Life of a target:
 *   1. select fills `cat` (tensors under their new names), `from` (the source tensor of each) and
 *      the objects in the form that the writer uses: `root` (nested values with TENSOR leaves that
 *      index `cat`), or objects of `cat` by flat key and path. It counts omissions. For
 *      consolidation each tensor has one chunk, the whole tensor. For resharding world_size ranks
 *      share it: spec holds its placements (CAT_NONE: not sharded), its chunks are the ranks'
 *      boxes, and cat_chunk.rank is the rank. A writer with `every_rank` gets one chunk per rank,
 *      in the order of the ranks (chunk first_chunk + r is rank r's). Other writers get each
 *      distinct box once, with the lowest of its ranks.
 *      For a `flat` writer `units` defines the flattening. A flattened tensor (flat_params) has the
 *      boxes of the ranks' shards, by rank and then in memory order, none for a rank without
 *      elements; the bytes of each are row-major. Every other tensor of it is whole, one chunk per
 *      rank, as with `every_rank` (with use_orig_params the optimizer's scalars are only on ranks
 *      with elements of the parameter). Its `root`, or with use_orig_params rank_roots, is the
 *      optimizer's state, None without one. A leaf there is a whole tensor, a parameter's state or,
 *      without use_orig_params, any parameter of a unit for the state of the flat parameter.
 *   2. the writer's layout() gives every chunk its file and offset (place LOCATION_ROWS), declares
 *      the files with their exact sizes, and adds constant bytes (headers, directories, names) and
 *      deferred bytes.
 *   3. plan and exec move the bytes; exec fills chunk_crc if the writer requested it, and deferred
 *      bytes as soon as their checksum is known.
 *   4. the writer's seal() provides the bytes that depend on several chunks; they are written last.
 */
#ifndef FSDPCK_STATE_TARGET_H
#define FSDPCK_STATE_TARGET_H

#include "state/catalogue.h"
#include "state/filter.h"

#define TARGET_STATE_PLAIN UINT32_MAX

typedef struct target_constant {
    uint32_t file;
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint64_t text_at; /* in target.text */
} target_constant;

/* Bytes that depend on the CRC-32 of one chunk (a zip's data descriptor, the directory of a blob of
 * one tensor): target.make_deferred makes them when it is known. Must be small: there may be
 * millions. */
typedef struct target_deferred {
    uint64_t offset_bytes;
    uint64_t chunk; /* of cat, not LOCATION_EMPTY */
    uint32_t file;
    uint32_t nbytes;
} target_deferred;

/* A tensor that views a storage together with others: it has no bytes. */
typedef struct target_alias {
    uint32_t storage;       /* the target tensor (CAT_TENSOR_STORAGE) that holds the bytes */
    uint64_t offset_nelems; /* of its first element in the storage */
    uint64_t strides_at;    /* in target.strides: ndim strides, elements */
} target_alias;

/* A name that is not written, because another tensor has its bytes. */
typedef struct target_dropped {
    uint32_t name;   /* id in cat.names */
    uint32_t tensor; /* of cat */
} target_dropped;

typedef struct target target;
struct unit_list;

struct target {
    catalogue cat; /* its files are the output's, with relative names ("" for a single file) */
    vec from;      /* uint32_t: source tensor of each target tensor */
    value root;    /* in cat.pool; None for formats with flat names */
    vec views;     /* target_alias; cat_tensor.alias of a viewing tensor is its index here */
    vec strides;   /* uint64_t */
    vec literals;  /* target_constant, by file and offset; they overlap neither each other nor
                    * chunks */
    vec lates;     /* target_deferred, likewise; want_crc must be set if there are any */
    text_buf text; /* bytes of the constants; several may share them */
    /* Writes lates[index].nbytes bytes to dst. Any thread. Set by layout() unless lates is empty. */
    void (*make_deferred)(const target *t, size_t index, uint32_t crc32, uint8_t *dst);
    void *writer_state;                     /* private to layout(), make_deferred and seal */
    void (*free_writer_state)(void *state); /* called by target_release; may be NULL */
    uint64_t world_size;                    /* number of ranks of the target; 1 for consolidation */
    /* If objects differ between ranks: the root of each of world_size ranks; otherwise empty. */
    vec rank_roots; /* value */
    /* FSDP1's units (lib/model/unit.h) over world_size ranks, borrowed; NULL except for a flat
     * writer. */
    const struct unit_list *units;
    vec flat_params; /* uint32_t of each tensor: its index in units->params, or CAT_NONE */
    /* uint32_t of each tensor, for a flat writer: 0 for the model's; TARGET_STATE_PLAIN for a whole
     * tensor of the optimizer's state; else the number of the state of parameter flat_params. */
    vec flat_states;
    vec dropped; /* target_dropped */
    vec linked;  /* target_dropped: further names of a tensor that the output links */
    vec tied;    /* uint32_t of each tensor: the tensor that it is another name of, or CAT_NONE;
                  * empty without such names */
    /* Names of parameters in the source, as optimizers list them, if rules may change them; and for
     * each a value, the current text in cat.pool. */
    strtab owners;
    vec new_param_names;
    bool want_crc;       /* set by layout: exec must fill chunk_crc */
    uint32_t *chunk_crc; /* CRC-32 of each target chunk's bytes as written */
    bool want_digest;    /* exec must fill chunk_digest */
    /* Of each written target chunk: the raw CRC-64 (base/crc.h) of its tensor with zeros for all
     * other elements; see target_tensor_crc. */
    uint64_t *chunk_digest;
    bool want_file_crc; /* exec must fill file_crc */
    uint64_t *file_crc; /* raw, of each file with zeros for the bytes that seal() writes; see
                         * target_file_crc */
    /* The first part of all names, which the output lacks: it has the files of one part alone. NULL: none. */
    const char *dropped_key;
    bool is_folder;     /* output is a folder of files */
    bool has_index;     /* with an index, which contains the texts of cat.origin.index_metadata */
    target_filter pack; /* of a writer that compresses: filter.h; then it has no deferred or
                         * constant bytes */
};

/* Constant bytes that are already in t->text, from an earlier constant or appended before. */
fsdpck_status target_add_constant_at(target *t, uint32_t file, uint64_t offset_bytes,
                                     uint64_t text_at, uint64_t nbytes,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Constant bytes, copied. */
fsdpck_status target_add_constant(target *t, uint32_t file, uint64_t offset_bytes,
                                  const void *bytes, uint64_t nbytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Requires chunk_digest: CRC-64/XZ of all elements of a tensor, row-major. Each box counts once,
 * even if several chunks have it. */
fsdpck_status target_tensor_crc(const target *t, uint64_t tensor, uint64_t *crc,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Requires file_crc: CRC-64/XZ of a file. */
uint64_t target_file_crc(const target *t, size_t file);
/* Accounts for bytes that replace zeros, from any thread; does nothing if !want_file_crc. */
void target_add_file_crc(const target *t, uint32_t file, uint64_t offset_bytes, const void *bytes,
                         uint64_t nbytes);

/* The name in an optimizer's list for a parameter that was called `name`: a STR in t->cat.pool;
 * None if unknown. */
value target_param_name(const target *t, const char *name, size_t nbytes);

/* Whether this text of cat.origin.index_metadata is also true of the target: a number of parameters
 * only if it has as many elements. */
bool target_keeps_index_text(const target *t, const char *key, size_t nbytes);

void target_init(target *t, budget *owner);
void target_release(target *t);

#endif
