#include "formats/dcp/dcp_join_chunks.h"

#include <inttypes.h>

#include "base/text.h"
#include "formats/dcp/dcp_match_chunks.h"

/* Fewer chunks take less time than a thread takes to start. */
#define THREAD_CHUNKS 8192u
#define THREADS_MOST  8u

fsdpck_status dcp_join_orphan(const dcp_builder *b, const dcp_metadata *m, uint32_t fqn,
                              const dcp_chunk *chunk, fsdpck_error *err)
{
    dcp_name_fail(b, fqn, FSDPCK_FINDING_DCP_ORPHAN,
                  "metadata lists a chunk without the location of its bytes", err);
    if (chunk != NULL) {
        uint64_t offsets[NDIM_MAX];
        const unsigned ndim = dcp_size_get(m, chunk->offsets_at, offsets);
        text_buf text = {.limit_bytes = 4096};
        for (unsigned d = 0; d < ndim; d++)
            text_printf(&text, "%s%" PRIu64, d > 0 ? ", " : "", offsets[d]);
        error_expected(err, "an entry of storage_data with offset (%s)",
                       text.text != NULL ? text.text : "");
        text_release(&text);
    }
    error_next(err, "the save did not complete or the file was altered: use another checkpoint");
    return FSDPCK_BADINPUT;
}

typedef struct joined_chunk {
    uint64_t offsets[NDIM_MAX], sizes[NDIM_MAX];
    cat_chunk proto;
} joined_chunk;

/* `ndim`: of the stored tensor. */
static fsdpck_status join_chunk(const dcp_match *x, const dcp_chunk *chunk, uint32_t entry,
                                unsigned ndim, joined_chunk *made, fsdpck_error *err)
{
    const dcp_metadata *m = x->m;
    const unsigned ndim_offsets = dcp_size_get(m, chunk->offsets_at, made->offsets);
    const unsigned ndim_sizes = dcp_size_get(m, chunk->sizes_at, made->sizes);

    made->proto = (cat_chunk){.file = CAT_NONE, .rank = UINT16_MAX, .place = LOCATION_BLOB};
    if (chunk->sizes_at == 0)
        return dcp_name_fail(x->b, x->fqn, FSDPCK_FINDING_DCP_META_TYPE,
                             "metadata holds a chunk without sizes", err);
    if (ndim_offsets != ndim || ndim_sizes != ndim)
        return FAIL_WITH(err, BADINPUT, DCP_RANK,
                         ("a chunk and its tensor have different numbers of dims"),
                         (tensor, strtab_text(&x->b->names->fqns, x->fqn)),
                         (expected, "%u dim%s", ndim, text_plural(ndim)),
                         (found, "%u offset%s, %u size%s", ndim_offsets, text_plural(ndim_offsets),
                          ndim_sizes, text_plural(ndim_sizes)));
    if (entry == DCP_NONE)
        return dcp_chunk_has_elements(m, chunk) ? dcp_join_orphan(x->b, m, x->fqn, chunk, err)
                                                : FSDPCK_OK;
    const dcp_entry *e = VEC_AT(&m->entries, dcp_entry, entry);
    const uint32_t rank = catalogue_file(x->b->cat, e->file)->rank;
    made->proto.file = e->file;
    made->proto.aux = e->transform;
    made->proto.rank = rank < UINT16_MAX ? (uint16_t)rank : UINT16_MAX;
    made->proto.offset_bytes = e->offset_bytes;
    made->proto.nbytes = e->nbytes;
    return FSDPCK_OK;
}

/* f: NULL, or of a flattened tensor. */
static fsdpck_status join_tensor(const dcp_match *x, const dcp_join *join, const dcp_flattening *f,
                                 vec *flat_boxes, fsdpck_error *err)
{
    catalogue *cat = x->b->cat;
    const unsigned ndim = catalogue_tensor(cat, join->tensor)->ndim + (f != NULL);
    const uint32_t nchunks = VEC_AT(&x->m->lists, dcp_chunk_list, join->list)->count;

    RETURN_IF(dcp_match_chunks(x, join->group, join->count, err));
    const uint32_t *matched = x->room->matched.items;
    dcp_run_walk walk = dcp_run_walk_begin(x->m, join->list);
    for (uint32_t i = 0; i < nchunks; i++) {
        joined_chunk c;
        RETURN_IF(join_chunk(x, dcp_run_walk_next(&walk), matched[i], ndim, &c, err));
        const fsdpck_status st = f != NULL ? dcp_flattened_add(cat, join->tensor, f, c.offsets,
                                                               c.sizes, &c.proto, flat_boxes, err)
                                           : catalogue_put_chunk(cat, &join->chunks, i, c.offsets,
                                                                 c.sizes, &c.proto, err);
        if (st != FSDPCK_OK) {
            error_tensor(err, strtab_text(&x->b->names->fqns, x->fqn));
            return st;
        }
    }
    return FSDPCK_OK;
}

fsdpck_status dcp_join_flattened(dcp_builder *b, const dcp_metadata *m, const dcp_join *join,
                                 const dcp_flattening *f, fsdpck_error *err)
{
    dcp_match_room room;
    dcp_match_room_init(&room, m->owner);
    const dcp_match x = {.b = b, .m = m, .fqn = join->fqn, .list = join->list, .room = &room};
    const fsdpck_status st = join_tensor(&x, join, f, &b->flat_boxes, err);
    b->stray_blobs += room.stray_blobs;
    dcp_match_room_release(&room);
    return st;
}

typedef struct joining {
    const dcp_builder *b;
    const dcp_metadata *m;
    const vec *joins;
    dcp_match_room rooms[THREADS_MOST];
} joining;

static fsdpck_status do_job(void *ctx, unsigned worker, uint64_t job, fsdpck_error *err)
{
    joining *j = ctx;
    const dcp_join *join = VEC_AT(j->joins, const dcp_join, job);
    const dcp_match x = {
        .b = j->b, .m = j->m, .fqn = join->fqn, .list = join->list, .room = &j->rooms[worker]};
    return join_tensor(&x, join, NULL, NULL, err);
}

fsdpck_status dcp_join_chunks(dcp_builder *b, const dcp_metadata *m, const vec *joins,
                              fsdpck_error *err)
{
    joining j = {.b = b, .m = m, .joins = joins};
    unsigned nthreads = b->nthreads < THREADS_MOST ? b->nthreads : THREADS_MOST;

    if (m->chunks.count / THREAD_CHUNKS < nthreads)
        nthreads = (unsigned)(m->chunks.count / THREAD_CHUNKS);
    nthreads = nthreads < 1 ? 1 : nthreads;
    for (unsigned i = 0; i < nthreads; i++)
        dcp_match_room_init(&j.rooms[i], m->owner);
    const fsdpck_status st = pool_run(nthreads, joins->count, do_job, &j, b->cancel, err);
    for (unsigned i = 0; i < nthreads; i++) {
        b->stray_blobs += j.rooms[i].stray_blobs;
        dcp_match_room_release(&j.rooms[i]);
    }
    return st;
}
