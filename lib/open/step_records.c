#include "open/step_records.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/step_name.h"
#include "base/text.h"
#include "open/state_files.h"
#include "open/state_list.h"
#include "open/step_manifest.h"

/* Not a file: common.pt, or an object of newer releases. */
#define COMMON_STATE "common_state"

static const step_record_row rows[] = {
    {TRAINER_STATE_JSON, "global_step", NULL, "checkpoint-*", 0},
    {STEP_MANIFEST, "global_step", "world_size", "global_step_*", 0},
    {"meta.json", "iteration", "world_size", "iter_*", 0}, /* slime */
    {LIGHTNING_STATE, "global_step", NULL, "*step=*.ckpt", 0},
    {"train/rank*.pt", "global_step", "world_size", "step*", 0},         /* OLMo-core */
    {"extra_state/*rank_*.pt", "global_step", NULL, "global_step_*", 0}, /* VeOmni */
    {"trainer_state_rank_*.pt", "global_step", NULL, "global_step_*", 0},
    {"train_state.pt", "step", NULL, "iter_*", 0},  /* Megatron-Bridge */
    {COMMON_STATE, "iteration", NULL, "iter_*", 0}, /* Megatron-Core */
    /* NeMo Automodel: the step that follows, but for the last one of a run */
    {"step_scheduler.pt", "step", NULL, "epoch_*_step_*", 1},
};
#define ROWS (sizeof rows / sizeof *rows)

static bool is_json(const step_record_row *row)
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

void step_record_read(fsdpck_checkpoint *state, const step_record_row *row, int64_t *step,
                      int64_t *ranks)
{
    *step = checkpoint_number(state, row->step);
    *ranks = row->ranks == NULL ? -1 : checkpoint_number(state, row->ranks);
}

bool step_record_fits(const step_record *r)
{
    return r->step < 0 || r->named < 0 ||
           (r->step >= r->named && r->step - r->named <= r->row->ahead);
}

/* -1: its name has another form than those of the trainer */
static int64_t number_of_folder(const char *path, const char *name, const step_record_row *row)
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
                   (s.kind == STEP_STEP || s.kind == STEP_CHECKPOINT)
               ? (int64_t)s.step
               : -1;
}

/* ---- JSON ---- */

static bool read_json(const probe_input *in, const step_record_row *row, step_record *r)
{
    step_manifest m;
    trainer_progress p;
    if (!in->is_folder || !probe_has_entry(in, row->file))
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
        if (!is_json(r.row) || !read_json(in, r.row, &r))
            continue;
        char *path = folder_path_join(in->path, r.name);
        r.path = path;
        r.named = path == NULL ? -1 : number_of_folder(path, r.name, r.row);
        goes_on = path == NULL || fn(ctx, &r);
        free(path);
    }
    return goes_on;
}

static bool has_local_files(const fsdpck_checkpoint *c)
{
    return c->remote_files == NULL && c->ctx->group == NULL;
}

static bool each_json(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    probe_input above;
    if (!has_local_files(c) || !each_json_in(&c->probe, fn, ctx))
        return false;
    if (c->entered_from == NULL || probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return true;
    const bool goes_on = each_json_in(&above, fn, ctx);
    probe_release(&above);
    return goes_on;
}

void step_records_each_json(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    each_json(c, fn, ctx);
}

/* ---- files of torch.save ---- */

/* Their objects are those of the checkpoint. */
static bool each_read(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    bool goes_on = true;
    for (size_t i = 0; goes_on && c->probe.is_folder && i < ROWS; i++) {
        step_record r = {.row = &rows[i], .name = rows[i].file};
        if (!probe_has_entry(&c->probe, r.name) || !state_file_is_read(c, &c->probe, r.name))
            continue;
        char *path = folder_path_join(c->probe.path, r.name);
        r.path = path;
        r.named = path == NULL ? -1 : number_of_folder(path, r.name, r.row);
        step_record_read(c, r.row, &r.step, &r.ranks);
        goes_on = path == NULL || fn(ctx, &r);
        free(path);
    }
    return goes_on;
}

static bool each_common(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    step_record r = {.row = step_record_row_of(COMMON_STATE),
                     .name = probe_has_entry(&c->probe, "common.pt") ? "common.pt" : COMMON_STATE,
                     .step = checkpoint_iteration(c),
                     .ranks = -1};
    char *path = r.step < 0 ? NULL : folder_path_join(c->probe.path, r.name);
    r.path = path;
    r.named = path == NULL ? -1 : number_of_folder(path, r.name, r.row);
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
        if (r.row == NULL || is_json(r.row))
            continue;
        r.named = number_of_folder(f->path, f->name, r.row);
        goes_on = fn(ctx, &r);
    }
}

void step_records_each(fsdpck_checkpoint *c, step_record_fn fn, void *ctx)
{
    while (c->base != NULL)
        c = c->base;
    if (has_local_files(c) && each_json(c, fn, ctx) && each_read(c, fn, ctx) &&
        each_common(c, fn, ctx))
        each_state_file(c, fn, ctx);
}

/* ---- ranks ---- */

typedef struct rank_search {
    struct {
        int64_t step, ranks;
        const char *name; /* of the first one; NULL: none */
    } first[ROWS];
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
    const size_t i = (size_t)(r->row - rows);
    if (r->step < 0)
        return true;
    if (s->first[i].name == NULL) {
        s->first[i].name = r->name;
        s->first[i].step = r->step;
        s->first[i].ranks = r->ranks;
        return true;
    }
    s->differ = r->step != s->first[i].step || r->ranks != s->first[i].ranks;
    if (r->step != s->first[i].step)
        put_mixed(s->what, r, r->row->step, r->step, s->first[i].name, s->first[i].step);
    else if (s->differ)
        put_mixed(s->what, r, r->row->ranks, r->ranks, s->first[i].name, s->first[i].ranks);
    return !s->differ;
}

bool step_records_differ(fsdpck_checkpoint *c, fsdpck_error *what)
{
    rank_search s = {.what = what};
    step_records_each(c, compare_rank, &s);
    return s.differ;
}

static void put_ranks(recorded_ranks *r, int64_t ranks, const char *name)
{
    if (ranks <= 0)
        return;
    r->ranks = (uint64_t)ranks;
    snprintf(r->file, sizeof r->file, "%s", name);
}

static void read_ranks(const probe_input *in, fsdpck_checkpoint *c, const char *name,
                       recorded_ranks *r)
{
    const step_record_row *row = step_record_row_of(name);
    fsdpck_checkpoint *state = NULL;
    int64_t step, ranks = -1;
    if (row == NULL || row->ranks == NULL)
        return;
    found_state_file f = {.path = folder_path_join(in->path, name)};
    if (f.path != NULL && state_file_open(c, &f, &state, NULL) == FSDPCK_OK)
        step_record_read(state, row, &step, &ranks);
    put_ranks(r, ranks, name);
    fsdpck_close(state);
    free(f.path);
}

/* Ranks agree: one of their files is opened. */
void step_records_ranks(const probe_input *in, fsdpck_checkpoint *c, recorded_ranks *r)
{
    strtab names;
    *r = (recorded_ranks){0};
    for (size_t i = 0; r->ranks == 0 && i < ROWS; i++) {
        step_record json = {.ranks = -1};
        if (is_json(&rows[i]) && read_json(in, &rows[i], &json))
            put_ranks(r, json.ranks, rows[i].file);
    }
    if (r->ranks > 0 || c == NULL || !has_local_files(c))
        return;
    strtab_init(&names, NULL);
    if (state_list_read(in, &names, NULL) == FSDPCK_OK)
        for (uint32_t i = 0; r->ranks == 0 && i < strtab_count(&names); i++)
            read_ranks(in, c, strtab_text(&names, i), r);
    strtab_release(&names);
}
