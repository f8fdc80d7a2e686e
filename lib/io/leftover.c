#include "io/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "io/descriptor.h"
#include "io/journal.h"
#include "io/output_internal.h"
#include "io/output_remove.h"

/* A run locks its output just after it has created it. */
#define NEW_NS ((int64_t)10 * 1000000000)

static const char before_id[] = ".fsdpck-";

enum { BEFORE_ID_BYTES = sizeof before_id - 1, ID_BYTES = 8 };

/* The last ".fsdpck-XXXXXXXX." of a name; NULL: none. */
static const char *find_id(const char *name)
{
    const char *found = NULL;
    for (const char *p = strstr(name, before_id); p != NULL; p = strstr(p + 1, before_id))
        found = p;
    return found != NULL && strspn(found + BEFORE_ID_BYTES, "0123456789abcdef") == ID_BYTES ? found
                                                                                            : NULL;
}

static leftover_kind kind_of(const char *suffix)
{
    static const char journal_of_rank[] = ".journal-";
    const size_t n = sizeof journal_of_rank - 1;
    if (strcmp(suffix, ".partial") == 0)
        return LEFTOVER_PARTIAL;
    if (strcmp(suffix, ".old") == 0)
        return LEFTOVER_OLD;
    if (strcmp(suffix, ".journal") == 0)
        return LEFTOVER_JOURNAL;
    if (strncmp(suffix, journal_of_rank, n) == 0 && suffix[n] != '\0' &&
        strspn(suffix + n, "0123456789") == strlen(suffix + n))
        return LEFTOVER_JOURNAL;
    return LEFTOVER_NONE;
}

leftover_kind leftover_parse(const char *name, size_t *stem_nbytes, size_t *name_nbytes)
{
    const char *id = name[0] == '.' ? find_id(name) : NULL;
    if (id == NULL || id < name + 2)
        return LEFTOVER_NONE;
    *name_nbytes = (size_t)(id - name) - 1;
    *stem_nbytes = (size_t)(id - name) + BEFORE_ID_BYTES + ID_BYTES;
    return kind_of(name + *stem_nbytes);
}

/* ---- locks ---- */

/* Opens an object with a shared lock, which fails while a process has its own. *fd is -1 if it cannot be opened. */
static leftover_holder lock_object(const folder *dir, const char *name, int *fd)
{
    const int rc = descriptor_open(dir->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, fd);
    if (rc != 0) {
        *fd = -1;
        return rc == ENOENT ? LEFTOVER_FREE : LEFTOVER_UNKNOWN;
    }
    if (flock(*fd, LOCK_SH | LOCK_NB) == 0)
        return LEFTOVER_FREE;
    return errno == EWOULDBLOCK ? LEFTOVER_HELD : LEFTOVER_UNKNOWN;
}

static leftover_holder holder_of(const folder *dir, const char *name)
{
    int fd;
    const leftover_holder holder = lock_object(dir, name, &fd);
    if (fd >= 0)
        close(fd);
    return holder;
}

/* A process has all objects of its run: those with its stem, and the output that it has just published. */
static leftover_holder holder_of_run(const folder *dir, const leftover *l)
{
    static const char *const suffixes[] = {".partial", ".journal"};
    const leftover_holder published = holder_of(dir, l->of);
    leftover_holder most = published == LEFTOVER_HELD ? LEFTOVER_HELD : LEFTOVER_FREE;
    bool is_known = false;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        text_buf name = {0};
        text_printf(&name, "%s%s", l->stem, suffixes[i]);
        const leftover_holder holder =
            text_check(&name, NULL) == FSDPCK_OK ? holder_of(dir, name.text) : LEFTOVER_UNKNOWN;
        text_release(&name);
        is_known = is_known || holder != LEFTOVER_UNKNOWN;
        most = holder == LEFTOVER_HELD ? LEFTOVER_HELD : most;
    }
    return most == LEFTOVER_FREE && !is_known ? LEFTOVER_UNKNOWN : most;
}

/* ---- listing ---- */

static void add_nbytes(uint64_t *sum, const struct stat *st)
{
    if (S_ISREG(st->st_mode) && !checked_add(*sum, (uint64_t)st->st_size, sum))
        *sum = UINT64_MAX;
}

/* Adds the sizes of the files in a folder; `subs`, unless NULL, gets the names of the folders inside. */
static fsdpck_status measure_files(const folder *parent, const char *name, uint64_t *nbytes,
                                   strtab *subs, fsdpck_error *err)
{
    folder inside;
    char **names = NULL;
    size_t count = 0;
    uint32_t id;
    RETURN_IF(folder_open_inside(&inside, parent, name, err));
    fsdpck_status st = folder_list(&inside, NULL, &names, &count, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        struct stat found;
        if (fstatat(inside.fd, names[i], &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        add_nbytes(nbytes, &found);
        if (S_ISDIR(found.st_mode) && subs != NULL)
            st = strtab_intern(subs, names[i], strlen(names[i]), &id, err);
    }
    free(names);
    folder_close(&inside);
    return st;
}

/* An output has folders of one level inside. */
static fsdpck_status measure_folder(const folder *dir, const char *name, uint64_t *nbytes,
                                    fsdpck_error *err)
{
    folder self = FOLDER_CLOSED;
    strtab subs;
    strtab_init(&subs, NULL);
    fsdpck_status st = measure_files(dir, name, nbytes, &subs, err);
    if (st == FSDPCK_OK && strtab_count(&subs) > 0)
        st = folder_open_inside(&self, dir, name, err);
    for (uint32_t i = 0; st == FSDPCK_OK && i < strtab_count(&subs); i++)
        st = measure_files(&self, strtab_text(&subs, i), nbytes, NULL, err);
    folder_close(&self);
    strtab_release(&subs);
    return st;
}

/* Whether another object took the place of an old one. An empty folder may be made by a job script; a NAME as
 * long as output_decorate keeps may be cut, and then it is unknown. */
static bool is_replaced(const folder *dir, const leftover *l)
{
    struct stat final;
    char **names = NULL;
    size_t count = 0;
    if (strlen(l->of) >= OUTPUT_NAME_BYTES_MOST - OUTPUT_DECORATION_BYTES ||
        fstatat(dir->fd, l->of, &final, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (!l->is_folder)
        return S_ISREG(final.st_mode) && final.st_size > 0;
    if (!S_ISDIR(final.st_mode) || folder_list(dir, l->of, &names, &count, NULL) != FSDPCK_OK)
        return false;
    free(names);
    return count > 0;
}

static fsdpck_status fill(const folder *dir, leftover *l, const struct stat *st, fsdpck_error *err)
{
    struct timespec now;
    l->is_folder = S_ISDIR(st->st_mode) != 0;
    l->ino = (uint64_t)st->st_ino;
    l->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    l->is_replaced = is_replaced(dir, l);
    add_nbytes(&l->nbytes, st);
    if (l->is_folder)
        RETURN_IF(measure_folder(dir, l->name, &l->nbytes, err));
    l->holder = holder_of_run(dir, l);
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - l->mtime_ns;
    l->is_recent = l->holder == LEFTOVER_FREE && age < NEW_NS;
    if (l->is_recent)
        l->holder = LEFTOVER_UNKNOWN;
    /* root is no exception: a run of another user may still need it. */
    l->is_foreign = st->st_uid != geteuid();
    l->is_no_journal = l->kind == LEFTOVER_JOURNAL && !journal_is(dir, l->name);
    return FSDPCK_OK;
}

/* Whether NAME of an object is `of`, or cut from it. */
static bool is_of(const char *name, size_t name_nbytes, const char *of)
{
    const size_t longest = OUTPUT_NAME_BYTES_MOST - OUTPUT_DECORATION_BYTES, n = strlen(of);
    return name_nbytes == (n < longest ? n : longest) && strncmp(name, of, name_nbytes) == 0;
}

static fsdpck_status add(const folder *dir, const char *name, const char *of, vec *list,
                         fsdpck_error *err)
{
    size_t stem_nbytes, name_nbytes;
    struct stat st;
    const leftover_kind kind = leftover_parse(name, &stem_nbytes, &name_nbytes);
    if (kind == LEFTOVER_NONE || (of != NULL && !is_of(name + 1, name_nbytes, of)) || fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !(S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && kind != LEFTOVER_JOURNAL)))
        return FSDPCK_OK;
    leftover *l = vec_push(list, err);
    if (l == NULL)
        return FSDPCK_LIMIT;
    *l = (leftover){.name = strdup(name),
                    .of = strndup(name + 1, name_nbytes),
                    .stem = strndup(name, stem_nbytes),
                    .kind = kind};
    if (l->name == NULL || l->of == NULL || l->stem == NULL)
        return error_set_nomem(err, strlen(name));
    return fill(dir, l, &st, err);
}

fsdpck_status leftover_list(const folder *dir, const char *of, vec *list, fsdpck_error *err)
{
    char **names;
    size_t count;
    RETURN_IF(folder_list(dir, NULL, &names, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        st = add(dir, names[i], of, list, err);
    free(names);
    return st;
}

/* ---- removing ---- */

bool leftover_is_free(const leftover *l)
{
    return l->holder == LEFTOVER_FREE && !l->is_foreign && !l->is_no_journal &&
           (l->kind != LEFTOVER_OLD || l->is_replaced);
}

int leftover_remove(const folder *dir, const leftover *l)
{
    struct stat st;
    int fd, rc;
    /* Held meanwhile: no run adopts it. */
    const leftover_holder holder = lock_object(dir, l->name, &fd);
    if (holder != LEFTOVER_FREE || fd < 0)
        rc = holder == LEFTOVER_HELD ? EBUSY : holder == LEFTOVER_FREE ? 0 : ENOLCK;
    else if (fstat(fd, &st) != 0 || (uint64_t)st.st_ino != l->ino)
        rc = EBUSY;
    else
        rc = remove_tree(dir->fd, l->name);
    if (fd >= 0)
        close(fd);
    return rc;
}

void leftover_release(vec *list)
{
    for (size_t i = 0; i < list->count; i++) {
        leftover *l = VEC_AT(list, leftover, i);
        free(l->name);
        free(l->of);
        free(l->stem);
    }
    vec_release(list);
}
