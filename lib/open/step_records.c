#include "open/step_records.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/state_files.h"
#include "open/step_numbers.h"

/* ---- files of torch.save ---- */

/* Their objects are those of the checkpoint. */
static bool each_read(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    const step_record_row *row;
    bool goes_on = true;
    for (size_t i = 0; goes_on && c->probe.is_folder && (row = step_record_row_at(i)) != NULL;
         i++) {
        step_record r = {.row = row, .name = row->file, .ranks = -1};
        if (!probe_has_entry(&c->probe, r.name) || !state_file_is_read(c, &c->probe, r.name))
            continue;
        char *path = folder_path_join(c->probe.path, r.name);
        r.path = path;
        r.named = path == NULL ? -1 : step_record_number(path, r.name, r.row);
        r.step = checkpoint_number(c, r.row->step);
        goes_on = path == NULL || fn(ctx, &r);
        free(path);
    }
    return goes_on;
}

static bool each_common(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    step_record r = {.row = step_record_row_of(STEP_COMMON_STATE),
                     .name =
                         probe_has_entry(&c->probe, "common.pt") ? "common.pt" : STEP_COMMON_STATE,
                     .step = checkpoint_iteration(c),
                     .ranks = -1};
    char *path = r.step < 0 ? NULL : folder_path_join(c->probe.path, r.name);
    r.path = path;
    r.named = path == NULL ? -1 : step_record_number(path, r.name, r.row);
    const bool goes_on = path == NULL || fn(ctx, &r);
    free(path);
    return goes_on;
}

static void each_state_file(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    fsdpck_state_file ignored = FSDPCK_INIT(fsdpck_state_file);
    bool goes_on = true;
    for (size_t i = 0; goes_on && fsdpck_get_state_file(c, i, &ignored); i++) {
        const found_state_file *f = VEC_AT(&c->state_files, const found_state_file, i);
        step_record r = {.row = step_record_row_of(f->name),
                         .path = f->path,
                         .name = f->name,
                         .step = f->recorded,
                         .ranks = f->ranks};
        if (r.row == NULL || step_record_is_json(r.row))
            continue;
        r.named = step_record_number(f->path, f->name, r.row);
        goes_on = fn(ctx, &r);
    }
}

void step_records_each(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    while (c->base != NULL)
        c = c->base;
    if (step_records_are_local(c) && step_records_each_json(c, fn, ctx) && each_read(c, fn, ctx) &&
        each_common(c, fn, ctx))
        each_state_file(c, fn, ctx);
}

/* ---- ranks ---- */

typedef struct rank_search {
    const step_record_row *row; /* of the files before, which follow each other; NULL: none */
    int64_t step, ranks;
    const char *name; /* of the first one */
    fsdpck_error *what;
    bool differ;
} rank_search;

static void put_mixed(fsdpck_error *what, const step_record *r, const char *key, int64_t number,
                      const char *first_name, int64_t first)
{
    FAIL_WITH(what, BADINPUT, RANK_MIXED,
              ("'%s' differs between files of ranks: they may be of two saves", key),
              (path, r->path), (expected, "%" PRId64 ", as in '%s'", first, first_name),
              (found, "%" PRId64 " in '%s'", number, r->name),
              (next, "copy all files of one save, or use an earlier checkpoint"));
}

static bool compare_rank(void *ctx, const step_record *r)
{
    rank_search *s = ctx;
    if (r->step < 0)
        return true;
    if (s->row != r->row) {
        s->row = r->row;
        s->name = r->name;
        s->step = r->step;
        s->ranks = r->ranks;
        return true;
    }
    s->differ = r->step != s->step || r->ranks != s->ranks;
    if (r->step != s->step)
        put_mixed(s->what, r, r->row->step, r->step, s->name, s->step);
    else if (s->differ)
        put_mixed(s->what, r, r->row->ranks, r->ranks, s->name, s->ranks);
    return !s->differ;
}

bool step_records_differ(fsdpck_checkpoint *c, fsdpck_error *what)
{
    rank_search s = {.what = what};
    step_records_each(c, compare_rank, &s);
    return s.differ;
}

/* ---- the name of the folder ---- */

/* Of the folder with the weights; "" if it is not in the path. */
static void folder_name(const fsdpck_checkpoint *c, char *name, size_t capacity)
{
    const char *path = c->probe.path, *end = path + strlen(path);
    name[0] = '\0';
    if (!c->probe.is_folder)
        while (end > path && *--end != '/') {
        }
    const char *at = end;
    while (at > path && at[-1] != '/')
        at--;
    if ((size_t)(end - at) < capacity)
        snprintf(name, capacity, "%.*s", (int)(end - at), at);
}

/* The first that differs from the number of its folder, or else the first with one. */
typedef struct named_search {
    int64_t step, named; /* named -1: none */
    const char *name;
} named_search;

static bool take_named(void *ctx, const step_record *r)
{
    named_search *s = ctx;
    const bool fits = step_record_fits(r);
    if (r->step < 0 || r->named < 0 || (fits && s->named >= 0))
        return true;
    *s = (named_search){fits ? r->named : r->step, r->named, r->name};
    return fits;
}

/* Of an object or a tensor with one of the keys; -1: none. *key: a constant. */
static int64_t step_of_state(fsdpck_checkpoint *c, const char **key)
{
    for (size_t i = 0; (*key = step_key_at(i)) != NULL; i++) {
        const int64_t step = checkpoint_number(c, *key);
        if (step >= 0)
            return step;
    }
    return -1;
}

/* To be freed; NULL: none. */
static char *path_around(const fsdpck_checkpoint *c)
{
    const char *path = c->entered_from != NULL ? c->entered_from : c->probe.path;
    size_t nbytes = strlen(path);
    if (c->entered_from == NULL && c->format->id != FSDPCK_FORMAT_DEEPSPEED)
        return NULL;
    while (nbytes > 0 && path[nbytes - 1] == '/')
        nbytes--;
    while (c->entered_from == NULL && nbytes > 0 && path[nbytes - 1] != '/')
        nbytes--;
    while (nbytes > 0 && path[nbytes - 1] == '/')
        nbytes--;
    return nbytes == 0 ? NULL : strndup(path, nbytes);
}

bool trainer_state_read_around(const fsdpck_checkpoint *c, trainer_progress *p, int64_t *named)
{
    probe_input around;
    step_name s;
    char *path = path_around(c);
    const char *name = path == NULL ? "" : text_file_name(path);
    step_name_read(name, strlen(name), &s);
    const bool is_step = strncmp(name, "checkpoint-", 11) == 0 && s.kind == STEP_CHECKPOINT &&
                         !s.is_too_large && s.step <= INT64_MAX &&
                         probe_gather(path, &around, NULL) == FSDPCK_OK;
    free(path);
    if (!is_step)
        return false;
    *named = (int64_t)s.step;
    const bool is_read = probe_has_entry(&around, TRAINER_STATE_JSON) &&
                         trainer_state_read_progress(&around, p) && p->step >= 0;
    probe_release(&around);
    return is_read;
}

bool checkpoint_step_of_name(fsdpck_checkpoint *c, int64_t *recorded, int64_t *named,
                             const char **recorded_in, bool *of_trainer)
{
    char name[256];
    step_name s;
    while (c->base != NULL)
        c = c->base;
    *recorded_in = TRAINER_STATE_JSON;
    trainer_progress around = {-1, -1, false};
    const bool is_inside = trainer_state_read_around(c, &around, named);
    *of_trainer = is_inside;
    *recorded = around.step;
    if (is_inside && *recorded != *named)
        return true;
    named_search found = {-1, -1, NULL};
    step_records_each(c, take_named, &found);
    if (found.named >= 0 && (found.step != found.named || !is_inside)) {
        *of_trainer = true;
        *recorded = found.step;
        *named = found.named;
        *recorded_in = found.name;
        return true;
    }
    folder_name(c, name, sizeof name);
    step_name_read(name, strlen(name), &s);
    if (s.is_too_large || s.step > INT64_MAX || (s.kind != STEP_STEP && s.kind != STEP_CHECKPOINT))
        return false;
    *named = (int64_t)s.step;
    *recorded = step_of_state(c, recorded_in);
    *of_trainer = is_inside; /* there, DeepSpeed names its folder by its own count */
    return *recorded >= 0;
}
