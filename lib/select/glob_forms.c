#include "select/glob_forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/name_glob.h"
#include "model/fqn.h"
#include "select/select_cast.h"
#include "select/select_internal.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Patterns that are compared with all names together. */
typedef struct glob_set {
    const char *const *globs;
    size_t count, missing; /* missing: those that have matched no name */
    bool *matched;
    bool is_final; /* of final names, not of those before --rename */
} glob_set;

static bool is_selected_part(const select_state *a, checkpoint_part part)
{
    return a->request->part == PART_ALL || a->request->part == part;
}

static void match_name(glob_set *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!s->matched[i] && name_glob_matches(s->globs[i], name)) {
            s->matched[i] = true;
            s->missing--;
        }
}

static fsdpck_status try_name(const select_state *a, glob_set *s, uint32_t id, checkpoint_part part,
                              text_buf *name, fsdpck_error *err)
{
    if (!is_selected_part(a, part))
        return FSDPCK_OK;
    select_original_name(a, id, part, name);
    RETURN_IF(text_check(name, err));
    match_name(s, name->text);
    return FSDPCK_OK;
}

static fsdpck_status try_names(const select_state *a, glob_set *s, fsdpck_error *err)
{
    const checkpoint_parts *p = a->parts;
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    s->missing = s->count;
    for (size_t i = 0; s->is_final && s->missing > 0 && i < a->picks.count; i++)
        match_name(s, strtab_text(&a->names, VEC_AT(&a->picks, select_pick, i)->name));
    if (s->is_final)
        return FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && s->missing > 0 && i < p->tensor_count; i++)
        st = try_name(a, s, catalogue_tensor(a->from, i)->name, (checkpoint_part)p->tensor_part[i],
                      &name, err);
    for (size_t i = 0; st == FSDPCK_OK && s->missing > 0 && i < p->object_count; i++)
        st = try_name(a, s, catalogue_object(a->from, i)->name, (checkpoint_part)p->object_part[i],
                      &name, err);
    text_release(&name);
    return st;
}

/* The pattern as a name of the part is changed: `key` is its outer key, or that of the checkpoint beside it. */
static fsdpck_status change_form(const select_state *a, checkpoint_part part, const char *key,
                                 const char *glob, text_buf *form, fsdpck_error *err)
{
    const size_t n = strlen(key);
    const bool has_key = n > 0 && strncmp(glob, key, n) == 0 && glob[n] == '.';
    const char *rest = has_key ? glob + n + 1 : glob;
    form->nbytes = 0;
    if (n > 0 && !select_stands_alone(a, part)) {
        text_append(form, key, n);
        text_append(form, ".", 1);
    }
    if (a->request->clean && part == PART_OPTIMIZER)
        checkpoint_parts_clean_state(a->parts, rest, strlen(rest), form);
    else if (a->request->clean)
        fqn_clean(rest, strlen(rest), checkpoint_parts_has_ddp(a->parts, part), form);
    else
        text_append(form, rest, strlen(rest));
    text_append(form, "", 0);
    return text_check(form, err);
}

/* Replaces a pattern by the form that matches, if one does. */
static fsdpck_status fit(const select_state *a, bool is_final, char **glob, text_buf *form,
                         fsdpck_error *err)
{
    const checkpoint_part parts[] = {PART_MODEL, PART_OPTIMIZER};
    for (size_t i = 0; i < COUNT(parts); i++) {
        const char *beside = a->request->key_beside;
        const char *const keys[] = {checkpoint_parts_outer_key(a->parts, parts[i]),
                                    beside != NULL && parts[i] == a->request->part ? beside : ""};
        for (size_t k = 0; is_selected_part(a, parts[i]) && k < COUNT(keys); k++) {
            RETURN_IF(change_form(a, parts[i], keys[k], *glob, form, err));
            bool matched = false;
            const char *const text = form->text;
            glob_set one = {.globs = &text, .count = 1, .matched = &matched, .is_final = is_final};
            if (strcmp(text, *glob) == 0)
                continue;
            RETURN_IF(try_names(a, &one, err));
            if (!matched)
                continue;
            char *fitted = strdup(text);
            if (fitted == NULL)
                return error_set_nomem(err, strlen(text));
            free(*glob);
            *glob = fitted;
            return FSDPCK_OK;
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status copy_globs(const select_options *w, glob_forms *f, fsdpck_error *err)
{
    const size_t count = w->keys_count + w->exclude_count;
    f->globs = calloc(count + 1, sizeof *f->globs);
    if (f->globs == NULL)
        return error_set_nomem(err, count);
    for (size_t i = 0; i < count; i++) {
        const char *glob = i < w->keys_count ? w->keys[i] : w->exclude[i - w->keys_count];
        f->globs[i] = strdup(glob);
        if (f->globs[i] == NULL)
            return error_set_nomem(err, strlen(glob));
    }
    f->options.keys = (const char *const *)f->globs;
    f->options.exclude = (const char *const *)f->globs + w->keys_count;
    return FSDPCK_OK;
}

fsdpck_status glob_forms_fit(select_state *a, fsdpck_error *err)
{
    glob_forms *f = &a->result->forms;
    f->options = a->request->options;
    glob_set all = {.count = f->options.keys_count + f->options.exclude_count};
    if (all.count == 0)
        return FSDPCK_OK;
    RETURN_IF(copy_globs(&a->request->options, f, err));
    all.globs = (const char *const *)f->globs;
    all.matched = calloc(all.count, sizeof *all.matched);
    if (all.matched == NULL)
        return error_set_nomem(err, all.count);
    text_buf form = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = try_names(a, &all, err);
    for (size_t i = 0; st == FSDPCK_OK && i < all.count; i++)
        if (!all.matched[i])
            st = fit(a, false, &f->globs[i], &form, err);
    text_release(&form);
    free(all.matched);
    return st;
}

fsdpck_status glob_forms_fit_casts(select_state *a, fsdpck_error *err)
{
    text_buf form = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < a->rules.casts.count; i++) {
        select_cast *cast = VEC_AT(&a->rules.casts, select_cast, i);
        const char *const glob = cast->glob;
        bool matched = false;
        glob_set one = {.globs = &glob, .count = 1, .matched = &matched, .is_final = true};
        if (glob != NULL)
            st = try_names(a, &one, err);
        if (st == FSDPCK_OK && glob != NULL && !matched)
            st = fit(a, true, &cast->glob, &form, err);
    }
    text_release(&form);
    return st;
}

void glob_forms_release(glob_forms *f)
{
    for (size_t i = 0; f->globs != NULL && f->globs[i] != NULL; i++)
        free(f->globs[i]);
    free(f->globs);
    *f = (glob_forms){0};
}
