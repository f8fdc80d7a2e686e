/* manifest.h: reads and writes the manifest of a checkpoint: its files with size and CRC-64, its
 * tensors with digests (fsdpck-manifest(5)).
 *
 *     manifest m;
 *     manifest_init(&m, &budget);
 *     RETURN_IF(manifest_read(&m, text, nbytes, err));     // or, to write one:
 *     RETURN_IF(manifest_add_file(&m, "model.safetensors", 17, nbytes, &file, err));
 *     RETURN_IF(manifest_add_tensor(&m, name, n, DTYPE_FLOAT32, 2, shape, digest, err));
 *     RETURN_IF(manifest_write(&m, &text, err));           // sorted by name
 *     manifest_release(&m);
 *
 * Names are UTF-8. In other tensor names, invalid bytes are stored as \xNN; other file names are
 * refused. Manifests are untrusted: paths must stay below the folder (MAN-PATH).
 */
#ifndef FSDPCK_MANIFEST_MANIFEST_H
#define FSDPCK_MANIFEST_MANIFEST_H

#include <stdbool.h>

#include "base/alloc.h"
#include "state/dtype.h"

#define MANIFEST_NAME       "fsdpck-manifest.json"
#define MANIFEST_SCHEMA     "fsdpck-manifest"
#define MANIFEST_VERSION    1u
#define MANIFEST_NBYTES_MAX ((uint64_t)2 << 30)

typedef struct manifest_file {
    uint64_t nbytes;
    uint64_t crc64;
    bool has_sha256;
    uint8_t sha256[32];
} manifest_file;

typedef struct manifest_tensor {
    uint64_t shape_at;
    uint64_t digest;
    uint8_t dtype;
    uint8_t ndim;
} manifest_tensor;

/* The name of file or tensor i is string i of its table. */
typedef struct manifest {
    budget *owner;
    strtab file_names, tensor_names;
    vec files;   /* manifest_file */
    vec tensors; /* manifest_tensor */
    vec shapes;  /* uint64_t */
} manifest;

void manifest_init(manifest *m, budget *owner);
void manifest_release(manifest *m);

/* MAN-PATH, MAN-DUP. The caller fills *added before the next call. */
fsdpck_status manifest_add_file(manifest *m, const char *name, size_t name_nbytes, uint64_t nbytes,
                                manifest_file **added, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* MAN-DUP. */
fsdpck_status manifest_add_tensor(manifest *m, const char *name, size_t name_nbytes, dtype d,
                                  unsigned ndim, const uint64_t *shape, uint64_t digest,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;

/* m must be empty. BADINPUT: MAN-JSON, MAN-PATH, MAN-DUP, MAN-ALG (digits), MAN-VERSION (none),
 * MAN-HASH (wrong digest of the list); UNSUPPORTED: MAN-VERSION (newer), MAN-ALG (unknown). */
fsdpck_status manifest_read(manifest *m, const char *text, size_t nbytes,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status manifest_write(const manifest *m, text_buf *out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Whether a text begins like a manifest, by its first object member. */
bool manifest_is_likely(const char *text, size_t nbytes);

const char *manifest_file_name(const manifest *m, size_t i);
/* Index, or SIZE_MAX if not found. */
size_t manifest_find_file(const manifest *m, const char *name, size_t nbytes);
size_t manifest_find_tensor(const manifest *m, const char *name, size_t nbytes);
const uint64_t *manifest_shape(const manifest *m, const manifest_tensor *t);
/* Indices in name order, to be freed; NULL without memory. */
uint32_t *manifest_sorted_names(const strtab *names, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* "float32[5,3]". */
void manifest_put_type(text_buf *out, dtype d, unsigned ndim, const uint64_t *shape);
/* The digest of a list is the CRC-64/XZ of its lines `HEX  TYPE  NAME`, ordered by name. This adds
 * one line. */
uint64_t manifest_digest_line(uint64_t crc, uint64_t digest, const char *type, const char *name,
                              size_t name_nbytes);
/* Of all tensors. */
fsdpck_status manifest_digest(const manifest *m, uint64_t *sum,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
