#include "verify/state_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* The scheduler of the learning rate. */
static const char of_transformers[] = "scheduler.pt", of_accelerate[] = "scheduler.bin";

/* The folder of trainer_state.json (*of_trainer), or of accelerate's scheduler; NULL if there is none. The caller frees
 * it. */
static char *find_folder(fsdpck_checkpoint *c, bool *of_trainer)
{
    fsdpck_state_file f = FSDPCK_INIT(fsdpck_state_file);
    char *found = NULL;
    *of_trainer = false;
    for (size_t i = 0; !*of_trainer && fsdpck_get_state_file(c, i, &f); i++) {
        const char *name = text_file_name(f.path);
        *of_trainer = f.kind == FSDPCK_STATE_PROGRESS;
        if (!*of_trainer && (found != NULL || strcmp(name, of_accelerate) != 0))
            continue;
        free(found);
        found = strndup(f.path, strlen(f.path) - strlen(name) - 1);
    }
    return found;
}

/* "optimizer.bin", accelerate's folder "optimizer_0", DeepSpeed's "global_step10", "rank0-of-2-optimizer.pt". */
static bool has_optimizer(const probe_input *in)
{
    for (size_t i = 0; i < in->entry_count; i++)
        if (strstr(in->entries[i], "optim") != NULL || text_begins(in->entries[i], "global_step"))
            return true;
    return false;
}

static bool is_folder_of_optimizer(const probe_input *in, const char *name)
{
    static const char begin[] = "optimizer_";
    path_kind kind;
    const char *number = name + sizeof begin - 1;
    return text_begins(name, begin) && *number != '\0' &&
           strspn(number, "0123456789") == strlen(number) &&
           path_probe(&in->dir, name, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

/* What transformers loads only together with scheduler.pt: also accelerate's forms with FSDP. NULL: none. DeepSpeed
 * saves both in its own files. */
static const char *find_paired_optimizer(const probe_input *in)
{
    static const char *const files[] = {"optimizer.pt", "optimizer.bin"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (probe_has_entry(in, files[i]))
            return files[i];
    for (size_t i = 0; i < in->entry_count; i++)
        if (is_folder_of_optimizer(in, in->entries[i]))
            return in->entries[i];
    return NULL;
}

/* accelerate's save_state: random_states_0.pkl shows that it is one. With DeepSpeed and Megatron, the optimizer is in the
 * folder pytorch_model. */
static bool is_save_state(const probe_input *in)
{
    bool has_random = false;
    for (size_t i = 0; i < in->entry_count; i++)
        has_random = has_random || text_begins(in->entries[i], "random_states_");
    return has_random && !probe_has_entry(in, "pytorch_model");
}

/* It saves a scheduler only if there is one. */
static bool lacks_optimizer(const probe_input *in)
{
    return probe_has_entry(in, of_accelerate) && !has_optimizer(in) && is_save_state(in);
}

/* "optimizer_1.bin", or the folder "optimizer_1" */
static bool has_numbered(const probe_input *in, const char *word, unsigned number)
{
    char name[40];
    const size_t nbytes = (size_t)snprintf(name, sizeof name, "%s_%u", word, number);
    for (size_t i = 0; i < in->entry_count; i++) {
        const char *end = in->entries[i] + nbytes;
        if (text_begins(in->entries[i], name) && (*end < '0' || *end > '9'))
            return true;
    }
    return false;
}

/* Of several models, each with a scheduler: one optimizer may be that of two models, but not of two schedulers too. The
 * first has no number. 0: none is lost. */
static unsigned lost_optimizer(const probe_input *in)
{
    for (unsigned n = 1; has_numbered(in, "scheduler", n); n++)
        if ((has_numbered(in, "model", n) || has_numbered(in, "pytorch_model", n) ||
             has_numbered(in, "pytorch_model_fsdp", n)) &&
            !has_numbered(in, "optimizer", n) && is_save_state(in))
            return n;
    return 0;
}

static bool is_pair_lost(const probe_input *in, bool of_trainer, fsdpck_error *what)
{
    const char *optimizer = of_trainer ? find_paired_optimizer(in) : NULL;
    const bool has_scheduler = of_trainer && probe_has_entry(in, of_transformers);
    const bool is_lost = of_trainer ? has_scheduler && !has_optimizer(in) : lacks_optimizer(in);
    const unsigned number = of_trainer || is_lost ? 0 : lost_optimizer(in);
    if (is_lost)
        FAIL_WITH(what, BADINPUT, STATE_PAIR, ("the state of the optimizer is missing"),
                  (path, in->path),
                  (expected, "files of the optimizer beside %s",
                   of_trainer ? of_transformers : of_accelerate));
    else if (number > 0)
        FAIL_WITH(what, BADINPUT, STATE_PAIR,
                  ("the state of the optimizer of model %u is missing", number), (path, in->path),
                  (expected, "optimizer_%u.bin beside scheduler_%u.bin", number, number));
    else if (optimizer != NULL && !has_scheduler)
        FAIL_WITH(what, BADINPUT, STATE_PAIR, ("the state of the scheduler is missing"),
                  (path, in->path), (expected, "%s beside %s", of_transformers, optimizer));
    else
        return false;
    return true;
}

bool state_pair_is_lost(fsdpck_checkpoint *c, fsdpck_error *what)
{
    probe_input in;
    bool of_trainer;
    char *above = find_folder(c, &of_trainer);
    const bool is_open = above != NULL && probe_gather(above, &in, NULL) == FSDPCK_OK;
    const bool is_lost = is_open && is_pair_lost(&in, of_trainer, what);
    if (is_open)
        probe_release(&in);
    free(above);
    return is_lost;
}

/* ---- content under another name ---- */

typedef struct state_name {
    fsdpck_state_kind kind;
    const char *word, *ends[2], *content;
} state_name;

/* "optimizer.pt", "optimizer_1.bin" */
static const state_name state_names[] = {
    {FSDPCK_STATE_OPTIMIZER, "optimizer", {".pt", ".bin"}, "an optimizer"},
    {FSDPCK_STATE_SCHEDULER, "scheduler", {".pt", ".bin"}, "a scheduler"},
    {FSDPCK_STATE_SCALER, "scaler", {".pt", ".bin"}, "a scaler of gradients"},
    {FSDPCK_STATE_RNG, "rng_state", {".pth", ".pth"}, "random number generators"},
    {FSDPCK_STATE_RNG, "random_states", {".pkl", ".pkl"}, "random number generators"},
};

static const state_name *find_name(const char *name)
{
    for (size_t i = 0; i < sizeof state_names / sizeof *state_names; i++) {
        const state_name *s = &state_names[i];
        if (!text_begins(name, s->word))
            continue;
        const char *end = name + strlen(s->word);
        end += end[0] == '_' ? 1 + strspn(end + 1, "0123456789") : 0;
        if (TEXT_IS_IN(end, strlen(end), s->ends))
            return s;
    }
    return NULL;
}

/* Only optimizers have a form in common: of the others, only a content of another kind is none. */
static bool is_other_state(const found_state_file *f, const state_name *s)
{
    if (s->kind == FSDPCK_STATE_OPTIMIZER)
        return f->is_no_optimizer;
    return f->is_model ||
           (f->kind != s->kind && f->kind != FSDPCK_STATE_OTHER && f->kind != FSDPCK_STATE_UNREAD);
}

static const char *content_of(const found_state_file *f)
{
    static const char *const words[] = {
        [FSDPCK_STATE_UNREAD] = "",
        [FSDPCK_STATE_OTHER] = "neither tensors nor param_groups",
        [FSDPCK_STATE_OPTIMIZER] = "the state of an optimizer",
        [FSDPCK_STATE_SCHEDULER] = "the state of a scheduler of the learning rate",
        [FSDPCK_STATE_RNG] = "states of random number generators",
        [FSDPCK_STATE_SCALER] = "the state of a scaler of gradients",
        [FSDPCK_STATE_PROGRESS] = "the progress of the training",
        [FSDPCK_STATE_ARGUMENTS] = "arguments of the training",
    };
    return f->is_model ? "tensors with the names of the weights" : words[f->kind];
}

const char *state_kind_differs(fsdpck_checkpoint *c, size_t *index, fsdpck_error *what)
{
    fsdpck_state_file next = FSDPCK_INIT(fsdpck_state_file);
    while (c->base != NULL)
        c = c->base;
    while (fsdpck_get_state_file(c, (*index)++, &next)) {
        const found_state_file *f = VEC_AT(&c->state_files, const found_state_file, *index - 1);
        const state_name *s = find_name(f->name);
        if (s == NULL || !is_other_state(f, s))
            continue;
        FAIL_WITH(what, BADINPUT, STATE_KIND, ("file has no state of %s", s->content),
                  (path, f->path), (found, "%s", content_of(f)));
        return f->path;
    }
    return NULL;
}
