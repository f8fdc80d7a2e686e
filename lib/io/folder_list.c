#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "io/descriptor.h"
#include "io/file.h"
#include "io/remote.h"

enum { ENTRIES_MOST = 1 << 20 };

static bool is_dot(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* All names, each with its NUL, one after another. */
static fsdpck_status collect(DIR *dir, const char *path, text_buf *text, size_t *count,
                             fsdpck_error *err)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL)
            break;
        if (is_dot(entry->d_name))
            continue;
        if (++*count > ENTRIES_MOST)
            return FAIL_WITH(err, LIMIT, LIMIT_COUNT, ("folder has too many entries"),
                             (expected, "at most %d", ENTRIES_MOST), (path, path));
        text_append(text, entry->d_name, strlen(entry->d_name) + 1);
    }
    if (errno != 0)
        return error_set_errno(err, errno, "readdir", path);
    return text_check(text, err);
}

/* Pointers, followed by the text, in one block. */
static fsdpck_status sort_names(const text_buf *text, size_t count, char ***names,
                                fsdpck_error *err)
{
    const size_t pointers_nbytes = count * sizeof(char *);
    char **sorted = malloc(pointers_nbytes + text->nbytes + 1);
    if (sorted == NULL)
        return error_set_nomem(err, pointers_nbytes + text->nbytes);
    char *copy = (char *)(sorted + count);
    if (text->nbytes > 0)
        memcpy(copy, text->text, text->nbytes);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = copy;
        copy += strlen(copy) + 1;
    }
    qsort(sorted, count, sizeof(char *), text_compare);
    *names = sorted;
    return FSDPCK_OK;
}

/* Names of the local folder. */
static fsdpck_status list_here(const folder *d, const char *relative, const char *shown,
                               text_buf *text, size_t *count, fsdpck_error *err)
{
    int fd = -1;
    const int rc = descriptor_open(d != NULL ? d->fd : AT_FDCWD, relative,
                                   O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0, &fd);
    if (rc == ENOENT && d != NULL && d->remote != NULL)
        return FSDPCK_OK;
    if (rc != 0)
        return error_set_errno(err, rc, "opening the folder", shown);
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        const int sys_errno = errno;
        close(fd);
        return error_set_errno(err, sys_errno, "fdopendir", shown);
    }
    const fsdpck_status st = collect(dir, shown, text, count, err);
    closedir(dir);
    return st;
}

/* Removes duplicates: names that exist locally and remotely. */
static void drop_aliases(char **names, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0)
            names[kept++] = names[i];
    *count = kept;
}

fsdpck_status folder_list(const folder *d, const char *sub, char ***names, size_t *count,
                          fsdpck_error *err)
{
    *names = NULL;
    *count = 0;
    const bool itself = sub == NULL || sub[0] == '\0' || strcmp(sub, ".") == 0;
    const char *relative = itself ? "." : sub;
    const char *shown = itself && d != NULL ? d->path : relative;
    text_buf text = {0};
    size_t n = 0;
    fsdpck_status st = FSDPCK_OK;
    if (d == NULL || d->fd != -1)
        st = list_here(d, relative, shown, &text, &n, err);
    if (st == FSDPCK_OK && d != NULL && d->remote != NULL)
        d->remote->list(d->remote->ctx, itself ? "" : sub, &text, &n);
    if (st == FSDPCK_OK)
        st = text_check(&text, err);
    if (st == FSDPCK_OK)
        st = sort_names(&text, n, names, err);
    if (st == FSDPCK_OK)
        *count = n;
    if (st == FSDPCK_OK && d != NULL && d->remote != NULL)
        drop_aliases(*names, count);
    text_release(&text);
    return st;
}

static fsdpck_status refuse_path(const char *path, size_t nbytes, fsdpck_finding_id finding,
                                 const char *why, fsdpck_error *err)
{
    char shown[200];
    return FAIL_AS(err, FSDPCK_BADINPUT, finding,
                   ("name in the input is not a plain path inside its folder: %s", why),
                   (expected, "a relative path inside the folder"),
                   (found, "'%s'", escape_text(shown, sizeof(shown), path, nbytes)));
}

fsdpck_status path_check_inside(const char *path, size_t nbytes, fsdpck_finding_id finding,
                                fsdpck_error *err)
{
    enum { PATH_MOST = 4096, PART_MOST = 255 };
    if (nbytes == 0)
        return refuse_path(path, nbytes, finding, "it is empty", err);
    if (nbytes > PATH_MOST)
        return refuse_path(path, nbytes, finding, "it is longer than 4,096 bytes", err);
    if (memchr(path, '\0', nbytes) != NULL)
        return refuse_path(path, nbytes, finding, "it contains a zero byte", err);
    if (path[0] == '/')
        return refuse_path(path, nbytes, finding, "it is absolute", err);
    for (size_t begin = 0; begin <= nbytes;) {
        const char *slash = memchr(path + begin, '/', nbytes - begin);
        const size_t part = (slash != NULL ? (size_t)(slash - path) : nbytes) - begin;
        if (part == 0)
            return refuse_path(path, nbytes, finding, "it has an empty part", err);
        if (part == 2 && memcmp(path + begin, "..", 2) == 0)
            return refuse_path(path, nbytes, finding, "it has a part '..'", err);
        if (part == 1 && path[begin] == '.')
            return refuse_path(path, nbytes, finding, "it has a part '.'", err);
        if (part > PART_MOST)
            return refuse_path(path, nbytes, finding, "a part is longer than 255 bytes", err);
        begin += part + 1;
    }
    return FSDPCK_OK;
}

fsdpck_status path_check_folders(const folder *dir, const char *path, fsdpck_error *err)
{
    for (const char *end = path; dir != NULL && dir->fd >= 0 && (end = strchr(end, '/')) != NULL;
         end++) {
        struct stat st;
        char *part = strndup(path, (size_t)(end - path));
        if (part == NULL)
            return error_set_nomem(err, (size_t)(end - path));
        const bool is_link =
            fstatat(dir->fd, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
        free(part);
        if (is_link)
            return FAIL_WITH(err, BADINPUT, FILE_TYPE, ("a folder of its path is a symbolic link"),
                             (path, path), (expected, "a folder"));
    }
    return FSDPCK_OK;
}

bool folder_identify(const folder *d, folder_id *id)
{
    struct stat st;
    if (d->fd < 0 || fstat(d->fd, &st) != 0)
        return false;
    *id = (folder_id){(uint64_t)st.st_dev, (uint64_t)st.st_ino};
    return true;
}
