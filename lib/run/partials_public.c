/* partials_public.c: lists and removes the unfinished outputs of a folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/struct_copy.h"
#include "base/text.h"
#include "fsdpck_partials.h"
#include "io/journal.h"
#include "io/leftover.h"

typedef struct partial_journal {
    uint64_t ranges, nbytes; /* of all ranks */
    unsigned ranks;          /* 0: it cannot be continued */
} partial_journal;

struct fsdpck_partials {
    vec list;                  /* leftover */
    partial_journal *journals; /* by leftover */
    uint8_t *removed;          /* likewise */
};

/* Adds what one journal has of its partial. Without that of rank 0 no run continues it. */
static void add_journal(const folder *dir, const leftover *partial, const leftover *journal_file,
                        partial_journal *to)
{
    journal j;
    if (journal_read(&j, dir, journal_file->name, NULL, NULL) == FSDPCK_OK &&
        j.header.partial_ino == partial->ino) {
        to->ranges += j.ranges.count;
        to->nbytes = j.nbytes < UINT64_MAX - to->nbytes ? to->nbytes + j.nbytes : UINT64_MAX;
        if (j.header.rank == 0)
            to->ranks = j.header.ranks;
    }
    journal_release(&j);
}

/* Of a partial: its journals, of all ranks. */
static void read_journals(const folder *dir, const fsdpck_partials *p, size_t index)
{
    const leftover *l = VEC_AT(&p->list, const leftover, index);
    partial_journal *to = &p->journals[index];
    for (size_t i = 0; l->kind == LEFTOVER_PARTIAL && i < p->list.count; i++) {
        const leftover *other = VEC_AT(&p->list, const leftover, i);
        if (other->kind == LEFTOVER_JOURNAL && strcmp(other->stem, l->stem) == 0)
            add_journal(dir, l, other, to);
    }
    if (to->ranks == 0)
        *to = (partial_journal){0};
}

static fsdpck_status clean_all(const folder *dir, fsdpck_partials *p, fsdpck_error *err)
{
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; i < p->list.count; i++) {
        const leftover *l = VEC_AT(&p->list, const leftover, i);
        const int rc = leftover_is_free(l) ? leftover_remove(dir, l) : 0;
        p->removed[i] = rc == 0 && leftover_is_free(l);
        if (rc != 0 && st == FSDPCK_OK)
            st = error_set_errno(err, rc, "removing", l->name);
    }
    return st;
}

static fsdpck_status check_same_folder(const folder *dir, const char *path, fsdpck_error *err)
{
    folder other;
    struct stat a, b;
    const bool same = folder_open_parent(&other, path, NULL) == FSDPCK_OK &&
                      fstat(dir->fd, &a) == 0 && fstat(other.fd, &b) == 0 && a.st_dev == b.st_dev &&
                      a.st_ino == b.st_ino;
    folder_close(&other);
    return same ? FSDPCK_OK
                : FAIL_WITH(err, USAGE, NONE, ("output '%s' is not in this folder", path),
                            (path, dir->path), (next, "give the folder that contains the output"));
}

/* *name: that of the output in the folder, owned, of a name or of a path with slashes at the end. */
static fsdpck_status name_output(const folder *dir, const char *path, char **name,
                                 fsdpck_error *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *const bare = strndup(path, n);
    if (bare == NULL)
        return error_set_nomem(err, n);
    const char *const last = text_file_name(bare);
    fsdpck_status st = FSDPCK_OK;
    if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        st = FAIL_WITH(err, USAGE, NONE, ("'%s' is not the name of an output", path),
                       (path, dir->path),
                       (next, "give the name that the output has in this folder"));
    else if (last != bare)
        st = check_same_folder(dir, bare, err);
    if (st == FSDPCK_OK && (*name = strdup(last)) == NULL)
        st = error_set_nomem(err, n);
    free(bare);
    return st;
}

static fsdpck_status fill(fsdpck_partials *p, const folder *dir, const char *of, bool clean,
                          fsdpck_error *err)
{
    char *name = NULL;
    if (of != NULL)
        RETURN_IF(name_output(dir, of, &name, err));
    const fsdpck_status listed = leftover_list(dir, name, &p->list, err);
    free(name);
    RETURN_IF(listed);
    p->journals = calloc(p->list.count + 1, sizeof *p->journals);
    p->removed = calloc(p->list.count + 1, 1);
    if (p->journals == NULL || p->removed == NULL)
        return error_set_nomem(err, p->list.count * sizeof *p->journals);
    for (size_t i = 0; i < p->list.count; i++)
        read_journals(dir, p, i);
    return clean ? clean_all(dir, p, err) : FSDPCK_OK;
}

fsdpck_status fsdpck_partials_new(struct fsdpck_context *ctx, const char *folder_path,
                                  const char *of, int clean, fsdpck_partials **out,
                                  fsdpck_error *err)
{
    folder dir;
    (void)ctx;
    *out = NULL;
    RETURN_IF(folder_open(&dir, folder_path, err));
    fsdpck_partials *p = calloc(1, sizeof *p);
    fsdpck_status st = p != NULL ? FSDPCK_OK : error_set_nomem(err, sizeof *p);
    if (st == FSDPCK_OK) {
        p->list = VEC_OF(leftover, NULL);
        st = fill(p, &dir, of, clean != 0, err);
    }
    folder_close(&dir);
    if (st != FSDPCK_OK)
        fsdpck_partials_free(p);
    else
        *out = p;
    return st;
}

static fsdpck_partial_obstacle obstacle_of(const leftover *l)
{
    if (leftover_is_free(l))
        return FSDPCK_PARTIAL_NO_OBSTACLE;
    if (l->is_foreign)
        return FSDPCK_PARTIAL_FOREIGN;
    if (l->is_no_journal)
        return FSDPCK_PARTIAL_NO_JOURNAL;
    if (l->holder == LEFTOVER_HELD)
        return FSDPCK_PARTIAL_IN_USE;
    if (l->holder == LEFTOVER_UNKNOWN)
        return l->is_recent ? FSDPCK_PARTIAL_RECENT : FSDPCK_PARTIAL_NO_LOCKS;
    return FSDPCK_PARTIAL_ONLY_COPY;
}

int fsdpck_get_partial(const fsdpck_partials *p, size_t index, fsdpck_partial *partial)
{
    static const fsdpck_partial_kind kinds[] = {[LEFTOVER_PARTIAL] = FSDPCK_PARTIAL_OUTPUT,
                                                [LEFTOVER_JOURNAL] = FSDPCK_PARTIAL_JOURNAL,
                                                [LEFTOVER_OLD] = FSDPCK_PARTIAL_REPLACED};
    static const fsdpck_partial_holder holders[] = {[LEFTOVER_FREE] = FSDPCK_PARTIAL_FREE,
                                                    [LEFTOVER_HELD] = FSDPCK_PARTIAL_HELD,
                                                    [LEFTOVER_UNKNOWN] = FSDPCK_PARTIAL_UNKNOWN};
    if (index >= p->list.count) {
        struct_clear(partial);
        return 0;
    }
    const leftover *l = VEC_AT(&p->list, const leftover, index);
    const int64_t age = (int64_t)time(NULL) - l->mtime_ns / 1000000000;
    const fsdpck_partial all = {.struct_nbytes = sizeof all,
                                .name = l->name,
                                .of = l->of,
                                .kind = kinds[l->kind],
                                .holder = holders[l->holder],
                                .nbytes = l->nbytes,
                                .age_seconds = age > 0 ? age : 0,
                                .resumable = p->journals[index].ranges > 0,
                                .finished_ranges = p->journals[index].ranges,
                                .finished_nbytes = p->journals[index].nbytes,
                                .is_only_copy = l->kind == LEFTOVER_OLD && !l->is_replaced,
                                .removed = p->removed[index],
                                .obstacle = obstacle_of(l),
                                .ranks = p->journals[index].ranks};
    struct_copy_out(partial, &all, sizeof all);
    return 1;
}

void fsdpck_partials_free(fsdpck_partials *p)
{
    if (p == NULL)
        return;
    leftover_release(&p->list);
    free(p->journals);
    free(p->removed);
    free(p);
}
