/* fsdpck verify: the options of the check; every finding goes to the report. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_options.h"
#include "html_option.h"
#include "progress_print.h"
#include "report.h"
#include "report_page.h"
#include "verify_print.h"

typedef struct verify_options {
    command_options reading;
    uint64_t threads, memory_nbytes, peer_timeout_seconds;
    char **set;
    char *manifest, *expect, *like, *prove_map, *sample, *max_duration, *html;
    int dequantize, no_nearness, stats, sha256, level, strict, require_checksums, json, quiet,
        verbose;
    int progress;
} verify_options;

static const opt_row checking_rows[] = {
    {"level", .kind = OPT_CHOICE, .at = offsetof(verify_options, level), .value = "LEVEL",
     .choices = "quick|structure|coverage|checksum|numeric",
     .help = "level of the check: quick, structure, coverage (default), checksum or numeric; each "
             "includes the previous ones"},
    {"stats", .kind = OPT_FLAG, .at = offsetof(verify_options, stats),
     .help =
         "print mean, standard deviation, extremes, zeros and exponents of each tensor; implies "
         "--level numeric if no level is given"},
    {"sample", .kind = OPT_TEXT, .at = offsetof(verify_options, sample), .value = "PART",
     .help = "at levels checksum and numeric: read part of the data, such as 5% or 1/20; 1/20 to "
             "20/20 together cover everything"},
    {"max-duration", .kind = OPT_TEXT, .at = offsetof(verify_options, max_duration),
     .value = "TIME",
     .help = "at levels checksum and numeric: stop reading after 90s, 10m or 2h; the report counts "
             "the unread data"},
    {"strict", .kind = OPT_FLAG, .at = offsetof(verify_options, strict),
     .help = "exit with status 1 for warnings too"},
    {"set", .kind = OPT_LIST, .at = offsetof(verify_options, set), .value = "ID=WHAT",
     .words = OPT_WORDS_FINDINGS,
     .help =
         "severity of finding ID: error, warn, note or ignore; findings about ambiguous data or "
         "paths outside SRC stay errors; repeatable, see fsdpck-findings(7)"},
    {"require-checksums", .kind = OPT_FLAG, .at = offsetof(verify_options, require_checksums),
     .help = "report bytes without a recorded checksum as an error; implies --level checksum if "
             "no level is given"},
    {"manifest", .kind = OPT_TEXT, .at = offsetof(verify_options, manifest), .value = "FILE",
     .words = OPT_WORDS_FILES,
     .help = "compare with this manifest; implies --level checksum if no level is given; default: "
             "fsdpck-manifest.json in SRC, if it exists, which implies no level"},
    {"sha256", .kind = OPT_FLAG, .at = offsetof(verify_options, sha256),
     .help =
         "compare the SHA-256 of files too; a file without one in a manifest is an error; implies "
         "--level checksum if none is given"},
    {"expect", .kind = OPT_TEXT, .at = offsetof(verify_options, expect), .value = "WHAT",
     .words = OPT_WORDS_FILES,
     .help =
         "tensors that SRC must have: a list of names, one per line, the output of fsdpck digest, "
         "a manifest, a safetensors index, or another checkpoint"},
    {"like", .kind = OPT_TEXT, .at = offsetof(verify_options, like), .value = "BASE",
     .words = OPT_WORDS_FILES,
     .help = "compare SRC, an exported model, with BASE, a Hugging Face folder: names, shapes, "
             "dtypes and "
             "values of tensors; config.json is compared with the tensors of SRC"},
    {"no-nearness", .kind = OPT_FLAG, .at = offsetof(verify_options, no_nearness),
     .help = "with --like: do not compare values, as for a model trained from scratch"},
    {"dequantize", .kind = OPT_FLAG, .at = offsetof(verify_options, dequantize),
     .help = "with --like: read quantized weights of BASE as bf16"},
    {"prove-map", .kind = OPT_TEXT, .at = offsetof(verify_options, prove_map), .value = "MAP",
     .words = OPT_WORDS_MAPS,
     .help = "import SRC by tensor map MAP (fsdpck-map(5)) and export it again, without reading "
             "tensors: each element must return to its location"},
    {0},
};

static const opt_row running_rows[] = {
    {"threads", .kind = OPT_COUNT, .at = offsetof(verify_options, threads), .value = "N", .min = 1,
     .max = 1024, .help = "number of threads; default: as affinity and cgroup allow"},
    {"memory", .kind = OPT_SIZE, .at = offsetof(verify_options, memory_nbytes), .value = "SIZE",
     .min = 16u << 20,
     .help = "size of buffers for compressed data; default 256M, less on small machines; at least "
             "16M"},
    {"peer-timeout", .kind = OPT_COUNT, .at = offsetof(verify_options, peer_timeout_seconds),
     .value = "SECONDS", .min = 1, .max = 86400,
     .help = "under mpirun: a rank that does not respond for SECONDS is lost; default 60"},
    {"progress", .kind = OPT_CHOICE, .at = offsetof(verify_options, progress), .value = "WHEN",
     .choices = "auto|always|never",
     .help = "show progress: auto (a bar on a terminal, elsewhere a line every 30 seconds), "
             "always (also a line for each phase) or never"},
    {"json", .kind = OPT_FLAG, .at = offsetof(verify_options, json), .help = "report as JSON"},
    {"html", .kind = OPT_TEXT, .at = offsetof(verify_options, html), .value = "FILE",
     .words = OPT_WORDS_FILES,
     .help = "write the report to FILE as a web page instead; replaces only such a page"},
    {"verbose", 'v', OPT_FLAG, .at = offsetof(verify_options, verbose), .help = "print notes too"},
    {"quiet", 'q', OPT_FLAG, .at = offsetof(verify_options, quiet),
     .help = "print only findings, no summary"},
    {0},
};

/* Digits and a point only; strtod would also accept signs, blanks, hexadecimal numbers and nan. */
static bool parse_number(const char **text, double *number)
{
    char *end;
    const size_t n = strspn(*text, "0123456789.");
    if (n == 0 || n > 20)
        return false;
    *number = strtod(*text, &end);
    if (end != *text + n)
        return false;
    *text = end;
    return true;
}

/* "5%", "0.5%"; "3/20" is the third of twenty disjoint parts. Fractions of the data, 0 to 1. Returns
 * false after it has reported a usage error. */
static bool parse_sample(const cli *c, const char *text, double *begin, double *end)
{
    const char *at = text;
    double first, parts;
    if (parse_number(&at, &first)) {
        if (strcmp(at, "%") == 0 && first > 0 && first <= 100) {
            *begin = 0;
            *end = first / 100;
            return true;
        }
        /* One quotient is both the end of a part and the start of the next. */
        if (*at++ == '/' && parse_number(&at, &parts) && *at == '\0' && parts >= 1 &&
            parts <= 1000000 && first >= 1 && first <= parts && strchr(text, '.') == NULL) {
            *begin = (first - 1) / parts;
            *end = first / parts;
            return true;
        }
    }
    opt_usage_error_next(c,
                         "give a percentage: --sample 5%, or one part of several: "
                         "--sample 1/20, next time 2/20",
                         "--sample: '%s' is not a percentage or a fraction", text);
    return false;
}

/* "90", "90s", "10m", "2h". Likewise. */
static bool parse_duration(const cli *c, const char *text, double *seconds)
{
    static const char units[] = "smhd";
    static const double factors[] = {1, 60, 3600, 86400};
    const char *at = text;
    if (parse_number(&at, seconds) && *seconds > 0) {
        const char *unit = *at == '\0' ? units : strchr(units, *at);
        if (unit != NULL && (*at == '\0' || at[1] == '\0')) {
            *seconds *= factors[unit - units];
            return true;
        }
    }
    opt_usage_error_next(c, "give --max-duration 10m, or 90s, 2h, 1d",
                         "--max-duration: '%s' is not a duration", text);
    return false;
}

/* Checks combinations of options; fills level and options. Returns -1, or the exit code 2. */
static int read_options(const cli *c, verify_options *w, fsdpck_verify_options *options)
{
    if (w->stats && w->level < 0)
        w->level = FSDPCK_LEVEL_NUMERIC;
    if (w->stats && w->level < FSDPCK_LEVEL_NUMERIC)
        return opt_usage_error(c, "--stats requires --level numeric");
    if ((w->require_checksums || w->sha256 || w->manifest != NULL) && w->level < 0)
        w->level = FSDPCK_LEVEL_CHECKSUM;
    if (w->require_checksums && w->level < FSDPCK_LEVEL_CHECKSUM)
        return opt_usage_error(c, "--require-checksums requires --level checksum or numeric");
    if (w->sha256 && w->level < FSDPCK_LEVEL_CHECKSUM)
        return opt_usage_error(c, "--sha256 requires --level checksum or numeric");
    if (w->no_nearness && w->like == NULL)
        return opt_usage_error(c, "--no-nearness requires --like");
    if (w->sample != NULL && w->level < FSDPCK_LEVEL_CHECKSUM)
        return opt_usage_error(c, "--sample requires --level checksum or numeric");
    if (w->max_duration != NULL && w->level < FSDPCK_LEVEL_CHECKSUM)
        return opt_usage_error(c, "--max-duration requires --level checksum or numeric");
    if (w->dequantize && w->like == NULL)
        return opt_usage_error(c, "--dequantize requires --like");
    if (w->sample != NULL &&
        !parse_sample(c, w->sample, &options->sample_begin, &options->sample_end))
        return FSDPCK_USAGE;
    if (w->max_duration != NULL && !parse_duration(c, w->max_duration, &options->max_seconds))
        return FSDPCK_USAGE;
    options->level = w->level;
    options->statistics = w->stats;
    return -1;
}

/* The messages of the run are findings, except the one about another folder than the one that was given. */
static void note_inside(const cli *c, const fsdpck_verify *v)
{
    fsdpck_info source = FSDPCK_INIT(fsdpck_info);
    char note[1200], path[1024];
    bool limited = false;
    fsdpck_verify_info k = FSDPCK_INIT(fsdpck_verify_info);
    fsdpck_verify_get_info(v, &k);
    if (c->quiet || fsdpck_verify_get_source(v, &source) == 0 || !source.entered)
        return;
    for (uint64_t i = 0; i < k.listed; i++) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        fsdpck_verify_get_finding(v, i, &f);
        limited = limited || f.what->finding == FSDPCK_FINDING_SEARCH_LIMIT;
    }
    snprintf(note, sizeof note, "reading the %s checkpoint %sinside: '%s'",
             limited ? "first" : "only", limited ? "found " : "",
             fsdpck_escape(path, sizeof path, source.path, strlen(source.path)));
    fprintf(stderr, "fsdpck %s: %s\n", c->command, note);
    report_page_note(c->page, note);
}

static int run(cli *c, verify_options *w, const char *path)
{
    fsdpck_open_options open;
    c->json = w->json != 0;
    c->quiet = w->quiet != 0;
    c->verbose = w->verbose;
    const char *const checkpoints[] = {path, w->like};
    const int unusable = html_option_start(c, w->html, checkpoints, 2);
    if (unusable >= 0)
        return unusable;
    command_open_options(&w->reading, &open);
    open.threads = (unsigned)w->threads;
    if (w->peer_timeout_seconds > 0)
        fsdpck_context_set_peer_timeout(c->ctx, (unsigned)w->peer_timeout_seconds);
    fsdpck_verify_options options = {
        .struct_nbytes = sizeof options,
        .open = &open,
        .threads = (unsigned)w->threads,
        .memory_nbytes = w->memory_nbytes,
        .strict = w->strict,
        .require_checksums = w->require_checksums,
        .set = (const char *const *)w->set,
        .manifest = w->manifest,
        .sha256 = w->sha256,
        .expect = w->expect,
        .like = w->like,
        .like_dequantize = w->dequantize,
        .prove_map = w->prove_map,
        .no_nearness = w->no_nearness,
    };
    if (w->prove_map == NULL && (w->reading.map_config != NULL || w->reading.map_set != NULL))
        return opt_usage_error(c, "%s requires --prove-map",
                               w->reading.map_config != NULL ? "--config" : "--map-set");
    const int bad = read_options(c, w, &options);
    if (bad >= 0)
        return bad;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    fsdpck_verify *v = NULL;
    fsdpck_context_set_log(c->ctx, NULL, NULL); /* warnings are findings */
    progress_display *view = progress_start(c, (progress_mode)w->progress);
    const fsdpck_status st = fsdpck_verify_new(c->ctx, path, &options, &v, &err);
    progress_stop(view);
    int code;
    if (st == FSDPCK_OK)
        note_inside(c, v);
    if (st == FSDPCK_OK && html_option_wants_verdict(c))
        verify_print_verdict(c, path, v);
    if (st != FSDPCK_OK)
        code = report_failure(c, NULL, &err);
    else
        code = c->json ? verify_print_json(c, &w->reading, w->like, v)
                       : verify_print_text(c, &w->reading, path, w->like, v);
    fsdpck_verify_free(v);
    return code;
}

int cmd_verify(cli *c, int argc, const char **argv)
{
    verify_options w = {.level = -1};
    command_options_init(&w.reading);
    const opt_group groups[] = {
        {"Checking:", checking_rows, &w},
        {"", options_map_values, &w.reading},
        {"Reading:", options_reading, &w.reading},
        {"", options_hosts, &w.reading},
        {"Running:", running_rows, &w},
        {"", options_terminal, c},
        {0},
    };
    const opt_spec spec = {
        .usage = "verify [OPTION]... SRC",
        .about = "Checks completeness, consistency and checksums of checkpoint SRC. Nothing\n"
                 "is executed or written. Exit status 0: no error at this level; 1: an error;\n"
                 "2 or higher: no verdict. The report ends with the defects that the level\n"
                 "cannot detect.",
        .groups = groups,
        .examples = "  fsdpck verify step-1000\n"
                    "  fsdpck verify --level checksum step-1000 && upload step-1000\n"
                    "  fsdpck verify --level numeric --strict --json step-1000\n"
                    "  fsdpck verify --stats step-1000\n"
                    "  fsdpck verify --level checksum --sample 1/20 step-1000\n"
                    "  fsdpck verify --level checksum --max-duration 10m step-1000\n"
                    "  fsdpck verify --level checksum --require-checksums step-1000\n"
                    "  fsdpck verify --level checksum --manifest step-1000.manifest step-1000\n"
                    "  fsdpck verify --expect model.safetensors.index.json step-1000\n"
                    "  fsdpck verify --like Llama-3.1-8B hf/\n"
                    "  fsdpck verify --prove-map torchtitan-llama3 Llama-3.1-8B\n"
                    "  fsdpck verify --set IDX-EXTRA=error --set NUM-ZERO=warn step-1000\n",
    };
    const char *operands[1];
    int code = opt_parse(c, &spec, argc, argv, operands, 1);
    if (code < 0)
        code = run(c, &w, operands[0]);
    opt_release(c, &spec);
    return code;
}
