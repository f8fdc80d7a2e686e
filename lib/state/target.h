/* target.h: what there shall be: the target catalogue, and what a format writer adds to it.
 *
 * Life of a target:
 *   1. aim fills `cat` (tensors under their new names), `from` (which source tensor feeds each)
 *      and what the writer takes of the rest: `root` (nested values with TENSOR leaves that index
 *      `cat`), or objects of `cat` by flat key and path; and counts what is left out. Consolidating,
 *      each tensor has one chunk, its whole. Resharding, world_size ranks share it: spec says how
 *      it is cut (CAT_NONE: not at all), its chunks are what the ranks hold, and cat_chunk.rank
 *      says who: for a writer with `every_rank` one chunk a rank, in the order of the ranks (so
 *      chunk first_chunk + r is rank r's); for others each distinct box once, with the lowest of
 *      the ranks that hold it. For a `flat` writer `units` says how parameters are flattened: a
 *      tensor that is one of them (flat_params) has the boxes that the ranks' pieces of it are, by
 *      rank and then in memory order, none where a rank has no piece; the bytes of each are
 *      row-major. Every other tensor of it is whole, one chunk a rank, as with `every_rank` (with
 *      use_orig_params scalars of the optimizer only on ranks that have a piece of the parameter).
 *      Its `root`, or with use_orig_params rank_roots, is the optimizer's state, None without one; a
 *      leaf there is a whole tensor, a parameter's state or, without use_orig_params, any one of a
 *      unit's parameters for the state of the flat parameter.
 *   2. the writer's layout() gives every chunk its file and offset (place LOCATION_ROWS), declares
 *      the files with their exact sizes, and adds literal bytes (headers, directories, names) and
 *      late ones.
 *   3. plan and exec move the bytes; exec fills chunk_crc where the writer asked for it, and late
 *      bytes as soon as the checksum that they depend on is known.
 *   4. the writer's seal() hands over what depends on more than one chunk; it is written last.
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
 * one tensor): target.make_deferred makes them once it is known. Millions of them must fit. */
typedef struct target_deferred {
    uint64_t offset_bytes;
    uint64_t chunk; /* of cat, not LOCATION_EMPTY */
    uint32_t file;
    uint32_t nbytes;
} target_deferred;

/* A tensor that views a storage together with others: it has no bytes of its own. */
typedef struct target_alias {
    uint32_t storage;       /* the target tensor (CAT_TENSOR_STORAGE) that holds the bytes */
    uint64_t offset_nelems; /* of its first element in the storage */
    uint64_t strides_at;    /* in target.strides: ndim strides, elements */
} target_alias;

/* A name that is not written, as another tensor has its bytes. */
typedef struct target_dropped {
    uint32_t name;   /* id in cat.names */
    uint32_t tensor; /* of cat */
} target_dropped;

typedef struct target target;
struct unit_list;

struct target {
    catalogue cat; /* its files are the output's, named relative to it ("" for a single file) */
    vec from;      /* uint32_t: source tensor of each target tensor */
    value root;    /* in cat.pool; None where the format is flat */
    vec views;     /* target_alias; cat_tensor.alias of a viewing tensor is its index here */
    vec strides;   /* uint64_t */
    vec literals;  /* target_constant, by file and offset; none overlaps another or a chunk */
    vec lates;     /* target_deferred, likewise; want_crc must be set where there are any */
    text_buf text; /* bytes of the literals; several may share them */
    /* Writes lates[index].nbytes bytes to dst. Any thread. Set by layout() where lates has any. */
    void (*make_deferred)(const target *t, size_t index, uint32_t crc32, uint8_t *dst);
    void *writer_state;                     /* layout()'s own, for make_deferred and seal */
    void (*free_writer_state)(void *state); /* called by target_release; may be NULL */
    uint64_t world_size; /* ranks that the target is cut for; 1 when consolidating */
    /* Where objects differ between ranks: the root of each, world_size of them; else empty. */
    vec rank_roots; /* value */
    /* FSDP1's units (lib/model/unit.h) over world_size ranks, borrowed; NULL but for a flat writer. */
    const struct unit_list *units;
    vec flat_params; /* uint32_t of each tensor: its index in units->params, or CAT_NONE */
    /* uint32_t of each tensor, of a flat writer: 0 where it is the model's; TARGET_STATE_PLAIN where
     * it is whole in the optimizer's state; else which state it is of parameter flat_params. */
    vec flat_states;
    vec dropped; /* target_dropped */
    /* Names of parameters in the source, where rules may change them, as optimizers list them; and
     * beside each a value, the text in cat.pool that it goes by now. */
    strtab owners;
    vec new_param_names;
    bool want_crc;       /* set by layout: exec must fill chunk_crc */
    uint32_t *chunk_crc; /* CRC-32 of each target chunk's bytes as written */
    bool want_digest;    /* exec must fill chunk_digest */
    /* Of each target chunk as written: the raw CRC-64 (base/crc.h) of its tensor with zeros for all
     * other elements; see target_tensor_crc. */
    uint64_t *chunk_digest;
    bool want_file_crc; /* exec must fill file_crc */
    uint64_t *file_crc; /* raw, of each file with zeros where seal() writes; see target_file_crc */
    bool is_folder;     /* output is a folder of files */
    target_filter pack; /* of a writer that compresses: pack.h; then nothing is late or literal */
};

/* A literal whose bytes an earlier one, or a text appended to t->text before, holds already. */
fsdpck_status target_add_constant_at(target *t, uint32_t file, uint64_t offset_bytes,
                                     uint64_t text_at, uint64_t nbytes,
                                     fsdpck_error *err) FSDPCK_MUST_CHECK;
/* A literal, copied. */
fsdpck_status target_add_constant(target *t, uint32_t file, uint64_t offset_bytes,
                                  const void *bytes, uint64_t nbytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Once chunk_digest is there: CRC-64/XZ of all elements of a tensor, row-major. Each box counts once,
 * however many chunks have it. */
fsdpck_status target_tensor_crc(const target *t, uint64_t tensor, uint64_t *crc,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Once file_crc is there: CRC-64/XZ of a file. */
uint64_t target_file_crc(const target *t, size_t file);
/* Bytes that replace zeros, from any thread; nothing where !want_file_crc. */
void target_add_file_crc(const target *t, uint32_t file, uint64_t offset_bytes, const void *bytes,
                         uint64_t nbytes);

/* What an optimizer's list calls a parameter that was called `name`: a STR in t->cat.pool; None where
 * nothing is known of it. */
value target_param_name(const target *t, const char *name, size_t nbytes);

void target_init(target *t, budget *owner);
void target_release(target *t);

#endif
