/* near_roles.h: the cosines of a checkpoint's tensors to those of a model folder, by role.
 *
 *     near_roles *near = near_roles_new();              // NULL: no memory
 *     RETURN_IF(near_roles_make(near, &n, cat, err));   // of a nearness; else set near->skipped
 *     near_roles_mark(near);
 *     ... near->rows, near->roles ...
 *     near_roles_free(near);
 *
 * A role is a name with its numbers replaced by '*'. Training leaves a tensor near its begin: its score
 * (cosine_sums.h) stays near 1. An export that exchanges or permutes tensors makes those of whole roles
 * unrelated: score 0. So a tensor is far if its score is less than half of that of the others.
 */
#ifndef FSDPCK_VERIFY_NEAR_ROLES_H
#define FSDPCK_VERIFY_NEAR_ROLES_H

#include "base/alloc.h"
#include "compare/nearness.h"
#include "fsdpck_verify.h"

/* What no training does to a tensor, whether it is judged or not. */
typedef enum near_change {
    NEAR_CHANGE_NONE,
    NEAR_CHANGE_SPOILT, /* NaN or infinite elements that are finite in the model folder */
    NEAR_CHANGE_ZEROS,  /* all zeros, but not in the model folder */
    NEAR_CHANGE_LESS,   /* a norm minus 1, as trainers with zero-centered norms store it */
    NEAR_CHANGE_MORE,   /* a norm plus 1 */
    NEAR_CHANGE_SCALED, /* the values of the model folder, times a number far from 1 */
    NEAR_CHANGES
} near_change;

/* A tensor that both have, in floating-point numbers. */
typedef struct near_row {
    uint32_t tensor; /* of the catalogue of SRC */
    uint32_t role;
    uint32_t pair;               /* of the nearness */
    fsdpck_near_state state;     /* judged, or why not */
    double cosine, score;        /* NaN: unknown */
    double projection;           /* likewise */
    uint64_t not_finite, spoilt; /* as in cosine_sums */
    near_change change;
    bool is_far;
} near_row;

typedef struct near_role {
    uint32_t name;        /* of the names */
    uint32_t first, end;  /* in the rows */
    uint64_t judged, far; /* rows */
    double cosine_min, cosine_median,
        score_median; /* of the judged; the cosines of all if none is */
} near_role;

typedef struct near_roles {
    strtab names;
    near_row *rows; /* by role, judged ones first, by ascending score */
    uint32_t row_count;
    near_role *roles; /* by ascending median of the cosine */
    uint32_t role_count;
    uint32_t judged_roles;
    double cosine_median, score_median; /* of the judged roles' medians; NaN: none is judged */
    uint64_t judged, other_tensors, compressed;
    const char *skipped; /* why nothing was compared; NULL: it was */
} near_roles;

near_roles *near_roles_new(void);
void near_roles_free(near_roles *near);

/* Fills rows, roles and medians from the sums. */
fsdpck_status near_roles_make(near_roles *near, const nearness *n, const catalogue *c,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the model as a whole is another one. */
bool near_roles_are_unrelated(const near_roles *near);
/* Marks the far rows. */
void near_roles_mark(near_roles *near);

#endif
