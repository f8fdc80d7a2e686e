/* simulate.h: predicts the work of each rank of a group, from the plan, its located chunks and the
 * functions of partition.h. No I/O.
 *
 *     RETURN_IF(exec_resolve(&r, &x, err));
 *     exec_load *loads = calloc(cluster.ranks, sizeof *loads);
 *     RETURN_IF(exec_simulate(x, &cluster, loads, err));
 *     exec_predict_times(&cluster, loads, &bandwidth, &times);
 *
 * Bytes are those of needed elements, read once per item that needs them. Additional reads (gaps,
 * rows that column groups read again) are in exec_stats.read_amplification.
 */
#ifndef FSDPCK_EXEC_SIMULATE_H
#define FSDPCK_EXEC_SIMULATE_H

#include "exec/exec.h"

typedef struct exec_cluster {
    unsigned ranks, hosts; /* rank r is on host r * hosts / ranks; 1 <= hosts <= ranks */
    /* Source files are on the hosts' own disks, as their ranks saved them: files of neighboring
     * ranks (or neighboring names, if ranks are unknown) are on one host. */
    bool local;
} exec_cluster;

/* Load of one rank. */
typedef struct exec_load {
    uint64_t items, row_blocks;
    uint64_t read_nbytes; /* from the storage, for others too */
    uint64_t written_nbytes;
    uint64_t sent_nbytes;     /* read for others */
    uint64_t received_nbytes; /* read by others */
    /* Messages for files on other hosts, sent and received: three for each range that is read, of
     * at most one step. Strided elements may need more ranges. */
    uint64_t messages;
    uint64_t memory_nbytes; /* upper bound of metadata, buffers, and reads for others */
} exec_load;

/* loads: zeroed, one a rank. */
fsdpck_status exec_simulate(const struct exec *x, const exec_cluster *cluster, exec_load *loads,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Bytes a second; 0: no bound. */
typedef struct exec_bandwidth {
    uint64_t
        read; /* of the file system, all ranks together; where files are local, of each host's disks */
    uint64_t write; /* of the file system, all ranks together */
    uint64_t net;   /* of each host, each way; a shared file system also uses it */
} exec_bandwidth;

typedef struct exec_times {
    double read, write, net; /* seconds of the slowest rank or host */
    double overlapped;       /* the longest of them */
    double serial;           /* reading, then writing, on one path; or the network time */
} exec_times;

void exec_predict_times(const exec_cluster *cluster, const exec_load *loads,
                        const exec_bandwidth *bandwidth, exec_times *times);

unsigned exec_cluster_host(const exec_cluster *cluster, unsigned rank);

#endif
