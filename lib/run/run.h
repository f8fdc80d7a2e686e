/* run.h: one run from request to committed output, for the files that make it up:
 *
 *     request.c       which writer; whether DST may be written
 *     output_paths.c  whether an output would replace a file that the run reads
 *     output_replaced.c  what a folder that is replaced consists of
 *     run.c           select -> layout -> plan -> resolve -> execute -> seal -> commit
 *     consolidate.c   a run onto one rank
 *     reshard.c       a run onto many: options -> mesh and rules
 *     advise.c        warnings about legal requests that may not be meant
 *     digest_run.c    a run that writes nothing and computes the digest of each tensor; digest_rows.c
 *     manifest_run.c  the manifest of the output; file_checksums.c checksums of whole files
 *     view_sums.c     digests of tensors that share a storage, from the output
 *     manifest_files.c  the manifest in the source's folder: names and sizes of its files
 *     local_output.c  outputs on each host's own disk; local_output_assign.c which host gets which file
 *     sidecars.c      small files beside the weights that are copied along
 *     run_report.c    what the run did; rank_totals.c totals per rank
 *     group_plan.c    what a group of many processes would do
 */
#ifndef FSDPCK_RUN_RUN_H
#define FSDPCK_RUN_RUN_H

#include "exec/exec.h"
#include "io/output.h"
#include "open/checkpoint.h"
#include "plan/plan.h"
#include "run/local_output.h"
#include "run/run_options.h"
#include "run/sidecars.h"
#include "select/optim_state_map.h"

typedef struct run {
    fsdpck_context *ctx;
    fsdpck_checkpoint *src;
    const char *dst;
    run_options opt;
    bool sharded;                       /* reshard: `cut` says how */
    bool replaces_empty;                /* DST is an empty folder */
    bool bare_optimizer, names_objects; /* nothing is written: as in select_request */
    rank_differences *differences;      /* as in exec_request */
    const format_writer *writer;
    layout layout;
    shard_request cut;
    unit_list units; /* of a flat writer, over the ranks of `layout`; borrowed by `cut` and `to` */
    sidecars side;
    select_result selected;
    optim_state_map optim_state_map; /* reshard */
    target to;
    plan *plan;
    gpu *gpu; /* NULL: threads do all */
    struct exec *exec;
    output out;
    local_output local; /* where each host has an output of its own */
} run;

/* An empty run with the caller's options, or the defaults where they are NULL or shorter. */
void run_init(run *r, fsdpck_context *ctx, fsdpck_checkpoint *src, const run_options *options);
void run_release(run *r);

/* By name, by what DST ends in; a bare name is an hf folder, or, resharding, the source's own
 * format (dcp where that cannot be cut). */
fsdpck_status request_choose_writer(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether DST may be written, as far as this host writes it: not in or around the input, not there yet, or replaceable (an empty
 * folder always is). After r->side is filled. */
fsdpck_status request_check_output(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Once r->exec knows: a tensor of a compressed output that comes from compressed chunks, which are not
 * read in the order in which these are made (UNSUPPORTED). */
fsdpck_status request_check_compressed(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Before the commit: an empty folder that was accepted must be empty still. EXISTS. */
fsdpck_status request_check_still_empty(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Whether the file system has room for all of it, once the sizes are known: NOSPACE, or, in a dry
 * run, a warning. */
fsdpck_status request_check_space(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills r->layout and r->cut from the options. */
fsdpck_status reshard_choose_layout(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Source catalogue and options -> r->to, without places. */
fsdpck_status run_select(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The writer gives what is selected at its places. */
fsdpck_status run_lay_out(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_make_plan(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After all ranks have agreed on having one: whether it is the same plan. */
fsdpck_status run_check_same_plan(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Heads of the blobs that the plan needs; r->exec may run then. By all ranks, of the same plan, who
 * agree on the result afterwards. */
fsdpck_status run_resolve(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Bytes of buffers to use. */
uint64_t run_memory_nbytes(const run *r);
uint64_t run_memory_default_nbytes(void);
/* Opens r->gpu where it is asked for; DEVICE where it is not there. */
fsdpck_status run_check_engine(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Resharding, after run_select: finds r->optim_state_map, and says what is legal and may not be meant: mesh
 * dims that cut nothing, tensors cut by default. */
fsdpck_status run_advise(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After run_select: warns of tensors that lose Python attributes (PT-ATTRS). */
void run_advise_attributes(const run *r);

/* Whether what is written is compressed, so that its size is known only at the end. */
bool run_is_compressed(const run *r);
/* Of r->out. */
output_kind run_output_kind(const run *r);
unsigned run_output_flags(const run *r);
/* File `index` of the target. */
fsdpck_status run_add_file(run *r, size_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares what the storage has with what was written (READ-BACK), of the files that are here. */
fsdpck_status run_read_back(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* --manifest FILE, to be committed with the output. */
fsdpck_status run_stage_manifest(const run *r, const text_buf *text, output *beside,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* All of it, from a run of its own: fsdpck_consolidate, or where it is `sharded` fsdpck_reshard. */
fsdpck_status run_transform(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                            const run_options *options, bool sharded, fsdpck_report **report,
                            fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
