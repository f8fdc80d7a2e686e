#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "formats/pt/pt.h"
#include "formats/shared/pickle.h"
#include "formats/shared/torch_archive.h"
#include "formats/shared/zip.h"

/* The file is, byte for byte, laid out as torch 2.7 and newer lay theirs: records data.pkl,
 * .format_version, .storage_alignment, byteorder, data/0.. in numeric order, version; 64-byte
 * alignment; descriptors. So torch may compute storage offsets instead of reading headers
 * (.format_version allows that), and mmap=True works. .data/serialization_id is left out: no
 * reader needs it. The same target gives the same bytes.
 *
 * Chunks: cat_chunk.aux is the number of the storage. Storages are numbered as the pickle first
 * names them, which torch's computed offsets demand. A tensor that views a storage
 * (target.views) is PLACE_EMPTY and has no bytes of its own: the CAT_TENSOR_STORAGE tensor that
 * it views has them. Literals are all but the data, their descriptors and the directory, which
 * seal() brings. */

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

enum { STORAGE_NAME_NBYTES = 40 };

static size_t storage_name(uint32_t number, char name[STORAGE_NAME_NBYTES])
{
    return (size_t)snprintf(name, STORAGE_NAME_NBYTES, "archive/data/%" PRIu32, number);
}

/* --- the pickle --- */

typedef struct layout_state {
    target *t;
    vec storages;        /* uint32_t: the chunk whose bytes each storage holds */
    uint32_t *of_tensor; /* storage of each tensor, or CAT_NONE while it has none */
    size_t count;        /* of tensors */
} layout_state;

/* NULL where the tensor has bytes of its own. */
static const target_view *view_of(const target *t, uint64_t tensor)
{
    const uint32_t view = catalogue_tensor(&t->cat, tensor)->alias;
    return view == CAT_NONE ? NULL : VEC_AT(&t->views, const target_view, view);
}

static fsdpck_status whole_chunk(const catalogue *cat, uint32_t tensor, fsdpck_error *err)
{
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    uint64_t sizes[NDIM_MAX];

    if (t->nchunks == 1) {
        catalogue_chunk_box(cat, t->first_chunk, NULL, sizes);
        if (t->ndim == 0 ||
            memcmp(sizes, catalogue_shape(cat, tensor), t->ndim * sizeof(uint64_t)) == 0)
            return FSDPCK_OK;
    }
    fsdpck_status st = error_set(err, FSDPCK_INTERNAL, "", "a .pt file holds whole tensors only");
    error_tensor(err, catalogue_name(cat, t->name));
    return st;
}

/* Gives a tensor its storage: that of what it views, or its own; new where there is none yet. */
static fsdpck_status storage_of(layout_state *s, uint32_t tensor, fsdpck_error *err)
{
    const target_view *view = view_of(s->t, tensor);
    const uint32_t owner = view == NULL ? tensor : view->storage;

    if (s->of_tensor[owner] == CAT_NONE) {
        RETURN_IF(whole_chunk(&s->t->cat, owner, err));
        uint32_t *chunk = vec_push(&s->storages, err);
        if (chunk == NULL)
            return FSDPCK_LIMIT;
        *chunk = (uint32_t)catalogue_tensor(&s->t->cat, owner)->first_chunk;
        s->of_tensor[owner] = (uint32_t)(s->storages.count - 1);
    }
    s->of_tensor[tensor] = s->of_tensor[owner];
    return FSDPCK_OK;
}

static fsdpck_status put_tensor(void *ctx, pickle_writer *w, uint64_t index, fsdpck_error *err)
{
    layout_state *s = ctx;
    const target *to = s->t;
    const catalogue *cat = &to->cat;
    uint64_t rows[NDIM_MAX];
    char key[16];

    if (index >= s->count)
        return error_set(err, FSDPCK_INTERNAL, "", "nested state names a tensor that is not there");
    if (s->of_tensor[index] == CAT_NONE)
        RETURN_IF(storage_of(s, (uint32_t)index, err));
    const cat_tensor *t = catalogue_tensor(cat, index);
    const target_view *view = view_of(to, index);
    const uint64_t *shape = catalogue_shape(cat, index);
    snprintf(key, sizeof(key), "%" PRIu32, s->of_tensor[index]);
    if (view != NULL) {
        const uint64_t *strides = VEC_AT(&to->strides, const uint64_t, view->strides_at);
        torch_put_tensor(w, key, t->dtype, t->ndim, shape, strides, view->offset_nelems,
                         catalogue_tensor_nelems(cat, view->storage));
        return FSDPCK_OK;
    }
    box_row_major_strides(shape, t->ndim, rows);
    torch_put_tensor(w, key, t->dtype, t->ndim, shape, rows, 0, box_nelems(shape, t->ndim));
    return FSDPCK_OK;
}

/* The flat state of a target without nesting: names to tensors, then names to objects. */
static fsdpck_status flat_root(catalogue *cat, value *root, fsdpck_error *err)
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
        if (!o->loaded)
            continue;
        RETURN_IF(value_new_str(&cat->pool, catalogue_name(cat, o->name),
                                catalogue_name_nbytes(cat, o->name), &key, err));
        RETURN_IF(value_dict_put(&cat->pool, *root, key, o->content, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status state_init(layout_state *s, target *t, fsdpck_error *err)
{
    *s = (layout_state){.t = t, .count = catalogue_tensor_count(&t->cat)};
    s->storages = VEC_OF(uint32_t, t->cat.owner);
    s->of_tensor = budget_alloc(t->cat.owner, s->count * sizeof(uint32_t), err);
    if (s->of_tensor == NULL)
        return FSDPCK_LIMIT;
    memset(s->of_tensor, 0xFF, s->count * sizeof(uint32_t));
    return FSDPCK_OK;
}

static void state_release(layout_state *s)
{
    if (s->of_tensor != NULL)
        budget_free(s->t->cat.owner, s->of_tensor, s->count * sizeof(uint32_t));
    vec_release(&s->storages);
}

static fsdpck_status write_pickle(layout_state *s, text_buf *pickle, fsdpck_error *err)
{
    target *t = s->t;
    value root = t->root;

    if (value_is_none(root))
        RETURN_IF(flat_root(&t->cat, &root, err));
    RETURN_IF(pickle_write(&t->cat.pool, root, put_tensor, s, pickle, err));
    for (size_t i = 0; i < s->count; i++) {
        if (s->of_tensor[i] != CAT_NONE)
            continue;
        fsdpck_status st =
            error_set(err, FSDPCK_INTERNAL, "", "nested state has no place for a tensor");
        error_tensor(err, catalogue_name(&t->cat, catalogue_tensor(&t->cat, i)->name));
        return st;
    }
    return text_check(pickle, err);
}

/* --- the layout --- */

/* A record whose bytes are known: header, bytes and descriptor are appended to `out`, which
 * begins at `base`. */
static void put_small(text_buf *out, uint64_t base, const char *name, const void *bytes,
                      size_t nbytes)
{
    const uint64_t header_at = base + out->nbytes;

    zip_put_local(out, header_at, name, strlen(name), nbytes);
    text_append(out, bytes, nbytes);
    zip_put_descriptor(out, header_at, crc32_update(0, bytes, nbytes), nbytes);
}

/* Takes what was gathered as a literal at *at and moves *at behind it. */
static fsdpck_status flush(target *t, text_buf *out, uint64_t *at, fsdpck_error *err)
{
    RETURN_IF(text_check(out, err));
    RETURN_IF(target_add_literal(t, 0, *at, out->text, out->nbytes, err));
    *at += out->nbytes;
    out->nbytes = 0;
    return FSDPCK_OK;
}

/* Literal 0 is the header of data.pkl and literal 1 its pickle: seal() finds it there. */
static fsdpck_status put_head(target *t, const text_buf *pickle, text_buf *out, uint64_t *at,
                              fsdpck_error *err)
{
    zip_put_local(out, 0, pickle_name, strlen(pickle_name), pickle->nbytes);
    RETURN_IF(flush(t, out, at, err));
    text_append(out, pickle->text, pickle->nbytes);
    RETURN_IF(flush(t, out, at, err));
    zip_put_descriptor(out, 0, crc32_update(0, pickle->text, pickle->nbytes), pickle->nbytes);
    for (size_t i = 0; i < MARK_COUNT; i++)
        put_small(out, *at, marks[i].name, marks[i].bytes, marks[i].nbytes);
    return FSDPCK_OK;
}

static fsdpck_status put_storages(layout_state *s, text_buf *out, uint64_t *at, fsdpck_error *err)
{
    target *t = s->t;
    char name[STORAGE_NAME_NBYTES];

    for (uint32_t i = 0; i < s->storages.count; i++) {
        cat_chunk *chunk = catalogue_chunk(&t->cat, *VEC_AT(&s->storages, const uint32_t, i));
        const uint64_t nbytes = catalogue_tensor_nbytes(&t->cat, chunk->tensor);
        const uint64_t header_at = *at + out->nbytes;
        const size_t name_nbytes = storage_name(i, name);
        zip_put_local(out, header_at, name, name_nbytes, nbytes);
        RETURN_IF(flush(t, out, at, err));
        chunk->offset_bytes = *at;
        chunk->nbytes = nbytes;
        *at += nbytes + zip_descriptor_nbytes(header_at, nbytes);
    }
    return FSDPCK_OK;
}

static void place_chunks(const layout_state *s)
{
    const catalogue *cat = &s->t->cat;

    for (size_t i = 0; i < s->count; i++) {
        const uint32_t storage = s->of_tensor[i];
        const uint32_t owner = *VEC_AT(&s->storages, const uint32_t, storage);
        cat_chunk *chunk = catalogue_chunk(cat, catalogue_tensor(cat, i)->first_chunk);
        const cat_chunk *first = catalogue_chunk(cat, owner);
        chunk->file = 0;
        chunk->aux = storage;
        chunk->offset_bytes = first->offset_bytes;
        chunk->nbytes = first->nbytes;
        chunk->place = chunk == first && chunk->nbytes > 0 ? PLACE_ROWS : PLACE_EMPTY;
    }
}

/* --- the directory --- */

/* Walks all records in the order of the file; gives each its header offset. */
static uint64_t put_directory_entry(text_buf *out, uint64_t header_at, const char *name,
                                    uint64_t nbytes, uint32_t crc)
{
    zip_put_central(out, header_at, name, strlen(name), crc, nbytes);
    return zip_data_offset(header_at, strlen(name), nbytes) + nbytes +
           zip_descriptor_nbytes(header_at, nbytes);
}

/* chunk_of: the chunk of each storage; crc: CRCs of the chunks, NULL while they are unknown. */
static fsdpck_status make_directory(const target *t, const uint32_t *chunk_of, size_t storage_count,
                                    const uint32_t *crc, text_buf *out, uint64_t *directory_at,
                                    fsdpck_error *err)
{
    const target_literal *pickle = VEC_AT(&t->literals, const target_literal, 1);
    char name[STORAGE_NAME_NBYTES];
    uint64_t at =
        put_directory_entry(out, 0, pickle_name, pickle->nbytes,
                            crc32_update(0, t->text.text + pickle->text_at, pickle->nbytes));

    for (size_t i = 0; i < MARK_COUNT; i++)
        at = put_directory_entry(out, at, marks[i].name, marks[i].nbytes,
                                 crc32_update(0, marks[i].bytes, marks[i].nbytes));
    for (uint32_t i = 0; i < storage_count; i++) {
        const uint64_t nbytes = catalogue_chunk(&t->cat, chunk_of[i])->nbytes;
        storage_name(i, name);
        at = put_directory_entry(out, at, name, nbytes,
                                 crc == NULL || nbytes == 0 ? 0 : crc[chunk_of[i]]);
    }
    at = put_directory_entry(out, at, version_mark.name, version_mark.nbytes,
                             crc32_update(0, version_mark.bytes, version_mark.nbytes));
    *directory_at = at;
    zip_put_end(out, at, out->nbytes, 1 + MARK_COUNT + storage_count + 1);
    return text_check(out, err);
}

/* --- the table --- */

static fsdpck_status lay_out(layout_state *s, text_buf *pickle, text_buf *out, fsdpck_error *err)
{
    target *t = s->t;
    uint64_t at = 0, directory_at;
    uint32_t file_index;

    RETURN_IF(write_pickle(s, pickle, err));
    RETURN_IF(put_head(t, pickle, out, &at, err));
    RETURN_IF(put_storages(s, out, &at, err));
    put_small(out, at, version_mark.name, version_mark.bytes, version_mark.nbytes);
    RETURN_IF(flush(t, out, &at, err));
    place_chunks(s);
    RETURN_IF(
        make_directory(t, s->storages.items, s->storages.count, NULL, out, &directory_at, err));
    if (directory_at != at)
        return error_set(err, FSDPCK_INTERNAL, "",
                         "directory and records disagree on their offsets");
    t->want_crc = true;
    t->is_folder = false;
    return catalogue_add_file(&t->cat, "", 0, at + out->nbytes, CAT_NONE, &file_index, err);
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    text_buf pickle = {.limit_bytes = SIZE_MAX / 2};
    text_buf out = {.limit_bytes = SIZE_MAX / 2};
    layout_state s;

    (void)opt;
    fsdpck_status st = state_init(&s, t, err);
    if (st == FSDPCK_OK)
        st = lay_out(&s, &pickle, &out, err);
    state_release(&s);
    text_release(&pickle);
    text_release(&out);
    return st;
}

/* Where the header of data/0 begins. */
static uint64_t storages_begin(const target *t)
{
    const uint64_t pickle_nbytes = VEC_AT(&t->literals, const target_literal, 1)->nbytes;
    uint64_t at = zip_data_offset(0, strlen(pickle_name), pickle_nbytes) + pickle_nbytes +
                  zip_descriptor_nbytes(0, pickle_nbytes);

    for (size_t i = 0; i < MARK_COUNT; i++)
        at = zip_data_offset(at, strlen(marks[i].name), marks[i].nbytes) + marks[i].nbytes +
             zip_descriptor_nbytes(at, marks[i].nbytes);
    return at;
}

static fsdpck_status put_text(const text_buf *out, uint64_t offset_bytes, late_fn put, void *ctx,
                              fsdpck_error *err)
{
    RETURN_IF(text_check(out, err));
    const late_bytes late = {
        .offset_bytes = offset_bytes, .nbytes = out->nbytes, .bytes = (const uint8_t *)out->text};
    return put(ctx, &late, err);
}

static fsdpck_status put_late(const target *t, const uint32_t *chunk_of, size_t count,
                              text_buf *out, late_fn put, void *ctx, fsdpck_error *err)
{
    char name[STORAGE_NAME_NBYTES];
    uint64_t at = storages_begin(t);

    for (uint32_t i = 0; i < count; i++) {
        const cat_chunk *chunk = catalogue_chunk(&t->cat, chunk_of[i]);
        const unsigned n = zip_descriptor_nbytes(at, chunk->nbytes);
        if (n > 0) {
            out->nbytes = 0;
            zip_put_descriptor(out, at, t->chunk_crc[chunk_of[i]], chunk->nbytes);
            RETURN_IF(put_text(out, chunk->offset_bytes + chunk->nbytes, put, ctx, err));
        }
        at = zip_data_offset(at, storage_name(i, name), chunk->nbytes) + chunk->nbytes + n;
    }
    out->nbytes = 0;
    RETURN_IF(make_directory(t, chunk_of, count, t->chunk_crc, out, &at, err));
    return put_text(out, at, put, ctx, err);
}

static fsdpck_status seal(const target *t, late_fn put, void *ctx, fsdpck_error *err)
{
    const size_t tensors = catalogue_tensor_count(&t->cat);
    text_buf out = {.limit_bytes = SIZE_MAX / 2};
    uint32_t *chunk_of = budget_alloc(t->cat.owner, tensors * sizeof(uint32_t), err);
    size_t count = 0;

    if (chunk_of == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < tensors; i++) {
        const uint64_t chunk = catalogue_tensor(&t->cat, i)->first_chunk;
        const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
        if (c->place == PLACE_ROWS || c->nbytes == 0)
            chunk_of[c->aux] = (uint32_t)chunk;
        count = c->aux >= count ? c->aux + 1 : count;
    }
    fsdpck_status st = put_late(t, chunk_of, count, &out, put, ctx, err);
    text_release(&out);
    budget_free(t->cat.owner, chunk_of, tensors * sizeof(uint32_t));
    return st;
}

static bool holds(dtype d)
{
    return d != DTYPE_NONE && d < DTYPE_COUNT;
}

const format_writer pt_writer = {
    .name = "pt",
    .description = "one file of torch.save",
    .suffixes = " .pt .pth .bin .ckpt ",
    .keeps_nesting = true,
    .holds = holds,
    .layout = layout,
    .seal = seal,
};
