/* rekey.h: optimizer state by number, by name, or flattened, made one from another.
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
 * A sealed catalogue is changed in place: names and paths of tensors and objects, what param_groups
 * say, and the nested root where there is one. No chunk moves. Objects may be fewer or more
 * afterwards; what is not of an optimizer stays as it is. Each optimizer (found by its
 * param_groups, wherever they lie) is judged by itself; one that has the wanted form already stays
 * as it is, but for numbers that a DCP folder keeps as texts, which become numbers again.
 *
 * Numbers -> names. A number is a place: 0, 1, ... through the groups in order. Which parameter was
 * at that place nobody knows but who made the optimizer: groups may list them sorted by name, or
 * some of them alone. So names come from what is written down (`order->groups`, or `param_names` of
 * the groups: torch 2.6 and newer, where the optimizer was given names), else from the shapes of
 * `order` where these leave one way alone, else from the order of `order` where that is assumed.
 * One parameter for two optimizers is such a way for neither, unless their names are written down.
 * Parameters of one group without any state change places freely: nothing else tells them apart.
 * Names are clean (model/fqn.h), and of parameters in `order` where that has any of a model.
 *
 * Names -> numbers. Numbers are given through the groups in order. Within a group they follow what a
 * description lists, else `param_names`, else the list where `order` lists the names likewise. Where
 * it does not (an optimizer may list names sorted, and so does torch here and there): as `order`
 * where that is assumed. Where `order` does not know all names, the list.
 *
 * Flattened -> groups. Parameters of equal hyper-parameters make a group, in the order in which
 * they are met; where a description lists the groups, those.
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
    uint32_t tensor; /* of the catalogue, CAT_NONE: of a description */
    bool frozen;     /* known to need no gradient */
    bool tied;       /* another name of params[tied_to], which comes before it */
    uint32_t tied_to;
    bool outside; /* a tensor beside the model, which another optimizer may hold */
} rekey_param;

typedef struct rekey_order {
    const rekey_param *params;
    uint32_t count;
    bool assumed;   /* the user says that numbers follow it (--assume order) */
    bool described; /* these and no others; else a model part, which may hold what is not trained */
    bool strip_ddp; /* the model's names begin with `module.`, which names here do not have */
    const optim_groups *groups; /* of a description; NULL */
} rekey_order;

/* Whether rekey_run needs the content of this object. */
bool rekey_needs_object(const catalogue *c, uint32_t object, optim_keys to);

/* *count: optimizers that were found. Errors: BADINPUT (MODEL-NEEDED: nobody says what the numbers
 * mean; MODEL-OPTIM: groups that contradict themselves or the order; KEY-DUP), UNSUPPORTED
 * (MODEL-OPTIM: the form cannot hold it). The catalogue is of no use after an error. */
fsdpck_status rekey_run(catalogue *c, const rekey_order *order, optim_keys to, const logger *log,
                        uint32_t *count, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Changes nothing but cat_tensor.param of state by number, where its meaning can be told, and texts
 * that a DCP folder has for the numbers that param_groups list: they become numbers. */
fsdpck_status rekey_infer_params(catalogue *c, const rekey_order *order, const logger *log,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
