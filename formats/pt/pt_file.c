#include "formats/pt/pt_file.h"

#include <inttypes.h>
#include <string.h>

#include "base/crc.h"
#include "formats/common/torch_zip_write.h"
#include "formats/common/zip.h"
#include "formats/pt/pt_file_internal.h"

enum {
    SHARED_LEAST = 1024, /* smallest shared part of a pickle stored as separate constant bytes */
    COMPARED_AT_ONCE = 4096
};

/* The file being laid out. */
typedef struct laying {
    target *t;
    pt_files *s;
    uint32_t file;
    uint64_t at;    /* how far the file is laid out */
    text_buf out;   /* bytes at `at` that are not yet stored as constant bytes */
    bool compares;  /* constant bytes are compared with those of the file before */
    uint64_t nth;   /* which one is next */
    uint64_t first; /* constant bytes of this file after its pickle */
} laying;

static void release_state(void *state)
{
    pt_files *s = state;
    VEC_RELEASE_ALL(&s->files, &s->records, &s->joins, &s->parts, &s->whole_cuts, &s->cuts);
    budget_free(s->owner, s, sizeof *s);
}

static void make_deferred(const target *t, size_t index, uint32_t crc32, uint8_t *dst)
{
    const target_deferred *late = VEC_AT(&t->lates, const target_deferred, index);
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
    s->joins = VEC_OF(pt_join, s->owner);
    s->parts = VEC_OF(pt_record, s->owner);
    s->whole_cuts = VEC_OF(uint64_t, s->owner);
    s->cuts = VEC_OF(uint64_t, s->owner);
    t->writer_state = s;
    t->free_writer_state = release_state;
    t->make_deferred = make_deferred;
    t->want_crc = true;
    return FSDPCK_OK;
}

static fsdpck_status add_record(target *t, pt_record record, uint32_t *number, fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    const uint64_t n = s->records.count - s->begun;
    if (n >= UINT32_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "too many tensors for one file");
    RETURN_IF(vec_add(&s->records, &record, err));
    *number = (uint32_t)n;
    return FSDPCK_OK;
}

static cat_chunk *measure_chunk(const target *t, uint64_t chunk)
{
    cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    const cat_tensor *tensor = catalogue_tensor(&t->cat, c->tensor);
    uint64_t sizes[NDIM_MAX];

    catalogue_chunk_box(&t->cat, chunk, NULL, sizes);
    c->nbytes = box_nelems(sizes, tensor->ndim) * dtype_get((dtype)tensor->dtype)->itemsize_bytes;
    return c;
}

fsdpck_status pt_file_add_chunk(target *t, uint64_t chunk, uint32_t *number, fsdpck_error *err)
{
    cat_chunk *c = measure_chunk(t, chunk);
    RETURN_IF(add_record(t, (pt_record){.chunk = chunk, .nbytes = c->nbytes}, number, err));
    c->aux = *number;
    return FSDPCK_OK;
}

fsdpck_status pt_file_add_bytes(target *t, uint64_t text_at, uint64_t nbytes, uint32_t *number,
                                fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    if (text_at != s->known_at || nbytes != s->known_nbytes) {
        s->known_at = text_at;
        s->known_nbytes = nbytes;
        s->known_crc = crc32_update(0, t->text.text + text_at, nbytes);
    }
    const pt_record record = {
        .chunk = PT_NO_CHUNK, .text_at = text_at, .nbytes = nbytes, .crc = s->known_crc};
    return add_record(t, record, number, err);
}

fsdpck_status pt_file_add_composite(target *t, uint32_t *number, fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    const pt_record record = {.chunk = PT_IN_PARTS, .text_at = s->joins.count};
    RETURN_IF(vec_add(&s->joins, &(pt_join){.first_part = s->parts.count}, err));
    return add_record(t, record, number, err);
}

static fsdpck_status add_part(target *t, pt_record part, fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    pt_record *record =
        s->records.count > 0 ? VEC_AT(&s->records, pt_record, s->records.count - 1) : NULL;
    if (record == NULL || record->chunk != PT_IN_PARTS)
        return FAIL(err, INTERNAL, NONE, "part does not belong to a record");
    RETURN_IF(vec_add(&s->parts, &part, err));
    record->nbytes += part.nbytes;
    return FSDPCK_OK;
}

fsdpck_status pt_file_part_chunk(target *t, uint64_t chunk, fsdpck_error *err)
{
    const pt_files *s = t->writer_state;
    cat_chunk *c = measure_chunk(t, chunk);
    c->aux = (uint32_t)(s->records.count - s->begun - 1);
    return add_part(t, (pt_record){.chunk = chunk, .nbytes = c->nbytes}, err);
}

fsdpck_status pt_file_part_bytes(target *t, uint64_t text_at, uint64_t nbytes, fsdpck_error *err)
{
    return add_part(t, (pt_record){.chunk = PT_NO_CHUNK, .text_at = text_at, .nbytes = nbytes},
                    err);
}

fsdpck_status pt_file_mark(target *t, uint64_t pickle_nbytes, fsdpck_error *err)
{
    pt_files *s = t->writer_state;
    return vec_add(&s->cuts, &(uint64_t){pickle_nbytes}, err);
}

/* --- constant bytes --- */

/* The constant bytes of the last file at the same position, if equal. */
static const target_constant *same_in_last_file(const laying *l)
{
    if (!l->compares || l->nth >= l->s->nliterals)
        return NULL;
    const target_constant *last =
        VEC_AT(&l->t->literals, const target_constant, l->s->literals_at + l->nth);
    if (last->nbytes != l->out.nbytes ||
        memcmp(l->t->text.text + last->text_at, l->out.text, l->out.nbytes) != 0)
        return NULL;
    return last;
}

/* Stores the gathered bytes as constant bytes. */
static fsdpck_status flush(laying *l, fsdpck_error *err)
{
    RETURN_IF(text_check(&l->out, err));
    if (l->out.nbytes == 0)
        return FSDPCK_OK;
    const target_constant *same = same_in_last_file(l);
    l->nth += l->compares;
    if (same != NULL)
        RETURN_IF(target_add_constant_at(l->t, l->file, l->at, same->text_at, l->out.nbytes, err));
    else
        RETURN_IF(target_add_constant(l->t, l->file, l->at, l->out.text, l->out.nbytes, err));
    l->at += l->out.nbytes;
    l->out.nbytes = 0;
    return FSDPCK_OK;
}

static fsdpck_status put_known(laying *l, uint64_t text_at, uint64_t nbytes, fsdpck_error *err)
{
    RETURN_IF(flush(l, err));
    if (nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(target_add_constant_at(l->t, l->file, l->at, text_at, nbytes, err));
    l->nth += l->compares;
    l->at += nbytes;
    return FSDPCK_OK;
}

/* Number of bytes of [begin, end) of a pickle that equal the end of [from, to) of the kept one; 0
 * if too few. */
static uint64_t same_end_nbytes(const laying *l, const text_buf *pickle, uint64_t begin,
                                uint64_t end, uint64_t from, uint64_t to)
{
    const char *new_end = pickle->text + end;
    const char *old_end = l->t->text.text + l->s->whole_at + to;
    const uint64_t most = end - begin < to - from ? end - begin : to - from;
    uint64_t n = 0;
    while (most - n >= COMPARED_AT_ONCE &&
           memcmp(new_end - n - COMPARED_AT_ONCE, old_end - n - COMPARED_AT_ONCE,
                  COMPARED_AT_ONCE) == 0)
        n += COMPARED_AT_ONCE;
    while (n < most && new_end[-1 - (int64_t)n] == old_end[-1 - (int64_t)n])
        n++;
    return n < SHARED_LEAST ? 0 : n;
}

/* Stores the new parts of a pickle and refers to the kept one for the rest; with `counts` only
 * counts. *shared: number of shared bytes. */
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
    zip_put_local(&l->out, 0, torch_zip_pickle_name, strlen(torch_zip_pickle_name), pickle->nbytes);
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

static fsdpck_status put_chunk(laying *l, uint64_t index, unsigned descriptor_nbytes,
                               fsdpck_error *err)
{
    cat_chunk *chunk = catalogue_chunk(&l->t->cat, index);
    chunk->file = l->file;
    chunk->offset_bytes = l->at;
    chunk->place = chunk->nbytes > 0 ? LOCATION_ROWS : LOCATION_EMPTY;
    l->at += chunk->nbytes;
    if (descriptor_nbytes == 0)
        return FSDPCK_OK;
    RETURN_IF(vec_add(
        &l->t->lates,
        &(target_deferred){
            .offset_bytes = l->at, .chunk = index, .file = l->file, .nbytes = descriptor_nbytes},
        err));
    l->at += descriptor_nbytes;
    return FSDPCK_OK;
}

/* The descriptor is left out: pt_files_seal puts it. */
static fsdpck_status put_join(laying *l, uint64_t index, uint64_t header_at, uint64_t nbytes,
                              fsdpck_error *err)
{
    const pt_files *s = l->s;
    pt_join *join = VEC_AT(&s->joins, pt_join, index);

    for (uint64_t i = join->first_part; i < pt_files_end_of_parts(s, index); i++) {
        const pt_record *p = VEC_AT(&s->parts, const pt_record, i);
        RETURN_IF(p->chunk == PT_NO_CHUNK ? put_known(l, p->text_at, p->nbytes, err)
                                          : put_chunk(l, p->chunk, 0, err));
    }
    join->header_at = header_at;
    join->descriptor_at = l->at;
    l->at += zip_descriptor_nbytes(header_at, nbytes);
    return FSDPCK_OK;
}

static fsdpck_status put_storages(laying *l, fsdpck_error *err)
{
    const pt_files *s = l->s;
    char name[TORCH_STORAGE_NAME_NBYTES];

    for (uint64_t i = s->begun; i < s->records.count; i++) {
        const pt_record r = *VEC_AT(&s->records, const pt_record, i);
        const uint64_t header_at = l->at + l->out.nbytes;
        zip_put_local(&l->out, header_at, name, torch_zip_storage_name(i - s->begun, name),
                      r.nbytes);
        RETURN_IF(flush(l, err));
        if (r.chunk == PT_IN_PARTS) {
            RETURN_IF(put_join(l, r.text_at, header_at, r.nbytes, err));
            continue;
        }
        if (r.chunk != PT_NO_CHUNK) {
            RETURN_IF(put_chunk(l, r.chunk, zip_descriptor_nbytes(header_at, r.nbytes), err));
            continue;
        }
        RETURN_IF(put_known(l, r.text_at, r.nbytes, err));
        zip_put_descriptor(&l->out, header_at, r.crc, r.nbytes);
    }
    return FSDPCK_OK;
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
    torch_zip_put_marks(&l->out, l->at + l->out.nbytes);
    RETURN_IF(put_storages(l, err));
    torch_zip_put_version(&l->out, l->at + l->out.nbytes);
    RETURN_IF(flush(l, err));
    RETURN_IF(pt_file_make_directory(t, &f, s->records.count, &l->out, &f.directory_at, err));
    if (f.directory_at != l->at)
        return FAIL(err, INTERNAL, NONE,
                    "offsets in the directory differ from those of the records");
    RETURN_IF(
        catalogue_add_file(&t->cat, name, strlen(name), l->at + l->out.nbytes, rank, &f.file, err));
    s->begun = s->records.count;
    s->literals_at = l->first;
    s->nliterals = t->literals.count - l->first;
    return vec_add(&s->files, &f, err);
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
