#include "open/later_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell_word.h"
#include "base/step_name.h"
#include "base/text.h"
#include "open/checkpoint.h"

/* In the folder around the step that is read. */
typedef struct later_search {
    const folder *root; /* that the user gave */
    const char *below;  /* the path of the folder below it; "": root itself */
    const char *own;    /* the name of the step */
    step_name step;
    char *newest; /* the path below root of the newest later one; NULL: none */
    step_name newest_step;
} later_search;

static void read_step(const char *name, step_name *s)
{
    step_name_read(name, weights_stem_nbytes(name), s);
}

/* "epoch=1-step=20.ckpt" and "epoch=3-step=40.ckpt": the same text around numbers. */
static bool is_alike(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        const size_t m = strspn(a, digits), n = strspn(b, digits);
        if ((m == 0) != (n == 0) || a[m] != b[n])
            return false;
        if (a[m] == '\0')
            return true;
        a += m;
        b += n;
    }
}

/* "checkpoint-200" or "tmp-checkpoint-200" after "checkpoint-100". Other names may be of something else: results, logs. */
static bool is_later(const later_search *l, const char *name, const step_name *s)
{
    return name[0] != '.' && step_name_same_kind(s, &l->step) &&
           step_name_compare(s, &l->step) > 0 &&
           (s->mark == STEP_UNFINISHED || is_alike(name, l->own));
}

/* Not one that was removed since the folder was listed. */
static bool is_there(const folder *root, const char *path)
{
    path_kind kind;
    return path_probe(root, path, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_ABSENT ||
           path_is_dangling(root, path);
}

static void take(later_search *l, const char *name)
{
    step_name s;
    read_step(name, &s);
    if (!is_later(l, name, &s) ||
        (l->newest != NULL && step_name_compare(&s, &l->newest_step) <= 0))
        return;
    char *path = l->below[0] == '\0' ? strdup(name) : folder_path_join(l->below, name);
    if (path == NULL || !is_there(l->root, path)) {
        free(path);
        return;
    }
    free(l->newest);
    l->newest = path;
    l->newest_step = s;
}

static void report(const later_search *l, const char *given, const logger *log)
{
    char word[1024];
    char *run = l->below[0] == '\0' ? strdup(given) : folder_path_join(given, l->below);
    if (run != NULL) {
        if (shell_word(word, sizeof word, run)[0] == '\0')
            memcpy(word, "ROOT", sizeof "ROOT");
        char next[sizeof word + 100];
        snprintf(next, sizeof next,
                 "list what it lacks with: fsdpck latest %s; or remove it, if it is not needed",
                 word);
        log_warn(log, FSDPCK_FINDING_SAVE_INCOMPLETE, next,
                 "an older step is read: '%s/%s' is a later one, and no checkpoint was found in it",
                 given, l->newest);
    }
    free(run);
}

static void search_folder(later_search *l, const char *given, const logger *log)
{
    char **entries = NULL;
    size_t count = 0;
    read_step(l->own, &l->step);
    if (!step_name_has_word(&l->step) ||
        folder_list(l->root, l->below, &entries, &count, NULL) != FSDPCK_OK)
        return;
    for (size_t i = 0; i < count; i++)
        take(l, entries[i]);
    free(entries);
    if (l->newest != NULL)
        report(l, given, log);
    free(l->newest);
}

void later_steps_warn(const probe_input *in, const char *found, const logger *log)
{
    const size_t given = strlen(in->path);
    const char *path = strncmp(found, in->path, given) == 0 ? found + given : "";
    path += strspn(path, "/");
    for (size_t at = 0, n; path[at] != '\0'; at += n + strspn(path + at + n, "/")) {
        n = strcspn(path + at, "/");
        char *below = strndup(path, at > 0 ? at - 1 : 0), *own = strndup(path + at, n);
        later_search l = {.root = &in->dir, .below = below, .own = own};
        if (below != NULL && own != NULL)
            search_folder(&l, in->path, log);
        free(below);
        free(own);
    }
}
