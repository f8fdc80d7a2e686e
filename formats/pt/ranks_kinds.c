#include "formats/pt/ranks_kinds.h"

#include <stdlib.h>

static uint64_t hash_of(const char *text, size_t nbytes)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < nbytes; i++)
        h = (h ^ (uint8_t)text[i]) * UINT64_C(0x100000001B3);
    return (h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
}

fsdpck_status ranks_note_kind(const ranks_parse *p, uint32_t flat, ranks_kind kind,
                              fsdpck_error *err)
{
    vec *contents = &p->s->contents;
    const size_t index = p->file->index;
    if (contents->count <= index && vec_push_n(contents, index + 1 - contents->count, err) == NULL)
        return FSDPCK_LIMIT;
    ranks_content *c = VEC_AT(contents, ranks_content, index);
    c->names_sum += hash_of(strtab_text(&p->flat.flat, flat), strtab_nbytes(&p->flat.flat, flat));
    c->tensors++;
    c->sharded += kind != RANKS_PLAIN;
    return FSDPCK_OK;
}

/* ---- after all files are read ---- */

static ranks_content content_of(const ranks_state *s, const ranks_file *f)
{
    return f->index < s->contents.count ? *VEC_AT(&s->contents, const ranks_content, f->index)
                                        : (ranks_content){0};
}

/* One file with the same names of tensors as a file. */
typedef struct same_names {
    uint64_t sum;
    uint32_t family;
    uint32_t file; /* in the list */
} same_names;

static int compare_names(const void *a, const void *b)
{
    const same_names *x = a, *y = b;
    ORDER_BY(x->sum, y->sum);
    ORDER_BY(x->family, y->family);
    return x->file < y->file ? -1 : x->file > y->file;
}

/* The files of family f are those from begins[f] to begins[f + 1] of the list. */
typedef struct kinds_search {
    const ranks_state *s;
    size_t *begins;
    uint8_t *warned; /* by family */
} kinds_search;

static const ranks_file *file_at(const kinds_search *x, size_t i)
{
    return VEC_AT(&x->s->list->files, const ranks_file, i);
}

static void warn_of_kind(const kinds_search *x, const ranks_file *f, const char *what,
                         const char *other)
{
    if (x->warned[f->family])
        return;
    x->warned[f->family] = 1;
    log_warn(&x->s->req->log, FSDPCK_FINDING_RANK_KIND,
             "copy the file again from the machine that wrote it", "'%s' contains %s'%s'", f->name,
             what, other);
}

/* A file without sharded tensors where others of the family have some, or the reverse. */
static void warn_unsharded(const kinds_search *x, uint32_t family)
{
    const ranks_file *first[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    for (size_t i = x->begins[family]; i < x->begins[family + 1]; i++) {
        const ranks_file *f = file_at(x, i);
        const bool has = content_of(x->s, f).sharded > 0;
        first[has] = count[has]++ == 0 ? f : first[has];
    }
    if (count[0] == 0 || count[1] == 0)
        return;
    const bool lone = count[1] < count[0];
    warn_of_kind(x, first[lone],
                 lone ? "sharded tensors, unlike most files of this kind, such as "
                      : "no sharded tensor, unlike other files of this kind, such as ",
                 first[!lone]->name);
}

/* Whether some file of the family has other names: then names differ between the kinds. */
static bool has_other_names(const kinds_search *x, uint32_t family, uint64_t sum)
{
    for (size_t i = x->begins[family]; i < x->begins[family + 1]; i++)
        if (content_of(x->s, file_at(x, i)).names_sum != sum)
            return true;
    return false;
}

/* Files of several families with equal names: the family with fewer of them should not have them. */
static void warn_of_names(const kinds_search *x, const same_names *same, size_t count)
{
    size_t fewest = 0, least = SIZE_MAX, most = 0;
    for (size_t at = 0; at < count;) {
        size_t end = at + 1;
        while (end < count && same[end].family == same[at].family)
            end++;
        const bool mixed = has_other_names(x, same[at].family, same[at].sum);
        if (mixed && end - at < least) {
            least = end - at;
            fewest = at;
        }
        if (!mixed || end - at > least)
            most = at;
        at = end;
    }
    if (least != SIZE_MAX && same[most].family != same[fewest].family)
        warn_of_kind(x, file_at(x, same[fewest].file),
                     "the tensors of another kind of file, those of ",
                     file_at(x, same[most].file)->name);
}

static fsdpck_status warn_exchanged(const kinds_search *x, fsdpck_error *err)
{
    const ranks_state *s = x->s;
    const size_t nbytes = s->list->files.count * sizeof(same_names);
    same_names *names = budget_alloc(s->req->metadata, nbytes, err);
    size_t count = 0;
    if (names == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < s->list->files.count; i++) {
        const ranks_content c = content_of(s, file_at(x, i));
        if (c.tensors > 0)
            names[count++] = (same_names){c.names_sum, file_at(x, i)->family, (uint32_t)i};
    }
    if (count > 1)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t at = 0; at < count;) {
        size_t end = at + 1;
        while (end < count && names[end].sum == names[at].sum)
            end++;
        if (names[at].family != names[end - 1].family)
            warn_of_names(x, names + at, end - at);
        at = end;
    }
    budget_free(s->req->metadata, names, nbytes);
    return FSDPCK_OK;
}

fsdpck_status ranks_warn_kinds(const ranks_state *s, fsdpck_error *err)
{
    const size_t families = s->list->families.count;
    const size_t nbytes = (families + 1) * (sizeof(size_t) + 1);
    kinds_search x = {.s = s, .begins = budget_alloc(s->req->metadata, nbytes, err)};
    if (x.begins == NULL)
        return FSDPCK_LIMIT;
    x.warned = (uint8_t *)(x.begins + families + 1);
    size_t at = 0;
    for (uint32_t i = 0; i < families; i++) {
        x.begins[i] = at;
        while (at < s->list->files.count && file_at(&x, at)->family == i)
            at++;
    }
    x.begins[families] = at;
    const fsdpck_status st = families > 1 ? warn_exchanged(&x, err) : FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < families; i++)
        warn_unsharded(&x, i);
    budget_free(s->req->metadata, x.begins, nbytes);
    return st;
}
