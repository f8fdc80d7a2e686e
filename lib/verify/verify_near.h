/* verify_near.h: verify --like, values: the cosine of each tensor to the model folder's, by role.
 *
 *     RETURN_IF(verify_near_check(v, base, errors, err));   // far roles are findings
 *     ... v->near->rows, v->near->roles ...
 *     verify_near_free(v->near);
 *
 * A role is a name with its numbers replaced by '*'. Training leaves a tensor near its begin: its score
 * (cosine_sums.h) stays near 1. An export that exchanges or permutes tensors makes those of whole roles
 * unrelated: score 0. So a role or tensor is far if its score is less than half of that of the others.
 */
#ifndef FSDPCK_VERIFY_VERIFY_NEAR_H
#define FSDPCK_VERIFY_VERIFY_NEAR_H

#include "base/alloc.h"
#include "compare/nearness.h"
#include "verify/verify_internal.h"

/* A tensor that both have, in floating-point numbers. */
typedef struct near_row {
    uint32_t tensor; /* of the catalogue of SRC */
    uint32_t role;
    uint32_t pair;           /* of the nearness */
    fsdpck_near_state state; /* judged, or why not */
    double cosine, score;    /* NaN: unknown */
    double projection;       /* likewise */
    uint64_t not_finite;
    bool is_far;
} near_row;

typedef struct near_role {
    uint32_t name;        /* of the names */
    uint32_t first, end;  /* in the rows */
    uint64_t judged, far; /* rows */
    double cosine_min, cosine_median,
        score_median; /* of the judged; the cosines of all if none is */
} near_role;

typedef struct verify_near {
    strtab names;
    near_row *rows; /* by role, judged ones first, by ascending score */
    uint32_t row_count;
    near_role *roles; /* by ascending median of the cosine */
    uint32_t role_count;
    uint32_t judged_roles;
    double cosine_median, score_median; /* of the judged roles' medians; NaN: none is judged */
    uint64_t judged, other_tensors;
    const char *skipped; /* why nothing was compared; NULL: it was */
} verify_near;

/* Collective. Allocates v->near. errors: of the check of SRC alone; with any, no values are compared. */
fsdpck_status verify_near_check(fsdpck_verify *v, fsdpck_checkpoint *base, uint64_t errors,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
void verify_near_free(verify_near *near);

/* --- near_roles.c --- */

/* Fills rows, roles and medians from the sums. */
fsdpck_status near_roles_make(verify_near *near, const nearness *n, const catalogue *c,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the model as a whole is another one. */
bool near_roles_are_unrelated(const verify_near *near);
/* Marks the far rows. */
void near_roles_mark(verify_near *near);

#endif
