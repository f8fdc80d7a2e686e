/* Merges the files of all ranks: plain tensors, which are complete on every rank that has them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/pt/ranks_internal.h"

typedef struct plain_list {
    const uint32_t *pieces; /* in the order of ranks */
    size_t count;
    uint32_t entry;
    bool shapes_differ;
    bool differs;        /* in shape, dtype or elements, as far as compared */
    uint16_t other_rank; /* that differs */
} plain_list;

static const torch_shard *piece_at(const ranks_state *s, uint32_t piece)
{
    return VEC_AT(&s->reader->pieces, const torch_shard, piece);
}

static const uint64_t *sizes_at(const ranks_state *s, const torch_shard *q)
{
    return VEC_AT(&s->reader->dims, const uint64_t, q->dims_at);
}

static bool same_shape(const ranks_state *s, const torch_shard *a, const torch_shard *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 ||
            memcmp(sizes_at(s, a), sizes_at(s, b), a->ndim * sizeof(uint64_t)) == 0);
}

/* If the plan decides, only checksums are compared. */
static fsdpck_status look(const ranks_state *s, plain_list *l, fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, l->entry);
    const bool closely = s->req->copies.compares || t->in_rng || t->is_single;
    const torch_shard *a = piece_at(s, l->pieces[0]);

    for (size_t i = 1; i < l->count && !l->shapes_differ; i++) {
        const torch_shard *b = piece_at(s, l->pieces[i]);
        bool equal = true;
        l->shapes_differ = !same_shape(s, a, b);
        if (l->differs && !l->shapes_differ)
            continue;
        if (!l->shapes_differ && (closely || (a->flags & b->flags & TORCH_SHARD_CRC)))
            RETURN_IF(ranks_shards_equal(s->reader, l->pieces[0], l->pieces[i], &equal, err));
        if (!l->differs && (l->shapes_differ || !equal))
            l->other_rank = (uint16_t)b->rank;
        l->differs = l->differs || l->shapes_differ || !equal;
    }
    return FSDPCK_OK;
}

static fsdpck_status add_whole(ranks_state *s, uint32_t tensor, uint32_t piece, unsigned flags,
                               fsdpck_error *err)
{
    static const uint64_t zeros[NDIM_MAX];
    torch_shard *q = VEC_AT(&s->reader->pieces, torch_shard, piece);
    q->flags |= (uint16_t)flags;
    cat_chunk chunk = ranks_chunk(s->reader, piece);
    if (flags != 0)
        chunk.place = LOCATION_STRIDED;
    chunk.nbytes = catalogue_tensor_nbytes(s->cat, tensor);
    return catalogue_add_chunk(s->cat, tensor, zeros, sizes_at(s, q), &chunk, err);
}

/* The path with the suffix, but a list item and an int key have no other. */
static fsdpck_status rank_path(ranks_state *s, value path, const char *suffix, value *made,
                               fsdpck_error *err)
{
    value_pool *pool = &s->cat->pool;
    const size_t count = value_count(pool, path);
    vec items = VEC_OF(value, pool->owner);
    text_buf key = {.limit_bytes = 1u << 20};
    size_t nbytes = 0;
    *made = path;
    if (count == 0 || value_kind_of(value_item(pool, path, count - 1)) != VALUE_STR)
        return FSDPCK_OK;
    value *slots = vec_push_n(&items, count, err);
    if (slots == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < count; i++)
        slots[i] = value_item(pool, path, i);
    const char *last = value_text(pool, slots[count - 1], &nbytes);
    text_append(&key, last, nbytes);
    text_puts(&key, suffix);
    fsdpck_status st = text_check(&key, err);
    if (st == FSDPCK_OK)
        st = value_new_str(pool, key.text, key.nbytes, &slots[count - 1], err);
    if (st == FSDPCK_OK)
        st = value_new_from(pool, VALUE_TUPLE, slots, count, made, err);
    text_release(&key);
    vec_release(&items);
    return st;
}

/* NAME.rank0, NAME.rank1, ... */
static fsdpck_status keep_each(ranks_state *s, const plain_list *l, fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, l->entry);
    const value path = catalogue_tensor(s->cat, t->index)->path;

    for (size_t i = 0; i < l->count; i++) {
        const torch_shard *q = piece_at(s, l->pieces[i]);
        text_buf name = {.limit_bytes = 1u << 20};
        char suffix[32];
        uint32_t tensor = t->index;
        value own = VALUE_OF_NONE;
        uint64_t sizes[NDIM_MAX] = {0};

        snprintf(suffix, sizeof suffix, ".rank%u", (unsigned)q->rank);
        text_append(&name, strtab_text(&s->names, l->entry), strtab_nbytes(&s->names, l->entry));
        text_puts(&name, suffix);
        memcpy(sizes, sizes_at(s, q), q->ndim * sizeof *sizes);
        fsdpck_status st = text_check(&name, err);
        if (st == FSDPCK_OK && i > 0)
            st = catalogue_add_tensor(s->cat, name.text, name.nbytes, (dtype)q->dtype, q->ndim,
                                      sizes, &tensor, err);
        if (st == FSDPCK_OK)
            st = strtab_intern(&s->cat->names, name.text, name.nbytes,
                               &catalogue_tensor(s->cat, tensor)->name, err);
        text_release(&name);
        RETURN_IF(st);
        RETURN_IF(rank_path(s, path, suffix, &own, err));
        cat_tensor *each = catalogue_tensor(s->cat, tensor);
        each->path = own;
        each->python = q->python;
        each->flags |= (uint8_t)(CAT_TENSOR_OF_RANK | (l->differs ? CAT_TENSOR_DIFFERS : 0) |
                                 (q->flags & TORCH_SHARD_GRAD ? CAT_TENSOR_REQUIRES_GRAD : 0));
        RETURN_IF(add_whole(s, tensor, l->pieces[i], 0, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status differ_failed(const ranks_state *s, const plain_list *l, fsdpck_error *err)
{
    const torch_shard *a = piece_at(s, l->pieces[0]);
    text_buf ranks = {.limit_bytes = 160};
    for (size_t i = 1; i < l->count; i++) {
        bool equal = false;
        RETURN_IF(ranks_shards_equal(s->reader, l->pieces[0], l->pieces[i], &equal, err));
        if (!equal)
            text_printf(&ranks, "%s%u", ranks.nbytes > 0 ? ", " : "",
                        (unsigned)piece_at(s, l->pieces[i])->rank);
    }
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, RANK_DIFFER, ("a plain tensor differs between ranks"),
        (tensor, strtab_text(&s->names, l->entry)),
        (expected, "the value on rank %u", (unsigned)a->rank),
        (found, "a different %s on ranks %s%s", l->shapes_differ ? "shape or dtype" : "value",
         ranks.text == NULL ? "" : ranks.text, ranks.failed ? ", ..." : ""));
    text_release(&ranks);
    return st;
}

/* Whether each rank's tensor has its own record, like a buffer; shards of parameters are views of
 * the rank's flat shard. */
static bool owns_records(const ranks_state *s, const plain_list *l)
{
    bool owns = true;
    for (size_t i = 0; owns && i < l->count; i++) {
        const torch_shard *q = piece_at(s, l->pieces[i]);
        owns = q->record_nbytes ==
               box_nelems(sizes_at(s, q), q->ndim) * dtype_get((dtype)q->dtype)->itemsize_bytes;
    }
    return owns;
}

static fsdpck_status drop(ranks_state *s, const plain_list *l, const char *why, uint64_t *count,
                          fsdpck_error *err)
{
    VEC_AT(&s->tensors, ranks_tensor, l->entry)->dropped = 1;
    log_write(&s->req->log, LOG_DETAIL, "'%s' %s: left out", strtab_text(&s->names, l->entry), why);
    ++*count;
    const torch_shard *q = piece_at(s, l->pieces[0]);
    return catalogue_add_skipped(
        s->cat, strtab_text(&s->names, l->entry), strtab_nbytes(&s->names, l->entry), false,
        box_nelems(sizes_at(s, q), q->ndim) * dtype_get((dtype)q->dtype)->itemsize_bytes,
        catalogue_tensor(s->cat, VEC_AT(&s->tensors, const ranks_tensor, l->entry)->index)->path,
        err);
}

/* The lowest rank's tensor; those of other ranks that differ are named as left out. */
static fsdpck_status keep_first(ranks_state *s, const plain_list *l, fsdpck_error *err)
{
    const uint32_t tensor = VEC_AT(&s->tensors, const ranks_tensor, l->entry)->index;
    text_buf name = {.limit_bytes = 1u << 20};
    fsdpck_status st = FSDPCK_OK;
    for (size_t i = 1; st == FSDPCK_OK && i < l->count; i++) {
        const torch_shard *q = piece_at(s, l->pieces[i]);
        bool equal;
        st = ranks_shards_equal(s->reader, l->pieces[0], l->pieces[i], &equal, err);
        if (st != FSDPCK_OK || equal)
            continue;
        name.nbytes = 0;
        text_append(&name, strtab_text(&s->names, l->entry), strtab_nbytes(&s->names, l->entry));
        text_printf(&name, ".rank%u", (unsigned)q->rank);
        st = text_check(&name, err);
        if (st == FSDPCK_OK)
            st = catalogue_add_skipped(s->cat, name.text, name.nbytes, false,
                                       box_nelems(sizes_at(s, q), q->ndim) *
                                           dtype_get((dtype)q->dtype)->itemsize_bytes,
                                       catalogue_tensor(s->cat, tensor)->path, err);
    }
    text_release(&name);
    return st != FSDPCK_OK ? st : add_whole(s, tensor, l->pieces[0], 0, err);
}

static bool is_float_vector(const ranks_state *s, const plain_list *l)
{
    const torch_shard *q = piece_at(s, l->pieces[0]);
    return q->ndim == 1 && dtype_get((dtype)q->dtype)->kind == DTYPE_IS_FLOAT;
}

static bool may_be_flat(const ranks_state *s, const plain_list *l)
{
    return VEC_AT(&s->tensors, const ranks_tensor, l->entry)->in_optimizer &&
           !(piece_at(s, l->pieces[0])->flags & RANKS_SHARD_STAGES) && is_float_vector(s, l);
}

/* Whether the ranks' tensors are state of different parameters, even if all are equal. */
static bool is_of_stages(const ranks_state *s, const plain_list *l)
{
    bool any = false;
    for (size_t i = 0; !any && i < l->count; i++)
        any = (piece_at(s, l->pieces[i])->flags & RANKS_SHARD_STAGES) != 0;
    return any;
}

/* With a name for each, locating them is no error. */
static void clear_stages(ranks_state *s, const plain_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        VEC_AT(&s->reader->pieces, torch_shard, l->pieces[i])->flags &=
            (uint16_t)~RANKS_SHARD_STAGES;
}

static bool is_empty(const ranks_state *s, uint32_t piece)
{
    const torch_shard *q = piece_at(s, piece);
    return box_nelems(sizes_at(s, q), q->ndim) == 0;
}

/* One shard in place of all, such that locating it is an error. An empty shard is never located, so
 * the first with elements gives dtype and shape. */
static fsdpck_status add_refused(ranks_state *s, const plain_list *l, unsigned flags,
                                 fsdpck_error *err)
{
    const uint32_t tensor = VEC_AT(&s->tensors, const ranks_tensor, l->entry)->index;
    size_t i = 0;
    while (i + 1 < l->count && is_empty(s, l->pieces[i]))
        i++;
    if (is_empty(s, l->pieces[i]))
        return flags & RANKS_SHARD_SHAPES ? differ_failed(s, l, err)
                                          : add_whole(s, tensor, l->pieces[0], flags, err);
    const torch_shard *q = piece_at(s, l->pieces[i]);
    uint64_t sizes[NDIM_MAX] = {0};
    memcpy(sizes, sizes_at(s, q), q->ndim * sizeof *sizes);
    if (i > 0)
        RETURN_IF(catalogue_set_shape(s->cat, tensor, (dtype)q->dtype, q->ndim, sizes, err));
    return add_whole(s, tensor, l->pieces[i], flags, err);
}

static fsdpck_status join(ranks_state *s, const plain_list *l, fsdpck_error *err)
{
    const uint32_t tensor = VEC_AT(&s->tensors, const ranks_tensor, l->entry)->index;
    if (l->shapes_differ)
        return add_refused(s, l, RANKS_SHARD_SHAPES, err);
    if (l->count > 1)
        catalogue_tensor(s->cat, tensor)->flags |= CAT_TENSOR_EACH_RANK;
    catalogue_tensor(s->cat, tensor)->other_rank = l->other_rank;
    for (size_t i = 0; i < l->count; i++)
        RETURN_IF(add_whole(s, tensor, l->pieces[i], 0, err));
    return FSDPCK_OK;
}

static rank_copies_use use_of(const ranks_state *s, const plain_list *l, unsigned is_flat)
{
    const ranks_tensor *t = VEC_AT(&s->tensors, const ranks_tensor, l->entry);
    const rank_copies_rule *rule = &s->req->copies;
    const bool beside_flat =
        l->differs && piece_at(s, l->pieces[0])->ndim == 1 && ranks_is_beside_flat(s, l->entry);
    return rule->use(rule->ctx, &(rank_copies){.name = strtab_text(&s->names, l->entry),
                                               .differ = l->differs,
                                               .on_some_ranks = t->is_own,
                                               .in_optimizer = t->in_optimizer,
                                               .in_rng = t->in_rng,
                                               .is_single = t->is_single,
                                               .is_1dim = piece_at(s, l->pieces[0])->ndim == 1,
                                               .of_stages = is_of_stages(s, l),
                                               .may_be_shard = may_be_flat(s, l),
                                               .is_shard = is_flat != RANKS_NOT_FLAT,
                                               .may_be_copy = is_flat == RANKS_FLAT_OR_COPIES,
                                               .beside_flat = beside_flat,
                                               .owns_records = beside_flat && owns_records(s, l)});
}

static fsdpck_status merge_copies(ranks_state *s, const plain_list *l, unsigned is_flat,
                                  fsdpck_error *err)
{
    ranks_tensor *t = VEC_AT(&s->tensors, ranks_tensor, l->entry);
    const rank_copies_use use = use_of(s, l, is_flat);
    const bool may_be_copy = is_flat == RANKS_FLAT_OR_COPIES;

    s->flat_count += is_flat == RANKS_FLAT && use != RANK_COPIES_FOR_MODEL &&
                     use != RANK_COPIES_OMIT && use != RANK_COPIES_OMIT_SHARD;
    s->equal_count += may_be_copy && use == RANK_COPIES_FLAT;
    switch (use) {
    case RANK_COPIES_FOR_MODEL:
        return keep_each(s, l, err);
    case RANK_COPIES_EACH:
        clear_stages(s, l);
        return keep_each(s, l, err);
    case RANK_COPIES_OBJECTS:
        t->dropped = 1;
        return ranks_tensor_to_object(s, l->entry, l->pieces, l->count, err);
    case RANK_COPIES_FIRST:
        return keep_first(s, l, err);
    case RANK_COPIES_FLAT:
        return add_refused(s, l, RANKS_SHARD_FLAT | (may_be_copy ? RANKS_SHARD_EQUAL : 0), err);
    case RANK_COPIES_OMIT:
        return drop(s, l, "differs between ranks", &s->dropped_count, err);
    case RANK_COPIES_OMIT_SHARD:
        return drop(s, l, "may be one rank's shard of a flat parameter", &s->beside_count, err);
    case RANK_COPIES_REFUSE:
        return differ_failed(s, l, err);
    case RANK_COPIES_JOIN:
        break;
    }
    return join(s, l, err);
}

/* Lists of shards by tensor: `sorted` holds all, first[i] is the start of the i-th. */
typedef struct plain_index {
    uint32_t *sorted;
    uint64_t *first;
    size_t piece_count, tensor_count;
} plain_index;

static fsdpck_status index_make(const ranks_state *s, plain_index *x, fsdpck_error *err)
{
    const vec *pieces = &s->reader->pieces;
    x->piece_count = pieces->count;
    x->tensor_count = s->tensors.count;
    x->sorted = budget_alloc(s->req->metadata, x->piece_count * sizeof *x->sorted, err);
    x->first = budget_alloc(s->req->metadata, (x->tensor_count + 2) * sizeof *x->first, err);
    if (x->sorted == NULL || x->first == NULL)
        return FSDPCK_LIMIT;
    for (size_t i = 0; i < pieces->count; i++)
        if (VEC_AT(pieces, const torch_shard, i)->flags & RANKS_SHARD_PLAIN)
            x->first[VEC_AT(pieces, const torch_shard, i)->tensor + 2]++;
    for (size_t i = 2; i < x->tensor_count + 2; i++)
        x->first[i] += x->first[i - 1];
    for (size_t i = 0; i < pieces->count; i++)
        if (VEC_AT(pieces, const torch_shard, i)->flags & RANKS_SHARD_PLAIN)
            x->sorted[x->first[VEC_AT(pieces, const torch_shard, i)->tensor + 1]++] = (uint32_t)i;
    return FSDPCK_OK;
}

static void index_release(const ranks_state *s, plain_index *x)
{
    if (x->sorted != NULL)
        budget_free(s->req->metadata, x->sorted, x->piece_count * sizeof *x->sorted);
    if (x->first != NULL)
        budget_free(s->req->metadata, x->first, (x->tensor_count + 2) * sizeof *x->first);
}

static bool index_list(const plain_index *x, uint32_t entry, plain_list *l)
{
    *l = (plain_list){.pieces = x->sorted + x->first[entry],
                      .count = (size_t)(x->first[entry + 1] - x->first[entry]),
                      .entry = entry};
    return l->count > 0;
}

static uint32_t family_of(const ranks_state *s, uint32_t entry)
{
    const uint32_t first = VEC_AT(&s->tensors, const ranks_tensor, entry)->first_file;
    return VEC_AT(&s->list->files, const ranks_file, first)->family;
}

static size_t files_of(const ranks_state *s, uint32_t family)
{
    size_t n = 0;
    for (size_t i = 0; i < s->list->files.count; i++)
        n += VEC_AT(&s->list->files, const ranks_file, i)->family == family;
    return n;
}

static void note_partial(ranks_state *s, const plain_list *l)
{
    if (s->req->keep_flat_shards) /* expected for many tensors of FSDP1 */
        return;
    s->partial_count++;
    if (s->partial.failed)
        return;
    text_printf(&s->partial, "%s'%s' (rank%s", s->partial.nbytes > 0 ? ", " : "",
                strtab_text(&s->names, l->entry), l->count == 1 ? "" : "s");
    for (size_t i = 0; i < l->count && !s->partial.failed; i++)
        text_printf(&s->partial, " %" PRIu32,
                    catalogue_file(s->cat, piece_at(s, l->pieces[i])->file)->rank);
    text_puts(&s->partial, ")");
}

/* One tensor that differs between ranks, or is on some only, shows that all of its optimizer are
 * shards: equal ones are equal by chance. */
static fsdpck_status find_flat(ranks_state *s, plain_index *x, ranks_equal_optim *equal,
                               uint8_t *is_flat, fsdpck_error *err)
{
    plain_list l;
    for (uint32_t entry = 0; entry < x->tensor_count; entry++) {
        if (!index_list(x, entry, &l))
            continue;
        const uint32_t family = family_of(s, entry);
        const bool partial = l.count < files_of(s, family), may_be = may_be_flat(s, &l);
        if (partial && !VEC_AT(&s->tensors, const ranks_tensor, entry)->is_own)
            note_partial(s, &l);
        if (may_be ? !is_flat[family] : is_float_vector(s, &l))
            RETURN_IF(look(s, &l, err));
        if (may_be && (l.differs || partial))
            is_flat[family] = RANKS_FLAT;
        RETURN_IF(ranks_equal_see(equal, s, entry, l.pieces[0], l.count, l.differs, err));
    }
    return ranks_equal_decide(equal, s, is_flat, err);
}

/* Flat shards are in the order of the ranks in files' names. */
static fsdpck_status check_names(const ranks_state *s, const uint8_t *is_flat, fsdpck_error *err)
{
    const ranks_file *f = s->renamed;
    if (f == NULL)
        return FSDPCK_OK;
    const uint32_t own = *VEC_AT(&s->own_ranks, const uint32_t, f->index);
    for (uint32_t i = 0; i < s->list->families.count; i++)
        if (is_flat[i] == RANKS_FLAT)
            return FAIL_WITH(
                err, BADINPUT, RANK_NAME,
                ("the order of flat shards is that of the ranks in the files' names, which are "
                 "wrong"),
                (found, "'%s' contains data of rank %" PRIu32, f->name, own),
                (next, "give each file the number of the rank whose data it contains"));
    log_warn(
        &s->req->log, FSDPCK_FINDING_RANK_NAME, "check whether the files were renamed by mistake",
        "'%s' contains rank %" PRIu32 "'s data; using the rank stored in the file, not its name",
        f->name, own);
    return FSDPCK_OK;
}

static fsdpck_status merge_plain(ranks_state *s, plain_index *x, uint8_t *is_flat,
                                 ranks_copies *copies, fsdpck_error *err)
{
    ranks_equal_optim equal;
    plain_list l;
    fsdpck_status st = ranks_equal_begin(&equal, s, err);
    if (st == FSDPCK_OK)
        st = find_flat(s, x, &equal, is_flat, err);
    ranks_equal_release(&equal, s);
    RETURN_IF(st);
    RETURN_IF(check_names(s, is_flat, err));
    for (uint32_t entry = 0; entry < x->tensor_count; entry++) {
        if (!index_list(x, entry, &l))
            continue;
        RETURN_IF(look(s, &l, err));
        if (l.differs)
            ranks_copies_see(copies, s, entry, l.pieces, l.count);
        const unsigned flat = is_flat[family_of(s, entry)];
        RETURN_IF(merge_copies(s, &l, may_be_flat(s, &l) ? flat : RANKS_NOT_FLAT, err));
    }
    return FSDPCK_OK;
}

fsdpck_status ranks_merge(ranks_state *s, fsdpck_error *err)
{
    plain_index x = {0};
    const size_t families = s->list->families.count;
    uint8_t *is_flat;

    RETURN_IF(ranks_check_own_ranks(s, err));
    is_flat = budget_alloc(s->req->metadata, families, err);
    if (is_flat == NULL)
        return FSDPCK_LIMIT;
    ranks_copies copies = {.count = s->list->files.count};
    copies.files = budget_alloc(s->req->metadata, copies.count * sizeof *copies.files, err);
    fsdpck_status st = copies.files == NULL ? FSDPCK_LIMIT : index_make(s, &x, err);
    if (st == FSDPCK_OK)
        st = merge_plain(s, &x, is_flat, &copies, err);
    if (st == FSDPCK_OK)
        ranks_copies_warn(&copies, s);
    index_release(s, &x);
    if (copies.files != NULL)
        budget_free(s->req->metadata, copies.files, copies.count * sizeof *copies.files);
    budget_free(s->req->metadata, is_flat, families);
    RETURN_IF(st);
    RETURN_IF(ranks_tidy(s, err));
    return ranks_merge_objects(s, err);
}
