/* fsdpck latest: paths on stdout, the reasons for skipped checkpoints on stderr. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command_options.h"
#include "progress_print.h"
#include "report.h"
#include "warnings.h"

typedef struct latest_options {
    command_options reading;
    uint64_t number;
    int level, json, quiet, verbose, allow_missing_state;
} latest_options;

static const opt_row choosing_rows[] = {
    {"number", 'n', OPT_COUNT, .at = offsetof(latest_options, number), .value = "K", .min = 1,
     .max = 1u << 20, .help = "print the K newest complete checkpoints; default 1"},
    {"level", .kind = OPT_CHOICE, .at = offsetof(latest_options, level), .value = "LEVEL",
     .choices = "quick|structure|coverage|checksum|numeric",
     .help =
         "test of completeness: quick (metadata is valid, all files exist and are long enough; "
         "default), coverage (in addition, each tensor is complete), or another level of verify, "
         "such as checksum"},
    {"allow-missing-state", .kind = OPT_FLAG, .at = offsetof(latest_options, allow_missing_state),
     .help =
         "also accept steps that lack state, such as the optimizer, which an older complete step "
         "contains"},
    {0},
};

static const opt_row saying_rows[] = {
    {"json", .kind = OPT_FLAG, .at = offsetof(latest_options, json), .help = "report as JSON"},
    {"verbose", 'v', OPT_FLAG, .at = offsetof(latest_options, verbose),
     .help = "print more details"},
    {"quiet", 'q', OPT_FLAG, .at = offsetof(latest_options, quiet),
     .help = "do not print why newer checkpoints were skipped"},
    {0},
};

typedef struct view {
    const cli *c;
    report_items found, skipped; /* with --json */
    uint64_t skipped_count;
} view;

static void put_candidate(json_writer *w, const char *path, uint64_t step, const fsdpck_error *why)
{
    json_begin_object(w);
    report_path(w, "path", path);
    json_member_u64(w, "step", step);
    if (why != NULL) {
        json_member_string(w, "finding", fsdpck_finding_name(why->finding));
        json_member_string(w, "message", why->message);
    }
    json_end_object(w);
}

static void print_candidate(void *arg, const char *path, uint64_t step, const fsdpck_error *why)
{
    view *v = arg;
    char escaped[4200];
    const char *shown = why != NULL && why->path[0] != '\0' ? why->path : path;
    v->skipped_count += why != NULL;
    if (v->c->json) {
        put_candidate(why == NULL ? &v->found.w : &v->skipped.w, path, step, why);
        return;
    }
    if (why == NULL)
        puts(path); /* not escaped: scripts use it as a path */
    else if (!v->c->quiet)
        fprintf(stderr, "fsdpck %s: skipped '%s': %s%s%s%s\n", v->c->command,
                fsdpck_escape(escaped, sizeof escaped, shown, strlen(shown)), why->message,
                why->finding == FSDPCK_FINDING_NONE ? "" : " [", fsdpck_finding_name(why->finding),
                why->finding == FSDPCK_FINDING_NONE ? "" : "]");
    if (why != NULL && !v->c->quiet && why->finding == FSDPCK_FINDING_LATEST_STATE)
        fprintf(stderr, "  %s\n", why->next);
}

static int finish(const cli *c, const view *v, uint64_t found)
{
    const int code = found > 0 ? 0 : FSDPCK_FINDING;
    const char *const next =
        v->skipped_count > 0
            ? "see the reason for each skipped checkpoint; run fsdpck verify on one for details"
            : "give a folder of checkpoints with names such as step-1000";
    if (!c->json) {
        if (found == 0 && !c->quiet)
            fprintf(stderr, "fsdpck %s: no complete checkpoint\n  next:     %s\n", c->command,
                    next);
        return code;
    }
    json_report r;
    json_writer *const w =
        report_begin_findings(&r, c, code, found > 0 ? "clean" : "findings", NULL);
    if (found == 0)
        warnings_put_finding(w, FSDPCK_FINDING_NO_CHECKPOINT, "error", "no complete checkpoint",
                             next);
    json_end_array(w);
    json_member_array(w, "checkpoints");
    report_put_items(w, &v->found);
    json_end_array(w);
    json_member_array(w, "passed_over");
    report_put_items(w, &v->skipped);
    json_end_array(w);
    return report_end(&r);
}

static int run(cli *c, const latest_options *w, const char *root)
{
    fsdpck_open_options open;
    c->json = w->json != 0;
    c->quiet = w->quiet != 0;
    c->verbose = w->verbose;
    command_open_options(&w->reading, &open);
    const fsdpck_latest_options options = {
        .struct_nbytes = sizeof options,
        .level = w->level < 0 ? FSDPCK_LEVEL_QUICK : (fsdpck_level)w->level,
        .max_count = w->number,
        .open = &open,
        .allow_missing_state = w->allow_missing_state,
    };
    view v = {.c = c};
    report_items_init(&v.found);
    report_items_init(&v.skipped);
    fsdpck_error err = FSDPCK_ERROR_INIT;
    uint64_t found = 0;
    progress_display *progress = progress_start(c, PROGRESS_AUTO);
    const fsdpck_status st =
        fsdpck_latest(c->ctx, root, &options, print_candidate, &v, &found, &err);
    progress_stop(progress);
    const int code = st == FSDPCK_OK ? finish(c, &v, found) : report_failure(c, NULL, &err);
    report_items_release(&v.found);
    report_items_release(&v.skipped);
    return code;
}

int cmd_latest(cli *c, int argc, const char **argv)
{
    latest_options w = {.level = -1};
    command_options_init(&w.reading);
    const opt_group groups[] = {
        {"Choosing:", choosing_rows, &w},
        {"Reading:", options_reading, &w.reading},
        {"Output:", saying_rows, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "latest [OPTION]... ROOT",
        .about = "Prints the path of the newest complete checkpoint in ROOT, the folder of a\n"
                 "run: step-1000, global_step_1000, checkpoint-1000, iter_0001000 and similar\n"
                 "names, ordered by number. Skips unfinished saves, and steps without state that\n"
                 "older steps contain, and prints the reason on standard error. The command is\n"
                 "for scripts that resume an interrupted job.",
        .groups = groups,
        .examples = "  fsdpck latest runs/7b\n"
                    "  torchrun train.py --resume \"$(fsdpck latest runs/7b)\"\n",
    };
    const char *operands[1];
    int code = opt_parse(c, &spec, argc, argv, operands, 1);
    if (code < 0)
        code = run(c, &w, operands[0]);
    opt_release(c, &spec);
    return code;
}
