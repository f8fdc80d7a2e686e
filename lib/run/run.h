/* run.h: one run from request to committed output, for the files that make it up:
 *
 *     request_check.c    which writer; whether DST may be written
 *     output_paths.c     refuses an output that would replace a file of the input
 *     output_replaced.c  files of a folder that the output replaces
 *     run.c              select -> layout -> plan -> resolve -> execute -> seal -> commit
 *     run_resume.c       --resume: continues the output of a run that was killed; resume_report.c its messages
 *     stop_advice.c      the next step after a signal and a full disk
 *     run_engine.c       threads or a GPU
 *     run_output.c       files of an output: added, read, read back
 *     run_public.c       the two public calls: a run onto one rank, a run onto many
 *     like_output.c      an output that equals a model folder in all but the values
 *     like_files.c       its config, tokenizer and other files; config_edit.c changes config.json
 *     like_ties.c        finds tied copies that the folder lacks
 *     tied_head.c        compares an omitted output projection with the embedding
 *     reshard_layout.c   a run onto many: options -> mesh and rules
 *     same_files_warn.c  warns about files of the source that are copies of others
 *     advise.c           warnings about legal but probably unintended requests
 *     digest_run.c       a run that writes nothing and computes the digest of each tensor; digest_rows.c
 *     average_inputs_check.c, average_distances.c  an average: checks of its inputs, results of all ranks
 *     load.c             a run into memory of the caller; load_places.c where each byte goes
 *     manifest_run.c     the manifest of the output; file_checksums.c checksums of whole files
 *     view_sums.c        digests of tensors that share a storage, from the output
 *     manifest_files.c   the manifest in the source's folder: names and sizes of its files
 *     local_output.c     outputs on each host's own disk; local_output_assign.c which host gets which file
 *     sidecars.c         small files beside the weights that are copied along; run_sidecars.c chooses them, sidecar_cut.c
 *                        warns of cut ones
 *     run_report.c       the report of a run; rank_totals.c totals per rank
 *     group_plan.c       predicted work of a group of processes
 */
#ifndef FSDPCK_RUN_RUN_H
#define FSDPCK_RUN_RUN_H

#include "exec/exec.h"
#include "io/output.h"
#include "open/checkpoint.h"
#include "plan/plan.h"
#include "run/like_output.h"
#include "run/local_output.h"
#include "run/run_options.h"
#include "run/run_resume.h"
#include "run/sidecars.h"
#include "select/optim_state_map.h"

struct run;
/* A step of a run. Collective. */
typedef fsdpck_status (*run_check_fn)(struct run *r, fsdpck_error *err);

typedef struct run_checks {
    run_check_fn before;  /* before the selection; NULL: none */
    run_check_fn planned; /* before the run reads data */
} run_checks;

typedef struct run {
    fsdpck_context *ctx;
    fsdpck_checkpoint *src;
    const char *dst;
    run_options opt;
    bool sharded;        /* reshard: see `sharding` */
    bool replaces_empty; /* DST is an empty folder */
    strtab replaced;     /* names in a folder that is replaced: output_replaced.h */
    vec replaced_stamps; /* path_stamp, by id in `replaced` */
    path_stamp replaced_file,
        replaced_manifest; /* DST and --manifest at the start, if they are files */
    /* As in select_request, for runs without output. */
    bool bare_optimizer, names_objects, may_be_empty;
    bool attributes;               /* likewise */
    const char *key_beside;        /* likewise */
    const char *dtype_option;      /* likewise */
    const select_only *only;       /* as in select_request; NULL: by the options */
    bool check_manifest;           /* likewise: manifest_files_check_lost */
    rank_differences *differences; /* as in exec_request */
    bool ignores_copies;           /* likewise */
    const format_writer *writer;
    layout layout;
    shard_request sharding;
    unit_list units; /* of a flat writer, over `layout`; borrowed by `sharding` and `to` */
    sidecars side;
    like_output like;
    vec like_ties; /* tied_pair: like_ties.h */
    select_result selected;
    optim_state_map optim_state_map; /* reshard */
    target to;
    plan *plan;
    gpu *gpu; /* NULL: threads only */
    struct exec *exec;
    output out;
    local_output local; /* if each host has its own output */
    run_resume resume;
    bool has_checksums; /* the source: its data is copied without comparing them */
} run;

/* An empty run with the caller's options, or the defaults where they are NULL or shorter. */
void run_init(run *r, fsdpck_context *ctx, fsdpck_checkpoint *src, const run_options *options);
void run_release(run *r);

/* Chooses the writer by --format, else by the suffix of DST. Without a suffix: hf, or for a reshard
 * the source's format (dcp if that cannot be sharded). */
fsdpck_status request_choose_writer(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Checks that DST may be written on this host: outside the input, and absent or replaceable (an
 * empty folder always is). After r->side is filled. */
fsdpck_status request_check_output(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After r->exec exists: UNSUPPORTED if a tensor of a compressed output has compressed source
 * chunks, as these are not read in output order. */
fsdpck_status request_check_compressed(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Before the commit: EXISTS if a folder that was empty no longer is. */
fsdpck_status request_check_still_empty(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After the sizes are known: checks the free space of the file system. NOSPACE, or a warning in a
 * dry run. */
fsdpck_status request_check_space(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Fills r->layout and r->sharding from the options. */
fsdpck_status reshard_choose_layout(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Source catalogue and options -> r->to, without locations. */
fsdpck_status run_select(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* run_sidecars.c, before run_select: fills r->side. */
fsdpck_status run_find_sidecars(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After it: what names of weights begin with in a model folder: diffusers loads no others. NULL: as in transformers. */
const char *run_weights_stem(const run *r);
/* After run_select: config.json of a copy with the dtype of the output. */
fsdpck_status run_edit_config(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* MODULE-LOST: Python files that the copied settings name and the output lacks. */
fsdpck_status run_warn_modules(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* same_files_warn.c: FILE-SAME of the source; after run_resolve. */
fsdpck_status run_warn_same_files(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The writer sets the locations of r->to. */
fsdpck_status run_lay_out(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
fsdpck_status run_make_plan(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective: the ranks agree on st, of making a plan, and check that they have the same one. */
fsdpck_status run_agree_on_plan(const run *r, fsdpck_status st, group_failure how,
                                fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Reads the blob headers that the plan needs; then r->exec may run. Called by all ranks with the
 * same plan; they agree on the result afterwards. */
fsdpck_status run_resolve(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Bytes of buffers to use. */
uint64_t run_memory_nbytes(const run *r);
uint64_t run_memory_default_nbytes(fsdpck_engine engine);
/* Opens r->gpu if requested; DEVICE if it is not available. */
fsdpck_status run_check_engine(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* For a reshard, after run_select: fills r->optim_state_map and warns of probably unintended
 * requests, such as mesh dims that shard nothing. */
fsdpck_status run_advise(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After run_select: warns of tensors that lose Python attributes (PT-ATTRS). */
void run_advise_attributes(const run *r);
/* Likewise of names that --tied first omits and the output does not record, or that --dtype makes other tensors of
 * (KEY-TIED), and of quantized weights that it casts without their scales (QUANT-SCALE). */
void run_advise_tied(const run *r);
/* After the output is written: warns of values that a cast lost (CAST-OVERFLOW). */
void run_warn_overflow(const run *r);
/* NUM-STEP, where the state of the optimizer shows files of two saves; if it is written: OPTIM-ORDER, where several ranks
 * hold parts of it by name, whose numbers are not known, and STEP-STATE. */
void run_advise_optimizer(const run *r);
/* Notes tensor maps for the names of a model folder that is written under the trainer's names. */
fsdpck_status run_advise_map(const run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* After run_lay_out: warns of texts of `__metadata__` and of the index that the output does not
 * contain (ST-LEFT-OUT). */
void run_advise_metadata(const run *r);

/* Whether the output is compressed, so that its size is known only at the end. */
bool run_is_compressed(const run *r);
/* Of r->out. */
output_kind run_output_kind(const run *r);
unsigned run_output_flags(const run *r);
/* File `index` of the target. */
fsdpck_status run_add_file(run *r, size_t index, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Bytes of a file of the output, wherever it is; from any thread. `arg`: the run. */
fsdpck_status run_read_output(void *arg, size_t file_index, uint64_t offset_bytes, void *dst,
                              uint64_t nbytes, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Compares the stored bytes with those written (READ-BACK), for the files of this host. */
fsdpck_status run_read_back(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A complete run: fsdpck_consolidate, or fsdpck_reshard if `sharded`. */
fsdpck_status run_transform(fsdpck_context *ctx, fsdpck_checkpoint *src, const char *dst,
                            const run_options *options, bool sharded, const run_checks *checks,
                            fsdpck_report **report, fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
