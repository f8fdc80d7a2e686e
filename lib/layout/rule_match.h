/* rule_match.h: the names of a tensor that layout rules match.
 *
 *     rule_names n;
 *     rule_names_of(&tensor, &n);
 *     if (rule_names_match(&n, rule->glob) || rule_names_match_module(&n, rule->glob)) ...
 *
 * A parameter has two names: that of the model and, in a training checkpoint, that with the outer
 * key of the model. inspect prints the second and users think of the first, so rules match both.
 */
#ifndef FSDPCK_LAYOUT_RULE_MATCH_H
#define FSDPCK_LAYOUT_RULE_MATCH_H

#include "layout/layout.h"

#define RULE_MODULE_NBYTES_MAX 4096u

typedef struct rule_names {
    const char *names[2];                    /* NULL: none */
    char modules[2][RULE_MODULE_NBYTES_MAX]; /* a name without its last part; "" if it has only
                                              * one */
} rule_names;

/* Borrows the tensor's names. */
void rule_names_of(const layout_tensor *t, rule_names *n);
bool rule_names_match(const rule_names *n, const char *glob);
bool rule_names_match_module(const rule_names *n, const char *glob);

#endif
