#include "select/select_rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/name_glob.h"
#include "base/text.h"
#include "select/select_cast.h"
#include "state/scale_name.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* A match that backtracks longer than this is refused, not waited for. */
#define MATCH_LIMIT 1000000u

typedef struct select_rename {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    char *replacement;
    bool global;
} select_rename;

/* select_rules.used, besides 0. */
enum {
    RULE_USED = 1,
    RULE_KEPT /* it matched only what rules do not change */
};

static size_t options_count(const select_options *w)
{
    return w->keys_count + w->exclude_count + w->strip_prefix_count + w->rename_count +
           w->dtype_count;
}

/* End of the part that begins at `at`: the next delimiter that no backslash escapes. */
static const char *part_end(const char *at, char delimiter)
{
    for (; *at != '\0' && *at != delimiter; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
    }
    return at;
}

static fsdpck_status refuse_rename(const char *word, const char *why, fsdpck_error *err)
{
    return FAIL_WITH(
        err, USAGE, NONE, ("--rename '%s' does not have the form s/RE/TEXT/: %s", word, why),
        (next, "write it as in sed, for example --rename 's/^layers\\./model.layers./'"));
}

/* sed's & and \1 in PCRE2's syntax: $0 and $1; a dollar is doubled. */
static char *translate_replacement(const char *text, size_t nbytes)
{
    text_buf out = {0};
    for (size_t i = 0; i < nbytes; i++) {
        const char c = text[i];
        const char next = i + 1 < nbytes ? text[i + 1] : '\0';
        if (c == '\\' && next >= '0' && next <= '9') {
            text_printf(&out, "${%c}", next);
            i++;
        } else if (c == '\\' && next != '\0') {
            text_append(&out, &text[++i], 1);
        } else if (c == '&') {
            text_puts(&out, "${0}");
        } else if (c == '$') {
            text_puts(&out, "$$");
        } else {
            text_append(&out, &c, 1);
        }
    }
    text_append(&out, "", 0);
    if (out.text == NULL && !out.failed)
        return calloc(1, 1);
    return out.text;
}

static fsdpck_status rename_flags(const char *word, const char *flags, select_rename *rename,
                                  uint32_t *options, fsdpck_error *err)
{
    for (; *flags != '\0'; flags++) {
        if (*flags == 'g')
            rename->global = true;
        else if (*flags == 'i' || *flags == 'I')
            *options |= PCRE2_CASELESS;
        else
            return refuse_rename(word, "flags are g and i", err);
    }
    return FSDPCK_OK;
}

static fsdpck_status compile_rename(const char *word, select_rename *rename, fsdpck_error *err)
{
    if (word[0] != 's' || word[1] == '\0' || word[1] == '\\')
        return refuse_rename(word, "it does not begin with s and a delimiter", err);
    const char delimiter = word[1];
    const char *re = word + 2;
    const char *re_end = part_end(re, delimiter);
    if (*re_end == '\0')
        return refuse_rename(word, "the second delimiter is missing", err);
    const char *text = re_end + 1;
    const char *text_end = part_end(text, delimiter);
    if (*text_end == '\0')
        return refuse_rename(word, "the last delimiter is missing", err);
    uint32_t options = 0;
    RETURN_IF(rename_flags(word, text_end + 1, rename, &options, err));
    int number;
    PCRE2_SIZE where;
    rename->code =
        pcre2_compile((PCRE2_SPTR)re, (PCRE2_SIZE)(re_end - re), options, &number, &where, NULL);
    if (rename->code == NULL) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(number, why, sizeof why);
        return refuse_rename(word, (const char *)why, err);
    }
    rename->match = pcre2_match_data_create_from_pattern(rename->code, NULL);
    rename->context = pcre2_match_context_create(NULL);
    rename->replacement = translate_replacement(text, (size_t)(text_end - text));
    if (rename->match == NULL || rename->context == NULL || rename->replacement == NULL)
        return error_set_nomem(err, 0);
    pcre2_set_match_limit(rename->context, MATCH_LIMIT);
    return FSDPCK_OK;
}

fsdpck_status select_rules_compile(const select_options *options, select_rules *rules,
                                   fsdpck_error *err)
{
    *rules = (select_rules){.options = options};
    rules->renames = VEC_OF(select_rename, NULL);
    rules->casts = VEC_OF(select_cast, NULL);
    fsdpck_status st = FSDPCK_OK;
    rules->used = calloc(options_count(options) + 1, 1);
    rules->hints = calloc(options_count(options) + 1, sizeof *rules->hints);
    rules->hint_count = rules->hints == NULL ? 0 : options_count(options);
    if (rules->used == NULL || rules->hints == NULL)
        GOTO_IF(error_set_nomem(err, options_count(options)), out);
    for (size_t i = 0; i < options->rename_count; i++) {
        select_rename *r = vec_push(&rules->renames, err);
        if (r == NULL)
            GOTO_IF(FSDPCK_LIMIT, out);
        GOTO_IF(compile_rename(options->rename[i], r, err), out);
    }
    for (size_t i = 0; i < options->dtype_count; i++) {
        select_cast *c = vec_push(&rules->casts, err);
        if (c == NULL)
            GOTO_IF(FSDPCK_LIMIT, out);
        GOTO_IF(select_cast_compile(options->dtype[i], c, err), out);
    }
out:
    if (st != FSDPCK_OK)
        select_rules_release(rules);
    return st;
}

/* For the rules of a list that have matched no name so far. */
static void hint_globs(select_rules *rules, const char *const *globs, size_t count, size_t at,
                       const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!rules->used[at + i])
            rule_hint_glob(&rules->hints[at + i], globs[i], name);
}

bool select_rules_match_either(select_rules *rules, const char *name, const char *outer)
{
    const select_options *w = rules->options;
    bool wanted = w->keys_count == 0;
    for (size_t i = 0; i < w->keys_count; i++) {
        if (name_glob_matches(w->keys[i], name) || name_glob_matches(w->keys[i], outer)) {
            rules->used[i] = 1;
            wanted = true;
        }
    }
    hint_globs(rules, w->keys, w->keys_count, 0, name);
    if (wanted)
        hint_globs(rules, w->exclude, w->exclude_count, w->keys_count, name);
    /* Only names that --keys selects count as excluded. */
    for (size_t i = 0; wanted && i < w->exclude_count; i++) {
        if (name_glob_matches(w->exclude[i], name) || name_glob_matches(w->exclude[i], outer)) {
            rules->used[w->keys_count + i] = 1;
            return false;
        }
    }
    return wanted;
}

bool select_rules_match(select_rules *rules, const char *name)
{
    return select_rules_match_either(rules, name, name);
}

static bool match_groups(const char *glob, const group_names *n, unsigned char *used)
{
    const bool matches = name_glob_matches(glob, n->groups) || name_glob_matches(glob, n->below);
    if (matches)
        *used = RULE_USED;
    else if (*used == 0 && name_glob_matches(glob, n->item))
        *used = RULE_KEPT;
    return matches;
}

bool select_rules_match_groups(select_rules *rules, const group_names *n, bool is_used)
{
    const select_options *w = rules->options;
    bool wanted = w->keys_count == 0 || is_used, omitted = false;
    for (size_t i = 0; i < w->keys_count; i++)
        wanted = match_groups(w->keys[i], n, &rules->used[i]) || wanted;
    hint_globs(rules, w->keys, w->keys_count, 0, n->item);
    for (size_t i = 0; wanted && i < w->exclude_count; i++)
        omitted = match_groups(w->exclude[i], n, &rules->used[w->keys_count + i]) || omitted;
    if (wanted)
        hint_globs(rules, w->exclude, w->exclude_count, w->keys_count, n->item);
    return wanted && !omitted;
}

static fsdpck_status refuse_match(const char *word, const char *name, int number, fsdpck_error *err)
{
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(number, why, sizeof why);
    return FAIL(err, USAGE, NONE, "--rename '%s' failed on '%s': %s", word, name,
                (const char *)why);
}

/* The text that replaces the match; a PCRE2 error, or 0. */
static int expand(const select_rename *r, const char *name, text_buf *out)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->match);
    const uint32_t count = pcre2_get_ovector_count(r->match);
    out->nbytes = 0;
    text_append(out, "", 0);
    for (const char *c = r->replacement; *c != '\0'; c++) {
        if (*c != '$') {
            text_append(out, c, 1);
            continue;
        }
        c++;
        if (*c == '$') { /* "$$" or "${1}" */
            text_append(out, c, 1);
            continue;
        }
        const uint32_t group = (uint32_t)(c[1] - '0');
        c += 2;
        if (group >= count)
            return PCRE2_ERROR_NOSUBSTRING;
        if (at[(size_t)group * 2] == PCRE2_UNSET)
            return PCRE2_ERROR_UNSET;
        text_append(out, name + at[(size_t)group * 2],
                    at[(size_t)group * 2 + 1] - at[(size_t)group * 2]);
    }
    return 0;
}

/* A rule at work on one name. */
typedef struct rename_run {
    const select_rename *rule;
    const char *word;
    text_buf was, text;
    bool hit, kept; /* a match was replaced, or may not be */
} rename_run;

/* Replaces the current match. *last: the end of the match before it, and then of this one. */
static fsdpck_status replace_match(rename_run *n, text_buf *name, text_buf *marks, size_t *last,
                                   bool *applied, fsdpck_error *err)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(n->rule->match);
    const size_t shorter = n->was.nbytes - *last, longer = name->nbytes;
    if (at[0] > at[1] || at[0] < *last)
        return refuse_match(n->word, n->was.text, PCRE2_ERROR_BADSUBSPATTERN, err);
    const int failed = expand(n->rule, n->was.text, &n->text);
    if (failed != 0)
        return refuse_match(n->word, n->was.text, failed, err);
    RETURN_IF(text_check(&n->text, err));
    const size_t begin = longer - shorter + (at[0] - *last); /* the end of the name is unchanged */
    RETURN_IF(name_marks_edit(name, marks, begin, begin + (at[1] - at[0]), n->text.text,
                              n->text.nbytes, applied, err));
    *last = at[1];
    n->hit = n->hit || *applied;
    n->kept = n->kept || !*applied;
    return FSDPCK_OK;
}

static fsdpck_status replace_matches(rename_run *n, text_buf *name, text_buf *marks,
                                     fsdpck_error *err)
{
    const select_rename *r = n->rule;
    size_t at = 0, last = 0;
    uint32_t options = 0;
    for (;;) {
        const int found = pcre2_match(r->code, (PCRE2_SPTR)n->was.text, n->was.nbytes, at, options,
                                      r->match, r->context);
        if (found == PCRE2_ERROR_NOMATCH) { /* after an empty match: one byte on */
            if (options == 0 || at >= n->was.nbytes)
                return FSDPCK_OK;
            at++;
            options = 0;
            continue;
        }
        if (found < 0)
            return refuse_match(n->word, n->was.text, found, err);
        bool applied;
        RETURN_IF(replace_match(n, name, marks, &last, &applied, err));
        if (applied && !r->global)
            return FSDPCK_OK;
        const PCRE2_SIZE *where = pcre2_get_ovector_pointer(r->match);
        options = where[0] == where[1] ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0u;
        at = last;
    }
}

static fsdpck_status apply_rename(rename_run *n, text_buf *name, text_buf *marks, fsdpck_error *err)
{
    text_append(&n->was, name->text, name->nbytes);
    fsdpck_status st = text_check(&n->was, err);
    if (st == FSDPCK_OK)
        st = replace_matches(n, name, marks, err);
    text_release(&n->was);
    text_release(&n->text);
    return st;
}

static bool is_renamed(const void *ctx, const char *text, size_t nbytes)
{
    const select_rename *r = ctx;
    return pcre2_match(r->code, (PCRE2_SPTR)text, nbytes, 0, 0, r->match, r->context) >= 0;
}

/* Removes a prefix; *hit: whether it was there, *kept: it may not be removed. */
static fsdpck_status strip(const char *prefix, text_buf *name, text_buf *marks, bool *hit,
                           bool *kept, fsdpck_error *err)
{
    const size_t n = strlen(prefix);
    if (n == 0 || n >= name->nbytes || memcmp(name->text, prefix, n) != 0)
        return FSDPCK_OK;
    RETURN_IF(name_marks_edit(name, marks, 0, n, "", 0, hit, err));
    *kept = !*hit;
    return FSDPCK_OK;
}

fsdpck_status select_rules_rename(select_rules *rules, text_buf *name, text_buf *marks,
                                  bool *changed, fsdpck_error *err)
{
    const select_options *w = rules->options;
    size_t at = w->keys_count + w->exclude_count;
    for (size_t i = 0; i < w->strip_prefix_count; i++, at++) {
        bool hit = false, kept = false;
        RETURN_IF(strip(w->strip_prefix[i], name, marks, &hit, &kept, err));
        *changed = *changed || hit;
        if (hit)
            rules->used[at] = RULE_USED;
        else if (kept && !rules->used[at])
            rules->used[at] = RULE_KEPT;
        else if (!rules->used[at])
            rule_hint_prefix(&rules->hints[at], w->strip_prefix[i], name->text);
    }
    for (size_t i = 0; i < w->rename_count; i++, at++) {
        rename_run n = {.rule = VEC_AT(&rules->renames, select_rename, i), .word = w->rename[i]};
        RETURN_IF(apply_rename(&n, name, marks, err));
        *changed = *changed || n.hit;
        if (n.hit)
            rules->used[at] = RULE_USED;
        else if (n.kept && !rules->used[at])
            rules->used[at] = RULE_KEPT;
        else if (!rules->used[at])
            rule_hint_rename(&rules->hints[at], w->rename[i], is_renamed, n.rule, name->text);
    }
    return FSDPCK_OK;
}

static bool is_usual_float(dtype d)
{
    return d == DTYPE_FLOAT64 || d == DTYPE_FLOAT32 || d == DTYPE_FLOAT16 || d == DTYPE_BFLOAT16;
}

/* Scales of 8-bit weights are far from 1: fewer exponents make them 0 or infinite, and readers want their dtype. */
static bool is_scale(const char *name)
{
    return text_ends_with(name, strlen(name), SCALE_OF_BLOCKS);
}

dtype select_rules_cast(select_rules *rules, const char *name, dtype d, bool is_model)
{
    const select_options *w = rules->options;
    const size_t at = options_count(w) - w->dtype_count;
    const bool floating = dtype_get(d)->kind == DTYPE_IS_FLOAT && dtype_get(d)->packing == 1;
    dtype to = d;
    for (size_t i = 0; floating && i < w->dtype_count; i++) {
        const select_cast *cast = VEC_AT(&rules->casts, select_cast, i);
        const bool hit = cast->glob == NULL ? is_model && is_usual_float(d) && !is_scale(name)
                                            : name_glob_matches(cast->glob, name);
        if (hit) {
            to = cast->to;
            rules->used[at + i] = 1;
        } else if (!rules->used[at + i] && cast->glob != NULL) {
            rule_hint_glob(&rules->hints[at + i], cast->glob, name);
        }
    }
    return to;
}

static fsdpck_status check_list(const select_rules *r, const char *option, const char *const *list,
                                size_t count, size_t at, fsdpck_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (r->used[at + i] == RULE_KEPT)
            return FAIL_WITH(err, USAGE, KEY_LIST,
                             ("%s '%s' matches only list indexes, numbers or keys of an optimizer",
                              option, list[i]),
                             (expected, "a match in the name of a parameter or of a dict"),
                             (next, "list the names with: fsdpck inspect --tree SRC"));
        if (r->used[at + i])
            continue;
        const bool is_cast = list == r->options->dtype;
        const bool is_glob = is_cast || list == r->options->keys || list == r->options->exclude;
        const char *hint = r->hints[at + i].text;
        (void)FAIL(err, USAGE, NONE, "%s '%s' matches no%s", option, list[i],
                   is_cast ? " floating-point tensor" : "thing");
        if (is_glob && strchr(list[i], '{') != NULL)
            error_next(err,
                       "give one pattern for each of {...}, which has no meaning in a glob, and "
                       "list the names with: fsdpck inspect --tree SRC");
        else if (hint != NULL)
            error_next(err,
                       "did you mean '%s%s'? Names can have an outer key; list them with: "
                       "fsdpck inspect --tree SRC",
                       hint, is_cast ? strrchr(list[i], '=') : "");
        else
            error_next(err, "list the names with: fsdpck inspect --tree SRC");
        return FSDPCK_USAGE;
    }
    return FSDPCK_OK;
}

fsdpck_status select_rules_check_used(const select_rules *r, fsdpck_error *err)
{
    const select_options *w = r->options;
    size_t at = 0;
    RETURN_IF(check_list(r, "--keys", w->keys, w->keys_count, at, err));
    at += w->keys_count;
    RETURN_IF(check_list(r, "--exclude", w->exclude, w->exclude_count, at, err));
    at += w->exclude_count;
    RETURN_IF(check_list(r, "--strip-prefix", w->strip_prefix, w->strip_prefix_count, at, err));
    at += w->strip_prefix_count;
    RETURN_IF(check_list(r, "--rename", w->rename, w->rename_count, at, err));
    at += w->rename_count;
    return check_list(r, w->dtype_option == NULL ? "--dtype" : w->dtype_option, w->dtype,
                      w->dtype_count, at, err);
}

void select_rules_release(select_rules *rules)
{
    for (size_t i = 0; i < rules->renames.count; i++) {
        select_rename *r = VEC_AT(&rules->renames, select_rename, i);
        pcre2_code_free(r->code);
        pcre2_match_data_free(r->match);
        pcre2_match_context_free(r->context);
        free(r->replacement);
    }
    for (size_t i = 0; i < rules->casts.count; i++)
        free(VEC_AT(&rules->casts, select_cast, i)->glob);
    VEC_RELEASE_ALL(&rules->renames, &rules->casts);
    for (size_t i = 0; i < rules->hint_count; i++)
        rule_hint_release(&rules->hints[i]);
    free(rules->hints);
    free(rules->used);
    *rules = (select_rules){0};
}
