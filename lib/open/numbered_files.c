#include "open/numbered_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "open/recorded_ranks.h"
#include "open/state_list.h"
#include "open/step_manifest.h"

enum {
    NAME_NBYTES_MAX = 256,
    DIGITS_MOST = 6,
    LIST_NBYTES = 200,
    /* Each of the first is compared with all names. */
    SUSPECTS_MOST = 1000,
    MISSING_MOST = 1 << 16,
    SERIES_MOST = 64 /* that are compared with each other */
};

typedef enum series_kind {
    SERIES_STATE, /* one file for each process, and nothing else has such a name */
    SERIES_RANK,  /* any other name with the number of a rank */
    SERIES_MODEL  /* one for each model, optimizer, ...; the first may be without a number */
} series_kind;

typedef struct numbered_name {
    const char *name;
    series_kind kind;
    size_t at, nbytes; /* of the digits */
    uint32_t number;
} numbered_name;

/* Names that differ only in the rank. */
typedef struct rank_series {
    numbered_name last;      /* with the highest number */
    bool is_of_each_process; /* by its name; others may be of the ranks of one dim of the mesh */
} rank_series;

/* Of one folder. */
typedef struct numbered_search {
    const probe_input *in;
    const catalogue *read; /* NULL: of a folder below */
    bool is_state;         /* of state_list.h: any number of a rank is of SERIES_STATE */
    text_buf missing;      /* names */
    uint64_t missing_count, suspects;
    const char *above; /* a name with a higher number than a missing one */
    const char *last;  /* of SERIES_STATE with the highest rank */
    uint64_t last_rank;
    rank_series series[SERIES_MOST]; /* of files that the reader of the weights does not read */
    size_t series_count;
} numbered_search;

/* ---- names ---- */

static bool take_number(const char *name, size_t at, numbered_name *n)
{
    n->at = at;
    n->nbytes = strspn(name + at, "0123456789");
    n->number = 0;
    for (size_t i = 0; i < n->nbytes && i < DIGITS_MOST; i++)
        n->number = n->number * 10 + (uint32_t)(name[at + i] - '0');
    return n->nbytes > 0 && n->nbytes <= DIGITS_MOST;
}

static bool ends_name(const char *rest)
{
    static const char *const suffixes[] = {".pt", ".pth", ".bin", ".pkl", ".safetensors"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcmp(rest, suffixes[i]) == 0)
            return true;
    return false;
}

/* "rng_state_3.pth" of transformers, "random_states_3.pkl" of accelerate, "trainer_state_rank_3.pt" of VeOmni. */
static bool is_state(const char *name, numbered_name *n)
{
    static const char *const words[] = {"rng_state_", "random_states_", "trainer_state_rank_"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t nbytes = strlen(words[i]);
        if (strncmp(name, words[i], nbytes) == 0 && take_number(name, nbytes, n) &&
            ends_name(name + n->at + n->nbytes))
            return true;
    }
    return false;
}

/* "model_1.safetensors", "optimizer_1.bin", "pytorch_model_fsdp_1". */
static bool is_of_models(const char *name, numbered_name *n)
{
    static const char *const words[] = {"model",         "pytorch_model",    "pytorch_model_fsdp",
                                        "optimizer",     "scheduler",        "sampler",
                                        "dl_state_dict", "custom_checkpoint"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t nbytes = strlen(words[i]);
        if (strncmp(name, words[i], nbytes) == 0 && name[nbytes] == '_' &&
            take_number(name, nbytes + 1, n)) {
            const char *rest = name + n->at + n->nbytes;
            return rest[0] == '\0' || ends_name(rest);
        }
    }
    return false;
}

bool numbered_file_is_model(const char *name)
{
    numbered_name n = {.name = name};
    return (strncmp(name, "model_", 6) == 0 || strncmp(name, "pytorch_model_", 14) == 0) &&
           is_of_models(name, &n) && weights_stem_nbytes(name) < strlen(name);
}

/* A number directly after "rank". The rank of a low-rank adapter is no process. */
static bool has_rank(const char *name, numbered_name *n)
{
    static const char word[] = "rank";
    const char *at = strstr(name, word);
    if (at == NULL || strstr(name, "lora") != NULL || strstr(name, "adapter") != NULL ||
        strstr(at + 1, word) != NULL || format_file_count(name) > 0)
        return false;
    at += sizeof word - 1;
    at += *at == '_' || *at == '-';
    return take_number(name, (size_t)(at - name), n) && ends_name(at + n->nbytes);
}

static bool is_numbered(const char *name, numbered_name *n)
{
    *n = (numbered_name){.name = name};
    if (is_state(name, n))
        n->kind = SERIES_STATE;
    else if (is_of_models(name, n))
        n->kind = SERIES_MODEL;
    else if (has_rank(name, n))
        n->kind = SERIES_RANK;
    else
        return false;
    return true;
}

bool numbered_file_is_of_rank(const char *name)
{
    numbered_name n;
    return is_numbered(name, &n) && n.kind != SERIES_MODEL;
}

/* ---- holes ---- */

static bool name_with(const numbered_name *n, uint32_t number, bool padded, char *name)
{
    const int width = padded || n->name[n->at] == '0' ? (int)n->nbytes : 1;
    const int nbytes = snprintf(name, NAME_NBYTES_MAX, "%.*s%0*" PRIu32 "%s", (int)n->at, n->name,
                                width, number, n->name + n->at + n->nbytes);
    return nbytes > 0 && nbytes < NAME_NBYTES_MAX;
}

/* "model.safetensors", "model-00001-of-00002.safetensors" or "pytorch_model_fsdp" is the first of its set. */
static bool has_first(const probe_input *in, const numbered_name *n)
{
    const size_t stem = n->at - 1;
    for (size_t i = 0; i < in->entry_count; i++)
        if (strncmp(in->entries[i], n->name, stem) == 0 &&
            strchr(".-", in->entries[i][stem]) != NULL)
            return true;
    return false;
}

static bool has_number(const probe_input *in, const numbered_name *n, uint32_t number)
{
    char name[NAME_NBYTES_MAX];
    return !name_with(n, number, true, name) || probe_has_entry(in, name) ||
           (name_with(n, number, false, name) && probe_has_entry(in, name)) ||
           (number == 0 && n->kind == SERIES_MODEL && has_first(in, n));
}

static bool is_read(const catalogue *read, const char *entry)
{
    return read != NULL && catalogue_has_path(read, entry);
}

static void add_missing(numbered_search *s, const numbered_name *n, uint32_t number)
{
    char name[NAME_NBYTES_MAX];
    const char *suffix = n->name + n->at + n->nbytes;
    bool fits = name_with(n, number, false, name);
    if (number == 0 && n->kind == SERIES_MODEL && suffix[0] != '\0') /* accelerate's first */
        fits = snprintf(name, sizeof name, "%.*s%s", (int)n->at - 1, n->name, suffix) > 0;
    s->missing_count++;
    if (fits)
        text_printf(&s->missing, "%s'%s'", s->missing.nbytes > 0 ? ", " : "", name);
    s->above = n->name;
}

/* The numbers directly below this one. The reader of the files checks those that it read, but does not know that
 * the first of several models is lost. */
static void add_below(numbered_search *s, const numbered_name *n)
{
    uint32_t from = n->number;
    if (n->number == 0 || has_number(s->in, n, n->number - 1) || s->missing_count > MISSING_MOST ||
        s->suspects++ > SUSPECTS_MOST)
        return;
    while (from > 0 && !has_number(s->in, n, from - 1))
        from--;
    if (from == 0 && n->kind == SERIES_RANK)
        return; /* no other file has this name */
    if (!is_read(s->read, n->name))
        for (uint32_t i = from; i < n->number; i++)
            add_missing(s, n, i);
    else if (from == 0 && n->kind == SERIES_MODEL)
        add_missing(s, n, 0);
}

static bool is_same_series(const numbered_name *a, const numbered_name *b)
{
    return text_equal(a->name, a->at, b->name, b->at) &&
           strcmp(a->name + a->at + a->nbytes, b->name + b->at + b->nbytes) == 0;
}

static void add_to_series(numbered_search *s, const numbered_name *n)
{
    size_t i = 0;
    if (n->kind == SERIES_MODEL || is_read(s->read, n->name))
        return;
    while (i < s->series_count && !is_same_series(&s->series[i].last, n))
        i++;
    if (i == SERIES_MOST)
        return;
    if (i == s->series_count)
        s->series[s->series_count++] = (rank_series){*n, n->kind == SERIES_STATE};
    else if (n->number > s->series[i].last.number)
        s->series[i].last = *n;
}

static void search_folder(numbered_search *s)
{
    for (size_t i = 0; s->in->is_folder && i < s->in->entry_count; i++) {
        numbered_name n;
        if (!is_numbered(s->in->entries[i], &n))
            continue;
        add_to_series(s, &n);
        if (s->is_state && n.kind == SERIES_RANK)
            n.kind = SERIES_STATE;
        add_below(s, &n);
        if (n.kind != SERIES_STATE || (s->last != NULL && n.number < s->last_rank))
            continue;
        s->last = n.name;
        s->last_rank = n.number;
    }
}

/* ---- warnings ---- */

static void warn_missing(const numbered_search *s, const logger *log)
{
    if (s->missing_count == 0)
        return;
    log_warn(log, FSDPCK_FINDING_FILE_OF_SET,
             "compare the names with those of the folder in which they were saved; if none is "
             "missing there, ignore this warning",
             "'%s' contains '%s', but %" PRIu64 " name%s with lower numbers %s missing: %s%s",
             s->in->path, s->above, s->missing_count, text_plural(s->missing_count),
             s->missing_count == 1 ? "is" : "are", s->missing.nbytes > 0 ? s->missing.text : "",
             s->missing.failed ? ", ..." : "");
}

static const char copy_others[] =
    "copy the files of the other ranks: a run that resumes from this folder needs them";

/* Each process writes its state. Those that wrote weights are all known, or only some of them. */
static void warn_ranks(const numbered_search *s, const cat_origin *o, const logger *log)
{
    const uint64_t ranks = o->world_size > 0 ? (uint64_t)o->world_size : 0;
    const uint64_t of_state = s->last_rank + 1;
    if (s->last == NULL || ranks == 0 || of_state == ranks)
        return;
    if (of_state < ranks)
        log_warn(log, FSDPCK_FINDING_FILE_OF_SET, copy_others,
                 "'%s' is the last file of its kind in '%s', but %" PRIu64
                 " ranks wrote the weights: %" PRIu64 " file%s of the last ranks %s missing",
                 s->last, s->in->path, ranks, ranks - of_state, text_plural(ranks - of_state),
                 ranks - of_state == 1 ? "is" : "are");
    else if (o->ranks_unknown)
        log_warn(log, FSDPCK_FINDING_FILE_OF_SET,
                 "give --source-ranks N, where N is the number of ranks that saved the checkpoint",
                 "'%s' in '%s' is of rank %" PRIu64 ", but weights of %" PRIu64
                 " rank%s only were found: files of the last ranks may be missing",
                 s->last, s->in->path, s->last_rank, ranks, text_plural(ranks));
}

/* What the trainer recorded is exact. */
static void warn_recorded(const numbered_search *s, const recorded_ranks *r, const logger *log)
{
    const uint64_t ranks = r->ranks;
    const uint64_t of_state = s->last_rank + 1;
    if (s->last == NULL || of_state == ranks)
        return;
    if (of_state < ranks)
        log_warn(log, FSDPCK_FINDING_FILE_OF_SET, copy_others,
                 "'%s' is the last file of its kind in '%s', but '%s' records %" PRIu64
                 " ranks: %" PRIu64 " file%s of the last ranks %s missing",
                 s->last, s->in->path, r->file, ranks, ranks - of_state,
                 text_plural(ranks - of_state), ranks - of_state == 1 ? "is" : "are");
    else
        log_warn(log, FSDPCK_FINDING_RANK_MIXED, "remove the files that do not belong to this step",
                 "'%s' in '%s' is of rank %" PRIu64 ", but '%s' records %" PRIu64
                 " rank%s: one of them is of another save",
                 s->last, s->in->path, s->last_rank, r->file, ranks, text_plural(ranks));
}

/* The file that shows the most ranks: of each process, or any. */
static const rank_series *highest_series(const numbered_search *s, bool of_each_process)
{
    const rank_series *highest = NULL;
    for (size_t i = 0; i < s->series_count; i++)
        if ((!of_each_process || s->series[i].is_of_each_process) &&
            (highest == NULL || s->series[i].last.number > highest->last.number))
            highest = &s->series[i];
    return highest;
}

static void warn_one_series(const numbered_search *s, const rank_series *shorter,
                            const char *shown_by, uint64_t ranks, const logger *log)
{
    text_buf by = {0};
    if (shown_by != NULL)
        text_printf(&by, "'%s' shows %" PRIu64 " ranks", shown_by, ranks);
    else
        text_printf(&by, "%" PRIu64 " ranks wrote the weights", ranks);
    if (text_check(&by, NULL) == FSDPCK_OK)
        log_warn(log, FSDPCK_FINDING_FILE_OF_SET, copy_others,
                 "'%s' is the last file of its kind in '%s', but %s: files of the last ranks are "
                 "missing",
                 shorter->last.name, s->in->path, by.text);
    text_release(&by);
}

/* A kind of files that ends before another one, or before the ranks of the weights. Files of each process have all
 * ranks. Others have those of one dim of the mesh, whose size divides the number of ranks, or that of rank 0 alone. */
static void warn_series(const numbered_search *s, const cat_origin *o, const logger *log)
{
    const uint64_t of_weights = o != NULL && o->world_size > 0 ? (uint64_t)o->world_size : 0;
    const rank_series *any = highest_series(s, false), *each = highest_series(s, true);
    for (size_t i = 0; i < s->series_count; i++) {
        const rank_series *one = &s->series[i];
        const rank_series *longest = one->is_of_each_process ? any : each;
        const uint64_t own = one->last.number + UINT64_C(1);
        uint64_t ranks = longest == NULL ? 0 : longest->last.number + UINT64_C(1);
        const bool by_weights = of_weights >= ranks;
        ranks = by_weights ? of_weights : ranks;
        /* warn_ranks has warned of the longest kind */
        if (own >= ranks || (by_weights && s->last != NULL && own == s->last_rank + 1) ||
            (!one->is_of_each_process && ranks % own == 0))
            continue;
        warn_one_series(s, one, by_weights ? NULL : longest->last.name, ranks, log);
    }
}

static void warn_one(const probe_input *in, bool is_state, const catalogue *read,
                     const cat_origin *origin, const recorded_ranks *recorded, const logger *log)
{
    numbered_search s = {
        .in = in, .read = read, .is_state = is_state, .missing = {.limit_bytes = LIST_NBYTES}};
    search_folder(&s);
    warn_missing(&s, log);
    if (recorded->ranks > 0)
        warn_recorded(&s, recorded, log);
    else if (origin != NULL)
        warn_ranks(&s, origin, log);
    if (recorded->ranks == 0)
        warn_series(&s, origin, log);
    text_release(&s.missing);
}

static void warn_state_folders(const probe_input *in, const cat_origin *origin,
                               const recorded_ranks *recorded, const logger *log)
{
    const char *name;
    bool of_each_process;
    for (size_t i = 0; (name = state_list_folder(in, i, &of_each_process)) != NULL; i++) {
        char *path = folder_path_join(in->path, name);
        probe_input below;
        if (path != NULL && probe_gather(path, &below, NULL) == FSDPCK_OK) {
            warn_one(&below, of_each_process, NULL, origin, recorded, log);
            probe_release(&below);
        }
        free(path);
    }
}

/* All ranks of VeOmni write extra_state/ before the manifest, and not all of them weights. */
static void warn_of_step(const probe_input *in, const cat_origin *origin, const recorded_ranks *r,
                         const logger *log)
{
    step_manifest m;
    if (step_manifest_read(in, &m) && !state_list_has_folder(in, "extra_state"))
        log_warn(log, FSDPCK_FINDING_FILE_OF_SET, copy_others,
                 "'%s' lacks the folder 'extra_state' with a file of each of %" PRIu64
                 " ranks that '%s' records",
                 in->path, r->ranks, r->file);
    if (origin != NULL && origin->world_size > 0 && (uint64_t)origin->world_size > r->ranks)
        log_warn(log, FSDPCK_FINDING_RANK_MIXED, "use a copy of the whole step folder",
                 "%" PRId64 " ranks wrote the weights in '%s', but '%s' records %" PRIu64
                 " rank%s: one of them is of another save",
                 origin->world_size, in->path, r->file, r->ranks, text_plural(r->ranks));
}

/* c: NULL, several checkpoints */
static void warn_folder(const probe_input *in, fsdpck_checkpoint *c, const catalogue *read,
                        const cat_origin *origin, checkpoint_open_fn open, const logger *log)
{
    recorded_ranks recorded;
    recorded_ranks_read(in, c, open, &recorded);
    warn_one(in, false, read, origin, &recorded, log);
    if (in->is_folder)
        warn_state_folders(in, origin, &recorded, log);
    if (recorded.ranks > 0)
        warn_of_step(in, origin, &recorded, log);
}

void numbered_files_warn_folder(const probe_input *in, const logger *log)
{
    warn_folder(in, NULL, NULL, NULL, NULL, log);
}

void numbered_files_warn(fsdpck_checkpoint *c, const catalogue *read, checkpoint_open_fn open)
{
    probe_input above;
    warn_folder(&c->probe, c, read, &read->origin, open, &c->ctx->log);
    if (c->entered_from == NULL || c->ctx->group != NULL ||
        probe_gather(c->entered_from, &above, NULL) != FSDPCK_OK)
        return;
    warn_folder(&above, c, NULL, &read->origin, open, &c->ctx->log);
    probe_release(&above);
}
