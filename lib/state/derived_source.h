/* derived_source.h: the source of a second catalogue, whose chunks are those of a base or are computed.
 *
 *     static const derived_ops ops = {.same = same, .locate = locate, ...};
 *     derived_source_init(&d, &ops, ctx, &out, base);
 *     &d.source
 *
 * Calls for chunks of the base go to its source. Calls for computed chunks, and their streams, go to `ops`.
 */
#ifndef FSDPCK_STATE_DERIVED_SOURCE_H
#define FSDPCK_STATE_DERIVED_SOURCE_H

#include "state/source.h"

/* Except `same`, for computed chunks, which are streams. Members as in source.h. */
typedef struct derived_ops {
    /* Whether a chunk is that of the base: *of. */
    bool (*same)(const void *ctx, uint64_t chunk, uint64_t *of);
    fsdpck_status (*locate)(void *ctx, uint64_t chunk, place *where, fsdpck_error *err);
    /* Opens a stream, in zeroed memory of `stream_size` bytes. stream_close frees it, also after a failure. */
    size_t stream_size;
    fsdpck_status (*stream_begin)(source_stream *s, void *ctx, uint64_t chunk, fsdpck_error *err);
    fsdpck_status (*stream_read)(source_stream *s, void *dst, uint64_t nbytes, fsdpck_error *err);
    fsdpck_status (*stream_finish)(source_stream *s,
                                   fsdpck_error *err); /* NULL: nothing to check */
    void (*stream_close)(source_stream *s);
    uint64_t (*stream_nbytes)(void *ctx, uint64_t chunk);
    fsdpck_status (*read_box)(void *ctx, uint64_t chunk, const uint64_t *offsets,
                              const uint64_t *sizes, void *dst, fsdpck_error *err);
    const char *(*replica_of)(void *ctx, uint64_t chunk); /* NULL: they are none */
    /* Of all chunks. NULL: that of the base. */
    fsdpck_status (*check_unchanged)(void *ctx, fsdpck_error *err);
} derived_ops;

typedef struct derived_source {
    source source;
    const derived_ops *ops;
    void *ctx; /* of ops */
    const source *base;
} derived_source;

/* All are borrowed, and `d` must not move. */
void derived_source_init(derived_source *d, const derived_ops *ops, void *ctx, const catalogue *cat,
                         const source *base);

#endif
