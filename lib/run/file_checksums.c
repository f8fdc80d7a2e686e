#include "run/file_checksums.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/sha256.h"
#include "base/text.h"
#include "group/assignment.h"

/* Bytes per read: fits the L2 cache. */
#define READ_NBYTES ((uint64_t)1 << 20)
/* Bytes per job: several workers share a large file. */
#define JOB_NBYTES ((uint64_t)16 << 20)

void file_checksums_init(file_checksums *s, const folder *dir, bool no_follow)
{
    *s = (file_checksums){.dir = dir, .no_follow = no_follow, .files = VEC_OF(file_checksum, NULL)};
}

void file_checksums_release(file_checksums *s)
{
    for (size_t i = 0; i < s->files.count; i++)
        free(VEC_AT(&s->files, file_checksum, i)->name);
    vec_release(&s->files);
}

void file_checksums_use_group(file_checksums *s, const fsdpck_checkpoint *src)
{
    s->group = src->ctx->group;
    s->source_folder = src->remote_files;
}

fsdpck_status file_checksums_add(file_checksums *s, const char *name, uint64_t nbytes,
                                 fsdpck_error *err)
{
    file_checksum *f = vec_push(&s->files, err);
    if (f == NULL)
        return FSDPCK_LIMIT;
    f->nbytes = nbytes;
    f->name = strdup(name);
    return f->name != NULL ? FSDPCK_OK : error_set_nomem(err, strlen(name));
}

/* ---- which files ---- */

static bool is_left_out(const char *name)
{
    return strcmp(name, MANIFEST_NAME) == 0 || (name[0] == '.' && strcmp(name, ".metadata") != 0);
}

typedef fsdpck_status (*entry_fn)(void *arg, const char *name, path_kind kind, uint64_t nbytes,
                                  fsdpck_error *err);

static fsdpck_status walk_entries(const folder *dir, const char *sub, entry_fn fn, void *arg,
                                  fsdpck_error *err)
{
    char **names;
    size_t count;
    text_buf path = {0};
    RETURN_IF(folder_list(dir, sub[0] == '\0' ? NULL : sub, &names, &count, err));
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        path_kind kind;
        uint64_t nbytes;
        if (is_left_out(names[i]))
            continue;
        path.nbytes = 0;
        text_printf(&path, "%s%s%s", sub, sub[0] == '\0' ? "" : "/", names[i]);
        st = text_check(&path, err);
        if (st == FSDPCK_OK)
            st = path_probe(dir, path.text, &kind, &nbytes, err);
        if (st == FSDPCK_OK)
            st = fn(arg, path.text, kind, nbytes, err);
    }
    text_release(&path);
    free(names);
    return st;
}

typedef struct files_only {
    file_checksums_name_fn fn;
    void *arg;
} files_only;

static fsdpck_status pass_file(void *arg, const char *name, path_kind kind, uint64_t nbytes,
                               fsdpck_error *err)
{
    const files_only *f = arg;
    return kind == PATH_FILE ? f->fn(f->arg, name, nbytes, err) : FSDPCK_OK;
}

fsdpck_status file_checksums_walk(const folder *dir, const char *sub, file_checksums_name_fn fn,
                                  void *arg, fsdpck_error *err)
{
    files_only f = {fn, arg};
    return walk_entries(dir, sub, pass_file, &f, err);
}

typedef struct tree {
    file_checksums *s;
    strtab read; /* folders that lead to files of the catalogue */
    strtab subs; /* folders to list */
} tree;

/* The folders of a path. */
static fsdpck_status add_read(tree *t, const char *path, fsdpck_error *err)
{
    uint32_t id;
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/'))
        RETURN_IF(strtab_intern(&t->read, path, (size_t)(at - path), &id, err));
    return FSDPCK_OK;
}

/* Links to folders, which may form cycles, and other steps of the run are not entered. */
static fsdpck_status is_entered(const folder *dir, const char *name, bool *is, fsdpck_error *err)
{
    char *inside = folder_path_join(name, "file");
    if (inside == NULL)
        return error_set_nomem(err, strlen(name));
    *is = path_check_folders(dir, inside, NULL) == FSDPCK_OK &&
          !nested_folder_is_step(text_file_name(name));
    free(inside);
    return FSDPCK_OK;
}

static fsdpck_status add_entry(void *arg, const char *name, path_kind kind, uint64_t nbytes,
                               fsdpck_error *err)
{
    tree *t = arg;
    uint32_t id;
    bool is = true;
    if (kind == PATH_FILE)
        return file_checksums_add(t->s, name, nbytes, err);
    if (kind != PATH_FOLDER)
        return FSDPCK_OK;
    if (strtab_find(&t->read, name, strlen(name)) == STRTAB_NONE)
        RETURN_IF(is_entered(t->s->dir, name, &is, err));
    return is ? strtab_intern(&t->subs, name, strlen(name), &id, err) : FSDPCK_OK;
}

typedef struct folders_only {
    const folder *dir;
    strtab *folders;
} folders_only;

static fsdpck_status add_folder(void *arg, const char *name, path_kind kind, uint64_t nbytes,
                                fsdpck_error *err)
{
    const folders_only *f = arg;
    bool is = false;
    uint32_t id;
    (void)nbytes;
    if (kind == PATH_FOLDER)
        RETURN_IF(is_entered(f->dir, name, &is, err));
    return is ? strtab_intern(f->folders, name, strlen(name), &id, err) : FSDPCK_OK;
}

fsdpck_status file_checksums_list_folders(const folder *dir, const char *sub, strtab *folders,
                                          fsdpck_error *err)
{
    folders_only f = {dir, folders};
    return walk_entries(dir, sub, add_folder, &f, err);
}

static fsdpck_status find_read_folders(tree *t, const manifest_base *b,
                                       const fsdpck_checkpoint *src, fsdpck_error *err)
{
    const catalogue *cat = src->adapter == NULL ? &src->cat : &src->read;
    const bool is_folder = src->probe.is_folder;
    const char *side = src->cat.origin.side_folder;
    text_buf name = {0};
    uint32_t id;
    fsdpck_status st = side[0] == '\0' ? FSDPCK_OK : manifest_base_name(b, side, &name, err);
    if (st == FSDPCK_OK && side[0] != '\0')
        st = strtab_intern(&t->read, name.text, name.nbytes, &id, err);
    if (st == FSDPCK_OK && side[0] == '.') /* otherwise listed as any other */
        st = strtab_intern(&t->subs, name.text, name.nbytes, &id, err);
    for (size_t i = 0; st == FSDPCK_OK && i < catalogue_file_count(cat); i++) {
        const uint32_t path = catalogue_file(cat, i)->path;
        st = manifest_base_name(b, is_folder ? catalogue_name(cat, path) : src->probe.name, &name,
                                err);
        if (st == FSDPCK_OK)
            st = add_read(t, name.text, err);
    }
    text_release(&name);
    return st;
}

static fsdpck_status add_tree(tree *t, const fsdpck_checkpoint *src, fsdpck_error *err)
{
    for (uint32_t i = 0; i < strtab_count(&t->subs); i++) {
        char *sub = strdup(strtab_text(&t->subs, i)); /* the table grows */
        if (sub == NULL)
            return error_set_nomem(err, strtab_nbytes(&t->subs, i));
        fsdpck_error why = FSDPCK_ERROR_INIT;
        const bool is_read = i == 0 || strtab_find(&t->read, sub, strlen(sub)) != STRTAB_NONE;
        fsdpck_status st = walk_entries(t->s->dir, sub, add_entry, t, &why);
        if (st == FSDPCK_IO && !is_read) {
            log_warn(&src->ctx->log, FSDPCK_FINDING_SIDE_UNREAD,
                     "make it readable: its files are not in the list", "'%s' cannot be read: %s",
                     sub, why.message);
            st = FSDPCK_OK;
        }
        free(sub);
        if (st != FSDPCK_OK && err != NULL)
            *err = why;
        RETURN_IF(st);
    }
    return FSDPCK_OK;
}

fsdpck_status file_checksums_add_checkpoint(file_checksums *s, const manifest_base *b,
                                            const fsdpck_checkpoint *src, fsdpck_error *err)
{
    tree t = {.s = s};
    if (!src->probe.is_folder && !b->is_above)
        return file_checksums_add(s, src->probe.name, src->probe.nbytes, err);
    strtab_init(&t.read, NULL);
    strtab_init(&t.subs, NULL);
    uint32_t id;
    fsdpck_status st = strtab_intern(&t.subs, "", 0, &id, err);
    if (st == FSDPCK_OK)
        st = find_read_folders(&t, b, src, err);
    if (st == FSDPCK_OK)
        st = add_tree(&t, src, err);
    strtab_release(&t.read);
    strtab_release(&t.subs);
    return st;
}

/* ---- reading ---- */

typedef struct job {
    size_t file;
    uint64_t begin, end;
} job;

typedef struct work {
    const file_checksums_request *r;
    vec jobs;         /* job */
    uint8_t **pieces; /* by worker */
    sha256 **hashes;  /* by worker; where wanted */
} work;

static fsdpck_status run_job(void *arg, unsigned worker, uint64_t number, fsdpck_error *err)
{
    const work *w = arg;
    const file_checksums_request *r = w->r;
    const job *j = VEC_AT(&w->jobs, const job, number);
    file_checksum *f = &r->files[j->file];
    sha256 *hash = w->hashes == NULL ? NULL : w->hashes[worker];
    uint64_t raw = 0;
    if (hash != NULL)
        sha256_begin(hash);
    for (uint64_t at = j->begin; at < j->end;) {
        const uint64_t n = j->end - at < READ_NBYTES ? j->end - at : READ_NBYTES;
        RETURN_IF(cancel_check(r->cancel, err));
        RETURN_IF(r->read_at(r->arg, j->file, at, w->pieces[worker], n, err));
        if (r->what & CHECKSUM_CRC64)
            raw = crc64_raw(raw, w->pieces[worker], n);
        if (hash != NULL)
            sha256_add(hash, w->pieces[worker], n);
        progress_add(r->progress, n);
        at += n;
    }
    (void)__atomic_fetch_xor(&f->crc64, crc64_shift(raw, f->nbytes - j->end), __ATOMIC_RELAXED);
    return hash == NULL ? FSDPCK_OK : sha256_end(hash, f->sha256, err);
}

static fsdpck_status list_jobs(work *w, fsdpck_error *err)
{
    for (size_t i = 0; i < w->r->count; i++) {
        const uint64_t nbytes = w->r->files[i].nbytes;
        const uint64_t step = w->r->what & CHECKSUM_SHA256 ? UINT64_MAX : JOB_NBYTES;
        uint64_t at = 0;
        do {
            job *j = vec_push(&w->jobs, err);
            if (j == NULL)
                return FSDPCK_LIMIT;
            *j = (job){i, at, nbytes - at < step ? nbytes : at + step};
            at = j->end;
        } while (at < nbytes);
        if (w->r->what & CHECKSUM_CRC64)
            w->r->files[i].crc64 = crc64_zeros(nbytes);
    }
    return FSDPCK_OK;
}

static fsdpck_status begin(work *w, unsigned workers, fsdpck_error *err)
{
    w->pieces = calloc(workers, sizeof *w->pieces);
    if (w->r->what & CHECKSUM_SHA256)
        w->hashes = calloc(workers, sizeof *w->hashes);
    if (w->pieces == NULL || ((w->r->what & CHECKSUM_SHA256) && w->hashes == NULL))
        return error_set_nomem(err, workers * sizeof *w->pieces);
    for (unsigned i = 0; i < workers; i++) {
        w->pieces[i] = malloc(READ_NBYTES);
        if (w->pieces[i] == NULL)
            return error_set_nomem(err, READ_NBYTES);
        if (w->hashes != NULL)
            RETURN_IF(sha256_new(&w->hashes[i], err));
    }
    return list_jobs(w, err);
}

/* Keeps this rank's jobs; checksums made before them count once. */
static fsdpck_status keep_own_jobs(work *w, fsdpck_error *err)
{
    const file_checksums *s = w->r->shared;
    job *list = w->jobs.items;
    uint64_t total = 0, largest = 0;
    size_t kept = 0;
    assignment d;
    for (size_t i = 0; i < w->jobs.count; i++) {
        const uint64_t nbytes = list[i].end - list[i].begin;
        total += nbytes;
        largest = nbytes > largest ? nbytes : largest;
    }
    RETURN_IF(assignment_init(&d, group_size(s->group), NULL, total, largest, err));
    for (size_t i = 0; i < w->jobs.count; i++) {
        const uint64_t nbytes = list[i].end - list[i].begin;
        assignment_add_local_file(&d, s->source_folder, w->r->files[list[i].file].name, nbytes);
        if (assignment_next(&d, nbytes) == group_rank(s->group))
            list[kept++] = list[i];
    }
    w->jobs.count = kept;
    assignment_release(&d);
    for (size_t i = 0; group_rank(s->group) > 0 && i < w->r->count; i++)
        w->r->files[i].crc64 = 0;
    return FSDPCK_OK;
}

/* A rank's checksums are zero for files it has not read. */
enum { SHA_WORDS = 4, SUM_WORDS = 1 + SHA_WORDS };

static fsdpck_status all_reduce_checksums(const work *w, fsdpck_error *err)
{
    const file_checksums_request *r = w->r;
    uint64_t *words = calloc(r->count + 1, SUM_WORDS * sizeof *words);
    const fsdpck_status made =
        words != NULL ? FSDPCK_OK : error_set_nomem(err, r->count * SUM_WORDS * sizeof *words);
    fsdpck_status st = group_agree(r->shared->group, made, err);
    for (size_t i = 0; st == FSDPCK_OK && i < r->count; i++) {
        words[SUM_WORDS * i] = r->files[i].crc64;
        memcpy(words + SUM_WORDS * i + 1, r->files[i].sha256, sizeof r->files[i].sha256);
    }
    if (st == FSDPCK_OK)
        st = group_xor(r->shared->group, words, r->count * SUM_WORDS, err);
    for (size_t i = 0; st == FSDPCK_OK && i < r->count; i++) {
        r->files[i].crc64 = words[SUM_WORDS * i];
        memcpy(r->files[i].sha256, words + SUM_WORDS * i + 1, sizeof r->files[i].sha256);
    }
    free(words);
    return st;
}

static fsdpck_status run_shared(work *w, unsigned workers, fsdpck_status st, fsdpck_error *err)
{
    group *g = w->r->shared->group;
    if (st == FSDPCK_OK)
        st = keep_own_jobs(w, err);
    RETURN_IF(group_agree(g, st, err));
    st = pool_run(workers, w->jobs.count, run_job, w, w->r->cancel, err);
    RETURN_IF(group_agree(g, st, err));
    return all_reduce_checksums(w, err);
}

fsdpck_status file_checksums_run(const file_checksums_request *r, fsdpck_error *err)
{
    work w = {.r = r, .jobs = VEC_OF(job, NULL)};
    const unsigned workers = r->nthreads > 0 ? r->nthreads : 1;
    fsdpck_status st = begin(&w, workers, err);
    if (r->shared != NULL)
        st = run_shared(&w, workers, st, err);
    else if (st == FSDPCK_OK)
        st = pool_run(workers, w.jobs.count, run_job, &w, r->cancel, err);
    for (unsigned i = 0; i < workers; i++) {
        if (w.pieces != NULL)
            free(w.pieces[i]);
        if (w.hashes != NULL)
            sha256_free(w.hashes[i]);
    }
    free(w.pieces);
    free(w.hashes);
    vec_release(&w.jobs);
    return st;
}

static fsdpck_status read_set(void *arg, size_t file_index, uint64_t offset_bytes, void *dst,
                              uint64_t nbytes, fsdpck_error *err)
{
    return file_set_read_at(arg, (uint32_t)file_index, offset_bytes, dst, nbytes, err);
}

fsdpck_status file_checksums_read(file_checksums *s, fsdpck_context *ctx, unsigned nthreads,
                                  unsigned what, fsdpck_error *err)
{
    file_set set = {0};
    uint64_t nbytes = 0;
    fsdpck_status st = file_set_init(&set, s->dir, 0, s->no_follow ? FILE_NO_FOLLOW : 0, err);
    for (size_t i = 0; st == FSDPCK_OK && i < s->files.count; i++) {
        const file_checksum *f = VEC_AT(&s->files, const file_checksum, i);
        uint32_t index;
        nbytes += f->nbytes;
        st = file_set_add(&set, f->name, &index, err);
    }
    const file_checksums_request r = {
        .files = s->files.items,
        .count = s->files.count,
        .what = what,
        .nthreads = nthreads,
        .read_at = read_set,
        .arg = &set,
        .cancel = &ctx->cancel,
        .progress = &ctx->progress,
        .shared = s->group != NULL ? s : NULL,
    };
    progress_phase(&ctx->progress, "checksumming files", nbytes);
    st = group_agree(s->group, st, err);
    if (st == FSDPCK_OK)
        st = file_checksums_run(&r, err);
    if (st == FSDPCK_OK)
        st = group_agree(s->group, file_set_check_unchanged(&set, err), err);
    file_set_release(&set);
    return st;
}
