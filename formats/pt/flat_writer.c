#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/pt/flat_writer_pickle.h"
#include "formats/pt/pt.h"
#include "formats/pt/pt_file.h"
#include "formats/pt/rank_pattern.h"
#include "formats/shared/torch_archive.h"
#include "model/unit.h"

/* One torch.save zip (pt_file.h) a rank with FSDP1's LOCAL state dict: `PREFIX._flat_param`, a
 * ShardedTensor, for each unit of target.units; what is of no unit under its own name, plain; with
 * use_orig_params also each rank's pieces under the original names, 1-dim, views of the shard. It is
 * these that load_state_dict() takes then (torch 2.1 to 2.15, which needs strict=False for them as
 * it finds no use for its own flat parameters).
 *
 * The record of a flat parameter is made of the chunks of its parameters and of the padding between
 * them; the zeros at the end of the last ranks' shards are no part of the state. */

static const char default_pattern[] = "model_world_size_{W}_rank_{r}.pt";

/* Where a parameter is. */
typedef struct param_spot {
    uint32_t tensor; /* CAT_NONE: its unit is not sharded */
    uint32_t unit;
} param_spot;

typedef struct layout_state {
    target *t;
    uint64_t *next;     /* of each tensor: its first chunk of this rank, or of a later one */
    param_spot *params; /* of each parameter of the units */
    uint32_t *records;  /* of each unit, of this rank */
    uint64_t pads_at[DTYPE_COUNT]; /* in target.text, UINT64_MAX: none yet */
    uint64_t pad_nelems;           /* the most that is needed */
    uint64_t ntensors, nchunks_placed;
    uint32_t rank;
    bool in_pieces; /* this file has come to what differs from rank to rank */
    value root;
    const text_buf *pickle;
} layout_state;

static fsdpck_status fail_tensor(const layout_state *s, uint64_t tensor, const char *what,
                                 fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const fsdpck_status st = error_set(err, FSDPCK_INTERNAL, "", "%s", what);
    error_tensor(err, catalogue_name(cat, catalogue_tensor(cat, tensor)->name));
    return st;
}

/* --- padding --- */

/* The value 42 in a dtype, little-endian. */
static void padding_element(dtype d, uint8_t bytes[16])
{
    static const struct {
        uint8_t dtype;
        uint64_t bits;
    } known[] = {
        {DTYPE_FLOAT64, UINT64_C(0x4045000000000000)},
        {DTYPE_FLOAT32, 0x42280000},
        {DTYPE_BFLOAT16, 0x4228},
        {DTYPE_FLOAT16, 0x5140},
        {DTYPE_FLOAT8_E4M3FN, 0x62},   /* 40: 42 is halfway to 44, ties go to even */
        {DTYPE_FLOAT8_E4M3FNUZ, 0x6a}, /* likewise */
        {DTYPE_FLOAT8_E5M2, 0x51},     /* 40 */
        {DTYPE_FLOAT8_E5M2FNUZ, 0x55}, /* 40 */
    };
    uint64_t bits = UNIT_PADDING_VALUE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].dtype == d)
            bits = known[i].bits;
    memset(bytes, 0, 16);
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
}

/* Elements of 42 in target.text, once for each dtype. */
static fsdpck_status padding_text(layout_state *s, dtype d, uint64_t *at, fsdpck_error *err)
{
    uint8_t element[16];
    text_buf *text = &s->t->text;
    if (s->pads_at[d] == UINT64_MAX) {
        padding_element(d, element);
        s->pads_at[d] = text->nbytes;
        for (uint64_t i = 0; i < s->pad_nelems; i++)
            text_append(text, element, dtype_get(d)->itemsize_bytes);
    }
    *at = s->pads_at[d];
    return text_check(text, err);
}

static uint64_t most_padding(const unit_list *l)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < unit_count(l); i++) {
        const unit *u = unit_at(l, i);
        uint64_t at = 0;
        for (uint32_t k = 0; k <= u->nparams; k++) {
            const unit_param *p = k < u->nparams ? unit_param_at(l, u, k) : NULL;
            if (p != NULL && p->nelems == 0)
                continue; /* what is before and behind it is one gap */
            const uint64_t begin = p == NULL ? u->total : p->offset;
            if (begin - at > most)
                most = begin - at;
            at = p == NULL ? begin : begin + p->nelems;
        }
    }
    return most;
}

/* --- the record of a flat parameter --- */

static fsdpck_status put_padding(layout_state *s, dtype d, uint64_t nelems, fsdpck_error *err)
{
    uint64_t at;
    if (nelems == 0)
        return FSDPCK_OK;
    if (nelems > s->pad_nelems)
        return error_set(err, FSDPCK_INTERNAL, "", "a flat parameter has a gap");
    RETURN_IF(padding_text(s, d, &at, err));
    return pt_file_part_bytes(s->t, at, nelems * dtype_get(d)->itemsize_bytes, err);
}

/* The chunks of this rank's piece of a tensor: `nelems` in all. */
static fsdpck_status put_piece(layout_state *s, uint32_t tensor, uint64_t nelems, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const uint64_t end = t->first_chunk + t->nchunks;
    uint64_t sizes[NDIM_MAX], found = 0;
    uint64_t *next = &s->next[tensor];

    for (; *next < end && catalogue_chunk(cat, *next)->rank == s->rank; (*next)++) {
        catalogue_chunk_box(cat, *next, NULL, sizes);
        found += box_nelems(sizes, t->ndim);
        RETURN_IF(pt_file_part_chunk(s->t, *next, err));
        s->nchunks_placed++;
    }
    if (found != nelems)
        return fail_tensor(s, tensor, "chunks of a rank are not its piece of a parameter", err);
    return FSDPCK_OK;
}

static fsdpck_status put_record(layout_state *s, const unit *u, dtype d, uint32_t *record,
                                fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    const unit_shard shard = unit_shard_of(u, s->rank);
    uint32_t first, end;
    uint64_t at = 0;

    RETURN_IF(pt_file_add_parts(s->t, record, err));
    unit_pieces_of(l, u, s->rank, &first, &end);
    for (uint32_t k = first; k < end; k++) {
        const unit_piece piece = unit_piece_of(l, u, k, s->rank);
        if (!piece.in_shard || piece.begin >= piece.end)
            continue;
        RETURN_IF(put_padding(s, d, piece.shard_offset - at, err));
        RETURN_IF(put_piece(s, s->params[u->first_param + k].tensor, piece.end - piece.begin, err));
        at = piece.shard_offset + (piece.end - piece.begin);
    }
    return put_padding(s, d, shard.end - shard.begin - at, err);
}

static fsdpck_status cut(const layout_state *s, fsdpck_error *err)
{
    return pt_file_cut(s->t, s->pickle->nbytes, err);
}

static dtype dtype_of(const layout_state *s, const unit *u)
{
    const uint32_t tensor = s->params[u->first_param].tensor;
    return (dtype)catalogue_tensor(&s->t->cat, tensor)->dtype;
}

static fsdpck_status put_flat(layout_state *s, pickle_writer *w, uint32_t index, fsdpck_error *err)
{
    const unit *u = unit_at(s->t->units, index);
    char key[16] = "";
    const flat_shard shard = {
        .dtype = dtype_of(s, u),
        .total = u->total,
        .shard_size = u->shard_size,
        .world_size = u->world_size,
        .rank = s->rank,
        .key = key,
    };
    const bool has_elements = flat_shard_nelems(&shard, s->rank) > 0;

    if (has_elements || u->use_orig_params)
        RETURN_IF(put_record(s, u, shard.dtype, &s->records[index], err));
    if (has_elements)
        snprintf(key, sizeof key, "%" PRIu32, s->records[index]);
    flat_put_head(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_local(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_shards(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_group(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_tail(w, &shard);
    return FSDPCK_OK;
}

/* --- the state dict --- */

static fsdpck_status put_plain(layout_state *s, pickle_writer *w, uint32_t tensor,
                               fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const uint64_t *shape = catalogue_shape(cat, tensor);
    uint64_t strides[NDIM_MAX];
    uint32_t record;
    char key[16];

    if (t->nchunks != s->t->world_size)
        return fail_tensor(s, tensor, "a rank has no copy of a tensor that is not flattened", err);
    RETURN_IF(pt_file_add_chunk(s->t, t->first_chunk + s->rank, &record, err));
    s->nchunks_placed++;
    snprintf(key, sizeof key, "%" PRIu32, record);
    box_row_major_strides(shape, t->ndim, strides);
    torch_put_tensor(w, key, (dtype)t->dtype, t->ndim, shape, strides, 0,
                     box_nelems(shape, t->ndim));
    return FSDPCK_OK;
}

/* This rank's piece of a parameter; none is an empty one. */
static fsdpck_status put_piece_view(layout_state *s, pickle_writer *w, uint32_t param,
                                    fsdpck_error *err)
{
    const uint32_t index = s->params[param].unit;
    const unit *u = unit_at(s->t->units, index);
    const unit_shard shard = unit_shard_of(u, s->rank);
    const unit_piece piece = unit_piece_of(s->t->units, u, param - u->first_param, s->rank);
    const uint64_t nelems = piece.in_shard ? piece.end - piece.begin : 0, one = 1;
    char key[16];

    if (!s->in_pieces)
        RETURN_IF(cut(s, err));
    s->in_pieces = true;
    snprintf(key, sizeof key, "%" PRIu32, s->records[index]);
    torch_put_tensor(w, key, dtype_of(s, u), 1, &nelems, &one, nelems > 0 ? piece.shard_offset : 0,
                     shard.end - shard.begin);
    return FSDPCK_OK;
}

/* Leaves number the tensors, then the units, then the parameters. */
static fsdpck_status put_leaf(void *ctx, pickle_writer *w, uint64_t index, fsdpck_error *err)
{
    layout_state *s = ctx;
    if (index < s->ntensors)
        return put_plain(s, w, (uint32_t)index, err);
    index -= s->ntensors;
    if (index < unit_count(s->t->units))
        return put_flat(s, w, (uint32_t)index, err);
    return put_piece_view(s, w, (uint32_t)(index - unit_count(s->t->units)), err);
}

static fsdpck_status put_entry(layout_state *s, const char *name, size_t nbytes, uint64_t leaf,
                               fsdpck_error *err)
{
    value_pool *pool = &s->t->cat.pool;
    value key;
    RETURN_IF(value_new_str(pool, name, nbytes, &key, err));
    return value_dict_put(pool, s->root, key, value_of_tensor(leaf), err);
}

static fsdpck_status put_unit_entry(layout_state *s, uint32_t index, fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    const unit *u = unit_at(l, index);
    text_buf name = {0};
    size_t nbytes;
    const char *prefix = unit_name(l, u->prefix, &nbytes);

    text_append(&name, prefix, nbytes);
    if (nbytes > 0)
        text_puts(&name, ".");
    const char *flat = unit_name(l, u->flat_name, &nbytes);
    text_append(&name, flat, nbytes);
    fsdpck_status st = text_check(&name, err);
    if (st == FSDPCK_OK)
        st = put_entry(s, name.text, name.nbytes, s->ntensors + index, err);
    text_release(&name);
    return st;
}

static fsdpck_status put_param_entry(layout_state *s, uint32_t fqn, const unit_param *p,
                                     fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    const uint64_t param = (uint64_t)(p - (const unit_param *)l->params.items);
    size_t nbytes;
    const char *name = unit_name(l, fqn, &nbytes);
    return put_entry(s, name, nbytes, s->ntensors + unit_count(l) + param, err);
}

/* The original names of a unit's parameters, shared ones too. */
static fsdpck_status put_param_entries(layout_state *s, const unit *u, fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    for (uint32_t k = 0; k < u->nparams; k++) {
        const unit_param *p = unit_param_at(l, u, k);
        RETURN_IF(put_param_entry(s, p->fqn, p, err));
    }
    for (uint32_t k = 0; k < u->nshared; k++) {
        const unit_shared *shared = unit_shared_at(l, u, k);
        size_t nbytes;
        const char *same_as = unit_name(l, shared->same_as, &nbytes);
        const unit *of;
        const unit_param *p = unit_list_find_param(l, same_as, nbytes, &of);
        if (p != NULL && unit_is_sharded(of) && of->use_orig_params)
            RETURN_IF(put_param_entry(s, shared->fqn, p, err));
    }
    return FSDPCK_OK;
}

/* Units in their order, then the other tensors, then pieces. */
static fsdpck_status make_root(layout_state *s, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    RETURN_IF(value_new_dict(&s->t->cat.pool, &s->root, err));
    for (uint32_t i = 0; i < unit_count(s->t->units); i++) {
        const unit *u = unit_at(s->t->units, i);
        if (unit_is_sharded(u) && u->nparams > 0)
            RETURN_IF(put_unit_entry(s, i, err));
    }
    for (uint32_t i = 0; i < s->ntensors; i++) {
        const uint32_t name = catalogue_tensor(cat, i)->name;
        if (*VEC_AT(&s->t->flat_params, const uint32_t, i) == CAT_NONE)
            RETURN_IF(
                put_entry(s, catalogue_name(cat, name), catalogue_name_nbytes(cat, name), i, err));
    }
    for (uint32_t i = 0; i < unit_count(s->t->units); i++) {
        const unit *u = unit_at(s->t->units, i);
        if (unit_is_sharded(u) && u->use_orig_params)
            RETURN_IF(put_param_entries(s, u, err));
    }
    return FSDPCK_OK;
}

/* --- the layout --- */

static fsdpck_status lay_out(layout_state *s, const char *pattern, fsdpck_error *err)
{
    target *t = s->t;
    text_buf pickle = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = rank_pattern_check(pattern, t->world_size, err);

    if (st == FSDPCK_OK)
        st = make_root(s, err);
    s->pickle = &pickle;
    for (s->rank = 0; st == FSDPCK_OK && s->rank < t->world_size; s->rank++) {
        char name[RANK_FILE_NAME_NBYTES];
        pickle.nbytes = 0;
        s->in_pieces = false;
        st = rank_pattern_name(pattern, s->rank, t->world_size, name, err);
        if (st == FSDPCK_OK)
            st = pickle_write(&t->cat.pool, s->root, put_leaf, s, &pickle, err);
        if (st == FSDPCK_OK)
            st = pt_file_end(t, name, s->rank, &pickle, err);
    }
    text_release(&pickle);
    if (st == FSDPCK_OK && s->nchunks_placed != catalogue_chunk_count(&t->cat))
        st = error_set(err, FSDPCK_INTERNAL, "", "a rank has no place for part of a parameter");
    return st;
}

static fsdpck_status find_tensors(layout_state *s, fsdpck_error *err)
{
    const target *t = s->t;
    const size_t nparams = t->units->params.count;

    if (t->flat_params.count != s->ntensors)
        return error_set(err, FSDPCK_INTERNAL, "", "tensors and parameters do not match");
    for (size_t i = 0; i < nparams; i++)
        s->params[i].tensor = CAT_NONE;
    for (uint32_t i = 0; i < s->ntensors; i++) {
        const uint32_t param = *VEC_AT(&t->flat_params, const uint32_t, i);
        s->next[i] = catalogue_tensor(&t->cat, i)->first_chunk;
        if (param != CAT_NONE)
            s->params[param].tensor = i;
    }
    for (uint32_t i = 0; i < unit_count(t->units); i++) {
        const unit *u = unit_at(t->units, i);
        for (uint32_t k = 0; unit_is_sharded(u) && k < u->nparams; k++) {
            param_spot *spot = &s->params[u->first_param + k];
            spot->unit = i;
            if (spot->tensor == CAT_NONE || u->world_size != t->world_size)
                return error_set(err, FSDPCK_INTERNAL, "", "a unit does not fit the target");
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    layout_state s = {.t = t, .ntensors = catalogue_tensor_count(&t->cat)};
    budget *owner = t->cat.owner;

    t->is_folder = true;
    if (t->units == NULL)
        return error_set(err, FSDPCK_INTERNAL, "", "no units to flatten");
    RETURN_IF(pt_files_begin(t, err));
    memset(s.pads_at, 0xff, sizeof s.pads_at);
    s.pad_nelems = most_padding(t->units);
    const size_t nparams = t->units->params.count, nunits = unit_count(t->units);
    s.next = budget_alloc(owner, s.ntensors * sizeof *s.next, err);
    s.params = s.next == NULL ? NULL : budget_alloc(owner, nparams * sizeof *s.params, err);
    s.records = s.params == NULL ? NULL : budget_alloc(owner, nunits * sizeof *s.records, err);
    fsdpck_status st = s.records == NULL ? FSDPCK_LIMIT : find_tensors(&s, err);
    if (st == FSDPCK_OK)
        st = lay_out(&s,
                     opt != NULL && opt->rank_pattern != NULL ? opt->rank_pattern : default_pattern,
                     err);
    if (s.records != NULL)
        budget_free(owner, s.records, nunits * sizeof *s.records);
    if (s.params != NULL)
        budget_free(owner, s.params, nparams * sizeof *s.params);
    if (s.next != NULL)
        budget_free(owner, s.next, s.ntensors * sizeof *s.next);
    return st;
}

const format_writer fsdp1_writer = {
    .name = "fsdp1",
    .description = "a folder with one file of torch.save for each rank, FSDP1's LOCAL state",
    .is_folder = true,
    .takes = TAKES_FLAT,
    .sharded = true,
    .ranks_only = true,
    .every_rank = true,
    .flat = true,
    .holds = pt_file_holds,
    .layout = layout,
    .seal = pt_files_seal,
};
