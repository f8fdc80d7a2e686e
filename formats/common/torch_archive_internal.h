/* torch_archive_internal.h: shared by the torch_archive_*.c files.
 *
 * A torch_builder turns the calls of a data.pkl into tensors and storages while the pickle is read:
 *
 *     torch_builder b = {.archive = a, .calls = TORCH_CALLS_KEEP};
 *     torch_builder_init(&b);
 *     pickle_hooks hooks = torch_builder_hooks(&b);
 *     st = pickle_read(&in, &limits, pool, &hooks, &a->root, &consumed, err);
 *     if (st == FSDPCK_OK)
 *         st = torch_builder_finish(&b, err);
 *     torch_builder_release(&b);
 *
 * A persistent id becomes a HOST note, an index into `refs`; a rebuild call becomes a TENSOR.
 */
#ifndef FSDPCK_FORMATS_COMMON_TORCH_ARCHIVE_INTERNAL_H
#define FSDPCK_FORMATS_COMMON_TORCH_ARCHIVE_INTERNAL_H

#include "formats/common/pickle.h"
#include "formats/common/torch_archive.h"

/* Whether the last part of a dotted name has the spelling of a class. */
bool torch_name_is_class(const char *name);

/* A storage named by a persistent id; in legacy streams it may be part of another. */
typedef struct storage_ref {
    uint32_t storage;
    uint64_t offset_nelems;
} storage_ref;

typedef struct torch_builder {
    torch_archive *archive;
    torch_calls calls;
    bool no_records; /* storages are located later: no zip to find them in */
    strtab keys;     /* id: index in archive->storages */
    vec refs;        /* storage_ref */
} torch_builder;

void torch_builder_init(torch_builder *b);
void torch_builder_release(torch_builder *b);
pickle_hooks torch_builder_hooks(torch_builder *b);
/* Fails if the tree holds a storage outside a tensor. */
fsdpck_status torch_builder_finish(torch_builder *b, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ('storage', class, key, location, numel[, view]) -> HOST; legacy ('module', class, ...) -> the
 * class. */
fsdpck_status torch_persid_resolve(torch_builder *b, value_pool *pool, value args, value *resolved,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A tensor as declared by a pickle, not yet checked. */
typedef struct declared_tensor {
    dtype dtype;
    unsigned ndim;
    uint64_t offset_nelems;
    uint64_t storage_nbytes;
    uint64_t sizes[NDIM_MAX];
    uint64_t strides[NDIM_MAX];
} declared_tensor;

/* Checks that all elements are inside the storage (TENSOR-BOUNDS) and not excessively expanded
 * (PT-EXPAND). */
fsdpck_status declared_tensor_check(const declared_tensor *c, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Sets offset, strides, rows and swap of a location whose record_* are set. */
void declared_tensor_locate(const declared_tensor *c, bool big_endian, place *where);

/* The pickle of one plain tensor as torch.save writes it (protocol 2), recognized opcode by
 * opcode. */
typedef struct plain_pickle {
    declared_tensor claim; /* checked */
    char key[32];          /* NUL-terminated */
    size_t nbytes;         /* of the pickle */
} plain_pickle;

/* False for anything else, including invalid pickles: the pickle machine then reports the error. */
bool torch_plain_pickle_match(const uint8_t *bytes, size_t nbytes, plain_pickle *p);

/* Bytes of a storage of this dtype and count; PT-STORAGE-SIZE on overflow. */
fsdpck_status torch_storage_nbytes(dtype d, uint64_t nelems, uint64_t *nbytes,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;

fsdpck_status torch_byteorder_parse(const uint8_t *bytes, uint64_t nbytes, bool *big_endian,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status torch_version_check(const uint8_t *bytes, uint64_t nbytes,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Legacy stream from its first byte (written by torch.save before 1.6; later an option). */
fsdpck_status torch_legacy_open(const zip_input *in, torch_archive *a, torch_calls calls,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
