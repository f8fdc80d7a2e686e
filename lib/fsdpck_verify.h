/* fsdpck_verify.h: checks of checkpoints: digests of tensors, checksums of files, manifests, findings, and
 * the newest complete checkpoint of a run. Part of fsdpck.h; either header may be included alone.
 *
 * Calling sequence, here for a script that deletes a checkpoint only if a newer one is sound:
 *
 *     fsdpck_verify *v;
 *     fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
 *     fsdpck_verify_options options = FSDPCK_INIT(fsdpck_verify_options);
 *     options.level = FSDPCK_LEVEL_CHECKSUM;
 *     st = fsdpck_verify_new(ctx, "step-1000", &options, &v, &err);
 *     if (st == FSDPCK_OK) {
 *         fsdpck_verify_get_info(v, &info);
 *         sound = info.errors == 0;
 *         fsdpck_verify_free(v);
 *     }
 *
 * Each section has its own sequence. Ownership, struct sizes, NULL, errors and threads: see fsdpck.h.
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

/* One digest per tensor, independent of sharding, format and order:
 *
 *     fsdpck_digests *d;
 *     fsdpck_digests_info info = FSDPCK_INIT(fsdpck_digests_info);
 *     st = fsdpck_digests_new(ctx, src, NULL, &d, &err);        // reads every byte once
 *     fsdpck_digests_get_info(d, &info);
 *     for (i = 0; i < info.tensors; i++) {
 *         fsdpck_digest one = FSDPCK_INIT(fsdpck_digest);
 *         fsdpck_digests_get(d, i, &one);                       // sorted by name
 *     }
 *     fsdpck_digests_free(d);
 *
 * A digest is the CRC-64/XZ of the text `dtype[d0,d1,...]` (torch's names), a newline, and the tensor's
 * bytes: row-major, little-endian, conj and neg applied. It detects accidents, not attackers. */
typedef struct fsdpck_digests fsdpck_digests;

/* Options of fsdpck_digests_new; NULL for a part: its defaults. */
typedef struct fsdpck_digest_options {
    size_t struct_nbytes;
    const fsdpck_select_options *select; /* part: all, under flat keys; objects are ignored */
    const fsdpck_work_options *work;
    int ignore_beside; /* 1: no warning (STATE-BESIDE) of files and folders beside the weights that have no digests */
} fsdpck_digest_options;

/* Totals. */
typedef struct fsdpck_digests_info {
    size_t struct_nbytes;
    uint64_t tensors;    /* digests; limit of the index */
    uint64_t nbytes;     /* of these tensors */
    uint64_t bytes_read; /* including replicas that were compared */
    uint64_t left_out_tensors, left_out_objects;
    uint64_t whole; /* CRC-64/XZ of the lines `digest  dtype[shape]  name`, sorted by name */
    uint64_t left_out_nbytes;    /* of left_out_tensors */
    char *const *left_out_names; /* all tensors, then all objects; escaped */
    size_t left_out_names_count;
    uint64_t tensors_in, nbytes_in; /* including left_out and tied_dropped; before a cast */
    uint64_t tied_dropped, tied_dropped_nbytes; /* other names of tied tensors */
} fsdpck_digests_info;

/* The digest of one tensor. */
typedef struct fsdpck_digest {
    size_t struct_nbytes;
    const char *name; /* final name; may contain any byte */
    size_t name_nbytes;
    const char *dtype; /* torch's name */
    unsigned ndim;
    const uint64_t *shape; /* ndim sizes */
    uint64_t nbytes;
    const char *type; /* "float32[5,3]" */
    uint64_t value;   /* the digest */
} fsdpck_digest;

/* Reads the selected tensors of `src` and computes their digests. *out is freed with
 * fsdpck_digests_free; src must outlive it. With part ALL, the default, names are flat keys. With one
 * part, names are the model's. Collective in a group. Errors: as of fsdpck_consolidate, except those of
 * the output. */
FSDPCK_API fsdpck_status fsdpck_digests_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                            const fsdpck_digest_options *options,
                                            fsdpck_digests **out,
                                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills *info. */
FSDPCK_API void fsdpck_digests_get_info(const fsdpck_digests *d, fsdpck_digests_info *info);

/* Digest number `index` by name, below info.tensors. */
FSDPCK_API void fsdpck_digests_get(const fsdpck_digests *d, uint64_t index, fsdpck_digest *digest);

/* Frees digests, before their checkpoint. */
FSDPCK_API void fsdpck_digests_free(fsdpck_digests *d);

/* Result of comparing one tensor with a list. */
typedef enum fsdpck_digest_verdict {
    FSDPCK_DIGEST_OK,
    FSDPCK_DIGEST_DIFFERS,
    FSDPCK_DIGEST_TYPE_DIFFERS, /* different dtype or shape */
    FSDPCK_DIGEST_MISSING,      /* in the list only */
    FSDPCK_DIGEST_EXTRA         /* in the checkpoint only */
} fsdpck_digest_verdict;

/* One row of the comparison. The library sets struct_nbytes. Texts are borrowed for the call. */
typedef struct fsdpck_digest_result {
    size_t struct_nbytes;
    fsdpck_digest_verdict verdict;
    const char *name; /* escaped, as printed; not terminated */
    size_t name_nbytes;
    const char *expected; /* type in the list, not terminated; NULL: none */
    size_t expected_nbytes;
    const char *found;                      /* type in the checkpoint, terminated; NULL: none */
    uint64_t expected_digest, found_digest; /* of DIFFERS */
} fsdpck_digest_result;

/* Receives the rows of fsdpck_digests_check, in the calling thread. */
typedef void (*fsdpck_digest_fn)(void *arg, const fsdpck_digest_result *result);

/* Compares with nbytes at `text`: lines `HEX  TYPE  NAME` (names escaped) as `fsdpck digest` prints
 * them, and optionally its last line `HEX  whole  N tensors`. Empty lines and lines that begin with '#'
 * are ignored. Calls `fn` for every tensor of either side, sorted by name. *bad counts the rows that
 * are not OK. Errors: BADINPUT (DIGEST-LIST: not such a list). */
FSDPCK_API fsdpck_status fsdpck_digests_check(const fsdpck_digests *d, const char *text,
                                              size_t nbytes, fsdpck_digest_fn fn, void *arg,
                                              uint64_t *bad, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ---- files ---- */

/* Checksums of a checkpoint's files, each read once, and the manifest, fsdpck-manifest(5), of an
 * existing checkpoint:
 *
 *     fsdpck_files *f;
 *     st = fsdpck_files_new(ctx, src, 0, 0, &f, &err);
 *     st = fsdpck_manifest_write(f, digests, "step-1000.manifest", 0, NULL, &err);
 *     fsdpck_files_free(f);
 *
 * In a folder this covers all regular files, and those of subfolders that contain files of the
 * checkpoint. Hidden files other than .metadata, and manifests, are excluded. */
typedef struct fsdpck_files fsdpck_files;

/* One file. */
typedef struct fsdpck_file {
    size_t struct_nbytes;
    const char *name; /* relative to the folder that was given */
    uint64_t nbytes;
    uint64_t crc64;        /* CRC-64/XZ */
    const uint8_t *sha256; /* 32 bytes; NULL unless requested */
} fsdpck_file;

/* Reads all files with `threads` threads (0: as many as affinity and cgroup allow); `sha256` adds
 * SHA-256. *out is freed with fsdpck_files_free; src must outlive it. Collective in a group. Errors: USAGE
 * (a checkpoint in memory), IO, CHANGED. */
FSDPCK_API fsdpck_status fsdpck_files_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                          unsigned threads, int sha256, fsdpck_files **out,
                                          fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Number of files. */
FSDPCK_API size_t fsdpck_files_count(const fsdpck_files *f);

/* File number `index` by name, below fsdpck_files_count. */
FSDPCK_API void fsdpck_files_get(const fsdpck_files *f, size_t index, fsdpck_file *one);

/* Frees the checksums, before their checkpoint. */
FSDPCK_API void fsdpck_files_free(fsdpck_files *f);

/* What a manifest would replace. */
typedef struct fsdpck_manifest_old {
    size_t struct_nbytes;
    uint64_t nbytes;
    int64_t mtime_ns; /* since the epoch */
    int exists;       /* 0: nothing, and the members above are 0 */
} fsdpck_manifest_old;

/* Checks before long work that a manifest can be written to `path`. *old, which may be NULL: what exists
 * there. Errors: EXISTS (`path` exists; with `force`: and is not one valid manifest). */
FSDPCK_API fsdpck_status fsdpck_manifest_check_path(const char *path, int force,
                                                    fsdpck_manifest_old *old,
                                                    fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Writes a manifest to `path`. `digests` must be of the same checkpoint. `old`: from the call above, so that
 * a file that another program has written since then is not replaced; NULL: any manifest may be.
 * Collective in a group. Errors: EXISTS as above, or if the file is not `old`; IO, NOSPACE. */
FSDPCK_API fsdpck_status fsdpck_manifest_write(const fsdpck_files *f, const fsdpck_digests *digests,
                                               const char *path, int force,
                                               const fsdpck_manifest_old *old,
                                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* ---- findings ---- */

/* A kind of finding: a row of fsdpck-findings(7). Ids and numbers keep their meaning
 * within a major version. All texts are constants. */
typedef struct fsdpck_finding_kind {
    size_t struct_nbytes;
    const char *id;         /* "CHUNK-GAP" */
    const char *class_name; /* "coverage" */
    const char *severity;   /* "error", "warning" or "note": default of fsdpck_verify_new */
    int fixed;              /* `set` cannot change the severity */
    const char *means;      /* one line */
    const char *next;       /* the next step, one line */
    int is_environmental;   /* about the machine, the program or a limit, not the checkpoint */
    const char *former_id;  /* of kind_find: the former id it was found by; else NULL */
} fsdpck_finding_kind;

/* Kind number `index`, sorted by id. Returns 0 after the last. */
FSDPCK_API int fsdpck_finding_kind_at(size_t index, fsdpck_finding_kind *kind);

/* Finds a kind by its id or, for one release, a former id. Returns 0 if there is none. */
FSDPCK_API int fsdpck_finding_kind_find(const char *id, fsdpck_finding_kind *kind);

/* The kind of a number, such as err.finding. Returns 0 if there is none. */
FSDPCK_API int fsdpck_finding_kind_get(fsdpck_finding_id id, fsdpck_finding_kind *kind);

/* The finding of a failure whose error has none: FSDPCK_FINDING_SYS_IO for IO, ...
 * FSDPCK_FINDING_NONE for OK and for faults of the request (USAGE, EXISTS). */
FSDPCK_API fsdpck_finding_id fsdpck_status_finding(fsdpck_status status);

/* ---- verifying ---- */

/* Depth of the checks. Each level includes those before it. */
typedef enum fsdpck_level {
    FSDPCK_LEVEL_QUICK,     /* metadata; all files exist and are long enough */
    FSDPCK_LEVEL_STRUCTURE, /* every rule that needs no tensor data */
    FSDPCK_LEVEL_COVERAGE,  /* chunks cover each tensor; headers of payloads match the metadata */
    FSDPCK_LEVEL_CHECKSUM,  /* every byte, against the checksums in the files */
    FSDPCK_LEVEL_NUMERIC    /* every element: NaN, infinities, zeros, constants, negative moments */
} fsdpck_level;

/* Checks completeness, consistency and checksums of a checkpoint:
 *
 *     fsdpck_verify *v;
 *     st = fsdpck_verify_new(ctx, "step-1000", NULL, &v, &err);  // OK: there is a verdict
 *     fsdpck_verify_get_info(v, &info);                          // info.errors == 0: clean
 *     for (i = 0; i < info.listed; i++)
 *         fsdpck_verify_get_finding(v, i, &finding);
 *     fsdpck_verify_free(v);
 *
 * Defects of the checkpoint are findings, and so is unsupported content: if info.errors is not 0 but
 * equal to info.unsupported, there is no verdict. Nor is there one for a status other than OK: an I/O
 * error, a limit, or a file that changed meanwhile. */
typedef struct fsdpck_verify fsdpck_verify;

/* Options of fsdpck_verify_new. */
typedef struct fsdpck_verify_options {
    size_t struct_nbytes;
    int level; /* fsdpck_level: 0 is QUICK; -1, and NULL for options: COVERAGE */
    const fsdpck_open_options *open; /* NULL: the defaults */
    unsigned threads;                /* 0: as many as affinity and cgroup allow */
    int strict;                      /* count warnings as errors */
    int require_checksums;           /* CHECKSUM: bytes without a checksum are an error */
    const char *const *set; /* "NUM-NAN=error", =warn, =note or =ignore; ends with NULL; or NULL */
    const char *manifest;   /* fsdpck-manifest(5); NULL: the one in the folder, if any */
    int sha256;             /* CHECKSUM: compare the SHA-256 in the manifest too */
    const char *expect;     /* a list of tensors, a manifest, an index or a checkpoint; or NULL */
    int statistics;         /* NUMERIC: collect fsdpck_tensor_statistics */
    /* CHECKSUM and NUMERIC: read only a sample of the data; 0 to 0.05 is 5 %. Equal ranges select the
     * same sample of the same files, and disjoint ranges disjoint samples: 0 to 0.5 and 0.5 to 1 are
     * the whole. The sample consists of whole records with a checksum, and of evenly spread ranges of
     * the others. Both 0: everything. sample_end 0: to the end. */
    double sample_begin, sample_end;
    double max_seconds; /* stop reading data after this time; 0: never */
    /* CHECKSUM and NUMERIC: buffers for compressed data; fewer threads read it at the same time.
     * 0: 256 MiB, less on small machines. */
    uint64_t memory_nbytes;
    /* A Hugging Face folder of safetensors: the checkpoint must equal it in names and shapes of tensors,
     * and its config.json must agree with its tensors; or NULL. Excludes open->source_local. */
    const char *like;
    int like_dequantize; /* read quantized weights of `like` as bfloat16: fsdpck_open_options.dequantize */
    /* Tensor map, as `map` of the open options, whose map_config and map_set apply: import of the
     * checkpoint by this map, then export, must give its model part back, element by element. Decided
     * without reading tensors; or NULL. Excludes open->source_local. */
    const char *prove_map;
    /* With `like`, values are compared too (fsdpck_nearness), which reads both once, at level -1 and from
     * CHECKSUM on, unless a sample or max_seconds is given. 1: they are not. */
    int no_nearness;
} fsdpck_verify_options;

/* Result of a verification. */
typedef struct fsdpck_verify_info {
    size_t struct_nbytes;
    fsdpck_level level;
    int opened; /* the checkpoint could be opened, see fsdpck_verify_get_source */
    uint64_t errors, warnings, notes; /* with `strict`, errors include warnings */
    uint64_t ignored;                 /* findings that `set` ignores */
    uint64_t listed;                  /* errors, warnings and notes kept: the first 1,000 */
    uint64_t chunks;                  /* with elements */
    uint64_t records;                 /* distinct ranges that contain them */
    uint64_t bytes_total, bytes_read; /* of the records, as stored */
    uint64_t bytes_summed;            /* compared with a checksum */
    uint64_t unchecked_tensors, unchecked_nbytes; /* CHECKSUM: no checksum is recorded */
    uint64_t unread_tensors, unread_nbytes;       /* from COVERAGE on: not read due to a finding */
    int manifest;                                 /* a manifest exists and is readable */
    uint64_t manifest_files, manifest_tensors;    /* listed in it */
    uint64_t manifest_nbytes;                     /* of files, compared with their CRC-64 */
    const char *not_seen; /* errors that the level cannot detect, as text for people */
    /* If one of these is set, errors == 0 does not mean that the data is verified. */
    int sampled, stopped;                     /* by sample_end; by max_seconds */
    uint64_t skipped_records, skipped_nbytes; /* not read, or not completely, for that reason */
    uint64_t
        manifest_unhashed_files; /* not compared with their CRC-64 for that reason, or because of the level */
    uint64_t statistics; /* number of tensors with statistics */
    uint64_t
        unsupported; /* errors on legal but unsupported content; if all are, there is no verdict */
    uint64_t proved_tensors; /* by prove_map; 0: no proof */
    uint64_t proved_rounded; /* of them: exact up to rounding, due to `add` in the map */
    /* Files of a trainer's state beside the weights, checked as checkpoints of their own; and not checked: of
     * unsupported content, or folders with checkpoints of their own, such as optimizer_0. */
    uint64_t state_files, unchecked_state_files;
} fsdpck_verify_info;

/* One finding. */
typedef struct fsdpck_finding {
    size_t struct_nbytes;
    const char *severity;     /* "error", "warning" or "note" */
    const fsdpck_error *what; /* finding, message, path, tensor, offset, expected, found, next */
    int group;                /* findings of one group > 0 differ in the tensor only; 0: no group */
    int part; /* fsdpck_part of the tensor, or of the trainer's file beside the weights; -1: neither */
} fsdpck_finding;

/* Verifies the checkpoint at `path`. *out is freed with fsdpck_verify_free. Collective in a group.
 * Errors: USAGE (options; also a sample_begin that is not below sample_end), IO, LIMIT, CHANGED. */
FSDPCK_API fsdpck_status fsdpck_verify_new(fsdpck_context *ctx, const char *path,
                                           const fsdpck_verify_options *options,
                                           fsdpck_verify **out,
                                           fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills *info. */
FSDPCK_API void fsdpck_verify_get_info(const fsdpck_verify *v, fsdpck_verify_info *info);

/* The checkpoint as fsdpck_get_info describes it, with the first step of fsdpck_get_step and its source.
 * Returns 0 and leaves *info if it could not be opened. */
FSDPCK_API int fsdpck_verify_get_source(const fsdpck_verify *v, fsdpck_info *info);

/* Finding number `index`, below info.listed. Errors come first. */
FSDPCK_API void fsdpck_verify_get_finding(const fsdpck_verify *v, uint64_t index,
                                          fsdpck_finding *finding);

/* The tensors that a finding EXPORT-KEYS, EXPORT-SHAPE or EXPORT-DTYPE is about, one per call, of verify and of a
 * refused export: the message lists the first few. As fsdpck_context_missing_file: *cursor begins at 0, and NULL
 * follows the last. Names are escaped as by fsdpck_escape, at most a million, and belong to the context until
 * what->path is opened again. */
FSDPCK_API const char *fsdpck_context_named_tensor(fsdpck_context *ctx, const fsdpck_error *what,
                                                   size_t *cursor);

/* Statistics of one tensor over the finite numbers read. A complex element counts as two numbers.
 * Independent of the number of threads. Replicas count once. */
typedef struct fsdpck_tensor_statistics {
    size_t struct_nbytes;
    uint64_t nelems; /* numbers read; 0 for tensors of bits, scattered adapters, and tensors that a
                        finding keeps from being read */
    uint64_t nan, inf, finite, zeros;
    double mean, variance; /* of the population; 0 if finite is 0, as the next two */
    double minimum, maximum;
    /* exponent_counts[i] numbers have the form 1.x * 2^(exponent_least + i). `exponents` counts. */
    int exponent_least;
    unsigned exponents;
    const uint64_t *exponent_counts;
} fsdpck_tensor_statistics;

/* Statistics number `index`, in the order of fsdpck_get_tensor. Returns 0 after the last. */
FSDPCK_API int fsdpck_verify_get_statistics(const fsdpck_verify *v, uint64_t index,
                                            fsdpck_tensor_statistics *statistics);

/* The tensor of statistics number `index`. Returns 0 after the last. */
FSDPCK_API int fsdpck_verify_get_tensor(const fsdpck_verify *v, uint64_t index,
                                        fsdpck_tensor *tensor);

/* With `like`: the cosines of the tensors to those of the Hugging Face folder. */
typedef struct fsdpck_nearness {
    size_t struct_nbytes;
    int asked;           /* `like` was given, and the checkpoint could be opened */
    const char *skipped; /* why no values were compared; NULL: they were */
    uint64_t tensors;    /* floating-point tensors of both with one shape; limit of the index */
    uint64_t judged;     /* of these: see fsdpck_near_state */
    uint64_t roles, judged_roles;
    uint64_t other_tensors; /* of one shape, but not of comparable dtypes */
    double cosine_median;   /* of the judged roles' medians, not of tensors; 0: none is judged */
    uint64_t compressed;    /* of `tensors`: not compared, see FSDPCK_NEAR_COMPRESSED */
} fsdpck_nearness;

/* Whether the cosine of a tensor can be a finding. */
typedef enum fsdpck_near_state {
    FSDPCK_NEAR_JUDGED,
    FSDPCK_NEAR_SMALL, /* no: below 256 elements, or one dim larger than 1, as of a norm or bias */
    FSDPCK_NEAR_ZERO,  /* no: all elements of a side are zero: no cosine */
    FSDPCK_NEAR_GROWN, /* no: its norm is ten times as large, so that it was nothing before */
    FSDPCK_NEAR_COMPRESSED, /* no: can only be read as a whole, and was not: no cosine */
    FSDPCK_NEAR_NOT_FINITE, /* no: the finite elements of a side are all zero, or none: no cosine */
    FSDPCK_NEAR_SCALED      /* no: ten times as large, in the same direction: a warning */
} fsdpck_near_state;

/* Tensors whose names differ in numbers only. */
typedef struct fsdpck_near_role {
    size_t struct_nbytes;
    const char *name; /* "model.layers.*.mlp.up_proj.weight" */
    size_t name_nbytes;
    uint64_t tensors, judged, far; /* far: findings */
    int has_cosine;
    double cosine_minimum, cosine_median; /* of the judged; of all if none is judged */
} fsdpck_near_role;

/* One tensor. */
typedef struct fsdpck_near_tensor {
    size_t struct_nbytes;
    const char *name, *role; /* may contain any byte */
    size_t name_nbytes, role_nbytes;
    fsdpck_near_state state;
    int far; /* part of a finding */
    int has_cosine;
    double cosine;
    double projection;   /* how much of that folder's tensor is in it: <a, b> / <b, b> */
    uint64_t not_finite; /* elements left out: NaN, infinite or larger than 2^500 on a side */
} fsdpck_near_tensor;

/* Fills *n. */
FSDPCK_API void fsdpck_verify_get_nearness(const fsdpck_verify *v, fsdpck_nearness *n);

/* Role number `index`, by ascending median of the cosine. Returns 0 after the last. */
FSDPCK_API int fsdpck_verify_get_near_role(const fsdpck_verify *v, uint64_t index,
                                           fsdpck_near_role *role);

/* Tensor number `index`. Returns 0 after the last. */
FSDPCK_API int fsdpck_verify_get_near_tensor(const fsdpck_verify *v, uint64_t index,
                                             fsdpck_near_tensor *tensor);

/* Frees a verification. */
FSDPCK_API void fsdpck_verify_free(fsdpck_verify *v);

/* ---- the latest checkpoint of a run ---- */

/* Options of fsdpck_latest. Zeros are the defaults. */
typedef struct fsdpck_latest_options {
    size_t struct_nbytes;
    fsdpck_level level;              /* of the check for completeness */
    uint64_t max_count;              /* stop after so many complete checkpoints; 0: 1 */
    const fsdpck_open_options *open; /* NULL: the defaults */
    /* Also accept a step that lacks state, such as an optimizer, which an older complete one contains.
     * Otherwise it is skipped: LATEST-STATE. */
    int allow_missing_state;
} fsdpck_latest_options;

/* Receives one checkpoint; `why` is NULL if it is complete, else its first error. Borrowed for the
 * call. */
typedef void (*fsdpck_latest_fn)(void *arg, const char *path, uint64_t step,
                                 const fsdpck_error *why);

/* Checks the entries of the folder `root` whose names end in a number, newest first: step-1000,
 * global_step_1000, checkpoint-1000, iter_0001000, files such as epoch=1-step=1000.ckpt. Stops when
 * max_count complete ones are found; *found is their number. A step that lacks state which an older
 * complete one contains does not count (LATEST-STATE). Errors: IO, LIMIT, UNSUPPORTED. */
FSDPCK_API fsdpck_status fsdpck_latest(fsdpck_context *ctx, const char *root,
                                       const fsdpck_latest_options *options, fsdpck_latest_fn fn,
                                       void *arg, uint64_t *found,
                                       fsdpck_error *err) FSDPCK_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
