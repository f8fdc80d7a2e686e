#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/platform.h"
#include "base/pool.h"
#include "io/output_internal.h"
#include "io/output_remove.h"

/* Files made durable at once: the file system then joins what they have in common. */
#define SYNC_THREADS 8u

/* ---- durability ---- */

/* Sets the mode by umask, and keeps the setgid bit inherited from the parent. */
static fsdpck_status set_mode(int fd, mode_t allowed, const char *path, fsdpck_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(err, errno, "fstat", path);
    const mode_t mode = (st.st_mode & S_ISGID) | allowed;
    /* Some file systems have no modes. */
    if (fchmod(fd, mode) != 0 && errno != EPERM && errno != ENOTSUP && errno != ENOSYS)
        return error_set_errno(err, errno, "fchmod", path);
    return FSDPCK_OK;
}

struct finish_work {
    output *o;
    mode_t mode;
};

static fsdpck_status finish_file(void *ctx, unsigned worker, uint64_t index, fsdpck_error *err)
{
    const struct finish_work *work = ctx;
    output *o = work->o;
    struct output_entry *entry = output_entry_at(o, index);
    (void)worker;
    if (entry->none)
        return FSDPCK_OK;
    if (!entry->added)
        return FAIL(err, INTERNAL, NONE, "an output was committed without its file");
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    fsdpck_status st = file_truncate(&entry->f, entry->nbytes, err);
    if (st == FSDPCK_OK)
        st = set_mode(entry->f.fd, work->mode, entry->f.path, err);
    if (st == FSDPCK_OK && (o->flags & OUTPUT_NO_SYNC) == 0)
        st = file_sync(&entry->f, err);
    open_cache_put(&o->cache, &entry->slot);
    open_cache_drop(&o->cache, &entry->slot);
    return st;
}

static mode_t final_mode(const output *o, mode_t most, mode_t mask)
{
    return o->old_ino != 0 ? (mode_t)o->old_mode : most & ~mask;
}

static fsdpck_status finish_files(output *o, mode_t mask, fsdpck_error *err)
{
    struct finish_work work = {o, 0666 & ~mask};
    if (o->kind == OUTPUT_FILE)
        work.mode = final_mode(o, 0666, mask);
    RETURN_IF(pool_run(SYNC_THREADS, o->files.count, finish_file, &work, NULL, err));
    if (o->close_error.status != FSDPCK_OK && err != NULL)
        *err = o->close_error;
    return o->close_error.status;
}

static fsdpck_status sync_folder(const output *o, const folder *d, fsdpck_error *err)
{
    if ((o->flags & OUTPUT_NO_SYNC) != 0)
        return FSDPCK_OK;
    while (fsync(d->fd) != 0) {
        /* Some file systems cannot sync a folder and return these codes. */
        if (errno == EINVAL || errno == ENOTSUP || errno == ENOSYS)
            return FSDPCK_OK;
        if (errno != EINTR)
            return error_set_errno(err, errno, "fsync of the folder", d->path);
    }
    return FSDPCK_OK;
}

static fsdpck_status finish_folder(const output *o, const folder *d, mode_t mode, fsdpck_error *err)
{
    RETURN_IF(set_mode(d->fd, mode, d->path, err));
    return sync_folder(o, d, err);
}

/* ---- final names ---- */

static fsdpck_status set_rename_errno(const output *o, int rc, fsdpck_error *err)
{
    if (rc == EEXIST)
        return output_error_exists(o, "another program created it during this run", err);
    return error_set_errno(err, rc, "rename", o->path);
}

static fsdpck_status sync_parent(const output *o, fsdpck_error *err)
{
    return o->sync_later ? FSDPCK_OK : sync_folder(o, &o->parent, err);
}

/* The state before publish cannot be restored. */
static void warn_not_restored(const output *o, const char *name)
{
    log_warn(&o->log, FSDPCK_FINDING_SAVE_LEFTOVER,
             "rename this folder or file if it is the old output; remove it if it is the new one",
             "'%s' could not be restored; its old or new content is in '%s' next to it", o->path,
             name);
}

static fsdpck_status publish_new(output *o, fsdpck_error *err)
{
    const int rc = platform_rename_noreplace(o->parent.fd, o->partial_name, o->final_name);
    if (rc != 0)
        return set_rename_errno(o, rc, err);
    const fsdpck_status st = sync_parent(o, err);
    /* Its durability is unknown: remove it. */
    if (st != FSDPCK_OK && output_is_same(o, o->final_name, o->new_dev, o->new_ino))
        output_remove_name(o, o->final_name);
    return st;
}

/* Whether the old object, which now has `name`, is still what the beginning found. An absent one may
 * be replaced: nothing of it is lost. */
static fsdpck_status check_old(const output *o, const char *name, fsdpck_error *err)
{
    path_stamp now;
    RETURN_IF(path_stamp_get(&now, &o->parent, name, err));
    if (now.kind == PATH_ABSENT)
        return FSDPCK_OK;
    if (!path_stamp_is_same(&o->old_stamp, &now))
        return path_stamp_error(&o->old_stamp, &now, o->path, "", err);
    return o->kind == OUTPUT_FOLDER && o->check_replaced != NULL
               ? o->check_replaced(o->check_ctx, &o->parent, name, err)
               : FSDPCK_OK;
}

/* For file systems that cannot exchange names. The old file keeps a second name until the new one
 * is durable; without hard links it has none, and is not checked again. */
static fsdpck_status publish_over_file(output *o, char **old_name, fsdpck_error *err)
{
    const int dirfd = o->parent.fd;
    if (linkat(dirfd, o->final_name, dirfd, *old_name, 0) != 0) {
        free(*old_name);
        *old_name = NULL;
    }
    fsdpck_status st = FSDPCK_OK;
    if (renameat(dirfd, o->partial_name, dirfd, o->final_name) != 0)
        st = error_set_errno(err, errno, "rename", o->path);
    else if (*old_name != NULL)
        st = check_old(o, *old_name, err);
    if (st == FSDPCK_OK)
        st = sync_parent(o, err);
    /* A rename between two names of one file does nothing, so the second name is removed in any
     * case. */
    if (st != FSDPCK_OK && *old_name != NULL) {
        if (renameat(dirfd, *old_name, dirfd, o->final_name) != 0)
            warn_not_restored(o, *old_name);
        else
            output_remove_name(o, *old_name);
    }
    return st;
}

/* The same for a folder: the old one is renamed first. */
static fsdpck_status publish_over_folder(output *o, const char *old_name, fsdpck_error *err)
{
    const int dirfd = o->parent.fd;
    if (renameat(dirfd, o->final_name, dirfd, old_name) != 0)
        return error_set_errno(err, errno, "rename", o->path);
    fsdpck_status st = check_old(o, old_name, err);
    bool renamed = false;
    if (st == FSDPCK_OK) {
        const int rc = platform_rename_noreplace(dirfd, o->partial_name, o->final_name);
        renamed = rc == 0;
        st = renamed ? sync_parent(o, err) : set_rename_errno(o, rc, err);
    }
    if (st != FSDPCK_OK) {
        if (renamed)
            output_remove_name(o, o->final_name);
        if (platform_rename_noreplace(dirfd, old_name, o->final_name) != 0)
            warn_not_restored(o, old_name);
    }
    return st;
}

static fsdpck_status error_replaced(const output *o, fsdpck_error *err)
{
    return FAIL_WITH(err, EXISTS, NONE, ("output exists: another run replaced it during this run"),
                     (path, output_path(o)),
                     (next, "run again only if this output must replace that of the other run"));
}

static fsdpck_status publish_over(output *o, char **old_name, fsdpck_error *err)
{
    if (!output_is_same(o, o->final_name, o->old_dev, o->old_ino))
        return error_replaced(o, err);
    *old_name = output_decorate(o, ".old");
    if (*old_name == NULL)
        return error_set_nomem(err, OUTPUT_NAME_BYTES_MOST);
    return o->kind == OUTPUT_FILE ? publish_over_file(o, old_name, err)
                                  : publish_over_folder(o, *old_name, err);
}

/* Before the exchange, so that other programs do not see a new output that is withdrawn at once. */
static fsdpck_status check_before(const output *o, fsdpck_error *err)
{
    const fsdpck_status st = check_old(o, o->final_name, err);
    return st == FSDPCK_OK || output_is_same(o, o->final_name, o->old_dev, o->old_ino)
               ? st
               : error_replaced(o, err);
}

/* On success o->old_name (may be NULL) remains to be removed. */
static fsdpck_status publish_replacing(output *o, fsdpck_error *err)
{
    const int dirfd = o->parent.fd;
    RETURN_IF(check_before(o, err));
    const int rc = platform_rename_exchange(dirfd, o->partial_name, o->final_name);
    o->published = PUBLISHED_NEW;
    if (rc == ENOENT)
        return publish_new(o, err); /* the old one disappeared meanwhile */
    o->published = PUBLISHED_REPLACED;
    if (rc == ENOTSUP)
        return publish_over(o, &o->old_name, err);
    if (rc != 0)
        return error_set_errno(err, rc, "exchanging names", o->path);
    o->published = PUBLISHED_EXCHANGED;
    o->old_name = strdup(o->partial_name);
    fsdpck_status st =
        o->old_name != NULL ? FSDPCK_OK : error_set_nomem(err, OUTPUT_NAME_BYTES_MOST);
    if (st == FSDPCK_OK && !output_is_same(o, o->partial_name, o->old_dev, o->old_ino))
        st = error_replaced(o, err);
    if (st == FSDPCK_OK)
        st = check_old(o, o->old_name, err);
    if (st == FSDPCK_OK)
        st = sync_parent(o, err);
    if (st == FSDPCK_OK)
        return st;
    const int back = platform_rename_exchange(dirfd, o->partial_name, o->final_name);
    if (back != 0) {
        o->created = 0; /* the old one has the partial name: keep it */
        warn_not_restored(o, o->partial_name);
    }
    return st;
}

/* Another program may have put an object in the place of the partial. */
static fsdpck_status check_partial(const output *o, fsdpck_error *err)
{
    if (output_is_same(o, o->partial_name, o->new_dev, o->new_ino))
        return FSDPCK_OK;
    return FAIL_WITH(err, IO, NONE,
                     ("the unfinished output '%s' was removed or replaced by another program",
                      o->partial_name),
                     (path, output_path(o)),
                     (next, "run again when no other program changes unfinished outputs"));
}

fsdpck_status output_publish(output *o, fsdpck_error *err)
{
    fsdpck_status st = check_partial(o, err);
    output_remove_journals(o);
    if (st != FSDPCK_OK) {
        /* published stays PUBLISHED_NOT */
    } else if (o->old_ino == 0 && o->old_dev == 0) {
        o->published = PUBLISHED_NEW;
        st = publish_new(o, err);
    } else {
        st = publish_replacing(o, err);
    }
    if (st == FSDPCK_OK)
        o->committed = 1;
    else
        output_release(o);
    return st;
}

fsdpck_status output_remove_replaced(output *o, fsdpck_error *err)
{
    const int rc = o->old_name != NULL ? remove_tree(o->parent.fd, o->old_name) : 0;
    if (rc == 0)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, IO, NONE,
        ("the new output is in place, but the old one could not be removed: %s", strerror(rc)),
        (path, output_path(o)), (next, "remove '%s' next to it", o->old_name));
}

fsdpck_status output_remove_replaced_both(output *o, output *beside, fsdpck_error *err)
{
    fsdpck_error second = FSDPCK_ERROR_INIT;
    const fsdpck_status st = output_remove_replaced(o, err);
    if (st == FSDPCK_OK)
        return output_remove_replaced(beside, err);
    if (output_remove_replaced(beside, &second) != FSDPCK_OK)
        log_warn(&beside->log, FSDPCK_FINDING_SAVE_LEFTOVER, second.next, "'%s': %s", second.path,
                 second.message);
    return st;
}

/* Restores the old object under its final name, if it still exists; false on failure. */
static bool bring_back(output *o)
{
    const int dirfd = o->parent.fd;
    if (o->published == PUBLISHED_NEW)
        return remove_tree(dirfd, o->final_name) == 0;
    if (o->old_name == NULL) /* without hard links nothing of it remains */
        return false;
    if (o->published == PUBLISHED_EXCHANGED) {
        if (platform_rename_exchange(dirfd, o->old_name, o->final_name) != 0)
            return false;
        return output_is_same(o, o->old_name, o->new_dev, o->new_ino) &&
               remove_tree(dirfd, o->old_name) == 0;
    }
    if (o->kind == OUTPUT_FOLDER && remove_tree(dirfd, o->final_name) != 0)
        return false;
    return renameat(dirfd, o->old_name, dirfd, o->final_name) == 0;
}

void output_rollback(output *o)
{
    if (o->committed && output_is_same(o, o->final_name, o->new_dev, o->new_ino)) {
        if (!bring_back(o))
            warn_not_restored(o, o->old_name != NULL ? o->old_name : o->final_name);
        (void)sync_folder(o, &o->parent, NULL);
    }
    output_release(o);
}

/* Nothing is waited for between the renames: a process that dies there leaves only the first
 * output. */
fsdpck_status output_publish_both(output *o, output *beside, fsdpck_error *err)
{
    o->sync_later = true;
    RETURN_IF(output_publish(o, err));
    fsdpck_status st = output_publish(beside, err);
    if (st == FSDPCK_OK) {
        st = sync_folder(o, &o->parent, err);
        if (st != FSDPCK_OK)
            output_rollback(beside);
    }
    if (st != FSDPCK_OK)
        output_rollback(o);
    return st;
}

static fsdpck_status flush_file(void *ctx, unsigned worker, uint64_t index, fsdpck_error *err)
{
    output *o = ctx;
    struct output_entry *entry = output_entry_at(o, index);
    (void)worker;
    if (entry->none)
        return FSDPCK_OK;
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st =
        (o->flags & OUTPUT_NO_SYNC) == 0 ? file_sync(&entry->f, err) : FSDPCK_OK;
    open_cache_put(&o->cache, &entry->slot);
    open_cache_drop(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_flush(output *o, fsdpck_error *err)
{
    RETURN_IF(pool_run(SYNC_THREADS, o->files.count, flush_file, o, NULL, err));
    if (o->close_error.status != FSDPCK_OK && err != NULL)
        *err = o->close_error;
    return o->close_error.status;
}

fsdpck_status output_finish(output *o, fsdpck_error *err)
{
    if (!o->created || o->committed)
        return FAIL(err, INTERNAL, NONE, "an output was committed twice or never begun");
    const mode_t mask = (mode_t)platform_file_mask();
    fsdpck_status st = o->adopted ? output_remove_others(o, err) : FSDPCK_OK;
    if (st == FSDPCK_OK)
        st = finish_files(o, mask, err);
    for (size_t i = 0; st == FSDPCK_OK && i < o->subs.count; i++)
        st = finish_folder(o, &output_sub_at(o, i)->dir, 0777 & ~mask, err);
    if (st == FSDPCK_OK && o->kind == OUTPUT_FOLDER)
        st = finish_folder(o, &o->self, final_mode(o, 0777, mask), err);
    if (st != FSDPCK_OK)
        output_release(o);
    return st;
}

fsdpck_status output_commit(output *o, fsdpck_error *err)
{
    RETURN_IF(output_finish(o, err));
    RETURN_IF(output_publish(o, err));
    return output_remove_replaced(o, err);
}
