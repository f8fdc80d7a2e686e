/* like_output.h: an output that equals a model folder in all but the values: fsdpck consolidate --like.
 *
 *     like_output l;
 *     RETURN_IF(like_output_open(&l, options, err));   // before the selection
 *     ... select with like_output_select ...
 *     RETURN_IF(like_output_check(&l, &target, &src->cat, err)); // names, shapes, dtypes
 *     like_output_release(&l);
 *
 * Without options->like the folder is NULL.
 */
#ifndef FSDPCK_RUN_LIKE_OUTPUT_H
#define FSDPCK_RUN_LIKE_OUTPUT_H

#include "base/log.h"
#include "open/model_config.h"
#include "run/run_options.h"
#include "select/select.h"

typedef struct like_output {
    const fsdpck_checkpoint *base; /* NULL: none */
    model_config config;
    dtype usual;       /* like_output_usual */
    const char *index; /* name of its index, NULL: it has none */
} like_output;

/* USAGE for options that contradict it, UNSUPPORTED if it is no folder of safetensors. */
fsdpck_status like_output_open(like_output *l, const run_options *options,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* fp64, fp32, fp16 and bf16. */
bool like_output_is_castable(dtype d);
/* The castable dtype of most elements; float32 if none is castable. */
dtype like_output_usual(const catalogue *c);
void like_output_select(const like_output *l, select_request *request);
/* With a folder: every tensor of it is in the target with its shape, and no other. BADINPUT (EXPORT-KEYS,
 * EXPORT-SHAPE, EXPORT-DTYPE), with lines of the map that `from` was made with. */
fsdpck_status like_output_check(const like_output *l, const target *to,
                                const fsdpck_checkpoint *from, fsdpck_error *err) FSDPCK_MUST_CHECK;
void like_output_release(like_output *l);

/* --- for fsdpck verify --like, which compares a finished output --- */

#define LIKE_NAMES_SHOWN 5u

typedef struct like_names {
    text_buf names; /* the first few */
    text_buf all;   /* each with its NUL, for named_tensors_keep */
    uint64_t count;
    uint32_t first;    /* the first tensor */
    const char *lists; /* "-v": lists the further names; NULL: unknown */
    /* Gets them, as "KIND: 'NAME'"; NULL: none. */
    const logger *log;
    const char *kind;
} like_names;

void like_names_add(like_names *n, const catalogue *c, size_t tensor);
void like_names_release(like_names *n);
/* ", and 3 more" if some are not among the first. */
void like_names_put_more(const like_names *n, text_buf *out);
/* "2 missing: 'a', 'b'"; nothing for an empty list. After "; " if there is text. */
void like_names_put(const like_names *n, const char *what, text_buf *out);
/* The tensors that `to` lacks, and those that only it has. allows_head: it may have an output projection
 * (lm_head) of its own. ties: tied_pair of `to`, whose aliases it may have too; NULL: none. Both lists are zeroed
 * before; release their names. */
void like_output_compare_names(const like_output *l, const catalogue *to, bool allows_head,
                               const vec *ties, like_names *missing, like_names *extra);
/* The next step where names differ: `usual`, or that for a folder whose weights are quantized. */
const char *like_output_names_advice(const like_output *l, const catalogue *to, const char *usual);
/* Whether the folder's tensor is quantized, and the target's of the same name is not. */
bool like_output_is_dequantized(const like_output *l, const catalogue *to, uint32_t tensor);
/* "float32 [4, 2]" */
void like_output_put_type(const catalogue *c, size_t tensor, text_buf *text);

#endif
