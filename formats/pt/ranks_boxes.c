/* Which box of a tensor one rank's file holds: of a DTensor by its placements and the rank's own
 * coordinate, of a ShardedTensor by its shards. The size of the local tensor is authoritative. */
#include <inttypes.h>
#include <string.h>

#include "formats/pt/ranks_internal.h"
#include "layout/mesh_text.h"
#include "layout/shard_box.h"
#include "layout/torch_chunk.h"

/* Each tensor searches all specs for its own. */
enum { SPECS_MAX = 4096, MESHES_MAX = 1024 };

static const char *name_of(const ranks_parse *p, uint32_t entry)
{
    return strtab_text(&p->s->names, entry);
}

static void print_box(text_buf *out, const uint64_t *offsets, const uint64_t *sizes, unsigned ndim)
{
    text_puts(out, "[");
    for (unsigned i = 0; i < ndim; i++)
        text_printf(out, "%s%" PRIu64, i > 0 ? "," : "", sizes[i]);
    text_puts(out, "]");
    for (unsigned i = 0; offsets != NULL && i < ndim; i++)
        text_printf(out, "%s%" PRIu64, i > 0 ? "," : " at (", offsets[i]);
    text_puts(out, offsets != NULL && ndim > 0 ? ")" : "");
}

cat_chunk ranks_chunk(const torch_folder *r, uint32_t piece)
{
    const torch_shard *q = VEC_AT(&r->pieces, const torch_shard, piece);
    const unsigned not_plain = TORCH_SHARD_SWAP | TORCH_SHARD_CONJ | TORCH_SHARD_NEG |
                               TORCH_SHARD_STREAM | TORCH_SHARD_UNCHECKED | RANKS_SHARD_STAGES;
    const bool rows = (q->flags & TORCH_SHARD_ROWS) && !(q->flags & not_plain);
    return (cat_chunk){.file = q->file,
                       .aux = piece,
                       .rank = q->rank,
                       .place = rows ? LOCATION_ROWS : LOCATION_STRIDED,
                       .offset_bytes = q->offset_bytes};
}

static fsdpck_status add_chunk(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                               uint64_t local, const uint64_t *offsets, const uint64_t *sizes,
                               fsdpck_error *err)
{
    const ranks_tensor *t = VEC_AT(&p->s->tensors, const ranks_tensor, entry);
    uint32_t piece;
    RETURN_IF(ranks_shard_of(p, local, &piece, err));
    cat_chunk chunk = ranks_chunk(p->s->reader, piece);
    chunk.nbytes = box_nelems(sizes, c->ndim) * dtype_get(c->dtype)->itemsize_bytes;
    return catalogue_add_chunk(p->s->cat, t->index, offsets, sizes, &chunk, err);
}

static fsdpck_status local_tensor(const ranks_parse *p, uint64_t index, const ranks_declared *c,
                                  const uint64_t **sizes, fsdpck_error *err)
{
    static const uint64_t none[1];
    const torch_tensor *t = VEC_AT(&p->archive.tensors, const torch_tensor, index);
    *sizes = t->ndim > 0 ? torch_tensor_sizes(&p->archive, t) : none;
    if (t->dtype == c->dtype && t->ndim == c->ndim)
        return FSDPCK_OK;
    return FAIL_WITH(
        err, BADINPUT, RANK_SHAPE,
        ("dtype or number of dims of rank %" PRIu32 "'s shard differs from the tensor",
         p->file->rank),
        (expected, "%s, %u dim%s", dtype_get(c->dtype)->name, c->ndim, text_plural(c->ndim)),
        (found, "%s, %u dim%s", dtype_get((dtype)t->dtype)->name, t->ndim, text_plural(t->ndim)));
}

/* --- specs --- */

static fsdpck_status set_spec(ranks_parse *p, uint32_t entry, const mesh *m, const placement *pl,
                              fsdpck_error *err)
{
    catalogue *cat = p->s->cat;
    const ranks_tensor *t = VEC_AT(&p->s->tensors, const ranks_tensor, entry);
    cat_spec spec = {0};
    uint32_t index;

    memcpy(spec.placements, pl, m->ndim * sizeof *pl);
    RETURN_IF(catalogue_add_mesh(cat, m, &spec.mesh, err));
    RETURN_IF(catalogue_add_spec(cat, &spec, &index, err));
    if (cat->specs.count > SPECS_MAX || cat->meshes.count > MESHES_MAX)
        return FAIL(err, LIMIT, LIMIT_COUNT, "rank files describe too many layouts");
    cat_tensor *ct = catalogue_tensor(cat, t->index);
    if (t->rank_count == 1)
        ct->spec = index;
    if (ct->spec == index)
        return FSDPCK_OK;
    text_buf text = {.limit_bytes = 4096};
    const cat_spec *first = catalogue_spec(cat, t->index);
    const fsdpck_status st = FAIL_WITH(err, BADINPUT, RANK_DISAGREE,
                                       ("files of two ranks record different sharding of a tensor"),
                                       (tensor, name_of(p, entry)));
    if (first != NULL) {
        const mesh *other = catalogue_mesh(cat, first->mesh);
        mesh_print(other, &text);
        text_puts(&text, " ");
        placements_print(first->placements, other->ndim, &text);
        error_expected(err, "%s, as in '%s'", text.text, ranks_path(p->s, t->first_file));
        text.nbytes = 0;
    }
    mesh_print(m, &text);
    text_puts(&text, " ");
    placements_print(pl, m->ndim, &text);
    error_found(err, "%s", text.text);
    error_next(err, "check that all files are from one save");
    text_release(&text);
    return st;
}

/* Two plain Shards of one dim, one of them by a mesh dim of tensor parallelism, written by torch
 * 2.1 to 2.4: FSDP2 of 2.3 and 2.4 wrote these for data that were cut by TP first. */
static bool may_be_tp_first(const ranks_declared *c)
{
    const mesh *m = &c->mesh->m;
    if (!c->of_old_module)
        return false;
    for (unsigned i = 0; i < m->ndim; i++)
        for (unsigned k = i + 1; k < m->ndim; k++)
            if (mesh_role_of(m->names[k]) == ROLE_TP && m->sizes[i] > 1 && m->sizes[k] > 1 &&
                c->placements[i].kind == PLACEMENT_SHARD &&
                c->placements[k].kind == PLACEMENT_SHARD &&
                c->placements[i].dim == c->placements[k].dim)
                return true;
    return false;
}

static void turn_tp_first(const ranks_declared *c, placement *pl)
{
    const mesh *m = &c->mesh->m;
    unsigned order[MESH_NDIM_MAX], n = 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < m->ndim; i++)
            if ((mesh_role_of(m->names[i]) == ROLE_TP) == (pass == 0))
                order[n++] = i;
    placements_set_strided(m, order, pl);
}

/* --- DTensors --- */

/* FSDP2 gives the local tensors of a parameter without elements other shapes: [0,0] for a half of [2,0]. */
static bool fits(const ranks_declared *c, const placement *pl, shard_rule rule,
                 const uint64_t *local, uint64_t *offsets, uint64_t *sizes)
{
    return shard_box(&c->mesh->m, pl, c->ndim, c->shape, c->mesh->coord, rule, offsets, sizes,
                     NULL) == FSDPCK_OK &&
           (c->ndim == 0 || memcmp(sizes, local, c->ndim * sizeof *sizes) == 0 ||
            (box_nelems(c->shape, c->ndim) == 0 && box_nelems(local, c->ndim) == 0));
}

static fsdpck_status misfit(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                            const placement *pl, const uint64_t *local, fsdpck_error *err)
{
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    placement turned[MESH_NDIM_MAX];
    text_buf text = {.limit_bytes = 4096};

    fsdpck_status st = shard_box(&c->mesh->m, pl, c->ndim, c->shape, c->mesh->coord, SHARD_PHYSICAL,
                                 offsets, sizes, err);
    error_tensor(err, name_of(p, entry));
    if (st != FSDPCK_OK)
        return st;
    st = FAIL_WITH(err, BADINPUT, RANK_SHAPE,
                   ("size of rank %" PRIu32 "'s shard of a tensor does not match its placements",
                    p->file->rank),
                   (tensor, name_of(p, entry)));
    print_box(&text, offsets, sizes, c->ndim);
    text_puts(&text, " of ");
    print_box(&text, NULL, c->shape, c->ndim);
    text_puts(&text, ", ");
    placements_print(pl, c->mesh->m.ndim, &text);
    error_expected(err, "%s", text.text);
    text.nbytes = 0;
    print_box(&text, NULL, local, c->ndim);
    error_found(err, "%s", text.text);
    text_release(&text);
    memcpy(turned, pl, sizeof turned);
    turn_tp_first(c, turned);
    if (may_be_tp_first(c) && fits(c, turned, SHARD_PHYSICAL, local, offsets, sizes))
        error_next(
            err,
            "if FSDP2 with TP of torch 2.3 or 2.4 wrote these files, give --assume fsdp2-tp-2.3");
    return st;
}

static fsdpck_status add_dtensor(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                                 fsdpck_error *err)
{
    const uint64_t index = value_tensor_index(c->local);
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    placement pl[MESH_NDIM_MAX];
    const uint64_t *local;

    memcpy(pl, c->placements, sizeof pl);
    for (unsigned i = 0; i < c->mesh->m.ndim; i++)
        if (pl[i].kind == PLACEMENT_PARTIAL)
            return shard_box(&c->mesh->m, pl, c->ndim, c->shape, c->mesh->coord, SHARD_PHYSICAL,
                             offsets, sizes, err);
    if (may_be_tp_first(c)) {
        p->s->tp_order_suspect = true;
        if (p->s->req->assume_tp_first)
            turn_tp_first(c, pl);
    }
    RETURN_IF(set_spec(p, entry, &c->mesh->m, pl, err));
    /* A rank outside the mesh has an empty placeholder. */
    if (!c->mesh->has_coord)
        return FSDPCK_OK;
    RETURN_IF(local_tensor(p, index, c, &local, err));
    if (!fits(c, pl, SHARD_PHYSICAL, local, offsets, sizes) &&
        (c->has_order || !fits(c, pl, SHARD_RECORDED, local, offsets, sizes)))
        return misfit(p, entry, c, pl, local, err);
    return add_chunk(p, entry, c, index, offsets, sizes, err);
}

/* --- ShardedTensors --- */

static bool is_chunk_of(const ranks_declared *c, const uint64_t *offsets, const uint64_t *sizes)
{
    const uint64_t full = torch_chunk_size(c->shape[c->spec_dim], c->group_ranks);
    uint64_t offset, size;
    for (unsigned d = 0; d < c->ndim; d++)
        if (d != c->spec_dim && (offsets[d] != 0 || sizes[d] != c->shape[d]))
            return false;
    if (full == 0)
        return true;
    torch_chunk_range(c->shape[c->spec_dim], c->group_ranks, offsets[c->spec_dim] / full, &offset,
                      &size);
    return size == sizes[c->spec_dim] && (size == 0 || offset == offsets[c->spec_dim]);
}

/* The metadata of all shards, which every file contains: the expected ranks, and whether
 * torch.chunk applies over all ranks or over each group of an HSDP. */
static fsdpck_status read_all_shards(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                                     fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], rank;
    bool regular = c->has_spec_dim && c->group_ranks > 0 && c->world > 0 &&
                   c->world <= MESH_RANKS_MAX && c->world % c->group_ranks == 0;

    for (size_t i = 0; i < value_count(pool, c->all_shards); i++) {
        RETURN_IF(ranks_shard_box(pool, value_item(pool, c->all_shards, i), c->ndim, offsets, sizes,
                                  &rank, err));
        if (box_nelems(sizes, c->ndim) > 0 && rank != CAT_NONE)
            RETURN_IF(ranks_note_member(p->s, rank, err));
        regular = regular && is_chunk_of(c, offsets, sizes);
    }
    if (!regular)
        return FSDPCK_OK;
    mesh m = {.ndim = 1, .sizes = {c->world}, .names = {"fsdp"}};
    placement pl[MESH_NDIM_MAX] = {{.kind = PLACEMENT_SHARD, .dim = (uint8_t)c->spec_dim}};
    if (c->group_ranks < c->world) {
        m = (mesh){.ndim = 2,
                   .sizes = {c->world / c->group_ranks, c->group_ranks},
                   .names = {"ddp", "fsdp"}};
        pl[1] = pl[0];
        pl[0] = (placement){.kind = PLACEMENT_REPLICATE};
    }
    return set_spec(p, entry, &m, pl, err);
}

/* torch 2.1 and newer: a rank past the end has an empty shard beyond the tensor. */
static void pull_empty_inside(const ranks_declared *c, uint64_t *offsets, const uint64_t *sizes)
{
    if (box_nelems(sizes, c->ndim) > 0)
        return;
    for (unsigned d = 0; d < c->ndim; d++)
        if (sizes[d] == 0 && offsets[d] > c->shape[d])
            offsets[d] = c->shape[d];
}

static fsdpck_status add_shard(ranks_parse *p, uint32_t entry, const ranks_declared *c, value shard,
                               fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX], rank;
    const uint64_t *local;
    value tensor, metadata;

    if (!ranks_is_class(pool, shard, "Shard") || !ranks_attribute(pool, shard, "tensor", &tensor) ||
        !ranks_attribute(pool, shard, "metadata", &metadata))
        return FAIL(err, BADINPUT, RANK_SHARDED,
                    "local shard of a ShardedTensor has an unknown form");
    if (value_kind_of(tensor) != VALUE_TENSOR)
        return FAIL(err, UNSUPPORTED, PT_TENSOR_KIND,
                    "local shard of a ShardedTensor is not a plain tensor");
    RETURN_IF(ranks_shard_box(pool, metadata, c->ndim, offsets, sizes, &rank, err));
    /* In a smaller group, older torch numbers the ranks of the group. */
    if (c->group_ranks == c->world && rank < c->world)
        ranks_note_own_rank(p, rank);
    RETURN_IF(local_tensor(p, value_tensor_index(tensor), c, &local, err));
    if (c->ndim > 0 && memcmp(local, sizes, c->ndim * sizeof *sizes) != 0) {
        text_buf text = {.limit_bytes = 4096};
        const fsdpck_status st =
            FAIL_WITH(err, BADINPUT, RANK_SHAPE,
                      ("size of rank %" PRIu32 "'s shard differs from its metadata", p->file->rank),
                      (tensor, name_of(p, entry)));
        print_box(&text, offsets, sizes, c->ndim);
        error_expected(err, "%s", text.text);
        text.nbytes = 0;
        print_box(&text, NULL, local, c->ndim);
        error_found(err, "%s", text.text);
        text_release(&text);
        return st;
    }
    pull_empty_inside(c, offsets, sizes);
    return add_chunk(p, entry, c, value_tensor_index(tensor), offsets, sizes, err);
}

static fsdpck_status add_sharded(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                                 fsdpck_error *err)
{
    const value_pool *pool = &p->scratch.pool;

    /* The list has one entry per rank: one file suffices. */
    if (VEC_AT(&p->s->tensors, const ranks_tensor, entry)->rank_count == 1)
        RETURN_IF(read_all_shards(p, entry, c, err));
    for (size_t i = 0; i < value_count(pool, c->shards); i++)
        RETURN_IF(add_shard(p, entry, c, value_item(pool, c->shards, i), err));
    return FSDPCK_OK;
}

fsdpck_status ranks_add_boxes(ranks_parse *p, uint32_t entry, const ranks_declared *c,
                              fsdpck_error *err)
{
    return c->kind == RANKS_DTENSOR ? add_dtensor(p, entry, c, err) : add_sharded(p, entry, c, err);
}
