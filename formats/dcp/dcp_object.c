/* dcp_object.c: byte items, which for torch's own planner are torch.save zips of a Python
 * object. */
#include <inttypes.h>
#include <string.h>

#include "formats/common/pickle.h"
#include "formats/common/pt_flatten.h"
#include "formats/common/torch_archive.h"
#include "formats/common/zstd_stream.h"
#include "formats/dcp/dcp_item.h"
#include "formats/dcp/dcp_item_tensor.h"
#include "formats/dcp/dcp_object_copies.h"
#include "state/inner.h"

#define OBJECT_LIMIT (UINT64_C(1) << 30)

/* Limit on values visited in an object with this many cells: parts may be shared, but a small item
 * must not take long. */
static const uint64_t INSIDE_STEPS_LEAST = (uint64_t)1 << 16, INSIDE_STEPS_PER_CELL = 8;

typedef dcp_item_bytes item_bytes;

/* While the tensors inside one object get their names. */
typedef struct item_tensor_names {
    dcp_folder *d;
    catalogue *cat;
    uint32_t object;
    const torch_archive *archive;
    const item_bytes *item;
    vec archived; /* uint32_t: of each tensor of the catalogue from `first` on, that of the archive */
    size_t first;
} item_tensor_names;

static fsdpck_status too_large(fsdpck_error *err)
{
    return FAIL_WITH(err, LIMIT, DCP_OBJECT, ("byte item is too large to be read as an object"),
                     (expected, "at most %" PRIu64 " bytes", OBJECT_LIMIT));
}

const char *dcp_object_name(const catalogue *cat, uint32_t number)
{
    for (size_t i = 0; i < catalogue_object_count(cat); i++)
        if (catalogue_object(cat, i)->number == number)
            return catalogue_name(cat, catalogue_object(cat, i)->name);
    return "";
}

fsdpck_status dcp_item_read(dcp_folder *d, const dcp_repeat *o, dcp_item_bytes *item,
                            fsdpck_error *err)
{
    dcp_blob_reader reader = {.d = d, .file = o->file};
    const zip_input in = {.read = dcp_blob_read,
                          .ctx = &reader,
                          .base_offset_bytes = o->offset_bytes,
                          .nbytes = o->nbytes};
    RETURN_IF(dcp_transform_check(d, o->transform, &item->zstd, err));
    if (o->nbytes > OBJECT_LIMIT)
        return too_large(err);
    if (!item->zstd) {
        uint8_t *to = vec_push_n(&item->bytes, (size_t)o->nbytes, err);
        item->base_bytes = o->offset_bytes;
        return to == NULL ? FSDPCK_LIMIT
                          : dcp_blob_read(&reader, o->offset_bytes, to, o->nbytes, err);
    }
    zstd_stream *z;
    RETURN_IF(zstd_stream_open(&in, d->owner, &z, err));
    fsdpck_status st;
    uint64_t got, step = 65536;
    do {
        const size_t had = item->bytes.count;
        uint8_t *to = vec_push_n(&item->bytes, (size_t)step, err);
        st = to == NULL ? FSDPCK_LIMIT : zstd_stream_read_some(z, to, step, &got, err);
        if (st != FSDPCK_OK)
            break;
        item->bytes.count = had + (size_t)got;
        if (item->bytes.count > OBJECT_LIMIT)
            st = too_large(err);
        else if (got < step)
            st = zstd_stream_finish(z, NULL, NULL, err);
    } while (st == FSDPCK_OK && got == step);
    zstd_stream_close(z);
    return st;
}

fsdpck_status dcp_item_read_at(void *ctx, uint64_t offset_bytes, void *dst, uint64_t nbytes,
                               fsdpck_error *err)
{
    const item_bytes *item = ctx;
    if (offset_bytes < item->base_bytes ||
        !checked_range(offset_bytes - item->base_bytes, nbytes, item->bytes.count))
        return FAIL(err, BADINPUT, DCP_RANGE, "byte item refers to bytes past its end");
    if (nbytes > 0)
        memcpy(dst, VEC_AT(&item->bytes, uint8_t, offset_bytes - item->base_bytes), (size_t)nbytes);
    return FSDPCK_OK;
}

bool dcp_item_is_torch_save(const uint8_t *first, const uint8_t *last, uint64_t nbytes)
{
    return (nbytes >= 4 && memcmp(first, "PK\3\4", 4) == 0) ||
           torch_is_legacy(first, nbytes < DCP_ITEM_BEGIN ? nbytes : DCP_ITEM_BEGIN) ||
           (nbytes >= DCP_ITEM_END && memcmp(last, "PK\5\6", 4) == 0);
}

static bool is_torch_save(const item_bytes *item)
{
    const uint64_t n = item->bytes.count;
    const uint8_t *b = item->bytes.items;
    return dcp_item_is_torch_save(b, n < DCP_ITEM_END ? b : b + n - DCP_ITEM_END, n);
}

bool dcp_item_is_pickle(const uint8_t *bytes, uint64_t nbytes)
{
    return nbytes >= 3 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 &&
           bytes[nbytes - 1] == '.';
}

/* Tensor i of the archive as a tensor of the catalogue. */
static fsdpck_status add_inside(item_tensor_names *n, size_t i, const text_buf *name,
                                uint64_t *mapped, fsdpck_error *err)
{
    dcp_folder *d = n->d;
    const torch_archive *a = n->archive;
    const torch_tensor *t = VEC_AT(&a->tensors, torch_tensor, i);
    const cat_object *o = catalogue_object(n->cat, n->object);

    *mapped = UINT64_MAX;
    RETURN_IF(text_check(name, err));
    if (t->meta)
        return FSDPCK_OK;
    if (VEC_AT(&a->storages, torch_storage, t->storage)->deflated)
        return FAIL(err, UNSUPPORTED, ZIP_METHOD, "byte item holds a tensor in a deflated record");
    if (d->inside.count >= DCP_AUX_ITEM_TENSOR - 1)
        return FAIL(err, LIMIT, DCP_OBJECT, "byte items hold too many tensors");
    dcp_item_tensor *inside = vec_push(&d->inside, err);
    if (inside == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(torch_tensor_locate(a, t, &inside->where, err));
    inside->where.file = o->file;
    inside->where.stream = n->item->zstd;
    const cat_chunk proto = {
        .file = o->file,
        .aux = DCP_AUX_ITEM_TENSOR | (uint32_t)(d->inside.count - 1),
        .rank = UINT16_MAX,
        .place = LOCATION_BLOB,
        .offset_bytes = o->offset_bytes,
        .nbytes = o->nbytes,
    };
    uint32_t tensor, *archived = vec_push(&n->archived, err);
    if (archived == NULL)
        return FSDPCK_LIMIT;
    RETURN_IF(catalogue_add_object_tensor(n->cat, name->text, name->nbytes, (dtype)t->dtype,
                                          t->ndim, torch_tensor_sizes(a, t), &proto, &tensor, err));
    catalogue_tensor(n->cat, tensor)->python = t->python;
    if (t->requires_grad)
        catalogue_tensor(n->cat, tensor)->flags |= CAT_TENSOR_REQUIRES_GRAD;
    *archived = (uint32_t)i;
    *mapped = tensor;
    return FSDPCK_OK;
}

/* Named after the object and a number until its path is known. */
static fsdpck_status add_numbered(item_tensor_names *n, size_t i, uint64_t *mapped,
                                  fsdpck_error *err)
{
    const uint32_t id = catalogue_object(n->cat, n->object)->name;
    text_buf name = {0};
    text_append(&name, catalogue_name(n->cat, id), catalogue_name_nbytes(n->cat, id));
    text_printf(&name, "#%zu", i);
    const fsdpck_status st = add_inside(n, i, &name, mapped, err);
    text_release(&name);
    return st;
}

/* A tensor that already has a path in the object is added again. */
static fsdpck_status name_inside(void *ctx, const char *name, size_t nbytes, value path,
                                 uint64_t *tensor, fsdpck_error *err)
{
    item_tensor_names *n = ctx;
    uint32_t id;
    if (catalogue_find(n->cat, name, nbytes) != CAT_NONE ||
        strtab_find(&n->d->item_tensor_names, name, nbytes) != STRTAB_NONE)
        return FSDPCK_OK;
    RETURN_IF(strtab_intern(&n->d->item_tensor_names, name, nbytes, &id, err));
    if (catalogue_tensor(n->cat, *tensor)->flags & CAT_TENSOR_NAMED) {
        text_buf text = {0};
        text_append(&text, name, nbytes);
        const uint32_t archived = *VEC_AT(&n->archived, const uint32_t, *tensor - n->first);
        const fsdpck_status st = add_inside(n, archived, &text, tensor, err);
        text_release(&text);
        RETURN_IF(st);
    } else {
        RETURN_IF(catalogue_rename(n->cat, (uint32_t)*tensor, name, nbytes, err));
    }
    cat_tensor *t = catalogue_tensor(n->cat, *tensor);
    t->path = path;
    t->flags |= CAT_TENSOR_NAMED;
    return FSDPCK_OK;
}

static fsdpck_status name_all_inside(item_tensor_names *n, fsdpck_error *err)
{
    value_map judged = VALUE_MAP(n->d->owner), seen = VALUE_MAP(n->d->owner);
    cat_object *o = catalogue_object(n->cat, n->object);
    inner_names in = {.pool = &n->cat->pool,
                      .judged = &judged,
                      .seen = &seen,
                      .steps_limit = INSIDE_STEPS_LEAST +
                                     INSIDE_STEPS_PER_CELL * n->archive->pool->cells.count,
                      .on_tensor = name_inside,
                      .ctx = n};
    const fsdpck_status st =
        n->archived.count == 0
            ? FSDPCK_OK
            : inner_name_tensors(&in, catalogue_name(n->cat, o->name),
                                 catalogue_name_nbytes(n->cat, o->name), o->path, &o->content, err);
    value_map_release(&judged);
    value_map_release(&seen);
    return st;
}

static fsdpck_status load_archive(dcp_folder *d, catalogue *cat, uint32_t object, item_bytes *item,
                                  fsdpck_error *err)
{
    const zip_input in = {.read = dcp_item_read_at,
                          .ctx = item,
                          .base_offset_bytes = item->base_bytes,
                          .nbytes = item->bytes.count};
    value_pool pool;
    torch_archive a;

    value_pool_init(&pool, d->owner);
    fsdpck_status st = torch_archive_open(&in, d->owner, &pool, d->opaque_calls, &a, err);
    if (st != FSDPCK_OK) {
        value_pool_release(&pool);
        return st;
    }
    const size_t count = a.tensors.count;
    item_tensor_names n = {.d = d,
                           .cat = cat,
                           .object = object,
                           .archive = &a,
                           .item = item,
                           .archived = VEC_OF(uint32_t, d->owner),
                           .first = catalogue_tensor_count(cat)};
    uint64_t *map = budget_alloc(d->owner, count * sizeof *map, err);
    if (map == NULL)
        st = FSDPCK_LIMIT;
    if (st == FSDPCK_OK)
        st = pt_refuse_sharded(&pool, a.root, err);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++)
        st = add_numbered(&n, i, &map[i], err);
    if (st == FSDPCK_OK)
        st = value_copy(&pool, a.root, &cat->pool, map, &catalogue_object(cat, object)->content,
                        err);
    if (st == FSDPCK_OK)
        st = name_all_inside(&n, err);
    vec_release(&n.archived);
    budget_free(d->owner, map, count * sizeof *map);
    torch_archive_release(&a);
    value_pool_release(&pool);
    return st;
}

/* --- a file of torch.save whose keys are objects --- */

typedef struct wanted_tensors {
    uint8_t *wanted;
    size_t count;
} wanted_tensors;

static fsdpck_status want_tensor(void *ctx, value v, fsdpck_error *err)
{
    const wanted_tensors *w = ctx;
    (void)err;
    if (value_kind_of(v) == VALUE_TENSOR && value_tensor_index(v) < w->count)
        w->wanted[value_tensor_index(v)] = 1;
    return FSDPCK_OK;
}

/* The content of object n->object, which has the tensors of `content` alone. */
static fsdpck_status add_content(item_tensor_names *n, const value_pool *pool, value content,
                                 fsdpck_error *err)
{
    const size_t count = n->archive->tensors.count;
    wanted_tensors w = {budget_alloc(n->d->owner, count, err), count};
    uint64_t *map = w.wanted == NULL ? NULL : budget_alloc(n->d->owner, count * sizeof *map, err);
    fsdpck_status st = map == NULL ? FSDPCK_LIMIT : pt_refuse_sharded(pool, content, err);
    if (st == FSDPCK_OK)
        st = value_walk(pool, content, want_tensor, &w, err);
    for (size_t i = 0; i < count && st == FSDPCK_OK; i++)
        if (w.wanted[i])
            st = add_numbered(n, i, &map[i], err);
    if (st == FSDPCK_OK)
        st = value_copy(pool, content, &n->cat->pool, map,
                        &catalogue_object(n->cat, n->object)->content, err);
    if (st == FSDPCK_OK)
        st = name_all_inside(n, err);
    budget_free(n->d->owner, map, map == NULL ? 0 : count * sizeof *map);
    budget_free(n->d->owner, w.wanted, w.wanted == NULL ? 0 : count);
    return st;
}

fsdpck_status dcp_object_set_content(dcp_folder *d, uint32_t object, const torch_archive *archive,
                                     const dcp_item_bytes *item, value content, fsdpck_error *err)
{
    item_tensor_names n = {.d = d,
                           .cat = d->cat,
                           .object = object,
                           .archive = archive,
                           .item = item,
                           .archived = VEC_OF(uint32_t, d->owner),
                           .first = catalogue_tensor_count(d->cat)};
    const fsdpck_status st = add_content(&n, archive->pool, content, err);
    vec_release(&n.archived);
    return st;
}

/* Byte items of the other ranks, if each rank wrote its own: RNG states differ, most others do not.
 */
static fsdpck_status compare_repeats(dcp_folder *d, catalogue *cat, uint32_t object,
                                     const item_bytes *item, fsdpck_error *err)
{
    const dcp_repeat *repeats = d->repeats.items;
    const uint32_t number = catalogue_object(cat, object)->number;
    uint64_t differing = 0;

    for (size_t low = dcp_first_repeat(d, number);
         low < d->repeats.count && repeats[low].object == number; low++) {
        item_bytes other = {.bytes = VEC_OF(uint8_t, d->owner)};
        const fsdpck_status st = dcp_item_read(d, &repeats[low], &other, err);
        if (st == FSDPCK_OK &&
            (other.bytes.count != item->bytes.count ||
             (other.bytes.count > 0 &&
              memcmp(other.bytes.items, item->bytes.items, other.bytes.count) != 0)))
            differing++;
        vec_release(&other.bytes);
        RETURN_IF(st);
    }
    if (differing > 0)
        log_warn(
            &d->log, FSDPCK_FINDING_DCP_DIFFER, "",
            "object '%s' differs on %" PRIu64 " other rank%s: using the value of rank %" PRIu32,
            catalogue_name(cat, catalogue_object(cat, object)->name), differing,
            text_plural(differing), catalogue_file(cat, catalogue_object(cat, object)->file)->rank);
    return FSDPCK_OK;
}

fsdpck_status dcp_item_check_bytes(const dcp_item_bytes *item, fsdpck_error *err)
{
    const uint8_t *bytes = item->bytes.items;
    const size_t nbytes = item->bytes.count;
    if (nbytes == 0 || bytes[0] != 0 || memcmp(bytes, bytes + 1, nbytes - 1) != 0)
        return FSDPCK_OK;
    return FAIL_WITH(err, BADINPUT, DCP_BYTES, ("object contains only zeros"),
                     (expected, "a torch.save file or a pickle"),
                     (found, "%zu bytes, all of them 0", nbytes),
                     (next, "use another save, or omit the objects with --objects drop: the data "
                            "of this file was probably lost when the machine stopped"));
}

/* Bytes that torch does not load, such as those of another planner. */
static fsdpck_status keep_bytes(dcp_folder *d, catalogue *cat, uint32_t object,
                                const item_bytes *item, fsdpck_error *err)
{
    const size_t nbytes = item->bytes.count;
    value raw;
    RETURN_IF(dcp_item_check_bytes(item, err));
    log_warn(&d->log, FSDPCK_FINDING_DCP_BYTES, "",
             "object '%s' is neither a torch.save file nor a readable pickle: using its %zu bytes",
             catalogue_name(cat, catalogue_object(cat, object)->name), nbytes);
    RETURN_IF(value_new_bytes(&cat->pool, item->bytes.items, nbytes, &raw, err));
    catalogue_object(cat, object)->content = raw;
    catalogue_object(cat, object)->opaque = 1;
    return FSDPCK_OK;
}

fsdpck_status dcp_object_load(void *self, catalogue *cat, uint32_t object, fsdpck_error *err)
{
    dcp_folder *d = self;
    item_bytes item = {.bytes = VEC_OF(uint8_t, d->owner)};
    bool is_value = false;
    fsdpck_status st;

    if (catalogue_object(cat, object)->loaded)
        return FSDPCK_OK;
    const cat_object *given = catalogue_object(cat, object);
    const dcp_repeat own = {object, given->file, given->aux, given->offset_bytes, given->nbytes};
    GOTO_IF(dcp_item_read(d, &own, &item, err), out);
    GOTO_IF(compare_repeats(d, cat, object, &item, err), out);
    if (is_torch_save(&item)) {
        is_value = true;
        st = load_archive(d, cat, object, &item, err);
    } else if (dcp_item_is_pickle(item.bytes.items, item.bytes.count)) {
        st = dcp_item_load_pickle(d, cat, object, &item, &is_value, err);
    }
    if (st == FSDPCK_OK && !is_value)
        st = keep_bytes(d, cat, object, &item, err);
    if (st == FSDPCK_OK)
        catalogue_object(cat, object)->loaded = 1;
out:
    if (st != FSDPCK_OK) {
        const cat_object *o = catalogue_object(cat, object);
        text_buf path = {.limit_bytes = 8192};
        text_printf(&path, "%s/%s", d->dir.path,
                    catalogue_name(cat, catalogue_file(cat, o->file)->path));
        error_path(err, path.text);
        text_release(&path);
        error_tensor(err, catalogue_name(cat, o->name));
        error_offset(err, o->offset_bytes);
    }
    vec_release(&item.bytes);
    return st;
}
