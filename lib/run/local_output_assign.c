/* Assigns files to hosts for an output on each host's own disk. */
#include <stdlib.h>

#include "layout/shard_box.h"
#include "run/run.h"

/* Whether host `host` gets file `file`: one row of bits per file, one bit per host. */
typedef struct assign_work {
    const run *r;
    const hosts *hosts;
    size_t words; /* of a row */
    uint64_t *rows;
} assign_work;

static void add_host(const assign_work *w, size_t index, unsigned host)
{
    w->rows[index * w->words + host / 64] |= UINT64_C(1) << host % 64;
}

static bool goes_to_host(const assign_work *w, size_t index, unsigned host)
{
    return (w->rows[index * w->words + host / 64] >> host % 64 & 1) != 0;
}

static void add_all_hosts(const assign_work *w, size_t index)
{
    for (unsigned h = 0; h < w->hosts->count; h++)
        add_host(w, index, h);
}

static unsigned host_of(const assign_work *w, uint64_t target_rank)
{
    const uint64_t rank = target_rank * w->hosts->ranks / w->r->to.world_size;
    return w->hosts->of_rank[rank < w->hosts->ranks ? rank : w->hosts->ranks - 1];
}

/* The hosts whose ranks hold the box of a chunk that is written once for all of them. */
static void add_chunk_hosts(const assign_work *w, uint64_t chunk)
{
    const target *t = &w->r->to;
    const cat_chunk *c = catalogue_chunk(&t->cat, chunk);
    const cat_spec *spec = catalogue_spec(&t->cat, c->tensor);
    const mesh *m = spec == NULL ? NULL : catalogue_mesh(&t->cat, spec->mesh);
    uint64_t coord[MESH_NDIM_MAX] = {0}, holder;
    shard_holders holders;
    if (spec == NULL || piece_count(m, spec->placements) == 1) {
        add_all_hosts(w, c->file);
        return;
    }
    mesh_coord(m, c->rank == UINT16_MAX ? 0 : c->rank, coord);
    shard_holders_begin(&holders, m, spec->placements, coord);
    while (shard_holders_next(&holders, &holder))
        if (holder < t->world_size)
            add_host(w, c->file, host_of(w, holder));
}

static void add_file_hosts(const assign_work *w)
{
    const target *t = &w->r->to;
    for (size_t i = 0; i < catalogue_file_count(&t->cat); i++) {
        const uint32_t rank = catalogue_file(&t->cat, i)->rank;
        if (!w->r->sharded || rank == CAT_NONE || rank >= t->world_size)
            add_all_hosts(w, i);
        else
            add_host(w, i, host_of(w, rank));
    }
    if (!w->r->sharded || w->r->writer->every_rank || w->r->writer->flat)
        return;
    for (uint64_t i = 0; i < catalogue_chunk_count(&t->cat); i++) {
        if (catalogue_chunk(&t->cat, i)->file < catalogue_file_count(&t->cat))
            add_chunk_hosts(w, i);
    }
    for (size_t i = 0; i < catalogue_object_count(&t->cat); i++)
        if (catalogue_object(&t->cat, i)->file < catalogue_file_count(&t->cat))
            add_all_hosts(w, catalogue_object(&t->cat, i)->file);
}

/* A rank's file is written on the rank's host; a file for several hosts, on the first of them. */
static uint32_t choose_home(const assign_work *w, size_t index)
{
    const uint32_t rank = catalogue_file(&w->r->to.cat, index)->rank;
    uint32_t host = 0;
    if (w->r->sharded && rank != CAT_NONE && rank < w->r->to.world_size)
        return host_of(w, rank);
    while (host + 1 < w->hosts->count && !goes_to_host(w, index, host))
        host++;
    return host;
}

static void fill(const assign_work *w, local_output *l)
{
    for (size_t i = 0; i < l->file_count; i++) {
        l->writer_host[i] = choose_home(w, i);
        l->own[i] = l->writer_host[i] == l->hosts.mine;
        l->here[i] = goes_to_host(w, i, l->hosts.mine);
        for (unsigned h = 0; h < l->hosts.count; h++) {
            l->totals[h].files += goes_to_host(w, i, h);
            l->totals[h].nbytes +=
                goes_to_host(w, i, h) ? catalogue_file(&w->r->to.cat, i)->nbytes : 0;
        }
    }
}

fsdpck_status local_output_assign(run *r, fsdpck_error *err)
{
    local_output *l = &r->local;
    const size_t count = catalogue_file_count(&r->to.cat);
    if (!r->opt.output.output_local || r->ctx->group == NULL)
        return FSDPCK_OK;
    RETURN_IF(hosts_init(&l->hosts, r->ctx->group, err));
    if (l->hosts.count == 1)
        return FSDPCK_OK;
    assign_work w = {.r = r, .hosts = &l->hosts, .words = (l->hosts.count + 63) / 64};
    w.rows = calloc(count * w.words + 1, sizeof *w.rows);
    l->writer_host = calloc(count + 1, sizeof *l->writer_host);
    l->own = calloc(count + 1, 1);
    l->here = calloc(count + 1, 1);
    l->totals = calloc(l->hosts.count, sizeof *l->totals);
    l->file_count = count;
    fsdpck_status st = FSDPCK_OK;
    if (w.rows == NULL || l->writer_host == NULL || l->own == NULL || l->here == NULL ||
        l->totals == NULL) {
        st = error_set_nomem(err, count * w.words * sizeof *w.rows);
    } else {
        add_file_hosts(&w);
        fill(&w, l);
        l->on = true;
    }
    free(w.rows);
    return st;
}

void local_output_release(local_output *l, group *g)
{
    if (l->out != NULL)
        group_stop_serving(g, l);
    hosts_release(&l->hosts);
    free(l->writer_host);
    free(l->own);
    free(l->here);
    free(l->totals);
    *l = (local_output){0};
}

unsigned local_output_writer_host(const local_output *l, size_t index)
{
    return index < l->file_count ? l->writer_host[index] : l->hosts.of_rank[0];
}

fsdpck_status local_output_read(run *r, size_t index, uint64_t offset_bytes, void *dst,
                                uint64_t nbytes, fsdpck_error *err)
{
    local_output *l = &r->local;
    const unsigned writer_host = local_output_writer_host(l, index);
    const link_range what = {l->view, (uint32_t)index, offset_bytes, nbytes};
    if (writer_host == l->hosts.mine)
        return output_read_at(&r->out, index, offset_bytes, dst, nbytes, err);
    return group_read(r->ctx->group, l->hosts.leaders[writer_host], &what, dst, err);
}
