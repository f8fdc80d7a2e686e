/* Objects that are not tensors: kept once if equal on all ranks, otherwise one per rank. */
#include <inttypes.h>
#include <string.h>

#include "formats/pt/ranks_internal.h"

/* Two tensors inside objects are compared in memory if checksums do not decide. */
enum { BLOCK_NBYTES = 1 << 16, STRIDED_MAX = 1 << 26 };

/* --- equality of shards --- */

static const uint64_t *piece_sizes(const torch_folder *r, const torch_shard *q)
{
    return VEC_AT(&r->dims, const uint64_t, q->dims_at);
}

/* Whether the record contains exactly the tensor. */
static bool fills_record(const torch_folder *r, const torch_shard *q)
{
    return (q->flags & TORCH_SHARD_ROWS) && q->offset_bytes == q->record_offset_bytes &&
           q->record_nbytes ==
               box_nelems(piece_sizes(r, q), q->ndim) * dtype_get((dtype)q->dtype)->itemsize_bytes;
}

static fsdpck_status rows_equal(const torch_folder *r, const torch_shard *a, const torch_shard *b,
                                uint64_t nbytes, bool *equal, fsdpck_error *err)
{
    uint8_t *block = budget_alloc(r->owner, 2 * BLOCK_NBYTES, err);
    fsdpck_status st = block == NULL ? FSDPCK_LIMIT : FSDPCK_OK;
    *equal = true;
    for (uint64_t at = 0; st == FSDPCK_OK && *equal && at < nbytes; at += BLOCK_NBYTES) {
        const uint64_t n = nbytes - at < BLOCK_NBYTES ? nbytes - at : BLOCK_NBYTES;
        file_set *files = (file_set *)&r->files;
        st = file_set_read_at(files, a->file, a->offset_bytes + at, block, n, err);
        if (st == FSDPCK_OK)
            st = file_set_read_at(files, b->file, b->offset_bytes + at, block + BLOCK_NBYTES, n,
                                  err);
        *equal = st == FSDPCK_OK && memcmp(block, block + BLOCK_NBYTES, n) == 0;
    }
    if (block != NULL)
        budget_free(r->owner, block, 2 * BLOCK_NBYTES);
    return st;
}

static uint64_t element_at(const uint64_t *index, const uint64_t *strides, unsigned ndim)
{
    uint64_t at = 0;
    for (unsigned d = 0; d < ndim; d++)
        at += index[d] * strides[d];
    return at;
}

static fsdpck_status strided_equal(const torch_folder *r, const torch_shard *a,
                                   const torch_shard *b, bool *equal, fsdpck_error *err)
{
    const uint64_t total = a->record_nbytes + b->record_nbytes;
    const uint64_t *sizes = piece_sizes(r, a);
    const size_t itemsize = dtype_get((dtype)a->dtype)->itemsize_bytes;
    uint64_t index[NDIM_MAX] = {0};

    *equal = false;
    if (a->record_nbytes > STRIDED_MAX || b->record_nbytes > STRIDED_MAX)
        return FSDPCK_OK;
    uint8_t *bytes = budget_alloc(r->owner, total, err);
    if (bytes == NULL)
        return FSDPCK_LIMIT;
    file_set *files = (file_set *)&r->files;
    fsdpck_status st =
        file_set_read_at(files, a->file, a->record_offset_bytes, bytes, a->record_nbytes, err);
    if (st == FSDPCK_OK)
        st = file_set_read_at(files, b->file, b->record_offset_bytes, bytes + a->record_nbytes,
                              b->record_nbytes, err);
    const uint8_t *x = bytes + (a->offset_bytes - a->record_offset_bytes);
    const uint8_t *y = bytes + a->record_nbytes + (b->offset_bytes - b->record_offset_bytes);
    *equal = st == FSDPCK_OK;
    for (uint64_t left = box_nelems(sizes, a->ndim); *equal && left > 0; left--) {
        *equal = memcmp(x + element_at(index, sizes + a->ndim, a->ndim) * itemsize,
                        y + element_at(index, piece_sizes(r, b) + a->ndim, a->ndim) * itemsize,
                        itemsize) == 0;
        for (unsigned d = a->ndim; d-- > 0 && ++index[d] == sizes[d];)
            index[d] = 0;
    }
    budget_free(r->owner, bytes, total);
    return st;
}

fsdpck_status ranks_shards_equal(const torch_folder *r, uint32_t first, uint32_t second,
                                 bool *equal, fsdpck_error *err)
{
    const torch_shard *a = VEC_AT(&r->pieces, const torch_shard, first);
    const torch_shard *b = VEC_AT(&r->pieces, const torch_shard, second);
    const unsigned meaning = TORCH_SHARD_SWAP | TORCH_SHARD_CONJ | TORCH_SHARD_NEG;
    const uint64_t nelems = box_nelems(piece_sizes(r, a), a->ndim);

    *equal = false;
    if (a->dtype != b->dtype || a->ndim != b->ndim ||
        (a->ndim > 0 &&
         memcmp(piece_sizes(r, a), piece_sizes(r, b), a->ndim * sizeof(uint64_t)) != 0))
        return FSDPCK_OK;
    if (nelems == 0) {
        *equal = true;
        return FSDPCK_OK;
    }
    if ((a->flags & meaning) != (b->flags & meaning))
        return FSDPCK_OK;
    if ((a->flags & b->flags & TORCH_SHARD_CRC) && fills_record(r, a) && fills_record(r, b)) {
        *equal = a->crc32 == b->crc32;
        return FSDPCK_OK;
    }
    if ((a->flags | b->flags) & TORCH_SHARD_STREAM)
        return FSDPCK_OK;
    if (a->flags & b->flags & TORCH_SHARD_ROWS)
        return rows_equal(r, a, b, nelems * dtype_get((dtype)a->dtype)->itemsize_bytes, equal, err);
    return strided_equal(r, a, b, equal, err);
}

/* --- one file --- */

typedef struct gathering {
    const value_pool *pool;
    vec *tensors; /* uint64_t */
} gathering;

static fsdpck_status gather(void *ctx, value v, fsdpck_error *err)
{
    const gathering *g = ctx;
    if (pt_is_sharded(g->pool, v))
        return pt_refuse_sharded(g->pool, v, err);
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    return vec_add(g->tensors, &(uint64_t){value_tensor_index(v)}, err);
}

/* Adds a variant for a value; its tensors are numbered in order of occurrence. */
static fsdpck_status make_variant(ranks_parse *p, value content, const vec *tensors,
                                  ranks_variant *made, fsdpck_error *err)
{
    ranks_state *s = p->s;
    const size_t count = p->archive.tensors.count;
    uint64_t *map = budget_alloc(s->req->metadata, count * sizeof *map, err);

    *made = (ranks_variant){.pieces_at = s->leaves.count};
    if (map == NULL)
        return FSDPCK_LIMIT;
    memset(map, 0xFF, count * sizeof *map);
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 0; st == FSDPCK_OK && i < tensors->count; i++) {
        const uint64_t tensor = *VEC_AT(tensors, const uint64_t, i);
        uint32_t piece;
        if (map[tensor] != UINT64_MAX)
            continue;
        map[tensor] = made->piece_count++;
        st = ranks_shard_of(p, tensor, &piece, err);
        uint32_t *slot = st == FSDPCK_OK ? vec_push(&s->leaves, err) : NULL;
        if (slot == NULL)
            st = st == FSDPCK_OK ? FSDPCK_LIMIT : st;
        else
            *slot = piece;
    }
    if (st == FSDPCK_OK)
        st = value_copy(&p->scratch.pool, content, &s->pool, map, &made->content, err);
    budget_free(s->req->metadata, map, count * sizeof *map);
    return st;
}

static fsdpck_status variants_equal(const ranks_state *s, const ranks_variant *a,
                                    const ranks_variant *b, bool *equal, fsdpck_error *err)
{
    *equal = false;
    if (a->piece_count != b->piece_count)
        return FSDPCK_OK;
    RETURN_IF(value_equal(&s->pool, a->content, &s->pool, b->content, equal, err));
    for (uint32_t i = 0; *equal && i < a->piece_count; i++)
        RETURN_IF(
            ranks_shards_equal(s->reader, *VEC_AT(&s->leaves, const uint32_t, a->pieces_at + i),
                               *VEC_AT(&s->leaves, const uint32_t, b->pieces_at + i), equal, err));
    return FSDPCK_OK;
}

/* One of the two variants that are most likely, or CAT_NONE. */
static fsdpck_status find_variant(ranks_parse *p, const ranks_object *o, value content,
                                  const ranks_variant *made, uint32_t *found, fsdpck_error *err)
{
    const uint32_t likely[] = {o->first_variant, o->last_variant};
    ranks_state *s = p->s;

    for (size_t i = 0; i < 2; i++) {
        const ranks_variant *v = VEC_AT(&s->variants, const ranks_variant, likely[i]);
        bool equal = false;
        if (made != NULL)
            RETURN_IF(variants_equal(s, v, made, &equal, err));
        else if (v->piece_count == 0)
            RETURN_IF(value_equal(&p->scratch.pool, content, &s->pool, v->content, &equal, err));
        if (equal) {
            *found = likely[i];
            return FSDPCK_OK;
        }
    }
    *found = CAT_NONE;
    return FSDPCK_OK;
}

static fsdpck_status push_variant(ranks_state *s, const ranks_variant *made, uint32_t *index,
                                  fsdpck_error *err)
{
    RETURN_IF(vec_add(&s->variants, made, err));
    *index = (uint32_t)(s->variants.count - 1);
    return FSDPCK_OK;
}

static fsdpck_status note(ranks_state *s, uint32_t object, uint32_t variant, uint32_t rank,
                          fsdpck_error *err)
{
    RETURN_IF(vec_add(
        &s->occurrences,
        &(ranks_occurrence){.object = object, .variant = variant, .rank = (uint16_t)rank}, err));
    VEC_AT(&s->objects, ranks_object, object)->rank_count++;
    return FSDPCK_OK;
}

static fsdpck_status see(ranks_parse *p, uint32_t entry, value path, value content,
                         const vec *tensors, fsdpck_error *err)
{
    ranks_state *s = p->s;
    ranks_tensor *t = VEC_AT(&s->tensors, ranks_tensor, entry);
    ranks_variant made = {0};
    uint32_t variant = CAT_NONE;
    const bool fresh = t->index == CAT_NONE;

    if (fresh || tensors->count > 0)
        RETURN_IF(make_variant(p, content, tensors, &made, err));
    if (fresh) {
        ranks_object *o = vec_push(&s->objects, err);
        if (o == NULL)
            return FSDPCK_LIMIT;
        t->index = (uint32_t)(s->objects.count - 1);
        RETURN_IF(push_variant(s, &made, &variant, err));
        *o = (ranks_object){
            .entry = entry, .path = path, .first_variant = variant, .last_variant = variant};
        return note(s, t->index, variant, p->file->rank, err);
    }
    const uint32_t object = t->index;
    RETURN_IF(find_variant(p, VEC_AT(&s->objects, const ranks_object, object), content,
                           tensors->count > 0 ? &made : NULL, &variant, err));
    if (variant == CAT_NONE) {
        if (tensors->count == 0)
            RETURN_IF(make_variant(p, content, tensors, &made, err));
        RETURN_IF(push_variant(s, &made, &variant, err));
        ranks_object *o = VEC_AT(&s->objects, ranks_object, object);
        o->last_variant = variant;
        o->differs = true;
    }
    return note(s, object, variant, p->file->rank, err);
}

fsdpck_status ranks_add_object(ranks_parse *p, uint32_t entry, value path, value content,
                               fsdpck_error *err)
{
    vec tensors = VEC_OF(uint64_t, p->s->req->metadata);
    gathering g = {.pool = &p->scratch.pool, .tensors = &tensors};
    fsdpck_status st = value_walk(&p->scratch.pool, content, gather, &g, err);
    if (st == FSDPCK_OK)
        st = see(p, entry, path, content, &tensors, err);
    vec_release(&tensors);
    return st;
}

fsdpck_status ranks_tensor_to_object(ranks_state *s, uint32_t entry, const uint32_t *pieces,
                                     size_t count, fsdpck_error *err)
{
    ranks_tensor *t = VEC_AT(&s->tensors, ranks_tensor, entry);
    ranks_object *o = vec_push(&s->objects, err);
    if (o == NULL)
        return FSDPCK_LIMIT;
    *o = (ranks_object){
        .entry = entry, .path = catalogue_tensor(s->cat, t->index)->path, .differs = true};
    const uint32_t object = (uint32_t)(s->objects.count - 1);
    for (size_t i = 0; i < count; i++) {
        const ranks_variant made = {
            .content = value_of_tensor(0), .pieces_at = s->leaves.count, .piece_count = 1};
        uint32_t variant;
        RETURN_IF(vec_add(&s->leaves, &(uint32_t){pieces[i]}, err));
        RETURN_IF(push_variant(s, &made, &variant, err));
        const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard, pieces[i]);
        RETURN_IF(note(s, object, variant, q->rank, err));
        if (i == 0)
            VEC_AT(&s->objects, ranks_object, object)->first_variant = variant;
    }
    return FSDPCK_OK;
}

/* --- the catalogue's objects --- */

static fsdpck_status add_object(ranks_state *s, const ranks_object *o, uint32_t variant,
                                uint16_t rank, fsdpck_error *err)
{
    uint32_t index;
    value content;
    RETURN_IF(ranks_variant_value(s, variant, o, rank, &content, err));
    RETURN_IF(catalogue_add_object(s->cat, strtab_text(&s->names, o->entry),
                                   strtab_nbytes(&s->names, o->entry), &index, err));
    cat_object *made = catalogue_object(s->cat, index);
    made->path = o->path;
    made->content = content;
    made->loaded = 1;
    made->rank = rank;
    made->joined =
        o->is_joined || ranks_is_joined(s, VEC_AT(&s->tensors, const ranks_tensor, o->entry));
    return FSDPCK_OK;
}

static fsdpck_status differ_failed(const ranks_state *s, const ranks_object *o,
                                   const ranks_occurrence *list, fsdpck_error *err)
{
    text_buf ranks = {.limit_bytes = 160};
    for (uint32_t i = 1; i < o->rank_count; i++)
        if (list[i].variant != list[0].variant)
            text_printf(&ranks, "%s%u", ranks.nbytes > 0 ? ", " : "", (unsigned)list[i].rank);
    const fsdpck_status st =
        FAIL_WITH(err, BADINPUT, RANK_DIFFER, ("object differs between ranks"),
                  (tensor, strtab_text(&s->names, o->entry)),
                  (expected, "the value on rank %u", (unsigned)list[0].rank),
                  (found, "a different value on ranks %s%s", ranks.text == NULL ? "" : ranks.text,
                   ranks.failed ? ", ..." : ""));
    text_release(&ranks);
    return st;
}

/* For each rank that has it, with the tensors inside, except those that equal the variant `kept`. */
static fsdpck_status pass_over(ranks_state *s, const ranks_object *o, const ranks_occurrence *list,
                               uint32_t kept, fsdpck_error *err)
{
    text_buf name = {.limit_bytes = UINT32_MAX};
    fsdpck_status st = FSDPCK_OK;
    for (uint32_t i = 0; st == FSDPCK_OK && i < o->rank_count; i++) {
        const ranks_variant *v = VEC_AT(&s->variants, const ranks_variant, list[i].variant);
        if (list[i].variant == kept)
            continue;
        name.nbytes = 0;
        text_append(&name, strtab_text(&s->names, o->entry), strtab_nbytes(&s->names, o->entry));
        text_printf(&name, ".rank%u", (unsigned)list[i].rank);
        const size_t nbytes = name.nbytes;
        st = text_check(&name, err);
        if (st == FSDPCK_OK)
            st = catalogue_add_skipped(s->cat, name.text, nbytes, true, 0, o->path, err);
        for (uint32_t k = 0; st == FSDPCK_OK && k < v->piece_count; k++) {
            const torch_shard *q = VEC_AT(&s->reader->pieces, const torch_shard,
                                          *VEC_AT(&s->leaves, const uint32_t, v->pieces_at + k));
            name.nbytes = nbytes;
            text_printf(&name, "#%u", (unsigned)k);
            st = text_check(&name, err);
            if (st == FSDPCK_OK)
                st = catalogue_add_skipped(s->cat, name.text, name.nbytes, false,
                                           box_nelems(piece_sizes(s->reader, q), q->ndim) *
                                               dtype_get((dtype)q->dtype)->itemsize_bytes,
                                           o->path, err);
        }
    }
    text_release(&name);
    return st;
}

static bool is_none(const ranks_state *s, const ranks_object *o)
{
    return value_is_none(VEC_AT(&s->variants, const ranks_variant, o->first_variant)->content);
}

static fsdpck_status merge_copies(ranks_state *s, ranks_object *o, const ranks_occurrence *list,
                                  fsdpck_error *err)
{
    const rank_copies_rule *rule = &s->req->copies;
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, o->entry);
    const char *name = strtab_text(&s->names, o->entry);
    const rank_copies copies = {
        .name = name, .is_object = true, .differ = o->differs, .on_some_ranks = t->is_own};

    o->use = rule->use(rule->ctx, &copies);
    switch (o->use) {
    case RANK_COPIES_REFUSE:
        return differ_failed(s, o, list, err);
    case RANK_COPIES_OMIT:
        log_write(&s->req->log, LOG_NOTE, "'%s' differs between ranks: left out", name);
        return pass_over(s, o, list, CAT_NONE, err);
    case RANK_COPIES_FIRST:
        RETURN_IF(pass_over(s, o, list, list[0].variant, err));
        break;
    case RANK_COPIES_EACH:
    case RANK_COPIES_OBJECTS:
        for (uint32_t i = 0; i < o->rank_count; i++)
            RETURN_IF(add_object(s, o, list[i].variant, list[i].rank, err));
        return FSDPCK_OK;
    default:
        break;
    }
    if (t->is_filled) /* the values of other ranks below it replace it */
        return is_none(s, o) ? pass_over(s, o, list, CAT_NONE, err) : FSDPCK_OK;
    return add_object(s, o, o->first_variant, UINT16_MAX, err);
}

fsdpck_status ranks_merge_objects(ranks_state *s, fsdpck_error *err)
{
    const size_t count = s->objects.count;
    ranks_occurrence *sorted =
        budget_alloc(s->req->metadata, s->occurrences.count * sizeof *sorted, err);
    uint64_t *first = budget_alloc(s->req->metadata, (count + 1) * sizeof *first, err);
    fsdpck_status st = sorted == NULL || first == NULL ? FSDPCK_LIMIT : FSDPCK_OK;

    /* Counting sort by object; ranks stay in order. */
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++)
        first[i + 1] = first[i] + VEC_AT(&s->objects, const ranks_object, i)->rank_count;
    for (size_t i = 0; st == FSDPCK_OK && i < s->occurrences.count; i++) {
        const ranks_occurrence *seen = VEC_AT(&s->occurrences, const ranks_occurrence, i);
        sorted[first[seen->object]++] = *seen;
    }
    uint64_t at = 0;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        ranks_object *o = VEC_AT(&s->objects, ranks_object, i);
        st = merge_copies(s, o, sorted + at, err);
        at += o->rank_count;
    }
    if (sorted != NULL)
        budget_free(s->req->metadata, sorted, s->occurrences.count * sizeof *sorted);
    if (first != NULL)
        budget_free(s->req->metadata, first, (count + 1) * sizeof *first);
    return st;
}
