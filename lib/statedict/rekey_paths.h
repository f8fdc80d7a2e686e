/* rekey_paths.h: paths of an optimizer's state where a checkpoint has flat names alone, as HDF5 has.
 *
 *     load the objects for which rekey_paths_need_object(&cat, i)
 *     RETURN_IF(rekey_paths_infer(&cat, true, &inferred, err));
 *     ... rekey_run() ...
 *     rekey_paths_clear(&cat, &inferred);
 *
 * The dots of a flat name may separate keys or be part of one. param_groups list the keys of the
 * state: 'optim.param_groups.0.params' = ['emb.weight'] shows that 'optim.state.emb.weight.exp_avg'
 * is ('optim', 'state', 'emb.weight', 'exp_avg'). Groups without such a list are those of the
 * flattened form. If the names of parameters are recorded and the tensors have them below one common
 * key, that key is the outer key of the model.
 */
#ifndef FSDPCK_STATEDICT_REKEY_PATHS_H
#define FSDPCK_STATEDICT_REKEY_PATHS_H

#include "state/catalogue.h"

typedef struct rekey_paths {
    bool made; /* the catalogue had no path, and has some now */
    bool
        has_names; /* names of parameters are recorded, so that an outer key of the model is known */
} rekey_paths;

/* Whether rekey_paths_infer() needs its content. */
bool rekey_paths_need_object(const catalogue *c, uint32_t object);
/* Changes nothing if the catalogue has a path. model_too: tensors of the model get an outer key. */
fsdpck_status rekey_paths_infer(catalogue *c, bool model_too, rekey_paths *inferred,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The names are the only keys again. */
void rekey_paths_clear(catalogue *c, const rekey_paths *inferred);

#endif
