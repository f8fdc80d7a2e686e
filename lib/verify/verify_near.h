/* verify_near.h: verify --like, values: far tensors are findings.
 *
 *     RETURN_IF(verify_near_check(v, base, errors, err));
 *     ... v->near ...
 */
#ifndef FSDPCK_VERIFY_VERIFY_NEAR_H
#define FSDPCK_VERIFY_VERIFY_NEAR_H

#include "verify/near_roles.h"
#include "verify/verify_internal.h"

/* Collective. Allocates v->near. errors: of the check of SRC alone; with any, no values are compared. */
fsdpck_status verify_near_check(fsdpck_verify *v, fsdpck_checkpoint *base, uint64_t errors,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
#endif
