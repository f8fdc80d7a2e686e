/* fsdpck_verify.h: is a checkpoint what it ought to be: digests of its tensors, checksums of its files,
 * manifests, differences between two, findings, and the newest one of a run that is whole. Part of
 * fsdpck.h, which includes it; either may be included alone.
 *
 * Calling sequence, here for a script that deletes a checkpoint only where a newer one is whole:
 *
 *     fsdpck_verify *v;
 *     fsdpck_verify_info info;
 *     fsdpck_verify_options options = {.struct_nbytes = sizeof options, .level = FSDPCK_LEVEL_CHECKSUM};
 *     st = fsdpck_verify_new(ctx, "step-1000", &options, &v, &err);
 *     if (st == FSDPCK_OK) {
 *         fsdpck_verify_get_info(v, &info);
 *         whole = info.errors == 0;
 *         fsdpck_verify_free(v);
 *     }
 *
 * Each section has its own. Handles, options, texts and threads are as fsdpck.h says.
 */
#ifndef FSDPCK_VERIFY_H
#define FSDPCK_VERIFY_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- digests ---- */

/* One digest a tensor, the same however it is cut, in whatever format and order:
 *
 *     fsdpck_digests *d;
 *     fsdpck_digests_new(ctx, src, &options, &d, err);          // reads every byte, once
 *     fsdpck_digests_get_info(d, &info);
 *     for (i = 0; i < info.tensors; i++)
 *         fsdpck_digests_get(d, i, &digest);                    // by name
 *     fsdpck_digests_free(d);
 *
 * A digest is the CRC-64/XZ of the text `dtype[d0,d1,...]` and a newline (torch's names), then of
 * the row-major little-endian bytes, conj and neg resolved. It finds accidents, not forgers. */
typedef struct fsdpck_digests fsdpck_digests;

typedef struct fsdpck_digests_info {
    size_t struct_nbytes;
    uint64_t tensors;
    uint64_t nbytes;     /* of all tensors */
    uint64_t bytes_read; /* replicas that had to be compared included */
    uint64_t left_out_tensors, left_out_objects;
    uint64_t whole; /* CRC-64/XZ of the lines `digest  dtype[shape]  name`, ordered by name */
    uint64_t left_out_nbytes;    /* of left_out_tensors */
    char *const *left_out_names; /* of tensors, all of them; then of objects; escaped; borrowed */
    size_t left_out_names_count;
    uint64_t tensors_in, nbytes_in; /* with those left out and tied_dropped; before a cast */
    uint64_t tied_dropped, tied_dropped_nbytes;
} fsdpck_digests_info;

typedef struct fsdpck_digest {
    size_t struct_nbytes;
    const char *name; /* final name; may hold any byte */
    size_t name_nbytes;
    const char *dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t nbytes;
    const char *type; /* "float32[5,3]" */
    uint64_t value;
} fsdpck_digest;

/* Of the options those that select, name and cast count, replicas, threads and memory. The whole
 * checkpoint by default, each tensor under its flat key; one part of it is named as the model names
 * it. Borrows src. */
FSDPCK_API fsdpck_status fsdpck_digests_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                            const fsdpck_transform_options *options,
                                            fsdpck_digests **out,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_digests_get_info(const fsdpck_digests *d, fsdpck_digests_info *info);
FSDPCK_API void fsdpck_digests_get(const fsdpck_digests *d, uint64_t index, fsdpck_digest *digest);
FSDPCK_API void fsdpck_digests_free(fsdpck_digests *d);

typedef enum fsdpck_digest_verdict {
    FSDPCK_DIGEST_OK,
    FSDPCK_DIGEST_DIFFERS,
    FSDPCK_DIGEST_TYPE_DIFFERS, /* dtype or shape */
    FSDPCK_DIGEST_MISSING,      /* in the list alone */
    FSDPCK_DIGEST_EXTRA         /* in the checkpoint alone */
} fsdpck_digest_verdict;

typedef struct fsdpck_digest_result {
    size_t struct_nbytes;
    fsdpck_digest_verdict verdict;
    const char *name; /* escaped, as printed */
    size_t name_nbytes;
    const char *expected; /* type in the list; NULL: none */
    size_t expected_nbytes;
    const char *found; /* type in the checkpoint; NULL: none */
} fsdpck_digest_result;

typedef void (*fsdpck_digest_fn)(void *arg, const fsdpck_digest_result *result);

/* Compares with a list of lines `HEX  TYPE  NAME` (names escaped), as `fsdpck digest` prints it, its
 * last line `HEX  whole  N tensors` included where it is there. Empty lines and those that begin
 * with '#' count as nothing. `fn` is called for every tensor of either, by name; *bad counts those
 * that are not OK. BADINPUT (DIGEST-LIST) where it is no such list. */
FSDPCK_API fsdpck_status fsdpck_digests_check(const fsdpck_digests *d, const char *text,
                                              size_t nbytes, fsdpck_digest_fn fn, void *arg,
                                              uint64_t *bad, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ---- files ---- */

/* The files of a checkpoint, each read once for its checksums; and the manifest (fsdpck-manifest(5)) of
 * one that is there:
 *
 *     fsdpck_files *f;
 *     fsdpck_files_new(ctx, src, 0, 0, &f, err);
 *     fsdpck_manifest_write(f, digests, "step-1000.manifest", 0, err);
 *     fsdpck_files_free(f);
 *
 * Of a folder all plain files count, and those of folders inside that hold files of the checkpoint;
 * what is hidden does not, but for .metadata, nor does a manifest. */
typedef struct fsdpck_files fsdpck_files;

typedef struct fsdpck_file {
    size_t struct_nbytes;
    const char *name; /* relative to the checkpoint's folder */
    uint64_t nbytes;
    uint64_t crc64;        /* CRC-64/XZ */
    const uint8_t *sha256; /* 32 bytes; NULL where it was not asked for */
} fsdpck_file;

/* threads 0: what the machine allows. By name. Borrows src. */
FSDPCK_API fsdpck_status fsdpck_files_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                          unsigned threads, int sha256, fsdpck_files **out,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API size_t fsdpck_files_count(const fsdpck_files *f);
FSDPCK_API void fsdpck_files_get(const fsdpck_files *f, size_t index, fsdpck_file *one);
FSDPCK_API void fsdpck_files_free(fsdpck_files *f);

/* EXISTS where there is something at `path`; with `force` a manifest may be there, by its content. */
FSDPCK_API fsdpck_status fsdpck_manifest_check_path(const char *path, int force,
                                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* `digests` of the same checkpoint. EXISTS as above. */
FSDPCK_API fsdpck_status fsdpck_manifest_write(const fsdpck_files *f, const fsdpck_digests *digests,
                                               const char *path, int force,
                                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ---- comparing ---- */

/* Two checkpoints, in whatever format and however each is cut:
 *
 *     fsdpck_diff *d;
 *     fsdpck_diff_new(ctx, a, b, NULL, &d, err);
 *     fsdpck_diff_get_info(d, &info);                        // info.rows == 0: equal
 *     for (i = 0; i < info.rows; i++)
 *         fsdpck_diff_get_row(d, i, &row);
 *     fsdpck_diff_free(d);
 */
typedef struct fsdpck_diff fsdpck_diff;

typedef struct fsdpck_diff_options {
    size_t struct_nbytes;
    /* Of these count: part (-1: everything where both have the same parts, else the model parts,
     * else the optimizer parts), keys and exclude for both, objects (drop: tensors alone);
     * strip_prefix, rename and dtype are applied to A alone; threads, memory, replicas. NULL: the
     * defaults. */
    const fsdpck_transform_options *transform;
    double atol, rtol; /* floating elements are equal where |a - b| <= atol + rtol * |b| */
    int brief;         /* stop at the first difference */
} fsdpck_diff_options;

typedef struct fsdpck_diff_info {
    size_t struct_nbytes;
    const char *part; /* compared */
    uint64_t tensors_a, tensors_b;
    uint64_t tensors_compared; /* those that both have, of one dtype and shape */
    uint64_t nbytes_compared;
    uint64_t objects_compared;
    uint64_t bytes_read; /* of both */
    uint64_t rows;       /* differences */
    int stopped;         /* brief: there may be more */
} fsdpck_diff_info;

typedef enum fsdpck_diff_kind {
    FSDPCK_DIFF_ONLY_A,
    FSDPCK_DIFF_ONLY_B,
    FSDPCK_DIFF_TYPE, /* another dtype or shape: values are not compared */
    FSDPCK_DIFF_VALUES,
    FSDPCK_DIFF_OBJECT_ONLY_A,
    FSDPCK_DIFF_OBJECT_ONLY_B,
    FSDPCK_DIFF_OBJECT
} fsdpck_diff_kind;

typedef struct fsdpck_diff_row {
    size_t struct_nbytes;
    fsdpck_diff_kind kind;
    const char *name;
    size_t name_nbytes;
    const char *dtype_a, *dtype_b; /* NULL where the side has none; so for the next four */
    unsigned ndim_a, ndim_b;
    const uint64_t *shape_a, *shape_b;
    /* FSDPCK_DIFF_VALUES */
    int located; /* 0: a compressed tensor, of which only digests were compared; what follows is 0 */
    uint64_t nelems, differing;
    uint64_t first[64];            /* index of the first element that differs */
    char first_a[64], first_b[64]; /* and its values */
    double largest;                /* |a - b|, of numbers */
    uint64_t not_numbers;          /* elements that differ and are NaN or infinite on a side */
    /* Objects */
    int64_t rank;                /* whose it is, where ranks differ; else -1 */
    const char *text_a, *text_b; /* FSDPCK_DIFF_OBJECT: for people, cut off where it is long */
} fsdpck_diff_row;

/* Borrows both. Errors: as opening and consolidating either. */
FSDPCK_API fsdpck_status fsdpck_diff_new(fsdpck_context *ctx, fsdpck_checkpoint *a,
                                         fsdpck_checkpoint *b, const fsdpck_diff_options *options,
                                         fsdpck_diff **out, fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_diff_get_info(const fsdpck_diff *d, fsdpck_diff_info *info);
FSDPCK_API void fsdpck_diff_get_row(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row);
FSDPCK_API void fsdpck_diff_free(fsdpck_diff *d);

/* ---- findings ---- */

/* What can be wrong with a checkpoint, by the ids that findings and errors carry. Neither the name
 * nor the meaning of an id changes within a major version. */
typedef struct fsdpck_finding_kind {
    size_t struct_nbytes;
    const char *id;         /* "CHUNK-GAP" */
    const char *class_name; /* "coverage", see fsdpck-findings(7) */
    const char *severity;   /* "error", "warning", "note": by default, for fsdpck_verify_new */
    int fixed;              /* and it cannot be set otherwise */
    const char *means;      /* one line each */
    const char *next;
    int is_environmental; /* about the machine, the program or a limit, not about the checkpoint */
    const char
        *former_id; /* of kind_find: what it was found by, where that is a former id; else NULL */
} fsdpck_finding_kind;

/* In the order of the ids, index from 0; 0 behind the last. All texts are constants. */
FSDPCK_API int fsdpck_finding_kind_at(size_t index, fsdpck_finding_kind *kind);
/* 0 where there is no such id, or no such number. kind_find takes former ids, too, for one release. */
FSDPCK_API int fsdpck_finding_kind_find(const char *id, fsdpck_finding_kind *kind);
FSDPCK_API int fsdpck_finding_kind_get(fsdpck_finding_id id, fsdpck_finding_kind *kind);
/* For failures whose error names none, such as those of system calls: FSDPCK_FINDING_SYS_IO.
 * FSDPCK_FINDING_NONE where the request is at fault (USAGE, EXISTS), or nothing is. */
FSDPCK_API fsdpck_finding_id fsdpck_status_finding(fsdpck_status status);

/* ---- verifying ---- */

/* Each includes those before it. */
typedef enum fsdpck_level {
    FSDPCK_LEVEL_QUICK,     /* metadata; all files are there and long enough */
    FSDPCK_LEVEL_STRUCTURE, /* every rule that needs no tensor data */
    FSDPCK_LEVEL_COVERAGE,  /* each tensor is there as a whole, payloads' heads agree with it */
    FSDPCK_LEVEL_CHECKSUM,  /* every byte, against the checksums that the files hold */
    FSDPCK_LEVEL_NUMERIC /* every element: NaN, moments below zero, infinities, zeros, constants */
} fsdpck_level;

/* Is a checkpoint whole, consistent and uncorrupted?
 *
 *     fsdpck_verify *v;
 *     st = fsdpck_verify_new(ctx, "step-1000", NULL, &v, err);   // OK: there is a verdict
 *     fsdpck_verify_get_info(v, &info);                          // info.errors == 0: clean
 *     for (i = 0; i < info.listed; i++)
 *         fsdpck_verify_get_finding(v, i, &finding);
 *     fsdpck_verify_free(v);
 *
 * What is wrong with the checkpoint are findings; a status other than OK says why there is no
 * verdict (I/O, a limit, something that is not supported, a file that changed meanwhile). */
typedef struct fsdpck_verify fsdpck_verify;

typedef struct fsdpck_verify_options {
    size_t struct_nbytes;
    int level;                       /* fsdpck_level; -1: coverage */
    const fsdpck_open_options *open; /* NULL: the defaults */
    unsigned threads;
    int strict;            /* warnings count as errors */
    int require_checksums; /* bytes without a checksum are an error at level checksum */
    const char *const
        *set;             /* "NUM-NAN=error", =warn, =note or =ignore, ends with NULL; NULL: none */
    const char *manifest; /* fsdpck-manifest(5); NULL: the one in the folder, where there is one */
    int sha256;           /* at level checksum: the SHA-256 that it has of files */
    const char *expect;   /* a list of tensors, a manifest, an index or a checkpoint; NULL */
    int statistics;       /* at level numeric: fsdpck_verify_get_statistics */
    /* At levels checksum and numeric a sample of the data: from 0 to 0.05 it is 5 %. The same part is
     * the same sample of the same files, and parts that do not overlap are samples that do not: 0 to
     * 0.5 and 0.5 to 1 are the whole. It is made of records that have a checksum, and of pieces of
     * the others, spread evenly. sample_end 0: everything. */
    double sample_begin, sample_end;
    double max_seconds; /* reading data ends after it; 0: never */
} fsdpck_verify_options;

typedef struct fsdpck_verify_info {
    size_t struct_nbytes;
    fsdpck_level level;
    int opened;                       /* what follows of the checkpoint itself is known */
    uint64_t errors, warnings, notes; /* strict: warnings are among the errors */
    uint64_t ignored;                 /* because `set` says so */
    uint64_t listed;                  /* of errors, warnings and notes the first 1,000 */
    uint64_t chunks, records;         /* with elements; different ranges that they lie in */
    uint64_t bytes_total, bytes_read; /* of the records, as stored */
    uint64_t bytes_summed;            /* compared with a checksum */
    uint64_t unchecked_tensors, unchecked_nbytes; /* level checksum: no checksum is recorded */
    uint64_t unread_tensors, unread_nbytes;       /* from coverage on: because of a finding */
    int manifest;                                 /* there is one, and it could be read */
    uint64_t manifest_files, manifest_tensors;    /* that it lists */
    uint64_t manifest_nbytes;                     /* of files, compared with its CRC-64 */
    const char *not_seen;                         /* what the level cannot see, for people */
    /* Where one of these is set, errors == 0 does not mean that the data are verified. */
    int sampled, stopped; /* options.sample_end; options.max_seconds were over */
    uint64_t skipped_records, skipped_nbytes; /* therefore not read, records not as a whole */
    uint64_t manifest_unhashed_files;         /* therefore not compared with their CRC-64 */
    uint64_t statistics;                      /* tensors; 0 where they were not asked for */
    uint64_t unsupported; /* of the errors: legal, but not read; all of them: there is no verdict */
} fsdpck_verify_info;

typedef struct fsdpck_finding {
    size_t struct_nbytes;
    const char *severity;     /* "error", "warning", "note" */
    const fsdpck_error *what; /* finding, message, path, tensor, offset, expected, found, next */
    int group;                /* findings of one group differ in the tensor alone; 0: in no group */
} fsdpck_finding;

FSDPCK_API fsdpck_status fsdpck_verify_new(fsdpck_context *ctx, const char *path,
                                           const fsdpck_verify_options *options,
                                           fsdpck_verify **out,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;
FSDPCK_API void fsdpck_verify_get_info(const fsdpck_verify *v, fsdpck_verify_info *info);
/* The checkpoint as fsdpck_get_info describes it. Returns 0 and leaves *info where it was not opened. */
FSDPCK_API int fsdpck_verify_get_source(const fsdpck_verify *v, fsdpck_info *info);
FSDPCK_API void fsdpck_verify_get_finding(const fsdpck_verify *v, uint64_t index,
                                          fsdpck_finding *finding);
/* Of one tensor, over the finite numbers that were read; of a complex one over both parts. The same for
 * any number of threads. Copies of a chunk count once. */
typedef struct fsdpck_tensor_statistics {
    size_t struct_nbytes; /* by the caller */
    uint64_t
        nelems; /* looked at, of a complex tensor twice as many as it has; 0: none, as in tensors
                        of bits, scattered views and what a finding keeps from being read */
    uint64_t nan, inf, finite, zeros;
    double mean, variance; /* of the population; 0 where nothing is finite, and so for the next */
    double minimum, maximum;
    /* How many numbers are 1.x * 2^e, for e from exponent_least on, `exponents` of them: borrowed. */
    int exponent_least;
    unsigned exponents;
    const uint64_t *exponent_counts;
} fsdpck_tensor_statistics;

/* By tensor, in the order of fsdpck_get_tensor; 0 behind the last. */
FSDPCK_API int fsdpck_verify_get_statistics(const fsdpck_verify *v, uint64_t index,
                                            fsdpck_tensor_statistics *statistics);
/* The tensor that statistics of this index describe. Returns 0 after the last. */
FSDPCK_API int fsdpck_verify_get_tensor(const fsdpck_verify *v, uint64_t index,
                                        fsdpck_tensor *tensor);
FSDPCK_API void fsdpck_verify_free(fsdpck_verify *v);

/* ---- the latest checkpoint of a run ---- */

typedef struct fsdpck_latest_options {
    size_t struct_nbytes;
    fsdpck_level level;
    uint64_t max_count;              /* complete checkpoints wanted; 0: 1 */
    const fsdpck_open_options *open; /* NULL: the defaults */
} fsdpck_latest_options;

/* why is NULL where it is complete. Borrowed for the call. */
typedef void (*fsdpck_latest_fn)(void *arg, const char *path, uint64_t step,
                                 const fsdpck_error *why);

/* What lies in the folder `root` and has a name that ends in a number (step-1000, global_step_1000,
 * checkpoint-1000, iter_0001000, files as epoch=1-step=1000.ckpt), newest first, until as many
 * complete ones are found as are wanted: *found. */
FSDPCK_API fsdpck_status fsdpck_latest(fsdpck_context *ctx, const char *root,
                                       const fsdpck_latest_options *options, fsdpck_latest_fn fn,
                                       void *arg, uint64_t *found,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
