#include "consolidate_words.h"

#include <stdio.h>

#include "opt.h"
#include "progress.h"

/* The words as popt leaves them; request_from_words makes the request of them. */
typedef struct words {
    char *part, *objects, *replicas, *direct, *engine, *format, *source_format, *source_ranks;
    char *max_shard_size, *threads, *memory, *progress, *tied;
    char **keys, **exclude, **strip_prefix, **rename, **dtype;
    int clean, keep, force, no_sync, read_back, dry_run, no_follow, json, quiet, verbose;
} words;

static void request_lists(const words *w, fsdpck_transform_options *t)
{
    t->keys = (const char *const *)w->keys;
    t->keys_count = opt_list_count(w->keys);
    t->exclude = (const char *const *)w->exclude;
    t->exclude_count = opt_list_count(w->exclude);
    t->strip_prefix = (const char *const *)w->strip_prefix;
    t->strip_prefix_count = opt_list_count(w->strip_prefix);
    t->rename = (const char *const *)w->rename;
    t->rename_count = opt_list_count(w->rename);
    t->dtype = (const char *const *)w->dtype;
    t->dtype_count = opt_list_count(w->dtype);
}

static bool request_numbers(const cli *c, const words *w, consolidate_request *r)
{
    uint64_t n;
    if (w->threads != NULL) {
        if (!opt_count(c, "--threads", w->threads, 1, 1024, &n))
            return false;
        r->transform.threads = (unsigned)n;
        r->open.threads = (unsigned)n;
    }
    if (w->source_ranks != NULL &&
        !opt_count(c, "--source-ranks", w->source_ranks, 1, 1u << 20, &r->open.source_ranks))
        return false;
    if (w->memory != NULL && !opt_size(c, "--memory", w->memory, &r->transform.memory_nbytes))
        return false;
    return w->max_shard_size == NULL ||
           opt_size(c, "--max-shard-size", w->max_shard_size, &r->transform.max_shard_nbytes);
}

static bool request_choices(const cli *c, const words *w, consolidate_request *r)
{
    fsdpck_transform_options *t = &r->transform;
    int i = 0;
    if (w->part != NULL && !opt_choice(c, "--part", w->part, "model|optimizer|other|all", &t->part))
        return false;
    if (w->objects != NULL) {
        if (!opt_choice(c, "--objects", w->objects, "keep|drop|opaque|error", &i))
            return false;
        t->objects = (fsdpck_objects)i;
        r->open.opaque_calls = t->objects == FSDPCK_OBJECTS_OPAQUE;
    }
    if (w->replicas != NULL) {
        if (!opt_choice(c, "--replicas", w->replicas, "crc|compare|first", &i))
            return false;
        t->replicas = (fsdpck_replicas)i;
    }
    if (w->direct != NULL) {
        if (!opt_choice(c, "--direct", w->direct, "auto|on|off", &i))
            return false;
        t->direct = (fsdpck_switch)i;
    }
    if (w->tied != NULL) {
        if (!opt_choice(c, "--tied", w->tied, "all|first", &i))
            return false;
        t->tied_first = i;
    }
    if (w->engine != NULL) {
        if (!opt_choice(c, "--engine", w->engine, "auto|threads|cuda", &i))
            return false;
        t->use_cuda = i == 2;
    }
    return w->progress == NULL ||
           opt_choice(c, "--progress", w->progress, "auto|always|never", &r->progress);
}

static bool request_from_words(cli *c, const words *w, consolidate_request *r)
{
    r->open = (fsdpck_open_options)FSDPCK_OPEN_OPTIONS_INIT;
    r->progress = PROGRESS_AUTO;
    fsdpck_transform_options_init(&r->transform);
    c->json = w->json != 0;
    c->quiet = w->quiet != 0;
    c->verbose = w->verbose;
    if (w->clean && w->keep) {
        opt_usage_error(c, "--clean-names and --keep-names contradict each other");
        return false;
    }
    fsdpck_transform_options *t = &r->transform;
    t->clean_names = w->clean ? FSDPCK_ON : w->keep ? FSDPCK_OFF : FSDPCK_AUTO;
    t->format = w->format;
    t->force = w->force;
    t->no_sync = w->no_sync;
    t->read_back = w->read_back;
    t->dry_run = w->dry_run == 0 ? 0 : w->verbose > 0 ? 2 : 1;
    r->open.format = w->source_format;
    r->open.no_follow = w->no_follow;
    request_lists(w, t);
    return request_choices(c, w, r) && request_numbers(c, w, r);
}

static int parse_and_run(cli *c, words *w, const opt_spec *spec, int argc, const char **argv,
                         consolidate_fn run)
{
    const char *operands[2];
    unsigned count;
    int code = opt_parse(c, spec, argc, argv, operands, 2, 2, &count);
    if (code >= 0)
        return code;
    consolidate_request r;
    if (!request_from_words(c, w, &r))
        return FSDPCK_USAGE;
    r.src = operands[0];
    r.dst = operands[1];
    return run(c, &r);
}

int consolidate_with_words(cli *c, int argc, const char **argv, consolidate_fn run)
{
    words w = {0};
    const struct poptOption choosing[] = {
        {"part", '\0', POPT_ARG_STRING, &w.part, 0,
         "model, optimizer, other or all; default: model into safetensors and hf, all into pt",
         "PART"},
        {"keys", '\0', POPT_ARG_ARGV, &w.keys, 0,
         "only tensors whose name matches; '*' crosses dots; repeatable", "GLOB"},
        {"exclude", '\0', POPT_ARG_ARGV, &w.exclude, 0, "leave out what matches; repeatable",
         "GLOB"},
        {"objects", '\0', POPT_ARG_STRING, &w.objects, 0,
         "keep, drop, opaque (keep unknown calls as records) or error", "WHAT"},
        {"tied", '\0', POPT_ARG_STRING, &w.tied, 0,
         "names of one tensor that is there under several: all or first", "WHICH"},
        POPT_TABLEEND,
    };
    const struct poptOption naming[] = {
        {"clean-names", '\0', POPT_ARG_NONE, &w.clean, 0,
         "drop what FSDP, compile, checkpoint and DDP wrappers put into names; default into "
         "safetensors and hf",
         NULL},
        {"keep-names", '\0', POPT_ARG_NONE, &w.keep, 0, "leave the names as they are", NULL},
        {"strip-prefix", '\0', POPT_ARG_ARGV, &w.strip_prefix, 0,
         "drop P from the front of names; repeatable", "P"},
        {"rename", '\0', POPT_ARG_ARGV, &w.rename, 0,
         "rename as sed does, with Perl expressions; repeatable, in order", "s/RE/TEXT/"},
        {"dtype", '\0', POPT_ARG_ARGV, &w.dtype, 0,
         "cast the model's floats (bf16, fp16, fp32, fp64), or any floating tensor that matches: "
         "'GLOB=fp32'; repeatable",
         "DTYPE"},
        POPT_TABLEEND,
    };
    const struct poptOption reading[] = {
        {"source-format", '\0', POPT_ARG_STRING, &w.source_format, 0,
         "read SRC as this; default: found by content", "F"},
        {"source-ranks", '\0', POPT_ARG_STRING, &w.source_ranks, 0,
         "ranks that must have written SRC", "N"},
        {"replicas", '\0', POPT_ARG_STRING, &w.replicas, 0,
         "how equal boxes of several ranks are compared: crc, compare or first", "HOW"},
        {"no-follow", '\0', POPT_ARG_NONE, &w.no_follow, 0, "links inside SRC are errors", NULL},
        POPT_TABLEEND,
    };
    const struct poptOption writing[] = {
        {"format", '\0', POPT_ARG_STRING, &w.format, 0,
         "safetensors, hf or pt; default: from DST's name, a bare name is an hf folder", "F"},
        {"max-shard-size", '\0', POPT_ARG_STRING, &w.max_shard_size, 0,
         "largest file of an hf folder; default 50GB", "SIZE"},
        {"force", '\0', POPT_ARG_NONE, &w.force, 0,
         "replace DST; a folder only if it is a checkpoint", NULL},
        {"no-sync", '\0', POPT_ARG_NONE, &w.no_sync, 0,
         "do not wait for the storage: faster, but not safe from a power cut", NULL},
        {"read-back", '\0', POPT_ARG_NONE, &w.read_back, 0,
         "read the output again from the storage and compare", NULL},
        {"direct", '\0', POPT_ARG_STRING, &w.direct, 0, "O_DIRECT writing: auto, on or off",
         "WHEN"},
        {"dry-run", '\0', POPT_ARG_NONE, &w.dry_run, 0,
         "check and plan, show the plan's sums, write nothing", NULL},
        POPT_TABLEEND,
    };
    const struct poptOption running[] = {
        {"threads", '\0', POPT_ARG_STRING, &w.threads, 0, "default: what affinity and cgroup allow",
         "N"},
        {"memory", '\0', POPT_ARG_STRING, &w.memory, 0,
         "buffers, besides metadata; default 256M, less on small machines; at least 16M", "SIZE"},
        {"engine", '\0', POPT_ARG_STRING, &w.engine, 0, "auto, threads or cuda", "E"},
        {"progress", '\0', POPT_ARG_STRING, &w.progress, 0, "auto, always or never", "WHEN"},
        {"json", '\0', POPT_ARG_NONE, &w.json, 0, "report as JSON, on failure too", NULL},
        {"verbose", 'v', POPT_ARG_NONE, &w.verbose, 0, "say more; with --dry-run the whole plan",
         NULL},
        {"quiet", 'q', POPT_ARG_NONE, &w.quiet, 0, "say nothing but errors", NULL},
        POPT_TABLEEND,
    };
    const opt_group groups[] = {
        {"What is written:", choosing}, {"Names and dtypes:", naming}, {"Reading:", reading},
        {"Writing:", writing},          {"Running:", running},         {NULL, NULL},
    };
    const opt_spec spec = {
        .usage = "consolidate [OPTION]... SRC DST",
        .about = "Merges the shards of checkpoint SRC into full tensors at DST. DST\n"
                 "appears only when it is complete and safe on the storage. Into\n"
                 "safetensors and hf goes the model part under the model's own names; into\n"
                 ".pt goes everything, nested as it was.",
        .groups = groups,
        .examples = "  fsdpck consolidate step-1000 model.safetensors\n"
                    "  fsdpck consolidate step-1000 out/ --dtype bf16 --max-shard-size 5GB\n"
                    "  fsdpck consolidate step-1000 everything.pt\n",
    };
    const int code = parse_and_run(c, &w, &spec, argc, argv, run);
    opt_release(c, &spec);
    return code;
}
