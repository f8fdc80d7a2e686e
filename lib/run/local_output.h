/* local_output.h: an output in each host's own folder of the same name (--output-local), for run.c.
 *
 *     RETURN_IF(local_output_assign(r, err));   // once r->to has its files: assigns them to hosts
 *     if (r->local.on) ...                     // several hosts; else there is one output
 *     RETURN_IF(exec_assign_work(r->exec, true, local_output_begin(r, st, err), err));
 *     exec_run(r->exec, &r->out, err);         // each file is written on one host: `own`
 *     RETURN_IF(local_output_complete(r, err));
 *     local_output_release(&r->local, group);
 *
 * The file of target rank q goes to the host of the group's rank q * size / world_size. Each host's
 * folder must suffice for its ranks. So a file also goes to every host whose ranks hold some of its
 * data; replicas are stored only in the file of the lowest rank. Files of no rank (.metadata, a
 * config, the manifest) go to all hosts. A file for several hosts is written on the first and
 * copied from there.
 *
 * The lowest rank of each host begins and commits its output; the host's other ranks join it. Final
 * names are given once all outputs are durable, and withdrawn if one host fails.
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
    uint32_t *writer_host;  /* by target file: number of the host that writes it */
    uint8_t *own;           /* by target file: this host writes it */
    uint8_t *here;          /* by target file: this host gets it */
    local_host *totals;     /* by host; once complete, with side files */
    uint64_t copied_nbytes; /* between hosts, without the reads of the plan */
    output *out;            /* the run's, while others may read from it */
    uint32_t view;          /* the group's number for that */
} local_output;

fsdpck_status local_output_assign(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective: the ranks agree on st, and on the result next, which may be of one rank alone. USAGE (GROUP-SHARED) if two hosts share the output's folder. */
fsdpck_status local_output_begin(struct run *r, fsdpck_status st,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective, after exec_run: seal, side files, copies, manifest, final names. */
fsdpck_status local_output_complete(struct run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The number of the host that has written file `index` of the output. */
unsigned local_output_writer_host(const local_output *l, size_t index);
/* Bytes of a file of the output, wherever it is; of rank 0 while the others wait. */
fsdpck_status local_output_read(struct run *r, size_t index, uint64_t offset_bytes, void *dst,
                                uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also accepts a zeroed struct. */
void local_output_release(local_output *l, group *g);

#endif
