/* optimizer_roots.h: finds the optimizers of a checkpoint by the shape of their state dicts.
 *
 * An optimizer's state dict has `param_groups` beside `state`, and `state` has a few tensors for
 * each parameter: `state.FQN.exp_avg`, or Megatron's `state.exp_avg.FQN`. The root is the prefix of
 * `state`: "optimizer", "state.optimizers.AdamW", "optimizer_states.0". Names alone do not decide:
 * a parameter may be named `optimizer_head.weight`, and an optimizer `opt`.
 *
 *     optimizer_roots roots;
 *     RETURN_IF(optimizer_roots_find(&cat, tensor_count, &roots, err));
 *     if (optimizer_roots_contain(&roots, name, nbytes, &root_nbytes)) ...
 *     optimizer_roots_release(&roots);
 */
#ifndef FSDPCK_SELECT_OPTIMIZER_ROOTS_H
#define FSDPCK_SELECT_OPTIMIZER_ROOTS_H

#include "state/catalogue.h"

typedef struct optimizer_roots {
    strtab groups; /* roots with objects below `param_groups` */
    strtab slots;  /* roots with tensors named as in torch's optimizers */
    strtab flat;   /* roots of either kind found in flat names */
} optimizer_roots;

/* Release *r also after a failure. */
fsdpck_status optimizer_roots_find(const catalogue *c, size_t tensor_count, optimizer_roots *r,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
void optimizer_roots_release(optimizer_roots *r);

bool optimizer_roots_any(const optimizer_roots *r);
/* Whether NAME is `ROOT.state...` or `ROOT.param_groups...` of a root. */
bool optimizer_roots_contain(const optimizer_roots *r, const char *name, size_t nbytes,
                             size_t *root_nbytes);
/* Likewise, only for roots with `param_groups`. */
bool optimizer_roots_contain_group(const optimizer_roots *r, const char *name, size_t nbytes);
/* Whether ROOT comes from flat names: a first word, not a dict. */
bool optimizer_roots_has_flat(const optimizer_roots *r, const char *root, size_t nbytes);

/* A key of an optimizer's state of one parameter, such as "exp_avg". */
bool optimizer_roots_is_slot(const char *text, size_t nbytes);
/* "optimizer", "optim_0", "optimizers", "optimizer_state_dict": a key that only an optimizer has. */
bool optimizer_roots_is_key(const char *text, size_t nbytes);
/* Whether TEXT is STEM followed only by a number, an s or `_state(s)(_dict(s))`. */
bool optimizer_roots_is_stem(const char *text, size_t nbytes, const char *stem);

#endif
