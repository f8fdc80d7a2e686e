/* torch_archive.h: one torch.save zip (a .pt file, or a blob of a DCP folder): its pickle and its
 * storages.
 *
 *     torch_archive a;
 *     RETURN_IF(torch_archive_open(&in, budget, &pool, calls, &a, err));
 *     a.root                          // value with TENSOR leaves: indices into a.tensors
 *     const torch_tensor *t = VEC_AT(&a.tensors, torch_tensor, i);
 *     torch_archive_release(&a);
 *
 * Tensors are recognized by shape of the call (torch._utils._rebuild_tensor, _v2, _v3,
 * _rebuild_parameter*, torch._tensor._rebuild_from_type_v2, storages by persistent id), checked
 * against their storage's record, and never "called". Subclasses that wrap one plain tensor of the
 * same shape and dtype class (float8 training's WeightWithDynamicFloat8CastTensor: `_tensor`) are
 * read through to it. DTensor and ShardedTensor stay call records; the tensors of their parts are
 * in the list. Sparse, quantized and nested tensors and other subclasses: UNSUPPORTED,
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
    bool has_format_version;   /* has `.format_version`: 2.7 or newer */
    bool has_serialization_id; /* 2.1 or newer */
    value_pool *pool;
    value root;
    vec tensors;             /* torch_tensor */
    vec storages;            /* torch_storage */
    vec dims;                /* uint64_t */
    uint64_t duplicate_keys; /* dict keys that were set twice: PKL-DUPKEY, a warning */
    budget *owner;
} torch_archive;

/* Name of another known container that begins with these bytes ("an HDF5 file"), or NULL. */
const char *torch_name_container(const uint8_t *head, size_t nbytes);
/* The next step with such a file, in which FILE is its name; NULL: none. */
const char *torch_container_next(const uint8_t *head, size_t nbytes);
/* True for an unsupported kind of file; false for a file that may be a damaged checkpoint. */
bool torch_is_foreign(const uint8_t *head, size_t nbytes);

/* Handling of unknown calls; a flag "keep them" selects one of the first two. */
typedef enum torch_calls {
    TORCH_CALLS_REFUSE = 0,
    TORCH_CALLS_KEEP = 1, /* as records, but for those that run code */
    TORCH_CALLS_KEEP_ALL  /* all of them, for a reader that checks them itself and writes none */
} torch_calls;

/* Whether these first bytes of a file, as many as are there, begin a legacy stream, in any pickle
 * protocol that torch.load reads. */
#define TORCH_LEGACY_HEAD_NBYTES 28
bool torch_is_legacy(const uint8_t *head, uint64_t nbytes);

/* Also recognizes and names other files: PT-CONTAINER, PT-TAR, "save was interrupted" (no
 * data.pkl), TorchScript. `calls` may keep unknown calls as records; otherwise PKL-CALL. Calls
 * torch_legacy_open for a legacy stream, recognized by its first bytes. The caller owns the pool.
 */
fsdpck_status torch_archive_open(const zip_input *in, budget *owner, value_pool *pool,
                                 torch_calls calls, torch_archive *a,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
void torch_archive_release(torch_archive *a);
/* The releases of torch that write such an archive: "2.7 or newer". */
const char *torch_archive_torch_version(const torch_archive *a);

const uint64_t *torch_tensor_sizes(const torch_archive *a, const torch_tensor *t);
const uint64_t *torch_tensor_strides(const torch_archive *a, const torch_tensor *t);

/* Location of tensor t's elements in the file. place.file stays 0. Bounds against the storage were
 * checked by torch_archive_open; in large archives this reads the record's local header (see
 * ZIP_EAGER_ENTRIES). Any thread. */
fsdpck_status torch_tensor_locate(const torch_archive *a, const torch_tensor *t, place *where,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The fast way for a blob that holds exactly one tensor: reads all of a small blob, head and tail
 * of a larger one, fills dtype, sizes (room for NDIM_MAX; ndim in *ndim) and place. Same checks as
 * torch_archive_open and torch_tensor_locate, to which it falls back if the pickle is not that of
 * one plain tensor. Deflated records: UNSUPPORTED. Any thread. */
fsdpck_status torch_blob_locate(const zip_input *in, dtype *d, unsigned *ndim, uint64_t *sizes,
                                place *where, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The same from the first decoded bytes of a blob that is decompressed front to back. If more bytes
 * are required, sets *need_nbytes (otherwise 0) and returns LIMIT. Offsets in `where` count decoded
 * bytes, and its stream flag is set. Bytes after the record (directory, CRCs) are not checked. */
fsdpck_status torch_blob_locate_head(const uint8_t *head, size_t head_nbytes, dtype *d,
                                     unsigned *ndim, uint64_t *sizes, place *where,
                                     size_t *need_nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The fast check of the other records of such a blob. True if all are correct, without those for
 * which is_checked_elsewhere returns true; *records and *nbytes receive the totals. False: use the
 * full check (zip_check.h). Any thread. */
bool torch_blob_check(const zip_input *in,
                      bool (*is_checked_elsewhere)(void *ctx, uint64_t offset_bytes), void *ctx,
                      uint64_t *records, uint64_t *nbytes);

/* Whether a call of this symbol could run code that is not a constructor of data (os.system, eval,
 * torch.load): PKL-GLOBAL. fsdpck never calls it; the result only selects the message. */
bool torch_symbol_runs_code(const char *module, const char *name);
/* Whether `callee` is such a symbol. Its call is refused even if unknown calls are kept. */
bool torch_callee_runs_code(const value_pool *pool, value callee);
/* Whether a call has the form in which Python 3.8 to 3.14 write an enum member: a class (by its
 * capital letter) of a module that runs no code, called with one scalar. */
bool torch_call_is_enum(const value_pool *pool, const value_call *call);
/* Whether a REDUCE is known to be a constructor of data, or an enum member. */
bool torch_call_is_known(const value_pool *pool, const value_call *call);

/* Sets the error for an unknown call (BADINPUT): PKL-GLOBAL if it runs code, otherwise PKL-CALL. */
fsdpck_status torch_call_refuse(const value_pool *pool, const value_call *call, fsdpck_error *err);

/* Opcodes of a full contiguous CPU tensor with its own storage `key`, for pickle_write's
 * callback. */
struct pickle_writer;
void torch_put_tensor(struct pickle_writer *w, const char *key, dtype d, unsigned ndim,
                      const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                      uint64_t storage_nelems);
/* The same for a tensor of the catalogue; a Parameter keeps its class and requires_grad. */
struct cat_tensor;
void torch_put_tensor_of(struct pickle_writer *w, const char *key, const struct cat_tensor *t,
                         const uint64_t *sizes, const uint64_t *strides, uint64_t offset_nelems,
                         uint64_t storage_nelems);
/* Before and after the opcodes of a tensor: wrap it as a Parameter if it is one. */
void torch_put_parameter_begin(struct pickle_writer *w, const struct cat_tensor *t);
void torch_put_parameter_end(struct pickle_writer *w, const struct cat_tensor *t);

#endif
