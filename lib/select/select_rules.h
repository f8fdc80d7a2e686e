/* select_rules.h: the user's --keys, --exclude, --strip-prefix, --rename and --dtype, compiled once.
 *
 *     select_rules rules;
 *     RETURN_IF(select_rules_compile(&options, &rules, err));      // USAGE on a bad rule
 *     for each name: select_rules_match, select_rules_rename, select_rules_cast
 *     RETURN_IF(select_rules_check_used(&rules, err));           // USAGE: a rule that matched nothing
 *     select_rules_release(&rules);
 *
 * Globs are fnmatch's: `*` crosses dots. Renames are sed's s/RE/TEXT/ with PCRE2 expressions, any
 * delimiter, flags g and i, \1 to \9 and & in TEXT.
 */
#ifndef FSDPCK_SELECT_SELECT_RULES_H
#define FSDPCK_SELECT_SELECT_RULES_H

#include "base/alloc.h"
#include "select/name_marks.h"
#include "select/rule_hint.h"
#include "state/dtype.h"

typedef struct select_options {
    const char *const *keys;
    size_t keys_count;
    const char *const *exclude;
    size_t exclude_count;
    const char *const *strip_prefix;
    size_t strip_prefix_count;
    const char *const *rename;
    size_t rename_count;
    const char *const *dtype;
    size_t dtype_count;
    const char *dtype_option; /* the option that gave dtype; NULL: --dtype */
} select_options;

typedef struct select_rules {
    const select_options *options; /* borrowed */
    vec renames;                   /* struct select_rename */
    vec casts;                     /* struct select_cast */
    unsigned char *used; /* one for each option value: keys, exclude, strip, rename, dtype */
    rule_hint *hints;    /* likewise: of those that are not used */
    size_t hint_count;
} select_rules;

fsdpck_status select_rules_compile(const select_options *options, select_rules *rules,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a (cleaned) name is selected. Callers have checked that names contain no NUL. */
bool select_rules_match(select_rules *rules, const char *name);
/* The same for a tensor that may also be selected by the name of its object. */
bool select_rules_match_either(select_rules *rules, const char *name, const char *outer);
/* An item of an optimizer's param_groups, which are selected whole. */
typedef struct group_names {
    const char *groups; /* 'optim.param_groups' */
    const char *below;  /* 'optim.param_groups.', for globs such as '*.param_groups.*' */
    const char *item;   /* 'optim.param_groups.0.lr': a glob that matches only this has no effect */
} group_names;
/* is_used: --keys and --exclude select state of these groups. */
bool select_rules_match_groups(select_rules *rules, const group_names *n, bool is_used);
/* Strips and renames: replaces *name's content and sets *changed if a rule applied. A match that
 * would change what the marks (name_marks.h) fix is skipped. NULL or empty marks: all is free. */
fsdpck_status select_rules_rename(select_rules *rules, text_buf *name, text_buf *marks,
                                  bool *changed, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The dtype that a tensor gets under its final name. */
dtype select_rules_cast(select_rules *rules, const char *name, dtype d, bool is_model);
fsdpck_status select_rules_check_used(const select_rules *rules,
                                      fsdpck_error *err) FSDPCK_MUST_CHECK;
void select_rules_release(select_rules *rules);

#endif
