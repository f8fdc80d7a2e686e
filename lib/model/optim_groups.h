/* optim_groups.h: param_groups and their parameters, from a model description ("optimizers",
 * fsdpck-model(5)).
 *
 *     optim_groups g;
 *     optim_groups_init(&g, &budget);
 *     RETURN_IF(optim_groups_add(&g, "optim", 5, err));          // an optimizer
 *     RETURN_IF(optim_groups_open(&g, err));                     // a group of it
 *     RETURN_IF(optim_groups_put(&g, "emb.weight", 10, err));    // a member
 *     ...
 *     const optim_list *l = optim_groups_find(&g, "optim.", 6, true);
 *     optim_groups_release(&g);
 */
#ifndef FSDPCK_MODEL_OPTIM_GROUPS_H
#define FSDPCK_MODEL_OPTIM_GROUPS_H

#include <stdbool.h>

#include "base/alloc.h"

/* Optimizers of one description; lookup is linear. */
#define OPTIM_LISTS_MAX 1024u

typedef struct optim_group {
    uint32_t first, count; /* in optim_groups.members */
} optim_group;

typedef struct optim_list {
    uint32_t name;         /* name id */
    uint32_t first, count; /* in optim_groups.groups */
} optim_list;

typedef struct optim_groups {
    strtab names;
    vec lists;   /* optim_list */
    vec groups;  /* optim_group */
    vec members; /* uint32_t: name id of an FQN, or of PREFIX._flat_param */
} optim_groups;

void optim_groups_init(optim_groups *g, budget *owner);
void optim_groups_release(optim_groups *g);
fsdpck_status optim_groups_add(optim_groups *g, const char *name, size_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status optim_groups_open(optim_groups *g, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status optim_groups_put(optim_groups *g, const char *fqn, size_t nbytes,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Adds all of `from` to `to`. */
fsdpck_status optim_groups_copy(const optim_groups *from, optim_groups *to,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;

/* The optimizer whose state is under `prefix` ("optim.", ""): that with the same last key. If the
 * checkpoint has only one optimizer, the only one of the description. NULL if none. */
const optim_list *optim_groups_find(const optim_groups *g, const char *prefix, size_t nbytes,
                                    bool is_only);
const optim_group *optim_groups_at(const optim_groups *g, const optim_list *l, uint32_t i);
const char *optim_groups_member(const optim_groups *g, const optim_group *group, uint32_t i,
                                size_t *nbytes);

#endif
