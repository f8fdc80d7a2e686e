/* simulate.h: what each rank of a group would do, without the group: by the plan, its located chunks
 * and the very functions that share out the work (partition.h). Nothing is read or written.
 *
 *     RETURN_IF(exec_resolve(&r, &x, err));
 *     exec_load *loads = calloc(cluster.ranks, sizeof *loads);
 *     RETURN_IF(exec_simulate(x, &cluster, loads, err));
 *     exec_predict_times(&cluster, loads, &bandwidth, &times);
 *
 * Bytes are those of elements that are needed, read once for each item that needs them: what is read
 * besides (gaps between them, rows that column groups read again) is in exec_stats.read_amplification.
 */
#ifndef FSDPCK_EXEC_SIMULATE_H
#define FSDPCK_EXEC_SIMULATE_H

#include "exec/exec.h"

typedef struct exec_cluster {
    unsigned ranks, hosts; /* rank r is on host r * hosts / ranks; 1 <= hosts <= ranks */
    /* Source files are on the disks of the hosts alone, as their ranks saved them: those of
     * neighbouring ranks (of neighbouring names, where ranks are not known) on one host. */
    bool local;
} exec_cluster;

/* Of one rank. */
typedef struct exec_load {
    uint64_t items, row_blocks;
    uint64_t read_nbytes; /* from the storage, for others too */
    uint64_t written_nbytes;
    uint64_t sent_nbytes;     /* read for others */
    uint64_t received_nbytes; /* read by others */
    /* Of files on other hosts, sent and received: three for each stretch that is read, which is no
     * longer than a step. Elements that lie strided may be more stretches. */
    uint64_t messages;
    uint64_t memory_nbytes; /* of metadata at most, buffers, and of what is read for others */
} exec_load;

/* loads: zeroed, one a rank. */
fsdpck_status exec_simulate(const struct exec *x, const exec_cluster *cluster, exec_load *loads,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Bytes a second; 0: no bound. */
typedef struct exec_bandwidth {
    uint64_t
        read; /* of the file system, all ranks together; where files are local, of each host's disks */
    uint64_t write; /* of the file system, all ranks together */
    uint64_t
        net; /* of each host, each way; what a shared file system reads and writes goes over it */
} exec_bandwidth;

typedef struct exec_times {
    double read, write, net; /* seconds that the slowest rank or host takes for it */
    double overlapped;       /* the longest of them */
    double serial;           /* reading, then writing, on one path; or the network's */
} exec_times;

void exec_predict_times(const exec_cluster *cluster, const exec_load *loads,
                        const exec_bandwidth *bandwidth, exec_times *times);

unsigned exec_cluster_host(const exec_cluster *cluster, unsigned rank);

#endif
