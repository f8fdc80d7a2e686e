/* digest.h: what digest.c, which makes digests, and digest_check.c, which compares them with a list,
 * share. */
#ifndef FSDPCK_DIGEST_H
#define FSDPCK_DIGEST_H

#include "digest_rows.h"
#include "run.h"

struct fsdpck_digests {
    run run;
    digest_rows rows;
};

/* As far as digests of a part go without reading data: that every tensor is there as a whole, and that the
 * heads of its payloads agree with the metadata. `replicas`: that copies of a chunk are equal too
 * (REPLICA-DIFFER), by recorded checksums, else by their bytes. */
fsdpck_status digest_check_coverage(fsdpck_context *ctx, fsdpck_checkpoint *src, fsdpck_part part,
                                    bool replicas, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* Selection, names and dtypes alone: r->to gets its tensors, without places. */
fsdpck_status digest_aim(run *r, fsdpck_error *err) FSDPCK_MUST_CHECK;

/* A line of a list of digests, "HEX  TYPE  NAME"; borrows the text. */
typedef struct digest_line {
    const char *type, *name;
    size_t type_nbytes, name_nbytes;
    uint64_t value;
    size_t number; /* from 1 */
} digest_line;
bool digest_line_read(const char *text, size_t nbytes, digest_line *l);

/* A writer that writes nothing, of any dtype; it lays out as below. */
extern const format_writer digest_writer;
/* Places of a tensor's chunks, as if they were at *at of a file, which becomes the next's. */
fsdpck_status digest_place(catalogue *c, uint32_t tensor, uint32_t file_index, uint64_t *at,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Of a target without places: one tensor after the other, and want_digest. `opt` is of no account. */
fsdpck_status digest_give_places(target *t, const writer_options *opt,
                                 fsdpck_error *err) FSDPCK_MUST_CHECK;

/* inner_digests.c: of the tensors inside objects that are loaded: what tells them apart, dtype, shape
 * and elements, as a number, by their index in the catalogue. */
fsdpck_status digest_inner(fsdpck_context *ctx, fsdpck_checkpoint *src,
                           const fsdpck_transform_options *options, uint64_t *digests,
                           fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
