/* digest_run.h: a consolidation whose bytes are summed and thrown away.
 *
 *     fsdpck_digests d = {0};
 *     st = digest_run(&d, ctx, src, options, err);   // collective
 *     ... d.rows ...
 *     digest_run_release(&d);                        // also after a failure
 */
#ifndef FSDPCK_RUN_DIGEST_RUN_H
#define FSDPCK_RUN_DIGEST_RUN_H

#include "run/digest_rows.h"
#include "run/run.h"

struct fsdpck_digests {
    run run;
    digest_rows rows;
};

/* As far as digests of a part go without reading data: that every tensor is there as a whole, and that the
 * heads of its payloads agree with the metadata. `replicas`: that copies of a chunk are equal too
 * (REPLICA-DIFFER), by recorded checksums, else by their bytes. */
fsdpck_status digest_check_coverage(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                    bool replicas, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* The same with `replicas` of all parts; plain tensors that differ between ranks are no failure, but in
 * *d, of all ranks of the group. d->tensors: digest_differences_words of zeros. */
fsdpck_status digest_check_copies(fsdpck_context *ctx, fsdpck_checkpoint *src, rank_differences *d,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
uint64_t digest_differences_words(const fsdpck_checkpoint *src);

/* Where each rank described only its own part: that the recorded boxes cover each tensor. Reads
 * nothing. */
fsdpck_status digest_check_boxes(fsdpck_checkpoint *src, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Selection, names and dtypes alone: r->to gets its tensors, without places. */
fsdpck_status digest_select(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Digests of the tensors that `options` select. */
fsdpck_status digest_run(fsdpck_digests *d, fsdpck_context *ctx, fsdpck_checkpoint *src,
                         const run_options *options, fsdpck_error *err) FSDPCK_MUST_CHECK;
void digest_run_release(fsdpck_digests *d);

/* A writer that writes nothing, of any dtype; it lays out as below. */
extern const format_writer digest_writer;
/* Places of a tensor's chunks, as if they were at *at of a file, which becomes the next's. */
fsdpck_status digest_lay_out_tensor(catalogue *c, uint32_t tensor, uint32_t file_index,
                                    uint64_t *at, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a target without places: one tensor after the other, and want_digest. `opt` is of no account. */
fsdpck_status digest_lay_out(target *t, const writer_options *opt,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
