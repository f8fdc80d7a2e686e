#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/descriptor.h"
#include "base/output_remove.h"
#include "base/platform.h"
#include "base/pool.h"

/* Files made durable at once: the file system then joins what they have in common. */
#define SYNC_THREADS 8u

/* ".NAME.fsdpck-XXXXXXXX.partial" must fit a name of 255 bytes. */
enum { NAME_BYTES_MOST = 255, DECORATION_BYTES = 25, CREATE_TRIES = 100 };

/* A folder inside the partial one. */
struct output_sub {
    folder dir; /* its path is the final one, for messages */
    char *name; /* borrowed from dir.path */
};

enum { NO_SUB = -1 };

struct output_entry {
    open_slot slot;
    file f;          /* with its path and identity while it is closed */
    char *name;      /* in its folder, borrowed from f.path */
    int sub;         /* which of the folders inside, or NO_SUB */
    uint64_t nbytes; /* exact, at commit */
    bool added;
    bool created;
    bool direct; /* wanted, and found to work */
};

static struct output_entry *entry_at(const output *o, size_t index)
{
    return *VEC_AT(&o->files, struct output_entry *, index);
}

static const char *path_of(const output *o)
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
        error_set(err, FSDPCK_USAGE, "", "'%s' cannot be the name of an output", path);
        return FSDPCK_USAGE;
    }
    o->path = strndup(path, end);
    o->final_name = strndup(path + begin, n);
    *parent = begin > 0 ? strndup(path, begin > 1 ? begin - 1 : 1) : strdup(".");
    if (o->path == NULL || o->final_name == NULL || *parent == NULL)
        return error_set_nomem(err, end);
    if (n > NAME_BYTES_MOST)
        return error_set_errno(err, ENAMETOOLONG, "creating the output", path);
    return FSDPCK_OK;
}

/* ".NAME.fsdpck-XXXXXXXX<suffix>"; a name too long for that is cut. */
static char *decorate(const output *o, const char *suffix)
{
    uint32_t id;
    platform_random(&id, sizeof(id));
    size_t n = strlen(o->final_name);
    if (n > NAME_BYTES_MOST - DECORATION_BYTES)
        n = NAME_BYTES_MOST - DECORATION_BYTES;
    char *name = malloc(n + DECORATION_BYTES + 1);
    if (name != NULL)
        snprintf(name, n + DECORATION_BYTES + 1, ".%.*s.fsdpck-%08" PRIx32 "%s", (int)n,
                 o->final_name, id, suffix);
    return name;
}

static fsdpck_status refuse_existing(const output *o, const char *what, fsdpck_error *err)
{
    const bool replaceable = (o->flags & OUTPUT_REPLACE) == 0;
    error_set(err, FSDPCK_EXISTS, "", "output exists: %s", what);
    error_path(err, path_of(o));
    error_next(err, replaceable ? "choose another name, or replace it with --force"
                                : "remove it or choose another name");
    return FSDPCK_EXISTS;
}

/* Judges what bears the final name now. Remembers it where it may be replaced. */
static fsdpck_status check_final_name(output *o, fsdpck_error *err)
{
    struct stat st;
    if (fstatat(o->parent.fd, o->final_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return FSDPCK_OK;
        return error_set_errno(err, errno, "stat", o->path);
    }
    if (S_ISLNK(st.st_mode))
        return refuse_existing(o, "a symbolic link, which is never followed", err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return refuse_existing(o, "neither a file nor a folder", err);
    if ((o->flags & OUTPUT_REPLACE) == 0)
        return refuse_existing(o, S_ISDIR(st.st_mode) ? "a folder" : "a file", err);
    if (S_ISDIR(st.st_mode) != (o->kind == OUTPUT_FOLDER))
        return refuse_existing(
            o, S_ISDIR(st.st_mode) ? "a folder, not a file" : "a file, not a folder", err);
    o->old_dev = (uint64_t)st.st_dev;
    o->old_ino = (uint64_t)st.st_ino;
    return FSDPCK_OK;
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

/* "PATH/NAME", and where NAME begins in it; NULL without memory. */
static char *path_inside(const output *o, const char *name, char **begin)
{
    const size_t nbytes = strlen(o->path) + strlen(name) + 2;
    char *path = malloc(nbytes);
    if (path == NULL)
        return NULL;
    snprintf(path, nbytes, "%s%s%s", o->path, name[0] != '\0' ? "/" : "", name);
    *begin = path + nbytes - 1 - strlen(name);
    return path;
}

static struct output_sub *sub_at(const output *o, size_t index)
{
    return VEC_AT(&o->subs, struct output_sub, index);
}

/* An entry for `name`, which is "" for OUTPUT_FILE. */
static fsdpck_status entry_push(output *o, const char *name, struct output_entry **entry,
                                fsdpck_error *err)
{
    struct output_entry **slot = vec_push(&o->files, err);
    if (slot == NULL)
        return FSDPCK_LIMIT;
    *slot = calloc(1, sizeof(**slot));
    if (*slot == NULL) {
        o->files.count--;
        return error_set_nomem(err, sizeof(**slot));
    }
    (*slot)->f = FILE_CLOSED;
    (*slot)->sub = NO_SUB;
    *entry = *slot;
    (*entry)->f.path = path_inside(o, name, &(*entry)->name);
    return (*entry)->f.path != NULL ? FSDPCK_OK : error_set_nomem(err, strlen(o->path));
}

static int dirfd_of(const output *o, const struct output_entry *entry)
{
    if (entry->sub != NO_SUB)
        return sub_at(o, (size_t)entry->sub)->dir.fd;
    return o->kind == OUTPUT_FOLDER ? o->self.fd : o->parent.fd;
}

static const char *name_of(const output *o, const struct output_entry *entry)
{
    return o->kind == OUTPUT_FOLDER ? entry->name : o->partial_name;
}

/* A second descriptor of the very file that is open, or none. */
static void open_direct(const output *o, struct output_entry *entry)
{
    int fd = -1;
    if (platform_open_direct(dirfd_of(o, entry), name_of(o, entry), &fd) != 0 ||
        descriptor_lift(&fd) != 0)
        return;
    struct stat st;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_dev == entry->f.dev &&
        (uint64_t)st.st_ino == entry->f.ino)
        entry->f.direct_fd = fd;
    else
        close(fd);
}

/* Creates the file exclusively the first time; later it must be the very same. */
static fsdpck_status open_entry(void *ctx, open_slot *slot, fsdpck_error *err)
{
    const output *o = ctx;
    struct output_entry *entry = (struct output_entry *)slot;
    struct stat st;
    const int flags = entry->created ? O_RDWR | O_NOFOLLOW : O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
    const int rc =
        descriptor_open(dirfd_of(o, entry), name_of(o, entry), flags, 0600, &entry->f.fd);
    if (rc != 0) {
        entry->f.fd = -1;
        return error_set_errno(err, rc, entry->created ? "open" : "create", entry->f.path);
    }
    const bool known = fstat(entry->f.fd, &st) == 0;
    if (known && entry->created && entry->f.dev == (uint64_t)st.st_dev &&
        entry->f.ino == (uint64_t)st.st_ino) {
        if (entry->direct)
            open_direct(o, entry);
        return FSDPCK_OK;
    }
    if (known && !entry->created) {
        entry->created = true;
        entry->f.dev = (uint64_t)st.st_dev;
        entry->f.ino = (uint64_t)st.st_ino;
        return FSDPCK_OK;
    }
    close(entry->f.fd);
    entry->f.fd = -1;
    error_set(err, FSDPCK_CHANGED, "", "output file was replaced while it was written");
    error_path(err, entry->f.path);
    return FSDPCK_CHANGED;
}

static void close_entry(void *ctx, open_slot *slot)
{
    output *o = ctx;
    struct output_entry *entry = (struct output_entry *)slot;
    fsdpck_error err;
    file kept = entry->f;
    fsdpck_error_init(&err);
    entry->f.path = NULL; /* outlives the descriptors */
    const fsdpck_status st = file_close(&entry->f, &err);
    kept.fd = -1;
    kept.direct_fd = -1;
    entry->f = kept;
    if (st == FSDPCK_OK)
        return;
    error_path(&err, kept.path);
    pthread_mutex_lock(&o->cache.lock);
    if (o->close_error.status == FSDPCK_OK)
        o->close_error = err;
    pthread_mutex_unlock(&o->cache.lock);
}

static int create_only_file(output *o, struct output_entry *entry)
{
    fsdpck_error err;
    fsdpck_error_init(&err);
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

static fsdpck_status begin_partial(output *o, fsdpck_error *err)
{
    struct output_entry *entry = NULL;
    if (o->kind == OUTPUT_FILE)
        RETURN_IF(entry_push(o, "", &entry, err));
    int rc = EEXIST;
    for (int i = 0; i < CREATE_TRIES && rc == EEXIST; i++) {
        free(o->partial_name);
        o->partial_name = decorate(o, ".partial");
        if (o->partial_name == NULL)
            return error_set_nomem(err, NAME_BYTES_MOST);
        rc = create_partial(o, entry);
    }
    if (rc != 0) {
        const fsdpck_status st = error_set_errno(err, rc, "creating the output", o->path);
        error_next(err, "check that its folder may be written");
        return st;
    }
    o->created = 1;
    if (o->kind == OUTPUT_FILE) {
        o->new_dev = entry->f.dev;
        o->new_ino = entry->f.ino;
        return FSDPCK_OK;
    }
    rc = descriptor_open(o->parent.fd, o->partial_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                         &o->self.fd);
    if (rc != 0)
        return error_set_errno(err, rc, "opening the output", o->path);
    o->self.path = strdup(o->path);
    if (o->self.path == NULL) {
        close(o->self.fd);
        o->self.fd = -1;
        return error_set_nomem(err, strlen(o->path) + 1);
    }
    return remember_partial(o, o->self.fd, err);
}

fsdpck_status output_begin(output *o, const char *path, output_kind kind, unsigned flags,
                           fsdpck_error *err)
{
    memset(o, 0, sizeof(*o));
    o->parent = FOLDER_CLOSED;
    o->self = FOLDER_CLOSED;
    o->kind = kind;
    o->flags = flags;
    o->files = VEC_OF(struct output_entry *, NULL);
    o->subs = VEC_OF(struct output_sub, NULL);
    char *parent = NULL;
    fsdpck_status st = open_cache_init(&o->cache, 0, 2, open_entry, close_entry, o, err);
    if (st == FSDPCK_OK)
        st = split_path(o, path, &parent, err);
    if (st == FSDPCK_OK)
        st = folder_open(&o->parent, parent, err);
    if (st == FSDPCK_OK)
        st = check_final_name(o, err);
    if (st == FSDPCK_OK)
        st = begin_partial(o, err);
    free(parent);
    if (st != FSDPCK_OK)
        output_release(o);
    return st;
}

static fsdpck_status set_nospace(const char *path, uint64_t nbytes, uint64_t have, int sys_errno,
                                 fsdpck_error *err)
{
    const fsdpck_status st = error_set_errno(err, sys_errno, "reserving space", path);
    error_expected(err, "room for %" PRIu64 " bytes", nbytes);
    if (have != UINT64_MAX)
        error_found(err, "%" PRIu64 " bytes free", have);
    return st;
}

/* Gives the file its size and, as far as the file system lets us, its space. */
static fsdpck_status reserve(const struct output_entry *entry, uint64_t nbytes, fsdpck_error *err)
{
    /* Looked at first: crossing this limit is answered with SIGXFSZ, which kills by default. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        nbytes > limit.rlim_cur)
        return set_nospace(entry->f.path, nbytes, limit.rlim_cur, EFBIG, err);
    const int rc = nbytes <= INT64_MAX ? platform_reserve(entry->f.fd, nbytes) : EFBIG;
    if (rc == 0)
        return FSDPCK_OK;
    struct statvfs fs;
    uint64_t have = UINT64_MAX;
    if (fstatvfs(entry->f.fd, &fs) == 0 && fs.f_blocks > 0 &&
        !checked_mul(fs.f_bavail, fs.f_frsize, &have))
        have = UINT64_MAX;
    if (rc != ENOTSUP)
        return set_nospace(entry->f.path, nbytes, have, rc, err);
    if (have < nbytes)
        return set_nospace(entry->f.path, nbytes, have, ENOSPC, err);
    return file_truncate(&entry->f, nbytes, err);
}

static bool is_plain_name(const char *name, size_t nbytes)
{
    return nbytes > 0 && memchr(name, '/', nbytes) == NULL && !(nbytes == 1 && name[0] == '.') &&
           !(nbytes == 2 && memcmp(name, "..", 2) == 0);
}

/* "NAME" or "SUB/NAME"; *sub_nbytes is 0 for the former. */
static bool is_inside_name(const char *name, size_t *sub_nbytes)
{
    const char *slash = strchr(name, '/');
    *sub_nbytes = slash != NULL ? (size_t)(slash - name) : 0;
    const char *last = slash != NULL ? slash + 1 : name;
    return (slash == NULL || is_plain_name(name, *sub_nbytes)) && is_plain_name(last, strlen(last));
}

static fsdpck_status sub_make(output *o, struct output_sub *sub, fsdpck_error *err)
{
    if (mkdirat(o->self.fd, sub->name, 0700) != 0)
        return error_set_errno(err, errno, "creating the folder", sub->dir.path);
    const int rc = descriptor_open(o->self.fd, sub->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                                   &sub->dir.fd);
    if (rc == 0)
        return FSDPCK_OK;
    sub->dir.fd = -1;
    return error_set_errno(err, rc, "opening the folder", sub->dir.path);
}

/* The folder that the first nbytes of `name` name, made where it is new. */
static fsdpck_status sub_find(output *o, const char *name, size_t nbytes, int *index,
                              fsdpck_error *err)
{
    for (size_t i = 0; i < o->subs.count; i++) {
        const struct output_sub *sub = sub_at(o, i);
        *index = (int)i;
        if (strncmp(sub->name, name, nbytes) == 0 && sub->name[nbytes] == '\0')
            return FSDPCK_OK;
    }
    if (o->subs.count == OUTPUT_SUBS_MOST)
        return error_set(err, FSDPCK_INTERNAL, "", "an output has more than %u folders inside",
                         OUTPUT_SUBS_MOST);
    struct output_sub *sub = vec_push(&o->subs, err);
    if (sub == NULL)
        return FSDPCK_LIMIT;
    *sub = (struct output_sub){.dir = FOLDER_CLOSED};
    *index = (int)o->subs.count - 1;
    sub->dir.path = path_inside(o, name, &sub->name);
    if (sub->dir.path == NULL) {
        o->subs.count--;
        return error_set_nomem(err, strlen(name));
    }
    sub->name[nbytes] = '\0';
    return sub_make(o, sub, err);
}

static fsdpck_status entry_push_inside(output *o, const char *name, struct output_entry **entry,
                                       fsdpck_error *err)
{
    size_t sub_nbytes;
    if (!is_inside_name(name, &sub_nbytes))
        return error_set(err, FSDPCK_INTERNAL, "", "'%s' is no name for a file of an output", name);
    int sub = NO_SUB;
    if (sub_nbytes > 0)
        RETURN_IF(sub_find(o, name, sub_nbytes, &sub, err));
    RETURN_IF(entry_push(o, name, entry, err));
    (*entry)->sub = sub;
    if (sub != NO_SUB)
        (*entry)->name += sub_nbytes + 1;
    return FSDPCK_OK;
}

static fsdpck_status reserve_file(output *o, struct output_entry *entry, uint64_t nbytes,
                                  bool want_direct, fsdpck_error *err)
{
    uint64_t rounded = nbytes;
    if (want_direct)
        open_direct(o, entry);
    entry->direct = entry->f.direct_fd >= 0;
    /* The last block is written whole and cut at commit. */
    if (entry->direct && !checked_align_up(nbytes, FILE_DIRECT_ALIGN, &rounded))
        rounded = nbytes;
    return reserve(entry, rounded, err);
}

fsdpck_status output_add(output *o, const char *name, uint64_t nbytes, bool want_direct,
                         size_t *index, fsdpck_error *err)
{
    struct output_entry *entry = NULL;
    const bool in_folder = o->kind == OUTPUT_FOLDER;
    if (!o->created || (!in_folder && (name[0] != '\0' || entry_at(o, 0)->added)))
        return error_set(err, FSDPCK_INTERNAL, "",
                         "a file was added to an output that has its own");
    if (in_folder)
        RETURN_IF(entry_push_inside(o, name, &entry, err));
    else
        entry = entry_at(o, 0);
    entry->nbytes = nbytes;
    entry->added = true;
    fsdpck_error local;
    fsdpck_error_init(&local);
    fsdpck_status st = open_cache_get(&o->cache, &entry->slot, &local);
    if (st != FSDPCK_OK) {
        if (local.sys_errno == EEXIST)
            return error_set(err, FSDPCK_INTERNAL, "", "output has two files named '%s'", name);
        if (err != NULL)
            *err = local;
        return st;
    }
    st = reserve_file(o, entry, nbytes, want_direct, err);
    open_cache_put(&o->cache, &entry->slot);
    *index = in_folder ? o->files.count - 1 : 0;
    return st;
}

fsdpck_status output_write_at(output *o, size_t index, uint64_t offset, const void *src,
                              uint64_t nbytes, fsdpck_error *err)
{
    struct output_entry *entry = entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_write_at(&entry->f, offset, src, nbytes, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_read_at(output *o, size_t index, uint64_t offset, void *dst, uint64_t nbytes,
                             fsdpck_error *err)
{
    struct output_entry *entry = entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_read_at(&entry->f, offset, dst, nbytes, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_write_direct(output *o, size_t index, uint64_t offset, const void *src,
                                  uint64_t nbytes, fsdpck_error *err)
{
    struct output_entry *entry = entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_write_direct(&entry->f, offset, src, nbytes, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_drop_cache(output *o, size_t index, fsdpck_error *err)
{
    struct output_entry *entry = entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_drop_cache(&entry->f, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

bool output_is_direct(const output *o, size_t index)
{
    return entry_at(o, index)->direct;
}

/* By umask, keeping what the parent handed down (setgid). */
static fsdpck_status set_mode(int fd, mode_t allowed, const char *path, fsdpck_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(err, errno, "fstat", path);
    const mode_t mode = (st.st_mode & S_ISGID) | allowed;
    /* Some file systems have no modes to set. */
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
    struct output_entry *entry = entry_at(o, index);
    (void)worker;
    if (!entry->added)
        return error_set(err, FSDPCK_INTERNAL, "", "an output was committed without its file");
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

static fsdpck_status finish_files(output *o, mode_t mask, fsdpck_error *err)
{
    struct finish_work work = {o, 0666 & ~mask};
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
        /* Some file systems have nothing to sync for a folder and say so. */
        if (errno == EINVAL || errno == ENOTSUP || errno == ENOSYS)
            return FSDPCK_OK;
        if (errno != EINTR)
            return error_set_errno(err, errno, "fsync of the folder", d->path);
    }
    return FSDPCK_OK;
}

static fsdpck_status finish_folder(const output *o, const folder *d, mode_t mask, fsdpck_error *err)
{
    RETURN_IF(set_mode(d->fd, 0777 & ~mask, d->path, err));
    return sync_folder(o, d, err);
}

/* Whether `name` in the parent is the thing with this identity. */
static bool is_same(const output *o, const char *name, uint64_t dev, uint64_t ino)
{
    struct stat st;
    return fstatat(o->parent.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino;
}

static fsdpck_status set_rename_errno(const output *o, int rc, fsdpck_error *err)
{
    if (rc == EEXIST)
        return refuse_existing(o, "it appeared while this one was written", err);
    return error_set_errno(err, rc, "rename", o->path);
}

static fsdpck_status publish_new(output *o, fsdpck_error *err)
{
    const int rc = platform_rename_noreplace(o->parent.fd, o->partial_name, o->final_name);
    if (rc != 0)
        return set_rename_errno(o, rc, err);
    const fsdpck_status st = sync_folder(o, &o->parent, err);
    /* Not known to be durable, so not there at all. */
    if (st != FSDPCK_OK && is_same(o, o->final_name, o->new_dev, o->new_ino))
        (void)remove_tree(o->parent.fd, o->final_name);
    return st;
}

/* Names cannot be exchanged here. The old file keeps a second name until the new one is durable;
 * where there are no hard links it does without. */
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
    else
        st = sync_folder(o, &o->parent, err);
    /* A rename between two names of one file does nothing, so the second name goes in any case. */
    if (st != FSDPCK_OK && *old_name != NULL) {
        (void)!renameat(dirfd, *old_name, dirfd, o->final_name);
        (void)unlinkat(dirfd, *old_name, 0);
    }
    return st;
}

/* The same for a folder: the old one steps aside. */
static fsdpck_status publish_over_folder(output *o, const char *old_name, fsdpck_error *err)
{
    const int dirfd = o->parent.fd;
    if (renameat(dirfd, o->final_name, dirfd, old_name) != 0)
        return error_set_errno(err, errno, "rename", o->path);
    const int rc = platform_rename_noreplace(dirfd, o->partial_name, o->final_name);
    fsdpck_status st = rc == 0 ? FSDPCK_OK : set_rename_errno(o, rc, err);
    if (st == FSDPCK_OK)
        st = sync_folder(o, &o->parent, err);
    if (st != FSDPCK_OK) {
        if (rc == 0)
            (void)remove_tree(dirfd, o->final_name);
        (void)platform_rename_noreplace(dirfd, old_name, o->final_name);
    }
    return st;
}

static fsdpck_status publish_over(output *o, char **old_name, fsdpck_error *err)
{
    if (!is_same(o, o->final_name, o->old_dev, o->old_ino))
        return refuse_existing(o, "it was replaced while this one was written", err);
    *old_name = decorate(o, ".old");
    if (*old_name == NULL)
        return error_set_nomem(err, NAME_BYTES_MOST);
    return o->kind == OUTPUT_FILE ? publish_over_file(o, old_name, err)
                                  : publish_over_folder(o, *old_name, err);
}

/* On success *old_name (malloc'd, may be NULL) is what is left to remove. */
static fsdpck_status publish_replacing(output *o, char **old_name, fsdpck_error *err)
{
    const int dirfd = o->parent.fd;
    const int rc = platform_rename_exchange(dirfd, o->partial_name, o->final_name);
    if (rc == ENOENT)
        return publish_new(o, err); /* the old one went away by itself */
    if (rc == ENOTSUP)
        return publish_over(o, old_name, err);
    if (rc != 0)
        return error_set_errno(err, rc, "exchanging names", o->path);
    fsdpck_status st = FSDPCK_OK;
    if (!is_same(o, o->partial_name, o->old_dev, o->old_ino))
        st = refuse_existing(o, "it was replaced while this one was written", err);
    if (st == FSDPCK_OK)
        st = sync_folder(o, &o->parent, err);
    if (st != FSDPCK_OK) {
        const int back = platform_rename_exchange(dirfd, o->partial_name, o->final_name);
        if (back != 0)
            o->created = 0; /* the old one bears the partial name: better left than removed */
        return st;
    }
    *old_name = strdup(o->partial_name);
    return *old_name != NULL ? FSDPCK_OK : error_set_nomem(err, NAME_BYTES_MOST);
}

static fsdpck_status publish(output *o, fsdpck_error *err)
{
    if (o->old_ino == 0 && o->old_dev == 0) {
        RETURN_IF(publish_new(o, err));
        o->committed = 1;
        return FSDPCK_OK;
    }
    char *old_name = NULL;
    const fsdpck_status st = publish_replacing(o, &old_name, err);
    if (st != FSDPCK_OK) {
        free(old_name);
        return st;
    }
    o->committed = 1;
    const int rc = old_name != NULL ? remove_tree(o->parent.fd, old_name) : 0;
    if (rc != 0) {
        error_set(err, FSDPCK_IO, "",
                  "the new output is in place, but the old one could not be removed: %s",
                  strerror(rc));
        error_path(err, path_of(o));
        error_next(err, "remove '%s' beside it", old_name);
    }
    free(old_name);
    return rc == 0 ? FSDPCK_OK : FSDPCK_IO;
}

fsdpck_status output_commit(output *o, fsdpck_error *err)
{
    if (!o->created || o->committed)
        return error_set(err, FSDPCK_INTERNAL, "", "an output was committed twice or never begun");
    const mode_t mask = (mode_t)platform_file_mask();
    fsdpck_status st = finish_files(o, mask, err);
    for (size_t i = 0; st == FSDPCK_OK && i < o->subs.count; i++)
        st = finish_folder(o, &sub_at(o, i)->dir, mask, err);
    if (st == FSDPCK_OK && o->kind == OUTPUT_FOLDER)
        st = finish_folder(o, &o->self, mask, err);
    if (st == FSDPCK_OK)
        st = publish(o, err);
    if (st != FSDPCK_OK)
        output_release(o);
    return st;
}

void output_release(output *o)
{
    open_cache_release(&o->cache);
    for (size_t i = 0; i < o->files.count; i++) {
        free(entry_at(o, i)->f.path);
        free(entry_at(o, i));
    }
    vec_release(&o->files);
    for (size_t i = 0; i < o->subs.count; i++)
        folder_close(&sub_at(o, i)->dir);
    vec_release(&o->subs);
    folder_close(&o->self);
    if (o->created && !o->committed)
        (void)remove_tree(o->parent.fd, o->partial_name);
    folder_close(&o->parent);
    free(o->path);
    free(o->final_name);
    free(o->partial_name);
    o->path = NULL;
    o->final_name = NULL;
    o->partial_name = NULL;
    o->created = 0;
}
