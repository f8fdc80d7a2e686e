/* glob_forms.h: patterns of --keys, --exclude and --dtype in the form of the names that a run gives.
 *
 *     RETURN_IF(glob_forms_fit(a, err)); // fills a->result->forms
 *     RETURN_IF(select_rules_compile(&a->result->forms.options, &a->rules, err));
 *     RETURN_IF(glob_forms_fit_casts(a, err)); // of --dtype, once the picks have their final names
 *     glob_forms_release(&a->result->forms);
 *
 * fsdpck inspect lists names with the outer key of the model, such as model.layers.0.weight, which the model part
 * alone loses. A pattern that matches a name of the run is left as it is. Any other one is tried in the other form:
 * without the key if the run drops it, with it if the run keeps it. A form that matches no name changes nothing.
 */
#ifndef FSDPCK_SELECT_GLOB_FORMS_H
#define FSDPCK_SELECT_GLOB_FORMS_H

#include "select/select_rules.h"

typedef struct glob_forms {
    select_options options; /* of the request, with these patterns */
    char **globs;           /* keys, then exclude */
} glob_forms;

struct select_state;
fsdpck_status glob_forms_fit(struct select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status glob_forms_fit_casts(struct select_state *a, fsdpck_error *err) FSDPCK_MUST_CHECK;
void glob_forms_release(glob_forms *f);

#endif
