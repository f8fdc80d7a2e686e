#include "verify/latest_runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/checkpoint.h"
#include "open/search_state.h"

enum {
    DEPTH_MAX = 4,      /* of folders below the one that was given */
    FOLDERS_MAX = 512,  /* that are searched */
    ENTRIES_MAX = 4096, /* of a searched folder: one with more holds data */
    TRIES_MAX = 3,      /* candidates of a folder that are opened */
    NAMED_MAX = 4
};

typedef struct runs_walk {
    latest_runs *runs;
    const char *root;
    strtab folders; /* paths below root, in the order of the search; "": root itself */
} runs_walk;

/* ---- the search ---- */

bool latest_runs_is_checkpoint(const char *path)
{
    path_kind kind;
    search_result found;
    probe_input in;
    if (path_probe(NULL, path, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FOLDER)
        return true;
    if (probe_gather(path, &in, NULL) == FSDPCK_OK) {
        const bool is_itself = probe_readers(&in, NULL) != NULL;
        probe_release(&in);
        if (is_itself)
            return true;
    }
    if (search_folders(path, &found, NULL) != FSDPCK_OK)
        return false;
    const bool any = found.count > 0;
    search_result_release(&found);
    return any;
}

static const latest_step *newest_of(const latest_list *l)
{
    size_t tries = 0;
    for (size_t i = 0; tries < TRIES_MAX && i < l->steps.count; i++) {
        const latest_step *c = VEC_AT(&l->steps, const latest_step, i);
        if (!latest_step_may_count(c) || !step_name_has_word(&c->name))
            continue;
        tries++;
        if (latest_runs_is_checkpoint(c->path))
            return c;
    }
    return NULL;
}

/* *is_run: it is a run, a checkpoint, or large; nothing below it is searched. */
static fsdpck_status check_folder(runs_walk *w, const char *path, const folder *dir, bool *is_run,
                                  fsdpck_error *err)
{
    latest_list l;
    probe_input in;
    *is_run = true;
    if (probe_gather(path, &in, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    const bool is_other = in.entry_count > ENTRIES_MAX || probe_readers(&in, NULL) != NULL;
    probe_release(&in);
    if (is_other)
        return FSDPCK_OK;
    latest_list_init(&l);
    fsdpck_status st = latest_list_read(&l, path, dir, err);
    const latest_step *newest = st == FSDPCK_OK ? newest_of(&l) : NULL;
    *is_run = newest != NULL;
    if (newest != NULL) {
        const latest_run run = {.path = strdup(path), .newest = newest->name};
        st = run.path == NULL ? error_set_nomem(err, strlen(path))
                              : vec_add(&w->runs->list, &run, err);
        if (st != FSDPCK_OK)
            free(run.path);
    }
    latest_list_release(&l);
    return st;
}

/* Directly below the root, a folder with a step in its name is a candidate of the root. */
static bool is_searched(const folder *dir, const char *name, bool is_of_root)
{
    step_name s;
    path_kind kind;
    step_name_read(name, strlen(name), &s);
    return name[0] != '.' && s.mark == STEP_UNMARKED && !(is_of_root && s.kind > STEP_UNKNOWN) &&
           !search_is_of_packages(name) && path_probe(dir, name, &kind, NULL, NULL) == FSDPCK_OK &&
           kind == PATH_FOLDER;
}

static fsdpck_status add_folders(runs_walk *w, const char *below, const folder *dir,
                                 fsdpck_error *err)
{
    char **names = NULL;
    size_t count = 0;
    uint32_t id;
    fsdpck_status st = FSDPCK_OK;
    if (folder_list(dir, ".", &names, &count, NULL) != FSDPCK_OK)
        return FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        if (strtab_count(&w->folders) > FOLDERS_MAX ||
            !is_searched(dir, names[i], below[0] == '\0'))
            continue;
        char *path = below[0] == '\0' ? strdup(names[i]) : folder_path_join(below, names[i]);
        st = path == NULL ? error_set_nomem(err, strlen(names[i]))
                          : strtab_intern(&w->folders, path, strlen(path), &id, err);
        free(path);
    }
    free(names);
    return st;
}

static fsdpck_status visit(runs_walk *w, const char *below, fsdpck_error *err)
{
    folder dir = FOLDER_CLOSED;
    bool is_run = false;
    char *path = below[0] == '\0' ? strdup(w->root) : folder_path_join(w->root, below);
    if (path == NULL)
        return error_set_nomem(err, strlen(w->root));
    fsdpck_status st = FSDPCK_OK;
    if (folder_open(&dir, path, NULL) == FSDPCK_OK) {
        if (below[0] != '\0')
            st = check_folder(w, path, &dir, &is_run, err);
        if (st == FSDPCK_OK && !is_run && text_path_depth(below) < DEPTH_MAX)
            st = add_folders(w, below, &dir, err);
        folder_close(&dir);
    }
    free(path);
    return st;
}

static int compare_runs(const void *a, const void *b)
{
    return strcmp(((const latest_run *)a)->path, ((const latest_run *)b)->path);
}

fsdpck_status latest_runs_find(latest_runs *r, const char *root, fsdpck_error *err)
{
    runs_walk w = {.runs = r, .root = root};
    uint32_t id;
    r->list = VEC_OF(latest_run, NULL);
    strtab_init(&w.folders, NULL);
    fsdpck_status st = strtab_intern(&w.folders, "", 0, &id, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&w.folders); i++) {
        char *below = strdup(strtab_text(&w.folders, i)); /* adding to the table moves its texts */
        st = below == NULL ? error_set_nomem(err, 1) : visit(&w, below, err);
        free(below);
    }
    strtab_release(&w.folders);
    if (r->list.count > 1)
        qsort(r->list.items, r->list.count, sizeof(latest_run), compare_runs);
    return st;
}

void latest_runs_release(latest_runs *r)
{
    for (size_t i = 0; i < r->list.count; i++)
        free(VEC_AT(&r->list, latest_run, i)->path);
    vec_release(&r->list);
}

bool latest_runs_has(const latest_runs *r, const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < r->list.count; i++) {
        const char *run = VEC_AT(&r->list, const latest_run, i)->path;
        if (strncmp(run, path, n) == 0 && (run[n] == '\0' || run[n] == '/'))
            return true;
    }
    return false;
}

/* ---- the warning ---- */

static bool is_later(const latest_run *run, const latest_step *chosen)
{
    return step_name_same_kind(&run->newest, &chosen->name) && run->newest.step > chosen->name.step;
}

void latest_runs_warn(const latest_runs *r, const char *root, const latest_step *chosen,
                      const logger *log)
{
    size_t count = 0;
    text_buf named = {.limit_bytes = 1024};
    for (size_t i = 0; i < r->list.count; i++) {
        const latest_run *run = VEC_AT(&r->list, const latest_run, i);
        if (chosen != NULL && !is_later(run, chosen))
            continue;
        if (count < NAMED_MAX)
            text_printf(&named, "%s'%s' (%" PRIu64 ")", count > 0 ? ", " : "", run->path,
                        run->newest.step);
        count++;
    }
    const char *list = named.failed || named.text == NULL ? "" : named.text;
    const char *such_as = count > NAMED_MAX ? ", such as " : ": ";
    if (count > 0 && chosen == NULL)
        log_warn(log, FSDPCK_FINDING_LATEST_RUNS, "give one of them to find its newest checkpoint",
                 "'%s' contains %zu folder%s of runs, with their last steps%s%s", root, count,
                 text_plural(count), such_as, list);
    else if (count > 0)
        log_warn(log, FSDPCK_FINDING_LATEST_RUNS, "give the folder of the run to resume",
                 "%zu folder%s of runs inside '%s' contain%s later steps than '%s'%s%s", count,
                 text_plural(count), root, count == 1 ? "s" : "", text_file_name(chosen->path),
                 such_as, list);
    text_release(&named);
}
