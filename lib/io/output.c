#include "io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/platform.h"
#include "io/descriptor.h"
#include "io/leftover.h"
#include "io/output_internal.h"
#include "io/output_remove.h"

enum { CREATE_TRIES = 100 };

const char *output_path(const output *o)
{
    return o->path != NULL ? o->path : "";
}

/* Splits "a/b/c" into parent "a/b" and name "c". */
static fsdpck_status split_path(output *o, const char *path, char **parent, fsdpck_error *err)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    const size_t n = end - begin;
    if (n == 0 || path[end - 1] == '/' || (n == 1 && path[begin] == '.') ||
        (n == 2 && memcmp(path + begin, "..", 2) == 0)) {
        FAIL(err, USAGE, NONE, "'%s' is not a valid output name", path);
        return FSDPCK_USAGE;
    }
    o->path = strndup(path, end);
    o->final_name = strndup(path + begin, n);
    *parent = begin > 0 ? strndup(path, begin > 1 ? begin - 1 : 1) : strdup(".");
    if (o->path == NULL || o->final_name == NULL || *parent == NULL)
        return error_set_nomem(err, end);
    if (n > OUTPUT_NAME_BYTES_MOST)
        return error_set_errno(err, ENAMETOOLONG, "creating the output", path);
    return FSDPCK_OK;
}

char *output_decorate(const output *o, const char *suffix)
{
    uint32_t id;
    platform_random(&id, sizeof(id));
    size_t n = strlen(o->final_name);
    if (n > OUTPUT_NAME_BYTES_MOST - OUTPUT_DECORATION_BYTES)
        n = OUTPUT_NAME_BYTES_MOST - OUTPUT_DECORATION_BYTES;
    char *name = malloc(n + OUTPUT_DECORATION_BYTES + 1);
    if (name != NULL)
        snprintf(name, n + OUTPUT_DECORATION_BYTES + 1, ".%.*s.fsdpck-%08" PRIx32 "%s", (int)n,
                 o->final_name, id, suffix);
    return name;
}

fsdpck_status output_error_exists(const output *o, const char *what, fsdpck_error *err)
{
    const bool replaceable = (o->flags & OUTPUT_REPLACE) == 0;
    return FAIL_WITH(err, EXISTS, NONE, ("output exists: %s", what), (path, output_path(o)),
                     (next, replaceable ? "choose another name, or replace it with --force"
                                        : "remove it or choose another name"));
}

fsdpck_status output_check_final_name(output *o, fsdpck_error *err)
{
    struct stat st;
    if (fstatat(o->parent.fd, o->final_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return FSDPCK_OK;
        return error_set_errno(err, errno, "stat", o->path);
    }
    if (S_ISLNK(st.st_mode))
        return output_error_exists(o, "a symbolic link, which is never followed", err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return output_error_exists(o, "neither a file nor a folder", err);
    if ((o->flags & OUTPUT_REPLACE) == 0)
        return output_error_exists(o, S_ISDIR(st.st_mode) ? "a folder" : "a file", err);
    if (S_ISDIR(st.st_mode) != (o->kind == OUTPUT_FOLDER))
        return output_error_exists(
            o, S_ISDIR(st.st_mode) ? "a folder, not a file" : "a file, not a folder", err);
    o->old_dev = (uint64_t)st.st_dev;
    o->old_ino = (uint64_t)st.st_ino;
    o->old_mode = st.st_mode & 0777;
    o->old_stamp = path_stamp_from(&st);
    return FSDPCK_OK;
}

fsdpck_status output_expect_old(const output *o, const path_stamp *earlier, fsdpck_error *err)
{
    const bool is_absent = o->old_dev == 0 && o->old_ino == 0;
    return is_absent || path_stamp_is_same(earlier, &o->old_stamp)
               ? FSDPCK_OK
               : path_stamp_error(earlier, &o->old_stamp, o->path, "", err);
}

static fsdpck_status remember_partial(output *o, int fd, fsdpck_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(err, errno, "fstat", o->path);
    o->new_dev = (uint64_t)st.st_dev;
    o->new_ino = (uint64_t)st.st_ino;
    return FSDPCK_OK;
}

static int create_only_file(output *o, struct output_entry *entry)
{
    fsdpck_error err = FSDPCK_ERROR_INIT;
    if (open_cache_get(&o->cache, &entry->slot, &err) != FSDPCK_OK)
        return err.sys_errno != 0 ? err.sys_errno : EIO;
    open_cache_put(&o->cache, &entry->slot);
    return 0;
}

static int create_partial(output *o, struct output_entry *entry)
{
    if (o->kind == OUTPUT_FILE)
        return create_only_file(o, entry);
    return mkdirat(o->parent.fd, o->partial_name, 0700) == 0 ? 0 : errno;
}

fsdpck_status output_open_self(output *o, fsdpck_error *err)
{
    const int rc = descriptor_open(o->parent.fd, o->partial_name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, &o->self.fd);
    if (rc != 0) {
        o->self.fd = -1;
        return error_set_errno(err, rc, "opening the output", o->path);
    }
    o->self.path = strdup(o->path);
    if (o->self.path != NULL)
        return FSDPCK_OK;
    close(o->self.fd);
    o->self.fd = -1;
    return error_set_nomem(err, strlen(o->path) + 1);
}

static fsdpck_status begin_partial(output *o, fsdpck_error *err)
{
    struct output_entry *entry = NULL;
    if (o->kind == OUTPUT_FILE)
        RETURN_IF(output_entry_push(o, "", &entry, err));
    int rc = EEXIST;
    for (int i = 0; i < CREATE_TRIES && rc == EEXIST; i++) {
        free(o->partial_name);
        o->partial_name = output_decorate(o, ".partial");
        if (o->partial_name == NULL)
            return error_set_nomem(err, OUTPUT_NAME_BYTES_MOST);
        rc = create_partial(o, entry);
    }
    if (rc != 0) {
        o->created = entry != NULL && entry->created;
        const fsdpck_status st = error_set_errno(err, rc, "creating the output", o->path);
        error_next(err, "check write permission of its folder");
        return st;
    }
    o->created = 1;
    if (o->kind == OUTPUT_FILE) {
        o->new_dev = entry->f.dev;
        o->new_ino = entry->f.ino;
        return FSDPCK_OK;
    }
    RETURN_IF(output_open_self(o, err));
    return remember_partial(o, o->self.fd, err);
}

/* Returns 0, or the errno value of the lock. */
static int open_and_lock(const output *o, int flags, int *fd)
{
    int rc = descriptor_open(o->parent.fd, o->partial_name, flags | O_NOFOLLOW, 0, fd);
    if (rc == 0 && flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        rc = errno;
        close(*fd);
    }
    if (rc != 0)
        *fd = -1;
    return rc;
}

int output_open_locked(const output *o, bool *is_busy)
{
    int fd;
    int rc = open_and_lock(o, O_RDONLY, &fd);
    /* NFS locks a file only for a descriptor that can write. */
    if (rc == EBADF && o->kind == OUTPUT_FILE)
        rc = open_and_lock(o, O_RDWR, &fd);
    *is_busy = rc == EWOULDBLOCK;
    return fd;
}

fsdpck_status output_open_parent(output *o, const char *path, output_kind kind, unsigned flags,
                                 fsdpck_error *err)
{
    memset(o, 0, sizeof(*o));
    o->parent = FOLDER_CLOSED;
    o->self = FOLDER_CLOSED;
    o->lock_fd = -1;
    o->kind = kind;
    o->flags = flags;
    o->files = VEC_OF(struct output_entry *, NULL);
    o->subs = VEC_OF(struct output_sub, NULL);
    char *parent = NULL;
    fsdpck_status st =
        open_cache_init(&o->cache, 0, 2, output_entry_open, output_entry_close, o, err);
    if (st == FSDPCK_OK)
        st = split_path(o, path, &parent, err);
    if (st == FSDPCK_OK)
        st = folder_open(&o->parent, parent, err);
    free(parent);
    return st;
}

fsdpck_status output_begin(output *o, const char *path, output_kind kind, unsigned flags,
                           fsdpck_error *err)
{
    bool is_busy;
    fsdpck_status st = output_open_parent(o, path, kind, flags, err);
    if (st == FSDPCK_OK)
        st = output_check_final_name(o, err);
    if (st == FSDPCK_OK)
        st = begin_partial(o, err);
    if (st == FSDPCK_OK)
        o->lock_fd = output_open_locked(o, &is_busy);
    if (st != FSDPCK_OK)
        output_release(o);
    return st;
}

static fsdpck_status remember_joined(output *o, fsdpck_error *err)
{
    struct stat st;
    if (fstatat(o->parent.fd, o->partial_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return error_set_errno(err, errno, "opening the output", o->path);
    o->new_dev = (uint64_t)st.st_dev;
    o->new_ino = (uint64_t)st.st_ino;
    return FSDPCK_OK;
}

fsdpck_status output_join(output *o, const char *path, output_kind kind, unsigned flags,
                          const char *partial_name, fsdpck_error *err)
{
    struct output_entry *entry;
    fsdpck_status st = output_open_parent(o, path, kind, flags, err);
    o->joined = 1;
    if (st == FSDPCK_OK && (o->partial_name = strdup(partial_name)) == NULL)
        st = error_set_nomem(err, strlen(partial_name));
    if (st == FSDPCK_OK && kind == OUTPUT_FILE)
        st = output_entry_push(o, "", &entry, err);
    else if (st == FSDPCK_OK)
        st = output_open_self(o, err);
    if (st == FSDPCK_OK)
        st = remember_joined(o, err);
    if (st != FSDPCK_OK)
        output_release(o);
    return st;
}

/* After an exchange of names the partial name belongs to the replaced object. */
static bool is_partial(const output *o, int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (uint64_t)st.st_dev == o->new_dev &&
           (uint64_t)st.st_ino == o->new_ino;
}

static void remove_journals(const output *o);

void output_abandon(output *o)
{
    if (!o->joined || o->partial_name == NULL)
        return;
    bool is_busy;
    const int fd = output_open_locked(o, &is_busy);
    if (fd < 0)
        return;
    if (is_partial(o, fd)) {
        if (o->journal_name != NULL)
            remove_journals(o);
        output_remove_name(o, o->partial_name);
    }
    close(fd);
}

bool output_is_same(const output *o, const char *name, uint64_t dev, uint64_t ino)
{
    struct stat st;
    return fstatat(o->parent.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino;
}

/* Runs that replace one output at once can exchange names with each other: what another program put
 * there stays. */
static void remove_partial(const output *o)
{
    struct stat st;
    const bool is_known = o->new_dev != 0 || o->new_ino != 0;
    if (is_known && fstatat(o->parent.fd, o->partial_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        ((uint64_t)st.st_dev != o->new_dev || (uint64_t)st.st_ino != o->new_ino))
        log_warn(&o->log, FSDPCK_FINDING_SAVE_LEFTOVER,
                 "inspect it: another run replaced the output at the same time",
                 "'%s' next to '%s' is not the output of this run and was not removed",
                 o->partial_name, o->path);
    else
        output_remove_name(o, o->partial_name);
}

void output_remove_name(const output *o, const char *name)
{
    const int rc = remove_tree(o->parent.fd, name);
    if (rc != 0)
        log_warn(&o->log, FSDPCK_FINDING_SAVE_LEFTOVER, "remove it",
                 "'%s' next to '%s' could not be removed: %s", name, o->path, strerror(rc));
}

fsdpck_status output_name_journal(output *o, unsigned rank, fsdpck_error *err)
{
    char suffix[24] = ".journal";
    const size_t n = strlen(o->partial_name) - strlen(".partial");
    if (rank > 0)
        snprintf(suffix, sizeof suffix, ".journal-%u", rank);
    free(o->journal_name);
    o->journal_name = malloc(n + sizeof suffix);
    if (o->journal_name == NULL)
        return error_set_nomem(err, n + sizeof suffix);
    memcpy(o->journal_name, o->partial_name, n);
    memcpy(o->journal_name + n, suffix, sizeof suffix);
    return FSDPCK_OK;
}

/* Those of all ranks. */
static void remove_journals(const output *o)
{
    const size_t n = strlen(o->partial_name) - strlen(".partial");
    char **names = NULL;
    size_t count = 0, stem_nbytes, name_nbytes;
    if (folder_list(&o->parent, NULL, &names, &count, NULL) != FSDPCK_OK)
        return;
    for (size_t i = 0; i < count; i++)
        if (leftover_parse(names[i], &stem_nbytes, &name_nbytes) == LEFTOVER_JOURNAL &&
            stem_nbytes == n && memcmp(names[i], o->partial_name, n) == 0)
            output_remove_name(o, names[i]);
    free(names);
}

void output_remove_journals(output *o)
{
    if (o->journal_name == NULL)
        return;
    if (!o->joined)
        remove_journals(o);
    free(o->journal_name);
    o->journal_name = NULL;
}

void output_release(output *o)
{
    open_cache_release(&o->cache);
    for (size_t i = 0; i < o->files.count; i++) {
        free(output_entry_at(o, i)->f.path);
        free(output_entry_at(o, i));
    }
    vec_release(&o->files);
    for (size_t i = 0; i < o->subs.count; i++)
        folder_close(&output_sub_at(o, i)->dir);
    vec_release(&o->subs);
    folder_close(&o->self);
    if (o->created && !o->committed && !o->keeps) {
        output_remove_journals(o);
        remove_partial(o);
    }
    if (o->lock_fd > 0)
        close(o->lock_fd);
    o->lock_fd = -1;
    folder_close(&o->parent);
    free(o->path);
    free(o->final_name);
    free(o->partial_name);
    free(o->old_name);
    free(o->journal_name);
    o->journal_name = NULL;
    o->old_name = NULL;
    o->path = NULL;
    o->final_name = NULL;
    o->partial_name = NULL;
    o->created = 0;
}
