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
        error_next(err, "write a .safetensors or .pt file; fsdpck version lists the writers");
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
        return FSDPCK_OK;
    const fsdpck_status st = error_set(err, FSDPCK_USAGE, "", "'%s' cannot be cut over ranks",
                                       r->writer->name);
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

/* A replaced folder goes as a whole, so it may hold nothing but the files of a checkpoint: not a
 * tokenizer, a log or a script that somebody put beside the weights. NULL where that is so. */
static const char *first_foreign(const probe_input *in)
{
    static const char *const own[] = {
        "*.safetensors", "*.safetensors.index.json", ".metadata",        "__*.metadata",
        "__*.distcp",    "sharded",                  "*rank_[0-9]*.pt",  "*rank[0-9]*.bin",
        "*rank[0-9]*.pt", "fsdp_config.json"};
    for (size_t i = 0; i < in->entry_count; i++) {
        bool known = false;
        for (size_t k = 0; !known && k < sizeof own / sizeof own[0]; k++)
            known = fnmatch(own[k], in->entries[i], 0) == 0;
        if (!known)
            return in->entries[i];
    }
    return NULL;
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
    const char *other = first_foreign(&in);
    if (probe_readers(&in, NULL) == NULL)
        st = error_set(err, FSDPCK_EXISTS, "",
                       "output is a folder that holds no checkpoint: not replaced");
    else if (other != NULL)
        st = error_set(err, FSDPCK_EXISTS, "",
                       "output is a folder that holds more than a checkpoint: '%s' would be lost",
                       other);
    if (st != FSDPCK_OK) {
        error_path(err, r->dst);
        error_next(err, "choose another name, and move or remove what is there yourself");
    }
    probe_release(&in);
    return st;
}

fsdpck_status request_check_output(const run *r, fsdpck_error *err)
{
    RETURN_IF(check_apart(r, err));
    return check_existing(r, err);
}
