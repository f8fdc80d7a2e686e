/* meta_params.h: params.json, which Meta publishes beside the weights of Llama: sizes and settings of the model.
 *
 *     meta_params p;
 *     RETURN_IF(meta_params_read(text, nbytes, &p, err));
 *     if (meta_params_are_of_model(&p)) ... p.heads ...
 */
#ifndef FSDPCK_STATE_META_PARAMS_H
#define FSDPCK_STATE_META_PARAMS_H

#include "base/json.h"

/* Its file. */
#define META_PARAMS_FILE       "params.json"
#define META_PARAMS_NBYTES_MAX ((uint64_t)1 << 16)

/* Absent numbers are 0. */
typedef struct meta_params {
    uint64_t dim, heads, kv_heads, head_dim, layers;
    double norm_eps, rope_theta;
    json_kind scaled_rope; /* JSON_TRUE, JSON_FALSE; JSON_END: absent */
} meta_params;

/* Members at the top, and those of its object "model". BADINPUT (MAP-CONFIG). */
fsdpck_status meta_params_read(const char *text, size_t nbytes, meta_params *p,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Other programs have files of this name, too. */
static inline bool meta_params_are_of_model(const meta_params *p)
{
    return p->dim > 0 && p->heads > 0;
}
/* The rows of a head; 0: unknown. */
uint64_t meta_params_head_dim(const meta_params *p);

#endif
