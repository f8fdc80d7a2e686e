/* flat_writer_internal.h: shared by flat_writer.c and flat_records.c.
 *
 *     flat_writer.c   which files there are, and the pickles of their state
 *     flat_records.c  the records: shards of flat parameters, of their optimizer state, of parameters
 */
#ifndef FSDPCK_FLAT_WRITER_INTERNAL_H
#define FSDPCK_FLAT_WRITER_INTERNAL_H

#include "formats/common/pickle.h"
#include "model/unit.h"
#include "state/target.h"

typedef struct flat_layout {
    target *t;
    uint64_t *next;    /* of each tensor: its first chunk of this rank, or of a later one */
    uint32_t *tensors; /* of each state (0: the model's own) and parameter; CAT_NONE */
    size_t nparams, nstates;
    uint32_t *records;             /* of each unit, of this rank */
    uint64_t pads_at[DTYPE_COUNT]; /* in target.text, UINT64_MAX: none yet */
    uint64_t pad_nelems;           /* the most that is needed */
    uint64_t zeros_at, zeros_nbytes;
    uint64_t ntensors, nchunks_placed;
    uint32_t rank;
    bool in_pieces; /* the current part of this file differs between ranks */
    bool has_own;   /* some tensors are local to one rank: `root` is rebuilt for each */
    value root;     /* the model's state, of this rank */
    const text_buf *pickle;
} flat_layout;

/* --- flat_records.c --- */

/* The tensor of a parameter; state 0: itself. */
uint32_t flat_tensor_of(const flat_layout *s, uint32_t state, uint32_t param);
fsdpck_status flat_fail_tensor(const flat_layout *s, uint64_t tensor, const char *what,
                               fsdpck_error *err) FSDPCK_MUST_CHECK;
void flat_records_init(flat_layout *s);
/* A record: this rank's shard of a flat parameter, with inner padding, without padding at the end.
 */
fsdpck_status flat_put_record(flat_layout *s, const unit *u, dtype d, uint32_t *record,
                              fsdpck_error *err) FSDPCK_MUST_CHECK;
/* Optimizer state: target tensor `index` holds one parameter's part of it. Written as in torch's
 * memory: a flat parameter's shard with the zeros at its end, or this rank's shard of the
 * parameter. */
fsdpck_status flat_put_state(flat_layout *s, pickle_writer *w, uint32_t index,
                             fsdpck_error *err) FSDPCK_MUST_CHECK;

#endif
