#include <stdlib.h>

#include "base/struct_copy.h"
#include "run/rank_totals.h"
#include "run/run.h"

/* A run that stops after the sharding of each tensor is known. */
struct fsdpck_layout {
    run run;
    rank_totals totals;
    text_buf mesh;
    text_buf placements; /* of the last requested tensor */
};

fsdpck_status fsdpck_layout_new(fsdpck_context *ctx, fsdpck_checkpoint *src,
                                const fsdpck_layout_options *options, fsdpck_layout **out,
                                fsdpck_error *err)
{
    run_options o;
    *out = NULL;
    RETURN_IF(run_options_of_layout(&o, options, err));
    fsdpck_layout *l = calloc(1, sizeof *l);
    if (l == NULL)
        return error_set_nomem(err, sizeof *l);
    run *r = &l->run;
    run_init(r, ctx, src, &o);
    r->sharded = true;
    r->dst = "";
    r->sharding.no_chunks = true;
    fsdpck_status st = FSDPCK_OK;
    GOTO_IF(request_choose_writer(r, err), out);
    if (r->writer->flat) {
        st = FAIL_WITH(
            err, UNSUPPORTED, NONE, ("layout of flat parameters is not available"),
            (next,
             "use fsdpck layout FILE --world-size N, with the FILE of --model, for units, shards "
             "and padding; reshard --dry-run --format %s for the size of each rank's files",
             r->writer->name));
        goto out;
    }
    GOTO_IF(reshard_choose_layout(r, err), out);
    r->opt.select.objects = FSDPCK_OBJECTS_DROP;
    GOTO_IF(run_select(r, err), out);
    GOTO_IF(run_advise(r, err), out);
    GOTO_IF(rank_totals_make(&l->totals, &r->to, &src->parts, &r->optim_state_map, true, err), out);
    mesh_print(&r->layout.mesh, &l->mesh);
    GOTO_IF(text_check(&l->mesh, err), out);
out:
    progress_phase(&ctx->progress, NULL, 0);
    if (st != FSDPCK_OK)
        fsdpck_layout_free(l);
    else
        *out = l;
    return st;
}

void fsdpck_layout_free(fsdpck_layout *l)
{
    if (l == NULL)
        return;
    rank_totals_release(&l->totals);
    text_release(&l->mesh);
    text_release(&l->placements);
    run_release(&l->run);
    free(l);
}

void fsdpck_layout_get_info(const fsdpck_layout *l, fsdpck_layout_info *info)
{
    const rank_totals *s = &l->totals;
    const fsdpck_layout_rank *least = &s->ranks[s->rank_min];
    const fsdpck_layout_rank *most = &s->ranks[s->rank_max];
    fsdpck_layout_info all = {
        .struct_nbytes = sizeof all,
        .mesh = l->mesh.text,
        .world_size = s->world_size,
        .tensors = catalogue_tensor_count(&l->run.to.cat),
        .rank_nbytes_min = least->nbytes,
        .rank_nbytes_max = most->nbytes,
        .rank_min = s->rank_min,
        .rank_max = s->rank_max,
        .rank_nbytes_total = s->nbytes_total,
        .empty_pieces = s->empty_pieces,
        .padding_nbytes = s->padding_nbytes,
        .param_nbytes = most->param_nbytes,
        .grad_nbytes = most->grad_nbytes,
        .adam_nbytes = most->adam_nbytes,
        .training_assumed = !l->run.optim_state_map.known,
        .replicated = s->replicated,
        .tied = s->tied,
    };
    for (uint64_t i = 0; i < all.tensors; i++)
        *(rank_totals_is_tied(&l->run.to, i) ? &all.tied_nbytes : &all.nbytes) +=
            catalogue_tensor_nbytes(&l->run.to.cat, i);
    struct_copy_out(info, &all, sizeof all);
}

void fsdpck_layout_get_tensor(fsdpck_layout *l, uint64_t index, fsdpck_layout_tensor *t)
{
    const catalogue *c = &l->run.to.cat;
    if (index >= catalogue_tensor_count(c)) {
        struct_clear(t);
        return;
    }
    const cat_tensor *k = catalogue_tensor(c, index);
    const uint32_t from = *VEC_AT(&l->run.to.from, uint32_t, index);
    const cat_spec *spec = catalogue_spec(c, index);
    fsdpck_layout_tensor all = {
        .struct_nbytes = sizeof all,
        .name = catalogue_name(c, k->name),
        .name_nbytes = catalogue_name_nbytes(c, k->name),
        .dtype = dtype_get((dtype)k->dtype)->name,
        .ndim = k->ndim,
        .shape = catalogue_shape(c, index),
        .nelems = catalogue_tensor_nelems(c, index),
        .nbytes = catalogue_tensor_nbytes(c, index),
        .part = from < l->run.src->parts.tensor_count
                    ? (fsdpck_part)l->run.src->parts.tensor_part[from]
                    : FSDPCK_PART_OTHER,
        .distinct_pieces = 1,
    };
    if (rank_totals_is_tied(&l->run.to, index)) {
        const uint32_t first = *VEC_AT(&l->run.to.tied, const uint32_t, index);
        all.tied_to = catalogue_name(c, catalogue_tensor(c, first)->name);
        all.tied_to_nbytes = catalogue_name_nbytes(c, catalogue_tensor(c, first)->name);
    }
    l->placements.nbytes = 0;
    if (spec != NULL) {
        const mesh *m = catalogue_mesh(c, spec->mesh);
        placements_print(spec->placements, m->ndim, &l->placements);
        all.distinct_pieces = piece_count(m, spec->placements);
        if (all.nelems > 0)
            all.empty_pieces = l->totals.world_size -
                               shard_nonempty_ranks(m, spec->placements, all.ndim, all.shape);
    } else {
        text_puts(&l->placements, "Replicate()");
    }
    all.placements = text_check(&l->placements, NULL) == FSDPCK_OK ? l->placements.text : "";
    struct_copy_out(t, &all, sizeof all);
}

void fsdpck_layout_get_shard(const fsdpck_layout *l, uint64_t index, uint64_t rank,
                             fsdpck_layout_shard *piece)
{
    /* Every kind of piece was made once already, so none can fail here. */
    fsdpck_layout_shard all = {0};
    if (index < catalogue_tensor_count(&l->run.to.cat) && rank < l->totals.world_size &&
        rank_shard(&l->run.to, &l->run.src->parts, index, rank, &all, NULL) != FSDPCK_OK)
        all = (fsdpck_layout_shard){0};
    struct_copy_out(piece, &all, sizeof all);
}

void fsdpck_layout_get_rank(const fsdpck_layout *l, uint64_t rank, fsdpck_layout_rank *totals)
{
    if (rank >= l->totals.world_size)
        struct_clear(totals);
    else
        struct_copy_out(totals, &l->totals.ranks[rank], sizeof l->totals.ranks[rank]);
}
