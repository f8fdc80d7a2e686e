/* exec_chunk.c: chunks and files of a run, as all of lib/exec needs to know them. */
#include "exec/exec_internal.h"
#include "group/hosts.h"

void exec_add_chunk_context(const struct exec *x, uint64_t chunk, fsdpck_error *err)
{
    const catalogue *from = plan_source(x->r.plan);
    const cat_chunk *k = catalogue_chunk(from, chunk);
    error_tensor(err, catalogue_name(from, catalogue_tensor(from, k->tensor)->name));
    if (err != NULL && err->finding == FSDPCK_FINDING_AVERAGE_OVERFLOW)
        return; /* of all inputs together */
    if (x->r.source->root_is_file)
        error_path(err, x->r.source->root);
    else if (k->file < catalogue_file_count(from))
        error_path_in(err, x->r.source->root,
                      catalogue_name(from, catalogue_file(from, k->file)->path));
}

dtype exec_chunk_dtype(const struct exec *x, uint64_t chunk)
{
    const catalogue *from = plan_source(x->r.plan);
    return (dtype)catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->dtype;
}

void exec_chunk_strides(const struct exec *x, uint64_t chunk, uint64_t *strides)
{
    const catalogue *from = plan_source(x->r.plan);
    const chunk_extent *s = &x->chunk_extents[chunk];
    const unsigned ndim = catalogue_tensor(from, catalogue_chunk(from, chunk)->tensor)->ndim;
    if (s->flags & EXTENT_ROWS) {
        uint64_t sizes[NDIM_MAX];
        catalogue_chunk_box(from, chunk, NULL, sizes);
        box_row_major_strides(sizes, ndim, strides);
        return;
    }
    for (unsigned d = 0; d < ndim; d++)
        strides[d] = *VEC_AT(&x->strides, const uint64_t, s->strides_at + d);
}

element_ops exec_element_ops(dtype from, dtype to, unsigned flags)
{
    return (element_ops){
        .from = from,
        .to = to,
        .swap = (flags & EXTENT_SWAP) != 0,
        .conj = (flags & EXTENT_CONJ) != 0,
        .neg = (flags & EXTENT_NEG) != 0,
        .add = (int8_t)(((flags & EXTENT_ADD) != 0) - ((flags & EXTENT_SUBTRACT) != 0))};
}

element_ops exec_chunk_convert(const struct exec *x, uint64_t chunk, dtype to)
{
    return exec_element_ops(exec_chunk_dtype(x, chunk), to, x->chunk_extents[chunk].flags);
}

fsdpck_status resolve_keep_strides(struct exec *x, const uint64_t *strides, unsigned ndim,
                                   uint32_t *at, fsdpck_error *err)
{
    pthread_mutex_lock(&x->lock);
    fsdpck_status st = FSDPCK_OK;
    if (x->strides.count > UINT32_MAX - NDIM_MAX)
        st = FAIL(err, LIMIT, LIMIT_COUNT, "too many chunks that are not row-major");
    uint64_t *kept = st == FSDPCK_OK ? vec_push_n(&x->strides, ndim, err) : NULL;
    if (kept == NULL) {
        st = FSDPCK_LIMIT;
    } else {
        *at = (uint32_t)(x->strides.count - ndim);
        for (unsigned d = 0; d < ndim; d++)
            kept[d] = strides[d];
    }
    pthread_mutex_unlock(&x->lock);
    return st;
}

bool exec_chunk_is_streamed(const struct exec *x, uint64_t target_chunk)
{
    const uint32_t tensor = catalogue_chunk(&x->r.target->cat, target_chunk)->tensor;
    return (x->tensor_flags[plan_source_tensor(x->r.plan, tensor)] & TENSOR_STREAMED) != 0;
}

bool exec_chunk_is_for_threads(const struct exec *x, uint64_t target_chunk)
{
    const uint32_t tensor = catalogue_chunk(&x->r.target->cat, target_chunk)->tensor;
    return (x->tensor_flags[plan_source_tensor(x->r.plan, tensor)] &
            (TENSOR_ADDED | TENSOR_COMPUTED)) != 0;
}

bool exec_chunk_is_grouped(const struct exec *x, uint64_t target_chunk)
{
    return x->column_groups.count > 0 &&
           (x->grouped[target_chunk / 8] >> target_chunk % 8 & 1) != 0;
}

bool exec_is_across(const struct exec *x, uint64_t source_chunk)
{
    const uint32_t tensor = catalogue_chunk(plan_source(x->r.plan), source_chunk)->tensor;
    return (x->tensor_flags[tensor] & TENSOR_ACROSS) != 0;
}

bool exec_part_is_joint(const struct exec *x, const range_part *part)
{
    if (part->kind != RANGE_PART_CHUNK || exec_chunk_is_grouped(x, part->chunk))
        return false;
    const uint32_t tensor = catalogue_chunk(&x->r.target->cat, part->chunk)->tensor;
    const unsigned flags = x->tensor_flags[plan_source_tensor(x->r.plan, tensor)];
    return (flags & (TENSOR_ACROSS | TENSOR_STREAMED)) == TENSOR_ACROSS;
}

bool exec_is_joint(const struct exec *x, const output_range *range)
{
    range_walk walk;
    range_part part;
    if (!x->any_across || x->engine->whole_tiles)
        return false;
    range_walk_begin(&walk, x->r.plan, range);
    while (range_walk_next(&walk, &part))
        if (exec_part_is_joint(x, &part))
            return true;
    return false;
}

/* REPLICAS_FIRST is about copies of one tensor: plain tensors of ranks are none of each other. */
bool replica_is_trusted(const plan *p, uint32_t tensor)
{
    return plan_replica_policy(p) == REPLICAS_FIRST &&
           (catalogue_tensor(plan_source(p), tensor)->flags & CAT_TENSOR_EACH_RANK) == 0;
}

bool exec_file_is_own(const struct exec *x, uint32_t file_index)
{
    return x->r.is_own_file == NULL || x->r.is_own_file[file_index] != 0;
}

bool exec_is_leader(const struct exec *x)
{
    const unsigned rank = group_rank(x->r.group);
    return x->r.is_own_file == NULL ? rank == 0 : hosts_is_leader(x->r.hosts, rank);
}

fsdpck_status worker_read(worker *w, uint32_t file_index, uint64_t offset_bytes, void *dst,
                          uint64_t nbytes, fsdpck_error *err)
{
    const source *src = w->x->r.source;
    w->stats.reads++;
    w->stats.bytes_read += nbytes;
    progress_move(w->x->r.progress, nbytes);
    return src->read_at(src->ctx, file_index, offset_bytes, dst, nbytes, err);
}
