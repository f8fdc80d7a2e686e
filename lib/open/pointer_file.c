#include "open/pointer_file.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Of Megatron-Core and verl: "1000"; of DeepSpeed: "global_step1000". */
static const char *const names[POINTER_FILES] = {"latest_checkpointed_iteration.txt", "latest",
                                                 "latest_checkpoint.txt", "latest.txt"};

const char *pointer_file_name(size_t at)
{
    return names[at];
}

char *pointer_file_read(const folder *dir, const char *name)
{
    path_kind kind;
    char *text = NULL;
    size_t nbytes;
    if (path_probe(dir, name, &kind, NULL, NULL) != FSDPCK_OK || kind != PATH_FILE ||
        file_read_whole(dir, name, POINTER_NBYTES_MAX, &text, &nbytes, NULL) != FSDPCK_OK)
        return NULL;
    while (nbytes > 0 && strchr(" \r\n\t/", text[nbytes - 1]) != NULL)
        nbytes--;
    text[nbytes] = '\0';
    return text;
}

bool pointer_file_step(const char *text, step_name *s)
{
    const char *name = text_file_name(text);
    step_name_read(name, weights_stem_nbytes(name), s);
    return s->kind > STEP_UNKNOWN && !s->is_too_large;
}

/* "rng_state_3.pth" is no step 3 of a text that has a word for its number, such as "global_step3". */
static bool is_step(const char *name, const step_name *named)
{
    step_name s;
    return pointer_file_step(name, &s) && s.mark == STEP_UNMARKED && s.step == named->step &&
           (step_name_has_word(&s) || !step_name_has_word(named));
}

/* below: the path from the folder to the checkpoint. */
static bool is_there(const probe_input *in, const char *own, const char *text,
                     const step_name *named, const char *below)
{
    path_kind kind;
    if (path_check_inside(text, strlen(text), FSDPCK_FINDING_NONE, NULL) == FSDPCK_OK &&
        path_probe(&in->dir, text, &kind, NULL, NULL) == FSDPCK_OK && kind != PATH_ABSENT)
        return true;
    for (size_t i = 0; i < in->entry_count; i++)
        if (strcmp(in->entries[i], own) != 0 && is_step(in->entries[i], named))
            return true;
    /* Megatron's file in the folder of the iteration itself. */
    if (!step_name_has_word(named) && is_step(text_file_name(in->path), named))
        return true;
    char name[256];
    for (size_t n; *below != '\0'; below += n + (below[n] == '/')) {
        n = strcspn(below, "/");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), below);
        if (is_step(name, named))
            return true;
    }
    return false;
}

/* ---- DeepSpeed ---- */

/* "global_step8", DeepSpeed's own tag, with the states of a model. Trainers with other tags load by their names. */
static bool is_of_deepspeed(const folder *dir, const char *entry)
{
    static const char word[] = "global_step";
    const char *digits = entry + sizeof word - 1;
    char **inside = NULL;
    size_t count = 0;
    bool is = false;
    if (strncmp(entry, word, sizeof word - 1) != 0 || *digits == '\0' ||
        digits[strspn(digits, "0123456789")] != '\0' ||
        folder_list(dir, entry, &inside, &count, NULL) != FSDPCK_OK)
        return false;
    for (size_t i = 0; !is && i < count; i++)
        is = fnmatch("*model_states.pt", inside[i], 0) == 0;
    free(inside);
    return is;
}

/* The one with the highest number; NULL: none. */
static const char *deepspeed_folder(const probe_input *in)
{
    const char *newest = NULL;
    uint64_t most = 0;
    for (size_t i = 0; in->is_folder && i < in->entry_count; i++) {
        step_name s;
        if (!is_of_deepspeed(&in->dir, in->entries[i]) || !pointer_file_step(in->entries[i], &s) ||
            (newest != NULL && s.step < most))
            continue;
        newest = in->entries[i];
        most = s.step;
    }
    return newest;
}

fsdpck_status pointer_file_check_deepspeed(const probe_input *in, fsdpck_error *err)
{
    static const char pointer[] = "latest";
    const char *tag = deepspeed_folder(in);
    path_kind kind;
    step_name named;
    char shown[512];
    if (tag == NULL)
        return FSDPCK_OK;
    char *text = pointer_file_read(&in->dir, pointer);
    const bool is_absent = text == NULL &&
                           path_probe(&in->dir, pointer, &kind, NULL, NULL) == FSDPCK_OK &&
                           kind == PATH_ABSENT;
    fsdpck_status st = FSDPCK_OK;
    if (is_absent || (text != NULL && text[0] == '\0'))
        st = FAIL_WITH(err, BADINPUT, LATEST_LOST,
                       ("'%s', which names the folder that DeepSpeed loads, is %s", pointer,
                        is_absent ? "missing" : "empty"),
                       (path, in->path),
                       (next, "if '%s' is complete, write its name into '%s'", tag, pointer));
    else if (text != NULL && !pointer_file_step(text, &named) &&
             path_probe(&in->dir, text, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_ABSENT)
        st = FAIL_WITH(err, BADINPUT, LATEST_TARGET,
                       ("'%s' names the latest checkpoint '%s', which is missing", pointer,
                        escape_text(shown, sizeof shown, text, strlen(text))),
                       (path, in->path),
                       (next, "if '%s' is complete, write its name into '%s'", tag, pointer));
    free(text);
    return st;
}

static fsdpck_status check_folder(const probe_input *in, const char *below, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && in->is_folder && i < POINTER_FILES; i++) {
        step_name named;
        char shown[512];
        char *text = probe_has_entry(in, names[i]) ? pointer_file_read(&in->dir, names[i]) : NULL;
        if (text != NULL && pointer_file_step(text, &named) &&
            !is_there(in, names[i], text, &named, below))
            st = FAIL_WITH(
                err, BADINPUT, LATEST_TARGET,
                ("'%s' names the latest checkpoint '%s', which is missing", names[i],
                 escape_text(shown, sizeof shown, text, strlen(text))),
                (path, in->path),
                (next, "copy that checkpoint from where it was written, or resume from another "
                       "step by its name"));
        free(text);
    }
    return st == FSDPCK_OK ? pointer_file_check_deepspeed(in, err) : st;
}

fsdpck_status pointer_file_check(const probe_input *in, fsdpck_error *err)
{
    return check_folder(in, "", err);
}

fsdpck_status pointer_file_check_around(const char *root, const char *path, fsdpck_error *err)
{
    const size_t given = strlen(root);
    if (strncmp(path, root, given) != 0)
        return FSDPCK_OK;
    for (const char *end = path + given; end != NULL && *end != '\0'; end = strchr(end + 1, '/')) {
        probe_input in;
        char *around = strndup(path, (size_t)(end - path));
        fsdpck_status st = FSDPCK_OK;
        if (around == NULL)
            return error_set_nomem(err, strlen(path));
        if (end > path && probe_gather(around, &in, NULL) == FSDPCK_OK) {
            st = check_folder(&in, end + strspn(end, "/"), err);
            probe_release(&in);
        }
        free(around);
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

void pointer_file_warn(const fsdpck_checkpoint *c)
{
    fsdpck_error what = FSDPCK_ERROR_INIT;
    if (c->entered_from != NULL &&
        pointer_file_check_around(c->entered_from, c->probe.path, &what) == FSDPCK_BADINPUT)
        log_warn(&c->ctx->log, what.finding, what.next, "'%s': %s", what.path, what.message);
}
