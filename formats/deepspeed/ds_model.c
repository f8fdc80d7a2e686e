/* ds_model.c: a file of model states: names and shapes of the parameters, shared and frozen ones. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "formats/deepspeed/ds_internal.h"

/* --- names and shapes --- */

static fsdpck_status read_shape(ds_open *o, value name, value shape, uint32_t group, ds_param *p,
                                fsdpck_error *err)
{
    ds_state *s = o->s;
    uint64_t dims[NDIM_MAX];
    unsigned ndim;
    *p = (ds_param){.group = group, .shape_at = s->shapes.count, .nelems = 1};
    RETURN_IF(ds_intern(o, name, &p->name, err));
    bool valid = ds_shape(&o->scratch.pool, shape, dims, &ndim);
    for (unsigned i = 0; valid && i < ndim; i++)
        valid = checked_mul(p->nelems, dims[i], &p->nelems);
    if (!valid || p->nelems > INT64_MAX) {
        const fsdpck_status st =
            FAIL(err, BADINPUT, CHUNK_BOUNDS, "shape of a parameter is invalid or too large");
        error_tensor(err, strtab_text(&s->names, p->name));
        return st;
    }
    p->ndim = ndim;
    return vec_add_n(&s->shapes, dims, ndim, err);
}

static fsdpck_status read_group(ds_open *o, value shapes, uint32_t group, fsdpck_error *err)
{
    ds_state *s = o->s;
    value_pool *pool = &o->scratch.pool;
    value dict;
    if (!ds_is_dict(pool, shapes, &dict))
        return ds_fail_form("shapes of the parameters are not a dict", err);
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        ds_param p;
        RETURN_IF(
            read_shape(o, value_key(pool, dict, i), value_item(pool, dict, i), group, &p, err));
        uint32_t *slot = &VEC_AT(&s->by_name, ds_name, p.name)->param;
        if (*slot != CAT_NONE)
            return FAIL_WITH(err, BADINPUT, KEY_DUP, ("two groups contain one parameter"),
                             (tensor, strtab_text(&s->names, p.name)));
        *slot = (uint32_t)s->params.count;
        RETURN_IF(vec_add(&s->params, &p, err));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_params(ds_open *o, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    const value groups = ds_item(o, o->archive.root, "param_shapes");
    if (value_kind_of(groups) != VALUE_LIST)
        return ds_fail_form("file contains no shapes of parameters ('param_shapes')", err);
    o->s->group_count = (uint32_t)value_count(pool, groups);
    for (uint32_t g = 0; g < o->s->group_count; g++)
        RETURN_IF(read_group(o, value_item(pool, groups, g), g, err));
    return FSDPCK_OK;
}

static fsdpck_status read_frozen_shapes(ds_open *o, fsdpck_error *err)
{
    value_pool *pool = &o->scratch.pool;
    value dict;
    if (!ds_is_dict(pool, ds_item(o, o->archive.root, "frozen_param_shapes"), &dict))
        return FSDPCK_OK;
    o->s->knows_frozen = true;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        ds_param p;
        RETURN_IF(read_shape(o, value_key(pool, dict, i), value_item(pool, dict, i), 0, &p, err));
        VEC_AT(&o->s->by_name, ds_name, p.name)->frozen = (uint32_t)o->s->frozen_shapes.count;
        RETURN_IF(vec_add(&o->s->frozen_shapes, &p, err));
    }
    return FSDPCK_OK;
}

/* Pieces of the module's tensors, and which of them are buffers. */
static fsdpck_status read_module(ds_open *o, fsdpck_error *err)
{
    value_pool *pool = &o->scratch.pool;
    value dict;
    uint32_t name;
    if (!ds_is_dict(pool, ds_item(o, o->archive.root, "module"), &dict))
        return ds_fail_form("file contains no module", err);
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        const value key = value_key(pool, dict, i), v = value_item(pool, dict, i);
        uint32_t piece;
        if (value_kind_of(v) != VALUE_TENSOR || value_kind_of(key) != VALUE_STR)
            continue;
        RETURN_IF(ds_intern(o, key, &name, err));
        RETURN_IF(ds_piece_of(o, value_tensor_index(v), &piece, err));
        VEC_AT(&o->s->by_name, ds_name, name)->piece = piece;
    }
    const value buffers = ds_item(o, o->archive.root, "buffer_names");
    for (size_t i = 0; ds_is_sequence(buffers) && i < value_count(pool, buffers); i++) {
        RETURN_IF(ds_intern(o, value_item(pool, buffers, i), &name, err));
        VEC_AT(&o->s->by_name, ds_name, name)->is_buffer = true;
    }
    return FSDPCK_OK;
}

static fsdpck_status read_shared(ds_open *o, fsdpck_error *err)
{
    value_pool *pool = &o->scratch.pool;
    value dict;
    if (!ds_is_dict(pool, ds_item(o, o->archive.root, "shared_params"), &dict))
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        uint32_t alias, name;
        RETURN_IF(ds_intern(o, value_key(pool, dict, i), &alias, err));
        RETURN_IF(ds_intern(o, value_item(pool, dict, i), &name, err));
        VEC_AT(&o->s->by_name, ds_name, alias)->shared = name;
    }
    return FSDPCK_OK;
}

/* --- of each rank --- */

static fsdpck_status read_frozen(ds_open *o, fsdpck_error *err)
{
    value_pool *pool = &o->scratch.pool;
    value dict;
    if (!ds_is_dict(pool, ds_item(o, o->archive.root, "frozen_param_fragments"), &dict))
        return FSDPCK_OK;
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        ds_whole w = {.rank = (uint32_t)o->file->rank};
        const value v = value_item(pool, dict, i);
        if (value_kind_of(v) != VALUE_TENSOR)
            return ds_fail_form("frozen parameter is not a tensor", err);
        RETURN_IF(ds_intern(o, value_key(pool, dict, i), &w.name, err));
        RETURN_IF(ds_piece_of(o, value_tensor_index(v), &w.piece, err));
        RETURN_IF(vec_add(&o->s->frozen, &w, err));
    }
    return FSDPCK_OK;
}

fsdpck_status ds_agree(ds_state *s, ds_facts *facts, const ds_file *f, int64_t step, int64_t world,
                       const char *version, size_t version_nbytes, fsdpck_error *err)
{
    char own[sizeof facts->version];
    snprintf(own, sizeof own, "%.*s",
             (int)(version_nbytes < sizeof own ? version_nbytes : sizeof own - 1),
             version == NULL ? "" : version);
    (void)s;
    if (facts->file == NULL) {
        *facts = (ds_facts){.file = f->name, .step = step, .world = world};
        memcpy(facts->version, own, sizeof own);
        return FSDPCK_OK;
    }
    static const char next[] = "take all files from one save";
    if (facts->step != step)
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("files are from two saves: their steps differ"),
                         (expected, "step %" PRId64 ", as in '%s'", facts->step, facts->file),
                         (found, "step %" PRId64, step), (next, next));
    if (facts->world != world)
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("files are from two saves: their numbers of ranks differ"),
                         (expected, "%" PRId64 " ranks, as in '%s'", facts->world, facts->file),
                         (found, "%" PRId64 " ranks", world), (next, next));
    if (strcmp(facts->version, own) != 0) {
        char a[200], b[200];
        return FAIL_WITH(err, BADINPUT, RANK_MIXED,
                         ("files are from two saves: their versions of DeepSpeed differ"),
                         (expected, "'%s', as in '%s'",
                          escape_text(a, sizeof a, facts->version, strlen(facts->version)),
                          facts->file),
                         (found, "'%s'", escape_text(b, sizeof b, own, strlen(own))), (next, next));
    }
    return FSDPCK_OK;
}

static fsdpck_status read_facts(ds_open *o, fsdpck_error *err)
{
    const value_pool *pool = &o->scratch.pool;
    const value root = o->archive.root;
    size_t nbytes = 0;
    int64_t step = -1, world = -1;
    value dict;
    if (!ds_is_dict(&o->scratch.pool, root, &dict))
        return ds_fail_form("file contains no model states", err);
    const char *version = value_text(pool, ds_item(o, root, "ds_version"), &nbytes);
    (void)value_as_i64(pool, ds_item(o, root, "global_steps"), &step);
    (void)value_as_i64(pool, ds_item(o, root, "dp_world_size"), &world);
    return ds_agree(o->s, &o->s->model_facts, o->file, step, world, version, nbytes, err);
}

/* With round_robin_gradients DeepSpeed records slices as if it had not reordered the parameters. */
static bool has_round_robin(ds_open *o)
{
    const value config = ds_item(o, o->archive.root, "ds_config");
    const value zero = ds_item(o, config, "zero_optimization");
    const value v = ds_item(o, zero, "round_robin_gradients");
    return value_kind_of(v) == VALUE_BOOL && value_is_true(v);
}

fsdpck_status ds_read_model(ds_open *o, fsdpck_error *err)
{
    uint64_t ranks;
    RETURN_IF(read_facts(o, err));
    o->s->slices_in_other_order = has_round_robin(o);
    if (ds_number(&o->scratch.pool, ds_item(o, o->archive.root, "mp_world_size"), &ranks) &&
        ranks > 1)
        return FAIL_WITH(
            err, UNSUPPORTED, SRC_FOREIGN,
            ("folder of DeepSpeed with several model-parallel ranks, which is not supported"),
            (found, "%" PRIu64 " model-parallel ranks", ranks),
            (next, "merge the files of all ranks with the program that wrote them"));
    RETURN_IF(read_params(o, err));
    RETURN_IF(read_frozen_shapes(o, err));
    RETURN_IF(read_shared(o, err));
    RETURN_IF(read_module(o, err));
    return read_frozen(o, err);
}

/* --- the files of the other ranks --- */

void ds_note_differing(ds_state *s, const char *name, size_t nbytes)
{
    char text[200];
    if (++s->differing <= 3)
        text_printf(&s->differing_names, "%s'%s'", s->differing > 1 ? ", " : "",
                    escape_text(text, sizeof text, name, nbytes));
}

static fsdpck_status compare_module(ds_open *o, fsdpck_error *err)
{
    ds_state *s = o->s;
    value_pool *pool = &o->scratch.pool;
    value dict;
    if (!ds_is_dict(pool, ds_item(o, o->archive.root, "module"), &dict))
        return ds_fail_form("file contains no module", err);
    for (size_t i = 0; i < value_count(pool, dict); i++) {
        const value key = value_key(pool, dict, i), v = value_item(pool, dict, i);
        size_t nbytes;
        uint32_t name, piece;
        if (value_kind_of(v) != VALUE_TENSOR || value_kind_of(key) != VALUE_STR)
            continue;
        RETURN_IF(ds_intern(o, key, &name, err));
        const ds_name *own = VEC_AT(&s->by_name, const ds_name, name);
        if (own->param != CAT_NONE || own->shared != CAT_NONE || own->piece == CAT_NONE)
            continue;
        RETURN_IF(ds_piece_of(o, value_tensor_index(v), &piece, err));
        const torch_shard *pieces = s->reader->pieces.items;
        const char *text = value_text(pool, key, &nbytes);
        own = VEC_AT(&s->by_name, const ds_name, name);
        if (ds_pieces_compare(s->reader, &pieces[own->piece], &pieces[piece]) == DS_DIFFERENT)
            ds_note_differing(s, text, nbytes);
    }
    return FSDPCK_OK;
}

fsdpck_status ds_read_model_of_rank(ds_open *o, fsdpck_error *err)
{
    RETURN_IF(read_facts(o, err));
    RETURN_IF(read_frozen(o, err));
    return compare_module(o, err);
}
