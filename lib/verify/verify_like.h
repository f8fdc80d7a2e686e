/* verify_like.h: compares a finished model folder with the model that it was made for: fsdpck verify --like.
 *
 *     RETURN_IF(verify_like_open(&like, &options, err));   // options.like NULL: like is NULL
 *     RETURN_IF(verify_like_check(like, v, err));          // defects of the output are findings
 *     verify_like_close(like);
 */
#ifndef FSDPCK_VERIFY_VERIFY_LIKE_H
#define FSDPCK_VERIFY_VERIFY_LIKE_H

#include "verify/verify_internal.h"

typedef struct verify_like verify_like;

/* Opens the model folder. The errors of fsdpck_open; UNSUPPORTED if it is no folder of safetensors. */
fsdpck_status verify_like_open(verify_like **out, const fsdpck_verify_options *options,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective. After all other checks, as it reads tensors only where these found no error. */
fsdpck_status verify_like_check(verify_like *like, fsdpck_verify *v,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
void verify_like_close(verify_like *like);

#endif
