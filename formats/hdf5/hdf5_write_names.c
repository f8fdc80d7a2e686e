#include <string.h>

#include "base/utf8.h"
#include "formats/hdf5/hdf5_write_internal.h"

static const char next_rename[] = "rename it with --rename, or omit it with --exclude";
static const char next_groups[] = "omit --hdf5-groups, or rename it with --rename";

static fsdpck_status refuse(const char *name, const char *what, const char *next, fsdpck_error *err)
{
    return FAIL_WITH(err, UNSUPPORTED, NONE, ("%s", what), (tensor, name), (next, "%s", next));
}

/* libhdf5 skips empty components and '.', so that two names would become one. */
static bool parts_are_names(const char *path, size_t nbytes)
{
    size_t begin = 0;
    for (size_t at = 0; at <= nbytes; at++) {
        if (at < nbytes && path[at] != '/')
            continue;
        if (at == begin || (at - begin == 1 && path[begin] == '.'))
            return false;
        begin = at + 1;
    }
    return true;
}

/* Whether fsdpck's reader visits the groups of this name. */
static bool is_too_deep(const char *path, size_t nbytes)
{
    unsigned groups = 1;
    for (size_t i = 0; i < nbytes; i++)
        groups += path[i] == '/';
    return groups > HDF5_DEPTH_MAX;
}

static fsdpck_status check_limits(const char *name, const text_buf *path, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    if (path->nbytes > HDF5_NAME_NBYTES_MAX) {
        st = refuse(name, "name is too long for an HDF5 file", next_rename, err);
        error_expected(err, "at most %u bytes", HDF5_NAME_NBYTES_MAX);
        error_found(err, "%zu bytes", path->nbytes);
    } else if (is_too_deep(path->text, path->nbytes)) {
        const bool by_dots = !is_too_deep(name, path->nbytes);
        st = refuse(name, "tensor would be in too many nested groups of the HDF5 file",
                    by_dots ? next_groups : next_rename, err);
        error_expected(err, "at most %u nested groups", HDF5_DEPTH_MAX - 1);
    }
    return st;
}

static fsdpck_status make_path(const char *name, size_t nbytes, bool dots_too, text_buf *path,
                               fsdpck_error *err)
{
    path->nbytes = 0;
    text_append(path, name, nbytes);
    RETURN_IF(text_check(path, err));
    for (size_t i = 0; dots_too && i < nbytes; i++)
        if (path->text[i] == '.')
            path->text[i] = '/';
    if (nbytes == 0 || memchr(name, 0, nbytes) != NULL || !utf8_is_text(name, nbytes))
        return refuse(name, "HDF5 cannot hold a name that is empty or not UTF-8", next_rename, err);
    if (!parts_are_names(path->text, nbytes))
        return refuse(name, "HDF5 cannot hold a name with an empty component or the component '.'",
                      next_rename, err);
    return check_limits(name, path, err);
}

static fsdpck_status add_groups(hdf5_names *names, const text_buf *path, fsdpck_error *err)
{
    uint32_t id;
    for (size_t at = 0; at < path->nbytes; at++)
        if (path->text[at] == '/')
            RETURN_IF(strtab_intern(&names->groups, path->text, at, &id, err));
    return FSDPCK_OK;
}

static fsdpck_status add_path(const catalogue *cat, size_t tensor, const text_buf *path,
                              hdf5_names *names, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(strtab_intern(&names->paths, path->text, path->nbytes, &id, err));
    if (id == tensor)
        return add_groups(names, path, err);
    const fsdpck_status st = refuse(catalogue_name(cat, catalogue_tensor(cat, tensor)->name),
                                    "two tensors would have the same path in the HDF5 file",
                                    "omit --hdf5-groups, or rename one of them with --rename", err);
    error_found(err, "'%s' and this one", catalogue_name(cat, catalogue_tensor(cat, id)->name));
    return st;
}

/* Whether another tensor's name continues this one after a slash: the two names conflict with or
 * without groups at dots. */
static bool is_in_the_way(const catalogue *cat, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const uint32_t other = catalogue_tensor(cat, i)->name;
        const char *text = catalogue_name(cat, other);
        if (catalogue_name_nbytes(cat, other) > nbytes && text[nbytes] == '/' &&
            memcmp(text, name, nbytes) == 0)
            return true;
    }
    return false;
}

static fsdpck_status check_apart(const catalogue *cat, const hdf5_names *names, fsdpck_error *err)
{
    for (uint32_t i = 0; i < strtab_count(&names->paths); i++) {
        const char *path = strtab_text(&names->paths, i);
        const size_t nbytes = strtab_nbytes(&names->paths, i);
        const char *name = catalogue_name(cat, catalogue_tensor(cat, i)->name);
        if (strtab_find(&names->groups, path, nbytes) == STRTAB_NONE)
            continue;
        return refuse(name, "tensor would have the path of a group in the HDF5 file",
                      is_in_the_way(cat, name, nbytes) ? next_rename : next_groups, err);
    }
    return FSDPCK_OK;
}

fsdpck_status hdf5_names_make(const catalogue *cat, bool dots_too, hdf5_names *names,
                              fsdpck_error *err)
{
    text_buf path = {0};
    fsdpck_status st = FSDPCK_OK;
    strtab_init(&names->paths, cat->owner);
    strtab_init(&names->groups, cat->owner);
    for (size_t i = 0; st == FSDPCK_OK && i < catalogue_tensor_count(cat); i++) {
        const uint32_t name = catalogue_tensor(cat, i)->name;
        st = make_path(catalogue_name(cat, name), catalogue_name_nbytes(cat, name), dots_too, &path,
                       err);
        if (st == FSDPCK_OK)
            st = add_path(cat, i, &path, names, err);
    }
    if (st == FSDPCK_OK)
        st = check_apart(cat, names, err);
    text_release(&path);
    return st;
}

bool hdf5_name_is_implied(const char *path, const char *fqn)
{
    for (; *path != '\0' && *fqn != '\0'; path++, fqn++)
        if (*fqn != (*path == '/' ? '.' : *path))
            return false;
    return *path == *fqn;
}

void hdf5_names_release(hdf5_names *names)
{
    strtab_release(&names->paths);
    strtab_release(&names->groups);
}
