#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

static bool has_suffix_in(const char *path, const char *suffixes)
{
    const char *dot = strrchr(path, '.');
    if (dot == NULL || suffixes == NULL || strchr(dot, '/') != NULL || strlen(dot) > 30)
        return false;
    char word[34] = " ";
    memcpy(word + 1, dot, strlen(dot));
    word[1 + strlen(dot)] = ' ';
    return strstr(suffixes, word) != NULL;
}

static bool wants_hdf5(const char *format, const char *dst)
{
    return format != NULL ? strcmp(format, "hdf5") == 0 : has_suffix_in(dst, " .h5 .hdf5 ");
}

static const format_writer *writer_named(const char *name)
{
    for (size_t i = 0; format_writers[i] != NULL; i++) {
        if (strcmp(format_writers[i]->name, name) == 0)
            return format_writers[i];
    }
    return NULL;
}

static const format_writer *writer_of_suffix(const char *dst)
{
    for (size_t i = 0; format_writers[i] != NULL; i++) {
        if (has_suffix_in(dst, format_writers[i]->suffixes))
            return format_writers[i];
    }
    return NULL;
}

static fsdpck_status refuse_stream(fsdpck_error *err)
{
    const fsdpck_status st =
        error_set(err, FSDPCK_USAGE, "", "output cannot be a stream: it is written in parallel");
    error_next(err, "name a file; './-' is a file called '-'");
    return st;
}

static fsdpck_status no_such_writer(const run *r, fsdpck_error *err)
{
    fsdpck_status st;
    if (wants_hdf5(r->opt.format, r->dst)) {
        st = error_set(err, FSDPCK_UNSUPPORTED, "", "writing HDF5 is not built in");
        error_next(err, r->sharded ? "write dcp, pt-ranks or dcp-safetensors"
                                   : "write a .safetensors or .pt file; fsdpck version lists the "
                                     "writers");
    } else {
        st = error_set(err, FSDPCK_USAGE, "", "no writer is called '%s'", r->opt.format);
        error_next(err, "fsdpck version lists the formats that can be written");
    }
    return st;
}

/* What a bare folder name is written as. */
static const format_writer *default_writer(const run *r)
{
    if (!r->sharded)
        return writer_named("hf");
    const format_writer *own = writer_named(r->src->format->name);
    return own != NULL && own->sharded ? own : writer_named("dcp");
}

/* An option that the writer would not look at. */
static fsdpck_status check_fits_writer(const run *r, fsdpck_error *err)
{
    const fsdpck_transform_options *o = &r->opt;
    const struct {
        bool given;
        const char *option, *format;
    } own[] = {
        {o->align_nbytes > 0, "--align", "dcp"},
        {o->rank_pattern != NULL, "--rank-pattern", "pt-ranks"},
        {o->device_type != NULL, "--device-type", "pt-ranks"},
        {o->torch_minor > 0, "--torch", "pt-ranks"},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (!own[i].given || strcmp(r->writer->name, own[i].format) == 0)
            continue;
        const fsdpck_status st = error_set(err, FSDPCK_USAGE, "", "%s says nothing to format '%s'",
                                           own[i].option, r->writer->name);
        error_next(err, "take it out, or add --format %s", own[i].format);
        return st;
    }
    return FSDPCK_OK;
}

fsdpck_status request_choose_writer(run *r, fsdpck_error *err)
{
    if (strcmp(r->dst, "-") == 0)
        return refuse_stream(err);
    if (r->opt.format != NULL)
        r->writer = writer_named(r->opt.format);
    else
        r->writer = writer_of_suffix(r->dst);
    if (r->writer == NULL) {
        if (r->opt.format != NULL || wants_hdf5(NULL, r->dst))
            return no_such_writer(r, err);
        r->writer = default_writer(r);
    }
    if (!r->sharded || r->writer->sharded)
        return check_fits_writer(r, err);
    const fsdpck_status st =
        error_set(err, FSDPCK_USAGE, "", "'%s' cannot be cut over ranks", r->writer->name);
    error_path(err, r->dst);
    error_next(err, "choose dcp, pt-ranks or dcp-safetensors with --format and name a folder; for "
                    "full tensors: fsdpck consolidate");
    return st;
}

/* The folder that `path` lies in, as realpath gives it; NULL where there is none. */
static char *real_parent(const char *path)
{
    char *parent = strdup(path);
    if (parent == NULL)
        return NULL;
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/')
        parent[--n] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash != NULL)
        slash[slash == parent] = '\0';
    char *real = realpath(slash == NULL ? "." : parent, NULL);
    free(parent);
    return real;
}

/* Both as realpath gives them; false where either is NULL. */
static bool path_within(const char *path, const char *folder_path)
{
    if (path == NULL || folder_path == NULL)
        return false;
    const size_t n = strcmp(folder_path, "/") == 0 ? 0 : strlen(folder_path);
    return strncmp(path, folder_path, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* An output inside its input would be read back by the next run as a part of it; an output around
 * its input would, with --force, take the input away. */
static fsdpck_status check_apart(const run *r, fsdpck_error *err)
{
    char *input = realpath(r->src->path, NULL);
    char *parent = real_parent(r->dst);
    char *existing = realpath(r->dst, NULL);
    const char *why = NULL;
    if (r->src->probe.is_folder && path_within(parent, input))
        why = "output lies inside the input";
    else if (input != NULL && existing != NULL && strcmp(input, existing) == 0)
        why = "output is the input";
    else if (path_within(input, existing))
        why = "input lies inside the output";
    fsdpck_status st = FSDPCK_OK;
    if (why != NULL) {
        st = error_set(err, FSDPCK_USAGE, "", "%s", why);
        error_path(err, r->dst);
        error_next(err, "write it beside '%s'", r->src->path);
    }
    free(input);
    free(parent);
    free(existing);
    return st;
}

static bool is_one_of(const char *name, const char *const *patterns)
{
    for (size_t k = 0; patterns[k] != NULL; k++)
        if (fnmatch(patterns[k], name, 0) == 0)
            return true;
    return false;
}

/* The first name in a folder inside the output that is lost with it: of a part of a checkpoint what
 * is not of one, of side files what will not be there again. NULL where there is none. To be
 * free()d. */
static fsdpck_status first_lost_in(const run *r, const folder *dir, const char *name, bool is_part,
                                   char **lost, fsdpck_error *err)
{
    static const char *const own[] = {".metadata", "__*.metadata", "__*.distcp", NULL};
    char **entries;
    size_t count;
    text_buf path = {0};
    folder inner;
    RETURN_IF(folder_open_inside(&inner, dir, name, err));
    fsdpck_status st = folder_list(&inner, NULL, &entries, &count, err);
    folder_close(&inner);
    RETURN_IF(st);
    for (size_t i = 0; i < count && *lost == NULL && st == FSDPCK_OK; i++) {
        path.nbytes = 0;
        text_printf(&path, "%s/%s", name, entries[i]);
        st = text_check(&path, err);
        if (st != FSDPCK_OK ||
            (is_part ? is_one_of(entries[i], own) : sidecars_has(&r->side, path.text)))
            continue;
        *lost = strdup(path.text);
        if (*lost == NULL)
            st = error_set_nomem(err, path.nbytes);
    }
    text_release(&path);
    free(entries);
    return st;
}

/* A replaced folder goes as a whole, so it may hold nothing but the files of a checkpoint: not a
 * tokenizer, a log or a script that somebody put beside the weights. *lost is the first that is
 * none, to be free()d; NULL where all are. */
static fsdpck_status first_lost(const run *r, const probe_input *in, char **lost, fsdpck_error *err)
{
    static const char *const own[] = {"*.safetensors",
                                      "*.safetensors.index.json",
                                      ".metadata",
                                      "__*.metadata",
                                      "__*.distcp",
                                      "sharded",
                                      "*rank_[0-9]*.pt",
                                      "*rank[0-9]*.bin",
                                      "*rank[0-9]*.pt",
                                      "fsdp_config.json",
                                      NULL};
    static const char *const parts[] = {"pytorch_model_fsdp_[0-9]*", "optimizer_[0-9]*", NULL};
    static const char *const sides[] = {"huggingface", NULL};
    *lost = NULL;
    for (size_t i = 0; i < in->entry_count && *lost == NULL; i++) {
        const char *name = in->entries[i];
        const bool is_part = is_one_of(name, parts);
        path_kind kind;
        if (is_one_of(name, own))
            continue;
        RETURN_IF(path_probe(&in->dir, name, &kind, NULL, err));
        if (kind == PATH_FOLDER && (is_part || is_one_of(name, sides))) {
            RETURN_IF(first_lost_in(r, &in->dir, name, is_part, lost, err));
            continue;
        }
        *lost = strdup(name);
        if (*lost == NULL)
            return error_set_nomem(err, strlen(name));
    }
    return FSDPCK_OK;
}

/* What is there already, before any work is done. A folder is only replaced where it is a
 * checkpoint. */
static fsdpck_status check_existing(const run *r, fsdpck_error *err)
{
    path_kind kind;
    RETURN_IF(path_probe(NULL, r->dst, &kind, NULL, err));
    if (kind == PATH_ABSENT)
        return FSDPCK_OK;
    fsdpck_status st = FSDPCK_OK;
    if (!r->opt.force) {
        st = error_set(err, FSDPCK_EXISTS, "", "output exists");
        error_path(err, r->dst);
        error_next(err, "choose another name, or replace it with --force");
        return st;
    }
    if (kind != PATH_FOLDER)
        return FSDPCK_OK;
    probe_input in;
    RETURN_IF(probe_gather(r->dst, &in, err));
    char *other = NULL;
    if (probe_readers(&in, NULL) == NULL)
        st = error_set(err, FSDPCK_EXISTS, "",
                       "output is a folder that holds no checkpoint: not replaced");
    else
        st = first_lost(r, &in, &other, err);
    if (st == FSDPCK_OK && other != NULL)
        st = error_set(err, FSDPCK_EXISTS, "",
                       "output is a folder that holds more than a checkpoint: '%s' would be lost",
                       other);
    if (st == FSDPCK_EXISTS) {
        error_path(err, r->dst);
        error_next(err, "choose another name, and move or remove what is there yourself");
    }
    free(other);
    probe_release(&in);
    return st;
}

fsdpck_status request_check_output(const run *r, fsdpck_error *err)
{
    RETURN_IF(check_apart(r, err));
    return check_existing(r, err);
}
