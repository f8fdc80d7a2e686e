/* local_output.h: an output in each host's own folder of the same name (--output-local), for run.c.
 *
 *     RETURN_IF(local_output_assign(r, err));   // once r->to has its files: who gets which; no bytes
 *     if (r->local.on) ...                     // several hosts; else the output is one as ever
 *     RETURN_IF(local_output_begin(r, err));
 *     exec_run(r->exec, &r->out, err);         // each file is written on one host: `own`
 *     RETURN_IF(local_output_complete(r, err));
 *     local_output_release(&r->local, group);
 *
 * The file of target rank q goes to the host of the group's rank q * size / world_size. So that each
 * host's folder is enough for its ranks, a file also goes to every host whose ranks hold some of what
 * it has (replicas are written once, by the lowest rank that holds them), and what is of no rank
 * (.metadata, a config, the manifest) goes to all. A file that several hosts get is written on the
 * first of them and copied from there.
 *
 * One rank of each host, the lowest, begins its output and commits it; the others there join it.
 * Names are given once all outputs are durable, and taken back where one host fails to.
 */
#ifndef FSDPCK_RUN_LOCAL_OUTPUT_H
#define FSDPCK_RUN_LOCAL_OUTPUT_H

#include "group/hosts.h"
#include "io/output.h"

struct run;

typedef struct local_host {
    uint64_t files, nbytes; /* in its folder */
} local_host;

typedef struct local_output {
    bool on;
    hosts hosts;
    size_t file_count;      /* of the target */
    uint32_t *writer_host;  /* by target file: number of the host that it is written on */
    uint8_t *own;           /* that is this one */
    uint8_t *here;          /* it goes to this host */
    local_host *totals;     /* by host; once it is complete also of what came besides */
    uint64_t copied_nbytes; /* from host to host, besides what the plan reads */
    output *out;            /* the run's, while others may read from it */
    uint32_t view;          /* the group's number for that */
} local_output;

fsdpck_status local_output_assign(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* By all ranks. USAGE (GROUP-SHARED) where two hosts see one folder. */
fsdpck_status local_output_begin(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* By all ranks, once exec has run: seal, side files, copies, manifest, final names. */
fsdpck_status local_output_complete(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The number of the host that has written file `index` of the output. */
unsigned local_output_writer_host(const local_output *l, size_t index);
/* Bytes of a file of the output, wherever it is; of rank 0 while the others wait. */
fsdpck_status local_output_read(struct run *r, size_t index, uint64_t offset_bytes, void *dst,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a zeroed one too. */
void local_output_release(local_output *l, group *g);

#endif
