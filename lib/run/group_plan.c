#include "run/group_plan.h"

#include <stdlib.h>

#include "exec/simulate.h"

static uint64_t moved(const fsdpck_rank_load *l)
{
    return l->read_nbytes + l->written_nbytes + l->sent_nbytes + l->received_nbytes;
}

static void fill_ranks(const exec_cluster *cluster, const exec_load *loads, fsdpck_rank_load *ranks,
                       unsigned *worst)
{
    *worst = 0;
    for (unsigned r = 0; r < cluster->ranks; r++) {
        const exec_load *l = &loads[r];
        ranks[r] = (fsdpck_rank_load){
            .host = exec_cluster_host(cluster, r),
            .items = l->items + l->row_blocks,
            .read_nbytes = l->read_nbytes,
            .written_nbytes = l->written_nbytes,
            .sent_nbytes = l->sent_nbytes,
            .received_nbytes = l->received_nbytes,
            .messages = l->messages,
            .memory_nbytes = l->memory_nbytes,
        };
        if (moved(&ranks[r]) > moved(&ranks[*worst]))
            *worst = r;
    }
}

fsdpck_status group_plan_make(const struct exec *x, const run_options *o,
                              const fsdpck_group_plan **out, fsdpck_error *err)
{
    const exec_cluster cluster = {.ranks = o->dry_run.group_size,
                                  .hosts = o->dry_run.group_hosts > 0 ? o->dry_run.group_hosts
                                                                      : o->dry_run.group_size,
                                  .local = o->dry_run.group_local != 0};
    const exec_bandwidth bandwidth = {o->dry_run.model_read, o->dry_run.model_write,
                                      o->dry_run.model_net};
    exec_times times;
    exec_load *loads = calloc(cluster.ranks, sizeof *loads);
    fsdpck_rank_load *ranks = calloc(cluster.ranks, sizeof *ranks);
    fsdpck_group_plan *p = calloc(1, sizeof *p);
    fsdpck_status st = FSDPCK_OK;
    if (loads == NULL || ranks == NULL || p == NULL)
        GOTO_IF(error_set_nomem(err, cluster.ranks * sizeof *loads), out);
    GOTO_IF(exec_simulate(x, &cluster, loads, err), out);
    exec_predict_times(&cluster, loads, &bandwidth, &times);
    *p = (fsdpck_group_plan){
        .struct_nbytes = sizeof *p,
        .ranks = ranks,
        .size = cluster.ranks,
        .hosts = cluster.hosts,
        .read_seconds = times.read,
        .write_seconds = times.write,
        .net_seconds = times.net,
        .overlapped_seconds = times.overlapped,
        .serial_seconds = times.serial,
    };
    fill_ranks(&cluster, loads, ranks, &p->worst);
    *out = p;
    ranks = NULL;
    p = NULL;
out:
    free(loads);
    free(ranks);
    free(p);
    return st;
}
