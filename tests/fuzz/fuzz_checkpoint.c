/* The files of a checkpoint, one after another, after a line of options. Two more numbers, offset
 * and count, insert that many zeros, which are not bytes of the seed, into a file:
 *
 *     to=dcp world=4 opaque
 *     file .metadata 123
 *     ... 123 bytes, followed directly by the next line ...
 *     file __0_0.distcp 456 400 100000
 *     model x 300
 *     ... a description of the model ...
 *
 * The files are put in a folder and processed as by the program: opened, walked, all objects
 * printed, every byte and number verified, consolidated and resharded. An opened checkpoint has its
 * chunks inside its tensors; every failure has a message; a checkpoint that passes verify is not
 * refused later as bad input; written output passes verify. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fsdpck.h"
#include "tests/fuzz/faults.h"
#include "tests/support/job_parts.h"
#include "tests/support/must.h"
#include "tests/support/scratch.h"
#include "tests/support/stride.h"

enum {
    WRITE_BYTES_MAX = 4 << 20,
    FILES_MAX = 32,
    WORDS_BYTES = 256,
    NAME_BYTES = 80,
    FAULTS_MAX = 20000,
    ZEROS_MAX = 4 << 20
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

typedef struct pack {
    const char *at;
    size_t nbytes;
    char words[WORDS_BYTES];
    char name[NAME_BYTES]; /* of the folder */
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES], model[SCRATCH_BYTES];
} pack;

/* The next line without its end, cut off where `capacity` is too small. False at the end. */
static bool next_line(pack *p, char *line, size_t capacity)
{
    const char *end = p->nbytes > 0 ? memchr(p->at, '\n', p->nbytes) : NULL;
    if (end == NULL)
        return false;
    const size_t n = (size_t)(end - p->at);
    const size_t kept = n < capacity - 1 ? n : capacity - 1;
    memcpy(line, p->at, kept);
    line[kept] = '\0';
    p->at += n + 1;
    p->nbytes -= n + 1;
    return true;
}

/* The number after `word=`, or the fallback. */
static uint64_t number_of(const pack *p, const char *word, uint64_t fallback)
{
    const char *at = strstr(p->words, word);
    return at != NULL ? strtoull(at + strlen(word), NULL, 10) : fallback;
}

static bool has_word(const pack *p, const char *word)
{
    return strstr(p->words, word) != NULL;
}

/* The text after `word=` up to the next blank, or the fallback. */
static void text_of(const pack *p, const char *word, const char *fallback, char text[NAME_BYTES])
{
    const char *at = strstr(p->words, word);
    at = at != NULL ? at + strlen(word) : fallback;
    const size_t n = strcspn(at, " ");
    snprintf(text, NAME_BYTES, "%.*s", (int)n, at);
}

static fsdpck_per_rank per_rank_of(const pack *p)
{
    return (fsdpck_per_rank)(number_of(p, "per_rank=", 0) % (FSDPCK_PER_RANK_ERROR + 1));
}

/* DIR/data/NAME, of the name so many bytes. */
static void path_of(char path[SCRATCH_BYTES], const pack *p, const char *name, size_t nbytes)
{
    const int n = snprintf(path, SCRATCH_BYTES, "%s/%s/%.*s", p->dir, p->name, (int)nbytes, name);
    must(n > 0 && n < SCRATCH_BYTES, "a name is too long");
}

/* Folders of the name are made; false where it would lie elsewhere. */
static bool make_folders(const pack *p, const char *name)
{
    char path[SCRATCH_BYTES];
    if (name[0] == '/' || name[0] == '\0' || strstr(name, "..") != NULL ||
        strstr(name, "//") != NULL || name[strlen(name) - 1] == '/')
        return false;
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        path_of(path, p, name, (size_t)(slash - name));
        (void)mkdir(path, 0700);
    }
    return true;
}

static bool put_file(pack *p, const char *kind, const char *name, size_t nbytes, size_t zeros_at,
                     size_t zeros)
{
    char path[SCRATCH_BYTES];
    const bool model = strcmp(kind, "model") == 0;
    if (!model && !make_folders(p, name))
        return false;
    if (model)
        scratch_path(path, p->dir, "model.json");
    else
        path_of(path, p, name, strlen(name));
    if (nbytes > p->nbytes)
        nbytes = p->nbytes;
    FILE *f = fopen(path, "wb");
    if (f == NULL) /* a folder has this name already */
        return false;
    const size_t head = zeros > 0 && zeros_at < nbytes ? zeros_at : nbytes;
    must((head == 0 || fwrite(p->at, 1, head, f) == head) &&
             (head == nbytes || (fseek(f, (long)(zeros % ZEROS_MAX), SEEK_CUR) == 0 &&
                                 fwrite(p->at + head, 1, nbytes - head, f) == nbytes - head)) &&
             fclose(f) == 0,
         "cannot write a file");
    p->at += nbytes;
    p->nbytes -= nbytes;
    memcpy(model ? p->model : p->path, path, sizeof path);
    return true;
}

static bool unpack(pack *p)
{
    char line[NAME_BYTES + 40], kind[8], name[NAME_BYTES];
    unsigned nfiles = 0;
    unsigned long file_nbytes, zeros_at, zeros;
    if (!next_line(p, p->words, sizeof p->words))
        return false;
    text_of(p, "at=", "data", p->name);
    if (p->name[0] == '\0' || p->name[0] == '.' || strchr(p->name, '/') != NULL)
        return false;
    scratch_path(p->path, p->dir, p->name);
    must(mkdir(p->path, 0700) == 0, "cannot make a folder");
    for (; nfiles < FILES_MAX && next_line(p, line, sizeof line); nfiles++) {
        zeros_at = zeros = 0;
        if (sscanf(line, "%7s %79s %lu %lu %lu", kind, name, &file_nbytes, &zeros_at, &zeros) < 3 ||
            !put_file(p, kind, name, file_nbytes, zeros_at, zeros))
            return false;
    }
    if (!has_word(p, "one"))
        scratch_path(p->path, p->dir, p->name);
    return nfiles > 0;
}

static void walk(fsdpck_checkpoint *c)
{
    fsdpck_info info = FSDPCK_INIT(fsdpck_info);
    fsdpck_get_info(c, &info);
    for (uint64_t i = 0; i < info.tensors; i++) {
        fsdpck_tensor t = FSDPCK_INIT(fsdpck_tensor);
        char text[200];
        fsdpck_get_tensor(c, i, &t);
        fsdpck_describe_chunks(c, i, text, sizeof text);
        for (uint64_t k = t.first_chunk; k < t.first_chunk + t.nchunks; k++) {
            fsdpck_chunk chunk = FSDPCK_INIT(fsdpck_chunk);
            fsdpck_get_chunk(c, k, &chunk);
            for (unsigned d = 0; d < t.ndim; d++)
                must(chunk.offsets[d] <= t.shape[d] &&
                         chunk.sizes[d] <= t.shape[d] - chunk.offsets[d],
                     "a chunk outside of its tensor");
        }
    }
    for (uint64_t i = 0; i < info.objects; i++) {
        fsdpck_error err;
        char *text = NULL;
        fsdpck_error_init(&err);
        if (fsdpck_print_object(c, i, 300, &text, &err) != FSDPCK_OK)
            must(err.message[0] != '\0', "an object is refused without a word");
        free(text);
    }
}

/* How many errors there are, and warnings. UINT64_MAX: no verdict. */
static uint64_t verify(fsdpck_context *ctx, const char *path, fsdpck_level level,
                       const fsdpck_open_options *open, uint64_t *warnings)
{
    fsdpck_verify *v = NULL;
    fsdpck_error err;
    fsdpck_verify_info info = FSDPCK_INIT(fsdpck_verify_info);
    const fsdpck_verify_options options = {
        .struct_nbytes = sizeof options, .level = level, .open = open, .threads = 1};
    fsdpck_error_init(&err);
    if (fsdpck_verify_new(ctx, path, &options, &v, &err) != FSDPCK_OK) {
        must(err.message[0] != '\0', "no verdict, without a word");
        return UINT64_MAX;
    }
    fsdpck_verify_get_info(v, &info);
    for (uint64_t i = 0; i < info.listed; i++) {
        fsdpck_finding f = FSDPCK_INIT(fsdpck_finding);
        fsdpck_finding_kind kind = FSDPCK_INIT(fsdpck_finding_kind);
        fsdpck_verify_get_finding(v, i, &f);
        must(fsdpck_finding_kind_get(f.what->finding, &kind) != 0,
             "a finding that is not in the table");
    }
    fsdpck_verify_free(v);
    *warnings = info.warnings;
    return info.errors;
}

static void set_options(job_parts *o, const pack *p, bool anew)
{
    static const char *const formats[] = {"dcp", "pt", "pt-ranks", "safetensors", "hf", "fsdp1"};
    char word[32];
    *o = (job_parts)JOB_PARTS_INIT;
    o->work.threads = 1;
    o->work.memory_nbytes = 16 << 20;
    o->output.no_sync = 1;
    if (has_word(p, "cast ")) {
        static const char *const dtypes[] = {"bf16"};
        o->select.dtype = dtypes;
        o->select.dtype_count = 1;
    }
    o->output.format = anew ? "dcp" : "pt";
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        snprintf(word, sizeof word, "to=%s ", formats[i]);
        if (has_word(p, word))
            o->output.format = formats[i];
    }
    if (anew)
        o->sharding.world_size = number_of(p, "world=", 2) % 9;
}

static fsdpck_status transform(fsdpck_context *ctx, fsdpck_checkpoint *c, const pack *p, bool anew,
                               int dry_run, uint64_t *nbytes, fsdpck_error *err)
{
    char dst[SCRATCH_BYTES], into[NAME_BYTES];
    job_parts options = JOB_PARTS_INIT;
    fsdpck_report *report = NULL;
    set_options(&options, p, anew);
    options.dry_run.mode = dry_run;
    text_of(p, "into=", "", into);
    options.output.rank_pattern = into[0] != '\0' ? into : NULL;
    fsdpck_error_init(err);
    scratch_path(dst, p->dir, anew ? "anew" : "whole");
    const fsdpck_status st = anew ? job_parts_reshard(ctx, c, dst, &options, &report, err)
                                  : job_parts_consolidate(ctx, c, dst, &options, &report, err);
    must((st == FSDPCK_OK) == (report != NULL), "a report in spite of an error, or none");
    must(st == FSDPCK_OK || err->message[0] != '\0', "fails without a word");
    *nbytes = report != NULL ? report->bytes_written : 0;
    fsdpck_report_free(report);
    return st;
}

/* Planned, and if that is not much, written: then it must pass too. */
static void put(fsdpck_context *ctx, fsdpck_checkpoint *c, const pack *p, bool anew, bool clean)
{
    char dst[SCRATCH_BYTES];
    fsdpck_error err;
    uint64_t nbytes, warnings;
    fsdpck_status st = transform(ctx, c, p, anew, 2, &nbytes, &err);
    if (st == FSDPCK_OK && nbytes < WRITE_BYTES_MAX)
        st = transform(ctx, c, p, anew, 0, &nbytes, &err);
    must(!clean || st != FSDPCK_BADINPUT, "verify passes what is refused then");
    if (st == FSDPCK_OK && nbytes < WRITE_BYTES_MAX) {
        scratch_path(dst, p->dir, anew ? "anew" : "whole");
        /* What each rank has of its own is so again in its file. */
        fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
        open.per_rank = per_rank_of(p);
        char pattern[NAME_BYTES];
        /* The files written are named by it too. */
        text_of(p, has_word(p, "into=") ? "into=" : "pattern=", "", pattern);
        if (pattern[0] != '\0' && has_word(p, "to=pt-ranks "))
            open.rank_pattern = pattern;
        must(verify(ctx, dst, FSDPCK_LEVEL_CHECKSUM, &open, &warnings) == 0,
             "verify does not pass what was written");
    }
}

/* Word `starve`: opened and verified in ever more memory until it suffices; each allocation of what
 * grows with the input is once the one that fails. */
static void starve(const pack *p, fsdpck_open_options *open)
{
    fsdpck_status st = FSDPCK_LIMIT;
    for (uint64_t n = 600; n < 4 << 20 && st != FSDPCK_OK; n += n / 20 + 40) {
        fsdpck_context *ctx = fsdpck_context_new();
        fsdpck_checkpoint *c = NULL;
        fsdpck_error err;
        uint64_t warnings;
        must(ctx != NULL, "no context");
        fsdpck_error_init(&err);
        open->metadata_nbytes = n;
        st = fsdpck_open(ctx, p->path, open, &c, &err);
        must(st == FSDPCK_OK || err.message[0] != '\0', "refused without a word");
        (void)verify(ctx, p->path, FSDPCK_LEVEL_NUMERIC, open, &warnings);
        if (st == FSDPCK_OK) {
            uint64_t nbytes;
            walk(c);
            (void)transform(ctx, c, p, false, 2, &nbytes, &err);
            (void)transform(ctx, c, p, true, 2, &nbytes, &err);
        }
        fsdpck_close(c);
        fsdpck_context_free(ctx);
    }
}

/* Opened and planned with a call that fails, which is told in words. */
static void open_once(const pack *p, const fsdpck_open_options *open)
{
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *c = NULL;
    fsdpck_error err;
    uint64_t nbytes;
    if (ctx == NULL)
        return;
    fsdpck_error_init(&err);
    const fsdpck_status st = fsdpck_open(ctx, p->path, open, &c, &err);
    must(st == FSDPCK_OK || err.message[0] != '\0', "refused without a word");
    if (st == FSDPCK_OK) {
        walk(c);
        (void)transform(ctx, c, p, false, 2, &nbytes, &err);
        (void)transform(ctx, c, p, true, 2, &nbytes, &err);
    }
    fsdpck_close(c);
    fsdpck_context_free(ctx);
}

/* Verified with a call that fails: a verdict without errors is no weaker than the one without. */
static void verify_once(const pack *p, const fsdpck_open_options *open, uint64_t errors)
{
    fsdpck_context *ctx = fsdpck_context_new();
    uint64_t warnings;
    if (ctx == NULL)
        return;
    const uint64_t found = verify(ctx, p->path, FSDPCK_LEVEL_NUMERIC, open, &warnings);
    must(found > 0 || errors == 0, "an error that is there is not seen where a call fails");
    fsdpck_context_free(ctx);
}

/* Word `faults`: each allocation fails once, each read fails once, and each finds its file cut. */
static void fail_each(const pack *p, const fsdpck_open_options *open)
{
    fsdpck_context *ctx = fsdpck_context_new();
    uint64_t warnings;
    must(ctx != NULL, "no context");
    const uint64_t errors = verify(ctx, p->path, FSDPCK_LEVEL_NUMERIC, open, &warnings);
    const unsigned stride = test_stride();
    fsdpck_context_free(ctx);
    for (int kind = 0; kind < FAULTS_KINDS; kind++) {
        bool reached = true;
        for (unsigned at = 1; at < FAULTS_MAX && reached; at += stride) {
            faults_set((faults_kind)kind, at);
            open_once(p, open);
            reached = faults_clear();
        }
        reached = true;
        for (unsigned at = 1; at < FAULTS_MAX && reached; at += stride) {
            faults_set((faults_kind)kind, at);
            verify_once(p, open, errors);
            reached = faults_clear();
        }
    }
}

static void run(const pack *p)
{
    fsdpck_context *ctx = fsdpck_context_new();
    fsdpck_checkpoint *c = NULL;
    fsdpck_error err;
    uint64_t warnings = 0;
    fsdpck_open_options open = FSDPCK_INIT(fsdpck_open_options);
    must(ctx != NULL, "no context");
    fsdpck_error_init(&err);
    open.threads = 1;
    open.source_ranks = number_of(p, "ranks=", 0);
    open.per_rank = per_rank_of(p);
    open.optim_keys = (fsdpck_optim_keys)(number_of(p, "keys=", 0) % (FSDPCK_OPTIM_KEYS_FLAT + 1));
    open.opaque_calls = has_word(p, "opaque");
    open.no_follow = has_word(p, "no_follow");
    open.repair_strided = has_word(p, "repair");
    open.assume_tp_first = has_word(p, "tp_first");
    open.assume_order = has_word(p, "in_order");
    open.dequantize = has_word(p, "dequantize ");
    open.model_path = p->model[0] != '\0' ? p->model : NULL;
    if (has_word(p, "starve "))
        starve(p, &open);
    char pattern[NAME_BYTES];
    text_of(p, "pattern=", "", pattern);
    open.rank_pattern = pattern[0] != '\0' ? pattern : NULL;
    open.metadata_nbytes = 64 << 20;
    if (has_word(p, "faults "))
        fail_each(p, &open);
    /* verify does not see which weights are quantized. */
    const bool clean = verify(ctx, p->path, FSDPCK_LEVEL_NUMERIC, &open, &warnings) == 0 &&
                       warnings == 0 && !open.dequantize;
    if (fsdpck_open(ctx, p->path, &open, &c, &err) == FSDPCK_OK) {
        walk(c);
        put(ctx, c, p, false, clean);
        put(ctx, c, p, true, clean);
    } else {
        must(err.message[0] != '\0', "refused without a word");
        must(!clean, "verify passes what cannot be opened");
    }
    fsdpck_close(c);
    fsdpck_context_free(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    pack *p = calloc(1, sizeof *p);
    must(p != NULL, "no memory");
    p->at = (const char *)data;
    p->nbytes = nbytes;
    scratch_make(p->dir);
    if (unpack(p))
        run(p);
    scratch_remove(p->dir);
    free(p);
    return 0;
}
