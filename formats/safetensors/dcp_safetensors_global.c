#include "formats/safetensors/dcp_safetensors_global.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"

#define NO_OFFSETS UINT64_MAX

typedef struct global_tensor {
    uint8_t dtype;
    uint8_t ndim;
    uint8_t solid; /* some shard has elements, so ndim is final */
    uint64_t dims_at;
    uint64_t nelems_held;
} global_tensor;

typedef struct global_shard {
    uint32_t tensor;
    uint32_t file;
    uint32_t entry;
    uint64_t offsets_at; /* NO_OFFSETS: no elements, and dims that are not the tensor's */
    uint64_t ends_at;    /* then: its offsets, which are the end of the tensor */
    uint32_t ends_count;
} global_shard;

void shards_global_init(shards_global *g, budget *owner)
{
    *g = (shards_global){
        .tensors = VEC_OF(global_tensor, owner),
        .dims = VEC_OF(uint64_t, owner),
        .shards = VEC_OF(global_shard, owner),
        .offsets = VEC_OF(uint64_t, owner),
        .owner = owner,
    };
    strtab_init(&g->names, owner);
}

void shards_global_release(shards_global *g)
{
    strtab_release(&g->names);
    VEC_RELEASE_ALL(&g->tensors, &g->dims, &g->shards, &g->offsets);
}

static fsdpck_status fail(fsdpck_error *err, fsdpck_finding_id finding, const char *what,
                          const char *tensor)
{
    return FAIL_AS(err, FSDPCK_BADINPUT, finding, ("%s", what), (tensor, tensor));
}

/* --- DCP_SHARDING_INFO --- */

/* Offsets of the tensors of one file, by their name id in its header. */
typedef struct shard_place {
    uint64_t offsets_at; /* in shards_global.offsets */
    uint32_t count;
} shard_place;

static fsdpck_status read_offsets(json_reader *r, vec *offsets, shard_place *p, fsdpck_error *err)
{
    json_token t;
    RETURN_IF(json_expect(r, JSON_ARRAY, &t, err));
    p->offsets_at = offsets->count;
    p->count = 0;
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_ARRAY_END)
            return FSDPCK_OK;
        if (t.kind != JSON_NUMBER || !t.is_u64 || t.u64 > INT64_MAX || p->count == NDIM_MAX)
            return fail(err, FSDPCK_FINDING_ST_META, "DCP_SHARDING_INFO has invalid saved_offsets",
                        NULL);
        RETURN_IF(vec_add(offsets, &(uint64_t){t.u64}, err));
        p->count++;
    }
}

static fsdpck_status read_tensor_info(json_reader *r, vec *offsets, shard_place *p,
                                      fsdpck_error *err)
{
    json_token t;
    bool has = false;
    RETURN_IF(json_expect(r, JSON_OBJECT, &t, err));
    for (;;) {
        RETURN_IF(json_next(r, &t, err));
        if (t.kind == JSON_OBJECT_END)
            break;
        const bool wanted = t.nbytes == 13 && memcmp(t.text, "saved_offsets", 13) == 0;
        if (wanted && has)
            return fail(err, FSDPCK_FINDING_ST_META, "DCP_SHARDING_INFO has saved_offsets twice",
                        NULL);
        if (wanted) {
            has = true;
            RETURN_IF(read_offsets(r, offsets, p, err));
        } else {
            RETURN_IF(json_next(r, &t, err));
            RETURN_IF(json_skip(r, &t, err));
        }
    }
    return has ? FSDPCK_OK
               : fail(err, FSDPCK_FINDING_ST_META, "DCP_SHARDING_INFO lacks saved_offsets", NULL);
}

static fsdpck_status read_info(const st_header *h, vec *offsets, shard_place *places,
                               fsdpck_error *err)
{
    size_t nbytes;
    const char *text = st_header_metadata(h, "DCP_SHARDING_INFO", &nbytes);
    if (text == NULL)
        return h->entries.count == 0 ? FSDPCK_OK
                                     : fail(err, FSDPCK_FINDING_ST_META,
                                            "shard has no DCP_SHARDING_INFO in its metadata", NULL);
    json_reader r;
    json_token t;
    json_reader_init(&r, text, nbytes, FSDPCK_FINDING_ST_META);
    fsdpck_status st;
    GOTO_IF(json_expect(&r, JSON_OBJECT, &t, err), out);
    for (;;) {
        GOTO_IF(json_next(&r, &t, err), out);
        if (t.kind == JSON_OBJECT_END)
            break;
        const uint32_t id = strtab_find(&h->names, t.text, t.nbytes);
        shard_place unused = {.offsets_at = NO_OFFSETS};
        shard_place *p = id != STRTAB_NONE ? &places[id] : &unused;
        if (p->offsets_at != NO_OFFSETS) {
            st = fail(err, FSDPCK_FINDING_ST_META, "DCP_SHARDING_INFO contains a tensor twice",
                      strtab_text(&h->names, id));
            goto out;
        }
        st = read_tensor_info(&r, offsets, p, err);
        if (st != FSDPCK_OK) {
            if (id != STRTAB_NONE)
                error_tensor(err, strtab_text(&h->names, id));
            goto out;
        }
    }
    st = json_next(&r, &t, err);
out:
    json_reader_release(&r);
    if (st != FSDPCK_OK && err != NULL)
        err->has_offset = 0; /* it was inside of the text, which is escaped in the file */
    return st;
}

/* --- gathering --- */

static fsdpck_status tensor_of(shards_global *g, const char *name, size_t nbytes, const st_entry *e,
                               uint32_t *id, fsdpck_error *err)
{
    const size_t known = strtab_count(&g->names);
    RETURN_IF(strtab_intern(&g->names, name, nbytes, id, err));
    if (*id < known)
        return FSDPCK_OK;
    RETURN_IF(vec_add(
        &g->tensors, &(global_tensor){.dtype = e->dtype, .ndim = e->ndim, .dims_at = g->dims.count},
        err));
    /* Space for any number of dims: an empty shard may come first with a wrong number. */
    return vec_push_n(&g->dims, e->ndim, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
}

/* torch writes a shard without elements as shape [0], for any number of dims. */
static fsdpck_status settle_ndim(shards_global *g, global_tensor *t, const st_entry *e,
                                 fsdpck_error *err)
{
    if (t->ndim == e->ndim)
        return FSDPCK_OK;
    if (t->solid)
        return FAIL(err, BADINPUT, ST_SHARD_RANK, "shards of one tensor have %u and %u dims",
                    t->ndim, e->ndim);
    t->ndim = e->ndim;
    t->dims_at = g->dims.count;
    return vec_push_n(&g->dims, e->ndim, err) != NULL ? FSDPCK_OK : FSDPCK_LIMIT;
}

static fsdpck_status push_shard(shards_global *g, global_shard shard, fsdpck_error *err)
{
    return vec_add(&g->shards, &shard, err);
}

static fsdpck_status add_shard(shards_global *g, const st_header *h, const st_entry *e,
                               shard_place p, global_shard shard, fsdpck_error *err)
{
    const uint64_t *shape = st_header_shape(h, e);
    global_tensor *t = VEC_AT(&g->tensors, global_tensor, shard.tensor);
    const uint64_t nelems = box_nelems(shape, e->ndim);
    if (t->dtype != e->dtype)
        return FAIL(err, BADINPUT, ST_SHARD_DTYPE, "shards of one tensor are %s and %s",
                    dtype_get((dtype)t->dtype)->name, dtype_get((dtype)e->dtype)->name);
    if (nelems > 0) {
        RETURN_IF(settle_ndim(g, t, e, err));
        t->solid = 1;
    } else if (t->ndim != e->ndim || (p.offsets_at != NO_OFFSETS && p.count != e->ndim)) {
        shard.offsets_at = NO_OFFSETS;
        shard.ends_at = p.offsets_at;
        shard.ends_count = p.count;
        return push_shard(g, shard, err);
    }
    if (p.offsets_at == NO_OFFSETS)
        return fail(err, FSDPCK_FINDING_ST_META, "DCP_SHARDING_INFO lacks a tensor of its file",
                    NULL);
    if (p.count != e->ndim)
        return FAIL(err, BADINPUT, ST_META,
                    "DCP_SHARDING_INFO has %u offset%s for a shard of %u dim%s", p.count,
                    text_plural(p.count), e->ndim, text_plural(e->ndim));
    t->nelems_held += nelems;
    shard.offsets_at = p.offsets_at;
    for (unsigned d = 0; d < e->ndim; d++) {
        uint64_t *size = VEC_AT(&g->dims, uint64_t, t->dims_at + d);
        uint64_t end;
        if (!checked_add(*VEC_AT(&g->offsets, const uint64_t, p.offsets_at + d), shape[d], &end))
            return fail(err, FSDPCK_FINDING_ST_SHAPE, "offset and size of a shard are too large",
                        NULL);
        if (end > *size)
            *size = end;
    }
    return push_shard(g, shard, err);
}

/* torch gives a shard without elements the end of the tensor as its offset. */
static void add_ends(shards_global *g)
{
    for (size_t i = 0; i < g->shards.count; i++) {
        const global_shard *shard = VEC_AT(&g->shards, const global_shard, i);
        const global_tensor *t = VEC_AT(&g->tensors, const global_tensor, shard->tensor);
        if (shard->offsets_at != NO_OFFSETS || shard->ends_at == NO_OFFSETS || !t->solid ||
            shard->ends_count != t->ndim)
            continue;
        for (unsigned d = 0; d < t->ndim; d++) {
            uint64_t *size = VEC_AT(&g->dims, uint64_t, t->dims_at + d);
            const uint64_t end = *VEC_AT(&g->offsets, const uint64_t, shard->ends_at + d);
            *size = end > *size ? end : *size;
        }
    }
}

/* The sharding info of one file. Its failure is returned when the file is added, so that the first
 * file with any error is reported. */
typedef struct file_info {
    uint64_t nbytes; /* of the places */
    shard_place *places;
    vec offsets;
    fsdpck_status status;
    fsdpck_error error;
} file_info;

/* Files whose info is read in parallel. */
typedef struct info_batch {
    const st_files *files;
    budget *owner;
    size_t first;
    file_info *infos;
} info_batch;

static fsdpck_status read_file_info(void *ctx, unsigned thread, uint64_t job, fsdpck_error *err)
{
    const info_batch *b = ctx;
    const st_header *h = st_files_header(b->files, b->first + (size_t)job);
    const size_t count = strtab_count(&h->names);
    file_info *f = &b->infos[job];
    (void)thread;
    (void)err;
    f->nbytes = count * sizeof *f->places;
    f->offsets = VEC_OF(uint64_t, b->owner);
    f->error = FSDPCK_ERROR_INIT;
    f->places = budget_alloc(b->owner, f->nbytes, &f->error);
    f->status = f->places == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    if (f->status != FSDPCK_OK)
        return FSDPCK_OK;
    for (size_t i = 0; i < count; i++)
        f->places[i] = (shard_place){.offsets_at = NO_OFFSETS};
    f->status = read_info(h, &f->offsets, f->places, &f->error);
    return FSDPCK_OK;
}

static fsdpck_status add_file(shards_global *g, const st_files *s, size_t index, const file_info *f,
                              fsdpck_error *err)
{
    const st_header *h = st_files_header(s, index);
    const uint64_t base = g->offsets.count;
    if (f->status != FSDPCK_OK && err != NULL)
        *err = f->error;
    RETURN_IF(f->status);
    RETURN_IF(vec_add_n(&g->offsets, f->offsets.items, f->offsets.count, err));
    for (size_t k = 0; k < h->entries.count; k++) {
        const st_entry *e = VEC_AT(&h->entries, const st_entry, k);
        global_shard shard = {.file = (uint32_t)index, .entry = (uint32_t)k};
        shard_place at = f->places[e->name];
        size_t nbytes;
        const char *name = st_header_name(h, e, &nbytes);
        at.offsets_at += at.offsets_at == NO_OFFSETS ? 0 : base;
        fsdpck_status st = tensor_of(g, name, nbytes, e, &shard.tensor, err);
        if (st == FSDPCK_OK)
            st = add_shard(g, h, e, at, shard, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, name);
            return st;
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status gather_batch(shards_global *g, info_batch *b, size_t count, fsdpck_error *err)
{
    memset(b->infos, 0, count * sizeof *b->infos);
    fsdpck_status st = st_files_run(b->files, count, read_file_info, b, err);
    for (size_t i = 0; i < count; i++) {
        file_info *f = &b->infos[i];
        if (st == FSDPCK_OK) {
            st = add_file(g, b->files, b->first + i, f, err);
            if (st != FSDPCK_OK)
                st_files_error_path(b->files, b->first + i, err);
        }
        budget_free(g->owner, f->places, f->nbytes);
        vec_release(&f->offsets);
    }
    return st;
}

fsdpck_status shards_global_gather(shards_global *g, const st_files *s, fsdpck_error *err)
{
    const size_t count = st_files_count(s), most = 2 * (size_t)st_files_threads(s);
    const size_t step = most < count ? most : count;
    const uint64_t nbytes = step * sizeof(file_info);
    info_batch b = {.files = s, .owner = g->owner, .infos = budget_alloc(g->owner, nbytes, err)};
    if (b.infos == NULL)
        return FSDPCK_LIMIT;
    fsdpck_status st = FSDPCK_OK;
    for (; st == FSDPCK_OK && b.first < count; b.first += step)
        st = gather_batch(g, &b, count - b.first < step ? count - b.first : step, err);
    budget_free(g->owner, b.infos, nbytes);
    if (st == FSDPCK_OK)
        add_ends(g);
    return st;
}

/* --- conversion to the catalogue --- */

fsdpck_status shards_global_fill(const shards_global *g, const st_files *s, catalogue *cat,
                                 fsdpck_error *err)
{
    static const uint64_t none[1];
    for (uint32_t i = 0; i < g->tensors.count; i++) {
        const global_tensor *t = VEC_AT(&g->tensors, const global_tensor, i);
        const uint64_t *shape = t->ndim > 0 ? VEC_AT(&g->dims, const uint64_t, t->dims_at) : none;
        uint32_t tensor;
        RETURN_IF(catalogue_add_tensor(cat, strtab_text(&g->names, i), strtab_nbytes(&g->names, i),
                                       (dtype)t->dtype, t->ndim, shape, &tensor, err));
    }
    for (size_t i = 0; i < g->shards.count; i++) {
        const global_shard *shard = VEC_AT(&g->shards, const global_shard, i);
        const st_header *h = st_files_header(s, shard->file);
        const st_entry *e = VEC_AT(&h->entries, const st_entry, shard->entry);
        if (shard->offsets_at == NO_OFFSETS)
            continue;
        const uint64_t *offsets =
            e->ndim > 0 ? VEC_AT(&g->offsets, const uint64_t, shard->offsets_at) : none;
        if (e->ndim != VEC_AT(&g->tensors, const global_tensor, shard->tensor)->ndim)
            continue; /* empty, and written before the number of dims was known */
        const uint32_t rank = catalogue_file(cat, shard->file)->rank;
        const cat_chunk proto = {
            .file = shard->file,
            .aux = CAT_NONE,
            .rank = rank < UINT16_MAX ? (uint16_t)rank : UINT16_MAX,
            .place = LOCATION_ROWS,
            .offset_bytes = h->data_offset_bytes + e->begin_bytes,
            .nbytes = e->end_bytes - e->begin_bytes,
        };
        RETURN_IF(
            catalogue_add_chunk(cat, shard->tensor, offsets, st_header_shape(h, e), &proto, err));
    }
    return FSDPCK_OK;
}

size_t shards_global_count(const shards_global *g)
{
    return g->shards.count;
}

void shards_global_get(const shards_global *g, const st_files *s, size_t index, shards_shard *shard)
{
    const global_shard *from = VEC_AT(&g->shards, const global_shard, index);
    const st_header *h = st_files_header(s, from->file);
    const st_entry *e = VEC_AT(&h->entries, const st_entry, from->entry);
    *shard = (shards_shard){
        .tensor = from->tensor,
        .file = from->file,
        .ndim = e->ndim,
        .sizes = st_header_shape(h, e),
        .nelems = box_nelems(st_header_shape(h, e), e->ndim),
    };
    if (from->offsets_at != NO_OFFSETS && e->ndim > 0)
        shard->offsets = VEC_AT(&g->offsets, const uint64_t, from->offsets_at);
}

const uint64_t *shards_global_shape(const shards_global *g, uint32_t tensor, unsigned *ndim)
{
    const global_tensor *t = VEC_AT(&g->tensors, const global_tensor, tensor);
    *ndim = t->ndim;
    return t->ndim > 0 ? VEC_AT(&g->dims, const uint64_t, t->dims_at) : NULL;
}

bool shards_global_has_hole(const shards_global *g, uint32_t tensor)
{
    const global_tensor *t = VEC_AT(&g->tensors, const global_tensor, tensor);
    uint64_t nelems;
    return t->ndim > 0 &&
           checked_product(VEC_AT(&g->dims, const uint64_t, t->dims_at), t->ndim, &nelems) &&
           nelems > t->nelems_held;
}

void shards_global_list_holes(const shards_global *g, text_buf *list)
{
    for (uint32_t i = 0; i < g->tensors.count && !list->failed; i++)
        if (shards_global_has_hole(g, i))
            text_printf(list, "%s'%s'", list->nbytes > 0 ? ", " : "", strtab_text(&g->names, i));
}
