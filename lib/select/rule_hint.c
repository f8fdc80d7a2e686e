#include "select/rule_hint.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Components that may differ at the start of a rule and of a name. */
enum { RULE_DEPTH_MAX = 2, NAME_DEPTH_MAX = 3 };

#define GLOB_CHARACTERS "*?[\\"

static bool is_nearer(const rule_hint *h, unsigned distance)
{
    return h->text == NULL || distance < h->distance;
}

/* Takes over `text`, which may be NULL. */
static void set_hint(rule_hint *h, unsigned distance, char *text)
{
    if (text == NULL)
        return;
    free(h->text);
    *h = (rule_hint){text, distance};
}

static char *join(const char *a, size_t a_nbytes, const char *b)
{
    const size_t b_nbytes = strlen(b);
    char *text = malloc(a_nbytes + b_nbytes + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, a, a_nbytes);
    memcpy(text + a_nbytes, b, b_nbytes + 1);
    return text;
}

/* The text after its first component, if that has no special character; NULL without one. */
static const char *after_component(const char *text, const char *special)
{
    const size_t n = strcspn(text, special);
    const char *dot = strchr(text, '.');
    return dot == NULL || (size_t)(dot - text) > n || dot[1] == '\0' ? NULL : dot + 1;
}

/* Whether the first component of a shortened rule is literal: "*" alone would match anything. */
static bool begins_literally(const char *glob)
{
    return strcspn(glob, GLOB_CHARACTERS) >= strcspn(glob, ".") && glob[0] != '\0';
}

void rule_hint_glob(rule_hint *h, const char *glob, const char *name)
{
    const char *rest = glob;
    for (unsigned i = 0; rest != NULL && i <= RULE_DEPTH_MAX; i++) {
        const char *at = name;
        for (unsigned j = 0; at != NULL && j <= NAME_DEPTH_MAX; j++) {
            const unsigned distance = 3 * i + 2 * j;
            if (distance > 0 && is_nearer(h, distance) && fnmatch(rest, at, 0) == 0)
                set_hint(h, distance, join(name, (size_t)(at - name), rest));
            at = after_component(at, GLOB_CHARACTERS);
        }
        rest = after_component(rest, GLOB_CHARACTERS);
        if (rest != NULL && !begins_literally(rest))
            rest = NULL;
    }
}

void rule_hint_prefix(rule_hint *h, const char *prefix, const char *name)
{
    const char *rest = after_component(prefix, "");
    for (unsigned i = 1; rest != NULL && i <= RULE_DEPTH_MAX; i++) {
        if (is_nearer(h, i) && strncmp(name, rest, strlen(rest)) == 0)
            set_hint(h, i, strdup(rest));
        rest = after_component(rest, "");
    }
}

typedef struct rename_parts {
    const char *rule;
    const char *re, *text; /* after the first and the second delimiter */
    bool anchored;
} rename_parts;

static rename_parts split_rename(const char *rule)
{
    const char delimiter = rule[1];
    const char *at = rule + 2;
    for (; *at != '\0' && *at != delimiter; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    return (rename_parts){rule, rule + 2, at + (*at != '\0'), rule[2] == '^'};
}

/* The rule with the outer key in front of RE and TEXT: s/^a/b/ -> s/^model\.a/model.b/ */
static char *with_prefix(const rename_parts *p, const char *prefix, size_t nbytes)
{
    const int width = (int)(nbytes - 1);              /* without the dot */
    const int re_nbytes = (int)(p->text - p->re) - 2; /* without ^ and delimiter */
    char *text = NULL;
    const size_t capacity = strlen(p->rule) + 2 * nbytes + 8;
    if (memchr(prefix, p->rule[1], nbytes) == NULL && (text = malloc(capacity)) != NULL)
        snprintf(text, capacity, "%.2s^%.*s\\.%.*s%c%.*s%s", p->rule, width, prefix, re_nbytes,
                 p->re + 1, p->rule[1], (int)nbytes, prefix, p->text);
    return text;
}

/* The rule without an outer key that names lack: s/^model\.a/model.b/ -> s/^a/b/ */
static void hint_without_key(rule_hint *h, const rename_parts *p, rule_match_fn match,
                             const void *ctx, const char *name)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *key = p->re + p->anchored;
    const size_t n = strspn(key, word);
    const char *rest = key + n + (key[n] == '\\');
    if (n == 0 || *rest != '.' || !is_nearer(h, 1))
        return;
    const size_t longer_nbytes = n + 1 + strlen(name);
    char *longer = malloc(longer_nbytes + 1);
    if (longer == NULL)
        return;
    snprintf(longer, longer_nbytes + 1, "%.*s.%s", (int)n, key, name);
    const bool found = match(ctx, longer, longer_nbytes) && !match(ctx, longer, n + 1);
    const char *text = p->text;
    if (strncmp(text, longer, n + 1) == 0)
        text += n + 1;
    free(longer);
    const size_t capacity = strlen(p->rule) + 1;
    char *hint = found ? malloc(capacity) : NULL;
    if (hint != NULL)
        snprintf(hint, capacity, "%.*s%.*s%s", 2 + p->anchored, p->rule, (int)(p->text - rest - 1),
                 rest + 1, text);
    set_hint(h, 1, hint);
}

void rule_hint_rename(rule_hint *h, const char *rule, rule_match_fn match, const void *ctx,
                      const char *name)
{
    const rename_parts p = split_rename(rule);
    const char *at = after_component(name, GLOB_CHARACTERS);
    hint_without_key(h, &p, match, ctx, name);
    for (unsigned j = 1; p.anchored && at != NULL && j <= NAME_DEPTH_MAX; j++) {
        if (is_nearer(h, 2 * j) && match(ctx, at, strlen(at)))
            set_hint(h, 2 * j, with_prefix(&p, name, (size_t)(at - name)));
        at = after_component(at, GLOB_CHARACTERS);
    }
}

void rule_hint_release(rule_hint *h)
{
    free(h->text);
    *h = (rule_hint){0};
}
