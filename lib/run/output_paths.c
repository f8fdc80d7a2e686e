#include "run/output_paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path_names.h"
#include "manifest/manifest.h"

/* Bytes of a file that are read to see whether the rest may be a manifest. */
#define MANIFEST_HEAD_NBYTES ((size_t)64 << 10)

/* ---- DST ---- */

/* Whether replacing `existing` would remove the file `name` of an input checkpoint. */
static bool would_be_replaced(const fsdpck_checkpoint *src, const char *name, const char *existing,
                              const struct stat *was)
{
    const folder *dir = &src->probe.dir;
    struct stat found;
    if (dir->fd < 0 || fstatat(dir->fd, name, &found, 0) != 0)
        return false;
    if (!S_ISDIR(was->st_mode))
        return found.st_dev == was->st_dev && found.st_ino == was->st_ino;
    /* The target of a link in the input. */
    text_buf path = {0};
    text_printf(&path, "%s/%s", dir->path, name);
    char *real = text_check(&path, NULL) == FSDPCK_OK ? realpath(path.text, NULL) : NULL;
    const bool within = path_is_within(real, existing);
    free(real);
    text_release(&path);
    return within;
}

/* The name of a file of `src` that the output would remove, or NULL. */
static const char *first_to_be_replaced(const fsdpck_checkpoint *src, const char *existing)
{
    const catalogue *cat = src->adapter == NULL ? &src->cat : &src->read;
    struct stat was;
    if (existing == NULL || stat(existing, &was) != 0)
        return NULL;
    for (size_t i = 0; i < catalogue_file_count(cat); i++) {
        const char *name = catalogue_name(cat, catalogue_file(cat, i)->path);
        if (would_be_replaced(src, name, existing, &was))
            return name;
    }
    for (size_t i = 0; src->probe.is_folder && i < src->probe.entry_count; i++)
        if (would_be_replaced(src, src->probe.entries[i], existing, &was))
            return src->probe.entries[i];
    return NULL;
}

static fsdpck_status refuse_overlap(const fsdpck_checkpoint *src, const char *path, const char *why,
                                    const char *name, fsdpck_error *err)
{
    const fsdpck_status st = FAIL_WITH(err, USAGE, NONE, ("%s", why), (path, path));
    if (name != NULL)
        error_found(err, "'%s' of the input", name);
    error_next(err, "write it beside '%s'", src->path);
    return st;
}

/* The checkpoint of --like must not be modified. */
static fsdpck_status check_disjoint_from_like(const run *r, const char *path, const char *parent,
                                              const char *existing, fsdpck_error *err)
{
    const fsdpck_checkpoint *like = r->sharded ? r->opt.sharding.like : r->opt.like;
    const bool is_dst = path == r->dst;
    const char *name = NULL;
    fsdpck_status st = FSDPCK_OK;
    if (like == NULL)
        return FSDPCK_OK;
    char *real = realpath(like->path, NULL);
    if (like->probe.is_folder && path_is_within(parent, real))
        st = FAIL(err, USAGE, NONE, "%s is inside the checkpoint of --like",
                  is_dst ? "output" : "manifest of the output");
    else if (path_is_within(real, existing))
        st = FAIL(err, USAGE, NONE, "%s would replace the checkpoint of --like",
                  is_dst ? "output" : "manifest");
    else if ((name = first_to_be_replaced(like, existing)) != NULL)
        st = FAIL(err, USAGE, NONE, "%s would replace a file of --like",
                  is_dst ? "output" : "manifest");
    if (st != FSDPCK_OK) {
        error_path(err, path);
        if (name != NULL)
            error_found(err, "'%s' of '%s'", name, like->path);
        error_next(err, "write it beside '%s'", like->path);
    }
    free(real);
    return st;
}

/* An output inside its input would be read back by the next run as a part of it; an output around
 * its input would, with --force, take the input away. */
static fsdpck_status check_disjoint_from(const run *r, const fsdpck_checkpoint *src,
                                         fsdpck_error *err)
{
    char *input = realpath(src->path, NULL);
    char *parent = path_real_parent(r->dst);
    char *existing = realpath(r->dst, NULL);
    const char *why = NULL, *name = NULL;
    if (src->probe.is_folder && path_is_within(parent, input))
        why = "output is inside the input";
    else if (path_is_within(input, existing) && path_is_within(existing, input))
        why = "output is the input";
    else if (path_is_within(input, existing))
        why = "input is inside the output";
    else if ((name = first_to_be_replaced(src, existing)) != NULL)
        why = "output would replace a file of the input";
    const fsdpck_status st = why == NULL
                                 ? check_disjoint_from_like(r, r->dst, parent, existing, err)
                                 : refuse_overlap(src, r->dst, why, name, err);
    free(input);
    free(parent);
    free(existing);
    return st;
}

/* The checkpoints that are read: one, or the inputs of an average. NULL after the last. */
static const fsdpck_checkpoint *input_of(const run *r, size_t i)
{
    if (r->src->average == NULL)
        return i == 0 ? r->src : NULL;
    return i < r->src->input_count ? r->src->inputs[i] : NULL;
}

fsdpck_status output_check_disjoint(const run *r, fsdpck_error *err)
{
    for (size_t i = 0; input_of(r, i) != NULL; i++)
        RETURN_IF(check_disjoint_from(r, input_of(r, i), err));
    return FSDPCK_OK;
}

/* An input that contains the folder `parent`, or NULL. */
static const fsdpck_checkpoint *input_around(const run *r, const char *parent)
{
    for (size_t i = 0; input_of(r, i) != NULL; i++) {
        char *input = realpath(input_of(r, i)->path, NULL);
        const bool within = input_of(r, i)->probe.is_folder && path_is_within(parent, input);
        free(input);
        if (within)
            return input_of(r, i);
    }
    return NULL;
}

/* ---- the manifest beside it ---- */

fsdpck_status output_check_manifest(const run *r, fsdpck_error *err)
{
    const char *path = r->opt.output.manifest_path;
    if (path_is_one_name(path, r->dst))
        return FAIL_WITH(err, USAGE, NONE, ("manifest and output have the same name"), (path, path),
                         (next, "give --manifest a different name"));
    char *parent = path_real_parent(path);
    const fsdpck_checkpoint *around = input_around(r, parent);
    char *existing = realpath(r->dst, NULL);
    /* Compared as text, as the folder may not exist yet. */
    const char *slash = strrchr(path, '/');
    char *folder_path = slash == NULL ? NULL : strndup(path, (size_t)(slash - path));
    const bool in_new = existing == NULL && folder_path != NULL && folder_path[0] != '\0' &&
                        path_is_one_name(folder_path, r->dst);
    fsdpck_status st = FSDPCK_OK;
    if (around != NULL) {
        st = refuse_overlap(around, path, "manifest of the output is inside the input", NULL, err);
    } else if (in_new || path_is_within(parent, existing)) {
        st = FAIL_WITH(err, USAGE, NONE, ("manifest is inside the output"), (path, path),
                       (next, "omit --manifest: an output folder contains its own manifest"));
    } else {
        char *replaced_file = realpath(path, NULL);
        st = check_disjoint_from_like(r, path, parent, replaced_file, err);
        free(replaced_file);
    }
    free(folder_path);
    free(parent);
    free(existing);
    return st;
}

/* ---- files that a manifest replaces ---- */

static fsdpck_status refuse(const char *path, const char *what, const char *next, fsdpck_error *err)
{
    return FAIL_WITH(err, EXISTS, NONE, ("manifest file exists%s", what), (path, path),
                     (next, "%s", next));
}

static fsdpck_status refuse_content(const char *path, const char *found, fsdpck_error *err)
{
    const fsdpck_status st = refuse(path, " and contains something else: not replaced",
                                    "choose another name, or move the existing file", err);
    error_found(err, "%s", found);
    return st;
}

/* Only a file that is one valid manifest, from its first byte to its last, may be replaced. Most
 * other files need no further read than of their head. */
static fsdpck_status check_manifest(file *f, const char *path, fsdpck_error *err)
{
    const bool too_large = f->nbytes > MANIFEST_NBYTES_MAX;
    const size_t head = f->nbytes < MANIFEST_HEAD_NBYTES ? f->nbytes : MANIFEST_HEAD_NBYTES;
    const size_t nbytes = too_large ? head : f->nbytes;
    fsdpck_error why = FSDPCK_ERROR_INIT;
    manifest m;
    char *text = malloc(nbytes + 1);
    if (text == NULL)
        return error_set_nomem(err, nbytes + 1);
    manifest_init(&m, NULL);
    fsdpck_status st = file_read_at(f, 0, text, head, err);
    if (st == FSDPCK_OK && (too_large || !manifest_is_likely(text, head)))
        st = refuse_content(path, "no manifest", err);
    if (st == FSDPCK_OK)
        st = file_read_at(f, head, text + head, nbytes - head, err);
    if (st == FSDPCK_OK)
        st = manifest_read(&m, text, nbytes, &why);
    if (st == FSDPCK_BADINPUT || st == FSDPCK_UNSUPPORTED)
        st = refuse_content(path, why.message, err);
    else if (st != FSDPCK_OK && why.status != FSDPCK_OK && err != NULL)
        *err = why;
    manifest_release(&m);
    free(text);
    return st;
}

/* `name` in `dir`, which may be NULL. *ino: inode of the file that was read. */
static fsdpck_status check_content(const folder *dir, const char *name, const char *path,
                                   uint64_t *ino, fsdpck_error *err)
{
    file f = FILE_CLOSED;
    RETURN_IF(file_open_read(&f, dir, name, FILE_NO_FOLLOW, err));
    const fsdpck_status st = check_manifest(&f, path, err);
    *ino = f.ino;
    file_abandon(&f);
    return st;
}

static fsdpck_status check_folder_of(const char *path, fsdpck_error *err)
{
    folder dir = FOLDER_CLOSED;
    const fsdpck_status st = folder_open_parent(&dir, path, err);
    folder_close(&dir);
    return st;
}

static fsdpck_status check_found(const char *path, bool replace, path_stamp *stamp,
                                 fsdpck_error *err)
{
    struct stat found;
    uint64_t ino;
    *stamp = (path_stamp){.kind = PATH_ABSENT};
    RETURN_IF(check_folder_of(path, err));
    if (lstat(path, &found) != 0)
        return errno == ENOENT ? FSDPCK_OK : error_set_errno(err, errno, "stat", path);
    *stamp = path_stamp_from(&found);
    if (S_ISLNK(found.st_mode))
        return refuse(path, ": a symbolic link, which is never followed", "choose another name",
                      err);
    if (!S_ISREG(found.st_mode))
        return refuse(path, "", "choose another name", err);
    return replace ? check_content(NULL, path, path, &ino, err)
                   : refuse(path, "", "choose another name, or --force to replace a manifest", err);
}

fsdpck_status output_check_manifest_file(const char *path, bool replace, path_stamp *stamp,
                                         fsdpck_error *err)
{
    char *plain = path_without_slashes(path);
    const fsdpck_status st = plain == NULL ? error_set_nomem(err, strlen(path))
                                           : check_found(plain, replace, stamp, err);
    free(plain);
    return st;
}

fsdpck_status output_check_replaced(const output *o, fsdpck_error *err)
{
    uint64_t ino;
    if (o->old_ino == 0 && o->old_dev == 0)
        return FSDPCK_OK;
    RETURN_IF(check_content(&o->parent, o->final_name, o->path, &ino, err));
    return ino == o->old_ino
               ? FSDPCK_OK
               : refuse(o->path, " and was replaced during the run", "choose another name", err);
}
