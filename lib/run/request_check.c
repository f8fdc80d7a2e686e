#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/path_names.h"

#include "run/output_paths.h"
#include "run/output_replaced.h"
#include "run/output_suffix.h"
#include "run/run.h"

static fsdpck_status refuse_stream(fsdpck_error *err)
{
    return FAIL_WITH(err, USAGE, NONE, ("output cannot be a stream: it is written in parallel"),
                     (next, "give a file name; './-' is a file named '-'"));
}

static fsdpck_status no_such_writer(const run *r, fsdpck_error *err)
{
    text_buf list = {0};
    const fsdpck_status st =
        FAIL(err, USAGE, NONE, "unknown output format '%s'", r->opt.output.format);
    const format_writer *guess = output_suffix_guess(r->opt.output.format, r->sharded);
    for (size_t i = 0; format_writers[i] != NULL; i++)
        if (output_suffix_is_offered(format_writers[i], r->sharded))
            text_printf(&list, "%s%s", list.nbytes > 0 ? ", " : "", format_writers[i]->name);
    if (text_check(&list, NULL) != FSDPCK_OK)
        error_next(err, "list the formats with: fsdpck version");
    else if (guess != NULL)
        error_next(err, "did you mean '%s'? The formats are %s", guess->name, list.text);
    else
        error_next(err, "choose one of %s", list.text);
    text_release(&list);
    return st;
}

/* A folder of PEFT stays one. */
static bool is_adapter(const run *r)
{
    const int part = r->opt.select.part;
    return !r->sharded && (part < 0 || part == (int)PART_MODEL) &&
           checkpoint_is_adapter_folder(r->src);
}

/* The format of a folder name without suffix. */
static const format_writer *default_writer(const run *r)
{
    const format_writer *own = r->src->format->writer;
    if (r->src->extract != NULL || is_adapter(r))
        return format_writer_of_adapter;
    if (!r->sharded && r->src->average != NULL && own != NULL && own->is_folder && !own->ranks_only)
        return own;
    if (!r->sharded)
        return format_writer_of_whole;
    return own != NULL && own->sharded ? own : format_writer_of_shards;
}

static const format_writer *writer_with(writer_option option)
{
    size_t i = 0;
    while (format_writers[i + 1] != NULL && (format_writers[i]->options & option) == 0)
        i++;
    return format_writers[i];
}

/* Only this writer adds the config without which PEFT cannot load an adapter. */
static fsdpck_status check_adapter(const run *r, fsdpck_error *err)
{
    const bool has_adapter = r->src->extract != NULL;
    if ((has_adapter == r->writer->of_adapter && !(has_adapter && r->sharded)) ||
        (r->writer->of_adapter && is_adapter(r)))
        return FSDPCK_OK;
    if (has_adapter)
        return FAIL_WITH(
            err, USAGE, NONE,
            ("an adapter is written as a folder of PEFT, not as format '%s'", r->writer->name),
            (next, "omit --format, and give the name of a folder without suffix"));
    return FAIL_WITH(
        err, USAGE, NONE,
        ("format '%s' is for one adapter, which fsdpck consolidate writes", r->writer->name),
        (next, "add --part adapter to fsdpck consolidate"));
}

/* The config of an adapter lists the modules by their names in the source. */
static fsdpck_status check_whole_adapter(const run *r, fsdpck_error *err)
{
    const char *option = r->opt.select.rename_count > 0         ? "--rename"
                         : r->opt.select.strip_prefix_count > 0 ? "--strip-prefix"
                         : r->opt.select.keys_count > 0         ? "--keys"
                         : r->opt.select.exclude_count > 0      ? "--exclude"
                                                                : NULL;
    if (r->src->extract == NULL || option == NULL)
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, NONE,
                     ("%s does not apply to --part adapter: the config of the adapter lists its "
                      "modules by their names in SRC",
                      option),
                     (next,
                      "give %s to a first fsdpck consolidate SRC NEW.safetensors, and "
                      "--part adapter to a second one of NEW.safetensors",
                      option));
}

/* An option that the writer would ignore. */
static fsdpck_status check_fits_writer(const run *r, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    const struct {
        bool given;
        const char *word;
        writer_option option;
    } own[] = {
        {o->output.max_shard_nbytes > 0, "--max-shard-size", WRITER_MAX_SHARD},
        {o->output.align_nbytes > 0, "--align", WRITER_ALIGN},
        {o->output.rank_pattern != NULL, "--rank-pattern", WRITER_RANK_PATTERN},
        {o->output.device_type != NULL, "--device-type", WRITER_DEVICE_TYPE},
        {o->output.torch_minor > 0, "--torch", WRITER_TORCH},
        {o->output.hdf5_groups != 0, "--hdf5-groups", WRITER_HDF5_GROUPS},
        {o->like != NULL, "--like", WRITER_LIKE},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (!own[i].given || (r->writer->options & own[i].option) != 0)
            continue;
        return FAIL_WITH(err, USAGE, NONE,
                         ("%s does not apply to format '%s'", own[i].word, r->writer->name),
                         (next, "omit it, or add --format %s", writer_with(own[i].option)->name));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_compress(const run *r, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    fsdpck_status st = FSDPCK_OK;
    if (o->output.gzip_level == 0)
        return FSDPCK_OK;
    if (!r->writer->packs) {
        st = FAIL_WITH(err, USAGE, NONE,
                       ("--compress does not apply to format '%s'", r->writer->name),
                       (next, "omit it, or add --format hdf5, the only format with compression"));
    } else if (o->output.gzip_level > 9) {
        st = FAIL(err, USAGE, NONE, "gzip has levels 1 to 9, not %u", o->output.gzip_level);
    } else if (group_size(r->ctx->group) > 1 || o->dry_run.group_size > 1) {
        const bool asked = group_size(r->ctx->group) == 1;
        st = FAIL_WITH(err, UNSUPPORTED, NONE,
                       ("compressed output requires a single process: the offset of each chunk "
                        "depends on the chunk before it"),
                       (next, "%s: the threads of one process compress in parallel",
                        asked ? "omit --group-size" : "run it without mpirun"));
    } else if (o->output.output_local) {
        st =
            FAIL_WITH(err, UNSUPPORTED, NONE, ("--output-local does not support compressed output"),
                      (next, "omit --output-local or --compress"));
    }
    return st;
}

fsdpck_status request_check_compressed(const run *r, fsdpck_error *err)
{
    for (uint32_t i = 0; run_is_compressed(r) && i < catalogue_tensor_count(&r->to.cat); i++) {
        if (!exec_is_streamed(r->exec, i))
            continue;
        return FAIL_WITH(
            err, UNSUPPORTED, NONE,
            ("cannot use --compress: this tensor's source must itself be decoded or assembled as a "
             "stream"),
            (tensor, catalogue_name(&r->to.cat, catalogue_tensor(&r->to.cat, i)->name)),
            (next, "consolidate without --compress first, then consolidate that file with it"));
    }
    return FSDPCK_OK;
}

static fsdpck_status check_links(const run *r, fsdpck_error *err)
{
    if (r->opt.select.tied != FSDPCK_TIED_LINK ||
        (r->writer->takes == STATE_NESTED && !r->writer->flat))
        return FSDPCK_OK;
    return FAIL_WITH(err, USAGE, NONE, ("format '%s' cannot link tied names", r->writer->name),
                     (next, "give --tied keep or --tied first; %s can link them",
                      r->sharded ? "--format pt-ranks" : "a .pt file"));
}

/* A flat writer shards as the model description specifies. */
static fsdpck_status check_fits_flat(const run *r, fsdpck_error *err)
{
    const run_options *o = &r->opt;
    const char *option = o->sharding.like != NULL              ? "--like"
                         : o->sharding.tp_plan != NULL         ? "--tp-plan"
                         : o->sharding.shard_count > 0         ? "--shard"
                         : o->sharding.replicate_count > 0     ? "--replicate"
                         : o->select.part == FSDPCK_PART_OTHER ? "--part other"
                                                               : NULL;
    fsdpck_status st = FSDPCK_OK;
    if (!r->sharded) {
        st =
            FAIL_WITH(err, USAGE, NONE, ("format '%s' is for sharded output only", r->writer->name),
                      (next, "fsdpck reshard --format %s --world-size N", r->writer->name));
    } else if (unit_count(&r->src->units) == 0 || unit_at(&r->src->units, 0)->keyed) {
        st = FAIL_WITH(err, USAGE, MODEL_NEEDED, ("contents of the flat parameters are unknown"),
                       (next, "give --model FILE: fsdpck-model(5)"));
    } else if (option != NULL) {
        st = FAIL_WITH(
            err, USAGE, NONE, ("%s does not apply to format '%s'", option, r->writer->name),
            (next, "omit it: --model FILE determines how model and optimizer are sharded"));
    }
    return st;
}

static fsdpck_status refuse_ranks_only(const run *r, fsdpck_error *err)
{
    return FAIL_WITH(err, USAGE, NONE, ("format '%s' is for sharded output only", r->writer->name),
                     (path, r->dst),
                     (next, "fsdpck reshard --format %s --world-size N", r->writer->name));
}

static bool is_existing_folder(const char *path)
{
    path_kind kind = PATH_ABSENT;
    return path_probe(NULL, path, &kind, NULL, NULL) == FSDPCK_OK && kind == PATH_FOLDER;
}

/* The name of a file of a kind that cannot be written: `dot` is its suffix. */
static fsdpck_status refuse_suffix(const run *r, const char *dot, fsdpck_error *err)
{
    char similar[OUTPUT_SUFFIX_CAPACITY];
    const format_writer *inner = output_suffix_inner(r->dst);
    text_buf all = {.limit_bytes = 300};
    (void)FAIL_WITH(err, USAGE, NONE, ("fsdpck writes no format with suffix '%s'", dot),
                    (path, r->dst));
    output_suffix_similar(r->dst, similar);
    output_suffix_list(&all);
    if (inner != NULL)
        error_next(err, "for a file of this name: give --format %s; for a folder: --format %s",
                   inner->name, r->writer->name);
    else if (similar[0] != '\0')
        error_next(err, "did you mean '%.*s%s'? A folder of this name: give --format %s",
                   (int)(dot - r->dst), r->dst, similar, r->writer->name);
    else
        error_next(err, "suffixes of files are %s; a folder of this name: give --format %s",
                   all.failed ? "" : all.text, r->writer->name);
    text_release(&all);
    return FSDPCK_USAGE;
}

/* A name that resembles a file name may be intended as one. Versions (1.5) have dots too. */
static fsdpck_status report_folder(const run *r, fsdpck_error *err)
{
    char similar[OUTPUT_SUFFIX_CAPACITY];
    const char *slash = strrchr(r->dst, '/');
    const char *dot = strrchr(slash == NULL ? r->dst : slash, '.');
    if (r->sharded || dot == NULL || dot == r->dst || dot[-1] == '/' ||
        dot[1 + strcspn(dot + 1, "0123456789")] != '\0' || dot[1] == '\0')
        return FSDPCK_OK;
    output_suffix_similar(r->dst, similar);
    const bool is_file = similar[0] != '\0' || output_suffix_is_of_file(r->dst) ||
                         output_suffix_inner(r->dst) != NULL;
    if (is_file && !is_existing_folder(r->dst))
        return refuse_suffix(r, dot, err);
    log_write(&r->ctx->log, LOG_NOTE,
              "'%s' will be a folder: fsdpck writes no format with suffix '%s'", r->dst, dot);
    return FSDPCK_OK;
}

fsdpck_status request_choose_writer(run *r, fsdpck_error *err)
{
    if (strcmp(r->dst, "-") == 0)
        return refuse_stream(err);
    if (r->opt.output.format != NULL)
        r->writer = format_writer_named(r->opt.output.format);
    else
        r->writer = output_suffix_writer(r->dst);
    if (r->writer == NULL) {
        if (r->opt.output.format != NULL)
            return no_such_writer(r, err);
        r->writer = default_writer(r);
        RETURN_IF(report_folder(r, err));
    }
    RETURN_IF(check_adapter(r, err));
    RETURN_IF(check_whole_adapter(r, err));
    if (!r->sharded && r->writer->ranks_only)
        return refuse_ranks_only(r, err);
    if (!r->sharded || r->writer->sharded) {
        RETURN_IF(check_fits_writer(r, err));
        RETURN_IF(check_compress(r, err));
        RETURN_IF(check_links(r, err));
        return r->writer->flat ? check_fits_flat(r, err) : FSDPCK_OK;
    }
    return FAIL_WITH(err, USAGE, NONE,
                     ("format '%s' cannot be sharded over ranks", r->writer->name), (path, r->dst),
                     (next, "give --format dcp, pt-ranks or dcp-safetensors and a folder; for full "
                            "tensors, use fsdpck consolidate"));
}

static fsdpck_status is_empty_folder(const char *path, bool *empty, fsdpck_error *err)
{
    folder dir;
    char **entries = NULL;
    size_t count = 0;
    RETURN_IF(folder_open(&dir, path, err));
    const fsdpck_status st = folder_list(&dir, NULL, &entries, &count, err);
    folder_close(&dir);
    *empty = st == FSDPCK_OK && count == 0;
    free(entries);
    return st;
}

/* A final name is given to complete outputs only, but nothing in them shows from which source and with which options
 * they were made: so a run with --resume does not claim that one is its own. */
static fsdpck_status error_exists(const run *r, fsdpck_error *err)
{
    if (r->opt.output.resume)
        return FAIL_WITH(
            err, EXISTS, NONE,
            ("output exists: --resume continues unfinished outputs only, and this one does not show whether it was made "
             "from SRC with these options"),
            (path, r->dst),
            (next, "if an earlier run of this command made it, nothing is left to do: put [ -e DST ] || before the command in "
                   "scripts; otherwise choose another name, or replace it with --force"));
    return FAIL_WITH(err, EXISTS, NONE, ("output exists"), (path, r->dst),
                     (next, "%s",
                      r->src->average != NULL ? "the last operand is DST: give a new name for it"
                                              : "choose another name, or replace it with --force"));
}

/* A damaged checkpoint may be replaced, so only its beginning or its name is asked. An empty file was made for
 * this run, as by mktemp. */
static fsdpck_status check_replaced_file(const probe_input *in, fsdpck_error *err)
{
    if (in->nbytes == 0 || probe_readers(in, NULL) != NULL)
        return FSDPCK_OK;
    return FAIL(err, EXISTS, NONE, "output file is not a checkpoint: not replaced");
}

/* Checks an existing output before any work. Only a checkpoint is replaced, or an empty file or folder, as made by
 * mkdir for this run. */
static fsdpck_status check_existing(run *r, fsdpck_error *err)
{
    path_kind kind;
    RETURN_IF(path_probe(NULL, r->dst, &kind, NULL, err));
    r->replaces_empty = false;
    strtab_release(&r->replaced);
    vec_release(&r->replaced_stamps);
    if (kind == PATH_ABSENT)
        return FSDPCK_OK;
    fsdpck_status st = FSDPCK_OK;
    if (kind == PATH_FOLDER && r->writer->is_folder)
        RETURN_IF(is_empty_folder(r->dst, &r->replaces_empty, err));
    if (r->replaces_empty)
        return FSDPCK_OK;
    if (!r->opt.output.force)
        return error_exists(r, err);
    probe_input in;
    RETURN_IF(probe_gather(r->dst, &in, err));
    st = kind == PATH_FOLDER ? output_check_lost(r, &in, err) : check_replaced_file(&in, err);
    if (st == FSDPCK_EXISTS) {
        error_path(err, r->dst);
        error_next(err, "choose another name, or move or remove %s yourself",
                   kind == PATH_FOLDER ? "those files" : "that file");
    }
    probe_release(&in);
    return st;
}

/* A link is never replaced: its target would remain, although the user meant the target. Fills
 * r->replaced_file. */
static fsdpck_status check_no_link(run *r, fsdpck_error *err)
{
    struct stat found;
    char *path = strdup(r->dst);
    if (path == NULL)
        return error_set_nomem(err, strlen(r->dst));
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    const bool exists = lstat(path, &found) == 0;
    const bool is_link = exists && S_ISLNK(found.st_mode);
    r->replaced_file = exists ? path_stamp_from(&found) : (path_stamp){.kind = PATH_ABSENT};
    free(path);
    if (!is_link)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, EXISTS, NONE, ("output exists: a symbolic link, which is never followed"),
        (path, r->dst),
        (next, "give the target of the link, choose another name, or remove the link"));
}

/* The parent folder of DST must exist and be writable, also in a dry run. */
static fsdpck_status check_parent(const run *r, fsdpck_error *err)
{
    char *parent = path_real_parent(r->dst);
    struct stat found;
    fsdpck_status st = FSDPCK_OK;
    if (parent != NULL && stat(parent, &found) == 0 && !S_ISDIR(found.st_mode)) {
        free(parent);
        parent = NULL;
        errno = ENOTDIR;
    }
    if (parent == NULL && (errno == ENOENT || errno == ENOTDIR)) {
        st = FAIL_WITH(err, IO, NONE,
                       ("parent folder of the output cannot be used: %s", strerror(errno)),
                       (next, "create it first, or write elsewhere"));
    } else if (parent == NULL) {
        st = error_set_errno(err, errno, "checking the output's folder", NULL);
    } else if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) != 0) {
        st = error_set_errno(err, errno, "writing into the output's folder", NULL);
    }
    if (st != FSDPCK_OK)
        error_path(err, r->dst);
    free(parent);
    return st;
}

/* On hosts other than rank 0's the output's folder need not exist. */
static bool writes_on_this_host(const run *r)
{
    const group *g = r->ctx->group;
    return g == NULL || r->opt.output.output_local ||
           strcmp(group_host(g, group_rank(g)), group_host(g, 0)) == 0;
}

fsdpck_status request_check_output(run *r, fsdpck_error *err)
{
    if (r->opt.output.resume && r->opt.output.output_local)
        return FAIL_WITH(err, USAGE, NONE, ("--resume does not apply to --output-local"),
                         (next, "omit one of them"));
    if (!writes_on_this_host(r))
        return FSDPCK_OK;
    RETURN_IF(check_parent(r, err));
    RETURN_IF(check_no_link(r, err));
    RETURN_IF(output_check_disjoint(r, err));
    return check_existing(r, err);
}

fsdpck_status request_check_still_empty(const run *r, fsdpck_error *err)
{
    bool empty = true;
    if (r->replaces_empty)
        RETURN_IF(is_empty_folder(r->dst, &empty, err));
    return empty ? FSDPCK_OK : error_exists(r, err);
}

/* Free bytes in the file system of DST; false if unknown. */
static bool free_space(const run *r, uint64_t *nbytes)
{
    char *parent = path_real_parent(r->dst);
    struct statvfs fs;
    const bool told = parent != NULL && statvfs(parent, &fs) == 0 && fs.f_blocks > 0 &&
                      checked_mul(fs.f_bavail, fs.f_frsize, nbytes);
    free(parent);
    return told;
}

fsdpck_status request_check_space(const run *r, fsdpck_error *err)
{
    uint64_t needed = 0, have;
    /* An adopted output has its space already, or output_add reserves it. */
    if (!writes_on_this_host(r) || r->resume.continues)
        return FSDPCK_OK;
    for (size_t i = 0; i < catalogue_file_count(&r->to.cat); i++)
        if ((!r->local.on || r->local.here[i]) &&
            !checked_add(needed, catalogue_file(&r->to.cat, i)->nbytes, &needed))
            needed = UINT64_MAX;
    for (size_t i = 0; i < r->side.files.count; i++) {
        const sidecar *f = VEC_AT(&r->side.files, const sidecar, i);
        if (f->copied && !checked_add(needed, f->nbytes, &needed))
            needed = UINT64_MAX;
    }
    if (!free_space(r, &have) || needed <= have)
        return FSDPCK_OK;
    if (run_is_compressed(r)) {
        log_warn(&r->ctx->log, FSDPCK_FINDING_SYS_SPACE,
                 "write the output elsewhere, or free some space",
                 "output needs up to %" PRIu64
                 " bytes before compression, and its file system has %" PRIu64 " free",
                 needed, have);
        return FSDPCK_OK;
    }
    if (r->opt.dry_run.mode) {
        log_warn(&r->ctx->log, FSDPCK_FINDING_SYS_SPACE,
                 "write the output elsewhere, or free some space",
                 "output needs %" PRIu64 " bytes, and its file system has %" PRIu64 " free", needed,
                 have);
        return FSDPCK_OK;
    }
    return FAIL_WITH(err, NOSPACE, NONE, ("not enough space for the output: nothing was written"),
                     (path, r->dst), (expected, "%" PRIu64 " bytes free", needed),
                     (found, "%" PRIu64 " bytes free", have),
                     (next, "write the output elsewhere, or free some space"));
}
