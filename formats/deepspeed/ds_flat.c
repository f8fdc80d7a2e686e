/* ds_flat.c: the flat tensors that the partitions of all ranks make. Of ZeRO 1 and 2 each group has one,
 * whose parts are the ranks'. Of ZeRO 3 each rank has one, whose parts are the sub-groups. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/text.h"
#include "formats/deepspeed/ds_internal.h"

/* --- order --- */

static int by_slot_group(const void *a, const void *b)
{
    const ds_partition *x = a, *y = b;
    ORDER_BY(x->slot, y->slot);
    ORDER_BY(x->group, y->group);
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_slot_rank(const void *a, const void *b)
{
    const ds_partition *x = a, *y = b;
    ORDER_BY(x->slot, y->slot);
    ORDER_BY(x->rank, y->rank);
    return x->group < y->group ? -1 : x->group > y->group;
}

static uint32_t flat_of(const ds_state *s, const ds_partition *p)
{
    return s->stage == 3 ? p->rank : p->group;
}

static uint32_t part_of(const ds_state *s, const ds_partition *p)
{
    return s->stage == 3 ? p->group : p->rank;
}

/* The first partition of the slot's flat tensor, or of one after it. */
static size_t first_of(const ds_state *s, uint32_t slot, uint32_t flat)
{
    size_t low = 0, high = s->partitions.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ds_partition *p = VEC_AT(&s->partitions, const ds_partition, middle);
        if (p->slot < slot || (p->slot == slot && flat_of(s, p) < flat))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_in(const ds_state *s, size_t i, uint32_t slot, uint32_t flat)
{
    if (i >= s->partitions.count)
        return false;
    const ds_partition *p = VEC_AT(&s->partitions, const ds_partition, i);
    return p->slot == slot && flat_of(s, p) == flat;
}

static fsdpck_status fail_size(const ds_state *s, const ds_partition *p, const char *what,
                               uint64_t expected, uint64_t found, fsdpck_error *err)
{
    const uint32_t index = VEC_AT(&s->reader->pieces, const torch_shard, p->piece)->file;
    const fsdpck_status st = FAIL_WITH(
        err, BADINPUT, RANK_SHAPE, ("%s", what), (expected, "%" PRIu64 " elements", expected),
        (found, "%" PRIu64 " elements", found), (next, "take all files from one save"));
    error_path_in(err, s->req->path, file_set_path(&s->reader->files, index));
    return st;
}

/* --- master weights --- */

/* All parts of a flat tensor, 0 to count - 1. */
static fsdpck_status lay_out_masters(ds_state *s, uint32_t flat, uint64_t count, uint64_t *total,
                                     fsdpck_error *err)
{
    const size_t first = first_of(s, 0, flat);
    *total = 0;
    for (uint64_t i = 0; i < count; i++) {
        ds_partition *p = VEC_AT(&s->partitions, ds_partition, first + i);
        if (!is_in(s, first + i, 0, flat) || part_of(s, p) != i)
            return ds_fail_form("files of the ranks contain different numbers of partitions", err);
        p->begin = *total;
        if (!checked_add(*total, p->nelems, total) || *total > INT64_MAX)
            return FAIL(err, BADINPUT, CHUNK_BOUNDS, "flat tensor has too many elements");
    }
    if (is_in(s, first + count, 0, flat))
        return ds_fail_form("files of the ranks contain different numbers of partitions", err);
    return FSDPCK_OK;
}

/* ZeRO 1 and 2: all ranks have parts of one size; the last may lack its padding. */
static fsdpck_status check_even(const ds_state *s, uint32_t group, fsdpck_error *err)
{
    const size_t first = first_of(s, 0, group);
    const ds_partition *all = s->partitions.items;
    for (uint64_t i = 1; i < s->world; i++) {
        const ds_partition *p = &all[first + i];
        if (p->nelems != all[first].nelems && (i + 1 < s->world || p->nelems > all[first].nelems))
            return fail_size(s, p, "partition of a rank has another size than those of other ranks",
                             all[first].nelems, p->nelems, err);
    }
    return FSDPCK_OK;
}

/* --- parameters --- */

static fsdpck_status overflow(fsdpck_error *err)
{
    return FAIL(err, BADINPUT, CHUNK_BOUNDS, "parameters of a group have too many elements");
}

static uint64_t rounded(uint64_t n, uint64_t unit)
{
    return n / unit + (n % unit != 0);
}

/* The flat tensor is padded to a multiple of 2 elements for each rank, which may be lacking. */
static fsdpck_status lay_out_group(ds_state *s, uint32_t group, size_t *at, fsdpck_error *err)
{
    const bool padded = s->paddings.count > 0;
    uint64_t total, offset = 0, end = 0;
    RETURN_IF(lay_out_masters(s, group, s->world, &total, err));
    RETURN_IF(check_even(s, group, err));
    for (; *at < s->params.count; (*at)++) {
        ds_param *p = VEC_AT(&s->params, ds_param, *at);
        const ds_padding *padding =
            padded && *at < s->paddings.count ? VEC_AT(&s->paddings, const ds_padding, *at) : NULL;
        if (p->group != group)
            break;
        if (padded && (padding == NULL || padding->group != group))
            return ds_fail_form("paddings do not match the parameters of the groups", err);
        p->offset = offset;
        if (!checked_add(offset, p->nelems, &end) ||
            !checked_add(end, padded ? padding->nelems : 0, &offset))
            return overflow(err);
    }
    const uint64_t unit = 2 * s->world;
    if (end <= total && offset <= UINT64_MAX - unit &&
        rounded(offset, unit) == rounded(total, unit))
        return FSDPCK_OK;
    return fail_size(s, VEC_AT(&s->partitions, const ds_partition, first_of(s, 0, group)),
                     "partitions of all ranks do not have the elements of the group's parameters",
                     offset, total, err);
}

/* ZeRO 3: DeepSpeed 0.19 writes one group of param_shapes for each sub-group, which has a part of each of its
 * parameters. With other numbers of them, a parameter may lie in several sub-groups, in their order. */
static fsdpck_status check_sub_groups(const ds_state *s, uint64_t groups, fsdpck_error *err)
{
    size_t at = 0;
    if (groups != s->group_count)
        return FSDPCK_OK;
    for (uint32_t g = 0; g < groups; g++) {
        uint64_t nelems = 0; /* the sum of all groups fits */
        for (; at < s->params.count; at++) {
            const ds_param *p = VEC_AT(&s->params, const ds_param, at);
            if (p->group != g)
                break;
            nelems += p->part_nelems;
        }
        for (uint32_t rank = 0; rank < s->world; rank++) {
            const ds_partition *x =
                VEC_AT(&s->partitions, const ds_partition, first_of(s, 0, rank) + g);
            if (x->nelems != nelems)
                return fail_size(s, x,
                                 "partition of a sub-group does not have the elements of its "
                                 "parameters",
                                 nelems, x->nelems, err);
        }
    }
    return FSDPCK_OK;
}

static fsdpck_status lay_out_ranks(ds_state *s, fsdpck_error *err)
{
    uint64_t offset = 0, total, groups = 0;
    for (size_t i = 0; i < s->params.count; i++) {
        ds_param *p = VEC_AT(&s->params, ds_param, i);
        p->offset = offset;
        p->part_nelems = rounded(p->nelems, s->world);
        if (!checked_add(offset, p->part_nelems, &offset))
            return overflow(err);
    }
    while (is_in(s, groups, 0, 0))
        groups++;
    for (uint32_t rank = 0; rank < s->world; rank++) {
        RETURN_IF(lay_out_masters(s, rank, groups, &total, err));
        if (total != offset)
            return groups == 0
                       ? ds_fail_form("file contains no partitions of master weights", err)
                       : fail_size(
                             s, VEC_AT(&s->partitions, const ds_partition, first_of(s, 0, rank)),
                             "partitions of a rank do not have the elements of its parameters",
                             offset, total, err);
    }
    return check_sub_groups(s, groups, err);
}

/* --- slots of the optimizer --- */

/* A partition of a slot has the place of the master weights. */
static fsdpck_status lay_out_slots(ds_state *s, fsdpck_error *err)
{
    ds_partition *all = s->partitions.items;
    for (size_t i = 0; i < s->partitions.count; i++) {
        ds_partition *p = &all[i];
        if (i > 0 && by_slot_rank(p - 1, p) == 0)
            return ds_fail_form("file contains two partitions of one group", err);
        if (p->slot == 0)
            continue;
        const size_t first = first_of(s, 0, flat_of(s, p)), at = first + part_of(s, p);
        if (!is_in(s, at, 0, flat_of(s, p)) || part_of(s, &all[at]) != part_of(s, p))
            return ds_fail_form("optimizer has state of a group without master weights", err);
        const bool is_last = !is_in(s, at + 1, 0, flat_of(s, p));
        if (p->nelems < all[at].nelems ||
            (p->nelems != all[at].nelems && (s->stage == 3 || !is_last)))
            return fail_size(s, p, "optimizer state and master weights of a rank differ in size",
                             all[at].nelems, p->nelems, err);
        p->begin = all[at].begin;
    }
    return FSDPCK_OK;
}

/* State of one dim is a partition of another size if its slot has partitions elsewhere, or if it has
 * the size of another group. */
static fsdpck_status check_misfits(const ds_state *s, fsdpck_error *err)
{
    for (size_t i = 0; i < s->misfits.count; i++) {
        const ds_misfit *m = VEC_AT(&s->misfits, const ds_misfit, i);
        const size_t at = first_of(s, m->slot, 0);
        const bool is_slot = at < s->partitions.count &&
                             VEC_AT(&s->partitions, const ds_partition, at)->slot == m->slot;
        char name[200];
        if (!is_slot && !m->fits_other)
            continue;
        const fsdpck_status st = FAIL_WITH(
            err, BADINPUT, RANK_SHAPE,
            ("optimizer state '%s' of group %" PRIu32 " has another size than its master weights",
             escape_text(name, sizeof name, strtab_text(&s->slots, m->slot),
                         strtab_nbytes(&s->slots, m->slot)),
             m->group),
            (expected, "%" PRIu64 " elements", m->expected),
            (found, "%" PRIu64 " elements", m->nelems), (next, "take all files from one save"));
        error_path_in(err, s->req->path, file_set_path(&s->reader->files, m->file));
        return st;
    }
    return FSDPCK_OK;
}

/* --- recorded slices --- */

/* A rank's file records the elements of each parameter in its partition. */
static fsdpck_status check_slices(const ds_state *s, fsdpck_error *err)
{
    const size_t count = s->stage == 3 || s->slices_in_other_order ? 0 : s->slices.count;
    for (size_t i = 0; i < count; i++) {
        const ds_slice *x = VEC_AT(&s->slices, const ds_slice, i);
        const uint32_t param = VEC_AT(&s->by_name, const ds_name, x->name)->param;
        const size_t at = first_of(s, 0, x->group) + x->rank;
        uint64_t begin = 0, end = 0;
        const ds_partition *p =
            is_in(s, at, 0, x->group) ? VEC_AT(&s->partitions, const ds_partition, at) : NULL;
        if (p != NULL && param != CAT_NONE) {
            const ds_param *q = VEC_AT(&s->params, const ds_param, param);
            begin = q->offset > p->begin ? q->offset : p->begin;
            end = q->offset + q->nelems;
            if (end > p->begin + p->nelems)
                end = p->begin + p->nelems;
            if (q->group == x->group && begin < end && begin - p->begin == x->begin &&
                end - begin == x->nelems)
                continue;
        }
        const fsdpck_status st = FAIL_WITH(
            err, BADINPUT, RANK_DISAGREE,
            ("slice of a parameter that the file of rank %" PRIu32 " records is another rank's, or "
             "of another save",
             x->rank),
            (tensor, strtab_text(&s->names, x->name)),
            (expected, "%" PRIu64 " element%s", begin < end ? end - begin : 0,
             text_plural(begin < end ? end - begin : 0)),
            (found, "%" PRIu64 " element%s at %" PRIu64 " of the partition", x->nelems,
             text_plural(x->nelems), x->begin),
            (next, "check whether files were renamed, and take all files from one save"));
        error_path(err, s->req->path);
        return st;
    }
    return FSDPCK_OK;
}

fsdpck_status ds_flat_lay_out(ds_state *s, fsdpck_error *err)
{
    size_t at = 0;
    if (s->partitions.count > 1)
        qsort(s->partitions.items, s->partitions.count, sizeof(ds_partition),
              s->stage == 3 ? by_slot_rank : by_slot_group);
    if (s->stage == 3)
        RETURN_IF(lay_out_ranks(s, err));
    for (uint32_t g = 0; s->stage < 3 && g < s->group_count; g++)
        RETURN_IF(lay_out_group(s, g, &at, err));
    if (s->stage < 3 &&
        (at != s->params.count || is_in(s, first_of(s, 0, s->group_count), 0, s->group_count)))
        return ds_fail_form("partitions and shapes of the parameters have different groups", err);
    RETURN_IF(lay_out_slots(s, err));
    RETURN_IF(check_misfits(s, err));
    return check_slices(s, err);
}

/* --- chunks --- */

/* Elements [from, from + count) of a flat tensor, which are those from `at` on of the parameter. */
static fsdpck_status add_span(const ds_state *s, uint32_t slot, uint32_t flat, uint64_t from,
                              uint64_t count, uint64_t at, uint32_t tensor, fsdpck_error *err)
{
    for (size_t i = first_of(s, slot, flat); count > 0 && is_in(s, i, slot, flat); i++) {
        const ds_partition *p = VEC_AT(&s->partitions, const ds_partition, i);
        const uint64_t low = from > p->begin ? from : p->begin;
        const uint64_t part_end = p->begin + p->nelems;
        const uint64_t high = from + count < part_end ? from + count : part_end;
        if (low < high)
            RETURN_IF(ds_add_interval(s, tensor, at + (low - from), at + (high - from), p->piece,
                                      low - p->begin, p->rank, err));
    }
    return FSDPCK_OK;
}

fsdpck_status ds_flat_add(const ds_state *s, uint32_t slot, const ds_param *p, uint32_t tensor,
                          fsdpck_error *err)
{
    if (s->is_universal)
        return ds_universal_add(s, slot, p, tensor, err);
    if (s->stage < 3)
        return add_span(s, slot, p->group, p->offset, p->nelems, 0, tensor, err);
    for (uint32_t rank = 0; rank < s->world; rank++) {
        const uint64_t begin = rank * p->part_nelems;
        if (begin >= p->nelems)
            break;
        const uint64_t left = p->nelems - begin;
        RETURN_IF(add_span(s, slot, rank, p->offset, left < p->part_nelems ? left : p->part_nelems,
                           begin, tensor, err));
    }
    return FSDPCK_OK;
}

static dtype dtype_in(const ds_state *s, uint32_t slot, uint32_t flat, const ds_param *p)
{
    for (size_t i = first_of(s, slot, flat); is_in(s, i, slot, flat); i++) {
        const ds_partition *q = VEC_AT(&s->partitions, const ds_partition, i);
        const uint64_t nelems = s->stage == 3 ? p->part_nelems : p->nelems;
        const bool meets = p->offset < q->begin + q->nelems && q->begin < p->offset + nelems;
        if (meets || p->nelems == 0)
            return (dtype)VEC_AT(&s->reader->pieces, const torch_shard, q->piece)->dtype;
    }
    return DTYPE_NONE;
}

dtype ds_flat_dtype(const ds_state *s, uint32_t slot, const ds_param *p)
{
    dtype d = DTYPE_NONE;
    if (s->is_universal)
        return ds_universal_dtype(s, slot, p);
    if (s->stage < 3)
        return dtype_in(s, slot, p->group, p);
    for (uint32_t rank = 0; d == DTYPE_NONE && rank < s->world; rank++)
        d = dtype_in(s, slot, rank, p);
    return d;
}
