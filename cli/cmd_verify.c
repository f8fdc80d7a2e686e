#include <stddef.h>

#include "progress.h"
#include "report.h"
#include "transform_words.h"
#include "verify_view.h"

typedef struct words {
    transform_words reading;
    uint64_t threads;
    char **set;
    char *manifest, *expect;
    int sha256, level, strict, require_checksums, json, quiet, verbose;
} words;

static const opt_row checking_rows[] = {
    {"level", .kind = OPT_CHOICE, .at = offsetof(words, level), .value = "LEVEL",
     .choices = "quick|structure|coverage|checksum|numeric",
     .help = "quick, structure, coverage (default), checksum or numeric; each includes those "
             "before it"},
    {"strict", .kind = OPT_FLAG, .at = offsetof(words, strict),
     .help = "a warning fails the check as an error does"},
    {"set", .kind = OPT_LIST, .at = offsetof(words, set), .value = "ID=WHAT",
     .help =
         "how bad finding ID is: error, warn, note or ignore; not for what is ambiguous or leads "
         "out of SRC; repeatable, see fsdpck-findings(7)"},
    {"require-checksums", .kind = OPT_FLAG, .at = offsetof(words, require_checksums),
     .help = "at level checksum: bytes for which no checksum is recorded are an error"},
    {"manifest", .kind = OPT_TEXT, .at = offsetof(words, manifest), .value = "FILE",
     .help = "compare with this manifest; default: fsdpck-manifest.json in SRC, where it has one"},
    {"sha256", .kind = OPT_FLAG, .at = offsetof(words, sha256),
     .help = "at level checksum: the SHA-256 of files too, where the manifest has it"},
    {"expect", .kind = OPT_TEXT, .at = offsetof(words, expect), .value = "WHAT",
     .help = "tensors that SRC must have: a list of names, one a line, or of fsdpck digest, a "
             "manifest, an index of safetensors, or another checkpoint"},
    {0},
};

static const opt_row running_rows[] = {
    {"threads", .kind = OPT_COUNT, .at = offsetof(words, threads), .value = "N", .least = 1,
     .most = 1024, .help = "default: what affinity and cgroup allow"},
    {"json", .kind = OPT_FLAG, .at = offsetof(words, json), .help = "report as JSON"},
    {"verbose", 'v', OPT_FLAG, .at = offsetof(words, verbose), .help = "notes too"},
    {"quiet", 'q', OPT_FLAG, .at = offsetof(words, quiet), .help = "findings alone, no summary"},
    {0},
};

static int run(cli *c, const words *w, const char *path)
{
    fsdpck_open_options open;
    c->json = w->json != 0;
    c->quiet = w->quiet != 0;
    c->verbose = w->verbose;
    transform_words_reading(&w->reading, &open);
    open.threads = (unsigned)w->threads;
    const fsdpck_verify_options options = {
        .struct_nbytes = sizeof options,
        .level = w->level,
        .open = &open,
        .threads = (unsigned)w->threads,
        .strict = w->strict,
        .require_checksums = w->require_checksums,
        .set = (const char *const *)w->set,
        .manifest = w->manifest,
        .sha256 = w->sha256,
        .expect = w->expect,
    };
    fsdpck_error err;
    fsdpck_error_init(&err);
    fsdpck_verify *v = NULL;
    fsdpck_context_set_log(c->ctx, NULL, NULL); /* warnings are findings */
    progress_view *view = progress_start(c, PROGRESS_AUTO);
    const fsdpck_status st = fsdpck_verify_new(c->ctx, path, &options, &v, &err);
    progress_stop(view);
    int code;
    if (st != FSDPCK_OK)
        code = report_failure(c, NULL, &err);
    else
        code = c->json ? verify_print_json(c, v) : verify_print_text(c, path, v);
    fsdpck_verify_free(v);
    return code;
}

int cmd_verify(cli *c, int argc, const char **argv)
{
    words w = {.level = -1};
    transform_words_init(&w.reading);
    const opt_group groups[] = {
        {"Checking:", checking_rows, &w},
        {"Reading:", words_reading, &w.reading},
        {"Running:", running_rows, &w},
        {0},
    };
    const opt_spec spec = {
        .usage = "verify [OPTION]... SRC",
        .about = "Is checkpoint SRC whole, consistent and uncorrupted? Nothing is executed,\n"
                 "nothing is written. Exit status 0: no error was found at this level, 1: one\n"
                 "was, 2 and more: no answer. The report ends with what the level cannot see.",
        .groups = groups,
        .examples = "  fsdpck verify step-1000\n"
                    "  fsdpck verify --level checksum step-1000 && upload step-1000\n"
                    "  fsdpck verify --level numeric --strict --json step-1000\n"
                    "  fsdpck verify --expect model.safetensors.index.json step-1000\n"
                    "  fsdpck verify --set IDX-EXTRA=error --set NUM-ZERO=warn step-1000\n",
    };
    const char *operands[1];
    unsigned count;
    int code = opt_parse(c, &spec, argc, argv, operands, 1, 1, &count);
    if (code < 0)
        code = run(c, &w, operands[0]);
    opt_release(c, &spec);
    return code;
}
