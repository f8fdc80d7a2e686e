#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/common/torch_archive.h"
#include "formats/pt/flat_writer_internal.h"
#include "formats/pt/flat_writer_pickle.h"
#include "formats/pt/pt.h"
#include "formats/pt/pt_file.h"
#include "formats/pt/rank_pattern.h"
#include "state/tensor_rank_suffix.h"

/* One torch.save zip (pt_file.h) a rank with FSDP1's LOCAL state dict, and one with the optimizer's
 * own state_dict(), or both in one where a pattern of names is given. The model's:
 * `PREFIX._flat_param`, a ShardedTensor, for each unit of target.units; tensors outside units under
 * their own names, plain; with use_orig_params also each rank's shards under the original names,
 * 1-dim views of the flat shard. load_state_dict() then loads these (torch 2.1 to 2.15, with
 * strict=False, since it does not use the flat parameters).
 *
 * The record of a flat parameter is made of the chunks of its parameters and of the padding between
 * them; the zeros at the end of the last ranks' shards are not part of the state. */

static const char model_pattern[] = "model_world_size_{W}_rank_{r}.pt";
static const char optim_pattern[] = "optim_world_size_{W}_rank_{r}.pt";

static fsdpck_status cut(const flat_layout *s, fsdpck_error *err)
{
    return pt_file_mark(s->t, s->pickle->nbytes, err);
}

static dtype dtype_of(const flat_layout *s, const unit *u)
{
    const uint32_t tensor = flat_tensor_of(s, 0, u->first_param);
    return (dtype)catalogue_tensor(&s->t->cat, tensor)->dtype;
}

static fsdpck_status put_flat(flat_layout *s, pickle_writer *w, uint32_t index, fsdpck_error *err)
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
        RETURN_IF(flat_put_record(s, u, shard.dtype, &s->records[index], err));
    if (has_elements)
        snprintf(key, sizeof key, "%" PRIu32, s->records[index]);
    flat_put_begin(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_local(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_shards(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_group(w, &shard);
    RETURN_IF(cut(s, err));
    flat_put_end(w, &shard);
    return FSDPCK_OK;
}

/* --- the state dict --- */

static fsdpck_status put_plain(flat_layout *s, pickle_writer *w, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const uint64_t *shape = catalogue_shape(cat, tensor);
    uint64_t strides[NDIM_MAX];
    uint32_t record;
    char key[16];

    uint64_t *next = &s->next[tensor];
    if (*next == t->first_chunk + t->nchunks || catalogue_chunk(cat, *next)->rank != s->rank)
        return flat_fail_tensor(s, tensor, "rank has no copy of a tensor that is not flattened",
                                err);
    RETURN_IF(pt_file_add_chunk(s->t, (*next)++, &record, err));
    s->nchunks_placed++;
    snprintf(key, sizeof key, "%" PRIu32, record);
    box_row_major_strides(shape, t->ndim, strides);
    torch_put_tensor_of(w, key, t, shape, strides, 0, box_nelems(shape, t->ndim));
    return FSDPCK_OK;
}

/* This rank's shard of a parameter; empty if it has none. */
static fsdpck_status put_piece_view(flat_layout *s, pickle_writer *w, uint32_t param,
                                    fsdpck_error *err)
{
    const unit *u = unit_of_param(s->t->units, param);
    const size_t index = (size_t)(u - unit_at(s->t->units, 0));
    const unit_shard shard = unit_shard_of(u, s->rank);
    const unit_param_range piece =
        unit_param_range_of(s->t->units, u, param - u->first_param, s->rank);
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
    flat_layout *s = ctx;
    if (index < s->ntensors) {
        const uint32_t state = *VEC_AT(&s->t->flat_states, const uint32_t, index);
        if (state != 0 && !s->in_pieces)
            RETURN_IF(cut(s, err));
        s->in_pieces = s->in_pieces || state != 0;
        return state == 0 || state == TARGET_STATE_PLAIN
                   ? put_plain(s, w, (uint32_t)index, err)
                   : flat_put_state(s, w, (uint32_t)index, err);
    }
    index -= s->ntensors;
    if (index < unit_count(s->t->units))
        return put_flat(s, w, (uint32_t)index, err);
    return put_piece_view(s, w, (uint32_t)(index - unit_count(s->t->units)), err);
}

static fsdpck_status put_entry(flat_layout *s, const char *name, size_t nbytes, uint64_t leaf,
                               fsdpck_error *err)
{
    value_pool *pool = &s->t->cat.pool;
    value key;
    RETURN_IF(value_new_str(pool, name, nbytes, &key, err));
    return value_dict_put(pool, s->root, key, value_of_tensor(leaf), err);
}

static fsdpck_status put_unit_entry(flat_layout *s, uint32_t index, fsdpck_error *err)
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

static fsdpck_status put_param_entry(flat_layout *s, uint32_t fqn, const unit_param *p,
                                     fsdpck_error *err)
{
    const unit_list *l = s->t->units;
    const uint64_t param = (uint64_t)(p - (const unit_param *)l->params.items);
    size_t nbytes;
    const char *name = unit_name(l, fqn, &nbytes);
    return put_entry(s, name, nbytes, s->ntensors + unit_count(l) + param, err);
}

/* The original names of a unit's parameters, including shared ones. */
static fsdpck_status put_param_entries(flat_layout *s, const unit *u, fsdpck_error *err)
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

/* A tensor of no unit: of all ranks, or of one under its name without '.rank3'. */
static fsdpck_status put_other_entry(flat_layout *s, uint32_t tensor, fsdpck_error *err)
{
    const catalogue *cat = &s->t->cat;
    const cat_tensor *t = catalogue_tensor(cat, tensor);
    const char *name = catalogue_name(cat, t->name);
    size_t nbytes = catalogue_name_nbytes(cat, t->name);
    if (t->flags & CAT_TENSOR_OF_RANK) {
        s->has_own = true;
        if (t->nchunks == 0 || catalogue_chunk(cat, t->first_chunk)->rank != s->rank)
            return FSDPCK_OK;
        nbytes = name_without_rank(name, nbytes);
    }
    return put_entry(s, name, nbytes, tensor, err);
}

/* Units in their order, then the other tensors, then shards. */
static fsdpck_status make_root(flat_layout *s, fsdpck_error *err)
{
    RETURN_IF(value_new_dict(&s->t->cat.pool, &s->root, err));
    for (uint32_t i = 0; i < unit_count(s->t->units); i++) {
        const unit *u = unit_at(s->t->units, i);
        if (unit_is_sharded(u) && u->nparams > 0)
            RETURN_IF(put_unit_entry(s, i, err));
    }
    for (uint32_t i = 0; i < s->ntensors; i++) {
        if (*VEC_AT(&s->t->flat_params, const uint32_t, i) == CAT_NONE &&
            *VEC_AT(&s->t->flat_states, const uint32_t, i) == 0)
            RETURN_IF(put_other_entry(s, i, err));
    }
    for (uint32_t i = 0; i < unit_count(s->t->units); i++) {
        const unit *u = unit_at(s->t->units, i);
        if (unit_is_sharded(u) && u->use_orig_params)
            RETURN_IF(put_param_entries(s, u, err));
    }
    return FSDPCK_OK;
}

/* --- the files --- */

/* Content of a file, by outer keys if there is only one file. */
typedef enum family { FAMILY_MODEL, FAMILY_OPTIM, FAMILY_BOTH } family;

static value optimizer_of(const flat_layout *s)
{
    const target *t = s->t;
    return t->rank_roots.count > 0 ? *VEC_AT(&t->rank_roots, const value, s->rank) : t->root;
}

static fsdpck_status join(flat_layout *s, value *root, fsdpck_error *err)
{
    value_pool *pool = &s->t->cat.pool;
    value key;
    RETURN_IF(value_new_dict(pool, root, err));
    RETURN_IF(value_new_str(pool, "model", 5, &key, err));
    RETURN_IF(value_dict_put(pool, *root, key, s->root, err));
    RETURN_IF(value_new_str(pool, "optim", 5, &key, err));
    return value_dict_put(pool, *root, key, optimizer_of(s), err);
}

static fsdpck_status lay_out(flat_layout *s, family f, const char *pattern, fsdpck_error *err)
{
    target *t = s->t;
    text_buf pickle = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = FSDPCK_OK;

    s->pickle = &pickle;
    for (s->rank = 0; st == FSDPCK_OK && s->rank < t->world_size; s->rank++) {
        char name[RANK_FILE_NAME_NBYTES];
        if (s->has_own && f != FAMILY_OPTIM)
            st = make_root(s, err);
        value root = f == FAMILY_MODEL ? s->root : optimizer_of(s);
        pickle.nbytes = 0;
        s->in_pieces = false;
        if (st == FSDPCK_OK)
            st = rank_pattern_name(pattern, s->rank, t->world_size, name, err);
        if (st == FSDPCK_OK && f == FAMILY_BOTH)
            st = join(s, &root, err);
        if (st == FSDPCK_OK)
            st = pickle_write(&t->cat.pool, root, put_leaf, s, &pickle, err);
        if (st == FSDPCK_OK)
            st = pt_file_end(t, name, s->rank, &pickle, err);
    }
    text_release(&pickle);
    s->pickle = NULL;
    return st;
}

static fsdpck_status lay_out_all(flat_layout *s, const char *pattern, fsdpck_error *err)
{
    const target *t = s->t;
    const bool has_optimizer = !value_is_none(t->root);
    bool has_model = false;
    for (size_t i = 0; i < s->ntensors && !has_model; i++)
        has_model = *VEC_AT(&t->flat_states, const uint32_t, i) == 0;

    if (pattern != NULL) {
        RETURN_IF(rank_pattern_check(pattern, t->world_size, err));
        return lay_out(s,
                       !has_optimizer ? FAMILY_MODEL
                       : !has_model   ? FAMILY_OPTIM
                                      : FAMILY_BOTH,
                       pattern, err);
    }
    if (has_model)
        RETURN_IF(lay_out(s, FAMILY_MODEL, model_pattern, err));
    return has_optimizer ? lay_out(s, FAMILY_OPTIM, optim_pattern, err) : FSDPCK_OK;
}

static fsdpck_status find_tensors(flat_layout *s, fsdpck_error *err)
{
    const target *t = s->t;
    bool has_model = false;

    for (size_t i = 0; i < (s->nstates + 1) * s->nparams; i++)
        s->tensors[i] = CAT_NONE;
    for (uint32_t i = 0; i < s->ntensors; i++) {
        const uint32_t param = *VEC_AT(&t->flat_params, const uint32_t, i);
        const uint32_t state = *VEC_AT(&t->flat_states, const uint32_t, i);
        s->next[i] = catalogue_tensor(&t->cat, i)->first_chunk;
        has_model = has_model || state == 0;
        if (param != CAT_NONE)
            s->tensors[state * s->nparams + param] = i;
    }
    for (uint32_t i = 0; i < unit_count(t->units); i++) {
        const unit *u = unit_at(t->units, i);
        for (uint32_t k = 0; has_model && unit_is_sharded(u) && k < u->nparams; k++)
            if (flat_tensor_of(s, 0, u->first_param + k) == CAT_NONE ||
                u->world_size != t->world_size)
                return FAIL(err, INTERNAL, NONE, "unit does not match the target");
    }
    return FSDPCK_OK;
}

/* The names under which the files are read back: their root is "optim", whatever that of the source was. */
static fsdpck_status name_optimizer(flat_layout *s, fsdpck_error *err)
{
    static const char root[] = "optim", state[] = ".state.";
    catalogue *c = &s->t->cat;
    text_buf name = {.limit_bytes = SIZE_MAX / 2};
    fsdpck_status st = FSDPCK_OK;

    for (uint32_t i = 0; st == FSDPCK_OK && i < s->ntensors; i++) {
        const char *own = catalogue_name(c, catalogue_tensor(c, i)->name);
        const char *at = strstr(own, state);
        if (*VEC_AT(&s->t->flat_states, const uint32_t, i) == 0 || at == NULL)
            continue;
        name.nbytes = 0;
        text_printf(&name, "%s%s", root, at);
        st = name.failed ? error_set_nomem(err, strlen(own))
                         : catalogue_rename(c, i, name.text, name.nbytes, err);
    }
    text_release(&name);
    return st == FSDPCK_OK ? catalogue_reindex(c, err) : st;
}

static fsdpck_status lay_out_found(flat_layout *s, const writer_options *opt, fsdpck_error *err)
{
    RETURN_IF(find_tensors(s, err));
    RETURN_IF(make_root(s, err));
    RETURN_IF(lay_out_all(s, opt == NULL ? NULL : opt->rank_pattern, err));
    if (s->nchunks_placed != catalogue_chunk_count(&s->t->cat))
        return FAIL(err, INTERNAL, NONE, "rank has no location for part of a parameter");
    return name_optimizer(s, err);
}

static size_t count_states(const target *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->flat_states.count; i++) {
        const uint32_t state = *VEC_AT(&t->flat_states, const uint32_t, i);
        if (state != TARGET_STATE_PLAIN && state > most)
            most = state;
    }
    return most;
}

static fsdpck_status layout(target *t, const writer_options *opt, fsdpck_error *err)
{
    flat_layout s = {.t = t, .ntensors = catalogue_tensor_count(&t->cat)};
    budget *owner = t->cat.owner;

    t->is_folder = true;
    if (t->units == NULL)
        return FAIL(err, INTERNAL, NONE, "no units to flatten");
    if (t->flat_params.count != s.ntensors || t->flat_states.count != s.ntensors)
        return FAIL(err, INTERNAL, NONE, "tensors and parameters do not match");
    RETURN_IF(pt_files_begin(t, err));
    flat_records_init(&s);
    s.nparams = t->units->params.count;
    s.nstates = count_states(t);
    const size_t nunits = unit_count(t->units), nslots = (s.nstates + 1) * s.nparams;
    s.next = budget_alloc(owner, s.ntensors * sizeof *s.next, err);
    s.tensors = s.next == NULL ? NULL : budget_alloc(owner, nslots * sizeof *s.tensors, err);
    s.records = s.tensors == NULL ? NULL : budget_alloc(owner, nunits * sizeof *s.records, err);
    const fsdpck_status st = s.records == NULL ? FSDPCK_LIMIT : lay_out_found(&s, opt, err);
    if (s.records != NULL)
        budget_free(owner, s.records, nunits * sizeof *s.records);
    if (s.tensors != NULL)
        budget_free(owner, s.tensors, nslots * sizeof *s.tensors);
    if (s.next != NULL)
        budget_free(owner, s.next, s.ntensors * sizeof *s.next);
    return st;
}

const format_writer fsdp1_writer = {
    .name = "fsdp1",
    .description = "a folder with one torch.save file per rank: FSDP1's LOCAL state",
    .is_folder = true,
    .takes = STATE_NAMES_ONLY,
    .sharded = true,
    .ranks_only = true,
    .every_rank = true,
    .flat = true,
    .holds = pt_file_holds,
    .layout = layout,
    .seal = pt_files_seal,
    .id = FSDPCK_FORMAT_FSDP1,
    .options = WRITER_RANK_PATTERN,
};
