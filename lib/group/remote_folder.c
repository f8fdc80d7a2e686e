#include "group/remote_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "io/file_set.h"

/* Entries of one rank's folder. */
#define NAMES_NBYTES_MAX ((uint64_t)1 << 30)
/* Sent before each path: kind, bytes, identity. */
#define ENTRY_NUMBERS 3
#define NOT_MINE      UINT32_MAX

/* Order of transfer and of the union: by path, then by rank. */
typedef struct remote_entry {
    const char *path; /* in view.texts */
    uint64_t nbytes;
    uint64_t identity; /* path_identity */
    uint32_t kind;     /* path_kind */
    uint32_t rank;
    uint32_t served;                /* on its rank: index in view.files */
    uint32_t mine;                  /* here, or NOT_MINE */
    uint32_t holders, holder_count; /* in view.holders */
    bool in_doubt;                  /* on several hosts, as distinct files of equal size */
} remote_entry;

struct remote_folder {
    remote remote;
    group *g;
    unsigned flags;
    uint32_t number;      /* of the group's views */
    folder dir;           /* here; may be closed */
    size_t prefix_nbytes; /* "HOST:" before names */
    file_set files;       /* that others may ask for: by index of `own` */
    vec texts;            /* char *, owned */
    vec entries;          /* remote_entry, one for each path: of the lowest rank that has it */
    vec holders;          /* uint32_t: ranks, for one entry after the other */
    _Atomic uint64_t travelled;
};

/* ---- files of this host ---- */

/* The host name is prefixed to its files and folders; locally, v->prefix_nbytes are skipped. */
static fsdpck_status put_entry(const remote_folder *v, text_buf *t, const char *path,
                               path_kind kind, uint64_t nbytes, uint64_t identity,
                               fsdpck_error *err)
{
    const uint64_t numbers[ENTRY_NUMBERS] = {(uint64_t)kind, nbytes, identity};
    text_append(t, (const char *)numbers, sizeof numbers);
    if (v->prefix_nbytes > 0)
        text_printf(t, "%s:", group_host(v->g, group_rank(v->g)));
    text_append(t, path, strlen(path) + 1);
    return text_check(t, err);
}

/* Names in the folder, or in `sub` of it, and in folders there where deeper. */
static fsdpck_status put_folder(const remote_folder *v, const char *sub, bool deeper, text_buf *t,
                                fsdpck_error *err)
{
    const folder *d = &v->dir;
    char **names;
    size_t count;
    text_buf path = {0};
    RETURN_IF(folder_list(d, sub, &names, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        path_kind kind;
        uint64_t nbytes, identity;
        path.nbytes = 0;
        text_printf(&path, "%s%s%s", sub, sub[0] != '\0' ? "/" : "", names[i]);
        st = text_check(&path, err);
        if (st == FSDPCK_OK)
            st = path_identify(d, path.text, &kind, &nbytes, &identity, NULL, err);
        if (st == FSDPCK_OK && (kind == PATH_FILE || kind == PATH_FOLDER))
            st = put_entry(v, t, path.text, kind, nbytes, identity, err);
        if (st == FSDPCK_OK && kind == PATH_FOLDER && deeper)
            st = put_folder(v, path.text, false, t, err);
    }
    text_release(&path);
    free(names);
    return st;
}

/* ---- files of all hosts ---- */

static int compare_entries(const void *a, const void *b)
{
    const remote_entry *one = a, *two = b;
    const int order = strcmp(one->path, two->path);
    return order != 0 ? order : (one->rank > two->rank) - (one->rank < two->rank);
}

/* One rank's text, kept. */
static fsdpck_status parse_entries(remote_folder *v, char *text, uint64_t nbytes, uint32_t rank,
                                   fsdpck_error *err)
{
    uint32_t served = 0;
    for (uint64_t at = 0; at < nbytes; served++) {
        uint64_t numbers[ENTRY_NUMBERS];
        memcpy(numbers, text + at, sizeof numbers);
        remote_entry *e = vec_push(&v->entries, err);
        if (e == NULL)
            return FSDPCK_LIMIT;
        *e = (remote_entry){.path = text + at + sizeof numbers,
                            .kind = (uint32_t)numbers[0],
                            .nbytes = numbers[1],
                            .identity = numbers[2],
                            .rank = rank,
                            .served = served,
                            .mine = rank == group_rank(v->g) ? served : NOT_MINE};
        at += sizeof numbers + strlen(e->path) + 1;
        if (rank == group_rank(v->g)) {
            uint32_t index;
            RETURN_IF(file_set_add(&v->files, e->path + v->prefix_nbytes, &index, err));
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status receive_entries(void *ctx, unsigned rank, const uint8_t *bytes,
                                     uint64_t nbytes, fsdpck_error *err)
{
    remote_folder *v = ctx;
    char *text = nbytes <= NAMES_NBYTES_MAX ? malloc(nbytes) : NULL;
    char **kept = text != NULL ? vec_push(&v->texts, err) : NULL;
    if (kept == NULL) {
        free(text);
        return error_set_nomem(err, nbytes);
    }
    *kept = text;
    memcpy(text, bytes, nbytes);
    return parse_entries(v, text, nbytes, rank, err);
}

static fsdpck_status refuse_names(const remote_folder *v, const char *path,
                                  const remote_entry *first, uint32_t other, const char *expected,
                                  const char *found, fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, GROUP_NAMES,
                     ("two hosts have different files with the same name"), (path, path),
                     (expected, "'%s' with %s, as on rank %u on %s", first->path, expected,
                      first->rank, group_host(v->g, first->rank)),
                     (found, "%s on rank %u on %s", found, other, group_host(v->g, other)));
}

static fsdpck_status refuse_sizes(const remote_folder *v, const char *path,
                                  const remote_entry *first, const remote_entry *other,
                                  fsdpck_error *err)
{
    char one[40], two[40];
    snprintf(one, sizeof one, "%" PRIu64 " bytes", first->nbytes);
    snprintf(two, sizeof two, "%" PRIu64 " bytes", other->nbytes);
    return refuse_names(v, path, first, other->rank, one, two, err);
}

/* Of each path the lowest rank's; sizes must agree. */
static fsdpck_status merge_entries(remote_folder *v, const char *path, fsdpck_error *err)
{
    remote_entry *all = v->entries.items;
    size_t kept = 0;
    qsort(all, v->entries.count, sizeof *all, compare_entries);
    for (size_t i = 0; i < v->entries.count; i++) {
        remote_entry *first = kept > 0 ? &all[kept - 1] : NULL;
        RETURN_IF(vec_add(&v->holders, &(uint32_t){all[i].rank}, err));
        if (first == NULL || strcmp(first->path, all[i].path) != 0) {
            all[kept] = all[i];
            all[kept].holders = (uint32_t)i;
            all[kept++].holder_count = 1;
            continue;
        }
        first->holder_count++;
        if (first->kind != all[i].kind || first->nbytes != all[i].nbytes)
            return refuse_sizes(v, path, first, &all[i], err);
        first->in_doubt |= first->identity != all[i].identity;
        if (all[i].mine != NOT_MINE)
            first->mine = all[i].mine;
    }
    v->entries.count = kept;
    return FSDPCK_OK;
}

/* ---- files of one name and size ---- */

typedef struct samples {
    remote_folder *v;
    const char *path;
    uint64_t *own;    /* of each uncertain entry, in order */
    uint64_t *lowest; /* the sample of the lowest rank that has it */
    size_t count;
} samples;

static fsdpck_status receive_samples(void *ctx, unsigned rank, const uint8_t *bytes,
                                     uint64_t nbytes, fsdpck_error *err)
{
    const samples *s = ctx;
    size_t k = 0;
    if (nbytes != s->count * sizeof(uint64_t))
        return FAIL(err, INTERNAL, NONE, "ranks compare different files");
    for (size_t i = 0; i < s->v->entries.count; i++) {
        const remote_entry *e = VEC_AT(&s->v->entries, const remote_entry, i);
        if (!e->in_doubt)
            continue;
        uint64_t sample;
        memcpy(&sample, bytes + k * sizeof sample, sizeof sample);
        if (e->rank == rank)
            s->lowest[k] = sample;
        else if (ranks_contain(VEC_AT(&s->v->holders, const uint32_t, e->holders), e->holder_count,
                               rank) &&
                 sample != s->lowest[k])
            return refuse_names(s->v, s->path, e, rank, "the same bytes",
                                "different bytes, of the same size,", err);
        k++;
    }
    return FSDPCK_OK;
}

static fsdpck_status take_own_samples(samples *s, fsdpck_error *err)
{
    size_t k = 0;
    s->own = calloc(s->count, sizeof *s->own);
    s->lowest = calloc(s->count, sizeof *s->lowest);
    if (s->own == NULL || s->lowest == NULL)
        return error_set_nomem(err, 2 * s->count * sizeof *s->own);
    for (size_t i = 0; i < s->v->entries.count; i++) {
        const remote_entry *e = VEC_AT(&s->v->entries, const remote_entry, i);
        if (e->in_doubt && e->mine != NOT_MINE)
            RETURN_IF(file_set_sample(&s->v->files, e->mine, e->nbytes, &s->own[k], err));
        k += e->in_doubt;
    }
    return FSDPCK_OK;
}

/* Checks that files of one name and size are copies: an older checkpoint may have equal sizes. */
static fsdpck_status compare_samples(remote_folder *v, const char *path, fsdpck_error *err)
{
    samples s = {.v = v, .path = path};
    for (size_t i = 0; i < v->entries.count; i++)
        s.count += VEC_AT(&v->entries, const remote_entry, i)->in_doubt;
    if (s.count == 0)
        return FSDPCK_OK;
    const fsdpck_status taken = take_own_samples(&s, err);
    const fsdpck_status st = group_all_gather(v->g, taken, GROUP_STOPS, s.own,
                                              s.count * sizeof *s.own, receive_samples, &s, err);
    free(s.own);
    free(s.lowest);
    return st;
}

static fsdpck_status exchange(remote_folder *v, const char *path, const text_buf *own,
                              fsdpck_error *err)
{
    fsdpck_status st = group_all_gather_part(v->g, FSDPCK_OK, GROUP_STOPS, own->text, own->nbytes,
                                             receive_entries, v, err);
    if (st == FSDPCK_OK)
        st = merge_entries(v, path, err);
    RETURN_IF(group_agree_result(v->g, st, true, err));
    return compare_samples(v, path, err);
}

/* ---- the remote ---- */

static const remote_entry *entry_named(const remote_folder *v, const char *path)
{
    const remote_entry *all = v->entries.items;
    size_t low = 0, high = v->entries.count;
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(all[middle].path, path);
        if (order == 0)
            return &all[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool find_remote(void *ctx, const char *path, path_kind *kind, uint64_t *nbytes,
                        uint32_t *id)
{
    const remote_folder *v = ctx;
    const remote_entry *e = entry_named(v, path);
    if (e == NULL)
        return false;
    *kind = (path_kind)e->kind;
    *nbytes = e->nbytes;
    *id = (uint32_t)(e - (const remote_entry *)v->entries.items);
    return true;
}

static void list_remote(void *ctx, const char *sub, text_buf *names, size_t *count)
{
    const remote_folder *v = ctx;
    const size_t skip = sub[0] == '\0' ? 0 : strlen(sub) + 1;
    for (size_t i = 0; i < v->entries.count; i++) {
        const char *path = VEC_AT(&v->entries, remote_entry, i)->path;
        if (skip > 0 && (strncmp(path, sub, skip - 1) != 0 || path[skip - 1] != '/'))
            continue;
        if (strchr(path + skip, '/') != NULL)
            continue;
        text_append(names, path + skip, strlen(path + skip) + 1);
        ++*count;
    }
}

static fsdpck_status read_remote(void *ctx, uint32_t id, uint64_t offset, void *dst,
                                 uint64_t nbytes, fsdpck_error *err)
{
    remote_folder *v = ctx;
    const remote_entry *e = VEC_AT(&v->entries, remote_entry, id);
    const link_range what = {v->number, e->served, offset, nbytes};
    if (e->mine != NOT_MINE) /* under the name of its host */
        return file_set_read_at(&v->files, e->mine, offset, dst, nbytes, err);
    const fsdpck_status st = group_read(v->g, e->rank, &what, dst, err);
    if (st != FSDPCK_OK && err != NULL && err->rank < 0)
        err->rank = (int)e->rank;
    atomic_fetch_add_explicit(&v->travelled, nbytes, memory_order_relaxed);
    return st;
}

static fsdpck_status serve(void *ctx, const link_range *what, void *dst, fsdpck_error *err)
{
    remote_folder *v = ctx;
    return file_set_read_at(&v->files, what->file, what->offset, dst, what->nbytes, err);
}

/* ---- life ---- */

static fsdpck_status open_here(remote_folder *v, const folder *here, fsdpck_error *err)
{
    if (here->path == NULL)
        return FSDPCK_OK;
    RETURN_IF(folder_open_same(&v->dir, here, here->path, err));
    return file_set_init(&v->files, &v->dir, 0,
                         (v->flags & REMOTE_FOLDER_NO_FOLLOW) != 0 ? FILE_NO_FOLLOW : 0, err);
}

static fsdpck_status begin(group *g, const folder *here, unsigned flags, text_buf *own,
                           remote_folder **out, fsdpck_error *err)
{
    remote_folder *v = calloc(1, sizeof *v);
    if (v == NULL)
        return error_set_nomem(err, sizeof *v);
    *out = v;
    v->g = g;
    v->flags = flags;
    if ((flags & REMOTE_FOLDER_BY_HOST) != 0)
        v->prefix_nbytes = strlen(group_host(g, group_rank(g))) + 1;
    v->dir = FOLDER_CLOSED;
    v->remote = (remote){v, find_remote, list_remote, read_remote};
    v->texts = VEC_OF(char *, NULL);
    v->entries = VEC_OF(remote_entry, NULL);
    v->holders = VEC_OF(uint32_t, NULL);
    RETURN_IF(open_here(v, here, err));
    return here->path == NULL ? FSDPCK_OK : put_folder(v, "", true, own, err);
}

static fsdpck_status create(group *g, const char *path, const folder *here, unsigned flags,
                            text_buf *own, remote_folder **v, fsdpck_error *err)
{
    bool same;
    const fsdpck_status st = begin(g, here, flags, own, v, err);
    const uint64_t sum = crc64_update(0, own->text, own->nbytes) + own->nbytes;
    RETURN_IF(group_is_same(g, st, GROUP_STOPS, sum, &same, err));
    if (same && here->path == NULL)
        return FAIL_WITH(err, IO, NONE, ("no such file or folder on any host"), (path, path),
                         (sys_errno, ENOENT));
    if (same) {
        remote_folder_free(*v);
        *v = NULL;
        return FSDPCK_OK;
    }
    (*v)->number = group_serve(g, serve, *v); /* before the last agreement of exchange() */
    return exchange(*v, path, own, err);
}

fsdpck_status remote_folder_new(group *g, const char *path, const folder *here, unsigned flags,
                                remote_folder **out, fsdpck_error *err)
{
    text_buf own = {.limit_bytes = NAMES_NBYTES_MAX};
    *out = NULL;
    if (g == NULL)
        return FSDPCK_OK;
    const fsdpck_status st = create(g, path, here, flags, &own, out, err);
    text_release(&own);
    if (st != FSDPCK_OK) {
        remote_folder_free(*out);
        *out = NULL;
    }
    return st;
}

const uint32_t *remote_folder_holders(const remote_folder *v, const char *path, uint32_t *count)
{
    const remote_entry *e = v == NULL ? NULL : entry_named(v, path);
    *count = e == NULL ? 0 : e->holder_count;
    return e == NULL ? NULL : VEC_AT(&v->holders, const uint32_t, e->holders);
}

bool ranks_contain(const uint32_t *ranks, uint32_t count, unsigned rank)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranks[low] == rank;
}

uint64_t remote_folder_received_nbytes(const remote_folder *v)
{
    return v == NULL ? 0 : atomic_load(&v->travelled);
}

const remote *remote_folder_get_remote(const remote_folder *v)
{
    return v == NULL ? NULL : &v->remote;
}

fsdpck_status remote_folder_check_unchanged(remote_folder *v, fsdpck_error *err)
{
    return v == NULL || v->dir.path == NULL ? FSDPCK_OK : file_set_check_unchanged(&v->files, err);
}

void remote_folder_free(remote_folder *v)
{
    if (v == NULL)
        return;
    group_stop_serving(v->g, v);
    file_set_release(&v->files);
    folder_close(&v->dir);
    for (size_t i = 0; i < v->texts.count; i++)
        free(*VEC_AT(&v->texts, char *, i));
    VEC_RELEASE_ALL(&v->texts, &v->entries, &v->holders);
    free(v);
}
