/* fsdpck_average.h: averages of checkpoints. fsdpck.h includes it.
 *
 *     fsdpck_checkpoint *inputs[2], *mean = NULL;
 *     fsdpck_average_options options = FSDPCK_INIT(fsdpck_average_options);
 *     ... fsdpck_open(ctx, paths[i], NULL, &inputs[i], &err) ...
 *     options.schedule = "minus-sqrt";
 *     st = fsdpck_average(ctx, inputs, 2, &options, &mean, &err);       // metadata only
 *     if (st == FSDPCK_OK)
 *         st = fsdpck_consolidate(ctx, mean, "mean.safetensors", NULL, NULL, &err);
 *     fsdpck_close(mean);                                               // before the inputs
 */
#ifndef FSDPCK_AVERAGE_H
#define FSDPCK_AVERAGE_H

#include "fsdpck.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of fsdpck_average. Zeros: the mean of the model part. */
typedef struct fsdpck_average_options {
    size_t struct_nbytes;
    const double *weights; /* by input; NULL: 1/count each, or those of `schedule` */
    size_t weights_count;  /* with weights: the number of inputs */
    int normalize;         /* divide the weights by their sum */
    /* "linear", "minus-sqrt" or "ema=BETA", fsdpck-average(1), for inputs in the order of their age, the
     * oldest first; NULL: none. If all inputs record a training step, these must not decrease. */
    const char *schedule;
    /* Task arithmetic: base + scale * (sum of weight * (input - base)). Borrowed as the inputs. NULL:
     * none. */
    fsdpck_checkpoint *base;
    double scale;   /* of the sum of the differences; unused without base */
    int slerp;      /* spherical interpolation of two inputs, at slerp_t from 0 (the first) to 1 */
    double slerp_t; /* unused without slerp */
    int accumulate_fp64; /* sum in float64 also where tensors are narrower */
    /* Number, from 1, of the input that integers, bools and objects come from. 0: they must be equal in
     * all inputs, and come from the first. */
    uint64_t objects_from;
    /* Its part (-1: model), keys and exclude: the tensors that are averaged, and whose names, shapes and
     * dtypes must be equal. NULL: the model part. */
    const fsdpck_select_options *select;
    /* The models are the moving averages that the optimizers of the inputs hold (torchtitan's
     * optimizer.ema_params); the part is then that of the model. */
    int ema;
} fsdpck_average_options;

/* Makes a checkpoint of the averages of `count` checkpoints, which may have different formats and
 * shardings, for fsdpck_consolidate and fsdpck_reshard. Reads no elements. Names, objects and the format
 * are those of input objects_from, or of the first. Floating tensors are summed in the order of the
 * inputs in float32 (float64 tensors: float64) and rounded once. *out is freed with fsdpck_close, before
 * the inputs. Collective in a group. Errors: USAGE, BADINPUT (AVERAGE-DIFFER: other names, shapes, dtypes
 * or objects; later, when elements are read, other integers, AVERAGE-NONFINITE and
 * AVERAGE-OVERFLOW), UNSUPPORTED (AVERAGE-KIND). */
FSDPCK_API fsdpck_status fsdpck_average(fsdpck_context *ctx, fsdpck_checkpoint *const *inputs,
                                        size_t count, const fsdpck_average_options *options,
                                        fsdpck_checkpoint **out,
                                        fsdpck_error *err) FSDPCK_MUST_CHECK;

/* What fsdpck_average made. */
typedef struct fsdpck_average_info {
    size_t struct_nbytes;
    size_t inputs;              /* number of checkpoints, without base */
    const double *coefficients; /* by input; NULL for slerp, whose factors differ between tensors */
    uint64_t tensors;           /* that are computed: limit of the index */
    double sum;                 /* of the coefficients; 0 for slerp */
    const int64_t *steps; /* by input: fsdpck_get_step number 0, -1 without; NULL: no average */
} fsdpck_average_info;

/* Fills *info; all zeros for a checkpoint that was not made by fsdpck_average. */
FSDPCK_API void fsdpck_average_get_info(const fsdpck_checkpoint *ckpt, fsdpck_average_info *info);

/* The distances of one averaged tensor. */
typedef struct fsdpck_average_tensor {
    size_t struct_nbytes;
    const char *name;   /* as of fsdpck_tensor */
    size_t name_nbytes; /* without the terminator */
    double distance;    /* largest |element of an input - average|, before a cast */
    size_t input;       /* the first with it, from 0 */
} fsdpck_average_tensor;

/* Averaged tensor number `index`, below info.tensors. Its distances are known after a call that wrote
 * it, and 0 before. */
FSDPCK_API void fsdpck_average_get_tensor(const fsdpck_checkpoint *ckpt, uint64_t index,
                                          fsdpck_average_tensor *t);

#ifdef __cplusplus
}
#endif

#endif
