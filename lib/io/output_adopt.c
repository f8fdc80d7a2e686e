/* output_adopt.c: the partial of a run that was killed, taken over by a later one, and its journal. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/descriptor.h"
#include "io/output_internal.h"
#include "io/output_remove.h"

/* OUTPUT_ADOPTED: another user cannot have put it there. */
static output_adopted check_own(const output *o, const struct stat *st)
{
    if (o->kind == OUTPUT_FOLDER ? !S_ISDIR(st->st_mode) : !S_ISREG(st->st_mode))
        return OUTPUT_ADOPT_OTHER_KIND;
    if (st->st_uid != geteuid())
        return OUTPUT_ADOPT_OTHER_USER;
    return o->kind == OUTPUT_FILE && st->st_nlink != 1 ? OUTPUT_ADOPT_LINKED : OUTPUT_ADOPTED;
}

/* Locks the partial, and checks that the locked object still has its name. */
static output_adopted lock_partial(output *o)
{
    struct stat named, locked;
    bool is_busy;
    if (fstatat(o->parent.fd, o->partial_name, &named, AT_SYMLINK_NOFOLLOW) != 0)
        return OUTPUT_ADOPT_ABSENT;
    const output_adopted owner = check_own(o, &named);
    if (owner != OUTPUT_ADOPTED)
        return owner;
    o->lock_fd = output_open_locked(o, &is_busy);
    if (is_busy)
        return OUTPUT_ADOPT_BUSY;
    if (o->lock_fd >= 0 && (fstat(o->lock_fd, &locked) != 0 || locked.st_dev != named.st_dev ||
                            locked.st_ino != named.st_ino))
        return OUTPUT_ADOPT_ABSENT;
    if (!output_is_same(o, o->partial_name, (uint64_t)named.st_dev, (uint64_t)named.st_ino))
        return OUTPUT_ADOPT_ABSENT;
    o->new_dev = (uint64_t)named.st_dev;
    o->new_ino = (uint64_t)named.st_ino;
    return OUTPUT_ADOPTED;
}

static fsdpck_status open_adopted(output *o, fsdpck_error *err)
{
    struct output_entry *entry = NULL;
    o->created = 1;
    o->adopted = true;
    RETURN_IF(output_name_journal(o, 0, err));
    if (o->kind == OUTPUT_FOLDER)
        return output_open_self(o, err);
    RETURN_IF(output_entry_push(o, "", &entry, err));
    entry->created = true;
    entry->f.dev = o->new_dev;
    entry->f.ino = o->new_ino;
    return FSDPCK_OK;
}

fsdpck_status output_adopt(output *o, const char *path, output_kind kind, unsigned flags,
                           const char *partial_name, output_adopted *adopted, fsdpck_error *err)
{
    *adopted = OUTPUT_ADOPT_ABSENT;
    fsdpck_status st = output_open_parent(o, path, kind, flags, err);
    if (st == FSDPCK_OK)
        st = output_check_final_name(o, err);
    if (st == FSDPCK_OK && (o->partial_name = strdup(partial_name)) == NULL)
        st = error_set_nomem(err, strlen(partial_name));
    if (st == FSDPCK_OK)
        *adopted = lock_partial(o);
    if (st == FSDPCK_OK && *adopted == OUTPUT_ADOPTED)
        st = open_adopted(o, err);
    if (st != FSDPCK_OK || *adopted != OUTPUT_ADOPTED) {
        o->keeps = true;
        output_release(o);
    }
    return st;
}

/* ---- files that this run did not add ---- */

/* Names in the folder with this index, or in the output itself. */
static fsdpck_status list_added(const output *o, int sub, strtab *added, fsdpck_error *err)
{
    uint32_t id;
    for (size_t i = 0; i < o->files.count; i++) {
        const struct output_entry *e = output_entry_at(o, i);
        if (!e->none && e->sub == sub)
            RETURN_IF(strtab_intern(added, e->name, strlen(e->name), &id, err));
    }
    for (size_t i = 0; sub == NO_SUB && i < o->subs.count; i++) {
        const char *name = output_sub_at(o, i)->name;
        RETURN_IF(strtab_intern(added, name, strlen(name), &id, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status remove_others_in(const output *o, const folder *d, int sub, fsdpck_error *err)
{
    char **names = NULL;
    size_t count = 0;
    strtab added;
    strtab_init(&added, NULL);
    fsdpck_status st = folder_list(d, NULL, &names, &count, err);
    if (st == FSDPCK_OK)
        st = list_added(o, sub, &added, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        if (strtab_find(&added, names[i], strlen(names[i])) != STRTAB_NONE)
            continue;
        const int rc = remove_tree(d->fd, names[i]);
        if (rc != 0)
            st = error_set_errno(err, rc, "removing files of an earlier run", d->path);
    }
    strtab_release(&added);
    free(names);
    return st;
}

fsdpck_status output_remove_others(const output *o, fsdpck_error *err)
{
    if (o->kind != OUTPUT_FOLDER)
        return FSDPCK_OK;
    RETURN_IF(remove_others_in(o, &o->self, NO_SUB, err));
    for (size_t i = 0; i < o->subs.count; i++)
        RETURN_IF(remove_others_in(o, &output_sub_at(o, i)->dir, (int)i, err));
    return FSDPCK_OK;
}
