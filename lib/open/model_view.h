/* model_view.h: the model's tensors under the names that an export of them has, beside the model's config.json.
 *
 *     model_view v;
 *     RETURN_IF(model_view_open(&v, c, err));         // releases after a failure
 *     model_view_tensor(&v, i)                        // tensor i of v.cat, in c->cat
 *     model_view_release(&v);
 */
#ifndef FSDPCK_OPEN_MODEL_VIEW_H
#define FSDPCK_OPEN_MODEL_VIEW_H

#include "open/side_folder.h"

typedef struct model_view {
    model_config config; /* text NULL: there is none, or it is unreadable; then `cat` is empty */
    catalogue cat;       /* names, dtypes and shapes alone */
    vec from;            /* uint32_t: tensors of the checkpoint */
} model_view;

/* Without tensors if two of them have one name. Objects that are not loaded are not searched for tensors. */
fsdpck_status model_view_open(model_view *v, fsdpck_checkpoint *c,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
uint32_t model_view_tensor(const model_view *v, size_t tensor);
void model_view_release(model_view *v);

#endif
