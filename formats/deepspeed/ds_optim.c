/* ds_optim.c: the file of one rank's optimizer: its partitions of the master weights and of the
 * optimizer's state. */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

/* --- partitions --- */

static fsdpck_status add_partition(ds_open *o, uint32_t slot, size_t group, value tensor,
                                   fsdpck_error *err)
{
    ds_state *s = o->s;
    ds_partition p = {.slot = slot, .rank = (uint32_t)o->file->rank, .group = (uint32_t)group};
    if (value_kind_of(tensor) != VALUE_TENSOR)
        return ds_fail_form("partition of the master weights is not a tensor", err);
    RETURN_IF(ds_piece_of(o, value_tensor_index(tensor), &p.piece, err));
    const torch_shard *piece = VEC_AT(&s->reader->pieces, const torch_shard, p.piece);
    if (piece->ndim != 1)
        return ds_fail_form("partition of a flat tensor does not have one dim", err);
    p.nelems = ds_piece_nelems(s->reader, piece);
    return vec_add(&s->partitions, &p, err);
}

/* The number of groups. */
static fsdpck_status read_masters(ds_open *o, value list, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    if (!ds_is_sequence(list))
        return ds_fail_form("file contains no partitions of master weights", err);
    for (size_t i = 0; i < value_count(pool, list); i++)
        RETURN_IF(add_partition(o, 0, i, value_item(pool, list, i), err));
    return FSDPCK_OK;
}

/* Elements of the rank's master weights in a group; 0 if unknown. */
static uint64_t master_nelems(const ds_open *o, uint64_t group)
{
    const vec *all = &o->s->partitions;
    for (size_t i = all->count; i-- > 0;) {
        const ds_partition *p = VEC_AT(all, const ds_partition, i);
        if (p->rank != o->file->rank)
            break;
        if (p->slot == 0 && p->group == group)
            return p->nelems;
    }
    return 0;
}

/* A slot's tensor is a partition if it is as long as that of the master weights, which may lack the
 * padding at its end. A step never is, also beside a partition of one element. */
static bool is_partition(const ds_open *o, const char *slot, size_t nbytes, uint64_t group, value v)
{
    if (value_kind_of(v) != VALUE_TENSOR || text_is(slot, nbytes, "step"))
        return false;
    const torch_tensor *t = VEC_AT(&o->archive.tensors, const torch_tensor, value_tensor_index(v));
    if (t->ndim != 1)
        return false;
    const uint64_t nelems = torch_tensor_sizes(&o->archive, t)[0];
    const uint64_t master = master_nelems(o, group);
    return nelems >= master && nelems - master <= 2 * o->s->world;
}

fsdpck_status ds_add_scalar(ds_open *o, uint32_t slot, uint64_t group, bool of_param, value v,
                            fsdpck_error *err)
{
    ds_scalar made = {.slot = slot,
                      .group = (uint32_t)group,
                      .rank = (uint32_t)o->file->rank,
                      .of_param = of_param,
                      .piece = CAT_NONE};
    if (value_kind_of(v) == VALUE_TENSOR)
        RETURN_IF(ds_piece_of(o, value_tensor_index(v), &made.piece, err));
    else
        RETURN_IF(value_copy(&o->scratch.pool, v, &o->s->cat->pool, NULL, &made.content, err));
    return vec_add(&o->s->scalars, &made, err);
}

/* State of one dim that has no partition's size: ds_flat.c checks it when all files are read. */
static fsdpck_status note_misfit(ds_open *o, uint32_t slot, uint64_t group, value v,
                                 fsdpck_error *err)
{
    const ds_state *s = o->s;
    if (value_kind_of(v) != VALUE_TENSOR)
        return FSDPCK_OK;
    const torch_tensor *t = VEC_AT(&o->archive.tensors, const torch_tensor, value_tensor_index(v));
    if (t->ndim != 1)
        return FSDPCK_OK;
    ds_misfit m = {.slot = slot,
                   .rank = (uint32_t)o->file->rank,
                   .group = (uint32_t)group,
                   .file = o->file->index,
                   .nelems = torch_tensor_sizes(&o->archive, t)[0],
                   .expected = master_nelems(o, group)};
    for (size_t i = 0; i < s->partitions.count; i++) {
        const ds_partition *p = VEC_AT(&s->partitions, const ds_partition, i);
        if (p->slot == 0 && p->rank == m.rank && p->nelems == m.nelems)
            m.fits_other = true;
    }
    return vec_add(&o->s->misfits, &m, err);
}

static void leave_out(ds_state *s, const char *name, size_t nbytes, uint64_t group)
{
    text_buf text = {.limit_bytes = 1000};
    text_append(&text, name, nbytes);
    text_printf(&text, " of group %" PRIu64, group);
    if (text_check(&text, NULL) == FSDPCK_OK)
        ds_leave_out(s, text.text, text.nbytes);
    else
        ds_leave_out(s, name, nbytes);
    text_release(&text);
}

static fsdpck_status leave_out_slot(ds_open *o, uint32_t slot, uint64_t group, value v,
                                    fsdpck_error *err)
{
    ds_state *s = o->s;
    if (o->file->rank == 0)
        leave_out(s, strtab_text(&s->slots, slot), strtab_nbytes(&s->slots, slot), group);
    return note_misfit(o, slot, group, v, err);
}

/* Whether a value holds no part that only a class unknown here gives a meaning to. */
static bool is_plain_scalar(value v)
{
    switch (value_kind_of(v)) {
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
    case VALUE_STR:
        return true;
    default:
        return false;
    }
}

static bool is_one_element(const ds_open *o, value v)
{
    const torch_archive *a = &o->archive;
    if (value_kind_of(v) != VALUE_TENSOR)
        return false;
    const torch_tensor *t = VEC_AT(&a->tensors, const torch_tensor, value_tensor_index(v));
    return t->ndim == 0 || box_nelems(torch_tensor_sizes(a, t), t->ndim) == 1;
}

static fsdpck_status read_slots(ds_open *o, uint64_t group, value slots, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    value dict;
    if (!ds_is_dict(&o->scratch.pool, slots, &dict))
        return ds_fail_form("optimizer state of a group is not a dict", err);
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        const value key = value_key(pool, dict, i), v = value_item(pool, dict, i);
        size_t nbytes;
        uint32_t slot;
        if (value_kind_of(key) != VALUE_STR)
            return ds_fail_form("name of optimizer state is not a text", err);
        const char *name = value_text(pool, key, &nbytes);
        if (o->s->is_universal && !text_is(name, nbytes, "step"))
            continue; /* the parameters' own files have it */
        RETURN_IF(strtab_intern(&o->s->slots, name, nbytes, &slot, err));
        if (is_partition(o, name, nbytes, group, v))
            RETURN_IF(add_partition(o, slot, (size_t)group, v, err));
        else if (is_one_element(o, v) || is_plain_scalar(v))
            RETURN_IF(ds_add_scalar(o, slot, group, false, v, err));
        else
            RETURN_IF(leave_out_slot(o, slot, group, v, err));
    }
    return FSDPCK_OK;
}

/* {"state": {group: slots}}, or a list of the slots of each group (elastic checkpoints). */
static fsdpck_status read_states(ds_open *o, value base, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    value dict;
    if (value_kind_of(base) == VALUE_LIST) {
        for (size_t i = 0; i < value_count(pool, base); i++)
            RETURN_IF(read_slots(o, i, value_item(pool, base, i), err));
        return FSDPCK_OK;
    }
    if (!ds_is_dict(&o->scratch.pool, ds_item(o, base, "state"), &dict))
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        uint64_t group;
        if (!value_as_u64(pool, value_key(pool, dict, i), &group) || group >= UINT32_MAX)
            return ds_fail_form("number of a group in the optimizer's state is invalid", err);
        RETURN_IF(read_slots(o, group, value_item(pool, dict, i), err));
    }
    return FSDPCK_OK;
}

/* --- groups --- */

/* param_groups of rank 0: their values, and the numbers in `params`. */
static fsdpck_status read_groups(ds_open *o, value list, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    ds_state *s = o->s;
    if (value_kind_of(list) != VALUE_LIST)
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(pool, list); i++) {
        const value numbers = ds_item(o, value_item(pool, list, i), "params");
        RETURN_IF(vec_add(&s->group_first, &(uint32_t){(uint32_t)s->group_params.count}, err));
        for (size_t k = 0; k < value_count(pool, numbers); k++) {
            uint64_t number;
            if (!value_as_u64(pool, value_item(pool, numbers, k), &number) || number >= CAT_NONE)
                return ds_fail_form("number in 'params' of the optimizer is invalid", err);
            RETURN_IF(vec_add(&s->group_params, &(uint32_t){(uint32_t)number}, err));
        }
    }
    RETURN_IF(vec_add(&s->group_first, &(uint32_t){(uint32_t)s->group_params.count}, err));
    /* No tensor of a group is kept: its options are numbers and texts. */
    uint64_t *none = budget_alloc(s->req->metadata, o->archive.tensors.count * sizeof *none, err);
    if (none == NULL)
        return FSDPCK_LIMIT;
    memset(none, 0xFF, o->archive.tensors.count * sizeof *none);
    const fsdpck_status st = value_copy(pool, list, &s->cat->pool, none, &s->groups, err);
    budget_free(s->req->metadata, none, o->archive.tensors.count * sizeof *none);
    return st;
}

/* param_alignment_paddings: one list for each group. */
static fsdpck_status read_paddings(ds_open *o, value lists, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    for (size_t g = 0; ds_is_sequence(lists) && g < value_count(pool, lists); g++) {
        const value list = value_item(pool, lists, g);
        for (size_t i = 0; i < value_count(pool, list); i++) {
            ds_padding padding = {.group = (uint32_t)g};
            if (!value_as_u64(pool, value_item(pool, list, i), &padding.nelems))
                return ds_fail_form("padding of a parameter is not a number", err);
            RETURN_IF(vec_add(&o->s->paddings, &padding, err));
        }
    }
    return FSDPCK_OK;
}

/* param_slice_mappings: for each group, a dict of names and fragment_address(numel, start). */
static fsdpck_status read_slices(ds_open *o, value lists, fsdpck_error *err)
{
    value_pool *pool = &o->scratch.pool;
    for (size_t g = 0; ds_is_sequence(lists) && g < value_count(pool, lists); g++) {
        value dict;
        if (!ds_is_dict(pool, value_item(pool, lists, g), &dict))
            continue;
        for (size_t i = 0; i < value_count(pool, dict); i++) {
            ds_slice slice = {.rank = (uint32_t)o->file->rank, .group = (uint32_t)g};
            const value at = value_item(pool, dict, i);
            if (!ds_attribute_number(pool, at, "numel", &slice.nelems) ||
                !ds_attribute_number(pool, at, "start", &slice.begin))
                continue;
            RETURN_IF(ds_intern(o, value_key(pool, dict, i), &slice.name, err));
            RETURN_IF(vec_add(&o->s->slices, &slice, err));
        }
    }
    return FSDPCK_OK;
}

/* --- the file --- */

static fsdpck_status read_world(ds_open *o, value optimizer, uint64_t *world, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    const value count = ds_item(o, optimizer, "partition_count");
    uint64_t n;
    *world = 0;
    if (value_as_u64(pool, count, &n))
        *world = n;
    for (size_t i = 0; ds_is_sequence(count) && i < value_count(pool, count); i++) {
        if (!value_as_u64(pool, value_item(pool, count, i), &n))
            *world = 0;
        else if (*world > 0 && n != *world)
            return FAIL_WITH(err, UNSUPPORTED, SRC_FOREIGN,
                             ("groups of parameters are partitioned over different numbers of "
                              "ranks (experts), which is not supported"),
                             (found, "%" PRIu64 " and %" PRIu64 " partitions", *world, n),
                             (next, "convert the folder with DeepSpeed's ds_to_universal.py"));
        else
            *world = n;
    }
    if (*world == 0 || *world > UINT16_MAX)
        return ds_fail_form("file does not record the number of partitions", err);
    return FSDPCK_OK;
}

static fsdpck_status read_head(ds_open *o, value optimizer, fsdpck_error *err)
{
    ds_state *s = o->s;
    const value version = ds_item(o, optimizer, "ds_version");
    uint64_t stage = 1, world;
    size_t nbytes = 0;
    const char *text = value_text(&o->scratch.pool, version, &nbytes);
    const value recorded = ds_item(o, optimizer, "zero_stage");
    if (!value_is_none(recorded) &&
        (!ds_number(&o->scratch.pool, recorded, &stage) || stage < 1 || stage > 3))
        return ds_fail_form("stage of the ZeRO optimizer is not 1, 2 or 3", err);
    RETURN_IF(read_world(o, optimizer, &world, err));
    if (s->stage != 0 && s->stage != stage)
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("files of two ranks have different ZeRO stages"),
                         (expected, "%u", s->stage), (found, "%" PRIu64, stage));
    s->stage = (unsigned)stage;
    RETURN_IF(ds_agree(s, &s->optim_facts, o->file, -1, (int64_t)world, text, nbytes, err));
    s->world = world;
    if (o->file->rank >= world)
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("file belongs to a save of more ranks: its number is too large"),
                         (found, "rank %" PRIu64 " of %" PRIu64, o->file->rank, world),
                         (next, "move it to another folder, if it is of another save"));
    return FSDPCK_OK;
}

fsdpck_status ds_read_optim(ds_open *o, fsdpck_error *err)
{
    const value optimizer = ds_item(o, o->archive.root, "optimizer_state_dict");
    value dict;
    if (!ds_is_dict(&o->scratch.pool, optimizer, &dict))
        return ds_fail_form("file contains no optimizer of ZeRO", err);
    RETURN_IF(read_head(o, optimizer, err));
    const bool is_third = o->s->stage == 3;
    RETURN_IF(read_masters(
        o, ds_item(o, optimizer, is_third ? "fp32_flat_groups" : "single_partition_of_fp32_groups"),
        err));
    const value base =
        ds_item(o, optimizer, is_third ? "optimizer_state_dict" : "base_optimizer_state");
    RETURN_IF(read_states(o, base, err));
    RETURN_IF(read_slices(o, ds_item(o, optimizer, "param_slice_mappings"), err));
    if (o->file->rank > 0)
        return FSDPCK_OK;
    RETURN_IF(read_paddings(o, ds_item(o, optimizer, "param_alignment_paddings"), err));
    return read_groups(
        o, value_kind_of(base) == VALUE_LIST ? VALUE_OF_NONE : ds_item(o, base, "param_groups"),
        err);
}

fsdpck_status ds_read_groups(ds_open *o, fsdpck_error *err)
{
    const value root = o->archive.root;
    RETURN_IF(read_head(o, root, err));
    if (o->s->stage == 3)
        RETURN_IF(read_states(o, ds_item(o, root, "optimizer_state_dict"), err));
    return read_groups(o, ds_item(o, root, "param_groups"), err);
}
