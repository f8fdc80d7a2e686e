/* rule_hint.h: the form of a rule that would match, for a rule that matched no name. Names have an outer
 * key in some formats and none in others: "layers.0.*" and "model.layers.0.*".
 *
 *     rule_hint h = {0};
 *     for each name that the rule does not match: rule_hint_glob(&h, "layers.0.*", name);
 *     h.text                                     // "model.layers.0.*"; NULL: none is close
 *     rule_hint_release(&h);
 */
#ifndef FSDPCK_SELECT_RULE_HINT_H
#define FSDPCK_SELECT_RULE_HINT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rule_hint {
    char *text;        /* NULL: none yet */
    unsigned distance; /* components of the name or rule that differ; the smallest wins */
} rule_hint;

/* Whether the expression of a rule matches the text. */
typedef bool (*rule_match_fn)(const void *ctx, const char *text, size_t nbytes);

void rule_hint_glob(rule_hint *h, const char *glob, const char *name);
/* A prefix to remove from names. */
void rule_hint_prefix(rule_hint *h, const char *prefix, const char *name);
/* `rule` is valid: s/RE/TEXT/FLAGS. */
void rule_hint_rename(rule_hint *h, const char *rule, rule_match_fn match, const void *ctx,
                      const char *name);
void rule_hint_release(rule_hint *h);

#endif
