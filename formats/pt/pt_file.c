#include "formats/pt/pt_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "formats/shared/zip.h"

typedef struct small_record {
    const char *name;
    const char *bytes;
    size_t nbytes;
} small_record;

/* What stands before the storages, behind data.pkl; and behind them. */
static const small_record marks[] = {
    {"archive/.format_version", "1", 1},
    {"archive/.storage_alignment", "64", 2},
    {"archive/byteorder", "little", 6},
};
enum { MARK_COUNT = sizeof(marks) / sizeof(marks[0]) };
static const small_record version_mark = {"archive/version", "3\n", 2};
static const char pickle_name[] = "archive/data.pkl";

enum {
    STORAGE_NAME_NBYTES = 40,
    SHARED_LEAST = 1024 /* bytes of a pickle that are worth a literal of their own */
};

#define NO_CHUNK UINT64_MAX

typedef struct pt_record {
    uint64_t chunk;   /* or NO_CHUNK: */
    uint64_t text_at; /* in target.text */
    uint64_t nbytes;
} pt_record;

typedef struct pt_file {
    uint64_t first_record;
    uint64_t directory_at;
    uint64_t pickle_nbytes;
    uint32_t pickle_crc;
    uint32_t file;
} pt_file;

/* target.writer_state */
typedef struct pt_files {
    budget *owner;
    vec files;      /* pt_file, those that have ended */
    vec records;    /* pt_record, of all files; those of the one that is being made come last */
    uint64_t begun; /* first record of that one */
    /* What the next file may share: the last pickle that was kept whole, and the literals behind
     * the pickle of the last file. */
    uint64_t whole_at, whole_nbytes; /* in target.text */
    vec whole_cuts;                  /* uint64_t */
    vec cuts;                        /* of the file that is being made */
    uint64_t literals_at, nliterals;
} pt_files;

/* The file whose places are being given. */
typedef struct laying {
    target *t;
    pt_files *s;
    uint32_t file;
    uint64_t at;    /* how far the file is laid out */
    text_buf out;   /* bytes that follow at `at` and are no literal yet */
    bool compares;  /* literals are compared with those of the file before */
    uint64_t nth;   /* which one is next */
    uint64_t first; /* literal of this file behind its pickle */
} laying;

static void release_state(void *state)
{
    pt_files *s = state;
    vec_release(&s->files);
    vec_release(&s->records);
    vec_release(&s->whole_cuts);
    vec_release(&s->cuts);
    budget_free(s->owner, s, sizeof *s);
}

static void make_late(const target *t, size_t index, uint32_t crc32, uint8_t *dst)
{
    const target_late *late = VEC_AT(&t->lates, const target_late, index);
    zip_make_descriptor(dst, late->nbytes, crc32, catalogue_chunk(&t->cat, late->chunk)->nbytes);
}

fsdpck_status pt_files_begin(target *t, fsdpck_error *err)
{
    pt_files *s = budget_alloc(t->cat.owner, sizeof *s, err);
    if (s == NULL)
        return FSDPCK_LIMIT;
    s->owner = t->cat.owner;
    s->files = VEC_OF(pt_file, s->owner);
    s->records = VEC_OF(pt_record, s->owner);
    s->whole_cuts = VEC_OF(uint64_t, s->owner);
    s->cuts = VEC_OF(uint64_t, s->owner);
    t->writer_state = s;
    t->free_writer_state = release_state;
    t->make_late = make_late;
    t->want_crc = true;
    return FSDPCK_OK;
}

static fsdpck_status add_record(target *t, pt_record record, uint32_t *number, fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    const uint64_t n = s->records.count - s->begun;
    if (n >= UINT32_MAX)
        return error_set(err, FSDPCK_LIMIT, "", "too many tensors for one file");
    pt_record *added = vec_push(&s->records, err);
    if (added == NULL)
        return FSDPCK_LIMIT;
    *added = record;
    *number = (uint32_t)n;
    return FSDPCK_OK;
}

fsdpck_status pt_file_add_chunk(target *t, uint64_t chunk, uint32_t *number, fsdpck_error *err)
{
    cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    const cat_tensor *tensor = catalogue_tensor(&t->cat, c->tensor);
    uint64_t sizes[NDIM_MAX];

    catalogue_chunk_box(&t->cat, chunk, NULL, sizes);
    c->nbytes = box_nelems(sizes, tensor->ndim) * dtype_get((dtype)tensor->dtype)->itemsize_bytes;
    RETURN_IF(add_record(t, (pt_record){.chunk = chunk, .nbytes = c->nbytes}, number, err));
    c->aux = *number;
    return FSDPCK_OK;
}

fsdpck_status pt_file_add_bytes(target *t, uint64_t text_at, uint64_t nbytes, uint32_t *number,
                                fsdpck_error *err)
{
    return add_record(t, (pt_record){NO_CHUNK, text_at, nbytes}, number, err);
}

fsdpck_status pt_file_cut(target *t, uint64_t pickle_nbytes, fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    uint64_t *added = vec_push(&s->cuts, err);
    if (added == NULL)
        return FSDPCK_LIMIT;
    *added = pickle_nbytes;
    return FSDPCK_OK;
}

static size_t storage_name(uint64_t number, char name[STORAGE_NAME_NBYTES])
{
    return (size_t)snprintf(name, STORAGE_NAME_NBYTES, "archive/data/%" PRIu64, number);
}

/* --- literals --- */

/* The literal of the last file that came at the same place, where it has the same bytes. */
static const target_literal *same_in_last_file(const laying *l)
{
    if (!l->compares || l->nth >= l->s->nliterals)
        return NULL;
    const target_literal *last =
        VEC_AT(&l->t->literals, const target_literal, l->s->literals_at + l->nth);
    if (last->nbytes != l->out.nbytes ||
        memcmp(l->t->text.text + last->text_at, l->out.text, l->out.nbytes) != 0)
        return NULL;
    return last;
}

/* Takes what was gathered as a literal. */
static fsdpck_status flush(laying *l, fsdpck_error *err)
{
    RETURN_IF(text_check(&l->out, err));
    if (l->out.nbytes == 0)
        return FSDPCK_OK;
    const target_literal *same = same_in_last_file(l);
    l->nth += l->compares;
    if (same != NULL)
        RETURN_IF(target_add_literal_at(l->t, l->file, l->at, same->text_at, l->out.nbytes, err));
    else
        RETURN_IF(target_add_literal(l->t, l->file, l->at, l->out.text, l->out.nbytes, err));
    l->at += l->out.nbytes;
    l->out.nbytes = 0;
    return FSDPCK_OK;
}

static fsdpck_status put_known(laying *l, uint64_t text_at, uint64_t nbytes, fsdpck_error *err)
{
    RETURN_IF(flush(l, err));
    if (nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(target_add_literal_at(l->t, l->file, l->at, text_at, nbytes, err));
    l->nth += l->compares;
    l->at += nbytes;
    return FSDPCK_OK;
}

/* Bytes that [begin, end) of a pickle has in common with the end of [from, to) of the kept one; 0
 * where they are not worth it. */
static uint64_t same_end_nbytes(const laying *l, const text_buf *pickle, uint64_t begin,
                                uint64_t end, uint64_t from, uint64_t to)
{
    const char *whole = l->t->text.text + l->s->whole_at;
    uint64_t n = 0;
    while (n < end - begin && n < to - from && pickle->text[end - 1 - n] == whole[to - 1 - n])
        n++;
    return n < SHARED_LEAST ? 0 : n;
}

/* Puts what is new of a pickle, and the rest as it is in the one that was kept whole; with `counts`
 * alone nothing is put. *shared: how much that is. */
static fsdpck_status put_parts(laying *l, const text_buf *pickle, bool counts, uint64_t *shared,
                               fsdpck_error *err)
{
    const pt_files *s = l->s;
    const size_t ncuts = s->cuts.count == s->whole_cuts.count ? s->cuts.count : 0;
    uint64_t begin = 0, from = 0;

    *shared = 0;
    for (size_t i = 0; i <= ncuts; i++) {
        const uint64_t end = i < ncuts ? *VEC_AT(&s->cuts, const uint64_t, i) : pickle->nbytes;
        const uint64_t to =
            i < ncuts ? *VEC_AT(&s->whole_cuts, const uint64_t, i) : s->whole_nbytes;
        const uint64_t n = same_end_nbytes(l, pickle, begin, end, from, to);
        *shared += n;
        if (!counts) {
            text_append(&l->out, pickle->text + begin, end - begin - n);
            if (n > 0)
                RETURN_IF(put_known(l, s->whole_at + to - n, n, err));
        }
        begin = end;
        from = to;
    }
    return counts ? FSDPCK_OK : flush(l, err);
}

static fsdpck_status keep_whole(laying *l, const text_buf *pickle, fsdpck_error *err)
{
    pt_files *s = l->s;
    const vec cuts = s->whole_cuts;
    s->whole_at = l->t->text.nbytes;
    s->whole_nbytes = pickle->nbytes;
    s->whole_cuts = s->cuts;
    s->cuts = cuts;
    text_append(&l->out, pickle->text, pickle->nbytes);
    return flush(l, err);
}

static fsdpck_status put_pickle(laying *l, const text_buf *pickle, fsdpck_error *err)
{
    uint64_t shared = 0;
    zip_put_local(&l->out, 0, pickle_name, strlen(pickle_name), pickle->nbytes);
    RETURN_IF(flush(l, err));
    if (l->s->whole_nbytes > 0)
        RETURN_IF(put_parts(l, pickle, true, &shared, err));
    if (shared == 0)
        RETURN_IF(keep_whole(l, pickle, err));
    else
        RETURN_IF(put_parts(l, pickle, false, &shared, err));
    l->s->cuts.count = 0;
    return FSDPCK_OK;
}

/* --- the layout --- */

/* A record whose bytes are known and few. */
static void put_small(laying *l, const char *name, const void *bytes, size_t nbytes)
{
    const uint64_t header_at = l->at + l->out.nbytes;

    zip_put_local(&l->out, header_at, name, strlen(name), nbytes);
    text_append(&l->out, bytes, nbytes);
    zip_put_descriptor(&l->out, header_at, crc32_update(0, bytes, nbytes), nbytes);
}

static fsdpck_status put_chunk(laying *l, uint64_t index, unsigned descriptor_nbytes,
                               fsdpck_error *err)
{
    cat_chunk *chunk = catalogue_chunk(&l->t->cat, index);
    chunk->file = l->file;
    chunk->offset_bytes = l->at;
    chunk->place = chunk->nbytes > 0 ? PLACE_ROWS : PLACE_EMPTY;
    l->at += chunk->nbytes;
    if (descriptor_nbytes == 0)
        return FSDPCK_OK;
    target_late *late = vec_push(&l->t->lates, err);
    if (late == NULL)
        return FSDPCK_LIMIT;
    *late = (target_late){
        .offset_bytes = l->at, .chunk = index, .file = l->file, .nbytes = descriptor_nbytes};
    l->at += descriptor_nbytes;
    return FSDPCK_OK;
}

static fsdpck_status put_storages(laying *l, fsdpck_error *err)
{
    const pt_files *s = l->s;
    char name[STORAGE_NAME_NBYTES];

    for (uint64_t i = s->begun; i < s->records.count; i++) {
        const pt_record r = *VEC_AT(&s->records, const pt_record, i);
        const uint64_t header_at = l->at + l->out.nbytes;
        zip_put_local(&l->out, header_at, name, storage_name(i - s->begun, name), r.nbytes);
        RETURN_IF(flush(l, err));
        if (r.chunk != NO_CHUNK) {
            RETURN_IF(put_chunk(l, r.chunk, zip_descriptor_nbytes(header_at, r.nbytes), err));
            continue;
        }
        RETURN_IF(put_known(l, r.text_at, r.nbytes, err));
        zip_put_descriptor(&l->out, header_at,
                           crc32_update(0, l->t->text.text + r.text_at, r.nbytes), r.nbytes);
    }
    return FSDPCK_OK;
}

/* --- the directory --- */

/* Gives a record its header offset, from that of the one before. */
static uint64_t put_entry(text_buf *out, uint64_t header_at, const char *name, uint64_t nbytes,
                          uint32_t crc)
{
    zip_put_central(out, header_at, name, strlen(name), crc, nbytes);
    return zip_data_offset(header_at, strlen(name), nbytes) + nbytes +
           zip_descriptor_nbytes(header_at, nbytes);
}

static uint32_t record_crc(const target *t, const pt_record *r)
{
    if (r->chunk == NO_CHUNK)
        return crc32_update(0, t->text.text + r->text_at, r->nbytes);
    return r->nbytes > 0 && t->chunk_crc != NULL ? t->chunk_crc[r->chunk] : 0;
}

/* The directory of a file that has the records from first to end; CRCs of chunks count as 0 while
 * they are not known. *at: where the directory begins. */
static fsdpck_status make_directory(const target *t, const pt_file *f, uint64_t end, text_buf *out,
                                    uint64_t *directory_at, fsdpck_error *err)
{
    const pt_files *s = t->writer_state;
    char name[STORAGE_NAME_NBYTES];
    uint64_t at = put_entry(out, 0, pickle_name, f->pickle_nbytes, f->pickle_crc);

    for (size_t i = 0; i < MARK_COUNT; i++)
        at = put_entry(out, at, marks[i].name, marks[i].nbytes,
                       crc32_update(0, marks[i].bytes, marks[i].nbytes));
    for (uint64_t i = f->first_record; i < end; i++) {
        const pt_record *r = VEC_AT(&s->records, const pt_record, i);
        storage_name(i - f->first_record, name);
        at = put_entry(out, at, name, r->nbytes, record_crc(t, r));
    }
    at = put_entry(out, at, version_mark.name, version_mark.nbytes,
                   crc32_update(0, version_mark.bytes, version_mark.nbytes));
    *directory_at = at;
    zip_put_end(out, at, out->nbytes, 1 + MARK_COUNT + (end - f->first_record) + 1);
    return text_check(out, err);
}

static fsdpck_status lay_out(laying *l, const char *name, uint32_t rank, const text_buf *pickle,
                             fsdpck_error *err)
{
    target *t = l->t;
    pt_files *s = l->s;
    pt_file f = {.first_record = s->begun,
                 .pickle_nbytes = pickle->nbytes,
                 .pickle_crc = crc32_update(0, pickle->text, pickle->nbytes)};

    RETURN_IF(put_pickle(l, pickle, err));
    l->compares = true;
    l->first = t->literals.count;
    zip_put_descriptor(&l->out, 0, f.pickle_crc, pickle->nbytes);
    for (size_t i = 0; i < MARK_COUNT; i++)
        put_small(l, marks[i].name, marks[i].bytes, marks[i].nbytes);
    RETURN_IF(put_storages(l, err));
    put_small(l, version_mark.name, version_mark.bytes, version_mark.nbytes);
    RETURN_IF(flush(l, err));
    RETURN_IF(make_directory(t, &f, s->records.count, &l->out, &f.directory_at, err));
    if (f.directory_at != l->at)
        return error_set(err, FSDPCK_INTERNAL, "",
                         "directory and records disagree on their offsets");
    RETURN_IF(
        catalogue_add_file(&t->cat, name, strlen(name), l->at + l->out.nbytes, rank, &f.file, err));
    s->begun = s->records.count;
    s->literals_at = l->first;
    s->nliterals = t->literals.count - l->first;
    pt_file *added = vec_push(&s->files, err);
    if (added == NULL)
        return FSDPCK_LIMIT;
    *added = f;
    return FSDPCK_OK;
}

fsdpck_status pt_file_end(target *t, const char *name, uint32_t rank, const text_buf *pickle,
                          fsdpck_error *err)
{
    laying l = {.t = t,
                .s = t->writer_state,
                .file = (uint32_t)catalogue_file_count(&t->cat),
                .out = {.limit_bytes = SIZE_MAX / 2}};
    const fsdpck_status st = lay_out(&l, name, rank, pickle, err);
    text_release(&l.out);
    return st;
}

fsdpck_status pt_files_seal(const target *t, late_fn put, void *ctx, fsdpck_error *err)
{
    const pt_files *s = t->writer_state;
    text_buf out = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = FSDPCK_OK;
    uint64_t at;

    for (size_t i = 0; st == FSDPCK_OK && i < s->files.count; i++) {
        const pt_file *f = VEC_AT(&s->files, const pt_file, i);
        const uint64_t end =
            i + 1 < s->files.count ? f[1].first_record : (uint64_t)s->records.count;
        out.nbytes = 0;
        st = make_directory(t, f, end, &out, &at, err);
        const late_bytes late = {.file = f->file,
                                 .offset_bytes = at,
                                 .nbytes = out.nbytes,
                                 .bytes = (const uint8_t *)out.text};
        if (st == FSDPCK_OK)
            st = put(ctx, &late, err);
    }
    text_release(&out);
    return st;
}

/* --- what the writers share besides --- */

fsdpck_status pt_flat_root(catalogue *cat, uint32_t rank, value *root, fsdpck_error *err)
{
    value key;

    RETURN_IF(value_new_dict(&cat->pool, root, err));
    for (size_t i = 0; i < catalogue_tensor_count(cat); i++) {
        const uint32_t name = catalogue_tensor(cat, i)->name;
        if (catalogue_tensor(cat, i)->flags & CAT_TENSOR_STORAGE)
            continue;
        RETURN_IF(value_new_str(&cat->pool, catalogue_name(cat, name),
                                catalogue_name_nbytes(cat, name), &key, err));
        RETURN_IF(value_dict_put(&cat->pool, *root, key, value_of_tensor(i), err));
    }
    for (size_t i = 0; i < catalogue_object_count(cat); i++) {
        const cat_object *o = catalogue_object(cat, i);
        if (!o->loaded || (o->rank != UINT16_MAX && rank != CAT_NONE && o->rank != rank))
            continue;
        RETURN_IF(value_new_str(&cat->pool, catalogue_name(cat, o->name),
                                catalogue_name_nbytes(cat, o->name), &key, err));
        RETURN_IF(value_dict_put(&cat->pool, *root, key, o->content, err));
    }
    return FSDPCK_OK;
}

bool pt_file_holds(dtype d)
{
    return d != DTYPE_NONE && d < DTYPE_COUNT;
}
