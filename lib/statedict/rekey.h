/* rekey.h: converts optimizer state between the forms by number, by name, and flattened.
 *
 *     OPTIM_KEYS_ID    state.0.exp_avg            param_groups.0.params = [0, 1, ...]
 *     OPTIM_KEYS_NAME  state.emb.weight.exp_avg   param_groups.0.params = ['emb.weight', ...]
 *     OPTIM_KEYS_FLAT  'state.emb.weight.exp_avg', 'param_groups.emb.weight.lr', each one key
 *
 * as torch's optimizer.state_dict(), get_optimizer_state_dict() (also FSDP.optim_state_dict), and
 * the latter with flatten_optimizer_state_dict (torch 2.15, distributed/checkpoint/state_dict.py;
 * FSDP.rekey_optim_state_dict has PARAM_ID and PARAM_NAME).
 *
 *     for each object for which rekey_needs_object(&cat, i)
 *         load it
 *     RETURN_IF(rekey_run(&cat, &order, OPTIM_KEYS_NAME, &log, &count, err));
 *
 * Changes a sealed catalogue in place: names and paths of tensors and objects, param_groups, and
 * the nested root if it has one. No chunk moves. The number of objects may change; everything
 * outside optimizers is unchanged. Optimizers (found by their param_groups, at any place) are
 * independent. One that already has the requested form is unchanged, except for numbers that a DCP
 * folder stores as texts, which become numbers again.
 *
 * Numbers -> names. A number is a position: 0, 1, ... through the groups in order. Only the program
 * that created the optimizer defines the parameter at that position: groups may list parameters
 * sorted by name, or only some of them. Hence names come from recorded names (`order->groups`, or
 * `param_names` of the groups: torch 2.6 and newer, if the optimizer received names), else from the
 * shapes of `order` if these leave only one assignment, else from the order of `order` if that is
 * assumed. An assignment that gives one parameter to two optimizers is invalid for both, unless
 * their names are recorded. Parameters of one group without any state are interchangeable. Names
 * are compared clean (model/fqn.h). They are written as the model's tensors have them, with prefixes
 * of wrappers: the rules for names apply later, to both in the same way. A recorded name that is clean,
 * or that no tensor of the model has, is written as it is.
 *
 * Names -> numbers. Numbers count through the groups in order. Within a group they follow the
 * description's list, else `param_names`, else the list if `order` has the same order. If it has
 * not (an optimizer may list names sorted, and torch sometimes does): `order`, if that is assumed.
 * If `order` lacks some names: the list. Where names of several ranks were joined
 * (cat_tensor.joined), only the description's list and `param_names` are an order.
 *
 * Flattened -> groups. Parameters with equal hyperparameters form a group, in order of appearance;
 * if a description lists the groups, those.
 */
#ifndef FSDPCK_STATEDICT_REKEY_H
#define FSDPCK_STATEDICT_REKEY_H

#include "base/log.h"
#include "model/optim_groups.h"
#include "state/catalogue.h"

typedef enum optim_keys {
    OPTIM_KEYS_AS_THEY_ARE,
    OPTIM_KEYS_NAME,
    OPTIM_KEYS_ID,
    OPTIM_KEYS_FLAT
} optim_keys;

/* A parameter, in the order of model.parameters(). Texts and shapes are borrowed. */
typedef struct rekey_param {
    const char *fqn; /* clean */
    size_t fqn_nbytes;
    const uint64_t *shape;
    unsigned ndim;
    uint32_t tensor;             /* of the catalogue, CAT_NONE: of a description */
    uint32_t saved;              /* 1 + the tensor of the catalogue that has this name, 0: none */
    uint32_t saved_outer_nbytes; /* of its name: not part of the parameter's */
    bool tied;                   /* another name of params[tied_to], which precedes it */
    uint32_t tied_to;
    bool outside;  /* a tensor outside the model, which another optimizer may hold */
    bool nameless; /* inside an object: it may be a parameter, but `fqn` is not its name */
} rekey_param;

typedef struct rekey_order {
    const rekey_param *params;
    uint32_t count;
    bool assumed;   /* the user states that numbers follow it (--assume order) */
    bool described; /* complete; otherwise from a model part, which may include untrained tensors */
    bool strip_ddp; /* the model's names begin with `module.`, which the names here lack */
    const optim_groups *groups; /* of a description, or NULL */
} rekey_order;

/* Whether a state of this key has the shape of its parameter in every optimizer of torch. */
bool rekey_key_is_moment(const char *key, size_t nbytes);
/* Whether rekey_run needs the content of this object. */
bool rekey_needs_object(const catalogue *c, uint32_t object, optim_keys to);

/* *count: number of optimizers. Errors: BADINPUT (MODEL-NEEDED: the meaning of numbers is unknown;
 * MODEL-OPTIM: groups contradict each other or the order; KEY-DUP), UNSUPPORTED (MODEL-OPTIM: the
 * form cannot represent it). The catalogue is unusable after an error. */
fsdpck_status rekey_run(catalogue *c, const rekey_order *order, optim_keys to, const logger *log,
                        uint32_t *count, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Changes only cat_tensor.param of state by number, where its parameter is known, and texts that a
 * DCP folder stores for the numbers in param_groups: they become numbers. */
fsdpck_status rekey_infer_params(catalogue *c, const rekey_order *order, const logger *log,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
