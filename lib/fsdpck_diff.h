/* fsdpck_diff.h: differences between two checkpoints. Part of fsdpck.h; either header may be included alone. Ownership,
 * struct sizes, NULL, errors and threads: see fsdpck.h. */
#ifndef FSDPCK_DIFF_H
#define FSDPCK_DIFF_H

#include <stddef.h>
#include <stdint.h>

#include "fsdpck.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Differences between two checkpoints of any format and sharding:
 *
 *     fsdpck_diff *d;
 *     fsdpck_diff_info info = FSDPCK_INIT(fsdpck_diff_info);
 *     st = fsdpck_diff_new(ctx, a, b, NULL, &d, &err);
 *     fsdpck_diff_get_info(d, &info);                        // info.rows == 0: equal
 *     for (i = 0; i < info.rows; i++) {
 *         fsdpck_diff_row row = FSDPCK_INIT(fsdpck_diff_row);
 *         fsdpck_diff_get_row(d, i, &row);
 *     }
 *     fsdpck_diff_free(d);
 */
typedef struct fsdpck_diff fsdpck_diff;

/* Options of fsdpck_diff_new; NULL for a part: its defaults. */
typedef struct fsdpck_diff_options {
    size_t struct_nbytes;
    /* part: everything if both have the same parts, else the model parts, else the optimizer parts.
     * keys and exclude apply to both; strip_prefix, rename and dtype to A only. objects DROP: compare
     * tensors only. */
    const fsdpck_select_options *select;
    const fsdpck_work_options *work;
    /* Floating elements are equal if |a - b| <= atol + rtol * |b|; both 0: if their bits are. */
    double atol, rtol;
    int brief; /* stop at the first difference */
    int norms; /* fill has_norms of rows and of parts. Not with brief */
} fsdpck_diff_options;

/* Totals. */
typedef struct fsdpck_diff_info {
    size_t struct_nbytes;
    const char *part;              /* "model", ...: the part compared */
    uint64_t tensors_a, tensors_b; /* of the part on each side */
    uint64_t tensors_compared;     /* in both, with the same dtype and shape; 0: brief, and names or
                                    * shapes already differ */
    uint64_t nbytes_compared;      /* of these */
    uint64_t objects_compared;     /* values that are no tensors, in both */
    uint64_t bytes_read;           /* of both */
    uint64_t rows;                 /* differences; limit of the index */
    int stopped; /* there may be more: brief, or 64 rows of lists beside dicts and of attributes */
    uint64_t state_files; /* of a trainer's state beside the weights of both, compared too */
    double atol, rtol;    /* as in the options */
    uint64_t
        by_digest; /* of tensors_compared: compressed ones, whose digests were compared, not their elements */
    int has_checksums; /* the files of a side, or its manifest: the data was not compared with them */
} fsdpck_diff_info;

/* Kinds of difference. */
typedef enum fsdpck_diff_kind {
    FSDPCK_DIFF_ONLY_A,        /* tensor in A only */
    FSDPCK_DIFF_ONLY_B,        /* in B only */
    FSDPCK_DIFF_TYPE,          /* different dtype or shape; values are not compared */
    FSDPCK_DIFF_VALUES,        /* different elements */
    FSDPCK_DIFF_OBJECT_ONLY_A, /* object in A only */
    FSDPCK_DIFF_OBJECT_ONLY_B, /* in B only */
    FSDPCK_DIFF_OBJECT         /* different objects */
} fsdpck_diff_kind;

/* One difference. Members that do not apply are zero. */
typedef struct fsdpck_diff_row {
    size_t struct_nbytes;
    fsdpck_diff_kind kind;
    const char *name;                  /* may contain any byte */
    size_t name_nbytes;                /* without the final 0 */
    const char *dtype_a, *dtype_b;     /* torch's names; NULL if the side lacks the tensor */
    unsigned ndim_a, ndim_b;           /* 0 also for a missing side */
    const uint64_t *shape_a, *shape_b; /* likewise */
    /* FSDPCK_DIFF_VALUES: */
    int located; /* 0: compressed tensor, only digests were compared; differing to not_numbers are 0 */
    uint64_t nelems, differing;    /* elements */
    uint64_t first[64];            /* index of the first element that differs */
    char first_a[64], first_b[64]; /* its values as text */
    double largest;                /* largest |a - b| of finite numbers */
    uint64_t not_numbers;          /* differing elements that are NaN or infinite on a side */
    /* Objects: */
    int64_t rank;                /* if the objects of this name differ between ranks; else -1 */
    const char *text_a, *text_b; /* FSDPCK_DIFF_OBJECT: both as text, truncated if long */
    const char *file; /* the file of a trainer's state beside the weights that has it; else NULL */
    /* FSDPCK_DIFF_VALUES, of floating-point and complex tensors that are located, with options.norms: L2 norms of A and
     * of B - A, of the whole tensor, and distance / norm_a, to 6 digits. Not finite: with NaN, infinite or too large
     * elements, and `relative` if A is zero. */
    int has_norms;
    double norm_a, distance, relative;
    fsdpck_part part; /* model, optimizer or other: of A, or of B if A lacks it */
    int is_counter;   /* a tensor with one element that counts, such as the step of an optimizer */
    uint64_t nans;    /* of not_numbers: NaN on a side */
} fsdpck_diff_row;

/* The tensors of one part that were compared, all together; without counters. */
typedef struct fsdpck_diff_part {
    size_t struct_nbytes;
    uint64_t tensors, differing_tensors;
    uint64_t nelems, differing; /* elements; those of tensors that are not located count as equal */
    double largest;             /* largest |a - b| of finite numbers */
    /* As in fsdpck_diff_row, of all floating-point and complex tensors of the part as one vector: also of those that are
     * equal. 0 also if only digests of one of them were compared. */
    int has_norms;
    double norm_a, distance, relative;
    uint64_t not_numbers, nans; /* as in fsdpck_diff_row */
} fsdpck_diff_part;

/* Compares `a` and `b`, and the files of a trainer's state that lie beside the weights of both, such as
 * optimizer.pt, unless options select or rename tensors. `a` and `b` must outlive *out, which is freed with
 * fsdpck_diff_free. Collective in a group. Errors: as of fsdpck_consolidate, except those of the output. */
FSDPCK_API fsdpck_status fsdpck_diff_new(fsdpck_context *ctx, fsdpck_checkpoint *a,
                                         fsdpck_checkpoint *b, const fsdpck_diff_options *options,
                                         fsdpck_diff **out, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills *info. */
FSDPCK_API void fsdpck_diff_get_info(const fsdpck_diff *d, fsdpck_diff_info *info);

/* Difference number `index`, below info.rows. */
FSDPCK_API void fsdpck_diff_get_row(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row);

/* Compared tensor number `index`, below info.tensors_compared: fills name, types and `file` of *row. Returns 1 if it is
 * equal, 0 if not, or if a comparison with options.brief stopped before. */
FSDPCK_API int fsdpck_diff_get_compared(const fsdpck_diff *d, uint64_t index, fsdpck_diff_row *row);

/* Totals of a part, and of the files of a trainer's state with such content: fills *totals. Returns 0 if no tensor of it
 * was compared. */
FSDPCK_API int fsdpck_diff_get_part(const fsdpck_diff *d, fsdpck_part part,
                                    fsdpck_diff_part *totals);

/* Frees a diff, before its checkpoints. */
FSDPCK_API void fsdpck_diff_free(fsdpck_diff *d);

#ifdef __cplusplus
}
#endif

#endif
