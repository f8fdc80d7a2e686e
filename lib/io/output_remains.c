#include "io/output_remains.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/leftover.h"
#include "io/output_internal.h"

/* The folder of an output, and how output_decorate cuts its name. */
typedef struct place {
    output o;
    size_t cut;
    char **names;
    size_t count;
} place;

static void close_place(place *p)
{
    free(p->names);
    output_release(&p->o);
}

static fsdpck_status open_place(place *p, const char *path, fsdpck_error *err)
{
    size_t stem_nbytes;
    *p = (place){0};
    RETURN_IF(output_open_parent(&p->o, path, OUTPUT_FILE, 0, err));
    char *longest = output_decorate(&p->o, ".partial");
    if (longest == NULL)
        return error_set_nomem(err, OUTPUT_NAME_BYTES_MOST);
    (void)leftover_parse(longest, &stem_nbytes, &p->cut);
    free(longest);
    return folder_list(&p->o.parent, NULL, &p->names, &p->count, err);
}

/* Of an object of this output; else LEFTOVER_NONE. */
static leftover_kind parse(const place *p, const char *name, size_t *stem_nbytes)
{
    size_t name_nbytes;
    const size_t n = strlen(p->o.final_name);
    const leftover_kind kind = leftover_parse(name, stem_nbytes, &name_nbytes);
    return kind != LEFTOVER_NONE && name_nbytes == (n < p->cut ? n : p->cut) &&
                   strncmp(name + 1, p->o.final_name, name_nbytes) == 0
               ? kind
               : LEFTOVER_NONE;
}

/* The entry of the run that a name belongs to, new if there is none. */
static output_remain *entry_of(output_remains *found, const char *name, size_t stem_nbytes,
                               fsdpck_error *err)
{
    static const char suffix[] = ".partial";
    for (size_t i = 0; i < found->list.count; i++) {
        output_remain *r = VEC_AT(&found->list, output_remain, i);
        if (strlen(r->partial) == stem_nbytes + sizeof suffix - 1 &&
            strncmp(r->partial, name, stem_nbytes) == 0)
            return r;
    }
    output_remain *r = vec_push(&found->list, err);
    if (r == NULL)
        return NULL;
    r->partial = malloc(stem_nbytes + sizeof suffix);
    if (r->partial == NULL) {
        (void)error_set_nomem(err, stem_nbytes + sizeof suffix);
        return NULL;
    }
    memcpy(r->partial, name, stem_nbytes);
    memcpy(r->partial + stem_nbytes, suffix, sizeof suffix);
    return r;
}

/* Bytes in a journal that is as `now`, and belongs to the partial. */
static uint64_t measure(const place *p, const char *journal_name, const char *partial,
                        const journal_header *now)
{
    journal j;
    struct stat st;
    size_t at;
    journal_header expected = *now; /* shares its lists */
    uint64_t nbytes = 0;
    if (fstatat(p->o.parent.fd, partial, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    expected.partial_ino = (uint64_t)st.st_ino;
    if (journal_read(&j, &p->o.parent, journal_name, now->sources.owner, NULL) == FSDPCK_OK) {
        expected.rank = j.header.rank;
        if (journal_compare(&j.header, &expected, &at) == JOURNAL_SAME)
            nbytes = j.nbytes;
    }
    journal_release(&j);
    return nbytes;
}

static fsdpck_status add(output_remains *found, const place *p, const char *name,
                         fsdpck_error *err)
{
    size_t stem_nbytes;
    const leftover_kind kind = parse(p, name, &stem_nbytes);
    if (kind != LEFTOVER_PARTIAL && kind != LEFTOVER_JOURNAL)
        return FSDPCK_OK;
    output_remain *r = entry_of(found, name, stem_nbytes, err);
    if (r == NULL)
        return FSDPCK_LIMIT;
    r->has_partial = r->has_partial || kind == LEFTOVER_PARTIAL;
    found->journals += kind == LEFTOVER_JOURNAL && !r->has_journal;
    r->has_journal = r->has_journal || kind == LEFTOVER_JOURNAL;
    return FSDPCK_OK;
}

/* A choice needs the sizes. */
static fsdpck_status measure_all(output_remains *found, const place *p, const journal_header *now,
                                 fsdpck_error *err)
{
    size_t stem_nbytes;
    for (size_t i = 0; i < p->count; i++) {
        if (parse(p, p->names[i], &stem_nbytes) != LEFTOVER_JOURNAL)
            continue;
        output_remain *r = entry_of(found, p->names[i], stem_nbytes, err);
        if (r == NULL)
            return FSDPCK_LIMIT;
        r->finished_nbytes += measure(p, p->names[i], r->partial, now);
    }
    return FSDPCK_OK;
}

static int compare_remains(const void *a, const void *b)
{
    const output_remain *x = a, *y = b;
    ORDER_BY(y->finished_nbytes, x->finished_nbytes);
    return strcmp(x->partial, y->partial);
}

fsdpck_status output_remains_find(output_remains *found, const char *path,
                                  const journal_header *now, fsdpck_error *err)
{
    place p;
    *found = (output_remains){.list = VEC_OF(output_remain, NULL)};
    fsdpck_status st = open_place(&p, path, err);
    for (size_t i = 0; st == FSDPCK_OK && i < p.count; i++)
        st = add(found, &p, p.names[i], err);
    if (st == FSDPCK_OK && found->journals > 1)
        st = measure_all(found, &p, now, err);
    close_place(&p);
    if (found->list.count > 1)
        qsort(found->list.items, found->list.count, sizeof(output_remain), compare_remains);
    return st;
}

const output_remain *output_remain_at(const output_remains *found, size_t index)
{
    return VEC_AT(&found->list, const output_remain, index);
}

/* The lock shows that no run has it, such as one that is just publishing its output. */
static bool remove_journal(const place *p, const char *name)
{
    journal_writer *w;
    journal_lock lock;
    if (journal_open(&w, &p->o.parent, name, &lock, NULL) != FSDPCK_OK || w == NULL)
        return false;
    if (lock == JOURNAL_LOCKED)
        output_remove_name(&p->o, name);
    journal_close(w);
    return lock == JOURNAL_LOCKED;
}

bool output_remove_orphans(const char *path, const char *partial)
{
    place p;
    struct stat st;
    size_t stem_nbytes;
    const size_t n = strlen(partial) - strlen(".partial");
    bool removed = open_place(&p, path, NULL) == FSDPCK_OK &&
                   fstatat(p.o.parent.fd, partial, &st, AT_SYMLINK_NOFOLLOW) != 0;
    for (size_t i = 0; removed && i < p.count; i++)
        if (parse(&p, p.names[i], &stem_nbytes) == LEFTOVER_JOURNAL && stem_nbytes == n &&
            strncmp(p.names[i], partial, n) == 0)
            removed = remove_journal(&p, p.names[i]);
    close_place(&p);
    return removed;
}

void output_remains_release(output_remains *found)
{
    for (size_t i = 0; i < found->list.count; i++)
        free(VEC_AT(&found->list, output_remain, i)->partial);
    vec_release(&found->list);
}
