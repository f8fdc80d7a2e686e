/* catalogue.h: all tensors of a checkpoint with their chunks, and the objects that are not tensors.
 *
 * The same type describes the input (a source catalogue, filled by a format reader) and the output
 * (a target catalogue, filled by select, with locations assigned by a format writer).
 *
 * Filling (one thread):
 *
 *     catalogue c;
 *     catalogue_init(&c, &budget);
 *     RETURN_IF(catalogue_add_file(&c, path, path_nbytes, nbytes, rank, &file, err));
 *     RETURN_IF(catalogue_add_tensor(&c, name, n, DTYPE_FLOAT32, ndim, shape, &tensor, err));
 *     RETURN_IF(catalogue_add_chunk(&c, tensor, offsets, sizes, &proto, err));   // any order
 *     RETURN_IF(catalogue_seal(&c, err));   // groups chunks by tensor, finds duplicate names
 *
 * Reading (any number of threads after seal):
 *
 *     for (size_t i = 0; i < catalogue_tensor_count(&c); i++) {
 *         const cat_tensor *t = catalogue_tensor(&c, i);
 *         for (uint64_t k = t->first_chunk; k < t->first_chunk + t->nchunks; k++)
 *             catalogue_chunk_box(&c, k, offsets, sizes);
 *     }
 *
 * Flat arrays, indices instead of pointers, interned names: at most 64 bytes per 2-dim chunk. Index
 * types: file and tensor uint32_t, chunk uint64_t. Limits: 2^22 tensors, 2^32 chunks.
 */
#ifndef FSDPCK_STATE_CATALOGUE_H
#define FSDPCK_STATE_CATALOGUE_H

#include "base/alloc.h"
#include "state/box.h"
#include "state/cat_metadata.h"
#include "state/dtype.h"
#include "state/mesh.h"
#include "state/value.h"

#define CAT_NONE UINT32_MAX

/* Meaning of a chunk's offset before its blob header is read. */
typedef enum location_kind {
    LOCATION_EMPTY, /* no elements, hence no bytes */
    LOCATION_ROWS,  /* at offset_bytes: contiguous, row-major, little-endian, the tensor's dtype */
    LOCATION_STRIDED, /* known to the reader without I/O, but not plain rows: call locate() */
    LOCATION_FILL,    /* in no file: every element is the value that the file declares: call
                       * locate() */
    LOCATION_BLOB     /* offset_bytes and nbytes delimit a container whose header must be read: call
                   * locate() */
} location_kind;

typedef struct cat_file {
    uint32_t path; /* name id; relative to the checkpoint's folder */
    uint32_t rank; /* rank that wrote it, CAT_NONE if unknown */
    uint64_t nbytes;
    uint64_t identity; /* of a source, as it was opened: file_identify (io/file.h); 0: unknown */
} cat_file;

enum {
    CAT_TENSOR_IN_OBJECT = 1, /* inside a byte item; only reachable through that object */
    CAT_TENSOR_REQUIRES_GRAD = 2,
    /* A whole storage viewed by several tensors, 1-dim; not itself a tensor of the checkpoint.
     * These come last. */
    CAT_TENSOR_STORAGE = 4,
    CAT_TENSOR_OF_RANK = 8,  /* one rank's tensor of this name, with a suffix such as '.rank3' */
    CAT_TENSOR_DIFFERS = 16, /* of a CAT_TENSOR_OF_RANK: the other ranks' tensors are known to
                              * differ */
    /* Several ranks have a plain tensor of this name; each is a chunk, and they may differ: buffers
     * differ unless they are synchronized. */
    CAT_TENSOR_EACH_RANK = 32,
    /* With CAT_TENSOR_IN_OBJECT: only dicts, lists and tuples lead to it, so its name and path are
     * those of the opened containers; it can be selected without its object. */
    CAT_TENSOR_NAMED = 64,
    /* Optimizer state by number that may belong to several parameters: `param` is one of them, or
     * none. */
    CAT_TENSOR_PARAM_OPEN = 128,
};

/* Python properties of a tensor besides its bytes (cat_tensor.python). */
enum {
    CAT_PYTHON_PARAMETER = 1,
    CAT_PYTHON_BUFFER = 2,
    CAT_PYTHON_ATTRIBUTES = 4, /* attributes, hooks, or a class other than torch's own */
};

typedef struct cat_tensor {
    uint32_t name; /* flat key, name id */
    uint8_t dtype;
    uint8_t ndim;
    uint8_t flags;
    uint8_t wide_dims;    /* chunk dims need 64 bits each */
    uint64_t shape_at;    /* see catalogue_shape */
    uint64_t first_chunk; /* chunks of a tensor are consecutive after seal */
    uint32_t nchunks;
    uint32_t alias; /* the CAT_TENSOR_STORAGE tensor that it and others view, or CAT_NONE */
    uint32_t spec;  /* catalogue.specs: its placements, or CAT_NONE if not recorded */
    /* Position in the saved state, from 1, if the reader knows it and it differs from the order of
     * the catalogue; otherwise 0. */
    uint32_t saved_at;
    /* Optimizer state by number: name id of its parameter's FQN, or CAT_NONE if unknown. */
    uint32_t param;
    uint8_t python; /* CAT_PYTHON_... */
    /* Names of several ranks were joined, and this one may belong before any of the others: no rank
     * is known to have had all of them in this order. */
    uint8_t joined;
    /* With CAT_TENSOR_EACH_RANK: a rank whose tensor differs from that of the lowest rank by its recorded checksum; 0: none
     * is known. */
    uint16_t other_rank;
    /* Tuple of the keys that lead to it: str, a dict's key; int, a list's index; bytes, the digits
     * of a dict's int key. None: the name is the only key. */
    value path;
} cat_tensor;

typedef struct cat_chunk {
    uint32_t file;
    uint32_t tensor;
    uint32_t aux;   /* the reader's private value (zip record, transform, ...) */
    uint16_t rank;  /* writer rank, UINT16_MAX unknown */
    uint16_t place; /* location_kind */
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint64_t dims_at;
} cat_chunk;

typedef struct cat_object {
    uint32_t name; /* flat key */
    uint32_t file; /* CAT_NONE: the value is loaded already */
    uint64_t offset_bytes;
    uint64_t nbytes;
    uint32_t aux;
    uint8_t loaded;
    uint8_t opaque; /* not readable as a value: its bytes are kept (a BYTES value) */
    uint8_t joined; /* as in cat_tensor */
    /* The rank of this object, if ranks differ: one cat_object per rank then has the same name.
     * UINT16_MAX: it belongs to all ranks. */
    uint16_t rank;
    uint32_t number;   /* index in the order in which the reader added objects, for the reader's
                        * tables */
    uint32_t saved_at; /* as in cat_tensor */
    value path;        /* as in cat_tensor */
    value content;     /* once loaded */
} cat_object;

/* Origin of the checkpoint, as far as known; otherwise empty strings and -1. */
/* One kind of rank files of a folder. */
typedef struct cat_rank_family {
    char key[64];      /* outer key of its state; "" if the folder has only one kind */
    char pattern[256]; /* names of its files: "optim_world_size_{W}_rank_{r}.pt" */
} cat_rank_family;

enum { CAT_RANK_FAMILIES_MAX = 8 };

typedef struct cat_origin {
    char format[32];        /* "dcp" */
    char trainer[32];       /* "torchtitan", "verl", ... */
    char torch_version[48]; /* "2.9 or newer", inferred from the bytes */
    unsigned
        dtensor_minor; /* rank files: DTensors pickled as torch 2.N does, from 2.5; 0: unknown */
    int64_t step;
    bool step_is_recorded;    /* in the files; otherwise it is from the name of the folder */
    int64_t world_size;       /* ranks that wrote it */
    bool ranks_unknown;       /* ranks after these may be missing: RANKS-UNKNOWN */
    char note[256];           /* the reader's note for inspect, such as "save looks unfinished" */
    uint64_t left_out;        /* items that the reader omits, with a warning for each kind */
    char left_out_kinds[256]; /* "2 datasets of text, 1 link to nothing"; "" */
    unsigned part_folders;    /* each part has a folder of its own (dcp_part_folders.h); 0: no */
    /* A trainer's folder as a whole; "" if none. A writer for the same trainer keeps the settings;
     * lib/run copies the folder. */
    char side_folder[32];   /* of small files that do not depend on the ranks: "huggingface" */
    char settings[1024];    /* text of the trainer's JSON file of settings */
    char rank_pattern[256]; /* of rank files of no known trainer: "weights_rank_{r}.pt"; "" */
    /* All kinds of rank files, which a writer of rank files keeps; 0: none, or unknown names. */
    unsigned rank_family_count;
    cat_rank_family rank_families[CAT_RANK_FAMILIES_MAX];
    bool order_suspect;   /* rows may be misplaced: --assume fsdp2-tp-2.3 (torch 2.3, 2.4) */
    bool boxes_suspect;   /* recorded boxes may not be the physical ones: --repair-strided */
    bool by_rank;         /* each rank described only its own part: metadata alone show a gap */
    bool types_keys;      /* paths tell int keys of dicts from texts (torch.save) */
    bool by_flat_buffers; /* ranks have ranges of flat buffers: some tensors are whole by chance */
    bool by_suffix;       /* read for their suffix alone: no index, number or name of a set */
    bool is_megatron;     /* has the marks of Megatron-Core's torch_dist */
    bool has_lightning;   /* meta.pt of Lightning, which was read */
    /* A file of the catalogue that may be the user's own: its content does not show that it belongs
     * to the checkpoint. An output replaces it only if the manifest names it. "" if none. */
    char open_file[16];
    bool omits_empty_dicts; /* an empty dict has no entry: in a list its place is a hole (DCP) */
    /* Of all safetensors files that were read, and of their index; or NULL. Borrowed from the
     * reader. */
    const cat_metadata *metadata;
    const cat_metadata *index_metadata;
} cat_origin;

/* A tensor or object that the reader skips on request (--per-rank). */
typedef struct cat_skipped {
    uint32_t name;
    bool is_object;
    uint64_t nbytes;
    value path; /* as in cat_tensor */
} cat_skipped;

typedef struct catalogue {
    budget *owner;
    strtab names;
    strtab paths;   /* of the files */
    strtab folders; /* that contain them */
    vec files;      /* cat_file */
    vec tensors;    /* cat_tensor */
    vec chunks;     /* cat_chunk */
    vec objects;    /* cat_object */
    vec shapes;     /* uint64_t */
    vec dims32;     /* chunk dims: offsets then sizes, uint32_t */
    vec dims64;
    vec meshes;      /* mesh */
    vec specs;       /* cat_spec */
    value_pool pool; /* paths, object contents, root */
    value root;      /* nested state with TENSOR leaves where the file has one (.pt), else None */
    value like;      /* without root: has its containers, leaves mean nothing (pt-ranks); or None */
    vec by_name;     /* uint32_t, by name id: its tensor, after seal */
    cat_origin origin;
    vec passed_over;      /* cat_skipped: not part of this catalogue */
    uint32_t last_tensor; /* of the last chunk, until it is sealed */
    bool ungrouped;       /* until it is sealed: a tensor's chunks do not all follow one another */
    int sealed;
} catalogue;

void catalogue_init(catalogue *c, budget *owner);
void catalogue_release(catalogue *c);

fsdpck_status catalogue_add_file(catalogue *c, const char *path, size_t path_nbytes,
                                 uint64_t nbytes, uint32_t rank, uint32_t *file,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Checks ndim <= NDIM_MAX and that elements and bytes of the shape fit 63 bits. */
fsdpck_status catalogue_add_tensor(catalogue *c, const char *name, size_t name_nbytes, dtype d,
                                   unsigned ndim, const uint64_t *shape, uint32_t *tensor,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* `proto` gives file, aux, rank, place, offset_bytes, nbytes; tensor and dims are filled here.
 * Checks the box against the shape: CHUNK-BOUNDS. A box without elements becomes LOCATION_EMPTY. */
fsdpck_status catalogue_add_chunk(catalogue *c, uint32_t tensor, const uint64_t *offsets,
                                  const uint64_t *sizes, const cat_chunk *proto,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same in two steps: `n` chunks of a tensor, then chunk `i` of them. Each must be put before it
 * is read; different chunks may be put in different threads. */
typedef struct cat_new_chunks {
    uint32_t tensor;
    uint64_t first, dims_at;
} cat_new_chunks;
fsdpck_status catalogue_add_chunks(catalogue *c, uint32_t tensor, uint32_t n, cat_new_chunks *made,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status catalogue_put_chunk(catalogue *c, const cat_new_chunks *of, uint32_t i,
                                  const uint64_t *offsets, const uint64_t *sizes,
                                  const cat_chunk *proto, fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status catalogue_add_object(catalogue *c, const char *name, size_t name_nbytes,
                                   uint32_t *object, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Records an item that the reader skips; at any time. */
fsdpck_status catalogue_add_skipped(catalogue *c, const char *name, size_t name_nbytes,
                                    bool is_object, uint64_t nbytes, value path,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Replaces dtype and shape of a tensor without chunks, with the checks of catalogue_add_tensor. */
fsdpck_status catalogue_set_shape(catalogue *c, uint32_t tensor, dtype d, unsigned ndim,
                                  const uint64_t *shape, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The number of an equal mesh or spec; adds a new one (few: linear search). */
fsdpck_status catalogue_add_mesh(catalogue *c, const mesh *m, uint32_t *index,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status catalogue_add_spec(catalogue *c, const cat_spec *spec, uint32_t *index,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* NULL if the tensor has none. */
const cat_spec *catalogue_spec(const catalogue *c, size_t tensor);
const mesh *catalogue_mesh(const catalogue *c, uint32_t index);

/* Two tensors with the same name: KEY-DUP. */
fsdpck_status catalogue_seal(catalogue *c, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same for a copy of a sealed catalogue (catalogue_copy.h), which finds the same names. */
fsdpck_status catalogue_seal_as(catalogue *c, const catalogue *from,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* After catalogue_seal, tensors may still be added for objects that are loaded later
 * (CAT_TENSOR_IN_OBJECT, each with exactly one chunk); only in the single-threaded phase. */
fsdpck_status catalogue_add_object_tensor(catalogue *c, const char *name, size_t name_nbytes,
                                          dtype d, unsigned ndim, const uint64_t *shape,
                                          const cat_chunk *proto, uint32_t *tensor,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A reader's correction before any other use: replaces the box of a chunk, with the checks of
 * catalogue_add_chunk. A chunk that was empty and no longer is gets `place`. */
fsdpck_status catalogue_set_box(catalogue *c, uint64_t chunk, const uint64_t *offsets,
                                const uint64_t *sizes, location_kind place,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Renames tensors of a sealed catalogue, only in the single-threaded phase: rename all of them,
 * then call catalogue_reindex once (KEY-DUP if two tensors have the same name now). */
fsdpck_status catalogue_rename(catalogue *c, uint32_t tensor, const char *name, size_t name_nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status catalogue_reindex(catalogue *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

size_t catalogue_tensor_count(const catalogue *c);
size_t catalogue_object_count(const catalogue *c);
size_t catalogue_file_count(const catalogue *c);
uint64_t catalogue_chunk_count(const catalogue *c);
/* How many of nthreads are worth starting for one pass over all chunks; at least 1. */
unsigned catalogue_threads(const catalogue *c, unsigned nthreads);
static inline cat_tensor *catalogue_tensor(const catalogue *c, size_t i)
{
    return VEC_AT(&c->tensors, cat_tensor, i);
}
cat_object *catalogue_object(const catalogue *c, size_t i);
static inline cat_file *catalogue_file(const catalogue *c, size_t i)
{
    return VEC_AT(&c->files, cat_file, i);
}
/* Whether a file has this path; whether a file is in this folder, or in one below. */
bool catalogue_has_file(const catalogue *c, const char *path);
bool catalogue_has_folder(const catalogue *c, const char *path);
bool catalogue_has_path(const catalogue *c, const char *path); /* either */
static inline cat_chunk *catalogue_chunk(const catalogue *c, uint64_t i)
{
    return VEC_AT(&c->chunks, cat_chunk, i);
}
/* Borrowed; NUL-terminated, but may contain NUL: use the length to compare names. */
const char *catalogue_name(const catalogue *c, uint32_t name_id);
size_t catalogue_name_nbytes(const catalogue *c, uint32_t name_id);
const uint64_t *catalogue_shape(const catalogue *c, size_t tensor);
uint64_t catalogue_tensor_nelems(const catalogue *c, size_t tensor);
uint64_t catalogue_tensor_nbytes(const catalogue *c, size_t tensor);
/* Box of a chunk, ndim entries each; either may be NULL. */
void catalogue_chunk_box(const catalogue *c, uint64_t chunk, uint64_t *offsets, uint64_t *sizes);
/* Whether two chunks of one tensor have the same box; such chunks have the same hash. */
bool catalogue_chunk_is_same(const catalogue *c, uint64_t a, uint64_t b);
uint64_t catalogue_chunk_hash(const catalogue *c, uint64_t chunk);
/* CAT_NONE for an unknown name. After seal. */
uint32_t catalogue_find(const catalogue *c, const char *name, size_t nbytes);

#endif
