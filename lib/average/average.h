/* average.h: presents the average of several checkpoints as one checkpoint.
 *
 *     averager *v;
 *     catalogue_init(&seen, &budget);
 *     RETURN_IF(averager_new(&request, &seen, &v, err));        // seals `seen`
 *     averager_source(v)
 *     averager_distance(v, tensor, input)                       // after the tensors were read
 *     averager_free(v);       // before `seen` and the catalogues of the inputs
 *
 * The second catalogue is that of one input, the template, with other chunks. Each chunk of a tensor that
 * all inputs have is a stream of some MiB, so workers share a tensor. A stream reads its box from every
 * input, whatever their chunks, and computes:
 *
 *   - floating tensors: acc = 0; acc = acc + c_i * x_i in the order of the inputs, in float32, each
 *     product and sum rounded; float64 for float64 tensors and with rule.wide. Then one rounding to the
 *     dtype. With a base b: acc = acc + c_i * (x_i - b), then b + scale * acc. Complex numbers are pairs.
 *   - slerp of two inputs: float64, with three sums over the whole tensor (average_slerp.c).
 *   - all other tensors: the bytes of the template; the inputs must be equal.
 *
 * Elements of the inputs (AVERAGE-NONFINITE) and results (AVERAGE-OVERFLOW) must be finite, and other
 * tensors equal (AVERAGE-DIFFER). The result depends on neither threads nor chunks.
 */
#ifndef FSDPCK_AVERAGE_AVERAGE_H
#define FSDPCK_AVERAGE_AVERAGE_H

#include "state/source.h"

typedef struct averager averager;

/* All borrowed. */
typedef struct average_input {
    const catalogue *cat;
    const source *src;
    const char *name; /* its path, for messages */
} average_input;

typedef struct average_rule {
    double *coefficients; /* by input, without a base */
    size_t count;         /* inputs, without a base */
    bool has_base;        /* task arithmetic: input number `count` is the base */
    double scale;
    bool slerp; /* of two inputs, instead of coefficients */
    double slerp_t;
    bool wide; /* float64 */
} average_rule;

typedef struct average_request {
    const average_input *inputs;
    size_t count; /* with the base */
    size_t shape; /* the template */
    /* By tensor of the template, `count` numbers: the same tensor of each input. CAT_NONE first: the
     * tensor is not averaged, and remains as it is. */
    const uint32_t *tensors;
    const average_rule *rule;
    bool trust_others; /* tensors that are not floating need not be equal */
} average_request;

/* `out` must be initialized and empty. Errors: BADINPUT (CHUNK-GAP, CHUNK-OVERLAP), UNSUPPORTED
 * (AVERAGE-KIND) for floating tensors of 8 and 4 bits. */
fsdpck_status averager_new(const average_request *request, catalogue *out, averager **v,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
const source *averager_source(const averager *v);
/* Whether a tensor is one of all inputs. */
bool averager_takes(const averager *v, uint32_t tensor);
/* Whether it is also computed. */
bool averager_computes(const averager *v, uint32_t tensor);
/* The largest distance of an element of an input from the result, of those that were computed here. */
double averager_distance(const averager *v, uint32_t tensor, size_t input);
/* Replaces it by a larger one, of another process. */
void averager_add_distance(averager *v, uint32_t tensor, size_t input, double distance);
/* Bytes that were read here from the inputs, without those that the source returned: a run counts these itself. */
uint64_t averager_further_nbytes(const averager *v);
/* Adds those of other processes. */
void averager_add_further_nbytes(averager *v, uint64_t nbytes);
void averager_free(averager *v);

#endif
