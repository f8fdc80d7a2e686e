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
#include "base/platform.h"
#include "io/descriptor.h"
#include "io/output_internal.h"
#include "io/output_remove.h"

struct output_entry *output_entry_at(const output *o, size_t index)
{
    return *VEC_AT(&o->files, struct output_entry *, index);
}

struct output_sub *output_sub_at(const output *o, size_t index)
{
    return VEC_AT(&o->subs, struct output_sub, index);
}

/* ---- entries ---- */

/* "PATH/NAME", and the start of NAME in it; NULL if out of memory. */
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

fsdpck_status output_entry_push(output *o, const char *name, struct output_entry **entry,
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
        return output_sub_at(o, (size_t)entry->sub)->dir.fd;
    return o->kind == OUTPUT_FOLDER ? o->self.fd : o->parent.fd;
}

static const char *name_of(const output *o, const struct output_entry *entry)
{
    return o->kind == OUTPUT_FOLDER ? entry->name : o->partial_name;
}

/* Opens a second descriptor of the same file, or none. */
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

/* In an adopted output, removes an object in the place of a file that no run leaves there, such as a link. */
static void clear_place(const output *o, const struct output_entry *entry)
{
    struct stat st;
    if (o->adopted && !entry->created && o->kind == OUTPUT_FOLDER &&
        fstatat(dirfd_of(o, entry), name_of(o, entry), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        !(S_ISREG(st.st_mode) && st.st_nlink == 1))
        (void)remove_tree(dirfd_of(o, entry), name_of(o, entry)); /* opening it fails otherwise */
}

fsdpck_status output_entry_open(void *ctx, open_slot *slot, fsdpck_error *err)
{
    const output *o = ctx;
    struct output_entry *entry = (struct output_entry *)slot;
    struct stat st;
    const int create = entry->created || o->joined ? 0 : o->adopted ? O_CREAT : O_CREAT | O_EXCL;
    const int flags = O_RDWR | O_NOFOLLOW | create;
    clear_place(o, entry);
    const int rc =
        descriptor_open(dirfd_of(o, entry), name_of(o, entry), flags, 0600, &entry->f.fd);
    if (rc != 0) {
        entry->f.fd = -1;
        return error_set_errno(err, rc, entry->created ? "open" : "create", entry->f.path);
    }
    const bool is_new = !entry->created, known = fstat(entry->f.fd, &st) == 0;
    entry->created = true; /* even if it fails now: the file is to be removed */
    if (known && !is_new && entry->f.dev == (uint64_t)st.st_dev &&
        entry->f.ino == (uint64_t)st.st_ino) {
        if (entry->direct)
            open_direct(o, entry);
        return FSDPCK_OK;
    }
    if (known && is_new && (!o->adopted || (S_ISREG(st.st_mode) && st.st_nlink == 1))) {
        entry->f.dev = (uint64_t)st.st_dev;
        entry->f.ino = (uint64_t)st.st_ino;
        return FSDPCK_OK;
    }
    close(entry->f.fd);
    entry->f.fd = -1;
    return FAIL_WITH(err, CHANGED, NONE, ("output file was replaced while it was written"),
                     (path, entry->f.path));
}

void output_entry_close(void *ctx, open_slot *slot)
{
    output *o = ctx;
    struct output_entry *entry = (struct output_entry *)slot;
    fsdpck_error err = FSDPCK_ERROR_INIT;
    file kept = entry->f;
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

/* ---- adding ---- */

static fsdpck_status set_nospace(const char *path, uint64_t nbytes, uint64_t have, int sys_errno,
                                 fsdpck_error *err)
{
    const fsdpck_status st = error_set_errno(err, sys_errno, "reserving space", path);
    error_expected(err, "space for %" PRIu64 " bytes", nbytes);
    if (have != UINT64_MAX)
        error_found(err, "%" PRIu64 " bytes free", have);
    return st;
}

/* Sets the size of the file and, as far as the file system allows, reserves its space. */
static fsdpck_status reserve(const struct output_entry *entry, uint64_t nbytes, fsdpck_error *err)
{
    /* Checked first: exceeding this limit raises SIGXFSZ, which kills by default. */
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
    if (!o->joined && mkdirat(o->self.fd, sub->name, 0700) != 0 && !(o->adopted && errno == EEXIST))
        return error_set_errno(err, errno, "creating the folder", sub->dir.path);
    const int rc = descriptor_open(o->self.fd, sub->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                                   &sub->dir.fd);
    if (rc == 0)
        return FSDPCK_OK;
    sub->dir.fd = -1;
    return error_set_errno(err, rc, "opening the folder", sub->dir.path);
}

/* The folder named by the first nbytes of `name`; creates a new one. */
static fsdpck_status sub_find(output *o, const char *name, size_t nbytes, int *index,
                              fsdpck_error *err)
{
    for (size_t i = 0; i < o->subs.count; i++) {
        const struct output_sub *sub = output_sub_at(o, i);
        *index = (int)i;
        if (strncmp(sub->name, name, nbytes) == 0 && sub->name[nbytes] == '\0')
            return FSDPCK_OK;
    }
    if (o->subs.count == OUTPUT_SUBS_MOST)
        return FAIL(err, INTERNAL, NONE, "an output has more than %u folders inside",
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
        return FAIL(err, INTERNAL, NONE, "'%s' is not a valid name of an output file", name);
    int sub = NO_SUB;
    if (sub_nbytes > 0)
        RETURN_IF(sub_find(o, name, sub_nbytes, &sub, err));
    RETURN_IF(output_entry_push(o, name, entry, err));
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
    if (o->joined)
        return FSDPCK_OK;
    /* The last block is written completely and truncated at commit. */
    if (entry->direct && !checked_align_up(nbytes, FILE_DIRECT_ALIGN, &rounded))
        rounded = nbytes;
    return reserve(entry, rounded, err);
}

fsdpck_status output_add(output *o, const char *name, uint64_t nbytes, bool want_direct,
                         size_t *index, fsdpck_error *err)
{
    struct output_entry *entry = NULL;
    const bool in_folder = o->kind == OUTPUT_FOLDER;
    if (!(o->created || o->joined) ||
        (!in_folder && (name[0] != '\0' || output_entry_at(o, 0)->added)))
        return FAIL(err, INTERNAL, NONE,
                    "a file was added to an output that cannot take another file");
    if (in_folder)
        RETURN_IF(entry_push_inside(o, name, &entry, err));
    else
        entry = output_entry_at(o, 0);
    entry->nbytes = nbytes;
    entry->added = true;
    fsdpck_error local = FSDPCK_ERROR_INIT;
    fsdpck_status st = open_cache_get(&o->cache, &entry->slot, &local);
    if (st != FSDPCK_OK) {
        if (local.sys_errno == EEXIST)
            return FAIL(err, INTERNAL, NONE, "output has two files named '%s'", name);
        if (err != NULL)
            *err = local;
        return st;
    }
    st = reserve_file(o, entry, nbytes, want_direct, err);
    open_cache_put(&o->cache, &entry->slot);
    *index = in_folder ? o->files.count - 1 : 0;
    return st;
}

fsdpck_status output_add_none(output *o, size_t *index, fsdpck_error *err)
{
    struct output_entry *entry;
    RETURN_IF(output_entry_push(o, "", &entry, err));
    entry->none = true;
    *index = o->files.count - 1;
    return FSDPCK_OK;
}

/* ---- reading and writing ---- */

void output_in_memory(output *o, const output_memory *memory)
{
    *o = (output){.memory = *memory, .lock_fd = -1};
}

fsdpck_status output_write_at(output *o, size_t index, uint64_t offset, const void *src,
                              uint64_t nbytes, fsdpck_error *err)
{
    if (o->memory.write_at != NULL)
        return o->memory.write_at(o->memory.ctx, index, offset, src, nbytes, err);
    struct output_entry *entry = output_entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_write_at(&entry->f, offset, src, nbytes, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_read_at(output *o, size_t index, uint64_t offset, void *dst, uint64_t nbytes,
                             fsdpck_error *err)
{
    if (o->memory.read_at != NULL)
        return o->memory.read_at(o->memory.ctx, index, offset, dst, nbytes, err);
    struct output_entry *entry = output_entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_read_at(&entry->f, offset, dst, nbytes, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_write_direct(output *o, size_t index, uint64_t offset, const void *src,
                                  uint64_t nbytes, fsdpck_error *err)
{
    struct output_entry *entry = output_entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_write_direct(&entry->f, offset, src, nbytes, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

fsdpck_status output_drop_cache(output *o, size_t index, fsdpck_error *err)
{
    struct output_entry *entry = output_entry_at(o, index);
    RETURN_IF(open_cache_get(&o->cache, &entry->slot, err));
    const fsdpck_status st = file_drop_cache(&entry->f, err);
    open_cache_put(&o->cache, &entry->slot);
    return st;
}

bool output_is_direct(const output *o, size_t index)
{
    return o->memory.write_at == NULL && output_entry_at(o, index)->direct;
}

void output_set_nbytes(output *o, size_t index, uint64_t nbytes)
{
    output_entry_at(o, index)->nbytes = nbytes;
}

uint64_t output_file_nbytes(const output *o, size_t index)
{
    return output_entry_at(o, index)->nbytes;
}

const char *output_file_name(const output *o, size_t index)
{
    const struct output_entry *entry = output_entry_at(o, index);
    return entry->sub == NO_SUB ? entry->name : entry->f.path + strlen(o->path) + 1;
}
