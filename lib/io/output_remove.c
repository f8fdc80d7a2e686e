#include "io/output_remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/platform.h"
#include "io/descriptor.h"

/* A stream over the folder `name`, which must not be a link. */
static int open_stream(int dirfd, const char *name, DIR **stream)
{
    int fd = -1;
    const int rc = descriptor_open(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, &fd);
    if (rc != 0)
        return rc;
    *stream = fdopendir(fd);
    if (*stream != NULL)
        return 0;
    const int sys_errno = errno;
    close(fd);
    return sys_errno;
}

/* Next entry other than "." and ".."; NULL at the end, with *rc set on failure. */
static const char *next_name(DIR *stream, int *rc)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            *rc = errno;
            return NULL;
        }
        const char *n = entry->d_name;
        if (n[0] != '.' || (n[1] != '\0' && (n[1] != '.' || n[2] != '\0')))
            return n;
    }
}

static int is_folder(int dirfd, const char *name, bool *folder)
{
    struct stat st;
    *folder = false;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    *folder = S_ISDIR(st.st_mode);
    return 0;
}

static int unlink_quiet(int dirfd, const char *name, int flags)
{
    return unlinkat(dirfd, name, flags) == 0 || errno == ENOENT ? 0 : errno;
}

/* Moves a nested folder into the top folder under a new name. Hence no path is longer than two
 * steps, and no stack of descriptors is needed. */
static int lift_folder(int from, const char *name, int top)
{
    uint64_t id;
    char fresh[32];
    platform_random(&id, sizeof(id));
    snprintf(fresh, sizeof(fresh), ".lifted-%016" PRIx64, id);
    return renameat(from, name, top, fresh) == 0 ? 0 : errno;
}

/* Removes the folder `name` in `top`: its files now, its folders in a later pass. */
static int remove_folder_in(int top, const char *name)
{
    DIR *stream;
    int rc = open_stream(top, name, &stream);
    if (rc != 0)
        return rc;
    const int fd = dirfd(stream);
    const char *inner;
    while (rc == 0 && (inner = next_name(stream, &rc)) != NULL) {
        bool folder;
        rc = is_folder(fd, inner, &folder);
        if (rc == 0)
            rc = folder ? lift_folder(fd, inner, top) : unlink_quiet(fd, inner, 0);
    }
    closedir(stream);
    return rc != 0 ? rc : unlink_quiet(top, name, AT_REMOVEDIR);
}

/* One pass over the top folder; sets *left if it was not empty. */
static int empty_once(DIR *top, bool *left)
{
    int rc = 0;
    *left = false;
    rewinddir(top);
    const char *name;
    while (rc == 0 && (name = next_name(top, &rc)) != NULL) {
        bool folder;
        *left = true;
        rc = is_folder(dirfd(top), name, &folder);
        if (rc == 0)
            rc = folder ? remove_folder_in(dirfd(top), name) : unlink_quiet(dirfd(top), name, 0);
    }
    return rc;
}

int remove_tree(int dirfd, const char *name)
{
    bool folder;
    int rc = is_folder(dirfd, name, &folder);
    if (rc != 0)
        return rc;
    if (!folder)
        return unlink_quiet(dirfd, name, 0);
    DIR *top;
    rc = open_stream(dirfd, name, &top);
    if (rc != 0)
        return rc;
    bool left = true;
    while (rc == 0 && left)
        rc = empty_once(top, &left);
    closedir(top);
    return rc != 0 ? rc : unlink_quiet(dirfd, name, AT_REMOVEDIR);
}
