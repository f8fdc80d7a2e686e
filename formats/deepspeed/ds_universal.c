/* ds_universal.c: a universal checkpoint: one file for each parameter and slot, which ds_to_universal.py makes
 * from the files of all ranks.
 *
 *     zero/NAME/fp32.pt            the master weights: a tensor, or a dict with the tensor as `param`
 *     zero/NAME/exp_avg.pt, ...    a slot of the optimizer, likewise
 *     zero/NAME/step.pt            a tensor of one element; made from ZeRO 3, it is in optimizer_state.pt
 *     zero/optimizer_state.pt      param_groups
 *
 * Tensors have the shape of the parameter; made from ZeRO 3, one dim. Files of buffers, of frozen and of
 * shared parameters are copies in fp32 of what the model states have, and are not read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/ds_internal.h"

#define ZERO_FOLDER "zero"
static const char optimizer_file[] = ZERO_FOLDER "/optimizer_state.pt";

/* --- the list of files --- */

static fsdpck_status add_file(ds_state *s, const text_buf *path, ds_kind kind, fsdpck_error *err)
{
    uint32_t id;
    RETURN_IF(text_check(path, err));
    RETURN_IF(strtab_intern(&s->paths, path->text, path->nbytes, &id, err));
    return vec_add(&s->files, &(ds_file){.kind = kind, .path = id}, err);
}

/* zero/NAME/SLOT.pt */
static fsdpck_status list_slots(ds_state *s, const char *name, fsdpck_error *err)
{
    char **slots = NULL;
    size_t count = 0;
    text_buf path = {.limit_bytes = 1u << 16};
    text_printf(&path, ZERO_FOLDER "/%s", name);
    fsdpck_status st = text_check(&path, err);
    if (st == FSDPCK_OK)
        st = folder_list(&s->reader->dir, path.text, &slots, &count, err);
    const size_t folder_nbytes = path.nbytes;
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        if (slots[i][0] == '.' || !text_ends_with(slots[i], strlen(slots[i]), ".pt"))
            continue;
        path.nbytes = folder_nbytes;
        text_printf(&path, "/%s", slots[i]);
        st = add_file(s, &path, DS_SLOT, err);
    }
    free(slots);
    text_release(&path);
    return st;
}

/* Names are those of files until all are there: the texts may move before. */
fsdpck_status ds_universal_list(ds_state *s, fsdpck_error *err)
{
    char **names = NULL;
    size_t count = 0;
    bool has_optimizer = false;
    fsdpck_status st = folder_list(&s->reader->dir, ZERO_FOLDER, &names, &count, err);
    for (size_t i = 0; st == FSDPCK_OK && i < count; i++) {
        text_buf path = {.limit_bytes = 1u << 16};
        path_kind kind = PATH_ABSENT;
        text_printf(&path, ZERO_FOLDER "/%s", names[i]);
        st = text_check(&path, err);
        if (st == FSDPCK_OK)
            st = path_probe(&s->reader->dir, path.text, &kind, NULL, err);
        if (st == FSDPCK_OK && kind == PATH_FOLDER) {
            st = list_slots(s, names[i], err);
        } else if (st == FSDPCK_OK && strcmp(path.text, optimizer_file) == 0) {
            has_optimizer = true;
            st = add_file(s, &path, DS_GROUPS, err);
        }
        text_release(&path);
    }
    free(names);
    RETURN_IF(st);
    for (size_t i = 0; i < s->files.count; i++) {
        ds_file *f = VEC_AT(&s->files, ds_file, i);
        if (f->name == NULL)
            f->name = strtab_text(&s->paths, f->path);
    }
    if (!has_optimizer) {
        st = FAIL_WITH(err, BADINPUT, FILE_MISSING,
                       ("file of the optimizer is missing in a universal checkpoint"),
                       (next, "copy the missing file, or convert the checkpoint again"));
        error_path_in(err, s->req->path, optimizer_file);
    }
    return st;
}

/* --- one file --- */

/* The parameter of zero/NAME/SLOT.pt, and its slot; CAT_NONE for another tensor of the module. */
static void find_param(ds_state *s, const char *path, uint32_t *param, const char **slot,
                       size_t *slot_nbytes)
{
    const char *name = path + strlen(ZERO_FOLDER "/");
    const char *slash = strrchr(path, '/');
    const size_t nbytes = (size_t)(slash - name);
    const uint32_t id = strtab_find(&s->names, name, nbytes);
    *slot = slash + 1;
    *slot_nbytes = strlen(*slot) - strlen(".pt");
    *param = CAT_NONE;
    if (id == STRTAB_NONE)
        ds_leave_out(s, path, strlen(path));
    else
        *param = VEC_AT(&s->by_name, const ds_name, id)->param;
}

static fsdpck_status fail_shape(const ds_state *s, const ds_param *p, const torch_shard *piece,
                                fsdpck_error *err)
{
    return FAIL_WITH(err, BADINPUT, RANK_SHAPE, ("tensor does not have the shape of its parameter"),
                     (tensor, strtab_text(&s->names, p->name)),
                     (expected, "%" PRIu64 " elements", p->nelems),
                     (found, "%" PRIu64 " elements, %u dims", ds_piece_nelems(s->reader, piece),
                      (unsigned)piece->ndim),
                     (next, "convert the checkpoint again"));
}

fsdpck_status ds_read_slot(ds_open *o, fsdpck_error *err)
{
    static const uint64_t none[1];
    ds_state *s = o->s;
    ds_partition made = {.slot = 0};
    const char *slot;
    size_t nbytes;
    find_param(s, o->file->name, &made.group, &slot, &nbytes);
    if (made.group == CAT_NONE)
        return FSDPCK_OK;
    const value inner = ds_item(o, o->archive.root, "param");
    const value v = value_is_none(inner) ? o->archive.root : inner;
    if (!text_is(slot, nbytes, "fp32"))
        RETURN_IF(strtab_intern(&s->slots, slot, nbytes, &made.slot, err));
    const ds_param *p = VEC_AT(&s->params, const ds_param, made.group);
    if (text_is(slot, nbytes, "step"))
        return ds_add_scalar(o, made.slot, made.group, true, v, err);
    if (value_kind_of(v) != VALUE_TENSOR)
        return ds_fail_form("file of a parameter does not contain a tensor", err);
    RETURN_IF(ds_piece_of(o, value_tensor_index(v), &made.piece, err));
    const torch_shard *piece = VEC_AT(&s->reader->pieces, const torch_shard, made.piece);
    const uint64_t *shape = p->ndim > 0 ? VEC_AT(&s->shapes, const uint64_t, p->shape_at) : none;
    made.nelems = ds_piece_nelems(s->reader, piece);
    if (made.nelems != p->nelems ||
        (piece->ndim != 1 &&
         !shape_equal(shape, p->ndim, torch_shard_sizes(s->reader, piece), piece->ndim)))
        return fail_shape(s, p, piece, err);
    return vec_add(&s->partitions, &made, err);
}

/* --- all files --- */

static int by_slot(const void *a, const void *b)
{
    const ds_partition *x = a, *y = b;
    ORDER_BY(x->slot, y->slot);
    return x->group < y->group ? -1 : x->group > y->group;
}

static const ds_partition *find(const ds_state *s, uint32_t slot, uint32_t param)
{
    const ds_partition key = {.slot = slot, .group = param};
    return s->partitions.count == 0
               ? NULL
               : bsearch(&key, s->partitions.items, s->partitions.count, sizeof key, by_slot);
}

static fsdpck_status fail_missing(const ds_state *s, uint32_t slot, uint32_t param,
                                  fsdpck_error *err)
{
    const char *name = strtab_text(&s->names, VEC_AT(&s->params, const ds_param, param)->name);
    return FAIL_WITH(err, BADINPUT, FILE_MISSING,
                     ("file of a parameter is missing: " ZERO_FOLDER "/%s/%s.pt", name,
                      slot == 0 ? "fp32" : strtab_text(&s->slots, slot)),
                     (path, s->req->path),
                     (next, "copy the missing file, or convert the checkpoint again"));
}

/* The same of scalars: "step". */
static fsdpck_status check_scalars(const ds_state *s, uint32_t slot, fsdpck_error *err)
{
    uint8_t *has = calloc(s->params.count + 1, 1);
    bool any = false;
    fsdpck_status st = has != NULL ? FSDPCK_OK : error_set_nomem(err, s->params.count);
    for (size_t i = 0; st == FSDPCK_OK && i < s->scalars.count; i++) {
        const ds_scalar *q = VEC_AT(&s->scalars, const ds_scalar, i);
        if (!q->of_param || q->slot != slot || q->group >= s->params.count)
            continue;
        has[q->group] = 1;
        any = true;
    }
    for (uint32_t i = 0; any && st == FSDPCK_OK && i < s->params.count; i++)
        if (has[i] == 0)
            st = fail_missing(s, slot, i, err);
    free(has);
    return st;
}

/* A slot that one parameter has, all have. */
fsdpck_status ds_universal_check(ds_state *s, fsdpck_error *err)
{
    const uint32_t slots = (uint32_t)strtab_count(&s->slots);
    if (s->partitions.count > 1)
        qsort(s->partitions.items, s->partitions.count, sizeof(ds_partition), by_slot);
    for (uint32_t slot = 0; slot < slots; slot++) {
        bool any = slot == 0;
        for (size_t i = 0; i < s->partitions.count; i++)
            any = any || VEC_AT(&s->partitions, const ds_partition, i)->slot == slot;
        for (uint32_t i = 0; any && i < s->params.count; i++) {
            if (find(s, slot, i) != NULL)
                continue;
            return fail_missing(s, slot, i, err);
        }
        RETURN_IF(check_scalars(s, slot, err));
    }
    return FSDPCK_OK;
}

static uint32_t index_of(const ds_state *s, const ds_param *p)
{
    return (uint32_t)(p - (const ds_param *)s->params.items);
}

dtype ds_universal_dtype(const ds_state *s, uint32_t slot, const ds_param *p)
{
    const ds_partition *q = find(s, slot, index_of(s, p));
    return q == NULL ? DTYPE_NONE
                     : (dtype)VEC_AT(&s->reader->pieces, const torch_shard, q->piece)->dtype;
}

fsdpck_status ds_universal_add(const ds_state *s, uint32_t slot, const ds_param *p, uint32_t tensor,
                               fsdpck_error *err)
{
    const ds_partition *q = find(s, slot, index_of(s, p));
    const torch_shard *piece = VEC_AT(&s->reader->pieces, const torch_shard, q->piece);
    if (piece->ndim == 1 && p->nelems > 0)
        return ds_add_interval(s, tensor, 0, p->nelems, q->piece, 0, 0, err);
    return ds_add_piece(s, tensor, q->piece, err);
}
