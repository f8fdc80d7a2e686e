/* digest_run.h: a consolidation that computes digests and writes no output.
 *
 *     fsdpck_digests d = {0};
 *     st = digest_run(&d, ctx, src, options, false, err);   // collective
 *     ... d.rows ...
 *     digest_run_release(&d);                               // also after a failure
 */
#ifndef FSDPCK_RUN_DIGEST_RUN_H
#define FSDPCK_RUN_DIGEST_RUN_H

#include "run/digest_rows.h"
#include "run/run.h"

struct fsdpck_digests {
    run run;
    digest_rows rows;
};

/* Checks a part without reading data: chunks cover every tensor, and blob headers agree with the
 * metadata. Copies of a chunk are not compared. */
fsdpck_status digest_check_headers(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                   fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Also compares copies of a chunk (REPLICA-DIFFER) by recorded checksums, else by their bytes. */
fsdpck_status digest_check_coverage(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                    fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Collective. The same for all parts, but records plain tensors that differ between
 * ranks in *d instead of failing. d->tensors: digest_differences_words(src) zeroed words. */
fsdpck_status digest_check_copies(fsdpck_context *ctx, fsdpck_checkpoint *src, rank_differences *d,
                                  fsdpck_error *err) FSDPCK_MUST_CHECK;
uint64_t digest_differences_words(const fsdpck_checkpoint *src);

/* For checkpoints in which each rank describes only its own part: checks that the recorded boxes
 * cover each tensor. No I/O. */
fsdpck_status digest_check_boxes(fsdpck_checkpoint *src, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Applies only selection, names and dtypes: r->to gets its tensors without locations. */
fsdpck_status digest_select(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Digests of the tensors that `options` select. With check_manifest, fails if the manifest in the
 * folder shows that files with some of them are missing. */
fsdpck_status digest_run(fsdpck_digests *d, fsdpck_context *ctx, fsdpck_checkpoint *src,
                         const run_options *options, bool check_manifest,
                         fsdpck_error *err) FSDPCK_MUST_CHECK;
void digest_run_release(fsdpck_digests *d);

/* A writer without output that accepts any dtype and uses the layout below. */
extern const format_writer digest_writer;
/* Locates a tensor's chunks at *at of a virtual file, and advances *at to the next tensor. */
fsdpck_status digest_lay_out_tensor(catalogue *c, uint32_t tensor, uint32_t file_index,
                                    uint64_t *at, fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Locates all tensors of the target one after the other and sets want_digest. `opt` is ignored. */
fsdpck_status digest_lay_out(target *t, const writer_options *opt,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
