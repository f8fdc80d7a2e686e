/* rule_match.h: the names under which the rules of a layout find a tensor.
 *
 *     rule_names n;
 *     rule_names_of(&tensor, &n);
 *     if (rule_names_match(&n, rule->glob) || rule_names_match_module(&n, rule->glob)) ...
 *
 * A parameter has two names: as the model has it, and, in a training checkpoint, with the outer key
 * that the model lies under. People see the second (inspect) and think of the first, so both do.
 */
#ifndef FSDPCK_LAYOUT_RULE_MATCH_H
#define FSDPCK_LAYOUT_RULE_MATCH_H

#include "layout/layout.h"

#define RULE_MODULE_NBYTES_MAX 4096u

typedef struct rule_names {
    const char *names[2];                    /* NULL: none */
    char modules[2][RULE_MODULE_NBYTES_MAX]; /* a name without its last part; "" where it has one */
} rule_names;

/* Borrows the tensor's names. */
void rule_names_of(const layout_tensor *t, rule_names *n);
bool rule_names_match(const rule_names *n, const char *glob);
bool rule_names_match_module(const rule_names *n, const char *glob);

#endif
