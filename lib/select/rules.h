/* rules.h: the user's --keys, --exclude, --strip-prefix, --rename and --dtype, compiled once.
 *
 *     aim_rules rules;
 *     RETURN_IF(aim_rules_compile(&words, &rules, err));      // USAGE on a bad rule
 *     for each name: aim_rules_select, aim_rules_rename, aim_rules_cast
 *     RETURN_IF(aim_rules_check_used(&rules, err));           // USAGE: a rule that matched nothing
 *     aim_rules_release(&rules);
 *
 * Globs are fnmatch's: `*` crosses dots. Renames are sed's s/RE/TEXT/ with PCRE2 expressions, any
 * delimiter, flags g and i, \1 to \9 and & in TEXT.
 */
#ifndef FSDPCK_SELECT_RULES_H
#define FSDPCK_SELECT_RULES_H

#include "base/alloc.h"
#include "state/dtype.h"

typedef struct aim_words {
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
} aim_words;

typedef struct aim_rules {
    const aim_words *words; /* borrowed */
    vec renames;            /* struct aim_rename */
    vec casts;              /* struct aim_cast */
    unsigned char *used;    /* one for each word: keys, exclude, strip, rename, dtype */
} aim_rules;

fsdpck_status aim_rules_compile(const aim_words *words, aim_rules *rules,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether a (cleaned) name is wanted. Names hold no NUL: callers have checked. */
bool aim_rules_select(aim_rules *rules, const char *name);
/* The same for a tensor that also goes by the name of the object around it. */
bool aim_rules_select_either(aim_rules *rules, const char *name, const char *outer);
/* Strips and renames: replaces *name's content. *changed is set where it did. */
fsdpck_status aim_rules_rename(aim_rules *rules, text_buf *name, bool *changed,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The dtype that a tensor gets under its final name. */
dtype aim_rules_cast(aim_rules *rules, const char *name, dtype d, bool is_model);
fsdpck_status aim_rules_check_used(const aim_rules *rules, fsdpck_error *err) FSDPCK_MUST_CHECK;
void aim_rules_release(aim_rules *rules);

#endif
