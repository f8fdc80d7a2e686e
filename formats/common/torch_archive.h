/* torch_archive.h: one torch.save zip (a .pt file, or a blob of a DCP folder): its pickle and its
 * storages.
 *
 *     torch_archive a;
 *     RETURN_IF(torch_archive_open(&in, budget, &pool, calls, &a, err));
 *     a.root                          // value with TENSOR leaves: indices into a.tensors
 *     const torch_tensor *t = VEC_AT(&a.tensors, torch_tensor, i);
 *     torch_archive_release(&a);
 *
 * Tensors are recognised by shape of the call (torch._utils._rebuild_tensor, _v2, _v3,
 * _rebuild_parameter*, torch._tensor._rebuild_from_type_v2, storages by persistent id), checked
 * against their storage's record, and never "called". Subclasses that wrap one plain tensor of the
 * same shape and dtype class (float8 training's WeightWithDynamicFloat8CastTensor: `_tensor`) are
 * read through to it. DTensor and ShardedTensor become the call they are (their parts' tensors are
 * in the list). Sparse, quantised and nested tensors and other subclasses: UNSUPPORTED,
 * PT-TENSOR-KIND, unless `calls` keeps them.
 *
 * Errors besides those of zip.h and pickle.h: PT-CONTAINER, PT-TAR, PT-VERSION, PT-BYTEORDER,
 * PT-PERSID, PT-STORAGE-SIZE, TENSOR-BOUNDS, PT-EXPAND, PKL-CALL, PKL-GLOBAL, PKL-GETATTR.
 */
#ifndef FSDPCK_FORMATS_COMMON_TORCH_ARCHIVE_H
#define FSDPCK_FORMATS_COMMON_TORCH_ARCHIVE_H

#include "formats/common/zip.h"
#include "state/dtype.h"
#include "state/source.h"
#include "state/value.h"

typedef struct torch_tensor {
    uint8_t dtype;
    uint8_t ndim;
    bool conj, neg, requires_grad;
    uint8_t python;         /* CAT_PYTHON_... of state/catalogue.h */
    bool meta;              /* no data at all */
    uint32_t storage;       /* index in torch_archive.storages */
    uint64_t offset_nelems; /* storage offset, elements */
    uint64_t dims_at;       /* in torch_archive.dims: ndim sizes, then ndim strides */
} torch_tensor;

typedef struct torch_storage {
    uint32_t key;               /* string id in the pool's strings */
    uint8_t dtype;              /* of its class; DTYPE_UINT8 for UntypedStorage */
    uint64_t nbytes;            /* as the pickle states */
    uint64_t data_offset_bytes; /* in the file (stored records) */
    uint64_t header_offset_bytes;
    uint32_t entry; /* in the zip; UINT32_MAX for legacy streams */
    uint32_t crc32;
    bool has_crc;
    bool deflated;
    bool meta; /* location 'meta': no record */
} torch_storage;

typedef struct torch_archive {
    zip_archive zip; /* unused (zeroed) for legacy streams */
    bool is_legacy;
    bool big_endian;
    bool has_format_version;   /* `.format_version` is there: 2.7 or newer */
    bool has_serialization_id; /* 2.1 or newer */
    value_pool *pool;
    value root;
    vec tensors;             /* torch_tensor */
    vec storages;            /* torch_storage */
    vec dims;                /* uint64_t */
    uint64_t duplicate_keys; /* dict keys that were set twice: PKL-DUPKEY, a warning */
    budget *owner;
} torch_archive;

/* What a file that begins with these bytes is, where it is some other known container ("an HDF5
 * file"); else NULL. */
const char *torch_name_container(const uint8_t *head, size_t nbytes);
/* Whether it is of a kind that is not read, rather than a file that should be another. */
bool torch_is_foreign(const uint8_t *head, size_t nbytes);

/* What becomes of calls that are not known; a flag "keep them" is one of the first two. */
typedef enum torch_calls {
    TORCH_CALLS_REFUSE = 0,
    TORCH_CALLS_KEEP = 1, /* as records, but for those that run code */
    TORCH_CALLS_KEEP_ALL  /* all of them, for a reader that judges them itself and writes none */
} torch_calls;

/* Whether these first bytes of a file, as many as are there, begin a legacy stream, in any pickle
 * protocol that torch.load reads. */
#define TORCH_LEGACY_HEAD_NBYTES 28
bool torch_is_legacy(const uint8_t *head, uint64_t nbytes);

/* Also recognises what is not one, by name: PT-CONTAINER, PT-TAR, "save was interrupted" (no
 * data.pkl), TorchScript. `calls` may keep unknown calls as records; else PKL-CALL. Legacy
 * streams go through torch_legacy_open, which this calls where the first bytes say so. The pool
 * is the caller's and stays his. */
fsdpck_status torch_archive_open(const zip_input *in, budget *owner, value_pool *pool,
                                 torch_calls calls, torch_archive *a,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void torch_archive_release(torch_archive *a);

const uint64_t *torch_tensor_sizes(const torch_archive *a, const torch_tensor *t);
const uint64_t *torch_tensor_strides(const torch_archive *a, const torch_tensor *t);

/* Where tensor t's elements lie in the file. place.file is left 0. Bounds against the storage
 * were checked by torch_archive_open; in large archives this reads the record's local header
 * (see ZIP_EAGER_ENTRIES). Any thread. */
fsdpck_status torch_tensor_locate(const torch_archive *a, const torch_tensor *t, place *where,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The fast way for a blob that holds exactly one tensor: reads all of a small blob, head and
 * tail of a larger one, fills dtype, sizes (room for NDIM_MAX; ndim in *ndim) and place. Same
 * checks as torch_archive_open + place, which it falls back to where the pickle is not the plain
 * one of one tensor. Deflated records: UNSUPPORTED. Any thread. */
fsdpck_status torch_blob_locate(const zip_input *in, dtype *d, unsigned *ndim, uint64_t *sizes,
                                place *where, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same from the first bytes of a blob that is decompressed front to back: head holds the
 * decoded beginning. Where more of it is needed, *need_nbytes is set (else 0) and the status is
 * LIMIT. place offsets count decoded bytes, place.stream is set. What comes behind the record
 * (directory, CRCs) is not looked at. */
fsdpck_status torch_blob_locate_head(const uint8_t *head, size_t head_nbytes, dtype *d,
                                     unsigned *ndim, uint64_t *sizes, place *where,
                                     size_t *need_nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The fast way to sum what else such a blob holds: true where every record is right but those whose
 * data is_checked_elsewhere says somebody else sums; *records and *nbytes are what was. False: look at it the
 * long way (zip_check.h). Any thread. */
bool torch_blob_check(const zip_input *in,
                      bool (*is_checked_elsewhere)(void *ctx, uint64_t offset_bytes), void *ctx,
                      uint64_t *records, uint64_t *nbytes);

/* Whether a call of this symbol could run code that is not a constructor of data (os.system,
 * eval, torch.load): PKL-GLOBAL. Nothing here ever calls anything; this is for what is said to
 * the user. */
bool torch_symbol_runs_code(const char *module, const char *name);
/* Whether it is such a symbol. A call of one is refused also where unknown calls are kept. */
bool torch_callee_runs_code(const value_pool *pool, value callee);
/* Whether a call is shaped as Python 3.8 to 3.14 write an enum member: a class (by its capital)
 * of a module that runs no code, called with one scalar. */
bool torch_call_is_enum(const value_pool *pool, const value_call *call);
/* Whether a REDUCE is known to be a constructor of data, or an enum member. */
bool torch_call_is_known(const value_pool *pool, const value_call *call);

/* A call that is not known, as an error (BADINPUT): PKL-GLOBAL where it runs code, else PKL-CALL. */
fsdpck_status torch_call_refuse(const value_pool *pool, const value_call *call, fsdpck_error *err);

/* Opcodes of a full contiguous CPU tensor with its own storage `key`, for pickle_write's
 * callback. */
struct pickle_writer;
void torch_put_tensor(struct pickle_writer *w, const char *key, dtype d, unsigned ndim,
                      const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                      uint64_t storage_nelems);
/* The same of a tensor of the catalogue: a Parameter where it is one, with its requires_grad. */
struct cat_tensor;
void torch_put_tensor_of(struct pickle_writer *w, const char *key, const struct cat_tensor *t,
                         const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                         uint64_t storage_nelems);
/* Before and after the opcodes of a tensor: what makes a Parameter of it, where it is one. */
void torch_put_parameter_begin(struct pickle_writer *w, const struct cat_tensor *t);
void torch_put_parameter_end(struct pickle_writer *w, const struct cat_tensor *t);

#endif
