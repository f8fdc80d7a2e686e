#include "verify/latest_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/numbered_files.h"
#include "open/single_rank_file.h"
#include "open/state_files.h"
#include "verify/latest_copies.h"
#include "verify/latest_name.h"

/* Newest first; equal steps are ordered by name, so that the result is deterministic. */
static int compare_candidates(const void *a, const void *b)
{
    const latest_step *x = a, *y = b;
    const int order = step_name_compare(&y->name, &x->name);
    if (order == 0 && x->is_recorded != y->is_recorded) /* a copy of the other */
        return x->is_recorded ? 1 : -1;
    if (order == 0 && (x->copy_of != NULL) != (y->copy_of != NULL))
        return x->copy_of != NULL ? 1 : -1;
    return order != 0 ? order : strcmp(x->path, y->path);
}

/* One of a checkpoint's files, by its name. */
static bool is_part_of_checkpoint(const folder *dir, const char *name)
{
    bool known;
    return format_file_count(name) > 1 ||
           (format_is_rank_file(name, &known) && !single_rank_file(dir, name)) ||
           format_is_safetensors_rank(name);
}

/* "rng_state_1.pth": its number is no step, as that of optimizer_1000.pt may be. */
static bool is_state_of_rank(const char *name)
{
    return trainer_state_has_name(name) && numbered_file_is_of_rank(name);
}

/* An unreadable folder may be: opening it reports the cause. */
static bool may_be_checkpoint(const folder *dir, const char *name)
{
    path_kind kind;
    return path_probe(dir, name, &kind, NULL, NULL) != FSDPCK_OK || kind == PATH_FOLDER ||
           path_is_dangling(dir, name) ||
           (kind == PATH_FILE && name[weights_stem_nbytes(name)] != '\0' &&
            !is_part_of_checkpoint(dir, name) && !is_state_of_rank(name));
}

static bool is_candidate(const folder *dir, const char *name, step_name *s)
{
    step_name_read(name, weights_stem_nbytes(name), s);
    return name[0] != '.' && s->mark != STEP_EVALUATION && may_be_checkpoint(dir, name);
}

static fsdpck_status add_candidate(latest_list *l, const char *root, const char *name,
                                   const step_name *s, fsdpck_error *err)
{
    const bool is_nameless = latest_name_has_no_step(name, s);
    vec *to = is_nameless ? &l->nameless : s->kind <= STEP_UNKNOWN ? &l->unnumbered : &l->steps;
    const latest_step c = {.path = folder_path_join(root, name), .name = *s};
    if (c.path == NULL)
        return error_set_nomem(err, strlen(root));
    const fsdpck_status st = vec_add(to, &c, err);
    if (st != FSDPCK_OK)
        free(c.path);
    return st;
}

fsdpck_status latest_list_read(latest_list *l, const char *root, const folder *dir,
                               fsdpck_error *err)
{
    char **names = NULL;
    size_t count = 0;
    RETURN_IF(folder_list(dir, ".", &names, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        step_name s;
        if (is_candidate(dir, names[i], &s))
            st = add_candidate(l, root, names[i], &s, err);
    }
    latest_copies_find(l->steps.items, l->steps.count);
    latest_list_sort(l);
    free(names);
    return st;
}

void latest_list_sort(latest_list *l)
{
    if (l->steps.count > 1)
        qsort(l->steps.items, l->steps.count, sizeof(latest_step), compare_candidates);
}

void latest_list_init(latest_list *l)
{
    *l = (latest_list){.steps = VEC_OF(latest_step, NULL),
                       .unnumbered = VEC_OF(latest_step, NULL),
                       .nameless = VEC_OF(latest_step, NULL)};
}

void latest_list_release(latest_list *l)
{
    for (size_t i = 0; i < l->steps.count; i++)
        free(VEC_AT(&l->steps, latest_step, i)->path);
    for (size_t i = 0; i < l->unnumbered.count; i++)
        free(VEC_AT(&l->unnumbered, latest_step, i)->path);
    for (size_t i = 0; i < l->nameless.count; i++)
        free(VEC_AT(&l->nameless, latest_step, i)->path);
    VEC_RELEASE_ALL(&l->steps, &l->unnumbered, &l->nameless);
}

/* ---- warnings ---- */

/* 'step_1_000' beside 'step_900', which has three digits, as the groups of a number. */
static bool may_be_grouped(const latest_step *chosen, const latest_step *other)
{
    const char *name = text_file_name(other->path);
    return chosen->name.minor == 0 && !chosen->is_recorded && !other->is_recorded &&
           chosen->name.step >= 100 && chosen->name.step < 1000 &&
           step_name_is_grouped(name, strlen(name), &other->name);
}

/* Epochs beside steps, or a number without a word beside numbers with one. */
static bool may_be_later(const latest_step *chosen, const latest_step *other)
{
    const step_name *a = &chosen->name, *b = &other->name;
    if (may_be_grouped(chosen, other))
        return true;
    if (!step_name_same_kind(a, b))
        return step_name_has_word(b);
    return a->has_epoch && b->has_epoch && b->epoch > a->epoch && b->step < a->step;
}

static void warn_order(const latest_list *l, const latest_step *chosen, const logger *log)
{
    for (size_t i = 0; i < l->steps.count; i++) {
        const latest_step *other = VEC_AT(&l->steps, const latest_step, i);
        if (other == chosen || other->is_run || !latest_step_may_count(other) ||
            !may_be_later(chosen, other))
            continue;
        log_warn(log, FSDPCK_FINDING_LATEST_NAME, "decide which of the two to resume from",
                 "order of '%s' and '%s' is uncertain: %s", text_file_name(chosen->path),
                 text_file_name(other->path),
                 may_be_grouped(chosen, other)
                     ? "the digits of the second may be groups of one number"
                     : "their names count different things");
        return;
    }
}

static void warn_several(const latest_step *chosen, const logger *log)
{
    if (chosen->other_model != NULL)
        log_warn(log, FSDPCK_FINDING_LATEST_NAME,
                 "decide which of the two to resume from, or from both",
                 "'%s' and '%s' have the same number, and each contains a model",
                 text_file_name(chosen->path), text_file_name(chosen->other_model));
}

void latest_list_warn(const latest_list *l, const latest_step *chosen, const logger *log)
{
    if (chosen == NULL)
        return;
    warn_order(l, chosen, log);
    warn_several(chosen, log);
    latest_copies_warn(l->steps.items, l->steps.count, chosen, log);
}
