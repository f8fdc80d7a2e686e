#include "open/step_rows.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/state_files.h"
#include "open/step_manifest.h"

static const step_record_row rows[] = {
    {TRAINER_STATE_JSON, "global_step", NULL, "checkpoint-*", NULL, 0},
    {STEP_MANIFEST, "global_step", "world_size", "global_step_*", NULL, 0},
    {"meta.json", "iteration", "world_size", "iter_*", "rng.pt", 0}, /* slime */
    {LIGHTNING_STATE, "global_step", NULL, "*step=*.ckpt", NULL, 0},
    {"train/rank*.pt", "global_step", "world_size", "step*", NULL, 0},         /* OLMo-core */
    {"extra_state/*rank_*.pt", "global_step", NULL, "global_step_*", NULL, 0}, /* VeOmni */
    {"trainer_state_rank_*.pt", "global_step", NULL, "global_step_*", NULL, 0},
    {"train_state.pt", "step", NULL, "iter_*", "metadata.json", 0}, /* Megatron-Bridge */
    {STEP_COMMON_STATE, "iteration", NULL, "iter_*", NULL, 0},      /* Megatron-Core */
    /* NeMo Automodel: the step that follows, but for the last one of a run */
    {"step_scheduler.pt", "step", NULL, "epoch_*_step_*", NULL, 1},
};
#define ROWS (sizeof rows / sizeof *rows)

bool step_record_is_json(const step_record_row *row)
{
    return text_ends_with(row->file, strlen(row->file), ".json");
}

const step_record_row *step_record_row_of(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (fnmatch(rows[i].file, name, FNM_PATHNAME) == 0)
            return &rows[i];
    return NULL;
}

const step_record_row *step_record_row_at(size_t i)
{
    return i < ROWS ? &rows[i] : NULL;
}

bool step_record_fits(const step_record *r)
{
    return r->step < 0 || r->named < 0 ||
           (r->step >= r->named && r->step - r->named <= r->row->ahead);
}

static bool has_beside(const char *path, const char *name, const step_record_row *row)
{
    path_kind kind = PATH_ABSENT;
    text_buf beside = {0};
    if (row->beside == NULL)
        return true;
    text_append(&beside, path, strlen(path) - strlen(name));
    text_puts(&beside, row->beside);
    const bool has = text_check(&beside, NULL) == FSDPCK_OK &&
                     path_probe(NULL, beside.text, &kind, NULL, NULL) == FSDPCK_OK &&
                     kind == PATH_FILE;
    text_release(&beside);
    return has;
}

int64_t step_record_number(const char *path, const char *name, const step_record_row *row)
{
    char folder_name[256];
    step_name s;
    size_t end = strlen(path) - strlen(name), at;
    while (end > 0 && path[end - 1] == '/')
        end--;
    for (at = end; at > 0 && path[at - 1] != '/';)
        at--;
    if (end - at >= sizeof folder_name)
        return -1;
    snprintf(folder_name, sizeof folder_name, "%.*s", (int)(end - at), path + at);
    step_name_read(folder_name, end - at, &s);
    return fnmatch(row->folder, folder_name, 0) == 0 && !s.is_too_large && s.step <= INT64_MAX &&
                   (s.kind == STEP_STEP || s.kind == STEP_CHECKPOINT) && has_beside(path, name, row)
               ? (int64_t)s.step
               : -1;
}

/* ---- JSON ---- */

bool step_record_read_json(const probe_input *in, const step_record_row *row, step_record *r)
{
    step_manifest m;
    trainer_progress p;
    if (!in->is_folder || !probe_has_entry(in, row->file) ||
        (row->beside != NULL && !probe_has_entry(in, row->beside)))
        return false;
    if (strcmp(row->file, TRAINER_STATE_JSON) == 0)
        m = (step_manifest){trainer_state_read_progress(in, &p) ? p.step : -1, -1};
    else if (strcmp(row->file, STEP_MANIFEST) == 0)
        step_manifest_read(in, &m);
    else
        step_json_read(in, row->file, row->step, row->ranks, &m);
    r->step = m.step;
    r->ranks = m.world_size;
    return r->step >= 0;
}

static bool each_json_in(const probe_input *in, step_record_fn fn, void *ctx)
{
    bool goes_on = true;
    for (size_t i = 0; goes_on && i < ROWS; i++) {
        step_record r = {.row = &rows[i], .name = rows[i].file};
        if (!step_record_is_json(r.row) || !step_record_read_json(in, r.row, &r))
            continue;
        char *path = folder_path_join(in->path, r.name);
        r.path = path;
        r.named = path == NULL ? -1 : step_record_number(path, r.name, r.row);
        goes_on = path == NULL || fn(ctx, &r);
        free(path);
    }
    return goes_on;
}

bool step_records_are_local(const fsdpck_checkpoint *c)
{
    return c->remote_files == NULL && c->ctx->group == NULL;
}

bool step_records_each_json(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    probe_input above;
    if (!step_records_are_local(c) || !each_json_in(&c->probe, fn, ctx))
        return false;
    if (c->entered_from == NULL || probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return true;
    const bool goes_on = each_json_in(&above, fn, ctx);
    probe_release(&above);
    return goes_on;
}
