/* advise.c: warnings about legal but probably unintended requests. */
#include <inttypes.h>

#include "base/text.h"
#include "open/step_evidence.h"
#include "run/lost_attributes.h"
#include "run/run.h"
#include "state/scale_name.h"

#define NAMES_SHOWN 3u

/* ---- mesh dims ---- */

/* Number of tensors that mesh dim `i` shards. */
static uint64_t sharded_by_dim(const catalogue *c, unsigned i)
{
    uint64_t count = 0;
    for (uint64_t k = 0; k < catalogue_tensor_count(c); k++) {
        const cat_spec *spec = catalogue_spec(c, k);
        count += spec != NULL && spec->placements[i].kind != PLACEMENT_REPLICATE;
    }
    return count;
}

/* Whether any tensor can be sharded. */
static bool has_floats(const catalogue *c)
{
    for (uint64_t k = 0; k < catalogue_tensor_count(c); k++) {
        const cat_tensor *t = catalogue_tensor(c, k);
        if (t->ndim > 0 && dtype_get((dtype)t->dtype)->kind == DTYPE_IS_FLOAT &&
            catalogue_tensor_nelems(c, k) > 0)
            return true;
    }
    return false;
}

static const char *idle_dim_next(const run *r, mesh_role role)
{
    if (role == ROLE_TP)
        return r->layout.has_tp_plan
                   ? "add tensors for this mesh dim to the TP plan: see TP PLANS in "
                     "fsdpck-formats(5)"
                   : "give --tp-plan FILE with the tensors to shard: fsdpck-formats(5)";
    if (role == ROLE_EP)
        return "name the experts in --tp-plan FILE, as \"*.experts.*\": \"ep\"";
    return "";
}

static void advise_dims(const run *r)
{
    const mesh *m = &r->layout.mesh;
    const catalogue *c = &r->to.cat;
    mesh_role roles[MESH_NDIM_MAX];
    bool any_cut = false, any_idle = false;
    mesh_roles(m, roles);
    for (unsigned i = 0; i < m->ndim; i++) {
        const bool cuts = sharded_by_dim(c, i) > 0;
        any_cut = any_cut || cuts;
        if (cuts || m->sizes[i] == 1 || (roles[i] != ROLE_TP && roles[i] != ROLE_EP))
            continue;
        any_idle = true;
        log_warn(&r->ctx->log, FSDPCK_FINDING_MESH_IDLE, idle_dim_next(r, roles[i]),
                 "mesh dim '%s' shards no tensor: its ranks hold identical data", m->names[i]);
    }
    if (any_cut || any_idle || mesh_size(m) == 1)
        return;
    log_warn(
        &r->ctx->log, FSDPCK_FINDING_MESH_IDLE,
        mesh_dim_of(m, ROLE_FSDP) < m->ndim ? ""
                                            : "give an FSDP dim, for example --mesh dp_shard=8",
        "no mesh dim shards a tensor: each of %" PRIu64 " ranks holds all tensors", mesh_size(m));
}

/* Sharding of the source that fully_shard() does not support on this number of ranks. */
static void advise_moved(const run *r)
{
    const mesh *m = &r->layout.mesh;
    const catalogue *c = &r->to.cat;
    const uint64_t count = r->layout.moved;
    if (count > 0)
        log_warn(
            &r->ctx->log, FSDPCK_FINDING_MESH_REFIT,
            "choose a different number of ranks, or give --format dcp, which keeps uneven shards",
            "%" PRIu64 " tensor%s sharded on dim 0 instead of the source's dim, which does not "
            "divide evenly over %" PRIu64 " ranks; first: '%s'",
            count, text_plural(count), m->sizes[mesh_dim_of(m, ROLE_FSDP)],
            catalogue_name(c, catalogue_tensor(c, r->selected.moved_first)->name));
}

/* Rank files record the mesh of every tensor. A DCP folder does not record which tensors of a TP
 * model are on a slice of it. */
static void advise_slices(const run *r)
{
    const mesh *m = &r->layout.mesh;
    const fsdpck_checkpoint *told = r->opt.sharding.like != NULL ? r->opt.sharding.like : r->src;
    const unsigned tp = mesh_dim_of(m, ROLE_TP);
    uint64_t count = 0;
    if (!r->writer->every_rank || r->layout.has_tp_plan || tp == m->ndim || m->ndim == 1 ||
        told->format->writer == r->writer)
        return;
    for (uint64_t k = 0; k < catalogue_tensor_count(&r->to.cat); k++) {
        const cat_spec *spec = catalogue_spec(&r->to.cat, k);
        count += spec != NULL && spec->placements[tp].kind == PLACEMENT_REPLICATE &&
                 (spec->absent_dims >> tp & 1u) == 0;
    }
    if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_MESH_WHOLE,
                 "give --tp-plan FILE: tensors that it does not name use only the other dims",
                 "%" PRIu64 " tensor%s not sharded by '%s' will be on the whole mesh: "
                 "load_state_dict() fails if the model has such tensors only on its FSDP dims",
                 count, text_plural(count), m->names[tp]);
}

/* ---- tensors ---- */

/* Model tensors without optimizer state among others with state, which FSDP shards nevertheless. */
static uint64_t list_stateless(const run *r, text_buf *names)
{
    const catalogue *c = &r->to.cat;
    const unsigned fsdp = mesh_dim_of(&r->layout.mesh, ROLE_FSDP);
    uint64_t count = 0;
    for (uint64_t k = 0; r->optim_state_map.known && k < catalogue_tensor_count(c); k++) {
        const uint32_t from = *VEC_AT(&r->to.from, uint32_t, k);
        const cat_spec *spec = catalogue_spec(c, k);
        if (spec == NULL || spec->placements[fsdp].kind == PLACEMENT_REPLICATE ||
            from >= r->src->parts.tensor_count || r->src->parts.tensor_part[from] != PART_MODEL ||
            optim_state_map_has(&r->optim_state_map, from))
            continue;
        if (count++ < NAMES_SHOWN)
            text_printf(names, "%s'%s'", count > 1 ? ", " : "",
                        catalogue_name(c, catalogue_tensor(c, k)->name));
    }
    return count;
}

/* A source of one rank does not record which dims FSDP shards. */
static void advise_default(const run *r)
{
    const mesh *m = &r->layout.mesh;
    const unsigned fsdp = mesh_dim_of(m, ROLE_FSDP);
    const uint64_t count = r->layout.cut_by_default;
    if (catalogue_largest_mesh(&r->src->cat) != NULL || fsdp == m->ndim || m->sizes[fsdp] == 1 ||
        count == 0)
        return;
    text_buf names = {0};
    const uint64_t stateless = list_stateless(r, &names);
    if (stateless == 0 || text_check(&names, NULL) != FSDPCK_OK)
        log_write(&r->ctx->log, LOG_NOTE,
                  "source does not record its sharding: %" PRIu64
                  " floating-point tensor%s sharded on dim 0; choose with --shard GLOB=DIM and "
                  "--replicate GLOB",
                  count, text_plural(count));
    else
        log_write(&r->ctx->log, LOG_NOTE,
                  "source does not record its sharding: %" PRIu64
                  " floating-point tensor%s sharded on dim 0, %" PRIu64
                  " of them without optimizer state (%s%s): if these are buffers, which FSDP does "
                  "not shard, give --replicate GLOB",
                  count, text_plural(count), stateless, names.text,
                  stateless > NAMES_SHOWN ? ", ..." : "");
    text_release(&names);
}

/* A rank-local tensor returns to its rank if the number of ranks is equal. */
static void advise_own(const run *r)
{
    const catalogue *c = &r->src->cat;
    uint64_t count = 0;
    const char *first = "";
    if ((!r->writer->flat && !r->writer->every_rank) ||
        (int64_t)r->to.world_size == c->origin.world_size)
        return;
    for (uint64_t k = 0; k < catalogue_tensor_count(&r->to.cat); k++) {
        const cat_tensor *t = catalogue_tensor(c, *VEC_AT(&r->to.from, uint32_t, k));
        if ((t->flags & CAT_TENSOR_OF_RANK) == 0)
            continue;
        const uint32_t name = catalogue_tensor(&r->to.cat, k)->name;
        first = count++ == 0 ? catalogue_name(&r->to.cat, name) : first;
    }
    if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_RANK_OWN,
                 "give --per-rank first to write the lowest rank's tensor for all ranks, under its "
                 "own name",
                 "each file contains the rank-local tensors of every rank: %" PRIu64
                 " tensor%s of %" PRId64 " ranks, first: '%s'; a model that expects names without "
                 "'.rank0' does not find them",
                 count, text_plural(count), c->origin.world_size, first);
}

/* State of its parameter's shape is sharded like the parameter; scalars are replicated. So is state
 * of other shapes (rows and columns, preconditioners). */
static void advise_states(const run *r)
{
    const optim_state_map *t = &r->optim_state_map;
    if (t->other_shape_count == 0)
        return;
    log_write(
        &r->ctx->log, LOG_NOTE,
        "optimizer state whose shape differs from its parameter's is replicated on every rank: "
        "%" PRIu64 " tensor%s, first: '%s'",
        t->other_shape_count, text_plural(t->other_shape_count),
        catalogue_name(&r->src->cat, catalogue_tensor(&r->src->cat, t->other_shape_first)->name));
}

/* The first three, each between quotes. */
static void put_first_names(const name_list *l, const char *quote, text_buf *names)
{
    for (size_t i = 0; i < l->count && i < 3; i++)
        text_printf(names, "%s%s%s%s", i == 0 ? "" : ", ", quote, l->list[i], quote);
    if (l->count > 3)
        text_puts(names, ", ...");
}

static void advise_dict_attributes(const run *r)
{
    const name_list *lost = &r->selected.lost_attributes;
    text_buf names = {.limit_bytes = 1024};
    if (lost->count == 0)
        return;
    put_first_names(lost, "'", &names);
    log_warn(&r->ctx->log, FSDPCK_FINDING_PT_ATTRS, "",
             "attributes of %zu dict%s are not written, such as '_metadata': %s", lost->count,
             text_plural(lost->count), names.text == NULL ? "" : names.text);
    text_release(&names);
}

void run_advise_attributes(const run *r)
{
    advise_dict_attributes(r);
    const attributes_lost lost = lost_attributes_count(&r->to, r->writer->takes == STATE_NESTED);
    if (lost.tensors == 0)
        return;
    log_warn(&r->ctx->log, FSDPCK_FINDING_PT_ATTRS, "",
             "%" PRIu64 " tensor%s without Python attributes or class; first: '%s'", lost.tensors,
             lost.tensors == 1 ? " is written" : "s are written",
             catalogue_name(&r->to.cat, catalogue_tensor(&r->to.cat, lost.first)->name));
}

static bool is_by_number(const catalogue *c, value path)
{
    for (size_t i = 0; !value_is_none(path) && i < value_count(&c->pool, path); i++)
        if (value_kind_of(value_item(&c->pool, path, i)) == VALUE_BYTES)
            return true;
    return false;
}

/* A conversion to numbers is refused (MODEL-NEEDED); the output does not show that it was. */
static void advise_order(const run *r)
{
    const fsdpck_checkpoint *src = r->src;
    const char *first = NULL;
    for (size_t i = 0; first == NULL && i < src->parts.tensor_count; i++) {
        const cat_tensor *t = catalogue_tensor(&src->cat, i);
        if (src->parts.tensor_part[i] == FSDPCK_PART_OPTIMIZER && t->joined &&
            !is_by_number(&src->cat, t->path))
            first = catalogue_name(&src->cat, t->name);
    }
    if (first == NULL)
        return;
    log_warn(
        &r->ctx->log, FSDPCK_FINDING_OPTIM_ORDER,
        "convert to numbers from this source, with --optim-keys id --model FILE, not from the "
        "output",
        "optimizer state of several ranks: no rank recorded the order of all parameters, and the "
        "output does not show that; first on another rank: '%s'",
        first);
}

void run_advise_optimizer(const run *r)
{
    const checkpoint_parts *parts = &r->src->parts;
    const int part = r->opt.select.part;
    bool has_any = false;
    step_evidence_warn_mixed(r->src, true);
    for (size_t i = 0; !has_any && i < parts->tensor_count; i++)
        has_any = parts->tensor_part[i] == FSDPCK_PART_OPTIMIZER;
    if (!has_any || (part != FSDPCK_PART_ALL && part != FSDPCK_PART_OPTIMIZER))
        return;
    advise_order(r);
    if (r->src->average == NULL)
        step_evidence_warn(r->src);
}

static void advise_parted(const run *r)
{
    const name_list *parted = &r->selected.parted_names;
    text_buf names = {.limit_bytes = 1024};
    if (parted->count == 0)
        return;
    put_first_names(parted, "", &names);
    log_warn(
        &r->ctx->log, FSDPCK_FINDING_KEY_TIED,
        "give --dtype without a glob, or with a glob that matches all names of the tensor",
        "--dtype: %zu name%s of tied tensors get%s another dtype, so a loader that ties them may "
        "change the values: %s",
        parted->count, text_plural(parted->count), parted->count == 1 ? "s" : "",
        names.text == NULL ? "" : names.text);
    text_release(&names);
}

static bool has_scale(const catalogue *c, uint32_t tensor)
{
    static const char *const ends[] = {SCALE_OF_BLOCKS, SCALE_OF_TENSOR};
    text_buf name = {.limit_bytes = 65536};
    bool has = false;
    for (size_t i = 0; !has && i < sizeof ends / sizeof *ends; i++) {
        name.nbytes = 0;
        text_printf(&name, "%s%s", catalogue_name(c, catalogue_tensor(c, tensor)->name), ends[i]);
        has = text_check(&name, NULL) == FSDPCK_OK &&
              catalogue_find(c, name.text, name.nbytes) != CAT_NONE;
    }
    text_release(&name);
    return has;
}

/* A weight in 8-bit floats is the product with its scale: a cast of the numbers alone is another weight. */
static void advise_scales(const run *r)
{
    const catalogue *from = &r->src->cat;
    const char *first = NULL;
    uint64_t count = 0;
    for (size_t i = 0; i < catalogue_tensor_count(&r->to.cat); i++) {
        const uint32_t at = *VEC_AT(&r->to.from, const uint32_t, i);
        if (at == CAT_NONE ||
            !like_output_is_castable((dtype)catalogue_tensor(&r->to.cat, i)->dtype))
            continue;
        const dtype_info *d = dtype_get((dtype)catalogue_tensor(from, at)->dtype);
        if (d->kind != DTYPE_IS_FLOAT || d->itemsize_bytes != 1 || !has_scale(from, at))
            continue;
        if (count++ == 0)
            first = catalogue_name(from, catalogue_tensor(from, at)->name);
    }
    if (count > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_QUANT_SCALE,
                 "give --dequantize, which multiplies by the scales, or --dtype without this glob",
                 "%" PRIu64
                 " quantized weight%s cast without the scales, so the values differ from "
                 "those of the model; the first is '%s'",
                 count, count == 1 ? " is" : "s are", first);
}

static void advise_overlaps(const run *r)
{
    const name_list *overlaps = &r->selected.overlap_names;
    text_buf names = {.limit_bytes = 1024};
    if (overlaps->count == 0)
        return;
    put_first_names(overlaps, "", &names);
    log_warn(
        &r->ctx->log, FSDPCK_FINDING_KEY_TIED,
        "make these views again after loading, or neither cast nor omit tensors of their storage",
        "%zu tensor%s no longer share%s a storage: %s", overlaps->count,
        text_plural(overlaps->count), overlaps->count == 1 ? "s" : "",
        names.text == NULL ? "" : names.text);
    text_release(&names);
}

/* As of formats that record no shared storages, such as DCP. */
static void advise_untied(const run *r)
{
    if (r->opt.select.tied == FSDPCK_TIED_KEEP || r->selected.tied > 0 ||
        r->selected.parted_names.count > 0)
        return;
    log_warn(&r->ctx->log, FSDPCK_FINDING_KEY_TIED,
             "list tied names as same_as in a description of the model, with --model, or omit "
             "--tied: DCP and safetensors do not record shared storages",
             "--tied %s has no effect: the source does not show that tensors are tied",
             r->opt.select.tied == FSDPCK_TIED_FIRST ? "first" : "link");
}

void run_advise_tied(const run *r)
{
    advise_scales(r);
    advise_parted(r);
    advise_overlaps(r);
    advise_untied(r);
    const target *to = &r->to;
    text_buf names = {.limit_bytes = 240};
    /* FSDP1 stores a tied parameter once. */
    if (r->selected.tied_dropped == 0 || r->writer->records_tied || r->writer->flat)
        return;
    for (size_t i = 0; i < to->dropped.count; i++) {
        const uint32_t name = VEC_AT(&to->dropped, const target_dropped, i)->name;
        char text[64];
        (void)escape_text(text, sizeof text, catalogue_name(&to->cat, name),
                          catalogue_name_nbytes(&to->cat, name));
        if (i < 3)
            text_printf(&names, "%s%s", i == 0 ? "" : ", ", text);
    }
    log_warn(&r->ctx->log, FSDPCK_FINDING_KEY_TIED, "",
             "--tied first: %" PRIu64 " name%s of tied tensors not written or recorded: %s%s",
             r->selected.tied_dropped, r->selected.tied_dropped == 1 ? "" : "s",
             names.text == NULL ? "" : names.text, r->selected.tied_dropped > 3 ? ", ..." : "");
    text_release(&names);
}

void run_warn_overflow(const run *r)
{
    struct exec_stats done;
    exec_get_stats(r->exec, &done);
    if (done.cast_overflows > 0)
        log_warn(&r->ctx->log, FSDPCK_FINDING_CAST_OVERFLOW,
                 "cast to a dtype with a wider range, such as bf16; fsdpck verify --level numeric "
                 "names the tensors",
                 "%" PRIu64 " finite value%s out of range of the new dtype, and %s written as "
                 "infinity or NaN",
                 done.cast_overflows, done.cast_overflows == 1 ? " was" : "s were",
                 done.cast_overflows == 1 ? "was" : "were");
}

fsdpck_status run_advise_map(const run *r, fsdpck_error *err)
{
    text_buf maps = {0};
    bool by_type, joined;
    if ((r->writer->options & WRITER_LIKE) == 0 || r->opt.like != NULL ||
        r->opt.select.part != (int)PART_MODEL)
        return FSDPCK_OK;
    const fsdpck_status st = checkpoint_print_maps(r->src, &maps, &by_type, &joined, err);
    if (st == FSDPCK_OK && maps.nbytes > 0)
        log_write(&r->ctx->log, LOG_NOTE,
                  "tensor names are kept, which servers may not load; to convert them, give --like "
                  "BASE or --map NAME; maps that fit%s%s",
                  by_type ? ": " : " the names (check the model type): ", maps.text);
    else if (st == FSDPCK_OK && joined)
        log_write(&r->ctx->log, LOG_NOTE,
                  "the experts of a layer are joined, as in transformers 5, which servers may not "
                  "load; the map depends on the model type: give --like BASE, or choose one in "
                  "fsdpck-maps(1)");
    text_release(&maps);
    return st;
}

fsdpck_status run_advise(run *r, fsdpck_error *err)
{
    RETURN_IF(optim_state_map_find(&r->src->cat, &r->src->parts, &r->optim_state_map, err));
    advise_own(r);
    if (r->writer->flat)
        return FSDPCK_OK;
    if (has_floats(&r->to.cat))
        advise_dims(r);
    advise_moved(r);
    advise_slices(r);
    advise_default(r);
    advise_states(r);
    return FSDPCK_OK;
}
